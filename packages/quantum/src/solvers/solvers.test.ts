// Solvers for stiff, large and long problems: closed forms, estimated errors, positive maps at long steps, saves at any times, progress.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { ReferenceDevice } from "@weft/core/internal/device";
import { useDevice } from "@weft/core/internal/runtime";
import type { Tensor } from "@weft/core/internal/tensor";
import * as weft from "@weft/core/internal/tensor";
import { basisState, densityOf, destroy, sigmaMinus, sigmaX, sigmaY, sigmaZ } from "../operators/index.js";
import {
  diffusive,
  dopri8,
  type Hamiltonian,
  hamiltonian,
  jumpTrajectories,
  krylov,
  lindblad,
  type Method,
  type MethodName,
  schrodinger,
  sdirk4,
  tsit5,
} from "./index.js";

const near = (got: number, want: number, tolerance: number, name: string): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);
const scalar = (x: number): Tensor => weft.tensor(x, { dtype: "float64" });
const distance = (a: Tensor, b: Tensor): number => a.sub(b).abs().square().sum().sqrt().itemSync();

// Closed forms of the same methods on compiled devices are in closed-forms.test.ts.
before(() => void useDevice(new ReferenceDevice()));

/** A qubit that decays through a cavity: one excitation, c'' + kappa c' / 2 + g^2 c = 0. */
describe("a qubit that decays through a fast cavity", () => {
  const [g, kappa, end] = [1, 2000, 400];
  const excited = (rate: number): number => {
    const root = Math.sqrt((rate * rate) / 16 - g * g);
    const [slow, fast] = [-(g * g) / (rate / 4 + root), -rate / 4 - root];
    return ((fast * Math.exp(slow * end) - slow * Math.exp(fast * end)) / (fast - slow)) ** 2;
  };
  const a = destroy(2);
  const exchange = sigmaMinus.kron(a.adjoint());
  const h: Hamiltonian = {
    dims: [2, 2],
    static: [{ sites: [0, 1], matrix: exchange.add(exchange.adjoint()).scale(g) }],
    drives: [],
    amplitudes: null,
  };
  const run = (rate: Tensor, method: Method, steps?: number) =>
    lindblad({ hamiltonian: h, jumps: [{ operator: a, sites: [1], rate }] }, densityOf(basisState(4, 2)), {
      duration: end,
      method,
      steps,
      observables: {
        e: sigmaMinus
          .adjoint()
          .mul(sigmaMinus)
          .kron(basisState(2, 0).mul(basisState(2, 0).adjoint())),
      },
    });
  test("the implicit method takes steps far longer than the cavity's time, with its gradient", () => {
    const method = sdirk4({ relative: 1e-6, absolute: 1e-8 });
    const [value, slope] = weft.valueAndGrad((rate: Tensor) => run(rate, method).expectations.e.index(0))(
      scalar(kappa),
    );
    near(value.itemSync(), excited(kappa), 1e-6, "population");
    near(slope.itemSync(), (excited(kappa + 1) - excited(kappa - 1)) / 2, 1e-9, "gradient");
    const { accepted, check } = run(scalar(kappa), method);
    assert.ok(check().smallestEigenvalue! > -1e-6);
    assert.ok(
      accepted!.itemSync() < 300,
      `${accepted!.itemSync()} steps, an explicit method needs ${(kappa * end) / 3}`,
    );
  });
  test("an explicit method does not arrive, and says so", () => {
    assert.throws(() => run(scalar(kappa), tsit5({ maxSteps: 1000 })).check(), /did not reach the end/);
  });
  test("it solves open systems only", () => {
    const closed = hamiltonian({ static: sigmaZ });
    assert.throws(() => schrodinger(closed, basisState(2, 1), { duration: 1, method: "sdirk4" }), /does not solve/);
  });
});

