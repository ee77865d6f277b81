// Lane programs: one kernel for value and gradient of a batch of loops, the same values for every storage of states, sums
// over lanes, nested loops; and the golden values of the single-qubit ensemble.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { CompileOptions } from "../device/index.js";
import type { GraphFn } from "../graph/index.js";
import * as weft from "../index.js";
import { onEachDevice } from "../test/devices.js";
import { type AnyLaneProgram, type ScheduleOptions, scheduleFunction } from "./index.js";

type Tensor = weft.Tensor;
const c = (re: number, im = 0) => ({ re, im });

/** The single-qubit Lindblad ensemble with 2x2 density matrices as a user writes it. */
function singleQubit(dtype: "complex64" | "complex128", steps = 60) {
  const dt = 1 / steps;
  const matrix = (...x: { re: number; im: number }[]): Tensor =>
    weft
      .tensor(
        [
          [x[0], x[1]],
          [x[2], x[3]],
        ],
        { dtype },
      )
      .realize();
  const [o, l] = [c(0), c(1)];
  const sx = matrix(o, l, l, o);
  const sy = matrix(o, c(0, -1), c(0, 1), o);
  const sz = matrix(l, o, o, c(-1));
  const sm = matrix(o, l, o, o);
  const sp = matrix(o, o, l, o);
  const n = matrix(o, o, o, l);
  const start = matrix(l, o, o, o);
  const minusI = weft.tensor(c(0, -1), { dtype });
  const rhs = (rho: Tensor, h: Tensor, gd: Tensor, gr: Tensor): Tensor =>
    h
      .matmul(rho)
      .sub(rho.matmul(h))
      .mul(minusI)
      .add(
        sm
          .matmul(rho)
          .matmul(sp)
          .sub(n.matmul(rho).add(rho.matmul(n)).mul(0.5))
          .mul(gr),
      )
      .add(sz.matmul(rho).matmul(sz).sub(rho).mul(gd.mul(0.5)));
  return (u: Tensor, gd: Tensor, gr: Tensor): Tensor => {
    const [d, r] = [gd.cast(dtype), gr.cast(dtype)];
    const [rho] = weft.scan(
      (rho: Tensor, ut: Tensor): [Tensor, null] => {
        const z = ut.cast(dtype);
        const h = sx.mul(z.index(0)).add(sy.mul(z.index(1)));
        const k1 = rhs(rho, h, d, r);
        const k2 = rhs(rho.add(k1.mul(dt / 2)), h, d, r);
        const k3 = rhs(rho.add(k2.mul(dt / 2)), h, d, r);
        const k4 = rhs(rho.add(k3.mul(dt)), h, d, r);
        return [
          rho.add(
            k1
              .add(k2.mul(2))
              .add(k3.mul(2))
              .add(k4)
              .mul(dt / 6),
          ),
          null,
        ];
      },
      start,
      u,
    );
    return weft.real(rho.index(1, 1));
  };
}

/** ux = pi/2 (1 + 0.1 sin), uy = 0.2 cos over 60 segments. */
function testPulse(): number[][] {
  return Array.from({ length: 60 }, (_, k) => {
    const phase = (2 * Math.PI * k) / 60;
    return [(Math.PI / 2) * (1 + 0.1 * Math.sin(phase)), 0.2 * Math.cos(phase)];
  });
}

type Fn = (...x: Tensor[]) => Tensor | Tensor[];
const normal = (shape: number[], seed: number): Tensor => weft.randn(shape, { seed, dtype: "float64" });

/** The result of the reference device. */
function onReference<T>(body: () => T): T {
  const before = weft.session().device;
  weft.setDevice(new weft.ReferenceDevice());
  try {
    return body();
  } finally {
    weft.setDevice(before);
  }
}

/** A device that records what it compiles. */
class Recorder extends weft.ReferenceDevice {
  last: { fn: GraphFn; options: CompileOptions } | null = null;
  override compile(fn: GraphFn, options: CompileOptions = {}) {
    this.last = { fn, options };
    return super.compile(fn);
  }
}

