// vmap and scan over trees of tensors. Both trace the function once, with placeholders for one slice.
import { checkOptions, type Node, ShapeError, showValue, WeftError } from "../graph/index.js";
import { build } from "../ops/index.js";
import { batchNodes, closeOver, makeScan } from "../transform/index.js";
import { checkArguments, resolveAxis, wrap } from "./convert.js";
import { emitEffect } from "./effects.js";
import { nextKey, splitKey } from "./random.js";
import { predicateOf, sameLeaves } from "./step.js";
import { Tensor } from "./tensor.js";
import { type AnyFunction, inFrame, outputsOf, refusePromise } from "./trace.js";
import { flattenTree, treeMap } from "./tree.js";

/** Options of {@link vmap}. @inline */
interface VmapOptions {
  /**
   * The axis to map over: one number for all arguments, or a list with one entry per argument. An entry is a number, null (not
   * mapped), or for an argument that is a tree, a tree of these.
   */
  inAxes?: number | readonly AxisTree[];
  /** Position of the mapped axis in the results: a number, null (a result that is the same for all slices), or a tree of these. */
  outAxes?: AxisTree;
}

/** An axis, null for none, or a tree of them whose structure is that of a tree of tensors down to some depth, as in JAX. */
type AxisTree = number | null | readonly AxisTree[] | { readonly [name: string]: AxisTree };

/** Applies a function to every tensor of a tree with its axis. */
function mapAxes(
  option: string,
  tree: unknown,
  axes: AxisTree,
  fn: (leaf: Tensor, axis: number | null) => Tensor,
): unknown {
  if (axes === null || typeof axes === "number") {
    if (axes !== null && !Number.isInteger(axes))
      throw new WeftError(`vmap: ${option} holds ${axes}, which is not an axis`);
    return treeMap((leaf) => fn(leaf, axes), tree);
  }
  const isList = Array.isArray(axes);
  const isTree = typeof tree === "object" && tree !== null && !(tree instanceof Tensor);
  const [wanted, present] = [Object.keys(axes), isTree ? Object.keys(tree) : []];
  if (
    typeof axes !== "object" ||
    !isTree ||
    isList !== Array.isArray(tree) ||
    wanted.length !== present.length ||
    !present.every((name) => Object.hasOwn(axes, name))
  )
    throw new WeftError(
      `vmap: ${option} is a number, null or a tree of them with the structure of the arguments or results, got ${showValue(axes)}`,
    );
  const at = (name: string): unknown =>
    mapAxes(option, (tree as Record<string, unknown>)[name], (axes as Record<string, AxisTree>)[name], fn);
  return isList ? present.map(at) : Object.fromEntries(present.map((name) => [name, at(name)]));
}

/**
 * Vectorizes a function: applies it to every slice along an axis, as one batched program.
 *
 * @example
 * ```ts
 * import { type Tensor, tensor, vmap } from "@weft/core";
 *
 * const dot = (a: Tensor, b: Tensor): Tensor => a.mul(b).sum();
 * const rows = tensor([[1, 2], [3, 4]]);
 * console.log(await vmap(dot)(rows, rows).array()); // [5, 25]
 * console.log(await vmap(dot, { inAxes: [0, null] })(rows, tensor([1, 1])).array()); // [3, 7]
 * ```
 */
export function vmap<F extends AnyFunction>(
  fn: F,
  options: VmapOptions = {},
): (...args: Parameters<F>) => ReturnType<F> {
  checkArguments("vmap", "function", { fn });
  checkOptions("vmap", options, ["inAxes", "outAxes"]);
  const { inAxes = 0, outAxes = 0 } = options;
  return (...args) => {
    let size: number | null = null;
    const sources = new Map<Node, Node>();
    const traced = args.map((arg, i) => {
      const axes = typeof inAxes === "number" ? inAxes : inAxes[i];
      if (axes === undefined)
        throw new WeftError(`vmap: inAxes has ${(inAxes as unknown[]).length} entries for ${args.length} arguments`);
      return mapAxes("inAxes", arg, axes, (leaf, axis) => {
        if (axis === null) return leaf;
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
      });
    });
    if (size === null)
      throw new WeftError("vmap: no argument is mapped over; give at least one inAxes that is not null");
    const count = size as number;
    const { result, frame } = inFrame("map", () => fn(...traced));
    const { leaves, def } = outputsOf("vmap", result);
    // Every slice has its own key, so that random numbers differ between slices.
    if (frame.key !== null) sources.set(frame.key, splitKey(nextKey(), count).node);
    const nodes = [...leaves.map((l) => l.node), ...frame.effects.map((e) => e.node)];
    const batched = batchNodes(nodes, sources, count);
    batched.slice(leaves.length).forEach(({ node }, i) => {
      emitEffect(frame.effects[i].label, node);
    });
    const isPerSlice = new Map<Tensor, boolean>();
    const outputs = batched.slice(0, leaves.length).map(({ node, batched: isBatched }) => {
      const output = wrap(node);
      isPerSlice.set(output, isBatched);
      return output;
    });
    return mapAxes("outAxes", def.rebuild(outputs), outAxes, (output, axis) => {
      const { node } = output;
      const isBatched = isPerSlice.get(output)!;
      if (axis === null) {
        if (isBatched) throw new WeftError("vmap: a result differs between slices, and its outAxes is null");
        return output;
      }
      const full = isBatched ? node : build.expand(build.reshape(node, [1, ...node.shape]), [count, ...node.shape]);
      return wrap(build.moveAxis(full, 0, resolveAxis("vmap outAxes", axis, full.shape.length)));
    }) as ReturnType<F>;
  };
}

