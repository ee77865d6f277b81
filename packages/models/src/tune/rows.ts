// Labeled texts from CSV and JSON lines.
import { isUtf8 } from "node:buffer";
import { readFile, stat } from "node:fs/promises";
import { gunzipSync } from "node:zlib";
import { readCsvText } from "@weft/formats/csv";
import { ModelError } from "../config/index.js";

/** One labeled text. */
export interface LabeledText {
  text: string;
  /** Name of the class; absent in texts for language models. */
  label?: string;
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

/**
 * Reads `.jsonl` (objects with `text` and `label`, or with lists `tokens` and `tags`) or `.csv` (label, then one or more fields of text; a header with a usual name
 * of the label or the text is recognized), each optionally packed by gzip.
 */
export async function readTexts(path: string): Promise<LabeledText[]> {
  const found = await stat(path).catch(() => null);
  if (found === null || !found.isFile())
    throw new ModelError(
      `${path}: there is no such file; give a .csv or .jsonl file (weft data get fetches AG News and IMDB)`,
    );
  if (found.size > maxBytes) throw new ModelError(`${path}: has ${found.size} bytes; at most ${maxBytes} are read`);
  const stored = await readFile(path);
  const isPacked = path.endsWith(".gz");
  let bytes = stored;
  try {
    if (isPacked) bytes = gunzipSync(stored, { maxOutputLength: maxBytes });
  } catch (error) {
    throw new ModelError(`${path}: cannot be unpacked: ${(error as Error).message}`);
  }
  // Other encodings would be trained on as characters that nobody wrote.
  if (!isUtf8(bytes)) throw new ModelError(`${path}: is not text in UTF-8; convert it first with iconv`);
  const rows = /\.csv(\.gz)?$/.test(path) ? fromCsv(bytes, path) : fromLines(bytes, path);
  if (rows.length === 0) throw new ModelError(`${path}: holds no text; expected one text per row`);
  return rows;
}

function fromCsv(bytes: Buffer, path: string): LabeledText[] {
  const lines = [...readCsvText(bytes, path)];
  const ragged = lines.find(({ fields }) => fields.length !== lines[0].fields.length);
  if (ragged !== undefined)
    throw new ModelError(
      `${path}:${ragged.line}: has ${ragged.fields.length} fields, the first row ${lines[0].fields.length}; correct or remove this row`,
    );
  const rows = lines.map(({ fields }) => fields);
  const header = rows[0]?.map((name) => name.trim().toLowerCase()) ?? [];
  const [label, text] = [labelNames, textNames].map((names) => header.findIndex((name) => names.includes(name)));
  const named = rows.slice(1);
  // Of two columns, one usual name says which one the other is. Of more, no other column is taken for the label.
  const other = header.length === 2 ? 1 - text : -1;
  const labels = label >= 0 ? label : other;
  if (text >= 0)
    return named.map((row) => ({ text: row[text] ?? "", ...(labels >= 0 && { label: row[labels] ?? "" }) }));
  if (label >= 0) return named.map((row) => ({ label: row[label] ?? "", text: row.toSpliced(label, 1).join(" ") }));
  return rows.map(([first, ...rest], i) => {
    if (rest.length === 0) throw new ModelError(`${path}: row ${i + 1} has one field; it needs a label and a text`);
    return { label: first, text: rest.join(" ") };
  });
}

function fromLines(bytes: Buffer, path: string): LabeledText[] {
  const rows: LabeledText[] = [];
  // Line by line: the text of a whole file may be longer than any string.
  for (let start = 0, line = 1; start < bytes.length; line++) {
    const found = bytes.indexOf(0x0a, start);
    const end = found < 0 ? bytes.length : found;
    const text = bytes.toString("utf8", start, end).replace(line === 1 ? /^\ufeff/ : /^$/, "");
    start = end + 1;
    if (text.trim() !== "") rows.push(fromLine(text, `${path}: line ${line}`));
  }
  return rows;
}

function fromLine(line: string, where: string): LabeledText {
  let parsed: Record<string, unknown>;
  try {
    parsed = JSON.parse(line) as typeof parsed;
  } catch {
    throw new ModelError(`${where} is not JSON; each line of the file is one object with text and label`);
  }
  const listOf = (names: readonly string[]): unknown[] | null => {
    const found = names.map((name) => parsed?.[name]).find((value) => Array.isArray(value));
    return (found as unknown[] | undefined) ?? null;
  };
  const words = listOf(wordNames);
  if (words !== null && typeof parsed["text"] !== "string") return taggedWords(words, listOf(tagNames), where);
  if (typeof parsed?.["text"] !== "string")
    throw new ModelError(`${where} has no text: the key "text" is missing or not a string`);
  const { text, label } = parsed as { text: string; label?: unknown };
  if (label === undefined || label === null) return { text };
  if (typeof label === "object")
    throw new ModelError(`${where} has the label ${JSON.stringify(label).slice(0, 40)}; it is a name`);
  return { text, label: String(label) };
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
  const odd = tags.findIndex((tag) => (typeof tag !== "string" || tag === "") && !Number.isInteger(tag));
  if (odd >= 0)
    throw new ModelError(`${where}: tag ${odd + 1} is ${JSON.stringify(tags[odd])}; tags are names or whole numbers`);
  return { text: words.join(" "), words: words as string[], tags: tags.map(String) };
}
