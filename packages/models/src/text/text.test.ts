// Tokenizers and chat templates where the libraries below follow rules of their own: values are those of transformers.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { loadTokenizer, tokenizerOf } from "../index.js";
import { scratch, writeTokenizer } from "../transformers.testkit.js";
import { renderTemplate } from "./chat-template.js";
import { makeNormalizer } from "./normalizers.js";
import { makePreTokenizer } from "./pre-tokenizers.js";

const folder = scratch();

test("a byte-level tokenizer without special tokens keeps the second text, types and truncation", async () => {
  const dir = join(folder, "bytes");
  writeTokenizer(dir);
  const path = join(dir, "tokenizer.json");
  const file = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  const after = { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false };
  writeFileSync(path, JSON.stringify({ ...file, post_processor: after }));
  const tokenizer = await loadTokenizer(dir);
  const [a, b] = ["abcd", "xy"].map((text) => [...Buffer.from(text)]);
  assert.deepEqual(tokenizer.encode("abcd", { pair: "xy" }), { ids: [...a, ...b], types: [0, 0, 0, 0, 1, 1] });
  assert.deepEqual(tokenizer.encode("abcd", { maxLength: 3 }), { ids: a.slice(0, 3), types: [0, 0, 0] });
  assert.deepEqual(tokenizer.encode("abcd", { pair: "xy", maxLength: 4 }).ids, [...a.slice(0, 2), ...b]);
  // Each character of punctuation is a token.
  const split = {
    type: "Sequence",
    pretokenizers: [{ type: "Punctuation", behavior: "Isolated" }, file["pre_tokenizer"]],
  };
  const vocab = { ...(file["model"] as { vocab: object }).vocab, "!!": 262, "!": 33 };
  const model = { ...(file["model"] as object), vocab, merges: [["!", "!"]] };
  writeFileSync(path, JSON.stringify({ ...file, model, pre_tokenizer: split }));
  assert.deepEqual((await loadTokenizer(dir)).encode("a!!b").ids, [97, 33, 33, 98]);
});

test("a chat template of a file of its own has the same limit of length as one of the settings", async () => {
  const dir = join(folder, "long-template");
  writeTokenizer(dir);
  writeFileSync(join(dir, "chat_template.jinja"), "a".repeat(2 ** 18 + 1));
  const tokenizer = await loadTokenizer(dir);
  await assert.rejects(tokenizer.chat([{ role: "user", content: "x" }]), /chat template has 262145 characters/);
});

test("texts are cut as by the published tokenizers, whatever the script and the behavior of delimiters", () => {
  const digits = { type: "Split", pattern: { Regex: "\\d+|[.,!?]" } };
  // Values of `pre_tokenize_str` of the Python package tokenizers.
  const cut: [object, string, string[]][] = [
    [
      { type: "Whitespace" },
      "café naïve 你好! a\u200db x\u00b2",
      ["café", "naïve", "你好", "!", "a\u200db", "x", "\u00b2"],
    ],
    [{ type: "Whitespace" }, "\u0085nel\ufeffbom", ["nel", "\ufeff", "bom"]],
    [{ type: "WhitespaceSplit" }, "a\u3000b\ufeffc", ["a", "b\ufeffc"]],
    [{ type: "Punctuation", behavior: "Contiguous" }, "..!a.b「」", ["..!", "a", ".", "b", "「」"]],
    [{ type: "Punctuation", behavior: "MergedWithPrevious" }, "a..b!", ["a.", ".", "b!"]],
    [{ type: "Digits", individual_digits: true }, "१२ ½x3", ["१", "२", " ", "½", "x", "3"]],
    [{ type: "Digits", individual_digits: false }, "१२ x34", ["१२", " x", "34"]],
    [{ ...digits, behavior: "MergedWithNext", invert: false }, "It 3.14 a", ["It ", "3", ".", "14 a"]],
    [{ ...digits, behavior: "Contiguous", invert: false }, "It 3.14 a", ["It ", "3.14", " a"]],
    [{ ...digits, behavior: "Isolated", invert: true }, "It 3.14 a", ["It ", "3", ".", "14", " a"]],
    [{ ...digits, behavior: "MergedWithPrevious", invert: true }, "It, a!b", ["It", ", a", "!b"]],
    [{ type: "Split", pattern: { String: " " }, behavior: "Removed", invert: false }, "a b  c", ["a", "b", "c"]],
    [{ type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: true }, "a b  c", ["▁a", "▁b", "▁", "▁c"]],
    [{ type: "Metaspace", replacement: "▁", prepend_scheme: "never", split: false }, "a b", ["a▁b"]],
    [{ type: "CharDelimiterSplit", delimiter: "e" }, "hello there", ["h", "llo th", "r"]],
    [{ type: "FixedLength", length: 2 }, "😀😀a", ["😀😀", "a"]],
  ];
  for (const [part, text, wanted] of cut)
    assert.deepEqual(makePreTokenizer(part)(text, true), wanted, `${JSON.stringify(part)} ${JSON.stringify(text)}`);
  const first = makePreTokenizer({ type: "Metaspace", prepend_scheme: "first" });
  assert.deepEqual(
    [first("a b", true), first("a b", false)],
    [
      ["▁a", "▁b"],
      ["a", "▁b"],
    ],
  );
  assert.throws(
    () => makePreTokenizer({ type: "UnicodeScripts" }),
    /the pre-tokenizer UnicodeScripts is not supported/,
  );
  assert.throws(
    () => makePreTokenizer({ ...digits, behavior: "Sometimes" }),
    /behavior "Sometimes", which is not known/,
  );
});

