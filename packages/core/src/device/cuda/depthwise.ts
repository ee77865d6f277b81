// How depthwise convolutions of channels-last images are launched: the kernels of native/depthwise.cu, and the memory that they
// work in.
import { bytesOf, type DType, type Node, numel } from "../../graph/index.js";
import { convRoles } from "../../ops/index.js";
import type { LibraryCalls } from "./scan-sort.js";

const dtypes: readonly DType[] = ["float16", "bfloat16", "float32"];
/** Widths of kernels that have code of their own, neighboring channels per thread, and results per thread (W_STRIP). */
const kernelWidths = [1, 3, 5, 7];
const perThread = 4;
const strip = 8;
/** Channels (W_TILE_CHANNELS) and rows of results (W_TILE_ROWS) of a tile, and the shared memory that it may take. */
const tileChannels = 32;
const tileRows = 8;
const maxTileBytes = 48 << 10;
/** Threads that fill a large GPU; chunks of the weight's gradient are as many as need them. */
const enoughThreads = 132 * 1024;

interface DepthwiseShape {
  batch: number;
  channels: number;
  /** Height and width of the operand, of the result and of the kernel. */
  from: readonly number[];
  to: readonly number[];
  kernel: readonly number[];
  stride: readonly number[];
  dilation: readonly number[];
  low: readonly number[];
}

/** Lists of one or two spatial axes as two. */
const two = (list: readonly number[], rest: number): readonly number[] => (list.length === 1 ? [rest, ...list] : list);

function depthwiseShape(node: Node<"conv">): DepthwiseShape {
  const { kind, stride, dilation, low } = node.attrs;
  const { x, w, y } = convRoles(node);
  const spatial = ({ shape }: Node): readonly number[] => two(shape.slice(1, -1), 1);
  const kernel = spatial(w);
  const flipped = two(low, 0).map((n, i) => two(dilation, 1)[i] * (kernel[i] - 1) - n);
  const isInput = kind === "input";
  return {
    batch: x.shape[0],
    channels: w.shape[0],
    from: spatial(isInput ? y : x),
    to: spatial(isInput ? x : y),
    kernel,
    stride: two(stride, 1),
    dilation: two(dilation, 1),
    low: isInput ? flipped : two(low, 0),
  };
}

/** Whether the kernels support a convolution; the gradient of a strided one with respect to its input is a loop. */
export function isDepthwiseKernel(node: Node<"conv">): boolean {
  const { kind, stride, channelsLast, groups } = node.attrs;
  const { x, w, y } = convRoles(node);
  const channels = x.shape[x.shape.length - 1];
  const isDepthwise = channelsLast && groups > 1 && groups === channels && w.shape[0] === groups;
  if (!isDepthwise || stride.length > 2 || !dtypes.includes(node.dtype) || channels % perThread !== 0) return false;
  if (kind === "input" && stride.some((s) => s !== 1)) return false;
  return kernelWidths.includes(w.shape[w.shape.length - 2]) && Math.max(numel(x.shape), numel(y.shape)) < 2 ** 31;
}

/** Chunks of lines whose parts of the weight's gradient are added up separately. */
function chunksOf({ batch, channels, to, kernel }: DepthwiseShape): number {
  const threads = (channels / perThread) * kernel[0];
  return Math.max(1, Math.min(batch * to[0], Math.ceil(enoughThreads / threads)));
}

/** Bytes of scratch memory: taps in float32, for each chunk in the gradient of the weight. */
export function depthwiseWorkspace(node: Node<"conv">): number {
  const shape = depthwiseShape(node);
  const taps = 4 * shape.channels * numel(shape.kernel);
  return node.attrs.kind === "weight" ? taps * chunksOf(shape) : taps;
}

/** Shared memory of the kernel of tiles: operands of a tile and taps; null where it does not apply. */
function tileBytes({ channels, to, kernel, stride, dilation }: DepthwiseShape, dtype: DType): number | null {
  const bytes = bytesOf(dtype);
  if ([...stride, ...dilation].some((n) => n !== 1) || (channels * bytes) % 16 !== 0 || to[0] < tileRows / 2)
    return null;
  const pitch = (2 * strip + kernel[1] - 1) | 1;
  const total = (tileRows + kernel[0] - 1) * pitch * tileChannels * bytes + 4 * numel(kernel) * tileChannels;
  return total <= maxTileBytes ? total : null;
}

export function launchDepthwise(
  node: Node<"conv">,
  type: string,
  { inputs, output, workspace }: { inputs: readonly number[]; output: number; workspace: number },
  calls: LibraryCalls,
): void {
  const shape = depthwiseShape(node);
  const { batch, channels, from, to, kernel, stride, dilation, low } = shape;
  const taps = numel(kernel);
  const sizes = [batch, ...from, channels, ...to, ...kernel, ...stride, ...dilation, ...low];
  const launch = (name: string, threads: number, args: readonly number[]): void =>
    calls.launch(`w_depthwise_${name}_${type}`, Math.ceil(threads / 256), 256, args);
  const groups = channels / perThread;
  if (node.attrs.kind === "weight") {
    const chunks = chunksOf(shape);
    launch("weight", groups * kernel[0] * chunks, [...inputs, workspace, chunks, ...sizes]);
    launch("sum", 256 * taps * Math.ceil(channels / 32), [workspace, output, channels, taps, chunks]);
    return;
  }
  const flip = Number(node.attrs.kind === "input");
  launch("taps", channels * taps, [inputs[1], workspace, channels, taps, flip]);
  const shared = tileBytes(shape, node.dtype);
  const operands = [inputs[0], workspace, output, ...sizes];
  if (shared !== null) {
    const tiles = Math.ceil(to[1] / (2 * strip)) * Math.ceil(to[0] / tileRows) * Math.ceil(channels / tileChannels);
    calls.launch(`w_depthwise_tile_${type}`, tiles * batch, 256, operands, shared);
    return;
  }
  launch("apply", groups * Math.ceil(to[1] / strip) * to[0] * batch, operands);
}
