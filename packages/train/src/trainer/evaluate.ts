// Evaluation: each rank evaluates its share of a split, each sample once; the programs sum over ranks.
import type { Tensor } from "@weft/core/internal/tensor";
import { type ClassScores, scoresOf } from "./class-scores.js";
import { TrainError } from "./errors.js";
import type { StepExecutables, TrainState } from "./step.js";
import { type DataShare, disposeTree, type SplitName, type Task } from "./task.js";

export interface EvaluationResult {
  loss: number;
  /** Share of correct predictions; null for models without classes. */
  accuracy: number | null;
  /** Precision, recall and F1; null for models that do not count by class. */
  scores: ClassScores | null;
}

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
  const sums: number[] = [0, 0, 0, 0];
  for (const result of results) {
    const part = result.dataSync() as ArrayLike<number>;
    for (let k = 0; k < part.length; k++) sums[k] = (sums[k] ?? 0) + part[k];
    result.dispose();
  }
  if (sums[2] !== samples)
    throw new TrainError(`the evaluation saw ${sums[2]} samples of ${samples}; this is a fault of Weft`);
  // A mean over rows, or over what the task counts.
  const terms = task.weight === undefined ? sums[2] : sums[3] || 1;
  const loss = sums[0] / terms;
  if (!task.hasAccuracy) return { loss, accuracy: null, scores: null };
  if (sums.length === 4) return { loss, accuracy: sums[1] / sums[2], scores: null };
  const count = (sums.length - 4) / 3;
  const counts = (k: number): number[] => sums.slice(4 + k * count, 4 + (k + 1) * count);
  return { loss, ...scoresOf(counts(0), counts(1), counts(2), task.classes) };
}
