// Robust objectives: the mean, the maximum, a smooth maximum, or the conditional value at risk of an ensemble of losses.
import { WeftError } from "@weft/core/internal/graph";
import { logsumexp, sort, type Tensor } from "@weft/core/internal/tensor";

/** How the losses of an ensemble are combined. */
export type RobustObjective =
  | "mean"
  | "worst"
  /** Smooth maximum: (1/sharpness) log mean exp(sharpness loss). */
  | { softWorst: number }
  /** Conditional value at risk: the mean of this fraction of the largest losses. */
  | { cvar: number };

/** Combines losses [n] into a scalar. */
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
    // The last loss in the tail counts with its fraction.
    const count = share * n;
    const whole = Math.floor(count + 1e-9);
    const sorted = sort(losses, 0, { descending: true });
    const sum = whole === 0 ? sorted.index(0).mul(0) : sorted.index(`0:${whole}`).sum();
    const rest = count - whole;
    return (rest > 1e-9 && whole < n ? sum.add(sorted.index(whole).mul(rest)) : sum).div(count);
  }
  throw new WeftError(`robustLoss: unknown objective ${JSON.stringify(objective)}; mean, worst, softWorst or cvar`);
}
