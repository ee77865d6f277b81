// Predicts throughput or time at other device counts, each with an 80% interval or with the reason why there is none.
// It gives no value for a single count, across an unmeasured node boundary, too far out, or past the peak.

import { mean, quantile, resample, seededRandom } from "@weft/formats/stats";
import { listSome } from "@weft/formats/text";
import {
  amdahl,
  fitShape,
  fitUsl,
  logShape,
  ringShape,
  serialShape,
  type Usl,
  uslThroughput,
} from "../metrics/index.js";
import { intervalConstants, lawConstants, stepIntervalConstants, stepLawConstants } from "./constants.js";
import { throughputInterval } from "./interval.js";
import { type FittedLaw, fitLaw } from "./law.js";
import { type CountSample, PointsError, type ReadPoints } from "./points.js";
import { type BatchPoint, type FittedStepLaw, fitStepLaw, stepErrorScale } from "./step-law.js";

/** The prediction at one device count. */
interface ScalingPrediction {
  devices: number;
  /** The global batch that it is for; null where the points carry none. */
  globalBatch: number | null;
  /** In the unit of the input; null where no prediction is possible. Measured only where `reason` says so. */
  value: number | null;
  /** 80% interval, or null with the reason. */
  interval: [number, number] | null;
  reason: string;
}

/** The textbook laws fitted to the same points, for comparison. */
interface LawDescription {
  law: "ring" | "log" | "amdahl" | "usl" | "constant-efficiency" | "compute + constant";
  parameters: Record<string, number>;
  values: { devices: number; value: number }[];
}

/** Predictions at several device counts, with the fitted laws. */
export interface ScalingPredictions {
  metric: ReadPoints["metric"];
  predictions: ScalingPrediction[];
  law: { exponent: number; coefficient: number; overheadPerDoubling: number } | null;
  /** The law with batches, where the points carry them: mean compute share of a step, and growth of the fixed part. */
  stepLaw: { computeShare: number; growth: number } | null;
  /** What the constants of the laws and intervals were fitted on. */
  calibration: string;
  descriptions: LawDescription[];
  problems: string[];
}

interface Context {
  read: ReadPoints;
  law: FittedLaw;
  /** Fitted when every point carries its batch; then it decides. */
  stepLaw: FittedStepLaw | null;
  smallest: CountSample;
  largest: CountSample;
  pastPeak: boolean;
}

const number = (value: number): string => String(Number(value.toPrecision(4)));

/** Reasons to give no interval; the first that applies is reported. */
interface Abstention {
  applies: (target: number, c: Context) => boolean;
  reason: (target: number, c: Context) => string;
}

const furthest = ({ stepLaw }: Context): number =>
  (stepLaw === null ? intervalConstants : stepIntervalConstants).furthestDoublings;
const nodes = (devices: number, perNode: number): number => Math.ceil(devices / perNode);

const abstentions: Abstention[] = [
  {
    applies: (target, { read, largest }) =>
      read.devicesPerNode !== null && target > read.devicesPerNode && largest.devices <= read.devicesPerNode,
    reason: (target, { read, largest }) =>
      `no prediction: ${target} devices span ${nodes(target, read.devicesPerNode!)} nodes of ${read.devicesPerNode}, and nothing beyond ` +
      `one node was measured (largest count ${largest.devices}); measure at ${read.devicesPerNode! * 2} devices`,
  },
  {
    applies: (_, { pastPeak, stepLaw }) => pastPeak && stepLaw === null,
    reason: (_, { largest }) =>
      `no prediction: throughput at ${largest.devices} devices is below that of fewer, and no series of the calibration turns down; ` +
      "the value is a direction (USL, at most what was last measured), not a prediction",
  },
  {
    applies: (target, c) => Math.log2(target / c.largest.devices) > furthest(c) + 1e-9,
    reason: (target, c) =>
      `no prediction: ${target} is ${number(target / c.largest.devices)} times the largest measured count (${c.largest.devices}); ` +
      `intervals were calibrated up to ${2 ** furthest(c)} times; measure at ` +
      `${Math.ceil(target / 2 ** furthest(c))} devices`,
  },
  {
    applies: (target, { smallest }) => target < smallest.devices,
    reason: (target, { smallest }) =>
      `no prediction: ${target} is below the smallest measured count (${smallest.devices}); what the baseline loses is not known`,
  },
];

