// grad, valueAndGrad, vjp and jvp over trees of tensors: they trace the function into nodes and apply the graph transforms.
import { checkOptions, isComplex, isInexact, type Node, ShapeError, showShape, WeftError } from "../graph/index.js";
import { build } from "../ops/index.js";
import { forGradient, materializeWhenComputed, tracing } from "../runtime/index.js";
import { backward, finishVariables, forward, instantiate, mergeFinishedGradients } from "../transform/index.js";
import { checkArguments, wrap } from "./convert.js";
import { Tensor } from "./tensor.js";
import { type AnyFunction, outputsOf, refusePromise } from "./trace.js";
import { flattenTree } from "./tree.js";

/** Wraps the tensors of a tree in new alias nodes: the differentiation variables. */
function aliasTree(tree: unknown): { aliases: Node[]; tree: unknown } {
  const { leaves, def } = flattenTree(tree);
  const aliases = leaves.map((leaf) => {
    materializeWhenComputed(leaf.node);
    return build.make("alias", [leaf.node], { name: "" });
  });
  return { aliases, tree: def.rebuild(aliases.map((node) => new Tensor(node))) };
}

function checkLoss(op: string, loss: unknown): Node {
  if (!(loss instanceof Tensor))
    throw new WeftError(`${op}: the function must return a tensor (the loss), got ${typeof loss}`);
  if (loss.shape.length !== 0)
    throw new ShapeError(
      `${op}: the loss must be a scalar, got shape ${showShape(loss.shape)}; use sum() or mean(), or vjp for more`,
    );
  if (isComplex(loss.dtype))
    throw new WeftError(`${op}: the loss is complex; a gradient needs a real loss: use real() or abs()`);
  if (!isInexact(loss.dtype)) throw new WeftError(`${op}: the loss is ${loss.dtype}; a gradient needs a float loss`);
  return loss.node;
}

/** Prepares the results of a traced function for differentiation; see mergeFinishedGradients and forGradient. */
function graphForGradient<T>(result: T, wrt: readonly Node[]): T {
  const { leaves, def } = flattenTree(result);
  const before = leaves.map((leaf) => leaf.node);
  const after = forGradient(mergeFinishedGradients(before), wrt, wrt);
  return after.every((node, i) => node === before[i]) ? result : (def.rebuild(after.map((n) => new Tensor(n))) as T);
}

/** Options of {@link grad} and {@link valueAndGrad}. @inline */
interface GradOptions {
  /** Argument or arguments to differentiate with respect to; the first by default. */
  argument?: number | readonly number[];
  /** The function returns [loss, aux]; aux is passed through. */
  hasAux?: boolean;
}

interface Differentiated {
  value: unknown;
  grads: unknown;
}

function differentiate(op: string, fn: AnyFunction, args: unknown[], options: GradOptions): Differentiated {
  checkOptions(op, options, ["argument", "hasAux"]);
  const { argument = 0, hasAux = false } = options;
  const chosen = typeof argument === "number" ? [argument] : [...argument];
  for (const i of chosen)
    if (!Number.isInteger(i) || i < 0 || i >= args.length)
      throw new WeftError(`${op}: there is no argument ${i} among ${args.length}`);
  return tracing(() => {
    const traced = [...args];
    const sources = chosen.map((i) => {
      const { leaves, def } = flattenTree(args[i]);
      const alias = aliasTree(args[i]);
      traced[i] = alias.tree;
      return { aliases: alias.aliases, leaves, def };
    });
    const wrt = sources.flatMap((s) => s.aliases);
    for (const node of wrt)
      if (!isInexact(node.dtype))
        throw new WeftError(
          `${op}: the argument holds a ${node.dtype} tensor, which has no gradient; pass it as another argument`,
        );
    if (wrt.length === 0)
      throw new WeftError(`${op}: argument ${chosen.join(", ")} holds no tensor; wrap numbers in weft.tensor`);
    const result: unknown = fn(...traced);
    refusePromise(op, result);
    if (hasAux && !Array.isArray(result))
      throw new WeftError(`${op}: with hasAux the function returns [loss, more], got ${typeof result}`);
    checkLoss(op, hasAux ? (result as unknown[])[0] : result);
    const value = graphForGradient(result, wrt);
    const loss = checkLoss(op, hasAux ? (value as unknown[])[0] : value);
    const grads = backward([loss], [build.full([], 1, loss.dtype)], wrt).map((g, i) =>
      wrap(g ?? build.zerosLike(wrt[i])),
    );
    finishVariables(wrt);
    let next = 0;
    const trees = sources.map(({ aliases, def }) => {
      next += aliases.length;
      return def.rebuild(grads.slice(next - aliases.length, next));
    });
    return { value, grads: typeof argument === "number" ? trees[0] : trees };
  });
}

