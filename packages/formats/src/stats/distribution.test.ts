// Counting and sorting must give the same distribution, equal to that of pandas.
import assert from "node:assert/strict";
import { test } from "node:test";
import { distribution, roundHalfEven } from "./distribution.js";

test("a distribution equals pandas' describe()", () => {
  assert.deepEqual(distribution(Float64Array.of(4, 1, 2, 10)), {
    count: 4,
    mean: 4.25,
    std: Math.sqrt((0.0625 + 10.5625 + 5.0625 + 33.0625) / 3),
    min: 1,
    q25: 1.75,
    median: 3,
    q75: 5.5,
    max: 10,
  });
  assert.equal(distribution(new Float64Array(0)), null);
  assert.equal(distribution(Float64Array.of(7))!.std, null);
});

test("integers are counted and other numbers sorted, with the same result", () => {
  const values = Float64Array.from({ length: 999 }, (_, i) => ((i * 7919) % 311) - 50);
  const counted = distribution(values)!;
  // Half-integers cannot be counted, so they are sorted.
  const sorted = distribution(values.map((v) => v + 0.5))!;
  for (const key of ["q25", "median", "q75", "min", "max"] as const) assert.equal(counted[key], sorted[key] - 0.5, key);
  const wide = distribution(Float64Array.of(0, 1e12, 5))!;
  assert.deepEqual([wide.median, wide.max], [5, 1e12]);
});

test("ties are rounded to the even neighbor, as in NumPy", () => {
  assert.deepEqual(
    [roundHalfEven(0.125, 2), roundHalfEven(0.375, 2), roundHalfEven(14.305, 2), roundHalfEven(2.5, 0)],
    [0.12, 0.38, 14.3, 2],
  );
});
