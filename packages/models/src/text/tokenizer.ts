// Text to ids and back, by the tokenizer files of a model folder.
import { createHash } from "node:crypto";
import { Tokenizer } from "@huggingface/tokenizers";
import { checkOptions } from "@weft/core/internal/graph";
import { fileOf, isJsonObject, type JsonObject, ModelError } from "../config/index.js";
import { correctDecoder } from "./decoders.js";
import { makeNormalizer } from "./normalizers.js";
import { makePreTokenizer } from "./pre-tokenizers.js";
import { joinTokenizerFiles, readTokenizerFiles, type TokenizerFiles, tokenText } from "./tokenizer-files.js";

/** Options of {@link TextTokenizer.encode}. @inline */
interface EncodeOptions {
  /** Second text of a pair. */
  pair?: string;
  /** Adds the tokens that the model expects around a text; true by default. */
  specialTokens?: boolean;
  /** Maximum number of ids. Of a pair, the longer text is cut first; `truncation_side` of the tokenizer says at which end. */
  maxLength?: number;
}

/** A message of a conversation. The model's chat template may read further keys, such as `tool_calls`. */
export interface ChatMessage {
  /** Who speaks, such as `system`, `user` or `assistant`. */
  role: string;
  /** What is said: a text, or parts as the template expects them. */
  content?: string | readonly object[] | null;
  [key: string]: unknown;
}

/** Options of {@link TextTokenizer.chat}. @inline */
interface ChatOptions {
  /** Ends with the start of the answer; true by default. */
  addGenerationPrompt?: boolean;
  /** Functions that the model may call, as JSON schemas. */
  tools?: readonly object[];
  /** Documents for the answer. */
  documents?: readonly object[];
  /** Further variables of the template, such as `enable_thinking`. */
  variables?: Readonly<Record<string, unknown>>;
}

/** Ids of a text; `types` are 0 for the first text of a pair and 1 for the second. */
export interface Encoded {
  /** Token ids, special tokens included. */
  ids: number[];
  /** 0 for tokens of the first text, 1 for those of the second. */
  types: number[];
}

/** Converts text to ids and back. */
export interface TextTokenizer {
  /** Hash of its files. */
  readonly identity: string;
  /** All ids are below this. */
  readonly vocabulary: number;
  /** Ids of special tokens by name; null where the tokenizer has none. */
  readonly special: { readonly pad: number | null; readonly eos: number | null; readonly mask: number | null };
  /** Side at which long texts are cut. */
  readonly truncationSide: "left" | "right";
  /** Side at which batches are padded. */
  readonly paddingSide: "left" | "right";
  /** Whether models get the number of the text that a token of a pair belongs to, as a BERT does. */
  readonly usesTypes: boolean;
  /** All special ids. */
  readonly specialIds: ReadonlySet<number>;
  /** Token ids of a text or of a pair of texts. */
  encode(text: string, options?: EncodeOptions): Encoded;
  /** The text of token ids. */
  decode(ids: readonly number[], options?: { skipSpecialTokens?: boolean }): string;
  /** The text of a conversation by the model's chat template, ready to be encoded without special tokens. */
  chat(messages: readonly ChatMessage[], options?: ChatOptions): Promise<string>;
}

const maxTemplate = 2 ** 18;
const specialNames = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"].map((name) => `${name}_token`);

function templateOf(settings: JsonObject, folder: string): string {
  const given = settings["chat_template"];
  const chosen = Array.isArray(given) ? given.find((t) => isJsonObject(t) && t["name"] === "default") : given;
  const text = isJsonObject(chosen) ? chosen["template"] : chosen;
  if (typeof text !== "string") throw new ModelError(`${folder}: its tokenizer_config.json has no chat_template`);
  return text;
}

/** The chat template of a folder: of a file of its own, or of the settings. */
async function readTemplate(file: string | null, settings: JsonObject, folder: string): Promise<string> {
  const { readFile, stat } = await import("node:fs/promises");
  const length = file === null ? templateOf(settings, folder).length : (await stat(file)).size;
  if (length > maxTemplate)
    throw new ModelError(`${folder}: its chat template has ${length} characters; at most ${maxTemplate} are read`);
  return file === null ? templateOf(settings, folder) : readFile(file, "utf8");
}

