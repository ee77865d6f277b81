// CSV as it comes: quotes, commas and newlines inside fields; and what is wrong with rows that are broken.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readCsv } from "./csv.js";

const rows = (text: string, columns = 3): string[][] =>
  [...readCsv(Buffer.from(text), "f.csv", columns)].map(({ fields }) => fields.map((f) => f.toString("utf8")));

test("quoted fields hold commas, doubled quotes and newlines; line ends of both kinds; a missing last one", () => {
  assert.deepEqual(rows('1,"a, b","he said ""no"""\r\n2,plain,"two\nlines"\n\n"3","",x'), [
    ["1", "a, b", 'he said "no"'],
    ["2", "plain", "two\nlines"],
    ["3", "", "x"],
  ]);
});

test("a byte-order mark and text beyond ASCII", () => {
  assert.deepEqual(rows('\ufeff1,"Zürich ""日本""",ß\n'), [["1", 'Zürich "日本"', "ß"]]);
});

test("lines are counted through quoted newlines", () => {
  const lines = [...readCsv(Buffer.from('1,"a\nb",c\n2,d,e\n'), "f.csv", 3)].map((r) => r.line);
  assert.deepEqual(lines, [1, 3]);
});

test("broken rows: their line and the remedy", () => {
  assert.throws(() => rows("1,a,b\n2,only two\n"), /f\.csv:2: 2 columns where 3 are expected; correct or remove/);
  assert.throws(() => rows('1,a,b\n2,"never closed,c\n3,x,y\n'), /f\.csv:2: a quoted field starts here and never ends/);
  assert.throws(() => rows('1,a,b\n2,"x"y,c\n'), /f\.csv:2: field 2 goes on after its closing quote/);
  assert.throws(() => rows("1,a\rb,c\n"), /f\.csv:1: a carriage return/);
  assert.deepEqual(rows(""), []);
});
