// A progress line on a terminal, and nothing at all where standard error is not one. Knows no command.

export class Progress {
  private readonly stream = process.stderr;
  private readonly shown = Boolean(process.stderr.isTTY);
  private last = 0;
  private started = Date.now();

  /** `done` of `total`; `what` says of what. Redrawn at most ten times a second. */
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

  /** A line of its own for something that has no measurable end. */
  note(text: string): void {
    if (this.shown) this.stream.write(`\r\u001b[2K${text.slice(0, (this.stream.columns ?? 80) - 1)}`);
  }

  clear(): void {
    if (this.shown) this.stream.write("\r\u001b[2K");
    this.started = Date.now();
  }
}
