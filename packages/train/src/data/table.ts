// Texts with their classes as one block of UTF-8 bytes and an array of offsets, instead of one string per text.
import { WeftError } from "@weft/core/internal/graph";

/** A data set is invalid; the message names the file, the row and the remedy. */
export class DataError extends WeftError {
  override name = "DataError";
}

/** Texts with their classes. */
export interface TextTable {
  /** Number of rows. */
  readonly rows: number;
  /** All texts in UTF-8, one after the other. */
  readonly bytes: Buffer;
  /** Row i is bytes[offsets[i]] to bytes[offsets[i + 1]]. */
  readonly offsets: Uint32Array;
  /** Class of each row. */
  readonly labels: Int32Array;
}

/** Maximum bytes of text: 32-bit offsets. */
const mostBytes = 2 ** 32 - 1;

/** Builds a table of texts. */
export class TableBuilder {
  #bytes = Buffer.allocUnsafe(1 << 20);
  #used = 0;
  #offsets: number[] = [0];
  #labels: number[] = [];

  /** Number of rows so far. */
  get rows(): number {
    return this.#labels.length;
  }

  /** Appends a row: the parts joined by a space. */
  add(label: number, parts: readonly (Buffer | string)[]): void {
    parts.forEach((part, i) => {
      if (i > 0) this.#append(space);
      this.#append(typeof part === "string" ? Buffer.from(part, "utf8") : part);
    });
    this.#offsets.push(this.#used);
    this.#labels.push(label);
  }

  #append(part: Buffer): void {
    const wanted = this.#used + part.length;
    if (wanted > mostBytes) throw new DataError("a data set holds at most 4 GiB of text");
    if (wanted > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.min(mostBytes, Math.max(wanted, 2 * this.#bytes.length)));
      this.#bytes.copy(larger, 0, 0, this.#used);
      this.#bytes = larger;
    }
    part.copy(this.#bytes, this.#used);
    this.#used = wanted;
  }

  /** Returns the table. */
  build(): TextTable {
    return {
      rows: this.rows,
      bytes: this.#bytes.subarray(0, this.#used),
      offsets: Uint32Array.from(this.#offsets),
      labels: Int32Array.from(this.#labels),
    };
  }
}

const space = Buffer.from(" ");

/** The text of one row. */
export const textOf = (table: TextTable, row: number): string =>
  table.bytes.toString("utf8", table.offsets[row], table.offsets[row + 1]);
