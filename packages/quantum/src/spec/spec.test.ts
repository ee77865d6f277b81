// Gate specifications: published gates give the published values, and invalid files are errors with the place.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import * as weft from "@weft/core";
import { parse, stringify } from "yaml";
import { GateProblem, parseGateSpec } from "./index.js";

const near = (got: number, want: number, tolerance: number, name = "value"): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);
const skip = weft.CpuDevice.available() ? false : "needs a compiler";
const example = (name: string): string =>
  readFileSync(join(import.meta.dirname, "../../../../examples/quantum", name), "utf8");

test("examples/quantum/chain-x.yaml gives the published infidelity", { skip }, () => {
  const problem = new GateProblem(parseGateSpec(example("chain-x.yaml")));
  const outcome = problem.outcome(problem.bind());
  near(outcome.infidelity.itemSync(), 0.399513643, 1e-9);
  outcome.check();
  assert.ok(Object.keys(problem.learned()).includes("length"));
});

/** The test pulse of the meta-learning study as a specification. */
const flip = (method: string): string =>
  stringify({
    device: { parts: { q: { kind: "qubit", frequency: 0 } } },
    pulses: ["x", "y"].map((operator) => ({
      on: "q",
      name: `u${operator}`,
      operator,
      shape: "piecewise",
      length: 1,
      values: Array.from({ length: 60 }, (_, k) =>
        operator === "x"
          ? (Math.PI / 2) * (1 + 0.1 * Math.sin((2 * Math.PI * k) / 60))
          : 0.2 * Math.cos((2 * Math.PI * k) / 60),
      ),
    })),
    decay: [
      { on: "q", operator: "lower", rate: 0.025 },
      { on: "q", operator: "z", rate: 0.025 },
    ],
    evolution: { steps: 60, method },
    target: { from: "0", to: "1" },
    learn: ["q.ux.values", "q.uy.values"],
  });

test("value and gradient of the test pulse on a decaying qubit equal the published values", () => {
  const problem = new GateProblem(parseGateSpec(flip("rk4")));
  const [value, gradient] = weft.valueAndGrad(problem.loss)(problem.learned());
  near(1 - value.itemSync(), 0.9778427990483176, 1e-13);
  const [x, y] = ["q.ux.values", "q.uy.values"].map((key) => gradient[key].dataSync() as Float64Array);
  near(-x[0], 6.943591e-5, 1e-10);
  near(-y[59], 2.678405e-4, 1e-10);
  const euler = new GateProblem(parseGateSpec(flip("euler")));
  assert.throws(() => euler.outcome(euler.bind()).check(), /is not between 0 and 1 after 60 steps of euler/);
});

test("T1 and T2 are converted to rates; T2 > 2 T1 is an error", () => {
  const text = (t2: number): string =>
    stringify({
      device: { parts: { q: { kind: "qubit", frequency: 0.5 } } },
      decay: [{ on: "q", t1: 100, t2 }],
      target: { from: "1", to: "1" },
      evolution: { duration: 50, steps: 50 },
    });
  const problem = new GateProblem(parseGateSpec(text(80)));
  near(problem.outcome(problem.bind()).infidelity.itemSync(), 1 - Math.exp(-0.5), 1e-8);
  assert.throws(() => parseGateSpec(text(201)), /t2 is longer than 2 t1/);
});

test("decay rates are parameters that are optimized only if they are named", () => {
  const text = flip("rk4").replace(/learn:[\s\S]*$/, "");
  const plain = new GateProblem(parseGateSpec(text));
  assert.ok(!Object.keys(plain.learned()).some((key) => key.endsWith("rate")));
  const problem = new GateProblem(parseGateSpec(`${text}\nlearn: ["q.*.rate"]`));
  const [value, gradient] = weft.valueAndGrad(problem.loss)(problem.learned());
  near(1 - value.itemSync(), 0.9778427990483176, 1e-13);
  // The dephasing rate of the study is twice the rate of z.
  near(-gradient["q.z.rate"].itemSync() / 2, -0.2410146322, 1e-9);
  near(-gradient["q.lower.rate"].itemSync(), -0.3876397128, 1e-9);
  const more = new GateProblem(parseGateSpec(`${text}\nparameters: {q.lower.rate: 0.05}`));
  assert.ok(more.loss({}).itemSync() > value.itemSync() + 0.005);
  assert.throws(
    () => new GateProblem(parseGateSpec(`${text}\nparameters: {q.lower.rate: -1}`)),
    /q.lower.rate: a decay rate must not be negative, got -1/,
  );
});

