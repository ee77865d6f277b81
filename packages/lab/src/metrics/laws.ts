// Scaling laws and efficiency classes. predict/ chooses the law for a prediction.

/** Time relative to perfect scaling: t(N) = N T(N) / T(1) for a fixed problem, N X(1) / X(N) for throughput. */
export type OverheadShape = (devices: number) => number;

/** Bytes that a ring all-reduce moves per device, in units of the message. */
export const ringShape: OverheadShape = (n) => (2 * (n - 1)) / n;
export const logShape: OverheadShape = (n) => Math.log2(n);
export const serialShape: OverheadShape = (n) => n - 1;

/**
 * A family that contains the three laws above: exponent 1 is the ring, 0 the logarithm, -1 Amdahl's serial part.
 * All of them are 0 at one device and 1 at two.
 */
export function powerShape(exponent: number): OverheadShape {
  if (Math.abs(exponent) < 1e-9) return logShape;
  const atTwo = 1 - 2 ** -exponent;
  return (n) => (1 - n ** -exponent) / atTwo;
}

/** Speedup by Amdahl's law. */
export const amdahl = (serialFraction: number, n: number): number => 1 / (serialFraction + (1 - serialFraction) / n);
/** Scaled speedup by Gustafson's law. */
export const gustafson = (serialFraction: number, n: number): number => n - serialFraction * (n - 1);

/** The serial fraction that a measured speedup implies. Above 1: not a fixed problem. Below 0: super-linear. */
export function karpFlatt(speedup: number, n: number): number | null {
  if (n <= 1) return null;
  return (1 / speedup - 1 / n) / (1 - 1 / n);
}

/** The class of an efficiency. */
export type ScalingClass =
  | "baseline"
  | "super-linear"
  | "near-perfect"
  | "good"
  | "partial"
  | "poor"
  | "none"
  | "negative";

/** The class of a speedup. Every finite positive speedup has exactly one class. */
export function scalingClass(speedup: number, ratio: number): ScalingClass {
  if (ratio <= 1) return "baseline";
  const efficiency = speedup / ratio;
  if (speedup <= 1) return "negative";
  if (efficiency > 1.02) return "super-linear";
  if (efficiency >= 0.875) return "near-perfect";
  if (efficiency >= 0.625) return "good";
  if (efficiency >= 0.5) return "partial";
  if (efficiency >= 0.25) return "poor";
  return "none";
}

export const classMeaning: Record<ScalingClass, string> = {
  baseline: "what the others are compared with",
  "super-linear": "efficiency above 102%: look for a weak baseline or a cache effect",
  "near-perfect": "efficiency 87.5% or more",
  good: "efficiency 62.5% to 87.5%",
  partial: "efficiency 50% to 62.5%",
  poor: "efficiency 25% to 50%",
  none: "faster than one device, but efficiency below 25%",
  negative: "no faster than one device",
};

/** Least squares of t - 1 = c f(N) through the origin: the one-parameter laws. */
export function fitShape(
  shape: OverheadShape,
  points: readonly { devices: number; relativeTime: number }[],
): number | null {
  let numerator = 0;
  let denominator = 0;
  for (const { devices, relativeTime } of points) {
    const f = shape(devices);
    numerator += f * (relativeTime - 1);
    denominator += f * f;
  }
  return denominator > 0 ? numerator / denominator : null;
}
