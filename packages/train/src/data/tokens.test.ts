// Splits from every format, token files that are made once, and loaders that give the same batches with and without
// threads.
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { findSplit } from "./datasets.js";
import { type LoaderOptions, openLoader } from "./loader.js";
import { textOf } from "./table.js";
import { scratch, testdata } from "./testkit.js";
import { hashTokenizer } from "./tokenizer.js";
import { limitRows, openTokens } from "./tokens.js";

const folder = scratch();
const place = (name: string): string => {
  const made = join(folder, name);
  mkdirSync(made, { recursive: true });
  return made;
};

test("AG News is read from CSV, plain and compressed, with and without a header", async () => {
  const rows = '"3","Oil up","Prices, ""again"""\n"1","Talks","two\nlines"\n';
  const plain = place("csv");
  writeFileSync(join(plain, "train.csv"), rows);
  writeFileSync(join(plain, "test.csv.gz"), gzipSync(`Class Index,Title,Description\n${rows}`));
  for (const split of ["train", "test"] as const) {
    const table = await findSplit("ag_news", split, plain).read();
    assert.deepEqual(Array.from(table.labels), [2, 0]);
    assert.deepEqual([textOf(table, 0), textOf(table, 1)], ['Oil up Prices, "again"', "Talks two\nlines"]);
  }
});

test("IMDB is read from JSON lines and from folders", async () => {
  const lines = place("lines");
  writeFileSync(join(lines, "train.jsonl"), '{"label": 1, "text": "good"}\n\n{"label": 0, "text": "bad\\n"}\n');
  const table = await findSplit("imdb", "train", lines).read();
  assert.deepEqual(Array.from(table.labels), [1, 0]);
  assert.deepEqual([textOf(table, 0), textOf(table, 1)], ["good", "bad\n"]);
  const tree = place("tree");
  for (const [name, text] of [
    ["pos/1_9.txt", "great"],
    ["neg/0_1.txt", "awful"],
    ["neg/1_2.txt", "dull"],
  ]) {
    mkdirSync(join(tree, "train", name.split("/")[0]), { recursive: true });
    writeFileSync(join(tree, "train", name), text);
  }
  const read = await findSplit("imdb", "train", tree).read();
  assert.deepEqual(Array.from(read.labels), [0, 0, 1]);
  assert.deepEqual(
    [0, 1, 2].map((i) => textOf(read, i)),
    ["awful", "dull", "great"],
  );
});

test("the hub's Parquet files are read", async () => {
  const made = place("parquet");
  copyFileSync(testdata("hub", "train.parquet"), join(made, "train.parquet"));
  const table = await findSplit("ag_news", "train", made).read();
  assert.equal(table.rows, 60);
  assert.deepEqual(Array.from(table.labels.subarray(0, 5)), [0, 1, 2, 3, 0]);
  assert.equal(textOf(table, 7), 'Störung "quoted", line\ntwo 7');
  assert.equal(textOf(table, 1), "Made-up headline number 1 about nothing");
});

test("errors of malformed data name the file, the row and the remedy", async () => {
  const bad = place("bad");
  const csv = async (text: string): Promise<void> => {
    writeFileSync(join(bad, "train.csv"), text);
    await findSplit("ag_news", "train", bad).read();
  };
  await assert.rejects(csv('"1","a","b"\n"2","c"\n'), /train\.csv:2: 2 columns where 3/);
  await assert.rejects(
    csv('"1","a","b"\n"5","c","d"\n'),
    /train\.csv:2: the class is "5"; ag_news has the classes 1 to 4/,
  );
  await assert.rejects(csv('"1","a","b"\n"","c","d"\n'), /train\.csv:2: the class is ""/);
  await assert.rejects(csv(""), /train\.csv: the data set is empty/);
  const lines = place("badlines");
  writeFileSync(join(lines, "train.jsonl"), '{"label": 1, "text": "x"}\n{"label": 1, "te');
  await assert.rejects(findSplit("imdb", "train", lines).read(), /train\.jsonl:2: not JSON/);
  writeFileSync(join(lines, "test.jsonl"), '{"label": 1}\n');
  await assert.rejects(findSplit("imdb", "test", lines).read(), /test\.jsonl:1: a row needs "text"/);
  const cut = place("cut");
  writeFileSync(join(cut, "train.csv.gz"), gzipSync("1,a,b\n").subarray(0, 15));
  await assert.rejects(findSplit("ag_news", "train", cut).read(), /train\.csv\.gz: damaged or cut off/);
  writeFileSync(join(cut, "test.parquet"), "PAR1 not really PAR1");
  await assert.rejects(findSplit("ag_news", "test", cut).read(), /test\.parquet: cannot be read as Parquet/);
  assert.throws(() => findSplit("ag_news", "train", place("nothing")), /there is no train split at .*nothing/);
  assert.throws(() => findSplit("imdb", "train"), /weft data get imdb/);
});

