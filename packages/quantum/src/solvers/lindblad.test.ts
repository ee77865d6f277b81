// One qubit with relaxation and dephasing under a piecewise constant drive: values and gradients to ten digits.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "@weft/core/internal/tensor";
import * as weft from "@weft/core/internal/tensor";
import { onEachDevice } from "@weft/testing/devices";
import { basisState, densityOf, destroy, onSite, sigmaMinus, sigmaX, sigmaY, sigmaZ } from "../operators/index.js";
import { type LindbladOptions, lindblad } from "./lindblad.js";
import { tsit5 } from "./methods.js";
import { type Hamiltonian, hamiltonian } from "./problem.js";

const f64 = { dtype: "float64" } as const;
const near = (got: number, want: number, tolerance: number, name = "value"): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);

/** Fidelity of |0> -> |1> as a function of controls [segments, 2] and the two rates. */
const transfer =
  (options: Partial<LindbladOptions>) =>
  (u: Tensor, dephasing: Tensor, relaxation: Tensor): Tensor => {
    const h = hamiltonian({ static: sigmaZ.scale(0), drives: [sigmaX, sigmaY], amplitudes: u });
    const jumps = [
      { operator: sigmaMinus, rate: relaxation },
      { operator: sigmaZ.scale(Math.SQRT1_2), rate: dephasing },
    ];
    const run = lindblad({ hamiltonian: h, jumps }, densityOf(basisState(2, 0)), {
      duration: 1,
      steps: 60,
      ...options,
    });
    return run.final.index(1, 1).real();
  };

const pulse = (): Tensor =>
  weft.tensor(
    Array.from({ length: 60 }, (_, k) => {
      const angle = (2 * Math.PI * k) / 60;
      return [(Math.PI / 2) * (1 + 0.1 * Math.sin(angle)), 0.2 * Math.cos(angle)];
    }),
    f64,
  );
const rates = (): [Tensor, Tensor] => [weft.tensor(0.05, f64), weft.tensor(0.025, f64)];

const methods: Record<string, Partial<LindbladOptions>> = {
  "rk4, real coordinates": {},
  "rk4, matrices": { representation: "matrix" },
  "rk4, checkpointed": { gradient: "checkpointed" },
};

onEachDevice(() => {
  for (const [name, options] of Object.entries(methods))
    test(`value and gradients of the published test pulse: ${name}`, () => {
      const [value, [du, dd, dr]] = weft.jit((u: Tensor, d: Tensor, r: Tensor) =>
        weft.valueAndGrad(transfer(options), { argument: [0, 1, 2] })(u, d, r),
      )(pulse(), ...rates());
      near(value.itemSync(), 0.9778427990483176, 1e-14);
      const g = du.dataSync() as Float64Array;
      [6.943591e-5, -3.249383e-4].forEach((want, i) => void near(g[i], want, 1e-10, "first segment"));
      [3.231053e-4, 2.678405e-4].forEach((want, i) => void near(g[118 + i], want, 1e-10, "last segment"));
      near(Math.hypot(...g), 2.934092024e-3, 1e-11, "norm");
      near(dd.itemSync(), -0.2410146322, 1e-10, "dephasing");
      near(dr.itemSync(), -0.3876397128, 1e-10, "relaxation");
    });

  test("every method is within its error of the exact value", () => {
    const exact = 0.9778427984518929;
    const value = (options: Partial<LindbladOptions>): number => transfer(options)(pulse(), ...rates()).itemSync();
    near(value({ method: "pwcExpm" }), exact, 1e-12);
    near(value({ method: "cptp2" }), exact, 1e-7);
    near(value({ steps: undefined, method: tsit5({ relative: 1e-9, absolute: 1e-9, maxSteps: 600 }) }), exact, 1e-9);
    near(value({ method: "euler" }), 1.0190239, 1e-7, "euler, above one");
  });

  test("a constant pi pulse has the exact fidelity, and RK4 and Euler their known errors", () => {
    const run = (steps: number, method: "rk4" | "pwcExpm" | "euler", gd: number, gr: number): number =>
      transfer({ steps, method })(
        weft.tensor([[Math.PI / 2, 0]], f64),
        weft.tensor(gd, f64),
        weft.tensor(gr, f64),
      ).itemSync();
    near(run(1, "pwcExpm", 0.05, 0.025), 0.9784413379, 1e-10);
    near(run(1, "pwcExpm", 0.1, 0.05), 0.9575002243, 1e-10);
    near(run(20, "rk4", 0.05, 0.025) - 0.9784413379, -5.8e-7, 1e-8);
    near(run(60, "rk4", 0.05, 0.025) - 0.9784413379, 1.1e-9, 2e-10);
    near(run(100, "euler", 0.05, 0.025) - 0.9784413379, 0.0242, 1e-4);
  });
});

