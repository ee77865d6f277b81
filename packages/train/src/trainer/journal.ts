// Buffers step results between the device and the records: they are read once per window, because reading waits for the
// device, and written a few at a time while the device runs the next steps.
import { stepLog } from "./step.js";

/** A started step, as the host knows it. */
interface StartedStep {
  epoch: number;
  /** Samples of the step over all ranks. */
  total: number;
  /** Index of the step within its epoch. */
  index: number;
  dataWait: number;
  samples: number;
  compile: boolean;
  /** Whether the run was asked to stop before this step; with several ranks the step's result says so. */
  stopping: boolean;
  /** Processor time of all threads in microseconds; null if the device computes. */
  cpuUs: number | null;
  /** Seconds in collectives; null if not measured. */
  comm: { total: number; exposed: number } | null;
}

/** A finished step with the device's results. */
export interface StepResult extends StartedStep {
  step: number;
  /** Start on the clock of `performance.now()`. */
  startMs: number;
  durationUs: number;
  values: Float32Array;
}

/** Maximum milliseconds between two reads of the device's results. */
const longest = 1000;
/** Results written per step; writing all at once would delay the device. */
const writesPerStep = 8;

export class Journal {
  #unread: StartedStep[] = [];
  readonly #unwritten: StepResult[] = [];
  #windowStart = performance.now();

  constructor(
    /** Number of steps read together. */
    private readonly window: number,
    private readonly write: (result: StepResult) => void,
  ) {}

  /** Starts timing: time from now on counts for the next steps. */
  open(): void {
    this.#windowStart = performance.now();
  }

  add(taken: StartedStep): void {
    this.#unread.push(taken);
  }

  /** Whether to read now. `byClock`: also after one second, for the progress display. */
  due(byClock: boolean): boolean {
    return this.#unread.length >= this.window || (byClock && performance.now() - this.#windowStart > longest);
  }

  /** Reads the results of the steps up to `lastStep`; returns their duration in seconds. */
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
      const row = (lastStep - steps.length + i + 1) % this.window;
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

  /** Writes results, oldest first: a few, or all of them. */
  writeOut(all: boolean): void {
    if (this.#unwritten.length === 0) return;
    const now = this.#unwritten.splice(0, all ? this.#unwritten.length : writesPerStep);
    for (const result of now) this.write(result);
  }
}