/** Where a sequence occurs in a list from a position on; -1 if it does not. */
function placeOf(list: readonly number[], part: readonly number[], from: number): number {
  for (let at = from; at + part.length <= list.length; at++) if (part.every((id, i) => list[at + i] === id)) return at;
  return -1;
}

/**
 * Which tokens of an encoded text, or of a pair, stay within a maximum length: special tokens do, and the longer of the two texts
 * is shortened first. Null if even the special tokens are longer.
 */
function keptTokens(
  ids: readonly number[],
  first: readonly number[],
  second: readonly number[],
  most: number,
  cutsLeft: boolean,
): boolean[] | null {
  const starts = [placeOf(ids, first, 0), 0];
  starts[1] = placeOf(ids, second, starts[0] + first.length);
  const counts = [first.length, second.length];
  for (let left = ids.length - most; left > 0; left--) {
    // Of two equal parts, the one that was shorter gives the next token.
    const tie = first.length > second.length ? 1 : 0;
    const longer = counts[0] === counts[1] ? tie : counts[0] > counts[1] ? 0 : 1;
    if (counts[longer] === 0 || starts[longer] < 0) return null;
    counts[longer]--;
  }
  const keeps = ids.map(() => true);
  [first, second].forEach(({ length }, k) => {
    const cut = length - counts[k];
    keeps.fill(false, cutsLeft ? starts[k] : starts[k] + counts[k], starts[k] + (cutsLeft ? cut : length));
  });
  return keeps;
}

/** A model of the library; those of merged pairs (BPE) have `merges`. */
interface LibraryModel {
  _call(pieces: string[]): string[];
  readonly merges?: readonly (readonly [string, string])[];
  readonly end_of_word_suffix?: string | null;
  readonly continuing_subword_suffix?: string | null;
  bpe(text: string): string[];
}

/**
 * Tokenizers without a pre-tokenizer give a whole text to the model, whose time grows faster than its length and whose cache is for
 * words. If no merge crosses the start of a word (a mark for spaces after something else), words are merged one by one.
 */
function mergeByWords(model: LibraryModel): void {
  const { merges } = model;
  if (!Array.isArray(merges) || model.end_of_word_suffix || model.continuing_subword_suffix) return;
  if (merges.some(([left, right]) => /[^\u2581]\u2581/.test(left + right))) return;
  const merge = model.bpe.bind(model);
  model.bpe = (text) =>
    text.includes("\u2581", 1) ? text.split(/(?<=[^\u2581])(?=\u2581)/).flatMap(merge) : merge(text);
}

/** Unknown characters are fused within the pieces of a text; the library would fuse them across. */
function callByPieces(model: LibraryModel): void {
  const call = model._call.bind(model);
  model._call = (pieces) => pieces.flatMap((piece) => call([piece]));
}

/** Parts of a tokenizer that the declarations of the library leave out. */
interface LibraryTokenizer {
  normalizer: ((text: string) => string) | null;
  splitter_normalized: object;
  readonly added_tokens_map: Map<string, unknown>;
  readonly added_tokens: readonly { readonly content: string; readonly normalized: boolean }[];
  readonly decoder: Parameters<typeof correctDecoder>[0];
}

/** Gives a tokenizer of the library, made without a normalizer, one; added tokens that are normalized are found in normalized texts. */
function setNormalizer(own: LibraryTokenizer, normalize: (text: string) => string): void {
  own.normalizer = normalize;
  const normalized = own.added_tokens.filter((token) => token.normalized);
  const Splitter = own.splitter_normalized.constructor as new (texts: string[]) => object;
  own.splitter_normalized = new Splitter(normalized.map(({ content }) => normalize(content)));
  for (const token of normalized) own.added_tokens_map.set(normalize(token.content), token);
}

/**
 * Loads the tokenizer of a model folder (`tokenizer.json`, `tokenizer_config.json`).
 *
 * @param folder - The folder.
 * @param vocabulary - Number of ids of the model; a tokenizer with more is refused.
 */
export async function loadTokenizer(folder: string, vocabulary?: number): Promise<TextTokenizer> {
  const files = await readTokenizerFiles(folder);
  const templateFile = await fileOf(folder, "chat_template.jinja");
  return makeTokenizer(files, `${folder}/tokenizer.json`, folder, templateFile, vocabulary);
}

/**
 * The tokenizer of a parsed `tokenizer.json` alone, without the other files of a model folder.
 *
 * @param file - The content of the file.
 * @param label - How errors name it.
 */
