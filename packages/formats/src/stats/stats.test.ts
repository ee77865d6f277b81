import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bootstrapInterval,
  halfWidth95,
  median,
  quantile,
  seededRandom,
  summarize,
  summarizeWeighted,
  weightedMean,
  weightedMedian,
} from "./index.js";

test("a summary has population and sample deviations; an empty list has none", () => {
  const d = summarize([2, 4, 4, 4, 5, 5, 7, 9]);
  assert.equal(d?.mean, 5);
  assert.equal(d?.std, 2);
  assert.ok(Math.abs(d!.sampleStd - Math.sqrt(32 / 7)) < 1e-12);
  assert.equal(d?.median, 4.5);
  assert.equal(summarize([]), null);
});

test("weighted statistics are those of the list with repeated values", () => {
  const random = seededRandom(3);
  for (let round = 0; round < 50; round++) {
    const values = Array.from({ length: 1 + Math.floor(random() * 12) }, () => ({
      value: Math.floor(random() * 20),
      weight: 1 + Math.floor(random() * 5),
    }));
    const repeated = values.flatMap(({ value, weight }) => Array.from({ length: weight }, () => value));
    const expected = summarize(repeated)!;
    const found = summarizeWeighted(values)!;
    assert.ok(Math.abs(weightedMean(values) - expected.mean) < 1e-12);
    assert.equal(weightedMedian(values), expected.median);
    assert.ok(Math.abs(found.std - expected.std) < 1e-12);
    assert.deepEqual([found.n, found.min, found.max], [values.length, expected.min, expected.max]);
  }
  assert.equal(summarizeWeighted([]), null);
});

test("quantiles interpolate", () => {
  assert.equal(quantile([4, 1, 3, 2], 0.5), 2.5);
  assert.equal(quantile([10], 0.9), 10);
  assert.equal(median([3, 1, 2]), 2);
});

test("the 95% half-width uses Student's t and needs two values", () => {
  assert.equal(halfWidth95(summarize([5])!), null);
  const d = summarize([1, 2, 3])!;
  assert.ok(Math.abs(halfWidth95(d)! - (4.303 * 1) / Math.sqrt(3)) < 1e-9);
});

test("the bootstrap is reproducible and its interval contains the statistic", () => {
  const random = seededRandom(7);
  const a = Array.from({ length: 40 }, () => 10 + random());
  const b = Array.from({ length: 40 }, () => 5 + random());
  const ratio = (g: number[][]) => median(g[0]!) / median(g[1]!);
  const first = bootstrapInterval([a, b], ratio);
  assert.deepEqual(first, bootstrapInterval([a, b], ratio));
  assert.ok(first![0] < ratio([a, b]) && ratio([a, b]) < first![1]);
  assert.ok(first![1] - first![0] < 0.2);
  assert.equal(bootstrapInterval([[], b], ratio), null);
});
