// The pictures of a gate: which are drawn, and that they show its numbers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { errorBudget, GateProblem, parseGateSpec } from "@weft/quantum";
import { draws } from "./quantum-pictures.js";

const spec = `
name: flip
device: {parts: {q: {kind: qubit, frequency: 0.5}}}
pulses: [{on: q, name: x, operator: x, shape: cosine, length: 20, amplitude: 0.314, frequency: 0.5}]
decay: [{on: q, t1: 2000, t2: 3000}]
evolution: {steps: 1000}
target: {gate: X, compensation: virtual-z}
`;

test("levels, populations, pulses and the error budget of a gate", () => {
  const problem = new GateProblem(parseGateSpec(spec));
  const pictures = Object.fromEntries(draws(problem).map(([name, draw]) => [name, draw()]));
  assert.deepEqual(Object.keys(pictures).sort(), ["budget", "levels", "populations", "pulses"]);
  assert.match(pictures.levels!, /\|1&gt; {2}0\.500/);
  const budget = errorBudget(problem);
  assert.deepEqual(
    budget.map(({ name }) => name),
    ["infidelity", "without decay", "decay q.lower", "decay q.z", "leakage", "error of the steps"],
  );
  const [whole, without, lower, dephasing] = budget.map(({ value }) => value);
  // Weak contributions add up.
  assert.ok(Math.abs(whole! - without! - lower! - dephasing!) < 0.05 * whole!, budget.map((b) => b.value).join(" "));
  assert.ok(lower! > 0 && dephasing! > 0);
  assert.match(pictures.budget!, new RegExp(whole!.toExponential(2).replace("+", "\\+")));
});
