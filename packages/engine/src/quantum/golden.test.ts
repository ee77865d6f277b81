// Whole gates against published numbers: the simultaneous X gate on a fluxonium chain with its gradient with respect to
// every pulse and device parameter, and a cross-resonance gate.
import assert from "node:assert/strict";
import { test } from "node:test";

import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { averageGateInfidelity, compensate, gate, processInfidelity } from "./fidelity/index.js";
import { cosinePulse } from "./pulses/index.js";
import { trotter2 } from "./solvers/index.js";
import { Chain, Device, evolve } from "./systems/index.js";

const near = (got: number, want: number, tolerance: number, name = "value"): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);
// Long loops and 400-point eigenproblems: the reference device would need minutes.
const skip = weft.CpuDevice.available() ? false : "needs a compiler";

/** Factors of fabrication of the published device (ec, ej, el by qubit). */
const factors = [
  [0.994466122879, 1.009442830753, 1.001453810889],
  [0.996723867734, 0.995933653596, 1.008908070206],
  [1.005208901918, 1.005769042894, 1.004250269124],
  [1.014053283963, 0.983438063074, 1.005177150255],
];
const spread = (n: number): Record<string, number> =>
  Object.fromEntries(
    factors.slice(0, n).flatMap((f, i) => ["ec", "ej", "el"].map((key, k) => [`q${i}.${key}`, f[k]] as const)),
  );

const chainTable = [
  { n: 1, plain: 0.9998007495, spread: 0.3631236552, virtualZ: 7.99e-5 },
  { n: 2, plain: 0.999762623, spread: 0.399513643, virtualZ: 0.01104359 },
];
for (const row of chainTable)
  test(`simultaneous X on ${row.n} fluxonium qubits, 4,999 steps`, { skip }, () => {
    const target = gate("X", row.n);
    const losses = (device: Chain): [number, number] => {
      const run = weft.jit((p: Record<string, Tensor>) => {
        const u = evolve(device.with(p), { steps: 4999, method: trotter2({ splitting: "terms" }), chunks: 1 }).unitary;
        return [processInfidelity(u, target), processInfidelity(compensate(u, target, "virtual-z"), target)];
      });
      const [bare, better] = run(device.parameters());
      return [bare.itemSync(), better.itemSync()];
    };
    near(losses(Chain.fluxonium({ qubits: row.n }))[0], row.plain, 2e-10, "no spread");
    const [bare, better] = losses(Chain.fluxonium({ qubits: row.n, spread: spread(row.n) }));
    near(bare, row.spread, 1e-9, "spread");
    near(better, row.virtualZ, 1e-8, "virtual Z");
  });

test("its gradient with respect to pulses, energies, couplings and length, in pieces of time", {
  skip,
}, () => {
  const chain = Chain.fluxonium({ qubits: 2, spread: spread(2), shared: { length: ["q0.x.length", "q1.x.length"] } });
  const target = gate("X", 2);
  const loss = (p: Record<string, Tensor>): Tensor =>
    processInfidelity(
      evolve(chain.with(p), { steps: 4999, method: trotter2({ splitting: "terms" }), chunks: 8 }),
      target,
    );
  const [value, gradient] = weft.jit((p: Record<string, Tensor>) => weft.valueAndGrad(loss)(p))(chain.parameters());
  near(value.itemSync(), 0.399513643, 1e-9, "value");
  const twoPi = 2 * Math.PI;
  // Published per rad/ns; energies here are in GHz.
  const wanted: Record<string, number> = {
    "q0.x.amplitude": -0.168752745,
    "q0.x.omega": -22.2155012,
    "q0.x.phase": -0.903965624,
    "q0.ec": -0.30697174 * twoPi,
    "q0.ej": 0.0956721437 * twoPi,
    "q0.el": -0.275070195 * twoPi,
    "q1.x.amplitude": -0.197907071,
    "q1.x.omega": 5.33882788,
    "q1.x.phase": 0.241499591,
    "q1.ec": 0.649099964 * twoPi,
    "q1.ej": -0.207393754 * twoPi,
    "q1.el": 0.575661501 * twoPi,
    length: -0.931580995,
    "q0-q1.jc": -9.19867619e-3 * twoPi,
    "q0-q1.jl": -2.12112802 * twoPi,
  };
  for (const [key, want] of Object.entries(wanted))
    near(gradient[key].itemSync(), want, 1e-5 * Math.max(1, Math.abs(want)), key);
});

test("cross resonance on a chain of three, between dressed states, single-qubit gates free", { skip }, () => {
  const bare = Chain.fluxonium({ qubits: 3, levels: 3, gate: "none" });
  const pulse = cosinePulse({ length: 100, amplitude: 0.13067653633, omega: 3.65803041115 });
  const device = new Device({ ...bare, drives: [{ name: "cr", on: "q0", pulse }] });
  const target = gate("CNOT*I");
  const run = evolve(device, { steps: 1999, basis: "eigen" });
  const u = run.unitary.realize();
  // Published with a splitting of first order, whose error at these steps is some 1e-5.
  near(1 - averageGateInfidelity(compensate(u, target, "single-qubit"), target).itemSync(), 0.98823998, 1e-4);
  assert.ok(averageGateInfidelity(u, target).itemSync() > 0.1, "without the compensation it is no CNOT");
});
