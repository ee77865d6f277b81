// Public API of @weft/models: pretrained transformers from Hugging Face folders, fine-tuning and generation.
export {
  type ApplyOptions,
  type Batch,
  type CacheOptions,
  type CheckpointPolicy,
  type CommonConfig,
  type KeyValueCache,
  type Outputs,
  type Params,
  type Task,
  tasks,
} from "./architectures/index.js";
export {
  type LoadOptions,
  loadPretrained,
  type PretrainedModel,
  type SaveOptions,
  savePretrained,
} from "./checkpoint/index.js";
export { type JsonObject, ModelError } from "./config/index.js";
export { defineModel, type LossOptions, type Model, type ModelOptions } from "./model/index.js";
