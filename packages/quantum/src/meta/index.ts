// Meta-learning: policy network, adaptation, meta-gradients, training and baselines.
export { type Baseline, compareBaselines } from "./baselines.js";
export { type MetaConfig, type MetaPreset, type MetaSettings, metaConfig, presetNames } from "./config.js";
export { metaJsonSchema, parseMetaFile } from "./file.js";
export { type Adaptation, adapt, adaptationCurves, type MetaGradient, metaGradient } from "./maml.js";
export { type PolicyParameters, policy } from "./policy.js";
export { type MetaMetric, type MetaState, MetaTrainer, type MetaValidation } from "./train.js";
