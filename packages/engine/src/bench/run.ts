// The benchmark as a whole: a child process for each device count, independent workers beside it, and one record at the end.
// The record is plain data in the lab's format; judging and drawing are the lab's work.
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { WeftError } from "../graph/index.js";
import type { Rates } from "../shard/index.js";
import type { ChildMessage, Job, RowFacts } from "./child.js";
import type { JitRow } from "./jit-suite.js";
import type { Measured } from "./measure.js";
import { predictRow, ratesOf } from "./predict.js";
import { batchOf, flopsOf, labelOf, type RowSpec } from "./rows.js";

export interface BenchOptions {
  suite: string;
  rows: RowSpec[];
  counts: number[];
  device: string;
  /** Cores a worker has (CPU). */
  coresPerWorker: number;
  /** Cores to hand out, in order. */
  cores: number[];
  precision: string;
  warmup: number;
  repeats: number;
  /** Also run every row on N workers that share nothing. */
  independent: boolean;
  /** Also run every row on one device that has the cores of all N workers. */
  sameCores: boolean;
  server?: string;
  token?: string;
  tape?: string;
  /** A machine that is not here: everything is predicted, nothing measured. */
  simulate?: string;
  signal?: AbortSignal;
  onProgress?(what: string, done: number, of: number): void;
}

export interface ResultRecord {
  devices: number;
  simulated: boolean;
  status: "ok" | "failed";
  message?: string;
  endToEnd: number[];
  compute: number[];
  inFlight: number;
  alone: number[];
  split: { create: number; plan: number; compute: number; communicate: number; fetch: number };
  devicesUsed: number;
  bytesMoved: number;
  plan: string;
  predictedSeconds?: number;
  independent?: number[];
  sameCores?: number[];
  error: number | null;
}

export interface RowRecord {
  id: string;
  group: string;
  label: string;
  flops: number;
  batch: number;
  paysFrom: number | null;
  raw?: number[];
  results: ResultRecord[];
}

type RowOutcome = { measured: Measured; facts: RowFacts } | { failed: string; outOfMemory: boolean };

const childPath = fileURLToPath(new URL("./child.js", import.meta.url));

/** Runs one job in a child; settles when it is over, kills it when asked to. */
class Child {
  readonly process: ChildProcess;
  readonly #listeners = new Set<(message: ChildMessage) => void>();
  #stderr = "";
  readonly ended: Promise<string | null>;

