// Labeled texts from CSV, JSON lines and Parquet.
import { isUtf8 } from "node:buffer";
import { readFile, stat } from "node:fs/promises";
import * as zlib from "node:zlib";
import { checkOptions } from "@weft/core/internal/graph";
import { readCsv, separatorOf } from "@weft/formats/csv";
import { ParquetError, readParquet } from "@weft/formats/parquet";
import { ModelError } from "../config/index.js";

/** One labeled text. */
export interface LabeledText {
  /** The text. */
  text: string;
  /** Second text of a pair. */
  pair?: string;
  /** Name of the class, or a number; absent in texts for language models. */
  label?: string;
  /** Several labels: a list of the file, or the values of the columns that are named. */
  labels?: readonly string[];
  /** Words with their tags, of texts for token classification; `text` is the words with spaces between them. */
  words?: readonly string[];
  /** One tag per word. */
  tags?: readonly string[];
}

const maxBytes = 2 ** 31;
/** Usual names of columns, by which a header is recognized. */
const labelNames = ["label", "labels", "class", "category", "target", "sentiment"];
const textNames = ["text", "texts", "sentence", "review", "content", "body", "document"];
/** Keys of the lists of words and tags. */
const wordNames = ["tokens", "words"];
const tagNames = ["tags", "ner_tags", "pos_tags", "labels"];

/** Columns of a file, by name. */
export interface TextColumns {
  /** Columns of the text, joined by spaces. By default the one with a usual name. */
  text?: string | readonly string[];
  /** Column of the second text, for pairs of texts. */
  pair?: string;
  /** Column of the label, by default the one with a usual name; or columns of one number each. */
  label?: string | readonly string[];
}

/** Unpacks a file by its ending. */
function unpacked(stored: Buffer, path: string): Buffer {
  const unpackZstd = (zlib as { zstdDecompressSync?: typeof zlib.gunzipSync }).zstdDecompressSync;
  try {
    if (path.endsWith(".gz")) return zlib.gunzipSync(stored, { maxOutputLength: maxBytes });
    if (path.endsWith(".zst") && unpackZstd !== undefined) return unpackZstd(stored, { maxOutputLength: maxBytes });
  } catch (error) {
    throw new ModelError(`${path}: cannot be unpacked: ${(error as Error).message}`);
  }
  if (path.endsWith(".zst"))
    throw new ModelError(`${path}: zstd needs Node 22.15 or newer; unpack it first (zstd -d), or pack it with gzip`);
  return stored;
}

/**
 * Reads texts: `.jsonl` and `.parquet` (rows with `text` and `label`, or with lists `tokens` and `tags`), or `.csv` and `.tsv` (with a header,
 * or a label and then one or more fields of text), each optionally packed by gzip or zstd.
 *
 * @param columns - Names of the columns, if they have no usual names.
 */
export async function readTexts(path: string, columns: TextColumns = {}): Promise<LabeledText[]> {
  checkOptions("readTexts", columns, ["text", "pair", "label"]);
  const found = await stat(path).catch(() => null);
  if (found === null || !found.isFile())
    throw new ModelError(
      `${path}: there is no such file; give a .csv, .jsonl or .parquet file (weft data get fetches AG News and IMDB)`,
    );
  if (found.size > maxBytes) throw new ModelError(`${path}: has ${found.size} bytes; at most ${maxBytes} are read`);
  const bytes = unpacked(await readFile(path), path);
  const kind = /\.(\w+?)(\.gz|\.zst)?$/.exec(path.toLowerCase())?.[1] ?? "";
  const names = { ...columns, text: typeof columns.text === "string" ? [columns.text] : columns.text };
  let rows: LabeledText[];
  if (kind === "parquet") rows = await fromParquet(bytes, path, names);
  else {
    // Other encodings would be trained on as characters that nobody wrote.
    if (!isUtf8(bytes)) throw new ModelError(`${path}: is not text in UTF-8; convert it first with iconv`);
    rows = kind === "csv" || kind === "tsv" ? fromCsv(bytes, path, names) : fromLines(bytes, path, names);
  }
  if (rows.length === 0) throw new ModelError(`${path}: holds no text; expected one text per row`);
  return rows;
}

