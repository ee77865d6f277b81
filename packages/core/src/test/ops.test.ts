// Every public function: on the reference device against NumPy, on every other device against the reference, with
// inputs as they are and as transposed, flipped and strided views.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { ReferenceDevice, useDevice } from "../index.js";
import { cases, type DType } from "./cases/index.js";
import type { Result } from "./compare.js";
import { testDevices } from "./devices.js";
import { goldenJobs } from "./golden.js";
import { functionOf, type Job, jobOf, mismatches, runEagerly, runEagerlyTogether, runJobs } from "./jobs.js";
import { golden } from "./testdata/golden.js";
import { viewed, viewKinds } from "./views.js";

/** Items by the function that they belong to: one test each, so that a failure names it. */
function byFunction<T>(items: readonly T[], name: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = functionOf(name(item));
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return groups;
}

const fail = (list: readonly string[]): void =>
  assert.equal(list.length, 0, `${list.length} mismatches\n${list.slice(0, 20).join("\n")}`);

describe("reference against NumPy", () => {
  for (const [name, jobs] of byFunction(goldenJobs(), ({ job }) => job.name)) {
    test(name, () => {
      useDevice(new ReferenceDevice());
      const wrong = jobs.flatMap(({ job, dump }) => {
        const known = golden[job.name];
        if (known?.[0] !== dump.digest)
          return [`${job.name}: golden.ts is out of date; run packages/core/testdata/make_golden.py`];
        const actual = runEagerly(job);
        if (actual instanceof Error) return mismatches(job, actual, actual);
        // NumPy's dtypes differ on purpose (int64 indices, float64 means): its numbers count, in our dtype.
        const expected = known[1].map(([shape, data], i) => ({ dtype: actual[i]?.dtype ?? "bool", shape, data }));
        return mismatches(job, actual, expected.map(likeComplex));
      });
      fail(wrong);
    });
  }
});

/** Real numbers from NumPy where our result is complex: imaginary parts of zero. */
function likeComplex(result: Result): Result {
  const count = result.shape.reduce((n, d) => n * d, 1);
  const isComplex = result.dtype === "complex64" || result.dtype === "complex128";
  return isComplex && result.data.length === count ? { ...result, data: result.data.flatMap((x) => [x, 0]) } : result;
}

const allJobs = (): Job[] => cases.flatMap((item) => item.dtypes.map((dtype: DType) => jobOf(item, dtype)));

/**
 * What runs where compiling costs: a few dtypes a case, others for the next one, so that every function meets every
 * dtype in one of its cases; one of them with another kind of view. WEFT_TEST_FULL=1 runs everything.
 */
function deviceJobs(): Job[] {
  const full = Boolean(process.env.WEFT_TEST_FULL);
  let turn = 0;
  return cases.flatMap((item, i) => {
    const chosen = full ? item.dtypes : item.dtypes.filter((_, k) => (k + i) % 3 === 0 || item.dtypes.length < 3);
    return chosen.flatMap((dtype: DType, k) => {
      const job = jobOf(item, dtype);
      const view = () => viewed(job, viewKinds[turn++ % viewKinds.length]);
      return full || k === 0 ? [job, view()] : [job];
    });
  });
}

describe("views on the reference", () => {
  for (const [name, jobs] of byFunction(allJobs(), (job) => job.name)) {
    test(name, () => {
      useDevice(new ReferenceDevice());
      const wrong = jobs.flatMap((job, i) => {
        const other = viewed(job, viewKinds[i % viewKinds.length]);
        return mismatches(other, runEagerly(other), runEagerly(job));
      });
      fail(wrong);
    });
  }
});

/** Where compiling costs minutes, WEFT_TEST_PART=2/6 runs every sixth function, from the second on. */
const [part, parts] = (process.env.WEFT_TEST_PART ?? "1/1").split("/").map(Number);

/** Jobs that share a program: a compilation costs more than what is in it. */
const perProgram = 40;

/** Functions with their jobs, in groups of one program each. */
function programs(functions: readonly [string, Job[]][]): [string, Job[]][][] {
  const groups: [string, Job[]][][] = [];
  let count = perProgram;
  for (const item of functions) {
    if (count >= perProgram) {
      groups.push([]);
      count = 0;
    }
    groups[groups.length - 1].push(item);
    count += item[1].length;
  }
  return groups;
}

for (const device of testDevices().filter(({ name }) => name !== "reference")) {
  describe(`${device.name} against the reference`, () => {
    const functions = [...byFunction(deviceJobs(), (job) => job.name)].filter((_, i) => i % parts === part - 1);
    for (const group of programs(functions)) {
      test(group.map(([name]) => name).join(", "), () => {
        const jobs = group.flatMap(([, each]) => each);
        useDevice(new ReferenceDevice());
        const expected = new Map(jobs.map((job) => [job, runEagerly(job)]));
        useDevice(device.make());
        const compare = (some: readonly Job[], actual: readonly (Result[] | Error)[]): void =>
          fail(some.flatMap((job, i) => mismatches(job, actual[i], expected.get(job)!)));
        compare(jobs, runJobs(jobs, jobs.length));
        // One of each function eagerly too: the other way into the device.
        const firsts = group.map(([, [first]]) => first);
        compare(firsts, runEagerlyTogether(firsts));
      });
    }
  });
}

/** Exports that are no functions of tensors, and transforms, which have suites of their own. */
const elsewhere = new Set(
  [
    "CpuDevice CudaDevice DTypeError OutOfMemoryError ReferenceDevice ShapeError Tensor WeftError",
    "collectGarbage setMemoryPressureLimit memory scope session useDevice device setDevice",
    "resultType promoteTypes expmSquarings manualSeed nextKey",
    "setPrecision withPrecision dropoutMask",
    "nonzero argwhere mask setMask compress uniqueAll uniqueCounts uniqueInverse uniqueValues",
    "finfo iinfo isOfKind canCast namespaceInfo",
    "exponential gumbel laplace truncatedNormal gamma beta dirichlet studentT poisson binomial categorical choice shuffle",
    "cauchy logistic rayleigh logNormal pareto weibull geometric triangular multivariateNormal",
    "jacrev jacfwd jacobian hessian customJvp vjpWithAux residual",
    "dynamicSlice dynamicUpdateSlice cond foriLoop switchCase whileLoop grad valueAndGrad vjp jvp vmap scan customVjp checkpoint jit flattenTree treeLeaves treeMap",
    "named shard grad valueAndGrad vjp jvp vmap scan customVjp checkpoint jit flattenTree treeLeaves treeMap",
  ].flatMap((line) => line.split(" ")),
);

test("every public function has a case", () => {
  const covered = new Set(cases.map((item) => functionOf(item.name)));
  const functionsIn = (space: object, prefix = ""): string[] =>
    Object.entries(space).flatMap(([name, value]) => (typeof value === "function" ? [`${prefix}${name}`] : []));
  const { poly, signal, special } = weft;
  const spaces = Object.entries({ poly, signal, special }).flatMap(([name, space]) => functionsIn(space, `${name}.`));
  const exported = [...functionsIn(weft), ...spaces];
  const missing = exported.filter((name) => !covered.has(name) && !elsewhere.has(name));
  assert.deepEqual(missing, []);
  const unknown = [...covered].filter((name) => !exported.includes(name));
  assert.deepEqual(unknown, [], "cases of functions that do not exist");
});

test("case names are unique", () => {
  const names = cases.map((item) => item.name);
  assert.deepEqual(
    names.filter((name, i) => names.indexOf(name) !== i),
    [],
  );
});