test("an ensemble under vmap equals its members", () => {
  const us = weft.stack([pulse(), pulse().mul(0.9), pulse().mul(1.1)]);
  const gds = weft.tensor([0.05, 0.1, 0.02], f64);
  const grs = weft.tensor([0.025, 0.01, 0.04], f64);
  const each = weft.valueAndGrad(transfer({}), { argument: [0, 1] });
  const [values, [dus]] = weft.jit((u: Tensor, a: Tensor, b: Tensor) => weft.vmap(each)(u, a, b))(us, gds, grs);
  for (let k = 0; k < 3; k++) {
    const [value, [du]] = each(us.index(k), gds.index(k), grs.index(k));
    near(values.index(k).itemSync(), value.itemSync(), 1e-14);
    const [got, want] = [dus.index(k).dataSync(), du.dataSync()];
    got.forEach((x, i) => void near(Number(x), Number(want[i]), 1e-14));
  }
});

test("local operators give the same result as matrices on the whole space", () => {
  const dims = [2, 3];
  const drive = (t: Tensor): Tensor => t.cos().unsqueeze(1);
  const h = (): Hamiltonian => ({
    dims,
    static: [
      { sites: [0], matrix: sigmaZ },
      { sites: [0, 1], matrix: sigmaX.kron(destroy(3).add(destroy(3).adjoint())) },
    ],
    drives: [{ sites: [1], matrix: destroy(3).add(destroy(3).adjoint()) }],
    amplitudes: drive,
  });
  const rho = densityOf(basisState(6, 4));
  const loss = (local: boolean) => (rate: Tensor) => {
    const jumps = local
      ? [
          { operator: sigmaMinus, sites: [0], rate },
          { operator: destroy(3), sites: [1], rate: 0.2 },
        ]
      : [
          { operator: onSite(sigmaMinus, 0, dims), rate },
          { operator: onSite(destroy(3), 1, dims), rate: 0.2 },
        ];
    const { final } = lindblad({ hamiltonian: h(), jumps }, rho, { duration: 1, steps: 8, representation: "matrix" });
    return final.index(1, 1).real().add(final.index(0, 4).imag());
  };
  const [a, ga] = weft.valueAndGrad(loss(true))(weft.tensor(0.3, f64));
  const [b, gb] = weft.valueAndGrad(loss(false))(weft.tensor(0.3, f64));
  near(a.itemSync(), b.itemSync(), 1e-14);
  near(ga.itemSync(), gb.itemSync(), 1e-13);
});

test("invalid Hamiltonians, rates and options are errors", () => {
  const h = hamiltonian({ static: sigmaZ, drives: [sigmaX], amplitudes: [[1], [2]] });
  const rho = densityOf(basisState(2, 0));
  const run = (options: Partial<LindbladOptions>, rate = 1) =>
    lindblad({ hamiltonian: h, jumps: [{ operator: sigmaMinus, rate }] }, rho, { duration: 1, steps: 4, ...options });
  assert.throws(() => hamiltonian({ static: sigmaMinus }), /not Hermitian/);
  assert.throws(() => run({}, -1), /jump 0: the rate must be a number >= 0/);
  assert.throws(
    () => lindblad({ hamiltonian: h, jumps: [{ operator: sigmaMinus, sites: [1] }] }, rho, { duration: 1, steps: 4 }),
    /jump 0: sites \[1\] must ascend/,
  );
  assert.throws(() => run({ steps: 3 }), /3 steps do not divide into the 2 segments/);
  assert.throws(() => run({ gradient: "reversal" }), /dissipation cannot be run backwards/);
  assert.throws(() => run({ method: "trotter2" }), /does not solve the lindblad equation/);
  assert.throws(() => run({ method: "trotter9" as never }), /there is no "trotter9"/);
  assert.throws(() => run({ duration: -1 }), /duration must be a positive number/);
});
