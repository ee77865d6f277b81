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
import { backward, closeOver, instantiate } from "../transform/index.js";
import { wrap } from "./convert.js";
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

let nextBarrier = 0;

/**
 * Returns `fn` with gradient checkpointing: the reverse pass rematerializes its intermediate results instead of storing them.
 */
export function checkpoint<F extends AnyFunction>(fn: F): F {
  return ((...args: unknown[]) =>
    customNode("checkpoint", `checkpoint ${fn.name}`, fn, args, ({ body }) => (inputs, _outputs, cotangents) => {
      // The barrier prevents merging of the rematerialization with the first computation.
      const tag = nextBarrier++;
      const again = inputs.map((x) => build.make("barrier", [x], { tag }));
      return backward(instantiate(body, again), cotangents, again);
    })) as F;
}
