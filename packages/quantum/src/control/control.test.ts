// Minimizers on functions with known minima, robust objectives against closed forms, GRAPE, and a device recovered from its
// spectrum.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { assertClose } from "@weft/testing/compare";
import { onEachDevice } from "@weft/testing/devices";
import { drawTasks, gammaTasks } from "../noise/index.js";
import { Transmon } from "../systems/index.js";
import {
  controlInfidelities,
  ensembleLoss,
  fitSpectrum,
  grape,
  grapeEach,
  type MinimizeMethod,
  Minimizer,
  minimize,
  type NamedParameters,
  prepareProblem,
  qubitFlip,
  readTensorCheckpoint,
  robustLoss,
  strongWolfe,
  writeTensorCheckpoint,
} from "./index.js";

const f64 = (data: number | number[]): Tensor => weft.tensor(data, { dtype: "float64" });

/** Rosenbrock's function of two named parameters, with minimum 0 at (1, 1). */
const valley = ({ a, b }: NamedParameters): Tensor =>
  weft.sub(1, a!).square().add(b!.sub(a!.square()).square().mul(100)).sum();
const valleyStart = (): NamedParameters => ({ a: f64(-1.2), b: f64(1) });

onEachDevice((_, name) => {
  test("L-BFGS finds the minimum of Rosenbrock's function; Adam and descent lower it", () => {
    const found = minimize(valley, valleyStart(), { gradientTolerance: 1e-9 });
    assert.equal(found.reason, "gradient");
    assertClose(found.params.a!, 1, { rtol: 1e-8 });
    assertClose(found.params.b!, 1, { rtol: 1e-8 });
    assert.ok(found.iteration < 60 && found.evaluations < 120, `${found.iteration}, ${found.evaluations}`);
    assert.ok(
      found.values.every((v, i) => i === 0 || v < found.values[i - 1]!),
      "every step lowers the value",
    );
    const adam = minimize(valley, valleyStart(), { method: "adam", rate: 0.1, iterations: 60 });
    assert.equal(adam.reason, "iterations");
    assert.ok(adam.value < 4 && adam.values.length === 61);
    // The gradient at (-1.2, 1) is (-215.6, -88).
    const one = minimize(valley, valleyStart(), { method: "descent", rate: 0.001, iterations: 1 });
    assertClose(one.params.a!, -1.2 + 0.2156);
    assertClose(one.params.b!, 1.088);
  });

  test("GRAPE minimizes the mean, the worst case and CVaR over an ensemble", () => {
    const prepared = prepareProblem(qubitFlip({ segments: 6, limit: 4 }));
    const { rates } = drawTasks(gammaTasks, weft.key(5), 5);
    const pulses = (["mean", "worst", { cvar: 0.4 }] as const).map((objective) =>
      grape(prepared, rates, { objective, seed: 2, iterations: name === "reference" ? 12 : 30 }),
    );
    for (const found of pulses) {
      assert.ok(found.value < 0.1 && found.values[0]! > 0.5, `from ${found.values[0]} to ${found.value}`);
      const each = controlInfidelities(prepared, { method: "rk4", perSegment: 1 }, "float64", {
        controls: found.params.pulse!.unsqueeze(0).expand([5, 6, 2]),
        rates,
      });
      const lost = Array.from(each.dataSync() as Float64Array).sort((a, b) => b - a);
      const expected = [lost.reduce((a, b) => a + b) / 5, lost[0]!, (lost[0]! + lost[1]!) / 2][pulses.indexOf(found)]!;
      assertClose(found.value, expected, { rtol: 1e-9 });
    }
  });

  test("grapeEach runs one program per iteration and gives each task the pulse of a separate run", () => {
    const prepared = prepareProblem(qubitFlip({ segments: 10 }));
    const { rates } = drawTasks(gammaTasks, weft.key(6), 4);
    const start = weft.randn([4, 10, 2], { seed: 1, std: 0.3, dtype: "float64" });
    const options = { iterations: 20, rate: 0.1, dtype: "float64" } as const;
    const { runs } = weft.session();
    const all = grapeEach(prepared, rates, { ...options, start });
    const used = weft.session().runs - runs;
    assert.ok(used <= 20 + 8, `${used} runs for 20 iterations`);
    const single = grapeEach(prepared, rates.index("2:3"), { ...options, start: start.index("2:3") });
    assertClose(all.infidelities[2]!, single.infidelities[0]!, { rtol: 1e-9 });
    assert.ok(all.infidelities.every((x) => x < 0.2));
  });
});

