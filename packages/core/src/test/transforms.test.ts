// The transforms composed with each other: gradients of gradients, custom gradients, checkpoints, trees, and vjp and jvp
// as functions. Loops, jit and vmap have separate suites.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { assertClose } from "./compare.js";
import { onEachDevice } from "./devices.js";

const f64 = { dtype: "float64" } as const;
const t = (data: number | number[] | number[][]): Tensor => weft.tensor(data, f64);

onEachDevice(() => {
  test("grad of grad of grad", () => {
    let f: (x: Tensor) => Tensor = (x) => x.pow(5).add(x.sin());
    const x = t(0.7);
    const expected = [5 * 0.7 ** 4 + Math.cos(0.7), 20 * 0.7 ** 3 - Math.sin(0.7), 60 * 0.7 ** 2 - Math.cos(0.7)];
    for (const slope of expected) {
      f = weft.grad(f);
      assertClose(f(x), slope, { rtol: 1e-12 });
    }
  });

  test("hessian-vector products four ways", () => {
    const a = weft.randn([4, 4], { seed: 1, ...f64 });
    const f = (x: Tensor) => a.matmul(x).tanh().square().sum().add(x.prod());
    const [x, v] = [weft.randn([4], { seed: 2, ...f64 }), weft.randn([4], { seed: 3, ...f64 })];
    const forwardOverReverse = weft.jvp(weft.grad(f), [x], [v])[1];
    const reverseOverReverse = weft.grad((y: Tensor) => weft.grad(f)(y).mul(v).sum())(x);
    const reverseOverForward = weft.grad((y: Tensor) => weft.jvp(f, [y], [v])[1])(x);
    const [, pull] = weft.vjp(weft.grad(f), x);
    assertClose(forwardOverReverse, reverseOverReverse, { rtol: 1e-11 });
    assertClose(reverseOverForward, reverseOverReverse, { rtol: 1e-11 });
    assertClose(pull(v)[0], reverseOverReverse, { rtol: 1e-11 });
  });

  test("trees of arguments, several arguments, auxiliary results", () => {
    const params = {
      layers: [
        {
          w: t([
            [1, 2],
            [3, 4],
          ]),
          b: t([0.5, -0.5]),
        },
      ],
      scale: t(2),
      name: "net",
    };
    const loss = (p: typeof params, x: Tensor) => x.matmul(p.layers[0].w).add(p.layers[0].b).sum().mul(p.scale);
    const g = weft.grad(loss)(params, t([1, 2]));
    assertClose(
      g.layers[0].w,
      t([
        [2, 2],
        [4, 4],
      ]),
    );
    assertClose(g.layers[0].b, [2, 2]);
    assertClose(g.scale, 7 + 10);
    assert.equal(g.name, "net");
    const both = weft.grad((x: Tensor, y: Tensor) => x.mul(y).sum(), { argument: [0, 1] })(t([1, 2]), t([3, 4]));
    assertClose(both[0], [3, 4]);
    assertClose(both[1], [1, 2]);
    const second = weft.grad((x: Tensor, y: Tensor) => x.mul(y).sum(), { argument: 1 })(t([1, 2]), t([3, 4]));
    assertClose(second, [1, 2]);
    const [[value, more], slope] = weft.valueAndGrad(
      (x: Tensor) => [x.square().sum(), { doubled: x.mul(2) }] as [Tensor, { doubled: Tensor }],
      { hasAux: true },
    )(t([1, 3]));
    assertClose(value, 10);
    assertClose(more.doubled, [2, 6]);
    assertClose(slope, [2, 6]);
  });

  test("one tensor as two arguments has two gradients", () => {
    const x = t([2, 3]);
    const [a, b] = weft.grad((p: Tensor, q: Tensor) => p.mul(p).mul(q).sum(), { argument: [0, 1] })(x, x);
    assertClose(a, [8, 18]);
    assertClose(b, [4, 9]);
  });

  test("a gradient that does not depend on the argument is zero", () => {
    const g = weft.grad((p: { used: Tensor; unused: Tensor }) => p.used.sum())({
      used: t([1, 2]),
      unused: t([[1], [2]]),
    });
    assertClose(g.unused, weft.zeros([2, 1], f64));
    assertClose(weft.grad((x: Tensor) => weft.stopGradient(x).mul(x).sum())(t([3])), [3]);
    assertClose(weft.grad((x: Tensor) => x.mul(x.floor()).add(x.round()).sum())(t([2.5])), [2]);
  });

  test("values read inside a differentiated function do not break its gradient", () => {
    const seen: number[] = [];
    const g = weft.grad((x: Tensor) => {
      const y = x.square().sum();
      seen.push(y.itemSync());
      return y.mul(seen[0] > 1 ? 2 : 1).sin();
    })(t([1, 2]));
    assert.deepEqual(seen, [5]);
    assertClose(
      g,
      [2, 4].map((d) => d * 2 * Math.cos(10)),
      { rtol: 1e-12 },
    );
  });

  test("a pullback works after its value was computed, and several times", () => {
    const [y, pull] = weft.vjp((a: Tensor, b: Tensor) => ({ product: a.mul(b), sine: a.sin() }), t([1, 2]), t([3, 4]));
    assertClose(y.product, [3, 8]);
    for (const scale of [1, -2]) {
      const [ga, gb] = pull({ product: t([scale, scale]), sine: t([0, 1]) });
      assertClose(ga, [3 * scale, 4 * scale + Math.cos(2)]);
      assertClose(gb, [scale, 2 * scale]);
    }
  });

  test("complex gradients are dL/dRe + i dL/dIm", () => {
    const z = weft.tensor([{ re: 1, im: 2 }], { dtype: "complex128" });
    assertClose(weft.grad((x: Tensor) => x.abs().square().sum())(z), [2, 4]);
    assertClose(weft.grad((x: Tensor) => x.real().sum())(z), [1, 0]);
    assertClose(weft.grad((x: Tensor) => x.imag().sum())(z), [0, 1]);
    // Real part of z^2 = x^2 - y^2.
    assertClose(weft.grad((x: Tensor) => x.square().real().sum())(z), [2, -4]);
    let w = weft.tensor([{ re: 3, im: -1 }], { dtype: "complex128" });
    const target = { re: -0.5, im: 0.25 };
    const loss = (x: Tensor) => x.sub(target).abs().square().sum();
    for (let i = 0; i < 60; i++) w = w.sub(weft.grad(loss)(w).mul(0.2));
    assertClose(w, [target.re, target.im], { rtol: 1e-9 });
  });

  test("ties: extrema share, maximum halves, clip halves at its bounds", () => {
    assertClose(weft.grad((x: Tensor) => x.max())(t([1, 3, 3, 2])), [0, 0.5, 0.5, 0]);
    assertClose(
      weft.grad((x: Tensor) => x.min(0).sum())(
        t([
          [1, 2],
          [1, 5],
        ]),
      ),
      weft.tensor(
        [
          [0.5, 1],
          [0.5, 0],
        ],
        f64,
      ),
    );
    assertClose(weft.grad((x: Tensor) => x.maximum(t([1, 2])).sum())(t([1, 3])), [0.5, 1]);
    assertClose(weft.grad((x: Tensor) => x.relu().sum())(t([-1, 0, 2])), [0, 0, 1]);
    assertClose(weft.grad((x: Tensor) => x.abs().sum())(t([-2, 0, 2])), [-1, 0, 1]);
    assertClose(weft.grad((x: Tensor) => x.norm())(t([0, 0])), [0, 0]);
    assertClose(
      weft.grad((x: Tensor) =>
        x
          .sort()
          .mul(t([1, 2, 3]))
          .sum(),
      )(t([5, 1, 3])),
      [3, 1, 2],
    );
  });

  test("degenerate eigenvalues: values keep their gradient, vectors get no infinite one", () => {
    const degenerate = t([
      [2, 0, 0],
      [0, 2, 0],
      [0, 0, 5],
    ]);
    const sym = (a: Tensor) => a.add(a.T).mul(0.5);
    assertClose(weft.grad((a: Tensor) => weft.eigh(sym(a)).values.sum())(degenerate), weft.eye(3, f64), {
      atol: 1e-12,
    });
    const g = weft.grad((a: Tensor) =>
      weft
        .eigh(sym(a))
        .vectors.mul(
          t([
            [1, 2, 3],
            [4, 5, 6],
            [7, 8, 9],
          ]),
        )
        .sum(),
    )(degenerate);
    assert.equal(g.isFinite().all().itemSync(), 1);
    // Rounding noise in the gap of a rotated degenerate pair must not be inverted either.
    const { q } = weft.qr(weft.randn([3, 3], { seed: 5, ...f64 }));
    const rotated = q.matmul(degenerate).matmul(q.T);
    const projector = (a: Tensor) => {
      const { vectors } = weft.eigh(sym(a));
      const pair = vectors.index(":", "0:2");
      return pair.matmul(pair.T);
    };
    const slope = weft.grad((a: Tensor) =>
      projector(a)
        .mul(
          t([
            [1, 2, 0],
            [0, 1, 3],
            [1, 0, 1],
          ]),
        )
        .sum(),
    )(rotated);
    assert.ok(slope.abs().max().itemSync() < 10, `gradient of a projector is ${slope}`);
  });

  test("singular values of rank-deficient and square matrices have finite gradients", () => {
    const a = t([
      [1, 2],
      [2, 4],
    ]);
    const g = weft.grad((x: Tensor) => weft.svd(x).s.sum())(a);
    assert.equal(g.isFinite().all().itemSync(), 1);
    const u = weft.grad((x: Tensor) =>
      weft
        .svd(x)
        .u.index(":", 0)
        .square()
        .mul(t([1, 2]))
        .sum(),
    )(
      t([
        [3, 1],
        [1, 2],
      ]),
    );
    assert.equal(u.isFinite().all().itemSync(), 1);
  });

  test("customVjp uses the given gradient in every composition", () => {
    const straight = weft.customVjp(
      (x: Tensor) => x.round(),
      ([_x], _y, g) => [g],
    );
    const x = t([0.4, 1.6]);
    assertClose(straight(x), [0, 2]);
    assertClose(weft.grad((v: Tensor) => straight(v.mul(3)).sum())(x), [3, 3]);
    assertClose(weft.jit(weft.grad((v: Tensor) => straight(v).mul(v).sum()))(x), [0.4, 3.6]);
    assertClose(weft.jvp((v: Tensor) => straight(v), [x], [t([1, -2])])[1], [1, -2]);
    assertClose(
      weft.scan((c: Tensor) => [straight(c.add(0.3)), null], x, null, { length: 2 })[0],
      [2, 2].map((_, i) => [1, 2][i]),
    );
  });

  test("customVjp: trees, null gradients, closed-over tensors, statics", () => {
    const c = t([2, 2]);
    const f = weft.customVjp(
      (p: { a: Tensor; b: Tensor }, n: number, y: Tensor) => [p.a.mul(p.b).mul(n).mul(c), y.add(1)],
      ([p, n, _y], [first], [g]) => [{ a: g.mul(p.b).mul(n), b: first.mul(g) }, null as never, null as never],
    );
    const loss = (p: { a: Tensor; b: Tensor }, y: Tensor) => {
      const [u, v] = f(p, 3, y);
      return u.sum().add(v.sum());
    };
    const g = weft.grad(loss, { argument: [0, 1] })({ a: t([1, 2]), b: t([3, 4]) }, t([1]));
    assertClose(g[0].a, [9, 12]);
    assertClose(g[0].b, [18, 48]);
    assertClose(g[1], [0]);
  });

  test("customVjp: wrong gradients are refused", () => {
    const bad = weft.customVjp(
      (x: Tensor) => x.sum(),
      () => [t([1, 2, 3])],
    );
    assert.throws(
      () => weft.grad((x: Tensor) => bad(x))(t([1, 2])),
      /cotangent of argument 0 has shape \[3\], the argument \[2\]/,
    );
    const few = weft.customVjp(
      (x: Tensor, y: Tensor) => x.mul(y).sum(),
      () => [null] as never,
    );
    assert.throws(
      () => weft.grad((x: Tensor) => few(x, x))(t([1, 2])),
      /one cotangent \(or null\) an argument: 2, got 1/,
    );
  });

  test("checkpoint: the same values and gradients, computed again in the reverse pass", () => {
    const w = weft.randn([3, 3], { seed: 9, ...f64 });
    const block = (x: Tensor) => w.matmul(x).tanh().mul(x.exp());
    const plain = (x: Tensor) => block(block(x)).sum();
    const saved = (x: Tensor) => weft.checkpoint(block)(weft.checkpoint(block)(x)).sum();
    const x = weft.randn([3], { seed: 10, ...f64 });
    assertClose(saved(x), plain(x));
    assertClose(weft.grad(saved)(x), weft.grad(plain)(x), { rtol: 1e-12 });
    assertClose(
      weft.grad((y: Tensor) => weft.grad(saved)(y).square().sum())(x),
      weft.grad((y: Tensor) => weft.grad(plain)(y).square().sum())(x),
      { rtol: 1e-10 },
    );
    assertClose(weft.vmap(weft.grad(saved))(x.unsqueeze(0)), weft.grad(plain)(x).unsqueeze(0), { rtol: 1e-12 });
    const count = (f: (x: Tensor) => Tensor) =>
      weft.debug.graph((y: Tensor) => weft.grad(f)(y), x).match(/barrier\(/g)?.length ?? 0;
    assert.equal(count(plain), 0);
    assert.ok(count(saved) > 0);
  });

  test("checkpoint compiles once, however often it is differentiated", () => {
    const x = t([0.3, 0.6]);
    const g = weft.grad((v: Tensor) =>
      weft
        .checkpoint((u: Tensor) => u.sin().exp())(v)
        .sum(),
    );
    g(x).dataSync();
    const before = weft.session().compiles;
    for (let i = 0; i < 3; i++) g(x).dataSync();
    assert.equal(weft.session().compiles, before);
  });

  test("wrong uses of the transforms say what is wrong", () => {
    const x = t([1, 2]);
    assert.throws(
      () => weft.grad((v: Tensor) => v.mul(2))(x),
      /grad: the loss must be a scalar, got shape \[2\]; use sum\(\) or mean\(\)/,
    );
    assert.throws(() => weft.grad((v: Tensor) => v.sum().cast("complex128"))(x), /the loss is complex/);
    assert.throws(() => weft.grad((v: Tensor) => v.sum().cast("int32"))(x), /the loss is int32/);
    assert.throws(
      () => weft.grad((v: Tensor) => v.sum())(weft.tensor([1], { dtype: "int32" })),
      /int32 tensor, which has no gradient/,
    );
    assert.throws(() => weft.grad((_v: Tensor) => 3)(x), /must return a tensor/);
    assert.throws(() => weft.grad(async (v: Tensor) => v.sum())(x), /async/);
    assert.throws(() => weft.grad((v: Tensor) => v.sum(), { argument: 1 })(x), /there is no argument 1 among 1/);
    assert.throws(() => weft.grad((v: number) => t(v))(3), /holds no tensor; wrap numbers/);
    assert.throws(() => weft.vjp((v: Tensor) => v, x)[1](t([1, 2, 3])), /cotangent \[3\] for a result of shape \[2\]/);
    assert.throws(() => weft.jvp((v: Tensor) => v, [x], [t([1])]), /tangent \[1\] for an argument of shape \[2\]/);
  });
});

test("vmap takes trees of axes for arguments and results", () => {
  const x = weft.tensor([
    [1, 2, 3],
    [4, 5, 6],
  ]);
  const [same, sums] = weft.vmap((a: weft.Tensor) => [a, a.sum()], { inAxes: 1, outAxes: [1, 0] })(x);
  assert.deepEqual(same.arraySync(), x.arraySync());
  assert.deepEqual(sums.arraySync(), [5, 7, 9]);
  const shift = (o: { x: weft.Tensor; by: weft.Tensor }): { moved: weft.Tensor; by: weft.Tensor } => ({
    moved: o.x.add(o.by),
    by: o.by.mul(2),
  });
  const options = { inAxes: [{ x: 0, by: null }], outAxes: { moved: -1, by: null } };
  const { moved, by } = weft.vmap(shift, options)({ x, by: weft.tensor([10, 20, 30]) });
  assert.deepEqual(moved.arraySync(), [
    [11, 14],
    [22, 25],
    [33, 36],
  ]);
  assert.deepEqual(by.arraySync(), [20, 40, 60]);
  const sum = (a: weft.Tensor): weft.Tensor => a.sum();
  assert.throws(() => weft.vmap(sum, { outAxes: null })(x), /a result differs between slices, and its outAxes is null/);
  assert.throws(() => weft.vmap(sum, { outAxes: [0] })(x), /vmap: outAxes is a number, null or a tree/);
  assert.throws(() => weft.vmap(sum, { inAxes: [[0]] })(x), /vmap: inAxes is a number, null or a tree/);
  assert.throws(() => weft.vmap(sum, { inAxes: [0.5] })(x), /vmap: inAxes holds 0.5, which is not an axis/);
});
