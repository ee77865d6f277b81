// Schemas of run records: one JSON object per line, with `v: 1` and a `type`. The runner, the probe and the trainer write
// them; the lab reads them. docs/lab-format.md explains every field.
import { z } from "zod";
import { kindName, type Lenient, lenientParser } from "./check.js";
import { countSchema, deviceCountSchema, machineFactsSchema, probeFactsSchema, workloadSchema } from "./facts.js";

/** Version of the record format. */
export const recordVersion = 1;

/** Schema of how a run or a rank ended. */
export const runStatusSchema = z.enum(["ok", "failed", "timeout", "canceled", "unknown"]);
/** How a run ended. */
export type RunStatus = z.infer<typeof runStatusSchema>;

const duration = z.number().min(0).optional();

const envelope = <T extends string>(type: T) => ({
  v: z.literal(recordVersion),
  type: z.literal(type),
  t: z.number().optional().describe("Unix time in seconds when the record was written"),
  rank: deviceCountSchema.optional().describe("Rank that wrote the record"),
});

const runRecord = z.object({
  ...envelope("run"),
  id: z.string(),
  study: z.string().optional(),
  label: z.string().optional(),
  devices: deviceCountSchema,
  nodes: deviceCountSchema.optional(),
  repeat: countSchema.optional(),
  order: countSchema.optional(),
  command: z.array(z.string()).optional(),
  launcher: z.string().optional(),
  machine: machineFactsSchema.optional(),
  workload: workloadSchema.optional(),
});

const rankRecord = z.object({
  ...envelope("rank"),
  rank: deviceCountSchema,
  localRank: deviceCountSchema.optional(),
  worldSize: deviceCountSchema.optional(),
  host: z.string().optional(),
  pid: countSchema.optional(),
  device: z.string().optional(),
});

const stepFields = {
  rank: deviceCountSchema,
  epoch: countSchema.optional(),
  step: countSchema.describe("Counted from 0 over the whole run"),
  startUs: z.number().optional().describe("From any origin of this rank"),
  durationUs: z.number().describe("From the request for the batch to the end of the optimizer step"),
  dataWaitUs: duration.describe("Time spent waiting for the batch; part of durationUs"),
  computeUs: duration.describe("durationUs without data wait and exposed communication"),
  forwardUs: duration,
  backwardUs: duration,
  optimizerUs: duration,
  commUs: duration.describe("Time of all collectives"),
  exposedCommUs: duration.describe("Communication that no computation overlapped"),
  cpuUs: duration.describe("Processor time of the rank's threads"),
  samples: z.number().min(0).optional().describe("Samples of this rank"),
  loss: z.number().optional(),
  gradientNorm: z.number().optional(),
  learningRate: z.number().optional(),
  lossScale: z.number().optional().describe("float16: scale of the loss"),
  skipped: z.boolean().optional().describe("float16: the gradients overflowed and the update was skipped"),
  optimizerStep: z.boolean().optional().describe("False for a micro-step of gradient accumulation"),
  compile: z.boolean().optional().describe("A compilation happened in this step"),
  weight: countSchema.optional().describe("Steps that this one stands for, where the probe samples; 1 if absent"),
};
const stepRecord = z.object({ ...envelope("step"), ...stepFields });

const epochFields = {
  epoch: countSchema,
  seconds: z.number().describe("Training time, without validation"),
  trainLoss: z.number().optional(),
  valLoss: z.number().optional(),
  valAccuracy: z.number().optional().describe("0 to 1"),
  samples: z.number().min(0).optional().describe("Samples of this rank in this epoch"),
  steps: countSchema.optional().describe("Steps of this rank in this epoch"),
  lastStep: countSchema.optional().describe("Steps of the run when the epoch ended"),
  startedAt: z.number().optional().describe("Unix time in seconds"),
};
const epochRecord = z.object({ ...envelope("epoch"), ...epochFields });

/** Schema of host utilization at one moment. */
const hostSampleSchema = z.object({
  cpuPercent: z.number().optional().describe("Percent of all usable cores, 0 to 100"),
  runQueue: z.number().optional().describe("Runnable processes, without the one that samples"),
  foreignCpuPercent: z.number().optional().describe("Percent of all usable cores that other processes used"),
  stealPercent: z.number().optional().describe("Percent of processor time that the hypervisor gave to others"),
  memoryUsedBytes: z.number().optional(),
  processes: countSchema.optional().describe("The job's own processes"),
  jobCpuPercent: z.number().optional(),
  jobMemoryBytes: z.number().optional(),
});
/** Host utilization at one moment. */
export type HostSample = z.infer<typeof hostSampleSchema>;

