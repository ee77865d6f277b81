// Verdicts on a benchmark record: speedup, efficiency, class, cause of the loss and advice. The rules are rows of a table; the
// first that applies is the cause.

import { mean, medianOrNull } from "@weft/formats/stats";
import { type ScalingClass, scalingClass } from "../metrics/index.js";
import type { BenchRecord, BenchResult, BenchRow } from "./record.js";

export type Clock = "compute" | "endToEnd";
export const clocks = ["compute", "endToEnd"] as const;
export const clockName: Record<Clock, string> = {
  compute: "compute (inputs resident, result left sharded, calls back to back)",
  endToEnd: "end to end (create, compute, fetch)",
};

/** The verdict on one row, clock and device count. */
export interface RowVerdict {
  row: BenchRow;
  result: BenchResult;
  clock: Clock;
  seconds: number;
  /** Smallest and largest sample; quartiles would hide outliers. */
  range: [number, number];
  teraflops: number | null;
  speedup: number;
  efficiency: number;
  class: ScalingClass;
  /** Relative to N times the slowest of N independent workers: the ceiling of the machine. */
  machineEfficiency: number | null;
  /** Relative to one device with the cores of all workers. */
  sameCores: number | null;
  cause: string;
  advice: string;
}

interface BenchCountSummary {
  devices: number;
  clock: Clock;
  simulated: boolean;
  rows: number;
  average: number;
  minimum: number;
  maximum: number;
  class: ScalingClass;
}

/** The verdicts on a benchmark record. */
export interface BenchJudgment {
  record: BenchRecord;
  baselineDevices: number;
  verdicts: RowVerdict[];
  summaries: BenchCountSummary[];
  failures: { row: string; devices: number; message: string }[];
}

interface Facts {
  record: BenchRecord;
  row: BenchRow;
  result: BenchResult;
  clock: Clock;
  speedup: number;
  efficiency: number;
  machineEfficiency: number | null;
  /** Speedups of the same row and clock at the other counts. */
  others: { devices: number; speedup: number }[];
  seconds: number;
}

interface CauseRule {
  holds(facts: Facts): boolean;
  cause(facts: Facts): string;
  advice(facts: Facts): string;
}

const share = (part: number, whole: number): number => (whole > 0 ? part / whole : 0);
const percent = (x: number): string => `${(x * 100).toFixed(0)}%`;
/** This count, or a smaller one that was clearly faster. */
const bestCount = ({ others, speedup, result }: Facts): { devices: number; speedup: number } =>
  others
    .filter(({ devices }) => devices < result.devices)
    .reduce((a, b) => (b.speedup > a.speedup * 1.03 ? b : a), { devices: result.devices, speedup });

function fewer(facts: Facts): string {
  const best = bestCount(facts);
  if (best.devices === facts.result.devices) return "";
  return best.devices === 1 ? "use 1 device for this size" : `use ${best.devices} of ${facts.result.devices}`;
}

/** Null where the cost model predicts that the batch is large enough. */
function paysFrom({ row }: Facts): string {
  if (row.paysFrom === null) return `batch too small: ${row.batch} rows`;
  return row.batch >= row.paysFrom ? "" : `batch too small: ${row.batch} rows, pays from ${row.paysFrom}`;
}

/** Evaluated from top to bottom; the first rule that applies explains the row. */
const causes: CauseRule[] = [
  {
    holds: ({ efficiency, clock }) => efficiency >= 0.875 && clock === "compute",
    cause: () => "nothing held it back",
    advice: () => "",
  },
  {
    holds: ({ record, result }) => !record.autoShard && result.devices > 1,
    cause: () => "sharding is off (WEFT_AUTO_SHARD=0)",
    advice: () => "unset WEFT_AUTO_SHARD",
  },
  {
    holds: ({ result }) => result.devices > 1 && result.devicesUsed <= 1,
    cause: () => "the planner kept it on one device",
    advice: (facts) => paysFrom(facts),
  },
  {
    holds: ({ result }) => result.devicesUsed < result.devices,
    cause: ({ result }) => `the plan uses ${result.devicesUsed} of ${result.devices} devices`,
    advice: (facts) => paysFrom(facts),
  },
  {
    holds: ({ clock, result, seconds, efficiency }) =>
      clock === "endToEnd" && share(result.split.fetch, seconds) > 0.3 && efficiency < 0.875,
    cause: ({ result, seconds }) => `${percent(share(result.split.fetch, seconds))} of the time fetches the result`,
    advice: () => "leave the result on the devices, or fetch less of it",
  },
  {
    holds: ({ machineEfficiency, efficiency }) =>
      machineEfficiency !== null && machineEfficiency >= 0.95 && efficiency < 0.875,
    cause: () => "workers that share nothing slow each other down as much: memory or clock of this machine",
    advice: (facts) => fewer(facts) || "nothing in the program: the machine is the limit",
  },
  {
    holds: ({ result, seconds }) => share(result.split.communicate, seconds) > 0.15,
    cause: ({ result, seconds }) => `communication takes ${percent(share(result.split.communicate, seconds))}`,
    advice: (facts) => fewer(facts) || paysFrom(facts),
  },
  {
    holds: ({ result, seconds }) => share(result.split.plan, seconds) > 0.15,
    cause: ({ result, seconds }) => `planning and dispatch take ${percent(share(result.split.plan, seconds))}`,
    advice: (facts) => fewer(facts) || paysFrom(facts),
  },
  {
    holds: ({ clock, result, seconds, efficiency }) =>
      clock === "endToEnd" && efficiency < 0.875 && share(result.split.create + result.split.fetch, seconds) > 0.3,
    cause: () => "creating and fetching take more than a third of the time",
    advice: () => "create on the devices, fetch less",
  },
  {
    holds: ({ speedup }) => speedup <= 1,
    cause: () => "too little work for each device",
    advice: (facts) => fewer(facts) || paysFrom(facts),
  },
  {
    holds: () => true,
    cause: ({ efficiency }) => (efficiency >= 0.875 ? "nothing held it back" : "no single cause above 15%"),
    advice: (facts) => fewer(facts),
  },
];

