// A CSV reader over bytes: quoted fields with embedded commas, quotes and newlines (RFC 4180). A row that is not well
// formed is an error with its line, never a guess.
import { DataError } from "./table.js";

const quote = 0x22;
const comma = 0x2c;
const newline = 0x0a;
const carriageReturn = 0x0d;

export interface CsvRow {
  fields: Buffer[];
  /** Where the row starts, from 1. */
  line: number;
}

const doubled = /""/g;
const unescape = (field: Buffer): Buffer => Buffer.from(field.toString("latin1").replace(doubled, '"'), "latin1");

/** The rows of a file; `columns` fields in each. Empty lines are passed over. */
export function* readCsv(bytes: Buffer, file: string, columns: number): Generator<CsvRow> {
  // A byte-order mark is no part of the first field.
  let at = bytes.length >= 3 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  let line = 1;
  const end = bytes.length;
  while (at < end) {
    const start = line;
    const fields: Buffer[] = [];
    for (;;) {
      if (bytes[at] === quote) {
        const opened = line;
        const first = ++at;
        let escaped = false;
        for (;;) {
          if (at >= end)
            throw new DataError(`${file}:${opened}: a quoted field starts here and never ends; close it with a quote`);
          const c = bytes[at];
          if (c === newline) line++;
          else if (c === quote) {
            if (bytes[at + 1] !== quote) break;
            escaped = true;
            at++;
          }
          at++;
        }
        const field = bytes.subarray(first, at++);
        fields.push(escaped ? unescape(field) : field);
        if (at < end && bytes[at] !== comma && bytes[at] !== newline && bytes[at] !== carriageReturn)
          throw new DataError(
            `${file}:${line}: field ${fields.length} goes on after its closing quote; a quote inside a field is written twice ("")`,
          );
      } else {
        const first = at;
        while (at < end && bytes[at] !== comma && bytes[at] !== newline && bytes[at] !== carriageReturn) at++;
        fields.push(bytes.subarray(first, at));
      }
      if (bytes[at] !== comma || at >= end) break;
      at++;
    }
    if (bytes[at] === carriageReturn) at++;
    if (at < end && bytes[at] !== newline)
      throw new DataError(`${file}:${line}: a carriage return in the middle of an unquoted field; quote the field`);
    at++;
    line++;
    if (fields.length === 1 && fields[0].length === 0) continue;
    if (fields.length !== columns)
      throw new DataError(
        `${file}:${start}: ${fields.length} columns where ${columns} are expected; correct or remove this row`,
      );
    yield { fields, line: start };
  }
}
