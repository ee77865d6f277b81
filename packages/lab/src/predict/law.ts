// The prediction law: a family of shapes between the ring and the logarithm. Few points cannot determine the shape, so it is
// chosen by the measured overhead, calibrated on many series (constants.ts).
import { type OverheadShape, powerShape } from "../metrics/index.js";

export interface LawConstants {
  /** Overhead per doubling at and below which the overhead is taken to be communication that saturates. */
  saturatingBelow: number;
  /** Overhead per doubling at and above which it is taken to grow with every doubling. */
  growingAbove: number;
  /** Exponents of the shape family at these two ends (1 would be the ring, 0 the logarithm, -1 a serial part). */
  saturatingExponent: number;
  growingExponent: number;
  /** Larger counts have larger weights: weight = devices ** weightExponent. */
  weightExponent: number;
}

export interface FittedLaw {
  /** OverheadShape exponent that was chosen. */
  exponent: number;
  /** Overhead at two devices. */
  coefficient: number;
  /** Overhead per doubling over the measured range. */
  overheadPerDoubling: number;
  /** Time relative to perfect scaling from one device. */
  relativeTime: OverheadShape;
  throughput: (devices: number) => number;
}

const smallestOverhead = 1e-4;

/** `points` ascending in devices, at least two different counts. */
export function fitLaw(points: readonly (readonly [number, number])[], constants: LawConstants): FittedLaw {
  const [baseDevices, baseThroughput] = points[0]!;
  const rest = points.slice(1).map(([devices, throughput]) => ({
    devices,
    // Time per unit of work and device, relative to the smallest count.
    relative: (devices * baseThroughput) / (baseDevices * throughput),
    weight: devices ** constants.weightExponent,
  }));
  let overhead = 0;
  let doublings = 0;
  for (const p of rest) {
    overhead += p.weight * (p.relative - 1);
    doublings += p.weight * Math.log2(p.devices / baseDevices);
  }
  const overheadPerDoubling = overhead / doublings;
  const { saturatingBelow, growingAbove } = constants;
  const place =
    Math.log(Math.max(overheadPerDoubling, smallestOverhead) / saturatingBelow) /
    Math.log(growingAbove / saturatingBelow);
  const share = Math.min(1, Math.max(0, place));
  const exponent = constants.saturatingExponent + (constants.growingExponent - constants.saturatingExponent) * share;
  const shape = powerShape(exponent);
  const atBase = shape(baseDevices);
  // relative (1 + c f(base)) = 1 + c f(N) is linear in c.
  let numerator = 0;
  let denominator = 0;
  for (const p of rest) {
    const slope = shape(p.devices) - p.relative * atBase;
    numerator += p.weight * slope * (p.relative - 1);
    denominator += p.weight * slope * slope;
  }
  const coefficient = denominator > 0 ? numerator / denominator : 0;
  const relativeTime: OverheadShape = (n) => 1 + coefficient * shape(n);
  const perDevice = (baseThroughput / baseDevices) * relativeTime(baseDevices);
  return {
    exponent,
    coefficient,
    overheadPerDoubling,
    relativeTime,
    throughput: (n) => (n * perDevice) / relativeTime(n),
  };
}
