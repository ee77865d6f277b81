// Random numbers: their distributions, and that streams, keys and shapes do not depend on each other.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";

weft.useDevice(new weft.ReferenceDevice());

const numbers = (t: Tensor): number[] => Array.from(t.dataSync() as Float32Array);
const mean = (x: number[]): number => x.reduce((a, b) => a + b, 0) / x.length;
const moment = (x: number[], k: number): number => mean(x.map((v) => v ** k));
const near = (x: number, expected: number, by: number): void =>
  assert.ok(Math.abs(x - expected) < by, `${x} is not within ${by} of ${expected}`);

const n = 20_000;

test("uniform numbers fill [0, 1)", () => {
  for (const dtype of ["float32", "float64", "float16", "bfloat16"] as const) {
    const x = numbers(weft.rand([n], { seed: 1, dtype }));
    assert.ok(x.every((v) => v >= 0 && v < 1));
    near(mean(x), 0.5, 0.01);
    near(moment(x, 2), 1 / 3, 0.01);
    const bins = new Array(8).fill(0);
    for (const v of x) bins[Math.floor(v * 8)]++;
    for (const count of bins) near(count, n / 8, 200);
  }
  const scaled = numbers(weft.rand([n], { seed: 2, low: -3, high: 5 }));
  assert.ok(scaled.every((v) => v >= -3 && v < 5));
  near(mean(scaled), 1, 0.1);
});

test("normal numbers have the moments of a normal distribution", () => {
  const x = numbers(weft.randn([n], { seed: 3, dtype: "float64" }));
  near(mean(x), 0, 0.03);
  near(moment(x, 2), 1, 0.04);
  near(moment(x, 3), 0, 0.1);
  near(moment(x, 4), 3, 0.25);
  const shifted = numbers(weft.randn([n], { seed: 3, mean: 2, std: 0.5 }));
  near(mean(shifted), 2, 0.02);
  near(
    moment(
      shifted.map((v) => v - 2),
      2,
    ),
    0.25,
    0.02,
  );
});

test("integers, booleans and permutations", () => {
  const dice = numbers(weft.randint(1, 7, [n], { seed: 4 }));
  for (let face = 1; face <= 6; face++) near(dice.filter((v) => v === face).length, n / 6, 250);
  near(mean(numbers(weft.bernoulli(0.3, [n], { seed: 5 }))), 0.3, 0.02);
  const order = numbers(weft.permutation(100, { seed: 6 }));
  assert.deepEqual(
    [...order].sort((a, b) => a - b),
    Array.from({ length: 100 }, (_, i) => i),
  );
  assert.notDeepEqual(
    order,
    [...order].sort((a, b) => a - b),
  );
});

test("an element depends only on the seed and its position", () => {
  const long = numbers(weft.rand([10], { seed: 7 }));
  assert.deepEqual(numbers(weft.rand([4], { seed: 7 })), long.slice(0, 4));
  assert.deepEqual(numbers(weft.rand([5, 2], { seed: 7 })), long);
  assert.notDeepEqual(numbers(weft.rand([10], { seed: 8 })), long);
});

test("keys: batches of keys draw like single keys, split keys are independent", () => {
  const keys = weft.splitKey(weft.key(9), 3);
  assert.deepEqual(keys.shape, [3, 2]);
  const batch = weft.randn([5], { key: keys });
  for (let i = 0; i < 3; i++)
    assert.deepEqual(numbers(batch.index(i)), numbers(weft.randn([5], { key: keys.index(i) })));
  assert.equal(new Set((keys.arraySync() as number[][]).map(String)).size, 3);
  const mapped = weft.vmap((k: Tensor) => weft.randn([5], { key: k }))(keys);
  assert.deepEqual(numbers(mapped), numbers(batch));
  const a = numbers(weft.rand([n], { key: keys.index(0) }));
  const b = numbers(weft.rand([n], { key: keys.index(1) }));
  near(mean(a.map((v, i) => (v - 0.5) * (b[i] - 0.5))), 0, 0.003);
});

test("the global generator moves on with every call and starts again with manualSeed", () => {
  weft.manualSeed(10);
  const first = [weft.rand([3]), weft.randn([3]), weft.rand([3])].map(numbers);
  assert.notDeepEqual(first[0], first[2]);
  weft.manualSeed(10);
  assert.deepEqual([weft.rand([3]), weft.randn([3]), weft.rand([3])].map(numbers), first);
  assert.throws(() => weft.manualSeed(0.5), /whole number/);
});

test("dropoutMask has the right probability for rows of any length, and is the same for every split of the keys", () => {
  const mask = weft.dropoutMask([64, 129], 0.25, weft.key(3)).cast("float32");
  const share = Number(mask.mean().dataSync()[0]);
  assert.ok(Math.abs(share - 0.75) < 0.02, `${share} of 8256 are kept`);
  // Parts of one block are independent: neighbors agree as often as by chance.
  const kept = Array.from(mask.dataSync() as Float32Array);
  const even = kept.filter((_, i) => (i % 129) % 2 === 0).reduce((a, b) => a + b, 0) / (64 * 65);
  const odd = kept.filter((_, i) => (i % 129) % 2 === 1).reduce((a, b) => a + b, 0) / (64 * 64);
  assert.ok(Math.abs(even - 0.75) < 0.03 && Math.abs(odd - 0.75) < 0.03, `${even} and ${odd}`);
  let both = 0;
  for (let r = 0; r < 64; r++) for (let c = 0; c < 128; c += 2) both += kept[r * 129 + c] * kept[r * 129 + c + 1];
  assert.ok(Math.abs(both / 4096 - 0.75 ** 2) < 0.03, `${both / 4096}`);
  // A batch of keys gives each example what its own key gives.
  const keys = weft.splitKey(weft.key(4), 3);
  const batched = weft.dropoutMask([5], 0.5, keys).cast("float32");
  const single = weft.dropoutMask([5], 0.5, keys.index(1)).cast("float32");
  assert.deepEqual([...batched.index(1).dataSync()], [...single.dataSync()]);
});
