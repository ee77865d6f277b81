// Steps of all ranks to step times, waits, throughput and the work that was done in an epoch. Warm-up and compile steps are left
// out of the means. Knows runs, not files.
import type { TrainingStep } from "@weft/formats";
import { mean, median, type Summary, sum, summarize } from "@weft/formats/stats";
import type { Run } from "../model/index.js";

export interface RankSteps {
  rank: number;
  steps: number;
  meanUs: number;
  dataWaitUs: number | null;
  samplesPerStep: number | null;
}

export interface StepSummary {
  /** Over the steps that count, of all ranks. */
  durationUs: Summary;
  perRank: RankSteps[];
  /** Shares of the step time; null where nobody recorded them. */
  dataShare: number | null;
  commShare: number | null;
  exposedCommShare: number | null;
  /** Samples that all ranks together work on in a second. */
  samplesPerSecond: number | null;
  /** Steps of one rank in a whole epoch, from the records. */
  stepsPerEpoch: number | null;
  /** Samples that all ranks together worked on in a whole epoch, counted. */
  samplesPerEpoch: number | null;
  /** First step against the median of those that count. */
  firstStepRatio: number;
  warmupSteps: number;
  /** Steps in the measured window during which something was compiled. */
  compiledInWindow: number;
  /** Steps left out because no step beside the others can have taken so long: a clock that jumped. */
  clockJumps: number;
}

/** A step this many times its rank's median is a clock that jumped; a checkpoint or a stall is shorter than that. */
const clockJump = 1000;

/** Without a stated warm-up: a fifth of the steps, ten at most. */
const defaultWarmup = (steps: number): number => Math.min(10, Math.floor(steps / 5));

function byRank(steps: readonly TrainingStep[]): Map<number, TrainingStep[]> {
  const ranks = new Map<number, TrainingStep[]>();
  for (const step of steps) {
    const list = ranks.get(step.rank);
    if (list === undefined) ranks.set(step.rank, [step]);
    else list.push(step);
  }
  for (const list of ranks.values()) list.sort((a, b) => a.step - b.step);
  return ranks;
}

function meanOf(
  steps: readonly TrainingStep[],
  field: "dataWaitUs" | "commUs" | "exposedCommUs" | "samples",
): number | null {
  const values = steps.flatMap((step) => (step[field] === undefined ? [] : [step[field]]));
  return values.length === 0 ? null : mean(values);
}

/**
 * The longest epoch that was recorded. Where a limit on steps ended it early and its length is known, as many samples a step for
 * all of its steps: what is compared with the time of an epoch must be the work of an epoch.
 */
function epochTotals(
  steps: readonly TrainingStep[],
  stepsPerEpoch: number | undefined,
): { steps: number; samples: number | null } | null {
  const epochs = new Map<number, TrainingStep[]>();
  for (const step of steps) {
    if (step.epoch === undefined) return null;
    const list = epochs.get(step.epoch);
    if (list === undefined) epochs.set(step.epoch, [step]);
    else list.push(step);
  }
  const lists = [...epochs].sort((a, b) => a[0] - b[0]).map(([, list]) => list);
  if (lists.length === 0) return null;
  const longest = lists.reduce((a, b) => (b.length > a.length ? b : a));
  const samples = longest.every((step) => step.samples !== undefined)
    ? sum(longest.map((step) => step.samples!))
    : null;
  const missing = Math.max(1, (stepsPerEpoch ?? 0) / longest.length);
  return { steps: longest.length, samples: samples === null ? null : samples * missing };
}

export function summarizeSteps(run: Run, warmup?: number): StepSummary | null {
  const ranks = byRank(run.steps);
  if (ranks.size === 0) return null;
  const counted: TrainingStep[] = [];
  const perRank: RankSteps[] = [];
  let warmupSteps = 0;
  let samplesPerEpoch: number | null = 0;
  let stepsPerEpoch: number | null = null;
  let compiledInWindow = 0;
  let clockJumps = 0;
  for (const [rank, steps] of ranks) {
    const skip = Math.min(warmup ?? defaultWarmup(steps.length), steps.length - 1);
    warmupSteps = Math.max(warmupSteps, skip);
    const window = steps.slice(skip);
    compiledInWindow += window.filter((step) => step.compile === true).length;
    const clean = window.filter((step) => step.compile !== true);
    const candidates = clean.length > 0 ? clean : window;
    const bound = median(candidates.map((step) => step.durationUs)) * clockJump;
    const used = candidates.filter((step) => step.durationUs <= bound);
    clockJumps += candidates.length - used.length;
    for (const step of used) counted.push(step);
    perRank.push({
      rank,
      steps: used.length,
      meanUs: mean(used.map((step) => step.durationUs)),
      dataWaitUs: meanOf(used, "dataWaitUs"),
      samplesPerStep: meanOf(used, "samples"),
    });
    const totals = epochTotals(steps, run.workload.stepsPerEpoch);
    stepsPerEpoch ??= totals?.steps ?? null;
    samplesPerEpoch = totals?.samples == null || samplesPerEpoch === null ? null : samplesPerEpoch + totals.samples;
  }
  const duration = summarize(counted.map((step) => step.durationUs))!;
  const shareOf = (field: "dataWaitUs" | "commUs" | "exposedCommUs"): number | null => {
    const value = meanOf(counted, field);
    return value === null ? null : value / duration.mean;
  };
  const samples = perRank.every((r) => r.samplesPerStep !== null)
    ? sum(perRank.map((r) => r.samplesPerStep! / r.meanUs)) * 1e6
    : null;
  // A rank that wrote nothing worked all the same; its share is that of the others.
  const complete = run.devices / perRank.length;
  const firsts = [...ranks.values()].map((steps) => steps[0]!.durationUs);
  return {
    durationUs: duration,
    perRank: perRank.sort((a, b) => a.rank - b.rank),
    dataShare: shareOf("dataWaitUs"),
    commShare: shareOf("commUs"),
    exposedCommShare: shareOf("exposedCommUs"),
    samplesPerSecond: samples === null ? null : samples * complete,
    stepsPerEpoch,
    samplesPerEpoch: samplesPerEpoch === null ? null : samplesPerEpoch * complete,
    firstStepRatio: Math.max(...firsts) / median(counted.map((step) => step.durationUs)),
    warmupSteps,
    compiledInWindow,
    clockJumps,
  };
}
