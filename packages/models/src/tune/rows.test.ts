// Files of texts: separators, headers, columns by name, Parquet; what cannot be read rightly is an error.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { scratch } from "../transformers.testkit.js";
import { readTexts } from "./rows.js";

const folder = scratch();
const write = (name: string, content: string | Buffer): string => {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
};
const both = [
  { text: "one", label: "a" },
  { text: "two", label: "b" },
];

test("commas, semicolons and tabs, headers with usual and with other names", async () => {
  for (const [name, content, columns] of [
    ["bom.csv", "\ufefflabel,text\r\na,one\r\nb,two\r\n", {}],
    ["semicolons.csv", "text;label\none;a\ntwo;b\n", {}],
    ["tabs.tsv", "label\ttext\na\tone\nb\ttwo\n", {}],
    ["index.csv", ",text,label\n0,one,a\n1,two, b \n", {}],
    ["named.csv", "topic,headline,source\na,one,x\nb,two,x\n", { text: "headline", label: "topic" }],
    ["lines.jsonl", '{"sentence":"one","category":"a"}\n{"sentence":"two","category":"b"}\n', {}],
    ["keys.jsonl", '{"q":"one","y":"a","text":"no"}\n{"q":"two","y":"b"}\n', { text: ["q"], label: "y" }],
    ["none.csv", "a,one\nb,two\n", {}],
  ] as const)
    assert.deepEqual(await readTexts(write(name, content), columns), both, name);
  const joined = await readTexts(write("two.csv", "title,body,topic\nx,y,a\n"), {
    text: ["title", "body"],
    label: "topic",
  });
  assert.deepEqual(joined, [{ text: "x y", label: "a" }]);
});

test("a header without usual names is not taken for a row, and columns that occur twice are not chosen from", async () => {
  for (const [name, content, columns, message] of [
    [
      "header.csv",
      "topic,headline\na,one\nb,two\na,three\n",
      {},
      /"topic", the class of the first row, occurs once: is this row a header/,
    ],
    ["twice.csv", "text,label,label\none,a,b\n", {}, /has two columns "label"/],
    [
      "lacks.csv",
      "topic,headline\na,one\n",
      { text: "body" },
      /has no column "body"; its first row is topic, headline/,
    ],
    ["list.json", '[{"text":"x","label":"a"}]', {}, /one object per line/],
    ["proto.jsonl", '{"label":"a"}', { text: "constructor" }, /the key "constructor" is missing .*its keys are label/],
    ["odd.csv", "label,text\na,one\n", { texts: "x" }, /texts/],
  ] as const)
    await assert.rejects(readTexts(write(name, content), columns as object), message);
});

