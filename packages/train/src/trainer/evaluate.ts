// Evaluation: each rank evaluates its share of a split, each sample once, and the sums are reduced over ranks.

import { jit, type Tensor, tensor } from "@weft/core/internal/tensor";
import { headColumns, type LoaderOptions, openLoader, type TokenSet } from "../data/index.js";
import { TrainError } from "./errors.js";
import type { RankGroup } from "./group.js";
import type { StepExecutables, TrainState } from "./step.js";

export interface EvaluationResult {
  loss: number;
  accuracy: number;
}

export function evaluateSplit(
  { evaluate: program }: StepExecutables,
  params: TrainState["params"],
  set: TokenSet,
  options: LoaderOptions,
  group: RankGroup,
): EvaluationResult {
  const loader = openLoader(set, options, { epoch: 0, index: 0 });
  const results: Tensor[] = [];
  for (let i = 0; i < loader.stepsPerEpoch; i++) {
    const { data, rows, length } = loader.next();
    results.push(program(params, tensor(data, { shape: [rows, headColumns + length], dtype: "int32" })));
  }
  loader.close();
  // Read after all are issued, so that an asynchronous device is not stalled per batch.
  const sums = [0, 0, 0];
  for (const result of results) {
    const part = result.dataSync() as ArrayLike<number>;
    for (let k = 0; k < 3; k++) sums[k] += part[k];
    result.dispose();
  }
  const own = tensor(Float64Array.from(sums), { dtype: "float64" });
  const all = group.size === 1 ? sums : (jit((t: Tensor) => group.sum(t))(own).dataSync() as ArrayLike<number>);
  if (all[2] !== set.rows)
    throw new TrainError(`the evaluation saw ${all[2]} samples of ${set.rows}; this is a fault of Weft`);
  return { loss: all[0] / all[2], accuracy: all[1] / all[2] };
}
