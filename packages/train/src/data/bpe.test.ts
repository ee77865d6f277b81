// BPE tokenizer files: byte-level as GPT-2's, and plain with an unknown token. Expected ids come from a second
// implementation of the algorithm in this file.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { findSplit } from "./datasets.js";
import { TableBuilder } from "./table.js";
import { scratch } from "./testkit.js";
import { fileTokenizer, IdList, makeTokenizer, type Tokenizer, tokenize } from "./tokenizer.js";
import { openTokens } from "./tokens.js";

const folder = scratch();
const encode = (tokenizer: Tokenizer, text: string): number[] => {
  const out = new IdList();
  const bytes = Buffer.from(text);
  tokenizer.encode(bytes, 0, bytes.length, out);
  return Array.from(out.ids.subarray(0, out.length));
};

/** GPT-2's byte alphabet: printable bytes map to themselves, others to code points from U+0100. */
const printable = (byte: number): boolean => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
const letters: string[] = [];
for (let byte = 0, next = 256; byte < 256; byte++) letters.push(String.fromCodePoint(printable(byte) ? byte : next++));

/** Merges the pair of the lowest rank, leftmost first, until none is left. */
function merged(word: string[], ranks: ReadonlyMap<string, number>): string[] {
  for (;;) {
    let best = Number.POSITIVE_INFINITY;
    for (let i = 0; i + 1 < word.length; i++) best = Math.min(best, ranks.get(`${word[i]} ${word[i + 1]}`) ?? best);
    if (best === Number.POSITIVE_INFINITY) return word;
    const next: string[] = [];
    for (let i = 0; i < word.length; i++)
      if (ranks.get(`${word[i]} ${word[i + 1]}`) === best) next.push(word[i] + word[++i]);
      else next.push(word[i]);
    word = next;
  }
}

/** Learns merges from a text by counting pairs. */
function learn(words: readonly string[][], count: number): [string, string][] {
  const merges: [string, string][] = [];
  let state = words.map((word) => [...word]);
  while (merges.length < count) {
    const pairs = new Map<string, number>();
    for (const word of state)
      for (let i = 0; i + 1 < word.length; i++) {
        const pair = `${word[i]} ${word[i + 1]}`;
        pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
      }
    const [best] = [...pairs].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    if (best === undefined || best[1] < 2) return merges;
    const pair = best[0].split(" ") as [string, string];
    merges.push(pair);
    state = state.map((word) => merged(word, new Map([[best[0], 0]])));
  }
  return merges;
}

const text = "the lower the lowest of the widest rivers flows slower than the newest and the widest of newer rivers";

function byteLevelFile(): { path: string; byHand: (text: string) => number[] } {
  // GPT-2's pre-tokenization: words keep the preceding space.
  const pieces = (t: string): string[] =>
    Array.from(t.matchAll(/'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu), (m) => m[0]);
  const spelled = (piece: string): string[] => Array.from(Buffer.from(piece), (byte) => letters[byte]);
  const merges = learn(pieces(text).map(spelled), 40);
  const vocab: Record<string, number> = {};
  for (const token of [...letters, ...merges.map((pair) => pair.join(""))]) vocab[token] ??= Object.keys(vocab).length;
  const end = Object.keys(vocab).length;
  const path = join(folder, "byte-level.json");
  const file = {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [
      {
        id: end,
        content: "<|endoftext|>",
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
      },
    ],
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: { type: "ByteLevel", add_prefix_space: true, trim_offsets: false, use_regex: true },
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: "",
      end_of_word_suffix: "",
      fuse_unk: false,
      vocab,
      merges: merges.map((pair) => pair.join(" ")),
    },
  };
  writeFileSync(path, JSON.stringify(file));
  const ranks = new Map(merges.map((pair, i) => [pair.join(" "), i]));
  const byHand = (t: string): number[] =>
    pieces(t).flatMap((piece) => merged(spelled(piece), ranks).map((token) => vocab[token]));
  return { path, byHand };
}

test("byte-level BPE gives the ids of a second implementation for any text, shifted by one", async () => {
  const { path, byHand } = byteLevelFile();
  const tokenizer = await fileTokenizer(path);
  const texts = [
    text,
    "The slowest river's bed, 12 km wide; they'll see it.",
    "  two  spaces\tand\na line ",
    "Zürich, 日本 and 😀 are bytes",
    "",
  ];
  for (const t of texts)
    assert.deepEqual(
      encode(tokenizer, t),
      byHand(t).map((id) => id + 1),
      JSON.stringify(t),
    );
  // Merges apply: the training text is much shorter than its bytes.
  assert.ok(encode(tokenizer, text).length < 0.6 * text.length);
  // Vocabulary: 256 bytes, the merges, the special token and padding.
  assert.equal(encode(tokenizer, "<|endoftext|>").length, 1);
  assert.equal(tokenizer.vocabulary, encode(tokenizer, "<|endoftext|>")[0] + 1);
});

test("plain BPE splits at white space and maps unseen characters to the unknown token", async () => {
  const path = join(folder, "plain.json");
  const tokens = ["[UNK]", "l", "o", "w", "e", "r", "n", "s", "t", "lo", "low", "er", "es", "est", "ne", "new"];
  const merges = ["l o", "lo w", "e r", "e s", "es t", "n e", "ne w"];
  const file = {
    version: "1.0",
    added_tokens: [],
    normalizer: { type: "Lowercase" },
    pre_tokenizer: { type: "Whitespace" },
    post_processor: null,
    decoder: null,
    model: {
      type: "BPE",
      unk_token: "[UNK]",
      fuse_unk: false,
      vocab: Object.fromEntries(tokens.map((token, i) => [token, i])),
      merges,
    },
  };
  writeFileSync(path, JSON.stringify(file));
  const tokenizer = await fileTokenizer(path);
  const named = (t: string): string[] => encode(tokenizer, t).map((id) => tokens[id - 1]);
  assert.deepEqual(named("lower Lowest"), ["low", "er", "low", "est"]);
  // "n e" and "ne w" come after "e r" and "e s": the earlier merge wins inside a word.
  assert.deepEqual(named("newer newest"), ["new", "er", "new", "est"]);
  assert.deepEqual(named("slow"), ["s", "low"]);
  assert.deepEqual(named("lox"), ["lo", "[UNK]"]);
  assert.equal(tokenizer.vocabulary, tokens.length + 1);
  await assert.rejects(makeTokenizer(path, tokens.length), /vocab_size 16 is too small .* set vocab_size: 17/);
});

test("a split tokenized with a BPE file has its own token file", async () => {
  const { path, byHand } = byteLevelFile();
  const tokenizer = await makeTokenizer(path, 400);
  const table = new TableBuilder();
  table.add(0, [text]);
  table.add(1, [""]);
  const { ids, offsets } = tokenize(table.build(), tokenizer);
  assert.deepEqual(
    Array.from(ids),
    byHand(text).map((id) => id + 1),
  );
  assert.deepEqual(Array.from(offsets), [0, ids.length, ids.length]);
  const source = findSplit("synthetic", "test");
  const set = await openTokens(source, tokenizer);
  assert.ok(set.ids.every((id) => id > 0 && id < tokenizer.vocabulary));
  assert.notEqual((await openTokens(source, await makeTokenizer("hash", 400))).key, set.key);
});
