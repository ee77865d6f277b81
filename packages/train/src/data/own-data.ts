// Data sets of the user: a CSV, JSON lines or Parquet file with named columns, or one folder per class. Labels are found in the
// training split and checked in both: every row names a class that training has seen.
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, type Stats, statSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { CsvError, readCsv, separatorOf } from "@weft/formats/csv";
import { closestName, listSome } from "@weft/formats/text";
import type { DatasetSource, DatasetSplit } from "./datasets.js";
import { parquetObjects, readWhole } from "./files.js";
import { DataError, TableBuilder, type TextTable } from "./table.js";

/** Formats of own data sets, as `data.dataset` names them. */
export const ownFormats = ["csv", "jsonl", "parquet", "folder"] as const;
/** Format of an own data set. */
export type OwnFormat = (typeof ownFormats)[number];

/** Where an own data set is, and which columns hold what. */
export interface OwnData {
  /** Format of the files. */
  format: OwnFormat;
  /** A folder with the splits, or one file: then one of every ten rows is for the test. */
  path: string;
  /** Columns of the text, joined by spaces; by default all but the label and those that number the rows (id, index). */
  text?: readonly string[];
  /** Column of the class; by default the one with a usual name. */
  label?: string;
}

interface Row {
  label: string;
  parts: readonly (Buffer | string)[];
  where: string;
}

const usualLabels = ["label", "labels", "class", "category", "target", "sentiment", "y"];
/** Columns that number the rows (the first one of pandas has no name): they are no text, and may give the class away. */
const usualNumbers = ["", "id", "idx", "index", "row", "uuid", "guid", "unnamed: 0"];
const mostClasses = 10_000;

/** The label and text columns of a table with these columns. */
function chooseColumns(data: OwnData, names: readonly string[], path: string): { label: number; text: number[] } {
  const find = (wanted: string, what: string): number => {
    const at = names.indexOf(wanted);
    if (at >= 0) return at;
    const near = closestName(wanted, names);
    throw new DataError(
      `${path} has no column "${wanted}" (${what})${near === null ? "" : `; did you mean "${near}"?`}; its columns are: ${listSome(names, 20)}`,
    );
  };
  const twice = names.find((name, i) => names.indexOf(name) < i && name !== "");
  if (twice !== undefined) throw new DataError(`${path} has two columns "${twice}"; rename or remove one`);
  const usual = names.find((name) => usualLabels.includes(name.toLowerCase()));
  if (data.label === undefined && usual === undefined)
    throw new DataError(
      `${path}: which column is the class? Give data.label (--label); its columns are: ${listSome(names, 20)} (a first line with the names is required)`,
    );
  const label = find(data.label ?? (usual as string), "data.label");
  const text =
    data.text?.map((name) => find(name, "data.text")) ??
    names.flatMap((name, i) => (i === label || usualNumbers.includes(name.toLowerCase()) ? [] : [i]));
  if (text.length === 0)
    throw new DataError(`${path} has no column of text besides the class "${names[label]}"; data.text names one`);
  return { label, text };
}

function* csvRows(data: OwnData, bytes: Buffer, path: string): Generator<Row> {
  try {
    const lines = readCsv(bytes, path, "as the first row", separatorOf(bytes));
    const names: string[] = lines.next().value?.fields.map((field: Buffer) => field.toString("utf8").trim()) ?? [];
    if (names.length === 0) throw new DataError(`${path} is empty; its first line has the names of the columns`);
    const { label, text } = chooseColumns(data, names, path);
    for (const { fields, line } of lines)
      yield {
        label: fields[label].toString("utf8").trim(),
        parts: text.map((i) => fields[i]),
        where: `${path}:${line}`,
      };
  } catch (error) {
    throw error instanceof CsvError ? new DataError(error.message) : error;
  }
}

/** Reads rows of objects, from JSON lines or Parquet; the columns are those of the first. */
function objectReader(data: OwnData, path: string): (value: object, where: string) => Row {
  let names: string[] | null = null;
  let columns = { label: 0, text: [0] };
  return (value, where) => {
    if (names === null) {
      names = Object.keys(value);
      columns = chooseColumns(data, names, path);
    }
    const known = names;
    const row = value as Record<string, unknown>;
    const parts = columns.text.map((i) => {
      const part = Object.hasOwn(row, known[i]) ? row[known[i]] : undefined;
      if (typeof part !== "string" && typeof part !== "number") {
        const what = part === undefined ? "missing" : part === null ? "null" : typeof part;
        throw new DataError(`${where}: "${known[i]}" is ${what}, not text`);
      }
      return String(part);
    });
    const name = known[columns.label];
    const given = Object.hasOwn(row, name) ? row[name] : undefined;
    if (typeof given === "object" && given !== null)
      throw new DataError(`${where}: "${name}" is not a name or a number`);
    return { label: given === undefined || given === null ? "" : String(given).trim(), parts, where };
  };
}

