// The benchmark as a whole: one child process per device count, others for comparison, rounds in turns, and one record at
// the end. The record is plain data in the lab's format; the lab judges and draws it.
import { setMaxListeners } from "node:events";
import type { Rates } from "@weft/core/internal/cost";
import { WeftError } from "@weft/core/internal/graph";
import { median } from "@weft/formats/stats";
import type { MeasureJob } from "./child.js";
import { Child, type RowOutcome, Team } from "./children.js";
import type { JitRow } from "./jit-suite.js";
import { roundsOf } from "./measure.js";
import { machineRates, predictRow } from "./predict.js";
import { batchOf, flopsOf, labelOf, type RowSpec } from "./rows.js";

/** Options of `runBench` and `runJitBench`. */
export interface BenchOptions {
  suite: string;
  rows: RowSpec[];
  counts: number[];
  device: string;
  /** Cores per worker (CPU). */
  coresPerWorker: number;
  /** Cores that are assigned to workers, in order. */
  cores: number[];
  precision: string;
  warmup: number;
  repeats: number;
  /** Measures only the compute clock, not the one from creation to fetch. */
  computeOnly?: boolean;
  /** Measures the rates of the workers for the planner first if they are not known on this machine. */
  calibrate?: boolean;
  /** Also run every row on N workers that share nothing. */
  independent: boolean;
  /** Also run every row on one device that has the cores of all N workers. */
  sameCores: boolean;
  server?: string;
  tokenFile?: string;
  tape?: string;
  /** Name of another machine: all times are predicted for it, nothing is measured. */
  simulate?: string;
  signal?: AbortSignal;
  onProgress?(what: string, done: number, of: number): void;
  /** Called when a row has been measured at all counts. */
  onRow?(row: RowRecord): void;
}

/** Result of a row at one device count; times are in seconds. */
interface ResultRecord {
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
  /** Basis of the prediction. */
  predictedBy?: "kernels" | "operations";
  independent?: number[];
  sameCores?: number[];
  error: number | null;
}

/** A row with its results at all device counts. */
interface RowRecord {
  id: string;
  group: string;
  label: string;
  flops: number;
  batch: number;
  paysFrom: number | null;
  raw?: number[];
  results: ResultRecord[];
}

/** Processes of a device count: the devices themselves and, for comparison, other configurations of the same cores. */
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

/** Starts all processes one after the other, so that workers whose rates are measured have the machine to themselves. */
async function start(options: BenchOptions): Promise<Teams[]> {
  // One listener per process: more than the default limit of Node.
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
 * Measures every row at every count, in rounds: all counts and configurations take turns, because the speed of a machine
 * changes over minutes. Yields the results of one row at all counts.
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
        // A process that fails ends the row for the whole team.
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

function jobFor(options: BenchOptions, mode: MeasureJob["mode"], devices: number): MeasureJob {
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
    ...(options.tokenFile !== undefined && { tokenFile: options.tokenFile }),
    ...(options.tape !== undefined && { tape: options.tape }),
  };
}

/** Remedy for a row that does not fit into memory. */
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

/** Times of the same row on other configurations of the same cores. */
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

/** A row on devices of another machine. */
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

/**
 * Measures every row at every device count. A row that fails is in the record with its reason.
 *
 * @returns one record per row, with one result per device count
 */
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
    const rates = machineRates(options.simulate);
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

/** Measures jit against single operations, on one device with all the given cores. */
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
