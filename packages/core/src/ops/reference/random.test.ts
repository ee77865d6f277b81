import assert from "node:assert/strict";
import { test } from "node:test";
import type { DType, OpAttrs, Shape } from "../../graph/index.js";
import { realErf } from "./index.js";
import { threefry2x32 } from "./random.js";
import { aval, numbers, runOne, tensor } from "./testkit.js";

type Kind = OpAttrs["random"]["kind"];

function draw(kind: Kind, shape: Shape, dtype: DType = "float32", key = [1, 2], batch: Shape = []): number[] {
  const keys = tensor([...batch, 2], key, "int32");
  return numbers(runOne("random", { kind, shape, dtype }, [keys], aval([...batch, ...shape], dtype)));
}

const mean = (xs: number[]): number => xs.reduce((sum, x) => sum + x, 0) / xs.length;

/** The largest distance between the empirical and the true distribution function (Kolmogorov and Smirnov). */
function distance(xs: number[], cdf: (x: number) => number): number {
  const sorted = [...xs].sort((a, b) => a - b);
  return sorted.reduce((worst, x, i) => {
    const at = cdf(x);
    return Math.max(worst, Math.abs(at - i / xs.length), Math.abs(at - (i + 1) / xs.length));
  }, 0);
}

test("threefry2x32-20 gives the published test vectors", () => {
  assert.deepEqual(threefry2x32(0, 0, 0, 0), [0x6b200159, 0x99ba4efe]);
  assert.deepEqual(threefry2x32(-1, -1, -1, -1), [0x1cb996fc, 0xbb002be7]);
  assert.deepEqual(threefry2x32(0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3), [0xc4923a9c, 0x483df7a0]);
});

test("an element depends on its key and its own index alone", () => {
  const long = draw("bits", [100], "int32");
  assert.deepEqual(draw("bits", [10], "int32"), long.slice(0, 10));
  assert.deepEqual(draw("bits", [4, 25], "int32"), long);
  assert.equal(long[7], threefry2x32(1, 2, 7, 0)[0] | 0);
  const two = draw("bits", [5], "int32", [1, 2, 3, 4], [2]);
  assert.deepEqual(two, [...draw("bits", [5], "int32", [1, 2]), ...draw("bits", [5], "int32", [3, 4])]);
  assert.notDeepEqual(two.slice(0, 5), two.slice(5));
});

test("the counter of a float64 number is its index, low word first", () => {
  const [r0, r1] = threefry2x32(1, 2, 3, 0);
  assert.equal(draw("uniform", [4], "float64")[3], ((r0 >>> 5) * 2 ** 26 + (r1 >>> 6)) * 2 ** -53);
  const radius = Math.sqrt(-2 * Math.log((r0 + 1) / 2 ** 32));
  // The generator has its own logarithm and cosine; Math's may round differently.
  assert.ok(Math.abs(draw("normal", [4], "float64")[3] - radius * Math.cos(2 * Math.PI * (r1 / 2 ** 32))) < 1e-15);
});

test("two neighbors of smaller floats share a block of 13 rounds", () => {
  const words = [0, 1, 2].flatMap((block) => threefry2x32(1, 2, block, 0, 13));
  const unit = (bits: number): number[] => words.map((word) => (word >>> (32 - bits)) * 2 ** -bits);
  assert.deepEqual(draw("uniform", [6]), unit(24));
  assert.deepEqual(draw("uniform", [6], "bfloat16"), unit(8));
  assert.deepEqual(draw("uniform", [6], "float16"), unit(11));
  const normals = draw("normal", [6]);
  for (let block = 0; block < 3; block++) {
    const [r0, r1] = words.slice(2 * block);
    const radius = Math.sqrt(-2 * Math.log(((r0 >>> 8) + 1) / 2 ** 24));
    const angle = 2 * Math.PI * ((r1 >>> 8) / 2 ** 24);
    assert.ok(Math.abs(normals[2 * block] - radius * Math.cos(angle)) < 1e-6);
    assert.ok(Math.abs(normals[2 * block + 1] - radius * Math.sin(angle)) < 1e-6);
  }
});

// The 0.1% point of the distance is 1.95 / sqrt(n).
const count = 20_000;
const limit = 1.95 / Math.sqrt(count);

