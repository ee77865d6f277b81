// The JSON format of `weft bench` and its validation.

const benchFormat = "weft-bench";
const benchVersion = 1;

/** Seconds of one call by part, medians over the repeats; 0 for a part that does not occur. */
interface TimeSplit {
  create: number;
  plan: number;
  compute: number;
  communicate: number;
  fetch: number;
}
export const splitParts = ["create", "plan", "compute", "communicate", "fetch"] as const satisfies (keyof TimeSplit)[];

/** One row at one device count. */
export interface BenchResult {
  devices: number;
  /** True for a simulated device: times are predicted, not measured. */
  simulated: boolean;
  status: "ok" | "failed";
  message?: string;
  /** Seconds of every repeat: creation, compute and fetch of the whole result. */
  endToEnd: number[];
  /** Seconds per call in every repeat: inputs resident, result left on the device, calls issued back to back. */
  compute: number[];
  /** Calls in flight; 1 where it is missing. */
  inFlight?: number;
  /** Seconds of single calls, each awaited. */
  alone?: number[];
  split: TimeSplit;
  /** Devices that the plan put work on. */
  devicesUsed: number;
  /** Bytes that moved between the devices in one call. */
  bytesMoved: number;
  /** The reason of the planner for its plan. */
  plan: string;
  /** Predicted seconds of the compute clock. */
  predictedSeconds?: number;
  /** Basis of that prediction: compiled kernels, or operations of the planner. */
  predictedBy?: "kernels" | "operations";
  /** The same row on this many independent workers at once: median seconds of each. */
  independent?: number[];
  /** The same row on one device with the cores of all these workers: seconds of every repeat. */
  sameCores?: number[];
  /** Largest relative error of the checked result; null where nothing was computed (simulated). */
  error: number | null;
}

/** One row of a benchmark with its results. */
export interface BenchRow {
  id: string;
  group: string;
  label: string;
  /** Arithmetic of one call; 0 where a rate would mean nothing. */
  flops: number;
  /** Rows of the batch, the axis that is sharded first. */
  batch: number;
  /** Rows from which the planner expects a gain from a second device; null when unknown. */
  paysFrom: number | null;
  /** Seconds of the same products by the underlying library, called directly. */
  raw?: number[];
  results: BenchResult[];
}

/** A benchmark record: the JSON of `weft bench`. */
export interface BenchRecord {
  format: typeof benchFormat;
  version: typeof benchVersion;
  suite: string;
  /** ISO time. */
  at: string;
  device: string;
  coresPerWorker: number | null;
  precision: string;
  autoShard: boolean;
  hardware: Record<string, unknown>;
  versions: Record<string, string>;
  warmup: number;
  repeats: number;
  /** What else used the machine meanwhile; absent in older records. */
  machine?: { disturbance: string | null; foreignPercent: number; stealPercent: number };
  rows: BenchRow[];
}

const isNumbers = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every((x) => typeof x === "number" && Number.isFinite(x) && x >= 0);

/** Validates a record that was read from a file; returns the first problem or the record. */
export function parseBenchRecord(value: unknown, source: string): BenchRecord {
  const wrong = (what: string): never => {
    throw new Error(`${source} is not a benchmark of weft: ${what}`);
  };
  if (typeof value !== "object" || value === null) return wrong("it is not a JSON object");
  const record = value as Partial<BenchRecord>;
  if (record.format !== benchFormat) return wrong(`"format" should be "${benchFormat}"`);
  if (record.version !== benchVersion) return wrong(`version ${String(record.version)} is not ${benchVersion}`);
  if (!Array.isArray(record.rows)) return wrong('"rows" should be a list');
  for (const [i, row] of record.rows.entries()) {
    if (typeof row?.label !== "string" || !Array.isArray(row.results)) return wrong(`row ${i} has no label or results`);
    for (const result of row.results) {
      if (!Number.isInteger(result?.devices) || result.devices < 1)
        return wrong(`row ${row.label}: a device count is not a whole number above 0`);
      if (!isNumbers(result.endToEnd) || !isNumbers(result.compute))
        return wrong(`row ${row.label} at ${result.devices}: times should be lists of seconds`);
    }
  }
  return record as BenchRecord;
}