const batchPoint = (s: CountSample): BatchPoint => ({
  devices: s.devices,
  throughput: s.mean,
  globalBatch: s.globalBatch!,
});

/** One sample per device count, whatever its batches. */
function mergeCounts(samples: readonly CountSample[]): CountSample[] {
  const byCount = new Map<number, CountSample>();
  for (const s of samples) {
    const before = byCount.get(s.devices);
    const values = [...(before?.values ?? []), ...s.values];
    byCount.set(s.devices, { ...s, values, mean: mean(values) });
  }
  return [...byCount.values()];
}

/** Log-scale half-width of the prediction under resampling of the repeats; 0 without repeats. */
function repeatSpread(samples: readonly CountSample[], target: number, c: Context): number {
  if (samples.every((s) => s.values.length < 2)) return 0;
  const random = seededRandom(target);
  const logs: number[] = [];
  for (let round = 0; round < 200; round++) {
    const drawn = samples.map((s) => ({ ...s, mean: mean(resample(s.values, random)) }));
    // With batches the level follows the last point; its spread is that of the prediction.
    const value = Math.log(
      c.stepLaw !== null
        ? drawn.at(-1)!.mean
        : fitLaw(
            drawn.map((s) => [s.devices, s.mean] as const),
            lawConstants,
          ).throughput(target),
    );
    if (Number.isFinite(value)) logs.push(value);
  }
  return logs.length < 100 ? 0 : (quantile(logs, 0.9) - quantile(logs, 0.1)) / 2;
}

/** Compute proportional to the batch per device plus a constant: the plain law for points with batches. */
function computePlusConstant(samples: readonly CountSample[]): { compute: number; constant: number } {
  const rows = samples.map((s) => ({ batch: s.globalBatch! / s.devices, time: s.globalBatch! / s.mean }));
  // Least squares of the relative error: (a m + b) / t = 1.
  const [mm, m1, one, ym, y1] = rows.reduce(
    ([a, b, c, d, e], { batch, time }) => {
      const [x, u] = [batch / time, 1 / time];
      return [a + x * x, b + x * u, c + u * u, d + x, e + u];
    },
    [0, 0, 0, 0, 0],
  );
  const determinant = mm! * one! - m1! * m1!;
  const compute = (ym! * one! - y1! * m1!) / determinant;
  const constant = (mm! * y1! - m1! * ym!) / determinant;
  if (!(determinant > mm! * one! * 1e-9) || constant < 0) return { compute: ym! / mm!, constant: 0 };
  return compute < 0 ? { compute: 0, constant: y1! / one! } : { compute, constant };
}

function describeLaws(samples: readonly CountSample[], targets: readonly Target[]): LawDescription[] {
  const base = samples[0]!;
  if (samples.length >= 2 && samples.every((s) => s.globalBatch !== null)) {
    const { compute, constant } = computePlusConstant(samples);
    const values = targets.map((t) => ({
      devices: t.devices,
      value: t.globalBatch! / ((compute * t.globalBatch!) / t.devices + constant),
    }));
    return [{ law: "compute + constant", parameters: { compute, constant }, values }];
  }
  if (samples.length < 2 || base.devices !== 1) return [];
  const points = samples.slice(1).map((s) => ({ devices: s.devices, relativeTime: (s.devices * base.mean) / s.mean }));
  const last = samples.at(-1)!;
  const list: LawDescription[] = [];
  const add = (law: LawDescription["law"], parameters: Record<string, number>, x: (n: number) => number) =>
    list.push({ law, parameters, values: targets.map(({ devices }) => ({ devices, value: x(devices) })) });
  const c = fitShape(ringShape, points)!;
  add("ring", { c }, (n) => (n * base.mean) / (1 + c * ringShape(n)));
  const b = fitShape(logShape, points)!;
  add("log", { b }, (n) => (n * base.mean) / (1 + b * logShape(n)));
  const s = Math.min(1, Math.max(0, fitShape(serialShape, points)!));
  add("amdahl", { serialFraction: s }, (n) => base.mean * amdahl(s, n));
  add(
    "constant-efficiency",
    { efficiency: last.mean / (base.mean * last.devices) },
    (n) => (n * last.mean) / last.devices,
  );
  const usl: Usl | null = fitUsl(
    samples.flatMap((sample) => sample.values.map((v): [number, number] => [sample.devices, v])),
  );
  if (usl !== null)
    add("usl", { lambda: usl.lambda, sigma: usl.sigma, kappa: usl.kappa }, (n) => uslThroughput(usl, n));
  return list;
}

