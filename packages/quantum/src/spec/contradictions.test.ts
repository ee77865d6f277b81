// Specifications that contradict themselves are refused, lengths of pulses act on their own pulse, and estimated errors hold
// where their assumptions do not.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { stringify } from "yaml";
import { withError } from "../fidelity/index.js";
import { MetaTrainer } from "../meta/index.js";
import { matching } from "./gate-spec.js";
import { GateProblem, parseGateSpec } from "./index.js";

const near = (got: number, want: number, tolerance: number): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${got}, wanted ${want} +- ${tolerance}`);

const still = { kind: "qubit", frequency: 0 };
const push = (on: string, values: number[], length = 2): object => ({
  on,
  name: "u",
  operator: "x",
  shape: "piecewise",
  length,
  values,
});
const base = {
  device: { parts: { a: still, b: still } },
  pulses: [push("a", [0.4]), push("b", [0.7])],
  evolution: { steps: 400 },
  target: { from: "00", to: "11" },
};
const problem = (changes: object): GateProblem => new GateProblem(parseGateSpec(stringify({ ...base, ...changes })));

test("the length of a piecewise pulse does not stretch the others", () => {
  const both = (lengthB: number): number => 1 - Math.sin(0.8) ** 2 * Math.sin(0.7 * lengthB) ** 2;
  near(problem({}).report().infidelity, both(2), 1e-9);
  near(problem({ parameters: { "b.u.length": 1 } }).report().infidelity, both(1), 1e-9);
  const { loss } = problem({});
  const length = weft.tensor(1, { dtype: "float64" });
  const traced = weft.jit((x: weft.Tensor) => loss({ "b.u.length": x }));
  near(traced(length).itemSync(), both(1), 1e-9);
  // Time after the pulses is idle.
  near(problem({ evolution: { steps: 400, duration: 4 } }).report().infidelity, both(2), 1e-9);
});

test("lengths without a gradient are not learned", () => {
  assert.deepEqual(
    Object.keys(problem({}).learned()).filter((key) => key.endsWith("length")),
    [],
  );
  assert.throws(() => problem({ learn: ["b.u.length"] }), /"b.u.length" has no gradient/);
  const shared = problem({ device: { ...base.device, shared: { length: ["a.u.length", "b.u.length"] } } });
  const slope = weft.grad((x: weft.Tensor) => shared.loss({ length: x }))(weft.tensor(2, { dtype: "float64" }));
  const value = (t: number): number => 1 - Math.sin(0.4 * t) ** 2 * Math.sin(0.7 * t) ** 2;
  near(slope.itemSync(), (value(2 + 1e-5) - value(2 - 1e-5)) / 2e-5, 1e-6);
  assert.ok("length" in shared.learned());
});

test("keys that contradict each other are refused", () => {
  const refused: [object, RegExp][] = [
    [{ decay: [{ on: "a", operator: "lower", rate: 0.1, t1: 5 }] }, /"operator" and "t1" contradict/],
    [{ decay: [{ on: "a", rate: 0.1, t2: 5 }] }, /"rate" and "t2" contradict/],
    [{ decay: [{ on: "a", rate: 0.1 }] }, /"operator" is missing/],
    [{ target: { gate: "X*I", to: "01" } }, /"gate" and "to" contradict/],
    [{ target: { gate: "X*I", matrix: [[1]] } }, /contradict|matrix/],
    [{ target: { from: "01" } }, /"to" is missing/],
    [{ target: { to: "01", compensation: "virtual-z" } }, /"to" and "compensation" contradict/],
    [{ target: { to: "01", measure: "process" } }, /"to" and "measure" contradict/],
    [{ pulses: [{ ...push("a", [1]), frequency: 1, omega: 6 }] }, /"frequency" and "omega" contradict/],
    [{ pulses: [{ ...push("a", [1]), phase: 1 }] }, /phase needs a carrier/],
    [{ device: { chain: { qubits: 2 }, couplings: [{ between: ["q0", "q1"], jc: 1 }] } }, /"chain" and "couplings"/],
    [{ evolution: { method: "tsit5", steps: 10 } }, /chooses its own steps/],
    [{ evolution: { method: "rk4", maxSteps: 10 } }, /maxSteps belongs to/],
    [{ evolution: { chunks: 2 }, decay: [{ on: "a", t1: 5 }] }, /chunks/],
    [{ device: { ...base.device, spread: { sigma: 0.1, parameters: ["frequenzy"] } } }, /did you mean "frequency"/],
    [{ device: { ...base.device, spread: { sigma: 0.1 } } }, /no part has ec, ej, el/],
    [{ device: { ...base.device, spread: { sigma: -0.1, parameters: ["frequency"] } } }, /must not be negative/],
    [{ device: { ...base.device, shared: { f: ["a.frequency"], g: ["a.frequency"] } } }, /in two lists of shared/],
    [
      { device: { parts: { a: { ...still, frequency: 1 }, b: still }, shared: { f: ["a.frequency", "b.frequency"] } } },
      /a.frequency is 1 and b.frequency is 0/,
    ],
    [{ pulses: [{ ...push("a", [1]), crosstalk: { a: 0.1 } }] }, /which it drives/],
    [{ target: { to: " 1" } }, /2 digits/],
    [{ target: { to: 1 } }, /in quotes/],
    [{ parameters: { "a.u.length": -1 } }, /length must be positive/],
    [{ parameters: { "a.u.values": 3 } }, /expected 1 values, got a number/],
    [{ parameters: { "a.u.values": [1, 2] } }, /expected 1 values, got 2 values/],
    [{ parameters: { "a.u.length": [1, 2] } }, /expected a number, got 2 values/],
  ];
  for (const [changes, message] of refused) assert.throws(() => problem(changes), message, JSON.stringify(changes));
});

test("patterns of keys are matched in linear time, and files without end are refused", () => {
  const keys = ["q0.x.amplitude", "q1.x.amplitude", "q1.x.omega"];
  assert.deepEqual(matching(keys, "q*.x.amplitude"), keys.slice(0, 2));
  assert.deepEqual(matching(keys, "q1*"), keys.slice(1));
  assert.deepEqual(matching(keys, "*x*x*"), []);
  assert.deepEqual(matching(keys, "q0.x.amplitude*amplitude"), []);
  assert.deepEqual(matching([`${"a".repeat(60)}b`], "a*".repeat(40)), [`${"a".repeat(60)}b`]);
  assert.deepEqual(matching(["a".repeat(60)], `${"a*".repeat(40)}b`), []);
  const pulse = (k: number): string => `{ on: q, name: x${k}, operator: x, shape: cosine, length: 20, amplitude: 1 }`;
  const many = Array.from({ length: 257 }, (_, k) => pulse(k)).join(", ");
  assert.throws(
    () => parseGateSpec(`{ device: { parts: { q: { kind: qubit, frequency: 1 } } }, pulses: [${many}] }`),
    /gate: pulses: expected at most 256, got 257/,
  );
  assert.throws(() => parseGateSpec("device: &x [*x]"), /an alias refers to a value that contains it/);
});

test("the error is estimated where steps cannot be halved, where drives jump between steps, and in complex64", () => {
  const odd = problem({ pulses: [push("a", [0.4, 0.2, 0.1]), push("b", [0.7, 0.1, 0.3])], evolution: { steps: 3 } });
  assert.ok(odd.report().error < 1e-9);
  // Segments of unequal pulses do not meet the steps.
  const rough = {
    pulses: [push("a", [0.4, 0.9, 0.1]), push("b", [0.7, 0.1])],
    evolution: { steps: 500, method: "rk4" },
  };
  const { infidelity, error } = problem(rough).report();
  const angle = ((0.4 + 0.9 + 0.1) * 2) / 3;
  const truth = 1 - Math.sin(angle) ** 2 * Math.sin(0.8) ** 2;
  assert.ok(Math.abs(infidelity - truth) <= 3 * error, `off by ${Math.abs(infidelity - truth)}, estimated ${error}`);
  const single = problem({ evolution: { steps: 20, precision: "complex64" } }).report();
  assert.ok(Math.abs(single.infidelity - (1 - Math.sin(0.8) ** 2 * Math.sin(1.4) ** 2)) <= 2 * single.error + 1e-9);
  assert.ok(single.error > 1e-9, `${single.error}`);
});

test("a pulse that leaves the truncated levels is refused, also after optimization", () => {
  const spec = {
    device: { parts: { r: { kind: "resonator", frequency: 0.05, levels: 4, computational: 2 } } },
    pulses: [{ ...push("r", [0.2, 0.2], 1), operator: "n" }],
    evolution: { steps: 100, method: "rk4" },
    target: { from: "0", to: "1" },
  };
  const made = problem(spec);
  assert.ok(made.report().error < 1e-6);
  const strong = { "r.u.values": weft.tensor([3, 3], { dtype: "float64" }) };
  assert.throws(() => made.report(strong), /the truncation is too small/);
});

test("robust ensembles combine the infidelities of varied devices", () => {
  // A resonantly driven qubit: the population of |1> is sin^2 of the area.
  const spec = (robust: object): object => ({
    device: { parts: { q: { kind: "qubit", frequency: 0 } } },
    pulses: [push("q", [0.75], 2)],
    evolution: { steps: 20 },
    target: { to: "1" },
    robust,
  });
  const lost = (scale: number): number => Math.cos(1.5 * scale) ** 2;
  const all = [1, 0.8, 0.9, 1.1, 1.2].map(lost);
  const mean = all.reduce((a, b) => a + b, 0) / 5;
  const vary = { "q.u.amplitude": 0.2 };
  const averaged = problem(spec({ vary, samples: 5 }));
  near(averaged.report().infidelity, mean, 1e-9);
  near(averaged.report().nominal!, lost(1), 1e-9);
  near(averaged.loss({}).itemSync(), mean, 1e-9);
  near(problem(spec({ vary, samples: 5, objective: "worst" })).report().infidelity, Math.max(...all), 1e-9);
  const slope = weft.grad((x: weft.Tensor) => averaged.loss({ "q.u.amplitude": x }))(
    weft.tensor(1, { dtype: "float64" }),
  );
  const at = (x: number): number => [1, 0.8, 0.9, 1.1, 1.2].reduce((sum, s) => sum + lost(s * x), 0) / 5;
  near(slope.itemSync(), (at(1 + 1e-5) - at(1 - 1e-5)) / 2e-5, 1e-6);
  const wide = { ...spec({ vary: { "q.frequency": { absolute: 0.1 } } }), evolution: { steps: 400 } };
  const detuned = problem(wide).report();
  const rabi = Math.hypot(0.75, Math.PI * 0.1);
  const off = 1 - (0.75 / rabi) ** 2 * Math.sin(2 * rabi) ** 2;
  near(detuned.infidelity, (lost(1) + 2 * off) / 3, 1e-5);
  assert.throws(() => problem(spec({ vary: { "q.u.amplitud": 0.1 } })), /did you mean "q.u.amplitude"/);
  assert.throws(() => problem(spec({ vary, samples: 4 })), /odd number/);
  assert.throws(() => problem(spec({ vary: {} })), /at least one/);
});

test("meta-learning reports the error of its fidelities", () => {
  const trainer = new MetaTrainer({
    preset: "debug",
    iterations: 2,
    integration: { training: { tolerance: 1e-5 }, evaluation: { tolerance: 1e-9 } },
  });
  trainer.run();
  const { error, after } = trainer.validations.at(-1)!;
  assert.ok(error <= 1e-9 && after > 0 && after <= 1, `${after} +- ${error}`);
});

test("numbers are shown to the digits that their error leaves", () => {
  assert.equal(withError(2.31e-4, 4e-7), "2.310e-4 +- 4e-7");
  assert.equal(withError(0.9912344, 2e-6), "0.991234 +- 2e-6");
  assert.equal(withError(3.2e-9, 4e-7), "3e-9 +- 4e-7");
  assert.equal(withError(0, 0), "0e+0 +- 1e-16");
});

test("sizes that no memory can hold are refused at once", () => {
  const file = (part: string, more = "") => `
device: {parts: {q: {kind: duffing, frequency: 5, anharmonicity: -0.3, ${part}}}}
${more}`;
  for (const [part, more, message] of [
    ["levels: 1.0e+308", "", /levels must be at most 4096/],
    ["levels: 1000000000", "", /levels must be at most 4096/],
    ["levels: 3", "evolution: {steps: 1000000000}", /steps: must be at most 10000000, got 1000000000/],
    ["levels: 3", "robust: {spread: {sigma: 0.1, devices: 1000000000}}", /at most 10000, got/],
    ["levels: 3", "robust: {vary: {q.frequency: 0.1}, samples: 1000000001}", /at most 1001, got/],
  ] as const)
    assert.throws(() => parseGateSpec(file(part, more)), message);
  assert.throws(() => parseGateSpec("device: {chain: {qubits: 1000000000}}"), /at most 20, got/);
  assert.throws(
    () =>
      parseGateSpec(
        "device: {parts: {a: {kind: resonator, frequency: 5, levels: 4000}, b: {kind: resonator, frequency: 5, levels: 4000}}}",
      ),
    /16000000 states together/,
  );
});
