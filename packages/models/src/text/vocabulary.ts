// Trains a tokenizer on texts: a WordPiece vocabulary, built by repeatedly merging the most frequent pair of adjacent pieces.
import type { JsonObject } from "../config/index.js";
import { ModelError } from "../config/index.js";

const special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const maxWords = 2 ** 20;
const maxLetters = 32;

/** A word as pieces, and how often it occurs. */
interface Word {
  pieces: number[];
  count: number;
}

/** How often each word occurs; words as the normalizer and pre-tokenizer of BERT make them. */
function countWords(texts: Iterable<string>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const text of texts) {
    const plain = text
      .toLowerCase()
      .normalize("NFD")
      .replace(/\p{Mn}/gu, "");
    for (const word of plain.match(/[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu) ?? []) {
      const known = counts.get(word);
      if (known !== undefined || (counts.size < maxWords && word.length <= maxLetters))
        counts.set(word, (known ?? 0) + 1);
    }
  }
  return counts;
}

/** Pairs of neighbors by frequency: a heap whose outdated entries are skipped. */
class PairHeap {
  readonly #items: { pair: number; count: number }[] = [];

  push(pair: number, count: number): void {
    const items = this.#items;
    let at = items.push({ pair, count }) - 1;
    for (let up = (at - 1) >> 1; at > 0 && before(items[at], items[up]); at = up, up = (at - 1) >> 1)
      [items[at], items[up]] = [items[up], items[at]];
  }

  pop(): { pair: number; count: number } | undefined {
    const items = this.#items;
    const top = items[0];
    const last = items.pop();
    if (items.length === 0 || last === undefined) return top;
    items[0] = last;
    for (let at = 0; ; ) {
      let best = at;
      for (const below of [2 * at + 1, 2 * at + 2])
        if (below < items.length && before(items[below], items[best])) best = below;
      if (best === at) return top;
      [items[at], items[best]] = [items[best], items[at]];
      at = best;
    }
  }
}

// Equal counts are ordered, so that the vocabulary does not depend on the order of insertion.
const before = (a: { pair: number; count: number }, b: { pair: number; count: number }): boolean =>
  a.count > b.count || (a.count === b.count && a.pair < b.pair);

const shift = 2 ** 24;

/** Pieces of a vocabulary of `size` ids, the special tokens first. */
function findPieces(counts: ReadonlyMap<string, number>, size: number): string[] {
  const pieces = [...special];
  const idOf = new Map(pieces.map((piece, id) => [piece, id]));
  const add = (piece: string): number => {
    const known = idOf.get(piece);
    if (known !== undefined) return known;
    idOf.set(piece, pieces.length);
    return pieces.push(piece) - 1;
  };
  const words: Word[] = [...counts]
    .sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))
    .map(([word, count]) => ({
      pieces: Array.from(word, (letter, i) => add(i === 0 ? letter : `##${letter}`)),
      count,
    }));
  const totals = new Map<number, number>();
  const places = new Map<number, Set<Word>>();
  const heap = new PairHeap();
  const change = (word: Word, at: number, by: number): number => {
    const pair = word.pieces[at] * shift + word.pieces[at + 1];
    totals.set(pair, (totals.get(pair) ?? 0) + by * word.count);
    if (by > 0) {
      const found = places.get(pair);
      if (found === undefined) places.set(pair, new Set([word]));
      else found.add(word);
    }
    return pair;
  };
  for (const word of words) for (let i = 0; i + 1 < word.pieces.length; i++) change(word, i, 1);
  for (const [pair, count] of totals) heap.push(pair, count);
  while (pieces.length < size) {
    const top = heap.pop();
    if (top === undefined || top.count < 2) break;
    const current = totals.get(top.pair) ?? 0;
    if (current !== top.count) {
      if (current > 1) heap.push(top.pair, current);
      continue;
    }
    const [left, right] = [Math.floor(top.pair / shift), top.pair % shift];
    const joint = add(pieces[left] + pieces[right].slice(2));
    const changed = new Set<number>();
    for (const word of places.get(top.pair) ?? []) {
      for (let i = 0; i + 1 < word.pieces.length; i++) {
        if (word.pieces[i] !== left || word.pieces[i + 1] !== right) continue;
        for (const at of [i - 1, i, i + 1]) if (at >= 0 && at + 1 < word.pieces.length) change(word, at, -1);
        word.pieces.splice(i, 2, joint);
        for (const at of [i - 1, i]) if (at >= 0 && at + 1 < word.pieces.length) changed.add(change(word, at, 1));
      }
    }
    totals.delete(top.pair);
    places.delete(top.pair);
    for (const pair of changed) if ((totals.get(pair) ?? 0) > 1) heap.push(pair, totals.get(pair) as number);
  }
  return pieces.slice(0, Math.max(size, special.length));
}

/** The files `tokenizer.json` and `tokenizer_config.json` of a tokenizer. */
interface NewTokenizer {
  /** Content of `tokenizer.json`. */
  tokenizer: JsonObject;
  /** Content of `tokenizer_config.json`. */
  settings: JsonObject;
}

/**
 * Makes a tokenizer from texts: lower case, words cut into pieces, `[CLS]` and `[SEP]` around a text.
 *
 * @param texts - The texts whose words it should know.
 * @param size - Number of ids; fewer if the texts have fewer pieces.
 */
export function trainTokenizer(texts: Iterable<string>, size: number): NewTokenizer {
  if (!Number.isInteger(size) || size < 64 || size >= 2 ** 20)
    throw new ModelError(`trainTokenizer: size is a whole number from 64 to ${2 ** 20 - 1}, got ${size}`);
  const pieces = findPieces(countWords(texts), size);
  const [pad, unknown, start, end, mask] = special;
  const token = (id: string, type_id: number) => ({ SpecialToken: { id, type_id } });
  const single = [token(start, 0), { Sequence: { id: "A", type_id: 0 } }, token(end, 0)];
  return {
    tokenizer: {
      version: "1.0",
      truncation: null,
      padding: null,
      added_tokens: special.map((content, id) => ({
        id,
        content,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
      })),
      normalizer: {
        type: "BertNormalizer",
        clean_text: true,
        handle_chinese_chars: true,
        strip_accents: null,
        lowercase: true,
      },
      pre_tokenizer: { type: "BertPreTokenizer" },
      post_processor: {
        type: "TemplateProcessing",
        single,
        pair: [...single, { Sequence: { id: "B", type_id: 1 } }, token(end, 1)],
        special_tokens: Object.fromEntries(
          [start, end].map((name) => [name, { id: name, ids: [special.indexOf(name)], tokens: [name] }]),
        ),
      },
      decoder: { type: "WordPiece", prefix: "##", cleanup: true },
      model: {
        type: "WordPiece",
        unk_token: unknown,
        continuing_subword_prefix: "##",
        max_input_chars_per_word: 100,
        vocab: Object.fromEntries(pieces.map((piece, id) => [piece, id])),
      },
    },
    settings: {
      tokenizer_class: "BertTokenizer",
      do_lower_case: true,
      pad_token: pad,
      unk_token: unknown,
      cls_token: start,
      sep_token: end,
      mask_token: mask,
    },
  };
}
