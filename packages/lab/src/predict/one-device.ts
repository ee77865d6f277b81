// Predicts data-parallel training on several devices from one device: the measured step, the gradient buckets of DDP and the time
// of an all-reduce. The interval comes from drawing what is not known: the backward share, the link and the steps themselves.
import { quantile, resample, seededRandom } from "@weft/formats/stats";
import { allReduceUs, ddpBuckets, type Fabric, simulateOverlap } from "../metrics/index.js";
import { PointsError } from "./points.js";

/** What is known about one device and its link. */
export interface OneDeviceRun {
  /** Durations of steady steps. */
  stepUs: readonly number[];
  /** Samples of one device per step. */
  batch: number;
  /** Duration of the backward pass, where it was measured. */
  backwardUs?: number;
  /** Elements of each parameter in registration order, or the number of all. */
  parameterElements: readonly number[];
  gradientElementBytes?: number;
  bucketCapBytes?: number;
  /** The link: a fabric of the table, or measured all-reduces as [bytes, microseconds] at one device count. */
  link: Fabric | { curve: readonly (readonly [number, number])[]; devices: number };
}

/** The prediction at one count. */
interface OneDevicePrediction {
  devices: number;
  /** Samples per second of all devices. */
  value: number;
  interval: [number, number];
  reason: string;
}

/** Backward takes about two thirds of a training step: twice the work of the forward pass. Drawn between these. */
const backwardShares: [number, number] = [0.55, 0.7];
/** Share of the modeled bandwidth that a training step reaches beside its kernels. */
const linkShares: [number, number] = [0.7, 1.05];
/** How much kernels slow down while a collective runs beside them. */
const contention: [number, number] = [0, 0.05];

/** Time of an all-reduce of `bytes` on `devices`, and whether the size lies outside of what was measured. */
function linkTime(link: OneDeviceRun["link"], bytes: number, devices: number): { us: number; outside: boolean } {
  if (!("curve" in link)) return { us: allReduceUs(bytes, devices, link), outside: false };
  const curve = [...link.curve].sort((a, b) => a[0] - b[0]);
  const at = Math.max(
    1,
    curve.findIndex(([size]) => size >= bytes),
  );
  const [a, b] = bytes > curve.at(-1)![0] ? [curve.at(-2)!, curve.at(-1)!] : [curve[at - 1]!, curve[at]!];
  const slope = Math.log(b[1] / a[1]) / Math.log(b[0] / a[0]);
  const us = b[1] * (bytes / b[0]) ** Math.min(1, Math.max(0, slope));
  // A ring moves 2 (n - 1) / n of the bytes.
  const ring = (n: number): number => (2 * (n - 1)) / n;
  return { us: (us * ring(devices)) / ring(link.devices), outside: bytes < curve[0]![0] || bytes > curve.at(-1)![0] };
}

/**
 * Predicts the throughput on several devices with the same batch per device.
 *
 * @param run What one device measured, and its link.
 * @param targets Device counts.
 */
export function predictFromOne(run: OneDeviceRun, targets: readonly number[]): OneDevicePrediction[] {
  if (run.stepUs.length === 0) throw new PointsError("no step was measured on one device");
  if (run.parameterElements.length === 0)
    throw new PointsError("the number of parameters is not known; give --parameters");
  if ("curve" in run.link && run.link.curve.length < 2)
    throw new PointsError("an all-reduce curve needs at least two sizes [bytes, microseconds]");
  const elementBytes = run.gradientElementBytes ?? 4;
  const buckets = ddpBuckets(run.parameterElements, {
    elementBytes,
    ...(run.bucketCapBytes !== undefined && { capBytes: run.bucketCapBytes }),
  }).map((n) => n * elementBytes);
  const random = seededRandom(17);
  const uniform = ([low, high]: [number, number]): number => low + (high - low) * random();
  const mid = ([low, high]: [number, number]): number => (low + high) / 2;
  const step = quantile(run.stepUs, 0.5);
  const throughput = (devices: number, stepUs: number, backwardShare: number, link: number, slower: number): number => {
    if (devices === 1) return (run.batch / stepUs) * 1e6;
    const backward = run.backwardUs ?? stepUs * backwardShare;
    const { exposedUs, communicationUs } = simulateOverlap(
      buckets,
      backward,
      (b) => linkTime(run.link, b, devices).us / link,
    );
    const hidden = Math.min(backward, Math.max(0, communicationUs - exposedUs));
    return (devices * run.batch * 1e6) / (stepUs + exposedUs + hidden * slower);
  };
  return targets.map((devices) => {
    const value = throughput(devices, step, mid(backwardShares), mid(linkShares), mid(contention));
    const draws = Array.from({ length: 400 }, () =>
      throughput(
        devices,
        quantile(resample([...run.stepUs].slice(-200), random), 0.5),
        uniform(backwardShares),
        uniform(linkShares),
        uniform(contention),
      ),
    );
    const outside = buckets.some((bytes) => linkTime(run.link, bytes, Math.max(2, devices)).outside);
    const bytes = buckets.reduce((a, b) => a + b, 0);
    return {
      devices,
      value,
      interval: [quantile(draws, 0.1), quantile(draws, 0.9)],
      reason:
        devices === 1
          ? "measured on one device"
          : `predicted from one device: step ${(step / 1000).toPrecision(4)} ms, ${buckets.length} buckets of ${(bytes / 1e6).toPrecision(4)} MB in all, ` +
            `${"curve" in run.link ? `all-reduce curve measured on ${run.link.devices} devices` : run.link.name}; ` +
            `interval: backward ${run.backwardUs === undefined ? `${backwardShares.join(" to ")} of a step` : "as measured"}, ` +
            `link at ${linkShares.join(" to ")} of its model, kernels up to ${contention[1] * 100}% slower beside it` +
            (outside ? "; a bucket lies outside of the measured sizes, so that the curve is extended" : ""),
    };
  });
}
