// One trace file to the report of its rank (or, for JAX, of each of its devices): every analysis that the trace allows.
// What cannot be said (no GPU, no collectives, a broken file) is said, and never replaced by a number.
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
import { type CopyBandwidth, copyBandwidths, type QueueLength, queueLengths } from "./counters.js";
import { type CriticalPath, criticalPath } from "./critical-path.js";
import { dataLoaderTime, hostActivity, hostCut, jaxActivities } from "./host.js";
import { mergeSorted } from "./intervals.js";
import {
  type Activity,
  type CollectiveCall,
  type CollectiveRow,
  collectiveCalls,
  collectiveTable,
  type KernelRow,
  kernelTable,
} from "./kernels.js";
import { type KernelType, kernelTypes } from "./kinds.js";
import { type LaunchStatistics, launchStatistics } from "./launch.js";
import { type ReadOptions, readTrace, type StepMark, type TraceData } from "./read.js";
import { deviceView } from "./view.js";

export interface StepTime {
  number: number;
  us: number;
}

export interface RankReport extends Partial<TimeBreakdown> {
  rank: number;
  /** Where the rank number comes from; `order` means that the file does not say and its place in the list was taken. */
  rankFrom: "trace" | "file name" | "order" | "device";
  file: string;
  source: "kineto" | "jax";
  device: "gpu" | "tpu" | "cpu";
  worldSize: number | null;
  /** False when the file is cut off or broken: the numbers then cover only its first part. */
  complete: boolean;
  events: number;
  bytes: number;
  problems: string[];
  steps: StepTime[];
  dataLoaderUs: number | null;
  types: TypeTime[];
  idle: IdleBreakdown[];
  kernels: KernelRow[];
  collectives: CollectiveRow[];
  launches: LaunchStatistics | null;
  queues: QueueLength[];
  copies: CopyBandwidth[];
  criticalPath: CriticalPath | null;
}

/** The report and what the comparison of ranks needs besides. */
export interface AnalysedRank {
  report: RankReport;
  calls: CollectiveCall[];
  /** Origin of this trace's clock in microseconds against the first trace's, from its header; 0 where not known. */
  baseNanoseconds: bigint | null;
  firstTs: number;
  lastTs: number;
}

const rankInName = /rank[\s_.-]*(\d+)/i;

export async function analyseFile(file: string, order: number, options: ReadOptions = {}): Promise<AnalysedRank[]> {
  using data = await readTrace(file, options);
  return analyse(data, order);
}

export function analyse(data: TraceData, order: number): AnalysedRank[] {
  if (data.device.rows > 0) return [analyseDevice(data, order)];
  const jax = jaxActivities(data);
  if (jax.length > 0) return jax.map(({ device, kind, activity }) => analyseJax(data, device, kind, activity));
  return [analyseHost(data, order)];
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

function analyseDevice(data: TraceData, order: number): AnalysedRank {
  const view = deviceView(data);
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
  const report: RankReport = {
    ...common(data, order),
    source: "kineto",
    device: "gpu",
    ...(timeBreakdown(view) ?? {}),
    steps: stepTimes(view.steps),
    dataLoaderUs: dataLoaderTime(data, view.cut),
    types: typeTimes(view),
    idle: idleBreakdown(view),
    kernels: kernelTable(activity),
    collectives: collectiveTable(calls),
    launches: launchStatistics(view),
    queues: queueLengths(view),
    copies: copyBandwidths(view),
    criticalPath: criticalPath(view),
  };
  if (view.rows.length === 0)
    report.problems.push("no kernel was launched before the last profiler step: there is nothing to measure");
  noteClockJump(report, activity);
  return analysed(report, activity, calls, data);
}

function analyseHost(data: TraceData, order: number): AnalysedRank {
  const activity = hostActivity(data);
  const cut = hostCut(data);
  const calls = collectiveCalls(activity, data.header.worldSize);
  const report: RankReport = {
    ...common(data, order),
    source: "kineto",
    device: "cpu",
    ...(activityBreakdown(activity) ?? {}),
    steps: stepTimes(data.steps.filter((step) => step.ts < cut)),
    dataLoaderUs: dataLoaderTime(data, cut),
    types: typeTimesOf((type) => merged(activity, type)),
    idle: [],
    kernels: kernelTable(activity),
    collectives: collectiveTable(calls),
    launches: null,
    queues: [],
    copies: [],
    criticalPath: null,
  };
  report.problems.push(
    activity.rows.length === 0
      ? "the trace has no device events and no operators: there is nothing to measure"
      : "no GPU events: operators on the CPU count as computation and the backend's collectives as communication",
  );
  noteClockJump(report, activity);
  return analysed(report, activity, calls, data);
}

function analyseJax(data: TraceData, device: number, kind: "gpu" | "tpu" | "cpu", activity: Activity): AnalysedRank {
  const calls = collectiveCalls(activity, null);
  const report: RankReport = {
    ...common(data, device),
    rank: device,
    rankFrom: "device",
    source: "jax",
    device: kind,
    ...(activityBreakdown(activity) ?? {}),
    steps: stepTimes(data.steps),
    dataLoaderUs: null,
    types: typeTimesOf((type) => merged(activity, type)),
    idle: [],
    kernels: kernelTable(activity),
    collectives: collectiveTable(calls),
    launches: null,
    queues: [],
    copies: [],
    criticalPath: null,
  };
  noteClockJump(report, activity);
  return analysed(report, activity, calls, data);
}

function analysed(report: RankReport, activity: Activity, calls: CollectiveCall[], data: TraceData): AnalysedRank {
  const { rows, ts, dur } = activity;
  let lastTs = Number.NEGATIVE_INFINITY;
  for (const row of rows) lastTs = Math.max(lastTs, ts[row] + dur[row]);
  return {
    report,
    calls,
    baseNanoseconds: data.header.baseNanoseconds,
    firstTs: rows.length > 0 ? ts[rows[0]] : Number.NaN,
    lastTs,
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
    mergeSorted(activity.ts, activity.dur, activity.rows),
    merged(activity, "COMPUTATION"),
    merged(activity, "COMMUNICATION"),
  );
}

const jumpUs = 60e6;

/** A minute without any work that is also most of the trace is more likely a clock that was set than a wait. */
function noteClockJump(report: RankReport, { rows, ts, dur }: Activity): void {
  if (rows.length < 2 || report.spanUs === undefined) return;
  let end = ts[rows[0]] + dur[rows[0]];
  for (const row of rows) {
    const gap = ts[row] - end;
    if (gap > jumpUs && gap > report.spanUs / 2)
      report.problems.push(
        `the clock jumps by ${(gap / 1e6).toFixed(0)} s at ${ts[row]} us: span and idle time contain the jump; trust the busy times only`,
      );
    end = Math.max(end, ts[row] + dur[row]);
  }
}
