// Pre-tokenizers: how a text is cut before its pieces become tokens. The rules are those of the published implementation in Rust; the
// library has some of them for ASCII only, and knows one of five ways to treat the delimiters of a split.
import * as library from "@huggingface/tokenizers";
import { isJsonObject, type JsonObject, ModelError } from "../config/index.js";

/** Parts of the library that its declarations leave out. */
const { ByteLevelPreTokenizer, SplitPreTokenizer } = library as unknown as {
  ByteLevelPreTokenizer: new (part: JsonObject) => { pre_tokenize_text(text: string): string[] };
  SplitPreTokenizer: new (part: JsonObject) => { readonly pattern: RegExp | null };
};

/** Cuts a piece of a text. `isFirst`: the text starts with it. */
type PreTokenizer = (text: string, isFirst: boolean) => string[];

/** A part of a text, and whether the pattern matches it. */
interface Span {
  text: string;
  matches: boolean;
}

/** What becomes of delimiters. */
const behaviors: Readonly<Record<string, (spans: readonly Span[]) => string[]>> = {
  Removed: (spans) => spans.flatMap(({ text, matches }) => (matches ? [] : [text])),
  Isolated: (spans) => spans.map(({ text }) => text),
  Contiguous: (spans) => joined(spans, (span, before) => span.matches === before.matches),
  MergedWithPrevious: (spans) => joined(spans, (span, before) => span.matches && !before.matches),
  MergedWithNext: (spans) => joined(spans, (span, before) => before.matches && !span.matches),
};

/** The texts of spans, where one that belongs to the span before it is joined with that. */
function joined(spans: readonly Span[], belongs: (span: Span, before: Span) => boolean): string[] {
  const texts: string[] = [];
  spans.forEach((span, i) => {
    if (i > 0 && belongs(span, spans[i - 1])) texts[texts.length - 1] += span.text;
    else texts.push(span.text);
  });
  return texts;
}

/** Cuts texts by a pattern, a regular expression for all matches. */
function splitBy(pattern: RegExp, behavior: string, invert = false): PreTokenizer {
  const apply = behaviors[behavior];
  return (text) => {
    const spans: Span[] = [];
    const add = (from: number, to: number, matches: boolean): void => {
      if (to > from) spans.push({ text: text.slice(from, to), matches: matches !== invert });
    };
    let end = 0;
    for (const match of text.matchAll(pattern)) {
      add(end, match.index, false);
      end = match.index + match[0].length;
      add(match.index, end, true);
    }
    add(end, text.length, false);
    return apply(spans);
  };
}

/** White space, characters of words, and punctuation as Rust knows them. */
const space = "\\p{White_Space}";
const word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";
const punctuation = "\\p{P}\\x21-\\x2f\\x3a-\\x40\\x5b-\\x60\\x7b-\\x7e";
const words = new RegExp(`[${word}]+|[^${word}${space}]+`, "gu");
const spaces = new RegExp(`[${space}]`, "gu");
const byteWords = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${space}\\p{L}\\p{N}]+|[${space}]+(?![^${space}])|[${space}]+`,
  "gu",
);

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");

function behaviorOf(part: JsonObject, otherwise = ""): string {
  const behavior = part["behavior"] ?? otherwise;
  // Older files write the names in other ways.
  const found = Object.keys(behaviors).find(
    (name) => name.toLowerCase() === String(behavior).replace(/_/g, "").toLowerCase(),
  );
  if (found === undefined)
    throw new ModelError(`${String(part["type"])} has the behavior ${JSON.stringify(behavior)}, which is not known`);
  return found;
}

function metaspace(part: JsonObject): PreTokenizer {
  const replacement = typeof part["replacement"] === "string" ? part["replacement"] : "\u2581";
  const legacy = part["add_prefix_space"] === false ? "never" : "always";
  const scheme = String(part["prepend_scheme"] ?? legacy);
  if (!["always", "first", "never"].includes(scheme))
    throw new ModelError(`Metaspace has the prepend_scheme ${JSON.stringify(scheme)}, which is not known`);
  const cut = splitBy(new RegExp(escaped(replacement), "gu"), "MergedWithNext");
  return (text, isFirst) => {
    const marked = text.replaceAll(" ", replacement);
    const prepends = scheme === "always" || (scheme === "first" && isFirst);
    const whole = prepends && !marked.startsWith(replacement) ? replacement + marked : marked;
    return part["split"] === false ? [whole] : cut(whole, isFirst);
  };
}

function byteLevel(part: JsonObject): PreTokenizer {
  // The library maps bytes; words are cut here.
  const bytes = new ByteLevelPreTokenizer({ ...part, add_prefix_space: false, use_regex: false });
  const cut: PreTokenizer = part["use_regex"] === false ? (text) => [text] : splitBy(byteWords, "Isolated");
  return (text, isFirst) => {
    const whole = part["add_prefix_space"] === true && !text.startsWith(" ") ? ` ${text}` : text;
    return cut(whole, isFirst).flatMap((piece) => bytes.pre_tokenize_text(piece));
  };
}

const makers: Readonly<Record<string, (part: JsonObject) => PreTokenizer>> = {
  Whitespace: () => splitBy(words, "Removed", true),
  WhitespaceSplit: () => splitBy(spaces, "Removed"),
  BertPreTokenizer: () =>
    inTurn([splitBy(spaces, "Removed"), splitBy(new RegExp(`[${punctuation}]`, "gu"), "Isolated")]),
  Punctuation: (part) => splitBy(new RegExp(`[${punctuation}]`, "gu"), behaviorOf(part, "Isolated")),
  Digits: (part) => splitBy(/\p{N}/gu, part["individual_digits"] === true ? "Isolated" : "Contiguous"),
  CharDelimiterSplit: (part) => splitBy(new RegExp(escaped(String(part["delimiter"])), "gu"), "Removed"),
  FixedLength({ length }) {
    if (!Number.isInteger(length) || (length as number) < 1)
      throw new ModelError(`FixedLength has the length ${JSON.stringify(length)}; it must be a positive whole number`);
    return splitBy(new RegExp(`[\\s\\S]{1,${length}}`, "gu"), "Isolated");
  },
  Metaspace: metaspace,
  ByteLevel: byteLevel,
  Split(part) {
    // The library translates regular expressions of other languages.
    const { pattern } = new SplitPreTokenizer({ ...part, invert: true });
    if (pattern === null) throw new ModelError("Split has no pattern");
    return splitBy(pattern, behaviorOf(part), part["invert"] === true);
  },
  Sequence: ({ pretokenizers }) =>
    inTurn((Array.isArray(pretokenizers) ? pretokenizers : []).map((one: unknown) => makePreTokenizer(one))),
};

/** One after the other. */
const inTurn =
  (parts: readonly PreTokenizer[]): PreTokenizer =>
  (text, isFirst) =>
    parts.reduce((pieces, part) => pieces.flatMap((piece, i) => part(piece, isFirst && i === 0)), [text]);

/** A pre-tokenizer of tokenizer.json. */
export function makePreTokenizer(part: unknown): PreTokenizer {
  const type = isJsonObject(part) ? String(part["type"]) : "";
  if (!isJsonObject(part) || !Object.hasOwn(makers, type))
    throw new ModelError(`the pre-tokenizer ${type || JSON.stringify(part)} is not supported`);
  return makers[type](part);
}