describe("line search, robust objectives, fits, files", () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-control-"));
  after(() => rmSync(folder, { recursive: true, force: true }));

  test("the line search satisfies the strong Wolfe conditions from very short and very long first steps", () => {
    const phi = (x: number): number => (x - 2) ** 4 + 0.3 * Math.sin(3 * x);
    const slope = (x: number): number => 4 * (x - 2) ** 3 + 0.9 * Math.cos(3 * x);
    const at = (step: number) => ({ step, value: phi(step), slope: slope(step) });
    for (const first of [1e-6, 0.1, 1, 50, 1e4]) {
      const found = strongWolfe(at, at(0), first)!;
      assert.ok(found.value <= phi(0) + 1e-4 * found.step * slope(0), `too high from ${first}`);
      assert.ok(Math.abs(found.slope) <= 0.9 * Math.abs(slope(0)), `too steep from ${first}`);
    }
    // Beyond 1 the function is NaN, so the search must shorten the step.
    const walled = strongWolfe(
      (step) => (step < 1 ? at(step) : { step, value: Number.NaN, slope: Number.NaN }),
      at(0),
      8,
    )!;
    assert.ok(walled.step < 1 && walled.value < phi(0));
    assert.equal(
      strongWolfe((step) => ({ step, value: step, slope: 1 }), { step: 0, value: 0, slope: -1 }, 1),
      null,
    );
  });

  test("robust objectives and their gradients equal closed forms", () => {
    const losses = f64([0.1, 0.5, 0.3, 0.2]);
    assertClose(robustLoss(losses), 0.275);
    assertClose(robustLoss(losses, "worst"), 0.5);
    assertClose(robustLoss(losses, { cvar: 0.5 }), 0.4);
    assertClose(robustLoss(losses, { cvar: 0.375 }), (0.5 + 0.5 * 0.3) / 1.5);
    assertClose(robustLoss(losses, { cvar: 1 }), 0.275);
    const soft = robustLoss(losses, { softWorst: 50 }).itemSync();
    assert.ok(soft < 0.5 && soft > 0.47);
    const slopes = weft.grad((x: Tensor) => robustLoss(x, { cvar: 0.375 }))(losses);
    assertClose(slopes, [0, 1 / 1.5, 0.5 / 1.5, 0], { rtol: 1e-9 });
    assert.throws(() => robustLoss(losses, { cvar: 0 }), /cvar must be in \(0, 1\], got 0/);
    assert.throws(() => robustLoss(f64(1)), /losses must be \[n\]/);
  });

  test("the gradient of an ensemble loss equals finite differences", () => {
    const prepared = prepareProblem(qubitFlip({ segments: 4 }));
    const { rates } = drawTasks(gammaTasks, weft.key(1), 3);
    const loss = ensembleLoss(prepared, rates, { method: "rk4", perSegment: 1 }, { cvar: 0.5 });
    const pulse = weft.randn([4, 2], { seed: 3, dtype: "float64" });
    const slope = weft.grad((p: NamedParameters) => loss(p))({ pulse }).pulse!;
    const direction = weft.randn([4, 2], { seed: 4, dtype: "float64" });
    const value = (h: number): number => loss({ pulse: pulse.add(direction.mul(h)) }).itemSync();
    const h = 1e-5;
    assertClose(slope.mul(direction).sum(), (value(h) - value(-h)) / (2 * h), { rtol: 1e-7 });
  });

  test("every minimization method resumes from a checkpoint with identical values", async () => {
    for (const method of ["lbfgs", "adam", "descent"] as MinimizeMethod[]) {
      const options = { method, iterations: 12, rate: method === "descent" ? 1e-4 : 0.05 };
      const whole = new Minimizer(valley, valleyStart(), options);
      whole.run();
      const half = new Minimizer(valley, valleyStart(), options);
      half.run((p) => p.iteration < 7);
      const path = join(folder, `${method}.safetensors`);
      await half.save(path);
      const resumed = new Minimizer(valley, { a: f64(0), b: f64(0) }, options);
      await resumed.resume(path);
      assert.equal(resumed.iteration, 7);
      resumed.run();
      assert.deepEqual(resumed.values, whole.values, method);
      const other = new Minimizer(valley, valleyStart(), { method: method === "adam" ? "lbfgs" : "adam" });
      await assert.rejects(other.resume(path), /was written by/);
    }
    // Checkpoints of versions with the British spelling have another kind.
    const former = join(folder, "former.safetensors");
    const saved = await readTensorCheckpoint(join(folder, "lbfgs.safetensors"), "minimize");
    await writeTensorCheckpoint(former, "minimise", saved.tensors, saved.description);
    const again = new Minimizer(valley, valleyStart());
    await again.resume(former);
    assert.equal(again.iteration, 7);
    await assert.rejects(
      readTensorCheckpoint(former, "meta-training"),
      /is not a checkpoint of meta-training, but of minimise/,
    );
    const named = new Minimizer(({ c }) => c!.square().sum(), { c: f64([1, 2]) });
    await assert.rejects(named.resume(join(folder, "adam.safetensors")), /holds the parameters a, b, not these/);
  });

  test("fitSpectrum recovers transmon parameters from a spectrum with missing values", () => {
    const part = new Transmon({ ec: 0.25, ej: 15, asymmetry: 0.2, points: 22, levels: 3 } as never);
    const model = (p: NamedParameters, phiExt: Tensor): Tensor => {
      const { energies } = part.solve({ ...part.tensors(), ...p, phiExt } as never);
      return energies
        .index("1:")
        .sub(energies.index(0))
        .div(2 * Math.PI);
    };
    const settings = f64([0, 0.6, 1.2, 1.8, 2.4]);
    const truth = { ec: f64(0.27), ej: f64(16.2), asymmetry: f64(0.31) };
    const rows = (weft.vmap((s: Tensor) => model(truth, s))(settings) as Tensor).arraySync() as number[][];
    rows[2]![1] = Number.NaN;
    const measured = weft.tensor(rows, { dtype: "float64" });
    const start = { ec: f64(0.24), ej: f64(15), asymmetry: f64(0.2) };
    const fit = fitSpectrum(model, settings, measured, start, { iterations: 100, gradientTolerance: 1e-9 });
    assert.ok(fit.deviation < 1e-6, `deviation ${fit.deviation}, ${fit.reason}`);
    assertClose(fit.params.ec!, 0.27, { rtol: 1e-4 });
    assertClose(fit.params.ej!, 16.2, { rtol: 1e-4 });
    assertClose(fit.params.asymmetry!, 0.31, { rtol: 1e-3 });
    assert.throws(() => fitSpectrum(model, settings, f64([1, 2]), start), /5 settings, but 2 rows/);
  });

  test("invalid methods, parameters and rates are errors", () => {
    const start = { a: f64(1), b: f64(1) };
    assert.throws(() => minimize(valley, start, { method: "newton" as MinimizeMethod }), /no method "newton"/);
    assert.throws(() => minimize(valley, {}), /there are no parameters/);
    assert.throws(() => minimize(valley, { a: weft.tensor([1], { dtype: "int32" }) }), /"a" is int32/);
    assert.throws(() => minimize(valley, start, { rate: -1 }), /rate must be above 0/);
    assert.throws(() => minimize(({ a }) => a!.log(), { a: f64(-1) }), /the loss is NaN at the start/);
    const prepared = prepareProblem(qubitFlip({ segments: 4 }));
    assert.throws(() => grape(prepared, f64([0.1, -0.1])), /grape: rates: element 1 is -0.1/);
  });
});

