// Load imbalance from the steps of all ranks. Synchronized ranks have equal step times, so that the own time of a rank is its step
// without its waits: the recorded exposed communication or, where only the backward pass was timed, how much longer it
// took than on the rank that arrived last. Where the probe sampled, all ranks recorded the same steps.
import type { TrainingStep } from "@weft/formats";
import { mean, summarize } from "@weft/formats/stats";
import { stepWeight } from "./steps.js";

/** How the ranks of a run wait for each other. */
export interface Imbalance {
  /** Mean own time and mean wait for others per rank, in microseconds. */
  own: { rank: number; us: number; waitUs: number }[];
  /** Mean over the steps of the slowest rank's own time above the mean of the ranks, relative to the step. */
  lostShare: number;
  /**
   * The rank with the largest own time: in which share of the steps it was the slowest, how far above the mean of the ranks, and
   * how many standard errors of the steps that is.
   */
  slowest: { rank: number; share: number; aboveMean: number; standardErrors: number };
  /** Waits were recorded; otherwise they are inferred from the backward passes. */
  recorded: boolean;
  steps: number;
}

type Timed = "exposedCommUs" | "backwardUs";

/** Steps that every rank recorded, without the first `skip`. */
function aligned(steps: readonly TrainingStep[], field: Timed, skip: number): TrainingStep[][] {
  const ranks = new Set(steps.map((s) => s.rank));
  const rows = new Map<number, TrainingStep[]>();
  for (const step of steps) {
    if (step.step < skip || step[field] === undefined || step.compile === true) continue;
    const row = rows.get(step.step);
    if (row === undefined) rows.set(step.step, [step]);
    else row.push(step);
  }
  return [...rows.values()].filter((row) => row.length === ranks.size);
}

/** A mean over its standard error; pauses of single steps do not make it large. */
function inStandardErrors(values: readonly number[]): number {
  const { mean: middle, sampleStd } = summarize(values)!;
  return sampleStd > 0 ? middle / (sampleStd / Math.sqrt(values.length)) : Number.POSITIVE_INFINITY;
}

/** Null with fewer than two ranks or eight common steps, or where nothing says how long the ranks waited. */
export function imbalance(steps: readonly TrainingStep[], skip: number, synchronous: boolean): Imbalance | null {
  if (new Set(steps.map((s) => s.rank)).size < 2) return null;
  const recordedRows = aligned(steps, "exposedCommUs", skip);
  const recorded = recordedRows.length >= 8;
  if (!recorded && !synchronous) return null;
  const rows = recorded ? recordedRows : aligned(steps, "backwardUs", skip);
  if (rows.length < 8) return null;
  const totals = new Map<number, { us: number; waitUs: number }>();
  const slowestIn = new Map<number, number>();
  const above = new Map<number, number[]>();
  let lost = 0;
  let total = 0;
  let weights = 0;
  for (const row of rows) {
    const weight = mean(row.map(stepWeight));
    weights += weight;
    const shortest = recorded ? 0 : row.reduce((a, s) => Math.min(a, s.backwardUs!), Number.POSITIVE_INFINITY);
    const waits = row.map((s) => (recorded ? s.exposedCommUs! : s.backwardUs! - shortest));
    const own = row.map((s, i) => s.durationUs - waits[i]!);
    const usual = mean(own);
    for (const [i, s] of row.entries()) {
      const list = above.get(s.rank);
      if (list === undefined) above.set(s.rank, [own[i]! - usual]);
      else list.push(own[i]! - usual);
      const sum = totals.get(s.rank) ?? { us: 0, waitUs: 0 };
      totals.set(s.rank, { us: sum.us + own[i]! * weight, waitUs: sum.waitUs + waits[i]! * weight });
    }
    const most = own.reduce((a, us) => Math.max(a, us), 0);
    const at = row[own.indexOf(most)]!.rank;
    slowestIn.set(at, (slowestIn.get(at) ?? 0) + weight);
    lost += (most - usual) * weight;
    total += mean(row.map((s) => s.durationUs)) * weight;
  }
  const own = [...totals]
    .map(([rank, sum]) => ({ rank, us: sum.us / weights, waitUs: sum.waitUs / weights }))
    .sort((a, b) => a.rank - b.rank);
  const middle = mean(own.map((o) => o.us));
  const top = own.reduce((a, b) => (b.us > a.us ? b : a));
  return {
    own,
    lostShare: total > 0 ? lost / total : 0,
    slowest: {
      rank: top.rank,
      share: (slowestIn.get(top.rank) ?? 0) / weights,
      aboveMean: top.us / middle - 1,
      standardErrors: inStandardErrors(above.get(top.rank)!),
    },
    recorded,
    steps: rows.length,
  };
}
