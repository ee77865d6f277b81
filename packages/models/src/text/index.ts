// Tokenizers and batches of text.
export { encodeBatch, padRows, type TextBatch } from "./batch.js";
export { encodeTexts, frameOf } from "./encoded-texts.js";
export { type ChatMessage, type Encoded, loadTokenizer, type TextTokenizer, tokenizerOf } from "./tokenizer.js";
export { trainTokenizer } from "./vocabulary.js";