/** Options of {@link scan}. @inline */
interface ScanOptions<C = unknown> {
  /** Number of steps; required if xs holds no tensor. */
  length?: number;
  /** Run from the last element to the first. */
  reverse?: boolean;
  /** Runs steps only while this is true for the carry; the ys of the other steps are zero. */
  while?: (carry: C) => Tensor | boolean;
}

/**
 * A loop as one program: applies (carry, x) -> [carry, y] along the leading axis of xs, and returns the final carry and the
 * stacked ys. Differentiable; the reverse pass stores the carries and rematerializes the rest. With `while`, the loop ends when
 * a condition of the carry is no longer true.
 *
 * @example
 * ```ts
 * import { arange, scan, type Tensor, zeros } from "@weft/core";
 *
 * const step = (total: Tensor, x: Tensor): [Tensor, Tensor] => {
 *   const next = total.add(x);
 *   return [next, next.square()];
 * };
 * const [total, squares] = scan(step, zeros([]), arange(4));
 * console.log(await total.item(), await squares.array()); // 6 [0, 1, 9, 36]
 * ```
 */
export function scan<C, X, Y>(step: (carry: C, x: X) => [C, Y], init: C, xs: X, options: ScanOptions<C> = {}): [C, Y] {
  checkArguments("scan", "function", { step });
  checkOptions("scan", options, ["length", "reverse", "while"]);
  const start = flattenTree(init);
  const inputs = flattenTree(xs);
  if (inputs.leaves.some((x) => x.shape.length === 0))
    throw new ShapeError("scan: xs holds a scalar, which has no leading axis to step along; capture it instead");
  if (options.length !== undefined && (!Number.isInteger(options.length) || options.length < 0))
    throw new ShapeError(`scan: options.length must be a whole number >= 0, got ${options.length}`);
  const lengths = new Set(inputs.leaves.map((x) => x.shape[0]));
  if (options.length !== undefined) lengths.add(options.length);
  if (lengths.size !== 1)
    throw new ShapeError(
      lengths.size === 0
        ? "scan: give xs, or options.length"
        : `scan: the leading axes of xs${options.length === undefined ? "" : " and options.length"} differ: ${[...lengths].join(", ")}`,
    );
  const [length] = lengths;
  const carries = start.leaves.map((c) => build.input(c.shape, c.dtype, "carry"));
  const slices = inputs.leaves.map((x) => build.input(x.shape.slice(1), x.dtype, "x"));
  let predicate: Node | null = null;
  const { result, frame } = inFrame("loop", () => {
    const stepped = step(
      start.def.rebuild(carries.map((n) => new Tensor(n))) as C,
      inputs.def.rebuild(slices.map((n) => new Tensor(n))) as X,
    );
    if (options.while !== undefined && Array.isArray(stepped))
      predicate = predicateOf("scan", options.while(stepped[0]));
    return stepped;
  });
  refusePromise("scan", result);
  if (!Array.isArray(result) || result.length !== 2) throw new WeftError("scan: the step must return [carry, y]");
  const nextNodes = sameLeaves("scan", result[0], start.def, carries);
  const ys = flattenTree(result[1]);
  const outputs = [...nextNodes, ...ys.leaves.map((y) => y.node), ...frame.effects.map((e) => e.node)];
  const xNodes = inputs.leaves.map((x) => x.node);
  // Every step has its own key, so that random numbers differ between steps.
  if (frame.key !== null) {
    slices.push(frame.key);
    xNodes.push(splitKey(nextKey(), length).node);
  }
  const initial = start.leaves.map((c) => c.node);
  // A loop with a predicate runs forward, so its reverse is a loop over reversed rows.
  const rows = (node: Node): Node => (predicate !== null && options.reverse ? build.flip(node, [0]) : node);
  if (predicate !== null) {
    const [runs, steps] = [build.input([], "bool", "predicate"), build.input([], "int32", "steps")];
    carries.unshift(runs, steps);
    outputs.unshift(predicate, build.shift(steps, 1));
    initial.unshift(predicateOf("scan", options.while!(init)), build.constant(0, "int32"));
  }
  const { fn, captured } = closeOver(outputs, [...carries, ...slices]);
  const loop = makeScan(
    fn,
    { consts: captured, carries: initial, xs: xNodes.map(rows) },
    predicate === null ? { length, reverse: options.reverse ?? false } : { length, reverse: false, stop: "while" },
  );
  const own = build.picks(loop).map((node, i) => (i < carries.length ? node : rows(node)));
  const results = own.slice(carries.length - start.leaves.length).map((node) => wrap(node));
  const n = start.leaves.length;
  frame.effects.forEach((effect, i) => {
    emitEffect(`${effect.label} (all ${length} steps)`.trimStart(), results[n + ys.leaves.length + i].node);
  });
  return [start.def.rebuild(results.slice(0, n)) as C, ys.def.rebuild(results.slice(n, n + ys.leaves.length)) as Y];
}
