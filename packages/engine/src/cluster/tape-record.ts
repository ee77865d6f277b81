// What a worker writes down about one instruction: its kernels with times on the worker's clock. docs/tape.md has the
// format; packages/lab reads it.
import type { Executable } from "../device/index.js";
import { type GraphFn, showAval } from "../graph/index.js";

export interface TapeRecord {
  type: "instruction";
  /** The worker's number: rank in the lab. */
  worker: number;
  workerId: string;
  step: number;
  program: number;
  op: string;
  kind: string;
  startUs: number;
  endUs: number;
  bytes: number;
  flops: number;
  /** The line of the user's program, where known. */
  cause: string | null;
  inputs: number[];
  outputs: number[];
  /** Shapes of the results as this worker holds them. */
  shapes: string[];
}

interface Times {
  begin: number;
  end: number;
  worker: string;
}

const origin = performance.timeOrigin;

/** One record a kernel; their times are cut out of the run's where the device measured them. */
export function tapeRecords(
  message: {
    program: number;
    inputs: readonly number[];
    outputs: readonly number[];
    step: number;
    site: string | null;
  },
  fn: GraphFn,
  executable: Executable,
  { begin, end, worker }: Times,
): TapeRecord[] {
  const { kernels, lastTimes } = executable;
  const startUs = (origin + begin) * 1e3;
  const common = {
    type: "instruction" as const,
    worker: Number(/\d+/.exec(worker)?.[0] ?? 0),
    workerId: worker,
    step: message.step,
    program: message.program,
    cause: message.site,
    inputs: [...message.inputs],
    outputs: [...message.outputs],
    shapes: fn.outputs.map(showAval),
  };
  const whole = (end - begin) * 1e3;
  const known = lastTimes !== undefined && lastTimes.length === kernels.length && kernels.length > 0;
  if (!known)
    return [
      {
        ...common,
        op: kernels[0]?.name ?? "copy",
        kind: "program",
        startUs,
        endUs: startUs + whole,
        bytes: sum(kernels, "bytes"),
        flops: sum(kernels, "flops"),
      },
    ];
  let at = startUs;
  return kernels.map((kernel, i) => {
    const record = {
      ...common,
      op: kernel.name,
      kind: kernel.kind,
      startUs: at,
      endUs: at + lastTimes[i] * 1e6,
      bytes: kernel.bytes,
      flops: kernel.flops,
    };
    at = record.endUs;
    return record;
  });
}

const sum = (list: Executable["kernels"], key: "bytes" | "flops"): number => list.reduce((n, k) => n + k[key], 0);