const timesOf = (result: BenchResult, clock: Clock): number[] =>
  clock === "compute" ? result.compute : result.endToEnd;

/** Judges a benchmark: speedup, efficiency, cause of the loss and advice per row. */
export function judgeBench(record: BenchRecord): BenchJudgment {
  const ok = record.rows.flatMap((row) => row.results.filter((r) => r.status === "ok"));
  const baselineDevices = Math.min(...ok.map((r) => r.devices));
  const verdicts: RowVerdict[] = [];
  const disturbance = typeof record.machine?.disturbance === "string" ? record.machine.disturbance : null;
  for (const row of record.rows)
    for (const clock of clocks) {
      const usable = row.results.filter((r) => r.status === "ok" && timesOf(r, clock).length > 0);
      const base = usable.find((r) => r.devices === baselineDevices);
      if (base === undefined) continue;
      const baseSeconds = medianOrNull(timesOf(base, clock))!;
      const speedups = usable.map((r) => ({
        devices: r.devices,
        speedup: baseSeconds / medianOrNull(timesOf(r, clock))!,
      }));
      for (const [i, result] of usable.entries()) {
        const samples = timesOf(result, clock);
        const seconds = medianOrNull(samples)!;
        const { speedup } = speedups[i]!;
        const count = result.devices / baselineDevices;
        const efficiency = speedup / count;
        // N independent workers do N times the work in the time of the slowest: the ceiling of the machine.
        const slowest = result.independent === undefined ? null : Math.max(...result.independent);
        const machineEfficiency =
          slowest === null || clock !== "compute" ? null : slowest / baselineDevices / result.devices / seconds;
        const oneDevice = clock === "compute" ? medianOrNull(result.sameCores ?? []) : null;
        const others = speedups.filter((s) => s.devices !== result.devices);
        const facts = { record, row, result, clock, speedup, efficiency, machineEfficiency, others, seconds };
        const isBase = result.devices === baselineDevices;
        const rule = causes.find((r) => r.holds(facts))!;
        verdicts.push({
          row,
          result,
          clock,
          seconds,
          range: [Math.min(...samples), Math.max(...samples)],
          teraflops: row.flops > 0 ? row.flops / seconds / 1e12 : null,
          speedup,
          efficiency,
          class: isBase ? "baseline" : scalingClass(speedup, count),
          machineEfficiency,
          sameCores: oneDevice === null ? null : oneDevice / seconds,
          cause: isBase ? "" : rule.cause(facts),
          advice: isBase ? "" : disturbance === null ? rule.advice(facts) : `cannot say: ${disturbance}`,
        });
      }
    }
  return {
    record,
    baselineDevices,
    verdicts,
    summaries: summarize(verdicts, baselineDevices),
    failures: record.rows.flatMap((row) =>
      row.results.flatMap((r) =>
        r.status === "failed" ? [{ row: row.label, devices: r.devices, message: r.message ?? "failed" }] : [],
      ),
    ),
  };
}

function summarize(verdicts: readonly RowVerdict[], baseline: number): BenchCountSummary[] {
  const devices = [...new Set(verdicts.map((v) => v.result.devices))]
    .filter((n) => n !== baseline)
    .sort((a, b) => a - b);
  return clocks.flatMap((clock) =>
    devices.flatMap((n) => {
      const rows = verdicts.filter((v) => v.clock === clock && v.result.devices === n);
      if (rows.length === 0) return [];
      const speedups = rows.map((v) => v.speedup);
      const average = mean(speedups);
      return [
        {
          devices: n,
          clock,
          simulated: rows.some((v) => v.result.simulated),
          rows: rows.length,
          average,
          minimum: Math.min(...speedups),
          maximum: Math.max(...speedups),
          class: scalingClass(average, n / baseline),
        },
      ];
    }),
  );
}
