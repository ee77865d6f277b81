// Layers of image models: convolution, and batch norm with running statistics.
import { checkOptions, type DType, WeftError } from "../graph/index.js";
import {
  type ConvOptions,
  conv1d,
  conv2d,
  conv3d,
  type Key,
  mean,
  batchNorm as normalize,
  ones,
  stopGradient,
  type Tensor,
  variance,
  zeros,
} from "../tensor/index.js";
import { fanInUniform, keysOf, requireCount, requireFlag } from "./init.js";

/** Parameters of {@link conv}. */
export interface Conv {
  /** [out, in / groups, ...kernel]. */
  weight: Tensor;
  /** [out]; absent without a bias. */
  bias?: Tensor;
}

/** Initialization options of {@link conv}. @inline */
interface ConvInit {
  /** Channels of the input. */
  in: number;
  /** Channels of the output. */
  out: number;
  /** Size of the kernel, one number per spatial axis. */
  kernel: readonly number[];
  /** Groups of channels that are convolved separately; 1 by default. */
  groups?: number;
  /** Whether the layer adds a bias; true by default. */
  bias?: boolean;
  /** Dtype of the parameters; float32 by default. */
  dtype?: DType;
}

/** Convolution over one to three spatial axes, as torch.nn.Conv1d to Conv3d. */
export const conv = {
  init(options: ConvInit, key: Key): Conv {
    checkOptions("conv.init", options, ["in", "out", "kernel", "groups", "bias", "dtype"]);
    const { in: inputs, out, kernel, groups = 1, bias = true, dtype = "float32" } = options;
    for (const [name, value] of Object.entries({ in: inputs, out, groups })) requireCount("conv.init", name, value);
    requireFlag("conv.init", "bias", bias);
    if (inputs % groups !== 0 || out % groups !== 0)
      throw new WeftError(`conv.init: ${groups} groups do not divide ${inputs} channels in and ${out} out`);
    const [forWeight, forBias] = keysOf(key, 2);
    const fan = (inputs / groups) * kernel.reduce((a, b) => a * b, 1);
    const weight = fanInUniform([out, inputs / groups, ...kernel], fan, forWeight, dtype);
    return bias ? { weight, bias: fanInUniform([out], fan, forBias, dtype) } : { weight };
  },

  apply(params: Conv, x: Tensor, options: Omit<ConvOptions, "bias"> = {}): Tensor {
    const apply = [conv1d, conv2d, conv3d][params.weight.shape.length - 3];
    return apply(x, params.weight, params.bias === undefined ? options : { ...options, bias: params.bias });
  },
};

/** Parameters of {@link batchNorm}. */
export interface BatchNorm {
  /** [channels]. */
  weight: Tensor;
  /** [channels]. */
  bias: Tensor;
}

/** Running statistics of {@link batchNorm}: a state beside the parameters, which optimizers do not see. */
export interface BatchNormState {
  /** Running mean, [channels]. */
  mean: Tensor;
  /** Running variance, [channels]. */
  variance: Tensor;
}

/** Options of {@link batchNorm}. @inline */
interface BatchNormApply {
  /** The running statistics. */
  state: BatchNormState;
  /** Normalize by the batch and update the statistics, or normalize by the statistics. */
  training: boolean;
  /** Weight of the batch in the running statistics; 0.1 by default. */
  momentum?: number;
  /** Added to the variance; 1e-5 by default. */
  epsilon?: number;
  /** Channels are the last axis instead of the second. */
  channelsLast?: boolean;
}

/**
 * Batch normalization with running statistics, as torch.nn.BatchNorm1d to BatchNorm3d. `apply` returns the result and the new statistics.
 *
 * @example
 * ```ts
 * import { ones } from "@weft/core";
 * import * as nn from "@weft/core/nn";
 *
 * const params = nn.batchNorm.init({ channels: 3 });
 * const [y, state] = nn.batchNorm.apply(params, ones([2, 3, 4, 4]), { state: nn.batchNorm.state({ channels: 3 }), training: true });
 * console.log(y.shape, state.mean.shape); // [2, 3, 4, 4] [3]
 * ```
 */
export const batchNorm = {
  init(options: { channels: number; dtype?: DType }): BatchNorm {
    const { channels, dtype = "float32" } = checkOptions("batchNorm.init", options, ["channels", "dtype"]);
    requireCount("batchNorm.init", "channels", channels);
    return { weight: ones([channels], { dtype }), bias: zeros([channels], { dtype }) };
  },

  state(options: { channels: number; dtype?: DType }): BatchNormState {
    const { channels, dtype = "float32" } = checkOptions("batchNorm.state", options, ["channels", "dtype"]);
    requireCount("batchNorm.state", "channels", channels);
    return { mean: zeros([channels], { dtype }), variance: ones([channels], { dtype }) };
  },

  apply(params: BatchNorm, x: Tensor, options: BatchNormApply): [Tensor, BatchNormState] {
    checkOptions("batchNorm", options, ["state", "training", "momentum", "epsilon", "channelsLast"]);
    const { state, training, momentum = 0.1, epsilon = 1e-5, channelsLast = false } = options;
    if (state?.mean === undefined || state.variance === undefined)
      throw new WeftError("batchNorm: state has the running mean and variance; make it with batchNorm.state");
    const common = { ...params, epsilon, channelsLast };
    if (!training) return [normalize(x, { ...common, statistics: state }), state];
    const axis = channelsLast ? x.shape.length - 1 : 1;
    const axes = x.shape.map((_, i) => i).filter((i) => i !== axis);
    const wide = x.cast(state.mean.dtype);
    // The running variance is that of the population, as in PyTorch.
    const count = axes.reduce((n, i) => n * x.shape[i], 1);
    const update = (old: Tensor, now: Tensor): Tensor =>
      stopGradient(old.mul(1 - momentum).add(now.mul(momentum).cast(old.dtype)));
    return [
      normalize(x, common),
      {
        mean: update(state.mean, mean(wide, axes)),
        variance: update(state.variance, variance(wide, axes).mul(count / Math.max(1, count - 1))),
      },
    ];
  },
};
