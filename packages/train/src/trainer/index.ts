// @weft/train: training of user-defined models and of text classifiers, on one device or several, and classification with
// a trained run.
export { checkpointSteps, findCheckpoint } from "./checkpoint.js";
export { Classifier, type ClassPrediction } from "./classify.js";
export {
  type Config,
  ConfigError,
  checkConfig,
  configJsonSchema,
  isModuleConfig,
  loadAnyConfig,
  loadConfig,
  type ModuleConfig,
  type Overrides,
  type RawConfig,
  type RawModuleConfig,
  readConfig,
  resolveConfig,
  showConfig,
} from "./config.js";
export { type ElasticOptions, launchElastic } from "./elastic.js";
export { CheckpointError, TrainError } from "./errors.js";
export { type ExportedRun, exportRun } from "./export.js";
export { isRank, joinGroup, type RankGroup, singleRank } from "./group.js";
export { explainTraining } from "./open-run.js";
export { followLauncher, launchRanks, ownCores, RankDeath, type RanksOptions, reportToParent } from "./ranks.js";
export { launchOnRay } from "./ray-ranks.js";
export type { EpochRow } from "./records.js";
export { type SlurmOptions, slurmScript } from "./slurm.js";
export { parseBytes } from "./state-placement.js";
export { type TrainDefinition, train } from "./train.js";
export type { TrainEvent, TrainOptions, TrainResult } from "./trainer.js";
export type { LossContext, SampleSource, TrainData, TrainSplits, UserDefinition, UserModel } from "./user-task.js";
