// Reductions of embeddings by bag, and the inverse of max pooling: torch.nn.functional's embedding_bag and max_unpool2d.
import { checkOptions, ShapeError, sameShape, showShape, showValue, WeftError } from "../graph/index.js";
import { type PerAxis, perAxis } from "./conv.js";
import { checkArguments } from "./convert.js";
import { arange, ones, tensor, zeros } from "./create.js";
import { take } from "./indexing.js";
import { equal, maximum, where } from "./math.js";
import type { PoolOptions } from "./pool.js";
import { windowsOf } from "./pool-windows.js";
import { argmax } from "./reduce.js";
import { scatter, segmentReduce } from "./scatter.js";
import { permute, reshape } from "./shape.js";
import { searchsorted } from "./statistics.js";
import type { Tensor } from "./tensor.js";

/** Options of {@link embeddingBag}. @inline */
interface EmbeddingBagOptions {
  /** How the rows of a bag are combined; "mean" by default. A bag without rows is 0. */
  mode?: "sum" | "mean" | "max";
  /** Where every bag begins in a vector of ids, ascending from 0. */
  offsets?: Tensor;
  /** A factor per id; for sums only. */
  weights?: Tensor;
  /** The id that does not count. */
  paddingIndex?: number;
}

/**
 * Combines rows of a table by bag, as torch.nn.functional.embedding_bag: ids [bags, n], or a vector of ids with `offsets`, and a table
 * [rows, width] give [bags, width].
 *
 * @example
 * ```ts
 * import { embeddingBag, tensor } from "@weft/core";
 *
 * const table = tensor([[1, 2], [3, 4], [5, 6]]);
 * console.log(await embeddingBag(tensor([[0, 2], [1, 1]], { dtype: "int32" }), table).array()); // [[3, 4], [3, 4]]
 * ```
 */
export function embeddingBag(ids: Tensor, table: Tensor, options: EmbeddingBagOptions = {}): Tensor {
  checkArguments("embeddingBag", "tensor", { ids, table });
  const names = ["mode", "offsets", "weights", "paddingIndex"] as const;
  const { mode = "mean", offsets, weights, paddingIndex } = checkOptions("embeddingBag", options, names);
  if (!["sum", "mean", "max"].includes(mode))
    throw new WeftError(`embeddingBag: the mode is sum, mean or max, got ${showValue(mode)}`);
  if (weights !== undefined && mode !== "sum")
    throw new WeftError(`embeddingBag: weights need the mode sum, got ${mode}`);
  if (table.rank !== 2 || ids.rank !== (offsets === undefined ? 2 : 1) || (offsets?.rank ?? 1) !== 1)
    throw new ShapeError(
      "embeddingBag: needs a table [rows, width] and ids [bags, n], or a vector of ids with a vector of offsets; " +
        `got ids ${showShape(ids.shape)}, table ${showShape(table.shape)}`,
    );
  if (offsets === undefined && mode !== "max") {
    // Bags of one size are an axis: no rows are stored, and nothing is scattered.
    const rows = take(table, ids, 0);
    const weighted = weights === undefined ? rows : rows.mul(weights.unsqueeze(-1));
    if (paddingIndex === undefined)
      return mode === "sum" ? weighted.sum(1) : weighted.sum(1).div(Math.max(1, ids.shape[1]));
    const isPadding = equal(ids, paddingIndex);
    const total = where(isPadding.unsqueeze(-1), 0, weighted).sum(1);
    if (mode === "sum") return total;
    return total.div(maximum(isPadding.logicalNot().cast(table.dtype).sum(1, { keepDims: true }), 1));
  }
  const places = arange(ids.size, { dtype: "int32" });
  const [count, bags] =
    offsets === undefined
      ? [ids.shape[0], places.floorDivide(Math.max(1, ids.shape[1]))]
      : [offsets.shape[0], searchsorted(offsets, places, { side: "right" }).sub(1)];
  const flat = reshape(ids, [ids.size]);
  // Rows of no bag are dropped.
  const counted = paddingIndex === undefined ? bags : where(equal(flat, paddingIndex), count, bags);
  let rows = take(table, flat, 0);
  if (weights !== undefined) rows = rows.mul(reshape(weights, [ids.size, 1]));
  const combined = segmentReduce(rows, counted, count, { mode: mode === "max" ? "max" : "add" });
  if (mode === "sum") return combined;
  const sizes = segmentReduce(ones([ids.size], { dtype: table.dtype }), counted, count).reshape([count, 1]);
  return mode === "mean" ? combined.div(maximum(sizes, 1)) : where(equal(sizes, 0), 0, combined);
}

/**
 * Places of the maxima of {@link maxPool2d} (int32, in the order of the flattened image), which {@link maxUnpool2d} reads; the
 * second result of torch.nn.functional.max_pool2d with return_indices.
 */
