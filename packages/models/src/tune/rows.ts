// Labeled texts from CSV and JSON lines.
import { readFile, stat } from "node:fs/promises";
import { gunzipSync } from "node:zlib";
import { readCsvText } from "@weft/formats/csv";
import { ModelError } from "../config/index.js";

/** One labeled text. */
export interface LabeledText {
  text: string;
  /** Name of the class; absent in texts for language models. */
  label?: string;
}

const maxBytes = 2 ** 31;
/** Usual names of columns, by which a header is recognized. */
const labelNames = ["label", "labels", "class", "category", "target", "sentiment"];
const textNames = ["text", "texts", "sentence", "review", "content", "body", "document"];

/**
 * Reads `.jsonl` (objects with `text` and `label`) or `.csv` (label, then one or more fields of text; a header with a usual name
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
  const rows = /\.csv(\.gz)?$/.test(path) ? fromCsv(bytes, path) : fromLines(bytes, path);
  if (rows.length === 0) throw new ModelError(`${path}: holds no text`);
  return rows;
}

function fromCsv(bytes: Buffer, path: string): LabeledText[] {
  const rows = [...readCsvText(bytes, path)].map(({ fields }) => fields);
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
  return bytes
    .toString("utf8")
    .replace(/^\ufeff/, "")
    .split("\n")
    .flatMap((line, i) => {
      if (line.trim() === "") return [];
      let parsed: { text?: unknown; label?: unknown };
      try {
        parsed = JSON.parse(line) as typeof parsed;
      } catch {
        throw new ModelError(`${path}: line ${i + 1} is not JSON`);
      }
      if (typeof parsed?.text !== "string") throw new ModelError(`${path}: line ${i + 1} has no text`);
      const { text, label } = parsed;
      if (label === undefined || label === null) return [{ text }];
      if (typeof label === "object")
        throw new ModelError(
          `${path}: line ${i + 1} has the label ${JSON.stringify(label).slice(0, 40)}; it is a name`,
        );
      return [{ text, label: String(label) }];
    });
}
