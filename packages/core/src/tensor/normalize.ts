// Normalization over batches, groups of channels and single images, with one scale and shift per channel, and of vectors.
import { checkOptions, range, ShapeError, showShape } from "../graph/index.js";
import { checkArguments, inFloat32 } from "./convert.js";
import { maximum, rsqrt } from "./math.js";
import { vectorNorm } from "./matrix-functions.js";
import { mean, variance } from "./reduce.js";
import { Tensor } from "./tensor.js";

/** Options of the normalizations of images. @inline */
interface ChannelNormOptions {
  /** One factor per channel. */
  weight?: Tensor;
  /** One number per channel, added at the end. */
  bias?: Tensor;
  /** Added to the variance, 1e-5 by default. */
  epsilon?: number;
  /** Channels are the last axis instead of the second. */
  channelsLast?: boolean;
}

/** Options of {@link batchNorm}. @inline */
interface BatchNormOptions extends ChannelNormOptions {
  /** Mean and variance per channel; those of the batch by default. */
  statistics?: { mean: Tensor; variance: Tensor };
}

/** The axis of the channels, and a vector of theirs in the shape of x. */
function channels(
  op: string,
  x: Tensor,
  channelsLast: boolean,
): { axis: number; wide: (v: Tensor, name: string) => Tensor } {
  const axis = channelsLast ? x.shape.length - 1 : 1;
  if (x.shape.length < 2) throw new ShapeError(`${op}: needs a batch and channels, got ${showShape(x.shape)}`);
  const count = x.shape[axis];
  return {
    axis,
    wide: (v, name) => {
      const shape = v instanceof Tensor ? showShape(v.shape) : typeof v;
      if (shape !== `[${count}]`)
        throw new ShapeError(`${op}: ${name} needs shape [${count}], one number per channel, got ${shape}`);
      return v.reshape(x.shape.map((_, i) => (i === axis ? count : 1)));
    },
  };
}

function scaled(y: Tensor, { weight, bias }: ChannelNormOptions, wide: (v: Tensor, name: string) => Tensor): Tensor {
  const weighted = weight === undefined ? y : y.mul(wide(weight, "weight"));
  return bias === undefined ? weighted : weighted.add(wide(bias, "bias"));
}

/** Normalizes every channel of x [batch, channels, ...] over the batch and the other axes, or by given statistics. */
export function batchNorm(x: Tensor, options: BatchNormOptions = {}): Tensor {
  checkArguments("batchNorm", "tensor", { x });
  checkOptions("batchNorm", options, ["weight", "bias", "epsilon", "channelsLast", "statistics"]);
  const { epsilon = 1e-5, channelsLast = false, statistics } = options;
  return inFloat32("batchNorm", x, (t) => {
    const { axis, wide } = channels("batchNorm", t, channelsLast);
    const axes = range(t.shape.length).filter((i) => i !== axis);
    const center = statistics ? wide(statistics.mean, "statistics.mean") : mean(t, axes, { keepDims: true });
    const spread = statistics
      ? wide(statistics.variance, "statistics.variance")
      : variance(t, axes, { keepDims: true });
    return scaled(t.sub(center).mul(rsqrt(spread.add(epsilon))), options, wide);
  });
}

/** Normalizes groups of neighboring channels of every example of x [batch, channels, ...]. */
export function groupNorm(x: Tensor, groups: number, options: ChannelNormOptions = {}): Tensor {
  checkArguments("groupNorm", "tensor", { x });
  checkOptions("groupNorm", options, ["weight", "bias", "epsilon", "channelsLast"]);
  const { epsilon = 1e-5, channelsLast = false } = options;
  return inFloat32("groupNorm", x, (t) => {
    const { axis, wide } = channels("groupNorm", t, channelsLast);
    const count = t.shape[axis];
    if (!Number.isInteger(groups) || groups < 1 || count % groups !== 0)
      throw new ShapeError(`groupNorm: ${count} channels cannot be divided into ${groups} groups`);
    const split = t.reshape([...t.shape.slice(0, axis), groups, count / groups, ...t.shape.slice(axis + 1)]);
    const axes = range(split.shape.length).filter((i) => i !== 0 && i !== axis);
    const spread = variance(split, axes, { keepDims: true });
    const y = split.sub(mean(split, axes, { keepDims: true })).mul(rsqrt(spread.add(epsilon)));
    return scaled(y.reshape(t.shape), options, wide);
  });
}

/** Normalizes every channel of every example of x [batch, channels, ...] over the other axes. */
export const instanceNorm = (x: Tensor, options: ChannelNormOptions = {}): Tensor => {
  checkArguments("instanceNorm", "tensor", { x });
  const axis = options.channelsLast ? x.shape.length - 1 : 1;
  return groupNorm(x, Math.max(1, x.shape[axis] ?? 1), options);
};

/** Divides by the root of the mean square over the last axes, then scales, as torch.nn.functional.rms_norm. */
export function rmsNorm(
  x: Tensor,
  options: { weight?: Tensor; axes?: number | readonly number[]; epsilon?: number } = {},
): Tensor {
  checkArguments("rmsNorm", "tensor", { x });
  const { weight, axes = -1, epsilon = 1e-6 } = checkOptions("rmsNorm", options, ["weight", "axes", "epsilon"]);
  const scaledRows = inFloat32("rmsNorm", x, (t) =>
    t.mul(rsqrt(mean(t.mul(t), axes, { keepDims: true }).add(epsilon))),
  );
  return weight === undefined ? scaledRows : scaledRows.mul(weight);
}

/** Divides vectors along axes (the last by default) by their norm, or by epsilon where the norm is smaller. */
export function normalize(
  x: Tensor,
  options: { axes?: number | readonly number[]; order?: number; epsilon?: number } = {},
): Tensor {
  checkArguments("normalize", "tensor", { x });
  const { axes = -1, order = 2, epsilon = 1e-12 } = checkOptions("normalize", options, ["axes", "order", "epsilon"]);
  return inFloat32("normalize", x, (t) => t.div(maximum(vectorNorm(t, { axes, order, keepDims: true }), epsilon)));
}
