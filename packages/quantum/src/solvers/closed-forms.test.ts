// Every integration method with every gradient method against closed forms of states and gradients, and measured orders of
// convergence.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { ReferenceDevice } from "@weft/core/internal/device";
import { useDevice } from "@weft/core/internal/runtime";
import type { Tensor } from "@weft/core/internal/tensor";
import * as weft from "@weft/core/internal/tensor";
import { onEachDevice } from "@weft/testing/devices";
import {
  basisState,
  coherentState,
  densityOf,
  destroy,
  numberOperator,
  sigmaMinus,
  sigmaX,
  sigmaY,
  sigmaZ,
} from "../operators/index.js";
import {
  dopri8,
  type GradientKind,
  type Hamiltonian,
  hamiltonian,
  lindblad,
  type Method,
  type MethodName,
  propagator,
  schrodinger,
  sdirk4,
  trotter2,
  tsit5,
} from "./index.js";

const f64 = { dtype: "float64" } as const;
const scalar = (x: number): Tensor => weft.tensor(x, f64);
const near = (got: number, want: number, tolerance: number, name: string): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);

// A qubit in a rotating field, from |0>: Rabi's formula. The drives do not commute with the static term.
const [omega0, omega, duration] = [2.1, 1.6, 3];
const rabi = {
  drives: (size: Tensor) => (t: Tensor) => weft.stack([t.mul(omega).cos(), t.mul(omega).sin()], 1).mul(size.mul(0.5)),
  probability: (size: number) => {
    const w = Math.hypot(size, omega0 - omega);
    return ((size / w) * Math.sin((w * duration) / 2)) ** 2;
  },
};
/** Adaptive methods choose their own steps. */
const stepsOf = (method: MethodName | Method, steps: number): number | undefined =>
  typeof method === "string" || method.tolerance === undefined ? steps : undefined;

