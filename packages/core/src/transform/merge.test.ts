// Gradients of functions that hold gradients: what a function and its derivatives share is differentiated once.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";

type Tensor = weft.Tensor;

/** A net of three layers, the squares of its value and of its first two derivatives, and the gradient of their sum. */
const w = weft.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9].map((i) => Math.sin(i))).reshape([3, 3]);
const x = weft.tensor([-0.5, 0.25, 0.75]).reshape([3, 1]);
const net = (p: Tensor, z: Tensor): Tensor => weft.sin(weft.sin(z.mul(weft.ones([1, 3])).matmul(p)).matmul(p)).sum(-1);
const slope = (p: Tensor, z: Tensor): Tensor => weft.grad((y: Tensor) => net(p, y).sum())(z);
const bend = (p: Tensor, z: Tensor): Tensor => weft.grad((y: Tensor) => slope(p, y).sum())(z);
const loss = (p: Tensor): Tensor =>
  net(p, x).square().sum().add(slope(p, x).square().sum()).add(bend(p, x).square().sum());

const products = (f: (p: Tensor) => unknown): number =>
  weft.debug
    .graph(f, w)
    .split("\n")
    .filter((line) => line.includes("matmul")).length;

test("a net, its slope and its curvature have one forward pass, and one reverse pass for each product", () => {
  // 35 if the reverse pass meets the net once by itself, once in its slope and once in its curvature.
  assert.ok(products(loss) > 0);
  const gradient = products((p) => weft.grad(loss)(p));
  assert.ok(gradient <= 22, `${gradient} products`);
});

test("their gradient is that of finite differences", () => {
  const at = w.cast("float64");
  const wide = (p: Tensor): Tensor => {
    const z = x.cast("float64");
    const f = (q: Tensor, y: Tensor): Tensor =>
      weft.sin(weft.sin(y.mul(weft.ones([1, 3], { dtype: "float64" })).matmul(q)).matmul(q)).sum(-1);
    const first = (q: Tensor, y: Tensor): Tensor => weft.grad((v: Tensor) => f(q, v).sum())(y);
    const second = (q: Tensor, y: Tensor): Tensor => weft.grad((v: Tensor) => first(q, v).sum())(y);
    return f(p, z).square().sum().add(first(p, z).square().sum()).add(second(p, z).square().sum());
  };
  const found = Array.from(weft.grad(wide)(at).dataSync() as ArrayLike<number>);
  found.forEach((value, i) => {
    const shifted = (by: number): number => {
      const moved = Array.from(at.dataSync() as ArrayLike<number>);
      moved[i] += by;
      return Number(wide(weft.tensor(moved, { dtype: "float64" }).reshape([3, 3])).dataSync());
    };
    const expected = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
    assert.ok(Math.abs(value - expected) < 1e-5 * (1 + Math.abs(expected)), `${i}: ${value} for ${expected}`);
  });
});

test("variables of enclosing gradients and of loops stay apart", () => {
  // d/dx [x d/dy (x y)] at y = x: x d/dy (x y) = x^2, so 2 x; were the two merged, x d/dx (x^2) = 2 x^2, so 4 x.
  const outer = (z: Tensor): Tensor => z.mul(weft.grad((y: Tensor) => z.mul(y).sum())(z)).sum();
  assert.deepEqual(
    Array.from(
      weft
        .grad(outer)(weft.tensor([3, -2]))
        .dataSync() as ArrayLike<number>,
    ),
    [6, -4],
  );
  const tangent = weft.jvp(
    (z: Tensor) => weft.grad((y: Tensor) => y.mul(y).mul(y).sum())(z),
    [weft.tensor([2])],
    [weft.tensor([1])],
  );
  assert.deepEqual(Array.from(tangent[1].dataSync() as ArrayLike<number>), [12]);
});