test("a token file is made once, shared, and rebuilt if damaged or the tokenizer changes", async () => {
  const source = findSplit("synthetic", "train");
  const made = await openTokens(source, hashTokenizer(500));
  const text = await source.read();
  assert.equal(made.rows, 2000);
  assert.deepEqual(Array.from(made.labels), Array.from(text.labels));
  const refused = { ...source, read: () => Promise.reject(new Error("read again")) };
  const again = await openTokens(refused, hashTokenizer(500));
  assert.deepEqual(Array.from(again.ids.subarray(0, 100)), Array.from(made.ids.subarray(0, 100)));
  await assert.rejects(openTokens(refused, hashTokenizer(501)), /read again/);
  const bytes = readFileSync(made.file);
  // Replaced by rename, not in place: the good file is still mapped.
  bytes[bytes.length - 3] ^= 1;
  writeFileSync(`${made.file}.new`, bytes);
  const { renameSync } = await import("node:fs");
  renameSync(`${made.file}.new`, made.file);
  await assert.rejects(openTokens(refused, hashTokenizer(500)), /read again/);
  const repaired = await openTokens(source, hashTokenizer(500));
  assert.deepEqual(Array.from(repaired.ids), Array.from(made.ids));
  assert.deepEqual(
    readdirSync(join(made.file, "..")).filter((name) => name.endsWith(".tmp")),
    [],
  );
  assert.ok(statSync(made.file).size > 4 * made.ids.length);
});

const loaderOptions = (loaders: number): LoaderOptions => ({
  globalBatch: 12,
  seed: 3,
  lengths: [16, 32],
  shuffle: true,
  rank: 1,
  ranks: 2,
  accumulation: 2,
  rows: 3,
  loaders,
  prefetch: 3,
});

test("loader threads give the same batches as none, in order, across epochs and from any position", async () => {
  const set = limitRows(await openTokens(findSplit("synthetic", "train"), hashTokenizer(500)), 100);
  for (const from of [
    { epoch: 0, index: 0 },
    { epoch: 1, index: 5 },
  ]) {
    const plain = openLoader(set, loaderOptions(0), from);
    const expected = Array.from({ length: 60 }, () => {
      const { data, ...rest } = plain.next();
      return { ...rest, data: Array.from(data) };
    });
    assert.deepEqual([expected[0].epoch, expected[0].index], [from.epoch, from.index]);
    assert.ok(expected.some((b) => b.epoch > from.epoch));
    for (const loaders of [1, 3]) {
      const threaded = openLoader(set, loaderOptions(loaders), from);
      for (const want of expected) {
        const { data, ...rest } = threaded.next();
        assert.deepEqual({ ...rest, data: Array.from(data) }, want);
      }
      threaded.close();
    }
  }
});

test("a loader thread that cannot read its file is an error, not a hang", async () => {
  const set = await openTokens(findSplit("synthetic", "test"), hashTokenizer(500));
  const loader = openLoader({ ...set, file: join(folder, "gone.tok") }, loaderOptions(1), { epoch: 0, index: 0 });
  assert.throws(() => loader.next(), /a loader thread ended.*data\.loaders: 0/s);
  loader.close();
});

test("published AG News rows are read: quoted fields, classes from 1", async () => {
  const [train, test] = await Promise.all(
    (["train", "test"] as const).map((split) =>
      openTokens(findSplit("ag_news", split, testdata("ag_news")), hashTokenizer(20000)),
    ),
  );
  assert.deepEqual([train.rows, test.rows], [160, 80]);
  assert.deepEqual(new Set(test.labels), new Set([0, 1, 2, 3]));
});
