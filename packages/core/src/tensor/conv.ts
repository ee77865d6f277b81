// Convolution and transposed convolution over one to three spatial axes.
import { checkOptions, type Node, type OpAttrs, range, type Shape, ShapeError, showShape } from "../graph/index.js";
import { build } from "../ops/index.js";
import { align, checkArguments, commonDType, nodeAs, wrap } from "./convert.js";
import { currentPrecision } from "./precision.js";
import { Tensor } from "./tensor.js";

/** A number for all spatial axes, or one per axis. @inline */
export type PerAxis = number | readonly number[];

/**
 * Zeros around the input: a number for all sides, one number per axis for both of its sides, a pair [before, after] per axis,
 * "valid" for none, or "same" for an output of ceil(size / stride), with the odd zero at the end.
 */
export type Padding = PerAxis | readonly (readonly [number, number])[] | "same" | "valid";

/** Options of {@link conv1d}, {@link conv2d} and {@link conv3d}. @inline */
export interface ConvOptions {
  /** Step between neighboring windows, 1 by default. */
  stride?: PerAxis;
  /** Zeros around the input, none by default. */
  padding?: Padding;
  /** Step between neighboring elements of the kernel, 1 by default. */
  dilation?: PerAxis;
  /** Number of groups of channels that are convolved separately. As many as there are channels: depthwise. */
  groups?: number;
  /** One number per output channel, added to the result. */
  bias?: Tensor;
  /** Channels are the last axis of input and result instead of the second; the weight keeps its shape. */
  channelsLast?: boolean;
}

/** Options of {@link convTranspose1d}, {@link convTranspose2d} and {@link convTranspose3d}. @inline */
interface ConvTransposeOptions extends Omit<ConvOptions, "padding"> {
  /** Rows that are cut off at each side of the result: a number, one per axis, or a pair per axis. */
  padding?: PerAxis | readonly (readonly [number, number])[];
  /** Rows that are added at the end of each axis, to choose among the sizes that a strided convolution maps to the same one. */
  outputPadding?: PerAxis;
}

/** One integer per axis, from a number for all axes or a list. */
export function perAxis(op: string, name: string, value: PerAxis, n: number, least: number): number[] {
  const list = Array.isArray(value) ? [...(value as number[])] : new Array<number>(n).fill(value as number);
  if (list.length !== n || list.some((x) => !Number.isInteger(x) || x < least || x >= 2 ** 31))
    throw new ShapeError(
      `${op}: ${name} needs ${n} whole number${n > 1 ? "s" : ""} >= ${least}, got [${list.join(", ")}]`,
    );
  return list;
}

/** Explicit padding as a pair per axis. */
export function paddingPairs(
  op: string,
  padding: PerAxis | readonly (readonly [number, number])[],
  n: number,
): [number, number][] {
  if (typeof padding !== "number" && !Array.isArray(padding))
    throw new ShapeError(`${op}: padding needs a number or a pair [before, after] for each of ${n} axes`);
  if (typeof padding === "number" || padding.every((p) => typeof p === "number"))
    return perAxis(op, "padding", padding as PerAxis, n, 0).map((p) => [p, p]);
  const pairs = padding as readonly (readonly [number, number])[];
  if (pairs.length !== n || pairs.some((pair) => !Array.isArray(pair) || pair.length !== 2))
    throw new ShapeError(`${op}: padding needs a number or a pair [before, after] for each of ${n} axes`);
  return pairs.map((pair) => perAxis(op, "padding", pair, 2, 0) as [number, number]);
}

function paddings(op: string, padding: Padding, sizes: readonly { n: number; span: number; step: number }[]) {
  if (padding === "valid") return sizes.map((): [number, number] => [0, 0]);
  if (padding === "same")
    return sizes.map(({ n, span, step }): [number, number] => {
      const total = Math.max(0, (Math.ceil(n / step) - 1) * step + span - n);
      return [Math.floor(total / 2), Math.ceil(total / 2)];
    });
  if (typeof padding === "string")
    throw new ShapeError(`${op}: padding "${padding}" is not known; use "same", "valid" or numbers`);
  return paddingPairs(op, padding, sizes.length);
}

