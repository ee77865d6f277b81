// Evaluation: each rank evaluates its share of a split, each sample once; the programs sum over ranks.
import type { Tensor } from "@weft/core/internal/tensor";
import { scoresOf } from "./class-scores.js";
import { TrainError } from "./errors.js";
import { type RowScores, rowScores } from "./row-scores.js";
import type { StepExecutables, TrainState } from "./step.js";
import { type DataShare, disposeTree, type SplitName, type Task } from "./task.js";

/** Loss and scores of a split; accuracy and scores are null for models that do not count. */
export interface EvaluationResult extends RowScores {
  loss: number;
}

/** Sums that every evaluation begins with: loss, correct predictions, rows, and weight. */
const headSums = 4;

/** Evaluates a split with the parameters of a state. */
export function evaluateSplit(
  programs: StepExecutables,
  state: TrainState,
  task: Task,
  split: SplitName,
  share: DataShare,
): EvaluationResult {
  const samples = task.samples[split] as number;
  const loader = task.load(split, share, { epoch: 0, index: 0 });
  const results: Tensor[] = [];
  for (let seen = 0; seen < samples; ) {
    const batch = loader.next();
    results.push(programs.evaluate(state, { ...batch, stop: null }));
    disposeTree(batch.inputs);
    seen += batch.total;
  }
  loader.close();
  // Read after all are issued, so that an asynchronous device is not stalled per batch.
  const sums: number[] = new Array(headSums).fill(0);
  const rows: ArrayLike<number>[] = [];
  for (const result of results) {
    const part = result.dataSync() as Float32Array | Float64Array;
    const summed = task.scoreKind === undefined ? part.length : headSums;
    for (let k = 0; k < summed; k++) sums[k] = (sums[k] ?? 0) + part[k];
    // A copy, because the tensor is released.
    if (summed < part.length) rows.push(part.slice(summed));
    result.dispose();
  }
  if (sums[2] !== samples)
    throw new TrainError(`the evaluation saw ${sums[2]} samples of ${samples}; this is a fault of Weft`);
  // A mean over rows, or over what the task counts.
  const terms = task.weight === undefined ? sums[2] : sums[3] || 1;
  const loss = sums[0] / terms;
  if (task.scoreKind !== undefined) {
    const values = new Float64Array(rows.reduce((n, { length }) => n + length, 0));
    let at = 0;
    for (const part of rows) {
      values.set(part, at);
      at += part.length;
    }
    return { loss, ...rowScores(task.scoreKind, values, samples, task.classes) };
  }
  if (!task.hasAccuracy) return { loss, accuracy: null, scores: null };
  if (sums.length === headSums) return { loss, accuracy: sums[1] / sums[2], scores: null };
  const count = (sums.length - headSums) / 3;
  const counts = (k: number): number[] => sums.slice(headSums + k * count, headSums + (k + 1) * count);
  return { loss, ...scoresOf(counts(0), counts(1), counts(2), task.classes) };
}
