// Running products and extrema, which the compiler finds in their compositions: every shape and axis against plain loops.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";
import { build } from "../../ops/index.js";
import { backward, running, simplify } from "../../transform/index.js";
import { CpuDevice } from "./index.js";

const skip = CpuDevice.available() ? false : "no C compiler";
type Tensor = weft.Tensor;

const functions = {
  cumprod: { of: weft.cumprod, join: (a: number, b: number): number => a * b },
  cummax: { of: weft.cummax, join: Math.max },
  cummin: { of: weft.cummin, join: Math.min },
};
/** Lengths beyond a run of 8 on every axis, and numbers of lines around a block of 64. */
const shapes = [[9], [17], [101], [3, 33], [2, 40, 5], [2, 20, 70], [131, 3]];
/** Products of these neither grow nor vanish. */
const factors = [1, -1, 2, 1, 0.5, -1, 1];

for (const dtype of ["float32", "float64", "int32", "int64"] as const)
  test(`running products and extrema of ${dtype}`, { skip }, () => {
    weft.setDevice("cpu");
    const isFloat = dtype.startsWith("float");
    const names = (Object.keys(functions) as (keyof typeof functions)[]).filter(
      (name) => isFloat || name !== "cumprod",
    );
    const cases = names.flatMap((name) =>
      shapes.flatMap((shape) => shape.flatMap((n, axis) => (n > 8 ? [{ name, shape, axis }] : []))),
    );
    const values = cases.map(({ name, shape }) => {
      const list = Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => ((i * 7919) % 101) - 50);
      if (name === "cumprod") return list.map((_, i) => factors[(i * 3) % 7]);
      // NaN wins from its place on.
      return isFloat && list.length > 60 ? list.with(50, Number.NaN) : list;
    });
    const all = weft.jit((given: Tensor[]) => given.map((x, i) => functions[cases[i].name].of(x.neg(), cases[i].axis)));
    const results = all(values.map((v, i) => weft.tensor(v, { shape: cases[i].shape, dtype })));
    cases.forEach(({ name, shape, axis }, at) => {
      const expected = values[at].map((v) => 0 - v);
      const inner = shape.slice(axis + 1).reduce((a, b) => a * b, 1);
      for (let i = 0; i < expected.length; i++)
        if (Math.floor(i / inner) % shape[axis] > 0)
          expected[i] = functions[name].join(expected[i - inner], expected[i]);
      const got = Array.from(results[at].dataSync(), Number).map((v) => v + 0);
      assert.deepEqual(
        got,
        expected.map((v) => v + 0),
        `${name} of [${shape}] along ${axis}`,
      );
    });
  });

test("long ones are one call of the library, and gradients are those of the composition", { skip }, () => {
  weft.setDevice("cpu");
  const input = build.input([4, 40], "float32");
  const built = [running.product(input, 1), running.extremum(input, 1, "max"), running.extremum(input, 1, "min")];
  built.forEach((result, code) => {
    const source = new CpuDevice().source(simplify({ params: [input], outputs: [result] }));
    assert.match(source, new RegExp(`rt->scan\\(6, ${code}, 4, 40, 1,`));
  });
  const x = weft.tensor(Array.from({ length: 20 }, (_, i) => 1 + i / 100));
  const slopes = Array.from(
    weft
      .grad((t: Tensor) => weft.cumprod(t).index(-1))(x)
      .dataSync(),
    Number,
  );
  const product = Array.from({ length: 20 }, (_, i) => 1 + i / 100).reduce((a, b) => a * b);
  slopes.forEach((slope, i) => {
    assert.ok(Math.abs(slope - product / (1 + i / 100)) < 1e-5 * product);
  });
});

test("gradients are short programs, which C compilers take seconds for", { skip }, () => {
  const x = build.input([1024], "float32");
  for (const y of [running.product(x, 0), running.extremum(x, 0, "max")]) {
    const [gradient] = backward([y], [build.fullLike(y, 1)], [x]);
    const { length } = new CpuDevice().source(simplify({ params: [x], outputs: [gradient!] }));
    assert.ok(length < 150_000, `${length} characters`);
  }
});
