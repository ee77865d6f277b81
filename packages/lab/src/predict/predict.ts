// Predicts throughput or time at other device counts, each with an 80% interval or with the reason why there is none.
// It gives no value for a single count, across an unmeasured node boundary, too far out, or past the peak.

import { mean, quantile, resample, seededRandom } from "@weft/formats/stats";
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
import { intervalConstants, lawConstants } from "./constants.js";
import { throughputInterval } from "./interval.js";
import { type FittedLaw, fitLaw } from "./law.js";
import type { CountSample, ReadPoints } from "./points.js";

/** The prediction at one device count. */
export interface ScalingPrediction {
  devices: number;
  /** In the unit of the input; null where no prediction is possible. Measured only where `reason` says so. */
  value: number | null;
  /** 80% interval, or null with the reason. */
  interval: [number, number] | null;
  reason: string;
}

/** The textbook laws fitted to the same points, for comparison. */
interface LawDescription {
  law: "ring" | "log" | "amdahl" | "usl" | "constant-efficiency";
  parameters: Record<string, number>;
  values: { devices: number; value: number }[];
}

/** Predictions at several device counts, with the fitted laws. */
export interface ScalingPredictions {
  metric: ReadPoints["metric"];
  predictions: ScalingPrediction[];
  law: { exponent: number; coefficient: number; overheadPerDoubling: number } | null;
  descriptions: LawDescription[];
  problems: string[];
}

interface Context {
  read: ReadPoints;
  law: FittedLaw;
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
    applies: (_, { pastPeak }) => pastPeak,
    reason: (_, { largest }) =>
      `no prediction: throughput at ${largest.devices} devices is below that of fewer, and no series of the calibration turns down; ` +
      "the value is a direction (USL, at most what was last measured), not a prediction",
  },
  {
    applies: (target, { largest }) => Math.log2(target / largest.devices) > intervalConstants.furthestDoublings + 1e-9,
    reason: (target, { largest }) =>
      `no prediction: ${target} is ${number(target / largest.devices)} times the largest measured count (${largest.devices}); ` +
      `intervals were calibrated up to ${2 ** intervalConstants.furthestDoublings} times; measure at ` +
      `${Math.ceil(target / 2 ** intervalConstants.furthestDoublings)} devices`,
  },
  {
    applies: (target, { smallest }) => target < smallest.devices,
    reason: (target, { smallest }) =>
      `no prediction: ${target} is below the smallest measured count (${smallest.devices}); what the baseline loses is not known`,
  },
];

/** Log-scale half-width of the prediction under resampling of the repeats; 0 without repeats. */
function repeatSpread(samples: readonly CountSample[], target: number): number {
  if (samples.every((s) => s.values.length < 2)) return 0;
  const random = seededRandom(target);
  const logs: number[] = [];
  for (let round = 0; round < 200; round++) {
    const drawn = samples.map((s) => [s.devices, mean(resample(s.values, random))] as const);
    const value = Math.log(fitLaw(drawn, lawConstants).throughput(target));
    if (Number.isFinite(value)) logs.push(value);
  }
  return logs.length < 100 ? 0 : (quantile(logs, 0.9) - quantile(logs, 0.1)) / 2;
}

