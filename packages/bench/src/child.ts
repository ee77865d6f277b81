// One device count of the benchmark in a process of its own: device, cores and workers are set up once and end with it, so one
// count cannot disturb the next. Speaks over the process's message channel: a job comes in, progress and results go out.
import { createDevice } from "@weft/core/internal/device";
import { useDevice } from "@weft/core/internal/runtime";
import type { Tensor } from "@weft/core/internal/tensor";
import { median } from "@weft/formats/stats";
import { type JitRow, runJitSuite } from "./jit-suite.js";
import { type Measured, RowClock, roundsOf } from "./measure.js";
import { rawProducts } from "./raw.js";
import type { RowSpec } from "./rows.js";

export interface Job {
  /** "single": this process's own device, alone or beside others that share nothing; "sharded": workers. */
  mode: "single" | "sharded" | "jit";
  device: string;
  devices: number;
  /** Cores of this process (single). */
  cores?: number[];
  coresPerWorker?: number;
  server?: string;
  token?: string;
  tape?: string;
  precision: string;
  warmup: number;
  repeats: number;
  computeOnly?: boolean;
  /** Measures the workers for the planner where that has not been done (sharded). */
  calibrate?: boolean;
  rows: RowSpec[];
  /** Also times the library underneath (single). */
  raw?: boolean;
}

/** What a parent asks for, once the child is ready: rounds of rows, in order, and the end. */
export type ParentMessage = { kind: "round"; row: number; round: number } | { kind: "end" };

export type ChildMessage =
  | { kind: "ready" }
  | { kind: "progress"; done: number; of: number }
  /** A round before the last. */
  | { kind: "round"; row: number; round: number }
  /** The last round: everything that is known of the row. */
  | { kind: "row"; row: number; measured: Measured; facts: RowFacts }
  | { kind: "jit"; rows: JitRow[] }
  | { kind: "failed"; row: number; message: string; outOfMemory: boolean }
  | { kind: "broken"; message: string };

/** What the devices say of the last row. */
export interface RowFacts {
  devicesUsed: number;
  bytesMoved: number;
  planSeconds: number;
  communicateSeconds: number;
  computeSeconds: number;
  plan: string;
  predictedSeconds: number | null;
  /** What was priced: compiled kernels, or operations as the planner sees them. */
  predictedBy?: "kernels" | "operations";
  paysFrom: number | null;
  raw: number[] | null;
}

export interface Rig {
  settle(tensors: readonly Tensor[]): Promise<void>;
  facts(row: RowSpec, measured: Measured): Promise<RowFacts>;
  close(): Promise<void>;
}

const say = (message: ChildMessage): void => {
  process.send?.(message);
};

async function single(job: Job): Promise<Rig> {
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

/** Does what the parent asks for until it asks for the end. */
function serve(job: Job, rig: Rig): Promise<void> {
  const options = { ...job, settle: rig.settle };
  let clock: RowClock | null = null;
  async function round(index: number, round: number): Promise<void> {
    try {
      if (round === 0) {
        // A row that was given up because another process failed.
        clock?.dispose();
        clock = null;
        clock = await RowClock.prepare(job.rows[index], options);
      }
      await clock!.round();
      if (round + 1 < roundsOf(job.repeats)) return say({ kind: "round", row: index, round });
      const measured = await clock!.end();
      clock = null;
      say({ kind: "row", row: index, measured, facts: await rig.facts(job.rows[index], measured) });
    } catch (error) {
      clock?.dispose();
      clock = null;
      const { name, message } = error as Error;
      say({ kind: "failed", row: index, message, outOfMemory: name === "OutOfMemoryError" });
    }
  }
  return new Promise((resolve) => {
    process.on("message", (asked: ParentMessage) => {
      if (asked.kind === "end") resolve();
      else void round(asked.row, asked.round);
    });
    say({ kind: "ready" });
  });
}

async function run(job: Job): Promise<void> {
  const rig = job.mode !== "sharded" ? await single(job) : await (await import("./sharded.js")).sharded(job);
  try {
    if (job.mode === "jit") {
      const onRow = (_label: string, done: number, of: number): void => say({ kind: "progress", done, of });
      say({ kind: "jit", rows: runJitSuite({ warmup: job.warmup, repeats: job.repeats, onRow }) });
      return;
    }
    await serve(job, rig);
  } finally {
    await rig.close();
  }
}

// A parent that is gone cannot be served; workers must not outlive it.
const orphaned = (): void => process.exit(1);
process.on("disconnect", orphaned);
function finish(): void {
  process.off("disconnect", orphaned);
  process.disconnect();
}
process.once("message", (job: Job) => {
  run(job).then(finish, (error: Error) => {
    say({ kind: "broken", message: error.message });
    process.exitCode = 1;
    finish();
  });
});
