// Meta-learning: policy network, adaptation, meta-gradients, training and baselines.
export { type Baseline, type BaselineOptions, compareBaselines } from "./baselines.js";
export { type MetaConfig, type MetaPreset, type MetaSettings, metaConfig, presetNames } from "./config.js";
export { type MetaFileOptions, metaJsonSchema, parseMetaFile } from "./file.js";
export {
  type Adaptation,
  adapt,
  adaptationCurves,
  type MetaGradient,
  type MetaOptions,
  metaGradient,
  type TaskLoss,
} from "./maml.js";
export { type PolicyActivation, type PolicyOptions, type PolicyParameters, policy } from "./policy.js";
export { type MetaMetric, type MetaState, MetaTrainer, type MetaValidation } from "./train.js";