function describeLaws(samples: readonly CountSample[], targets: readonly number[]): LawDescription[] {
  const base = samples[0]!;
  if (samples.length < 2 || base.devices !== 1) return [];
  const points = samples.slice(1).map((s) => ({ devices: s.devices, relativeTime: (s.devices * base.mean) / s.mean }));
  const last = samples.at(-1)!;
  const list: LawDescription[] = [];
  const add = (law: LawDescription["law"], parameters: Record<string, number>, x: (n: number) => number) =>
    list.push({ law, parameters, values: targets.map((devices) => ({ devices, value: x(devices) })) });
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

function predictOne(target: number, c: Context): ScalingPrediction {
  const { read, law, largest, smallest } = c;
  const toUnit = (x: number): number => (read.metric === "seconds" ? 1 / x : x);
  const range = ([low, high]: [number, number]): [number, number] =>
    read.metric === "seconds" ? [1 / high, 1 / low] : [low, high];
  const measured = read.samples.find((s) => s.devices === target);
  if (measured !== undefined) {
    const many = measured.values.length > 1;
    return {
      devices: target,
      value: toUnit(measured.mean),
      interval: many ? range([quantile(measured.values, 0.1), quantile(measured.values, 0.9)]) : null,
      reason: many ? `measured, ${measured.values.length} repeats` : "measured once; no prediction is needed",
    };
  }
  const throughput = c.pastPeak ? pastPeakThroughput(c, target) : law.throughput(target);
  if (!Number.isFinite(throughput) || throughput <= 0)
    return {
      devices: target,
      value: null,
      interval: null,
      reason: "no prediction: the law has no positive value here",
    };
  const value = toUnit(throughput);
  const abstain = abstentions.find((a) => a.applies(target, c));
  if (abstain !== undefined) return { devices: target, value, interval: null, reason: abstain.reason(target, c) };
  const doublings = Math.log2(Math.max(target, largest.devices) / largest.devices);
  const overhead = law.relativeTime(target) - 1;
  const spread = repeatSpread(read.samples, target);
  const notes = [
    `shape exponent ${number(law.exponent)} (1 ring, 0 log), overhead ${number(law.overheadPerDoubling * 100)}% per doubling, ` +
      `from ${read.samples.map((s) => s.devices).join(", ")} devices`,
  ];
  if (law.overheadPerDoubling < 0) notes.push("measured scaling is super-linear: check the baseline");
  if (read.devicesPerNode === null && target > 8 && largest.devices <= 8)
    notes.push("assumes no node boundary between; give devicesPerNode if there is one");
  if (smallest.devices !== 1) notes.push(`the baseline is ${smallest.devices} devices, not 1`);
  return {
    devices: target,
    value,
    interval: range(throughputInterval(intervalConstants, throughput, overhead, doublings, spread)),
    reason: `predicted: ${notes.join("; ")}`,
  };
}

/**
 * Predicts other device counts from measured points.
 *
 * @param read Points from `readPoints`.
 * @param targets Device counts to predict.
 */
export function predict(read: ReadPoints, targets: readonly number[]): ScalingPredictions {
  const { samples } = read;
  const wanted = [...new Set(targets)];
  const toUnit = (x: number): number => (read.metric === "seconds" ? 1 / x : x);
  if (samples.length < 2) {
    const reason =
      samples.length === 0
        ? "no prediction: no usable point"
        : `no prediction: only ${samples[0]!.devices} device${samples[0]!.devices === 1 ? "" : "s"} measured; measure at a second count`;
    const predictions = wanted.map((devices) => {
      const measured = samples.find((s) => s.devices === devices);
      return measured === undefined
        ? { devices, value: null, interval: null, reason }
        : { devices, value: toUnit(measured.mean), interval: null, reason: "measured" };
    });
    return { metric: read.metric, predictions, law: null, descriptions: [], problems: read.problems };
  }
  const law = fitLaw(
    samples.map((s) => [s.devices, s.mean] as const),
    lawConstants,
  );
  const largest = samples.at(-1)!;
  const context: Context = {
    read,
    law,
    smallest: samples[0]!,
    largest,
    pastPeak: samples.some((s) => s.devices < largest.devices && s.mean > largest.mean * 1.02),
  };
  return {
    metric: read.metric,
    predictions: wanted.map((target) => predictOne(target, context)),
    law: { exponent: law.exponent, coefficient: law.coefficient, overheadPerDoubling: law.overheadPerDoubling },
    descriptions: describeLaws(samples, wanted).map((d) => ({
      ...d,
      values: d.values.map((v) => ({ devices: v.devices, value: toUnit(v.value) })),
    })),
    problems: read.problems,
  };
}