/** One excitation on a ring or chain of qubits with hopping: the amplitude to move is a product of sines. */
describe("Krylov exponentials", () => {
  const [n, hop, end] = [7, 1.3, 4];
  const pair = sigmaMinus.kron(sigmaMinus.adjoint());
  const chain: Hamiltonian = {
    dims: new Array(n).fill(2),
    static: Array.from({ length: n - 1 }, (_, k) => ({
      sites: [k, k + 1],
      matrix: pair.add(pair.adjoint()).scale(hop),
    })),
    drives: [],
    amplitudes: null,
  };
  // The excitation is at site k if bit n - 1 - k is set.
  const at = (site: number): number => 2 ** (n - 1 - site);
  const amplitude = (site: number): [number, number] => {
    let [re, im] = [0, 0];
    for (let k = 1; k <= n; k++) {
      const weight = (2 / (n + 1)) * Math.sin((Math.PI * k) / (n + 1)) * Math.sin((Math.PI * k * (site + 1)) / (n + 1));
      const angle = 2 * hop * Math.cos((Math.PI * k) / (n + 1)) * end;
      re += weight * Math.cos(angle);
      im -= weight * Math.sin(angle);
    }
    return [re, im];
  };
  test("a chain of seven qubits against its closed form, with an error within the estimate", () => {
    for (const [steps, dimension] of [
      [2, 24],
      [4, 6],
    ]) {
      const run = schrodinger(chain, basisState(2 ** n, at(0)), {
        duration: end,
        steps,
        method: krylov({ dimension }),
      });
      let off = 0;
      for (let site = 0; site < n; site++) {
        const [re, im] = amplitude(site);
        const value = run.final.index(at(site));
        off += (value.real().itemSync() - re) ** 2 + (value.imag().itemSync() - im) ** 2;
      }
      const estimate = run.error!.itemSync();
      assert.ok(Math.sqrt(off) < 3 * estimate + 1e-12, `error ${Math.sqrt(off)}, estimate ${estimate}`);
      assert.ok(Math.sqrt(off) < (dimension === 24 ? 1e-11 : 1e-2), `error ${Math.sqrt(off)} with ${dimension}`);
    }
  });
  test("steps that are too long are refused with the estimate", () => {
    const run = schrodinger(chain, basisState(2 ** n, at(0) + at(2) + at(5)), {
      duration: 40,
      steps: 2,
      method: krylov({ dimension: 8 }),
    });
    assert.throws(() => run.check(), /2 steps of krylov.*use more steps/);
    assert.throws(() => krylov({ dimension: 1 }), /dimension must be a whole number from 2 to 40/);
  });
});

const [w, tilt] = [2.3, 0.7];
/** A driven qubit whose terms do not commute, with decay of which one rate depends on time. */
const system = (size: Tensor) => ({
  hamiltonian: hamiltonian({
    static: sigmaZ.scale(tilt),
    drives: [sigmaX, sigmaY],
    amplitudes: (t: Tensor) => weft.stack([t.mul(w).cos().mul(size), t.sin()], 1),
  }),
  jumps: [
    { operator: sigmaMinus, rate: (t: Tensor) => t.cos().mul(0.1).add(0.3) },
    { operator: sigmaZ, rate: 0.05 },
  ],
});
const evolve = (size: Tensor, method: MethodName | Method, steps?: number, more: object = {}) =>
  lindblad(system(size), densityOf(basisState(2, 0)), { duration: 3, method, steps, ...more });

