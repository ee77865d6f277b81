// Forms of kernels that do less than their ops say: diagonals, extremes of columns, running results in vectors. Plain loops are the oracle.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";
import { build } from "../../ops/index.js";
import { CpuDevice } from "./index.js";

const skip = CpuDevice.available() ? false : "no C compiler";
type Tensor = weft.Tensor;

let seed = 5;
const random = (): number => {
  seed = (seed * 1664525 + 1013904223) >>> 0;
  return seed / 2 ** 32;
};
const specials = [Number.NaN, 0, -0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 5e-324, 1e-40];
const numbers = (count: number, special: number): number[] =>
  Array.from({ length: count }, () =>
    random() < special ? specials[Math.floor(random() * specials.length)] : Math.round(random() * 64 - 32),
  );
const read = (t: Tensor): number[] => Array.from(t.dataSync() as Float64Array, Number);

test("diagonals are read where they are: other elements, whatever they hold, do not count", { skip }, () => {
  let threads = 1;
  for (const dtype of ["float32", "float64", "float16", "int32"] as const)
    for (const [batch, rows, columns, offset] of [
      [1, 1, 1, 0],
      [3, 5, 5, 0],
      [300, 7, 11, 2],
      [2, 70, 33, -9],
      [1, 130, 130, 0],
    ]) {
      weft.setDevice(new CpuDevice({ threads }));
      threads = 3 - threads;
      const values = numbers(batch * rows * columns, dtype === "int32" ? 0 : 0.3);
      const x = weft.tensor(values, { dtype, shape: [batch, rows, columns] });
      const given = read(x);
      const expected: number[] = [];
      const sums: number[] = [];
      for (let b = 0; b < batch; b++) {
        let sum = 0;
        for (let i = 0; i < rows; i++) {
          const j = i + offset;
          if (j < 0 || j >= columns) continue;
          expected.push(given[(b * rows + i) * columns + j]);
          sum += given[(b * rows + i) * columns + j];
        }
        sums.push(sum);
      }
      const both = weft.jit((y: Tensor) => [
        weft.diagonal(y, { offset }),
        weft.trace(y, { offset }),
        // Two diagonals of what is computed on the way, read by one kernel.
        weft.diagonal(y.mul(2), { offset }).add(weft.diagonal(y.transpose().mul(2), { offset: -offset })),
      ]);
      const [line, trace, twice] = both(x).map(read);
      const what = `${dtype} ${batch} x ${rows} x ${columns}, ${offset}, ${threads} threads`;
      assert.deepEqual(
        line.map((v) => v + 0),
        expected.map((v) => v + 0),
        what,
      );
      assert.deepEqual(
        twice.map((v) => v + 0),
        expected.map((v) => 4 * v + 0),
        what,
      );
      if (dtype !== "float16")
        assert.deepEqual(
          // The order of a sum decides whether tiny numbers count.
          trace.map((v) => Math.round(v) + 0),
          sums.map((v) => Math.round(v) + 0),
          what,
        );
    }
});

test("the kernel of a diagonal has no loop over the other elements", { skip }, () => {
  const x = build.input([40, 64, 64], "float32");
  const same = build.eq(build.iota(x.shape, 1, "int32"), build.iota(x.shape, 2, "int32"));
  const source = (of: typeof x): string =>
    new CpuDevice().source({ params: [x], outputs: [build.sum(build.where(same, of, build.zerosLike(x)), [2])] });
  assert.match(source(x), /p0\[65\*v1 \+ 4096\*v0\]/);
  assert.doesNotMatch(source(x), / r0 /);
});

test("extremes of columns, where NaN is anywhere or nowhere", { skip }, () => {
  let threads = 1;
  for (const dtype of ["float32", "float64", "float16", "bfloat16"] as const)
    for (const [rows, columns] of [
      [1, 40],
      [5, 33],
      [255, 64],
      [1031, 17],
      [64, 700],
    ])
      for (const special of [0, 0.002]) {
        weft.setDevice(new CpuDevice({ threads }));
        threads = 3 - threads;
        const x = weft.tensor(numbers(rows * columns, special), { dtype, shape: [rows, columns] });
        const given = read(x);
        const column = (c: number): number[] => Array.from({ length: rows }, (_, r) => given[r * columns + c]);
        const both = weft.jit((y: Tensor) => [y.max(0), y.min(0), y.add(1).max(0)]);
        const [most, least, more] = both(x).map(read);
        for (let c = 0; c < columns; c++) {
          const what = `column ${c} of ${rows} x ${columns} ${dtype}`;
          assert.equal(most[c] + 0, Math.max(...column(c)) + 0, what);
          assert.equal(least[c] + 0, Math.min(...column(c)) + 0, what);
          assert.equal(more[c] + 0, Math.max(...column(c)) + 1, what);
        }
      }
});

