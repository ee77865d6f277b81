// Runs the functions of all devices in one process with the reference rules: each up to its next collective, then the
// collective, and so on. It is the oracle for every real device group and counts the bytes that move.
import {
  bareCollective,
  type GraphFn,
  InternalError,
  makeStorage,
  numel,
  type OpAttrs,
  type ReduceFn,
  type Shape,
} from "../graph/index.js";
import {
  combine,
  type EvaluationSteps,
  evaluateSteps,
  groupMembers,
  type PendingCollective,
  type Value,
} from "../ops/index.js";
import type { Mesh } from "./mesh.js";
import type { Placement } from "./placement.js";

export interface Lockstep {
  /** By device, in mesh order. */
  results: Value[][];
  /** Collectives in the order of execution, with the bytes that all devices received from others. */
  traffic: { kind: OpAttrs["collective"]["kind"]; bytes: number }[];
}

/** Lower bound of the bytes that cross from one device to another. */
function crossing(
  attrs: readonly OpAttrs["collective"][],
  inputs: readonly Value[],
  outputs: readonly Value[],
): number {
  const n = attrs.length;
  const sum = (values: readonly Value[]): number => values.reduce((total, { data }) => total + data.byteLength, 0);
  switch (attrs[0].kind) {
    case "allReduce":
      return (2 * (n - 1) * sum(inputs)) / n;
    case "allGather":
      return sum(outputs) - sum(inputs);
    case "reduceScatter":
      return (n - 1) * sum(outputs);
    case "allToAll":
      return attrs.reduce((total, { shape, sizes, axis }, me) => {
        const whole = outputs[me].data.byteLength;
        return total + (shape[axis] === 0 ? 0 : (whole * (shape[axis] - sizes[me])) / shape[axis]);
      }, 0);
    case "exchange":
      return attrs.reduce(
        (total, { receives, rank, dtype }) =>
          total +
          receives
            .filter((box) => box.rank !== rank)
            .reduce((bytes, box) => bytes + numel(box.stop.map((to, i) => to - box.start[i])) * bytesPer(dtype), 0),
        0,
      );
  }
}

const bytesPer = (dtype: Value["dtype"]): number => makeStorage(dtype, 1).byteLength;

/** Runs one function per device; `ranks` names them. */
export function runLockstep(
  functions: readonly GraphFn[],
  args: readonly (readonly Value[])[],
  ranks: readonly number[],
): Lockstep {
  const runs: EvaluationSteps[] = functions.map((fn, i) => evaluateSteps(fn, args[i]));
  const states = runs.map((run) => run.next());
  const traffic: Lockstep["traffic"] = [];
  while (states.some((state) => !state.done)) {
    const waiting = states.map((state): PendingCollective | null => (state.done ? null : state.value));
    // The device that is furthest behind determines the next collective; its whole group must have reached it.
    const next = Math.min(...waiting.map((at) => at?.attrs.sequence ?? Number.POSITIVE_INFINITY));
    const { attrs: first } = waiting.find((at) => at?.attrs.sequence === next)!;
    const members = groupMembers(first).map((rank) => ranks.indexOf(rank));
    const together = members.map((i): PendingCollective => {
      const at = waiting[i];
      if (at?.attrs.sequence === next && at.attrs.kind === first.kind) return at;
      const doing = at === null ? "is done" : `is in ${at.attrs.kind} #${at.attrs.sequence}`;
      throw new InternalError(`rank ${ranks[i]} ${doing} while rank ${first.rank} waits in ${first.kind} #${next}`);
    });
    const attrs = together.map((at) => at.attrs);
    const inputs = together.map((at) => at.input);
    const outputs = combine(attrs, inputs);
    traffic.push({ kind: attrs[0].kind, bytes: crossing(attrs, inputs, outputs) });
    members.forEach((i, k) => {
      states[i] = runs[i].next(outputs[k]);
    });
  }
  return { results: states.map((state) => state.value as Value[]), traffic };
}

function copyRegion(from: Value, start: readonly number[], into: Value, at: readonly number[], extent: Shape): void {
  const perElement = from.data.length / Math.max(1, numel(from.shape));
  const index = extent.map(() => 0);
  const linear = (shape: Shape, origin: readonly number[]): number =>
    shape.reduce((n, size, axis) => n * size + index[axis] + origin[axis], 0);
  for (let n = numel(extent); n > 0; n--) {
    const s = linear(from.shape, start) * perElement;
    const t = linear(into.shape, at) * perElement;
    for (let k = 0; k < perElement; k++) (into.data as Float64Array)[t + k] = from.data[s + k] as number;
    for (let axis = extent.length - 1; axis >= 0 && ++index[axis] === extent[axis]; axis--) index[axis] = 0;
  }
}

/** The shard of each device. A pending sum is held by the first device; the others hold zeros. */
export function scatterValue(value: Value, placement: Placement): Value[] {
  const { mesh } = placement;
  return mesh.ranks.map((rank) => {
    const { start } = placement.box(rank, value.shape);
    const shape = placement.localShape(rank, value.shape);
    const local: Value = { shape, dtype: value.dtype, data: makeStorage(value.dtype, numel(shape)) };
    const counts = placement.pending === null || mesh.position(rank, placement.pending.axes) === 0;
    if (counts)
      copyRegion(
        value,
        start,
        local,
        shape.map(() => 0),
        shape,
      );
    return local;
  });
}

/** Assembles the whole value from its shards; throws where replicas differ. */
export function gatherValue(locals: readonly Value[], placement: Placement, shape: Shape): Value {
  const { mesh } = placement;
  const { dtype } = locals[0];
  const whole: Value = { shape, dtype, data: makeStorage(dtype, numel(shape)) };
  const settled =
    placement.pending === null ? locals : putTogether(locals, mesh, placement.pending.axes, placement.pending.fn);
  const seen = new Map<string, Value>();
  mesh.ranks.forEach((rank, i) => {
    const { start, stop } = placement.box(rank, shape);
    const extent = stop.map((to, axis) => to - start[axis]);
    const key = `${start}:${stop}`;
    const twin = seen.get(key);
    if (twin === undefined)
      copyRegion(
        settled[i],
        extent.map(() => 0),
        whole,
        start,
        extent,
      );
    else if (Buffer.compare(bytesOfValue(twin), bytesOfValue(settled[i])) !== 0)
      throw new InternalError(`rank ${rank} holds other values than its replica in [${start}] to [${stop}]`);
    seen.set(key, settled[i]);
  });
  return whole;
}

const bytesOfValue = ({ data }: Value): Buffer => Buffer.from(data.buffer, data.byteOffset, data.byteLength);

function putTogether(locals: readonly Value[], mesh: Mesh, axes: readonly string[], fn: ReduceFn): Value[] {
  const results = [...locals];
  for (const group of mesh.groups(axes)) {
    const members = group.map((rank) => mesh.ranks.indexOf(rank));
    const attrs = group.map((rank, k) => ({
      ...bareCollective,
      kind: "allReduce" as const,
      fn,
      groups: [group],
      rank,
      shape: locals[members[k]].shape,
      dtype: locals[members[k]].dtype,
    }));
    combine(
      attrs,
      members.map((i) => locals[i]),
    ).forEach((value, k) => {
      results[members[k]] = value;
    });
  }
  return results;
}
