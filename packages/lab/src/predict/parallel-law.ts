// Predicts the iteration time of configurations of tensor, pipeline and data parallelism from a few measured ones: a physical
// law of a transformer's step whose constants are fitted, and a correction that is interpolated from what the law leaves over
// (a Gaussian process over the logarithms of the settings).
import type { ParallelConfiguration } from "../model/index.js";

/** A configuration and its measured iteration time. */
export interface MeasuredConfiguration extends ParallelConfiguration {
  milliseconds: number;
}

/** A predicted iteration time. */
interface ParallelPrediction {
  milliseconds: number;
  /** 80% interval. */
  interval: [number, number];
}

const vocabulary = 51200;
const devicesPerNode = 8;

/**
 * The constants of the law: their names, and typical values for A100s in milliseconds per unit, around which they are fitted. The
 * units are tera-operations, giga-elements and giga-parameters.
 */
const typical = {
  arithmetic: 4,
  memorySharded: 200,
  memoryWhole: 50,
  softmax: 5,
  launch: 3,
  launchPerDoubling: 0.2,
  tensorInNode: 100,
  tensorAcross: 300,
  logits: 6,
  pipeline: 30,
  dataInNode: 5,
  dataAcross: 100,
  step: 4,
  sharpness: 2,
};
type Constants = Record<keyof typeof typical, number>;
const names = Object.keys(typical) as (keyof typeof typical)[];
/** Weight of the typical values: one deviation of a factor e counts as much as an error of 15%. */
const priorWeight = 0.15;

/** Iteration time in milliseconds: passes of the pipeline, the last stage's logits, the exchange of gradients. */
function lawTime(c: Constants, x: ParallelConfiguration): number {
  const { tensor: t, data: d, pipeline: p, hidden: h, sequence: s, layers } = x;
  const tokens = x.microBatch * s;
  const giga = (tokens * h) / 1e9;
  const microBatches = x.globalBatch / (x.microBatch * d);
  const passes = microBatches + p - 1;
  const exchanged = (giga * (t - 1)) / t;
  const device =
    (c.arithmetic * 96 * tokens * h * h * (1 + s / (6 * h))) / t / 1e12 +
    (c.memorySharded * giga) / t +
    c.memoryWhole * giga +
    (c.softmax * x.microBatch * x.heads * s * s) / t / 1e9 +
    (t <= devicesPerNode ? c.tensorInNode : c.tensorAcross) * exchanged;
  // A layer takes as long as its kernels or their launches, whichever is longer; near the crossing both count.
  const host = c.launch + c.launchPerDoubling * Math.log2(t);
  const power = 1 + c.sharpness;
  const layer = (device ** power + host ** power) ** (1 / power);
  const parameters = (12 * layers * h * h + vocabulary * h) / (t * p) / 1e9;
  return (
    ((passes * layers) / p) * layer +
    (microBatches * c.logits * 6 * tokens * h * vocabulary) / t / 1e12 +
    (p > 1 ? passes * c.pipeline * giga : 0) +
    ((t * d > devicesPerNode ? c.dataAcross : c.dataInNode) * parameters * (d - 1)) / d +
    c.step
  );
}

const constantsOf = (logs: readonly number[]): Constants =>
  Object.fromEntries(names.map((name, i) => [name, Math.exp(logs[i]!)])) as Constants;

/** Cholesky factor of a symmetric positive matrix. */
function cholesky(a: readonly (readonly number[])[]): number[][] {
  const l = a.map(() => new Array<number>(a.length).fill(0));
  for (let i = 0; i < a.length; i++)
    for (let j = 0; j <= i; j++) {
      let sum = a[i]![j]!;
      for (let k = 0; k < j; k++) sum -= l[i]![k]! * l[j]![k]!;
      l[i]![j] = i === j ? Math.sqrt(Math.max(sum, 1e-12)) : sum / l[j]![j]!;
    }
  return l;
}

/** Solves L L' x = b. */
function solve(l: readonly (readonly number[])[], b: readonly number[]): number[] {
  const x = [...b];
  for (let i = 0; i < x.length; i++) {
    for (let k = 0; k < i; k++) x[i]! -= l[i]![k]! * x[k]!;
    x[i]! /= l[i]![i]!;
  }
  for (let i = x.length - 1; i >= 0; i--) {
    for (let k = i + 1; k < x.length; k++) x[i]! -= l[k]![i]! * x[k]!;
    x[i]! /= l[i]![i]!;
  }
  return x;
}

