// The one way in which results of pulse optimization are reported: the pulse as it is played (within its limit), fidelities in
// [0, 1], and the error that the integration steps leave at this pulse.
import { type Tensor, tensor } from "@weft/core/internal/tensor";
import { checkFidelities, controlInfidelities, halvingError, type Probes } from "./integration.js";
import type { PreparedProblem, SegmentSteps } from "./open.js";
import { type RobustObjective, robustLoss } from "./robust.js";

/** A pulse with its infidelity. */
export interface PulseReport {
  /** [segments, operators], within the limit of the problem. */
  pulse: Tensor;
  /** The infidelity. */
  infidelity: number;
  /** Estimated error of the infidelity from the size of the steps, at this pulse. */
  error: number;
}

/** The amplitudes that a problem with a limit plays. */
export const playedPulse = ({ problem: { limit } }: PreparedProblem, pulse: Tensor): Tensor =>
  limit === undefined ? pulse : pulse.clip(-limit, limit);

/** Infidelities of pulses [n, segments, operators] at rates [n, channels] in float64; throws if one is not in [0, 1]. */
export function reportEach(
  prepared: PreparedProblem,
  rates: Tensor,
  pulses: Tensor,
  steps: SegmentSteps,
): { infidelities: number[]; error: number } {
  const probes: Probes = { controls: pulses.cast("float64"), rates };
  const infidelities = Array.from(
    controlInfidelities(prepared, steps, "float64", probes).dataSync() as Float64Array,
    Number,
  );
  const dt = prepared.problem.duration / prepared.problem.segments / steps.perSegment;
  checkFidelities(
    infidelities.map((x) => 1 - x),
    { method: steps.method, dt, precision: "float32" },
  );
  return { infidelities, error: halvingError(prepared, steps, probes) };
}

/** The infidelity of one pulse over an ensemble of rates [n, channels]; throws if it is not in [0, 1]. */
export function reportPulse(
  prepared: PreparedProblem,
  rates: Tensor,
  pulse: Tensor,
  steps: SegmentSteps,
  objective: RobustObjective = "mean",
): PulseReport {
  const played = playedPulse(prepared, pulse);
  const all = played.unsqueeze(0).expand([rates.shape[0], ...played.shape]);
  const { infidelities, error } = reportEach(prepared, rates, all, steps);
  const value = robustLoss(tensor(infidelities, { dtype: "float64" }), objective).itemSync();
  return { pulse: played, infidelity: Math.min(1, Math.max(0, value)), error };
}
