// Data sets of the user: a CSV, JSON lines or Parquet file with named columns, or one folder per class. Labels are found in the
// training split and checked in both: every row names a class that training has seen.
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { CsvError, readCsv, separatorOf } from "@weft/formats/csv";
import { closestName, listSome } from "@weft/formats/text";
import type { DatasetSource, DatasetSplit } from "./datasets.js";
import { DataError, TableBuilder } from "./table.js";

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
  /** Columns of the text, joined by spaces; by default all but the label. */
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
  const text = data.text?.map((name) => find(name, "data.text")) ?? names.map((_, i) => i).filter((i) => i !== label);
  if (text.length === 0) throw new DataError(`${path} has no column besides the class "${names[label]}"`);
  return { label, text };
}

function csvRows(data: OwnData, bytes: Buffer, path: string): Row[] {
  try {
    const lines = readCsv(bytes, path, "as the first row", separatorOf(bytes));
    const names: string[] = lines.next().value?.fields.map((field: Buffer) => field.toString("utf8").trim()) ?? [];
    const { label, text } = chooseColumns(data, names, path);
    return Array.from(lines, ({ fields, line }) => ({
      label: fields[label].toString("utf8").trim(),
      parts: text.map((i) => Buffer.from(fields[i])),
      where: `${path}:${line}`,
    }));
  } catch (error) {
    throw error instanceof CsvError ? new DataError(error.message) : error;
  }
}

/** Rows of objects, from JSON lines or Parquet. */
function objectRows(data: OwnData, objects: readonly { value: unknown; where: string }[], path: string): Row[] {
  const first = objects[0]?.value;
  if (typeof first !== "object" || first === null) return [];
  const names = Object.keys(first);
  const { label, text } = chooseColumns(data, names, path);
  return objects.map(({ value, where }) => {
    const row = (value ?? {}) as Record<string, unknown>;
    const parts = text.map((i) => {
      const part = Object.hasOwn(row, names[i]) ? row[names[i]] : undefined;
      if (typeof part !== "string" && typeof part !== "number")
        throw new DataError(`${where}: "${names[i]}" is ${part === undefined ? "missing" : typeof part}, not text`);
      return String(part);
    });
    const given = Object.hasOwn(row, names[label]) ? row[names[label]] : undefined;
    if (typeof given === "object" && given !== null)
      throw new DataError(`${where}: "${names[label]}" is not a name or a number`);
    return { label: given === undefined || given === null ? "" : String(given).trim(), parts, where };
  });
}

function jsonRows(data: OwnData, bytes: Buffer, path: string): Row[] {
  const objects = bytes
    .toString("utf8")
    .replace(/^\ufeff/, "")
    .split("\n")
    .flatMap((text, i) => {
      if (text.trim() === "") return [];
      const where = `${path}:${i + 1}`;
      try {
        const value = JSON.parse(text) as unknown;
        if (typeof value === "object" && value !== null && !Array.isArray(value)) return [{ value, where }];
      } catch (error) {
        throw new DataError(`${where}: not JSON (${(error as Error).message}); correct or remove this row`);
      }
      throw new DataError(`${where}: a row is an object such as {"text": "...", "label": "..."}`);
    });
  return objectRows(data, objects, path);
}