/** Prediction past the peak: the USL where it can be fitted, and never more than the last measurement. */
function pastPeakThroughput({ read, largest }: Context, target: number): number {
  const usl = fitUsl(read.samples.map((s): [number, number] => [s.devices, s.mean]));
  const extended = usl === null ? largest.mean : uslThroughput(usl, target);
  return target > largest.devices ? Math.min(extended, largest.mean) : extended;
}

/**
 * The law without batches, far ahead: more than one doubling beyond the measured counts the law of the step, with a fixed
 * batch per device, takes over up to this share. Overheads of a node saturate, and the shape from three points does not know.
 */
const farShare = 0.6;

/** Throughput at `target` by the law without batches; `points` ascending in devices. */
export function throughputAhead(
  law: FittedLaw,
  points: readonly (readonly [number, number])[],
  target: number,
): number {
  const [last] = points.at(-1)!;
  const step = fitStepLaw(
    points.map(([devices, throughput]) => ({ devices, throughput, globalBatch: devices })),
    stepLawConstants,
  );
  const blended = (devices: number, share: number): number =>
    law.throughput(devices) ** (1 - share) * (share > 0 ? step.at(devices, devices).throughput ** share : 1);
  const doublings = Math.log2(target / last);
  const value = blended(target, Math.min(farShare, Math.max(0, doublings - 1)));
  if (!(value > 0) || doublings <= 0 || law.overheadPerDoubling < 0) return value;
  // Where the second law lies above the first, efficiency would rise from here to there. The laws then meet between,
  // nearer to the first, which is the better one where most predictions are asked for.
  const [near, far] = [2 * last, 2 ** (1 + farShare) * last];
  const [before, after] = [blended(near, 0) / near, blended(far, farShare) / far];
  if (!(after > before)) return value;
  const level = before ** 0.9 * after ** 0.1 * target;
  if (target <= near) return Math.max(value, level);
  return target <= far ? level : Math.min(value, level);
}

/** The batch at a count that nobody stated: the same global batch where all points share one, else the same per device. */
function assumedBatch(samples: readonly CountSample[], devices: number): { globalBatch: number; note: string } {
  const last = samples.at(-1)!;
  if (samples.every((s) => s.globalBatch === last.globalBatch))
    return { globalBatch: last.globalBatch!, note: `assumes the same global batch of ${number(last.globalBatch!)}` };
  const perDevice = last.globalBatch! / last.devices;
  return {
    globalBatch: perDevice * devices,
    note: `assumes ${number(perDevice)} samples per device, as at ${last.devices} devices; --global-batch states another`,
  };
}

interface Target {
  devices: number;
  globalBatch: number | null;
  note: string | null;
}

function measuredAt({ read }: Context, target: Target): CountSample | undefined {
  return read.samples.find(
    (s) => s.devices === target.devices && (target.globalBatch === null || s.globalBatch === target.globalBatch),
  );
}

