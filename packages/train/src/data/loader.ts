// Loaders: an endless sequence of batches in epoch order. Batches are made inline, or by threads that stay a few
// batches ahead through a ring buffer in shared memory; the trainer reads them without copying.
import { Worker } from "node:worker_threads";
import { type BatchShape, fillBatch, headColumns, type MicroBatch } from "./batch.js";
import { type Epoch, type EpochOptions, planEpoch } from "./epoch.js";
import { DataError } from "./table.js";
import type { TokenSet } from "./tokens.js";

/** Options of a loader. */
export interface LoaderOptions extends Omit<EpochOptions, "rows">, BatchShape {
  /** Number of threads; 0 makes batches on demand. */
  loaders: number;
  /** Batches prefetched by each thread. */
  prefetch: number;
}

/** Position of a run in the data: the next batch. */
export interface Position {
  /** Number of the epoch, from 0. */
  epoch: number;
  /** Number of the batch in the epoch. */
  index: number;
}

/** A source of micro-batches for one rank. */
export interface Loader {
  /** Optimizer steps per epoch. */
  readonly stepsPerEpoch: number;
  /** The next micro-batch. Its array is valid until the next call. */
  next(): MicroBatch;
  /** Ends the loader's threads. */
  close(): void;
}

/** Generates micro-batches from a position on; each epoch is planned once. */
export class BatchMaker {
  #epoch = -1;
  #plan: Epoch | null = null;
  readonly stepsPerEpoch: number;
  constructor(
    private readonly set: TokenSet,
    private readonly options: LoaderOptions,
  ) {
    this.stepsPerEpoch = Math.ceil(set.rows / options.globalBatch);
  }

  make(epoch: number, index: number, micro: number, target?: Int32Array): MicroBatch {
    const { set, options } = this;
    if (this.#plan === null || this.#epoch !== epoch) {
      const lengthOf = (row: number): number => set.offsets[row + 1] - set.offsets[row];
      this.#plan = planEpoch({ ...options, rows: set.rows }, epoch, lengthOf);
      this.#epoch = epoch;
    }
    return fillBatch(set, this.#plan, options, epoch, index, micro, target);
  }
}

/** Advances a position through micro-steps, steps and epochs. */
export class Cursor {
  constructor(
    public epoch: number,
    public index: number,
    private readonly stepsPerEpoch: number,
    private readonly accumulation: number,
    public micro = 0,
  ) {}
  advance(): void {
    if (++this.micro < this.accumulation) return;
    this.micro = 0;
    if (++this.index < this.stepsPerEpoch) return;
    this.index = 0;
    this.epoch++;
  }
}

/** Opens a loader at a position. */
export function openLoader(set: TokenSet, options: LoaderOptions, from: Position): Loader {
  return options.loaders === 0 ? inlineLoader(set, options, from) : new ThreadLoader(set, options, from);
}

function inlineLoader(set: TokenSet, options: LoaderOptions, from: Position): Loader {
  const maker = new BatchMaker(set, options);
  const cursor = new Cursor(from.epoch, from.index, maker.stepsPerEpoch, options.accumulation);
  return {
    stepsPerEpoch: maker.stepsPerEpoch,
    next() {
      const batch = maker.make(cursor.epoch, cursor.index, cursor.micro);
      cursor.advance();
      return batch;
    },
    close() {},
  };
}

/** Arguments of a thread; it maps the token file itself. */
export interface LoaderTask {
  file: string;
  rows: number;
  options: LoaderOptions;
  from: Position;
  /** The thread makes every `stride`-th micro-batch from `first` on. */
  first: number;
  stride: number;
  ring: SharedArrayBuffer;
  slotWords: number;
  control: SharedArrayBuffer;
}

/** Indices in the control block: batches made, batches used, stop, error. */
export const controls = { made: 0, used: 1, stop: 2, failed: 3 } as const;
/** Header words of a slot. */
export const slotHead = 6;

const slotWordsOf = (options: LoaderOptions): number =>
  slotHead + options.rows * (headColumns + options.lengths[options.lengths.length - 1]);

interface Thread {
  worker: Worker;
  ring: Int32Array;
  control: Int32Array;
  used: number;
}

class ThreadLoader implements Loader {
  readonly stepsPerEpoch: number;
  readonly #threads: Thread[];
  readonly #slotWords: number;
  readonly #prefetch: number;
  #next = 0;
  #held: Thread | null = null;
  #failure: Error | null = null;
  readonly #set: TokenSet;
  readonly #rows: number;

  constructor(set: TokenSet, options: LoaderOptions, from: Position) {
    this.#set = set;
    this.#rows = options.rows;
    this.stepsPerEpoch = Math.ceil(set.rows / options.globalBatch);
    this.#slotWords = slotWordsOf(options);
    // At least two: the trainer uses one while the next is made.
    this.#prefetch = Math.max(2, options.prefetch);
    this.#threads = Array.from({ length: options.loaders }, (_, first) => {
      const ring = new SharedArrayBuffer(4 * this.#slotWords * this.#prefetch);
      const control = new SharedArrayBuffer(16);
      const task: LoaderTask = {
        file: set.file,
        rows: set.rows,
        options: { ...options, prefetch: this.#prefetch },
        from,
        first,
        stride: options.loaders,
        ring,
        slotWords: this.#slotWords,
        control,
      };
      const worker = new Worker(new URL("./loader-thread.js", import.meta.url), { workerData: task });
      worker.unref();
      worker.on("error", (error) => {
        this.#failure = error;
      });
      return { worker, ring: new Int32Array(ring), control: new Int32Array(control), used: 0 };
    });
  }

  next(): MicroBatch {
    this.#release();
    const thread = this.#threads[this.#next];
    this.#next = (this.#next + 1) % this.#threads.length;
    const began = performance.now();
    for (;;) {
      const made = Atomics.load(thread.control, controls.made);
      if (made > thread.used) break;
      if (
        Atomics.load(thread.control, controls.failed) !== 0 ||
        this.#failure !== null ||
        performance.now() - began > 60_000
      )
        throw new DataError(
          `a loader thread ended${this.#failure === null ? "" : `: ${this.#failure.message}`}; is ${this.#set.file} still readable? data.loaders: 0 loads without threads`,
        );
      Atomics.wait(thread.control, controls.made, made, 1000);
    }
    const at = (thread.used % this.#prefetch) * this.#slotWords;
    const [epoch, index, micro, samples, total, length] = thread.ring.subarray(at, at + slotHead);
    const rows = this.#rows;
    const data = thread.ring.subarray(at + slotHead, at + slotHead + rows * (headColumns + length));
    this.#held = thread;
    return { epoch, index, micro, samples, total, rows, length, data };
  }

  #release(): void {
    if (this.#held === null) return;
    this.#held.used++;
    Atomics.store(this.#held.control, controls.used, this.#held.used);
    // Wake a thread for half a ring at a time: waking it for each batch would take the core during a step.
    if (this.#held.used % (this.#prefetch >> 1) === 0) Atomics.notify(this.#held.control, controls.used);
    this.#held = null;
  }

  close(): void {
    for (const { control, worker } of this.#threads) {
      Atomics.store(control, controls.stop, 1);
      Atomics.notify(control, controls.used);
      void worker.terminate();
    }
  }
}
