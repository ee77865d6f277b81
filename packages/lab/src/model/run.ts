// The one data model: a Run is what ran and what was measured, a Study the runs that answer one question.
// Every source becomes these; everything after import knows only these. Knows no file format.
import type { MachineFacts, ProbeFacts, Workload } from "./facts.js";

export type RunStatus = "ok" | "failed" | "timeout" | "cancelled" | "unknown";

/** One training step on one rank. Times are microseconds on that rank's own clock. */
export interface Step {
  rank: number;
  epoch?: number;
  step: number;
  startUs?: number;
  durationUs: number;
  /** Waiting for the next batch; part of `durationUs`. */
  dataWaitUs?: number;
  forwardUs?: number;
  backwardUs?: number;
  optimizerUs?: number;
  /** Communication in all, and the part that nothing else overlapped. */
  commUs?: number;
  exposedCommUs?: number;
  samples?: number;
  loss?: number;
  /** False for a micro-step of gradient accumulation. */
  optimizerStep?: boolean;
  /** True when a compilation fell into this step. */
  compile?: boolean;
}

/** One pass over the data, as one rank (usually 0) timed it. Seconds. */
export interface Epoch {
  rank?: number;
  epoch: number;
  seconds: number;
  trainLoss?: number;
  valLoss?: number;
  valAccuracy?: number;
  /** Samples and steps of this rank in this epoch. */
  samples?: number;
  steps?: number;
  /** Line in the source file (1-based), so that a figure can lead to the row behind it. */
  line?: number;
  /** Unix time in seconds. */
  startedAt?: number;
}

/** Host utilisation at a moment. */
export interface HostSample {
  /** Percent of all usable cores, 0 to 100. */
  cpuPercent?: number;
  /** Runnable processes (load average over the sampling interval or the run queue). */
  runQueue?: number;
  memoryUsedBytes?: number;
  /** The job's own processes. */
  processes?: number;
  jobCpuPercent?: number;
  jobMemoryBytes?: number;
}

/** Device utilisation at a moment. */
export interface DeviceSample {
  index: number;
  utilisationPercent?: number;
  memoryUsedBytes?: number;
  memoryTotalBytes?: number;
  powerWatts?: number;
  smClockMHz?: number;
  temperatureC?: number;
  /** Share of time that tensor cores and memory were busy, where the machine counts it (DCGM). */
  tensorActivePercent?: number;
  memoryActivePercent?: number;
}

export interface UtilisationSample {
  /** Unix time in seconds. */
  t: number;
  host?: HostSample;
  devices?: DeviceSample[];
}

export interface RankInfo {
  rank: number;
  localRank?: number;
  worldSize?: number;
  host?: string;
  pid?: number;
  device?: string;
  facts: ProbeFacts;
}

export interface RunEvent {
  t?: number;
  rank?: number;
  level: "info" | "warning" | "error";
  name: string;
  message?: string;
  data?: Record<string, unknown>;
}

/** Something the importer had to leave out or repair. It never becomes a number silently. */
export interface ImportProblem {
  file: string;
  line?: number;
  /** Stable id, e.g. `truncated-line`, `negative-time`. */
  id: string;
  message: string;
  /** How many rows it concerns. */
  count?: number;
}

export interface RunSource {
  kind: "metrics.csv" | "jsonl" | "scale" | "tape" | "points";
  path: string;
}

/** What one trace said, reduced; the trace layer fills it, the diagnosis reads it. Times in microseconds. */
export interface TraceSummary {
  rank: number;
  spanUs: number;
  idleUs: number;
  computeUs: number;
  nonComputeUs: number;
  commUs?: number;
  exposedCommUs?: number;
  overlapPercent?: number;
  hostWaitUs?: number;
  kernelWaitUs?: number;
  otherWaitUs?: number;
  kernels?: number;
  /** Kernels that run shorter than their launch takes. */
  shortKernels?: number;
  launchUs?: number;
  dataLoaderUs?: number;
  meanQueueLength?: number;
  longestGapUs?: number;
  /** Per collective: name, bytes, duration, bus bandwidth in GB/s (1 GB = 1e9 bytes). */
  collectives?: { name: string; bytes: number; durationUs: number; busGBps?: number; count: number }[];
  tensorCoreEligible?: number;
  tensorCoreUsed?: number;
}

export interface Run {
  id: string;
  label?: string;
  source: RunSource;
  /** Ranks that share the work (data parallel), one device each. */
  devices: number;
  nodes?: number;
  repeat?: number;
  /** Place in the interleaved order of the study. */
  order?: number;
  status: RunStatus;
  exitCode?: number;
  message?: string;
  command?: string[];
  launcher?: string;
  startedAt?: number;
  seconds?: number;
  machine?: MachineFacts;
  workload: Workload;
  ranks: RankInfo[];
  epochs: Epoch[];
  steps: Step[];
  samples: UtilisationSample[];
  events: RunEvent[];
  traces?: TraceSummary[];
  problems: ImportProblem[];
  /** Named figures that the job itself printed or wrote, e.g. `{throughput: 812.4}`. */
  figures?: Record<string, number>;
}

export interface Study {
  name: string;
  /** Where it was read from. */
  path?: string;
  runs: Run[];
  /** Rows or steps at the start of each run that are left out of every mean. */
  warmup?: number;
  machine?: MachineFacts;
  command?: string[];
  launcher?: string;
  problems: ImportProblem[];
}

/** An empty run, so that every importer starts from the same ground. */
export function emptyRun(id: string, devices: number, source: RunSource): Run {
  return {
    id,
    devices,
    source,
    status: "unknown",
    workload: {},
    ranks: [],
    epochs: [],
    steps: [],
    samples: [],
    events: [],
    problems: [],
  };
}
