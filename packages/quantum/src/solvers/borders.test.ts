// Short pulses in long evolutions: no method may pass over one unseen. A pulse on a qubit without other terms turns it by its area.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { basisState, densityOf, sigmaX, sigmaZ } from "../operators/index.js";
import { basis, sesolve, sigmax, sigmaz } from "../qutip/index.js";
import { GateProblem, parseGateSpec } from "../spec/index.js";
import { bordersOf } from "./borders.js";
import { dopri8, hamiltonian, lindblad, propagator, schrodinger, tsit5 } from "./index.js";

const near = (got: number, want: number, tolerance: number, name: string): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);

test("borders are where coefficients begin or end to change, or change much faster", () => {
  const rows = (f: (i: number) => number): Float64Array[] => [Float64Array.from({ length: 1001 }, (_, i) => f(i))];
  const box = bordersOf(rows((i) => (i >= 300 && i < 305 ? 1 : 0)));
  assert.deepEqual(box, [299, 300, 304, 305]);
  const spike = bordersOf(rows((i) => 1e-3 * i + (i === 700 ? 5 : 0)));
  assert.deepEqual(spike, [699, 701]);
  assert.deepEqual(bordersOf(rows((i) => Math.cos(i / 20))), [], "an oscillation has none");
  assert.deepEqual(bordersOf(rows(() => 0.3)), []);
  const comb = bordersOf(rows((i) => i % 2));
  assert.ok(comb.length <= 512);
});

const [width, height, end] = [0.02, 40, 100];
/** <Z> after a Gaussian pulse on X. */
const turned = Math.cos(2 * height * width * Math.sqrt(Math.PI));
const gaussian =
  (at: number) =>
  (t: Tensor): Tensor =>
    t.sub(at).div(width).square().neg().exp().mul(height);
const h = hamiltonian({ static: sigmaZ.scale(0), drives: [sigmaX], amplitudes: (t) => gaussian(61.7)(t).unsqueeze(1) });

test("adaptive methods see a short pulse: on the host, compiled, in propagators, with progress, and as a rate", () => {
  const { expect } = sesolve([sigmaz().scale(0), [sigmax(), gaussian(61.7)]], basis(2, 0), [0, end], {
    eOps: sigmaz(),
  });
  near(Number(expect[0][1]), turned, 1e-6, "host");
  const z = { z: sigmaZ };
  const run = { duration: end, observables: z };
  near(
    schrodinger(h, basisState(2, 0), { ...run, method: tsit5() }).expectations.z.itemSync(),
    turned,
    1e-5,
    "compiled",
  );
  const progress = (): void => {};
  const rho = densityOf(basisState(2, 0));
  const open = lindblad({ hamiltonian: h, jumps: [] }, rho, { ...run, method: dopri8(), progress });
  near(open.expectations.z.itemSync(), turned, 1e-5, "pieces");
  const u = propagator(h, { duration: end, method: dopri8() }).final.abs().square();
  near(u.index(0, 0).itemSync(), (1 + turned) / 2, 1e-5, "propagator");
  const burst = lindblad(
    { hamiltonian: hamiltonian({ static: sigmaZ }), jumps: [{ operator: sigmaX, rate: gaussian(33.3) }] },
    rho,
    { ...run, method: tsit5() },
  );
  near(burst.expectations.z.itemSync(), Math.exp(-2 * height * width * Math.sqrt(Math.PI)), 1e-5, "rate");
});

test("longest steps find what samples miss", () => {
  const narrow = (t: Tensor): Tensor => weft.where(t.sub(50.0007).abs().less(5e-4), t.mul(0).add(1000), 0);
  const { expect } = sesolve([sigmaz().scale(0), [sigmax(), narrow]], basis(2, 0), [0, 51], {
    eOps: sigmaz(),
    maxStep: 2e-3,
    nsteps: 100_000,
  });
  near(Number(expect[0][1]), Math.cos(2), 1e-5, "box");
  assert.throws(() => tsit5({ maxStep: 0 }), /maxStep must be positive/);
});

const late = (evolution: object, pulse: object = {}): GateProblem =>
  new GateProblem(
    parseGateSpec(
      JSON.stringify({
        device: { parts: { q: { kind: "qubit", frequency: 0 } } },
        pulses: [
          { on: "q", name: "x", operator: "x", shape: "cosine", length: 2, delay: 9000, amplitude: 1, ...pulse },
        ],
        evolution: { duration: 10_000, ...evolution },
        target: { from: "0", to: "1" },
      }),
    ),
  );

test("pulses of devices are seen, with learned times too", () => {
  const problem = late({ method: "dopri8" });
  const { infidelity } = problem.report();
  near(infidelity, Math.cos(1) ** 2, 1e-6, "report");
  const [value, slope] = weft.jit((p: Record<string, Tensor>) => weft.valueAndGrad(problem.loss)(p))(problem.learned());
  near(value.itemSync(), Math.cos(1) ** 2, 1e-6, "traced");
  near(slope["q.x.amplitude"].itemSync(), -Math.sin(2), 1e-5, "gradient by the amplitude");
  near(slope["q.x.length"].itemSync(), -Math.sin(2) / 2, 1e-5, "gradient by the length");
});

test("steps of fixed length that cannot see a pulse or its carrier are refused", () => {
  assert.throws(
    () => late({ steps: 100 }).report(),
    /lasts 2\.000 ns, and a step of trotter2 is 100\.0 ns.*at least 20000 steps/,
  );
  // A step is one period: every step sees the same phase.
  const carrier = { delay: 0, length: 20, frequency: 10 };
  assert.throws(() => late({ duration: 20, steps: 200 }, carrier).report(), /period of 0\.1000 ns.*at least 800 steps/);
});