/** The lane programs of a function's schedule on some device. */
function programsOf(make: () => { fn: Fn; args: Tensor[] }, lanes: ScheduleOptions["lanes"] = {}): AnyLaneProgram[] {
  return onReference(() => {
    const device = new Recorder();
    weft.setDevice(device);
    const { fn, args } = make();
    const inputs = args.map((a) => a.realize());
    weft.jit((...x: Tensor[]) => fn(...x))(...inputs);
    const { fn: graph, options } = device.last!;
    const schedule = scheduleFunction(graph, {
      parallelRows: 16,
      longReduction: 4096,
      lanes: { ...lanes, constants: options.constants ?? new Map() },
    });
    return schedule.steps.flatMap((step) => (step.kind === "lane" ? [step.program] : []));
  });
}

test("Hermitian states are stored as half of their elements, forward and backward", () => {
  const fidelity = (): { fn: Fn; args: Tensor[] } => {
    const one = singleQubit("complex64", 8);
    const loss = (...x: Tensor[]): Tensor => weft.vmap(one)(x[0], x[1], x[2]).mean();
    const fn: Fn = (...x) =>
      weft
        .valueAndGrad(loss)(...x)
        .flat() as Tensor[];
    return { fn, args: [weft.ones([4, 8, 2]), weft.full([4], 0.05), weft.full([4], 0.02)] };
  };
  const [program, ...others] = programsOf(fidelity);
  assert.equal(others.length, 0);
  assert.ok(program.form === "thread");
  const [forward, back] = program.counts;
  // A complex 2x2 matrix has eight numbers: two diagonals and one complex number remain.
  assert.deepEqual([forward.states, forward.history, back.states], [4, 4, 4]);
  assert.ok(forward.operations < 150, `${forward.operations} operations forwards`);
  assert.ok(back.operations < 340, `${back.operations} operations backwards`);
  assert.deepEqual([forward.loads, back.stores], [2, 2]);
  // With room for more than states the reverse step computes less.
  const [saving] = programsOf(fidelity, { savingLanes: 100 });
  assert.ok(saving.form === "thread");
  assert.ok(saving.counts[0].history > 4 && saving.counts[1].operations < back.operations - 60);
});