/** Notes on what a prediction stands on. */
function notesOf(c: Context, target: Target): string[] {
  const { read, law, largest, smallest, stepLaw } = c;
  const from = `from ${listSome(read.samples.map((s) => s.devices))} devices`;
  const notes =
    stepLaw === null
      ? [
          `shape exponent ${number(law.exponent)} (1 ring, 0 log), overhead ${number(law.overheadPerDoubling * 100)}% per doubling, ${from}`,
        ]
      : [
          `global batch ${number(target.globalBatch!)}; compute ${number(stepLaw.computeShare * 100)}% of a step at ${largest.devices} devices, ` +
            `the rest grows as devices^${number(stepLaw.growth)}, ${from}`,
        ];
  if (target.note !== null) notes.push(target.note);
  if (stepLaw === null && law.overheadPerDoubling < 0)
    notes.push("measured scaling is super-linear: check the baseline");
  if (read.devicesPerNode === null && target.devices > 8 && largest.devices <= 8)
    notes.push("assumes no node boundary between; give devicesPerNode if there is one");
  if (smallest.devices !== 1) notes.push(`the baseline is ${smallest.devices} devices, not 1`);
  return notes;
}

function intervalOf(c: Context, target: Target, throughput: number): [number, number] {
  const { law, largest, stepLaw, read } = c;
  const doublings = Math.log2(Math.max(target.devices, largest.devices) / largest.devices);
  const spread = repeatSpread(read.samples, target.devices, c);
  if (stepLaw === null)
    return throughputInterval(intervalConstants, throughput, law.relativeTime(target.devices) - 1, doublings, spread);
  const batchDoublings = Math.log2(target.globalBatch! / target.devices / (largest.globalBatch! / largest.devices));
  const { logDeviation } = stepLaw.at(target.devices, target.globalBatch!);
  const scale = stepErrorScale(stepIntervalConstants, logDeviation, doublings, batchDoublings);
  const down = Math.hypot(stepIntervalConstants.high * scale, spread);
  const up = Math.hypot(stepIntervalConstants.low * scale, spread);
  return [throughput * Math.exp(-down), throughput * Math.exp(up)];
}

function predictOne(target: Target, c: Context): ScalingPrediction {
  const { read } = c;
  const { devices, globalBatch } = target;
  const toUnit = (x: number): number => (read.metric === "seconds" ? 1 / x : x);
  const range = ([low, high]: [number, number]): [number, number] =>
    read.metric === "seconds" ? [1 / high, 1 / low] : [low, high];
  const measured = measuredAt(c, target);
  if (measured !== undefined) {
    const many = measured.values.length > 1;
    return {
      devices,
      globalBatch,
      value: toUnit(measured.mean),
      interval: many ? range([quantile(measured.values, 0.1), quantile(measured.values, 0.9)]) : null,
      reason: many ? `measured, ${measured.values.length} repeats` : "measured once; no prediction is needed",
    };
  }
  const throughput =
    c.stepLaw !== null
      ? c.stepLaw.at(devices, globalBatch!).throughput
      : c.pastPeak
        ? pastPeakThroughput(c, devices)
        : throughputAhead(
            c.law,
            read.samples.map((sample) => [sample.devices, sample.mean] as const),
            devices,
          );
  if (!Number.isFinite(throughput) || throughput <= 0)
    return {
      devices,
      globalBatch,
      value: null,
      interval: null,
      reason: "no prediction: the law has no positive value here",
    };
  const value = toUnit(throughput);
  const abstain = abstentions.find((a) => a.applies(devices, c));
  if (abstain !== undefined) return { devices, globalBatch, value, interval: null, reason: abstain.reason(devices, c) };
  return {
    devices,
    globalBatch,
    value,
    interval: range(intervalOf(c, target, throughput)),
    reason: `predicted: ${notesOf(c, target).join("; ")}`,
  };
}

/** Options of `predict`. */
interface PredictOptions {
  /** Global batches of the targets: one for all, or one each. */
  globalBatch?: readonly number[];
}

/** What the constants were fitted on, for every output. */
const calibration = {
  plain: "constants and intervals fitted on 58 weak-scaling series of 18 model families (NVIDIA/DeepLearningExamples)",
  batches: "constants and intervals fitted on 37 series of 15 benchmarks from MLPerf Training logs (v2.0 to v5.1)",
};

