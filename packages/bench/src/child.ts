// One device count of the benchmark in a process of its own: device, cores and workers are set up once and end with the
// process, so that one count cannot disturb the next. A job arrives over the IPC channel; progress and results are sent back.
import { createDevice } from "@weft/core/internal/device";
import { useDevice } from "@weft/core/internal/runtime";
import type { Tensor } from "@weft/core/internal/tensor";
import { median } from "@weft/formats/stats";
import { type JitRow, runJitSuite } from "./jit-suite.js";
import { RowClock, type RowTimes, roundsOf } from "./measure.js";
import { rawProducts } from "./raw.js";
import type { RowSpec } from "./rows.js";

export interface MeasureJob {
  /** "single": the device of this process; "sharded": workers; "jit": compiled programs against single operations. */
  mode: "single" | "sharded" | "jit";
  device: string;
  devices: number;
  /** Cores of this process (mode "single"). */
  cores?: number[];
  coresPerWorker?: number;
  server?: string;
  tokenFile?: string;
  tape?: string;
  precision: string;
  warmup: number;
  repeats: number;
  computeOnly?: boolean;
  /** Measures the rates of the workers for the planner if they are not known yet (mode "sharded"). */
  calibrate?: boolean;
  rows: RowSpec[];
  /** Also times the BLAS library directly (mode "single"). */
  raw?: boolean;
}

/** Requests of the parent once the child is ready: rounds of rows, in order, and the end. */
export type ParentMessage = { kind: "round"; row: number; round: number } | { kind: "end" };

export type ChildMessage =
  | { kind: "ready" }
  | { kind: "progress"; done: number; of: number }
  /** A round before the last has finished. */
  | { kind: "round"; row: number; round: number }
  /** The last round has finished: all results of the row. */
  | { kind: "row"; row: number; measured: RowTimes; facts: RowFacts }
  | { kind: "jit"; rows: JitRow[] }
  | { kind: "failed"; row: number; message: string; outOfMemory: boolean }
  | { kind: "broken"; message: string };

/** What the devices report about a row. */
export interface RowFacts {
  devicesUsed: number;
  bytesMoved: number;
  planSeconds: number;
  communicateSeconds: number;
  computeSeconds: number;
  plan: string;
  predictedSeconds: number | null;
  /** Basis of the prediction: compiled kernels, or operations as the planner sees them. */
  predictedBy?: "kernels" | "operations";
  paysFrom: number | null;
  raw: number[] | null;
}

export interface Rig {
  settle(tensors: readonly Tensor[]): Promise<void>;
  facts(row: RowSpec, measured: RowTimes): Promise<RowFacts>;
  close(): Promise<void>;
}

const report = (message: ChildMessage): void => {
  process.send?.(message);
};

async function single(job: MeasureJob): Promise<Rig> {
  const { device: byName } = await import("@weft/core");
  const made = job.cores !== undefined ? createDevice(job.device, { cores: job.cores }) : byName(job.device);
  useDevice(made);
  return {
    settle: async () => made.synchronize(),
    facts: async (row, measured) => ({
      devicesUsed: 1,
      bytesMoved: 0,
      planSeconds: 0,
      communicateSeconds: 0,
      computeSeconds: median(measured.compute),
      plan: "one device",
      predictedSeconds: null,
      paysFrom: null,
      raw: job.raw && made.traits.sharesHost ? rawProducts(row, made.traits.threads, job.warmup, job.repeats) : null,
    }),
    close: async () => made.trim(),
  };
}

/** Runs the rounds that the parent requests until it requests the end. */
function serve(job: MeasureJob, rig: Rig): Promise<void> {
  const options = { ...job, settle: rig.settle };
  let clock: RowClock | null = null;
  async function round(index: number, round: number): Promise<void> {
    try {
      if (round === 0) {
        // Left over from a row that was abandoned because another process failed.
        clock?.dispose();
        clock = null;
        clock = await RowClock.prepare(job.rows[index], options);
      }
      await clock!.round();
      if (round + 1 < roundsOf(job.repeats)) return report({ kind: "round", row: index, round });
      const measured = await clock!.end();
      clock = null;
      report({ kind: "row", row: index, measured, facts: await rig.facts(job.rows[index], measured) });
    } catch (error) {
      clock?.dispose();
      clock = null;
      const { name, message } = error as Error;
      report({ kind: "failed", row: index, message, outOfMemory: name === "OutOfMemoryError" });
    }
  }
  return new Promise((resolve) => {
    process.on("message", (request: ParentMessage) => {
      if (request.kind === "end") resolve();
      else void round(request.row, request.round);
    });
    report({ kind: "ready" });
  });
}

async function run(job: MeasureJob): Promise<void> {
  const rig = job.mode !== "sharded" ? await single(job) : await (await import("./sharded.js")).sharded(job);
  try {
    if (job.mode === "jit") {
      const onRow = (_label: string, done: number, of: number): void => report({ kind: "progress", done, of });
      report({ kind: "jit", rows: runJitSuite({ warmup: job.warmup, repeats: job.repeats, onRow }) });
      return;
    }
    await serve(job, rig);
  } finally {
    await rig.close();
  }
}

// Workers must not outlive a parent that has exited.
const orphaned = (): void => process.exit(1);
process.on("disconnect", orphaned);
function finish(): void {
  process.off("disconnect", orphaned);
  process.disconnect();
}
process.once("message", (job: MeasureJob) => {
  run(job).then(finish, (error: Error) => {
    report({ kind: "broken", message: error.message });
    process.exitCode = 1;
    finish();
  });
});
