// The one way in which results of pulse optimization are reported: the pulse as it is played (within its limit), fidelities in
// [0, 1], and the error that the integration steps leave at this pulse.
import type { Tensor } from "@weft/core/internal/tensor";
import { checkFidelities, controlInfidelities, halvingError, type Probes } from "./integration.js";
import type { PreparedProblem, SegmentSteps } from "./open.js";
import { type RobustObjective, robustLoss } from "./robust.js";

/** A pulse with its infidelity. */
export interface PulseReport {
  /** [segments, operators], within the limit of the problem. */
  pulse: Tensor;
  infidelity: number;
  /** Estimated error of the infidelity from the size of the steps, at this pulse. */
  error: number;
}

/** The amplitudes that a problem with a limit plays. */
export const playedPulse = ({ problem: { limit } }: PreparedProblem, pulse: Tensor): Tensor =>
  limit === undefined ? pulse : pulse.clip(-limit, limit);

/** Throws if one of the infidelities of pulses and rates is not in [0, 1]. */
export function checkInfidelities(prepared: PreparedProblem, steps: SegmentSteps, values: readonly number[]): void {
  const dt = prepared.problem.duration / prepared.problem.segments / steps.perSegment;
  checkFidelities(
    values.map((x) => 1 - x),
    { method: steps.method, dt, precision: "float32" },
  );
}

/** The infidelity of one pulse over an ensemble of rates [n, channels]; throws if it is not in [0, 1]. */
export function reportPulse(
  prepared: PreparedProblem,
  rates: Tensor,
  pulse: Tensor,
  steps: SegmentSteps,
  objective: RobustObjective = "mean",
): PulseReport {
  const played = playedPulse(prepared, pulse).cast("float64");
  const probes: Probes = { controls: played.unsqueeze(0).expand([rates.shape[0], ...played.shape]), rates };
  const values = controlInfidelities(prepared, steps, "float64", probes);
  checkInfidelities(prepared, steps, Array.from(values.dataSync() as Float64Array, Number));
  return {
    pulse: playedPulse(prepared, pulse),
    infidelity: robustLoss(values, objective).itemSync(),
    error: halvingError(prepared, steps, probes),
  };
}
