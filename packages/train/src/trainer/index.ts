// @weft/train: training of user-defined models and of text classifiers, on one device or several, and classification with
// a trained run.
export { Classifier, type ClassPrediction } from "./classify.js";
export {
  type Config,
  ConfigError,
  loadConfig,
  type ModuleConfig,
  type Overrides,
} from "./config.js";
export { CheckpointError, TrainError } from "./errors.js";
export { type ExportedRun, exportRun } from "./export.js";
export { joinGroup, type RankGroup, singleRank } from "./group.js";
export { type TrainDefinition, train } from "./train.js";
export type { TrainEvent, TrainOptions, TrainResult } from "./trainer.js";
export type {
  LossContext,
  SampleSource,
  ScoredRows,
  TrainData,
  TrainSplits,
  UserDefinition,
  UserModel,
} from "./user-task.js";
