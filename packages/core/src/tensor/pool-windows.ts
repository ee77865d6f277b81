// The windows of a pooling along each spatial axis: their number, and where they begin.
import { type Node, range, ShapeError, showShape } from "../graph/index.js";
import { paddingPairs, perAxis } from "./conv.js";
import type { PoolOptions } from "./pool.js";

export interface Window {
  axis: number;
  n: number;
  kernel: number;
  stride: number;
  dilation: number;
  low: number;
  high: number;
  out: number;
}

/** The first spatial axis. */
export const firstSpatial = (channelsLast: boolean): number => (channelsLast ? 1 : 2);

/** Windows of a pooling, one entry per spatial axis. */
export function windowsOf(op: string, x: Node, spatial: number, options: PoolOptions): Window[] {
  const first = firstSpatial(options.channelsLast ?? false);
  const kernel = perAxis(op, "kernel", options.kernel, spatial, 1);
  const stride = perAxis(op, "stride", options.stride ?? kernel, spatial, 1);
  const dilation = perAxis(op, "dilation", options.dilation ?? 1, spatial, 1);
  const around = paddingPairs(op, options.padding ?? 0, spatial);
  return range(spatial).map((i) => {
    const n = x.shape[first + i];
    const [low, high] = around[i];
    const span = dilation[i] * (kernel[i] - 1) + 1;
    if (2 * Math.max(low, high) > span)
      throw new ShapeError(`${op}: padding [${low}, ${high}] is more than half of the window of ${span}`);
    const steps = (n + low + high - span) / stride[i];
    let out = (options.ceilMode ? Math.ceil(steps) : Math.floor(steps)) + 1;
    // A window that starts beyond the input does not count.
    if (options.ceilMode && (out - 1) * stride[i] >= n + low) out--;
    if (out < 1 || n === 0)
      throw new ShapeError(`${op}: the window of ${span} is larger than the padded input ${showShape(x.shape)}`);
    return { axis: first + i, n, kernel: kernel[i], stride: stride[i], dilation: dilation[i], low, high, out };
  });
}
