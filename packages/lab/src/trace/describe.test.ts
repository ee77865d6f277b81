// Counting and sorting must give the same description, and both what pandas gives.
import assert from "node:assert/strict";
import { test } from "node:test";
import { describe, round } from "./describe.js";

test("a description as pandas gives it", () => {
  assert.deepEqual(describe(Float64Array.of(4, 1, 2, 10)), {
    count: 4,
    mean: 4.25,
    std: Math.sqrt((0.0625 + 10.5625 + 5.0625 + 33.0625) / 3),
    min: 1,
    q25: 1.75,
    median: 3,
    q75: 5.5,
    max: 10,
  });
  assert.equal(describe(new Float64Array(0)), null);
  assert.equal(describe(Float64Array.of(7))!.std, null);
});

test("whole numbers are counted, others sorted, with one result", () => {
  const values = Float64Array.from({ length: 999 }, (_, i) => ((i * 7919) % 311) - 50);
  const counted = describe(values)!;
  // Halves cannot be counted: these are sorted.
  const sorted = describe(values.map((v) => v + 0.5))!;
  for (const key of ["q25", "median", "q75", "min", "max"] as const) assert.equal(counted[key], sorted[key] - 0.5, key);
  const wide = describe(Float64Array.of(0, 1e12, 5))!;
  assert.deepEqual([wide.median, wide.max], [5, 1e12]);
});

test("ties are rounded to the even neighbour, as numpy does", () => {
  assert.deepEqual([round(0.125, 2), round(0.375, 2), round(14.305, 2), round(2.5, 0)], [0.12, 0.38, 14.3, 2]);
});
