// Trajectories against the master equation, closed forms and each other: averages within their standard errors, orders of
// convergence on one Brownian path, positivity, records, and gradients against finite differences with the same noise.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { CpuDevice, useDevice } from "@weft/core";
import type { Tensor } from "@weft/core/internal/tensor";
import * as weft from "@weft/core/internal/tensor";
import { basisState, densityOf, destroy, Operator, sigmaMinus, sigmaX, sigmaY, sigmaZ } from "../operators/index.js";
import { type DiffusiveOptions, diffusive } from "./diffusive.js";
import { lindblad, type OpenSystem } from "./lindblad.js";
import { hamiltonian } from "./problem.js";
import { jumpTrajectories } from "./quantum-jumps.js";
import type { Trajectories } from "./trajectories.js";

const f64 = { dtype: "float64" } as const;
const qubit: OpenSystem = {
  hamiltonian: hamiltonian({ static: sigmaX.scale(0.5).add(sigmaZ.scale(0.3)) }),
  jumps: [{ operator: sigmaMinus, rate: 0.4 }],
};
const noisy: OpenSystem = { ...qubit, jumps: [...qubit.jumps, { operator: sigmaZ, rate: 0.15 }] };
const observables = { x: sigmaX, y: sigmaY, z: sigmaZ };
const numbers = (x: Tensor): Float64Array => x.dataSync() as Float64Array;
const start = basisState(2, 0);

/** Every average lies within `sigmas` standard errors of the master equation, beside a bias of the steps. */
function agrees(run: Trajectories, system: OpenSystem, sigmas: number, bias: number): void {
  const saves = run.times.shape[0];
  const exact = lindblad(system, densityOf(start), { duration: 1, steps: 40 * saves, saves, observables });
  for (const name of Object.keys(observables)) {
    const [mean, error] = [numbers(run.averages[name].mean), numbers(run.averages[name].error)];
    numbers(exact.expectations[name]).forEach((want, k) => {
      const distance = Math.abs(mean[k] - want);
      assert.ok(distance <= sigmas * error[k] + bias, `${name} at ${k}: ${mean[k]} +- ${error[k]}, exact ${want}`);
    });
  }
}

