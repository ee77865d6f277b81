// Fine-tuning: LoRA, frozen parts, examples; classes of texts.
export { storedAsInFiles, storedByHead } from "./by-head.js";
export { type ClassifyOptions, classifyTexts, type TextPrediction } from "./classify.js";
export { type MaskOptions, maskTokens, type Packed, packSequences } from "./examples.js";
export { type FineTuning, type FineTuningOptions, fineTuning, type Trained, type TuningBatch } from "./fine-tuning.js";
export { type Adapter, type Adapters, type Lora, type LoraOptions, loraOf, splitParams } from "./lora.js";
export { type LabeledText, readTexts, type TextColumns } from "./rows.js";
