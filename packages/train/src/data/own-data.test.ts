// Data sets of the user: columns, labels and splits are found and checked; one is trained on and used from the command line.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { type OwnData, ownFormatOf, ownSplit } from "./own-data.js";
import { textOf } from "./table.js";
import { scratch, testdata } from "./testkit.js";

const folder = scratch();
function write(name: string, content: string | Buffer): string {
  const path = join(folder, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
  return path;
}
async function rowsOf(data: OwnData, split: "train" | "test" = "train"): Promise<[string, string][]> {
  const source = await ownSplit(data, split);
  const table = await source.read();
  return Array.from({ length: table.rows }, (_, i) => [source.classes?.[table.labels[i]] ?? "?", textOf(table, i)]);
}
const refuses = (data: OwnData, message: RegExp, split: "train" | "test" = "train"): Promise<void> =>
  assert.rejects(() => ownSplit(data, split), message);

/** Rows one to four of two classes in two groups, as pyarrow writes them. */
const packed = {
  gzip: "UEFSMRUAFSgVSCwVBBUAFQYVBhwAAAAfiwgAAAAAAAIDY2JgYGBhZAaS+XmpIKqkPB8ASL2VJxQAAAAVABUgFUAsFQQVABUGFQYcAAAAH4sIAAAAAAACA2NiYGBgYWQEkokgIgkAjBQlGxAAAAAVABUuFVAsFQQVABUGFQYcAAAAH4sIAAAAAAACA2NiYGBgYWQFkiUZRampLEBGWn5pEQCw+wqLFwAAABUAFSAVQCwVBBUAFQYVBhwAAAAfiwgAAAAAAAIDY2JgYGBhZASSiSAiCQCMFCUbEAAAABUEGTw1ABgGc2NoZW1hFQQAFQwlAhgEdGV4dCUATBwAAAAVDCUCGAVsYWJlbCUATBwAAAAWCBksGSwmABwVDBklBgAZGAR0ZXh0FQQWBBZOFm4mCEkcFQAVABUCADwWDBkGGSYABAAAACYAHBUMGSUGABkYBWxhYmVsFQQWBBZGFmYmdkkcFQAVABUCADwWBBkGGSYABAAAABaUARYEJggW1AEAGSwmABwVDBklBgAZGAR0ZXh0FQQWBBZUFnYm3AFJHBUAFQAVAgA8FhIZBhkmAAQAAAAmABwVDBklBgAZGAVsYWJlbBUEFgQWRhZmJtICSRwVABUAFQIAPBYEGQYZJgAEAAAAFpoBFgQm3AEW3AEAKCBwYXJxdWV0LWNwcC1hcnJvdyB2ZXJzaW9uIDI1LjAuMRksHAAAHAAAAD4BAABQQVIx",
  brotli:
    "UEFSMRUAFSgVMCwVBBUAFQYVBhwAAACLCYACAAAABAEDAAAAb25lAwAAAHR3bwMVABUgFSYsFQQVABUGFQYcAAAAGw8AAAQ8ZL8JqVCKxFLEcYBq4xUAFS4VNiwVBBUAFQYVBhwAAAAbFgAAxG3MwsaaRi+QKlFiqeE4ATBqN5ZI7xsVABUgFSYsFQQVABUGFQYcAAAAGw8AAAQ8ZL8JqVCKxFLEcYBq4xUEGTw1ABgGc2NoZW1hFQQAFQwlAhgEdGV4dCUATBwAAAAVDCUCGAVsYWJlbCUATBwAAAAWCBksGSwmABwVDBklBgAZGAR0ZXh0FQgWBBZOFlYmCEkcFQAVABUCADwWDBkGGSYABAAAACYAHBUMGSUGABkYBWxhYmVsFQgWBBZGFkwmXkkcFQAVABUCADwWBBkGGSYABAAAABaUARYEJggWogEAGSwmABwVDBklBgAZGAR0ZXh0FQgWBBZUFlwmqgFJHBUAFQAVAgA8FhIZBhkmAAQAAAAmABwVDBklBgAZGAVsYWJlbBUIFgQWRhZMJoYCSRwVABUAFQIAPBYEGQYZJgAEAAAAFpoBFgQmqgEWqAEAKCBwYXJxdWV0LWNwcC1hcnJvdyB2ZXJzaW9uIDI1LjAuMRksHAAAHAAAAD4BAABQQVIx",
};

test("parquet files are read group by group, with gzip and brotli", async () => {
  for (const [codec, content] of Object.entries(packed)) {
    write(`${codec}/train.parquet`, Buffer.from(content, "base64"));
    const rows = await rowsOf({ format: "parquet", path: join(folder, codec) });
    assert.deepEqual(rows, [
      ["a", "one"],
      ["b", "two"],
      ["a", "three"],
      ["b", "four"],
    ]);
  }
});

test("links in circles and nulls are errors that name the file or the row", async () => {
  write("circle/pos/1.txt", "good");
  write("circle/neg/1.txt", "bad");
  symlinkSync("self.txt", join(folder, "circle/pos/self.txt"));
  await refuses({ format: "folder", path: join(folder, "circle") }, /self\.txt cannot be read: ELOOP/);
  symlinkSync("..", join(folder, "circle/neg/up"));
  await refuses({ format: "folder", path: join(folder, "circle") }, /neg\/up is not a file/);
  const rows = '{"text": "x", "label": "a"}\n{"text": null, "label": "b"}\n';
  await refuses({ format: "jsonl", path: write("null.jsonl", rows) }, /null\.jsonl:2: "text" is null, not text/);
});

test("csv: columns by name, quoted fields, numbers as classes in their order, gzip", async () => {
  write("a/train.csv", 'id,topic,title,body\n1,10,"A, b","line\nnext"\n2,9,"say ""x""",äö\n');
  write("a/test.csv.gz", gzipSync("id,topic,title,body\n3,9,t,u\n"));
  const data: OwnData = { format: "csv", path: join(folder, "a"), text: ["title", "body"], label: "topic" };
  assert.deepEqual((await ownSplit(data, "train")).classes, ["9", "10"]);
  assert.deepEqual(await rowsOf(data), [
    ["10", "A, b line\nnext"],
    ["9", 'say "x" äö'],
  ]);
  assert.deepEqual(await rowsOf(data, "test"), [["9", "t u"]]);
});

test("jsonl and parquet: the usual label column is found, all others are the text", async () => {
  const lines = Array.from({ length: 20 }, (_, i) =>
    JSON.stringify({ text: `row ${i}`, label: i % 2 ? "odd" : "even" }),
  );
  const path = write("b.jsonl", `${lines.join("\n")}\n`);
  const train = await rowsOf({ format: "jsonl", path });
  assert.equal(train.length, 18);
  assert.deepEqual(train.slice(0, 2), [
    ["odd", "row 1"],
    ["even", "row 2"],
  ]);
  // Of one file one row of every ten is for the test, and no row is in both.
  const held = await rowsOf({ format: "jsonl", path }, "test");
  assert.equal(held.length, 2);
  assert.equal(new Set([...train, ...held].map(([, text]) => text)).size, 20);
  const hub = await rowsOf({ format: "parquet", path: testdata("hub") });
  assert.ok(hub.length > 0 && hub.every(([label, text]) => /^\d+$/.test(label) && text.length > 0));
});

test("columns that number the rows are no text unless they are asked for", async () => {
  const content = ",ID,text,label\n0,17,good,a\n1,18,bad,b\n";
  const path = write("numbered/train.csv", content).replace("/train.csv", "");
  const rows = await rowsOf({ format: "csv", path });
  assert.deepEqual(rows, [
    ["a", "good"],
    ["b", "bad"],
  ]);
  const asked = await rowsOf({ format: "csv", path, text: ["ID", "text"] });
  assert.deepEqual(asked[0], ["a", "17 good"]);
  await refuses(
    { format: "csv", path: write("only.csv", "id,label\n1,a\n") },
    /no column of text besides the class "label"/,
  );
});

test("csv: other separators and encodings, classes in a fixed order", async () => {
  const rows = Array.from({ length: 400 }, (_, i) => [`class ${i % 10}`, `text ${i}, "x";\n\t`]);
  const write1 = (name: string, separator: string, mark = ""): string => {
    const quoted = (text: string): string => `"${text.replaceAll('"', '""')}"`;
    const lines = rows.map((row) => row.map(quoted).join(separator));
    return write(name, `${mark}${[["label", "text"].join(separator), ...lines].join("\r\n")}\r\n`);
  };
  const read = async (path: string): Promise<[string, string][]> => {
    const data: OwnData = { format: "csv", path };
    return [...(await rowsOf(data)), ...(await rowsOf(data, "test"))].sort();
  };
  const expected = rows.map(([label, text]) => [label, text]).sort();
  for (const separator of [",", ";", "\t"])
    assert.deepEqual(await read(write1("separated.csv", separator, "\ufeff")), expected);
  // Ten classes in turn: the test split has many of them, not one.
  const test = await rowsOf({ format: "csv", path: join(folder, "separated.csv") }, "test");
  assert.ok(new Set(test.map(([label]) => label)).size >= 8);
  const head = "label,text\na,caf\u00e9\nb,x\n";
  await refuses({ format: "csv", path: write("latin.csv", Buffer.from(head, "latin1")) }, /not text in UTF-8.*8859/);
  await refuses({ format: "csv", path: write("wide.csv", Buffer.from(`\ufeff${head}`, "utf16le")) }, /UTF-16/);
  await refuses({ format: "csv", path: write("twice.csv", "label,text,label\na,x,b\n") }, /two columns "label"/);
  await refuses({ format: "csv", path: write("open.csv", 'a,"x\ny"\nb,z\n') }, /which column is the class/);
});

test("folder: one folder per class, with or without splits", async () => {
  for (const name of ["c/train/dog/1.txt", "c/train/cat/1.txt", "c/test/cat/9.txt"]) write(name, `text of ${name}`);
  const data: OwnData = { format: "folder", path: join(folder, "c") };
  assert.deepEqual(await rowsOf(data), [
    ["cat", "text of c/train/cat/1.txt"],
    ["dog", "text of c/train/dog/1.txt"],
  ]);
  assert.deepEqual(await rowsOf(data, "test"), [["cat", "text of c/test/cat/9.txt"]]);
});

test("mistakes name the file, the row and the remedy", async () => {
  const csv = (name: string, text: string): OwnData => ({ format: "csv", path: write(name, text) });
  const good = "label,text\na,x\nb,y\n";
  await refuses({ ...csv("d.csv", good), label: "lable" }, /no column "lable".*did you mean "label"/);
  await refuses(
    { ...csv("d.csv", good), text: ["body"] },
    /no column "body" \(data.text\); its columns are: label, text/,
  );
  await refuses(csv("e.csv", "first,second\na,x\n"), /which column is the class\? Give data.label/);
  await refuses(csv("f.csv", "label,text\na,x\na,y\n"), /all rows have the class "a"/);
  await refuses(csv("g.csv", "label,text\na,x\n,y\n"), /g\.csv:3: the class is empty/);
  await refuses(csv("h.csv", "label,text\na,x\nb\n"), /h\.csv.*3/);
  await refuses(csv("i.csv", ""), /which column|empty/);
  const unique = Array.from({ length: 30 }, (_, i) => `${i},x`).join("\n");
  await refuses(
    csv("j.csv", `label,text\n${unique}\n`),
    /27 different values in 27 rows.*is data.label the right column/,
  );
  await refuses(
    { format: "jsonl", path: write("k.jsonl", '{"text": "x", "label": "a"}\n[1]\n') },
    /k\.jsonl:2: a row is an object/,
  );
  await refuses(
    { format: "jsonl", path: write("l.jsonl", '{"text": "x", "label": "a"}\n{"label": "b"}\n') },
    /l\.jsonl:2: "text" is missing/,
  );
  await refuses({ format: "parquet", path: write("m.parquet", "no parquet") }, /cannot be read as Parquet/);
  await refuses({ format: "csv", path: join(folder, "absent.csv") }, /does not exist/);
  write("n/train.csv", good);
  await refuses({ format: "csv", path: join(folder, "n") }, /has no test\.csv/, "test");
  write("n/test.csv", "label,text\nc,z\n");
  await refuses(
    { format: "csv", path: join(folder, "n") },
    /the class "c" is not in the training rows, which have: a, b/,
    "test",
  );
});

test("a file of texts is trained on and the run classifies by its labels", () => {
  const words = { sport: ["goal", "match", "team"], money: ["bank", "market", "stock"] };
  const rows = Array.from({ length: 200 }, (_, i) => {
    const topic = i % 3 === 0 ? "sport" : "money";
    return `${topic},the ${words[topic][i % 3]} ${words[topic][(i + 1) % 3]}`;
  });
  write("texts.csv", `topic,text\n${rows.join("\n")}\n`);
  const cli = fileURLToPath(new URL("../../../cli/dist/main.js", import.meta.url));
  const weft = (...args: string[]): string => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [cli, ...args], { encoding: "utf8", cwd: folder });
    assert.equal(status, 0, stderr);
    return stdout;
  };
  assert.match(weft("data", "show", "texts.csv", "--label", "topic"), /train +\d+ +\d+ +\d+/);
  weft("init", "text", "project", "--data", "texts.csv", "--label", "topic");
  const out = weft("train", join("project", "text.yaml"), "--output", join(folder, "run"));
  assert.ok(Number(/test accuracy ([\d.]+)/.exec(out)?.[1]) > 0.95, out);
  assert.match(weft("classify", join(folder, "run"), "the goal match"), /sport/);
});

test("the format of a path; hidden files are no texts, and folders in the folder of a class are refused", async () => {
  assert.equal(ownFormatOf(write("c/train.jsonl", "")), "jsonl");
  assert.equal(ownFormatOf(join(folder, "c")), "jsonl");
  assert.equal(ownFormatOf(write("d.TSV.gz", "")), "csv");
  assert.throws(() => ownFormatOf(write("e.xlsx", "")), /end in .csv/);
  assert.throws(() => ownFormatOf(dirname(write("f/notes.txt", ""))), /neither a training split .* nor one folder/);
  for (let i = 0; i < 20; i++) write(`g/${i % 2 ? "odd" : "even"}/${i}.txt`, `text ${i}`);
  write("g/odd/.DS_Store", Buffer.from([0, 255]));
  write("g/.git/HEAD", "ref");
  assert.equal(ownFormatOf(join(folder, "g")), "folder");
  assert.equal((await rowsOf({ format: "folder", path: join(folder, "g") })).length, 18);
  write("g/odd/more/a.txt", "x");
  await refuses({ format: "folder", path: join(folder, "g") }, /more is not a file/);
});
