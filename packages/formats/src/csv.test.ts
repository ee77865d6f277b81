// The CSV reader: quotes, commas and newlines inside fields, errors for malformed rows, and the writer.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CsvError, formatCsv, readCsv } from "./csv.js";

const rows = (text: string, columns = 3): string[][] =>
  [...readCsv(Buffer.from(text), "f.csv", columns)].map(({ fields }) => fields.map((f) => f.toString("utf8")));

test("quoted fields may contain commas, doubled quotes and newlines; both line endings and a missing last one are read", () => {
  assert.deepEqual(rows('1,"a, b","he said ""no"""\r\n2,plain,"two\nlines"\n\n"3","",x'), [
    ["1", "a, b", 'he said "no"'],
    ["2", "plain", "two\nlines"],
    ["3", "", "x"],
  ]);
});

test("a byte-order mark is skipped and text beyond ASCII is kept", () => {
  assert.deepEqual(rows('\ufeff1,"Zürich ""日本""",ß\n'), [["1", 'Zürich "日本"', "ß"]]);
});

test("lines are counted through quoted newlines", () => {
  const lines = [...readCsv(Buffer.from('1,"a\nb",c\n2,d,e\n'), "f.csv", 3)].map((r) => r.line);
  assert.deepEqual(lines, [1, 3]);
});

test("errors of malformed rows name the line and the remedy", () => {
  assert.throws(() => rows("1,a,b\n2,only two\n"), /f\.csv:2: 2 columns where 3 are expected; correct or remove/);
  assert.throws(() => rows('1,a,b\n2,"never closed,c\n3,x,y\n'), /f\.csv:2: a quoted field starts here and never ends/);
  assert.throws(() => rows('1,a,b\n2,"x"y,c\n'), /f\.csv:2: field 2 goes on after its closing quote/);
  assert.throws(() => rows("1,a\rb,c\n"), /f\.csv:1: a carriage return/);
  assert.deepEqual(rows(""), []);
});

test("without a column count rows of any width are read, and an unfinished last row is marked", () => {
  const read = [...readCsv(Buffer.from("a,b\n1\n2,3"), "f.csv")];
  assert.deepEqual(
    read.map((r) => [r.fields.length, r.complete]),
    [
      [2, true],
      [1, true],
      [2, false],
    ],
  );
  assert.throws(() => [...readCsv(Buffer.from('"x'), "f.csv")], CsvError);
});

test("what the writer formats, the reader reads back", () => {
  const cells = ["plain", 'a "quote"', "two\nlines", "a,b", ""];
  const text = formatCsv(["a", "b", "c", "d", "e"], [cells]);
  const [, row] = [...readCsv(Buffer.from(text), "f.csv", 5)];
  assert.deepEqual(
    row.fields.map((f) => f.toString()),
    cells,
  );
  assert.equal(formatCsv(["n"], [[1.5], [null]]), "n\n1.5\n\n");
});