interface Columns {
  text?: readonly string[] | undefined;
  pair?: string;
  label?: string | readonly string[];
}

function fromCsv(bytes: Buffer, path: string, columns: Columns): LabeledText[] {
  const read = readCsv(bytes, path, undefined, separatorOf(bytes));
  const lines = [...read].map(({ fields, line }) => ({ fields: fields.map((field) => field.toString("utf8")), line }));
  const ragged = lines.find(({ fields }) => fields.length !== lines[0].fields.length);
  if (ragged !== undefined)
    throw new ModelError(
      `${path}:${ragged.line}: has ${ragged.fields.length} fields, the first row ${lines[0].fields.length}; correct or remove this row`,
    );
  const rows = lines.map(({ fields }) => fields);
  const names = rows[0]?.map((name) => name.trim()) ?? [];
  const header = names.map((name) => name.toLowerCase());
  const find = (wanted: string): number => {
    const at = names.indexOf(wanted);
    if (at < 0)
      throw new ModelError(`${path}: has no column ${JSON.stringify(wanted)}; its first row is ${names.join(", ")}`);
    return at;
  };
  const usual = (known: readonly string[]): number => {
    const at = header.findIndex((name) => known.includes(name));
    if (at >= 0 && header.indexOf(header[at], at + 1) >= 0)
      throw new ModelError(`${path}: has two columns ${JSON.stringify(names[at])}; rename or remove one`);
    return at;
  };
  const several = typeof columns.label === "object" ? columns.label.map(find) : null;
  const label = several !== null ? -1 : columns.label === undefined ? usual(labelNames) : find(columns.label as string);
  const pair = columns.pair === undefined ? -1 : find(columns.pair);
  const text = columns.text === undefined ? [usual(textNames)].filter((at) => at >= 0) : columns.text.map(find);
  const named = rows.slice(1);
  // Of two columns, one usual name says which one the other is. Of more, no other column is taken for the label.
  const other = header.length === 2 && text.length === 1 ? 1 - text[0] : -1;
  const labels = several !== null ? -1 : label >= 0 ? label : other;
  if (text.length > 0)
    return named.map((row) => ({
      text: text.map((at) => row[at]).join(" "),
      ...(pair >= 0 && { pair: row[pair] }),
      ...(labels >= 0 && { label: row[labels].trim() }),
      ...(several !== null && { labels: several.map((at) => row[at].trim()) }),
    }));
  if (several !== null || pair >= 0)
    throw new ModelError(`${path}: no column has a usual name of a text (${textNames.join(", ")}); name it by text`);
  if (label >= 0) return named.map((row) => ({ label: row[label].trim(), text: row.toSpliced(label, 1).join(" ") }));
  const [first, ...others] = rows.map(([name]) => name);
  const isRepeated = new Set(others).size < others.length;
  if (isRepeated && !others.includes(first))
    throw new ModelError(
      `${path}: ${JSON.stringify(first)}, the class of the first row, occurs once: is this row a header (${names.join(", ")})? Then name the columns text and label, in the file or by the keys text and label; else add a header`,
    );
  return rows.map(([name, ...rest], i) => {
    if (rest.length === 0) throw new ModelError(`${path}: row ${i + 1} has one field; it needs a label and a text`);
    return { label: name.trim(), text: rest.join(" ") };
  });
}

function fromLines(bytes: Buffer, path: string, columns: Columns): LabeledText[] {
  const rows: LabeledText[] = [];
  // Line by line: the text of a whole file may be longer than any string.
  for (let start = 0, line = 1; start < bytes.length; line++) {
    const found = bytes.indexOf(0x0a, start);
    const end = found < 0 ? bytes.length : found;
    const text = bytes.toString("utf8", start, end).replace(line === 1 ? /^\ufeff/ : /^$/, "");
    start = end + 1;
    if (text.trim() !== "")
      rows.push(fromObject(parsedLine(text, `${path}: line ${line}`), `${path}: line ${line}`, columns));
  }
  return rows;
}

function parsedLine(line: string, where: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    throw new ModelError(`${where} is not JSON; each line of the file is one object with text and label`);
  }
}

