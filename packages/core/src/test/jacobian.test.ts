// Jacobians, Hessians, customJvp, auxiliary results, and the protocols of JavaScript that tensors implement.
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import * as weft from "../index.js";
import { type Tensor, tensor } from "../index.js";

weft.setDevice("reference");
const f64 = { dtype: "float64" } as const;
const close = (actual: Tensor, expected: unknown): void => {
  const flat = (x: unknown): number[] => (Array.isArray(x) ? x.flatMap(flat) : [Number(x)]);
  const [a, e] = [Array.from(actual.dataSync() as Float64Array), flat(expected)];
  assert.equal(a.length, e.length);
  for (const [i, x] of a.entries())
    assert.ok(Math.abs(x - e[i]) < 1e-9 * Math.max(1, Math.abs(e[i])), `${x}, expected ${e[i]}`);
};

test("both modes give the Jacobian of a closed form", () => {
  // f(x, y, z) = (x y, sin z, x z^2 + y)
  const f = (v: Tensor): Tensor => {
    const [x, y, z] = [...v];
    return weft.stack([x.mul(y), z.sin(), x.mul(z).mul(z).add(y)]);
  };
  const at = tensor([2, 3, 0.5], f64);
  const expected = [3, 2, 0, 0, 0, Math.cos(0.5), 0.25, 1, 2];
  for (const mode of [weft.jacrev, weft.jacfwd, weft.jacobian]) {
    close(mode(f)(at), expected);
    close(weft.jit(mode(f))(at), expected);
  }
  assert.deepEqual(
    weft.jacrev((x: Tensor) => x.reshape([2, 1]).mul(tensor([1, 2, 3])))(tensor([1, 2])).shape,
    [2, 3, 2],
  );
  assert.deepEqual(weft.jacfwd((x: Tensor) => x.sum())(weft.zeros([2, 2])).shape, [2, 2]);
  assert.deepEqual(weft.jacrev((x: Tensor) => x.mul(2))(weft.zeros([0])).shape, [0, 0]);
  assert.throws(() => weft.jacrev((x: Tensor) => x)(tensor([1], { dtype: "int32" })), /floating-point/);
  assert.throws(() => weft.jacrev((x: Tensor) => weft.complex(x, x))(tensor([1])), /complex/);
});

test("the Hessian of a quadratic form is its matrix, and auxiliary results pass through", () => {
  const a = tensor(
    [
      [2, 1],
      [1, 6],
    ],
    f64,
  );
  const form = (x: Tensor): Tensor => x.matmul(a.matmul(x)).mul(0.5);
  close(weft.hessian(form)(tensor([3, 4], f64)), [2, 1, 1, 6]);
  const withAux = (_k: number, x: Tensor): [Tensor, string] => [form(x), "seen"];
  const [matrix, aux] = weft.hessian(withAux, { argument: 1, hasAux: true })(1, tensor([3, 4], f64)) as unknown as [
    Tensor,
    string,
  ];
  close(matrix, [2, 1, 1, 6]);
  assert.equal(aux, "seen");
  for (const mode of [weft.jacrev, weft.jacfwd]) {
    const [jacobian, more] = mode((x: Tensor) => [x.mul(2), "more"], { hasAux: true })(tensor([1], f64)) as unknown as [
      Tensor,
      string,
    ];
    close(jacobian, [2]);
    assert.equal(more, "more");
  }
  const [slope, extra] = weft.grad((x: Tensor) => [x.square().sum(), { x }], { hasAux: true })(tensor([1, 2], f64));
  close(slope, [2, 4]);
  close((extra as { x: Tensor }).x, [1, 2]);
  const [value, pull, kept] = weft.vjpWithAux((x: Tensor): [Tensor, number] => [x.square(), 7], tensor([3], f64));
  close(value, [9]);
  close(pull(tensor([1], f64))[0], [6]);
  assert.equal(kept, 7);
  const [y, dy, third] = weft.jvp(
    (x: Tensor): [Tensor, string] => [x.square(), "aux"],
    [tensor([3], f64)],
    [tensor([2], f64)],
    { hasAux: true },
  );
  close(y, [9]);
  close(dy, [12]);
  assert.equal(third, "aux");
});

