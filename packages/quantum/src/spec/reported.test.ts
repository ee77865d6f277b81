// What is reported as a fidelity: leakage is counted, numbers are probabilities, an adaptive solver has arrived, and the error of
// the steps is that of the reported pulse. Closed forms: a driven oscillator is in a coherent state.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { stringify } from "yaml";
import { grape, grapeEach, parseControlFile, prepareProblem, qubitFlip } from "../control/index.js";
import { GateProblem, parseGateSpec } from "./index.js";

const near = (got: number, want: number, tolerance: number): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${got}, wanted ${want} +- ${tolerance}`);

const frequency = 0.05;
const push = { on: "r", name: "u", operator: "n", shape: "piecewise", length: 1, values: [0.4, 0.4] };
const oscillator = (target: object, more: object = {}, evolution: object = {}): GateProblem =>
  new GateProblem(
    parseGateSpec(
      stringify({
        device: { parts: { r: { kind: "resonator", frequency, levels: 7, computational: 2 } } },
        pulses: [push],
        evolution: { steps: 200, method: "rk4", ...evolution },
        target,
        ...more,
      }),
    ),
  );

/** Population of level n of the coherent state after the push. */
function coherent(n: number): number {
  const w = 2 * Math.PI * frequency;
  const size = (0.16 * (2 - 2 * Math.cos(w))) / w ** 2;
  let p = Math.exp(-size);
  for (let k = 1; k <= n; k++) p *= size / k;
  return p;
}

test("state transfer counts leakage, also to levels beyond the computational ones", () => {
  for (const to of [0, 1, 2, 3]) {
    const problem = oscillator({ from: "0", to: String(to) });
    const { infidelity, leaked } = problem.report();
    near(infidelity, 1 - coherent(to), 1e-6);
    near(leaked!, 1 - coherent(0) - coherent(1), 1e-6);
  }
});

test("state transfer with decay uses the basis, and counts leakage", () => {
  const decay = [{ on: "r", operator: "lower", rate: 1e-9 }];
  const { infidelity, leaked } = oscillator({ from: "0", to: "1" }, { decay }).report();
  near(infidelity, 1 - coherent(1), 1e-5);
  near(leaked!, 1 - coherent(0) - coherent(1), 1e-5);
  const pair = (basis: string, jumps: object): number => {
    const parts = Object.fromEntries(
      ["a", "b"].map((name, k) => [name, { kind: "qubit", frequency: 0.5 + 0.2 * k }] as const),
    );
    const spec = stringify({
      device: { parts, couplings: [{ between: ["a", "b"], jc: 0.03 }] },
      pulses: [{ on: "a", name: "u", operator: "x", shape: "piecewise", length: 3, values: [0.2, 0.1, 0.3] }],
      evolution: { steps: 300, method: "rk4", basis },
      target: { from: "00", to: "10" },
      ...jumps,
    });
    return new GateProblem(parseGateSpec(spec)).report().infidelity;
  };
  const weak = { decay: [{ on: "a", operator: "x", rate: 1e-10 }] };
  assert.ok(Math.abs(pair("eigen", {}) - pair("product", {})) > 1e-4, "the bases differ");
  near(pair("eigen", weak), pair("eigen", {}), 1e-6);
});

/** A resonantly driven qubit: the population of |1> is sin^2 of the angle. */
const rabi = (evolution: object): GateProblem =>
  new GateProblem(
    parseGateSpec(
      stringify({
        device: { parts: { q: { kind: "qubit", frequency: 0 } } },
        pulses: [{ on: "q", name: "u", operator: "x", shape: "piecewise", length: 1, values: [1.1, 1.1] }],
        evolution,
        target: { from: "0", to: "1" },
        learn: ["q.u.values"],
      }),
    ),
  );

test("a solver that does not arrive gives no number, and the error is that at the given pulse", () => {
  const adaptive = (maxSteps: number): GateProblem => rabi({ method: "tsit5", tolerance: 1e-8, maxSteps });
  const short = adaptive(3);
  assert.ok(Number.isNaN(short.loss(short.learned()).itemSync()));
  assert.throws(() => short.report(), /did not reach the end within/);
  // The bound costs nothing: the loop ends when it arrives.
  const { infidelity, error } = adaptive(100_000_000).report();
  near(infidelity, Math.cos(1.1) ** 2, 1e-6);
  assert.ok(error < 1e-5, `estimated error ${error}`);
  const coarse = rabi({ steps: 20, method: "rk4", tolerance: 1e-6 });
  const weak = coarse.report();
  assert.ok(Math.abs(weak.infidelity - Math.cos(1.1) ** 2) < 3 * weak.error + 1e-9, `${weak.error}`);
  const strong = { "q.u.values": weft.tensor([4, 4], { dtype: "float64" }) };
  assert.throws(() => coarse.report(strong), /not between 0 and 1|instead of 1|leave an error/);
});

test("where a drive ends inside a step, the error is within the estimate", () => {
  for (const [length, steps] of [
    [0.613, 400],
    [0.378, 600],
  ]) {
    const pulse = { on: "q", name: "u", operator: "x", shape: "constant", length, amplitude: 1.1 };
    const spec = stringify({
      device: { parts: { q: { kind: "qubit", frequency: 0 } } },
      pulses: [pulse],
      evolution: { steps, duration: 1, method: "rk4" },
      target: { from: "0", to: "1" },
    });
    const { infidelity, error } = new GateProblem(parseGateSpec(spec)).report();
    near(infidelity, Math.cos(1.1 * length) ** 2, error);
    assert.ok(error < 0.1, `${error}`);
  }
});

test("pulse optimization refuses fidelities outside [0, 1] and returns the pulse that is played", () => {
  const rates = weft.tensor([0.05, 0.02], { dtype: "float64" });
  const prepared = prepareProblem(qubitFlip({ segments: 4, limit: 3 }));
  const start = weft.full([4, 2], 2.9, { dtype: "float64" });
  const coarse = { method: "euler", perSegment: 1 } as const;
  assert.throws(() => grape(prepared, rates, { steps: coarse, start, iterations: 20 }), /not in \[0, 1\]/);
  assert.throws(
    () => grapeEach(prepared, rates.unsqueeze(0), { steps: coarse, start: start.unsqueeze(0), iterations: 20 }),
    /not in \[0, 1\]/,
  );
  const fine = { method: "rk4", perSegment: 16 } as const;
  const found = grape(prepared, rates, { steps: fine, start: start.mul(2), iterations: 3 });
  assert.ok(found.params.pulse.abs().max().itemSync() <= 3, "within the limit");
  assert.ok(found.value >= 0 && found.value <= 1 && found.error < 1e-4, `${found.value} +- ${found.error}`);
});

test("steps that are too long for the final pulse are refined or refused", () => {
  const file = parseControlFile(
    "problem: {kind: flip, segments: 4, limit: 60}\nrates: [0.05, 0.02]\nintegration: {tolerance: 1.0e-7}\n",
  );
  const strong = { pulse: weft.full([4, 2], 12, { dtype: "float64" }) };
  assert.equal(file.refine(file.start), null);
  assert.throws(() => file.report(strong), /leave an error|not in \[0, 1\]/);
  const finer = file.refine(strong)!;
  assert.ok(finer.steps.perSegment > file.steps.perSegment);
  assert.ok(finer.report(strong).error <= 1e-7);
});
