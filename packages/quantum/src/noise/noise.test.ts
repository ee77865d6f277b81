// Noise: integrals against closed forms, the zero-frequency term, moments of distributions, and errors.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "@weft/core";
import { assertClose } from "@weft/testing/compare";
import { onEachDevice } from "@weft/testing/devices";
import {
  checkRates,
  dephasingRate,
  drawTasks,
  filterFunction,
  gammaTasks,
  type PsdModel,
  type PulseSequence,
  type RandomLaw,
  relaxationRate,
  type TaskDistribution,
} from "./index.js";

const f64 = (x: number): weft.Tensor => weft.tensor(x, { dtype: "float64" });
const spectrum = (alpha: number, amplitude: number, cutoff: number) => ({
  alpha: f64(alpha),
  amplitude: f64(amplitude),
  cutoff: f64(cutoff),
});
const dephasing = (
  model: PsdModel,
  a: number,
  A: number,
  wc: number,
  duration = 1,
  sequence: PulseSequence = "ramsey",
) => dephasingRate(model, spectrum(a, A, wc), { duration, sequence }).itemSync();

/** Closed form of free evolution under Lorentzian noise: (A / wc^2) (T - (1 - e^(-wc T)) / wc) / T. */
const lorentzByHand = (A: number, wc: number, T: number): number =>
  ((A / wc ** 2) * (T + Math.expm1(-wc * T) / wc)) / T;

/** Closed form of an echo under Lorentzian noise. */
const echoByHand = (A: number, wc: number, T: number): number => {
  const e = Math.exp(-(wc * T) / 2);
  return ((A / wc ** 2) * (T - (3 - 4 * e + e * e) / wc)) / T;
};

onEachDevice(() => {
  test("dephasing under Lorentzian noise equals the closed form for cutoffs far below and far above 1/T", () => {
    for (const [A, wc, T] of [
      [10, 1, 1],
      [1e-4, 1e-3, 1],
      [2, 0.05, 3],
      [500, 40, 0.5],
      [1e6, 1e3, 1],
    ]) {
      const expected = lorentzByHand(A, wc, T);
      assertClose(dephasing("lorentzian", 2, A, wc, T), expected, { rtol: 1e-8 });
      assertClose(dephasing("oneOverF", 2, A, wc, T), expected, { rtol: 1e-8 });
      assertClose(dephasing("lorentzian", 2, A, wc, T, "echo"), echoByHand(A, wc, T), {
        rtol: wc * T < 0.1 ? 1e-5 : 1e-7,
      });
    }
  });

  test("the quadrature includes zero frequency, where a plain grid loses 11%", () => {
    const n = 4000;
    const step = 1000 / (n - 1);
    let naive = 0;
    for (let i = 1; i < n; i++) {
      const w = i * step;
      const value = ((10 / (w * w + 1)) * 4 * Math.sin(w / 2) ** 2) / (w * w);
      naive += value * step * (i === n - 1 ? 0.5 : 1);
    }
    naive /= Math.PI;
    assertClose(naive, 3.28081, { rtol: 2e-6 });
    const ours = dephasing("oneOverF", 2, 10, 1);
    assertClose(ours, 10 / Math.E, { rtol: 1e-9 });
    assert.ok(ours / naive > 1.12);
  });

  test("relaxation under Lorentzian noise equals the closed form; other spectra equal the published values", () => {
    const down = (model: PsdModel, a: number, A: number, wc: number, frequency: number, lineWidth: number) =>
      relaxationRate(model, spectrum(a, A, wc), { frequency, lineWidth }).itemSync();
    for (const [A, wc, w0, width] of [
      [10, 1, 1, 100],
      [3, 20, 50, 4],
      [1, 0.01, 5, 0.2],
    ]) {
      const sum = wc + width / 2;
      assertClose(down("lorentzian", 2, A, wc, w0, width), ((A / wc) * sum) / (w0 * w0 + sum * sum), { rtol: 1e-8 });
    }
    // The published values use a trapezoidal rule over 100 line widths, which truncates 0.6% of the line.
    assertClose(down("oneOverF", 1, 1, 100, 1, 100), 0.00623371, { rtol: 5e-3 });
    assertClose(down("oneOverF", 1, 10, 300, 1, 100), 0.0262597, { rtol: 5e-3 });
  });

  test("doubleExponential is a sum of two Lorentzians, and spectrum parameters have gradients", () => {
    const [a, A, wc] = [1.5, 4, 2];
    const expected = (1 - a / 5) * lorentzByHand(A, wc, 1) + (a / 5) * lorentzByHand(A, wc * (1 + a), 1);
    assertClose(dephasing("doubleExponential", a, A, wc), expected, { rtol: 1e-8 });
    const rate = (amplitude: weft.Tensor, cutoff: weft.Tensor): weft.Tensor =>
      dephasingRate("lorentzian", { alpha: f64(2), amplitude, cutoff }, { duration: 1 });
    const [slopeA, slopeC] = weft.grad(rate, { argument: [0, 1] })(f64(A), f64(wc));
    assertClose(slopeA, lorentzByHand(1, wc, 1), { rtol: 1e-8 });
    const h = 1e-5;
    assertClose(slopeC, (lorentzByHand(A, wc + h, 1) - lorentzByHand(A, wc - h, 1)) / (2 * h), { rtol: 1e-6 });
  });

  test("samples repeat with their key, differ with another key, and stay in range", () => {
    const draw = (seed: number) =>
      Array.from(drawTasks(gammaTasks, weft.key(seed), 500).rates.dataSync() as Float64Array);
    assert.deepEqual(draw(7), draw(7));
    assert.notDeepEqual(draw(7), draw(8));
    const values = draw(7);
    const dephasings = values.filter((_, i) => i % 2 === 0);
    assert.ok(Math.min(...dephasings) >= 0.02 && Math.max(...dephasings) < 0.15);
    const features = drawTasks(gammaTasks, weft.key(7), 500).features.arraySync() as number[][];
    assertClose(features[3]![2]!, (values[6]! + values[7]!) / 0.15, { rtol: 1e-12 });
  });

  test("samples have the mean and variance of their law", () => {
    const moments = (law: RandomLaw): [number, number] => {
      const { rates } = drawTasks(
        { kind: "rates", dephasing: law, relaxation: { law: "fixed", value: 0.25 } },
        weft.key(3),
        8000,
      );
      const [x, fixed] = [rates.index("...", 0), rates.index("...", 1)];
      assertClose(fixed.max().itemSync(), 0.25);
      return [x.mean().itemSync(), weft.variance(x).itemSync()];
    };
    const near = (law: RandomLaw, mean: number, variance: number): void => {
      const [m, v] = moments(law);
      assert.ok(Math.abs(m - mean) < 4 * Math.sqrt(variance / 8000), `${law.law}: mean ${m}, expected ${mean}`);
      assert.ok(Math.abs(v / variance - 1) < 0.15, `${law.law}: variance ${v}, expected ${variance}`);
    };
    near({ law: "gamma", shape: 4, scale: 0.02 }, 0.08, 0.0016);
    near({ law: "gamma", shape: 0.5, scale: 0.1 }, 0.05, 0.005);
    near({ law: "uniform", low: 1, high: 3 }, 2, 1 / 3);
    near({ law: "normal", mean: 5, std: 0.5, low: 0 }, 5, 0.25);
    const [m] = moments({ law: "logUniform", low: 0.01, high: 1 });
    assertClose(m, 0.99 / Math.log(100), { rtol: 0.05 });
  });

  test("tasks drawn from spectra have the rates of these spectra", () => {
    const distribution: TaskDistribution = {
      kind: "psd",
      model: "lorentzian",
      alpha: { law: "uniform", low: 1, high: 2 },
      amplitude: { law: "logUniform", low: 0.1, high: 10 },
      cutoff: { law: "fixed", value: 3 },
      rates: { duration: 1, frequency: 2, lineWidth: 10 },
    };
    const { rates, features } = drawTasks(distribution, weft.key(1), 6);
    const where = features.arraySync() as number[][];
    (rates.arraySync() as number[][]).forEach(([gd, gr], i) => {
      const A = 0.1 * 100 ** where[i]![1]!;
      assertClose(gd!, lorentzByHand(A, 3, 1), { rtol: 1e-6 });
      assertClose(gr!, ((A / 3) * 8) / (4 + 64), { rtol: 1e-6 });
    });
  });
});

