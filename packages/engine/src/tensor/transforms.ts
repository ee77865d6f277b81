// grad, vjp, jvp, vmap, scan and friends over tensors: they trace the user's function into nodes and hand those to the
// graph transforms. Everything works on trees and nests.
import {
  type CustomRule,
  type GraphFn,
  isComplex,
  isInexact,
  type Node,
  ShapeError,
  showShape,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { keepWhenComputed, tracing } from "../runtime/index.js";
import { backward, batchNodes, closeOver, forward, instantiate, makeScan } from "../transform/index.js";
import { resolveAxis, wrap } from "./convert.js";
import { Tensor } from "./tensor.js";
import { addEffect, inFrame } from "./trace.js";
import { flattenTree, type TreeDef, treeMap } from "./tree.js";

// biome-ignore lint/suspicious/noExplicitAny: user functions take and return trees of any type.
type AnyFunction = (...args: any[]) => any;

function refusePromise(op: string, result: unknown): void {
  if (result instanceof Promise)
    throw new WeftError(
      `${op}: the function is async; transforms trace ordinary functions (await the data before or after)`,
    );
}

/** Fresh aliases of the tensors of a tree: the identities that a gradient is taken with respect to. */
function aliasTree(tree: unknown): { aliases: Node[]; tree: unknown } {
  const { leaves, def } = flattenTree(tree);
  const aliases = leaves.map((leaf) => {
    keepWhenComputed(leaf.node);
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

export interface GradOptions {
  /** Which argument, or arguments, to differentiate; the first by default. */
  argument?: number | readonly number[];
  /** The function returns [loss, more]; `more` is passed through. */
  hasAux?: boolean;
}

interface Differentiated {
  value: unknown;
  grads: unknown;
}

function differentiate(op: string, fn: AnyFunction, args: unknown[], options: GradOptions): Differentiated {
  const { argument = 0, hasAux = false } = options;
  const chosen = typeof argument === "number" ? [argument] : [...argument];
  for (const i of chosen)
    if (i < 0 || i >= args.length) throw new WeftError(`${op}: there is no argument ${i} among ${args.length}`);
  return tracing(() => {
    const traced = [...args];
    const sources = chosen.map((i) => {
      const { leaves, def } = flattenTree(args[i]);
      const alias = aliasTree(args[i]);
      traced[i] = alias.tree;
      return { aliases: alias.aliases, leaves, def };
    });
    const result: unknown = fn(...traced);
    refusePromise(op, result);
    const loss = checkLoss(op, hasAux ? (result as unknown[])[0] : result);
    const wrt = sources.flatMap((s) => s.aliases);
    for (const node of wrt)
      if (!isInexact(node.dtype))
        throw new WeftError(
          `${op}: argument holds a ${node.dtype} tensor, which has no gradient; pass it as another argument`,
        );
    const grads = backward([loss], [build.full([], 1, loss.dtype)], wrt).map((g, i) =>
      wrap(g ?? build.zerosLike(wrt[i])),
    );
    let next = 0;
    const trees = sources.map(({ aliases, def }) => {
      next += aliases.length;
      return def.rebuild(grads.slice(next - aliases.length, next));
    });
    return { value: result, grads: typeof argument === "number" ? trees[0] : trees };
  });
}

/** The gradient of a function with a real scalar result, in the shape of its first argument. */
export function grad<A, R extends unknown[]>(
  fn: (x: A, ...rest: R) => Tensor,
  options: GradOptions = {},
): (x: A, ...rest: R) => A {
  return (...args) => differentiate("grad", fn, args, options).grads as A;
}

/** [value, gradient] of a function with a real scalar result (or [[value, more], gradient] with hasAux). */
export function valueAndGrad<A, R extends unknown[], V = Tensor>(
  fn: (x: A, ...rest: R) => V,
  options: GradOptions = {},
): (x: A, ...rest: R) => [V, A] {
  return (...args) => {
    const { value, grads } = differentiate("valueAndGrad", fn, args, options);
    return [value as V, grads as A];
  };
}

function outputsOf(op: string, result: unknown): { leaves: Tensor[]; def: TreeDef } {
  refusePromise(op, result);
  const flat = flattenTree(result);
  if (flat.leaves.length === 0) throw new WeftError(`${op}: the function returned no tensor`);
  return flat;
}

/** The value, and a function from cotangents of the value to cotangents of the arguments. */
export function vjp<A extends unknown[], V>(fn: (...args: A) => V, ...args: A): [V, (cotangent: V) => A] {
  return tracing(() => {
    const alias = aliasTree(args);
    const { def } = flattenTree(args);
    const result = fn(...(alias.tree as A));
    const { leaves } = outputsOf("vjp", result);
    const pull = (cotangent: V): A => {
      const cotangents = flattenTree(cotangent).leaves;
      if (cotangents.length !== leaves.length)
        throw new WeftError(`vjp: the function has ${leaves.length} results, the cotangent ${cotangents.length}`);
      cotangents.forEach((c, i) => {
        if (showShape(c.shape) !== showShape(leaves[i].shape))
          throw new ShapeError(
            `vjp: cotangent ${showShape(c.shape)} for a result of shape ${showShape(leaves[i].shape)}`,
          );
      });
      const seeds = cotangents.map((c, i) => build.cast(c.node, leaves[i].dtype));
      const grads = backward(
        leaves.map((l) => l.node),
        seeds,
        alias.aliases,
      );
      return def.rebuild(grads.map((g, i) => wrap(g ?? build.zerosLike(alias.aliases[i])))) as A;
    };
    return [result, pull];
  });
}

/** The value and its directional derivative along tangents of the arguments. */
export function jvp<A extends unknown[], V>(fn: (...args: A) => V, args: A, tangents: A): [V, V] {
  return tracing(() => {
    const alias = aliasTree(args);
    const directions = flattenTree(tangents).leaves;
    if (directions.length !== alias.aliases.length)
      throw new WeftError(
        `jvp: ${alias.aliases.length} tensors in the arguments, ${directions.length} in the tangents`,
      );
    const result = fn(...(alias.tree as A));
    const { leaves, def } = outputsOf("jvp", result);
    const seeds = directions.map((d, i) => build.cast(d.node, alias.aliases[i].dtype));
    const out = forward(
      leaves.map((l) => l.node),
      alias.aliases,
      seeds,
    );
    return [result, def.rebuild(out.map((t, i) => wrap(t ?? build.zerosLike(leaves[i].node)))) as V];
  });
}

export interface VmapOptions {
  /** The axis to map over: one number for all arguments, or one an argument (null: the argument is shared). */
  inAxes?: number | readonly (number | null)[];
  /** Where the mapped axis goes in the results. */
  outAxes?: number;
}

/** The function applied to every slice along an axis, as one batched program. */
export function vmap<F extends AnyFunction>(
  fn: F,
  options: VmapOptions = {},
): (...args: Parameters<F>) => ReturnType<F> {
  const { inAxes = 0, outAxes = 0 } = options;
  return (...args) => {
    let size: number | null = null;
    const sources = new Map<Node, Node>();
    const traced = args.map((arg, i) => {
      const axis = typeof inAxes === "number" ? inAxes : inAxes[i];
      if (axis === undefined)
        throw new WeftError(`vmap: inAxes has ${(inAxes as unknown[]).length} entries for ${args.length} arguments`);
      if (axis === null) return arg as unknown;
      return treeMap((leaf) => {
        if (leaf.shape.length === 0)
          throw new ShapeError(`vmap: argument ${i} holds a scalar, which has no axis to map over; use inAxes null`);
        const at = resolveAxis("vmap", axis, leaf.shape.length);
        if (size !== null && leaf.shape[at] !== size)
          throw new ShapeError(
            `vmap: argument ${i} has ${leaf.shape[at]} slices along axis ${at}, another one has ${size}`,
          );
        size = leaf.shape[at];
        const front = build.moveAxis(leaf.node, at, 0);
        const placeholder = build.input(front.shape.slice(1), leaf.dtype, "vmap");
        sources.set(placeholder, front);
        return new Tensor(placeholder);
      }, arg);
    });
    if (size === null)
      throw new WeftError("vmap: no argument is mapped over; give at least one inAxes that is not null");
    const count = size as number;
    const { result, frame } = inFrame("map", () => fn(...traced));
    const { leaves, def } = outputsOf("vmap", result);
    const nodes = [...leaves.map((l) => l.node), ...frame.effects.map((e) => e.node)];
    const batched = batchNodes(nodes, sources, count);
    batched.slice(leaves.length).forEach(({ node }, i) => {
      addEffect(frame.effects[i].label, node);
    });
    const outputs = batched.slice(0, leaves.length).map(({ node, batched: isBatched }) => {
      const full = isBatched ? node : build.expand(build.reshape(node, [1, ...node.shape]), [count, ...node.shape]);
      return wrap(build.moveAxis(full, 0, resolveAxis("vmap outAxes", outAxes, full.shape.length)));
    });
    return def.rebuild(outputs) as ReturnType<F>;
  };
}

export interface ScanOptions {
  /** The number of steps, where xs is null. */
  length?: number;
  /** From the last element to the first. */
  reverse?: boolean;
}

/**
 * A loop as one program: (carry, x) -> [carry, y] over the leading axis of xs. Returns the last carry and the stacked
 * ys. Differentiable; the carries are kept for the reverse pass.
 */
export function scan<C, X, Y>(step: (carry: C, x: X) => [C, Y], init: C, xs: X, options: ScanOptions = {}): [C, Y] {
  const start = flattenTree(init);
  const inputs = flattenTree(xs);
  const lengths = new Set(inputs.leaves.map((x) => x.shape[0]));
  if (options.length !== undefined) lengths.add(options.length);
  if (lengths.size !== 1 || lengths.has(undefined as unknown as number))
    throw new ShapeError(
      lengths.size === 0
        ? "scan: give xs, or options.length"
        : `scan: the leading axes of xs${options.length === undefined ? "" : " and options.length"} differ: ${[...lengths].join(", ")}`,
    );
  const [length] = lengths;
  const carries = start.leaves.map((c) => build.input(c.shape, c.dtype, "carry"));
  const slices = inputs.leaves.map((x) => build.input(x.shape.slice(1), x.dtype, "x"));
  const { result, frame } = inFrame("loop", () =>
    step(
      start.def.rebuild(carries.map((n) => new Tensor(n))) as C,
      inputs.def.rebuild(slices.map((n) => new Tensor(n))) as X,
    ),
  );
  refusePromise("scan", result);
  if (!Array.isArray(result) || result.length !== 2) throw new WeftError("scan: the step must return [carry, y]");
  const next = flattenTree(result[0]);
  const ys = flattenTree(result[1]);
  if (next.leaves.length !== carries.length)
    throw new WeftError(
      `scan: the carry has ${carries.length} tensors at the start and ${next.leaves.length} after a step`,
    );
  const nextNodes = next.leaves.map((leaf, i) => {
    if (showShape(leaf.shape) !== showShape(carries[i].shape) || leaf.dtype !== carries[i].dtype)
      throw new ShapeError(
        `scan: carry ${i} is ${carries[i].dtype} ${showShape(carries[i].shape)} at the start and ` +
          `${leaf.dtype} ${showShape(leaf.shape)} after a step; they must agree`,
      );
    return leaf.node;
  });
  const outputs = [...nextNodes, ...ys.leaves.map((y) => y.node), ...frame.effects.map((e) => e.node)];
  const { fn, captured } = closeOver(outputs, [...carries, ...slices]);
  const loop = makeScan(
    fn,
    { consts: captured, carries: start.leaves.map((c) => c.node), xs: inputs.leaves.map((x) => x.node) },
    length,
    options.reverse ?? false,
  );
  const results = build.picks(loop).map((node) => wrap(node));
  const n = carries.length;
  frame.effects.forEach((effect, i) => {
    addEffect(`${effect.label} (all ${length} steps)`, results[n + ys.leaves.length + i].node);
  });
  return [start.def.rebuild(results.slice(0, n)) as C, ys.def.rebuild(results.slice(n, n + ys.leaves.length)) as Y];
}

let nextRule = 100;

type Backward = CustomRule["backward"];

/** Traces a function of trees into one node; `makeBackward` says how its gradient is found. */
function customNode(
  op: string,
  name: string,
  id: number,
  fn: AnyFunction,
  args: unknown[],
  makeBackward: (body: GraphFn, captured: number, def: TreeDef, outDef: TreeDef) => Backward,
): unknown {
  const { leaves, def } = flattenTree(args);
  const params = leaves.map((leaf) => build.input(leaf.shape, leaf.dtype, "x"));
  const result = tracing(() => fn(...(def.rebuild(params.map((p) => new Tensor(p))) as unknown[])));
  const out = outputsOf(op, result);
  const { fn: body, captured } = closeOver(
    out.leaves.map((l) => l.node),
    params,
  );
  const rule = { name, id, backward: makeBackward(body, captured.length, def, out.def) };
  const node = build.make("custom", [...captured, ...leaves.map((l) => l.node)], { body, rule });
  return out.def.rebuild(build.picks(node).map((n) => wrap(n)));
}

/**
 * A function with a gradient of your own. `backward` gets the arguments, the result and its cotangent (trees like the
 * function's) and returns one cotangent an argument.
 */
export function customVjp<A extends unknown[], V>(
  fn: (...args: A) => V,
  backwardFn: (args: A, result: V, cotangent: V) => { [K in keyof A]: A[K] | null },
): (...args: A) => V {
  const id = nextRule++;
  const tensors = (nodes: readonly Node[]): Tensor[] => nodes.map((n) => new Tensor(n));
  return (...args) =>
    customNode(
      "customVjp",
      fn.name || "customVjp",
      id,
      fn,
      args,
      (_body, captured, def, outDef) => (inputs, outputs, cotangents) => {
        const grads = backwardFn(
          def.rebuild(tensors(inputs.slice(captured))) as A,
          outDef.rebuild(tensors(outputs)) as V,
          outDef.rebuild(tensors(cotangents)) as V,
        );
        // An argument's gradient may be null as a whole: then each of its tensors has none.
        const own = args.flatMap((arg, i) => {
          const g = grads[i];
          const count = flattenTree(arg).leaves.length;
          return g === null ? new Array<null>(count).fill(null) : flattenTree(g).leaves.map((l) => l.node);
        });
        return [...new Array<null>(captured).fill(null), ...own];
      },
    ) as V;
}

let nextBarrier = 0;

/** The same function, whose intermediate results are computed again in the reverse pass instead of being kept. */
export function checkpoint<F extends AnyFunction>(fn: F): F {
  return ((...args: unknown[]) =>
    customNode(
      "checkpoint",
      `checkpoint ${fn.name}`,
      nextRule++,
      fn,
      args,
      (body) => (inputs, _outputs, cotangents) => {
        // The barrier keeps the recomputation from being merged with the first computation.
        const tag = nextBarrier++;
        const again = inputs.map((x) => build.make("barrier", [x], { tag }));
        return backward(instantiate(body, again), cotangents, again);
      },
    )) as F;
}
