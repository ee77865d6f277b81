// Model selection and early stopping: the checkpoint of the epoch with the best validation score is the result of a run, and a run without a
// better epoch for `patience` epochs ends early.
import type { RunConfig } from "./config.js";
import { TrainError } from "./errors.js";
import type { EpochRow } from "./records.js";
import type { Task } from "./task.js";

/** The best epoch so far. */
export interface BestEpoch {
  /** Number of the epoch, from 1. */
  epoch: number;
  /** Optimizer steps at its end: the step of its checkpoint. */
  step: number;
  /** Its validation loss, accuracy, F1 or correlation. */
  value: number;
}

/** How epochs are compared, by the value of `training.best`. */
const measures = {
  loss: { of: (row: EpochRow) => row.valLoss, isBetter: (a: number, b: number) => a < b },
  f1: { of: (row: EpochRow) => row.valF1 ?? null, isBetter: (a: number, b: number) => a > b },
  pearson: { of: (row: EpochRow) => row.valPearson ?? null, isBetter: (a: number, b: number) => a > b },
  spearman: { of: (row: EpochRow) => row.valSpearman ?? null, isBetter: (a: number, b: number) => a > b },
  accuracy: { of: (row: EpochRow) => row.valAccuracy, isBetter: (a: number, b: number) => a > b },
} as const;

/** Throws if epochs cannot be compared as the configuration asks. */
export function checkBest({ training }: RunConfig, task: Pick<Task, "samples" | "hasAccuracy" | "scoreKind">): void {
  if (training.best === undefined) return;
  if (task.samples.validation === null)
    throw new TrainError("training.best compares epochs on validation rows, and this run has none");
  const isCorrelation = training.best === "pearson" || training.best === "spearman";
  if (isCorrelation && task.scoreKind !== "regression")
    throw new TrainError(`training.best: ${training.best} is for regressions; use loss, accuracy or f1`);
  if (training.best !== "loss" && !isCorrelation && !task.hasAccuracy)
    throw new TrainError("training.best: accuracy and f1 need a model that counts correct predictions; use loss");
}

/** The best epoch after one more: an equal one is not better, and neither is one whose value is not a number. */
export function bestAfter(
  best: BestEpoch | undefined,
  row: EpochRow,
  step: number,
  { training }: Pick<RunConfig, "training">,
): BestEpoch | undefined {
  if (training.best === undefined) return undefined;
  const { of, isBetter } = measures[training.best];
  const value = of(row);
  if (value === null || Number.isNaN(value)) return best;
  // An epoch that a limit cut short and a resumed run finished is judged again.
  const before = best?.epoch === row.epoch ? undefined : best;
  return before === undefined || isBetter(value, before.value) ? { epoch: row.epoch, step, value } : before;
}

/** Whether the last epochs were not better for so long that the run ends. */
export function isOutOfPatience(
  epochs: readonly EpochRow[],
  best: BestEpoch | undefined,
  { training }: Pick<RunConfig, "training">,
): boolean {
  return training.patience !== undefined && (epochs.at(-1)?.epoch ?? 0) - (best?.epoch ?? 0) >= training.patience;
}
