// Semantics of collectives, for all members of a group at once: the oracle of every process group. Tests and in-process groups,
// which have all operands in one place, call it directly.
import { bytesOf, InternalError, makeStorage, type Node, numel, type OpAttrs, type Shape } from "../../graph/index.js";
import { movementRules } from "./movement.js";
import { reduceRules } from "./reduce.js";
import {
  type CollectiveGroup,
  copyBlock,
  copyElements,
  hasAval,
  joinBlocks,
  linearIndex,
  type Value,
} from "./value.js";

type Attrs = OpAttrs["collective"];

export const groupMembers = ({ groups, rank }: Pick<Attrs, "groups" | "rank">): readonly number[] => {
  const group = groups.find((members) => members.includes(rank));
  if (group === undefined) throw new InternalError(`rank ${rank} is in none of the groups [${groups.join(" | ")}]`);
  return group;
};

function joined(parts: readonly Value[], axis: number): Value {
  return movementRules.concat(parts, { attrs: { axis } } as Node<"concat">) as Value;
}

/** Reduces operands of one shape in the given order. */
function reduced(fn: Attrs["fn"], operands: readonly Value[]): Value {
  const { shape, dtype } = operands[0];
  const stacked = joinBlocks(dtype, [operands.length, ...shape], operands);
  return reduceRules.reduce([stacked], { attrs: { fn, axes: [0] } } as unknown as Node<"reduce">) as Value;
}

/** Elements [from, to) of one axis. */
function cut(x: Value, axis: number, from: number, to: number): Value {
  const shape = x.shape.map((d, i) => (i === axis ? to - from : d));
  return copyElements(x, shape, (index) =>
    linearIndex(
      x.shape,
      index.map((at, i) => (i === axis ? at + from : at)),
    ),
  );
}

const startOf = (sizes: readonly number[], member: number): number =>
  sizes.slice(0, member).reduce((n, size) => n + size, 0);

const part = (x: Value, axis: number, sizes: readonly number[], member: number): Value =>
  cut(x, axis, startOf(sizes, member), startOf(sizes, member + 1));

function copyBox(from: Value, start: readonly number[], into: Value, at: readonly number[], extent: Shape): void {
  const bytes = bytesOf(from.dtype);
  const source = new Uint8Array(from.data.buffer, from.data.byteOffset, from.data.byteLength);
  const target = new Uint8Array(into.data.buffer, into.data.byteOffset, into.data.byteLength);
  const index = extent.map(() => 0);
  const count = numel(extent);
  for (let n = 0; n < count; n++) {
    const s = linearIndex(
      from.shape,
      index.map((i, axis) => i + start[axis]),
    );
    const t = linearIndex(
      into.shape,
      index.map((i, axis) => i + at[axis]),
    );
    target.set(source.subarray(s * bytes, (s + 1) * bytes), t * bytes);
    for (let axis = extent.length - 1; axis >= 0 && ++index[axis] === extent[axis]; axis--) index[axis] = 0;
  }
}

function exchanged(member: number, attrs: readonly Attrs[], operands: readonly Value[]): Value {
  const { receives, shape, dtype, rank } = attrs[member];
  const members = groupMembers(attrs[member]);
  const result: Value = { shape, dtype, data: makeStorage(dtype, numel(shape)) };
  const taken = new Map<number, number>();
  for (const box of receives) {
    const sender = members.indexOf(box.rank);
    const nth = taken.get(box.rank) ?? 0;
    taken.set(box.rank, nth + 1);
    const sent = attrs[sender].sends.filter((send) => send.rank === rank)[nth];
    const extent = box.stop.map((stop, axis) => stop - box.start[axis]);
    if (sent === undefined || sent.stop.some((stop, axis) => stop - sent.start[axis] !== extent[axis]))
      throw new InternalError(`exchange: rank ${rank} expects box ${nth} of rank ${box.rank} to be [${extent}]`);
    copyBox(operands[sender], sent.start, result, box.start, extent);
  }
  return result;
}

const rules: { [K in Attrs["kind"]]: (attrs: readonly Attrs[], operands: readonly Value[]) => Value[] } = {
  allReduce: ([{ fn }], operands) => {
    const result = reduced(fn, operands);
    return operands.map(() => result);
  },
  allGather: ([{ axis }], operands) => {
    const result = joined(operands, axis);
    return operands.map(() => result);
  },
  reduceScatter: ([{ fn, axis, sizes }], operands) => {
    const result = reduced(fn, operands);
    return operands.map((_, member) => part(result, axis, sizes, member));
  },
  allToAll: ([{ axis, splitAxis, splitSizes }], operands) =>
    operands.map((_, member) =>
      joined(
        operands.map((x) => part(x, splitAxis, splitSizes, member)),
        axis,
      ),
    ),
  exchange: (attrs, operands) => operands.map((_, member) => exchanged(member, attrs, operands)),
};

/** Results of all members of a group from their operands, both in the order of the group. */
export function combine(attrs: readonly Attrs[], operands: readonly Value[]): Value[] {
  const results = rules[attrs[0].kind](attrs, operands);
  results.forEach((value, i) => {
    if (!hasAval(value, attrs[i].shape, attrs[i].dtype))
      throw new InternalError(
        `${attrs[i].kind} #${attrs[i].sequence} gives rank ${attrs[i].rank} a [${value.shape}], not [${attrs[i].shape}]`,
      );
  });
  return results;
}

const bytesView = ({ data }: Value): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** One device's result of a collective, through its group. */
export function callGroup(group: CollectiveGroup | null, attrs: Attrs, input: Value): Value {
  if (group === null)
    throw new InternalError(`${attrs.kind} #${attrs.sequence} runs on a device that is in no group of devices`);
  const output: Value = { shape: attrs.shape, dtype: attrs.dtype, data: makeStorage(attrs.dtype, numel(attrs.shape)) };
  // Copies a view of a larger array, because the other side reads whole arrays.
  group.collective(attrs, bytesView(copyBlock(input, 0, input.shape)), bytesView(output), input.shape);
  return output;
}
