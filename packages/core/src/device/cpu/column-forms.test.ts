// Forms of kernels for places of extremes in columns, for elements that are read by indices, and for scattered products and extremes that
// threads share. Values are computed here in plain JavaScript.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "../../index.js";
import { make, numberAt, numbers, skip } from "./forms.testkit.js";

type Tensor = weft.Tensor;

const floats: readonly weft.DType[] = ["float32", "float64", "float16", "bfloat16"];

/** The first place of the largest (or least) of some numbers; of NaN, where there is one. */
function placeOf(values: readonly number[], sign: number): number {
  const nan = values.findIndex(Number.isNaN);
  if (nan >= 0) return nan;
  return values.indexOf(sign * Math.max(...values.map((v) => sign * v)));
}

test("places of extremes in columns of every dtype, with ties, NaN and infinities", { skip }, async () => {
  weft.setDevice("cpu");
  const dtypes = [...floats, "int32", "int64", "uint8", "int16", "uint32", "uint64"] as const;
  for (const [before, n, after] of [
    [1, 1000, 37],
    [3, 21, 100],
    [2, 8, 256],
    [5, 3, 16],
  ]) {
    for (const dtype of dtypes) {
      const isFloat = floats.includes(dtype);
      const values = Array.from({ length: before * n * after }, (_, i) => (isFloat ? numberAt(i) : numberAt(i) + 11));
      if (isFloat) {
        values[after + 1] = Number.NaN;
        values[2 * after + 1] = Number.NaN;
        values[2 * after + 2] = Number.POSITIVE_INFINITY;
        values[2 * after + 3] = Number.NEGATIVE_INFINITY;
        // A column of nothing but the identity of the extreme.
        for (let k = 0; k < n; k++) values[k * after + 4] = Number.NEGATIVE_INFINITY;
      }
      const f = weft.jit((x: Tensor) => [x.argmax(1), x.argmin(1)]);
      const [largest, least] = await Promise.all(f(make([before, n, after], dtype, values)).map(numbers));
      const column = (c: number): number[] =>
        Array.from({ length: n }, (_, k) => values[Math.floor(c / after) * n * after + k * after + (c % after)]);
      const expected = (sign: number): number[] =>
        Array.from({ length: before * after }, (_, c) => placeOf(column(c), sign));
      assert.deepEqual(largest, expected(1), `${dtype} ${n}`);
      assert.deepEqual(least, expected(-1), `${dtype} ${n}`);
    }
  }
});

test("elements by indices: every dtype, odd sizes, negative indices, alone and in formulas", { skip }, async () => {
  weft.setDevice("cpu");
  for (const dtype of [...floats, "int32", "int64", "uint8", "bool"] as const) {
    for (const [rows, n, m] of [
      [3, 37, 300],
      [1, 1000, 1001],
      [5, 64, 33],
    ]) {
      const values = Array.from({ length: rows * n }, (_, i) => Math.abs(numberAt(i)) % (dtype === "bool" ? 2 : 12));
      const places = Array.from({ length: rows * m }, (_, i) => ((i * 104729) % (2 * n)) - n);
      const f = weft.jit((x: Tensor, i: Tensor) => {
        const found = weft.gather(x, i, 1);
        return [found, found.cast("float32").mul(2).add(i)];
      });
      const [alone, formula] = await Promise.all(
        f(make([rows, n], dtype, values), make([rows, m], "int32", places)).map(numbers),
      );
      const expected = places.map((p, i) => values[Math.floor(i / m) * n + (p < 0 ? p + n : p)]);
      assert.deepEqual(alone, expected, dtype);
      assert.deepEqual(
        formula,
        expected.map((v, i) => 2 * v + places[i]),
        dtype,
      );
    }
  }
  const only = weft.jit((x: Tensor, i: Tensor) => weft.gather(x, i, 0));
  const line = Array.from({ length: 5000 }, (_, i) => (i * 31) % 4999);
  const found = await numbers(
    only(
      make(
        [5000],
        "float16",
        line.map((v) => v % 2000),
      ),
      make([5000], "int64", line),
    ),
  );
  assert.deepEqual(
    found,
    line.map((p) => line[p] % 2000),
  );
});

