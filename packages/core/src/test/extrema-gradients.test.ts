// Elements that attain an extremum share its gradient. They are found by comparison, so that two kernels, or two loops of one, must compute
// them from the same rounded numbers: of half types, and where compilers fuse a product and a sum.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { onEachDevice } from "./devices.js";

const chains: Record<string, (x: weft.Tensor) => weft.Tensor> = {
  scaled: (x) => x.mul(0.7),
  exponentials: (x) => x.exp().mul(0.3),
  "a product that is read twice": (x) => {
    const z = x.mul(0.7);
    return z.sin().add(z);
  },
  "long chains": (x) => [0, 1, 2, 3].reduce((y) => y.sin().add(y.tanh()).mul(0.7).add(0.013), x),
};
const shape = [4, 8, 32, 32];

onEachDevice(() => {
  for (const [name, chain] of Object.entries(chains))
    for (const dtype of ["bfloat16", "float16", "float32"] as const)
      test(`${name} of ${dtype}`, () => {
        for (const isWide of dtype === "float32" ? [false] : [false, true])
          for (const axes of [[0], [3], [0, 2, 3], [0, 1, 2, 3]]) {
            const extrema = (x: weft.Tensor, shift: weft.Tensor): weft.Tensor => {
              const y = chain(x).add(shift);
              return (isWide ? y.cast("float32") : y).max(axes).cast("float32").sum();
            };
            const x = weft.randn(shape, { seed: 1 }).cast(dtype).realize();
            const slope = weft.jit(weft.grad(extrema, { argument: 1 }))(x, weft.zeros(shape, { dtype }));
            const total = slope.cast("float32").sum().itemSync() as number;
            const count = shape.reduce((n, size, axis) => (axes.includes(axis) ? n : n * size), 1);
            assert.ok(Math.abs(total / count - 1) < 0.01, `axes ${axes}: ${total} of ${count}`);
          }
      });

  test("a product in rows", () => {
    const slope = weft.jit(weft.grad((x: weft.Tensor) => chains["a product that is read twice"](x).max(1).sum()));
    const numbers = slope(weft.randn([64, 512], { seed: 1 }).realize()).dataSync() as Float32Array;
    assert.equal(numbers.filter((x) => x !== 0).length, 64);
  });
});