type Picked<A extends unknown[], I extends readonly number[]> = { -readonly [K in keyof I]: A[I[K]] };

/** Type of the gradients: that of the first argument, of the chosen argument, or a tuple of the chosen ones. */
export type Gradient<A extends unknown[], O extends GradOptions> = O["argument"] extends number
  ? A[O["argument"]]
  : O["argument"] extends infer I extends readonly number[]
    ? Picked<A, I>
    : A[0];

/**
 * Returns the gradient function of a function with a real scalar result. The gradient has the structure of the first argument,
 * or of the arguments in `options.argument`. With `hasAux` it returns [gradient, aux].
 *
 * @example
 * ```ts
 * import { grad, type Tensor, tensor } from "@weft/core";
 *
 * const loss = (w: Tensor): Tensor => w.square().sum();
 * console.log(await grad(loss)(tensor([1, 2, 3])).array()); // [2, 4, 6]
 * ```
 */
export function grad<A extends unknown[], const O extends GradOptions = Record<never, never>>(
  fn: (...args: A) => unknown,
  options?: O,
): (...args: A) => O["hasAux"] extends true ? [Gradient<A, O>, unknown] : Gradient<A, O> {
  return (...args) => {
    const { value, grads } = differentiate("grad", fn, args, options ?? {});
    return (options?.hasAux ? [grads, (value as unknown[])[1]] : grads) as never;
  };
}

/**
 * Like {@link grad}, but returns [value, gradient], or [[value, aux], gradient] with `hasAux`.
 *
 * @example
 * ```ts
 * import { type Tensor, tensor, valueAndGrad } from "@weft/core";
 *
 * const loss = (params: { w: Tensor; b: Tensor }, x: Tensor): Tensor => x.mul(params.w).add(params.b).square().mean();
 * const params = { w: tensor(2), b: tensor(1) };
 * const [value, grads] = valueAndGrad(loss)(params, tensor([1, 2]));
 * console.log(await value.item(), await grads.w.item(), await grads.b.item()); // 17 13 8
 * ```
 */
export function valueAndGrad<A extends unknown[], V, const O extends GradOptions = Record<never, never>>(
  fn: (...args: A) => V,
  options?: O,
): (...args: A) => [V, Gradient<A, O>] {
  return (...args) => {
    const { value, grads } = differentiate("valueAndGrad", fn, args, options ?? {});
    return [value as V, grads as Gradient<A, O>];
  };
}

/** Validates cotangents and casts them to the dtypes of the results. */
function checkCotangents(cotangent: unknown, leaves: readonly Tensor[]): Node[] {
  const given = flattenTree(cotangent).leaves;
  if (given.length !== leaves.length)
    throw new WeftError(`vjp: the function has ${leaves.length} results, the cotangent ${given.length}`);
  return given.map((c, i) => {
    if (showShape(c.shape) !== showShape(leaves[i].shape))
      throw new ShapeError(`vjp: cotangent ${showShape(c.shape)} for a result of shape ${showShape(leaves[i].shape)}`);
    if (isComplex(c.dtype) && !isComplex(leaves[i].dtype))
      throw new WeftError(`vjp: a complex cotangent for a ${leaves[i].dtype} result; use real()`);
    return build.cast(c.node, leaves[i].dtype);
  });
}

/**
 * Reverse mode: returns the value, and a function that maps a cotangent of the value to cotangents of the arguments.
 */
