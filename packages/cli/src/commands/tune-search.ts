// The search of weft tune: changes to a configuration, each with a predicted gain from the lab's formulas and the
// measured parts of a step, tried in the order of predicted gain. The measurement is a parameter, so that the search
// can be tested without runs.
import {
  computeUs,
  type EffectEstimate,
  effectInterval,
  estimateAccumulation,
  estimateBuckets,
  estimateHalfGradients,
  estimateLargerBatch,
  estimateLoaders,
  type StepParts,
} from "@weft/lab/internal/predict";

/** Settings that the search varies. */
export interface Settings {
  devices: number;
  batchPerRank: number;
  accumulation: number;
  precision: string;
  bucketMb: number;
  loaders: number;
}

export interface TrialMeasurement {
  samplesPerSecond: number;
  parts: StepParts;
  /** Elements of each parameter, for the bucket simulator. */
  parameterElements: readonly number[];
  /** Folder of its records. */
  run: string;
}

interface Expectation {
  samplesPerSecond: number;
  /** 80% interval of the share of a predicted gain that is usually reached. */
  interval: [number, number];
  reason: string;
}

export interface Trial {
  what: string;
  settings: Settings;
  expected: Expectation | null;
  got: TrialMeasurement | null;
  /** Why the measurement failed. */
  failed?: string;
  kept: boolean;
}

interface SearchOptions {
  maxDevices: number;
  /** Maximum number of runs. */
  probes: number;
  /** Gains below this share are not measured: they cannot be distinguished from noise. */
  leastGain: number;
  keepGlobalBatch: boolean;
  precisions: readonly string[];
  measure: (settings: Settings) => Promise<TrialMeasurement>;
  /** Called before a trial is measured: a prediction must be recorded before its outcome. */
  onPromise?: (trial: Trial, from: TrialMeasurement) => void;
  onTrial?: (trial: Trial, from: TrialMeasurement | null) => void;
}

interface Candidate {
  what: string;
  settings: Settings;
  expected: Expectation;
}

/** Predicted throughput after a change, with its interval. */
function promised(now: TrialMeasurement, { ratio, reason }: EffectEstimate): Expectation {
  const to = now.samplesPerSecond / ratio;
  return { samplesPerSecond: to, interval: effectInterval(now.samplesPerSecond, to, null), reason };
}

/** All-reduce times by bytes, at the measured rate. */
function rateOf(now: TrialMeasurement): (bytes: number) => number {
  const bytes = now.parameterElements.reduce((a, b) => a + b, 0) * 4;
  return (size) => 20 + (Math.max(now.parts.commUs - 20, 1) * size) / Math.max(bytes, 1);
}

/** Prediction for another number of devices: the same work per rank, ring communication. */
function priceDevices(now: TrialMeasurement, from: number, to: number): EffectEstimate {
  const ring = (n: number): number => (2 * (n - 1)) / n;
  const bytes = now.parameterElements.reduce((a, b) => a + b, 0) * 4;
  // With one device the link rate is unknown: assume a slow one of 2 GB/s.
  const exposed = from > 1 ? (now.parts.exposedUs * ring(to)) / ring(from) : (bytes * ring(to)) / 2000;
  const step = computeUs(now.parts) + now.parts.dataUs + exposed;
  return {
    ratio: (step / now.parts.stepUs) * (from / to),
    reason: `${to} times the work of a rank a step, ring communication`,
  };
}

function candidates(at: Settings, now: TrialMeasurement, options: SearchOptions): Candidate[] {
  const found: Candidate[] = [];
  const offer = (what: string, change: Partial<Settings>, estimate: EffectEstimate): void => {
    found.push({ what, settings: { ...at, ...change }, expected: promised(now, estimate) });
  };
  const { parts } = now;
  for (let devices = 1; devices <= options.maxDevices; devices *= 2)
    if (devices !== at.devices)
      offer(`devices ${at.devices} -> ${devices}`, { devices }, priceDevices(now, at.devices, devices));
  if (!options.keepGlobalBatch) {
    const fixed = Math.max(0.05, parts.exposedUs / parts.stepUs);
    offer(
      `batch_per_rank ${at.batchPerRank} -> ${at.batchPerRank * 2}`,
      { batchPerRank: at.batchPerRank * 2 },
      estimateLargerBatch(parts, 2, 1 - fixed),
    );
    if (at.devices > 1)
      offer(
        `accumulation ${at.accumulation} -> ${at.accumulation * 2}`,
        { accumulation: at.accumulation * 2 },
        estimateAccumulation(parts, 2),
      );
  }
  if (at.devices > 1) {
    const backward = computeUs(parts) * 0.6;
    const choice = estimateBuckets(parts, now.parameterElements, backward, rateOf(now), {
      capBytes: at.bucketMb * 2 ** 20,
    });
    if (choice !== null) {
      const bucketMb = choice.capBytes / 2 ** 20;
      offer(`bucket_mb ${at.bucketMb} -> ${bucketMb}`, { bucketMb }, choice.estimate);
    }
  }
  offer(
    `loaders ${at.loaders} -> ${at.loaders + 1}`,
    { loaders: at.loaders + 1 },
    estimateLoaders(parts, (at.loaders + 2) / (at.loaders + 1)),
  );
  for (const precision of options.precisions)
    if (precision !== at.precision) {
      const estimate =
        precision === "tf32"
          ? { ratio: 0.75, reason: "products of rounded operands on tensor cores; not measured here yet" }
          : {
              ratio: 0.6 * estimateHalfGradients(parts).ratio,
              reason: "products in half width at up to twice the rate; not measured here yet",
            };
      offer(`precision ${at.precision} -> ${precision}`, { precision }, estimate);
    }
  return found.sort((a, b) => b.expected.samplesPerSecond - a.expected.samplesPerSecond);
}

export interface SearchResult {
  best: Settings;
  start: TrialMeasurement;
  now: TrialMeasurement;
  trials: Trial[];
}

const keyOf = (s: Settings): string => JSON.stringify(s);

/**
 * Measures the change with the largest predicted gain, keeps it if confirmed, and continues until no gain is large
 * enough or the runs are used up.
 */
export async function searchSettings(from: Settings, options: SearchOptions): Promise<SearchResult> {
  const start = await options.measure(from);
  const trials: Trial[] = [{ what: "as given", settings: from, expected: null, got: start, kept: true }];
  options.onTrial?.(trials[0], null);
  let [best, now] = [from, start];
  const tried = new Set([keyOf(from)]);
  for (let spent = 1; spent < options.probes; spent++) {
    const next = candidates(best, now, options).find(
      (c) =>
        !tried.has(keyOf(c.settings)) && c.expected.samplesPerSecond > now.samplesPerSecond * (1 + options.leastGain),
    );
    if (next === undefined) break;
    tried.add(keyOf(next.settings));
    const trial: Trial = { ...next, got: null, kept: false };
    options.onPromise?.(trial, now);
    const before = now;
    try {
      trial.got = await options.measure(next.settings);
      trial.kept = trial.got.samplesPerSecond > now.samplesPerSecond * (1 + options.leastGain / 2);
    } catch (error) {
      trial.failed = (error as Error).message;
    }
    if (trial.kept && trial.got !== null) [best, now] = [next.settings, trial.got];
    trials.push(trial);
    options.onTrial?.(trial, before);
  }
  return { best, start, now, trials };
}
