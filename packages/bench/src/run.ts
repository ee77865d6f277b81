// The benchmark as a whole: a child process for each device count, others beside it, rounds in turn, and one record at the end.
// The record is plain data in the lab's format; judging and drawing are the lab's work.
import { setMaxListeners } from "node:events";
import { WeftError } from "@weft/core/internal/graph";
import type { Rates } from "@weft/core/internal/shard";
import { median } from "@weft/formats/stats";
import type { Job } from "./child.js";
import { Child, type RowOutcome, Team } from "./children.js";
import type { JitRow } from "./jit-suite.js";
import { roundsOf } from "./measure.js";
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
  /** Leaves out the clock from creation to fetch. */
  computeOnly?: boolean;
  /** Measures the workers for the planner first, where that has not been done on this machine. */
  calibrate?: boolean;
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
  /** A row is known at all counts; others follow. */
  onRow?(row: RowRecord): void;
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
  /** What was priced for it. */
  predictedBy?: "kernels" | "operations";
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

/** Who measures a count: the devices themselves and, beside them, other arrangements of the same cores. */
interface Teams {
  devices: Team;
  independent?: Team;
  sameCores?: Team;
}

function teamsOf(count: number, options: BenchOptions): Teams {
  const { signal, cores, coresPerWorker } = options;
  const alone = count === 1 && options.server === undefined;
  const job = jobFor(options, alone ? "single" : "sharded", count);
  if (alone) job.raw = true;
  if (alone && options.device === "cpu") job.cores = cores.slice(0, coresPerWorker);
  const devices = new Team(`${count} device${count === 1 ? "" : "s"}`, [job], signal);
  if (count === 1 || options.device !== "cpu") return { devices };
  const own = { ...jobFor(options, "single", 1), computeOnly: true };
  const apart = Array.from({ length: count }, (_, i) => ({
    ...own,
    cores: cores.slice(i * coresPerWorker, (i + 1) * coresPerWorker),
  }));
  const all = cores.slice(0, count * coresPerWorker);
  return {
    devices,
    ...(options.independent && { independent: new Team(`${count} independent workers`, apart, signal) }),
    ...(options.sameCores && {
      sameCores: new Team(`one device with ${all.length} cores`, [{ ...own, cores: all }], signal),
    }),
  };
}

/** Started one after the other: whoever measures rates of its workers first does that alone. */
async function start(options: BenchOptions): Promise<Teams[]> {
  // A listener for each process: eight workers and all that they are compared with are more than Node finds usual.
  if (options.signal !== undefined) setMaxListeners(0, options.signal);
  const all: Teams[] = [];
  for (const count of options.counts) {
    const teams = teamsOf(count, options);
    all.push(teams);
    await Promise.all(Object.values(teams).map((team) => team.ready()));
  }
  return all;
}

/**
 * Every row at every count, in rounds: all counts and arrangements take their turn in each, because machines are not equally
 * fast for minutes. What a row came to, for every count.
 */
async function* measureAll(options: BenchOptions): AsyncGenerator<Measurement[]> {
  const counts = await start(options);
  const rounds = roundsOf(options.repeats);
  const all = counts.flatMap((teams) => Object.values(teams) as Team[]);
  for (const [row, spec] of options.rows.entries()) {
    const outcomes = new Map<Team, RowOutcome[]>();
    for (let round = 0; round < rounds; round++)
      for (const [turn, team] of all.entries()) {
        if (outcomes.has(team) || options.signal?.aborted) continue;
        const part = (round * all.length + turn) / (rounds * all.length);
        options.onProgress?.(`${team.what}: ${labelOf(spec)}`, row + part, options.rows.length);
        const found = await team.measure(row, round);
        // Whoever failed is done with this row, and so are those who run beside it.
        if (found.some((outcome) => outcome !== null))
          outcomes.set(
            team,
            found.map((outcome) => outcome ?? { failed: "another process of this row failed", outOfMemory: false }),
          );
      }
    if (options.signal?.aborted) break;
    yield counts.map(({ devices, independent, sameCores }) => ({
      outcome: outcomes.get(devices)![0],
      peers: peersOf(independent && outcomes.get(independent), sameCores && outcomes.get(sameCores)),
    }));
  }
  await Promise.all(all.map((team) => team.end()));
  if (options.signal?.aborted) throw new WeftError("stopped");
}

interface Measurement {
  outcome: RowOutcome;
  peers: Peers;
}

function peersOf(independent: RowOutcome[] = [], sameCores: RowOutcome[] = []): Peers {
  const medians = independent.map(computeOf).flatMap((times) => (times === undefined ? [] : [median(times)]));
  const complete = medians.length > 0 && medians.length === independent.length;
  return { independent: complete ? medians : undefined, sameCores: sameCores.map(computeOf)[0] };
}

const computeOf = (outcome: RowOutcome): number[] | undefined =>
  "measured" in outcome ? outcome.measured.compute : undefined;

function jobFor(options: BenchOptions, mode: Job["mode"], devices: number): Job {
  return {
    mode,
    device: options.device,
    devices,
    coresPerWorker: options.coresPerWorker,
    precision: options.precision,
    warmup: options.warmup,
    repeats: options.repeats,
    computeOnly: options.computeOnly,
    calibrate: options.calibrate,
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
    ...(facts.predictedSeconds !== null && {
      predictedSeconds: facts.predictedSeconds,
      predictedBy: facts.predictedBy,
    }),
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
    plan: `predicted for ${rates.name}, by operations: ${name}`,
    predictedSeconds: seconds,
    predictedBy: "operations",
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
  if (options.simulate !== undefined) {
    const rates = ratesOf(options.simulate);
    for (const count of options.counts)
      for (const [i, row] of options.rows.entries()) rows[i].results.push(predictedResult(row, count, rates));
    return rows;
  }
  let done = 0;
  for await (const measured of measureAll(options)) {
    const row = rows[done];
    for (const [j, { outcome, peers }] of measured.entries()) {
      row.results.push(resultOf(options.counts[j], options.rows[done], outcome, peers));
      if (!("facts" in outcome)) continue;
      if (outcome.facts.paysFrom !== null) row.paysFrom = outcome.facts.paysFrom;
      if (outcome.facts.raw !== null) row.raw = outcome.facts.raw;
    }
    done++;
    options.onRow?.(row);
  }
  return rows;
}

/** jit against op by op, on one device with all the given cores. */
export async function runJitBench(options: BenchOptions): Promise<JitRow[]> {
  const job = jobFor(options, "jit", 1);
  if (options.device === "cpu") job.cores = options.cores;
  let rows: JitRow[] = [];
  const child = new Child(job, options.signal);
  child.on((message) => {
    if (message.kind === "jit") rows = message.rows;
    if (message.kind === "progress") options.onProgress?.("jit against op by op", message.done, message.of);
  });
  const died = await child.ended;
  if (options.signal?.aborted) throw new WeftError("stopped");
  if (died !== null) throw new WeftError(died);
  return rows;
}
