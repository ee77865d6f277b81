// Public API of @weft/models: pretrained transformers from Hugging Face folders, fine-tuning and generation.
export { layerDecay, withRates } from "@weft/core/optim";
export {
  type ApplyOptions,
  type Batch,
  type CheckpointPolicy,
  type CommonConfig,
  type KeyValueCache,
  type KeyValueCacheOptions,
  type ModelTask,
  type Outputs,
  type Params,
  tasks,
} from "./architectures/index.js";
export {
  type LoadOptions,
  loadPretrained,
  type PretrainedModel,
  type SaveModelOptions,
  savePretrained,
} from "./checkpoint/index.js";
export { type JsonObject, ModelError } from "./config/index.js";
export {
  type Generated,
  type GenerateOptions,
  generate,
  generateTokens,
  type SamplingOptions,
  streamText,
  type TokenOptions,
} from "./generate/index.js";
export { defineModel, type Model, type ModelLossOptions, type ModelOptions, type ProblemType } from "./model/index.js";
export {
  type BatchOptions,
  type ChatMessage,
  type ChatOptions,
  type Encoded,
  type EncodeOptions,
  encodeBatch,
  loadTokenizer,
  type NewTokenizer,
  type TextBatch,
  type TextTokenizer,
  tokenizerOf,
  trainTokenizer,
} from "./text/index.js";
export {
  type Adapter,
  type Adapters,
  type ClassifyOptions,
  classifyTexts,
  type FineTuning,
  type FineTuningOptions,
  fineTuning,
  type LabeledText,
  type Lora,
  type LoraOptions,
  loraOf,
  type MaskOptions,
  maskTokens,
  type Packed,
  packSequences,
  readTexts,
  splitParams,
  storedAsInFiles,
  storedByHead,
  type TextColumns,
  type TextPrediction,
  type Trained,
  type TuningBatch,
} from "./tune/index.js";
