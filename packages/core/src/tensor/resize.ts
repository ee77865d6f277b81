// Interpolation of images and sequences, one axis after the other: every element is a weighted sum of a few of the input.
import {
  checkOptions,
  isFloat,
  isHalf,
  isInexact,
  range,
  ShapeError,
  showShape,
  showValue,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { type PerAxis, perAxis } from "./conv.js";
import { checkArguments, wrap } from "./convert.js";
import { tensor } from "./create.js";
import { customVjp } from "./custom.js";
import { take } from "./indexing.js";
import { where } from "./math.js";
import { repeat } from "./selection.js";
import type { Tensor } from "./tensor.js";

/** Options of {@link interpolate}. @inline */
interface InterpolateOptions {
  /** Sizes of the spatial axes of the result. */
  size?: PerAxis;
  /** Factors of the sizes, instead of `size`. */
  scale?: PerAxis;
  /** "nearest" (default), "linear" (bilinear, trilinear over two and three axes) or "cubic" (bicubic). */
  mode?: "nearest" | "linear" | "cubic";
  /** The first and last elements of input and result coincide; otherwise the edges of their outermost elements do. */
  alignCorners?: boolean;
  /** Channels are the last axis instead of the second. */
  channelsLast?: boolean;
}

/** One element of the input for each element of the result, with its weight. */
interface Tap {
  at: number[];
  weight: number[] | null;
  /** Whether the element is part of the result; all are where this is missing. */
  used?: boolean[];
}

const clamp = (i: number, n: number): number => Math.min(n - 1, Math.max(0, i));

/** Weights of the four neighbors of a position between the middle two (Keys, a = -0.75). */
function cubicWeights(t: number): number[] {
  const a = -0.75;
  const near = (x: number): number => ((a + 2) * x - (a + 3)) * x * x + 1;
  const far = (x: number): number => ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return [far(t + 1), near(t), near(1 - t), far(2 - t)];
}

function taps(
  n: number,
  out: number,
  ratio: number,
  { mode = "nearest", alignCorners = false }: InterpolateOptions,
): Tap[] {
  const all = range(out);
  if (mode === "nearest") return [{ at: all.map((i) => clamp(Math.floor(i * ratio), n)), weight: null }];
  const source = all.map((i) => (alignCorners ? (out > 1 ? (i * (n - 1)) / (out - 1) : 0) : (i + 0.5) * ratio - 0.5));
  if (mode === "cubic")
    return range(4).map((k) => ({
      at: source.map((x) => clamp(Math.floor(x) - 1 + k, n)),
      weight: source.map((x) => cubicWeights(x - Math.floor(x))[k]),
    }));
  const inside = source.map((x) => Math.max(0, x));
  return [0, 1].map((k) => ({
    at: inside.map((x) => clamp(Math.floor(x) + k, n)),
    weight: inside.map((x) => (k === 0 ? 1 - (x - Math.floor(x)) : x - Math.floor(x))),
  }));
}

/** Terms of a gradient up to which it is a sum of elements that are looked up; beyond, gradients are scattered. */
const maxTerms = 24;

/**
 * For each element of the input, the elements of the result that it is part of, with their weights: the taps of the gradient. Null
 * where an element is part of too many.
 */
function transposedTaps(n: number, given: readonly Tap[]): Tap[] | null {
  const users = range(n).map(() => new Map<number, number>());
  for (const { at, weight } of given)
    at.forEach((i, j) => {
      const share = weight?.[j] ?? 1;
      if (share !== 0) users[i].set(j, (users[i].get(j) ?? 0) + share);
    });
  const most = Math.max(1, ...users.map((all) => all.size));
  if (most > maxTerms) return null;
  const found = users.map((all) => [...all]);
  // Elements with fewer users look up any other, which may be infinite.
  return range(most).map((k) => ({
    at: found.map((all) => all[k]?.[0] ?? all[0]?.[0] ?? 0),
    weight: found.map((all) => all[k]?.[1] ?? 0),
    used: found.map((all) => k < all.length),
  }));
}

/** Sums of the elements along an axis that taps name. */
function tapped(x: Tensor, axis: number, given: readonly Tap[]): Tensor {
  const terms = given.map(({ at, weight, used }) => {
    const found = take(x, at, axis);
    if (weight === null) return found;
    const shape = found.shape.map((_, k) => (k === axis ? at.length : 1));
    const weighted = found.mul(tensor(weight, { dtype: found.dtype }).reshape(shape));
    return used?.includes(false) ? where(tensor(used).reshape(shape), weighted, 0) : weighted;
  });
  return terms.reduce((a, b) => a.add(b));
}

/** The same with a gradient that looks elements up instead of scattering them. */
function resampled(x: Tensor, axis: number, forth: readonly Tap[], back: readonly Tap[]): Tensor {
  const apply = customVjp(
    (t: Tensor) => tapped(t, axis, forth),
    (_args: [Tensor], _y, g) => [resampled(g, axis, back, forth)],
  );
  return apply(x);
}

/**
 * Resizes the spatial axes of x [batch, channels, ...], as torch.nn.functional.interpolate without antialiasing.
 *
 * @example
 * ```ts
 * import { interpolate, tensor } from "@weft/core";
 *
 * console.log(await interpolate(tensor([[[1, 3]]]), { size: 4, mode: "linear" }).array()); // [[[1, 1.5, 2.5, 3]]]
 * ```
 */
export function interpolate(x: Tensor, options: InterpolateOptions): Tensor {
  checkOptions("interpolate", options, ["size", "scale", "mode", "alignCorners", "channelsLast"]);
  const { size, scale, mode = "nearest", alignCorners = false, channelsLast = false } = options;
  checkArguments("interpolate", "tensor", { x });
  const spatial = x.shape.length - 2;
  if (spatial < 1 || spatial > 3)
    throw new ShapeError(
      `interpolate: needs [batch, channels, ...] with one to three more axes, got ${showShape(x.shape)}`,
    );
  if (!["nearest", "linear", "cubic"].includes(mode))
    throw new WeftError(`interpolate: mode must be "nearest", "linear" or "cubic", got ${showValue(mode)}`);
  if (mode === "nearest" && alignCorners)
    throw new WeftError(`interpolate: alignCorners needs mode "linear" or "cubic"`);
  if (mode !== "nearest" && !isFloat(x.dtype))
    throw new WeftError(`interpolate: mode "${mode}" needs floating-point numbers, got ${x.dtype}; use cast`);
  if ((size === undefined) === (scale === undefined)) throw new WeftError("interpolate: give either size or scale");
  const first = channelsLast ? 1 : 2;
  const factors =
    scale === undefined ? null : typeof scale === "number" ? new Array<number>(spatial).fill(scale) : scale;
  if (factors !== null && (factors.length !== spatial || factors.some((f) => !(f > 0 && f < 2 ** 20))))
    throw new ShapeError(`interpolate: scale needs ${spatial} positive numbers, got [${factors}]`);
  const sizes =
    factors === null
      ? perAxis("interpolate", "size", size!, spatial, 1)
      : factors.map((f, i) => Math.floor(x.shape[first + i] * f));
  let result = isHalf(x.dtype) && mode !== "nearest" ? wrap(build.cast(x.node, "float32")) : x;
  sizes.forEach((out, i) => {
    const axis = first + i;
    const n = x.shape[axis];
    if (n === 0 || out < 1) throw new ShapeError(`interpolate: ${showShape(x.shape)} to a size of ${out}`);
    if (out === n && factors === null) return;
    const ratio = factors === null ? n / out : 1 / factors[i];
    if (mode === "nearest" && out % n === 0 && ratio === n / out) {
      result = repeat(result, out / n, axis);
      return;
    }
    const forth = taps(n, out, ratio, options);
    const back = isInexact(result.dtype) ? transposedTaps(n, forth) : null;
    result = back === null ? tapped(result, axis, forth) : resampled(result, axis, forth, back);
  });
  return wrap(build.cast(result.node, x.dtype));
}
