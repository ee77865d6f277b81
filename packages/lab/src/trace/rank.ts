// Analyzes one trace file: a report of its rank, or, for JAX, of each of its devices. What cannot be determined (no GPU, no
// collectives, a damaged file) is reported as a problem.
import {
  breakdownOf,
  type IdleBreakdown,
  idleBreakdown,
  type TimeBreakdown,
  type TypeTime,
  timeBreakdown,
  typeTimes,
  typeTimesOf,
} from "./breakdown.js";
import { freed } from "./collect.js";
import { type CopyBandwidth, copyBandwidths, type QueueLength, queueLengths } from "./counters.js";
import { type CriticalPath, criticalPath } from "./critical-path.js";
import type { StepMark, TraceData } from "./data.js";
import type { DevicePeaks } from "./gpus.js";
import {
  dataLoaderTime,
  hostActivity,
  hostCut,
  jaxActivities,
  maxDistinguished,
  outsideTime,
  weftActivities,
} from "./host.js";
import { hostFacts } from "./host-facts.js";
import { extent, mergeSorted } from "./intervals.js";
import {
  type Activity,
  type CollectiveCall,
  type CollectiveRow,
  collectiveCalls,
  collectiveTable,
  type KernelRow,
  kernelTable,
} from "./kernels.js";
import { type KernelType, kernelTypes, launchCalls } from "./kinds.js";
import { type LaunchStatistics, launchStatistics } from "./launch.js";
import { type OperatorReport, operatorReport } from "./operators.js";
import { readTrace, type TraceReadOptions } from "./read.js";
import { whatIf } from "./replay.js";
import { nameIn } from "./symbols.js";
import { inMicroseconds } from "./units.js";
import { type DeviceView, devicesOf, deviceView } from "./view.js";

interface StepTime {
  number: number;
  us: number;
}

/** The analysis of one rank. */
export interface RankReport extends Partial<TimeBreakdown> {
  /** Rank that wrote the trace. */
  rank: number;
  /** Source of the rank number; `order` means the position in the list of files. */
  rankFrom: "trace" | "file name" | "order" | "device";
  /** The trace file. */
  file: string;
  /** Which profiler wrote it. */
  source: "kineto" | "nsight" | "rocpd" | "jax" | "weft";
  /** Kind of device that the events ran on. */
  device: "gpu" | "tpu" | "cpu";
  /** Number of ranks of the job, if the trace says so. */
  worldSize: number | null;
  /** False when the file is truncated or damaged: the values then cover only its first part. */
  complete: boolean;
  /** Number of events in the trace. */
  events: number;
  /** Size of the trace file. */
  bytes: number;
  /** What could not be read or is doubtful. */
  problems: string[];
  /** Times of the steps. */
  steps: StepTime[];
  /** Time that the loop waited for data; null where the trace does not show it. */
  dataLoaderUs: number | null;
  /** Time in long gaps between the operators of a CPU job that only the program's own code explains; null where not known. */
  outsideUs: number | null;
  /** Time by type of event. */
  types: TypeTime[];
  /** Why each stream was idle. */
  idle: IdleBreakdown[];
  /** Kernels by their sum of times. */
  kernels: KernelRow[];
  /** Collectives by kind and size. */
  collectives: CollectiveRow[];
  /** Launches of kernels and their delays. */
  launches: LaunchStatistics | null;
  /** Kernels waiting in each stream. */
  queues: QueueLength[];
  /** Copies by direction, with their bandwidth. */
  copies: CopyBandwidth[];
  /** What the longest chain of dependent events consists of. */
  criticalPath: CriticalPath | null;
  /** Waits for data, reads that wait for the device, and compilation, with the lines behind them; null in JAX traces. */
  host: ReturnType<typeof hostFacts> | null;
  /** Step times under changes, replayed; null without steps or launches. */
  whatIf: ReturnType<typeof whatIf>;
  /** Operators, modules and source lines behind the kernels, with rates and the roofline; null without launches. */
  operators: OperatorReport | null;
}

/** The report of a rank and the data that the comparison of ranks needs. */
export interface AnalyzedRank {
  report: RankReport;
  /** Collectives, in microseconds since `originUs`. */
  calls: CollectiveCall[];
  /** Whole microseconds on the trace's own clock. */
  originUs: number;
  /** Nanoseconds since 1970 of the zero of the trace's clock, from its header. */
  baseNanoseconds: bigint | null;
  hostName: string | null;
}