test("populations start in the state of the target and follow the decay", () => {
  const spec = (more: object): GateProblem =>
    new GateProblem(
      parseGateSpec(
        stringify({
          device: { parts: { a: { kind: "qubit", frequency: 0.5 }, b: { kind: "qubit", frequency: 0.6 } } },
          evolution: { duration: 50, steps: 90 },
          target: { from: "10", to: "10" },
          ...more,
        }),
      ),
    );
  const open = spec({ decay: [{ on: "a", t1: 100 }] }).populations(10);
  assert.deepEqual([open.from, open.open, open.labels, open.times.length], ["10", true, ["00", "01", "10", "11"], 11]);
  open.times.forEach((t, k) => {
    near(t, 5 * k, 1e-12);
    near(open.weights[k][2], Math.exp(-t / 100), 1e-9);
    near(open.weights[k][0], 1 - Math.exp(-t / 100), 1e-9);
  });
  const closed = spec({}).populations(10);
  assert.equal(closed.open, false);
  for (const row of closed.weights) near(row[2], 1, 1e-12);
});

test("a truncation that is populated during the evolution and a pulse longer than the evolution are errors", {
  skip,
}, () => {
  const driven = (amplitude: number, more: object = {}): GateProblem =>
    new GateProblem(
      parseGateSpec(
        stringify({
          device: { parts: { q: { kind: "duffing", frequency: 0.6, anharmonicity: -0.2, levels: 3 } } },
          pulses: [{ on: "q", name: "x", operator: "n", shape: "cosine", length: 30, amplitude, frequency: 0.6 }],
          evolution: { steps: 1000 },
          target: { gate: "X" },
          ...more,
        }),
      ),
    );
  driven(0.2).checkTruncation();
  const strong = driven(2);
  // At the end the highest level is almost empty.
  strong.outcome(strong.bind()).check();
  assert.throws(
    () => strong.checkTruncation(),
    /\d % of the weight passes through the highest level kept of q \(3 levels\)/,
  );
  const short = driven(0.2, { decay: [{ on: "q", t1: 100 }], evolution: { steps: 100, duration: 20 } });
  assert.throws(() => short.outcome(short.bind()), /the pulse q.x ends at 30 ns, after the evolution \(20 ns\)/);
});

test("too few steps for the tolerance are an error with a sufficient number", () => {
  const text = (steps: number): string =>
    stringify({
      device: { parts: { q: { kind: "qubit", frequency: 0.5 } } },
      pulses: [{ on: "q", name: "x", operator: "x", shape: "cosine", length: 20, amplitude: 0.31, omega: 3.1 }],
      evolution: { steps, tolerance: 1e-6 },
      target: { gate: "X", compensation: "virtual-z" },
    });
  const few = new GateProblem(parseGateSpec(text(48)));
  assert.throws(() => few.checkSteps(), /48 steps leave an error of .* use about \d+/);
  const { error } = few.stepError();
  const exact = new GateProblem(parseGateSpec(text(4000)));
  const value = (problem: GateProblem): number => problem.outcome(problem.bind()).infidelity.itemSync();
  const actual = Math.abs(value(few) - value(exact));
  assert.ok(error > actual / 3 && error < actual * 3, `estimated ${error}, actual ${actual}`);
  exact.checkSteps();
});

