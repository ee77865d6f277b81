// GRAPE: gradient optimization of piecewise constant pulses, with exact gradients of the integrated evolution. One pulse for an
// ensemble under a robust objective, or one pulse per task in one batch.
import { WeftError } from "@weft/core/internal/graph";
import { type Key, key, randn, type Tensor, valueAndGrad, vmap } from "@weft/core/internal/tensor";
import { type AdamState, adam } from "@weft/core/optim";
import { cachedProgram } from "../cache/index.js";
import { checkRates } from "../noise/index.js";
import {
  type MinimizeOptions,
  type MinimizeProgress,
  type Minimum,
  minimize,
  type NamedParameters,
} from "./minimize.js";
import { controlInfidelity, type PreparedProblem, type SegmentSteps } from "./open.js";
import { playedPulse, reportEach, reportPulse } from "./report.js";
import { type RobustObjective, robustLoss } from "./robust.js";

/** Options of `grape`. @inline */
interface GrapeOptions extends MinimizeOptions {
  /** Integration steps per segment. */
  steps?: SegmentSteps;
  /** How tasks are combined; default: the mean. */
  objective?: RobustObjective;
  /** Initial pulse [segments, operators]. Default: small random numbers from `seed`. */
  start?: Tensor;
  /** Seed of the initial pulse. */
  seed?: number;
  /** Called after each iteration; false ends the minimization. */
  onIteration?: (progress: MinimizeProgress) => boolean | undefined;
}

const defaultSteps: SegmentSteps = { method: "rk4", perSegment: 1 };

/** Initial pulse of small random numbers. */
export const randomPulse = (prepared: PreparedProblem, from: Key, count: number | null): Tensor => {
  const { segments, controls } = prepared.problem;
  const shape = [segments, controls.length];
  return randn(count === null ? shape : [count, ...shape], { key: from, std: 0.1, dtype: "float64" });
};

/** Robust infidelity of one pulse over an ensemble of rates [n, channels]: the loss that `grape` minimizes. */
export const ensembleLoss =
  (prepared: PreparedProblem, rates: Tensor, steps: SegmentSteps = defaultSteps, objective: RobustObjective = "mean") =>
  (params: NamedParameters): Tensor =>
    robustLoss(vmap((g: Tensor) => controlInfidelity(prepared, steps, params.pulse, g))(rates) as Tensor, objective);

/** Result of `grape`. */
export interface GrapeMinimum extends Minimum {
  /** Estimated error of `value` from the size of the steps, at the final pulse. */
  error: number;
}

/**
 * Optimizes one pulse for rates [channels] or for an ensemble [n, channels]. `value` of the result is the (robust) infidelity, and
 * `error` its estimated integration error. Throws if a fidelity is not in [0, 1], because the steps are too long.
 *
 * @example
 * ```ts
 * import { tensor } from "@weft/core";
 * import { grape, prepareProblem, qubitFlip } from "@weft/quantum";
 *
 * // A pi pulse in eight segments for a qubit with dephasing and relaxation.
 * const problem = prepareProblem(qubitFlip({ segments: 8 }));
 * const found = grape(problem, tensor([0.05, 0.02], { dtype: "float64" }), { iterations: 30 });
 * console.log(found.params.pulse.shape, found.value); // [ 8, 2 ] and an infidelity below 0.05
 * ```
 */
export function grape(prepared: PreparedProblem, rates: Tensor, options: GrapeOptions = {}): GrapeMinimum {
  const { steps = defaultSteps, objective, start, seed = 0, ...rest } = options;
  checkRates(rates, "grape: rates");
  const all = (rates.shape.length === 1 ? rates.unsqueeze(0) : rates).cast("float64");
  const pulse = start ?? randomPulse(prepared, key(seed), null);
  const found = minimize(ensembleLoss(prepared, all, steps, objective), { pulse }, rest);
  const { pulse: played, infidelity, error } = reportPulse(prepared, all, found.params.pulse, steps, objective);
  return { ...found, params: { pulse: played }, value: infidelity, error };
}

/** Result of `grapeEach`. */
export interface GrapeEach {
  /** [n, segments, operators] */
  pulses: Tensor;
  /** [n] */
  infidelities: number[];
  /** Largest estimated error of the infidelities from the size of the steps. */
  error: number;
}

/** Optimizes one pulse per task of rates [n, channels] by Adam, as one batched program per iteration. */
export function grapeEach(
  prepared: PreparedProblem,
  rates: Tensor,
  options: {
    steps?: SegmentSteps;
    iterations?: number;
    rate?: number;
    seed?: number;
    start?: Tensor;
    dtype?: "float32" | "float64";
  } = {},
): GrapeEach {
  const { steps = defaultSteps, iterations = 200, rate = 0.1, seed = 0, dtype = "float32" } = options;
  if (rates.shape.length !== 2) throw new WeftError(`grapeEach: rates must be [tasks, channels], got [${rates.shape}]`);
  checkRates(rates, "grapeEach: rates");
  const optimizer = adam({ learningRate: rate });
  const used = rates.cast(dtype);
  const each = (u: Tensor, g: Tensor): Tensor =>
    vmap((a: Tensor, b: Tensor) => controlInfidelity(prepared, steps, a, b))(u, g) as Tensor;
  const program = cachedProgram(
    `grape ${prepared.key} ${steps.method} ${steps.perSegment} ${rate}`,
    () =>
      (pulses: Tensor, state: AdamState, g: Tensor): [Tensor, AdamState] => {
        const [, grads] = valueAndGrad((u: Tensor) => each(u, g).sum())(pulses);
        return optimizer.update(pulses, grads, state);
      },
    { donate: [0, 1] },
  );
  let pulses = (options.start ?? randomPulse(prepared, key(seed), rates.shape[0])).cast(dtype);
  // Copies the caller's tensor, because the program donates its argument.
  if (options.start !== undefined) pulses = pulses.add(0);
  let state = optimizer.init(pulses);
  for (let i = 0; i < iterations; i++) [pulses, state] = program(pulses, state, used);
  const played = playedPulse(prepared, pulses);
  return { pulses: played, ...reportEach(prepared, rates.cast("float64"), played, steps) };
}
