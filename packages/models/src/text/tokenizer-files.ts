// The tokenizer files of a model folder, joined as the published implementation joins them: tokenizer.json describes the tokenizer,
// and tokenizer_config.json, special_tokens_map.json and added_tokens.json change parts of it.
import { isJsonObject, type JsonObject, ModelError, readJson } from "../config/index.js";

const maxTokenizerBytes = 256 * 2 ** 20;
const maxSettingsBytes = 16 * 2 ** 20;

/** A special token is a string, or an object with its content. */
export function tokenText(value: unknown): string | null {
  if (typeof value === "string") return value;
  if (isJsonObject(value) && typeof value["content"] === "string") return value["content"];
  return null;
}

/** Options of tokenizer_config.json that a part of tokenizer.json has, too, by the type of the part: [option, name in the part]. */
const optionsOfParts: Readonly<Record<string, readonly (readonly [option: string, name: string])[]>> = {
  BertNormalizer: [
    ["do_lower_case", "lowercase"],
    ["strip_accents", "strip_accents"],
    ["tokenize_chinese_chars", "handle_chinese_chars"],
  ],
  ByteLevel: [["add_prefix_space", "add_prefix_space"]],
};

/** A normalizer or pre-tokenizer with the options of the settings. */
function withOptions(part: unknown, settings: JsonObject): unknown {
  if (!isJsonObject(part)) return part;
  for (const list of ["normalizers", "pretokenizers"])
    if (Array.isArray(part[list])) return { ...part, [list]: part[list].map((one) => withOptions(one, settings)) };
  const options = Object.hasOwn(optionsOfParts, String(part["type"])) ? optionsOfParts[String(part["type"])] : [];
  const given = options.flatMap(([option, name]) =>
    typeof settings[option] === "boolean" ? [[name, settings[option]] as const] : [],
  );
  return { ...part, ...Object.fromEntries(given) };
}

/**
 * Tokens of the settings that tokenizer.json lacks. They get the next free ids, in the order of the ids that the settings give: in
 * sound files these are the same.
 */
function missingTokens(settings: JsonObject, more: JsonObject, known: ReadonlySet<string>, free: number): JsonObject[] {
  const declared = isJsonObject(settings["added_tokens_decoder"]) ? settings["added_tokens_decoder"] : {};
  const listed: [string, number, JsonObject][] = [
    ...Object.entries(declared).flatMap(([id, token]): [string, number, JsonObject][] => {
      const content = tokenText(token);
      return content === null ? [] : [[content, Number(id), isJsonObject(token) ? token : {}]];
    }),
    ...Object.entries(more).map(([content, id]): [string, number, JsonObject] => [content, Number(id), {}]),
  ];
  const found = new Map<string, JsonObject>();
  const missing = listed.filter(([content, id]) => !known.has(content) && Number.isSafeInteger(id) && id >= 0);
  for (const [content, , token] of missing.sort((a, b) => a[1] - b[1]))
    if (!found.has(content))
      found.set(content, {
        ...{ single_word: false, lstrip: false, rstrip: false, special: false },
        ...token,
        content,
        id: free + found.size,
      });
  return [...found.values()];
}

/** Files of a tokenizer as the library takes them. */
export interface TokenizerFiles {
  /** tokenizer.json with the changes of the other files. */
  file: JsonObject;
  /** tokenizer_config.json, with the special tokens of special_tokens_map.json where it has none. */
  settings: JsonObject;
}

/** Reads the tokenizer files of a folder. */
export async function readTokenizerFiles(folder: string): Promise<TokenizerFiles> {
  const file = await readJson(folder, "tokenizer.json", maxTokenizerBytes, { checked: false });
  if (file === null)
    throw new ModelError(
      `${folder}: has no tokenizer.json; save the tokenizer with transformers (a "fast" tokenizer) to get one`,
    );
  const own = (await readJson(folder, "tokenizer_config.json", maxSettingsBytes)) ?? {};
  const map = (await readJson(folder, "special_tokens_map.json", maxSettingsBytes)) ?? {};
  const more = (await readJson(folder, "added_tokens.json", maxSettingsBytes)) ?? {};
  return joinTokenizerFiles(`${folder}/tokenizer.json`, file, { ...map, ...own }, more);
}

const mostIds = 2 ** 24;

/** The added tokens of tokenizer.json; throws unless each has a text and an id. */
function addedTokens(label: string, given: unknown): JsonObject[] {
  if (given === undefined || given === null) return [];
  if (!Array.isArray(given)) throw new ModelError(`${label}: added_tokens is not a list`);
  return given.map((token: unknown, i) => {
    const { id, content } = isJsonObject(token) ? token : {};
    if (typeof content !== "string" || content === "")
      throw new ModelError(`${label}: added_tokens[${i}] has no content; it must be a text that is not empty`);
    if (!Number.isInteger(id) || (id as number) < 0 || (id as number) >= mostIds)
      throw new ModelError(
        `${label}: added_tokens[${i}] has the id ${JSON.stringify(id)}; it must be a whole number below ${mostIds}`,
      );
    return token as JsonObject;
  });
}

/** Joins the content of tokenizer files: the tokenizer, its settings, and added tokens by their ids. */
export function joinTokenizerFiles(
  label: string,
  file: JsonObject,
  settings: JsonObject,
  more: JsonObject,
): TokenizerFiles {
  if (settings["split_special_tokens"] === true)
    throw new ModelError(`${label}: split_special_tokens is true in its settings, which is not supported`);
  const { model } = file;
  const vocabulary = isJsonObject(model) && isJsonObject(model["vocab"]) ? model["vocab"] : {};
  const wrong = Object.entries(vocabulary).find(
    ([, id]) => !Number.isInteger(id) || (id as number) < 0 || (id as number) >= mostIds,
  );
  if (wrong !== undefined)
    throw new ModelError(
      `${label}: the token ${JSON.stringify(wrong[0]).slice(0, 80)} has the id ${JSON.stringify(wrong[1])?.slice(0, 80)}; ` +
        `it must be a whole number below ${mostIds}`,
    );
  const added = addedTokens(label, file["added_tokens"]);
  const known = new Set([...Object.keys(vocabulary), ...added.map((token) => String(token["content"]))]);
  let free = 0;
  for (const id of [...Object.values(vocabulary), ...added.map((token) => token["id"])])
    if (typeof id === "number") free = Math.max(free, id + 1);
  const extra = missingTokens(settings, more, known, free);
  const single = [...added, ...extra].find((token) => token["single_word"] === true);
  if (single !== undefined)
    throw new ModelError(
      `${label}: the added token ${String(single["content"])} has single_word: true, which is not supported`,
    );
  return {
    settings,
    file: {
      ...file,
      normalizer: withOptions(file["normalizer"] ?? null, settings),
      pre_tokenizer: withOptions(file["pre_tokenizer"] ?? null, settings),
      added_tokens: [...added, ...extra],
    },
  };
}
