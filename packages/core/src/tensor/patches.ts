// Patches and pixels of images [N, C, H, W]: patches as columns and back, channels as pixels and back, and images at given places.
import {
  checkOptions,
  DTypeError,
  isFloat,
  isInexact,
  range,
  ShapeError,
  showShape,
  WeftError,
} from "../graph/index.js";
import { type PerAxis, perAxis } from "./conv.js";
import { checkArguments, nodeOf, type TensorLike, wrap } from "./convert.js";
import { zeros } from "./create.js";
import { gather, take } from "./indexing.js";
import { abs, cast, clip, floor, less, lessEqual, logicalAnd, mod, round, where } from "./math.js";
import { expand, permute, reshape } from "./shape.js";
import type { Tensor } from "./tensor.js";
import { vjp } from "./transforms.js";

/** Options of {@link unfold} and {@link fold}. @inline */
interface PatchOptions {
  /** Size of the patches. */
  kernel: PerAxis;
  /** Distance between patches; 1 by default. */
  stride?: PerAxis;
  /** Zeros on both sides; 0 by default. */
  padding?: PerAxis;
  /** Distance between the elements of a patch; 1 by default. */
  dilation?: PerAxis;
}

const patchOptions = ["kernel", "stride", "padding", "dilation"] as const;

function image(op: string, x: TensorLike): Tensor {
  const t = wrap(nodeOf(op, x));
  if (t.rank !== 4) throw new ShapeError(`${op}: needs images [N, C, H, W], got shape ${showShape(t.shape)}`);
  return t;
}

/** All patches of images as columns, as torch.nn.functional.unfold: [N, C, H, W] to [N, C kh kw, patches]. */
export function unfold(x: TensorLike, options: PatchOptions): Tensor {
  const { kernel, stride = 1, padding = 0, dilation = 1 } = checkOptions("unfold", options, patchOptions);
  const t = image("unfold", x);
  const [size, step, pads, gap] = [
    perAxis("unfold", "kernel", kernel, 2, 1),
    perAxis("unfold", "stride", stride, 2, 1),
    perAxis("unfold", "padding", padding, 2, 0),
    perAxis("unfold", "dilation", dilation, 2, 1),
  ];
  const padded = t.pad([[0, 0], [0, 0], ...pads.map((p) => [p, p] as const)]);
  const counts = range(2).map((i) => Math.floor((padded.shape[2 + i] - gap[i] * (size[i] - 1) - 1) / step[i]) + 1);
  if (counts.some((n) => n < 1))
    throw new ShapeError(
      `unfold: patches of ${showShape(size)} (dilation ${showShape(gap)}) do not fit into ${showShape(padded.shape.slice(2))}`,
    );
  const places = (i: number): number[] =>
    range(size[i]).flatMap((k) => range(counts[i]).map((at) => at * step[i] + k * gap[i]));
  const [n, c] = t.shape;
  // [N, C, kh * patches down, kw * patches across] -> [N, C, kh, kw, down, across].
  const picked = take(take(padded, places(0), 2), places(1), 3);
  const blocks = reshape(picked, [n, c, size[0], counts[0], size[1], counts[1]]);
  return reshape(permute(blocks, [0, 1, 2, 4, 3, 5]), [n, c * size[0] * size[1], counts[0] * counts[1]]);
}

/** Adds patches up into images of a size, as torch.nn.functional.fold: [N, C kh kw, patches] to [N, C, ...outputSize]. */
export function fold(x: TensorLike, outputSize: readonly [number, number], options: PatchOptions): Tensor {
  const { kernel } = checkOptions("fold", options, patchOptions);
  const t = wrap(nodeOf("fold", x));
  checkArguments("fold", "array", { outputSize });
  const [height, width] = perAxis("fold", "outputSize", outputSize, 2, 1);
  const size = perAxis("fold", "kernel", kernel, 2, 1);
  const area = size[0] * size[1];
  if (!isInexact(t.dtype)) throw new DTypeError(`fold: needs floats or complex numbers, got ${t.dtype}; cast it first`);
  if (t.rank !== 3 || t.shape[1] % area !== 0)
    throw new ShapeError(`fold: needs patches [N, C ${area}, L], got shape ${showShape(t.shape)}`);
  const images = zeros([t.shape[0], t.shape[1] / area, height, width], { dtype: t.dtype });
  const [columns, pull] = vjp((y: Tensor) => unfold(y, options), images);
  if (columns.shape[2] !== t.shape[2])
    throw new ShapeError(`fold: images of ${height} by ${width} have ${columns.shape[2]} patches, got ${t.shape[2]}`);
  // Each patch adds to where unfold reads it.
  return pull(t)[0];
}

function factorOf(op: string, factor: number): number {
  if (!Number.isInteger(factor) || factor < 1)
    throw new WeftError(`${op}: the factor is a whole number >= 1, got ${String(factor)}`);
  return factor;
}

/** Channels as pixels, as torch.nn.functional.pixel_shuffle: [..., C r^2, H, W] to [..., C, H r, W r]. */
export function pixelShuffle(x: TensorLike, factor: number): Tensor {
  const t = wrap(nodeOf("pixelShuffle", x));
  const r = factorOf("pixelShuffle", factor);
  if (t.rank < 3 || t.shape[t.rank - 3] % (r * r) !== 0)
    throw new ShapeError(`pixelShuffle: needs [..., C ${r * r}, H, W], got shape ${showShape(t.shape)}`);
  const lead = t.shape.slice(0, -3);
  const [c, h, w] = t.shape.slice(-3);
  const k = lead.length;
  const blocks = reshape(t, [...lead, c / (r * r), r, r, h, w]);
  const order = [...range(k), k, k + 3, k + 1, k + 4, k + 2];
  return reshape(permute(blocks, order), [...lead, c / (r * r), h * r, w * r]);
}

