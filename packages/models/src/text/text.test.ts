// Tokenizers and chat templates where the libraries below follow rules of their own: values are those of transformers.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { loadTokenizer } from "../index.js";
import { scratch, writeTokenizer } from "../transformers.testkit.js";
import { renderTemplate } from "./chat-template.js";

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
