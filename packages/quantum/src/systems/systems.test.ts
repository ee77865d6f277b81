// Spectra, matrix elements, dressed states and parameters of devices, against values of other codes.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "@weft/core/internal/tensor";
import * as weft from "@weft/core/internal/tensor";
import { onEachDevice } from "@weft/testing/devices";
import { cosinePulse } from "../pulses/index.js";
import {
  Chain,
  type DevicePart,
  Duffing,
  evolve,
  Fluxonium,
  QuantumDevice,
  Qubit,
  Resonator,
  spectrum,
  staticZZ,
  Transmon,
} from "./index.js";

const near = (got: number, want: number, tolerance: number, name = "value"): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);
const ghz = (energies: Tensor): number[] => Array.from(energies.dataSync() as Float64Array, (x) => x / (2 * Math.PI));

onEachDevice((_, device) => {
  // A 400-point eigenproblem takes the reference device a minute, so it solves a smaller grid.
  const grid = device === "reference" ? { points: 100, range: 4 * Math.PI } : {};
  test("fluxonium spectra at zero and half flux equal the published values", {
    skip: device === "reference" && "a 400-point eigenproblem takes the reference device a minute",
  }, () => {
    const fields = { ec: 1.68, ej: 3.5, el: 0.5, levels: 5 };
    const known: [number, number[]][] = [
      [0, [-0.24092618, 5.06891579, 7.16328215, 8.28020319, 10.81742776]],
      [Math.PI, [1.3041627, 2.09823523, 6.19190726, 9.14847985, 12.57031594]],
    ];
    for (const [phiExt, want] of known)
      ghz(new Fluxonium({ ...fields, phiExt }).solve().energies).forEach((e, i) => void near(e, want[i], 6e-9));
  });

  test("flux on the junction and on the inductor give the same spectrum", () => {
    const fields = { ec: 1, ej: 4, el: 1, phiExt: 1.1, levels: 3, ...grid };
    const [a, b] = (["inductor", "junction"] as const).map((fluxOn) =>
      ghz(new Fluxonium({ ...fields, fluxOn }).solve().energies),
    );
    a.forEach((e, i) => void near(e, b[i], 1e-7));
  });
});

