// What the training loop needs of a model and its data. Tasks are text classifiers of a configuration (text-task.ts) and
// models that users define (user-task.ts).
import { treeLeaves } from "@weft/core/internal/tensor";
import type { Workload } from "@weft/formats/internal";
import type { Position } from "../data/index.js";
import type { ScoreKind } from "./row-scores.js";
import type { StepTask } from "./step.js";

/** Which share of every batch a rank reads: part `rank` of `ranks`. */
export interface DataShare {
  rank: number;
  ranks: number;
  /** Speeds of the parts, by which rows are divided; equal parts by default. */
  speeds?: readonly number[] | undefined;
}

/** A micro-batch of one rank. */
export interface TaskBatch extends Position {
  micro: number;
  /** Samples of this rank. */
  samples: number;
  /** Samples of the step, over all ranks and micro-steps. */
  total: number;
  /** Rows over all ranks, padding included. */
  rows: number;
  /** Boundaries of the rows of each rank; equal parts by default. */
  bounds?: readonly number[] | undefined;
  /** Weight of the micro-batch's loss in that of the step. */
  share: number;
  /** Tensors; released after the step. */
  inputs: unknown;
  /** Numbers of the samples. */
  ids: ArrayLike<number>;
}

/** A source of micro-batches for one rank. */
export interface TaskLoader {
  next(): TaskBatch;
  close(): void;
}

export type SplitName = "train" | "validation" | "test";

/** A model with its loss and its data. */
export interface Task<P = unknown> extends StepTask<P> {
  /** Samples of each split; null if there is none. */
  readonly samples: Readonly<Record<SplitName, number | null>>;
  /** Content hashes of the data, by which a resumed run is checked. */
  readonly dataKeys: { train: string; test: string | null };
  /** Names of the classes, for classifiers. */
  readonly classes: readonly string[];
  /** Whether `evaluate` counts correct predictions. */
  readonly hasAccuracy: boolean;
  /** The kind of scores of tasks whose `evaluate` gives the predictions and labels of every row. */
  readonly scoreKind?: ScoreKind;
  /** Threads that make batches. */
  readonly loaders: number;
  /** Facts about model and data for the records of the run. */
  readonly workload: Workload;
  /** The batches of a split from a position on; training batches are shuffled. */
  load(split: SplitName, share: DataShare, from: Position): TaskLoader;
  /** Batches with the shapes of the `steps` steps after a position, to compile for. */
  shapesAhead(
    share: DataShare,
    from: Position,
    steps: number,
  ): Iterable<Pick<TaskBatch, "rows" | "bounds" | "share" | "inputs">>;
  /** Samples of an epoch that were used before a position in it. */
  samplesBefore(from: Position): Uint32Array;
  /** Names the first tensor with NaN or infinity; `params` are whole. */
  diagnose(params: P, inputs: unknown, modelState: unknown): string;
}

/** Releases the tensors of a batch: the next batch then reuses their memory. */
export function disposeTree(tree: unknown): void {
  for (const leaf of treeLeaves(tree)) leaf.dispose();
}
