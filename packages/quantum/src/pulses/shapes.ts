// Pulse envelopes as functions of the time since the start of the pulse and of tensor parameters. Every parameter has a
// gradient, lengths too: envelopes are zero at both ends, so that moving an end is smooth.
import {
  arange,
  cos,
  erf,
  exp,
  matmul,
  maximum,
  minimum,
  sin,
  type Tensor,
  tanh,
  where,
} from "@weft/core/internal/tensor";

/** Names of pulse shapes. */
export type PulseShapeName =
  | "cosine"
  | "rampedCosine"
  | "trapezoid"
  | "gaussian"
  | "gaussianSquare"
  | "tanh"
  | "erf"
  | "constant"
  | "piecewise"
  | "fourier"
  | "spline"
  | "filtered";

export type PulseParameters = Readonly<Record<string, Tensor>>;

/** Parameters, length and envelope of one shape. */
interface PulseShape {
  /** Parameters besides the amplitude. */
  parameters: readonly string[];
  /** Defaults of optional parameters. */
  defaults: Readonly<Record<string, number>>;
  length(p: PulseParameters): Tensor;
  /** Envelope with amplitude 1, for times inside the pulse. */
  envelope(t: Tensor, p: PulseParameters): Tensor;
}

const unit = (x: Tensor): Tensor => minimum(maximum(x, 0), 1);
/** Half cosine from 0 to 1. */
const rise = (x: Tensor): Tensor => cos(unit(x).mul(Math.PI)).neg().add(1).mul(0.5);
const flatLength = (p: PulseParameters): Tensor => p.plateau.add(p.ramp.mul(2));
/** Ramp up, plateau, mirrored ramp down. */
const flatTop =
  (ramp: (x: Tensor, p: PulseParameters) => Tensor) =>
  (t: Tensor, p: PulseParameters): Tensor =>
    ramp(unit(minimum(t, flatLength(p).sub(t)).div(p.ramp)), p);

/** Sigmoid truncated at arguments of +-sharpness and rescaled to run from 0 to 1. */
const sigmoid =
  (fn: (x: Tensor) => Tensor) =>
  (x: Tensor, p: PulseParameters): Tensor =>
    fn(x.mul(2).sub(1).mul(p.sharpness)).div(fn(p.sharpness)).add(1).mul(0.5);

/** exp(-x^2 / 2) shifted to 0 at the cut and scaled to 1 at the center. */
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
  trapezoid: { parameters: ["ramp", "plateau"], defaults: {}, length: flatLength, envelope: flatTop((x) => x) },
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
  constant: { parameters: ["length"], defaults: {}, length: (p) => p.length, envelope: (t) => where(t.isNaN(), t, 1) },
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
  fourier: {
    parameters: ["length", "values"],
    defaults: {},
    length: (p) => p.length,
    envelope: (t, p) =>
      weighted(sin(numbers(p.values).add(1).mul(Math.PI).mul(t.div(p.length).unsqueeze(1))), p.values),
  },
  spline: {
    parameters: ["length", "values"],
    defaults: {},
    length: (p) => p.length,
    // Cubic B-splines on equal knots; the first and the last vanish with their slopes at the ends of the pulse.
    envelope: (t, p) => {
      const [n] = p.values.shape;
      const distance = t
        .div(p.length)
        .mul(n + 3)
        .unsqueeze(1)
        .sub(numbers(p.values).add(2))
        .abs();
      const cube = (x: Tensor): Tensor => {
        const above = maximum(x, 0);
        return above.square().mul(above);
      };
      return weighted(
        cube(distance.neg().add(2))
          .sub(cube(distance.neg().add(1)).mul(4))
          .div(6),
        p.values,
      );
    },
  },
  filtered: {
    parameters: ["length", "values", "bandwidth"],
    defaults: {},
    length: (p) => p.length,
    // Differences of the step response of a Gaussian filter, whose amplitude is 1 / sqrt(2) at the bandwidth.
    envelope: (t, p) => {
      const [n] = p.values.shape;
      const edge = numbers(p.values).mul(p.length.div(n));
      const rate = p.bandwidth.mul((2 * Math.PI) / Math.sqrt(2 * Math.LN2));
      const response = (start: Tensor): Tensor => erf(t.unsqueeze(1).sub(start).mul(rate)).add(1).mul(0.5);
      return weighted(response(edge).sub(response(edge.add(p.length.div(n)))), p.values);
    },
  },
};

/** 0, 1, ... for each of the values, as a row. */
const numbers = (values: Tensor): Tensor => arange(0, values.shape[0], 1, { dtype: values.dtype }).unsqueeze(0);
/** Sum of functions [times, n] with the weights of a basis. */
const weighted = (functions: Tensor, values: Tensor): Tensor => matmul(functions, values.unsqueeze(1)).squeeze(1);
