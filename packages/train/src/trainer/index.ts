// @weft/train: data-parallel training of text classifiers from YAML configurations, and classification with a trained
// run.
export { CheckpointError, checkpointSteps, findCheckpoint } from "./checkpoint.js";
export { Classifier, type ClassPrediction } from "./classify.js";
export {
  type Config,
  ConfigError,
  checkConfig,
  loadConfig,
  type Overrides,
  type RawConfig,
  readConfig,
  resolveConfig,
  showConfig,
} from "./config.js";
export { type ElasticOptions, launchElastic } from "./elastic.js";
export { TrainError } from "./errors.js";
export { isRank, joinGroup, localDeviceIndex, type RankGroup, singleRank } from "./group.js";
export { followLauncher, launchRanks, ownCores, RankDeath, type RanksOptions, reportToParent } from "./ranks.js";
export { launchOnRay } from "./ray-ranks.js";
export type { EpochRow } from "./records.js";
export { type SlurmOptions, slurmScript } from "./slurm.js";
export { type TrainEvent, type TrainOptions, type TrainResult, train } from "./trainer.js";