test("customJvp replaces the derivative in both modes and in second order", () => {
  const doubled = weft.customJvp(
    (x: Tensor, y: Tensor) => x.mul(y),
    ([x, y], [dx, dy]) => dx.mul(y).mul(2).add(dy.mul(x)),
  );
  const [x, y] = [tensor([3], f64), tensor([5], f64)];
  const loss = (a: Tensor, b: Tensor): Tensor => doubled(a, b).sum();
  const [gx, gy] = weft.grad(loss, { argument: [0, 1] })(x, y);
  close(gx, [10]);
  close(gy, [3]);
  close(weft.jvp(doubled, [x, y], [tensor([1], f64), tensor([1], f64)])[1], [13]);
  // d/dy of 2 y is 2, by the rule.
  close(
    weft.grad((b: Tensor) =>
      weft
        .grad((a: Tensor) => loss(a, b))(x)
        .sum(),
    )(y),
    [2],
  );
  const wrong = weft.customJvp(
    (a: Tensor) => a.mul(2),
    ([_a], [da]) => da.sum(),
  );
  assert.throws(() => weft.grad((a: Tensor) => wrong(a).sum())(tensor([1, 2])), /tangent has shape \[\]/);
});

test("tensors follow the protocols of JavaScript", () => {
  const x = tensor([
    [1, 2],
    [3, 4],
  ]);
  assert.deepEqual(
    [...x].map((row) => row.arraySync()),
    [
      [1, 2],
      [3, 4],
    ],
  );
  assert.throws(() => [...tensor(1)], /scalar/);
  assert.equal(+tensor(3), 3);
  assert.ok((tensor([2]) as unknown as number) > 1);
  assert.equal(`${tensor(3)}`, "float32[] 3");
  assert.throws(() => +x, /one element/);
  assert.equal(JSON.stringify({ x }), '{"x":[[1,2],[3,4]]}');
  assert.equal(JSON.stringify(tensor([1n, 2n ** 60n])), `[1,"${2n ** 60n}"]`);
  assert.equal(Object.prototype.toString.call(x), "[object Tensor]");
  assert.match(inspect(x), /Tensor float32\[2, 2\] \[\[1, 2\], \[3, 4\]\]/);
  let seen = "";
  weft.jit((t: Tensor) => {
    seen = inspect(t);
    return t.mul(2);
  })(x);
  assert.match(seen, /Tensor float32\[2, 2\] without a value \(traced\)/);
});

test("patterns and equations that cannot be are refused", () => {
  const x = weft.zeros([4, 6]);
  for (const [fn, pattern] of [
    [() => weft.rearrange(x, "a b"), /form/],
    [() => weft.rearrange(x, "a b c -> a"), /names 3 axes/],
    [() => weft.rearrange(x, "(a b) c -> a b c"), /sizes of a and b/],
    [() => weft.rearrange(x, "(a b) c -> a b c", { a: 3 }), /does not divide/],
    [() => weft.rearrange(x, "a b -> a"), /reduceAxes/],
    [() => weft.rearrange(x, "a b -> a b c"), /not on the left/],
    [() => weft.rearrange(x, "a a -> a"), /twice/],
    [() => weft.rearrange(x, "a (b -> a b"), /not closed/],
    [() => weft.rearrange(x, "a $ -> a"), /neither/],
    [() => weft.repeatAxes(x, "a b -> a b c"), /size of c/],
    [() => weft.reduceAxes(x, "a b -> a", "median" as "max"), /one of sum/],
    [() => weft.einsum("...i....->i", x), /more than one/],
    [() => weft.einsum("...i->i", x), /needs "\.\.\." too/],
    [() => weft.einsum("...abc", x), /more axes/],
  ] as [() => unknown, RegExp][])
    assert.throws(fn, pattern);
});
