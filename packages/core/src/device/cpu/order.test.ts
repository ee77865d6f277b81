// Sorting and running sums on the CPU device against JavaScript's own sort and plain loops, for every dtype that has an order, around
// the lengths at which the method changes.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";

const skip = weft.CpuDevice.available() ? false : "no C compiler";

const isNaNumber = (x: unknown): boolean => typeof x === "number" && Number.isNaN(x);

function orderOf(values: readonly (number | bigint | boolean)[], descending: boolean): number[] {
  const direction = descending ? -1 : 1;
  return [...values.keys()].sort((i, j) => {
    const [a, b] = [values[i], values[j]];
    const byNaN = Number(isNaNumber(a)) - Number(isNaNumber(b));
    const byValue = isNaNumber(a) || isNaNumber(b) ? byNaN : a < b ? -1 : a > b ? 1 : 0;
    return direction * byValue || i - j;
  });
}

let seed = 11;
const random = (): number => {
  seed = (seed * 1664525 + 1013904223) >>> 0;
  return seed / 2 ** 32;
};
const specials = [NaN, 0, -0, Infinity, -Infinity];
const draws: Record<string, () => number | bigint | boolean> = {
  bool: () => random() < 0.5,
  float16: () => (random() < 0.2 ? specials[Math.floor(random() * 5)] : random() - 0.5),
  bfloat16: () => (random() < 0.2 ? specials[Math.floor(random() * 5)] : random() - 0.5),
  float32: () => (random() < 0.2 ? specials[Math.floor(random() * 5)] : (random() - 0.5) * 2 ** (100 * random() - 50)),
  float64: () => (random() < 0.2 ? specials[Math.floor(random() * 5)] : (random() - 0.5) * 2 ** (900 * random() - 450)),
  uint8: () => Math.floor(random() * 256),
  int8: () => Math.floor(random() * 256) - 128,
  uint16: () => Math.floor(random() * 65536),
  int16: () => Math.floor(random() * 65536) - 32768,
  uint32: () => Math.floor(random() * 2 ** 32),
  int32: () => Math.floor(random() * 2 ** 32) - 2 ** 31,
  uint64: () => BigInt(Math.floor(random() * 2 ** 53)) * 2047n,
  int64: () => BigInt(Math.floor((random() - 0.5) * 2 ** 53)) * 1023n,
};

for (const [dtype, draw] of Object.entries(draws))
  test(`argsort of ${dtype} is stable in both directions`, { skip }, () => {
    weft.setDevice("cpu");
    for (const n of [1, 2, 23, 24, 25, 257, 3000, dtype === "float32" || dtype === "int64" ? 70_001 : 900]) {
      const t = weft.tensor(Array.from({ length: n }, draw) as number[], { dtype: dtype as "float32" });
      const values = [...t.dataSync()];
      for (const descending of [false, true])
        assert.deepEqual([...weft.argsort(t, -1, { descending }).dataSync()], orderOf(values, descending), `${n}`);
    }
  });

test("many short rows are sorted side by side", { skip }, () => {
  weft.setDevice("cpu");
  for (const [dtype, draw] of Object.entries(draws))
    for (const [rows, n] of [
      [4, 1],
      [9, 2],
      [17, 31],
      [5, 256],
    ]) {
      // Few distinct numbers: equal ones keep their order.
      const few = Array.from({ length: 5 }, draw);
      const drawn = Array.from({ length: rows * n }, () => (random() < 0.5 ? few[Math.floor(random() * 5)] : draw()));
      const t = weft.tensor(drawn as number[], { shape: [rows, n], dtype: dtype as "float32" });
      const values = [...t.dataSync()];
      const expected = (descending: boolean): number[] =>
        Array.from({ length: rows }, (_, r) => orderOf(values.slice(r * n, r * n + n), descending)).flat();
      for (const descending of [false, true])
        assert.deepEqual([...weft.argsort(t, -1, { descending }).dataSync()], expected(descending), `${dtype} ${n}`);
      const middle = Math.floor(n / 2);
      assert.deepEqual(
        [...weft.argsort(t).index(":", middle).dataSync()],
        expected(false).filter((_, i) => i % n === middle),
        `the middle of ${dtype} ${n}`,
      );
    }
});

test("running sums along every axis, in both directions", { skip }, () => {
  weft.setDevice("cpu");
  for (const shape of [
    [5, 7, 3],
    [4, 200],
    [3, 130, 5],
    [2, 3, 70],
    [1, 1000],
  ])
    for (const axis of shape.keys()) {
      const size = shape.reduce((a, b) => a * b, 1);
      const x = Float64Array.from({ length: size }, () => random() - 0.5);
      const inner = shape.slice(axis + 1).reduce((a, b) => a * b, 1);
      const want = Float64Array.from(x);
      for (let i = 0; i < size; i++) if (Math.floor(i / inner) % shape[axis] > 0) want[i] += want[i - inner];
      assert.deepEqual(weft.cumsum(weft.tensor(x, { shape }), axis).dataSync(), want);
    }
});

test("the first and the middle elements of long rows", { skip }, () => {
  weft.setDevice("cpu");
  const n = 5000;
  const rows: Record<string, number[]> = {
    rising: Array.from({ length: n }, (_, i) => i - 2500),
    falling: Array.from({ length: n }, (_, i) => 2500 - i),
    few: Array.from({ length: n }, () => Math.floor(random() * 3)),
    random: Array.from({ length: n }, () => Math.fround(draws.float32() as number)),
  };
  for (const [name, values] of Object.entries(rows))
    for (const dtype of ["float32", "float64"] as const) {
      const x = weft.tensor(values, { dtype });
      const order = orderOf(values, true);
      for (const k of [1, 5, 40, 700])
        assert.deepEqual([...weft.topk(x, k).indices.dataSync()], order.slice(0, k), `${name} ${dtype} ${k}`);
      const sorted = [...values].sort((a, b) => a - b);
      if (name !== "random") assert.equal(weft.median(x).itemSync(), (sorted[n / 2 - 1] + sorted[n / 2]) / 2, name);
    }
});

test("many updates of few places", { skip }, () => {
  weft.setDevice("cpu");
  const [count, places, width] = [30_000, 7, 3];
  const ids = Int32Array.from({ length: count }, () => Math.floor(random() * places));
  const updates = Float64Array.from({ length: count * width }, () => Math.floor(random() * 100));
  const want = new Float64Array(places * width).fill(5);
  for (let i = 0; i < count * width; i++) want[ids[Math.floor(i / width)] * width + (i % width)] += updates[i];
  for (const dtype of ["float64", "int32", "int64", "complex128"] as const) {
    const base = weft.full([places, width], 5, { dtype });
    const sums = weft.indexAdd(base, weft.tensor(ids), weft.tensor(updates, { shape: [count, width] }).cast(dtype));
    assert.deepEqual(sums.cast("float64").dataSync(), want, dtype);
  }
});
