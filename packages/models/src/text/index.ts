// Tokenizers and batches of text.
export { type BatchOptions, encodeBatch, padRows, type TextBatch } from "./batch.js";
export { encodeTexts, frameOf } from "./encoded-texts.js";
export {
  type ChatMessage,
  type ChatOptions,
  type Encoded,
  type EncodeOptions,
  loadTokenizer,
  type TextTokenizer,
  tokenizerOf,
} from "./tokenizer.js";
export { type NewTokenizer, trainTokenizer } from "./vocabulary.js";
