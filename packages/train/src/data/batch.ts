// One rank's batch as a single int32 array, so that a step needs one upload. Each row holds its sample number, class,
// length, random key and global batch size, then the ids. Rows of length 0 are padding with zero weight.
import { threefry2x32 } from "@weft/core/internal/ops";
import { boundsBySpeed, type Epoch, shareOf } from "./epoch.js";
import type { TokenSet } from "./tokens.js";

/** Columns before the ids. */
export const columns = { sample: 0, label: 1, length: 2, key0: 3, key1: 4, total: 5 } as const;
/** Number of columns before the ids. */
export const headColumns = 6;

/** A packed micro-batch of one rank. */
export interface MicroBatch {
  /** Number of the epoch. */
  epoch: number;
  /** Index of the optimizer step within the epoch, from 0. */
  index: number;
  /** Micro-step within the optimizer step, from 0. */
  micro: number;
  /** Rows that hold a sample. */
  samples: number;
  /** Samples of the step, over all ranks and micro-steps. */
  total: number;
  /** Rows of the batch, with those that only pad it. */
  rows: number;
  /** Length that texts are padded to. */
  length: number;
  /** [rows, headColumns + length]. */
  data: Int32Array;
}

export interface BatchShape {
  rank: number;
  ranks: number;
  /** Micro-steps per optimizer step. */
  accumulation: number;
  /** Rows of one micro-batch on this rank. */
  rows: number;
  seed: number;
  /** Speeds of all ranks, by which a batch is divided; equal parts by default. */
  speeds?: readonly number[] | undefined;
}

const forDropout = 0x64726f70;

/** The samples of a step that are a micro-batch of this rank. */
function partOf(total: number, micro: number, { rank, ranks, accumulation, speeds }: BatchShape): [number, number] {
  if (speeds === undefined) return shareOf(total, rank * accumulation + micro, ranks * accumulation);
  const [first, end] = boundsBySpeed(total, speeds).slice(rank, rank + 2);
  const [from, to] = shareOf(end - first, micro, accumulation);
  return [first + from, first + to];
}

/** Writes the micro-batch of one rank into `target` (or a new array). */
export function fillBatch(
  set: TokenSet,
  plan: Epoch,
  shape: BatchShape,
  epoch: number,
  index: number,
  micro: number,
  target?: Int32Array,
): MicroBatch {
  const { rows, seed } = shape;
  const length = plan.padded[index];
  const width = headColumns + length;
  const data = target === undefined ? new Int32Array(rows * width) : target.subarray(0, rows * width).fill(0);
  const first = plan.starts[index];
  const total = plan.starts[index + 1] - first;
  const [start, end] = partOf(total, micro, shape);
  for (let row = 0; row < rows; row++) {
    const at = row * width;
    data[at + columns.total] = total;
    data[at + columns.sample] = -1;
    if (row >= end - start) continue;
    const sample = plan.order[first + start + row];
    const from = set.offsets[sample];
    // An empty text is one padding token long: its class is still predicted.
    const tokens = Math.max(1, Math.min(length, set.offsets[sample + 1] - from));
    // Keyed by sample and epoch, not by rank: dropout does not depend on the number of ranks.
    const [key0, key1] = threefry2x32(seed >>> 0, forDropout, sample, epoch);
    data[at + columns.sample] = sample;
    data[at + columns.label] = set.labels[sample];
    data[at + columns.length] = tokens;
    data[at + columns.key0] = key0 | 0;
    data[at + columns.key1] = key1 | 0;
    const kept = Math.min(tokens, set.offsets[sample + 1] - from);
    data.set(set.ids.subarray(from, from + kept), at + headColumns);
  }
  return { epoch, index, micro, samples: end - start, total, rows, length, data };
}

/** Rows that a rank needs for its share of a full global batch. */
export const rowsPerRank = (globalBatch: number, ranks: number, accumulation: number): number =>
  Math.ceil(globalBatch / (ranks * accumulation));
