// Public API of @weft/models: pretrained transformers from Hugging Face folders, fine-tuning and generation.
export { layerDecay, withRates } from "@weft/core/optim";
export {
  type Batch,
  type CommonConfig,
  type KeyValueCache,
  type ModelTask,
  type Outputs,
  type Params,
  tasks,
} from "./architectures/index.js";
export { loadPretrained, type PretrainedModel, savePretrained } from "./checkpoint/index.js";
export { ModelError } from "./config/index.js";
export { type Generated, generate, generateTokens, streamText } from "./generate/index.js";
export { defineModel, type Model } from "./model/index.js";
export {
  type ChatMessage,
  type Encoded,
  encodeBatch,
  loadTokenizer,
  type TextBatch,
  type TextTokenizer,
  tokenizerOf,
  trainTokenizer,
} from "./text/index.js";
export {
  type Adapter,
  type Adapters,
  classifyTexts,
  type FineTuning,
  fineTuning,
  isRegression,
  type LabeledText,
  type Lora,
  loraOf,
  maskTokens,
  type Packed,
  packSequences,
  predictNumbers,
  readTexts,
  splitParams,
  storedAsInFiles,
  storedByHead,
  type TextPrediction,
  type Trained,
  type TuningBatch,
} from "./tune/index.js";
