// Gradients of every differentiable case, real and complex, first and second derivatives, in forward and reverse mode.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { ReferenceDevice, useDevice } from "../index.js";
import { type Case, cases, type DType } from "./cases/index.js";
import { checkDerivatives, differentiable, gradientFn, gradientPoint, type Point } from "./derivatives.js";
import { testDevices } from "./devices.js";
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

const narrow: Partial<Record<DType, [wide: DType, tolerance: number]>> = {
  float16: ["float64", 0.03],
  bfloat16: ["float64", 0.15],
  float32: ["float64", 1e-4],
  complex64: ["complex128", 1e-4],
};

const size = (data: readonly number[]): number => Math.hypot(...data, 0);

test("narrow dtypes: gradients in the dtype of their input, near those in double precision", () => {
  useDevice(new ReferenceDevice());
  const problems = cases.flatMap((item) =>
    item.dtypes.flatMap((dtype) => {
      const [wider, tolerance] = narrow[dtype] ?? [];
      // Casts round on purpose; inverses of matrices lose more digits than a fixed tolerance allows.
      if (item.grad === false || wider === undefined || tolerance === undefined || /^(cast|linspace)/.test(item.name))
        return [];
      const job = jobOf(item, dtype);
      const widened = job.inputs.map((h) => ({ ...h, dtype: h.dtype === dtype ? wider : h.dtype }));
      const wrt = differentiable(job.inputs, item.grad);
      const [got, expected] = [job, { ...job, inputs: widened }].map((j) =>
        runEagerly({ ...j, fn: gradientFn(j.fn, wrt) }),
      );
      if (got instanceof Error || expected instanceof Error) return mismatches(job, got, expected);
      return got.flatMap((g, i) => {
        const input = job.inputs[wrt[i]];
        if (g.dtype !== input.dtype || String(g.shape) !== String(input.shape))
          return [`${job.name}: gradient ${i} is ${g.dtype}[${g.shape}] for ${input.dtype}[${input.shape}]`];
        const error = size(g.data.map((x, k) => x - expected[i].data[k]));
        const allowed = tolerance * (item.loose ?? 1) * (1 + size(expected[i].data));
        return error <= allowed ? [] : [`${job.name}: gradient ${i} is off by ${error}, allowed ${allowed}`];
      });
    }),
  );
  fail(problems);
});

/** Gradients as programs: every fourth case, its second derivatives now and then. */
const gradientJobs = (): Job[] =>
  cases.flatMap(points).flatMap((point, i) => {
    if (i % 4 !== 0 || point.wrt.length === 0) return [];
    const first = gradientPoint(point);
    const { name, fn, inputs } = i % 16 === 0 ? gradientPoint(first) : first;
    return [{ name, fn, inputs, dtype: inputs[0].dtype, loose: 1000 }];
  });

for (const device of testDevices().filter(({ name }) => name !== "reference")) {
  test(`gradients on ${device.name} against the reference`, () => {
    useDevice(new ReferenceDevice());
    const jobs = gradientJobs();
    const expected = jobs.map(runEagerly);
    useDevice(device.make());
    const actual = runJobs(jobs);
    fail(jobs.flatMap((job, j) => mismatches(job, actual[j], expected[j])));
  });
}
