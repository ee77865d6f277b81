// Steps of fixed length must be short enough to see every pulse and its carrier. A run with other steps cannot tell: both miss a pulse
// between two steps, and a carrier with a whole number of periods per step looks constant to both.
import { WeftError } from "@weft/core/internal/graph";
import type { Tensor } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import type { Evolution } from "../solvers/index.js";
import type { BoundDevice } from "./device.js";

/** Steps in a pulse without values, and in a period of a carrier. */
const leastSteps = 4;

const numberOf = (x: Tensor | undefined, fallback: number): number | null =>
  x === undefined ? fallback : (concreteValues(x)?.[0] ?? null);

/**
 * Throws if the steps of a method of fixed steps are longer than a quarter of a pulse (or than one of its values) or of a period of its
 * carrier.
 */
export function checkStepLength(
  bound: BoundDevice,
  duration: Tensor,
  { method, steps }: Pick<Evolution, "method" | "steps">,
): void {
  const total = numberOf(duration, 0);
  if (method.tolerance !== undefined || total === null) return;
  for (const drive of bound.device.drives) {
    const p = bound.pulseParameters(drive);
    const [end, delay] = [numberOf(drive.pulse.end(p), 0), numberOf(p.delay, 0)];
    const [omega, amplitude] = [numberOf(p.omega, 0), numberOf(p.amplitude, 1)];
    if (end === null || delay === null || omega === null || amplitude === 0) continue;
    const isAbrupt = drive.pulse.shape === "piecewise" || drive.pulse.shape === "constant";
    const parts = Math.max(isAbrupt ? 1 : leastSteps, p.values?.size ?? 0);
    const isPlayed = end > delay;
    const times = [
      { what: "lasts", length: end - delay, parts },
      { what: "has a carrier with a period of", length: (2 * Math.PI) / Math.abs(omega), parts: leastSteps },
    ];
    for (const { what, length, parts: count } of isPlayed ? times : [])
      if ((total / steps) * count > length * (1 + 1e-9))
        throw new WeftError(
          `evolve: the pulse ${drive.on}.${drive.name} ${what} ${length.toPrecision(4)} ns, and a step of ${method.name} is ` +
            `${(total / steps).toPrecision(4)} ns: too long to follow it; use at least ${Math.ceil((total * count) / length)} steps`,
        );
  }
}
