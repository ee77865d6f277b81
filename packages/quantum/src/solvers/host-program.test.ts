// Functions of time on the host: values at many times against plain JavaScript, with and without instructions for all of their ops.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { hostFunction } from "./host-inputs.js";

const times = Float64Array.from({ length: 37 }, (_, k) => -1.3 + 0.11 * k);

function check(name: string, fn: (t: Tensor) => Tensor, ...want: ((t: number) => number)[]): void {
  const program = hostFunction(fn);
  for (const at of [times.slice(0, 1), times, times.slice(3, 15)]) {
    const got = program(at);
    assert.equal(got.length, want.length, name);
    want.forEach((f, k) => {
      at.forEach((t, i) => {
        const error = Math.abs(got[k][i] - f(t));
        assert.ok(error <= 1e-14, `${name}, value ${k} at ${t}: ${got[k][i]}, wanted ${f(t)}`);
      });
    });
  }
}

test("element-wise functions of time", () => {
  check(
    "a Gaussian",
    (t) => t.sub(0.3).div(0.7).square().neg().exp().mul(2),
    (t) => 2 * Math.exp(-(((t - 0.3) / 0.7) ** 2)),
  );
  check(
    "a box",
    (t) => weft.where(t.greater(0.2), t.mul(0).add(3), t.minimum(0)),
    (t) => (t > 0.2 ? 3 : Math.min(t, 0)),
  );
  check(
    "parts of a complex number",
    (t) => weft.stack([weft.complex(t.cos(), t.sin()).real(), weft.complex(t.cos(), t.sin()).imag(), t.mul(-0)], 1),
    Math.cos,
    Math.sin,
    () => 0,
  );
});

test("tables that the function closes over, and elements that are moved", () => {
  const table = weft.tensor([0.1, 0.2, 0.4], { dtype: "float64" });
  check(
    "three frequencies",
    (t) => weft.flip(t.unsqueeze(1).mul(table).sin(), [1]),
    ...[0.4, 0.2, 0.1].map((w) => (t: number) => Math.sin(w * t)),
  );
  check(
    "padding",
    (t) =>
      weft.pad(t.unsqueeze(1), [
        [0, 0],
        [1, 0],
      ]),
    () => 0,
    (t) => t,
  );
});

test("ops without an instruction are left to the reference", () => {
  const table = weft.tensor([1, 3, 9], { dtype: "float64" });
  check(
    "a sum over frequencies",
    (t) => t.unsqueeze(1).mul(table).cos().sum(1),
    (t) => Math.cos(t) + Math.cos(3 * t) + Math.cos(9 * t),
  );
  check(
    "a step function from a table",
    (t) => weft.take(table, t.greater(0).cast("int32"), 0),
    (t) => (t > 0 ? 3 : 1),
  );
});
