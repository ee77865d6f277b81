// Summarizes the steps of all ranks: step time, waits, throughput and the work per epoch. Warm-up and compile steps are excluded.
// Where the probe sampled, a step counts for all that it stands for.
import type { TrainingStep } from "@weft/formats";
import { type Summary, sum, summarizeWeighted, type Weighted, weightedMean, weightedMedian } from "@weft/formats/stats";
import type { Run } from "../model/index.js";

interface RankSteps {
  rank: number;
  steps: number;
  meanUs: number;
  dataWaitUs: number | null;
  samplesPerStep: number | null;
}

export interface StepSummary {
  /** Statistics of the counted steps of all ranks. */
  durationUs: Summary;
  perRank: RankSteps[];
  /** Shares of the step time; null where they were not recorded. */
  dataShare: number | null;
  commShare: number | null;
  exposedCommShare: number | null;
  /** Samples per second of all ranks together. */
  samplesPerSecond: number | null;
  /** Steps of one rank in a whole epoch, from the records. */
  stepsPerEpoch: number | null;
  /** Samples of all ranks together in a whole epoch. */
  samplesPerEpoch: number | null;
  /** First step relative to the median of the counted steps. */
  firstStepRatio: number;
  warmupSteps: number;
  /** Steps in the measured window during which something was compiled. */
  compiledInWindow: number;
  /** Steps that were excluded as clock jumps. */
  clockJumps: number;
  /** The largest number of steps that one record stands for: 1 where every step was recorded. */
  sampling: number;
}

/** Number of steps that a record stands for. */
export const stepWeight = (step: TrainingStep): number => Math.max(1, step.weight ?? 1);

/** A time of the steps that have it, with the number of steps that each stands for. */
export const weightedTimes = (
  steps: readonly TrainingStep[],
  field: "durationUs" | "dataWaitUs" | "commUs" | "exposedCommUs" | "backwardUs" | "samples" = "durationUs",
): Weighted[] =>
  steps.flatMap((step) => (step[field] === undefined ? [] : [{ value: step[field], weight: stepWeight(step) }]));

/** A step longer than this multiple of its rank's median is a clock jump; checkpoints and stalls are shorter. */
const clockJump = 1000;

/** Default warm-up: a fifth of the steps, at most ten. */
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
  const values = weightedTimes(steps, field);
  return values.length === 0 ? null : weightedMean(values);
}

/** Steps and samples of each epoch of a rank: of its steps or, where the probe sampled, as it counted them; null without epochs. */
function epochWork(
  run: Run,
  rank: number,
  steps: readonly TrainingStep[],
): { steps: number; samples: number | null }[] | null {
  if (steps.some((step) => stepWeight(step) > 1))
    return run.epochs.flatMap((row) =>
      (row.rank ?? 0) === rank && row.steps !== undefined ? [{ steps: row.steps, samples: row.samples ?? null }] : [],
    );
  const epochs = new Map<number, TrainingStep[]>();
  for (const step of steps) {
    if (step.epoch === undefined) return null;
    const list = epochs.get(step.epoch);
    if (list === undefined) epochs.set(step.epoch, [step]);
    else list.push(step);
  }
  return [...epochs]
    .sort((a, b) => a[0] - b[0])
    .map(([, list]) => ({
      steps: list.length,
      samples: list.every((step) => step.samples !== undefined) ? sum(list.map((step) => step.samples!)) : null,
    }));
}

/**
 * The work of the longest epoch. If a limit on steps ended it early and its length is known, the samples are scaled to the whole
 * epoch, because they are compared with the time of a whole epoch.
 */
function epochTotals(
  run: Run,
  rank: number,
  list: readonly TrainingStep[],
): { steps: number; samples: number | null } | null {
  const epochs = epochWork(run, rank, list);
  if (epochs === null || epochs.length === 0) return null;
  const { steps, samples } = epochs.reduce((a, b) => (b.steps > a.steps ? b : a));
  const missing = Math.max(1, (run.workload.stepsPerEpoch ?? 0) / steps);
  return { steps, samples: samples === null ? null : samples * missing };
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
    const bound = weightedMedian(weightedTimes(candidates)) * clockJump;
    const used = candidates.filter((step) => step.durationUs <= bound);
    clockJumps += candidates.length - used.length;
    for (const step of used) counted.push(step);
    perRank.push({
      rank,
      steps: used.length,
      meanUs: weightedMean(weightedTimes(used)),
      dataWaitUs: meanOf(used, "dataWaitUs"),
      samplesPerStep: meanOf(used, "samples"),
    });
    const totals = epochTotals(run, rank, steps);
    stepsPerEpoch ??= totals?.steps ?? null;
    samplesPerEpoch = totals?.samples == null || samplesPerEpoch === null ? null : samplesPerEpoch + totals.samples;
  }
  const duration = summarizeWeighted(weightedTimes(counted))!;
  const shareOf = (field: "dataWaitUs" | "commUs" | "exposedCommUs"): number | null => {
    const value = meanOf(counted, field);
    return value === null ? null : value / duration.mean;
  };
  const samples = perRank.every((r) => r.samplesPerStep !== null)
    ? sum(perRank.map((r) => r.samplesPerStep! / r.meanUs)) * 1e6
    : null;
  // Ranks without records worked as well; each is counted with the mean of the others. One process that drives all devices
  // has already counted the work of all.
  const complete = Math.max(1, (run.processes ?? run.devices) / perRank.length);
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
    firstStepRatio: firsts.reduce((a, b) => Math.max(a, b)) / duration.median,
    warmupSteps,
    compiledInWindow,
    clockJumps,
    sampling: run.steps.reduce((most, step) => Math.max(most, stepWeight(step)), 1),
  };
}