const axisNames = ["length", "height, width", "depth, height, width"];

interface Geometry {
  stride: number[];
  dilation: number[];
  groups: number;
  channelsLast: boolean;
  /** Channels and spatial sizes of the input. */
  channels: number;
  size: Shape;
  kernel: Shape;
}

/** Checks ranks and the arguments that both directions share. */
function geometry(
  op: string,
  x: Tensor,
  weight: Tensor,
  spatial: number,
  options: Omit<ConvOptions, "padding">,
): Geometry {
  const { groups = 1, channelsLast = false } = options;
  if (x.shape.length !== spatial + 2 || weight.shape.length !== spatial + 2)
    throw new ShapeError(
      `${op}: needs input [batch, ${channelsLast ? `${axisNames[spatial - 1]}, channels` : `channels, ${axisNames[spatial - 1]}`}] ` +
        `and a weight of ${spatial + 2} axes, got ${showShape(x.shape)} and ${showShape(weight.shape)}`,
    );
  if (!Number.isInteger(groups) || groups < 1)
    throw new ShapeError(`${op}: groups must be a whole number >= 1, got ${groups}`);
  const [, ...rest] = x.shape;
  const kernel = weight.shape.slice(2);
  if (kernel.includes(0)) throw new ShapeError(`${op}: the kernel ${showShape(weight.shape)} is empty`);
  return {
    stride: perAxis(op, "stride", options.stride ?? 1, spatial, 1),
    dilation: perAxis(op, "dilation", options.dilation ?? 1, spatial, 1),
    groups,
    channelsLast,
    channels: rest[channelsLast ? spatial : 0],
    size: channelsLast ? rest.slice(0, -1) : rest.slice(1),
    kernel,
  };
}

/** The op with the weight in the layout of the input, and the bias. */
function compute(
  op: string,
  operands: readonly [Tensor, Tensor],
  attrs: Omit<OpAttrs["conv"], "precision">,
  bias: Tensor | undefined,
  out: number,
): Tensor {
  const dtype = commonDType(op, operands);
  const [x, w] = operands.map((t) => nodeAs(op, t, dtype));
  const rank = x.shape.length;
  const filters = attrs.channelsLast ? build.permute(w, [0, ...range(rank).slice(2), 1]) : w;
  const precision = currentPrecision();
  const node: Node = build.conv([x, filters], precision === undefined ? attrs : { ...attrs, precision });
  if (bias === undefined) return wrap(node);
  const shape = bias instanceof Tensor ? showShape(bias.shape) : typeof bias;
  if (shape !== `[${out}]`)
    throw new ShapeError(`${op}: the bias needs shape [${out}], one number per output channel, got ${shape}`);
  const wide = attrs.channelsLast ? bias : bias.reshape([out, ...attrs.size.map(() => 1)]);
  const [a, b] = align(op, [wrap(node), wide]);
  return wrap(build.add(a, b));
}

const convNames = ["stride", "padding", "dilation", "groups", "bias", "channelsLast"] as const;

function convolve(op: string, x: Tensor, weight: Tensor, spatial: number, options: ConvOptions): Tensor {
  checkArguments(op, "tensor", { x, weight });
  checkOptions(op, options, convNames);
  const { stride, dilation, groups, channelsLast, channels, size, kernel } = geometry(op, x, weight, spatial, options);
  const [out, perGroup] = weight.shape;
  if (channels !== perGroup * groups || out % groups !== 0)
    throw new ShapeError(
      `${op}: ${channels} input channels in ${groups} groups need weights [out, ${channels / groups}, ...] with out a ` +
        `multiple of ${groups}, got ${showShape(weight.shape)}`,
    );
  const spans = kernel.map((k, i) => dilation[i] * (k - 1) + 1);
  const around = paddings(
    op,
    options.padding ?? 0,
    size.map((n, i) => ({ n, span: spans[i], step: stride[i] })),
  );
  const outSize = size.map((n, i) => Math.floor((n + around[i][0] + around[i][1] - spans[i]) / stride[i]) + 1);
  if (outSize.some((n) => n < 1))
    throw new ShapeError(
      `${op}: kernel ${showShape(kernel)} (dilation ${dilation}) is larger than the padded input ${showShape(size)}`,
    );
  const low = around.map((p) => p[0]);
  const attrs = { kind: "forward", size: outSize, stride, dilation, low, groups, channelsLast } as const;
  return compute(op, [x, weight], attrs, options.bias, out);
}

