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
  readSync,
  renameSync,
  rmSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { type Storage, shortened } from "@weft/core/internal/graph";
import { type Tensor, tensor, treeMap } from "@weft/core/internal/tensor";
import { type ArraySource, writeSafetensors } from "@weft/core/io";
import { loadStateDict, type StateDict, stateDict } from "@weft/core/nn";
import type { BestEpoch } from "./best-epoch.js";
import { CheckpointError } from "./errors.js";
import { isFeedback } from "./feedback.js";
import type { RankGroup } from "./group.js";
import { checkPlain, marksOf, type Progress, progressFile, readPlainText, readProgress } from "./progress.js";
import { writeSynced } from "./run-files.js";
import {
  filesOf,
  finishedShards,
  indexFile,
  readIndex,
  readPart,
  type Section,
  SectionReader,
  type StoredTensor,
  shardIndex,
  snapshot,
  sumFiles,
  writeShard,
} from "./shards.js";

export type { Progress } from "./progress.js";

const checksums = "SHA256SUMS";
const parts = { model: "model.safetensors", optimizer: "optimizer.safetensors", progress: progressFile } as const;
/** Only of models with a state. */
export const stateFile = "state.safetensors";
const stepFolder = /^step-(\d+)$/;
/** A checkpoint that was moved aside to write the one of its step again. */
const asideFolder = /^\.(step-\d+)\.old\.tmp$/;
const folderOf = (run: string): string => join(run, "checkpoints");
const nameOf = (step: number): string => `step-${String(step).padStart(8, "0")}`;

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

/** Completes a folder: writes its checksums and gives it its name. */
function publish(temporary: string, target: string, sums: readonly { file: string; sum: string }[]): void {
  writeSynced(join(temporary, checksums), sums.map(({ file, sum }) => `${sum}  ${file}\n`).join(""));
  syncFolder(temporary);
  // A checkpoint of the same step is moved aside, not removed: until the new one has its name, it is the last good one.
  const aside = join(target, "..", `.${basename(target)}.old.tmp`);
  rmSync(aside, { recursive: true, force: true });
  if (existsSync(target)) renameSync(target, aside);
  renameSync(temporary, target);
  syncFolder(join(target, ".."));
  rmSync(aside, { recursive: true, force: true });
}

/** Makes a new folder, in place of what a killed writer left. */
function makeEmpty(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(dirname(folder), { recursive: true });
  // Not a folder or link that somebody has placed there since.
  mkdirSync(folder);
}

/** Files of a checkpoint besides its checksums. */
function filesIn(folder: string): string[] {
  const index = readIndex(folder);
  if (index !== null) return [...filesOf(index), indexFile, parts.progress];
  return [...Object.values(parts), ...(existsSync(join(folder, stateFile)) ? [stateFile] : [])];
}

/** Throws if a file of a checkpoint is not as it was written. */
function verify(folder: string): void {
  const lines = readPlainText(join(folder, checksums)).trimEnd().split("\n");
  const expected = new Map(lines.map((line) => [line.slice(66), line.slice(0, 64)]));
  const outside = [...expected.keys()].find((name) => basename(name) !== name);
  if (outside !== undefined)
    throw new Error(`${checksums} names ${shortened(outside, 80)}, which is not in its folder`);
  // A file that is listed must be there, also one that not every checkpoint has.
  for (const name of new Set([...filesIn(folder), ...expected.keys()])) {
    if (!existsSync(join(folder, name))) throw new Error(`${name} is missing`);
    checkPlain(join(folder, name));
    if (expected.get(name) !== hashOf(join(folder, name))) throw new Error(`${name} is damaged: its checksum differs`);
  }
}

function failed(run: string, step: number, error: Error): CheckpointError {
  const before = checkpointSteps(run).at(-1);
  return new CheckpointError(
    `the checkpoint of step ${step} could not be written: ${error.message}; ` +
      (before === undefined
        ? "there is none before it"
        : `the one of step ${before} is untouched, and --resume continues from it`),
  );
}

/** Removes the oldest checkpoints beyond `keep`, but not the one of the best epoch. */
function prune(run: string, keep: number, best: BestEpoch | undefined): void {
  for (const step of checkpointSteps(run).slice(0, -keep))
    if (step !== best?.step) rmSync(join(folderOf(run), nameOf(step)), { recursive: true, force: true });
}

/** Removes what killed writers left behind. */
export function removeUnfinished(run: string): void {
  const folder = folderOf(run);
  if (!existsSync(folder)) return;
  for (const name of readdirSync(folder)) {
    const aside = asideFolder.exec(name);
    if (aside !== null && !existsSync(join(folder, aside[1]))) renameSync(join(folder, name), join(folder, aside[1]));
  }
  for (const name of readdirSync(folder))
    if (name.startsWith(".step-") && name.endsWith(".tmp"))
      rmSync(join(folder, name), { recursive: true, force: true });
}