export function vjp<A extends unknown[], V>(fn: (...args: A) => V, ...args: A): [V, (cotangent: V) => A] {
  checkArguments("vjp", "function", { fn });
  return tracing(() => {
    const alias = aliasTree(args);
    const { def } = flattenTree(args);
    const made = fn(...(alias.tree as A));
    outputsOf("vjp", made);
    const result = graphForGradient(made, alias.aliases);
    const { leaves } = outputsOf("vjp", result);
    // Built now for later cotangents, because a result that is computed in the meantime loses its history.
    const seeds = leaves.map((l) => build.input(l.shape, l.dtype, "cotangent"));
    const grads = backward(
      leaves.map((l) => l.node),
      seeds.map((seed) => (isInexact(seed.dtype) ? seed : null)),
      alias.aliases,
    ).map((g, i) => g ?? build.zerosLike(alias.aliases[i]));
    finishVariables(alias.aliases);
    const pull = (cotangent: V): A => {
      const nodes = instantiate({ params: seeds, outputs: grads }, checkCotangents(cotangent, leaves));
      return def.rebuild(nodes.map((node) => wrap(node))) as A;
    };
    return [result, pull];
  });
}

/** Options of {@link jvp}. @inline */
interface JvpOptions {
  /** The function returns [result, aux]; aux has no derivative and is returned third. */
  hasAux?: boolean;
}

/** Like {@link vjp} for a function that returns [result, aux]: returns the result, the pullback and aux. */
export function vjpWithAux<A extends unknown[], V, X>(
  fn: (...args: A) => [V, X],
  ...args: A
): [V, (cotangent: V) => A, X] {
  checkArguments("vjpWithAux", "function", { fn });
  const found: { aux?: X } = {};
  const [value, pull] = vjp(
    (...inner: A): V => {
      const [result, aux] = splitAux("vjpWithAux", fn(...inner));
      found.aux = aux as X;
      return result as V;
    },
    ...args,
  );
  return [value, pull, found.aux as X];
}

function splitAux(op: string, result: unknown): [unknown, unknown] {
  if (!Array.isArray(result) || result.length !== 2)
    throw new WeftError(`${op}: the function returns [result, aux], got ${typeof result}`);
  return result as [unknown, unknown];
}

/** Forward mode: returns the value and its directional derivative along the tangents of the arguments. */
export function jvp<A extends unknown[], V>(fn: (...args: A) => V, args: A, tangents: A): [V, V];
export function jvp<A extends unknown[], V, X>(
  fn: (...args: A) => [V, X],
  args: A,
  tangents: A,
  options: { hasAux: true },
): [V, V, X];
export function jvp<A extends unknown[], V>(
  given: (...args: A) => V,
  args: A,
  tangents: A,
  options: JvpOptions = {},
): unknown[] {
  checkArguments("jvp", "function", { fn: given });
  checkArguments("jvp", "array", { args, tangents });
  checkOptions("jvp", options, ["hasAux"]);
  const { hasAux = false } = options;
  const found: { aux?: unknown } = {};
  const fn = (...inner: A): V => {
    if (!hasAux) return given(...inner);
    const [result, aux] = splitAux("jvp", given(...inner));
    found.aux = aux;
    return result as V;
  };
  return tracing(() => {
    const alias = aliasTree(args);
    const directions = flattenTree(tangents).leaves;
    directions.forEach((d, i) => {
      const of = alias.aliases[i];
      if (of !== undefined && showShape(d.shape) !== showShape(of.shape))
        throw new ShapeError(`jvp: tangent ${showShape(d.shape)} for an argument of shape ${showShape(of.shape)}`);
    });
    if (directions.length !== alias.aliases.length)
      throw new WeftError(
        `jvp: ${alias.aliases.length} tensors in the arguments, ${directions.length} in the tangents`,
      );
    const result = fn(...(alias.tree as A));
    const { leaves, def } = outputsOf("jvp", result);
    const seeds = directions.map((d, i) => build.cast(d.node, alias.aliases[i].dtype));
    const out = forward(mergeFinishedGradients(leaves.map((l) => l.node)), alias.aliases, seeds);
    finishVariables(alias.aliases);
    const tangent = def.rebuild(out.map((t, i) => wrap(t ?? build.zerosLike(leaves[i].node))));
    return hasAux ? [result, tangent, found.aux] : [result, tangent];
  });
}
