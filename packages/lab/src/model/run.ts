// The data model: a Run is one measured job, a Study the runs that answer one question. Every importer produces these, and
// everything after import uses only these.
import type {
  DeviceSample,
  HostSample,
  MachineFacts,
  ProbeFacts,
  RunStatus,
  TrainingEpoch,
  TrainingStep,
  Workload,
} from "@weft/formats";

/** Utilization of the host and its devices at one moment. */
export interface UtilizationSample {
  /** Unix time in seconds. */
  t: number;
  host?: HostSample;
  devices?: DeviceSample[];
}

/** One rank of a run and its facts. */
export interface RankInfo {
  rank: number;
  localRank?: number;
  worldSize?: number;
  host?: string;
  pid?: number;
  device?: string;
  facts: ProbeFacts;
}

/** An event of a run, such as a warning of the runner. */
export interface RunEvent {
  t?: number;
  rank?: number;
  level: "info" | "warning" | "error";
  name: string;
  message?: string;
  data?: Record<string, unknown>;
}

/** Something that the importer left out or repaired. */
export interface ImportProblem {
  file: string;
  line?: number;
  /** Stable id, e.g. `truncated-line`, `negative-time`. */
  id: string;
  message: string;
  /** Number of affected rows. */
  count?: number;
}

/** The file or directory that a run was read from. */
export interface RunSource {
  kind: "metrics.csv" | "jsonl" | "scale" | "tape" | "points";
  path: string;
}

/** Summary of one trace for the diagnosis rules. Times are in microseconds. */
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
  /** Kernels that run for less time than their launch takes. */
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

/** One measured job. */
export interface Run {
  id: string;
  label?: string;
  source: RunSource;
  /** Ranks that share the work (data parallel), one device each. */
  devices: number;
  /** Nothing says on how many devices it ran; `devices` is 1 by assumption. */
  devicesUnknown?: true;
  /** Processes that shared the work: fewer than `devices` when one process drives several. Absent when nothing says so. */
  processes?: number;
  nodes?: number;
  repeat?: number;
  /** Position in the interleaved order of the study. */
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
  epochs: TrainingEpoch[];
  steps: TrainingStep[];
  samples: UtilizationSample[];
  events: RunEvent[];
  traces?: TraceSummary[];
  problems: ImportProblem[];
  /** Named figures that the job itself printed or wrote, e.g. `{throughput: 812.4}`. */
  figures?: Record<string, number>;
}

/** The runs that answer one question, usually one job at several device counts. */
export interface Study {
  name: string;
  /** Path that it was read from. */
  path?: string;
  runs: Run[];
  /** Epochs or steps at the start of each run that are excluded from every mean. */
  warmup?: number;
  machine?: MachineFacts;
  command?: string[];
  launcher?: string;
  problems: ImportProblem[];
}

/** A run without measurements, which importers fill in. */
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
