// Traces without GPU events: host operators are the computation and those of gloo or MPI the communication; in JAX traces XLA
// operations carry their device number. Both are converted to the columns of kernels.
import { grown } from "./columns.js";
import type { CollectiveArguments, TraceData } from "./data.js";
import { hostKinds } from "./host-facts.js";
import { type Intervals, measure, mergeSorted, overlap, sortedBy } from "./intervals.js";
import type { Activity } from "./kernels.js";
import {
  categoryIndex,
  dataLoaderName,
  isHostCollective,
  isHostCommunication,
  kernelTypes,
  xlaKernelType,
} from "./kinds.js";

const communication = kernelTypes.indexOf("COMMUNICATION");
const computation = kernelTypes.indexOf("COMPUTATION");

/** Devices or workers beyond this number are not distinguished: their work counts as that of the first. */
export const maxDistinguished = 4096;

class Collector {
  private ts = new Float64Array(64);
  private dur = new Float64Array(64);
  private name = new Int32Array(64);
  private type = new Uint8Array(64);
  private lane = new Int32Array(64);
  private rows = 0;
  readonly collectives = new Map<number, CollectiveArguments>();

  add(ts: number, dur: number, name: number, type: number, lane: number): number {
    if (this.rows === this.ts.length) {
      const length = this.rows * 2;
      this.ts = grown(this.ts, length);
      this.dur = grown(this.dur, length);
      this.name = grown(this.name, length);
      this.type = grown(this.type, length);
      this.lane = grown(this.lane, length);
    }
    this.lane[this.rows] = lane;
    this.ts[this.rows] = ts;
    this.dur[this.rows] = dur;
    this.name[this.rows] = name;
    this.type[this.rows] = type;
    return this.rows++;
  }

  finish(data: TraceData): Activity {
    const rows = sortedBy(this.ts, this.rows);
    return {
      symbols: data.symbols,
      ts: this.ts,
      dur: this.dur,
      ownDur: this.ownDurations(rows),
      name: this.name,
      type: this.type,
      rows,
      collectives: this.collectives,
    };
  }

  /** Duration without nested events of the same thread. */
  private ownDurations(rows: Uint32Array): Float64Array {
    const own = this.dur.slice(0, this.rows);
    const open = new Map<number, number[]>();
    for (const row of longestFirst(rows, this.ts, this.dur)) {
      let stack = open.get(this.lane[row]);
      if (stack === undefined) open.set(this.lane[row], (stack = []));
      while (stack.length > 0 && this.ts[stack[stack.length - 1]] + this.dur[stack[stack.length - 1]] <= this.ts[row])
        stack.pop();
      if (stack.length > 0) own[stack[stack.length - 1]] -= this.dur[row];
      stack.push(row);
    }
    // With rounded times a child may end after its parent; the parent's own time must not become negative.
    for (let i = 0; i < own.length; i++) if (own[i] < 0) own[i] = 0;
    return own;
  }
}

/** Of events with the same start the longest encloses the others. */
function longestFirst(rows: Uint32Array, ts: Float64Array, dur: Float64Array): Uint32Array {
  return rows.slice().sort((a, b) => ts[a] - ts[b] || dur[b] - dur[a] || a - b);
}

/** Start of the last of two or more profiler steps: that step may be truncated. */
export function hostCut(data: TraceData): number {
  if (data.stepNames.size < 2) return Number.POSITIVE_INFINITY;
  return data.steps.reduce((latest, step) => Math.max(latest, step.ts), Number.NEGATIVE_INFINITY);
}

/**
 * Activity of a CPU-only rank: operators are computation, the backend's collectives communication. Calls that only queue a
 * collective and annotations, which span both, are excluded.
 */
export function hostActivity(data: TraceData): Activity {
  const cut = hostCut(data);
  const collector = new Collector();
  const kinds = new Map<number, number>();
  const kindOf = (name: number): number => {
    let kind = kinds.get(name);
    if (kind === undefined) {
      const text = data.symbols.text(name);
      kind = isHostCollective(text) ? communication : isHostCommunication(text) ? -1 : computation;
      kinds.set(name, kind);
    }
    return kind;
  };
  let hostRow = 0;
  for (const segment of data.host.each()) {
    for (let i = 0; i < segment.rows; i++, hostRow++) {
      if (segment.ts[i] >= cut) continue;
      const kind = kindOf(segment.name[i]);
      const isOperator = segment.category[i] === categoryIndex.cpu_op;
      if (kind === communication || (kind === computation && isOperator)) {
        const row = collector.add(segment.ts[i], segment.dur[i], segment.name[i], kind, segment.lane[i]);
        const args = data.hostCollectives.get(hostRow);
        if (args !== undefined) collector.collectives.set(row, args);
      }
    }
  }
  return collector.finish(data);
}

const devicePid = /\/device:(GPU|TPU):(\d+)/;
const workThread = /^Stream #|^XLA Ops$/;