describe("filter functions and errors", () => {
  test("filter functions of all sequences use one convention", () => {
    for (const x of [0.3, 2, 11]) {
      assertClose(filterFunction({ cpmg: 0 }, x), 4 * Math.sin(x / 2) ** 2);
      assertClose(filterFunction({ cpmg: 1 }, x), filterFunction("echo", x));
      const two = (8 * Math.sin(x / 8) ** 4 * 2 * Math.sin(x / 2) ** 2) / Math.cos(x / 4) ** 2;
      assertClose(filterFunction({ cpmg: 2 }, x), two, { rtol: 1e-10 });
    }
    assert.ok(dephasing("oneOverF", 1, 1, 0.01, 1, { cpmg: 8 }) < dephasing("oneOverF", 1, 1, 0.01, 1, "echo"));
    assert.ok(dephasing("oneOverF", 1, 1, 0.01, 1, "echo") < dephasing("oneOverF", 1, 1, 0.01));
  });

  test("negative and non-finite rates, laws with negative support, and unknown names are errors", () => {
    assert.throws(() => checkRates(weft.tensor([0.1, -0.2])), /element 1 is -0.2.*finite number >= 0/);
    assert.throws(() => checkRates(weft.tensor([Number.NaN])), /element 0 is NaN/);
    checkRates(weft.tensor([0, 0.3]));
    const withLaw = (dephasing: RandomLaw) => () =>
      drawTasks({ kind: "rates", dephasing, relaxation: { law: "fixed", value: 0 } }, weft.key(0), 2);
    assert.throws(
      withLaw({ law: "uniform", low: -0.1, high: 0.2 }),
      /dephasing can become negative.*raise its low end/,
    );
    assert.throws(withLaw({ law: "normal", mean: 0.1, std: 0.1 }), /give it low: 0/);
    assert.throws(withLaw({ law: "uniform", low: 2, high: 1 }), /needs numbers low <= high/);
    assert.throws(withLaw({ law: "gamma", shape: 0, scale: 1 }), /needs shape and scale above 0/);
    assert.throws(withLaw({ law: "cauchy" } as unknown as RandomLaw), /has the law "cauchy"; known: fixed/);
    assert.throws(() => dephasing("pink" as PsdModel, 1, 1, 1), /no model "pink"/);
    assert.throws(() => dephasing("lorentzian", 1, 1, 1, 0), /duration must be above 0/);
    assert.throws(() => drawTasks(gammaTasks, weft.key(0), 0), /count must be at least 1/);
  });
});