export function tokenizerOf(file: unknown, label: string): TextTokenizer {
  if (!isJsonObject(file)) throw new ModelError(`${label}: is not a JSON object`);
  return makeTokenizer(joinTokenizerFiles(label, file, {}, {}), label, label, null);
}

/** Kinds of tokenizers that belong to no architecture; a model gets no types from them, unless the settings say so. */
const plainClasses: readonly unknown[] = ["PreTrainedTokenizerFast", "TokenizersBackend"];

function usesTypes({ model_input_names: names, tokenizer_class: kind }: JsonObject): boolean {
  return Array.isArray(names) ? names.includes("token_type_ids") : !plainClasses.includes(kind);
}

/** The largest id of the pieces of a `tokenizer.json`; -1 if it has none. */
function largestId(file: JsonObject): number {
  const pieces = isJsonObject(file["model"]) ? file["model"]["vocab"] : null;
  if (Array.isArray(pieces)) return pieces.length - 1;
  let largest = -1;
  if (isJsonObject(pieces)) for (const id of Object.values(pieces)) largest = Math.max(largest, Number(id));
  return largest;
}

function makeTokenizer(
  { file, settings }: TokenizerFiles,
  label: string,
  folder: string,
  templateFile: string | null,
  vocabulary?: number,
): TextTokenizer {
  const checkIds = (largest: number): void => {
    if (vocabulary !== undefined && largest >= vocabulary)
      throw new ModelError(
        `${folder}: its tokenizer makes ids up to ${largest}, its model has ${vocabulary} (vocab_size); they do not belong together`,
      );
  };
  // Before anything is made of a vocabulary that may be huge.
  checkIds(largestId(file));
  let own: Tokenizer;
  let known: Map<string, number>;
  try {
    // A normalizer that changes nothing: tokens that are to be normalized stay separate from the others.
    const none = { type: "Sequence", normalizers: [] };
    const normalizer = file["normalizer"] === null ? null : none;
    own = new Tokenizer({ ...file, normalizer, pre_tokenizer: null }, settings);
    const inner = own as unknown as LibraryTokenizer;
    if (normalizer !== null) setNormalizer(inner, makeNormalizer(file["normalizer"]));
    correctDecoder(inner.decoder);
    if (file["pre_tokenizer"] !== null) {
      const cut = makePreTokenizer(file["pre_tokenizer"]);
      own.pre_tokenizer = ((text: string, { section_index: at }: { section_index: number }) =>
        cut(text, at === 0)) as never;
    }
    const parts = own.model as LibraryModel;
    mergeByWords(parts);
    callByPieces(parts);
    // Ids without a token are undefined in the library's list.
    known = new Map([...own.get_vocab(true)].filter(([text]) => text !== undefined));
  } catch (error) {
    throw new ModelError(`${label}: is not a tokenizer: ${(error as Error).message.slice(0, 300)}`);
  }
  let largest = -1;
  for (const id of known.values()) largest = Math.max(largest, id);
  if (largest < 0) throw new ModelError(`${label}: has no vocabulary`);
  checkIds(largest);
  const idOf = (name: string): number | null => {
    const text = tokenText(settings[name]);
    return text === null ? null : (own.token_to_id(text) ?? null);
  };
  const specialIds = new Set(
    [...own.get_added_tokens_decoder()].filter(([, token]) => token.special).map(([id]) => id),
  );
  // Tokens that the tokenizer does not have are undefined in templates.
  const named = specialNames.flatMap((name) => {
    const text = tokenText(settings[name]);
    return text === null ? [] : [[name, text] as const];
  });
  const cutsLeft = settings["truncation_side"] === "left";
  // Meant for words; byte-level and sentence pieces have their own spaces.
  const { model } = file;
  const cleansUp =
    settings["clean_up_tokenization_spaces"] === true && !(isJsonObject(model) && model["type"] === "BPE");
  // RoBERTa has one type of tokens.
  const { post_processor: after } = file;
  const steps = isJsonObject(after) && Array.isArray(after["processors"]) ? after["processors"] : [after];
  const hasTypes = !steps.some((step) => isJsonObject(step) && step["type"] === "RobertaProcessing");
  const unknown = isJsonObject(model) ? known.get(tokenText(model["unk_token"]) ?? "") : undefined;
  const checked = (ids: (number | undefined)[]): number[] =>
    ids.map((id) => {
      const found = id ?? unknown;
      if (found === undefined)
        throw new ModelError(`encode: ${folder}: its tokenizer has no token for a part of the text, and no unk_token`);
      return found;
    });
  const idsOf = (text: string): number[] => checked(own.encode(text, { add_special_tokens: false }).ids);
  const anyText = [...known.keys()].find((text) => /^[a-z]+$/.test(text) && idsOf(text).length > 0) ?? "a";
  // Of post-processors that add no tokens, the library drops the second text and the types.
  const addsNothing = steps.every((step) => step == null || (isJsonObject(step) && step["type"] === "ByteLevel"));
  const whole = (text: string, pair: string | undefined, specialTokens: boolean): Encoded => {
    if (pair === "" && !addsNothing) {
      // The library takes an empty second text for none: another one is encoded, and its tokens are removed.
      const [first, second] = [idsOf(text), idsOf(anyText)];
      const { ids, types } = whole(text, anyText, specialTokens);
      const at = placeOf(ids, second, Math.max(0, placeOf(ids, first, 0)) + first.length);
      const kept = (list: number[]): number[] => list.filter((_, i) => i < at || i >= at + second.length);
      return { ids: kept(ids), types: kept(types) };
    }
    if (addsNothing) {
      const [first, second] = [idsOf(text), pair === undefined ? [] : idsOf(pair)];
      return { ids: [...first, ...second], types: [...first.map(() => 0), ...second.map(() => 1)] };
    }
    const { ids, token_type_ids: types } = own.encode(text, {
      text_pair: pair ?? null,
      add_special_tokens: specialTokens,
      return_token_type_ids: true,
    });
    return { ids: checked(ids), types: hasTypes && types !== undefined ? types : ids.map(() => 0) };
  };
  return {
    identity: createHash("sha256")
      .update(JSON.stringify([file, settings]))
      .digest("hex"),
    vocabulary: largest + 1,
    special: { pad: idOf("pad_token"), eos: idOf("eos_token"), mask: idOf("mask_token") },
    specialIds,
    truncationSide: cutsLeft ? "left" : "right",
    paddingSide: settings["padding_side"] === "left" ? "left" : "right",
    usesTypes: usesTypes(settings),
    encode(text, { pair, specialTokens = true, maxLength } = {}) {
      const { ids, types } = whole(text, pair, specialTokens);
      if (maxLength === undefined || ids.length <= maxLength) return { ids, types };
      const keeps = keptTokens(ids, idsOf(text), pair === undefined ? [] : idsOf(pair), maxLength, cutsLeft);
      if (keeps === null)
        throw new ModelError(
          `encode: maxLength is ${maxLength}, less than the tokens that the model expects around a text`,
        );
      const kept = (list: number[]): number[] => list.filter((_, i) => keeps[i]);
      return { ids: kept(ids), types: kept(types) };
    },
    decode(ids, { skipSpecialTokens = true } = {}) {
      // Models may have more ids than their tokenizers; the library would take these for the unknown token.
      const named = ids.filter((id) => own.id_to_token(id) !== undefined);
      const how = { skip_special_tokens: skipSpecialTokens, clean_up_tokenization_spaces: cleansUp };
      return named.length === 0 ? "" : own.decode(named, how);
    },
    async chat(messages, options = {}) {
      checkOptions("chat", options, ["addGenerationPrompt", "tools", "documents", "variables"]);
      const { addGenerationPrompt = true, tools, documents, variables } = options;
      const wrong = messages.findIndex((message) => typeof message?.role !== "string");
      if (wrong >= 0) throw new ModelError(`chat: message ${wrong} has no role; a message is { role, content }`);
      if (messages.length === 0) throw new ModelError("chat: there is no message; give at least one { role, content }");
      const { renderTemplate } = await import("./chat-template.js");
      const text = await readTemplate(templateFile, settings, folder);
      try {
        return renderTemplate(text, {
          ...Object.fromEntries(named),
          messages,
          tools: tools ?? null,
          documents: documents ?? null,
          add_generation_prompt: addGenerationPrompt,
          ...variables,
        });
      } catch (error) {
        throw new ModelError(`${folder}: its chat_template failed: ${(error as Error).message.slice(0, 300)}`);
      }
    },
  };
}
