// Measures one row on the current session: two clocks, the parts of a call, and the error of the result. Independent of the
// number of devices; the caller has connected before.
import { WeftError } from "@weft/core/internal/graph";
import { session } from "@weft/core/internal/runtime";
import type { Data, Tensor } from "@weft/core/internal/tensor";
import { median } from "@weft/formats/stats";
import { timePipelined } from "./harness/index.js";
import { errorBound, errorOf, labelOf, type RowProgram, type RowSpec, rowProgram } from "./rows.js";

interface MeasureOptions {
  warmup: number;
  repeats: number;
  precision: string;
  /** Measures only the compute clock, not the one from creation to fetch. */
  computeOnly?: boolean;
  /** Waits until these tensors have been computed. */
  settle(tensors: readonly Tensor[]): Promise<void>;
}

export interface RowTimes {
  endToEnd: number[];
  /** Seconds per call, with calls issued back to back. */
  compute: number[];
  /** Calls per sample; the calls of the next sample are issued before these are waited for. */
  inFlight: number;
  /** Seconds of calls that were each waited for. */
  alone: number[];
  create: number;
  fetch: number;
  error: number;
}

/** Rounds of a row; configurations that are compared take turns, so that they see the same minutes of the machine. */
export const roundsOf = (repeats: number): number => Math.min(3, repeats);

/** Target duration of a sample of the compute clock. */
const sampleSeconds = 0.2;
const mostInFlight = 64;

const now = (): number => performance.now() / 1e3;

const realize = (tensors: readonly Tensor[]): void => session().realize(tensors.map((t) => t.node));
const numbers = async (t: Tensor): Promise<ArrayLike<number>> => (await t.data()) as ArrayLike<number>;

/** One row on the devices of this session, ready to be timed; its inputs stay in place between rounds. */
export class RowClock {
  readonly #measured: RowTimes = { endToEnd: [], compute: [], inFlight: 1, alone: [], create: 0, fetch: 0, error: 0 };
  /** Results are fetched into the same array each time: page faults of a new array are not Weft's time. */
  #into: Data | null = null;

  private constructor(
    readonly row: RowSpec,
    readonly options: MeasureOptions,
    readonly program: RowProgram,
    readonly inputs: Tensor[],
  ) {}

  /** Creates the inputs, checks a result and warms up. A wrong result is an error and is not timed. */
  static async prepare(row: RowSpec, options: MeasureOptions): Promise<RowClock> {
    const program = rowProgram(row);
    realize(program.weights);
    await options.settle(program.weights);
    const inputs = program.create();
    realize(inputs);
    const clock = new RowClock(row, options, program, inputs);
    try {
      await clock.#check();
      for (let i = -options.warmup; i < Math.min(3, options.repeats); i++) {
        const start = now();
        const end = await clock.#finish(clock.#issue(1));
        if (i >= 0) clock.#measured.alone.push(end - start);
      }
    } catch (error) {
      clock.dispose();
      throw error;
    }
    const call = Math.min(...clock.#measured.alone);
    clock.#measured.inFlight = Math.max(1, Math.min(mostInFlight, Math.floor(sampleSeconds / call)));
    return clock;
  }

  async #check(): Promise<void> {
    const { row, program, inputs, options } = this;
    const result = program.compute(inputs, program.weights);
    const error = errorOf(
      row,
      await Promise.all(inputs.map(numbers)),
      await Promise.all(program.weights.map(numbers)),
      await numbers(result),
    );
    result.dispose();
    const bound = errorBound(options.precision);
    if (!(error <= bound))
      throw new WeftError(
        `${labelOf(row)}: the result is wrong (relative error ${error}, ${bound} allowed); not timed`,
      );
    this.#measured.error = error;
  }

  /** Issues `count` calls back to back; every result but the last, which is returned, is disposed at once. */
  #issue(count: number): Tensor {
    for (let i = 1; ; i++) {
      const c = this.program.compute(this.inputs, this.program.weights);
      realize([c]);
      if (i >= count) return c;
      c.dispose();
    }
  }

  async #finish(c: Tensor): Promise<number> {
    await this.options.settle([c]);
    c.dispose();
    return now();
  }

  /** The samples of one round, of both clocks. */
  async round(): Promise<void> {
    const samples = Math.ceil(this.options.repeats / roundsOf(this.options.repeats));
    const calls = { issue: (count: number) => this.#issue(count), finish: (c: Tensor) => this.#finish(c) };
    const times = await timePipelined(calls, this.#measured.inFlight, (taken) => taken >= samples);
    this.#measured.compute.push(...times);
    if (this.options.computeOnly) return;
    for (let i = this.#into === null ? -1 : 0; i < samples; i++) {
      const seconds = await this.#whole();
      if (i >= 0) this.#measured.endToEnd.push(seconds);
    }
  }

  /** Seconds from creation to fetch. */
  async #whole(): Promise<number> {
    const start = now();
    const fresh = this.program.create();
    const c = this.program.compute(fresh, this.program.weights);
    this.#into = await c.data(this.#into ?? undefined);
    const seconds = now() - start;
    for (const tensor of [...fresh, c]) tensor.dispose();
    return seconds;
  }

  /** Creation and fetch; they need waits in between and are measured separately from whole calls. */
  async #parts(): Promise<void> {
    const { program, options } = this;
    const created: number[] = [];
    const fetched: number[] = [];
    for (let i = 0; i < Math.min(3, options.repeats); i++) {
      const start = now();
      const fresh = program.create();
      realize(fresh);
      await options.settle(fresh);
      created.push(now() - start);
      const c = program.compute(fresh, program.weights);
      realize([c]);
      await options.settle([c]);
      const ready = now();
      await c.data(this.#into ?? undefined);
      fetched.push(now() - ready);
      for (const tensor of [...fresh, c]) tensor.dispose();
    }
    this.#measured.create = median(created);
    this.#measured.fetch = median(fetched);
  }

  /** Results of all rounds; ends the row. */
  async end(): Promise<RowTimes> {
    if (!this.options.computeOnly) await this.#parts();
    this.dispose();
    return this.#measured;
  }

  dispose(): void {
    for (const tensor of [...this.inputs, ...this.program.weights]) tensor.dispose();
  }
}