test("L-BFGS stays within bounds and finds the minimum on their faces", () => {
  // The quadratic form (x - c)^T A (x - c): the minimum in the box is known from its conditions (found by enumeration of faces).
  const A = [
    [3, 1, 0.5],
    [1, 2, -0.4],
    [0.5, -0.4, 1.5],
  ];
  const c = [2, -1.5, 0.3];
  const a = weft.tensor(A, { dtype: "float64" });
  const loss = ({ x, y }: NamedParameters): weft.Tensor => {
    const d = weft.concat([x, y.reshape([1])], 0).sub(weft.tensor(c, { dtype: "float64" }));
    return d.mul(a.matmul(d)).sum();
  };
  const bounds = { x: [-1, 1] as const, y: [0.5, 4] as const };
  /** Minimum by enumeration: each variable is free, low or high. */
  const [low, high] = [
    [-1, -1, 0.5],
    [1, 1, 4],
  ];
  let best = { value: Number.POSITIVE_INFINITY, at: [0, 0, 0] };
  for (let k = 0; k <= 40; k++)
    for (let j = 0; j <= 40; j++)
      for (let i = 0; i <= 40; i++) {
        const at = [i, j, k].map((n, m) => low[m] + ((high[m] - low[m]) * n) / 40);
        const d = at.map((v, m) => v - c[m]);
        const value = d.reduce((s, v, m) => s + v * A[m].reduce((t, w, l) => t + w * d[l], 0), 0);
        if (value < best.value) best = { value, at };
      }
  const start = { x: weft.tensor([0.5, 0.5], { dtype: "float64" }), y: weft.tensor(9, { dtype: "float64" }) };
  const found = minimize(loss, start, { bounds });
  assert.equal(found.reason, "gradient");
  assert.ok(found.value <= best.value + 1e-12 && found.value > best.value - 0.05, `${found.value}, grid ${best.value}`);
  const x = [...(found.params.x.dataSync() as Float64Array), found.params.y.itemSync()];
  x.forEach((v, m) => void assert.ok(v >= low[m] && v <= high[m] && Math.abs(v - best.at[m]) < 0.1, `${x}`));
  for (const method of ["adam", "descent"] as const) {
    const other = minimize(loss, start, { bounds, method, iterations: 400, rate: 0.05 });
    assert.ok(other.params.x.abs().max().itemSync() <= 1 && other.value < found.value + 1e-3, method);
  }
  assert.throws(() => minimize(loss, start, { bounds: { z: [0, 1] } }), /"z", which is not a parameter/);
  assert.throws(() => minimize(loss, start, { bounds: { x: [1, 1] } }), /must ascend/);
});
