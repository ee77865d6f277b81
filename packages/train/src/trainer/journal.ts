// What steps said, between the device that took them and the records: read once a window, because reading waits for the device,
// and written down a few at a time while it takes the next steps. Knows neither devices nor files.
import { stepLog } from "./step.js";

/** A step as the host knows it when it has been started. */
export interface StartedStep {
  epoch: number;
  /** Samples of the step over all ranks. */
  total: number;
  /** Of the step within its epoch. */
  index: number;
  dataWait: number;
  samples: number;
  compile: boolean;
  /** Microseconds of processor time, all threads; null where the work is done elsewhere. */
  cpuUs: number | null;
  /** Seconds in collectives; null where they are not measured. */
  comm: { total: number; exposed: number } | null;
}

/** The same with what the device said of it. */
export interface StepResult extends StartedStep {
  step: number;
  /** On the clock of `performance.now()`. */
  startMs: number;
  durationUs: number;
  values: Float32Array;
}

/** Milliseconds after which a device is asked for its results, however many steps it has taken. */
const longest = 1000;
/** Steps that are written down while the device takes one: all of them at a time would keep it waiting. */
const writesPerStep = 8;

export class Journal {
  #unread: StartedStep[] = [];
  readonly #unwritten: StepResult[] = [];
  /** Steps that this process has started. */
  #started = 0;
  #windowStart = performance.now();

  constructor(
    /** Steps whose results are read together. */
    private readonly window: number,
    private readonly write: (told: StepResult) => void,
  ) {}

  /** Time that passes from now on belongs to the next steps. */
  open(): void {
    this.#windowStart = performance.now();
  }

  /** Where the next step is taken down, among the rows that are read together. */
  get place(): number {
    return this.#started % this.window;
  }

  add(taken: StartedStep): void {
    this.#unread.push(taken);
    this.#started++;
  }

  /** Whether it is time to read. `byClock`: also after a second, because whoever watches wants to see something. */
  due(byClock: boolean): boolean {
    return this.#unread.length >= this.window || (byClock && performance.now() - this.#windowStart > longest);
  }

  /** Reads what the steps up to `lastStep` said; returns the seconds that they took. */
  read(fetch: () => Float32Array, lastStep: number): number {
    if (this.#unread.length === 0) return 0;
    const steps = this.#unread;
    this.#unread = [];
    // One fetch for all of them.
    const log = fetch();
    const width = Object.keys(stepLog).length;
    const now = performance.now();
    const duration = (now - this.#windowStart) / steps.length;
    steps.forEach((taken, i) => {
      const row = (this.#started - steps.length + i) % this.window;
      this.#unwritten.push({
        ...taken,
        step: lastStep - steps.length + i,
        startMs: this.#windowStart + i * duration,
        durationUs: duration * 1000,
        values: log.subarray(row * width, (row + 1) * width),
      });
    });
    this.#windowStart = now;
    return (duration * steps.length) / 1000;
  }

  /** Writes down what was read, the oldest first: a few steps, or all of them. */
  writeOut(all: boolean): void {
    if (this.#unwritten.length === 0) return;
    const now = this.#unwritten.splice(0, all ? this.#unwritten.length : writesPerStep);
    for (const told of now) this.write(told);
  }
}
