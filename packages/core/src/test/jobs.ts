// Running many small functions on a device: one by one on the reference, batched into programs where compilation is expensive.
import { type DType, jit, session, type Tensor, tensor } from "../index.js";
import { type Case, type CaseFn, type Host, Source } from "./cases/index.js";
import { difference, type Result, toleranceOf, toResult } from "./compare.js";

/** One function with its inputs on the host. */
export interface Job {
  name: string;
  dtype: DType;
  inputs: Host[];
  fn: CaseFn;
  loose: number;
}

/** Numbers of a bool operand count as NumPy's astype(bool) takes them. */
export const upload = ({ shape, dtype, data }: Host): Tensor =>
  tensor(
    Float64Array.from(data, (x) => (dtype === "bool" ? Number(x !== 0) : x)),
    { shape, dtype },
  );

export const jobOf = (item: Case, dtype: DType): Job => ({
  name: `${item.name} (${dtype})`,
  dtype,
  inputs: item.inputs(new Source(dtype, item.name)),
  fn: item.fn,
  loose: item.loose ?? 1,
});

/** The public function that a case or job belongs to. */
export const functionOf = (name: string): string => name.slice(0, name.indexOf(":"));

/** What differs between the results of a job and those expected, in words; the job's tolerance times a factor. */
export function mismatches(
  { name, loose }: Pick<Job, "name" | "loose">,
  actual: readonly Result[] | Error,
  expected: readonly Result[] | Error,
  factor = 1,
): string[] {
  if (actual instanceof Error) return [`${name}: threw ${actual.name}: ${actual.message}`];
  if (expected instanceof Error) return [`${name}: the expected value threw ${expected.message}`];
  if (actual.length !== expected.length) return [`${name}: ${actual.length} results, expected ${expected.length}`];
  return actual.flatMap((result, i) => {
    const problem = difference(result, expected[i], { rtol: factor * loose * toleranceOf(result.dtype) });
    return problem === null ? [] : [`${name}, result ${i}: ${problem}`];
  });
}

export const list = (results: Tensor | Tensor[]): Tensor[] => (Array.isArray(results) ? results : [results]);

export function runEagerly(job: Job): Result[] | Error {
  try {
    return list(job.fn(...job.inputs.map(upload))).map(toResult);
  } catch (error) {
    return error as Error;
  }
}

/** Results of jobs outside jit, computed by one program. A job that throws gives its error. */
export function runEagerlyTogether(jobs: readonly Job[]): (Result[] | Error)[] {
  try {
    const results = jobs.map((job) => list(job.fn(...job.inputs.map(upload))));
    session().realize(results.flat().map((t) => t.node));
    return results.map((tensors) => tensors.map(toResult));
  } catch {
    return jobs.map(runEagerly);
  }
}

/** Results of all jobs; a program holds `perProgram` of them. A job that throws gives its error. */
export function runJobs(jobs: readonly Job[], perProgram = 25): (Result[] | Error)[] {
  const results: (Result[] | Error)[] = [];
  for (let at = 0; at < jobs.length; at += perProgram) {
    const group = jobs.slice(at, at + perProgram);
    try {
      const program = jit((args: Tensor[][]) => group.map((job, i) => list(job.fn(...args[i]))));
      const outputs = program(group.map((job) => job.inputs.map(upload))) as Tensor[][];
      results.push(...outputs.map((tensors) => tensors.map(toResult)));
    } catch {
      // One of them is at fault: run each on its own to learn which.
      results.push(...group.map(runAlone));
    }
  }
  return results;
}

function runAlone(job: Job): Result[] | Error {
  try {
    const program = jit((args: Tensor[]) => list(job.fn(...args)));
    return (program(job.inputs.map(upload)) as Tensor[]).map(toResult);
  } catch (error) {
    return error as Error;
  }
}