test("texts are normalized as by the published tokenizers", () => {
  const bert = { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, strip_accents: null };
  const both = { type: "Strip", strip_left: true, strip_right: true };
  // Values of `normalize_str` of the Python package tokenizers.
  const changed: [object, string, string][] = [
    [{ type: "Lowercase" }, "\u039f\u03a3 \u03a3\u0391\u03a3", "\u03bf\u03c3 \u03c3\u03b1\u03c3"],
    [{ ...bert, lowercase: true }, "\u039f\u03a3 \u00c9\u{20000}b\u0085", "\u03bf\u03c3 e \u{20000} b"],
    [{ ...bert, lowercase: false }, "\u00c9\u200b\u3000\u4e00", "\u00c9  \u4e00 "],
    [both, "\u0085 x\ufeff ", "x\ufeff"],
    [{ ...both, strip_left: false }, "  x ", "  x"],
    [{ type: "Prepend", prepend: "\u2581" }, "", ""],
    [{ type: "Replace", pattern: { String: "a" }, content: "$&$1" }, "ab", "$&$1b"],
    [{ type: "Nmt" }, "a\u0001\u000bb\u2028\ufeffc\u3000", "ab  c\u3000"],
    [{ type: "ByteLevel" }, "\u00e9 a", "\u00c3\u00a9\u0120a"],
    [{ type: "Sequence", normalizers: [{ type: "NFD" }, { type: "StripAccents" }] }, "\u00e9", "e"],
  ];
  for (const [part, text, wanted] of changed) assert.equal(makeNormalizer(part)(text), wanted, JSON.stringify(part));
  assert.throws(() => makeNormalizer({ type: "Rot13" }), /the normalizer Rot13 is not supported/);
});

test("ids become text as in the published tokenizers: spaces, bytes that are not UTF-8, ids without a token", () => {
  const token = { single_word: false, lstrip: false, rstrip: false };
  const file = (decoder: object, vocab: string[]) => ({
    version: "1.0",
    added_tokens: [{ ...token, id: vocab.length, content: "\u039f\u03a3", normalized: true, special: false }],
    normalizer: { type: "Lowercase" },
    pre_tokenizer: null,
    post_processor: null,
    decoder,
    model: {
      ...{ type: "BPE", unk_token: "<unk>", byte_fallback: true, merges: [] },
      vocab: Object.fromEntries(vocab.map((piece, id) => [piece, id])),
    },
  });
  const bytes = tokenizerOf(
    file({ type: "Sequence", decoders: [{ type: "ByteFallback" }, { type: "Fuse" }] }, [
      ...["<unk>", "a", "<0xE4>", "<0xBD>", "<0xA0>", "<0xEF>", "<0xBB>", "<0xBF>"],
    ]),
    "bytes",
  );
  assert.equal(bytes.decode([1, 2, 3, 4, 1]), "a\u4f60a");
  assert.equal(bytes.decode([2, 3, 1]), "\ufffd\ufffda");
  assert.equal(bytes.decode([5, 6, 7, 1]), "\ufeffa");
  assert.equal(bytes.decode([1, 99, 1], { skipSpecialTokens: false }), "aa");
  // A token that is normalized is found in a normalized text.
  assert.deepEqual(bytes.encode("a\u03bf\u03c3A").ids, [1, 8, 1]);
  const vocab = ["<unk>", "\u2581", "a"];
  const spaces = (scheme: string): string =>
    tokenizerOf(file({ type: "Metaspace", replacement: "\u2581", prepend_scheme: scheme }, vocab), "x").decode([
      1, 2, 1, 2,
    ]);
  assert.deepEqual([spaces("always"), spaces("first"), spaces("never")], ["a a", "a a", " a a"]);
});

