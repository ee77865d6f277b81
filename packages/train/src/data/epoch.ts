// The order of an epoch: the samples of each global batch and each rank's rows of it. It depends on seed and epoch
// only, so any number of ranks sees the same global batches; every sample appears once.
import { threefry2x32 } from "@weft/core/internal/ops";
import { DataError } from "./table.js";

/** What determines the order of an epoch. */
export interface EpochOptions {
  /** Number of samples. */
  rows: number;
  /** Samples of one optimizer step over all ranks and micro-steps. */
  globalBatch: number;
  /** Seed of the order. */
  seed: number;
  /** Ascending lengths that batches are padded to; longer texts are truncated to the last. */
  lengths: readonly number[];
  /** false: in file order (evaluation). */
  shuffle: boolean;
}

/** The batches of one epoch. */
export interface Epoch {
  /** Samples in order of use. */
  order: Uint32Array;
  /** Batch i is order[starts[i]] to order[starts[i + 1]]. */
  starts: Uint32Array;
  /** The padded length of each batch. */
  padded: Uint32Array;
}

/** Window in batches that is sorted by length; then the batches are shuffled. */
const window = 64;

/** Counter-based random keys, from sample (or batch) and epoch. */
export function shuffled(count: number, seed: number, epoch: number, purpose: number): Uint32Array {
  const keys = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const [high, low] = threefry2x32(seed >>> 0, (Math.floor(seed / 2 ** 32) ^ purpose) >>> 0, i, epoch);
    keys[i] = high * 2 ** 21 + (low >>> 11);
  }
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  return order.sort((a, b) => keys[a] - keys[b] || a - b);
}

const forSamples = 0x73616d70;
const forBatches = 0x62617463;

/** Plans the batches of an epoch. */
export function planEpoch(options: EpochOptions, epoch: number, lengthOf: (row: number) => number): Epoch {
  const { rows, globalBatch, seed, lengths, shuffle } = options;
  if (rows === 0)
    throw new DataError(
      "the data set is empty: it has no row of this split; check data.path, data.train_limit and data.validation",
    );
  const batches = Math.ceil(rows / globalBatch);
  const order = shuffle ? shuffled(rows, seed, epoch, forSamples) : Uint32Array.from({ length: rows }, (_, i) => i);
  const longest = lengths[lengths.length - 1];
  const clipped = (row: number): number => Math.min(longest, lengthOf(row));
  // With one length sorting has no benefit.
  if (lengths.length > 1)
    for (let first = 0; first < rows; first += window * globalBatch)
      order
        .subarray(first, Math.min(rows, first + window * globalBatch))
        .sort((a, b) => clipped(a) - clipped(b) || a - b);
  let place = Uint32Array.from({ length: batches }, (_, i) => i);
  // The incomplete batch stays last.
  if (shuffle && lengths.length > 1) {
    const full = Math.floor(rows / globalBatch);
    place = Uint32Array.from([...shuffled(full, seed, epoch, forBatches), ...place.subarray(full)]);
  }
  const result: Epoch = {
    order: new Uint32Array(rows),
    starts: new Uint32Array(batches + 1),
    padded: new Uint32Array(batches),
  };
  place.forEach((from, to) => {
    const samples = order.subarray(from * globalBatch, Math.min(rows, (from + 1) * globalBatch));
    result.order.set(samples, result.starts[to]);
    result.starts[to + 1] = result.starts[to] + samples.length;
    let most = 1;
    for (const row of samples) most = Math.max(most, clipped(row));
    result.padded[to] = lengths.find((length) => length >= most) as number;
  });
  return result;
}

/** The rows of a batch of `count` samples for part `part` of `parts`; sizes differ by at most one. */
export function shareOf(count: number, part: number, parts: number): [start: number, end: number] {
  return [Math.floor((count * part) / parts), Math.floor((count * (part + 1)) / parts)];
}

/** Boundaries of the parts of `count` rows that are as large as the ranks are fast; no part is empty if there are enough rows. */
export function boundsBySpeed(count: number, speeds: readonly number[]): number[] {
  const total = speeds.reduce((sum, speed) => sum + speed, 0);
  const bounds = [0];
  let before = 0;
  speeds.forEach((speed, part) => {
    before += speed;
    const after = speeds.length - 1 - part;
    const wanted = after === 0 ? count : Math.round((count * before) / total);
    const least = bounds[part] + (count >= speeds.length ? 1 : 0);
    const most = count >= speeds.length ? count - after : count;
    bounds.push(Math.max(least, Math.min(most, wanted)));
  });
  return bounds;
}
