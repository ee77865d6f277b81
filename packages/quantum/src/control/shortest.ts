// Time-optimal control: the shortest duration at which an optimizer still reaches a target, by bisection with warm starts.
import { WeftError } from "@weft/core/internal/graph";
import type { NamedParameters } from "./minimize.js";

/** An optimized pulse of some duration. */
export interface TimedResult {
  /** Infidelity that was reached. */
  infidelity: number;
  /** Optimized parameters. */
  params: NamedParameters;
}

/** Result of `shortestDuration`. */
export interface ShortestDuration extends TimedResult {
  /** Shortest duration that reached the target. */
  duration: number;
  /** Every duration that was tried, with the infidelity that was reached. */
  tried: { duration: number; infidelity: number }[];
}

/**
 * Finds the shortest duration at which `optimize` reaches the target. Below the speed limit of a system no pulse does, so that
 * reached durations lie above those that are not.
 *
 * @param optimize - Optimizes at a duration, starting from parameters (or from its own start).
 * @param options - `low` and `high` bracket the search; `precision` is the relative width at which it ends.
 */
export function shortestDuration(
  optimize: (duration: number, start: NamedParameters | null) => TimedResult,
  options: { target: number; low: number; high: number; precision?: number },
): ShortestDuration {
  const { target, low: least, high: most, precision = 0.01 } = options;
  if (!(least > 0 && most > least && Number.isFinite(most)))
    throw new WeftError(`shortestDuration: needs 0 < low < high, got ${least} and ${most}`);
  if (!(target > 0 && target < 1)) throw new WeftError(`shortestDuration: target must be in (0, 1), got ${target}`);
  if (!(precision > 0 && precision < 1))
    throw new WeftError(`shortestDuration: precision must be in (0, 1), got ${precision}`);
  const tried: ShortestDuration["tried"] = [];
  const run = (duration: number, start: NamedParameters | null): TimedResult => {
    const found = optimize(duration, start);
    tried.push({ duration, infidelity: found.infidelity });
    return found;
  };
  let best = { duration: most, ...run(most, null) };
  if (best.infidelity > target)
    throw new WeftError(
      `shortestDuration: an infidelity of ${best.infidelity.toExponential(2)} is reached at the longest duration ${most}, ` +
        `above the target ${target}; allow a longer one, more iterations or larger amplitudes`,
    );
  let low = least;
  while (best.duration - low > precision * best.duration) {
    const middle = (low + best.duration) / 2;
    // A pulse that was squeezed is a good start, but may sit in a local minimum of the shorter problem.
    const warm = run(middle, best.params);
    const found = warm.infidelity <= target ? warm : run(middle, null);
    if (found.infidelity <= target) best = { duration: middle, ...found };
    else low = middle;
  }
  return { ...best, tried };
}
