// What `train` takes and returns: options, progress and the result of a run.

import type { EvaluationResult } from "./evaluate.js";
import type { RankGroup } from "./group.js";
import type { EpochRow } from "./records.js";

/** Progress of a run after a step. */
export interface TrainEvent {
  /** Number of the epoch, from 1. */
  epoch: number;
  /** Number of epochs of the run. */
  epochs: number;
  /** Number of finished steps. */
  step: number;
  /** Number of steps of the run. */
  steps: number;
  /** Loss of the step. */
  loss: number;
  /** Throughput of all ranks. */
  samplesPerSecond: number;
}

/** Options of `train`. */
export interface TrainOptions {
  /** The ranks that train together; one rank by default. */
  group?: RankGroup;
  /** Continues from the newest checkpoint of the run. */
  resume?: boolean;
  /** Requests a checkpoint and the end of the run. */
  signal?: AbortSignal;
  /** Steps whose results are read together: 1 on synchronous devices, logging.every_steps on asynchronous ones. */
  readEvery?: number;
  /** Records every kernel of this many first steps in tape-rankK.jsonl. */
  tapeSteps?: number;
  /** A second folder for this rank's records, read by `weft scale`. */
  probeFolder?: string;
  /** Called after each step whose results were read. */
  onStep?: (event: TrainEvent) => void;
  /** `taken` of `of` steps: fewer if a step limit ended the epoch. */
  onEpoch?: (row: EpochRow, taken: number, of: number) => void;
  /** Called with remarks, such as a resumed checkpoint. */
  onNote?: (text: string) => void;
}

/** Result of a run. */
export interface TrainResult {
  /** Whether the run finished or was stopped. */
  status: "done" | "stopped";
  /** Number of steps since the start of the run. */
  steps: number;
  /** One row per epoch. */
  epochs: EpochRow[];
  /** Loss of each step since the start or the checkpoint. */
  losses: number[];
  /** The epoch whose parameters are the result, from 1, if the configuration chose the best one; otherwise null. */
  best: number | null;
  /** Evaluation of the run's result on the test split; null if the run stopped or epochs were evaluated on it. */
  test: EvaluationResult | null;
  /** Folder of the run. */
  output: string;
}
