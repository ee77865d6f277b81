// customVjp and checkpoint: functions with custom gradients.
import {
  type CustomRule,
  type GraphFn,
  isInexact,
  type Node,
  ShapeError,
  showShape,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { forGradient } from "../runtime/index.js";
import { backward, closeOver, instantiate, residualName } from "../transform/index.js";
import { checkArguments, nodeOf, type TensorLike, wrap } from "./convert.js";
import { emitEffect } from "./effects.js";
import { Tensor } from "./tensor.js";
import { type AnyFunction, inFrame, outputsOf } from "./trace.js";
import { flattenTree, type TreeDef } from "./tree.js";

/** A function traced into a closed body. */
interface Traced {
  body: GraphFn;
  /** Number of captured inputs, which come before the arguments. */
  captured: number;
  args: TreeDef;
  out: TreeDef;
  /** Number of results of the function; values of debug.print come after them. */
  results: number;
}

/** Traces a function of trees into one node; `makeBackward` builds its gradient rule. */
function customNode(
  op: string,
  name: string,
  fn: AnyFunction,
  args: unknown[],
  makeBackward: (traced: Traced) => CustomRule["backward"],
): unknown {
  const { leaves, def } = flattenTree(args);
  const params = leaves.map((leaf) => build.input(leaf.shape, leaf.dtype, "x"));
  const { result, frame } = inFrame("custom", () =>
    fn(...(def.rebuild(params.map((p) => new Tensor(p))) as unknown[])),
  );
  const out = outputsOf(op, result);
  const results = [...out.leaves, ...frame.effects].map((l) => l.node);
  const { fn: body, captured } = closeOver(forGradient(results, params), params);
  const traced = { body, captured: captured.length, args: def, out: out.def, results: out.leaves.length };
  const rule = { name, backward: makeBackward(traced) };
  const node = build.make("custom", [...captured, ...leaves.map((l) => l.node)], { body, rule });
  const picks = build.picks(node);
  frame.effects.forEach(({ label }, i) => {
    emitEffect(label, picks[traced.results + i]);
  });
  return out.def.rebuild(picks.slice(0, traced.results).map((n) => wrap(n)));
}

const tensors = (nodes: readonly Node[]): Tensor[] => nodes.map((n) => new Tensor(n));

/** Validates the results of the user's backward function: one node (or null) per input. */
function checkedGradients(
  name: string,
  grads: unknown,
  args: readonly unknown[],
  inputs: readonly Node[],
): (Node | null)[] {
  if (!Array.isArray(grads) || grads.length !== args.length)
    throw new WeftError(
      `${name}: the backward function returns an array with one cotangent (or null) an argument: ${args.length}, ` +
        `got ${Array.isArray(grads) ? grads.length : typeof grads}`,
    );
  let next = 0;
  return args.flatMap((arg, i) => {
    const mine = inputs.slice(next, (next += flattenTree(arg).leaves.length));
    // null for an argument means null for each of its tensors.
    if (grads[i] === null) return mine.map(() => null);
    const own = flattenTree(grads[i]).leaves;
    if (own.length !== mine.length)
      throw new WeftError(`${name}: argument ${i} has ${mine.length} tensors, its cotangent ${own.length}`);
    return own.map((g, k) => {
      if (showShape(g.shape) !== showShape(mine[k].shape))
        throw new ShapeError(
          `${name}: the cotangent of argument ${i} has shape ${showShape(g.shape)}, the argument ${showShape(mine[k].shape)}`,
        );
      return isInexact(mine[k].dtype) ? build.cast(g.node, mine[k].dtype) : null;
    });
  });
}

/**
 * Returns `fn` with a user-defined gradient. `backward` gets the arguments, the result and the cotangent of the result (trees
 * like those of the function), and returns one cotangent per argument. Tensors that the function captures are constants.
 */
export function customVjp<A extends unknown[], V>(
  fn: (...args: A) => V,
  backwardFn: (args: A, result: V, cotangent: V) => { [K in keyof A]: A[K] | null },
): (...args: A) => V {
  checkArguments("customVjp", "function", { fn, backwardFn });
  const name = fn.name || "customVjp";
  return (...args) =>
    customNode(
      "customVjp",
      name,
      fn,
      args,
      ({ captured, args: def, out, results }) =>
        (inputs, outputs, cotangents) => {
          const own = inputs.slice(captured);
          const grads = backwardFn(
            def.rebuild(tensors(own)) as A,
            out.rebuild(tensors(outputs.slice(0, results))) as V,
            out.rebuild(tensors(cotangents.slice(0, results))) as V,
          );
          return [...new Array<null>(captured).fill(null), ...checkedGradients(name, grads, args, own)];
        },
    ) as V;
}

/**
 * Returns `fn` with a user-defined derivative in forward mode: `tangentFn` gets the arguments and their tangents and returns the
 * tangent of the result, linear in the tangents. Reverse mode transposes it.
 *
 * @example
 * ```ts
 * import { customJvp, grad, type Tensor, tensor } from "@weft/core";
 *
 * const clamped = customJvp((x: Tensor) => x.clip(0, 1), ([_x], [dx]) => dx);
 * console.log(await grad((x: Tensor) => clamped(x).sum())(tensor([-1, 0.5])).array()); // [1, 1]
 * ```
 */
export function customJvp<A extends unknown[], V>(
  fn: (...args: A) => V,
  tangentFn: (args: A, tangents: A) => V,
): (...args: A) => V {
  checkArguments("customJvp", "function", { fn, tangentFn });
  const name = fn.name || "customJvp";
  return (...args) =>
    customNode(
      "customJvp",
      name,
      fn,
      args,
      ({ captured, args: def, out, results }) =>
        (inputs, _outputs, cotangents) => {
          const own = inputs.slice(captured);
          // The tangent is linear: its gradient with respect to the tangents, anywhere, is the transposed Jacobian.
          const tangents = own.map((x) => build.make("alias", [build.zerosLike(x)], { name: "" }));
          const result = tangentFn(def.rebuild(tensors(own)) as A, def.rebuild(tensors(tangents)) as A);
          const made = flattenTree(result);
          if (made.leaves.length !== results)
            throw new WeftError(`${name}: the tangent has ${made.leaves.length} tensors, the result ${results}`);
          const expected = flattenTree(out.rebuild(tensors(cotangents.slice(0, results)))).leaves;
          const outputs = made.leaves.map((t, i) => {
            if (showShape(t.shape) !== showShape(expected[i].shape))
              throw new ShapeError(
                `${name}: a tangent has shape ${showShape(t.shape)}, the result ${showShape(expected[i].shape)}`,
              );
            return build.cast(t.node, expected[i].dtype);
          });
          const grads = backward(outputs, cotangents.slice(0, results), tangents);
          return [
            ...new Array<null>(captured).fill(null),
            ...grads.map((g, i) => (isInexact(own[i].dtype) ? g : null)),
          ];
        },
    ) as V;
}

let nextBarrier = 0;

/**
 * Returns `fn` with gradient checkpointing: the reverse pass rematerializes its intermediate results instead of storing them.
 */
export function checkpoint<F extends AnyFunction>(fn: F): F {
  checkArguments("checkpoint", "function", { fn });
  return ((...args: unknown[]) =>
    customNode("checkpoint", `checkpoint ${fn.name}`, fn, args, ({ body }) => (inputs, _outputs, cotangents) => {
      // The barrier prevents merging of the rematerialization with the first computation.
      const tag = nextBarrier++;
      const again = inputs.map((x) => build.make("barrier", [x], { tag }));
      return backward(instantiate(body, again), cotangents, again);
    })) as F;
}

/**
 * Marks a value inside the step of a `scan`: the reverse pass stores it for every step instead of rematerializing it from the
 * carries. For values that are large and take long to compute; elsewhere it is the identity.
 */
export const residual = (x: TensorLike): Tensor =>
  wrap(build.make("alias", [nodeOf("residual", x)], { name: residualName }));