onEachDevice((_device, name) => {
  test("compensated summation is not optimized away", () => {
    // 1 + n tiny numbers, each below half a unit of the last place of 1.
    const kahan = (xs: Tensor): Tensor =>
      weft.scan(
        (c: { sum: Tensor; error: Tensor }, x: Tensor): [{ sum: Tensor; error: Tensor }, null] => {
          const y = x.sub(c.error);
          const t = c.sum.add(y);
          return [{ sum: t, error: t.sub(c.sum).sub(y) }, null];
        },
        { sum: weft.tensor(1), error: weft.tensor(0) },
        xs,
      )[0].sum;
    const sums = weft
      .jit((x: Tensor) => weft.vmap(kahan)(x))(weft.full([16, 4096], 2 ** -25))
      .dataSync();
    assert.ok(Math.abs(Number(sums[7]) - (1 + 4096 * 2 ** -25)) < 2e-7, String(sums[7]));
  });

  const lanesIn = (kernels: readonly string[]): string[] => kernels.filter((k) => k.startsWith("lanes_"));

  test("one problem whose loop ends by itself is no lane kernel if its step is large", () => {
    if (name === "reference") return;
    const run = (n: number) => (x: Tensor, m: Tensor) => {
      const start = { y: x, k: weft.full([], 0, { dtype: "float64" }) };
      const step = ({ y, k }: typeof start) => ({ y: weft.matmul(m, y.unsqueeze(1)).squeeze(1), k: k.add(1) });
      return weft.whileLoop(({ k }) => k.less(n), step, start, { maxTrips: 100 }).y.sum();
    };
    const kernels = (size: number): string => {
      const args = [weft.ones([size], { dtype: "float64" }), weft.eye(size, { dtype: "float64" })] as const;
      return weft
        .jit(run(5))
        .kernels(...args)
        .join(" ");
    };
    assert.match(kernels(3), /lanes_/);
    if (name === "cpu") assert.doesNotMatch(kernels(60), /lanes_/);
  });

  test("the ensemble gives the golden values with all gradients in one kernel and a sum", () => {
    const fidelity = singleQubit("complex128");
    const lanes = 3;
    const fn = weft.jit((u: Tensor, gd: Tensor, gr: Tensor) =>
      weft.valueAndGrad((...x: Tensor[]) => weft.vmap(fidelity)(x[0], x[1], x[2]).sum(), { argument: [0, 1, 2] })(
        u,
        gd,
        gr,
      ),
    );
    const pulse = testPulse();
    const u = weft.tensor([pulse, pulse, pulse], { dtype: "float64" });
    const gd = weft.full([lanes], 0.05, { dtype: "float64" });
    const gr = weft.full([lanes], 0.025, { dtype: "float64" });
    const [value, [du, dgd, dgr]] = fn(u, gd, gr) as [Tensor, Tensor[]];
    assert.ok(Math.abs(Number(value.dataSync()[0]) / lanes - 0.9778427990483176) < 1e-13);
    const g = du.dataSync() as Float64Array;
    const close = (got: number, want: number, digits: number): void =>
      assert.ok(Math.abs(got / want - 1) < digits, `${got} is not ${want}`);
    for (let lane = 0; lane < lanes; lane++) {
      const at = (k: number): number => g[lane * 120 + k];
      close(at(0), 6.943591e-5, 1e-6);
      close(at(1), -3.249383e-4, 1e-6);
      close(at(118), 3.231053e-4, 1e-6);
      close(at(119), 2.678405e-4, 1e-6);
      close(Math.hypot(...g.subarray(lane * 120, lane * 120 + 120)), 2.934092024e-3, 2e-9);
      close(Number(dgd.dataSync()[lane]), -0.2410146322, 1e-9);
      close(Number(dgr.dataSync()[lane]), -0.3876397128, 1e-9);
    }
    if (name === "reference") return;
    const kernels = fn.kernels(u, gd, gr);
    assert.deepEqual(lanesIn(kernels), ["lanes_3x60x2"]);
    assert.ok(kernels.length <= 2, kernels.join(" "));
  });

  test("states stored locally, in memory or rematerialized from checkpoints give the same values", () => {
    const step = (s: Tensor, x: Tensor): [Tensor, Tensor] => {
      const next = s.matmul(s.transpose()).mul(0.1).add(s.mul(x)).sin();
      return [next, next.sum()];
    };
    const loss = (s: Tensor, xs: Tensor): Tensor => {
      const [last, ys] = weft.scan(step, s, xs);
      return last.sum().add(ys.square().sum());
    };
    const s = weft.randn([37, 2, 2], { seed: 1, dtype: "float64" });
    const xs = weft.randn([37, 11], { seed: 2, dtype: "float64" });
    const results = ["local", "memory", "checkpoint"].map((policy) => {
      process.env.WEFT_LANE_HISTORY = policy;
      try {
        // A different constant makes a separate program, so that nothing is found in a cache.
        const offset = { local: 1, memory: 2, checkpoint: 3 }[policy]!;
        const fn = weft.jit((a: Tensor, b: Tensor) =>
          weft.vmap(weft.valueAndGrad((x: Tensor, y: Tensor) => loss(x, y).add(offset), { argument: [0, 1] }))(a, b),
        );
        const [value, [ds, dx]] = fn(s, xs) as [Tensor, Tensor[]];
        const kernels = name === "reference" ? ["lanes_37x11x2"] : fn.kernels(s, xs);
        assert.deepEqual(lanesIn(kernels), ["lanes_37x11x2"], policy);
        assert.ok(kernels.length <= 2, kernels.join(" "));
        return [value.sub(offset), ds, dx].map((t) => [...(t.dataSync() as Float64Array)]);
      } finally {
        delete process.env.WEFT_LANE_HISTORY;
      }
    });
    const near = (a: number[], b: number[]): boolean =>
      a.every((x, i) => Math.abs(x - b[i]) <= 1e-12 * (1 + Math.abs(x)));
    for (const other of results.slice(1)) assert.ok(other.every((values, i) => near(results[0][i], values)));
    const expected = onReference(() => {
      const [value, [ds, dx]] = weft.vmap(weft.valueAndGrad(loss, { argument: [0, 1] }))(
        weft.randn([37, 2, 2], { seed: 1, dtype: "float64" }),
        weft.randn([37, 11], { seed: 2, dtype: "float64" }),
      ) as [Tensor, Tensor[]];
      return [value, ds, dx].map((t) => [...(t.dataSync() as Float64Array)]);
    });
    assert.ok(expected.every((values, i) => near(values, results[0][i])));
  });

  test("gradients of values that all lanes share are sums over lanes, outside and inside the steps", () => {
    const loss = (w: Tensor, xs: Tensor, s0: Tensor): Tensor =>
      weft
        .vmap(
          (s: Tensor) => {
            const [last] = weft.scan(
              (q: Tensor, x: Tensor): [Tensor, null] => [w.matmul(q).mul(x).tanh(), null],
              s,
              xs,
            );
            return last.square().sum();
          },
          { inAxes: 0 },
        )(s0)
        .mean();
    const inputs = (): [Tensor, Tensor, Tensor] => [
      weft.randn([3, 3], { seed: 1, dtype: "float64" }),
      weft.randn([5], { seed: 2, dtype: "float64" }),
      weft.randn([40, 3, 1], { seed: 3, dtype: "float64" }),
    ];
    const fn = weft.jit((...x: Tensor[]) => weft.valueAndGrad(loss, { argument: [0, 1, 2] })(x[0], x[1], x[2]));
    const flat = ([value, grads]: [Tensor, Tensor[]]): number[] =>
      [value, ...grads].flatMap((t) => [...(t.dataSync() as Float64Array)]);
    const got = flat(fn(...inputs()) as [Tensor, Tensor[]]);
    const want = onReference(() =>
      flat(weft.valueAndGrad(loss, { argument: [0, 1, 2] })(...inputs()) as [Tensor, Tensor[]]),
    );
    for (const [i, x] of want.entries()) assert.ok(Math.abs(x - got[i]) < 1e-12, `${i}: ${got[i]} is not ${x}`);
    if (name === "reference") return;
    const kernels = fn.kernels(...inputs());
    assert.deepEqual(lanesIn(kernels), ["lanes_40x5x2"]);
    assert.ok(kernels.length <= 4, kernels.join(" "));
  });

  /** Contents of a step: each program must be one lane kernel (and sums) and agree with the reference device. */
  const steps: Record<string, { lanes: string; most: number; make: () => { fn: Fn; args: Tensor[] } }> = {
    "random numbers in a step": {
      lanes: "lanes_40x6",
      most: 3,
      make: () => ({
        fn: (s, keys) =>
          weft.vmap((q: Tensor, k: Tensor) =>
            weft.scan(
              (z: Tensor, key: Tensor): [Tensor, Tensor] => {
                const noise = weft.randn([2], { key, dtype: "float64" });
                return [z.mul(0.5).add(noise), noise.sum()];
              },
              q,
              k,
            ),
          )(s, keys) as Tensor[],
        args: [normal([20, 2], 1), weft.splitKey(weft.tensor([7, 9], { dtype: "int32" }), 120).reshape([20, 6, 2])],
      }),
    },
    "a table that the step chooses from, and a scatter": {
      lanes: "lanes_33x5",
      most: 1,
      make: () => ({
        fn: (s, xs) =>
          weft.vmap((q: Tensor, x: Tensor) =>
            weft.scan(
              (z: Tensor, at: Tensor): [Tensor, Tensor] => {
                const chosen = weft.take(z, at.reshape([1]), 0);
                return [weft.scatterAdd(z.mul(0.9), at.reshape([1]), chosen.mul(0.5), 0), chosen.sum()];
              },
              q,
              x,
            ),
          )(s, xs) as Tensor[],
        args: [normal([33, 4], 2), weft.randint(0, 4, [33, 5], { seed: 3 })],
      }),
    },
    "choices, integers and a counter that all lanes share": {
      lanes: "lanes_40x9",
      most: 1,
      make: () => ({
        fn: (s) =>
          weft.vmap((q: Tensor) => {
            const [last] = weft.scan(
              (c: { z: Tensor; n: Tensor }): [{ z: Tensor; n: Tensor }, null] => [
                { z: weft.where(c.z.greater(0), c.z.mul(0.5).sub(c.n.cast("float64")), c.z.neg()), n: c.n.add(1) },
                null,
              ],
              { z: q, n: weft.tensor(0, { dtype: "int32" }) },
              null,
              { length: 9 },
            );
            return last.z;
          })(s),
        args: [normal([40], 4)],
      }),
    },
    "a loop inside a step, with gradients": {
      lanes: "lanes_36x4x5",
      most: 3,
      make: () => ({
        fn: (s, xs) =>
          weft.vmap(
            weft.grad((q: Tensor, x: Tensor) => {
              const [last] = weft.scan(
                (z: Tensor, v: Tensor): [Tensor, null] => [
                  weft.scan((y: Tensor): [Tensor, null] => [y.mul(v).sin(), null], z, null, { length: 3 })[0],
                  null,
                ],
                q,
                x,
              );
              return last.sum();
            }),
          )(s, xs),
        args: [normal([18, 2], 5), normal([18, 4], 6)],
      }),
    },
    "inputs that are clipped on the way in, and their gradients on the way out": {
      lanes: "lanes_24x6x2",
      most: 1,
      make: () => ({
        fn: (s, xs) =>
          weft.vmap(
            weft.grad(
              (x: Tensor, q: Tensor) =>
                weft.scan(
                  (z: Tensor, v: Tensor): [Tensor, null] => [z.mul(0.7).add(v).sin(), null],
                  q,
                  x.clip(-0.5, 0.5),
                )[0],
            ),
          )(xs, s),
        args: [normal([24], 10), normal([24, 6], 11)],
      }),
    },
    "complex128, saved states and xs that all lanes share": {
      lanes: "lanes_150x7",
      most: 1,
      make: () => ({
        fn: (re, im, xs) =>
          weft.vmap(
            (a: Tensor, b: Tensor) =>
              weft.scan(
                (z: Tensor, v: Tensor): [Tensor, Tensor] => {
                  const next = z.mul(weft.complex(weft.cos(v), weft.sin(v)));
                  return [next, weft.abs(next)];
                },
                weft.complex(a, b),
                xs,
              )[1] as Tensor,
            { inAxes: 0 },
          )(re, im),
        args: [normal([50, 3], 7), normal([50, 3], 8), normal([7], 9)],
      }),
    },
  };
  for (const [title, { lanes, most, make }] of Object.entries(steps))
    test(`in a step: ${title}`, () => {
      const numbers = (result: Tensor | Tensor[]): number[] =>
        (Array.isArray(result) ? result : [result]).flatMap((t) =>
          Array.from(t.dataSync() as ArrayLike<number>, Number),
        );
      const { fn, args } = make();
      const jitted = weft.jit((...x: Tensor[]) => fn(...x));
      const got = numbers(jitted(...args) as Tensor);
      const want = onReference(() => {
        const again = make();
        return numbers(again.fn(...again.args));
      });
      assert.equal(got.length, want.length);
      for (const [i, x] of want.entries())
        assert.ok(Math.abs(x - got[i]) <= 1e-12 * (1 + Math.abs(x)), `${i}: ${got[i]} is not ${x}`);
      if (name === "reference") return;
      const kernels = jitted.kernels(...args);
      assert.deepEqual(lanesIn(kernels), [lanes], kernels.join(" "));
      assert.ok(kernels.length <= most, kernels.join(" "));
    });

  test("a float32 ensemble agrees with the golden value", () => {
    const fidelity = singleQubit("complex64");
    const f = weft.jit((u: Tensor, g: Tensor) => weft.vmap(fidelity)(u, g, g.mul(0.5)));
    const u = weft.full([33, 60, 2], 0).add(weft.tensor([Math.PI / 2, 0]));
    const [first] = f(u, weft.full([33], 0.05)).dataSync() as Float32Array;
    // Constant pi pulse, RK4 with 60 steps: 1.1e-9 from the exact value, and float32.
    assert.ok(Math.abs(first - 0.9784413379) < 2e-6, String(first));
  });
});