function convolveTransposed(op: string, x: Tensor, weight: Tensor, spatial: number, options: ConvTransposeOptions) {
  checkArguments(op, "tensor", { x, weight });
  const { padding = 0, outputPadding = 0, ...rest } = checkOptions(op, options, [...convNames, "outputPadding"]);
  const { stride, dilation, groups, channelsLast, channels, size, kernel } = geometry(op, x, weight, spatial, rest);
  const out = weight.shape[1] * groups;
  if (channels !== weight.shape[0] || channels % groups !== 0)
    throw new ShapeError(
      `${op}: ${channels} input channels in ${groups} groups need weights [${channels}, out / groups, ...], got ` +
        showShape(weight.shape),
    );
  const around = paddingPairs(op, padding, spatial);
  const extra = perAxis(op, "outputPadding", outputPadding, spatial, 0);
  extra.forEach((e, i) => {
    if (e >= Math.max(stride[i], dilation[i]))
      throw new ShapeError(
        `${op}: outputPadding ${e} must be smaller than the stride ${stride[i]} or the dilation ${dilation[i]}`,
      );
  });
  const outSize = size.map(
    (n, i) => (n - 1) * stride[i] - around[i][0] - around[i][1] + dilation[i] * (kernel[i] - 1) + extra[i] + 1,
  );
  if (outSize.some((n) => n < 1))
    throw new ShapeError(`${op}: padding ${JSON.stringify(around)} leaves nothing of the result ${showShape(outSize)}`);
  const low = around.map((p) => p[0]);
  const attrs = { kind: "input", size: outSize, stride, dilation, low, groups, channelsLast } as const;
  return compute(op, [x, weight], attrs, options.bias, out);
}

/**
 * 1D convolution of x [batch, channels, length] with weight [out, channels / groups, kernel], as torch.nn.functional.conv1d.
 *
 * @example
 * ```ts
 * import { conv1d, tensor } from "@weft/core";
 *
 * const y = conv1d(tensor([[[1, 2, 3, 4]]]), tensor([[[1, -1]]]));
 * console.log(await y.array()); // [[[-1, -1, -1]]]
 * ```
 */
export const conv1d = (x: Tensor, weight: Tensor, options: ConvOptions = {}): Tensor =>
  convolve("conv1d", x, weight, 1, options);

/**
 * 2D convolution of x [batch, channels, height, width] with weight [out, channels / groups, kernel height, kernel width].
 */
export const conv2d = (x: Tensor, weight: Tensor, options: ConvOptions = {}): Tensor =>
  convolve("conv2d", x, weight, 2, options);

/** 3D convolution of x [batch, channels, depth, height, width] with weight [out, channels / groups, ...kernel]. */
export const conv3d = (x: Tensor, weight: Tensor, options: ConvOptions = {}): Tensor =>
  convolve("conv3d", x, weight, 3, options);

/**
 * Transpose of a 1D convolution, as torch.nn.functional.conv_transpose1d: x [batch, channels, length], weight
 * [channels, out / groups, kernel].
 */
export const convTranspose1d = (x: Tensor, weight: Tensor, options: ConvTransposeOptions = {}): Tensor =>
  convolveTransposed("convTranspose1d", x, weight, 1, options);

/** Transpose of a 2D convolution: x [batch, channels, height, width], weight [channels, out / groups, ...kernel]. */
export const convTranspose2d = (x: Tensor, weight: Tensor, options: ConvTransposeOptions = {}): Tensor =>
  convolveTransposed("convTranspose2d", x, weight, 2, options);

/** Transpose of a 3D convolution: x [batch, channels, depth, height, width], weight [channels, out / groups, ...kernel]. */
export const convTranspose3d = (x: Tensor, weight: Tensor, options: ConvTransposeOptions = {}): Tensor =>
  convolveTransposed("convTranspose3d", x, weight, 3, options);
