// Functions of tensors as closed graphs, evaluated by the reference rules exactly as they were traced: no
// simplification, no device.
import { bfloat16Value, float16Value, type GraphFn } from "../graph/index.js";
import type { Tensor } from "../index.js";
import { build, evaluate, type Value } from "../ops/index.js";
import { tracing } from "../runtime/index.js";
import { Tensor as TensorClass } from "../tensor/index.js";
import { closeOver } from "../transform/index.js";
import type { Result } from "./compare.js";
import { type Job, list, upload } from "./jobs.js";

export interface Traced {
  fn: GraphFn;
  args: Value[];
}

const valueOf = (t: Tensor): Value => ({ shape: t.shape, dtype: t.dtype, data: t.rawSync() });

/** A function of tensors as a closed graph, with the values of its parameters. */
export function trace(fn: (...x: Tensor[]) => Tensor[], inputs: readonly Tensor[]): Traced {
  const params = inputs.map((t) => build.input(t.shape, t.dtype));
  const outputs = tracing(() => fn(...params.map((p) => new TensorClass(p))).map((t) => t.node));
  const { fn: closed, captured } = closeOver(outputs, params);
  return { fn: closed, args: [...captured.map((node) => valueOf(new TensorClass(node))), ...inputs.map(valueOf)] };
}

/** Narrow floats are kept as bits: their values count. */
const numberOf = {
  float16: (bits: number | bigint): number => float16Value(Number(bits)),
  bfloat16: (bits: number | bigint): number => bfloat16Value(Number(bits)),
};

export const results = (values: readonly Value[]): Result[] =>
  values.map(({ shape, dtype, data }) => ({
    shape,
    dtype,
    data: Array.from(data as ArrayLike<number | bigint>, numberOf[dtype as keyof typeof numberOf] ?? Number),
  }));

/** The results of a job from its graph as it was traced. */
export function runAsTraced(job: Job): Result[] | Error {
  try {
    const { fn, args } = trace((...x) => list(job.fn(...x)), job.inputs.map(upload));
    return results(evaluate(fn, args));
  } catch (error) {
    return error as Error;
  }
}