async function fromParquet(bytes: Buffer, path: string, columns: Columns): Promise<LabeledText[]> {
  const rows: LabeledText[] = [];
  try {
    for await (const row of readParquet(bytes, path))
      rows.push(fromObject(row, `${path}: row ${rows.length}`, columns));
  } catch (error) {
    throw error instanceof ParquetError ? new ModelError(error.message) : error;
  }
  return rows;
}

/** The value of a key of its own, if the row has it. */
const own = (row: object, name: string): unknown =>
  Object.hasOwn(row, name) ? (row as Record<string, unknown>)[name] : undefined;

function fromObject(parsed: unknown, where: string, columns: Columns): LabeledText {
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed))
    throw new ModelError(
      `${where} is not an object with text and label${Array.isArray(parsed) ? "; write one object per line (jq -c '.[]')" : ""}`,
    );
  const row = parsed;
  const listOf = (names: readonly string[]): unknown[] | null => {
    const found = names.map((name) => own(row, name)).find((value) => Array.isArray(value));
    return (found as unknown[] | undefined) ?? null;
  };
  const words = listOf(wordNames);
  if (columns.text === undefined && words !== null && typeof own(row, "text") !== "string")
    return taggedWords(words, listOf(tagNames), where);
  const names = columns.text ?? [textNames.find((name) => typeof own(row, name) === "string") ?? "text"];
  const parts = names.map((name) => {
    const part = own(row, name);
    if (typeof part === "string") return part;
    throw new ModelError(
      `${where} has no text: the key ${JSON.stringify(name)} is missing or not a string (its keys are ${Object.keys(row).slice(0, 20).join(", ")})`,
    );
  });
  const text = {
    text: parts.join(" "),
    ...(columns.pair !== undefined && { pair: secondText(row, columns.pair, where) }),
  };
  if (typeof columns.label === "object")
    return { ...text, labels: columns.label.map((name) => labelName(own(row, name), `${where}: ${name}`)) };
  const key = (columns.label as string | undefined) ?? labelNames.find((name) => own(row, name) != null) ?? "label";
  const label = own(row, key);
  if (label === undefined || label === null) return text;
  if (Array.isArray(label)) return { ...text, labels: label.map((one) => labelName(one, where)) };
  return { ...text, label: typeof label === "boolean" ? String(label) : labelName(label, where) };
}

/** A label as text: 1 for true and 0 for false. */
function labelName(label: unknown, where: string): string {
  if (label === undefined || label === null || typeof label === "object")
    throw new ModelError(`${where} has the label ${JSON.stringify(label)?.slice(0, 40)}; it is a name or a number`);
  return typeof label === "boolean" ? String(Number(label)) : String(label).trim();
}

function secondText(row: object, name: string, where: string): string {
  const text = own(row, name);
  if (typeof text === "string") return text;
  throw new ModelError(
    `${where} has no second text: the key ${JSON.stringify(name)} is missing or not a string (its keys are ${Object.keys(row).slice(0, 20).join(", ")})`,
  );
}

function taggedWords(words: readonly unknown[], tags: readonly unknown[] | null, where: string): LabeledText {
  const wrong = words.findIndex((word) => typeof word !== "string" || word.trim() === "");
  if (wrong >= 0 || words.length === 0)
    throw new ModelError(
      `${where}: word ${wrong + 1} is ${JSON.stringify(words[wrong]) ?? "missing"}; words are texts`,
    );
  if (tags?.length !== words.length)
    throw new ModelError(
      `${where} has ${words.length} words and ${tags?.length ?? "no"} tags (${tagNames.join(", ")})`,
    );
  const isName = (tag: unknown): boolean =>
    (typeof tag === "string" && tag !== "") || Number.isInteger(tag) || typeof tag === "bigint";
  const odd = tags.findIndex((tag) => !isName(tag));
  if (odd >= 0)
    throw new ModelError(`${where}: tag ${odd + 1} is ${JSON.stringify(tags[odd])}; tags are names or whole numbers`);
  return { text: words.join(" "), words: words as string[], tags: tags.map(String) };
}