/**
 * Starts a sharded checkpoint: every rank copies its parts and writes them while the next steps run. All ranks call it at
 * the same step. The promise resolves when this rank's part is written, on rank 0 when the checkpoint is complete.
 */
export function startShardedCheckpoint(
  run: string,
  tensors: readonly StoredTensor[],
  progress: Progress,
  keep: number,
  group: RankGroup,
): Promise<void> {
  const folder = folderOf(run);
  const { step, best } = progress;
  const temporary = join(folder, `.${nameOf(step)}.sharded.tmp`);
  const state = `${JSON.stringify(progress, null, 1)}\n`;
  if (group.rank === 0) {
    makeEmpty(temporary);
  }
  group.barrier();
  const index = shardIndex(tensors, group.size);
  const arrays = snapshot(tensors, index, group.rank);
  // The run goes on while the files are written.
  const then = { ...progress };
  const write = async (): Promise<void> => {
    await writeShard(temporary, index, group.rank, arrays, (part) => marksOf(then, part));
    if (group.rank !== 0) return;
    const shards = await waitFor(temporary, () => finishedShards(temporary, index));
    for (const name of sumFiles(index)) rmSync(join(temporary, name));
    writeSynced(join(temporary, indexFile), JSON.stringify(index));
    writeSynced(join(temporary, parts.progress), state);
    const own = [indexFile, parts.progress].map((file) => ({ file, sum: hashOf(join(temporary, file)) }));
    publish(temporary, join(folder, nameOf(step)), [...shards, ...own]);
    prune(run, keep, best);
  };
  return write().catch((error: Error) => {
    if (group.rank === 0) rmSync(temporary, { recursive: true, force: true });
    throw failed(run, step, error);
  });
}

/** Longest time in milliseconds that rank 0 waits for the parts of the others. */
const longestWait = 600_000;