test("uniform numbers are uniform in [0, 1)", () => {
  for (const dtype of ["float32", "float64"] as const) {
    const xs = draw("uniform", [count], dtype);
    assert.ok(xs.every((x) => x >= 0 && x < 1));
    assert.ok(distance(xs, (x) => x) < limit);
    const pairs = xs.slice(1).map((x, i) => (x - 0.5) * (xs[i] - 0.5));
    assert.ok(Math.abs(mean(pairs)) < 4 / 12 / Math.sqrt(count), "neighbors are correlated");
  }
  for (const dtype of ["float16", "bfloat16"] as const) {
    const xs = draw("uniform", [count], dtype);
    assert.ok(xs.every((x) => x >= 0 && x < 1));
    assert.ok(Math.abs(mean(xs) - 0.5) < 0.01);
  }
});

test("normal numbers are normal", () => {
  const cdf = (x: number): number => (1 + realErf(x / Math.SQRT2)) / 2;
  for (const dtype of ["float32", "float64"] as const) {
    const xs = draw("normal", [count], dtype);
    assert.ok(xs.every(Number.isFinite));
    assert.ok(distance(xs, cdf) < limit);
    assert.ok(Math.abs(mean(xs.map((x) => x * x)) - 1) < 4 * Math.sqrt(2 / count));
    assert.ok(Math.abs(mean(xs.map((x) => x ** 4)) - 3) < 4 * Math.sqrt(96 / count));
    for (const lag of [1, 2]) {
      const products = xs.slice(lag).map((x, i) => x * xs[i]);
      const squares = xs.slice(lag).map((x, i) => (x * x - 1) * (xs[i] ** 2 - 1));
      assert.ok(Math.abs(mean(products)) < 4 / Math.sqrt(count), `numbers ${lag} apart are correlated`);
      assert.ok(Math.abs(mean(squares)) < 4 * (2 / Math.sqrt(count)), `squares ${lag} apart are correlated`);
    }
  }
  assert.ok(draw("normal", [count], "float16").every(Number.isFinite));
});

test("bits fill all 32, empty draws are empty, other dtypes are refused", () => {
  const xs = draw("bits", [4000], "int32");
  for (let bit = 0; bit < 32; bit++) {
    const ones = xs.filter((x) => (x >>> bit) & 1).length;
    assert.ok(Math.abs(ones - 2000) < 4 * Math.sqrt(1000), `bit ${bit}`);
  }
  assert.deepEqual(draw("uniform", [0]), []);
  assert.equal(draw("normal", []).length, 1);
  assert.throws(() => draw("bits", [1], "float32"), /random bits is not defined on float32/);
  assert.throws(() => draw("uniform", [1], "complex64"), /random uniform is not defined on complex64/);
});

test("dropout's draws: four elements per block of 13 rounds, rows of whole blocks, windows agree", () => {
  const keys = tensor([2], [1, 2], "int32");
  const kept = (shape: Shape, threshold: number, within?: OpAttrs["random"]["within"]): number[] =>
    numbers(
      runOne("random", { kind: "dropoutMask", shape, dtype: "bool", threshold, within }, [keys], aval(shape, "bool")),
    );
  const halves = [0, 1, 2, 3].flatMap((block) =>
    threefry2x32(1, 2, block, 0, 13).flatMap((word) => [word & 65535, word >>> 16]),
  );
  assert.deepEqual(
    kept([16], 20000),
    halves.map((h) => Number(h >= 20000)),
  );
  const rows = kept([2, 6], 20000);
  const expected = [...halves.slice(0, 6), ...halves.slice(8, 14)].map((h) => Number(h >= 20000));
  assert.deepEqual(rows, expected);
  const window = kept([2, 3], 20000, { shape: [2, 6], start: [0, 2] });
  assert.deepEqual(window, [...rows.slice(2, 5), ...rows.slice(8, 11)]);
  const many = kept([100, 400], 16384);
  assert.ok(Math.abs(mean(many) - 0.75) < 0.01);
  assert.ok(kept([1000], 0).every((x) => x === 1));
});

test("threefry2x32-13 is 20 rounds cut short: the words of the authors' generator", () => {
  // The state after 12 rounds and three injections, mixed once more by a rotation of 17.
  const rounds = (n: number): [number, number] => threefry2x32(5, 6, 7, 8, n);
  const [a, b] = rounds(12);
  const x0 = (a + b) >>> 0;
  assert.deepEqual(rounds(13), [x0, (((b << 17) | (b >>> 15)) ^ x0) >>> 0]);
});
