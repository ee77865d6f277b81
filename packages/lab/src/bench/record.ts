// What `weft bench` measured, as plain data: the format of its JSON file, and the check of such a file from outside. The lab
// judges and draws it and knows nothing of how it was measured.

export const benchFormat = "weft-bench";
export const benchVersion = 1;

/** Seconds of one call, medians over the repeats; what a part does not have is 0. */
export interface TimeSplit {
  create: number;
  plan: number;
  compute: number;
  communicate: number;
  fetch: number;
}
export const splitParts = ["create", "plan", "compute", "communicate", "fetch"] as const satisfies (keyof TimeSplit)[];

export interface BenchResult {
  devices: number;
  /** A clock instead of arithmetic: predicted, not measured. */
  simulated: boolean;
  status: "ok" | "failed";
  message?: string;
  /** Seconds of every repeat: creation, compute and fetch of the whole result. */
  endToEnd: number[];
  /** Seconds a call in every repeat: inputs resident, result left where it was made, calls issued back to back. */
  compute: number[];
  /** Calls that were issued before the last was waited for; 1 where it is missing. */
  inFlight?: number;
  /** Seconds of calls that were waited for one by one: what one call takes, with all that it waits for. */
  alone?: number[];
  split: TimeSplit;
  /** Devices that the plan put work on. */
  devicesUsed: number;
  /** Bytes that moved between the devices in one call. */
  bytesMoved: number;
  /** Why the plan is as it is, in the planner's words. */
  plan: string;
  /** What the planner expected of the compute clock. */
  predictedSeconds?: number;
  /** What was priced for that: compiled kernels, or operations as the planner sees them. */
  predictedBy?: "kernels" | "operations";
  /** The same row on this many workers at once that share nothing: seconds of each (its median). */
  independent?: number[];
  /** The same row on one device with the cores of all these workers: seconds of every repeat. */
  sameCores?: number[];
  /** Largest relative error of the checked result; null where nothing was computed (simulated). */
  error: number | null;
}

export interface BenchRow {
  id: string;
  group: string;
  label: string;
  /** Arithmetic of one call; 0 where a rate would mean nothing. */
  flops: number;
  /** Rows of the batch: what is split first. */
  batch: number;
  /** Rows from which the planner expects more than one device to pay; null when it could not say. */
  paysFrom: number | null;
  /** Seconds of the same products by the library underneath, called directly. */
  raw?: number[];
  results: BenchResult[];
}

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
  rows: BenchRow[];
}

const isNumbers = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every((x) => typeof x === "number" && Number.isFinite(x) && x >= 0);

/** A record read from a file: the first thing that is wrong, or the record. */
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