describe("methods on drives and rates that change", () => {
  const exact = (): Tensor => evolve(scalar(0.9), dopri8({ relative: 1e-12, absolute: 1e-13 })).final;
  for (const [method, order, steps] of [
    ["rouchon1", 1, 200],
    ["rouchon2", 2, 30],
    ["rouchon3", 3, 120],
    ["krylov", 4, 10],
  ] as const)
    test(`${method} converges with order ${order}`, () => {
      const [coarse, fine] = [1, 2].map((n) => distance(evolve(scalar(0.9), method, n * steps).final, exact()));
      near(Math.log2(coarse / fine), order, 0.3, `order, from ${coarse} and ${fine}`);
    });
  test("every method equals QuTiP", () => {
    // mesolve of QuTiP 5.3.1 with DOP853 at a relative tolerance of 1e-12: rho_00, Re rho_01 and Im rho_01 at the times 0.75 and 3.
    const golden = [
      [0.7887977156013334, 0.3601011777395772, 0.15324206673624655],
      [0.49601890721647984, -0.10838413367323013, 0.1942365806863865],
    ];
    for (const [method, steps, tolerance] of [
      ["krylov", 40, 1e-6],
      ["rouchon2", 400, 1e-4],
      ["rouchon3", 200, 1e-6],
      [sdirk4({ relative: 1e-9, absolute: 1e-10 }), undefined, 1e-8],
    ] as const) {
      const states = evolve(scalar(0.9), method, steps, { tsave: [0.75, 3] }).states!.dataSync() as Float64Array;
      golden.forEach(([up, re, im], k) => {
        [up, re, im].forEach((want, j) => void near(states[8 * k + [0, 2, 3][j]], want, tolerance, String(method)));
      });
    }
  });
  test("errors of adaptive methods are of the size of their estimates", () => {
    for (const method of [tsit5, dopri8, sdirk4])
      for (const relative of [1e-4, 1e-7]) {
        const run = evolve(scalar(0.9), method({ relative, absolute: relative }));
        const [off, estimate] = [distance(run.final, exact()), run.error!.itemSync()];
        assert.ok(off < 2 * estimate && estimate < 1e3 * relative, `${method.name} ${relative}: ${off}, ${estimate}`);
      }
  });
  test("batches and gradients of the new methods equal single runs and finite differences", () => {
    const methods = [
      ["rouchon3", 12],
      ["krylov", 6],
      [sdirk4({ relative: 1e-9, absolute: 1e-10 }), undefined],
    ] as const;
    for (const [method, steps] of methods) {
      const value = (size: Tensor): Tensor => evolve(size, method, steps).final.index(0, 1).real();
      const sizes = weft.tensor([0.4, 0.9], { dtype: "float64" });
      const [values, slopes] = weft.vmap((x: Tensor) => weft.valueAndGrad(value)(x))(sizes) as [Tensor, Tensor];
      [0.4, 0.9].forEach((size, k) => {
        const at = (x: number): number => value(scalar(x)).itemSync();
        near(values.index(k).itemSync(), at(size), 1e-9, "value");
        near(slopes.index(k).itemSync(), (at(size + 1e-5) - at(size - 1e-5)) / 2e-5, 1e-6, "gradient");
      });
    }
  });
  test("Kraus maps stay positive and keep the trace where Runge-Kutta fails", () => {
    const strong = {
      hamiltonian: hamiltonian({ static: sigmaX.scale(4) }),
      jumps: [{ operator: sigmaMinus, rate: 9 }],
    };
    const run = (method: MethodName) =>
      lindblad(strong, densityOf(basisState(2, 1)), { duration: 8, steps: 8, method }).check({
        error: Number.POSITIVE_INFINITY,
      });
    assert.throws(() => run("rk4"), /trace|eigenvalue/);
    for (const method of ["rouchon1", "rouchon2", "rouchon3"] as const) {
      const { norm, smallestEigenvalue } = run(method);
      near(norm, 1, 1e-12, "trace");
      assert.ok(smallestEigenvalue! > -1e-14, `${method} ${smallestEigenvalue}`);
    }
  });
});

