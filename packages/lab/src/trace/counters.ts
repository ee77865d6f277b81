// Counters over time: queue length of each stream and bandwidth of copies, as Holistic Trace Analysis defines them, with two
// exceptions: of a launch and a start in the same microsecond the launch comes first (its order depends on the CPU's sorting
// instructions), and a bandwidth that is only a rounding residue is zero.
import { type Distribution, distribution } from "@weft/formats/stats";
import { sortedBy } from "./intervals.js";
import { kernelTypes, launchCalls } from "./kinds.js";
import { nameIn } from "./symbols.js";
import type { DeviceView } from "./view.js";

export interface QueueLength extends Distribution {
  stream: number;
  /** Time with 1,024 or more launches outstanding: the queue is full and the launching thread blocks. */
  fullUs: number;
}

const fullQueue = 1024;

/**
 * +1 when a call launches on the stream, -1 when what it launched starts. `startsFirst` reverses the order of a launch and a
 * start in the same microsecond: the two orders bound the values of Holistic Trace Analysis.
 */
export function queueLengths(view: DeviceView, startsFirst = false): QueueLength[] {
  const { device, runtime, symbols } = view.data;
  const isLaunch = nameIn(symbols, launchCalls);
  // Pairs of a launching call and what it launched; calls and kernels are sorted by time each, then merged.
  const pairs = new Uint32Array(view.rows.length);
  let count = 0;
  const perStream = new Map<number, number>();
  for (let i = 0; i < pairs.length; i++) {
    const row = view.rows[i];
    const launch = view.launch[row];
    if (launch < 0 || view.runtimeKept[launch] === 0 || !isLaunch(runtime.name[launch])) continue;
    pairs[count++] = row;
    perStream.set(device.stream[row], (perStream.get(device.stream[row]) ?? 0) + 1);
  }
  const streams = [...perStream.keys()].sort((a, b) => a - b);
  // The pairs of each stream lie one behind the other.
  const next = new Map<number, number>();
  let offset = 0;
  for (const stream of streams) {
    next.set(stream, offset);
    offset += perStream.get(stream)!;
  }
  const allStarts = new Float64Array(count);
  const allCalls = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const at = next.get(device.stream[pairs[i]])!;
    next.set(device.stream[pairs[i]], at + 1);
    allStarts[at] = device.ts[pairs[i]];
    allCalls[at] = runtime.ts[view.launch[pairs[i]]];
  }
  return streams.map((stream) => {
    const n = perStream.get(stream)!;
    const end = next.get(stream)!;
    const starts = allStarts.subarray(end - n, end);
    const calls = allCalls.subarray(end - n, end);
    // Rows are sorted by start time; calls of different threads may not be.
    let sorted = true;
    for (let i = 1; i < n && sorted; i++) sorted = calls[i] >= calls[i - 1];
    if (!sorted) calls.sort();
    const lengths = new Int32Array(2 * n);
    let length = 0;
    let fullUs = 0;
    let before = 0;
    for (let i = 0, c = 0, s = 0; i < lengths.length; i++) {
      const call =
        c < calls.length && (s >= starts.length || (startsFirst ? calls[c] < starts[s] : calls[c] <= starts[s]));
      const now = call ? calls[c++] : starts[s++];
      if (length >= fullQueue) fullUs += now - before;
      // Calls with the id of an earlier one leave work without a launch of its own; a queue cannot be shorter than empty.
      length = Math.max(view.data.unit === "ns" ? 0 : -Infinity, length + (call ? 1 : -1));
      lengths[i] = length;
      before = now;
    }
    return { stream, ...distribution(lengths)!, fullUs };
  });
}

export interface CopyBandwidth extends Distribution {
  /** "Memcpy HtoD", "Memset" and so on. */
  name: string;
}

const residue = 1e-9;

function copyKind(name: string): string {
  if (name.startsWith("Memset")) return "Memset";
  return name.startsWith("Memcpy") ? name.slice(0, 11) : "Memcpy Unknown";
}

/** Bandwidth (GB/s) of concurrent copies of one kind: its distribution over the moments at which it changes. */
export function copyBandwidths(view: DeviceView): CopyBandwidth[] {
  const { device, symbols } = view.data;
  const memory = kernelTypes.indexOf("MEMORY");
  const rows = view.rows.filter((row) => view.type[row] === memory).sort();
  const kinds = new Map<string, number[]>();
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i];
    const kind = copyKind(symbols.text(device.name[row]));
    const list = kinds.get(kind);
    if (list === undefined) kinds.set(kind, [row]);
    else list.push(row);
  }
  return [...kinds]
    .sort((a, b) => (a[0] < b[0] ? -1 : 1))
    .flatMap(([name, list]) => {
      const n = list.length;
      const times = new Float64Array(2 * n);
      const change = new Float64Array(2 * n);
      list.forEach((row, i) => {
        const found = view.data.bandwidths.get(row);
        const bandwidth = found !== undefined && Number.isFinite(found) ? found : 0;
        times[i] = device.ts[row];
        // Rounding inward leaves a copy within one microsecond with a duration of zero or less.
        times[n + i] = device.ts[row] + Math.max(1, device.dur[row]);
        change[i] = bandwidth;
        change[n + i] = -bandwidth;
      });
      const order = sortedBy(times, 2 * n);
      const values = new Float64Array(2 * n);
      let running = 0;
      let kept = 0;
      for (let i = 0; i < order.length; i++) {
        running += change[order[i]];
        // Adding and subtracting the same rates leaves a rounding residue where the rate is zero.
        if (Math.abs(running) < residue) running = 0;
        if (running > 0) values[kept++] = running;
      }
      const description = distribution(values.slice(0, kept));
      return description === null ? [] : [{ name, ...description }];
    });
}
