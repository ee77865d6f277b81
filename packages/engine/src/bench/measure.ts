// Measures one row on the current session: the two clocks, the parts of a call, and whether the result is right. Knows nothing
// of how many devices there are; whoever calls it has connected before.
import { WeftError } from "../graph/index.js";
import { session } from "../runtime/index.js";
import type { Tensor } from "../tensor/index.js";
import { errorBound, errorOf, labelOf, programOf, type RowProgram, type RowSpec } from "./rows.js";

export interface MeasureOptions {
  warmup: number;
  repeats: number;
  precision: string;
  /** Leaves out the clock from creation to fetch. */
  computeOnly?: boolean;
  /** Waits until these tensors have been computed. */
  settle(tensors: readonly Tensor[]): Promise<void>;
  onCall?(done: number, of: number): void;
}

export interface Measured {
  endToEnd: number[];
  /** Seconds a call, with calls issued back to back. */
  compute: number[];
  /** Calls of a sample; the next sample's are issued before these are waited for. */
  inFlight: number;
  /** Seconds of calls that were waited for one by one. */
  alone: number[];
  create: number;
  fetch: number;
  error: number;
}

/** A sample of the compute clock lasts this long, where so many calls can. */
const sampleSeconds = 0.2;
const mostInFlight = 64;

const now = (): number => performance.now() / 1e3;
const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};

const realize = (tensors: readonly Tensor[]): void => session().realize(tensors.map((t) => t.node));
const numbers = async (t: Tensor): Promise<ArrayLike<number>> => (await t.data()) as unknown as ArrayLike<number>;

export async function measureRow(row: RowSpec, options: MeasureOptions): Promise<Measured> {
  const program = programOf(row);
  const { settle } = options;
  realize(program.weights);
  await settle(program.weights);
  const single = Math.min(3, options.repeats);
  const clocks = options.computeOnly ? 1 : 2;
  const calls = clocks * (options.warmup + options.repeats) + single + 3;
  let call = 0;
  const tick = (): void => options.onCall?.(++call, calls);

  // Checked first: a wrong result has no time.
  const inputs = program.create();
  realize(inputs);
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
    throw new WeftError(`${labelOf(row)}: the result is wrong (relative error ${error}, ${bound} allowed); not timed`);
  tick();

  /** So many calls, back to back, each result let go of at once; the last one, which can be waited for. */
  const issue = (count: number): Tensor => {
    for (let i = 1; ; i++) {
      const c = program.compute(inputs, program.weights);
      realize([c]);
      if (i >= count) return c;
      c.dispose();
    }
  };
  const finish = async (c: Tensor): Promise<number> => {
    await settle([c]);
    c.dispose();
    tick();
    return now();
  };
  const alone: number[] = [];
  for (let i = -options.warmup; i < single; i++) {
    const start = now();
    const end = await finish(issue(1));
    if (i >= 0) alone.push(end - start);
  }
  const inFlight = Math.max(1, Math.min(mostInFlight, Math.floor(sampleSeconds / Math.min(...alone))));
  // The next calls are issued before the last ones are done: devices go on from sample to sample. The first sample fills the
  // queue, the last empties it; neither counts.
  const compute: number[] = [];
  let pending = issue(inFlight);
  let before = 0;
  for (let i = 0; i <= options.repeats; i++) {
    const next = issue(inFlight);
    const end = await finish(pending);
    if (i > 0) compute.push((end - before) / inFlight);
    before = end;
    pending = next;
  }
  await finish(pending);
  for (const input of inputs) input.dispose();

  const whole = options.computeOnly
    ? { endToEnd: [], create: 0, fetch: 0 }
    : await measureWhole(program, options, tick);
  for (const weight of program.weights) weight.dispose();
  return { ...whole, compute, inFlight, alone, error };
}

/** The clock from creation to fetch, and its parts. */
async function measureWhole(
  program: RowProgram,
  { warmup, repeats, settle }: MeasureOptions,
  tick: () => void,
): Promise<Pick<Measured, "endToEnd" | "create" | "fetch">> {
  const endToEnd: number[] = [];
  const created: number[] = [];
  const fetched: number[] = [];
  for (let i = -warmup; i < repeats; i++) {
    const start = now();
    const fresh = program.create();
    const c = program.compute(fresh, program.weights);
    await c.data();
    if (i >= 0) endToEnd.push(now() - start);
    for (const tensor of [...fresh, c]) tensor.dispose();
    tick();
  }
  // The parts of a call need waits between them, so they are measured apart from the call as a whole.
  for (let i = 0; i < Math.min(2, repeats); i++) {
    const start = now();
    const fresh = program.create();
    realize(fresh);
    await settle(fresh);
    created.push(now() - start);
    const c = program.compute(fresh, program.weights);
    realize([c]);
    await settle([c]);
    const ready = now();
    await c.data();
    fetched.push(now() - ready);
    for (const tensor of [...fresh, c]) tensor.dispose();
  }
  return { endToEnd, create: median(created), fetch: median(fetched) };
}