describe("saves at any times, and progress", () => {
  const tsave = [0, 0.31, 0.75, 2.2, Math.E];
  test("methods of fixed steps save at given times, time 0 included", () => {
    const want = evolve(scalar(0.9), dopri8({ relative: 1e-11, absolute: 1e-12 }), undefined, { tsave, duration: 3 });
    for (const [method, steps] of [
      ["rk4", 100],
      ["krylov", 30],
      ["rouchon3", 400],
    ] as const) {
      const got = evolve(scalar(0.9), method, steps, { tsave, duration: 3, observables: { z: sigmaZ } });
      assert.ok(distance(got.states!, want.states!) < 2e-5, method);
      assert.ok(distance(got.final, want.final) < 1e-5, `${method}, final`);
      near(got.expectations.z.index(0).itemSync(), 1, 1e-14, "at time 0");
    }
  });
  test("a table of drives keeps its segments when saves lie inside them", () => {
    const table = [[0.3], [-0.8], [0.5]];
    const h = hamiltonian({ static: sigmaZ, drives: [sigmaX], amplitudes: table });
    const options = { duration: 3, tsave: [0.4, 1.7, 3] };
    const got = schrodinger(h, basisState(2, 0), { ...options, steps: 6, method: "pwcExpm" });
    const want = schrodinger(h, basisState(2, 0), { ...options, method: dopri8({ relative: 1e-11, absolute: 1e-12 }) });
    assert.ok(distance(got.states!, want.states!) < 1e-9);
    const reverse = (size: Tensor): Tensor => {
      const driven = hamiltonian({ static: sigmaZ, drives: [sigmaX], amplitudes: weft.tensor(table).mul(size) });
      const { states } = schrodinger(driven, basisState(2, 0), { ...options, steps: 60, method: "trotter4" });
      return states!.index(1, 1).abs().square();
    };
    const [up, down] = [1 + 1e-5, 1 - 1e-5].map((x) => reverse(scalar(x)).itemSync());
    near(weft.grad(reverse)(scalar(1)).itemSync(), (up - down) / 2e-5, 1e-7, "gradient by reversal");
  });
  test("progress ascends to 1 and changes no result", () => {
    for (const [method, steps] of [
      ["rk4", 200],
      [tsit5(), undefined],
    ] as const) {
      const seen: number[] = [];
      const options = { tsave: [1, 3], progress: (done: number) => void seen.push(done) };
      const got = evolve(scalar(0.9), method, steps, options);
      const want = evolve(scalar(0.9), method, steps, { tsave: [1, 3] });
      assert.ok(distance(got.states!, want.states!) < 1e-6);
      assert.ok(seen.length >= 20 && seen.every((x, k) => k === 0 || x > seen[k - 1]) && seen.at(-1) === 1, `${seen}`);
    }
    const traced = (rho: Tensor): Tensor =>
      lindblad(system(scalar(1)), rho, { duration: 1, steps: 4, progress: () => {} }).final;
    assert.throws(() => weft.jit(traced)(densityOf(basisState(2, 0)).tensor()), /progress needs values/);
  });
});

describe("trajectories with rates that depend on time", () => {
  const decay = {
    hamiltonian: hamiltonian({ static: sigmaX.scale(0.4) }),
    jumps: [{ operator: sigmaMinus, rate: (t: Tensor) => t.mul(0.6).add(0.1) }],
  };
  const [duration, trajectories] = [1.5, 400];
  const want = lindblad(decay, densityOf(basisState(2, 1)), { duration, steps: 200, observables: { z: sigmaZ } });
  for (const [name, run] of [
    ["jumps", jumpTrajectories],
    ["diffusion", diffusive],
  ] as const)
    test(`the mean of ${name} equals the master equation within its error`, () => {
      const steps = name === "jumps" ? 24 : 96;
      const { mean, error } = run(decay, basisState(2, 1), {
        duration,
        steps,
        trajectories,
        observables: { z: sigmaZ },
      }).averages.z;
      // Four standard errors, and the bias of the steps.
      near(mean.itemSync(), want.expectations.z.itemSync(), 4 * error.itemSync() + 5e-3, "mean");
      assert.ok(error.itemSync() < 0.06);
    });
});
