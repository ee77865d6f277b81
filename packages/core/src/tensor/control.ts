// Loops and branches whose course depends on values of tensors: whileLoop, foriLoop, cond, switchCase. All of them are the op scan:
// a loop with a predicate, and a branch as a loop of at most one step.
import {
  checkOptions,
  type Node,
  ShapeError,
  sameShape,
  showShape,
  unboundedLength,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { closeOver, closeOverNew, makeScan } from "../transform/index.js";
import { checkArguments, nodeAs, wrap } from "./convert.js";
import { arange } from "./create.js";
import { scan } from "./mapping.js";
import { nextKey } from "./random.js";
import { predicateOf, sameLeaves } from "./step.js";
import { Tensor } from "./tensor.js";
import { type AnyFunction, type Frame, inFrame, nextStepKey, outputsOf } from "./trace.js";
import { flattenTree } from "./tree.js";

/** Options of {@link whileLoop} and {@link foriLoop}. @inline */
interface LoopOptions {
  /** Upper bound on the number of steps. The reverse pass needs it, because it stores the carries of every step. */
  maxTrips?: number;
}

function boundOf(who: string, maxTrips: number | undefined): number {
  if (maxTrips === undefined) return unboundedLength;
  if (!Number.isInteger(maxTrips) || maxTrips < 0 || maxTrips >= unboundedLength)
    throw new WeftError(`${who}: maxTrips must be a whole number from 0 to ${unboundedLength - 1}, got ${maxTrips}`);
  return maxTrips;
}

function refuseEffects(who: string, frame: Frame): void {
  if (frame.effects.length > 0)
    throw new WeftError(
      `${who}: debug.print inside is not supported, because the number of steps is not known; use scan`,
    );
}

/**
 * Repeats `body` while `condition` of the carry is true, inside one program. The carry keeps its structure, shapes and dtypes.
 * Forward mode and `vmap` always work. The reverse pass needs `maxTrips`, because it stores the carry of every step.
 *
 * @param options - `maxTrips`: the loop ends after this many steps even if the condition still holds.
 * @example
 * ```ts
 * import { type Tensor, tensor, whileLoop } from "@weft/core";
 *
 * // Newton's method for the square root of 2.
 * const isFar = (x: Tensor): Tensor => x.square().sub(2).abs().greater(1e-5);
 * const step = (x: Tensor): Tensor => x.add(tensor(2).div(x)).div(2);
 * console.log((await whileLoop(isFar, step, tensor(1)).item()).toFixed(3)); // 1.414
 * ```
 */
export function whileLoop<C>(
  condition: (carry: C) => Tensor | boolean,
  body: (carry: C) => C,
  init: C,
  options: LoopOptions = {},
): C {
  checkArguments("whileLoop", "function", { condition, body });
  checkOptions("whileLoop", options, ["maxTrips"]);
  const length = boundOf("whileLoop", options.maxTrips);
  const { leaves, def } = flattenTree(init);
  const start = predicateOf("whileLoop", condition(init));
  const carries = leaves.map((c) => build.input(c.shape, c.dtype, "carry"));
  const { result, frame } = inFrame("loop", () => {
    const after = body(def.rebuild(carries.map((n) => new Tensor(n))) as C);
    const nodes = sameLeaves("whileLoop", after, def, carries);
    return [predicateOf("whileLoop", condition(after)), ...nodes];
  });
  refuseEffects("whileLoop", frame);
  const [predicate, ...next] = result;
  const params = [build.input([], "bool", "predicate"), build.input([], "int32", "steps"), ...carries];
  const outputs = [predicate, build.shift(params[1], 1), ...next];
  const initial = [start, build.constant(0, "int32"), ...leaves.map((c) => c.node)];
  // The random key of the next step is drawn from that of this one.
  if (frame.key !== null) {
    outputs.push(nextStepKey(frame));
    params.push(frame.key);
    initial.push(nextKey().node);
  }
  const { fn, captured } = closeOver(outputs, params);
  const loop = makeScan(fn, { consts: captured, carries: initial, xs: [] }, { length, reverse: false, stop: "while" });
  return def.rebuild(leaves.map((_, i) => wrap(build.pick(loop, 2 + i)))) as C;
}

/**
 * Applies `body(i, carry)` for i from `lower` to `upper - 1`, inside one program. Bounds that are numbers give an ordinary
 * {@link scan}. Bounds that are tensors are read when the program runs; the reverse pass then needs `maxTrips`.
 *
 * @param lower - First index, a number or an int32 tensor.
 * @param upper - End of the range, which is not reached.
 * @example
 * ```ts
 * import { foriLoop, tensor } from "@weft/core";
 *
 * const n = tensor(5, { dtype: "int32" });
 * console.log(await foriLoop(1, n.add(1), (i, product) => product.mul(i), tensor(1)).item()); // 120
 * ```
 */
export function foriLoop<C>(
  lower: Tensor | number,
  upper: Tensor | number,
  body: (index: Tensor, carry: C) => C,
  init: C,
  options: LoopOptions = {},
): C {
  checkArguments("foriLoop", "function", { body });
  boundOf("foriLoop", checkOptions("foriLoop", options, ["maxTrips"]).maxTrips);
  if (typeof lower === "number" && typeof upper === "number") {
    if (!Number.isInteger(lower) || !Number.isInteger(upper))
      throw new WeftError(`foriLoop: the bounds must be whole numbers, got ${lower} and ${upper}`);
    if (upper <= lower) return init;
    const indices = arange(lower, upper, 1, { dtype: "int32" });
    return scan((carry: C, i: Tensor): [C, []] => [body(i, carry), []], init, indices)[0];
  }
  const bound = (name: string, value: Tensor | number): Tensor => {
    if (value instanceof Tensor && (value.dtype !== "int32" || value.shape.length !== 0))
      throw new ShapeError(`foriLoop: ${name} must be one int32, got ${value.dtype} ${showShape(value.shape)}`);
    return wrap(nodeAs("foriLoop", value, "int32"));
  };
  const [from, to] = [bound("lower", lower), bound("upper", upper)];
  const step = ([i, carry]: [Tensor, C]): [Tensor, C] => [i.add(1), body(i, carry)];
  return whileLoop(([i]) => i.less(to), step, [from, init] as [Tensor, C], options)[1];
}

/**
 * Runs one of two functions, chosen by a value of the program; the other one is not executed. Both return the same structure,
 * shapes and dtypes. Under `vmap` with a predicate that differs between slices both run, and each slice selects.
 *
 * @param predicate - One bool. A JavaScript boolean calls its function directly.
 * @param operands - Arguments of the function. Tensors of the surrounding program may also be used directly.
 * @example
 * ```ts
 * import { cond, tensor } from "@weft/core";
 *
 * const x = tensor(-3);
 * console.log(await cond(x.less(0), (v) => v.neg(), (v) => v.sqrt(), x).item()); // 3
 * ```
 */
export function cond<A extends unknown[], R>(
  predicate: Tensor | boolean,
  whenTrue: (...operands: A) => R,
  whenFalse: (...operands: A) => R,
  ...operands: A
): R {
  checkArguments("cond", "function", { whenTrue, whenFalse });
  if (typeof predicate === "boolean") return predicate ? whenTrue(...operands) : whenFalse(...operands);
  const chosen = build.cast(predicateOf("cond", predicate), "int32");
  return branches("cond", chosen, [whenFalse, whenTrue], operands) as R;
}

/**
 * Runs one of several functions, chosen by an index; the others are not executed. An index outside the list is clamped.
 *
 * @param index - One int32, or a number.
 * @example
 * ```ts
 * import { switchCase, type Tensor, tensor } from "@weft/core";
 *
 * const cases = [(x: Tensor) => x.add(1), (x: Tensor) => x.mul(10), (x: Tensor) => x.square()];
 * console.log(await switchCase(tensor(2, { dtype: "int32" }), cases, tensor(7)).item()); // 49
 * ```
 */
export function switchCase<A extends unknown[], R>(
  index: Tensor | number,
  cases: readonly ((...operands: A) => R)[],
  ...operands: A
): R {
  checkArguments("switchCase", "array", { cases });
  checkArguments("switchCase", "function", { ...cases });
  if (cases.length === 0) throw new WeftError("switchCase: the list of functions is empty");
  if (typeof index === "number" && !Number.isInteger(index))
    throw new WeftError(`switchCase: the index must be a whole number, got ${index}`);
  if (typeof index === "number") return cases[Math.min(Math.max(index, 0), cases.length - 1)](...operands);
  if (index.dtype !== "int32" || index.shape.length !== 0)
    throw new ShapeError(`switchCase: the index must be one int32, got ${index.dtype} ${showShape(index.shape)}`);
  const last = build.constant(cases.length - 1, "int32");
  const chosen = build.binary("min", build.binary("max", index.node, build.constant(0, "int32")), last);
  return branches("switchCase", chosen, cases, operands) as R;
}

/** One loop of at most one step per function; each passes on what an earlier one computed. */
function branches(who: string, chosen: Node, cases: readonly AnyFunction[], operands: readonly unknown[]): unknown {
  let results: Node[] = [];
  let first: ReturnType<typeof outputsOf> | null = null;
  cases.forEach((branch, i) => {
    const mark = build.constant(0, "int32").id;
    const { result, frame } = inFrame("loop", () => branch(...operands));
    refuseEffects(who, frame);
    const { leaves, def } = outputsOf(who, result);
    if (first === null) {
      first = { leaves, def };
      results = leaves.map((leaf) => build.zerosLike(leaf));
    }
    checkBranch(who, i, { leaves, def }, first);
    const carries = leaves.map((leaf) => build.input(leaf.shape, leaf.dtype, "result"));
    const count = build.input([], "int32", "count");
    const keys = frame.key === null ? [] : [frame.key];
    const { fn, captured } = closeOverNew(
      leaves.map((leaf) => leaf.node),
      mark,
      keys,
    );
    const isChosen = build.cast(build.eq(chosen, build.constant(i, "int32")), "int32");
    const loop = makeScan(
      { params: [count, ...fn.params, ...carries], outputs: fn.outputs },
      { consts: [isChosen, ...captured, ...keys.map(() => nextKey().node)], carries: results, xs: [] },
      { length: 1, reverse: false, stop: "count" },
    );
    results = leaves.map((_, k) => build.pick(loop, k));
  });
  return first!.def.rebuild(results.map((node) => wrap(node)));
}

type Traced = ReturnType<typeof outputsOf>;

function checkBranch(who: string, i: number, { leaves, def }: Traced, first: Traced): void {
  const name = (k: number): string => (who === "cond" ? ["whenFalse", "whenTrue"][k] : `function ${k}`);
  if (def.key !== first.def.key)
    throw new WeftError(`${who}: ${name(i)} returns another structure than ${name(0)}; all must return the same`);
  leaves.forEach((leaf, k) => {
    const other = first.leaves[k];
    if (leaf.dtype !== other.dtype || !sameShape(leaf.shape, other.shape))
      throw new ShapeError(
        `${who}: result ${k} is ${leaf.dtype} ${showShape(leaf.shape)} from ${name(i)} and ` +
          `${other.dtype} ${showShape(other.shape)} from ${name(0)}; they must agree`,
      );
  });
}
