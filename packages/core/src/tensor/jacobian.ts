// Jacobians and Hessians: vmap of the pullback or of the directional derivative over the unit vectors.
import { checkOptions, isComplex, isInexact, numel, ShapeError, WeftError } from "../graph/index.js";
import { checkArguments } from "./convert.js";
import { eye } from "./create.js";
import { vmap } from "./mapping.js";
import { Tensor } from "./tensor.js";
import { grad, jvp, vjp } from "./transforms.js";

/** Options of {@link jacrev}, {@link jacfwd} and {@link hessian}. @inline */
interface JacobianOptions {
  /** Argument to differentiate with respect to, which must be a tensor; the first by default. */
  argument?: number;
  /** The function returns [result, aux]; the Jacobian function then returns [Jacobian, aux]. */
  hasAux?: boolean;
}

/** Function of only the chosen argument; aux of the last call is stored for the caller. */
function ofOne(op: string, fn: (...args: never[]) => unknown, args: unknown[], options: JacobianOptions) {
  checkOptions(op, options, ["argument", "hasAux"]);
  const { argument = 0, hasAux = false } = options;
  const at = args[argument];
  if (!(at instanceof Tensor)) throw new WeftError(`${op}: argument ${argument} must be a tensor, got ${typeof at}`);
  if (!isInexact(at.dtype) || isComplex(at.dtype))
    throw new WeftError(`${op}: argument ${argument} is ${at.dtype}; a Jacobian needs real floating-point numbers`);
  const found: { aux: unknown } = { aux: undefined };
  const alone = (x: Tensor): Tensor => {
    const result: unknown = fn(...(args.with(argument, x) as never[]));
    if (hasAux && (!Array.isArray(result) || result.length !== 2))
      throw new WeftError(`${op}: with hasAux the function returns [result, aux], got ${typeof result}`);
    const [value, aux] = hasAux ? (result as [unknown, unknown]) : [result, undefined];
    if (!(value instanceof Tensor))
      throw new WeftError(`${op}: the function must return a tensor, got ${typeof value}`);
    if (isComplex(value.dtype)) throw new ShapeError(`${op}: the result is complex; use real() or imag()`);
    found.aux = aux;
    return value;
  };
  return { at, alone, found, hasAux };
}

/** Unit vectors of a shape, one per row: [n, ...shape]. */
const unitVectors = (like: Tensor): Tensor => eye(like.size, { dtype: like.dtype }).reshape([like.size, ...like.shape]);

type JacobianFn<A extends unknown[]> = (...args: A) => Tensor;

/**
 * Jacobian by reverse mode, [...result, ...argument]: best where the result has fewer elements than the argument.
 *
 * @example
 * ```ts
 * import { jacrev, type Tensor, tensor } from "@weft/core";
 *
 * const f = (x: Tensor): Tensor => x.square();
 * console.log(await jacrev(f)(tensor([1, 2])).array()); // [[2, 0], [0, 4]]
 * ```
 */
export function jacrev<A extends unknown[]>(fn: (...args: A) => unknown, options: JacobianOptions = {}): JacobianFn<A> {
  return (...args) => {
    const { at, alone, found, hasAux } = ofOne("jacrev", fn as never, args, options);
    const [value, pull] = vjp(alone, at);
    const { aux } = found;
    const rows =
      value.size === 0 || at.size === 0
        ? value.reshape([-1, 1]).mul(at.reshape([1, -1]))
        : vmap((cotangent: Tensor) => pull(cotangent)[0])(unitVectors(value));
    const jacobian = rows.reshape([...value.shape, ...at.shape]);
    return (hasAux ? [jacobian, aux] : jacobian) as Tensor;
  };
}

/** Jacobian by forward mode, [...result, ...argument]: best where the argument has fewer elements than the result. */
export function jacfwd<A extends unknown[]>(fn: (...args: A) => unknown, options: JacobianOptions = {}): JacobianFn<A> {
  return (...args) => {
    const { at, alone, found, hasAux } = ofOne("jacfwd", fn as never, args, options);
    const value = alone(at);
    const { aux } = found;
    if (numel(value.shape) === 0 || at.size === 0)
      return value
        .reshape([-1, 1])
        .mul(at.reshape([1, -1]))
        .reshape([...value.shape, ...at.shape]);
    const columns = vmap((tangent: Tensor) => jvp(alone, [at], [tangent])[1])(unitVectors(at));
    const jacobian = columns.reshape([at.size, value.size]).T.reshape([...value.shape, ...at.shape]);
    return (hasAux ? [jacobian, aux] : jacobian) as Tensor;
  };
}

/** Same as {@link jacrev}. */
export const jacobian = jacrev;

/**
 * Hessian of a function with a scalar result, [...argument, ...argument].
 *
 * @example
 * ```ts
 * import { hessian, type Tensor, tensor } from "@weft/core";
 *
 * const f = (x: Tensor): Tensor => x.pow(3).sum();
 * console.log(await hessian(f)(tensor([1, 2])).array()); // [[6, 0], [0, 12]]
 * ```
 */
export function hessian<A extends unknown[]>(
  fn: (...args: A) => unknown,
  options: JacobianOptions = {},
): JacobianFn<A> {
  checkArguments("hessian", "function", { fn });
  const { argument = 0, hasAux = false } = checkOptions("hessian", options, ["argument", "hasAux"]);
  const slope = (...args: A): unknown => {
    const made: { aux: unknown } = { aux: undefined };
    const loss = (...inner: A): unknown => {
      const result = fn(...inner);
      if (!hasAux) return result;
      made.aux = (result as [unknown, unknown])[1];
      return (result as [unknown, unknown])[0];
    };
    const gradient = grad(loss, { argument })(...args);
    return hasAux ? [gradient, made.aux] : gradient;
  };
  return jacrev(slope, options);
}
