// Reads and writes CSV (RFC 4180): quoted fields may contain separators, quotes and newlines. A malformed row is an error that
// names its line.
import { plainText } from "./text.js";

const quote = 0x22;
const comma = 0x2c;
const newline = 0x0a;
const carriageReturn = 0x0d;

/** One row of a CSV file; its fields are bytes (`readCsv`) or text (`readCsvText`). */
export interface CsvRow<T = Buffer> {
  fields: T[];
  /** Line on which the row starts, from 1. */
  line: number;
  /** False for a last row without a newline: its writer may have been interrupted. */
  complete: boolean;
}

/** A malformed CSV file; the message names the file, the line and the remedy. */
export class CsvError extends Error {
  override name = "CsvError";
}

const isLineEnd = (byte: number): boolean => byte === newline || byte === carriageReturn;
const doubled = /""/g;

/** Takes a field out of the file; `escaped` says that it contains doubled quotes. */
type TakeField<T> = (bytes: Buffer, start: number, end: number, escaped: boolean) => T;

const takeBytes: TakeField<Buffer> = (bytes, start, end, escaped) => {
  const field = bytes.subarray(start, end);
  return escaped ? Buffer.from(field.toString("latin1").replace(doubled, '"'), "latin1") : field;
};

const takeText: TakeField<string> = (bytes, start, end, escaped) => {
  const field = bytes.toString("utf8", start, end);
  return escaped ? field.replace(doubled, '"') : field;
};

/** Number of fields that every row must have: a number, or that of the first row. */
type Columns = number | "as the first row";

/**
 * Yields the rows of a file as bytes; empty lines are skipped.
 *
 * @param file Name of the file in errors.
 * @param columns Number of fields that every row must have; omitted: any.
 * @param separator What stands between fields; a comma by default.
 */
export function readCsv(bytes: Buffer, file: string, columns?: Columns, separator?: string): Generator<CsvRow> {
  return readRows(bytes, file, columns, takeBytes, separator?.charCodeAt(0));
}

/** What separates the fields of a file, by its first line: a comma, or where that has none, a semicolon or a tab. */
export function separatorOf(bytes: Buffer): "," | ";" | "\t" {
  const found = new Set<number>();
  let isQuoted = false;
  for (const byte of bytes) {
    if (byte === quote) isQuoted = !isQuoted;
    else if (!isQuoted && isLineEnd(byte)) break;
    else if (!isQuoted) found.add(byte);
  }
  return ([",", ";", "\t"] as const).find((separator) => found.has(separator.charCodeAt(0))) ?? ",";
}

/** Yields the rows of a file as text; otherwise like `readCsv`. */
export function readCsvText(bytes: Buffer, file: string, columns?: number): Generator<CsvRow<string>> {
  return readRows(bytes, file, columns, takeText);
}

function* readRows<T>(
  bytes: Buffer,
  file: string,
  columns: Columns | undefined,
  take: TakeField<T>,
  separator = comma,
): Generator<CsvRow<T>> {
  let expected = columns;
  // A byte-order mark is not part of the first field.
  let at = bytes.length >= 3 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  let line = 1;
  const end = bytes.length;
  while (at < end) {
    const start = line;
    const rowStart = at;
    const fields: T[] = [];
    for (;;) {
      if (bytes[at] === quote) {
        const opened = line;
        const first = ++at;
        let escaped = false;
        for (;;) {
          if (at >= end)
            throw new CsvError(`${file}:${opened}: a quoted field starts here and never ends; close it with a quote`);
          const c = bytes[at];
          if (c === newline) line++;
          else if (c === quote) {
            if (bytes[at + 1] !== quote) break;
            escaped = true;
            at++;
          }
          at++;
        }
        fields.push(take(bytes, first, at++, escaped));
        if (at < end && bytes[at] !== separator && bytes[at] !== newline && bytes[at] !== carriageReturn)
          throw new CsvError(
            `${file}:${line}: field ${fields.length} goes on after its closing quote; a quote inside a field is written twice ("")`,
          );
      } else {
        const first = at;
        while (at < end && bytes[at] !== separator && bytes[at] !== newline && bytes[at] !== carriageReturn) at++;
        fields.push(take(bytes, first, at, false));
      }
      if (bytes[at] !== separator || at >= end) break;
      at++;
    }
    if (bytes[at] === carriageReturn) at++;
    if (at < end && bytes[at] !== newline)
      throw new CsvError(`${file}:${line}: a carriage return in the middle of an unquoted field; quote the field`);
    const complete = at < end;
    at++;
    line++;
    if (isLineEnd(bytes[rowStart])) continue;
    if (expected === "as the first row") expected = fields.length;
    if (expected !== undefined && fields.length !== expected)
      throw new CsvError(
        `${file}:${start}: ${fields.length} columns where ${expected} are expected; correct or remove this row`,
      );
    yield { fields, line: start, complete };
  }
}

/**
 * Formats one cell. Text that a spreadsheet would run as a formula gets a leading apostrophe, and control characters are
 * replaced by their codes; numbers are written as they are.
 */
export function csvCell(value: string | number | boolean | null | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const formula = /^[=+\-@\t\r]/.test(value) && !/^[-+]?(\d[\d.]*(e[-+]?\d+)?)?$/i.test(value);
  const text = plainText(formula ? `'${value}` : value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Formats rows as CSV; `null` becomes an empty cell. Units belong in the header. */
export function formatCsv(header: readonly string[], rows: readonly (readonly (string | number | null)[])[]): string {
  return `${[header, ...rows].map((row) => row.map(csvCell).join(",")).join("\n")}\n`;
}