const rankInName = /rank[\s_.-]*(\d+)/i;

export async function analyzeTraceFile(
  file: string,
  order: number,
  options: TraceReadOptions = {},
): Promise<AnalyzedRank[]> {
  using data = await readTrace(file, options);
  return analyzeTrace(data, order, options.peaks);
}

/**
 * Each device is analyzed by passes over all events. More than `usualDevices` devices are not distinguished if that takes more than
 * `mostWork` events in all passes.
 */
const mostWork = 5e7;
const usualDevices = 64;

export function analyzeTrace(data: TraceData, order: number, peaks?: DevicePeaks): AnalyzedRank[] {
  if (data.device.rows > 0) {
    const devices = devicesOf(data);
    if (
      devices.length > usualDevices &&
      (devices.length * data.device.rows > mostWork || devices.length > maxDistinguished)
    ) {
      data.problems.push(
        `${devices.length} devices are too many for ${data.device.rows} events: they are analyzed as one`,
      );
      return [analyzeDevice(data, order, peaks)];
    }
    return devices.length < 2
      ? [analyzeDevice(data, order, peaks)]
      : devices.map((device) => analyzeDevice(data, order, peaks, device));
  }
  const weft = weftActivities(data);
  if (weft.length > 0)
    return weft.map(({ worker, activity }) =>
      analyzeActivity(data, activity, {
        rank: worker,
        source: "weft",
        device: "cpu",
        steps: runSteps(data),
        host: null,
        outsideUs: null,
      }),
    );
  const jax = jaxActivities(data);
  if (jax.length > 0) {
    const host = hostFacts(data, Number.POSITIVE_INFINITY);
    const outside = outsideTime(data, jax[0].activity, Number.POSITIVE_INFINITY);
    return jax.map(({ device, kind, activity }, i) =>
      analyzeActivity(data, activity, {
        rank: device,
        source: "jax",
        device: kind,
        steps: stepTimes(data.steps),
        // One host drives all devices: what it does is said once.
        host: i === 0 ? host : null,
        outsideUs: i === 0 ? outside : null,
      }),
    );
  }
  return [analyzeHost(data, order)];
}

function common(
  data: TraceData,
  order: number,
): Pick<RankReport, "rank" | "rankFrom" | "file" | "worldSize" | "complete" | "events" | "bytes" | "problems"> {
  const named = rankInName.exec(data.file.split("/").pop() ?? "");
  const rankFrom = data.header.rank !== null ? "trace" : named !== null ? "file name" : "order";
  return {
    rank: data.header.rank ?? (named !== null ? Number(named[1]) : order),
    rankFrom,
    file: data.file,
    worldSize: data.header.worldSize,
    complete: data.complete,
    events: data.events,
    bytes: data.bytes,
    problems: [...data.problems],
  };
}

const stepTimes = (steps: readonly StepMark[]): StepTime[] =>
  [...steps].sort((a, b) => a.ts - b.ts).map((step) => ({ number: step.number, us: step.dur }));

/** `device`: one of several accelerators in one trace, each of which is a rank; null: the only one. */
function analyzeDevice(
  data: TraceData,
  order: number,
  peaks: DevicePeaks | undefined,
  device: number | null = null,
): AnalyzedRank {
  const rows = data.device.rows;
  const view = freed(rows, () => deviceView(data, device));
  const activity: Activity = {
    symbols: data.symbols,
    ts: data.device.ts,
    dur: data.device.dur,
    name: data.device.name,
    type: view.type,
    rows: view.rows,
    collectives: data.deviceCollectives,
  };
  const calls = collectiveCalls(activity, data.header.worldSize);
  const gap = data.complete ? null : missingWork(view);
  const times = gap === null ? freed(rows, () => timeBreakdown(view)) : null;
  const report: RankReport = {
    ...common(data, order),
    ...(device !== null && { rank: device, rankFrom: "device" as const }),
    source: data.source,
    device: "gpu",
    ...(times ?? {}),
    steps: stepTimes(view.steps),
    dataLoaderUs: dataLoaderTime(data, view.cut),
    outsideUs: null,
    types: gap === null ? freed(rows, () => typeTimes(view)) : [],
    idle: gap === null ? idleBreakdown(view) : [],
    kernels: kernelTable(activity),
    collectives: collectiveTable(calls, data.ticksPerUs),
    launches: freed(rows, () => launchStatistics(view)),
    queues: gap === null ? freed(rows, () => queueLengths(view)) : [],
    copies: copyBandwidths(view),
    criticalPath: gap === null ? freed(rows, () => criticalPath(view)) : null,
    host: freed(rows, () => hostFacts(data, view.cut)),
    whatIf: gap === null ? freed(rows, () => whatIf(view)) : null,
    operators: operatorReport(view, device ?? 0, peaks),
  };
  if (gap !== null) report.problems.push(gap);
  if (device !== null)
    report.problems.push("the trace has work of several devices: each of them is reported as a rank");
  const several = data.source === "kineto" ? (mergedStream(data) ?? mergedHosts(data)) : null;
  if (several !== null) report.problems.push(several);
  if (view.rows.length === 0)
    report.problems.push("no kernel was launched before the last profiler step: there is nothing to measure");
  noteClockJump(report, activity, data);
  return analyzed(report, calls, data);
}

