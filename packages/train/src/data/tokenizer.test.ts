// The hash tokenizer against Python's own lower().split() and ord(), and tokenizer files.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { TableBuilder } from "./table.js";
import { scratch, testdata } from "./testkit.js";
import { fileTokenizer, hashTokenizer, IdList, makeTokenizer, tokenize } from "./tokenizer.js";

const folder = scratch();

function ids(text: string | Buffer, vocabulary = 20000): number[] {
  const out = new IdList();
  const bytes = Buffer.isBuffer(text) ? text : Buffer.from(text);
  hashTokenizer(vocabulary).encode(bytes, 0, bytes.length, out);
  return Array.from(out.ids.subarray(0, out.length));
}

/** FNV-1a over code points, in BigInt. */
function byHand(word: string, vocabulary = 20000): number {
  let h = 2166136261n;
  for (const c of word.toLowerCase()) h = ((h ^ BigInt(c.codePointAt(0)!)) * 16777619n) & 0xffffffffn;
  return 1 + Number(h % BigInt(vocabulary - 1));
}

test("ids are FNV-1a over lower-case code points, never 0", () => {
  assert.deepEqual(
    ids("The CAT  sat\n"),
    ["the", "cat", "sat"].map((w) => byHand(w)),
  );
  assert.deepEqual(
    ids("Zürich ΑΣ STRASSE İx 日本"),
    ["zürich", "ας", "strasse", "İx", "日本"].map((w) => byHand(w)),
  );
  assert.deepEqual(ids(" \t\u00a0\u2003 "), []);
  assert.deepEqual(
    ids("a\u2003b\u3000c\x1cd"),
    ["a", "b", "c", "d"].map((w) => byHand(w)),
  );
  for (const id of ids("one two three four five", 2)) assert.equal(id, 1);
});

test("invalid UTF-8 gives one replacement character per byte and does not read past the end", () => {
  assert.deepEqual(ids(Buffer.from([0x61, 0xff, 0x62])), [byHand("a\ufffdb")]);
  assert.deepEqual(ids(Buffer.from([0x61, 0xe2, 0x82])), [byHand("a\ufffd\ufffd")]);
  assert.deepEqual(ids(Buffer.from([0xc3])), [byHand("\ufffd")]);
  assert.deepEqual(ids(Buffer.from([0x61, 0, 0x62])), [byHand("a\u0000b")]);
});

const python = spawnSync("python3", ["-c", "print(1)"]).status === 0;
test("the hash tokenizer equals plain Python on unusual text", { skip: python ? false : "there is no python3" }, () => {
  const lines = [
    'It\'s A "test"... of <br />THIS-and that',
    "ÀÉÎÕÜ ǅ ŉ ΣΑΣ, ΑΣ. Σ ſt ﬁn İstanbul ẞ",
    "\u0085a\u00a0b\u1680c\u200ad\u2028e\u202ff\u205fg\u3000h\u001ci\u001fj\u200bk",
    "emoji 😀😀 x\u0301 𝔘𝔫𝔦 Ⅷ Ａｂ",
  ];
  const script = `
import json, sys
def enc(t, V=20000):
    out = []
    for w in t.lower().split():
        h = 2166136261
        for c in w:
            h ^= ord(c); h = (h * 16777619) & 0xffffffff
        out.append(1 + h % (V - 1))
    return out
print(json.dumps([enc(t) for t in json.load(sys.stdin)]))`;
  const done = spawnSync("python3", ["-c", script], { input: JSON.stringify(lines), encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  assert.deepEqual(
    lines.map((line) => ids(line)),
    JSON.parse(done.stdout),
  );
});

test("tokenizing a table gives the ids and the start of every row", () => {
  const table = new TableBuilder();
  table.add(0, ["one two"]);
  table.add(1, [""]);
  table.add(1, ["three", Buffer.from("four five")]);
  const { ids: all, offsets } = tokenize(table.build(), hashTokenizer(1000));
  assert.deepEqual(Array.from(offsets), [0, 2, 2, 5]);
  assert.deepEqual(
    Array.from(all),
    ["one", "two", "three", "four", "five"].map((w) => byHand(w, 1000)),
  );
});

test("a WordPiece file gives its ids shifted by one; the error for a small vocab_size names the right value", async () => {
  const path = testdata("wordpiece.json");
  const tokenizer = await fileTokenizer(path);
  const bytes = Buffer.from("Playing the unknownword");
  const out = new IdList();
  tokenizer.encode(bytes, 0, bytes.length, out);
  // [CLS] play ##ing the [UNK] [SEP]
  assert.deepEqual(
    Array.from(out.ids.subarray(0, out.length)),
    [2, 5, 6, 4, 1, 3].map((id) => id + 1),
  );
  assert.equal(tokenizer.vocabulary, 8);
  await assert.rejects(makeTokenizer(path, 7), /model\.vocab_size 7 is too small .* set vocab_size: 8/);
  const broken = join(folder, "broken.json");
  writeFileSync(broken, "{");
  await assert.rejects(fileTokenizer(broken), /broken\.json: not a tokenizer file/);
  assert.throws(() => hashTokenizer(1), /at least 2 ids/);
});
