// Pulses: an envelope with amplitude, delay, carrier and DRAG. A pulse holds numbers; it is evaluated with tensors under its
// parameters' names, so that each of them can be differentiated.
import { WeftError } from "@weft/core/internal/graph";
import { cos, full, jvp, onesLike, sin, type Tensor, tensor, where } from "@weft/core/internal/tensor";
import { type PulseParameters, type PulseShapeName, pulseShapes } from "./shapes.js";

/** A parameter of a pulse: a number, or the list of values of a piecewise constant pulse. */
export type PulseValue = number | readonly number[];

/** Parameters that pulses of every shape accept. @inline */
interface PulseFields {
  /** Peak of the envelope (rad/ns in a device). */
  amplitude?: number;
  /** Start time, ns. */
  delay?: number;
  /** Angular frequency of the carrier, rad/ns. Without it there is no carrier. */
  omega?: number;
  /** Phase of the carrier in radians. */
  phase?: number;
  /** DRAG coefficient: adds - drag e'(t) sin(omega t + phase). Needs a carrier. */
  drag?: number;
}

/** Names of the parameters that pulses of every shape accept. */
export const carrierParameters = ["amplitude", "delay", "omega", "phase", "drag"] as const;

/** Pulse of a named shape. The functions `cosinePulse`, `gaussianPulse`, ... are typed constructors. */
export class Pulse {
  /** Name of its envelope. */
  readonly shape: PulseShapeName;
  /** Values of its parameters. */
  readonly parameters: Readonly<Record<string, PulseValue>>;

  constructor(shape: PulseShapeName, given: Readonly<Record<string, PulseValue | undefined>>) {
    const rule = pulseShapes[shape];
    if (rule === undefined)
      throw new WeftError(`pulse: there is no shape "${String(shape)}"; known: ${Object.keys(pulseShapes).join(", ")}`);
    const all: Record<string, PulseValue> = { amplitude: 1, ...rule.defaults };
    const known = [...carrierParameters, ...rule.parameters];
    for (const [name, value] of Object.entries(given)) {
      if (value === undefined) continue;
      if (!known.includes(name))
        throw new WeftError(`pulse ${shape}: there is no parameter "${name}"; known: ${known.join(", ")}`);
      if (Array.isArray(value) !== (name === "values"))
        throw new WeftError(
          `pulse ${shape}: ${name} must be ${name === "values" ? "a list" : "a number"}, got ${String(value)}`,
        );
      const numbers = typeof value === "number" ? [value] : value;
      if (numbers.length === 0) throw new WeftError(`pulse ${shape}: ${name} must be a list of numbers, got []`);
      const bad = numbers.find((x) => !Number.isFinite(x));
      if (bad !== undefined) throw new WeftError(`pulse ${shape}: ${name} must be a finite number, got ${String(bad)}`);
      if (["length", "ramp", "sigma", "cut", "sharpness", "bandwidth"].includes(name) && numbers[0] <= 0)
        throw new WeftError(`pulse ${shape}: ${name} must be positive, got ${String(value)}`);
      if (["delay", "plateau"].includes(name) && numbers[0] < 0)
        throw new WeftError(`pulse ${shape}: ${name} must not be negative, got ${String(value)}`);
      all[name] = value;
    }
    for (const name of rule.parameters)
      if (!(name in all)) throw new WeftError(`pulse ${shape}: the parameter "${name}" is missing`);
    if ("drag" in all && !("omega" in all)) throw new WeftError(`pulse ${shape}: drag needs a carrier; give omega`);
    if ("phase" in all && !("omega" in all)) throw new WeftError(`pulse ${shape}: phase needs a carrier; give omega`);
    if ("omega" in all && !("phase" in all)) all.phase = 0;
    this.shape = shape;
    this.parameters = all;
  }

  /** The parameters as float64 tensors. */
  tensors(): Record<string, Tensor> {
    return Object.fromEntries(
      Object.entries(this.parameters).map(([name, value]) => [
        name,
        typeof value === "number" ? full([], value, { dtype: "float64" }) : tensor([...value], { dtype: "float64" }),
      ]),
    );
  }