test("many products and extremes in few places, NaN among them", { skip }, async () => {
  weft.setDevice("cpu");
  for (const [places, width] of [
    [301, 1],
    [77, 5],
  ]) {
    const count = 70000;
    const at = Array.from({ length: count }, (_, i) => (i * 7919) % (places - 1));
    for (const dtype of ["float32", "float64", "int32", "int64", "uint32"] as const) {
      const isUnsigned = dtype === "uint32";
      const start = Array.from({ length: places * width }, (_, i) => (isUnsigned ? 3 : (i % 5) - 2));
      const updates = Array.from({ length: count * width }, (_, i) => numberAt(i) + (isUnsigned ? 11 : 0));
      // Factors of one and minus one, and a few zeros.
      const factors = updates.map((v, i) => (i % 20011 === 7 ? 0 : isUnsigned || v > -9 ? 1 : -1));
      if (dtype.startsWith("float")) updates[5 * width] = updates[60000 * width] = Number.NaN;
      const shapes =
        width === 1
          ? [[places], [count]]
          : [
              [places, width],
              [count, width],
            ];
      const f = weft.jit((x: Tensor, i: Tensor, u: Tensor, p: Tensor) => {
        const index = width === 1 ? i : i.reshape([count, 1]).expand([count, width]);
        return [
          weft.scatter(x, index, u, { axis: 0, mode: "max" }),
          weft.scatter(x, index, u, { axis: 0, mode: "min" }),
          weft.scatter(x, index, p, { axis: 0, mode: "mul" }),
        ];
      });
      const results = await Promise.all(
        f(
          make(shapes[0], dtype, start),
          make([count], "int32", at),
          make(shapes[1], dtype, updates),
          make(shapes[1], dtype, factors),
        ).map(numbers),
      );
      const expected = [start.slice(), start.slice(), start.slice()];
      for (let i = 0; i < count * width; i++) {
        const place = at[Math.floor(i / width)] * width + (i % width);
        expected[0][place] = Math.max(expected[0][place], updates[i]);
        expected[1][place] = Math.min(expected[1][place], updates[i]);
        expected[2][place] *= factors[i];
      }
      results.forEach((result, k) => {
        assert.deepEqual(
          result.map((v) => v + 0),
          expected[k].map((v) => v + 0),
          `${dtype} ${width} ${k}`,
        );
      });
    }
  }
});

test("columns of many rows: few, uneven and shared by rows that are read by indices", { skip }, async () => {
  weft.setDevice("cpu");
  for (const [n, after] of [
    [65536, 3],
    [4096, 96],
    [10007, 40],
    [4099, 33],
    [70000, 2],
    [8192, 1],
  ]) {
    for (const dtype of ["float32", "float64", "bfloat16", "int32"] as const) {
      // Whole numbers, so that sums are exact in every dtype that is summed.
      const values = Array.from({ length: n * after }, (_, i) => numberAt(i) % 3);
      if (dtype !== "int32") values[5 * after] = Number.NaN;
      const f = weft.jit((x: Tensor) => [x.cast(dtype === "bfloat16" ? "float32" : dtype).sum(0), x.max(0), x.min(0)]);
      const results = await Promise.all(f(make([n, after], dtype, values)).map(numbers));
      const columns = Array.from({ length: after }, (_, c) =>
        Array.from({ length: n }, (_row, k) => values[k * after + c]),
      );
      const extreme = (a: number[], sign: number): number =>
        a.reduce((best, v) => (Number.isNaN(v) || sign * v > sign * best ? v : best));
      assert.deepEqual(
        results,
        [
          columns.map((a) => a.reduce((s, v) => s + v, 0)),
          columns.map((a) => extreme(a, 1)),
          columns.map((a) => extreme(a, -1)),
        ].map((expected) => expected.map((v) => v + 0)),
        `${dtype} ${n} x ${after}`,
      );
    }
  }
  const [rows, width, bag] = [50, 37, 11];
  const table = Array.from({ length: rows * width }, (_, i) => numberAt(i));
  const places = Array.from({ length: 9 * bag }, (_, i) => ((i * 31) % (2 * rows)) - rows);
  const weights = places.map((_, i) => (i % 5) - 2);
  const f = weft.jit((w: Tensor, i: Tensor, s: Tensor) =>
    w
      .take(i, 0)
      .mul(s.reshape([9, bag, 1]))
      .sum(1),
  );
  const found = await numbers(
    f(make([rows, width], "float32", table), make([9, bag], "int32", places), make([9, bag], "float32", weights)),
  );
  const expected = Array.from({ length: 9 * width }, (_, c) =>
    Array.from({ length: bag }, (_b, k) => {
      const at = Math.floor(c / width) * bag + k;
      const row = places[at] < 0 ? places[at] + rows : places[at];
      return weights[at] * table[row * width + (c % width)];
    }).reduce((s, v) => s + v, 0),
  );
  assert.deepEqual(found, expected);
});

test("on the oldest processors of x86-64, values are the same", {
  skip: skip || (process.arch !== "x64" ? "another processor" : process.env.WEFT_OLD_PROCESSOR === "1"),
}, () => {
  const env = { ...process.env, WEFT_CC_FLAGS: "-march=x86-64", WEFT_OLD_PROCESSOR: "1", NODE_TEST_CONTEXT: undefined };
  const file = (name: string): string => fileURLToPath(new URL(`${name}.test.js`, import.meta.url));
  const parts = [
    ["column-forms", "places of extremes|elements by indices"],
    ["kernel-forms", "transposed operands|exponentials and error functions"],
    ["vector-math", "^(exp|sin|cos) of float64"],
  ];
  for (const [name, pattern] of parts) {
    const args = ["--test", `--test-name-pattern=${pattern}`, file(name)];
    const done = spawnSync(process.execPath, args, { encoding: "utf8", env });
    assert.equal(done.status, 0, done.stdout.slice(-3000));
    assert.doesNotMatch(done.stdout, /^# pass 0$/m);
  }
});
