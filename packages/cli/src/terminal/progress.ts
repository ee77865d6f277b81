// Progress on standard error: one line that is redrawn on a terminal; elsewhere a line every few seconds, so that logs show
// that work goes on. Standard output is for results.
import { flagSetting } from "@weft/core/internal/settings";
import { plainText } from "@weft/formats/text";
import { paint, widthOf } from "./paint.js";

/** Whether lines appear where standard error is not a terminal. */
export const progressSetting = flagSetting("WEFT_PROGRESS", true, {
  summary: "Progress of long work on standard error, also where that is not a terminal.",
});

/** Work that is shorter than this is not reported where lines stay. */
const silentMs = 2000;
const betweenLinesMs = 5000;
const erase = "\r\u001b[2K";

/** 75 -> "1 min 15 s". */
export function durationText(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Between redraws of work that reports nothing, so that its clock goes on. */
const tickMs = 1000;

/** The line that is drawn now; while a program is compiled, that of the compilation is shown instead of the one around it. */
let current: ProgressLine | null = null;

/** Removes the progress line, so that other text can be written; it appears again with the next report or second. */
export const makeRoom = (): void => current?.erase();

export class ProgressLine {
  private last = 0;
  private started = Date.now();
  private drawn = false;
  private first: { done: number; at: number } | null = null;
  private again = (): void => {};
  private ticking: NodeJS.Timeout | null = null;

  constructor(
    private readonly stream: NodeJS.WriteStream = process.stderr,
    private readonly shown = progressSetting.get(),
  ) {}

  /** Shows `done` of `total` with the time that is left; redrawn at most ten times per second. */
  update(what: string, done: number, total: number): void {
    const share = total > 0 ? Math.min(1, done / total) : 0;
    const at = Date.now();
    // The rate since the first report: what came before it (a compilation, the steps of a resumed run) says nothing about it.
    this.first ??= { done, at };
    const { first } = this;
    const seconds = ((at - first.at) / 1000) * ((total - done) / (done - first.done));
    // The estimate counts down until the next report.
    const left = (): string =>
      done > first.done && share < 1 ? `, ${durationText(seconds - (Date.now() - at) / 1000)} left` : "";
    const width = 24;
    const filled = Math.round(share * width);
    const bar = `[${"#".repeat(filled)}${".".repeat(width - filled)}] `;
    this.#show(what, (hasRoom) => `${hasRoom ? bar : ""}${(share * 100).toFixed(0)}%${left()}`, done >= total);
  }

  /** Shows a text for work without a known length. */
  note(text: string): void {
    this.#show(text, () => durationText((Date.now() - this.started) / 1000), true);
  }

  #show(what: string, end: (hasRoom: boolean) => string, force: boolean): void {
    if (!this.shown) return;
    this.again = () => this.#draw(what, end, force);
    current = this;
    this.again();
    this.ticking ??= setInterval(() => {
      if (current === null || current === this) this.again();
    }, tickMs).unref();
  }

  #draw(what: string, end: (hasRoom: boolean) => string, force: boolean): void {
    const now = Date.now();
    if (this.stream.isTTY) {
      if (now - this.last < 100 && !force) return;
      this.last = now;
      // The end says how long it takes; where there is no room for both, the beginning is cut.
      const width = widthOf(this.stream) - 1;
      const tail = end(width >= 60);
      const text = plainText(`${what.slice(0, Math.max(0, width - tail.length - 1))} ${tail}`);
      this.stream.write(`${erase}${paint.dim(text.slice(0, width), this.stream)}`);
      this.drawn = true;
    } else if (now - this.started >= silentMs && now - this.last >= betweenLinesMs) {
      this.last = now;
      this.stream.write(plainText(`weft: ${what}: ${end(false)}\n`));
    }
  }

  /** Removes the line until it is drawn again. */
  erase(): void {
    if (this.drawn) this.stream.write(erase);
    this.drawn = false;
  }

  /** Removes the line, and starts the clock again unless the work goes on. */
  clear(isOver = true): void {
    if (this.ticking !== null) clearInterval(this.ticking);
    this.ticking = null;
    if (current === this) current = null;
    this.erase();
    if (!isOver) return;
    this.started = Date.now();
    this.first = null;
  }
}

/** Runs work that reports to a progress line, which is removed at the end. */
export async function withProgress<T>(work: (progress: ProgressLine) => T | Promise<T>): Promise<T> {
  const progress = new ProgressLine();
  try {
    return await work(progress);
  } finally {
    progress.clear();
  }
}

/** Shows which program is being compiled while `listeners` report it. Returns the function that ends this. */
export function showCompiling(listeners: Set<(event: "start" | "end") => void>): () => void {
  const progress = new ProgressLine();
  let [programs, running] = [0, 0];
  const listener = (event: "start" | "end"): void => {
    running += event === "start" ? 1 : -1;
    if (event === "start") progress.note(`compiling program ${++programs} (later runs use the cache)`);
    // In a log the clock goes on: many short compilations are long work, too.
    else if (running === 0) progress.clear(process.stderr.isTTY);
  };
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
    progress.clear();
  };
}

/** Shows how many ways to shard were compared while `listeners` report it. Returns the function that ends this. */
export function showPlanning(listeners: Set<(compared: number | null) => void>): () => void {
  const progress = new ProgressLine();
  const listener = (compared: number | null): void => {
    if (compared === null) progress.clear();
    else progress.note(`planning: ${compared} ways to shard compared`);
  };
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
    progress.clear();
  };
}
