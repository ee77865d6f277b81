// One number for an ensemble of losses: the mean, the worst, or the mean of the worst share (CVaR). Knows no physics.
import { WeftError } from "@weft/core/internal/graph";
import { logsumexp, sort, type Tensor } from "@weft/core/internal/tensor";

export type RobustObjective =
  | "mean"
  | "worst"
  /** A smooth bound from above: (1/sharpness) log mean exp(sharpness loss). */
  | { softWorst: number }
  /** The mean of this worst share of the losses. */
  | { cvar: number };

/** losses [n] -> a scalar. */
export function robustLoss(losses: Tensor, objective: RobustObjective = "mean"): Tensor {
  const [n] = losses.shape;
  if (losses.shape.length !== 1 || n === 0)
    throw new WeftError(`robustLoss: losses must be [n] with n >= 1, got [${losses.shape}]`);
  if (objective === "mean") return losses.mean();
  if (objective === "worst") return losses.max();
  if (typeof objective === "object" && "softWorst" in objective) {
    const sharpness = objective.softWorst;
    if (!(sharpness > 0)) throw new WeftError(`robustLoss: softWorst must be above 0, got ${sharpness}`);
    return logsumexp(losses.mul(sharpness)).sub(Math.log(n)).div(sharpness);
  }
  if (typeof objective === "object" && "cvar" in objective) {
    const share = objective.cvar;
    if (!(share > 0 && share <= 1)) throw new WeftError(`robustLoss: cvar must be in (0, 1], got ${share}`);
    // The last of the worst counts by the part of it that belongs to the share.
    const count = share * n;
    const whole = Math.floor(count + 1e-9);
    const sorted = sort(losses, 0, { descending: true });
    const sum = whole === 0 ? sorted.index(0).mul(0) : sorted.index(`0:${whole}`).sum();
    const rest = count - whole;
    return (rest > 1e-9 && whole < n ? sum.add(sorted.index(whole).mul(rest)) : sum).div(count);
  }
  throw new WeftError(`robustLoss: unknown objective ${JSON.stringify(objective)}; mean, worst, softWorst or cvar`);
}
