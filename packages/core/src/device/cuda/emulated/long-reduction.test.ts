// Reductions of few long rows in two stages: lengths with and without divisors, ties and NaN. Oracles are plain loops.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../../index.js";
import { agree, data, device as emulated, prepareEmulator, skip } from "./testkit.js";

const lengths = [4096, 4099, 16381, 40009];
const numbers = (n: number, seed: number): Float32Array =>
  Float32Array.from({ length: n }, (_, i) => Math.fround(Math.sin(i * 12.9898 + seed) * 3));

function check(): void {
  for (const n of lengths)
    for (const rows of [1, 3]) {
      const x = numbers(rows * n, n);
      const row = (r: number): Float32Array => x.subarray(r * n, (r + 1) * n);
      const t = weft.tensor(x, { shape: [rows, n] });
      const sums = Array.from(t.sum(1).dataSync() as Float32Array);
      const tops = Array.from(t.max(1).dataSync() as Float32Array);
      const lows = Array.from(t.argmin(1).dataSync() as Int32Array);
      for (let r = 0; r < rows; r++) {
        const exact = row(r).reduce((a, b) => a + b, 0);
        assert.ok(Math.abs(sums[r] - exact) < 2e-3 * Math.sqrt(n), `sum of ${n}: ${sums[r]}, expected ${exact}`);
        assert.equal(
          tops[r],
          row(r).reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY),
        );
        assert.equal(lows[r], row(r).indexOf(row(r).reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY)));
      }
    }
  const n = 16381;
  const at = (places: number[], value: number): number => {
    const x = new Float32Array(n).fill(1);
    for (const place of places) x[place] = value;
    return Number(weft.tensor(x).argmax().dataSync()[0]);
  };
  assert.equal(at([9000, 16380, 12], 5), 12, "the first of equal elements");
  assert.equal(at([16380], 5), 16380, "in the tail");
  assert.equal(at([15000, 3000], Number.NaN), 3000, "the first NaN");
  assert.equal(at([], 0), 0);
  assert.ok(
    Number.isNaN(
      Number(
        weft
          .tensor(new Float32Array(n).fill(1).fill(Number.NaN, 777, 778))
          .max()
          .dataSync()[0],
      ),
    ),
  );
  const flags = weft.tensor(numbers(n, 2)).greater(2.9999);
  assert.equal(
    Number(flags.cast("int32").sum().dataSync()[0]),
    numbers(n, 2).filter((v) => v > Math.fround(2.9999)).length,
  );
}

test("long reductions on the CPU", { skip: weft.CpuDevice.available() ? false : "no C compiler" }, () => {
  weft.setDevice("cpu");
  check();
});

test("long reductions on the emulated GPU", { skip }, () => {
  prepareEmulator();
  weft.setDevice(emulated());
  check();
});

test("columns of lengths without a divisor, and arg reductions along other axes", { skip }, () => {
  prepareEmulator();
  for (const [shape, axis] of [
    [[1009, 21], 0],
    [[3, 521, 40], 1],
    [[300, 33], 0],
    [[2, 70, 3, 20], 1],
  ] as const) {
    const x = (): weft.Tensor => weft.floor(data([...shape], 3, 50));
    agree(() => [x().max(axis), x().argmax(axis), x().argmin(axis), x().cast("int32").argmax(axis)]);
    // The sum of whole numbers is exact in every order.
    agree(() => x().sum(axis), 0);
  }
  const odd = (): weft.Tensor => {
    const y = data([40, 32], 1);
    return weft.where(y.greater(0.49), Number.NaN, y);
  };
  agree(() => [odd().argmax(0), odd().argmin(0)]);
});