export function maxPoolIndices2d(x: Tensor, options: Omit<PoolOptions, "channelsLast">): Tensor {
  checkArguments("maxPoolIndices2d", "tensor", { x });
  checkOptions("maxPoolIndices2d", options, ["kernel", "stride", "padding", "dilation", "ceilMode"]);
  if (x.rank !== 4)
    throw new ShapeError(`maxPoolIndices2d: needs x [batch, channels, height, width], got ${showShape(x.shape)}`);
  const windows = windowsOf("maxPoolIndices2d", x.node, 2, options);
  const [batch, channels, , width] = x.shape;
  let picked = x;
  const inside: boolean[][] = [];
  for (const { axis, n, kernel, stride, dilation, low, out } of windows) {
    const starts = Array.from(
      { length: out * kernel },
      (_, i) => Math.floor(i / kernel) * stride - low + (i % kernel) * dilation,
    );
    picked = take(
      picked,
      starts.map((at) => Math.min(n - 1, Math.max(0, at))),
      axis,
    );
    inside.push(starts.map((at) => at >= 0 && at < n));
  }
  const [rows, columns] = windows;
  const isInside = tensor(inside[0]).reshape([-1, 1]).logicalAnd(tensor(inside[1]));
  const guarded = where(isInside, picked, Number.NEGATIVE_INFINITY);
  const parts = reshape(guarded, [batch, channels, rows.out, rows.kernel, columns.out, columns.kernel]);
  const window = reshape(permute(parts, [0, 1, 2, 4, 3, 5]), [
    batch,
    channels,
    rows.out,
    columns.out,
    rows.kernel * columns.kernel,
  ]);
  const best = argmax(window, -1);
  const along = ({ stride, dilation, low, out }: typeof rows, step: Tensor, shape: number[]): Tensor =>
    arange(out, { dtype: "int32" }).mul(stride).sub(low).reshape(shape).add(step.mul(dilation));
  const row = along(rows, best.floorDivide(columns.kernel), [rows.out, 1]);
  const column = along(columns, best.mod(columns.kernel), [columns.out]);
  return row.mul(width).add(column);
}

/** Options of {@link maxUnpool2d}: those of the pooling, and the size of the result where it is not the smallest possible one. @inline */
interface UnpoolOptions {
  /** Size of the windows. */
  kernel: PerAxis;
  /** Step between windows, the size of the window by default. */
  stride?: PerAxis;
  /** Elements that the pooling added on both sides. */
  padding?: PerAxis;
  /** Height and width of the result. */
  outputSize?: readonly [number, number];
}

/**
 * Puts maxima back to their places in images of zeros, as torch.nn.functional.max_unpool2d: the inverse of {@link maxPool2d} up to the
 * elements that it drops.
 *
 * @param indices - The places, from {@link maxPoolIndices2d}.
 *
 * @example
 * ```ts
 * import { arange, maxPool2d, maxPoolIndices2d, maxUnpool2d } from "@weft/core";
 *
 * const image = arange(4).reshape([1, 1, 2, 2]);
 * const places = maxPoolIndices2d(image, { kernel: 2 });
 * const back = maxUnpool2d(maxPool2d(image, { kernel: 2 }), places, { kernel: 2 });
 * console.log(await back.flatten().array()); // [0, 0, 0, 3]
 * ```
 */
export function maxUnpool2d(x: Tensor, indices: Tensor, options: UnpoolOptions): Tensor {
  checkArguments("maxUnpool2d", "tensor", { x, indices });
  checkOptions("maxUnpool2d", options, ["kernel", "stride", "padding", "outputSize"]);
  if (x.rank !== 4 || !sameShape(x.shape, indices.shape))
    throw new ShapeError(
      "maxUnpool2d: needs x and indices [batch, channels, height, width] of one shape, " +
        `got ${showShape(x.shape)} and ${showShape(indices.shape)}`,
    );
  const kernel = perAxis("maxUnpool2d", "kernel", options.kernel, 2, 1);
  const stride = perAxis("maxUnpool2d", "stride", options.stride ?? kernel, 2, 1);
  const padding = perAxis("maxUnpool2d", "padding", options.padding ?? 0, 2, 0);
  const [batch, channels] = x.shape;
  const fitting = [0, 1].map((i) => (x.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + kernel[i]);
  const size = perAxis("maxUnpool2d", "outputSize", options.outputSize ?? fitting, 2, 1);
  const places = reshape(indices, [batch, channels, -1]);
  const empty = zeros([batch, channels, size[0] * size[1]], { dtype: x.dtype });
  return reshape(scatter(empty, places, reshape(x, places.shape), { axis: -1 }), [batch, channels, ...size]);
}
