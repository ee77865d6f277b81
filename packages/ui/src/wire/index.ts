// What the server sends to the page, as JSON: the page imports these types.
export type { ClusterView, PlanView, TensorPlacement, WorkerHistory, WorkerTile } from "./cluster.js";
export { RequestError } from "./errors.js";
export type { GateParameter, GateRow, GateView } from "./quantum.js";
export type { FindingCard, LedgerView, ScalingView } from "./study.js";

/** State of a run: how it ended, or what is known about a run that has not written its end. */
export type RunState = "running" | "ok" | "failed" | "timeout" | "canceled" | "died" | "silent" | "unknown";

/** One row of the table of runs. */
export interface RunRow {
  /** Path below the runs folder. */
  id: string;
  name: string;
  /** Name of the study that it belongs to. */
  study?: string;
  state: RunState;
  /** Why it ended, or why it is thought dead. */
  message?: string;
  startedAt?: number;
  /** Wall time so far. */
  seconds?: number;
  devices: number;
  /** Kind of device, as the ranks name it. */
  device?: string;
  host?: string;
  model?: string;
  dataset?: string;
  /** Steps so far, and planned. */
  step?: number;
  steps?: number;
  epoch?: number;
  /** Seconds left at the present rate. */
  left?: number;
  samplesPerSecond?: number;
  loss?: number;
  /** What the loss is, where it is not that of a training. */
  lossName?: string;
  /** It optimizes a gate, whose pulses the quantum page draws. */
  gate?: boolean;
  /** Of the last validation, 0 to 1. */
  accuracy?: number;
  verdict?: RunVerdict;
}

/** What the steps of a run say in a few words. */
export interface RunVerdict {
  text: string;
  tone: "good" | "bad" | "neutral";
}

/** One row of the table of studies. */
export interface StudyRow {
  id: string;
  name: string;
  counts: number[];
  runs: number;
  createdAt?: number;
  command: string[];
}

/** The runs folder. */
export interface Overview {
  /** Path of the runs folder, as it was given. */
  folder: string;
  /** The folder exists. */
  exists: boolean;
  runs: RunRow[];
  studies: StudyRow[];
  /** Folders that were left out because there are too many. */
  leftOut: number;
  /** Address of the dispatcher, if one was given. */
  server: string | null;
}

/** One epoch of a run. */
export interface EpochPoint {
  epoch: number;
  seconds: number;
  trainLoss?: number;
  valLoss?: number;
  valAccuracy?: number;
  /** Steps of the run when the epoch ended. */
  lastStep?: number;
  t?: number;
}

/** One line of the log of a run. */
export interface LogLine {
  t?: number;
  level: "info" | "warning" | "error";
  text: string;
}

/** Everything about one run but its curves. */
export interface RunDetail {
  row: RunRow;
  command: string[];
  /** Settings by dotted key, from config.yaml or the workload. */
  settings: Record<string, string>;
  epochs: EpochPoint[];
  test?: { loss: number; accuracy: number };
  ranks: RankPartTimes[];
  log: LogLine[];
  /** Files of captured output: stdout.log, stderr.log. */
  outputs: { name: string; text: string }[];
  utilization: UtilizationHistory;
  /** The tapes in its folder. */
  tapes: string[];
  /** The run can be stopped from here; otherwise why not. */
  stop: { possible: boolean; reason: string };
}

/** Mean parts of a step of one rank over the last steps, in microseconds. */
export interface RankPartTimes {
  rank: number;
  steps: number;
  dataWaitUs: number;
  computeUs: number;
  exposedCommUs: number;
  device?: string;
}

/** Host and device use over time, one column per value; `null` where it was not measured. */
export interface UtilizationHistory {
  t: number[];
  cpuPercent: (number | null)[];
  othersPercent: (number | null)[];
  memoryBytes: (number | null)[];
  devices: {
    index: number;
    utilizationPercent: (number | null)[];
    memoryBytes: (number | null)[];
    powerWatts: (number | null)[];
  }[];
}

/** The fields of a step that are drawn. */
export const seriesFields = [
  "loss",
  "gradientNorm",
  "learningRate",
  "durationUs",
  "dataWaitUs",
  "computeUs",
  "exposedCommUs",
  "samples",
] as const;
/** A field of a step that is drawn. */
export type SeriesField = (typeof seriesFields)[number];

/** Values of one field per bucket of steps; `low` and `high` are absent when every bucket is one step. */
export interface SeriesValues {
  mean: (number | null)[];
  low?: (number | null)[];
  high?: (number | null)[];
}

/** Curves of a run, reduced to buckets of steps. */
export interface SeriesPart {
  /** Changes when the run starts over; points of another generation do not continue these. */
  generation: number;
  /** Steps per stored bucket; 1 if nothing was reduced. */
  width: number;
  /** First step and last time (Unix seconds) of each bucket. */
  step: number[];
  t: (number | null)[];
  values: Partial<Record<SeriesField, SeriesValues>>;
  /** Share of the file that was read, 0 to 1. Below 1 the curves are a sample of the file. */
  read: number;
}

/** The machine now: the strip on every page. */
export interface MachineNow {
  t: number;
  host: string;
  cores: number;
  /** Percent of all cores. */
  cpuPercent: number | null;
  ownPercent: number | null;
  othersPercent: number | null;
  memoryBytes: number | null;
  memoryTotalBytes: number;
  devices: {
    index: number;
    utilizationPercent: number | null;
    memoryBytes: number | null;
    powerWatts: number | null;
  }[];
  /** The largest other users of the processor. */
  others: { name: string; pid: number; percent: number }[];
  /** Why a measurement now would not be valid; null if the machine is quiet. */
  disturbance: string | null;
}

/** Tapes or traces that the timeline can show. */
export interface TimelineSource {
  id: string;
  name: string;
  kind: "tape" | "trace";
  files: number;
  bytes: number;
  tooLarge: boolean;
}

/** An error as the API returns it. */
export interface ApiError {
  error: string;
}