  /** End time, ns. */
  end(p: PulseParameters = this.tensors()): Tensor {
    const length = pulseShapes[this.shape].length(p);
    return "delay" in p ? length.add(p.delay) : length;
  }

  /** Values at times in ns since the start of the evolution. */
  at(times: Tensor, p: PulseParameters = this.tensors()): Tensor {
    const cast = Object.fromEntries(Object.entries(p).map(([k, x]) => [k, x.cast(times.dtype)]));
    const rule = pulseShapes[this.shape];
    const since = "delay" in cast ? times.sub(cast.delay) : times;
    const inside = since.greaterEqual(0).logicalAnd(since.lessEqual(rule.length(cast)));
    // Outside the pulse the envelope is evaluated at 0, because a NaN or infinity there would spoil the gradient.
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

  /** The pulse as an entry of a specification file. */
  toJSON(): Record<string, unknown> {
    return { shape: this.shape, ...this.parameters };
  }
}

type Fields<K extends string, O extends string = never> = PulseFields & { [N in K]: number } & { [N in O]?: number };

/**
 * Raised cosine: amplitude (1 - cos(2 pi t / length)) / 2.
 *
 * @example
 * ```ts
 * import { tensor } from "@weft/core";
 * import { cosinePulse } from "@weft/quantum";
 *
 * const pulse = cosinePulse({ length: 40, amplitude: 0.2 });
 * console.log(pulse.at(tensor([0, 10, 20], { dtype: "float64" })).arraySync()); // 0, 0.1, 0.2
 * ```
 */
export const cosinePulse = (fields: Fields<"length">): Pulse => new Pulse("cosine", { ...fields });
/** Plateau with cosine ramps. */
export const rampedCosinePulse = (fields: Fields<"ramp" | "plateau">): Pulse =>
  new Pulse("rampedCosine", { ...fields });
/** Plateau with linear ramps. */
export const trapezoidPulse = (fields: Fields<"ramp" | "plateau">): Pulse => new Pulse("trapezoid", { ...fields });
/** Gaussian truncated at `cut` standard deviations and shifted to zero there. */
export const gaussianPulse = (fields: Fields<"sigma", "cut">): Pulse => new Pulse("gaussian", { ...fields });
/** Plateau with Gaussian ramps. */
export const gaussianSquarePulse = (fields: Fields<"sigma" | "plateau", "cut">): Pulse =>
  new Pulse("gaussianSquare", { ...fields });
/** Plateau with tanh ramps. */
export const tanhPulse = (fields: Fields<"ramp" | "plateau", "sharpness">): Pulse => new Pulse("tanh", { ...fields });
/** Plateau with error-function ramps. */
export const erfPulse = (fields: Fields<"ramp" | "plateau", "sharpness">): Pulse => new Pulse("erf", { ...fields });
/** Constant amplitude. */
export const constantPulse = (fields: Fields<"length">): Pulse => new Pulse("constant", { ...fields });
/** Piecewise constant over equal segments. The values have gradients; segment boundaries do not. */
export const piecewisePulse = (fields: Fields<"length"> & { values: readonly number[] }): Pulse =>
  new Pulse("piecewise", { ...fields });
/**
 * Sum of sines, values[k - 1] sin(pi k t / length): a Fourier basis of the pulses that vanish at their ends. Few values give a
 * smooth pulse of limited bandwidth, k / (2 length).
 */
export const fourierPulse = (fields: Fields<"length"> & { values: readonly number[] }): Pulse =>
  new Pulse("fourier", { ...fields });
/** Cubic B-spline on equal knots, with zero value and slope at both ends. The values are the weights of its splines. */
export const splinePulse = (fields: Fields<"length"> & { values: readonly number[] }): Pulse =>
  new Pulse("spline", { ...fields });
/**
 * Piecewise constant values behind a line with a Gaussian transfer function, whose amplitude is 1 / sqrt(2) at `bandwidth` (GHz).
 * What the line still delivers after the length is cut off: end with values of zero.
 */
export const filteredPulse = (fields: Fields<"length" | "bandwidth"> & { values: readonly number[] }): Pulse =>
  new Pulse("filtered", { ...fields });