test("unknown words, empty second texts and types without a post-processor are as in the published tokenizers", async () => {
  const dir = join(folder, "words");
  mkdirSync(dir);
  const vocab = { "[UNK]": 0, "[CLS]": 1, "[SEP]": 2, hello: 3, world: 4 };
  const file = {
    version: "1.0",
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: "Whitespace" },
    post_processor: null as object | null,
    decoder: null,
    model: { type: "WordLevel", vocab, unk_token: "[UNK]" },
  };
  const path = join(dir, "tokenizer.json");
  writeFileSync(path, JSON.stringify(file));
  const plain = await loadTokenizer(dir);
  assert.deepEqual(plain.encode("hello new world"), { ids: [3, 0, 4], types: [0, 0, 0] });
  assert.deepEqual(plain.encode("hello", { pair: "world" }), { ids: [3, 4], types: [0, 1] });
  file.post_processor = { type: "BertProcessing", sep: ["[SEP]", 2], cls: ["[CLS]", 1] };
  writeFileSync(path, JSON.stringify(file));
  const framed = await loadTokenizer(dir);
  assert.deepEqual(framed.encode("hello", { pair: "" }), { ids: [1, 3, 2, 2], types: [0, 0, 0, 1] });
  assert.deepEqual(framed.encode("", { pair: "" }), { ids: [1, 2, 2], types: [0, 0, 1] });
  assert.deepEqual(framed.encode("hello", { pair: "world" }), { ids: [1, 3, 2, 4, 2], types: [0, 0, 0, 1, 1] });
});

test("ids of a tokenizer may have gaps, and damaged tokens are refused by name", () => {
  const token = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const file = (added: object[], vocab: Record<string, unknown> = { a: 0, b: 7 }) => ({
    version: "1.0",
    added_tokens: added,
    normalizer: null,
    pre_tokenizer: null,
    post_processor: null,
    decoder: null,
    model: { type: "BPE", vocab, merges: [] },
  });
  const gaps = tokenizerOf(file([{ ...token, id: 12, content: "<end>" }]), "gaps");
  assert.deepEqual([gaps.encode("ab<end>").ids, gaps.vocabulary, gaps.decode([0, 3, 7])], [[0, 7, 12], 13, "a b"]);
  const refused: [object[], Record<string, unknown>?][] = [
    [[{ ...token, id: 12 }]],
    [[{ ...token, id: 12, content: "" }]],
    [[{ ...token, id: -1, content: "x" }]],
    [[{ ...token, id: 1e9, content: "x" }]],
    [[{ ...token, id: "7", content: "x" }]],
    [[7 as never]],
    [[], { a: 0, b: 1e12 }],
    [[], { a: 0, b: null }],
  ];
  for (const [added, vocab] of refused)
    assert.throws(() => tokenizerOf(file(added, vocab), "bad"), /^ModelError: bad: .*(content|whole number below)/);
  assert.throws(() => tokenizerOf({ ...file([]), added_tokens: {} }, "bad"), /added_tokens is not a list/);
});

