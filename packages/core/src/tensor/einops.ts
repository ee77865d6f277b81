// Rearranging, reducing and repeating axes by patterns such as "b (h w) c -> b h w c": names for axes instead of positions.
import { numel, ShapeError, showShape, WeftError } from "../graph/index.js";
import { checkArguments, nodeOf, type TensorLike, wrap } from "./convert.js";
import { max, mean, min, prod, sum } from "./reduce.js";
import { broadcastTo, permute, reshape } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** Sizes of axes that a pattern does not determine. @inline */
type AxisSizes = Readonly<Record<string, number>>;

/** One side of a pattern: for every axis of the tensor the names that it consists of. */
type Side = string[][];

const ellipsis = "...";

function parseSide(op: string, text: string): Side {
  const side: Side = [];
  let group: string[] | null = null;
  for (const token of text
    .replace(/\.\.\./g, " ... ")
    .replace(/[()]/g, " $& ")
    .split(/\s+/)
    .filter(Boolean)) {
    if (token === "(" && group === null) group = [];
    else if (token === ")" && group !== null) {
      side.push(group);
      group = null;
    } else if (token === "1" || token === ellipsis || /^[A-Za-z_]\w*$/.test(token)) {
      const names = token === "1" ? [] : [token];
      if (group === null) side.push(names);
      else group.push(...names);
    } else throw new WeftError(`${op}: "${token}" in "${text}" is neither a name nor a group in parentheses`);
  }
  if (group !== null) throw new WeftError(`${op}: a parenthesis in "${text}" is not closed`);
  const names = side.flat();
  if (new Set(names).size !== names.length) throw new WeftError(`${op}: "${text}" names one axis twice`);
  return side;
}

interface Parsed {
  /** The tensor with one axis per name of the left side. */
  parts: Tensor;
  left: string[];
  right: Side;
  sizes: Map<string, number>;
}

function parse(op: string, x: TensorLike, pattern: string, given: AxisSizes): Parsed {
  const t = wrap(nodeOf(op, x));
  checkArguments(op, "string", { pattern });
  const sides = pattern.split("->");
  if (sides.length !== 2) throw new WeftError(`${op}: a pattern has the form "a b -> b a", got "${pattern}"`);
  let [from, right] = sides.map((side) => parseSide(op, side));
  const open = from.findIndex((names) => names.includes(ellipsis));
  const extra = t.rank - (from.length - Number(open >= 0));
  if (extra < 0 || (open < 0 && extra > 0))
    throw new ShapeError(
      `${op}: "${sides[0].trim()}" names ${from.length} axes of a tensor of shape ${showShape(t.shape)}`,
    );
  // Axes of the ellipsis get names that a pattern cannot contain.
  const rest = Array.from({ length: Math.max(0, extra) }, (_, i) => `.${i}`);
  const spread = (names: string[]): string[] => names.flatMap((name) => (name === ellipsis ? rest : [name]));
  const isOpen = (names: string[]): boolean => names.length === 1 && names[0] === ellipsis;
  const widen = (side: Side): Side =>
    side.flatMap((names) => (isOpen(names) ? rest.map((name) => [name]) : [spread(names)]));
  if (open >= 0 && !isOpen(from[open]))
    throw new WeftError(`${op}: "..." on the left stands alone, not in parentheses`);
  [from, right] = [widen(from), widen(right)];
  const sizes = new Map<string, number>(Object.entries(given));
  for (const [name, size] of sizes)
    if (!Number.isInteger(size) || size < 0)
      throw new ShapeError(`${op}: the size of ${name} is a whole number, got ${size}`);
  from.forEach((names, axis) => {
    const unknown = names.filter((name) => !sizes.has(name));
    const known = numel(names.filter((name) => sizes.has(name)).map((name) => sizes.get(name)!));
    const size = t.shape[axis];
    if (unknown.length > 1)
      throw new ShapeError(
        `${op}: the sizes of ${unknown.join(" and ")} are open; give all but one, as in { ${unknown[0]}: 2 }`,
      );
    if (unknown.length === 1 && known > 0 && size % known === 0) sizes.set(unknown[0], size / known);
    else if (unknown.length === 1 || known !== size)
      throw new ShapeError(`${op}: axis ${axis} of ${showShape(t.shape)} does not divide into (${names.join(" ")})`);
  });
  const left = from.flat();
  return {
    parts: reshape(
      t,
      left.map((name) => sizes.get(name)!),
    ),
    left,
    right,
    sizes,
  };
}

function assemble(op: string, parts: Tensor, order: readonly string[], { right, sizes }: Parsed): Tensor {
  const wanted = right.flat();
  const missing = wanted.filter((name) => !order.includes(name));
  if (missing.length > 0)
    throw new WeftError(
      `${op}: ${missing.join(", ")} on the right side of the pattern is not on the left side; only repeatAxes adds axes`,
    );
  const moved = permute(
    parts,
    wanted.map((name) => order.indexOf(name)),
  );
  return reshape(
    moved,
    right.map((names) => numel(names.map((name) => sizes.get(name)!))),
  );
}

/**
 * Splits, merges and reorders axes by name.
 *
 * @example
 * ```ts
 * import { arange, rearrange } from "@weft/core";
 *
 * const image = arange(24).reshape([4, 6]);
 * console.log(rearrange(image, "(h a) (w b) -> h w (a b)", { a: 2, b: 3 }).shape); // [2, 2, 6]
 * ```
 */
export function rearrange(x: TensorLike, pattern: string, sizes: AxisSizes = {}): Tensor {
  const parsed = parse("rearrange", x, pattern, sizes);
  const dropped = parsed.left.filter((name) => !parsed.right.flat().includes(name));
  if (dropped.length > 0) throw new WeftError(`rearrange: ${dropped.join(", ")} is not on the right; use reduceAxes`);
  return assemble("rearrange", parsed.parts, parsed.left, parsed);
}

const reductions = { sum, mean, max, min, prod };

/** Reduces the axes that the right side of a pattern does not name: `reduceAxes(x, "b (h a) c -> b h c", "mean", { a: 2 })`. */
export function reduceAxes(x: TensorLike, pattern: string, fn: keyof typeof reductions, sizes: AxisSizes = {}): Tensor {
  if (!Object.hasOwn(reductions, fn))
    throw new WeftError(`reduceAxes: the function is one of ${Object.keys(reductions).join(", ")}, got ${String(fn)}`);
  const parsed = parse("reduceAxes", x, pattern, sizes);
  const kept = parsed.left.filter((name) => parsed.right.flat().includes(name));
  const axes = parsed.left.flatMap((name, i) => (kept.includes(name) ? [] : [i]));
  return assemble("reduceAxes", reductions[fn](parsed.parts, axes), kept, parsed);
}

/** Repeats elements along the axes that only the right side of a pattern names: `repeatAxes(x, "h w -> h (w n)", { n: 3 })`. */
export function repeatAxes(x: TensorLike, pattern: string, sizes: AxisSizes = {}): Tensor {
  const parsed = parse("repeatAxes", x, pattern, sizes);
  const fresh = parsed.right.flat().filter((name) => !parsed.left.includes(name));
  const open = fresh.filter((name) => !parsed.sizes.has(name));
  if (open.length > 0) throw new ShapeError(`repeatAxes: give the size of ${open.join(", ")}, as in { ${open[0]}: 2 }`);
  const grown = broadcastTo(parsed.parts, [...fresh.map((name) => parsed.sizes.get(name)!), ...parsed.parts.shape]);
  return assemble("repeatAxes", grown, [...fresh, ...parsed.left], parsed);
}