/** Schema of device utilization at one moment. */
const deviceSampleSchema = z.object({
  index: countSchema,
  utilizationPercent: z.number().optional(),
  memoryUsedBytes: z.number().optional(),
  memoryTotalBytes: z.number().optional(),
  powerWatts: z.number().optional(),
  energyJoules: z.number().optional().describe("Since the driver was loaded; differences are energy"),
  smClockMHz: z.number().optional(),
  memoryClockMHz: z.number().optional(),
  temperatureC: z.number().optional(),
  tensorActivePercent: z.number().optional().describe("Share of time that tensor cores were busy (DCGM)"),
  memoryActivePercent: z.number().optional().describe("Share of time that device memory was busy (DCGM, NVML)"),
});
/** Device utilization at one moment. */
export type DeviceSample = z.infer<typeof deviceSampleSchema>;

const sampleRecord = z.object({
  ...envelope("sample"),
  t: z.number(),
  host: hostSampleSchema.optional(),
  devices: z.array(deviceSampleSchema).optional(),
});

const factsRecord = z.object({ ...envelope("facts"), facts: probeFactsSchema });

const eventRecord = z.object({
  ...envelope("event"),
  name: z.string(),
  level: z.enum(["info", "warning", "error"]).optional(),
  message: z.string().optional(),
  data: z.record(z.string(), z.unknown()).optional(),
});

const endRecord = z.object({
  ...envelope("end"),
  status: runStatusSchema,
  exitCode: z.int().optional(),
  signal: z.string().optional(),
  seconds: z.number().optional().describe("Wall time of the run, or of this rank"),
  message: z.string().optional(),
  figures: z.record(z.string(), z.number()).optional().describe("Figures that the job itself printed or wrote"),
});

/** The schema of each record type, by the value of its `type`. */
export const recordSchemas = {
  run: runRecord,
  rank: rankRecord,
  step: stepRecord,
  epoch: epochRecord,
  sample: sampleRecord,
  facts: factsRecord,
  event: eventRecord,
  end: endRecord,
} as const;

/** Schema of one line of a record file. */
export const recordSchema = z.discriminatedUnion("type", [
  runRecord,
  rankRecord,
  stepRecord,
  epochRecord,
  sampleRecord,
  factsRecord,
  eventRecord,
  endRecord,
]);

/** One line of a record file. */
export type RunLogRecord = z.infer<typeof recordSchema>;
/** The value of a record's `type` field. */
export type RecordType = RunLogRecord["type"];
/** The record of one type. */
export type RecordOf<T extends RecordType> = Extract<RunLogRecord, { type: T }>;
/** A training step on one rank. Times are microseconds on that rank's own clock. */
export type TrainingStep = Omit<RecordOf<"step">, "v" | "type" | "t">;
/** One pass over the data, timed by one rank (usually 0). */
export type TrainingEpoch = Omit<RecordOf<"epoch">, "v" | "type" | "t"> & {
  /** Line in the source file (1-based), so that a figure can be traced to its row. */
  line?: number;
};

/** A parsed line, or the reason why it cannot be used. `dropped` names optional fields that were removed as invalid. */
export type ParsedRecord =
  | { ok: true; record: RunLogRecord; dropped: readonly string[] }
  | { ok: false; problem: string };

const parsers = Object.fromEntries(
  Object.entries(recordSchemas).map(([type, schema]) => [type, lenientParser(schema as z.ZodType)]),
) as Record<RecordType, (value: unknown) => Lenient<unknown>>;

/**
 * Parses one line. Unknown fields are kept and unknown types refused. A record that lacks a required field is refused; an
 * optional field of the wrong kind is removed and named in `dropped`.
 */
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
  if (object.v !== recordVersion)
    return { ok: false, problem: `version ${JSON.stringify(object.v)} is not ${recordVersion}` };
  const type = object.type;
  if (typeof type !== "string" || !Object.hasOwn(recordSchemas, type))
    return { ok: false, problem: `unknown record type ${JSON.stringify(type)}` };
  const { rank } = object;
  const parsed = parsers[type as RecordType](object);
  // A record of an unreadable rank would be counted for another one.
  const ofUnknownRank = parsed.ok && parsed.dropped.includes("rank");
  if (parsed.ok && !ofUnknownRank) return { ok: true, record: parsed.value as RunLogRecord, dropped: parsed.dropped };
  const field = parsed.ok ? "rank" : parsed.field;
  const shape = recordSchemas[type as RecordType].shape as Record<string, z.ZodType>;
  const got = ofUnknownRank
    ? rank
    : field.split(".").reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], object);
  return {
    ok: false,
    problem: `${type} record: ${field} should be ${kindName(shape[field.split(".")[0]])}, is ${JSON.stringify(got)}`,
  };
}

/** The line that a writer appends, newline included. */
export function formatRecord(record: RunLogRecord): string {
  return `${JSON.stringify(record)}\n`;
}
