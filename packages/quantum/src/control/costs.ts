// Running costs of drives: power, smoothness and bandwidth, as functions of samples at equal distances. They are added to an
// infidelity with weights, so that an optimizer prefers pulses that hardware can play.
import { WeftError } from "@weft/core/internal/graph";
import { arange, full, imag, real, rfft, type Tensor, where } from "@weft/core/internal/tensor";

/** Weights of running costs; costs without a weight are zero. */
export interface RunningCosts {
  /** Weight of the mean square of the drives, in (rad/ns)^2. */
  power?: number;
  /** Weight of the mean square of the slopes, in (rad/ns^2)^2; drives are zero before and after the pulse. */
  smoothness?: number;
  /** Weight of the part of the energy at frequencies above `above` (GHz), from 0 to 1. */
  bandwidth?: { above: number; weight: number };
}

/** Costs by name, without weights. */
export type CostValues = Partial<Record<keyof RunningCosts, Tensor>>;

/**
 * The costs of drives [n, K], sampled at the centers of n equal parts of the duration.
 *
 * @example
 * ```ts
 * import { tensor } from "@weft/core";
 * import { runningCosts } from "@weft/quantum";
 *
 * const drives = tensor([[0.1], [0.3], [0.1]], { dtype: "float64" });
 * console.log(runningCosts(drives, 6, { power: 1 }).power!.itemSync()); // (0.01 + 0.09 + 0.01) / 3
 * ```
 */
export function runningCosts(drives: Tensor, duration: Tensor | number, costs: RunningCosts): CostValues {
  if (drives.rank !== 2 || drives.shape[0] < 1)
    throw new WeftError(`runningCosts: drives must be [samples, drives], got [${drives.shape.join(", ")}]`);
  const [n] = drives.shape;
  const length =
    typeof duration === "number" ? full([], duration, { dtype: drives.dtype }) : duration.cast(drives.dtype);
  const values: CostValues = {};
  if (costs.power !== undefined) values.power = drives.square().sum(1).mean();
  if (costs.smoothness !== undefined) {
    const padded = drives.pad([
      [1, 1],
      [0, 0],
    ]);
    const change = padded.index("1:").sub(padded.index(`0:${n + 1}`));
    // The sum of change^2 / dt over all borders, divided by the duration.
    values.smoothness = change.square().sum().mul(n).div(length.square());
  }
  if (costs.bandwidth !== undefined) {
    const padded = drives.pad([
      [0, 7 * n],
      [0, 0],
    ]);
    const spectrum = rfft(padded, { axis: 0 });
    const energy = real(spectrum).square().add(imag(spectrum).square()).sum(1);
    const [bins] = energy.shape;
    const frequency = arange(0, bins, 1, { dtype: drives.dtype }).div(length.mul(8));
    const total = energy.sum();
    const outside = where(frequency.greater(costs.bandwidth.above), energy, 0).sum();
    values.bandwidth = outside.div(where(total.greater(0), total, 1));
  }
  return values;
}

/** The weighted sum of costs. */
export function weightedCosts(values: CostValues, costs: RunningCosts): Tensor | null {
  const parts = [
    [values.power, costs.power],
    [values.smoothness, costs.smoothness],
    [values.bandwidth, costs.bandwidth?.weight],
  ] as const;
  return parts.reduce<Tensor | null>((sum, [value, weight]) => {
    if (value === undefined || weight === undefined) return sum;
    return sum === null ? value.mul(weight) : sum.add(value.mul(weight));
  }, null);
}
