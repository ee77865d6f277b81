// Tables of kernels by name and of collectives with their sizes and bandwidths.
import { busFactor } from "../metrics/index.js";
import type { Column } from "./columns.js";
import type { CollectiveArguments } from "./data.js";
import { type Collective, collectiveOfKernel, type KernelType, kernelTypes } from "./kinds.js";
import type { Symbols } from "./symbols.js";

/** Events in columns, independent of the kind of device. */
export interface Activity {
  symbols: Symbols;
  ts: Float64Array;
  dur: Column;
  /** For nested events (host operators): the duration without nested events. */
  ownDur?: Float64Array;
  name: Column;
  /** Index into `kernelTypes`. */
  type: Uint8Array;
  /** The analyzed rows, by start time. */
  rows: Uint32Array;
  collectives: Map<number, CollectiveArguments>;
}

export interface KernelRow {
  name: string;
  type: KernelType;
  count: number;
  sumUs: number;
  meanUs: number;
  minUs: number;
  maxUs: number;
  stdUs: number;
}

/** Kernels by name, largest total first; nested events count with their own time. */
export function kernelTable(activity: Activity): KernelRow[] {
  const slots = new Map<number, number>();
  const names: number[] = [];
  const count: number[] = [];
  const sum: number[] = [];
  const squares: number[] = [];
  const min: number[] = [];
  const max: number[] = [];
  const types: number[] = [];
  const durations = activity.ownDur ?? activity.dur;
  for (let i = 0; i < activity.rows.length; i++) {
    const row = activity.rows[i];
    let slot = slots.get(activity.name[row]);
    if (slot === undefined) {
      slot = names.length;
      slots.set(activity.name[row], slot);
      names.push(activity.name[row]);
      types.push(activity.type[row]);
      count.push(0);
      sum.push(0);
      squares.push(0);
      min.push(Number.POSITIVE_INFINITY);
      max.push(Number.NEGATIVE_INFINITY);
    }
    const dur = durations[row];
    // Welford's algorithm avoids cancellation in long sums of squares.
    const before = count[slot] === 0 ? 0 : sum[slot] / count[slot];
    count[slot]++;
    sum[slot] += dur;
    squares[slot] += (dur - before) * (dur - sum[slot] / count[slot]);
    if (dur < min[slot]) min[slot] = dur;
    if (dur > max[slot]) max[slot] = dur;
  }
  return names
    .map((name, i) => ({
      name: activity.symbols.text(name),
      type: kernelTypes[types[i]],
      count: count[i],
      sumUs: sum[i],
      meanUs: sum[i] / count[i],
      minUs: min[i],
      maxUs: max[i],
      stdUs: count[i] > 1 ? Math.sqrt(squares[i] / (count[i] - 1)) : 0,
    }))
    .sort((a, b) => b.sumUs - a.sumUs || (a.name < b.name ? -1 : 1));
}

/** One collective on one rank. */
export interface CollectiveCall {
  collective: Collective;
  ts: number;
  dur: number;
  /** Bytes in the sense of nccl-tests; null where the trace does not say. */
  bytes: number | null;
  groupSize: number | null;
  group: string;
  /** Number of the collective in its group, where the trace says. */
  sequence: number | null;
  kernel: string;
}

export interface CollectiveRow {
  collective: Collective;
  bytes: number | null;
  groupSize: number | null;
  group: string;
  count: number;
  sumUs: number;
  meanUs: number;
  minUs: number;
  maxUs: number;
  /** GB/s (1e9 bytes) of the shortest call, which waited least for other ranks; null without a size. */
  algorithmGBps: number | null;
  busGBps: number | null;
}

function payload(collective: Collective, args: CollectiveArguments): number | null {
  const elements =
    collective === "allgather" ? args.outElements : collective === "reducescatter" ? args.inElements : args.inElements;
  return elements === null || args.elementBytes === null ? null : elements * args.elementBytes;
}

export function collectiveCalls(activity: Activity, worldSize: number | null): CollectiveCall[] {
  const communication = kernelTypes.indexOf("COMMUNICATION");
  const calls: CollectiveCall[] = [];
  for (let i = 0; i < activity.rows.length; i++) {
    const row = activity.rows[i];
    if (activity.type[row] !== communication) continue;
    const kernel = activity.symbols.text(activity.name[row]);
    const args = activity.collectives.get(row);
    const collective = collectiveOfKernel(args?.name ?? kernel);
    calls.push({
      collective,
      ts: activity.ts[row],
      dur: activity.dur[row],
      bytes: args === undefined ? null : payload(collective, args),
      groupSize: args?.groupSize ?? worldSize,
      group: args?.group ?? "",
      sequence: args?.sequence ?? null,
      kernel,
    });
  }
  return calls;
}

export function collectiveKey(call: CollectiveCall): string {
  return `${call.collective}|${call.bytes ?? "?"}|${call.group}|${call.bytes === null ? call.kernel : ""}`;
}

export function collectiveTable(calls: readonly CollectiveCall[], ticksPerUs: number): CollectiveRow[] {
  const groups = new Map<string, CollectiveCall[]>();
  for (const call of calls) {
    const key = collectiveKey(call);
    const list = groups.get(key);
    if (list === undefined) groups.set(key, [call]);
    else list.push(call);
  }
  return [...groups.values()]
    .map((list) => {
      const first = list[0];
      const sumUs = list.reduce((sum, call) => sum + call.dur, 0);
      const minUs = list.reduce((low, call) => Math.min(low, call.dur), Number.POSITIVE_INFINITY);
      const maxUs = list.reduce((high, call) => Math.max(high, call.dur), 0);
      const algorithmGBps = first.bytes !== null && minUs > 0 ? (first.bytes * ticksPerUs) / minUs / 1000 : null;
      const factor = first.groupSize === null ? null : busFactor(first.collective, first.groupSize);
      return {
        collective: first.collective,
        bytes: first.bytes,
        groupSize: first.groupSize,
        group: first.group,
        count: list.length,
        sumUs,
        meanUs: sumUs / list.length,
        minUs,
        maxUs,
        algorithmGBps,
        busGBps: algorithmGBps === null || factor === null ? null : algorithmGBps * factor,
      };
    })
    .sort((a, b) => b.sumUs - a.sumUs);
}
