// Running costs, drawn devices, time-optimal search and the choice of a method, on the reference device.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { ReferenceDevice } from "@weft/core/internal/device";
import { useDevice } from "@weft/core/internal/runtime";
import * as weft from "@weft/core/internal/tensor";
import { minimize, runningCosts, shortestDuration } from "../control/index.js";
import { GateProblem, parseGateSpec, scaleTimes, tuneEvolution } from "./index.js";

before(() => void useDevice(new ReferenceDevice()));
const near = (got: number, want: number, tolerance: number, name: string): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);

const file = (more = "", shape = "fourier", values = "[0.3, 0.05]") => `
device: {parts: {q: {kind: qubit, frequency: 0}}}
pulses: [{on: q, name: x, operator: x, shape: ${shape}, length: 10, values: ${values}}]
evolution: {steps: 40, method: trotter4}
target: {gate: X, compensation: virtual-z}
learn: [q.x.values]
${more}`;
const problemOf = (more?: string, shape?: string, values?: string): GateProblem =>
  new GateProblem(parseGateSpec(file(more, shape, values)));

test("power, smoothness and bandwidth equal closed forms", () => {
  const n = 256;
  const [size, cycles, length] = [0.7, 5, 20];
  const wave = weft.tensor(
    Array.from({ length: n }, (_, k) => [size * Math.sin((2 * Math.PI * cycles * (k + 0.5)) / n)]),
    { dtype: "float64" },
  );
  const costs = { power: 1, smoothness: 1, bandwidth: { above: 0.5, weight: 1 } };
  const { power, smoothness, bandwidth } = runningCosts(wave, length, costs);
  near(power!.itemSync(), size ** 2 / 2, 1e-12, "power");
  near(smoothness!.itemSync(), (size * 2 * Math.PI * (cycles / length)) ** 2 / 2, 1e-2, "slope");
  assert.ok(bandwidth!.itemSync() < 0.01, `5 cycles in 20 ns are 0.25 GHz: ${bandwidth!.itemSync()}`);
  const low = runningCosts(wave, length, { bandwidth: { above: 0.1, weight: 1 } }).bandwidth!.itemSync();
  assert.ok(low > 0.95, `${low} of the energy is above 0.1 GHz`);
});

test("costs are added to the loss, with their gradient, and are not part of the reported infidelity", () => {
  const [plain, costly] = [
    problemOf(),
    problemOf("costs: {power: 0.1, smoothness: 2, bandwidth: {above: 0.1, weight: 0.3}}"),
  ];
  const p = plain.learned();
  const { costs, infidelity } = costly.report();
  near(infidelity, plain.report().infidelity, 1e-12, "infidelity");
  const added = 0.1 * costs.power + 2 * costs.smoothness + 0.3 * costs.bandwidth;
  near(costly.loss(p).itemSync(), infidelity + added, 1e-9, "loss");
  assert.ok(added > 1e-3);
  const slope = weft.grad(costly.loss)(p)["q.x.values"].dataSync() as Float64Array;
  for (const k of [0, 1]) {
    const at = (shift: number): number => {
      const values = weft.tensor(
        [0.3, 0.05].map((v, i) => (i === k ? v + shift : v)),
        { dtype: "float64" },
      );
      return costly.loss({ "q.x.values": values }).itemSync();
    };
    near(slope[k], (at(1e-5) - at(-1e-5)) / 2e-5, 1e-7, `gradient ${k}`);
  }
});

test("a larger weight of smoothness gives a smoother pulse", () => {
  const start = "[0.1, 0.3, 0.05, 0.2]";
  const slopes = [0, 1].map((weight) => {
    const problem = problemOf(`costs: {smoothness: ${weight}}`, "spline", start);
    const { params } = minimize(problem.loss, problem.learned(), { iterations: 15 });
    return problem.report(params).costs.smoothness;
  });
  assert.ok(slopes[1] < 0.85 * slopes[0], `${slopes}`);
});

