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
} from "@weft/formats/internal";
import type { Finding } from "./finding.js";

/** Utilization of the host and its devices at one moment. */
export interface UtilizationSample {
  /** Unix time in seconds. */
  t: number;
  /** The processor, memory and disks of the host. */
  host?: HostSample;
  /** The accelerators of the host. */
  devices?: DeviceSample[];
}

/** One rank of a run and its facts. */
export interface RankInfo {
  /** Rank in the job, from 0. */
  rank: number;
  /** Rank on its node, from 0. */
  localRank?: number;
  /** Number of ranks that the process saw. */
  worldSize?: number;
  /** Name of its node. */
  host?: string;
  /** Process id on its node. */
  pid?: number;
  /** The device of the rank, as the framework names it. */
  device?: string;
  /** What the probe found out inside the process. */
  facts: ProbeFacts;
}

/** An event of a run, such as a warning of the runner. */
export interface RunEvent {
  /** Unix time in seconds. */
  t?: number;
  /** The rank that it concerns; absent for the whole run. */
  rank?: number;
  /** Severity of the event. */
  level: "info" | "warning" | "error";
  /** Stable id of the event. */
  name: string;
  /** The event as a sentence. */
  message?: string;
  /** Values that belong to the event. */
  data?: Record<string, unknown>;
}

/** Something that the importer left out or repaired. */
export interface ImportProblem {
  /** The file that was read. */
  file: string;
  /** The line in the file, from 1. */
  line?: number;
  /** Stable id, e.g. `truncated-line`, `negative-time`. */
  id: string;
  /** The problem as a sentence. */
  message: string;
  /** Number of affected rows. */
  count?: number;
}

/** The file or directory that a run was read from. */
export interface RunSource {
  /** The format that was read. */
  kind: "metrics.csv" | "jsonl" | "scale" | "tape" | "points";
  /** The file or directory. */
  path: string;
}

/** Summary of one trace for the diagnosis rules. Times are in microseconds. */
export interface TraceSummary {
  /** Rank of the process that was traced. */
  rank: number;
  /** Time from the first to the last event. */
  spanUs: number;
  /** Time in which no kernel ran. */
  idleUs: number;
  /** Time in which a compute kernel ran. */
  computeUs: number;
  /** Time in which only communication or copies ran. */
  nonComputeUs: number;
  /** Time in which a communication kernel ran. */
  commUs?: number;
  /** Communication without computation at the same time. */
  exposedCommUs?: number;
  /** Share of the communication that overlaps with computation, in percent. */
  overlapPercent?: number;
  /** Idle time in which the device waited for the host. */
  hostWaitUs?: number;
  /** Idle time in the usual small gaps between kernels (under 30 us). */
  kernelWaitUs?: number;
  /** Idle time of other causes. */
  otherWaitUs?: number;
  /** Number of kernels. */
  kernels?: number;
  /** Kernels that run for less time than their launch takes. */
  shortKernels?: number;
  /** Time of all launch calls on the host. */
  launchUs?: number;
  /** Time that the host waited for the data loader. */
  dataLoaderUs?: number;
  /** Mean number of enqueued kernels, of the busiest stream. */
  meanQueueLength?: number;
  /** The longest idle time. */
  longestGapUs?: number;
  /** Per collective: name, bytes, duration, bus bandwidth in GB/s (1 GB = 1e9 bytes). */
  collectives?: { name: string; bytes: number; durationUs: number; busGBps?: number; count: number }[];
  /** Number of kernels that could use tensor cores. */
  tensorCoreEligible?: number;
  /** Number of kernels that used tensor cores. */
  tensorCoreUsed?: number;
}

/** One measured job. */
export interface Run {
  /** Unique within the study. */
  id: string;
  /** A name for tables and charts. */
  label?: string;
  /** Where it was read from. */
  source: RunSource;
  /** Ranks that share the work (data parallel), one device each. */
  devices: number;
  /** Nothing says on how many devices it ran; `devices` is 1 by assumption. */
  devicesUnknown?: true;
  /** Processes that shared the work: fewer than `devices` when one process drives several. Absent when nothing says so. */
  processes?: number;
  /** Number of nodes. */
  nodes?: number;
  /** Which repetition of its device count it is. */
  repeat?: number;
  /** Position in the interleaved order of the study. */
  order?: number;
  /** How the job ended. */
  status: RunStatus;
  /** Exit status of the job. */
  exitCode?: number;
  /** Why the job failed. */
  message?: string;
  /** The command line. */
  command?: string[];
  /** What started the ranks, such as `torchrun` or `slurm`. */
  launcher?: string;
  /** Unix time in seconds. */
  startedAt?: number;
  /** Duration of the whole job. */
  seconds?: number;
  /** The machine that it ran on. */
  machine?: MachineFacts;
  /** Model, data and batch sizes, as far as they are known. */
  workload: Workload;
  /** The ranks that reported. */
  ranks: RankInfo[];
  /** Measurements per epoch. */
  epochs: TrainingEpoch[];
  /** When it trained, from its epoch records: Unix times in seconds. Before and after it starts and ends. */
  training?: { from: number; until: number };
  /** Measurements per training step. */
  steps: TrainingStep[];
  /** Utilization over time. */
  samples: UtilizationSample[];
  /** Events over time. */
  events: RunEvent[];
  /** Summaries of attached traces. */
  traces?: TraceSummary[];
  /** What the attached traces show by themselves. */
  traceFindings?: Finding[];
  /** What the importer left out or repaired. */
  problems: ImportProblem[];
  /** Named figures that the job itself printed or wrote, e.g. `{throughput: 812.4}`. */
  figures?: Record<string, number>;
}

/** The runs that answer one question, usually one job at several device counts. */
export interface Study {
  /** A name for reports. */
  name: string;
  /** Path that it was read from. */
  path?: string;
  /** The runs, in the order in which they were read. */
  runs: Run[];
  /** Epochs or steps at the start of each run that are excluded from every mean. */
  warmup?: number;
  /** The machine, if all runs share it. */
  machine?: MachineFacts;
  /** The command line, if all runs share it. */
  command?: string[];
  /** What started the ranks. */
  launcher?: string;
  /** What the importer left out or repaired. */
  problems: ImportProblem[];
}

/** What others did to the machine during a run; null if nothing was seen. */
export const disturbanceIn = ({ events }: Pick<Run, "events">): string | null => {
  const event = events.find((e) => e.name === "machine-disturbed");
  return event === undefined ? null : (event.message ?? "others used the machine");
};

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
