// First and second derivatives at points where a function has a kink, a pole or a tie: the conventions that docs/gradients.md lists.
// They are those of PyTorch or JAX (or of both), noted beside each row.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { grad, type Tensor, tensor, useDevice } from "../index.js";
import { testDevices } from "./devices.js";

const constant = (x: number): Tensor => tensor(x, { dtype: "float64" });
const pair = (x: Tensor, y: Tensor = x): Tensor => weft.stack([x, y]);

type Row = [name: string, fn: (x: Tensor) => Tensor, at: number, first: number, second: number];

const rows: Row[] = [
  // Both: the derivative from the left at 0, or 0 between both slopes (JAX takes 1 for abs).
  ["relu", weft.relu, 0, 0, 0],
  ["abs", weft.abs, 0, 0, 0],
  ["sign", weft.sign, 0, 0, 0],
  ["leakyRelu", (x) => weft.leakyRelu(x), 0, 0.01, 0],
  ["elu", (x) => weft.elu(x), 0, 1, 1],
  ["l1Loss", (x) => weft.l1Loss(x, constant(0)), 0, 0, 0],
  // JAX: ties share the derivative evenly.
  ["maximum", (x) => weft.maximum(x, 0), 0, 0.5, 0],
  ["minimum of equal operands", (x) => weft.minimum(x, x), 0, 1, 0],
  ["max", (x) => weft.max(pair(x, constant(0))), 0, 0.5, 0],
  ["nanstd of equal elements", (x) => weft.nanstd(pair(x, constant(0))), 0, 0, 0],
  ["median", (x) => weft.median(pair(x, constant(0))), 0, 0.5, 0],
  ["clip at its lower end", (x) => weft.clip(x, 0, 1), 0, 0.5, 0],
  ["clip at its upper end", (x) => weft.clip(x, 0, 1), 1, 0.5, 0],
  [
    "scatter max",
    (x) => weft.scatter(x.reshape([1]), tensor([0], { dtype: "int32" }), 0, { mode: "max" }).sum(),
    0,
    0.5,
    0,
  ],
  // Smooth functions whose formulas have kinks.
  ["logaddexp of equal operands", (x) => weft.logaddexp(x, constant(0)), 0, 0.5, 0.25],
  ["softplus", weft.softplus, 0, 0.5, 0.25],
  ["sigmoid", weft.sigmoid, 0, 0.25, 0],
  ["sinc", weft.sinc, 0, 0, -(Math.PI ** 2) / 3],
  ["logsumexp beside -Infinity", (x) => weft.logsumexp(pair(x, constant(-Infinity))), 0, 1, 0],
  ["softmax beside -Infinity", (x) => weft.softmax(pair(x, constant(-Infinity))).index(0), 0, 0, 0],
  ["prod with another zero", (x) => weft.prod(weft.stack([x, constant(0), constant(3)])), 0, 0, 0],
  ["cumprod from zero", (x) => weft.cumprod(pair(x, constant(2))).sum(), 0, 3, 0],
  // Both: infinite slopes stay infinite.
  ["sqrt", weft.sqrt, 0, Infinity, -Infinity],
  ["cbrt", weft.cbrt, 0, Infinity, -Infinity],
  ["log", weft.log, 0, Infinity, -Infinity],
  ["reciprocal", weft.reciprocal, 0, -Infinity, Infinity],
  ["asin", weft.asin, 1, Infinity, Infinity],
  ["acos", weft.acos, 1, -Infinity, -Infinity],
  ["x^(1/2)", (x) => weft.pow(x, 0.5), 0, Infinity, -Infinity],
  // PyTorch: powers of and with zero.
  ["x^0", (x) => weft.pow(x, 0), 0, 0, 0],
  ["x^1", (x) => weft.pow(x, 1), 0, 1, 0],
  ["x^2", (x) => weft.pow(x, 2), 0, 0, 2],
  ["0^y at 0", (y) => weft.pow(constant(0), y), 0, 0, 0],
  ["0^y at 2", (y) => weft.pow(constant(0), y), 2, 0, 0],
  // PyTorch: lengths of zero vectors, spreads of equal numbers and the angle of the origin have derivative 0.
  ["norm", (x) => weft.norm(pair(x)), 0, 0, 0],
  ["vectorNorm of order 3", (x) => weft.vectorNorm(pair(x), { order: 3 }), 0, 0, 0],
  ["std of equal numbers", (x) => weft.std(pair(x)), 1, 0, 0],
  ["hypot", (x) => weft.hypot(x, constant(0)), 0, 0, 0],
  ["atan2 in y", (y) => weft.atan2(y, constant(0)), 0, 0, 0],
  ["atan2 in x", (x) => weft.atan2(constant(0), x), 0, 0, 0],
  ["copysign", (x) => weft.copysign(x, constant(1)), 0, 0, 0],
  // Both: a branch that is not taken but has no finite derivative makes NaN; its argument must be replaced, too.
  ["where beside sqrt of a negative number", (x) => weft.where(x.greater(0), weft.sqrt(x), 0), -1, NaN, NaN],
  [
    "where with a replaced argument",
    (x) => weft.where(x.greater(0), weft.sqrt(weft.where(x.greater(0), x, 1)), 0),
    -1,
    0,
    0,
  ],
];

for (const device of testDevices())
  describe(`derivatives at edges on ${device.name}`, () => {
    test("first and second derivatives", () => {
      useDevice(device.make());
      const wrong = rows.flatMap(([name, fn, at, first, second]) => {
        const x = constant(at);
        const found = [grad(fn)(x), grad((t: Tensor) => grad(fn)(t))(x)].map((t) => t.itemSync() as number);
        const close = (a: number, b: number): boolean => Object.is(a, b) || Math.abs(a - b) <= 1e-12;
        return close(found[0], first) && close(found[1], second)
          ? []
          : [`${name} at ${at}: ${found.join(", ")}, expected ${first}, ${second}`];
      });
      assert.deepEqual(wrong, []);
    });
  });
