// A progress line on standard error; nothing when it is not a terminal.

export class ProgressLine {
  private readonly stream = process.stderr;
  private readonly shown = Boolean(process.stderr.isTTY);
  private last = 0;
  private started = Date.now();

  /** Shows `done` of `total`; redrawn at most ten times per second. */
  update(what: string, done: number, total: number): void {
    if (!this.shown) return;
    const now = Date.now();
    if (now - this.last < 100 && done < total) return;
    this.last = now;
    const share = total > 0 ? Math.min(1, done / total) : 0;
    const width = 24;
    const filled = Math.round(share * width);
    const seconds = (now - this.started) / 1000;
    const left = share > 0.02 && share < 1 ? `  ${((seconds * (1 - share)) / share).toFixed(0)} s left` : "";
    const text = `${what} [${"#".repeat(filled)}${".".repeat(width - filled)}] ${(share * 100).toFixed(0)}%${left}`;
    this.stream.write(`\r\u001b[2K${text.slice(0, (this.stream.columns ?? 80) - 1)}`);
  }

  /** Shows a text for work without a known length. */
  note(text: string): void {
    if (this.shown) this.stream.write(`\r\u001b[2K${text.slice(0, (this.stream.columns ?? 80) - 1)}`);
  }

  clear(): void {
    if (this.shown) this.stream.write("\r\u001b[2K");
    this.started = Date.now();
  }
}