test("all kinds of parts, shapes and couplings can be specified", () => {
  const spec = parseGateSpec(`
device:
  parts:
    f: {kind: fluxonium, ec: 1, ej: 4, el: 0.9, phiExt: pi, fluxOn: junction, levels: 3, points: 80, range: 4*pi}
    t: {kind: transmon, ec: 0.25, ej: 12, asymmetry: 0.2, phiExt: pi/4, levels: 3}
    r: {kind: resonator, frequency: 6.5, levels: 3, zeroPoint: true}
    d: {kind: duffing, frequency: 4.8, anharmonicity: -0.2, levels: 3}
    q: {kind: qubit, frequency: 0.3}
  couplings:
    - {between: [f, t], jc: 0.01}
    - {between: [t, r], jc: 0.05}
    - {between: [d, q], jl: 0.002, zz: 0.001}
  spread: {sigma: 0.01, seed: 42}
  shared: {qubits: [d.frequency]}
pulses:
  - {on: f, name: a, shape: gaussian, sigma: 4, amplitude: 0.1, omega: 3, drag: 0.2, crosstalk: {t: 0.1}}
  - {on: t, name: b, operator: n, shape: gaussianSquare, sigma: 3, plateau: 10, amplitude: 0.1, frequency: 5.1}
  - {on: d, name: c, operator: n, shape: tanh, ramp: 4, plateau: 8, delay: 2}
  - {on: q, name: e, operator: x, shape: erf, ramp: 4, plateau: 8}
  - {on: q, name: g, operator: z, shape: trapezoid, ramp: 4, plateau: 8}
  - {on: r, name: h, operator: n, shape: rampedCosine, ramp: 4, plateau: 8}
evolution: {steps: 100, method: trotter4, basis: product}
target: {gate: I, compensation: virtual-z}
`);
  assert.equal(spec.device.names.length, 5);
  const h = spec.device.with({}).hamiltonian();
  assert.deepEqual(h.dims, [3, 3, 3, 3, 2]);
  assert.equal(h.static.length, 5 + 4);
  // Drives: f, t by phi (crosstalk), t by n, d, q by x, q by z, r.
  assert.equal(h.drives.length, 7);
  assert.equal(Object.keys(spec.device.spread).length, 5);
  assert.deepEqual(parse(stringify(spec.device.values())), spec.device.values());
});

const wrong: [string, RegExp][] = [
  [
    "{device: {parts: {q: {kind: qubit, frequency: 1}}}, target: {matrix: [[1, 1], [0, 1]]}}",
    /target.matrix: is not unitary: M\^H M differs from the identity by 1.0e\+0/,
  ],
  [
    "{device: {parts: {q: {kind: qubit, frequency: 1}}}, decay: [{on: q, t1: 0}]}",
    /decay\[0\].t1: must be a positive time in ns, got 0/,
  ],
  [
    "{device: {parts: {q: {kind: qubit, frequency: 1}}}, evolution: {duration: -1}}",
    /evolution.duration: must be a positive time in ns, got -1/,
  ],
  ["devise: {}", /there is no key "devise"; did you mean "device"/],
  ["pulses: []", /"device" is missing/],
  ["device: {chain: {qubits: 0}}", /device.chain.qubits: expected a whole number/],
  ["device: {chain: {qubits: 2, ell: 1}}", /no key "ell"; did you mean "el"/],
  ["device: {parts: {q: {kind: fluxoniun}}}", /no "fluxoniun"; did you mean "fluxonium"/],
  ["device: {parts: {q: {kind: qubit, frequency: fast}}}", /device.parts.q.frequency: expected a number/],
  [
    "{device: {parts: {q: {kind: qubit, frequency: 1}}}, evolution: {method: trotter3}}",
    /no "trotter3"; did you mean "trotter/,
  ],
  ["{device: {parts: {q: {kind: qubit, frequency: 1}}}, target: {gate: XX}}", /target.gate: gate: there is no "XX"/],
  [
    "{device: {parts: {q: {kind: qubit, frequency: 1}}}, decay: [{on: q, operator: lower, rate: -1}]}",
    /must not be negative/,
  ],
  ["{device: {parts: {q: {kind: qubit, frequency: 1}}}, pulses: [{on: q, shape: cosine}]}", /"length" is missing/],
  ["{device: {parts: {q: {kind: qubit, frequency: 1}}}, learn: [q.frequenzy]}", /did you mean "q.frequency"/],
  ["device: [", /is not YAML/],
];
for (const [text, message] of wrong)
  test(`refused: ${text.slice(0, 70)}`, () => {
    assert.throws(() => parseGateSpec(text), message);
  });
