// Progress on standard error: one line that is redrawn on a terminal; elsewhere a line every few seconds, so that logs show
// that work goes on. Standard output is for results.
import { flag } from "@weft/core/internal/settings";
import { plainText } from "@weft/formats/text";
import { paint } from "./paint.js";

/** Whether lines appear where standard error is not a terminal. */
export const progressSetting = flag("WEFT_PROGRESS", true, {
  summary: "Progress of long work on standard error, also where that is not a terminal.",
});

/** Work that is shorter than this is not reported where lines stay. */
const silentMs = 2000;
const betweenLinesMs = 5000;
const erase = "\r\u001b[2K";

/** 75 -> "1 min 15 s". */
export function showSeconds(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export class ProgressLine {
  private last = 0;
  private started = Date.now();
  private drawn = false;

  constructor(
    private readonly stream: NodeJS.WriteStream = process.stderr,
    private readonly shown = progressSetting.get(),
  ) {}

  /** Shows `done` of `total` with the time that is left; redrawn at most ten times per second. */
  update(what: string, done: number, total: number): void {
    const share = total > 0 ? Math.min(1, done / total) : 0;
    const seconds = (Date.now() - this.started) / 1000;
    const left = share > 0.02 && share < 1 ? `, ${showSeconds((seconds * (1 - share)) / share)} left` : "";
    const width = 24;
    const filled = Math.round(share * width);
    const bar = `[${"#".repeat(filled)}${".".repeat(width - filled)}] `;
    this.#show(what, (isTerminal) => `${isTerminal ? bar : ""}${(share * 100).toFixed(0)}%${left}`, done >= total);
  }

  /** Shows a text for work without a known length. */
  note(text: string): void {
    this.#show(text, () => showSeconds((Date.now() - this.started) / 1000), true);
  }

  #show(what: string, end: (isTerminal: boolean) => string, force: boolean): void {
    const now = Date.now();
    if (!this.shown) return;
    if (this.stream.isTTY) {
      if (now - this.last < 100 && !force) return;
      this.last = now;
      const text = plainText(`${what} ${end(true)}`);
      this.stream.write(`${erase}${paint.dim(text.slice(0, (this.stream.columns ?? 80) - 1), this.stream)}`);
      this.drawn = true;
    } else if (now - this.started >= silentMs && now - this.last >= betweenLinesMs) {
      this.last = now;
      this.stream.write(plainText(`weft: ${what}: ${end(false)}\n`));
    }
  }

  /** Removes the line and starts the clock again. */
  clear(): void {
    if (this.drawn) this.stream.write(erase);
    this.drawn = false;
    this.started = Date.now();
  }
}

/** Shows which program is being compiled while `listeners` report it. Returns the function that ends this. */
export function showCompiling(listeners: Set<(event: "start" | "end") => void>): () => void {
  const progress = new ProgressLine();
  let [programs, running] = [0, 0];
  const listener = (event: "start" | "end"): void => {
    running += event === "start" ? 1 : -1;
    if (event === "start") progress.note(`compiling program ${++programs} (later runs use the cache)`);
    else if (running === 0 && process.stderr.isTTY) progress.clear();
  };
  listeners.add(listener);
  return () => void listeners.delete(listener);
}
