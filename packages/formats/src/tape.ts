// Schemas of tapes: JSON lines of what a device executed (docs/tape.md). The core runtime, the cluster and the trainer write
// them; the cluster replays them and the lab measures them.
import { z } from "zod";
import { countSchema } from "./facts.js";

/** Version of the tape format. */
export const tapeVersion = 1;

const tensorData = {
  sha256: z.string(),
  base64: z.string().optional(),
  file: z
    .string()
    .regex(/^[0-9a-f]+\.bin$/)
    .optional(),
};
const ids = z.array(z.number());

/** Schema of one kernel or collective as one worker executed it. */
export const instructionSchema = z.object({
  type: z.literal("instruction"),
  worker: countSchema.describe("Number of the worker; its rank in the lab"),
  workerId: z.string(),
  step: countSchema,
  program: countSchema,
  op: z.string(),
  kind: z.string().describe("kernel, library, loop, collective or program"),
  startUs: z.number().describe("Unix time in microseconds on the worker's clock"),
  endUs: z.number(),
  bytes: z.number(),
  flops: z.number(),
  cause: z.string().nullable().describe("The line of the user's program, where known"),
  inputs: ids,
  outputs: ids,
  shapes: z.array(z.string()).describe("Results as this worker holds them"),
});
/** One kernel or collective as one worker executed it. */
export type Instruction = z.infer<typeof instructionSchema>;

/** The fields of an instruction that a timing needs; the lab reads tapes of other writers by these. */
export const timedInstructionSchema = instructionSchema
  .partial()
  .required({ type: true, worker: true, startUs: true, endUs: true })
  .extend({ samples: z.number().min(0).optional() });

/** An instruction with the fields that a timing needs. */
export type TimedInstruction = z.infer<typeof timedInstructionSchema>;

/** Schema of one line of a tape. */
export const tapeLineSchema = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("tape"),
    version: z.number(),
    clock: z.string().optional(),
    node: z.string().optional().describe("Version of Node.js that wrote the tape"),
  }),
  z.object({ type: z.literal("program"), program: z.number(), donated: z.array(z.boolean()), graph: z.unknown() }),
  z.object({ type: z.literal("data"), id: z.number(), bytes: z.number(), ...tensorData }),
  z.object({
    type: z.literal("run"),
    step: z.number(),
    program: z.number(),
    inputs: ids,
    outputs: ids,
    cause: z.string().nullable(),
  }),
  z.object({ type: z.literal("fetch"), id: z.number(), ...tensorData }),
  z.object({ type: z.literal("free"), id: z.number() }),
  z.object({
    type: z.literal("check"),
    lines: countSchema.describe("Number of lines before this one"),
    sha256: z.string().describe("Of all bytes before this line"),
    end: z.boolean().describe("True for the last line of a complete tape"),
  }),
  z.object({
    type: z.literal("plan"),
    program: z.number(),
    devices: z.number(),
    why: z.string(),
    params: z.array(z.string()),
    results: z.array(z.string()),
  }),
  instructionSchema,
]);
/** One line of a tape. */
export type TapeLine = z.infer<typeof tapeLineSchema>;

/** The first line of a tape. */
export const tapeHeader = (): Extract<TapeLine, { type: "tape" }> => ({
  type: "tape",
  version: tapeVersion,
  clock: "unix microseconds of each worker",
  node: process.version,
});
