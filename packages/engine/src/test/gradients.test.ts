// Gradients of every differentiable case, real and complex, first and second derivatives, in forward and reverse mode.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { ReferenceDevice, useDevice } from "../index.js";
import { type Case, cases, type DType } from "./cases/index.js";
import { checkDerivatives, differentiable, gradientPoint, type Point } from "./derivatives.js";
import { jobOf } from "./jobs.js";

const wide: readonly DType[] = ["float64", "complex128"];

/** Where a case is differentiated: its double-precision dtypes. */
function points(item: Case): Point[] {
  if (item.grad === false) return [];
  const asked = item.grad;
  return item.dtypes
    .filter((dtype) => wide.includes(dtype))
    .map((dtype) => jobOf(item, dtype))
    .map(({ name, fn, inputs }) => ({ name, fn, inputs, wrt: differentiable(inputs, asked) }));
}

const fail = (problems: readonly string[]): void => assert.equal(problems.join("\n"), "");
const functionOf = (item: Case): string => item.name.slice(0, item.name.indexOf(":"));
const names = [...new Set(cases.filter((item) => points(item).length > 0).map(functionOf))];

describe("first derivatives", () => {
  before(() => void useDevice(new ReferenceDevice()));
  for (const name of names)
    test(name, () =>
      fail(
        cases
          .filter((item) => functionOf(item) === name)
          .flatMap(points)
          .flatMap((point) => checkDerivatives(point)),
      ),
    );
});

describe("second derivatives", () => {
  before(() => void useDevice(new ReferenceDevice()));
  for (const name of names)
    test(name, () =>
      fail(
        cases
          .filter((item) => functionOf(item) === name && item.grad2 !== false)
          .flatMap(points)
          .map(gradientPoint)
          .flatMap((point) => checkDerivatives(point, 1e-5, 5e-6)),
      ),
    );
});
