// Summarizes the epochs of a run. Jobs that wrote to the same file are separated by their epoch numbers; warm-up, clock jumps
// and incomplete epochs are excluded and listed.
import type { TrainingEpoch } from "@weft/formats";
import { median, type Summary, summarize } from "@weft/formats/stats";
import type { Run } from "../model/index.js";
import { stepWeight } from "./steps.js";

export interface EpochSummary {
  /** Statistics of the rows that are used, of the main job. */
  seconds: Summary | null;
  /** The rows that are used. */
  used: TrainingEpoch[];
  /** Excluded: warm-up rows of that job. */
  warmup: TrainingEpoch[];
  /** Excluded: rows whose time indicates a clock jump. */
  jumps: TrainingEpoch[];
  /** Excluded: incomplete epochs (a limit on steps ended them). */
  cut: TrainingEpoch[];
  /** The jobs in the file; more than one means that several jobs wrote to it. */
  jobs: TrainingEpoch[][];
  /** Whether rows of several jobs alternate: they ran at the same time. Otherwise one followed the other. */
  interleaved: boolean;
  /** Statistics over the whole file; only when it has more than one job. */
  mixed: Summary | null;
  /** All rows of the job, warm-up included. */
  totalSeconds: number;
  firstLoss: number | null;
  finalAccuracy: number | null;
}

/** An epoch longer than this multiple of the job's median is a clock jump. */
const clockJump = 20;

/** Without a known length, a last epoch with less than this share of the others' steps is incomplete. */
const wholeShare = 0.9;

/** Jobs that ran at the same time make the epochs fall back in most rows; one that was resumed, in few. */
const resumedShare = 1 / 6;

/** Splits rows where the epochs fall back. */
function risingSequences(rows: readonly TrainingEpoch[]): TrainingEpoch[][] {
  const lists: TrainingEpoch[][] = [];
  for (const row of rows) {
    const last = lists.at(-1);
    if (last === undefined || row.epoch <= last.at(-1)!.epoch) lists.push([row]);
    else last.push(row);
  }
  return lists;
}

/**
 * Splits rows in file order into jobs: where the epochs rarely fall back, one job followed another; else each job is a
 * sequence whose epochs rise by one. A lone sequence may have gaps.
 */
function separateJobs(rows: readonly TrainingEpoch[]): TrainingEpoch[][] {
  const sequences = risingSequences(rows);
  if (sequences.length - 1 <= rows.length * resumedShare) return sequences;
  const jobs: TrainingEpoch[][] = [];
  // Jobs by their last epoch, least recently written first: two jobs at the same epoch alternate.
  const byLast = new Map<number, number[]>();
  const append = (job: number, row: TrainingEpoch): void => {
    jobs[job]!.push(row);
    const waiting = byLast.get(row.epoch);
    if (waiting === undefined) byLast.set(row.epoch, [job]);
    else waiting.push(job);
  };
  for (const row of rows) {
    const waiting = byLast.get(row.epoch - 1);
    const next = waiting?.shift();
    if (waiting?.length === 0) byLast.delete(row.epoch - 1);
    if (next !== undefined) append(next, row);
    else if (jobs.length === 1 && row.epoch > jobs[0]!.at(-1)!.epoch) {
      byLast.clear();
      append(0, row);
    } else {
      jobs.push([]);
      append(jobs.length - 1, row);
    }
  }
  return jobs;
}

/** Whether the rows of a job are mixed with those of another: then they are not contiguous in the file. */
function isInterleaved(jobs: readonly TrainingEpoch[][], rows: readonly TrainingEpoch[]): boolean {
  const ends = new Set(jobs.flatMap((job) => [job[0]!, job.at(-1)!]));
  const at = new Map<TrainingEpoch, number>();
  rows.forEach((row, i) => {
    if (ends.has(row)) at.set(row, i);
  });
  return jobs.some((job) => at.get(job.at(-1)!)! - at.get(job[0]!)! + 1 !== job.length);
}

/** The main job: the longest of those that start at the first epoch. */
function mainJob(jobs: readonly TrainingEpoch[][]): TrainingEpoch[] {
  const first = jobs.reduce((least, job) => Math.min(least, job[0]!.epoch), Number.POSITIVE_INFINITY);
  const started = jobs.filter((job) => job[0]!.epoch === first);
  return started.reduce((a, b) => (b.length > a.length ? b : a));
}

