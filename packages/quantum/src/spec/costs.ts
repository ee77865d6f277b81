// The section `costs` of a gate specification: running costs of the drives, added to the infidelity while optimizing.
import { arange, Tensor } from "@weft/core/internal/tensor";
import { type CostValues, type RunningCosts, runningCosts } from "../control/index.js";
import { above, construct, SpecError, strict } from "../schema/index.js";
import { type BoundDevice, durationOf } from "../systems/index.js";

export const costsSchema = construct(
  strict({
    power: above("zero").optional(),
    smoothness: above("zero").optional(),
    bandwidth: strict({ above: above("positive"), weight: above("zero") }).optional(),
  }),
  (given): RunningCosts => {
    if (Object.values(given).every((weight) => weight === undefined))
      throw new SpecError("give at least one of power, smoothness and bandwidth");
    return given;
  },
);

/** Samples of drives that are functions of time. */
const samples = 512;

/** The costs of the drives of a device, from the values of shared segments or from samples. */
export function drivesCosts(bound: BoundDevice, given: number | undefined, costs: RunningCosts): CostValues {
  const { amplitudes } = bound.hamiltonian({ duration: given });
  const duration = durationOf(bound, given);
  if (amplitudes === null) return {};
  if (amplitudes instanceof Tensor) return runningCosts(amplitudes, duration, costs);
  const times = arange(0, samples, 1, { dtype: "float64" }).add(0.5).div(samples).mul(duration);
  return runningCosts(amplitudes(times), duration, costs);
}