describe("trajectories", { skip: CpuDevice.available() ? false : "no C compiler on this machine" }, () => {
  before(() => void useDevice(new CpuDevice()));

  const cases: [string, OpenSystem, Partial<DiffusiveOptions>][] = [
    ["rouchon, kets, two channels", noisy, {}],
    ["euler, kets", qubit, { method: "euler" }],
    ["milstein, kets", qubit, { method: "milstein" }],
    ["rouchon, density matrices", noisy, { efficiencies: [0.5, 0.8] }],
    ["milstein, density matrices", qubit, { method: "milstein", efficiencies: [0.3] }],
    ["platen, density matrices, one of two channels detected", noisy, { method: "platen", efficiencies: [0.5, 0] }],
  ];
  for (const [name, system, more] of cases)
    test(`diffusive averages follow the master equation: ${name}`, () => {
      const run = diffusive(system, start, {
        duration: 1,
        steps: 100,
        saves: 2,
        trajectories: 3000,
        seed: 3,
        observables,
        ...more,
      });
      agrees(run, system, 4, 3e-3);
      assert.deepEqual(run.records.shape, [3000, 2, system.jumps.length]);
    });

  test("jumps follow the master equation, and their number the decay", () => {
    const run = jumpTrajectories(noisy, start, { duration: 1, steps: 20, saves: 2, trajectories: 4000, observables });
    agrees(run, noisy, 4, 1e-4);
    // From the excited state without a drive, the probability of a jump within T is 1 - exp(-rate T).
    const decay: OpenSystem = {
      hamiltonian: hamiltonian({ static: sigmaZ }),
      jumps: [{ operator: sigmaMinus, rate: 0.7 }],
    };
    const excited = basisState(2, sigmaMinus.at(0, 1).re === 1 ? 1 : 0);
    const counts = numbers(
      jumpTrajectories(decay, excited, { duration: 1, steps: 4, trajectories: 4000, seed: 5 }).records,
    );
    const share = counts.reduce((a, b) => a + b, 0) / counts.length;
    assert.ok(counts.every((n) => n === 0 || n === 1));
    assert.ok(Math.abs(share - (1 - Math.exp(-0.7))) < 4 * Math.sqrt(0.25 / 4000), `${share}`);
  });

  /** Increments on a fine grid, and their sums on coarser ones: one Brownian path. */
  const path = (trajectories: number, steps: number): Tensor =>
    weft.randn([trajectories, steps, 1], { key: weft.key(9), ...f64 }).mul(Math.sqrt(1 / steps));
  const coarser = (dw: Tensor, by: number): Tensor => dw.reshape([dw.shape[0], dw.shape[1] / by, by, 1]).sum(2);

  for (const [method, least] of [
    ["euler", 1.25],
    ["milstein", 1.8],
    ["rouchon", 1.8],
  ] as const)
    test(`strong convergence of ${method}`, () => {
      const n = 64;
      const fine = path(n, 1024);
      const final = (by: number): Float64Array => {
        const noise = coarser(fine, by);
        const options = { duration: 1, steps: 1024 / by, trajectories: n, noise, method } as const;
        const states = diffusive(qubit, start, options).final;
        // The global phase of a ket has no meaning: compare density matrices.
        return numbers(weft.vmap((psi: Tensor) => psi.reshape([2, 1]).mul(psi.conj().reshape([1, 2])))(states));
      };
      const exact = final(1);
      const error = (by: number): number =>
        Math.sqrt(final(by).reduce((sum, x, k) => sum + (x - exact[k]) ** 2, 0) / n);
      const ratio = error(64) / error(32);
      assert.ok(ratio > least, `error at twice the step: ${ratio} times`);
    });

  /**
   * Means over all paths of increments 0 and +-sqrt(3 h), with their probabilities: they have the moments of Gaussian ones that a
   * method of weak order 2 sees, and no statistical error.
   */
  const exactMeans = (steps: number, method: "platen" | "milstein", efficiency: number): number[] => {
    const count = 3 ** steps;
    const digits = Array.from({ length: count }, (_, k) =>
      Array.from({ length: steps }, (_, j) => (Math.floor(k / 3 ** j) % 3) - 1),
    );
    const probability = digits.map((list) => list.reduce((p, d) => p * (d === 0 ? 2 / 3 : 1 / 6), 1));
    const size = Math.sqrt(3 / steps);
    const noise = weft
      .tensor(
        digits.flatMap((list) => list.map((d) => d * size)),
        f64,
      )
      .reshape([count, steps, 1]);
    const efficiencies = [efficiency];
    const run = diffusive(qubit, start, { duration: 1, steps, trajectories: count, noise, method, efficiencies });
    const states = numbers(run.final);
    const records = numbers(run.records);
    const excited = (k: number): number =>
      efficiency === 1 ? states[4 * k] ** 2 + states[4 * k + 1] ** 2 : states[8 * k];
    const means = (of: (k: number) => number): number => probability.reduce((sum, p, k) => sum + p * of(k), 0);
    return [
      means(excited),
      means((k) => excited(k) ** 2),
      means((k) => records[k]),
      means((k) => records[k] * excited(k)),
    ];
  };
  for (const efficiency of [1, 0.6])
    test(`means of platen are of second order, with an efficiency of ${efficiency}`, () => {
      const [coarse, middle, fine] = [2, 4, 8].map((steps) => exactMeans(steps, "platen", efficiency));
      const exact = lindblad(qubit, densityOf(start), { duration: 1, steps: 100, observables });
      const want = (1 + numbers(exact.expectations.z)[0]) / 2;
      const [e2, e4, e8] = [coarse, middle, fine].map(([mean]) => Math.abs(mean - want));
      assert.ok(e8 < 2e-3 && e2 / e4 > 3 && e4 / e8 > 3, `errors of the mean: ${e2}, ${e4}, ${e8}`);
      // Squares, records and their products have no closed form: their changes fall by four when steps are halved.
      for (const k of [1, 2, 3]) {
        const ratio = Math.abs(coarse[k] - middle[k]) / Math.abs(middle[k] - fine[k]);
        assert.ok(ratio > 2.6 || Math.abs(middle[k] - fine[k]) < 1e-5, `value ${k}: ${ratio}`);
      }
      const [m4, m8] = [4, 8].map((steps) => Math.abs(exactMeans(steps, "milstein", efficiency)[0] - want));
      assert.ok(e8 < m8 / 3 && m4 / m8 < 3, `milstein: ${m4}, ${m8}`);
    });

  test("density matrices stay positive, kets normalized, at long steps", () => {
    const strong: OpenSystem = { ...qubit, jumps: [{ operator: sigmaMinus, rate: 3 }] };
    const options = { duration: 4, steps: 40, trajectories: 200, seed: 1 };
    const rho = numbers(diffusive(strong, start, { ...options, efficiencies: [0.4] }).final);
    for (let k = 0; k < rho.length; k += 8) {
      const determinant = rho[k] * rho[k + 6] - (rho[k + 2] ** 2 + rho[k + 3] ** 2);
      assert.ok(determinant > -1e-14, `determinant ${determinant}`);
      assert.ok(Math.abs(rho[k] + rho[k + 6] - 1) < 1e-12);
    }
    const psi = numbers(diffusive(strong, start, options).final);
    for (let k = 0; k < psi.length; k += 4)
      assert.ok(Math.abs(psi.slice(k, k + 4).reduce((s, x) => s + x * x, 0) - 1) < 1e-12);
  });

  test("a trajectory depends on seed and number alone", () => {
    const options = { duration: 1, steps: 10, seed: 7 };
    const all = numbers(diffusive(qubit, start, { ...options, trajectories: 6 }).final);
    const last = numbers(diffusive(qubit, start, { ...options, trajectories: 2, first: 4 }).final);
    assert.deepEqual([...last], [...all.slice(16)]);
    const other = numbers(diffusive(qubit, start, { ...options, trajectories: 6, seed: 8 }).final);
    assert.ok(other.some((x, k) => x !== all[k]));
  });

  test("gradients through diffusive trajectories", () => {
    const noise = path(5, 16);
    const mean = (rate: Tensor, angle: Tensor): Tensor => {
      const system: OpenSystem = {
        hamiltonian: hamiltonian({ static: sigmaZ.scale(0.2), drives: [sigmaX], amplitudes: angle.reshape([1, 1]) }),
        jumps: [{ operator: sigmaMinus, rate }],
      };
      return diffusive(system, start, {
        duration: 1,
        steps: 16,
        trajectories: 5,
        noise,
        observables,
      }).averages.z.mean.sum();
    };
    const at: [Tensor, Tensor] = [weft.tensor(0.4, f64), weft.tensor(0.7, f64)];
    const gradients = weft.grad(mean, { argument: [0, 1] })(...at);
    [0, 1].forEach((k) => {
      const moved = (by: number): number =>
        mean(...(at.map((x, j) => (j === k ? x.add(by) : x)) as [Tensor, Tensor])).itemSync();
      const want = (moved(1e-5) - moved(-1e-5)) / 2e-5;
      assert.ok(Math.abs(gradients[k].itemSync() - want) < 1e-8, `${gradients[k].itemSync()}, ${want}`);
    });
  });

  test("a cavity of many levels: records follow <a + a^H>", () => {
    const a = destroy(12);
    const cavity: OpenSystem = {
      hamiltonian: hamiltonian({ static: a.adjoint().mul(a).scale(0) }),
      jumps: [{ operator: a, rate: 1 }],
    };
    // A coherent state decays as exp(-t / 2) and gives a record with the mean 2 alpha (1 - exp(-1/2)) / (1/2).
    const alpha = 0.8;
    let [size, column] = [1, [1]];
    for (let n = 1; n < 12; n++) {
      size *= alpha / Math.sqrt(n);
      column = [...column, size];
    }
    const psi = Operator.build(12, 1, (n) => column[n] * Math.exp(-(alpha ** 2) / 2));
    const records = numbers(diffusive(cavity, psi, { duration: 1, steps: 100, trajectories: 400 }).records);
    const mean = records.reduce((s, x) => s + x, 0) / 400;
    assert.ok(Math.abs(mean - 4 * alpha * (1 - Math.exp(-0.5))) < 4 / Math.sqrt(400), `${mean}`);
  });

  test("bad input is refused", () => {
    const options = { duration: 1, steps: 10, trajectories: 2 };
    assert.throws(() => diffusive({ ...qubit, jumps: [] }, start, options), /no jump operators/);
    assert.throws(
      () => diffusive(qubit, start, { ...options, trajectories: 0 }),
      /trajectories must be a whole number/,
    );
    assert.throws(() => diffusive(qubit, start, { ...options, efficiencies: [1.2] }), /efficiency from 0 to 1/);
    assert.throws(() => diffusive(noisy, start, { ...options, method: "milstein" }), /one channel only/);
    assert.throws(() => diffusive(qubit, start, { ...options, saves: 3 }), /do not divide into 3 saves/);
    assert.throws(() => diffusive(qubit, basisState(3, 0), options), /must be a ket \[2\]/);
    assert.throws(
      () => diffusive(qubit, start, { ...options, noise: weft.zeros([2, 5, 1]) }),
      /noise must be \[2, 10, 1\]/,
    );
    assert.throws(() => diffusive(qubit, start, { ...options, seed: 0.5 }), /seed must be a whole number/);
    assert.throws(() => jumpTrajectories(qubit, densityOf(start), options), /must be a ket/);
    assert.throws(() => jumpTrajectories(qubit, start.scale(2), options), /norm .* is 4 instead of 1/);
  });
  test("a dark state does not jump, even if steps reduce its norm", () => {
    const dark = { hamiltonian: hamiltonian({ static: sigmaZ.scale(3) }), jumps: [{ operator: sigmaMinus, rate: 1 }] };
    const run = jumpTrajectories(dark, basisState(2, 0), {
      duration: 40,
      steps: 100,
      trajectories: 50,
      observables: { z: sigmaZ },
    });
    // Norms are divided out, which may round.
    assert.ok(Math.abs(run.averages.z.mean.itemSync() - 1) < 1e-14);
    assert.equal(run.records.sum().itemSync(), 0);
  });
});

test("one trajectory has a mean without a standard error", () => {
  const system = { hamiltonian: hamiltonian({ static: sigmaX }), jumps: [{ operator: sigmaMinus, rate: 1 }] };
  const options = { duration: 1, steps: 10, trajectories: 1, observables: { z: sigmaZ } };
  const { mean, error } = jumpTrajectories(system, basisState(2, 0), options).averages.z;
  assert.ok(Number.isFinite(mean.itemSync()) && Number.isNaN(error.itemSync()));
});