function* jsonRows(data: OwnData, bytes: Buffer, path: string): Generator<Row> {
  const read = objectReader(data, path);
  // Line by line: the text of a whole file may be longer than any string.
  for (let start = 0, line = 1; start < bytes.length; line++) {
    const found = bytes.indexOf(0x0a, start);
    const end = found < 0 ? bytes.length : found;
    const text = bytes.toString("utf8", start, end).replace(line === 1 ? /^\ufeff/ : /^$/, "");
    start = end + 1;
    if (text.trim() === "") continue;
    const where = `${path}:${line}`;
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new DataError(`${where}: not JSON (${(error as Error).message}); correct or remove this row`);
    }
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw new DataError(`${where}: a row is an object such as {"text": "...", "label": "..."}`);
    yield read(value, where);
  }
}

async function* parquetRows(data: OwnData, bytes: Buffer, path: string): AsyncGenerator<Row> {
  const read = objectReader(data, path);
  let row = 0;
  for await (const value of parquetObjects(bytes, path)) yield read(value, `${path}: row ${row++}`);
}

/** Refuses bytes that are not UTF-8: other encodings would be trained on as characters that nobody wrote. */
function checkText(bytes: Buffer, path: string): Buffer {
  if (isUtf8(bytes) && !bytes.subarray(0, 100).includes(0)) return bytes;
  const isUtf16 = bytes.subarray(0, 100).includes(0);
  throw new DataError(
    `${path} is not text in UTF-8; convert it first: iconv -f ${isUtf16 ? "UTF-16" : "ISO-8859-1"} -t UTF-8 ${basename(path)}`,
  );
}

/** Whether a row of a source without a test split is for the test: one of every ten, in no fixed rhythm, because the classes may have one. */
function isTestRow(row: number): boolean {
  const block = Math.floor(row / 10);
  return row % 10 === (Math.imul(block ^ (block >>> 7), 0x9e3779b1) >>> 16) % 10;
}

const readers = { csv: csvRows, jsonl: jsonRows, parquet: parquetRows } as const;

/** Files such as .DS_Store and .git are nobody's texts and classes. */
const isVisible = (name: string): boolean => !name.startsWith(".");

function* folderRows(tree: string): Generator<Row> {
  const classes = readdirSync(tree).filter((name) => isVisible(name) && statOf(join(tree, name)).isDirectory());
  // Sorted, because the order of directory listings is not defined.
  for (const name of classes.sort())
    for (const file of readdirSync(join(tree, name)).filter(isVisible).sort()) {
      const path = join(tree, name, file);
      if (!statOf(path).isFile())
        throw new DataError(`${path} is not a file; the folder of a class holds one file per text, and no folders`);
      yield { label: name, parts: [checkText(readWhole(path), path)], where: path };
    }
}