const rabiRun = (method: MethodName | Method, gradient: GradientKind, steps: number) => (size: Tensor) => {
  // The field rotates as exp(-i omega t) |0><1|; the sign of sigma_z puts |1> above |0>.
  const h = hamiltonian({
    static: sigmaZ.scale(-omega0 / 2),
    drives: [sigmaX, sigmaY.scale(-1)],
    amplitudes: rabi.drives(size),
  });
  const { final } = schrodinger(h, basisState(2, 0), { duration, steps: stepsOf(method, steps), method, gradient });
  return final.index(1).abs().square();
};
const slope = (f: (x: number) => number, x: number): number => (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;

// A damped cavity: alpha(t) = alpha0 exp(-(i delta + kappa/2) t).
const cavity = { delta: 2 * Math.PI, kappa: 2 * Math.PI, alpha: 0.5, end: 0.3, n: 8 };
const cavityRun = (method: MethodName | Method, gradient: GradientKind, steps: number) => (kappa: Tensor) => {
  const a = destroy(cavity.n);
  const h = hamiltonian({ static: numberOperator(cavity.n).scale(cavity.delta) });
  const run = lindblad(
    { hamiltonian: h, jumps: [{ operator: a, rate: kappa }] },
    densityOf(coherentState(cavity.n, cavity.alpha)),
    {
      duration: cavity.end,
      steps: stepsOf(method, steps),
      method,
      gradient,
      observables: { x: a.add(a.adjoint()).scale(0.5) },
    },
  );
  return run.expectations.x.index(0);
};
const cavityX = (kappa: number): number =>
  cavity.alpha * Math.cos(cavity.delta * cavity.end) * Math.exp((-kappa * cavity.end) / 2);

// A qubit driven along the axis of its own noise: <z> = exp(-2 g t) cos(2 eps / w sin w t).
const driven = { eps: 3, w: 10, g: 1, end: 0.7 };
const drivenRun = (method: MethodName | Method, gradient: GradientKind, steps: number) => (eps: Tensor) => {
  const h = hamiltonian({
    static: sigmaX.scale(0),
    drives: [sigmaX],
    amplitudes: (t) => t.mul(driven.w).cos().mul(eps).unsqueeze(1),
  });
  const jumps = [{ operator: sigmaX, rate: driven.g }];
  const run = lindblad({ hamiltonian: h, jumps }, densityOf(basisState(2, 0)), {
    duration: driven.end,
    steps: stepsOf(method, steps),
    method,
    gradient,
    observables: { z: sigmaZ },
  });
  return run.expectations.z.index(0);
};
const drivenZ = (eps: number): number =>
  Math.exp(-2 * driven.g * driven.end) * Math.cos(((2 * eps) / driven.w) * Math.sin(driven.w * driven.end));

interface Row {
  method: MethodName | Method;
  gradients: GradientKind[];
  steps: number;
  tolerance: number;
  /** Order measured between `steps` and `2 * steps`; null for adaptive and exact methods. */
  order: number | null;
  /** Also run on compiled devices; other rows give them the same kernels. */
  compiled?: boolean;
}
const every: GradientKind[] = ["stored", "checkpointed", "reversal"];
const withoutReversal: GradientKind[] = ["stored", "checkpointed"];
const adaptive = tsit5({ relative: 1e-9, absolute: 1e-10, maxSteps: 240 });
const stiff = sdirk4({ relative: 1e-8, absolute: 1e-9 });
const highOrder = dopri8({ relative: 1e-11, absolute: 1e-12, maxSteps: 60 });

const suites: { name: string; run: typeof rabiRun; at: number; exact: (x: number) => number; rows: Row[] }[] = [
  {
    name: "Rabi in a rotating field",
    run: rabiRun,
    at: 0.9,
    exact: rabi.probability,
    rows: [
      { method: "trotter2", gradients: every, steps: 24, tolerance: 2e-3, order: 2, compiled: true },
      { method: trotter2({ splitting: "terms" }), gradients: ["reversal"], steps: 24, tolerance: 2e-3, order: 2 },
      { method: "trotter4", gradients: every, steps: 16, tolerance: 1e-5, order: 4 },
      { method: "pwcExpm", gradients: every, steps: 24, tolerance: 3e-3, order: 2, compiled: true },
      { method: "rk4", gradients: withoutReversal, steps: 24, tolerance: 1e-4, order: 4 },
      { method: "euler", gradients: withoutReversal, steps: 400, tolerance: 4e-2, order: 1 },
      { method: "krylov", gradients: withoutReversal, steps: 6, tolerance: 1e-3, order: 4, compiled: true },
      { method: adaptive, gradients: withoutReversal, steps: 1, tolerance: 1e-7, order: null },
      { method: highOrder, gradients: withoutReversal, steps: 1, tolerance: 1e-9, order: null },
    ],
  },
  {
    name: "damped cavity",
    run: cavityRun,
    at: cavity.kappa,
    exact: cavityX,
    rows: [
      { method: "rk4", gradients: withoutReversal, steps: 16, tolerance: 1e-3, order: 4, compiled: true },
      { method: "pwcExpm", gradients: withoutReversal, steps: 2, tolerance: 1e-6, order: null },
      { method: "cptp2", gradients: withoutReversal, steps: 3, tolerance: 1e-6, order: null },
      { method: "krylov", gradients: withoutReversal, steps: 2, tolerance: 1e-6, order: null, compiled: true },
      { method: "rouchon1", gradients: withoutReversal, steps: 200, tolerance: 2e-2, order: 1 },
      { method: "rouchon2", gradients: withoutReversal, steps: 40, tolerance: 1e-3, order: 2, compiled: true },
      { method: "rouchon3", gradients: withoutReversal, steps: 20, tolerance: 1e-3, order: 3 },
      { method: stiff, gradients: withoutReversal, steps: 1, tolerance: 1e-6, order: null, compiled: true },
      { method: "euler", gradients: withoutReversal, steps: 200, tolerance: 2e-2, order: 1 },
    ],
  },
  {
    name: "qubit driven along its noise",
    run: drivenRun,
    at: driven.eps,
    exact: drivenZ,
    rows: [
      { method: "rk4", gradients: withoutReversal, steps: 20, tolerance: 1e-4, order: 4 },
      { method: "pwcExpm", gradients: withoutReversal, steps: 20, tolerance: 5e-3, order: 2 },
      { method: "cptp2", gradients: withoutReversal, steps: 20, tolerance: 5e-3, order: 2, compiled: true },
      { method: "euler", gradients: withoutReversal, steps: 200, tolerance: 3e-2, order: 1 },
      { method: "krylov", gradients: withoutReversal, steps: 8, tolerance: 1e-3, order: 4 },
      { method: "rouchon2", gradients: withoutReversal, steps: 20, tolerance: 2e-2, order: 2 },
      { method: "rouchon3", gradients: withoutReversal, steps: 20, tolerance: 3e-3, order: 3, compiled: true },
      { method: stiff, gradients: withoutReversal, steps: 1, tolerance: 1e-5, order: null },
      {
        method: adaptive,
        gradients: ["stored", "checkpointed"],
        steps: 1,
        tolerance: 1e-7,
        order: null,
        compiled: true,
      },
    ],
  },
];

const nameOf = (m: MethodName | Method): string =>
  typeof m === "string" ? m : `${m.name} ${m.splitting ?? ""}`.trim();

onEachDevice((_, device) => {
  for (const { name, run, at, exact, rows } of suites)
    for (const { method, gradients, steps, tolerance, order, compiled = false } of rows)
      for (const gradient of device === "reference" ? gradients : compiled ? gradients.slice(-1) : [])
        test(`${name}: ${nameOf(method)}, ${gradient}`, () => {
          const both = (n: number): [number, number] => {
            const [value, g] = weft.valueAndGrad(run(method, gradient, n))(scalar(at));
            return [value.itemSync(), g.itemSync()];
          };
          const [value, g] = both(steps);
          near(value, exact(at), tolerance, "value");
          near(g, slope(exact, at), 6 * tolerance, "gradient");
          if (order === null || device !== "reference" || gradient !== gradients[0]) return;
          const [finer] = both(2 * steps);
          const measured = Math.log2(Math.abs(value - exact(at)) / Math.abs(finer - exact(at)));
          near(measured, order, 0.35, "order");
        });

  test("populations decay with T1 and coherences with T2 at every saved time", () => {
    const [gamma1, gammaPhi, end] = [0.4, 0.15, 2];
    const plus = densityOf(basisState(2, 0).add(basisState(2, 1)).scale(Math.SQRT1_2));
    const jumps = [
      { operator: sigmaMinus, rate: gamma1 },
      { operator: sigmaZ.scale(Math.SQRT1_2), rate: gammaPhi },
    ];
    const run = lindblad({ hamiltonian: hamiltonian({ static: sigmaZ.scale(0) }), jumps }, plus, {
      duration: end,
      steps: 40,
      saves: 4,
      observables: { x: sigmaX, z: sigmaZ },
    });
    const times = run.times.dataSync() as Float64Array;
    const [x, z] = [run.expectations.x.dataSync(), run.expectations.z.dataSync()];
    assert.deepEqual(Array.from(times), [0.5, 1, 1.5, 2]);
    for (let k = 0; k < 4; k++) {
      near(Number(x[k]), Math.exp(-(gamma1 / 2 + gammaPhi) * Number(times[k])), 1e-7, "coherence");
      near(Number(z[k]), 1 - Math.exp(-gamma1 * Number(times[k])), 1e-7, "population");
    }
  });

  test("the gradient with respect to the duration equals the closed form", () => {
    const f = (t: Tensor): Tensor => {
      const h = hamiltonian({ static: sigmaZ.scale(-0.5), drives: [sigmaX], amplitudes: [[0.4]] });
      return schrodinger(h, basisState(2, 0), { duration: t, steps: 20, method: "pwcExpm" })
        .final.index(1)
        .abs()
        .square();
    };
    // H = -z/2 + 0.4 x: precession at W = 2 sqrt(0.25 + 0.16)
    const w = 2 * Math.hypot(0.5, 0.4);
    const [value, g] = weft.valueAndGrad(f)(scalar(1.3));
    near(value.itemSync(), (0.8 / w) ** 2 * Math.sin((w * 1.3) / 2) ** 2, 1e-12, "value");
    near(g.itemSync(), ((0.8 / w) ** 2 * Math.sin(w * 1.3) * w) / 2, 1e-12, "gradient");
  });
});

describe("propagators", () => {
  before(() => void useDevice(new ReferenceDevice()));
  const h = (size: Tensor) =>
    hamiltonian({
      static: sigmaZ.scale(-omega0 / 2),
      drives: [sigmaX, sigmaY.scale(-1)],
      amplitudes: rabi.drives(size),
    });
  test("pieces of time in parallel give the same propagator and gradient as a sequential evolution", () => {
    type Angles = NonNullable<Parameters<typeof propagator>[1]["angles"]>;
    const loss =
      (chunks: number, steps = 23, angles?: Angles) =>
      (size: Tensor) => {
        const u = propagator(h(size), { duration, steps, chunks, angles }).final;
        return u.index(0, 1).real().mul(0.3).add(u.index(1, 1).imag());
      };
    const [one, g1] = weft.valueAndGrad(loss(1))(scalar(0.9));
    for (const chunks of [2, 5, 23]) {
      const [value, g] = weft.valueAndGrad(loss(chunks))(scalar(0.9));
      near(value.itemSync(), one.itemSync(), 1e-13, `${chunks} pieces`);
      near(g.itemSync(), g1.itemSync(), 1e-12, `gradient with ${chunks} pieces`);
    }
    // Pieces of unequal length, with angles of single steps, of blocks of 21 steps, and of all steps.
    const [many, gMany] = weft.valueAndGrad(loss(1, 2207))(scalar(0.9));
    for (const angles of ["steps", "blocks", "tables"] as const) {
      const [value, g] = weft.valueAndGrad(loss(100, 2207, angles))(scalar(0.9));
      near(value.itemSync(), many.itemSync(), 1e-12, angles);
      near(g.itemSync(), gMany.itemSync(), 1e-11, `gradient, ${angles}`);
    }
  });
  test("without drives every gradient method and number of pieces gives the free evolution", () => {
    const free = (w: Tensor): Hamiltonian => ({
      dims: [2],
      static: [{ sites: [0], matrix: sigmaZ.tensor("complex128").mul(w) }],
      drives: [],
      amplitudes: null,
    });
    for (const gradient of ["reversal", "stored", "checkpointed"] as const)
      for (const chunks of [undefined, 1, 4]) {
        const [value, g] = weft.valueAndGrad((w: Tensor) =>
          propagator(free(w), { duration: 2, steps: 640, gradient, chunks }).final.index(0, 0).imag(),
        )(scalar(0.7));
        near(value.itemSync(), -Math.sin(1.4), 1e-12, `${gradient}, ${chunks} pieces`);
        near(g.itemSync(), -2 * Math.cos(1.4), 1e-12, `gradient by ${gradient}, ${chunks} pieces`);
      }
    const { states } = schrodinger(free(scalar(0.7)), basisState(2, 0), { duration: 2, steps: 8, saves: 4 });
    near(states!.index(1, 0).imag().itemSync(), -Math.sin(0.7), 1e-12, "half way");
  });
  test("dense and gates strategies give the same propagator and gradient for both orders and with pieces of time", () => {
    const chain = (size: Tensor): Hamiltonian => ({
      dims: [2, 3],
      static: [
        { sites: [0], matrix: sigmaZ },
        { sites: [1], matrix: numberOperator(3).scale(0.8) },
        {
          sites: [0, 1],
          matrix: sigmaX
            .kron(destroy(3).add(destroy(3).adjoint()))
            .tensor()
            .mul(size),
        },
      ],
      drives: [
        { sites: [0], matrix: sigmaX },
        { sites: [1], matrix: destroy(3).add(destroy(3).adjoint()) },
      ],
      amplitudes: (t) => weft.stack([t.cos().mul(size), t.mul(1.7).sin()], 1),
    });
    for (const method of ["trotter2", "trotter4"] as const) {
      const loss = (options: object) => (size: Tensor) => {
        const u = propagator(chain(size), { duration, steps: 11, method, ...options }).final;
        return u.index(0, 1).real().mul(0.3).add(u.index(4, 2).imag()).add(u.index(5, 5).abs());
      };
      const [value, g] = weft.valueAndGrad(loss({ strategy: "gates", chunks: 1, gradient: "stored" }))(scalar(0.4));
      for (const options of [{ chunks: 1 }, { chunks: 3 }, { chunks: 1, gradient: "checkpointed" }]) {
        const [other, og] = weft.valueAndGrad(loss({ strategy: "dense", ...options }))(scalar(0.4));
        near(other.itemSync(), value.itemSync(), 1e-13, `${method} ${JSON.stringify(options)}`);
        near(og.itemSync(), g.itemSync(), 1e-12, `gradient, ${method} ${JSON.stringify(options)}`);
      }
    }
  });
  test("columns of eight qubits, whose steps are products of gates, and their gradients are those of single states", () => {
    const sites = [0, 1, 2, 3, 4, 5, 6, 7];
    const chain = (size: Tensor): Hamiltonian => ({
      dims: sites.map(() => 2),
      static: [
        ...sites.map((k) => ({ sites: [k], matrix: sigmaZ.scale(0.3 + 0.1 * k) })),
        ...sites.slice(1).map((k) => ({ sites: [k - 1, k], matrix: sigmaX.kron(sigmaY).tensor().mul(size).mul(k) })),
      ],
      drives: sites.map((k) => ({ sites: [k], matrix: k % 2 === 0 ? sigmaX : sigmaY })),
      amplitudes: (t) =>
        weft.stack(
          sites.map((k) =>
            t
              .mul(1 + k)
              .cos()
              .mul(size),
          ),
          1,
        ),
    });
    const solver = { duration: 0.5, steps: 3, method: "trotter2" } as const;
    const seen = (psi: Tensor): Tensor =>
      psi.index(37).real().mul(0.3).add(psi.index(0).imag()).add(psi.index(201).abs());
    const start = basisState(256, 37).tensor().squeeze(1);
    const single = (size: Tensor): Tensor =>
      seen(schrodinger(chain(size), start, { ...solver, gradient: "stored" }).final);
    const column = (size: Tensor): Tensor =>
      seen(propagator(chain(size), { ...solver, columns: start.unsqueeze(0), strategy: "dense" }).final.index(":", 0));
    const [[value, g], [other, og]] = [single, column].map((loss) => weft.valueAndGrad(loss)(scalar(0.4)));
    near(other.itemSync(), value.itemSync(), 1e-13, "value");
    near(og.itemSync(), g.itemSync(), 1e-12, "gradient");
  });
  test("the propagator is unitary and its columns are evolved states", () => {
    const u = propagator(h(scalar(0.9)), { duration, steps: 20, method: "trotter4" }).final;
    const psi = schrodinger(h(scalar(0.9)), basisState(2, 1), { duration, steps: 20, method: "trotter4" }).final;
    const [a, b] = [u.index(":", 1).dataSync(), psi.dataSync()];
    a.forEach((x, i) => void near(Number(x), Number(b[i]), 1e-14, "column"));
    const deviation = weft
      .matmul(u.adjoint(), u)
      .sub(weft.eye(2, { dtype: "complex128" }))
      .abs()
      .max()
      .itemSync();
    assert.ok(deviation < 3e-13, `not unitary by ${deviation}`);
  });
  test("invalid options are errors", () => {
    const run = (options: object) => propagator(h(scalar(1)), { duration, steps: 10, ...options });
    assert.throws(() => run({ chunks: 11 }), /chunks must be a whole number from 1 to the 10 steps/);
    assert.throws(() => run({ method: "rk4", gradient: "reversal" }), /not unitary/);
    assert.throws(() => run({ method: "cptp2" }), /does not solve the schrodinger equation/);
    assert.throws(() => run({ steps: 0 }), /steps must be a whole number >= 1/);
  });
});
