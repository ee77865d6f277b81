// Convolution as slices of the windows and one matrix product.
import { type Node, numel, ShapeError, showShape } from "../graph/index.js";
import { build } from "../ops/index.js";
import { align, commonDType, nodeAs, wrap } from "./convert.js";
import { currentPrecision } from "./precision.js";
import type { Tensor } from "./tensor.js";

/** Options of {@link conv1d} and {@link conv2d}. */
export interface ConvOptions {
  stride?: number | readonly number[];
  padding?: number | readonly number[] | "same";
  dilation?: number | readonly number[];
  groups?: number;
  bias?: Tensor;
}

/** One integer per axis, from a number for all axes or a list. */
function spread(op: string, name: string, value: number | readonly number[], n: number, least: number): number[] {
  const list = typeof value === "number" ? new Array<number>(n).fill(value) : [...value];
  if (list.length !== n || list.some((x) => !Number.isInteger(x) || x < least))
    throw new ShapeError(
      `${op}: ${name} needs ${n} whole number${n > 1 ? "s" : ""} >= ${least}, got [${list.join(", ")}]`,
    );
  return list;
}

function paddings(
  op: string,
  padding: ConvOptions["padding"],
  kernel: readonly number[],
  dilation: readonly number[],
): [number, number][] {
  if (padding === "same")
    return kernel.map((k, i) => {
      const total = dilation[i] * (k - 1);
      return [Math.floor(total / 2), Math.ceil(total / 2)];
    });
  return spread(op, "padding", padding ?? 0, kernel.length, 0).map((p) => [p, p]);
}

/** All positions of a kernel, in row-major order. */
function* positions(kernel: readonly number[]): Generator<number[]> {
  for (let i = 0; i < numel(kernel); i++) {
    const at = new Array<number>(kernel.length);
    let rest = i;
    for (let d = kernel.length - 1; d >= 0; d--) {
      at[d] = rest % kernel[d];
      rest = Math.floor(rest / kernel[d]);
    }
    yield at;
  }
}

function convolve(op: string, x: Tensor, weight: Tensor, spatial: number, options: ConvOptions): Tensor {
  const { groups = 1, bias } = options;
  if (x.shape.length !== spatial + 2 || weight.shape.length !== spatial + 2)
    throw new ShapeError(
      `${op}: needs input [batch, channels, ${spatial === 1 ? "length" : "height, width"}] and weight ` +
        `[out, channels / groups, ...], got ${showShape(x.shape)} and ${showShape(weight.shape)}`,
    );
  const [batch, channels, ...size] = x.shape;
  const [out, perGroup, ...kernel] = weight.shape;
  if (!Number.isInteger(groups) || groups < 1 || channels !== perGroup * groups || out % groups !== 0)
    throw new ShapeError(
      `${op}: ${channels} input channels in ${groups} groups need weights [out, ${channels / groups}, ...] with out a ` +
        `multiple of ${groups}, got ${showShape(weight.shape)}`,
    );
  if (bias !== undefined && showShape(bias.shape) !== `[${out}]`)
    throw new ShapeError(
      `${op}: the bias needs shape [${out}], one number an output channel, got ${showShape(bias.shape)}`,
    );
  const stride = spread(op, "stride", options.stride ?? 1, spatial, 1);
  const dilation = spread(op, "dilation", options.dilation ?? 1, spatial, 1);
  const around = paddings(op, options.padding, kernel, dilation);
  const outSize = size.map(
    (n, i) => Math.floor((n + around[i][0] + around[i][1] - dilation[i] * (kernel[i] - 1) - 1) / stride[i]) + 1,
  );
  if (outSize.some((n) => n < 1))
    throw new ShapeError(
      `${op}: kernel ${showShape(kernel)} (dilation ${dilation}) is larger than the padded input ${showShape(size)}`,
    );
  const dtype = commonDType(op, [x, weight]);
  const padded = build.pad(
    nodeAs(op, x, dtype),
    [0, 0, ...around.map((p) => p[0])],
    [0, 0, ...around.map((p) => p[1])],
  );
  const windows: Node[] = [];
  for (const at of positions(kernel)) {
    const start = at.map((a, i) => a * dilation[i]);
    const stop = start.map((s, i) => s + (outSize[i] - 1) * stride[i] + 1);
    const cut = build.slice(padded, [0, 0, ...start], [batch, channels, ...stop], [1, 1, ...stride]);
    windows.push(build.reshape(cut, [batch, groups, perGroup, 1, numel(outSize)]));
  }
  // [batch, groups, channels per group * kernel, positions]
  const columns = build.reshape(build.concat(windows, 3), [batch, groups, perGroup * numel(kernel), numel(outSize)]);
  const filters = build.reshape(nodeAs(op, weight, dtype), [1, groups, out / groups, perGroup * numel(kernel)]);
  const product = build.matmul(build.expand(filters, [batch, ...filters.shape.slice(1)]), columns, currentPrecision());
  const result = wrap(build.reshape(product, [batch, out, ...outSize]));
  if (bias === undefined) return result;
  const [a, b] = align(op, [result, bias.reshape([out, ...outSize.map(() => 1)])]);
  return wrap(build.add(a, b));
}

/** 1D convolution of x [batch, channels, length] with weight [out, channels / groups, kernel]. */
export const conv1d = (x: Tensor, weight: Tensor, options: ConvOptions = {}): Tensor =>
  convolve("conv1d", x, weight, 1, options);

/**
 * 2D convolution of x [batch, channels, height, width] with weight [out, channels / groups, kernel height, kernel width].
 */
export const conv2d = (x: Tensor, weight: Tensor, options: ConvOptions = {}): Tensor =>
  convolve("conv2d", x, weight, 2, options);
