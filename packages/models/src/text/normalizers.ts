// Normalizers: how a text is changed before it is cut. The rules are those of the published implementation in Rust; the library
// lowers the case of a Greek sigma by its place in a word, knows Chinese characters of 16 bits only, and lacks some normalizers.
import * as library from "@huggingface/tokenizers";
import { isJsonObject, type JsonObject, ModelError } from "../config/index.js";

/** Parts of the library that its declarations leave out. */
const { ByteLevelPreTokenizer, PrecompiledNormalizer, ReplaceNormalizer } = library as unknown as {
  ByteLevelPreTokenizer: new (part: JsonObject) => { pre_tokenize_text(text: string): string[] };
  PrecompiledNormalizer: new (part: JsonObject) => { normalize(text: string): string };
  ReplaceNormalizer: new (part: JsonObject) => { readonly pattern: RegExp | string | null };
};

/** Changes a text. */
type Normalizer = (text: string) => string;

/** Lower case of each character by itself. */
const lowerCase: Normalizer = (text) => Array.from(text, (character) => character.toLowerCase()).join("");

const chinese =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

function bert(part: JsonObject): Normalizer {
  const steps: Normalizer[] = [];
  if (part["clean_text"] === true)
    steps.push((text) =>
      text.replace(/(?![\t\n\r])[\0\ufffd\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu, "").replace(/\p{White_Space}/gu, " "),
    );
  if (part["handle_chinese_chars"] === true) steps.push((text) => text.replace(chinese, " $& "));
  if (part["strip_accents"] ?? part["lowercase"]) steps.push((text) => text.normalize("NFD").replace(/\p{Mn}/gu, ""));
  if (part["lowercase"] === true) steps.push(lowerCase);
  return inTurn(steps);
}

function replace(part: JsonObject): Normalizer {
  // The library translates regular expressions of other languages.
  const { pattern } = new ReplaceNormalizer(part);
  if (pattern === null) throw new ModelError("Replace has no pattern");
  const content = String(part["content"] ?? "");
  return (text) => text.replaceAll(pattern, () => content);
}

const unicode =
  (form: string): (() => Normalizer) =>
  () =>
  (text) =>
    text.normalize(form);

const makers: Readonly<Record<string, (part: JsonObject) => Normalizer>> = {
  BertNormalizer: bert,
  Lowercase: () => lowerCase,
  NFC: unicode("NFC"),
  NFD: unicode("NFD"),
  NFKC: unicode("NFKC"),
  NFKD: unicode("NFKD"),
  Nmt: () => (text) =>
    text
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is removed
      .replace(/[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]/g, "")
      .replace(/[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/g, " "),
  StripAccents: () => (text) => text.replace(/\p{M}/gu, ""),
  Strip: ({ strip_left: left, strip_right: right }) => {
    const ends = [left === true ? ["^\\p{White_Space}+"] : [], right === true ? ["\\p{White_Space}+$"] : []].flat();
    return ends.length === 0 ? (text) => text : (text) => text.replace(new RegExp(ends.join("|"), "gu"), "");
  },
  Prepend:
    ({ prepend }) =>
    (text) =>
      text === "" ? "" : `${String(prepend)}${text}`,
  Replace: replace,
  ByteLevel() {
    const bytes = new ByteLevelPreTokenizer({ type: "ByteLevel", add_prefix_space: false, use_regex: false });
    return (text) => bytes.pre_tokenize_text(text).join("");
  },
  Precompiled(part) {
    const own = new PrecompiledNormalizer(part);
    return (text) => own.normalize(text);
  },
  Sequence: ({ normalizers }) => inTurn((Array.isArray(normalizers) ? normalizers : []).map(makeNormalizer)),
};

/** One after the other. */
const inTurn =
  (steps: readonly Normalizer[]): Normalizer =>
  (text) =>
    steps.reduce((changed, step) => step(changed), text);

/** A normalizer of tokenizer.json. */
export function makeNormalizer(part: unknown): Normalizer {
  const type = isJsonObject(part) ? String(part["type"]) : "";
  if (!isJsonObject(part) || !Object.hasOwn(makers, type))
    throw new ModelError(`the normalizer ${type || JSON.stringify(part)} is not supported`);
  return makers[type](part);
}