/** A stream of one device belongs to one process: where two have written it, traces of several ranks were put into one file. */
function mergedStream({ device, lanes }: TraceData): string | null {
  const owners = new Map<number, string>();
  // A lane nearly always has one stream.
  const streamOfLane = new Int32Array(lanes.length).fill(-1);
  for (let i = 0; i < device.rows; i++) {
    if (device.stream[i] < 0 || streamOfLane[device.lane[i]] === device.stream[i]) continue;
    streamOfLane[device.lane[i]] = device.stream[i];
    const key = (device.device[i] + 1) * 2 ** 31 + device.stream[i];
    const { pid } = lanes[device.lane[i]];
    const owner = owners.get(key);
    if (owner === undefined) owners.set(key, pid);
    else if (owner !== pid)
      return `processes ${owner} and ${pid} both have stream ${device.stream[i]} of the same device: traces of several ranks seem to be merged, and the times are those of all together; give each rank its own file`;
  }
  return null;
}

/** The same by the operators of the host. */
function mergedHosts({ operatorLanes, lanes }: TraceData): string | null {
  const pids = new Set(Array.from(operatorLanes, (lane) => lanes[lane].pid));
  return pids.size < 2
    ? null
    : `operators of ${pids.size} processes: traces of several ranks seem to be merged, and the host's times are those of all together; give each rank its own file`;
}

const tolerated = 0.005;

/**
 * A trace file contains events in groups, not in time order: in a truncated file kernels may be missing from the part that is
 * left, and idle time would be wrong. Launches without a kernel (and kernels without a launch) reveal this.
 */
function missingWork(view: DeviceView): string | null {
  const { device, runtime, symbols } = view.data;
  const isLaunch = nameIn(symbols, launchCalls);
  const matched = new Uint8Array(runtime.rows);
  let lastLaunch = Number.NEGATIVE_INFINITY;
  let orphans = 0;
  for (let i = 0; i < view.rows.length; i++) {
    const row = view.rows[i];
    const launch = view.launch[row];
    if (launch < 0) orphans++;
    else {
      matched[launch] = 1;
      lastLaunch = Math.max(lastLaunch, runtime.ts[launch]);
    }
  }
  let launches = 0;
  let missing = 0;
  for (let i = 0; i < runtime.rows; i++) {
    if (runtime.ts[i] > lastLaunch || !isLaunch(runtime.name[i])) continue;
    launches++;
    if (matched[i] === 0) missing++;
  }
  const all = launches + orphans;
  if (missing + orphans <= tolerated * all && device.rows > 0) return null;
  return `of the part that is left, ${missing + orphans} of ${all} launches and kernels lack their other half: busy, idle and overlap cannot be said; the tables count what is there`;
}

/** Whether a trace without kernels has launches: then host operators are not the computation. */
function lacksDeviceEvents(data: TraceData): boolean {
  return data.runtime.rows + data.withoutStream > 0 || (!data.complete && data.header.deviceNames.length > 0);
}

/** The analyses that need device streams and runtime calls. */
const withoutLaunches = {
  idle: [],
  launches: null,
  queues: [],
  copies: [],
  criticalPath: null,
  whatIf: null,
  operators: null,
};