/** The rows of the rank that timed the epochs: rank 0, or the lowest that did. */
function timedRows(run: Run): TrainingEpoch[] {
  let lowest = Number.POSITIVE_INFINITY;
  for (const row of run.epochs) lowest = Math.min(lowest, row.rank ?? 0);
  return run.epochs.filter((row) => (row.rank ?? 0) === lowest);
}

function withoutJumps(rows: readonly TrainingEpoch[]): { kept: TrainingEpoch[]; jumps: TrainingEpoch[] } {
  if (rows.length < 4) return { kept: [...rows], jumps: [] };
  const bound = median(rows.map((row) => row.seconds)) * clockJump;
  return { kept: rows.filter((row) => row.seconds <= bound), jumps: rows.filter((row) => row.seconds > bound) };
}

/** Steps recorded one by one in each epoch, for rows that do not say their number. */
function recordedSteps(run: Run, rank: number): Map<number, number> {
  const counts = new Map<number, number>();
  for (const step of run.steps)
    if (step.rank === rank && step.epoch !== undefined)
      counts.set(step.epoch, (counts.get(step.epoch) ?? 0) + stepWeight(step));
  return counts;
}

/** Excludes incomplete epochs: fewer steps than an epoch has, or, where that is unknown, a short last one. */
function withoutCut(rows: readonly TrainingEpoch[], run: Run): { kept: TrainingEpoch[]; cut: TrainingEpoch[] } {
  const recorded = recordedSteps(run, rows[0]?.rank ?? 0);
  const taken = rows.map((row) => row.steps ?? recorded.get(row.epoch));
  const { stepsPerEpoch, batchPerRank } = run.workload;
  // Batches that grow make epochs of fewer steps, with all samples.
  const whole = (row: TrainingEpoch): boolean =>
    row.samples !== undefined &&
    stepsPerEpoch !== undefined &&
    batchPerRank !== undefined &&
    row.samples >= (stepsPerEpoch - 1) * batchPerRank + 1;
  const others = taken.slice(0, -1).filter((count) => count !== undefined);
  const short = (count: number | undefined, i: number): boolean => {
    if (count === undefined || whole(rows[i]!)) return false;
    if (stepsPerEpoch !== undefined) return count < stepsPerEpoch;
    return i === rows.length - 1 && others.length > 0 && count < median(others) * wholeShare;
  };
  return { kept: rows.filter((_, i) => !short(taken[i], i)), cut: rows.filter((_, i) => short(taken[i], i)) };
}

/** Excludes the first rows by epoch, as published studies do, unless no row would remain. */
function dropWarmup(
  rows: readonly TrainingEpoch[],
  warmup: number,
): { used: TrainingEpoch[]; dropped: TrainingEpoch[] } {
  const sorted = [...rows].sort((a, b) => a.epoch - b.epoch);
  return warmup < sorted.length
    ? { used: sorted.slice(warmup), dropped: sorted.slice(0, warmup) }
    : { used: sorted, dropped: [] };
}

export function summarizeEpochs(run: Run, warmup: number): EpochSummary | null {
  const rows = timedRows(run);
  if (rows.length === 0) return null;
  const jobs = separateJobs(rows);
  const job = mainJob(jobs);
  const { kept: passes, cut } = withoutCut(job, run);
  const { kept, jumps } = withoutJumps(passes);
  const { used, dropped } = dropWarmup(kept, warmup);
  const seconds = (list: readonly TrainingEpoch[]) => list.map((row) => row.seconds);
  const mixed = jobs.length > 1 ? summarize(seconds(dropWarmup(withoutJumps(rows).kept, warmup).used)) : null;
  return {
    seconds: summarize(seconds(used)),
    used,
    warmup: dropped,
    jumps,
    cut,
    jobs,
    interleaved: jobs.length > 1 && isInterleaved(jobs, rows),
    mixed,
    totalSeconds: seconds([...kept, ...cut]).reduce((a, b) => a + b, 0),
    firstLoss: job[0]!.trainLoss ?? null,
    finalAccuracy: job.findLast((row) => row.valAccuracy !== undefined)?.valAccuracy ?? null,
  };
}
