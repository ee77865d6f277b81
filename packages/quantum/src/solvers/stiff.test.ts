// The implicit method beyond the size of direct solutions: a driven cavity that decays fast is in a coherent state.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { basisState, densityOf, destroy } from "../operators/index.js";
import { hamiltonian, lindblad, sdirk4 } from "./index.js";

const near = (got: number, want: number, tolerance: number, name: string): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);

test("a cavity of 36 levels with fast decay takes long steps, and has gradients", () => {
  const [levels, kappa, drive, end] = [36, 300, 30, 2];
  const a = destroy(levels);
  const h = hamiltonian({
    static: a.adjoint().mul(a).scale(0.1),
    drives: [a.add(a.adjoint())],
    amplitudes: (t) => t.mul(0.5).cos().mul(drive).unsqueeze(1),
  });
  const run = (rate: Tensor) =>
    lindblad({ hamiltonian: h, jumps: [{ operator: a, rate }] }, densityOf(basisState(levels, 2)), {
      duration: end,
      method: sdirk4({ relative: 1e-6, absolute: 1e-8 }),
      observables: { a },
    });
  const rate = weft.tensor(kappa, { dtype: "float64" });
  const { expectations, accepted } = run(rate);
  // d alpha / dt = -(rate / 2 + 0.1 i) alpha - i drive cos(t / 2): the steady oscillation is a sum of two exponentials.
  const alpha = (decay: number): [number, number] =>
    [0.5, -0.5].reduce<[number, number]>(
      ([x, y], w) => {
        // alpha = c exp(i w t) with c = -i drive / 2 / (decay / 2 + i (w + 0.1))
        const [p, q] = [decay / 2, w + 0.1];
        const size = drive / 2 / (p * p + q * q);
        const [cr, ci] = [-q * size, -p * size];
        const [cos, sin] = [Math.cos(w * end), Math.sin(w * end)];
        return [x + cr * cos - ci * sin, y + cr * sin + ci * cos];
      },
      [0, 0],
    );
  const [re, im] = alpha(kappa);
  const [got] = [expectations.a.dataSync() as Float64Array];
  near(got[0], re, 1e-5, "real part");
  near(got[1], im, 1e-5, "imaginary part");
  const explicit = (levels * kappa * end) / 3;
  assert.ok(
    accepted!.itemSync() < explicit / 20,
    `${accepted!.itemSync()} steps, an explicit method needs ${explicit}`,
  );
  // The gradient solves the transposed systems. Its reference is a difference quotient of the closed form.
  const slope = weft
    .grad((x: Tensor) => run(x).expectations.a.imag().reshape([]))(rate)
    .itemSync();
  const wanted = (alpha(kappa + 0.01)[1] - alpha(kappa - 0.01)[1]) / 0.02;
  near(slope, wanted, 1e-4 * Math.abs(wanted), "gradient in the rate");
});