/** Waits for what others write into a folder; it is an error if the folder disappears meanwhile. */
async function waitFor<T>(folder: string, look: () => T | null): Promise<T> {
  for (const begin = performance.now(); ; ) {
    if (!existsSync(folder)) throw new Error("its unfinished folder was removed");
    const found = look();
    if (found !== null) return found;
    if (performance.now() - begin > longestWait)
      throw new Error("another rank has not written its part within ten minutes");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Tensors that are read from the device when they are written, one at a time. */
const arraysOf = (dict: StateDict): Record<string, ArraySource> =>
  Object.fromEntries(
    Object.entries(dict).map(([name, t]) => [
      name,
      {
        ...{ shape: t.shape, dtype: t.dtype },
        load: async () => ({ shape: t.shape, dtype: t.dtype, data: t.rawSync() as Storage }),
      },
    ]),
  );

/** Writes a checkpoint, then removes the oldest beyond `keep`. On failure the existing ones are unchanged. */
export async function writeCheckpoint(
  run: string,
  state: { params: unknown; optimizer: unknown; modelState?: unknown },
  progress: Progress,
  keep: number,
): Promise<string> {
  const folder = folderOf(run);
  const target = join(folder, nameOf(progress.step));
  const temporary = join(folder, `.${nameOf(progress.step)}.${process.pid}.tmp`);
  try {
    makeEmpty(temporary);
    const put = (file: string, dict: StateDict): Promise<void> =>
      writeSafetensors(join(temporary, file), arraysOf(dict), marksOf(progress, file));
    await put(parts.model, stateDict(state.params));
    await put(parts.optimizer, stateDict(state.optimizer));
    const modelState = stateDict(state.modelState ?? {});
    if (Object.keys(modelState).length > 0) await put(stateFile, modelState);
    writeSynced(join(temporary, parts.progress), `${JSON.stringify(progress, null, 1)}\n`);
    const sums = filesIn(temporary).map((file) => ({ file, sum: hashOf(join(temporary, file)) }));
    publish(temporary, target, sums);
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    throw failed(run, progress.step, error as Error);
  }
  prune(run, keep, progress.best);
  return target;
}

/** Folders that may hold a checkpoint, newest step first; those moved aside after the others of their step. */
function candidates(run: string): string[] {
  const folder = folderOf(run);
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .flatMap((name) => {
      const step = (asideFolder.exec(name)?.[1] ?? name).match(stepFolder)?.[1];
      return step === undefined ? [] : [{ name, step: Number(step), aside: name.startsWith(".") }];
    })
    .sort((a, b) => b.step - a.step || Number(a.aside) - Number(b.aside))
    .map(({ name }) => join(folder, name));
}

/** A readable checkpoint, with a note on each one that should have been taken before it. */
interface FoundCheckpoint {
  folder: string;
  progress: Progress;
  skipped: string[];
}

function openCheckpoint(folder: string): Progress {
  const progress = readProgress(folder);
  const step = (asideFolder.exec(basename(folder))?.[1] ?? basename(folder)).match(stepFolder)?.[1];
  if (Number(step) !== progress.step) throw new Error(`it is the checkpoint of step ${progress.step}, renamed`);
  verify(folder);
  return progress;
}

/** The newest readable checkpoint: a run is continued from it. */
export function findCheckpoint(run: string): FoundCheckpoint | null {
  const skipped: string[] = [];
  for (const folder of candidates(run)) {
    try {
      return { folder, progress: openCheckpoint(folder), skipped };
    } catch (error) {
      skipped.push(`${folder}: ${(error as Error).message}`);
    }
  }
  if (skipped.length > 0) throw new CheckpointError(`${run}: no checkpoint can be read:\n  ${skipped.join("\n  ")}`);
  return null;
}

/** The checkpoint that is the result of a run: that of the best epoch if the run chose one, or the newest. */
export function findResult(run: string): FoundCheckpoint | null {
  const newest = findCheckpoint(run);
  const best = newest?.progress.best;
  if (newest === null || best === undefined || best.step === newest.progress.step) return newest;
  const folder = join(folderOf(run), nameOf(best.step));
  try {
    return { folder, progress: openCheckpoint(folder), skipped: newest.skipped };
  } catch (error) {
    throw new CheckpointError(
      `${run}: epoch ${best.epoch} was the best one, and its checkpoint cannot be read: ${folder}: ${(error as Error).message}`,
    );
  }
}

/** Reads parameters with the structure of `like`, whole. */
export async function readParameters<P>(folder: string, like: P): Promise<P> {
  const reader = await SectionReader.open(folder, "model");
  try {
    const dict: StateDict = {};
    for (const name of reader.names) {
      const { data, shape, dtype } = await reader.read(name);
      dict[name] = tensor(data, { shape, dtype });
    }
    return loadStateDict(like, dict);
  } finally {
    await reader.close();
  }
}

/** Whether a checkpoint has tensors of the model's state. */
export function hasState(folder: string): boolean {
  const index = readIndex(folder);
  if (index === null) return existsSync(join(folder, stateFile));
  return Object.keys(index.tensors).some((name) => name.startsWith("state/"));
}

/** Reads this rank's parts of a section into the structure of `like`. */
export async function readShards<T>(
  folder: string,
  section: Section,
  like: T,
  tensors: readonly StoredTensor[],
  rank: number,
): Promise<T> {
  const own = tensors.filter((given) => given.section === section);
  if (section === "state" && own.length === 0 && !hasState(folder)) return like;
  if (section === "state" && !hasState(folder))
    throw new CheckpointError(`${folder}: it has no state of the model, which this model has (${own[0].name})`);
  const reader = await SectionReader.open(folder, section);
  try {
    // Error feedback belongs to a number of ranks: with another one it starts at zero.
    const restarts = ({ name, shape }: StoredTensor): boolean =>
      isFeedback(name) && (!reader.names.includes(name) || reader.info(name).shape.join() !== shape.join());
    const missing = own.find((given) => !reader.names.includes(given.name) && !restarts(given));
    const extra = reader.names.find((name) => !own.some((given) => given.name === name) && !isFeedback(name));
    if (missing !== undefined || extra !== undefined)
      throw new CheckpointError(
        `${folder}: the ${section} ${missing === undefined ? `has a tensor ${extra} that this model has not` : `has no tensor ${missing.name}`}`,
      );
    const read = new Map<unknown, Tensor>();
    for (const given of own) read.set(given.local, restarts(given) ? given.local : await readPart(reader, given, rank));
    return treeMap((leaf) => read.get(leaf)!, like);
  } finally {
    await reader.close();
  }
}

/** The parameters and the model's state of a run's result in place of those of its last step; this rank's parts. */
export async function readResult<S extends { params: unknown; modelState: unknown }>(
  run: string,
  state: S,
  tensors: readonly StoredTensor[],
  rank: number,
): Promise<S> {
  const { folder } = findResult(run)!;
  const read = <T>(section: Section, like: T): Promise<T> => readShards(folder, section, like, tensors, rank);
  return { ...state, params: await read("model", state.params), modelState: await read("state", state.modelState) };
}
