// Gradients of every differentiable case, real and complex, first and second derivatives, in forward and reverse mode.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { ReferenceDevice, useDevice } from "../index.js";
import { type Case, cases, type DType } from "./cases/index.js";
import { checkDerivatives, differentiable, gradientPoint, type Point } from "./derivatives.js";
import { availableDevices } from "./devices.js";
import { functionOf, type Job, jobOf, mismatches, runEagerly, runJobs } from "./jobs.js";

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
const names = [...new Set(cases.filter((item) => points(item).length > 0).map(({ name }) => functionOf(name)))];

describe("first derivatives", () => {
  before(() => void useDevice(new ReferenceDevice()));
  for (const name of names)
    test(name, () =>
      fail(
        cases
          .filter((item) => functionOf(item.name) === name)
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
          .filter((item) => functionOf(item.name) === name && item.grad2 !== false)
          .flatMap(points)
          .map(gradientPoint)
          .flatMap((point) => checkDerivatives(point, 1e-5, 5e-6)),
      ),
    );
});

/** Gradients as programs: every fourth case, its second derivatives now and then. */
const gradientJobs = (): Job[] =>
  cases.flatMap(points).flatMap((point, i) => {
    if (i % 4 !== 0 || point.wrt.length === 0) return [];
    const first = gradientPoint(point);
    const { name, fn, inputs } = i % 16 === 0 ? gradientPoint(first) : first;
    return [{ name, fn, inputs, dtype: inputs[0].dtype, loose: 1000 }];
  });

for (const device of availableDevices().filter(({ name }) => name !== "reference")) {
  test(`gradients on ${device.name} against the reference`, () => {
    useDevice(new ReferenceDevice());
    const jobs = gradientJobs();
    const expected = jobs.map(runEagerly);
    useDevice(device.make());
    const actual = runJobs(jobs);
    fail(jobs.flatMap((job, j) => mismatches(job, actual[j], expected[j])));
  });
}
