// Pulses: an envelope with an amplitude, a delay, a carrier and DRAG. A pulse holds numbers; it is evaluated with tensors
// under its parameters' names, so that all of them can be learned.
import { WeftError } from "@weft/core/internal/graph";
import { cos, full, jvp, onesLike, sin, type Tensor, tensor, where } from "@weft/core/internal/tensor";
import { type PulseParameters, type PulseShapeName, pulseShapes } from "./shapes.js";

/** A number, or a list for piecewise constant values. */
export type PulseValue = number | readonly number[];

export interface PulseFields {
  /** The largest value of the envelope (rad/ns in a device). */
  amplitude?: number;
  /** ns before it begins. */
  delay?: number;
  /** Angular frequency of the carrier, rad/ns; without one there is no carrier. */
  omega?: number;
  phase?: number;
  /** DRAG: - drag e'(t) sin(omega t + phase) is added. Needs a carrier. */
  drag?: number;
}

const carrierFields = ["amplitude", "delay", "omega", "phase", "drag"] as const;

export class Pulse {
  readonly shape: PulseShapeName;
  readonly parameters: Readonly<Record<string, PulseValue>>;

  constructor(shape: PulseShapeName, given: Readonly<Record<string, PulseValue | undefined>>) {
    const rule = pulseShapes[shape];
    if (rule === undefined)
      throw new WeftError(`pulse: there is no shape "${String(shape)}"; known: ${Object.keys(pulseShapes).join(", ")}`);
    const all: Record<string, PulseValue> = { amplitude: 1, ...rule.defaults };
    const known = [...carrierFields, ...rule.parameters];
    for (const [name, value] of Object.entries(given)) {
      if (value === undefined) continue;
      if (!known.includes(name))
        throw new WeftError(`pulse ${shape}: there is no parameter "${name}"; known: ${known.join(", ")}`);
      const numbers = typeof value === "number" ? [value] : value;
      if (numbers.length === 0 || numbers.some((x) => !Number.isFinite(x)))
        throw new WeftError(`pulse ${shape}: ${name} must be a finite number, got ${String(value)}`);
      if (["length", "ramp", "sigma", "cut", "sharpness"].includes(name) && numbers[0] <= 0)
        throw new WeftError(`pulse ${shape}: ${name} must be positive, got ${String(value)}`);
      if (["delay", "plateau"].includes(name) && numbers[0] < 0)
        throw new WeftError(`pulse ${shape}: ${name} must not be negative, got ${String(value)}`);
      all[name] = value;
    }
    for (const name of rule.parameters)
      if (!(name in all)) throw new WeftError(`pulse ${shape}: the parameter "${name}" is missing`);
    if ("drag" in all && !("omega" in all)) throw new WeftError(`pulse ${shape}: drag needs a carrier; give omega`);
    if ("omega" in all && !("phase" in all)) all.phase = 0;
    this.shape = shape;
    this.parameters = all;
  }

  /** The parameters as tensors of double precision. */
  tensors(): Record<string, Tensor> {
    return Object.fromEntries(
      Object.entries(this.parameters).map(([name, value]) => [
        name,
        typeof value === "number" ? full([], value, { dtype: "float64" }) : tensor([...value], { dtype: "float64" }),
      ]),
    );
  }

  /** When it is over, ns. */
  end(p: PulseParameters = this.tensors()): Tensor {
    const length = pulseShapes[this.shape].length(p);
    return "delay" in p ? length.add(p.delay) : length;
  }

  /** The values at times (ns since the start of the evolution). */
  at(times: Tensor, p: PulseParameters = this.tensors()): Tensor {
    const cast = Object.fromEntries(Object.entries(p).map(([k, x]) => [k, x.cast(times.dtype)]));
    const rule = pulseShapes[this.shape];
    const since = "delay" in cast ? times.sub(cast.delay) : times;
    const inside = since.greaterEqual(0).logicalAnd(since.lessEqual(rule.length(cast)));
    // Outside, the envelope is read at 0: what it would be there must not disturb the gradient.
    const t = where(inside, since, 0);
    const gated = (x: Tensor): Tensor => where(inside, x, 0).mul(cast.amplitude);
    if (!("omega" in cast)) return gated(rule.envelope(t, cast));
    const wave = since.mul(cast.omega).add(cast.phase);
    if (!("drag" in cast)) return gated(rule.envelope(t, cast)).mul(cos(wave));
    const [value, slope] = jvp((x: Tensor) => rule.envelope(x, cast), [t], [onesLike(t)]);
    return gated(value)
      .mul(cos(wave))
      .sub(where(inside, slope, 0).mul(cast.drag).mul(sin(wave)));
  }

  /** As it is written in files. */
  toJSON(): Record<string, unknown> {
    return { shape: this.shape, ...this.parameters };
  }
}

type Fields<K extends string, O extends string = never> = PulseFields & { [N in K]: number } & { [N in O]?: number };

/** amp (1 - cos(2 pi t / length)) / 2 */
export const cosinePulse = (fields: Fields<"length">): Pulse => new Pulse("cosine", { ...fields });
/** Cosine ramps around a plateau. */
export const rampedCosinePulse = (fields: Fields<"ramp" | "plateau">): Pulse =>
  new Pulse("rampedCosine", { ...fields });
export const trapezoidPulse = (fields: Fields<"ramp" | "plateau">): Pulse => new Pulse("trapezoid", { ...fields });
/** A Gaussian cut at `cut` standard deviations and lowered to zero there. */
export const gaussianPulse = (fields: Fields<"sigma", "cut">): Pulse => new Pulse("gaussian", { ...fields });
export const gaussianSquarePulse = (fields: Fields<"sigma" | "plateau", "cut">): Pulse =>
  new Pulse("gaussianSquare", { ...fields });
export const tanhPulse = (fields: Fields<"ramp" | "plateau", "sharpness">): Pulse => new Pulse("tanh", { ...fields });
export const erfPulse = (fields: Fields<"ramp" | "plateau", "sharpness">): Pulse => new Pulse("erf", { ...fields });
export const constantPulse = (fields: Fields<"length">): Pulse => new Pulse("constant", { ...fields });
/** Equal segments over the length. The values have gradients; the ends of segments do not move them. */
export const piecewisePulse = (fields: Fields<"length"> & { values: readonly number[] }): Pulse =>
  new Pulse("piecewise", { ...fields });