function analyzeHost(data: TraceData, order: number): AnalyzedRank {
  const blind = lacksDeviceEvents(data);
  const activity = hostActivity(data);
  const cut = hostCut(data);
  const calls = collectiveCalls(activity, data.header.worldSize);
  const report: RankReport = {
    ...common(data, order),
    source: "kineto",
    device: blind ? "gpu" : "cpu",
    ...((blind ? null : activityBreakdown(activity)) ?? {}),
    steps: stepTimes(data.steps.filter((step) => step.ts < cut)),
    dataLoaderUs: dataLoaderTime(data, cut),
    outsideUs: blind ? null : outsideTime(data, activity, cut),
    types: blind ? [] : typeTimesOf((type) => merged(activity, type)),
    kernels: kernelTable(activity),
    collectives: collectiveTable(calls, data.ticksPerUs),
    host: hostFacts(data, cut),
    ...withoutLaunches,
  };
  report.problems.push(
    blind
      ? `the job ran on a GPU, but ${data.complete ? "the trace holds" : "the part that is left holds"} no kernels: only the host's operators are shown, and busy, idle and overlap cannot be said${data.complete ? " (profile with ProfilerActivity.CUDA)" : ""}`
      : activity.rows.length === 0
        ? "the trace has no device events and no operators: there is nothing to measure"
        : "no GPU events: operators on the CPU count as computation and the backend's collectives as communication",
  );
  const several = mergedHosts(data);
  if (several !== null) report.problems.push(several);
  noteClockJump(report, activity, data);
  return analyzed(report, calls, data);
}

/** The report of a device whose work is in the trace without the calls that launched it. */
function analyzeActivity(
  data: TraceData,
  activity: Activity,
  about: Pick<RankReport, "rank" | "source" | "device" | "steps" | "host" | "outsideUs">,
): AnalyzedRank {
  const calls = collectiveCalls(activity, null);
  const report: RankReport = {
    ...common(data, about.rank),
    ...about,
    rankFrom: "device",
    ...(activityBreakdown(activity) ?? {}),
    dataLoaderUs: null,
    types: typeTimesOf((type) => merged(activity, type)),
    kernels: kernelTable(activity),
    collectives: collectiveTable(calls, data.ticksPerUs),
    ...withoutLaunches,
  };
  noteClockJump(report, activity, data);
  return analyzed(report, calls, data);
}

/** Runs of a program in traces of Weft are its steps. */
function runSteps({ runs }: TraceData): StepTime[] {
  return stepTimes([...runs].map(([number, { start, end }]) => ({ number, ts: start, dur: end - start, lane: 0 })));
}

function analyzed(report: RankReport, calls: CollectiveCall[], data: TraceData): AnalyzedRank {
  const { ticksPerUs, originUs, header } = data;
  return {
    report: inMicroseconds(report, ticksPerUs),
    calls: calls.map((call) => ({ ...call, ts: call.ts / ticksPerUs, dur: call.dur / ticksPerUs })),
    originUs,
    baseNanoseconds: header.baseNanoseconds,
    hostName: header.hostName,
  };
}

const merged = (activity: Activity, type: KernelType) => {
  const index = kernelTypes.indexOf(type);
  return mergeSorted(
    activity.ts,
    activity.dur,
    activity.rows.filter((row) => activity.type[row] === index),
  );
};

function activityBreakdown(activity: Activity): TimeBreakdown | null {
  return breakdownOf(
    extent(activity.ts, activity.dur, activity.rows),
    merged(activity, "COMPUTATION"),
    merged(activity, "COMMUNICATION"),
  );
}

const jumpUs = 60e6;

/** A gap of more than a minute that covers most of the trace indicates a clock adjustment. */
function noteClockJump(report: RankReport, { rows, ts, dur }: Activity, { ticksPerUs, originUs }: TraceData): void {
  if (rows.length < 2 || report.spanUs === undefined) return;
  let end = ts[rows[0]] + dur[rows[0]];
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i];
    const gap = ts[row] - end;
    if (gap > jumpUs * ticksPerUs && gap > report.spanUs / 2)
      report.problems.push(
        `the clock jumps by ${(gap / ticksPerUs / 1e6).toFixed(0)} s at ${originUs + ts[row] / ticksPerUs} us: span and idle time contain the jump; trust the busy times only`,
      );
    end = Math.max(end, ts[row] + dur[row]);
  }
}