test("a filtered pulse is smoother than its values, and equals them behind a fast line", () => {
  const sharp = problemOf("", "piecewise", "[0, 0.5, 0.5, 0]").spec.device.drives[0].pulse;
  const times = weft.tensor([1, 4, 6, 9], { dtype: "float64" });
  const at = (bandwidth: number): number[] => {
    const { pulse } = parseGateSpec(file("", "filtered", `[0, 0.5, 0.5, 0], bandwidth: ${bandwidth}`)).device.drives[0];
    return Array.from(pulse.at(times).dataSync(), Number);
  };
  at(50).forEach((x, k) => void near(x, Number(sharp.at(times).dataSync()[k]), 1e-9, "fast line"));
  // The step response of a Gaussian filter is an error function with sigma = sqrt(ln 2) / (2 pi bandwidth).
  const sigma = Math.sqrt(Math.LN2) / (2 * Math.PI * 0.1);
  const erf = (x: number): number => weft.erf(weft.tensor(x, { dtype: "float64" })).itemSync();
  const step = (t: number): number => (1 + erf(t / (Math.SQRT2 * sigma))) / 2;
  at(0.1).forEach((x, k) => {
    const t = [1, 4, 6, 9][k];
    near(x, 0.5 * (step(t - 2.5) - step(t - 7.5)), 1e-12, "slow line");
  });
});

test("drawn devices are the same for a seed and make the loss that of the ensemble", () => {
  const text = (seed: number): string =>
    file(`robust: {spread: {sigma: 0.05, devices: 4, seed: ${seed}}, objective: mean}`).replace(
      "frequency: 0",
      "frequency: 0.01",
    );
  const [a, b, c] = [1, 1, 2].map((seed) => new GateProblem(parseGateSpec(text(seed))).report());
  assert.equal(a.infidelity, b.infidelity);
  assert.notEqual(a.infidelity, c.infidelity);
  assert.notEqual(a.infidelity, a.nominal);
});

test("the shortest pulse of a qubit within bounds takes its area divided by the bound", () => {
  const { spec } = problemOf("", "piecewise", "[0.2, 0.2, 0.2, 0.2]");
  const bound = 0.3;
  const found = shortestDuration(
    (duration, start) => {
      const problem = new GateProblem(scaleTimes(spec, duration / 10));
      const { params } = minimize(problem.loss, start ?? problem.learned(), {
        bounds: { "q.x.values": [-bound, bound] },
        target: 1e-6,
      });
      return { infidelity: problem.report(params).infidelity, params };
    },
    { target: 1e-5, low: 1, high: 10 },
  );
  // A rotation by pi: 2 * bound * T = pi with H = u sigma_x.
  near(found.duration, Math.PI / (2 * bound), 0.08, "duration");
  assert.throws(
    () => shortestDuration(() => ({ infidelity: 0.5, params: {} }), { target: 1e-3, low: 1, high: 2 }),
    /at the longest duration 2/,
  );
  assert.throws(
    () => shortestDuration(() => ({ infidelity: 0, params: {} }), { target: 1e-3, low: 2, high: 1 }),
    /low < high/,
  );
});

test("tune finds settings that meet the tolerance, fastest first", () => {
  const rows = tuneEvolution(problemOf(), { tolerance: 1e-6, methods: ["rk4", "trotter2"], repeats: 1 });
  assert.equal(rows.length, 2);
  assert.ok(rows[0].perCall <= rows[1].perCall && rows.every(({ error }) => error <= 1e-6));
  const steps = Object.fromEntries(rows.map((row) => [row.method, row.steps!]));
  assert.ok(steps.rk4 <= steps.trotter2, JSON.stringify(steps));
  assert.throws(() => tuneEvolution(problemOf(), { tolerance: 2 }), /tolerance must be in/);
});

test("mistakes in costs, spread and bases are errors", () => {
  const bad = (more: string, message: RegExp, shape?: string, values?: string): void =>
    assert.throws(() => problemOf(more, shape, values), message);
  bad("costs: {}", /at least one of power/);
  bad("costs: {power: -1}", /must not be negative/);
  bad("costs: {powr: 1}", /powr/);
  bad("costs: {bandwidth: {above: 0, weight: 1}}", /above 0/);
  bad("costs: 3", /costs/);
  bad("robust: {spread: {sigma: 0, devices: 3}}", /above 0/);
  bad("robust: {spread: {sigma: 0.1, devices: 0}}", /devices/);
  bad("robust: {spread: {sigma: 0.1, devices: 2, parameters: [el]}}", /no part has one of el/);
  bad("robust: {}", /at least one parameter, or give spread/);
  bad("", /must be positive/, "filtered", "[0.1], bandwidth: -1");
  bad("", /must be a list of numbers, got \[\]/, "fourier", "[]");
});