/** Each target with its batch: stated, or assumed from the points. */
function targetsOf(read: ReadPoints, targets: readonly number[], options: PredictOptions): Target[] {
  const withBatches = read.samples.length > 0 && read.samples.every((s) => s.globalBatch !== null);
  const { globalBatch: batches = [] } = options;
  if (batches.length > 1 && batches.length !== targets.length)
    throw new PointsError(
      `${batches.length} global batches for ${targets.length} device counts; give one, or one for each`,
    );
  if (batches.length > 0 && !withBatches)
    throw new PointsError(
      "a global batch was asked for, but the points carry none; write points as {devices, throughput, globalBatch}",
    );
  const seen = new Set<string>();
  return targets.flatMap((devices, i): Target[] => {
    const stated = batches.length > 1 ? batches[i] : batches[0];
    const assumed = withBatches && stated === undefined ? assumedBatch(read.samples, devices) : null;
    const measured = stated === undefined ? read.samples.find((s) => s.devices === devices) : undefined;
    const globalBatch = stated ?? measured?.globalBatch ?? assumed?.globalBatch ?? null;
    const key = `${devices}:${globalBatch}`;
    if (seen.has(key)) return [];
    seen.add(key);
    return [{ devices, globalBatch, note: assumed?.note ?? null }];
  });
}

/**
 * Predicts other device counts from measured points. Where every point carries its global batch, the law of a step decides;
 * otherwise the law of overheads, which takes the batch per device as fixed.
 *
 * @param read Points from `readPoints`.
 * @param targets Device counts to predict.
 */
export function predict(
  read: ReadPoints,
  targets: readonly number[],
  options: PredictOptions = {},
): ScalingPredictions {
  const { samples } = read;
  const wanted = targetsOf(read, targets, options);
  const toUnit = (x: number): number => (read.metric === "seconds" ? 1 / x : x);
  const counts = new Set(samples.map((s) => s.devices));
  const withBatches = samples.length > 0 && samples.every((s) => s.globalBatch !== null);
  const problems = [...read.problems];
  if (!withBatches && samples.some((s) => s.globalBatch !== null))
    problems.push("some points carry a global batch and some do not: batches are ignored");
  if (counts.size < 2) {
    const reason =
      samples.length === 0
        ? "no prediction: no usable point"
        : `no prediction: only ${samples[0]!.devices} device${samples[0]!.devices === 1 ? "" : "s"} measured; measure at a second count`;
    const predictions = wanted.map(({ devices, globalBatch }) => {
      const measured = samples.find((s) => s.devices === devices);
      return measured === undefined
        ? { devices, globalBatch, value: null, interval: null, reason }
        : { devices, globalBatch, value: toUnit(measured.mean), interval: null, reason: "measured" };
    });
    return {
      metric: read.metric,
      predictions,
      law: null,
      stepLaw: null,
      calibration: calibration.plain,
      descriptions: [],
      problems,
    };
  }
  // Without batches a count has one value; with them the same count may occur with several.
  const merged = withBatches ? samples : mergeCounts(samples);
  const law = fitLaw(
    mergeCounts(samples).map((s) => [s.devices, s.mean] as const),
    lawConstants,
  );
  const largest = merged.at(-1)!;
  const context: Context = {
    read: { ...read, samples: merged },
    law,
    stepLaw: withBatches ? fitStepLaw(merged.map(batchPoint), stepLawConstants) : null,
    smallest: merged[0]!,
    largest,
    pastPeak: merged.some((s) => s.devices < largest.devices && s.mean > largest.mean * 1.02),
  };
  const { stepLaw } = context;
  return {
    metric: read.metric,
    predictions: wanted.map((target) => predictOne(target, context)),
    law: { exponent: law.exponent, coefficient: law.coefficient, overheadPerDoubling: law.overheadPerDoubling },
    stepLaw: stepLaw === null ? null : { computeShare: stepLaw.computeShare, growth: stepLaw.growth },
    calibration: stepLaw === null ? calibration.plain : calibration.batches,
    descriptions: describeLaws(merged, wanted).map((d) => ({
      ...d,
      values: d.values.map((v) => ({ devices: v.devices, value: toUnit(v.value) })),
    })),
    problems,
  };
}
