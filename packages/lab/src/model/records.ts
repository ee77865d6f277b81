// The JSON lines that anything on a measured machine writes: one object a line, `v: 1`, a `type`. The runner, the
// probe and Weft's own trainer write them; the importer reads them. docs/lab-format.md explains every field.
import type { MachineFacts, ProbeFacts, Workload } from "./facts.js";
import type { DeviceSample, Epoch, HostSample, RunStatus, Step } from "./run.js";

export const recordVersion = 1;

interface Base {
  v: 1;
  /** Unix time in seconds (float) when the record was written. */
  t?: number;
  rank?: number;
}

export interface RunRecord extends Base {
  type: "run";
  id: string;
  study?: string;
  label?: string;
  devices: number;
  nodes?: number;
  repeat?: number;
  order?: number;
  command?: string[];
  launcher?: string;
  machine?: MachineFacts;
  workload?: Workload;
}

export interface RankRecord extends Base {
  type: "rank";
  rank: number;
  localRank?: number;
  worldSize?: number;
  host?: string;
  pid?: number;
  device?: string;
}

export type StepRecord = Base & Step & { type: "step" };

export type EpochRecord = Base & Omit<Epoch, "line"> & { type: "epoch" };

export interface SampleRecord extends Base {
  type: "sample";
  t: number;
  host?: HostSample;
  devices?: DeviceSample[];
}

export interface FactsRecord extends Base {
  type: "facts";
  facts: ProbeFacts;
}

export interface EventRecord extends Base {
  type: "event";
  name: string;
  level?: "info" | "warning" | "error";
  message?: string;
  data?: Record<string, unknown>;
}

export interface EndRecord extends Base {
  type: "end";
  status: RunStatus;
  exitCode?: number;
  signal?: string;
  /** Wall time of the run (or of this rank) in seconds. */
  seconds?: number;
  message?: string;
  /** Figures that the job itself printed or wrote. */
  figures?: Record<string, number>;
}

export type LabRecord =
  | RunRecord
  | RankRecord
  | StepRecord
  | EpochRecord
  | SampleRecord
  | FactsRecord
  | EventRecord
  | EndRecord;

/** study.json in the directory that `weft scale` makes. */
export interface StudyFile {
  v: 1;
  name: string;
  command: string[];
  counts: number[];
  repeats: number;
  launcher: string;
  /** Steps or epochs at the start of every run that do not count. */
  warmup?: number;
  machine?: MachineFacts;
  workload?: Workload;
  createdAt?: number;
}

/** runs/<id>/run.json: written when the run starts, and again when it ends. */
export interface RunFile {
  v: 1;
  id: string;
  devices: number;
  repeat: number;
  order: number;
  command: string[];
  nodes?: number;
  startedAt?: number;
  endedAt?: number;
  seconds?: number;
  status: RunStatus | "running";
  exitCode?: number;
  signal?: string;
  message?: string;
  machine?: MachineFacts;
  workload?: Workload;
  /** SLURM job id, where there is one. */
  job?: string;
}

export type ParsedRecord = { ok: true; record: LabRecord } | { ok: false; problem: string };

type FieldKind = "number" | "integer" | "string" | "object";

// The fields without which a record cannot be used; the rest is optional and checked where it is read.
const required: Record<LabRecord["type"], Record<string, FieldKind>> = {
  run: { id: "string", devices: "integer" },
  rank: { rank: "integer" },
  step: { rank: "integer", step: "integer", durationUs: "number" },
  epoch: { epoch: "integer", seconds: "number" },
  sample: { t: "number" },
  facts: { facts: "object" },
  event: { name: "string" },
  end: { status: "string" },
};

const isKind: Record<FieldKind, (value: unknown) => boolean> = {
  number: (value) => typeof value === "number" && Number.isFinite(value),
  integer: (value) => Number.isInteger(value),
  string: (value) => typeof value === "string",
  object: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};

/** One line to a record, or why not. Unknown fields are kept; unknown types are refused, so that a typo shows. */
export function parseRecord(line: string): ParsedRecord {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return { ok: false, problem: "not valid JSON" };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return { ok: false, problem: "not a JSON object" };
  const object = value as Record<string, unknown>;
  if (object["v"] !== recordVersion)
    return { ok: false, problem: `version ${JSON.stringify(object["v"])} is not ${recordVersion}` };
  const type = object["type"];
  if (typeof type !== "string" || !Object.hasOwn(required, type))
    return { ok: false, problem: `unknown record type ${JSON.stringify(type)}` };
  for (const [field, kind] of Object.entries(required[type as LabRecord["type"]]))
    if (!isKind[kind](object[field]))
      return { ok: false, problem: `${type} record: ${field} should be ${kind}, is ${JSON.stringify(object[field])}` };
  if (object["rank"] !== undefined && !isKind.integer(object["rank"]))
    return { ok: false, problem: `${type} record: rank should be integer, is ${JSON.stringify(object["rank"])}` };
  return { ok: true, record: object as unknown as LabRecord };
}

/** The line that a writer appends. */
export function formatRecord(record: LabRecord): string {
  return JSON.stringify(record) + "\n";
}