async function parquetRows(data: OwnData, bytes: Buffer, path: string): Promise<Row[]> {
  const { parquetReadObjects } = await import("hyparquet");
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
  try {
    const values: unknown[] = await parquetReadObjects({ file });
    return objectRows(
      data,
      values.map((value, i) => ({ value, where: `${path}: row ${i}` })),
      path,
    );
  } catch (error) {
    if (error instanceof DataError) throw error;
    throw new DataError(`${path}: cannot be read as Parquet: ${(error as Error).message}`);
  }
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

function folderRows(tree: string): Row[] {
  const classes = readdirSync(tree).filter((name) => isVisible(name) && statSync(join(tree, name)).isDirectory());
  // Sorted, because the order of directory listings is not defined.
  return classes.sort().flatMap((name) =>
    readdirSync(join(tree, name))
      .filter(isVisible)
      .sort()
      .map((file) => {
        const path = join(tree, name, file);
        if (!statSync(path).isFile())
          throw new DataError(`${path} is no file; a folder of a class holds one file per text, and no folders`);
        return { label: name, parts: [checkText(readFileSync(path), path)], where: path };
      }),
  );
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
  if (!existsSync(path)) throw new DataError(`${path} does not exist`);
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

/** Rows of a split, in the order of the files. */
async function rowsOf(data: OwnData, split: DatasetSplit): Promise<{ rows: Row[]; path: string }> {
  const { format, path } = data;
  if (!existsSync(path)) throw new DataError(`data.path: ${path} does not exist`);
  const isFolder = statSync(path).isDirectory();
  /** One source for both splits. */
  const share = (rows: Row[]): Row[] => rows.filter((_, i) => isTestRow(i) === (split === "test"));
  if (format === "folder") {
    if (!isFolder) throw new DataError(`data.path: ${path} is a file; dataset folder needs one folder per class`);
    const tree = join(path, split);
    return existsSync(tree) ? { rows: folderRows(tree), path: tree } : { rows: share(folderRows(path)), path };
  }
  const candidates = ["", ".gz"].map((packed) => join(path, `${split}.${format}${packed}`));
  const file = isFolder ? candidates.find((name) => existsSync(name)) : path;
  if (file === undefined)
    throw new DataError(`data.path: ${path} has no ${candidates.map((name) => basename(name)).join(" or ")}`);
  const raw = readFileSync(file);
  let bytes = raw;
  try {
    if (file.endsWith(".gz")) bytes = gunzipSync(raw, { maxOutputLength: 2 ** 32 });
  } catch (error) {
    throw new DataError(`${file}: damaged or cut off (${(error as Error).message})`);
  }
  if (format !== "parquet") checkText(bytes, file);
  const rows = await readers[format](data, bytes, file);
  return { rows: isFolder ? rows : share(rows), path: file };
}

/** The classes of training rows: numbers by value, names by alphabet. */
function classesOf(rows: readonly Row[], path: string): string[] {
  for (const { label, where } of rows)
    if (label === "") throw new DataError(`${where}: the class is empty; correct or remove this row`);
  const found = [...new Set(rows.map(({ label }) => label))];
  const isNumeric = found.every((label) => /^-?\d+(\.\d+)?$/.test(label));
  found.sort(isNumeric ? (a, b) => Number(a) - Number(b) : undefined);
  if (rows.length === 0) throw new DataError(`${path}: the data set is empty; there is nothing to train on`);
  if (found.length < 2) throw new DataError(`${path}: all rows have the class "${found[0]}"; a classifier needs two`);
  if (found.length > mostClasses || (rows.length >= 20 && found.length > rows.length / 2))
    throw new DataError(
      `${path}: the label has ${found.length} different values in ${rows.length} rows (${listSome(found, 4)}); is data.label the right column?`,
    );
  return found;
}

/** A split of an own data set. The classes are those of its training rows. */
export async function ownSplit(data: OwnData, split: DatasetSplit): Promise<DatasetSource> {
  const training = await rowsOf(data, "train");
  const classes = classesOf(training.rows, training.path);
  const { rows, path } = split === "train" ? training : await rowsOf(data, split);
  if (rows.length === 0) throw new DataError(`${path}: the ${split} split is empty`);
  const numbers = new Map(classes.map((name, i) => [name, i]));
  const table = new TableBuilder();
  const hash = createHash("sha256").update(JSON.stringify(classes));
  for (const { label, parts, where } of rows) {
    const number = numbers.get(label);
    if (number === undefined)
      throw new DataError(
        `${where}: the class "${label.slice(0, 40)}" is not in the training rows, which have: ${listSome(classes)}`,
      );
    table.add(number, parts);
    hash.update(`${number}:`);
  }
  const built = table.build();
  hash.update(built.bytes).update(Buffer.from(built.offsets.buffer));
  return { dataset: data.format, split, path, sha256: hash.digest("hex"), classes, read: async () => built };
}