  constructor(job: Job, env: NodeJS.ProcessEnv, signal: AbortSignal | undefined) {
    this.process = fork(childPath, [], { env, stdio: ["ignore", "inherit", "pipe", "ipc"], serialization: "advanced" });
    this.process.stderr!.on("data", (data: Buffer) => {
      this.#stderr = (this.#stderr + data).slice(-4000);
    });
    this.process.on("message", (message) => {
      for (const listener of this.#listeners) listener(message as ChildMessage);
    });
    const stop = (): void => {
      this.process.kill("SIGTERM");
    };
    signal?.addEventListener("abort", stop, { once: true });
    this.ended = new Promise((resolve) => {
      this.process.once("exit", (code, killed) => {
        signal?.removeEventListener("abort", stop);
        resolve(code === 0 ? null : `the measuring process ended with ${killed ?? `code ${code}`}\n${this.#stderr}`);
      });
      this.process.once("error", (error) => resolve(error.message));
    });
    this.process.send(job);
  }

  on(listener: (message: ChildMessage) => void): void {
    this.#listeners.add(listener);
  }

  go(): void {
    this.process.send({ kind: "go" });
  }
}

async function runJob(job: Job, options: BenchOptions, what: string): Promise<RowOutcome[]> {
  const outcomes: RowOutcome[] = [];
  let broken: string | null = null;
  const child = new Child(job, process.env, options.signal);
  child.on((message) => {
    if (message.kind === "row") outcomes[message.row] = { measured: message.measured, facts: message.facts };
    if (message.kind === "failed")
      outcomes[message.row] = { failed: message.message, outOfMemory: message.outOfMemory };
    if (message.kind === "broken") broken = message.message;
    if (message.kind === "progress")
      options.onProgress?.(
        `${what}: ${labelOf(job.rows[message.row])}`,
        message.row + message.done / message.of,
        job.rows.length,
      );
  });
  const died = await child.ended;
  if (options.signal?.aborted) throw new WeftError("stopped");
  const reason = broken ?? died;
  return job.rows.map((_, i) => outcomes[i] ?? { failed: reason ?? "no result", outOfMemory: false });
}

/** N processes that share nothing run the same row at the same time; the median of each, by row. */
async function independentWorkers(count: number, options: BenchOptions): Promise<(number[] | undefined)[]> {
  const jobs = Array.from({ length: count }, (_, i): Job => {
    const from = i * options.coresPerWorker;
    return {
      ...jobFor(options, "single", 1),
      cores: options.cores.slice(from, from + options.coresPerWorker),
      lockstep: true,
    };
  });
  const children = jobs.map((job) => new Child(job, process.env, options.signal));
  const medians: number[][] = options.rows.map(() => []);
  let waiting = 0;
  children.forEach((child) => {
    child.on((message) => {
      if (message.kind === "waiting" && ++waiting === children.length) {
        waiting = 0;
        for (const each of children) each.go();
      }
      if (message.kind === "row") {
        const sorted = [...message.measured.compute].sort((a, b) => a - b);
        medians[message.row].push(sorted[sorted.length >> 1]);
        options.onProgress?.(
          `${count} independent workers: ${labelOf(options.rows[message.row])}`,
          message.row + 1,
          options.rows.length,
        );
      }
    });
    // One that ends early would leave the others waiting for it.
    child.ended.then((reason) => {
      if (reason !== null) for (const other of children) other.process.kill("SIGTERM");
    });
  });
  await Promise.all(children.map((child) => child.ended));
  if (options.signal?.aborted) throw new WeftError("stopped");
  return medians.map((times) => (times.length === count ? times : undefined));
}

/** The same rows on one device with the cores of so many workers: seconds of each repeat, by row. */
async function oneDevice(count: number, options: BenchOptions): Promise<(number[] | undefined)[]> {
  const cores = options.cores.slice(0, count * options.coresPerWorker);
  const job = { ...jobFor(options, "single", 1), cores };
  const outcomes = await runJob(job, options, `one device with ${cores.length} cores`);
  return outcomes.map((outcome) => ("measured" in outcome ? outcome.measured.compute : undefined));
}

function jobFor(options: BenchOptions, mode: Job["mode"], devices: number): Job {
  return {
    mode,
    device: options.device,
    devices,
    coresPerWorker: options.coresPerWorker,
    precision: options.precision,
    warmup: options.warmup,
    repeats: options.repeats,
    rows: options.rows,
    ...(options.server !== undefined && { server: options.server }),
    ...(options.token !== undefined && { token: options.token }),
    ...(options.tape !== undefined && { tape: options.tape }),
  };
}

/** What could be done after a row did not fit. */
function suggestion(row: RowSpec): string {
  const half = (x: number): number => Math.max(1, x >> 1);
  const smaller =
    row.kind === "product"
      ? `${half(row.m)}x${row.k}x${row.n}`
      : row.kind === "mlp"
        ? `${half(row.batch)}:${row.dims.join("-")}`
        : `${half(row.rows)}x${row.columns}`;
  return `does not fit into memory; try --sizes ${smaller}`;
}

/** The same row on other arrangements of the same cores. */
interface Peers {
  independent: number[] | undefined;
  sameCores: number[] | undefined;
}

function resultOf(devices: number, row: RowSpec, outcome: RowOutcome, peers: Peers): ResultRecord {
  const { independent, sameCores } = peers;
  const nothing = { create: 0, plan: 0, compute: 0, communicate: 0, fetch: 0 };
  if ("failed" in outcome)
    return {
      devices,
      simulated: false,
      status: "failed",
      message: outcome.outOfMemory ? suggestion(row) : outcome.failed,
      endToEnd: [],
      compute: [],
      inFlight: 1,
      alone: [],
      split: nothing,
      devicesUsed: 0,
      bytesMoved: 0,
      plan: "",
      error: null,
    };
  const { measured, facts } = outcome;
  return {
    devices,
    simulated: false,
    status: "ok",
    endToEnd: measured.endToEnd,
    compute: measured.compute,
    inFlight: measured.inFlight,
    alone: measured.alone,
    split: {
      create: measured.create,
      plan: facts.planSeconds,
      compute: facts.computeSeconds,
      communicate: facts.communicateSeconds,
      fetch: measured.fetch,
    },
    devicesUsed: facts.devicesUsed,
    bytesMoved: facts.bytesMoved,
    plan: facts.plan,
    ...(facts.predictedSeconds !== null && { predictedSeconds: facts.predictedSeconds }),
    ...(independent !== undefined && { independent }),
    ...(sameCores !== undefined && { sameCores }),
    error: measured.error,
  };
}

/** A row on devices that are not here. */
function predictedResult(row: RowSpec, devices: number, rates: Rates): ResultRecord {
  const { seconds, devicesUsed, bytes, name } = predictRow(row, devices, rates);
  return {
    devices,
    simulated: true,
    status: "ok",
    endToEnd: [],
    compute: [seconds],
    inFlight: 1,
    alone: [],
    split: { create: 0, plan: 0, compute: seconds, communicate: 0, fetch: 0 },
    devicesUsed,
    bytesMoved: bytes,
    plan: `predicted for ${rates.name}: ${name}`,
    predictedSeconds: seconds,
    error: null,
  };
}

/** Measures every row at every count; what fails is in the record with its reason. */
export async function runBench(options: BenchOptions): Promise<RowRecord[]> {
  const rows: RowRecord[] = options.rows.map((row) => ({
    id: labelOf(row),
    group: row.group,
    label: labelOf(row),
    flops: flopsOf(row),
    batch: batchOf(row),
    paysFrom: null,
    results: [],
  }));
  const rates = options.simulate === undefined ? null : ratesOf(options.simulate);
  for (const count of options.counts) {
    if (rates !== null) {
      for (const [i, row] of options.rows.entries()) rows[i].results.push(predictedResult(row, count, rates));
      continue;
    }
    const what = `${count} device${count === 1 ? "" : "s"}`;
    const alone = count === 1 && options.server === undefined;
    const job = jobFor(options, alone ? "single" : "sharded", count);
    if (alone) job.raw = true;
    if (alone && options.device === "cpu") job.cores = options.cores.slice(0, options.coresPerWorker);
    const outcomes = await runJob(job, options, what);
    const compared = count > 1 && options.device === "cpu";
    const independent = compared && options.independent ? await independentWorkers(count, options) : [];
    const sameCores = compared && options.sameCores ? await oneDevice(count, options) : [];
    options.rows.forEach((row, i) => {
      rows[i].results.push(resultOf(count, row, outcomes[i], { independent: independent[i], sameCores: sameCores[i] }));
      const outcome = outcomes[i];
      if (!("facts" in outcome)) return;
      if (outcome.facts.paysFrom !== null) rows[i].paysFrom = outcome.facts.paysFrom;
      if (outcome.facts.raw !== null) rows[i].raw = outcome.facts.raw;
    });
  }
  return rows;
}

/** jit against op by op, on one device with all the given cores. */
export async function runJitBench(options: BenchOptions): Promise<JitRow[]> {
  const job = jobFor(options, "jit", 1);
  if (options.device === "cpu") job.cores = options.cores;
  let rows: JitRow[] = [];
  let broken: string | null = null;
  const child = new Child(job, process.env, options.signal);
  child.on((message) => {
    if (message.kind === "jit") rows = message.rows;
    if (message.kind === "broken") broken = message.message;
    if (message.kind === "progress") options.onProgress?.("jit against op by op", message.done, message.of);
  });
  const died = await child.ended;
  if (options.signal?.aborted) throw new WeftError("stopped");
  if (broken !== null || died !== null) throw new WeftError(broken ?? died ?? "");
  return rows;
}
