// scan and its gradients: directions, captured constants, nesting, integer carries, second derivatives, empty loops.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { residual } from "../tensor/index.js";
import type { Host } from "./cases/index.js";
import { Source } from "./cases/index.js";
import { assertClose } from "./compare.js";
import { checkDerivatives, gradientPoint, type Point } from "./derivatives.js";
import { onEachDevice } from "./devices.js";

const f64 = { dtype: "float64" } as const;

/** The loop by hand: what scan must agree with. */
function unrolled(
  step: (c: Tensor, x: Tensor) => [Tensor, Tensor],
  init: Tensor,
  xs: Tensor,
  reverse = false,
): [Tensor, Tensor] {
  let carry = init;
  const ys: Tensor[] = [];
  const n = xs.shape[0];
  for (let i = 0; i < n; i++) {
    const at = reverse ? n - 1 - i : i;
    const [next, y] = step(carry, xs.index(at));
    carry = next;
    ys[at] = y;
  }
  return [carry, weft.stack(ys)];
}

const point = (
  name: string,
  shapes: number[][],
  fn: Point["fn"],
  dtype: "float64" | "complex128" = "float64",
): Point => {
  const source = new Source(dtype, name);
  const inputs: Host[] = shapes.map((shape) => source.between(-1, 1, shape));
  return { name, fn, inputs, wrt: inputs.map((_, i) => i) };
};

function checkBoth(p: Point): void {
  assert.equal(checkDerivatives(p).join("\n"), "");
  assert.equal(checkDerivatives(gradientPoint(p), 1e-5, 1e-5).join("\n"), "");
}

