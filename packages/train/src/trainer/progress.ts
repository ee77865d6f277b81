// The state of a run besides its tensors, as a checkpoint stores it, and the ids that tie the files of one checkpoint
// together. Files of a run's folder are untrusted: their content and size are checked.
import { hash } from "node:crypto";
import { statSync } from "node:fs";
import { join } from "node:path";
import { readText } from "@weft/formats/file";
import { z } from "zod";
import type { BestEpoch } from "./best-epoch.js";
import type { RunConfig } from "./config.js";
import type { EpochRow } from "./records.js";
import { curveOf } from "./resume.js";

/** State of a run besides tensors. */
export interface Progress {
  version: 1;
  /** Optimizer steps taken. */
  step: number;
  /** The next batch: epoch from 0, and its index within the epoch. */
  epoch: number;
  index: number;
  /** Of the current epoch: sum of losses times samples, samples, seconds. */
  lossSum: number;
  samples: number;
  seconds: number;
  epochs: EpochRow[];
  ranks: number;
  globalBatch: number;
  /** Content hashes of the token files. */
  data: { train: string; test: string | null };
  classes: readonly string[];
  config: RunConfig;
  /** Measured speeds of the ranks, by which batches are divided. */
  speeds?: readonly number[] | undefined;
  /** The best epoch so far, if the configuration asks for it. */
  best?: BestEpoch | undefined;
}

export const progressFile = "state.json";
/** Bytes of a text file of a checkpoint: an index of a million ranks has less. */
const mostText = 512 << 20;

const count = z.int().min(0);
// JSON has no NaN.
const loss = z
  .number()
  .nullable()
  .transform((value) => value ?? Number.NaN);
const section = z.looseObject({});

const schema = z.looseObject({
  version: z.literal(1),
  ...{ step: count, epoch: count, index: count },
  ...{ lossSum: loss, samples: z.number().min(0), seconds: z.number().min(0) },
  epochs: z.array(
    z.looseObject({
      ...{ epoch: count, trainLoss: loss, seconds: z.number() },
      ...{ valLoss: z.number().nullable(), valAccuracy: z.number().nullable() },
    }),
  ),
  ...{ ranks: count.min(1), globalBatch: count.min(1) },
  data: z.looseObject({ train: z.string(), test: z.string().nullable() }),
  classes: z.array(z.string()),
  config: z.looseObject({
    ...{ model: z.union([z.string(), section]), training: section, distributed: section },
    options: section.optional(),
  }),
  speeds: z.array(z.number().positive()).optional(),
  best: z.looseObject({ epoch: count, step: count, value: z.number() }).optional(),
});

/** Reads a text file of a checkpoint. A pipe would be waited for, and a device read without end. */
export function readPlainText(path: string): string {
  checkPlain(path);
  return readText(path, mostText);
}

/** Throws unless there is a plain file, or a link to one. */
export function checkPlain(path: string): void {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined) throw new Error(`${path} is missing`);
  if (!found.isFile()) throw new Error(`${path} is not a plain file`);
}

/** Reads and checks the progress in a checkpoint's folder. */
export function readProgress(folder: string): Progress {
  const given = JSON.parse(readPlainText(join(folder, progressFile))) as { version?: unknown } | null;
  if (given?.version !== 1) throw new Error(`version ${String(given?.version)}, this is version 1`);
  const parsed = schema.safeParse(given);
  // The configuration as it was written: marks are made of its text.
  if (parsed.success) return { ...parsed.data, config: (given as { config: RunConfig }).config } as Progress;
  const [issue] = parsed.error.issues;
  throw new Error(`${progressFile}: ${issue.path.join(".")} ${issue.message}`);
}

/**
 * Marks that a tensor file of a checkpoint carries: its part, the step, and what determines the curve of its run. Files that were
 * exchanged between ranks, steps or runs do not have those of their new place, whatever the checksums say.
 */
export function marksOf({ step, config, data }: Progress, part: string): Record<string, string> {
  const run = hash("sha256", JSON.stringify([curveOf(config), data.train]), "hex").slice(0, 32);
  return { weft_part: part, weft_step: String(step), weft_run: run };
}
