// Values behind pads, concatenations and rolls are correct however the C compiler optimizes the loops, and are never loaded
// conditionally.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuDevice } from "../device/index.js";
import type { DType } from "../graph/index.js";
import * as weft from "../index.js";
import { build } from "../ops/index.js";
import { emitKernel } from "./emit-c.js";
import { scheduleFunction } from "./schedule.js";

const skip = CpuDevice.available() ? false : "no C compiler on this machine";
if (skip === false) weft.setDevice("cpu");

type Pair = [number, number];
const numbers = (n: number, seed: number): Pair[] =>
  Array.from({ length: n }, (_, i) => [((i * 7 + seed) % 23) - 11, ((i * 5 + 3 * seed) % 19) - 9]);
const times = ([a, b]: Pair, [c, d]: Pair): Pair => [a * c - b * d, a * d + b * c];
const zeros = (n: number): Pair[] => Array.from({ length: n }, () => [0, 0]);

function tensorOf(values: Pair[], dtype: DType): weft.Tensor {
  if (dtype.startsWith("complex"))
    return weft.tensor(
      values.map(([re, im]) => ({ re, im })),
      { dtype },
    );
  return weft.tensor(
    values.map(([re]) => re),
    { dtype },
  );
}

/** Small integers: exact in every dtype. Both parts of complex numbers come from one kernel. */
function check(got: weft.Tensor, expected: Pair[], what: string): void {
  const isComplex = got.dtype.startsWith("complex");
  const numbers = Array.from(got.dataSync() as ArrayLike<number>, (x) => Number(x) + 0);
  assert.deepEqual(
    numbers,
    expected.flatMap(([re, im]) => (isComplex ? [re + 0, im + 0] : [re + 0])),
    what,
  );
}

const moves: Record<string, { tensor(x: weft.Tensor): weft.Tensor; values(x: Pair[]): Pair[] }> = {
  "pad after": { tensor: (x) => x.pad([[0, 1]]), values: (x) => [...x, ...zeros(1)] },
  "pad before": { tensor: (x) => x.pad([[3, 0]]), values: (x) => [...zeros(3), ...x] },
  "pad both twice": { tensor: (x) => x.pad([[2, 5]]).pad([[1, 1]]), values: (x) => [...zeros(3), ...x, ...zeros(6)] },
  roll: { tensor: (x) => x.roll(2), values: (x) => [...x.slice(-2), ...x.slice(0, -2)] },
  concat: { tensor: (x) => weft.concat([x, x.flip(), x]), values: (x) => [...x, ...[...x].reverse(), ...x] },
  "pad of a flip": {
    tensor: (x) => x.flip().pad([[1, 2]]),
    values: (x) => [...zeros(1), ...[...x].reverse(), ...zeros(2)],
  },
  "pad of every second": {
    tensor: (x) => x.index("::2").pad([[2, 1]]),
    values: (x) => [...zeros(2), ...x.filter((_, i) => i % 2 === 0), ...zeros(1)],
  },
};

const dtypes: DType[] = ["complex64", "complex128", "float32", "float64", "int32", "int64", "float16"];
for (const [name, { tensor, values }] of Object.entries(moves))
  test(`${name}, then a product`, { skip }, () => {
    for (const dtype of dtypes)
      for (const n of [3, 4, 5, 16, 33, 200]) {
        const [x, factor] = [numbers(n, 1), [5, dtype.startsWith("complex") ? 6 : 0] as Pair];
        const own = dtype.startsWith("complex") ? x : x.map(([re]): Pair => [re, 0]);
        const got = tensor(tensorOf(own, dtype)).mul(tensorOf([factor], dtype));
        check(
          got,
          values(own).map((z) => times(z, factor)),
          `${dtype} of ${n}`,
        );
      }
  });

test("rows, columns and sums of padded matrices", { skip }, () => {
  for (const dtype of ["complex64", "complex128", "float32"] as const)
    for (const [m, n] of [
      [3, 4],
      [5, 70],
      [80, 3],
    ]) {
      const own = numbers(m * n, 2).map(([re, im]): Pair => [re, dtype === "float32" ? 0 : im]);
      const x = tensorOf(own, dtype).reshape([m, n]);
      const at = (i: number, j: number): Pair => (i < 0 || j < 0 || i >= m || j >= n ? [0, 0] : own[i * n + j]);
      const [rows, columns] = [m + 3, n + 3];
      const padded = x.pad([
        [1, 2],
        [2, 1],
      ]);
      const square = (i: number, j: number): Pair => times(at(i - 1, j - 2), at(i - 1, j - 2));
      const grid = Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => square(i, j)));
      const total = (list: Pair[]): Pair => list.reduce(([a, b], [c, d]): Pair => [a + c, b + d], [0, 0]);
      const what = `${dtype} ${m} x ${n}`;
      check(padded.mul(padded).reshape([-1]), grid.flat(), what);
      check(padded.mul(padded).sum(1), grid.map(total), `${what} rows`);
      check(
        padded.mul(padded).sum(0),
        Array.from({ length: columns }, (_, j) => total(grid.map((row) => row[j]))),
        `${what} columns`,
      );
    }
});

test("padding an empty tensor reads nothing", { skip }, () => {
  const empty = weft.zeros([0], { dtype: "complex64" });
  const program = weft.jit((x: weft.Tensor) =>
    weft
      .concat([x.pad([[2, 1]]), x.add(1)])
      .mul(3)
      .real(),
  );
  assert.deepEqual([...(program(empty).dataSync() as Float32Array)], [0, 0, 0]);
});

test("no load in generated C is conditional", () => {
  const z = build.input([200], "complex64");
  const padded = build.make("pad", [z], { low: [1], high: [2] });
  const program = scheduleFunction(
    { params: [z], outputs: [build.mul(padded, padded)] },
    { parallelRows: 16, longReduction: 32768 },
  );
  const texts = program.steps.flatMap((s) => (s.kind === "kernel" ? [emitKernel(s.kernel).text] : []));
  assert.equal(texts.length, 1);
  assert.match(texts[0], /p0\[/);
  assert.doesNotMatch(texts[0], /\?[^;]*\bp\d+\[/);
});