onEachDevice(() => {
  for (const reverse of [false, true])
    test(`values and gradients agree with the loop by hand, reverse ${reverse}`, () => {
      const [w, init, xs] = [
        weft.randn([3, 3], { seed: 1, ...f64 }),
        weft.randn([3], { seed: 2, ...f64 }),
        weft.randn([5, 3], { seed: 3, ...f64 }),
      ];
      const step =
        (p: Tensor) =>
        (c: Tensor, x: Tensor): [Tensor, Tensor] => {
          const next = p.matmul(c).add(x).tanh();
          return [next, next.mul(x).sum()];
        };
      const loss = (result: [Tensor, Tensor]) => result[0].square().sum().add(result[1].sin().sum());
      const looped = (p: Tensor, c: Tensor, x: Tensor) => loss(weft.scan(step(p), c, x, { reverse }));
      const byHand = (p: Tensor, c: Tensor, x: Tensor) => loss(unrolled(step(p), c, x, reverse));
      const [a, ga] = weft.valueAndGrad(looped, { argument: [0, 1, 2] })(w, init, xs);
      const [b, gb] = weft.valueAndGrad(byHand, { argument: [0, 1, 2] })(w, init, xs);
      assertClose(a, b, { rtol: 1e-12 });
      ga.forEach((g, i) => {
        assertClose(g, gb[i], { rtol: 1e-11, name: `gradient ${i}` });
      });
    });

  for (const outer of [1, 2])
    test(`gradient through a loop in a loop of ${outer} steps, compiled`, () => {
      const loss = (rate: Tensor): Tensor => {
        const inner = (c: Tensor): Tensor =>
          weft.scan((y: Tensor): [Tensor, []] => [y.add(y.mul(rate).mul(0.1)), []], c, [], { length: 3 })[0];
        return weft.scan((c: Tensor): [Tensor, []] => [inner(c), []], weft.tensor(1, f64), [], { length: outer })[0];
      };
      const [value, g] = weft.jit((r: Tensor) => weft.valueAndGrad(loss)(r))(weft.tensor(0.7, f64));
      const n = 3 * outer;
      assertClose(value, weft.tensor(1.07 ** n, f64), { rtol: 1e-13 });
      assertClose(g, weft.tensor(0.1 * n * 1.07 ** (n - 1), f64), { rtol: 1e-13 });
    });

  test("first and second derivatives, with constants captured", () => {
    checkBoth(
      point("captured", [[2, 2], [2], [4, 2]], (w, init, xs) => {
        const twice = w.mul(2);
        const [c, ys] = weft.scan(
          (carry: Tensor, x: Tensor) => [twice.matmul(carry).add(x).sin(), carry.mul(w.index(0))],
          init,
          xs,
        );
        return [c, ys];
      }),
    );
  });

  test("reverse direction, several carries and results, a carry that passes through", () => {
    checkBoth(
      point("several", [[2], [3], [4, 2], [4, 3]], (a, b, xs, zs) => {
        const [last, ys] = weft.scan(
          ({ p, q, still }: Record<string, Tensor>, [x, z]: Tensor[]) => [
            { p: p.mul(x).add(still), q: q.mul(z).sin().add(p.sum()), still },
            { sum: q.sum(), x },
          ],
          { p: a, q: b, still: a.mul(0.5) },
          [xs, zs],
          { reverse: true },
        );
        return [last.p, last.q, last.still, ys.sum, ys.x];
      }),
    );
  });

  test("complex carries", () => {
    checkBoth(
      point(
        "complex",
        [[2, 2], [2], [3, 2]],
        (w, init, xs) => {
          const [c, ys] = weft.scan(
            (carry: Tensor, x: Tensor) => [w.matmul(carry).mul(0.5).add(x.conj()), carry.abs()],
            init,
            xs,
          );
          return [c, ys];
        },
        "complex128",
      ),
    );
  });

  test("nested loops", () => {
    checkBoth(
      point("nested", [[2], [3, 2], [2]], (w, xs, init) => {
        const inner = (c: Tensor, x: Tensor): Tensor =>
          weft.scan((d: Tensor, k: Tensor) => [d.mul(w).add(x.mul(k)).sin(), null], c, weft.tensor([0.5, 1.5], f64))[0];
        const [c, ys] = weft.scan((carry: Tensor, x: Tensor) => [inner(carry, x), inner(x, carry).sum()], init, xs);
        return [c, ys];
      }),
    );
  });

  test("integer carries count while others are differentiated", () => {
    const p = point("counting", [[], [5]], (init, xs) => {
      const [[, c], ys] = weft.scan(
        ([i, carry]: Tensor[], x: Tensor) => [[i.add(1), carry.mul(x).add(i.cast("float64"))], carry.mul(i)],
        [weft.zeros([], { dtype: "int32" }), init],
        xs,
      );
      return [c, ys];
    });
    checkBoth(p);
    const [[count]] = weft.scan(([i]: Tensor[]) => [[i.add(2)], null], [weft.zeros([], { dtype: "int32" })], null, {
      length: 7,
    });
    assert.equal(count.itemSync(), 14);
    assert.equal(count.dtype, "int32");
  });

  test("gathers by a counter inside a loop", () => {
    checkBoth(
      point("gathering", [[6], []], (table, init) => {
        const [[, c]] = weft.scan(
          ([i, carry]: Tensor[]) => [[i.add(1), carry.mul(0.5).add(table.take(i.mul(2).mod(5), 0))], null],
          [weft.zeros([], { dtype: "int32" }), init],
          null,
          { length: 6 },
        );
        return c;
      }),
    );
  });

  test("one step, and none", () => {
    checkBoth(
      point("one step", [[2], [1, 2]], (init, xs) => {
        const [c, ys] = weft.scan((carry: Tensor, x: Tensor) => [carry.mul(x), carry], init, xs);
        return [c, ys];
      }),
    );
    const [c, ys] = weft.scan(
      (carry: Tensor, x: Tensor) => [carry.mul(x), carry],
      weft.ones([2], f64),
      weft.zeros([0, 2], f64),
    );
    assertClose(c, [1, 1]);
    assert.deepEqual(ys.shape, [0, 2]);
    const g = weft.grad((init: Tensor) =>
      weft.scan((s: Tensor, x: Tensor) => [s.mul(x), null], init, weft.zeros([0, 2], f64))[0].sum(),
    );
    assertClose(g(weft.ones([2], f64)), [1, 1]);
  });

  test("a gradient through one result only, and through none", () => {
    const xs = weft.randn([4], { seed: 5, ...f64 });
    const run = (w: Tensor) => weft.scan((c: Tensor, x: Tensor) => [c.add(x), [x.mul(w), x]], weft.zeros([], f64), xs);
    assertClose(weft.grad((w: Tensor) => run(w)[1][0].sum())(weft.tensor(2, f64)), xs.sum());
    assertClose(weft.grad((w: Tensor) => run(w)[0])(weft.tensor(2, f64)), 0);
    assertClose(weft.grad((w: Tensor) => run(w)[1][1].sum())(weft.tensor(2, f64)), 0);
  });

  test("value and gradient share one loop", () => {
    const xs = weft.randn([6], { seed: 6, ...f64 });
    const loss = (w: Tensor) =>
      weft.scan((c: Tensor, x: Tensor) => [c.mul(w).add(x).sin(), null], weft.zeros([], f64), xs)[0];
    const text = weft.debug.graph((w: Tensor) => weft.valueAndGrad(loss)(w), weft.tensor(0.5, f64));
    assert.equal(text.match(/= scan\(/g)?.length, 2);
  });

  test("a residual is stored, not computed again, with the same first and second derivatives", () => {
    const m = weft.tensor(
      Array.from({ length: 64 * 64 }, (_, k) => Math.sin(k) / 16),
      { ...f64, shape: [64, 64] },
    );
    const loss = (mark: (x: Tensor) => Tensor) => (x: Tensor) => {
      const step = (c: Tensor): [Tensor, null] => {
        const inner = mark(weft.matmul(m, c));
        return [c.add(weft.matmul(m, inner.square())), null];
      };
      return weft.scan(step, x, null, { length: 3 })[0].sum();
    };
    const x = weft.tensor(
      Array.from({ length: 64 }, (_, k) => Math.cos(k)),
      { ...f64, shape: [64, 1] },
    );
    const slopes = [residual, (y: Tensor) => y].map((mark) => weft.jit((y: Tensor) => weft.grad(loss(mark))(y)));
    const [got, want] = slopes.map((f) => f(x).dataSync() as Float64Array);
    assert.ok(want.some((v) => Math.abs(v) > 1e-9));
    got.forEach((v, k) => void assert.ok(Math.abs(v - want[k]) <= 1e-12 * Math.abs(want[k]) + 1e-14, `slope ${k}`));
    const again = [residual, (y: Tensor) => y].map(
      (mark) =>
        weft
          .grad((y: Tensor) => weft.grad(loss(mark))(y).square().sum())(x)
          .dataSync() as Float64Array,
    );
    again[0].forEach((v, k) => void assert.ok(Math.abs(v - again[1][k]) <= 1e-12 * Math.abs(v) + 1e-14, `second ${k}`));
    // Without the mark, the reverse step has the first product once more.
    const count = (k: number): number =>
      slopes[k].kernels(x).reduce((n, name) => n + Number(/^scan_\d+x(\d+)$/.exec(name)?.[1] ?? 0), 0);
    if (count(1) > 0) assert.ok(count(0) < count(1), `${count(0)} and ${count(1)} kernels`);
    // Three steps of thousands of products are not unrolled for one problem: the compiler would take half a minute.
    const unrolled = slopes.flatMap((f) => f.kernels(x)).filter((name) => name.startsWith("lanes_1x"));
    assert.deepEqual(unrolled, []);
  });

  test("hessians through a loop are symmetric", () => {
    const xs = weft.randn([5, 2], { seed: 7, ...f64 });
    const loss = (w: Tensor) =>
      weft.scan((c: Tensor, x: Tensor) => [c.mul(w).add(x).tanh(), null], weft.zeros([2], f64), xs)[0].prod();
    const w = weft.tensor([0.3, -0.7], f64);
    const hessian = weft.vmap((t: Tensor) => weft.jvp(weft.grad(loss), [w], [t])[1])(weft.eye(2, f64));
    assertClose(hessian, hessian.T, { rtol: 1e-12 });
    const reverse = weft.vmap((t: Tensor) => weft.grad((v: Tensor) => weft.grad(loss)(v).mul(t).sum())(w))(
      weft.eye(2, f64),
    );
    assertClose(hessian, reverse, { rtol: 1e-11 });
  });

  test("inside jit, with a fresh random number every step", () => {
    const walk = weft.jit(
      (start: Tensor) =>
        weft.scan(
          (c: Tensor) => {
            const next = c.add(weft.randn([], f64));
            return [next, next.sub(c)];
          },
          start,
          null,
          { length: 8 },
        )[1],
    );
    weft.manualSeed(3);
    const first = walk(weft.zeros([], f64)).dataSync();
    assert.equal(new Set(first as Float64Array).size, 8);
    const second = walk(weft.zeros([], f64)).dataSync();
    assert.notDeepEqual(first, second);
    weft.manualSeed(3);
    assert.deepEqual(walk(weft.zeros([], f64)).dataSync(), first);
  });

  test("wrong steps are refused where scan is called", () => {
    const x = weft.zeros([3]);
    const s = weft.zeros([]);
    assert.throws(() => weft.scan((c: Tensor) => c as never, s, x), /the step must return \[carry, y\]/);
    assert.throws(
      () => weft.scan((c: Tensor) => [c.unsqueeze(0), null], s, x),
      /carry 0 is float32 \[\] at the start and float32 \[1\] after a step/,
    );
    assert.throws(() => weft.scan((c: Tensor) => [c.cast("float64"), null], s, x), /they must agree/);
    assert.throws(() => weft.scan(([c]: Tensor[]) => [[c, c], null], [s], x), /1 tensors at the start and 2 after/);
    assert.throws(
      () =>
        weft.scan(([c, n]: [Tensor, number]) => [[c, n + 1] as [Tensor, number], null], [s, 0] as [Tensor, number], x),
      /carry numbers as tensors/,
    );
    assert.throws(() => weft.scan((c: Tensor) => [c, null], s, [x, s]), /xs holds a scalar/);
    assert.throws(
      () => weft.scan((c: Tensor) => [c, null], s, null, { length: 1.5 }),
      /scan: length is a whole number of at least 0, got 1.5/,
    );
    assert.throws(() => weft.scan((c: Tensor) => [c, null], s, null), /give xs, or options.length/);
    assert.throws(() => weft.scan((c: Tensor) => [c, null], s, [x, weft.zeros([4])]), /differ: 3, 4/);
  });
});
