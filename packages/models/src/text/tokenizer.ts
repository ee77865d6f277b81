// Text to ids and back, by the tokenizer files of a model folder.
import { Tokenizer } from "@huggingface/tokenizers";
import { fileOf, isJsonObject, type JsonObject, ModelError, readJson } from "../config/index.js";

/** Options of {@link TextTokenizer.encode}. */
export interface EncodeOptions {
  /** Second text of a pair. */
  pair?: string;
  /** Adds the tokens that the model expects around a text; true by default. */
  specialTokens?: boolean;
  /** Maximum number of ids; tokens before the closing special tokens are dropped. */
  maxLength?: number;
}

/** A message of a conversation. */
export interface ChatMessage {
  role: string;
  content: string;
}

/** Ids of a text; `types` are 0 for the first text of a pair and 1 for the second. */
export interface Encoded {
  ids: number[];
  types: number[];
}

/** Converts text to ids and back. */
export interface TextTokenizer {
  /** All ids are below this. */
  readonly vocabulary: number;
  /** Ids of special tokens by name; null where the tokenizer has none. */
  readonly special: { readonly pad: number | null; readonly eos: number | null; readonly mask: number | null };
  /** All special ids. */
  readonly specialIds: ReadonlySet<number>;
  encode(text: string, options?: EncodeOptions): Encoded;
  decode(ids: readonly number[], options?: { skipSpecialTokens?: boolean }): string;
  /** The text of a conversation by the model's chat template, ready to be encoded without special tokens. */
  chat(messages: readonly ChatMessage[], options?: { addGenerationPrompt?: boolean }): Promise<string>;
}

const maxTokenizerBytes = 256 * 2 ** 20;
const maxTemplate = 2 ** 18;

/** A special token is a string, or an object with its content. */
function tokenText(value: unknown): string | null {
  if (typeof value === "string") return value;
  if (isJsonObject(value) && typeof value["content"] === "string") return value["content"];
  return null;
}

function templateOf(settings: JsonObject, folder: string): string {
  const given = settings["chat_template"];
  const chosen = Array.isArray(given) ? given.find((t) => isJsonObject(t) && t["name"] === "default") : given;
  const text = isJsonObject(chosen) ? chosen["template"] : chosen;
  if (typeof text !== "string") throw new ModelError(`${folder}: its tokenizer_config.json has no chat_template`);
  if (text.length > maxTemplate) throw new ModelError(`${folder}: its chat_template has ${text.length} characters`);
  return text;
}

/**
 * Loads the tokenizer of a model folder (`tokenizer.json`, `tokenizer_config.json`).
 *
 * @param folder - The folder.
 * @param vocabulary - Number of ids of the model; a tokenizer with more is refused.
 */
export async function loadTokenizer(folder: string, vocabulary?: number): Promise<TextTokenizer> {
  const file = await readJson(folder, "tokenizer.json", maxTokenizerBytes, { checked: false });
  if (file === null)
    throw new ModelError(
      `${folder}: has no tokenizer.json; save the tokenizer with transformers (a "fast" tokenizer) to get one`,
    );
  const settings = (await readJson(folder, "tokenizer_config.json", 16 * 2 ** 20)) ?? {};
  let own: Tokenizer;
  let known: Map<string, number>;
  try {
    own = new Tokenizer(file, settings);
    known = own.get_vocab(true);
  } catch (error) {
    throw new ModelError(`${folder}/tokenizer.json: is not a tokenizer: ${(error as Error).message.slice(0, 300)}`);
  }
  let largest = -1;
  for (const id of known.values()) largest = Math.max(largest, id);
  if (largest < 0) throw new ModelError(`${folder}/tokenizer.json: has no vocabulary`);
  if (vocabulary !== undefined && largest >= vocabulary)
    throw new ModelError(
      `${folder}: its tokenizer makes ids up to ${largest}, its model has ${vocabulary} (vocab_size); they do not belong together`,
    );
  const idOf = (name: string): number | null => {
    const text = tokenText(settings[name]);
    return text === null ? null : (own.token_to_id(text) ?? null);
  };
  const specialIds = new Set(
    [...own.get_added_tokens_decoder()].filter(([, token]) => token.special).map(([id]) => id),
  );
  const templateFile = await fileOf(folder, "chat_template.jinja");
  return {
    vocabulary: largest + 1,
    special: { pad: idOf("pad_token"), eos: idOf("eos_token"), mask: idOf("mask_token") },
    specialIds,
    encode(text, { pair, specialTokens = true, maxLength } = {}) {
      const made = own.encode(text, {
        text_pair: pair ?? null,
        add_special_tokens: specialTokens,
        return_token_type_ids: true,
      });
      const { ids, token_type_ids: types } = made;
      if (maxLength === undefined || ids.length <= maxLength) return { ids, types };
      let closing = 0;
      while (closing < maxLength - 1 && specialIds.has(ids[ids.length - 1 - closing])) closing++;
      const cut = (list: number[]): number[] => [
        ...list.slice(0, maxLength - closing),
        ...list.slice(list.length - closing),
      ];
      return { ids: cut(ids), types: cut(types) };
    },
    decode: (ids, { skipSpecialTokens = true } = {}) =>
      ids.length === 0 ? "" : own.decode([...ids], { skip_special_tokens: skipSpecialTokens }),
    async chat(messages, { addGenerationPrompt = true } = {}) {
      const { Template } = await import("@huggingface/jinja");
      const { readFile } = await import("node:fs/promises");
      const text = templateFile === null ? templateOf(settings, folder) : await readFile(templateFile, "utf8");
      try {
        return new Template(text).render({
          messages: messages.map(({ role, content }) => ({ role, content })),
          add_generation_prompt: addGenerationPrompt,
          bos_token: tokenText(settings["bos_token"]) ?? "",
          eos_token: tokenText(settings["eos_token"]) ?? "",
        });
      } catch (error) {
        throw new ModelError(`${folder}: its chat_template failed: ${(error as Error).message.slice(0, 300)}`);
      }
    },
  };
}
