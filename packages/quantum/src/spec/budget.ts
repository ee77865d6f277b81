// The budget of errors of a gate: what the infidelity consists of.
import type { ErrorShare } from "../pictures/index.js";
import type { DeviceParameters } from "../systems/index.js";
import { GateProblem } from "./problem.js";

/**
 * Contributions to the infidelity of a pulse: the whole, what remains without decay, what each decay adds (the difference to a run
 * without it), leakage, and the error of the steps. They need not add up, because contributions interfere.
 */
export function errorBudget(problem: GateProblem, p: Partial<DeviceParameters> = {}): ErrorShare[] {
  const spec = { ...problem.spec, robust: null };
  const whole = new GateProblem(spec).report(p);
  const without = (jumps: typeof spec.jumps): number => {
    const rates = new Set(spec.jumps.filter((jump) => !jumps.includes(jump)).map(({ key }) => key));
    const parameters = Object.fromEntries(Object.entries(spec.parameters).filter(([key]) => !rates.has(key)));
    const own = Object.fromEntries(Object.entries(p).filter(([key]) => !rates.has(key)));
    const other = new GateProblem({ ...spec, jumps, parameters });
    return other.outcome(other.bind(own), own).infidelity.itemSync();
  };
  return [
    { name: "infidelity", value: whole.infidelity },
    ...(spec.jumps.length === 0 ? [] : [{ name: "without decay", value: Math.max(0, without([])) }]),
    ...spec.jumps.map((jump) => ({
      name: `decay ${jump.key.replace(/\.rate$/, "")}`,
      value: Math.max(0, whole.infidelity - without(spec.jumps.filter((other) => other !== jump))),
    })),
    ...(whole.leaked === null ? [] : [{ name: "leakage", value: Math.max(0, whole.leaked) }]),
    { name: "error of the steps", value: whole.error },
  ];
}
