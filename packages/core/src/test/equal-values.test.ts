// Gradients where eigenvalues or singular values are equal: right for what has a derivative there, NaN where the cotangents do not tell it,
// never incomplete in silence. Expected values are closed forms.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { assertClose } from "./compare.js";
import { onEachDevice } from "./devices.js";

const f64 = { dtype: "float64" } as const;
const close = { atol: 1e-12 };
const symmetric = (a: Tensor): Tensor => a.add(a.T).mul(0.5);
const isNaNEverywhere = (x: Tensor): boolean => Array.from(x.dataSync() as Float64Array).every(Number.isNaN);

onEachDevice(() => {
  const b = (): Tensor => weft.randn([3, 3], { seed: 4, ...f64 });
  const twice = (): Tensor => weft.eye(3, f64).mul(2);

  test("functions of singular vectors alone", () => {
    const polar = (a: Tensor): Tensor => {
      const { u, vh } = weft.svd(a);
      return u.matmul(vh);
    };
    // At c times the identity the polar factor changes by the skew part of the change over c.
    const slope = weft.grad((a: Tensor) => polar(a).mul(b()).sum())(twice());
    assertClose(slope, b().sub(b().T).div(4), close);
    const [, tangent] = weft.jvp(polar, [twice()], [b()]);
    assertClose(tangent, b().sub(b().T).div(4), close);
  });

  test("functions of values alone", () => {
    const nuclear = weft.grad((a: Tensor) => weft.svdvals(a).sum())(twice());
    assertClose(nuclear, weft.eye(3, f64), close);
    const trace = weft.grad((a: Tensor) => weft.eigvalsh(symmetric(a)).sum())(twice());
    assertClose(trace, weft.eye(3, f64), close);
    const [, tangent] = weft.jvp((a: Tensor) => weft.eigvalsh(symmetric(a)).sum(), [twice()], [b()]);
    assertClose(tangent, weft.trace(b()), close);
  });

  test("pinv and lstsq", () => {
    const slope = weft.grad((a: Tensor) => weft.pinv(a).mul(b()).sum())(twice());
    assertClose(slope, b().div(-4), close);
    const y = weft.tensor([1, 2, 3], f64);
    const solution = weft.grad((a: Tensor) => weft.lstsq(a, y).solution.sum())(twice());
    assertClose(solution, weft.ones([3, 1], f64).mul(y).div(-4), close);
  });

  test("functions of values and vectors are NaN, in both modes", () => {
    const bySvd = (a: Tensor): Tensor => {
      const { u, s, vh } = weft.svd(a);
      return u.mul(s).matmul(vh);
    };
    const byEigh = (a: Tensor): Tensor => {
      const { values, vectors } = weft.eigh(symmetric(a));
      return vectors.mul(values.sqrt()).matmul(vectors.T);
    };
    for (const f of [bySvd, byEigh]) {
      assert.ok(isNaNEverywhere(weft.grad((a: Tensor) => f(a).mul(b()).sum())(twice())));
      const [, tangent] = weft.jvp(f, [twice()], [b()]);
      assert.ok(Number.isNaN(tangent.sum().itemSync()));
    }
    // A pair that the loss does not touch does not matter.
    const apart = weft.diag(weft.tensor([1, 5, 5], f64));
    const first = weft.grad((a: Tensor) => {
      const { values, vectors } = weft.eigh(symmetric(a));
      return vectors.index(":", 0).square().mul(values.index(0)).sum();
    })(apart);
    assertClose(first, weft.diag(weft.tensor([1, 0, 0], f64)), close);
  });
});
