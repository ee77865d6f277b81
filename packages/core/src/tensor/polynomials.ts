// The namespace `poly`: polynomials as vectors of coefficients, the highest power first, as numpy.polyval and its relatives.
import { isComplex, range, ShapeError, showShape, toInexact, WeftError } from "../graph/index.js";
import { nodeOf, type TensorLike, wrap } from "./convert.js";
import { tensor, zeros } from "./create.js";
import { vander } from "./grids.js";
import { cast, sub as minus, add as plus, mul as times } from "./math.js";
import { eigvals, lstsq } from "./matrix-functions.js";
import { pad } from "./padding.js";
import { concat, reshape, squeeze, unsqueeze } from "./shape.js";
import { convolve } from "./signal.js";
import type { Tensor } from "./tensor.js";

/** Coefficients along axis 0; `batched` polynomials have more axes. */
function coefficients(op: string, p: TensorLike, batched = false): Tensor {
  const node = nodeOf(`poly.${op}`, p);
  if (batched ? node.shape.length === 0 : node.shape.length !== 1)
    throw new ShapeError(
      `poly.${op}: needs ${batched ? "coefficients along axis 0" : "a vector of coefficients"}, got shape ${showShape(node.shape)}`,
    );
  return wrap(node);
}

/**
 * Value of a polynomial at every element of x, by Horner's rule. Several polynomials have their coefficients along axis 0; their
 * other axes broadcast with x.
 *
 * @example
 * ```ts
 * import { poly, tensor } from "@weft/core";
 *
 * console.log(await poly.val(tensor([1, 0, -2]), tensor([0, 3])).array()); // x^2 - 2: [-2, 7]
 * ```
 */
export function val(p: TensorLike, x: TensorLike): Tensor {
  const c = coefficients("val", p, true);
  const start = times(zeros(c.shape.slice(1), { dtype: c.dtype }), x);
  return range(c.shape[0]).reduce<Tensor>((sum, i) => plus(times(sum, x), c.index(i)), start);
}

/** Polynomials with as many coefficients as the longer one. */
function alignedPair(op: string, a: TensorLike, b: TensorLike): Tensor[] {
  const both = [coefficients(op, a, true), coefficients(op, b, true)];
  const n = Math.max(...both.map((p) => p.shape[0]));
  const rank = Math.max(...both.map((p) => p.rank));
  return both.map((p) => {
    const grown = pad(
      p,
      p.shape.map((d, i): [number, number] => [i === 0 ? n - d : 0, 0]),
    );
    return reshape(grown, [n, ...new Array<number>(rank - p.rank).fill(1), ...p.shape.slice(1)]);
  });
}

/** Sum of two polynomials; batched ones have their coefficients along axis 0. */
export function add(a: TensorLike, b: TensorLike): Tensor {
  const [p, q] = alignedPair("add", a, b);
  return plus(p, q);
}

/** Difference of two polynomials; batched ones have their coefficients along axis 0. */
export function sub(a: TensorLike, b: TensorLike): Tensor {
  const [p, q] = alignedPair("sub", a, b);
  return minus(p, q);
}

/** Product of two polynomials. A polynomial without coefficients is 0. */
export function mul(a: TensorLike, b: TensorLike): Tensor {
  const [p, q] = [coefficients("mul", a), coefficients("mul", b)].map((c) =>
    c.size === 0 ? zeros([1], { dtype: c.dtype }) : c,
  );
  return convolve(p, q);
}

/** Quotient and remainder of two polynomials. */
export interface Division {
  /** Coefficients of the quotient, the highest power first. */
  quotient: Tensor;
  /** As many coefficients as the divisor, less one; its leading ones may be 0. */
  remainder: Tensor;
}