/** Levenberg-Marquardt on the logarithms of the constants. */
function fitConstants(rows: readonly MeasuredConfiguration[]): number[] {
  const start = names.map((name) => Math.log(typical[name]));
  const residuals = (logs: readonly number[]): number[] => {
    const c = constantsOf(logs);
    return [
      ...rows.map((row) => Math.log(lawTime(c, row) / row.milliseconds)),
      ...logs.map((x, i) => priorWeight * (x - start[i]!)),
    ];
  };
  const costOf = (r: readonly number[]): number => r.reduce((a, x) => a + x * x, 0);
  let at = start;
  let r = residuals(at);
  let damping = 1e-2;
  for (let round = 0; round < 200 && damping < 1e9; round++) {
    const step = 1e-5;
    const columns = at.map((_, k) => {
      const moved = residuals(at.map((x, i) => (i === k ? x + step : x)));
      return moved.map((x, i) => (x - r[i]!) / step);
    });
    const normal = columns.map((a) => columns.map((b) => a.reduce((sum, x, i) => sum + x * b[i]!, 0)));
    const gradient = columns.map((a) => a.reduce((sum, x, i) => sum + x * r[i]!, 0));
    const factor = cholesky(normal.map((row, i) => row.map((x, j) => (i === j ? x * (1 + damping) : x))));
    const change = solve(factor, gradient);
    const next = at.map((x, i) => x - change[i]!);
    const trial = residuals(next);
    const [before, after] = [costOf(r), costOf(trial)];
    if (after < before) {
      [at, r] = [next, trial];
      damping /= 3;
      if (before - after < 1e-10 * before) break;
    } else damping *= 4;
  }
  return at;
}

/** Position of a configuration in the space of the correction: settings that decide a layer's time count most. */
const place = (x: ParallelConfiguration): number[] => [
  Math.log2(x.tensor),
  Math.log2(x.microBatch),
  Math.log2(x.hidden),
  Math.log2(x.pipeline) / 3,
  Math.log2(x.data) / 6,
  Math.log2(x.layers) / 4,
  Math.log2(x.devices) / 6,
];
const squaredDistance = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, x, i) => sum + (x - b[i]!) ** 2, 0);

/** Length over which the correction changes, in doublings, and the relative error of a measurement. */
const correctionLength = 0.6;
const measurementError = 0.01;
/** 90% quantile of a normal distribution. */
const z90 = 1.2816;

/** More measured rows than this add little and cost their cube; the most different ones are used. */
const mostFitted = 400;

/** Fits the law and its correction; at least five measured configurations. */
export function fitParallelLaw(
  measured: readonly MeasuredConfiguration[],
): (asked: ParallelConfiguration) => ParallelPrediction {
  const rows =
    measured.length <= mostFitted ? measured : chooseConfigurations(measured, mostFitted).map((i) => measured[i]!);
  const constants = constantsOf(fitConstants(rows));
  const left = rows.map((row) => Math.log(row.milliseconds / lawTime(constants, row)));
  const variance = Math.max(1e-4, left.reduce((a, x) => a + x * x, 0) / left.length);
  const places = rows.map(place);
  const kernel = (a: readonly number[], b: readonly number[]): number =>
    variance * Math.exp(-squaredDistance(a, b) / (2 * correctionLength ** 2));
  const factor = cholesky(
    places.map((a, i) => places.map((b, j) => kernel(a, b) + (i === j ? measurementError ** 2 : 0))),
  );
  const weights = solve(factor, left);
  return (asked) => {
    const at = place(asked);
    const near = places.map((b) => kernel(at, b));
    const correction = near.reduce((a, k, i) => a + k * weights[i]!, 0);
    const explained = solve(factor, near).reduce((a, x, i) => a + x * near[i]!, 0);
    const deviation = Math.sqrt(Math.max(measurementError ** 2, variance - explained));
    const milliseconds = lawTime(constants, asked) * Math.exp(correction);
    return {
      milliseconds,
      interval: [milliseconds * Math.exp(-z90 * deviation), milliseconds * Math.exp(z90 * deviation)],
    };
  };
}

/** Weights of the settings when rows to measure are chosen. */
const designPlace = (x: ParallelConfiguration): number[] => [
  2 * Math.log2(x.tensor),
  2 * Math.log2(x.microBatch),
  2 * Math.log2(x.hidden),
  Math.log2(x.pipeline),
  0.5 * Math.log2(x.data),
  0.7 * Math.log2(x.layers),
  0.3 * Math.log2(x.globalBatch),
];

/**
 * Chooses which configurations to measure, without their times: the most central one, then repeatedly the one farthest from all
 * chosen ones.
 *
 * @returns Indices into `rows`, in the order of choice.
 */
export function chooseConfigurations(rows: readonly ParallelConfiguration[], count: number): number[] {
  const places = rows.map(designPlace);
  if (places.length === 0) return [];
  const center = places[0]!.map((_, k) => places.reduce((a, p) => a + p[k]!, 0) / places.length);
  const distances = places.map((p) => squaredDistance(p, center));
  const chosen = [distances.reduce((best, d, i) => (d < distances[best]! ? i : best), 0)];
  const nearest = places.map((p) => squaredDistance(p, places[chosen[0]!]!));
  while (chosen.length < Math.min(count, rows.length)) {
    const next = nearest.reduce((best, d, i) => (d > nearest[best]! ? i : best), 0);
    chosen.push(next);
    for (const [i, p] of places.entries()) nearest[i] = Math.min(nearest[i]!, squaredDistance(p, places[next]!));
  }
  return chosen;
}
