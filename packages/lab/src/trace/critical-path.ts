// Critical path of one rank, computed backward: from the last kernel to its latest dependency (the previous kernel of its
// stream, a kernel of another stream, or the launching call), and on the host back to the last call that blocked on the
// device. The parts sum to the length of the path.
import { gatherRows, lastAtMost, sortedBy, sortRows } from "./intervals.js";
import { blockingCalls, kernelTypes } from "./kinds.js";
import { nameIn } from "./symbols.js";
import type { DeviceView } from "./view.js";

export interface CriticalPath {
  totalUs: number;
  computeUs: number;
  communicationUs: number;
  copyUs: number;
  /** The host's own work between a blocking call and a launch. */
  hostUs: number;
  /** From the call to the start of what it launched, with the device free. */
  launchUs: number;
  /** Between two kernels of which the second waited for the first. */
  betweenKernelsUs: number;
  /** Kernels that carry most of the path. */
  kernels: { name: string; us: number; count: number }[];
}

const usualGapUs = 30;

interface SortedEnds {
  /** End of each row of the device table. */
  end: Float64Array;
  rows: Uint32Array;
  /** By position: how many positions below are known to be walked, or 0. */
  below: Uint32Array;
}

function sortByEnd(view: DeviceView): SortedEnds {
  const { ts, dur } = view.data.device;
  const end = new Float64Array(view.data.device.rows);
  for (let row = 0; row < end.length; row++) end[row] = ts[row] + dur[row];
  const rows = sortRows(view.rows.slice(), end);
  return { end, rows, below: new Uint32Array(rows.length) };
}

/** Position of the last row that ends at `limit` or before, or -1. */
function lastEnded({ end, rows }: SortedEnds, limit: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[rows[middle]] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

export function criticalPath(view: DeviceView): CriticalPath | null {
  if (view.rows.length === 0) return null;
  const { device, runtime, symbols } = view.data;
  const byEnd = sortByEnd(view);
  const previous = previousOnStream(view);
  const blocking = blockingEnds(view);
  const path: CriticalPath = {
    totalUs: 0,
    computeUs: 0,
    communicationUs: 0,
    copyUs: 0,
    hostUs: 0,
    launchUs: 0,
    betweenKernelsUs: 0,
    kernels: [],
  };
  const perKernel = new Map<number, { us: number; count: number }>();
  const addKernel = (row: number, us: number): void => {
    const type = kernelTypes[view.type[row]];
    if (type === "COMMUNICATION") path.communicationUs += us;
    else if (type === "MEMORY") path.copyUs += us;
    else if (type === "COMPUTATION") path.computeUs += us;
    else path.betweenKernelsUs += us;
    const entry = perKernel.get(device.name[row]);
    if (entry === undefined) perKernel.set(device.name[row], { us, count: 1 });
    else {
      entry.us += us;
      entry.count++;
    }
  };

  const begin = device.ts[view.rows[0]];
  let row = byEnd.rows[byEnd.rows.length - 1];
  let time = byEnd.end[row];
  path.totalUs = time - begin;
  let onDevice = true;
  const walked = new Uint8Array(device.rows);
  while (time > begin) {
    if (onDevice) {
      walked[row] = 1;
      const start = Math.min(device.ts[row], time);
      addKernel(row, time - start);
      time = start;
      if (time <= begin) break;
      const launch = view.launch[row];
      const launched = launch >= 0 ? runtime.ts[launch] : Number.NaN;
      const before = waitedFor(view, byEnd, previous[row], walked, time);
      if (before >= 0 && !(launched > device.ts[before] + device.dur[before])) {
        const end = Math.min(device.ts[before] + device.dur[before], time);
        path.betweenKernelsUs += time - end;
        time = end;
        row = before;
      } else if (launch >= 0 && launched < time) {
        path.launchUs += time - Math.max(launched, begin);
        time = Math.max(launched, begin);
        onDevice = false;
      } else if (before >= 0) {
        const end = Math.min(device.ts[before] + device.dur[before], time);
        path.hostUs += time - end;
        time = end;
        row = before;
      } else {
        path.hostUs += time - begin;
        time = begin;
      }
      continue;
    }
    // On the host: back to the last blocking call, then to the kernel whose end released it.
    let call = lastAtMost(blocking.ends, time);
    while (call >= 0 && blocking.starts[call] >= time) call--;
    const released = call < 0 ? -1 : lastEnded(byEnd, blocking.ends[call]);
    const kernelEnd = released < 0 ? Number.NaN : byEnd.end[byEnd.rows[released]];
    if (released >= 0 && kernelEnd >= blocking.starts[call] && kernelEnd < time) {
      path.hostUs += time - kernelEnd;
      time = kernelEnd;
      row = byEnd.rows[released];
      onDevice = true;
    } else if (call >= 0) {
      const start = Math.max(blocking.starts[call], begin);
      path.hostUs += time - start;
      time = start;
    } else {
      path.hostUs += time - begin;
      time = begin;
    }
  }
  path.kernels = [...perKernel]
    .map(([name, { us, count }]) => ({ name: symbols.text(name), us, count }))
    .sort((a, b) => b.us - a.us)
    .slice(0, 10);
  return path;
}

function previousOnStream(view: DeviceView): Int32Array {
  const { device } = view.data;
  const previous = new Int32Array(device.rows).fill(-1);
  const last = new Map<number, number>();
  for (let i = 0; i < view.rows.length; i++) {
    const row = view.rows[i];
    const before = last.get(device.stream[row]);
    if (before !== undefined) previous[row] = before;
    last.set(device.stream[row], row);
  }
  return previous;
}

/**
 * The dependency of a kernel on the device: its predecessor on the stream, or the kernel of another stream that ended last.
 * Visited kernels are excluded, because kernels of zero duration would form a cycle.
 */
function waitedFor(view: DeviceView, byEnd: SortedEnds, previous: number, walked: Uint8Array, start: number): number {
  const { device, ticksPerUs } = view.data;
  const usualGap = usualGapUs * ticksPerUs;
  if (previous >= 0 && walked[previous] === 0 && start - (device.ts[previous] + device.dur[previous]) <= usualGap)
    return previous;
  let at = lastEnded(byEnd, start);
  // Walked kernels lie together: each remembers how far down the next other one is at least.
  const { below, rows } = byEnd;
  const from = at;
  while (at >= 0 && walked[rows[at]] === 1) at = below[at] === 0 ? at - 1 : at - below[at];
  for (let k = from; k > at; ) {
    const step = Math.max(1, below[k]);
    below[k] = k - at;
    k -= step;
  }
  return at < 0 ? -1 : rows[at];
}

function blockingEnds(view: DeviceView): { starts: Float64Array; ends: Float64Array } {
  const { runtime, symbols } = view.data;
  const blocks = nameIn(symbols, blockingCalls);
  const starts: number[] = [];
  const ends: number[] = [];
  for (let i = 0; i < runtime.rows; i++) {
    if (!blocks(runtime.name[i])) continue;
    starts.push(runtime.ts[i]);
    ends.push(runtime.ts[i] + runtime.dur[i]);
  }
  const end = Float64Array.from(ends);
  const order = sortedBy(end, end.length);
  return { starts: gatherRows(Float64Array.from(starts), order), ends: gatherRows(end, order) };
}
