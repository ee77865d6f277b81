// Tokenizers and batches of text.
export { type BatchOptions, encodeBatch, padRows, type TextBatch } from "./batch.js";
export { type ChatMessage, type Encoded, type EncodeOptions, loadTokenizer, type TextTokenizer } from "./tokenizer.js";