/** Division of polynomials with remainder. The divisor's first coefficient must not be 0. */
export function div(a: TensorLike, b: TensorLike): Division {
  const [p, q] = [coefficients("div", a), coefficients("div", b)];
  if (q.size === 0) throw new ShapeError("poly.div: the divisor has no coefficients");
  const steps = p.size - q.size + 1;
  const dtype = toInexact(plus(p, q.index(0)).dtype);
  const [rest, divisor] = [cast(p, dtype), cast(q, dtype)];
  if (steps < 1) return { quotient: zeros([1], { dtype }), remainder: rest };
  let left = rest;
  const quotient = range(steps).map((i) => {
    const factor = left.index(0).div(divisor.index(0));
    const product = pad(times(divisor, factor), [[0, p.size - i - q.size]]);
    left = minus(left, product).index("1:");
    return factor;
  });
  return { quotient: concat(quotient.map((c) => unsqueeze(c, 0))), remainder: left };
}

/** Derivative of a polynomial, taken `order` times. */
export function derivative(p: TensorLike, order = 1): Tensor {
  if (!Number.isInteger(order) || order < 0)
    throw new WeftError(`poly.derivative: the order is a whole number >= 0, got ${order}`);
  return range(order).reduce<Tensor>(
    (c) => {
      if (c.size <= 1) return zeros([0], { dtype: c.dtype });
      const powers = tensor(range(c.size - 1).map((i) => c.size - 1 - i));
      return times(c.index(":-1"), cast(powers, c.dtype));
    },
    coefficients("derivative", p),
  );
}

/** Integral of a polynomial whose constant is `constant`. */
export function integral(p: TensorLike, constant = 0): Tensor {
  const c = coefficients("integral", p);
  const dtype = toInexact(c.dtype);
  const powers = tensor(range(c.size).map((i) => c.size - i)).cast(dtype);
  return concat([cast(c, dtype).div(powers), tensor([constant]).cast(dtype)]);
}

/**
 * Polynomial of a degree that fits points (x, y) with the least squared error. y may have columns [n, m], which are fitted separately.
 */
export function fit(x: Tensor, y: Tensor, degree: number): Tensor {
  if (!Number.isInteger(degree) || degree < 0)
    throw new WeftError(`poly.fit: the degree is a whole number >= 0, got ${degree}`);
  if (x.rank !== 1 || y.rank < 1 || y.rank > 2 || y.shape[0] !== x.size || x.size === 0)
    throw new ShapeError(
      `poly.fit: needs a vector of points and as many values, got ${showShape(x.shape)} and ${showShape(y.shape)}`,
    );
  const dtype = toInexact(y.dtype);
  const points = cast(x, isComplex(dtype) ? dtype : toInexact(x.dtype));
  const matrix = vander(points, { columns: degree + 1 });
  // Columns of equal length keep the least-squares problem well conditioned.
  const scale = matrix.norm(0).maximum(Number.MIN_VALUE);
  const solution = lstsq(matrix.div(scale), y.rank === 1 ? unsqueeze(y, 1) : y).solution.div(unsqueeze(scale, 1));
  return y.rank === 1 ? squeeze(solution, 1) : solution;
}

/** Roots of a polynomial, complex and in no particular order. The first coefficient must not be 0. */
export function roots(p: TensorLike): Tensor {
  const c = coefficients("roots", p);
  const dtype = toInexact(c.dtype);
  const n = c.size - 1;
  if (n < 1) return zeros([0], { dtype: dtype === "float64" || dtype === "complex128" ? "complex128" : "complex64" });
  const monic = cast(c, dtype).index("1:").neg().div(cast(c, dtype).index(0));
  // The companion matrix: its first row are the coefficients, ones stand below its diagonal.
  const below = tensor(range(n - 1).map((i) => range(n).map((j) => Number(i === j)))).cast(dtype);
  const matrix = n === 1 ? reshape(monic, [1, 1]) : concat([reshape(monic, [1, n]), reshape(below, [n - 1, n])]);
  return eigvals(matrix);
}

/** Polynomial with the given roots, whose first coefficient is 1. */
export function fromRoots(values: Tensor): Tensor {
  if (values.rank !== 1) throw new ShapeError(`poly.fromRoots: needs a vector, got shape ${showShape(values.shape)}`);
  const dtype = toInexact(values.dtype);
  const one = tensor([1]).cast(dtype);
  return range(values.size).reduce<Tensor>((p, i) => {
    const root = cast(values, dtype).index(i);
    return minus(pad(p, [[0, 1]]), times(pad(p, [[1, 0]]), root));
  }, one);
}