/** One activity per device of a JAX trace, by device number; empty where the trace shows no device work. */
export function jaxActivities(data: TraceData): { device: number; kind: "gpu" | "tpu" | "cpu"; activity: Activity }[] {
  const ofLane = data.lanes.map((_, lane) => {
    const match = devicePid.exec(data.processName(lane));
    if (match === null || !workThread.test(data.laneName(lane))) return null;
    return { device: Number(match[2]), kind: match[1] === "GPU" ? ("gpu" as const) : ("tpu" as const) };
  });
  const types = new Map<number, number>();
  const typeOf = (name: number): number => {
    let type = types.get(name);
    if (type === undefined) types.set(name, (type = kernelTypes.indexOf(xlaKernelType(data.symbols.text(name)))));
    return type;
  };
  const collectors = new Map<string, { device: number; kind: "gpu" | "tpu" | "cpu"; collector: Collector }>();
  let first: { collector: Collector } | undefined;
  const collectorOf = (device: number, kind: "gpu" | "tpu" | "cpu"): Collector => {
    const key = `${kind}${device}`;
    let entry: { collector: Collector } | undefined =
      collectors.get(key) ?? (collectors.size < maxDistinguished ? undefined : first);
    if (entry === undefined) {
      const added = { device, kind, collector: new Collector() };
      collectors.set(key, added);
      first ??= added;
      entry = added;
    }
    return entry.collector;
  };
  for (const segment of data.host.each()) {
    for (let i = 0; i < segment.rows; i++) {
      const place = ofLane[segment.lane[i]];
      if (place !== null)
        collectorOf(place.device, place.kind).add(
          segment.ts[i],
          segment.dur[i],
          segment.name[i],
          typeOf(segment.name[i]),
          segment.lane[i],
        );
      else if (segment.device[i] >= 0)
        collectorOf(segment.device[i], "cpu").add(
          segment.ts[i],
          segment.dur[i],
          segment.name[i],
          typeOf(segment.name[i]),
          segment.lane[i],
        );
    }
  }
  return [...collectors.values()]
    .sort((a, b) => a.device - b.device)
    .map(({ device, kind, collector }) => ({ device, kind, activity: collector.finish(data) }));
}

const runName = /^run \(\d+ kernels\)$/;

/**
 * One activity per worker of a trace that Weft wrote: `weft.profile` (kernels are the second thread of the process), `weft
 * tape export` and tapes (a process per worker; the second thread communicates). Empty for other traces.
 */
export function weftActivities(data: TraceData): { worker: number; activity: Activity }[] {
  const workers = data.lanes.map((_, lane) => /^worker /.test(data.processName(lane)));
  let isProfile = false;
  const isRun = new Map<number, boolean>();
  const collectors = new Map<number, Collector>();
  for (const segment of data.host.each())
    for (let i = 0; i < segment.rows; i++) {
      const name = segment.name[i];
      let run = isRun.get(name);
      if (run === undefined) isRun.set(name, (run = runName.test(data.symbols.text(name))));
      if (run) {
        isProfile = true;
        data.runs.set(data.runs.size, { start: segment.ts[i], end: segment.ts[i] + segment.dur[i] });
      }
    }
  if (!isProfile && !workers.some((worker) => worker)) return [];
  const first = new Collector();
  for (const segment of data.host.each())
    for (let i = 0; i < segment.rows; i++) {
      const lane = segment.lane[i];
      const { pid, tid } = data.lanes[lane];
      if (workers[lane] ? false : !isProfile || tid !== "2") continue;
      const number = workers[lane] ? Number(pid) : 0;
      const worker = Number.isSafeInteger(number) && number >= 0 ? number : 0;
      let collector = collectors.get(worker) ?? (collectors.size < maxDistinguished ? undefined : first);
      if (collector === undefined)
        collectors.set(worker, (collector = collectors.size === 0 ? first : new Collector()));
      const type = workers[lane] && tid === "1" ? communication : computation;
      collector.add(segment.ts[i], segment.dur[i], segment.name[i], type, lane);
    }
  return [...collectors]
    .sort((a, b) => a[0] - b[0])
    .map(([worker, collector]) => ({ worker, activity: collector.finish(data) }));
}

/** Intervals before `cut` of host events whose name passes a test. */
function hostIntervals(data: TraceData, cut: number, test: (name: string) => boolean): Intervals {
  const passes = new Map<number, boolean>();
  const ts: number[] = [];
  const dur: number[] = [];
  for (const segment of data.host.each()) {
    for (let i = 0; i < segment.rows; i++) {
      const name = segment.name[i];
      let pass = passes.get(name);
      if (pass === undefined) passes.set(name, (pass = test(data.symbols.text(name))));
      if (pass && segment.ts[i] < cut) {
        ts.push(segment.ts[i]);
        dur.push(segment.dur[i]);
      }
    }
  }
  const starts = Float64Array.from(ts);
  return mergeSorted(starts, Float64Array.from(dur), sortedBy(starts, starts.length));
}

/** Intervals before `cut` in which the host waited for its next batch. */
export const dataWaits = (data: TraceData, cut: number): Intervals =>
  hostIntervals(data, cut, (name) => dataLoaderName.test(name));

/** Shorter gaps between operators are the interpreter and the profiler. */
const longGapUs = 1000;

/** Time in long gaps between operators without a wait for data, communication or compilation: the program's own code. */
export function outsideTime(data: TraceData, activity: Activity, cut: number): number {
  const busy = mergeSorted(activity.ts, activity.dur, activity.rows);
  const gaps: Intervals = { starts: new Float64Array(busy.count), ends: new Float64Array(busy.count), count: 0 };
  for (let i = 1; i < busy.count; i++)
    if (busy.starts[i] - busy.ends[i - 1] >= longGapUs * data.ticksPerUs) {
      gaps.starts[gaps.count] = busy.ends[i - 1];
      gaps.ends[gaps.count++] = busy.starts[i];
    }
  // Convolutions of XLA on a CPU run on threads of their own, without events: only the executor shows that something runs.
  const explains = (name: string): boolean =>
    dataLoaderName.test(name) ||
    isHostCommunication(name) ||
    hostKinds.compilation.test(name) ||
    name.startsWith("ThunkExecutor::Execute");
  return measure(gaps) - overlap(gaps, hostIntervals(data, cut, explains));
}

/** Time that the host waited for its next batch, within the analyzed steps. */
export const dataLoaderTime = (data: TraceData, cut: number): number => measure(dataWaits(data, cut));
