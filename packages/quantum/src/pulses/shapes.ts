// Envelopes of pulses: functions of the time since the pulse began, for parameters that are tensors. Every parameter,
// lengths included, has a gradient; an envelope is zero at both ends, so that moving an end is smooth.
import { cos, erf, exp, maximum, minimum, type Tensor, tanh, where } from "@weft/core/internal/tensor";

export type PulseShapeName =
  | "cosine"
  | "rampedCosine"
  | "trapezoid"
  | "gaussian"
  | "gaussianSquare"
  | "tanh"
  | "erf"
  | "constant"
  | "piecewise";

export type PulseParameters = Readonly<Record<string, Tensor>>;

export interface PulseShape {
  /** Parameters besides the amplitude. */
  parameters: readonly string[];
  /** Those that may be left out. */
  defaults: Readonly<Record<string, number>>;
  length(p: PulseParameters): Tensor;
  /** With amplitude 1, for times inside the pulse. */
  envelope(t: Tensor, p: PulseParameters): Tensor;
}

const unit = (x: Tensor): Tensor => minimum(maximum(x, 0), 1);
/** Half a cosine from 0 to 1. */
const rise = (x: Tensor): Tensor => cos(unit(x).mul(Math.PI)).neg().add(1).mul(0.5);
const flatLength = (p: PulseParameters): Tensor => p.plateau.add(p.ramp.mul(2));
/** Up along a ramp, a plateau, and down as a mirror image. */
const flatTop =
  (ramp: (x: Tensor, p: PulseParameters) => Tensor) =>
  (t: Tensor, p: PulseParameters): Tensor =>
    ramp(unit(minimum(t, flatLength(p).sub(t)).div(p.ramp)), p);

/** From 0 to 1 along a sigmoid that is cut where its argument is +-sharpness, and stretched to end there. */
const sigmoid =
  (fn: (x: Tensor) => Tensor) =>
  (x: Tensor, p: PulseParameters): Tensor =>
    fn(x.mul(2).sub(1).mul(p.sharpness)).div(fn(p.sharpness)).add(1).mul(0.5);

/** exp(-x^2 / 2) less its value at the cut, 1 in the middle. */
function bell(x: Tensor, cut: Tensor): Tensor {
  const floor = exp(cut.square().mul(-0.5));
  return exp(x.square().mul(-0.5)).sub(floor).div(floor.neg().add(1));
}

export const pulseShapes: Readonly<Record<PulseShapeName, PulseShape>> = {
  cosine: {
    parameters: ["length"],
    defaults: {},
    length: (p) => p.length,
    envelope: (t, p) =>
      cos(t.mul(2 * Math.PI).div(p.length))
        .neg()
        .add(1)
        .mul(0.5),
  },
  rampedCosine: {
    parameters: ["ramp", "plateau"],
    defaults: {},
    length: flatLength,
    envelope: flatTop((x) => rise(x)),
  },
  trapezoid: {
    parameters: ["ramp", "plateau"],
    defaults: {},
    length: flatLength,
    envelope: flatTop((x) => x),
  },
  gaussian: {
    parameters: ["sigma", "cut"],
    defaults: { cut: 3 },
    length: (p) => p.sigma.mul(p.cut).mul(2),
    envelope: (t, p) => bell(t.div(p.sigma).sub(p.cut), p.cut),
  },
  gaussianSquare: {
    parameters: ["sigma", "cut", "plateau"],
    defaults: { cut: 3 },
    length: (p) => p.sigma.mul(p.cut).mul(2).add(p.plateau),
    envelope: (t, p) => {
      const half = p.sigma.mul(p.cut);
      const ramp = minimum(t, half.mul(2).add(p.plateau).sub(t)).div(p.sigma).sub(p.cut);
      return bell(minimum(ramp, 0), p.cut);
    },
  },
  tanh: {
    parameters: ["ramp", "plateau", "sharpness"],
    defaults: { sharpness: 3 },
    length: flatLength,
    envelope: flatTop(sigmoid(tanh)),
  },
  erf: {
    parameters: ["ramp", "plateau", "sharpness"],
    defaults: { sharpness: 2 },
    length: flatLength,
    envelope: flatTop(sigmoid(erf)),
  },
  constant: {
    parameters: ["length"],
    defaults: {},
    length: (p) => p.length,
    envelope: (t) => where(t.isNaN(), t, 1),
  },
  piecewise: {
    parameters: ["length", "values"],
    defaults: {},
    length: (p) => p.length,
    envelope: (t, p) => {
      const [n] = p.values.shape;
      const at = t
        .div(p.length)
        .mul(n)
        .floor()
        .clip(0, n - 1)
        .cast("int32");
      return p.values.take(at, 0);
    },
  },
};
