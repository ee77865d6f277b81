// Every sample once per epoch, for any number of ranks and any remainder; all ranks see the same global batches.
import assert from "node:assert/strict";
import { test } from "node:test";
import { columns, fillBatch, headColumns, rowsPerRank } from "./batch.js";
import { type EpochOptions, planEpoch, shareOf } from "./epoch.js";
import type { TokenSet } from "./tokens.js";

const tokensOf = (rows: number): TokenSet => {
  const offsets = new Uint32Array(rows + 1);
  for (let i = 0; i < rows; i++) offsets[i + 1] = offsets[i] + ((i * 7) % 40);
  return {
    dataset: "synthetic",
    classes: ["a", "b"],
    rows,
    labels: Int32Array.from({ length: rows }, (_, i) => i % 2),
    offsets,
    ids: Int32Array.from({ length: offsets[rows] }, (_, i) => 1 + (i % 90)),
    vocabulary: 100,
    key: "test",
    file: "",
  };
};
const lengthOf = (set: TokenSet) => (row: number) => set.offsets[row + 1] - set.offsets[row];
const options = (over: Partial<EpochOptions> = {}): EpochOptions => ({
  rows: 103,
  globalBatch: 24,
  seed: 5,
  lengths: [8, 16, 32],
  shuffle: true,
  ...over,
});

test("batches hold each sample exactly once at 1, 2, 3 and 8 ranks, with and without accumulation", () => {
  for (const rows of [103, 96, 25, 24])
    for (const ranks of [1, 2, 3, 8])
      for (const accumulation of [1, 2]) {
        const set = tokensOf(rows);
        const plan = planEpoch(options({ rows }), 3, lengthOf(set));
        const seen = new Int32Array(rows);
        const tokens = new Map<number, number[]>();
        const shape = { ranks, accumulation, rows: rowsPerRank(24, ranks, accumulation), seed: 5 };
        for (let index = 0; index < plan.padded.length; index++)
          for (let rank = 0; rank < ranks; rank++)
            for (let micro = 0; micro < accumulation; micro++) {
              const batch = fillBatch(set, plan, { ...shape, rank }, 3, index, micro);
              const width = headColumns + batch.length;
              for (let row = 0; row < batch.rows; row++) {
                const at = row * width;
                const sample = batch.data[at + columns.sample];
                assert.equal(sample >= 0, row < batch.samples);
                if (sample < 0) {
                  assert.equal(batch.data[at + columns.length], 0);
                  continue;
                }
                seen[sample]++;
                tokens.set(sample, Array.from(batch.data.subarray(at + headColumns, at + width)));
                assert.equal(batch.data[at + columns.label], set.labels[sample]);
                assert.equal(batch.data[at + columns.total], plan.starts[index + 1] - plan.starts[index]);
              }
            }
        assert.deepEqual(new Set(seen), new Set([1]), `${rows} rows, ${ranks} ranks, ${accumulation} micro-steps`);
        for (const [sample, got] of tokens) {
          const want = Array.from(set.ids.subarray(set.offsets[sample], set.offsets[sample + 1])).slice(0, 32);
          assert.deepEqual(got.slice(0, want.length), want);
          assert.ok(got.slice(want.length).every((id) => id === 0));
        }
      }
});

test("the order depends on epoch and seed only; without shuffling it is the file order", () => {
  const set = tokensOf(103);
  const order = (epoch: number, over: Partial<EpochOptions> = {}): string =>
    planEpoch(options(over), epoch, lengthOf(set)).order.join();
  assert.equal(order(0), order(0));
  assert.notEqual(order(0), order(1));
  assert.notEqual(order(0), order(0, { seed: 6 }));
  assert.equal(order(4, { shuffle: false, lengths: [32] }), Array.from({ length: 103 }, (_, i) => i).join());
});

test("a batch is padded to the smallest bucket that holds it, and most batches are short", () => {
  const rows = 64 * 24 * 2;
  const set = tokensOf(rows);
  const plan = planEpoch(options({ rows }), 0, lengthOf(set));
  for (let i = 0; i < plan.padded.length; i++) {
    const longest = Math.max(...Array.from(plan.order.subarray(plan.starts[i], plan.starts[i + 1]), lengthOf(set)));
    assert.equal(
      plan.padded[i],
      [8, 16, 32].find((length) => length >= Math.min(32, longest)),
    );
  }
  const padding = plan.padded.reduce((a, b) => a + b, 0) / plan.padded.length;
  assert.ok(padding < 24, `mean padded length ${padding}; without buckets it would be 32`);
  // The batches of a window are in random order, not sorted by length.
  const rising = plan.padded.every((length, i) => i === 0 || length >= plan.padded[i - 1]);
  assert.equal(rising, false);
});

test("random keys depend on sample and epoch, not on ranks", () => {
  const set = tokensOf(24);
  const keysAt = (ranks: number, epoch: number): Map<number, string> => {
    const plan = planEpoch(options({ rows: 24 }), epoch, lengthOf(set));
    const found = new Map<number, string>();
    for (let rank = 0; rank < ranks; rank++) {
      const batch = fillBatch(set, plan, { rank, ranks, accumulation: 1, rows: 24 / ranks, seed: 5 }, epoch, 0, 0);
      const width = headColumns + batch.length;
      for (let row = 0; row < batch.rows; row++)
        found.set(
          batch.data[row * width],
          `${batch.data[row * width + columns.key0]} ${batch.data[row * width + columns.key1]}`,
        );
    }
    return found;
  };
  const [one, three, later] = [keysAt(1, 0), keysAt(3, 0), keysAt(1, 1)];
  for (const [sample, value] of one) {
    assert.equal(three.get(sample), value);
    assert.notEqual(later.get(sample), value);
  }
  assert.equal(new Set(one.values()).size, 24);
});

test("shares differ by at most one and cover everything", () => {
  for (const count of [0, 1, 7, 8, 100])
    for (const parts of [1, 3, 8]) {
      const shares = Array.from({ length: parts }, (_, i) => shareOf(count, i, parts));
      assert.equal(shares[0][0], 0);
      assert.equal(shares[parts - 1][1], count);
      shares.slice(1).forEach(([start], i) => {
        assert.equal(start, shares[i][1]);
      });
      const sizes = shares.map(([a, b]) => b - a);
      assert.ok(Math.max(...sizes) - Math.min(...sizes) <= 1);
    }
});