// Written by pyarrow 25: large_string, a dictionary, row groups and snappy; LZ4; lists and gzip.
const parquet = {
  rows: "UEFSMRUEFRQVGEwVAhUAEgAACiQGAAAAw6kgb25lFQAVEhUWLBUCFRAVBhUGHAAAAAkgAgAAAAIBAQIAFQQVFBUYTBUEFQASAAAKJAEAAABiAQAAAGEVABUSFRYsFQIVEBUGFQYcAAAACSACAAAAAgEBAgAVBBUOFRJMFQIVABIAAAcYAwAAAHR3bxUAFRIVFiwVAhUQFQYVBhwAAAAJIAIAAAACAQECABUEFRQVGEwVBBUAEgAACiQBAAAAYgEAAABhFQAVEhUWLBUCFRAVBhUGHAAAAAkgAgAAAAIBAQIBFQQZPDUAGAZzY2hlbWEVBAAVDCUCGAV0aXRsZSUATBwAAAAVDCUCGAV0b3BpYyUATBwAAAAWBBksGSwmABwVDBk1AAYQGRgFdGl0bGUVAhYCFmgWcCY8JggpLBUEFQAVAgAVABUQFQIAPBYMGQYZJgACAAAAJgAcFQwZNQAGEBkYBXRvcGljFQIWAhZoFnAmrAEmeCksFQQVABUCABUAFRAVAgA8FgIZBhkmAAIAAAAW0AEWAiYIFuABABksJgAcFQwZNQAGEBkYBXRpdGxlFQIWAhZiFmomlgIm6AEpLBUEFQAVAgAVABUQFQIAPBYGGQYZJgACAAAAJgAcFQwZNQAGEBkYBXRvcGljFQIWAhZoFnAmhgMm0gIpLBUEFQAVAgAVABUQFQIAPBYCGQYZJgACAAAAFsoBFgIm6AEW2gEAKCBwYXJxdWV0LWNwcC1hcnJvdyB2ZXJzaW9uIDI1LjAuMRksHAAAHAAAAGwBAABQQVIx",
  lz4: "UEFSMRUEFQoVDEwVAhUAEgAAUAEAAAB4FQAVEhUULBUCFRAVBhUGHAAAAJACAAAAAgEBAgAVBBUQFRJMFQIVABIAAIABAAAAAAAAABUAFRIVFCwVAhUQFQYVBhwAAACQAgAAAAIBAQIAFQQZPDUAGAZzY2hlbWEVBAAVDCUCGAR0ZXh0JQBMHAAAABUEJQIYBWxhYmVsABYCGRwZLCYAHBUMGTUABhAZGAR0ZXh0FQ4WAhZeFmImMCYIKSwVBBUAFQIAFQAVEBUCADwWAhkGGSYAAgAAACYAHBUEGTUABhAZGAVsYWJlbBUOFgIWZBZoJpgBJmopLBUEFQAVAgAVABUQFQIAPCkGGSYAAgAAABbCARYCJggWygEAKCBwYXJxdWV0LWNwcC1hcnJvdyB2ZXJzaW9uIDI1LjAuMRksHAAAHAAAANwAAABQQVIx",
  words:
    "UEFSMRUEFRYVOkwVBBUAEgAAH4sIAAAAAAACA2NiYGBwDWUEkhUACRslGgsAAAAVABUeFUIsFQQVEBUGFQYcAAAAH4sIAAAAAAACA2NiYGBgZmICkizMjMxMADp9YO8PAAAAFQQVIBUuTBUEFQASAAAfiwgAAAAAAAIDY2RABQDE2tNCEAAAABUAFR4VQiwVBBUQFQYVBhwAAAAfiwgAAAAAAAIDY2JgYGBmYgKSLMyMzEwAOn1g7w8AAAAVBBl8NQAYBnNjaGVtYRUEADUCGAZ0b2tlbnMVAhUGTDwAAAA1BBgEbGlzdBUCABUMJQIYB2VsZW1lbnQlAEwcAAAANQIYCG5lcl90YWdzFQIVBkw8AAAANQQYBGxpc3QVAgAVBCUCGAdlbGVtZW50ABYCGRwZLCYAHBUMGTUABhAZOAZ0b2tlbnMEbGlzdAdlbGVtZW50FQQWBBZ2Fr4BJl4mCCksFQQVABUCABUAFRAVAgA8FgYZJgICGUYAAAAEAAAAJgAcFQQZNQAGEBk4CG5lcl90YWdzBGxpc3QHZWxlbWVudBUEFgQWgAEWsgEmkAImxgEpLBUEFQAVAgAVABUQFQIAPCkmAgIZRgAAAAQAAAAW9gEWAiYIFvACACggcGFycXVldC1jcHAtYXJyb3cgdmVyc2lvbiAyNS4wLjEZLBwAABwAAABKAQAAUEFSMQ==",
};

test("Parquet: strings, dictionaries and lists; a codec that is not read says what to do", async () => {
  const path = (name: keyof typeof parquet): string => write(`${name}.parquet`, Buffer.from(parquet[name], "base64"));
  assert.deepEqual(await readTexts(path("rows"), { text: "title", label: "topic" }), [
    { text: "é one", label: "b" },
    { text: "two", label: "a" },
  ]);
  assert.deepEqual(await readTexts(path("words")), [{ text: "EU x", words: ["EU", "x"], tags: ["1", "0"] }]);
  await assert.rejects(readTexts(path("lz4")), /lz4.parquet: cannot be read as Parquet: .*LZ4.*snappy or gzip/);
  const cut = write("cut.parquet", Buffer.from(parquet.rows, "base64").subarray(0, -30));
  await assert.rejects(readTexts(cut), /cut.parquet: cannot be read as Parquet/);
});
