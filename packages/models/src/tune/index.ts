// Fine-tuning: LoRA, frozen parts, examples; classes of texts.
export { storedAsInFiles, storedByHead } from "./by-head.js";
export { classifyTexts, isRegression, predictNumbers, type TextPrediction } from "./classify.js";
export type { TuningBatch } from "./encode-rows.js";
export { maskTokens, type Packed, packSequences } from "./examples.js";
export { type FineTuning, fineTuning, type Trained } from "./fine-tuning.js";
export { type Adapter, type Adapters, type Lora, loraOf, splitParams } from "./lora.js";
export { type LabeledText, readTexts } from "./rows.js";
