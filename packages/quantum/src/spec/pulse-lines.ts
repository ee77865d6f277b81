// Samples of the pulses of a gate, for pictures. Carriers have twenty points per period; those too fast to resolve are drawn as
// the band of their envelope.
import { type Tensor, tensor } from "@weft/core/internal/tensor";
import type { Pulse } from "../pulses/index.js";
import type { DeviceParameters } from "../systems/index.js";
import type { GateProblem } from "./problem.js";

const f64 = { dtype: "float64" } as const;
const pointsPerPeriod = 20;
const minPoints = 400;
/** With more points a period is only a few pixels wide. */
const maxPoints = 4000;

/** Samples of one pulse. */
export interface PulseLine {
  /** `part.drive`. */
  name: string;
  /** Whether the values are an envelope whose carrier is too fast to draw. */
  band: boolean;
  /** Times in the unit of the specification. */
  times: number[];
  /** Values at these times. */
  values: number[];
}

/** Samples of one pulse over the evolution. */
function pulseLine(name: string, pulse: Pulse, parameters: Record<string, Tensor>, duration: number): PulseLine {
  const omega = Math.abs(parameters.omega?.itemSync() ?? 0);
  const wanted = Math.ceil((pointsPerPeriod * omega * duration) / (2 * Math.PI));
  const band = wanted > maxPoints;
  const count = band ? minPoints : Math.max(minPoints, wanted);
  const times = Array.from({ length: count + 1 }, (_, k) => (k * duration) / count);
  const still = Object.fromEntries(
    Object.entries(parameters).map(([key, x]) => [key, key === "omega" || key === "phase" ? x.mul(0) : x]),
  );
  const values = pulse.at(tensor(times, f64), band ? still : parameters);
  return { name, band, times, values: Array.from(values.dataSync() as Float64Array) };
}

/** Samples of every pulse of a gate over its evolution. */
export function pulseLines(problem: GateProblem, p: Partial<DeviceParameters> = {}): PulseLine[] {
  const bound = problem.bind(p);
  const duration = problem.spec.evolution.duration ?? bound.duration().itemSync();
  return problem.spec.device.drives.map((drive) =>
    pulseLine(`${drive.on}.${drive.name}`, drive.pulse, bound.pulseParameters(drive), duration),
  );
}