test("running extremes and sums of lines around the length of a vector", { skip }, () => {
  let threads = 1;
  for (const dtype of ["float32", "float64", "int32", "int64"] as const)
    for (const n of [2, 8, 9, 15, 16, 17, 33, 100, 1000]) {
      weft.setDevice(new CpuDevice({ threads }));
      threads = 3 - threads;
      const isFloat = dtype.startsWith("float");
      const rows = 7;
      const values = numbers(rows * n, isFloat ? 0.01 : 0);
      const x = weft.tensor(values, { dtype, shape: [rows, n] });
      const given = read(x);
      const run = (join: (a: number, b: number) => number, from: readonly number[]): number[] =>
        from.reduce<number[]>((done, v, i) => {
          done.push(i % n === 0 ? v : join(done[i - 1], v));
          return done;
        }, []);
      const all = weft.jit((y: Tensor) => [
        weft.cummax(y),
        weft.cummin(y),
        ...(isFloat ? [] : [weft.cumsum(y), weft.cumprod(y.mod(3).sub(1))]),
      ]);
      const [most, least, sums, products] = all(x).map((t) => read(t).map((v) => v + 0));
      const what = `${n} ${dtype}`;
      const plain = (list: readonly number[]): number[] => list.map((v) => v + 0);
      assert.deepEqual(most, plain(run(Math.max, given)), what);
      assert.deepEqual(least, plain(run(Math.min, given)), what);
      if (isFloat) continue;
      assert.deepEqual(sums, plain(run((a, b) => a + b, given)), what);
      const rests = given.map((v) => (((v % 3) + 3) % 3) - 1);
      assert.deepEqual(products, plain(run((a, b) => a * b, rests)), what);
    }
});

/** The number of a half by its definition. */
function halfOf(bits: number): number {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}
const finite = Array.from({ length: 0x7c00 }, (_, bits) => halfOf(bits));
/** The nearest half, of two the one with an even last bit; found by comparing. */
function rounded(x: number): number {
  if (Number.isNaN(x)) return x;
  const a = Math.abs(x);
  if (a >= 65520) return Math.sign(x) * Number.POSITIVE_INFINITY;
  let [low, high] = [0, 0x7bff];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (finite[middle] <= a) low = middle;
    else high = middle - 1;
  }
  const above = low === 0x7bff ? 65536 : finite[low + 1];
  const [down, up] = [a - finite[low], above - a];
  const nearest = down < up || (down === up && low % 2 === 0) ? finite[low] : above;
  return Object.is(Math.sign(x), -0) || x < 0 ? -nearest : nearest;
}

test("every float16 number is read and written in rows and lines of any length", { skip }, () => {
  const every = Array.from({ length: 65536 }, (_, bits) => halfOf(bits));
  for (const threads of [1, 2]) {
    weft.setDevice(new CpuDevice({ threads }));
    const line = weft.tensor(Float32Array.from(every), { dtype: "float16" });
    const wide = weft.jit((x: Tensor) => [x.cast("float32"), x.mul(1), x.cast("float32").mul(0.3).cast("float16")]);
    const [read32, same, third] = wide(line).map((t) => read(t.cast("float64")));
    assert.deepEqual(read32, every);
    assert.deepEqual(same, every);
    assert.deepEqual(
      third,
      every.map((v) => rounded(Math.fround(v * Math.fround(0.3)))),
    );
    for (const n of [32, 33, 47, 100, 511, 513, 1000, 9000]) {
      const rows = Math.max(2, Math.floor(6000 / n));
      const values = every.slice(1000, 1000 + rows * n);
      const x = weft.tensor(Float32Array.from(values), { dtype: "float16", shape: [rows, n] });
      const all = weft.jit((y: Tensor) => [
        y.max(-1),
        y.cast("float32").abs().min(-1),
        y.sub(y.min(-1, { keepDims: true })),
        weft.flip(y, 1).add(y),
        y.index(":", "1:").mul(y.index(":", ":-1")),
      ]);
      const [most, least, apart, both, next] = all(x).map((t) => read(t.cast("float64")));
      for (let r = 0; r < rows; r++) {
        const row = values.slice(r * n, r * n + n);
        const what = `row ${r} of ${n}, ${threads} threads`;
        assert.equal(most[r] + 0, row.reduce((a, b) => Math.max(a, b)) + 0, what);
        assert.equal(least[r], Math.min(...row.map(Math.abs)), what);
        const low = row.reduce((a, b) => Math.min(a, b));
        const plain = (list: readonly number[]): number[] => list.map((v) => rounded(Math.fround(v)) + 0);
        const of = (list: readonly number[], m: number): number[] => list.slice(r * m, r * m + m).map((v) => v + 0);
        assert.deepEqual(of(apart, n), plain(row.map((v) => v - low)), what);
        assert.deepEqual(of(both, n), plain(row.map((v, i) => v + row[n - 1 - i])), what);
        assert.deepEqual(of(next, n - 1), plain(row.slice(1).map((v, i) => v * row[i])), what);
      }
    }
  }
});

test("rows of float16 are converted before and after their loops", { skip }, () => {
  const x = build.input([40, 64], "float16");
  const source = new CpuDevice().source({ params: [x], outputs: [build.mul(x, x)] });
  assert.match(source, /w_widen_h\(p0/);
  assert.match(source, /w_narrow_h\(n0_, p1/);
});
