// Writes the tape: JSON lines, collected and written in pieces, so that recording does not wait for the disk.
import { appendFileSync, writeFileSync } from "node:fs";

/** Lines that are collected before they are written. */
const batch = 256;

export class TapeWriter {
  #lines: string[] = [];
  #timer: NodeJS.Timeout | null = null;

  private constructor(readonly path: string) {
    writeFileSync(path, `${JSON.stringify({ type: "tape", version: 1, clock: "unix microseconds of each worker" })}\n`);
    process.once("exit", () => this.flush());
  }

  static #current: TapeWriter | null = null;

  /** The tape of this process: WEFT_TAPE, or the file given; null without either. */
  static open(path = process.env.WEFT_TAPE): TapeWriter | null {
    if (path === undefined || path === "") return null;
    if (TapeWriter.#current?.path !== path) TapeWriter.#current = new TapeWriter(path);
    return TapeWriter.#current;
  }

  write(records: readonly unknown[]): void {
    for (const record of records) this.#lines.push(JSON.stringify(record));
    if (this.#lines.length >= batch) this.flush();
    else if (this.#timer === null) {
      this.#timer = setTimeout(() => this.flush(), 200);
      this.#timer.unref();
    }
  }

  flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#lines.length === 0) return;
    appendFileSync(this.path, `${this.#lines.join("\n")}\n`);
    this.#lines = [];
  }
}