test("levels are computed where the states are: any flux and gate charge, weak inductors; else they are refused", () => {
  const above = (part: DevicePart): number[] => {
    const [ground, ...rest] = ghz(part.solve().energies);
    return rest.map((e) => e - ground);
  };
  // In a basis of oscillator states, by SciPy.
  const known: [object, number[]][] = [
    [
      { ec: 2.5, ej: 8.9, el: 0.5, phiExt: Math.PI },
      [0.363421367, 9.386348966, 12.328822001, 17.302533565, 18.059099792],
    ],
    [{ ec: 1, ej: 4, el: 0.05, phiExt: 0.7 }, [0.754933895, 1.184823639, 3.434249216, 4.249989674, 4.300268397]],
  ];
  for (const [fields, want] of known)
    above(new Fluxonium({ ...(fields as { ec: number; ej: number; el: number }), levels: 6 })).forEach(
      (e, k) => void near(e, want[k], 2e-7),
    );
  const small = { ec: 1, ej: 4, el: 1, levels: 3, points: 120, range: 4 * Math.PI };
  const still = above(new Fluxonium(small));
  for (const turns of [1, 3, -10])
    above(new Fluxonium({ ...small, phiExt: 2 * Math.PI * turns })).forEach((e, k) => void near(e, still[k], 1e-9));
  const transmon = { ec: 0.2, ej: 10, levels: 4 };
  const uncharged = above(new Transmon({ ...transmon, ng: 0.2 }));
  above(new Transmon({ ...transmon, ng: 40.2 })).forEach((e, k) => void near(e, uncharged[k], 1e-9));
  const levelsOf = (part: DevicePart): unknown => new QuantumDevice({ parts: { q: part } }).with({}).levels();
  assert.throws(
    () => levelsOf(new Transmon({ ...transmon, ej: 1e5 })),
    /levels of q reach the ends of the grid.*raise points/,
  );
  assert.throws(() => levelsOf(new Fluxonium({ ...small, range: Math.PI })), /raise points and range \(now 120/);
});

test("frequencies and matrix elements of the qubits of a chain equal the published values", () => {
  const rows: [number, number, number, number, number, number][] = [
    [0.8, 0.4240401715, 3.4829226883, 0.1220484567, 0.5673510101, 2.3025829142],
    [0.9, 0.4999101308, 3.4299908536, 0.1384091402, 0.5731355815, 2.214944353],
    [1.0, 0.5818489964, 3.3885865585, 0.1549909621, 0.5790044485, 2.1310128652],
    [1.1, 0.6692293283, 3.3584076324, 0.1715796291, 0.584900899, 2.0510712474],
    [1.2, 0.7613557097, 3.3388640814, 0.1879923325, 0.5907955778, 1.9753429849],
  ];
  const chain = Chain.fluxonium({ qubits: 5, el: rows.map(([el]) => el), levels: 3, gate: "none" });
  const levels = chain.with({}).levels();
  rows.forEach(([, f01, f12, n01, n12, phi01], i) => {
    const { energies, n, phi } = levels[`q${i}`];
    const e = ghz(energies);
    near(e[1] - e[0], f01, 2e-10, "f01");
    near(e[2] - e[1], f12, 2e-10, "f12");
    // Phase convention: charge elements between adjacent levels are real and positive.
    near(n.index(0, 1).real().itemSync(), n01, 1e-10, "n01");
    near(n.index(1, 2).real().itemSync(), n12, 1e-10, "n12");
    near(n.index(0, 1).imag().itemSync(), 0, 1e-14, "phase of n01");
    near(phi.index(0, 1).abs().itemSync(), phi01, 1e-10, "phi01");
  });
});

test("dressed frequencies and static ZZ of three coupled qubits equal the published values", () => {
  const chain = Chain.fluxonium({ qubits: 3, levels: 5, gate: "none" });
  const rows = Object.fromEntries(spectrum(chain.with({})).map(({ label, energy }) => [label, energy]));
  near(rows["100"], 0.4990023551, 1e-10);
  near(rows["010"], 0.5821936219, 1e-10);
  near(rows["001"], 0.6700509917, 1e-10);
  const zz = (jc: number): number =>
    1e6 * staticZZ(chain.with({ "q0-q1.jc": jc, "q1-q2.jc": jc }), "q0", "q1").itemSync();
  near(zz(0.02), 3.4969, 1e-4, "static ZZ in kHz");
  near(zz(0.0122496977), 0, 1e-6, "static ZZ in kHz");
});

test("levels of a flux-tunable asymmetric transmon equal an independent diagonalization", () => {
  const part = new Transmon({ ec: 0.25, ej: 12.5, asymmetry: 0.3, phiExt: 1.2, ng: 0.1, levels: 4 });
  const { energies, n } = part.solve();
  const e = ghz(energies);
  // Independent diagonalization of the same Hamiltonian with 101 charge states.
  transmonLevels.forEach((want, i) => void near(e[i], want, 1e-10));
  for (let i = 0; i < 3; i++) {
    assert.ok(
      n
        .index(i, i + 1)
        .real()
        .itemSync() > 0.5,
    );
    near(
      n
        .index(i, i + 1)
        .imag()
        .itemSync(),
      0,
      1e-14,
    );
  }
});
const transmonLevels = [-8.301356264116, -3.977919376625, 0.053219676778, 3.756380785608];

test("gradients of levels and matrix elements equal finite differences", () => {
  const check = (make: (x: Tensor) => Tensor, at: number): void => {
    const g = weft
      .grad(make)(weft.tensor(at, { dtype: "float64" }))
      .itemSync();
    const f = (x: number): number => make(weft.tensor(x, { dtype: "float64" })).itemSync();
    // Eigenvalues carry about 1e-12 of rounding (the matrix norm is in the thousands), so the step must not be small: a
    // five-point stencil keeps the truncation error of a large one below 1e-9.
    const h = 2e-3;
    const difference = (8 * (f(at + h) - f(at - h)) - (f(at + 2 * h) - f(at - 2 * h))) / (12 * h);
    near(g, difference, 1e-7);
  };
  const part = new Fluxonium({ ec: 1, ej: 4, el: 0.9, phiExt: 2.9, levels: 3, points: 120, range: 4 * Math.PI });
  const solve = (key: string) => (x: Tensor) => {
    const { energies, n, phi } = part.solve({ ...part.tensors(), [key]: x });
    return energies.index(1).sub(energies.index(0)).add(n.index(0, 1).real()).add(phi.index(1, 2).abs());
  };
  for (const [key, at] of Object.entries(part.parameters)) check(solve(key), at);
});

test("a dispersive qubit-resonator pair and a Duffing oscillator equal perturbation theory", () => {
  // Far-detuned cavity: the shift by perturbation theory is g^2/delta up to (g/delta)^4.
  const [g, delta] = [0.05, 1.5];
  const device = new QuantumDevice({
    parts: { q: new Qubit({ frequency: 5 }), r: new Resonator({ frequency: 5 + delta, levels: 6 }) },
    couplings: [{ between: ["q", "r"], jc: g }],
  });
  const rows = Object.fromEntries(spectrum(device.with({})).map(({ label, energy }) => [label, energy]));
  const [rotating, counter] = [g ** 2 / -delta, g ** 2 / (10 + delta)];
  near(rows["10"] - rows["00"] - 5, rotating + counter, 1e-5, "Lamb shift with the counter-rotating part");
  const duffing = new Duffing({ frequency: 4.8, anharmonicity: -0.2, levels: 4 });
  ghz(duffing.solve().energies).forEach((e, k) => void near(e, 4.8 * k - 0.1 * k * (k - 1), 1e-12));
});

test("parameters are a flat dictionary that survives JSON, with shared parameters and spread", () => {
  const chain = Chain.fluxonium({
    qubits: 3,
    shared: { el: ["q0.el", "q2.el"], length: ["q0.x.length", "q1.x.length", "q2.x.length"] },
    spread: { "q0.el": 1.01 },
    el: [0.9, 1, 0.9],
  });
  const values = chain.values();
  assert.ok(!("q0.el" in values) && values.el === 0.9 && values.length === 50);
  assert.deepEqual(JSON.parse(JSON.stringify(values)), values);
  const bound = chain.with({ el: 0.95 });
  near(bound.parameter("q0.el").itemSync(), 0.95 * 1.01, 1e-15);
  near(bound.parameter("q2.el").itemSync(), 0.95, 1e-15);
  assert.throws(() => chain.with({ "q1.ell": 1 }), /no parameter "q1.ell"; did you mean "q1.el"/);
  assert.throws(() => chain.with({ "q0.el": 1 }), /no parameter "q0.el"/);
});

test("crosstalk adds the pulse of another part", () => {
  const parts = { a: new Qubit({ frequency: 0.5 }), b: new Qubit({ frequency: 0.6 }) };
  const drive = { name: "x", on: "a", operator: "n" as const, pulse: cosinePulse({ length: 20, amplitude: 0.3 }) };
  const device = new QuantumDevice({ parts, drives: [{ ...drive, crosstalk: { b: 0.25 } }] });
  const h = device.with({}).hamiltonian();
  assert.equal(h.drives.length, 2);
  const values = (h.amplitudes as (t: Tensor) => Tensor)(weft.tensor([4, 10], { dtype: "float64" })).dataSync();
  near(Number(values[3]), 0.25 * 0.3, 1e-15);
  near(Number(values[1]), 0.25 * Number(values[0]), 1e-15);
});

test("invalid devices and evolutions are errors", () => {
  const parts = { a: new Qubit({ frequency: 0.5 }), b: new Qubit({ frequency: 0.5 }) };
  assert.throws(() => new Fluxonium({ ec: -1, ej: 4, el: 1 }), /ec must be positive/);
  assert.throws(() => new Fluxonium({ ec: 1, ej: 4, el: 1, levels: 1 }), /levels must be a whole number from 2/);
  assert.throws(
    () => new QuantumDevice({ parts, couplings: [{ between: ["a", "c"], jc: 1 }] }),
    /part "c", which does not exist/,
  );
  assert.throws(() => new QuantumDevice({ parts, couplings: [{ between: ["a", "b"] }] }), /neither jc nor jl/);
  const pulse = cosinePulse({ length: 20 });
  const device = new QuantumDevice({
    parts,
    drives: [{ name: "x", on: "a", pulse }],
    couplings: [{ between: ["a", "b"], jc: 0.01 }],
  });
  assert.throws(() => evolve(device.with({ "a.x.length": -3 }), { steps: 10 }), /the pulses end at -3 ns/);
  assert.throws(() => evolve(device, { steps: 10, duration: 19 }), /pulse a.x ends at 20 ns, after the evolution/);
  // Equal frequencies: dressed states are equal mixtures or degenerate.
  assert.throws(() => spectrum(device.with({})), /mixed half and half|degenerate/);
  assert.throws(() => evolve(device, { steps: 10, basis: "eigen" }), /mixed half and half|degenerate/);
  const strong = new QuantumDevice({
    parts: { a: new Duffing({ frequency: 0.5, anharmonicity: 0.01, levels: 3 }) },
    drives: [{ name: "x", on: "a", operator: "n", pulse: cosinePulse({ length: 20, amplitude: 1, omega: Math.PI }) }],
  });
  assert.throws(
    () => evolve(strong, { steps: 400 }).check(),
    /highest level kept of a \(3 levels\): the truncation is too small/,
  );
  assert.throws(() => evolve(strong.with({ "a.x.amplitude": Number.NaN }), { steps: 40 }).check(), /not a number/);
});