test("templates count characters, write JSON and take remainders as in Python", () => {
  // Values of the templates of transformers.
  const shown: [string, string][] = [
    ["{{ 'a😀b'|length }} {{ 'a😀b'[1] }} {{ 'a😀b'[-1] }} {{ 'a😀b'|list }}", "3 😀 b ['a', '😀', 'b']"],
    ["{{ 'abc'|first }}{{ 'abc'|last }} {{ 'a😀'|reverse }}", "ac 😀a"],
    ["{{ 1.0|tojson }} {{ {'a': 1.0, 'b': [2.5, 3]}|tojson }} {{ (2/2)|tojson }}", '1.0 {"a": 1.0, "b": [2.5, 3]} 1.0'],
    ["{{ (1/100000)|tojson }} {{ 'é<'|tojson }}", '1e-05 "é<"'],
    ["{{ -5 % 3 }} {{ 5 % -3 }} {{ 5.5 % 2 }}", "1 -1 1.5"],
    ["{{ 'aXbX'.rstrip('X') }}|{{ '  a '.strip() }}|{{ 'xxa'.lstrip('x') }}", "aXb|a|a"],
    ["{{ 'a😀b'.find('b') }} {{ 'abab'.count('ab') }} {{ ','.join(['x', 'y']) }}", "2 2 x,y"],
    ["{{ '3'.isdigit() }} {{ 'prefix'.removeprefix('pre') }} {{ 'ab'.split('a')|length }}", "True fix 2"],
  ];
  for (const [template, wanted] of shown) assert.equal(renderTemplate(template, {}), wanted, template);
  assert.throws(() => renderTemplate("{{ [1, 1e3] }}", {}), /the number 1e3 has an exponent/);
});

test("loops of templates end, hide variables and write empty JSON as in Python", () => {
  const list = ["a", "b", "c"];
  // Values of the templates of transformers.
  const shown: [string, string][] = [
    ["{% for x in list %}{% if x == 'b' %}{{ x }}!{% continue %}{% endif %}{{ x }};{% endfor %}", "a;b!c;"],
    ["{% for x in list %}<{{ x }}{% if x == 'b' %}|{% break %}{% endif %}>{% endfor %}", "<a><b|"],
    [
      "{% for a in [1, 2] %}{% for b in list %}{{ b }}{% if b == 'b' %}{% break %}{% endif %}{% endfor %}{{ a }}{% endfor %}",
      "ab1ab2",
    ],
    ["{% for x in list %}{% continue %}{% else %}E{% endfor %}{% for x in [] %}{% else %}F{% endfor %}", "EF"],
    ["{% for x in list %}{% if loop.first %}{% set y = 1 %}{% endif %}{{ y }},{% endfor %}{{ y }}", "1,,,"],
    ["{% set ns = namespace(n=0) %}{% for x in list %}{% set ns.n = ns.n + loop.index %}{% endfor %}{{ ns.n }}", "6"],
    ["{{ {'a': [], 'b': {}, 'c': 1.0} | tojson(indent=2) }}", '{\n  "a": [],\n  "b": {},\n  "c": 1.0\n}'],
    ["{{ 'hELLO' | capitalize }}{{ 'wORLD'.capitalize() }}", "HelloWorld"],
  ];
  for (const [template, wanted] of shown) assert.equal(renderTemplate(template, { list }), wanted, template);
});

test("templates print, compare and add as in Python", () => {
  const variables = { part: [{ type: "text", text: "it's" }], none_: null, yes: true, list: ["a", null, 1.5] };
  const shown: [string, string][] = [
    ["{{ part }}", `[{'type': 'text', 'text': "it's"}]`],
    ["{{ yes }} {{ none_ }} {{ list }} {{ missing }}|", "True None ['a', None, 1.5] |"],
    ["{{ 'x' ~ 1 ~ none_ ~ yes }}", "x1NoneTrue"],
    ["{{ '1' == 1 }} {{ 1 == 1.0 }} {{ list == ['a', none, 1.5] }} {{ list != [] }}", "False True True True"],
    ["{% for x in list %}{% if x is string %}{{ x }}{% else %}{{ x }},{% endif %}{% endfor %}", "aNone,1.5,"],
    ["{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(yes) }}{% set s %}{{ none_ }}{% endset %}{{ s }}", "<True>None"],
    ["{{ range(3) | list }} {{ range(5, 1, -2) | list }}", "[0, 1, 2] [5, 3]"],
    ["{{ strftime_now('%Y-100%%') }}", `${new Date().getFullYear()}-100%`],
  ];
  for (const [template, wanted] of shown) assert.equal(renderTemplate(template, variables), wanted, template);
  assert.throws(() => renderTemplate("{{ 'user: ' + part }}", variables), /it adds \[\{'type': 'text'.* to a text/);
  assert.throws(() => renderTemplate("{{ missing.x }}", variables), /missing is undefined/);
  assert.throws(() => renderTemplate("{{ raise_exception('no system') }}", variables), /no system/);
});