/** The inverse of {@link pixelShuffle}: [..., C, H r, W r] to [..., C r^2, H, W]. */
export function pixelUnshuffle(x: TensorLike, factor: number): Tensor {
  const t = wrap(nodeOf("pixelUnshuffle", x));
  const r = factorOf("pixelUnshuffle", factor);
  const [c, h, w] = t.shape.slice(-3);
  if (t.rank < 3 || h % r !== 0 || w % r !== 0)
    throw new ShapeError(`pixelUnshuffle: needs [..., C, H ${r}, W ${r}], got shape ${showShape(t.shape)}`);
  const lead = t.shape.slice(0, -3);
  const k = lead.length;
  const blocks = reshape(t, [...lead, c, h / r, r, w / r, r]);
  const order = [...range(k), k, k + 2, k + 4, k + 1, k + 3];
  return reshape(permute(blocks, order), [...lead, c * r * r, h / r, w / r]);
}

/** Options of {@link gridSample}. @inline */
interface GridSampleOptions {
  /** Between pixels: the four neighbors weighted ("bilinear", the default) or the nearest one. */
  mode?: "bilinear" | "nearest";
  /** Outside of the image: zeros (the default), the nearest pixel of the border, or the image reflected. */
  padding?: "zeros" | "border" | "reflection";
  /** Whether -1 and 1 are the centers of the corner pixels; otherwise they are their outer edges (the default). */
  alignCorners?: boolean;
}

/** Places on an axis of n pixels, inside of it where `padding` says so. */
function pixelsOf(at: Tensor, n: number, padding: string, align: boolean): Tensor {
  const place = align ? at.add(1).mul((n - 1) / 2) : at.add(1).mul(n).sub(1).div(2);
  if (padding === "zeros") return place;
  if (padding === "border") return clip(place, 0, n - 1);
  const [low, span] = align ? [0, n - 1] : [-0.5, n];
  if (span === 0) return place.mul(0);
  const phase = mod(abs(place.sub(low)), 2 * span);
  return clip(where(less(phase, span), phase, phase.neg().add(2 * span)).add(low), 0, n - 1);
}

/**
 * Images [N, C, H, W] at the places of a grid [N, h, w, 2], whose last axis holds x and y in [-1, 1], as
 * torch.nn.functional.grid_sample.
 */
export function gridSample(x: TensorLike, grid: Tensor, options: GridSampleOptions = {}): Tensor {
  checkOptions("gridSample", options, ["mode", "padding", "alignCorners"]);
  const { mode = "bilinear", padding = "zeros", alignCorners = false } = options;
  if (mode !== "bilinear" && mode !== "nearest")
    throw new WeftError(`gridSample: mode is "bilinear" or "nearest", got ${String(mode)}`);
  if (padding !== "zeros" && padding !== "border" && padding !== "reflection")
    throw new WeftError(`gridSample: padding is "zeros", "border" or "reflection", got ${String(padding)}`);
  const t = image("gridSample", x);
  checkArguments("gridSample", "tensor", { grid });
  if (grid.rank !== 4 || grid.shape[3] !== 2 || grid.shape[0] !== t.shape[0])
    throw new ShapeError(`gridSample: needs a grid [${t.shape[0]}, h, w, 2], got shape ${showShape(grid.shape)}`);
  if (!isFloat(t.dtype) || !isFloat(grid.dtype))
    throw new DTypeError(`gridSample: needs floats, got ${t.dtype} and ${grid.dtype}`);
  const [n, c, height, width] = t.shape;
  if (height === 0 || width === 0) throw new ShapeError(`gridSample: images ${showShape(t.shape)} have no pixels`);
  const [, down, across] = grid.shape;
  const flat = reshape(t, [n, c, height * width]);
  const wide = cast(grid, t.dtype === "float64" || grid.dtype === "float64" ? "float64" : "float32");
  const [px, py] = [width, height].map((size, i) =>
    pixelsOf(reshape(take(wide, [i], 3), [n, 1, down * across]), size, padding, alignCorners),
  );
  /** Weighted pixels at whole places; 0 outside, where weights may be NaN. */
  const at = (column: Tensor, row: Tensor, weigh = (pixels: Tensor): Tensor => pixels): Tensor => {
    const inside = (v: Tensor, size: number): Tensor => logicalAnd(lessEqual(0, v), less(v, size));
    const whole = (v: Tensor, size: number): Tensor => cast(clip(v, 0, size - 1), "int32");
    const place = whole(row, height).mul(width).add(whole(column, width));
    const pixels = gather(flat, expand(place, [n, c, down * across]), 2);
    return where(logicalAnd(inside(column, width), inside(row, height)), weigh(pixels), 0);
  };
  const shaped = (v: Tensor): Tensor => cast(reshape(v, [n, c, down, across]), t.dtype);
  if (mode === "nearest") return shaped(at(round(px), round(py)));
  const [left, top] = [floor(px), floor(py)];
  const [right, bottom] = [px.sub(left), py.sub(top)];
  const rest = (v: Tensor): Tensor => v.neg().add(1);
  const corner = (dx: 0 | 1, dy: 0 | 1): Tensor =>
    at(left.add(dx), top.add(dy), (pixels) =>
      pixels.mul(dx === 1 ? right : rest(right)).mul(dy === 1 ? bottom : rest(bottom)),
    );
  return shaped(corner(0, 0).add(corner(1, 0)).add(corner(0, 1)).add(corner(1, 1)));
}
