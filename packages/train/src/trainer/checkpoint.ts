// Checkpoints: one folder per step with the parameters, the optimizer state (both .safetensors) and the progress of the
// run, and their checksums (in the format of sha256sum). A folder is renamed to its final name only when everything in it
// is on disk; one whose checksums do not fit is passed over.
import { createHash } from "node:crypto";
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { WeftError } from "@weft/core/internal/graph";
import type { Tensor } from "@weft/core/internal/tensor";
import { load, save } from "@weft/core/io";
import { loadStateDict, type StateDict, stateDict } from "@weft/core/nn";
import type { RunConfig } from "./config.js";
import type { EpochRow } from "./records.js";

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
}

const checksums = "SHA256SUMS";
const parts = { model: "model.safetensors", optimizer: "optimizer.safetensors", progress: "state.json" } as const;
const stepFolder = /^step-(\d+)$/;
const folderOf = (run: string): string => join(run, "checkpoints");
const nameOf = (step: number): string => `step-${String(step).padStart(8, "0")}`;

/** A checkpoint cannot be read or written. */
export class CheckpointError extends WeftError {
  override name = "CheckpointError";
}

/** Steps that have a checkpoint, oldest first. */
export function checkpointSteps(run: string): number[] {
  const folder = folderOf(run);
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .flatMap((name) => {
      const match = stepFolder.exec(name);
      return match === null ? [] : [Number(match[1])];
    })
    .sort((a, b) => a - b);
}

function syncFolder(path: string): void {
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** The hash of a file, read in pieces. */
function hashOf(path: string): string {
  const hash = createHash("sha256");
  const piece = Buffer.allocUnsafe(1 << 20);
  const fd = openSync(path, "r");
  try {
    for (let n = readSync(fd, piece); n > 0; n = readSync(fd, piece)) hash.update(piece.subarray(0, n));
  } finally {
    closeSync(fd);
  }
  return hash.digest("hex");
}

function writeChecksums(folder: string): void {
  const fd = openSync(join(folder, checksums), "w");
  try {
    writeFileSync(
      fd,
      Object.values(parts)
        .map((name) => `${hashOf(join(folder, name))}  ${name}\n`)
        .join(""),
    );
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** Throws if a file of a checkpoint is not as it was written. */
function verify(folder: string): void {
  const lines = readFileSync(join(folder, checksums), "utf8").trimEnd().split("\n");
  const expected = new Map(lines.map((line) => [line.slice(66), line.slice(0, 64)]));
  for (const name of Object.values(parts))
    if (expected.get(name) !== hashOf(join(folder, name))) throw new Error(`${name} is damaged: its checksum differs`);
}

/** Writes a checkpoint, then removes the oldest beyond `keep`. On failure the existing ones are unchanged. */
export async function writeCheckpoint(
  run: string,
  state: { params: unknown; optimizer: unknown },
  progress: Progress,
  keep: number,
): Promise<string> {
  const folder = folderOf(run);
  const target = join(folder, nameOf(progress.step));
  const temporary = join(folder, `.${nameOf(progress.step)}.${process.pid}.tmp`);
  try {
    rmSync(temporary, { recursive: true, force: true });
    mkdirSync(temporary, { recursive: true });
    await save(join(temporary, parts.model), stateDict(state.params));
    await save(join(temporary, parts.optimizer), stateDict(state.optimizer));
    const fd = openSync(join(temporary, parts.progress), "w");
    try {
      writeFileSync(fd, `${JSON.stringify(progress, null, 1)}\n`);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    writeChecksums(temporary);
    syncFolder(temporary);
    rmSync(target, { recursive: true, force: true });
    renameSync(temporary, target);
    syncFolder(folder);
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    const before = checkpointSteps(run).at(-1);
    throw new CheckpointError(
      `the checkpoint of step ${progress.step} could not be written: ${(error as Error).message}; ` +
        (before === undefined
          ? "there is none before it"
          : `the one of step ${before} is untouched, and --resume continues from it`),
    );
  }
  for (const step of checkpointSteps(run).slice(0, -keep))
    rmSync(join(folder, nameOf(step)), { recursive: true, force: true });
  return target;
}

/** The newest readable checkpoint, with a note on each newer unreadable one. */
export function findCheckpoint(run: string): { folder: string; progress: Progress; skipped: string[] } | null {
  const skipped: string[] = [];
  for (const step of checkpointSteps(run).reverse()) {
    const folder = join(folderOf(run), nameOf(step));
    try {
      const progress = JSON.parse(readFileSync(join(folder, parts.progress), "utf8")) as Progress;
      if (progress.version !== 1) throw new Error(`version ${String(progress.version)}, this is version 1`);
      for (const name of [parts.model, parts.optimizer])
        if (!existsSync(join(folder, name))) throw new Error(`${name} is missing`);
      verify(folder);
      return { folder, progress, skipped };
    } catch (error) {
      skipped.push(`${folder}: ${(error as Error).message}`);
    }
  }
  if (skipped.length > 0) throw new CheckpointError(`${run}: no checkpoint can be read:\n  ${skipped.join("\n  ")}`);
  return null;
}

const tensors = async (path: string): Promise<StateDict> => (await load(path)) as Record<string, Tensor>;

/** Reads parameters with the structure of `like`. */
export const readParameters = async <P>(folder: string, like: P): Promise<P> =>
  loadStateDict(like, await tensors(join(folder, parts.model)));

export const readOptimizer = async <S>(folder: string, like: S): Promise<S> =>
  loadStateDict(like, await tensors(join(folder, parts.optimizer)));