/** What a path is; links that lead nowhere or in circles are errors. */
function statOf(path: string): Stats {
  try {
    return statSync(path);
  } catch (error) {
    throw new DataError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

const endings: Readonly<Record<string, OwnFormat>> = {
  ".csv": "csv",
  ".tsv": "csv",
  ".jsonl": "jsonl",
  ".ndjson": "jsonl",
  ".parquet": "parquet",
};

/** The format of a file by its ending, or of a folder by its training split. */
export function ownFormatOf(path: string): OwnFormat {
  if (!existsSync(path)) throw new DataError(`${path} does not exist; give a file or folder of texts`);
  if (statSync(path).isDirectory()) {
    const split = ownFormats.find((format) =>
      ["", ".gz"].some((packed) => existsSync(join(path, `train.${format}${packed}`))),
    );
    if (split !== undefined) return split;
    if (!readdirSync(path).some((name) => isVisible(name) && statSync(join(path, name)).isDirectory()))
      throw new DataError(
        `${path} has neither a training split (train.csv, train.jsonl, train.parquet) nor one folder per class; name a file in it?`,
      );
    return "folder";
  }
  const format = endings[extname(path.toLowerCase().replace(/\.gz$/, ""))];
  if (format === undefined)
    throw new DataError(`${path}: data sets are files that end in ${Object.keys(endings).join(", ")}, or folders`);
  return format;
}

/** Rows, one at a time: a file of many is never held as objects. */
type Rows = Iterable<Row> | AsyncIterable<Row>;

/** Every row of a source without a test split that belongs to a split. */
async function* shareOf(rows: Rows, split: DatasetSplit): AsyncGenerator<Row> {
  let at = 0;
  for await (const row of rows) if (isTestRow(at++) === (split === "test")) yield row;
}

/** Rows of a split, in the order of the files. */
function rowsOf(data: OwnData, split: DatasetSplit): { rows: Rows; path: string } {
  const { format, path } = data;
  if (!existsSync(path)) throw new DataError(`data.path: ${path} does not exist`);
  const isFolder = statSync(path).isDirectory();
  if (format === "folder") {
    if (!isFolder) throw new DataError(`data.path: ${path} is a file; dataset folder needs one folder per class`);
    const tree = join(path, split);
    return existsSync(tree) ? { rows: folderRows(tree), path: tree } : { rows: shareOf(folderRows(path), split), path };
  }
  const candidates = ["", ".gz"].map((packed) => join(path, `${split}.${format}${packed}`));
  const file = isFolder ? candidates.find((name) => existsSync(name)) : path;
  if (file === undefined)
    throw new DataError(`data.path: ${path} has no ${candidates.map((name) => basename(name)).join(" or ")}`);
  const raw = readWhole(file);
  let bytes = raw;
  try {
    if (file.endsWith(".gz")) bytes = gunzipSync(raw, { maxOutputLength: 2 ** 32 });
  } catch (error) {
    throw new DataError(`${file}: damaged or cut off (${(error as Error).message})`);
  }
  if (format !== "parquet") checkText(bytes, file);
  const rows = readers[format](data, bytes, file);
  return { rows: isFolder ? rows : shareOf(rows, split), path: file };
}

/** The classes of training rows: numbers by value, names by alphabet. */
function classesOf(found: string[], rows: number, path: string): string[] {
  const isNumeric = found.every((label) => /^-?\d+(\.\d+)?$/.test(label));
  found.sort(isNumeric ? (a, b) => Number(a) - Number(b) : undefined);
  if (rows === 0) throw new DataError(`${path}: the data set is empty; there is nothing to train on`);
  if (found.length < 2) throw new DataError(`${path}: all rows have the class "${found[0]}"; a classifier needs two`);
  if (found.length > mostClasses || (rows >= 20 && found.length > rows / 2))
    throw new DataError(
      `${path}: the label has ${found.length} different values in ${rows} rows (${listSome(found, 4)}); is data.label the right column?`,
    );
  return found;
}

/** Reads the training rows: their classes, and a table of them if it is wanted, with the numbers of the classes. */
async function readTraining(
  { rows, path }: { rows: Rows; path: string },
  keeps: boolean,
): Promise<{ classes: string[]; table: TextTable }> {
  const seen = new Map<string, number>();
  const table = new TableBuilder();
  let count = 0;
  for await (const { label, parts, where } of rows) {
    if (label === "") throw new DataError(`${where}: the class is empty; correct or remove this row`);
    if (!seen.has(label)) seen.set(label, seen.size);
    if (keeps) table.add(seen.get(label) as number, parts);
    count++;
  }
  const classes = classesOf([...seen.keys()], count, path);
  const built = table.build();
  // Rows have the numbers of first sight; classes have an order.
  const places = new Map(classes.map((name, i) => [name, i]));
  const numbers = [...seen.keys()].map((name) => places.get(name) as number);
  return { classes, table: { ...built, labels: built.labels.map((first) => numbers[first]) } };
}

/** Reads the rows of another split, whose classes are those of the training rows. */
async function readOther({ rows, path }: { rows: Rows; path: string }, classes: string[]): Promise<TextTable> {
  const numbers = new Map(classes.map((name, i) => [name, i]));
  const table = new TableBuilder();
  for await (const { label, parts, where } of rows) {
    const number = numbers.get(label);
    if (number === undefined)
      throw new DataError(
        `${where}: the class "${label.slice(0, 40)}" is not in the training rows, which have: ${listSome(classes)}`,
      );
    table.add(number, parts);
  }
  if (table.rows === 0) throw new DataError(`${path}: the test split is empty`);
  return table.build();
}

/** A split of an own data set. The classes are those of its training rows. */
export async function ownSplit(data: OwnData, split: DatasetSplit): Promise<DatasetSource> {
  const training = rowsOf(data, "train");
  const { classes, table } = await readTraining(training, split === "train");
  const { rows, path } = split === "train" ? training : rowsOf(data, split);
  const built = split === "train" ? table : await readOther({ rows, path }, classes);
  const hash = createHash("sha256").update(JSON.stringify(classes));
  for (const number of built.labels) hash.update(`${number}:`);
  hash.update(built.bytes).update(Buffer.from(built.offsets.buffer));
  return { dataset: data.format, split, path, sha256: hash.digest("hex"), classes, read: async () => built };
}
