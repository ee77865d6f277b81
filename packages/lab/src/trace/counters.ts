// Counters over time, from launches, kernels and copies: how many kernels wait on a stream, and how fast copies go.
// Definitions of Holistic Trace Analysis, with two things decided that it leaves to chance: of a launch and a start in
// the same microsecond the launch comes first (there, the order follows the sorting instructions of the CPU it runs on),
// and a bandwidth that is only a rounding residue is nought.
import { type Description, describe } from "./describe.js";
import { sortedBy } from "./intervals.js";
import { kernelTypes, launchCalls } from "./kinds.js";
import type { DeviceView } from "./view.js";

export interface QueueLength extends Description {
  stream: number;
  /** Time with 1,024 or more launches outstanding: the queue is full and the launching thread blocks. */
  fullUs: number;
}

const fullQueue = 1024;

/**
 * +1 when a call launches on the stream, -1 when what it launched starts. `startsFirst` turns the order of a launch and
 * a start in the same microsecond around: the two orders bound every value that Holistic Trace Analysis can give.
 */
export function queueLengths(view: DeviceView, startsFirst = false): QueueLength[] {
  const { device, runtime, symbols } = view.data;
  const isLaunch = new Map<number, boolean>();
  const perStream = new Map<number, { launches: number[]; kernels: number[] }>();
  const fileOrder = view.rows.slice().sort((a, b) => device.index[a] - device.index[b]);
  const byLaunch = new Map<number, number[]>();
  for (const row of fileOrder) {
    const launch = view.launch[row];
    if (launch < 0 || view.runtimeKept[launch] === 0) continue;
    const name = runtime.name[launch];
    let launches = isLaunch.get(name);
    if (launches === undefined) isLaunch.set(name, (launches = launchCalls.has(symbols.text(name))));
    if (!launches) continue;
    const stream = device.stream[row];
    let lists = perStream.get(stream);
    if (lists === undefined) perStream.set(stream, (lists = { launches: [], kernels: [] }));
    lists.kernels.push(device.ts[row]);
    const known = byLaunch.get(launch);
    if (known === undefined) byLaunch.set(launch, [stream]);
    else known.push(stream);
  }
  for (const launch of [...byLaunch.keys()].sort((a, b) => a - b))
    for (const stream of byLaunch.get(launch)!) perStream.get(stream)!.launches.push(runtime.ts[launch]);
  return [...perStream]
    .sort((a, b) => a[0] - b[0])
    .map(([stream, { launches, kernels }]) => {
      const times = Float64Array.from(startsFirst ? [...kernels, ...launches] : [...launches, ...kernels]);
      const order = sortedBy(times, times.length);
      const lengths = new Float64Array(times.length);
      let length = 0;
      let fullUs = 0;
      for (let i = 0; i < order.length; i++) {
        length += order[i] < launches.length === startsFirst ? -1 : 1;
        lengths[i] = length;
        if (length >= fullQueue && i + 1 < order.length) fullUs += times[order[i + 1]] - times[order[i]];
      }
      return { stream, ...describe(lengths)!, fullUs };
    });
}

export interface CopyBandwidth extends Description {
  /** "Memcpy HtoD", "Memset" and so on. */
  name: string;
}

const residue = 1e-9;

function copyKind(name: string): string {
  if (name.startsWith("Memset")) return "Memset";
  return name.startsWith("Memcpy") ? name.slice(0, 11) : "Memcpy Unknown";
}

/** GB/s of the copies of a kind that run at the same moment, described over the moments at which it changes. */
export function copyBandwidths(view: DeviceView): CopyBandwidth[] {
  const { device, symbols } = view.data;
  const memory = kernelTypes.indexOf("MEMORY");
  const rows = view.rows.filter((row) => view.type[row] === memory).sort((a, b) => device.index[a] - device.index[b]);
  const kinds = new Map<string, number[]>();
  for (const row of rows) {
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
        const bandwidth = Number.isFinite(device.bandwidth[row]) ? device.bandwidth[row] : 0;
        times[i] = device.ts[row];
        // A copy within one microsecond: rounding inwards leaves it no time at all, or less.
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
        // Adding and subtracting the same rates leaves a rounding residue where the true rate is nought.
        if (Math.abs(running) < residue) running = 0;
        if (running > 0) values[kept++] = running;
      }
      const description = describe(values.slice(0, kept));
      return description === null ? [] : [{ name, ...description }];
    });
}
