// Pulse shapes: closed-form values, zeros outside the pulse, and gradients against finite differences.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "@weft/core/internal/tensor";
import * as weft from "@weft/core/internal/tensor";
import { Pulse } from "./pulse.js";
import type { PulseShapeName } from "./shapes.js";

const examples: Record<PulseShapeName, Record<string, number | number[]>> = {
  cosine: { length: 40 },
  rampedCosine: { ramp: 8, plateau: 21 },
  trapezoid: { ramp: 7, plateau: 23 },
  gaussian: { sigma: 6.5, cut: 3 },
  gaussianSquare: { sigma: 4, cut: 2.5, plateau: 15 },
  tanh: { ramp: 9, plateau: 17, sharpness: 2.5 },
  erf: { ramp: 9, plateau: 17, sharpness: 1.7 },
  constant: { length: 33 },
  piecewise: { length: 30, values: [0.3, -0.2, 0.7] },
  fourier: { length: 35, values: [0.3, -0.2, 0.7] },
  spline: { length: 35, values: [0.3, -0.2, 0.7] },
  filtered: { length: 35, values: [0.3, -0.2, 0.7], bandwidth: 0.05 },
};
/** Discontinuous at their ends: lengths and delays have no gradient. */
const stepped = new Set<PulseShapeName>(["constant", "piecewise", "filtered"]);
/** Shapes given by weights, which are neither symmetric nor 1 in the middle. */
const weightedShapes = new Set<PulseShapeName>(["fourier", "spline"]);
const times = (): Tensor => weft.tensor([3.3, 9.1, 14.7, 22.2, 28.9, 31.4], { dtype: "float64" });
const weights = (): Tensor => weft.tensor([0.3, -1.1, 0.7, 0.9, -0.4, 1.3], { dtype: "float64" });

for (const shape of Object.keys(examples) as PulseShapeName[]) {
  test(`${shape}: gradients of all parameters with delay, carrier and DRAG equal finite differences`, () => {
    const pulse = new Pulse(shape, {
      ...examples[shape],
      amplitude: 0.8,
      delay: 1.5,
      omega: 0.9,
      phase: 0.4,
      drag: 0.35,
    });
    const loss = (p: Record<string, Tensor>): Tensor => pulse.at(times(), p).mul(weights()).sum();
    const p = pulse.tensors();
    const gradient = weft.grad(loss)(p);
    for (const name of Object.keys(p)) {
      if (stepped.has(shape) && (name === "length" || name === "delay")) continue;
      const at = (shift: number): number => {
        const moved =
          name === "values" ? p[name].add(weft.tensor([shift, 0, 0], { dtype: "float64" })) : p[name].add(shift);
        return loss({ ...p, [name]: moved }).itemSync();
      };
      const expected = (at(1e-6) - at(-1e-6)) / 2e-6;
      const got = Number(gradient[name].dataSync()[0]);
      assert.ok(Math.abs(got - expected) < 1e-7 * Math.max(1, Math.abs(expected)), `${name}: ${got} and ${expected}`);
    }
  });

  test(`${shape}: is zero outside the pulse and, if continuous, at its ends`, () => {
    const pulse = new Pulse(shape, { ...examples[shape], amplitude: 0.8 });
    const length = pulse.end().itemSync();
    const at = (t: number): number => pulse.at(weft.tensor([t], { dtype: "float64" })).itemSync();
    assert.equal(at(-1e-9), 0);
    assert.equal(at(length + 1e-9), 0);
    if (!stepped.has(shape)) {
      assert.ok(Math.abs(at(0)) < 1e-15 && Math.abs(at(length)) < 1e-12);
      if (weightedShapes.has(shape)) return;
      assert.ok(Math.abs(at(length / 2) - 0.8) < 1e-15, `middle ${at(length / 2)}`);
      assert.ok(Math.abs(at(length / 5) - at((4 * length) / 5)) < 1e-14, "symmetric");
    }
  });
}

test("pulse values equal closed forms", () => {
  const at = (shape: PulseShapeName, t: number): number =>
    new Pulse(shape, examples[shape]).at(weft.tensor([t], { dtype: "float64" })).itemSync();
  const near = (a: number, b: number): void => assert.ok(Math.abs(a - b) < 1e-14, `${a} ${b}`);
  near(at("cosine", 10), 0.5);
  near(at("rampedCosine", 2), (1 - Math.cos(Math.PI / 4)) / 2);
  near(at("rampedCosine", 20), 1);
  near(at("trapezoid", 36), 1 / 7);
  const floor = Math.exp(-4.5);
  near(at("gaussian", 13), (Math.exp(-0.5) - floor) / (1 - floor));
  near(at("piecewise", 15), -0.2);
  const modulated = new Pulse("cosine", { length: 40, amplitude: 2, omega: 0.3, phase: 0.1, delay: 5 });
  near(modulated.at(weft.tensor([15], { dtype: "float64" })).itemSync(), Math.cos(0.3 * 10 + 0.1));
});

test("invalid pulses are errors", () => {
  assert.throws(() => new Pulse("sine" as never, {}), /there is no shape "sine"/);
  assert.throws(() => new Pulse("cosine", {}), /"length" is missing/);
  assert.throws(() => new Pulse("cosine", { length: -1 }), /length must be positive/);
  assert.throws(() => new Pulse("cosine", { length: 1, lenght: 2 }), /no parameter "lenght"/);
  assert.throws(() => new Pulse("cosine", { length: 1, drag: 1 }), /drag needs a carrier/);
  assert.throws(() => new Pulse("cosine", { length: Number.NaN }), /finite number/);
  assert.throws(() => new Pulse("piecewise", { length: 1, values: [] }), /values must be a list of numbers, got \[\]/);
  assert.throws(() => new Pulse("piecewise", { length: 1, values: [1, Number.NaN] }), /a finite number, got NaN/);
});
