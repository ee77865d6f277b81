// Loops under the transforms. The reverse pass of a scan is a scan in the opposite direction. The forward scan stores its carries
// and marked residuals, and the reverse scan rematerializes the rest of each step from them.
import {
  amend,
  type GraphFn,
  isInexact,
  isOp,
  type Node,
  numel,
  type OpAttrs,
  sameShape,
  topological,
  unboundedLength,
  WeftError,
} from "../graph/index.js";
import { build, make, shapeRules } from "../ops/index.js";
import {
  hasLargeProduct,
  stackedAt,
  stackedProduct,
  stackedSum,
  stepProduct,
  stepSum,
  storedProducts,
} from "./scan-stacks.js";
import { dependents, instantiate, uniformValue } from "./walk.js";

const { add, input, pick, zerosLike } = build;

type Backward = (
  outputs: readonly Node[],
  cotangents: readonly (Node | null)[],
  wrt: readonly Node[],
) => (Node | null)[];

type Forward = (outputs: readonly Node[], wrt: readonly Node[], tangents: readonly Node[]) => (Node | null)[];

export interface ScanParts<T> {
  consts: T[];
  carries: T[];
  xs: T[];
}

/** Splits a scan's inputs (or its body's parameters) into consts, carries and xs. */
export function splitScan<T>(node: Node<"scan">, items: readonly T[]): ScanParts<T> {
  const { consts, carries } = node.attrs;
  return {
    consts: items.slice(0, consts),
    carries: items.slice(consts, consts + carries),
    xs: items.slice(consts + carries),
  };
}

export const joinScan = <T>({ consts, carries, xs }: ScanParts<T>): T[] => [...consts, ...carries, ...xs];

/** Length, direction and end of a loop. */
type LoopRange = Pick<OpAttrs["scan"], "length" | "reverse" | "stop">;

/** Builds a scan over the given body. */
export function makeScan(body: GraphFn, parts: ScanParts<Node>, { length, reverse, stop }: LoopRange): Node<"scan"> {
  const attrs = { body, consts: parts.consts.length, carries: parts.carries.length, length, reverse };
  return make("scan", joinScan(parts), stop === undefined ? attrs : { ...attrs, stop });
}

/** The carry that counts the steps of a loop with a predicate, which whileLoop adds; -1 if there is none. */
export function stepCounter(node: Node<"scan">): number {
  const { body, consts, carries } = node.attrs;
  const [predicate] = splitScan(node, body.params).carries;
  for (let c = 1; c < carries; c++) {
    const param = body.params[consts + c];
    if (param.dtype !== "int32" || !sameShape(param.shape, predicate.shape)) continue;
    if (uniformValue(node.inputs[consts + c]) !== 0) continue;
    let next = body.outputs[c];
    if (isOp(next, "where") && next.inputs[0] === predicate && next.inputs[2] === param) next = next.inputs[1];
    if (!isOp(next, "binary") || next.attrs.fn !== "add") continue;
    const [a, b] = next.inputs;
    if ((a === param && uniformValue(b) === 1) || (b === param && uniformValue(a) === 1)) return c;
  }
  return -1;
}

/** The number of steps that a loop with `stop` runs, one element per element of its predicate or count. */
function stepsRun(node: Node<"scan">, history: readonly Node[]): Node {
  if (node.attrs.stop === "count") return node.inputs[0];
  const counter = stepCounter(node);
  return counter >= 0 ? pick(node, counter) : build.sum(build.cast(history[0], "int32"), [0]);
}

/** Name of the marks of values that the reverse pass of a loop stores. */
export const residualName = "residual";

/** Values of each step that the reverse pass reads: their nodes in the body, and their stacks. */
interface History {
  carries: Node[];
  residuals: { inBody: Node; stacked: Node }[];
}

const histories = new WeakMap<Node, { start: number; residuals: { inBody: Node; at: number }[] }>();

/**
 * The stacked carries at the start of each step, and the marked values of each step; without marks, products that a step of the
 * reverse pass with these results would compute again. They are added to the outputs of the scan node itself, so that value and
 * gradient share one loop; unused outputs are pruned before compilation.
 */
function historyOf(node: Node<"scan">, results: readonly Node[]): History {
  const { body, stop } = node.attrs;
  const carries = splitScan(node, body.params).carries;
  let known = histories.get(node);
  if (known === undefined) {
    const marked = topological(body.outputs).filter((n) => isOp(n, "alias") && n.attrs.name === residualName);
    const stored = marked.length > 0 || stop !== undefined ? marked : storedProducts(node, results);
    const start = body.outputs.length;
    const fresh = stored.filter((value) => stackedAt(node, value) === null);
    const residuals = stored.map((inBody) => {
      const at = stackedAt(node, inBody);
      return { inBody, at: at ?? start + carries.length + fresh.indexOf(inBody) };
    });
    known = { start, residuals };
    histories.set(node, known);
    const outputs = [...body.outputs, ...carries, ...fresh];
    const attrs = { ...node.attrs, body: { params: body.params, outputs } };
    amend(node, attrs, shapeRules.scan(node.inputs, attrs) as NonNullable<Node["outputs"]>);
  }
  const { start, residuals } = known;
  return {
    carries: carries.map((_, i) => pick(node, start + i)),
    residuals: residuals.map(({ inBody, at }) => ({ inBody, stacked: pick(node, at) })),
  };
}

export function scanVjp(
  node: Node<"scan">,
  g: readonly (Node | null)[],
  needs: readonly boolean[],
  backward: Backward,
): (Node | null)[] {
  const { body, length, reverse, stop, carries: carryCount } = node.attrs;
  if (stop !== undefined && length === unboundedLength)
    throw new WeftError(
      "the reverse pass of a loop stores the carries of every step, and this loop has no bound on its steps; " +
        "give maxTrips (whileLoop, foriLoop), or use forward mode (jvp)",
    );
  const outputCount = body.outputs.length;
  const params = splitScan(node, body.params);
  const inputs = splitScan(node, node.inputs);
  const wanted = splitScan(node, needs);
  const isLive = params.carries.map((carry) => isInexact(carry.dtype));
  const liveCarries = params.carries.filter((_, i) => isLive[i]);
  const carrySeeds = params.carries.map((carry, i) => (isLive[i] ? input(carry.shape, carry.dtype, "dcarry") : null));
  // Cotangents of the stacked results, including carries that an earlier gradient added.
  const ySeeds = body.outputs.slice(carryCount, outputCount).map((y, i) => {
    const cotangent = g[carryCount + i] ?? null;
    return cotangent === null ? null : { seed: input(y.shape, y.dtype, "dy"), cotangent };
  });
  const constParams = params.consts.filter((_, i) => wanted.consts[i]);
  const xParams = params.xs.filter((_, i) => wanted.xs[i]);
  const grads = backward(
    body.outputs,
    [...carrySeeds, ...ySeeds.map((y) => y?.seed ?? null)],
    [...liveCarries, ...constParams, ...xParams],
  );
  const { carries: history, residuals } = historyOf(node, present(grads));
  const carryGrads = grads.slice(0, liveCarries.length);
  const constGrads = grads.slice(liveCarries.length, liveCarries.length + constParams.length);
  const xGrads = grads.slice(liveCarries.length + constParams.length);

  // What is stacked already: states and inputs of the steps, stored values, and gradients of the inputs.
  const stacks = new Map<Node, Node | null>([
    ...params.carries.map((param, i) => [param, history[i]] as const),
    ...params.xs.map((param, i) => [param, inputs.xs[i]] as const),
    ...residuals.map(({ inBody, stacked }) => [inBody, stacked] as const),
    ...present(xGrads).map((d) => [d, null] as const),
  ]);
  // Factors are stacked while they need no more memory than the states and inputs of the steps, which are stored anyway.
  let room = [...params.carries, ...params.xs].reduce((sum, x) => sum + numel(x.shape), 0);
  const factors: Node[] = [];
  const reserve = (values: readonly Node[]): boolean => {
    const fresh = [...new Set(values)].filter((x) => !stacks.has(x));
    const needed = fresh.reduce((sum, x) => sum + numel(x.shape), 0);
    if (needed > room) return false;
    room -= needed;
    factors.push(...fresh);
    for (const x of fresh) stacks.set(x, null);
    return true;
  };
  const products = constGrads.map((d) => {
    const found = d === null || stop !== undefined ? null : stepProduct(d);
    if (found === null) return null;
    // Large factors are only worth reading again where they are stacked anyway.
    const isWorth = found.isCompact || [found.left, found.right].every((x) => stacks.has(x));
    return isWorth && reserve([found.left, found.right]) ? found : null;
  });
  // After the products, whose factors are often what is summed.
  const isHeavy = stop === undefined && hasLargeProduct(present(grads));
  const reductions = constGrads.map((d, i) => {
    const found = d === null || products[i] !== null || !isHeavy ? null : stepSum(d);
    return found !== null && reserve([found.value]) ? found : null;
  });
  const sums = constParams.map((param, i) =>
    products[i] === null && reductions[i] === null ? input(param.shape, param.dtype, "dconst") : null,
  );
  // Stored values are parameters of the reverse step: what leads to them is not computed again.
  const stored = residuals.map(({ inBody, stacked }) => ({
    inBody,
    stacked,
    param: input(inBody.shape, inBody.dtype, residualName),
  }));
  const results = instantiate(
    {
      params: stored.map(({ inBody }) => inBody),
      outputs: [
        ...carryGrads.map((d, i) => d ?? zerosLike(liveCarries[i])),
        ...present(sums.map((sum, i) => (sum === null || constGrads[i] === null ? sum : add(sum, constGrads[i])))),
        ...xGrads.map((d, i) => d ?? zerosLike(xParams[i])),
        ...factors,
      ],
    },
    stored.map(({ param }) => param),
  );
  // Pass only what the reverse step reads: unused carries would keep dead placeholders alive.
  const used = new Set(topological(results));
  const keep = <T>(items: readonly T[], nodes: readonly Node[]): T[] => items.filter((_, i) => used.has(nodes[i]));
  // A loop that may stop is reversed by one that runs as many steps; that number is its first constant.
  const steps = stop === undefined ? null : stepsRun(node, history);
  const countParam = steps === null ? [] : [stop === "count" ? params.consts[0] : input(steps.shape, "int32", "steps")];
  const otherConsts = stop === "count" ? params.consts.slice(1) : params.consts;
  const otherInputs = stop === "count" ? inputs.consts.slice(1) : inputs.consts;
  const usedResiduals = stored.filter(({ param }) => used.has(param));
  const yInputs = ySeeds.filter((y) => y !== null);
  const usedY = yInputs.filter((y) => used.has(y.seed));
  const reverseParams: ScanParts<Node> = {
    consts: [...countParam, ...keep(otherConsts, otherConsts)],
    carries: present([...carrySeeds, ...sums]),
    xs: [
      ...keep(params.carries, params.carries),
      ...usedResiduals.map(({ param }) => param),
      ...keep(params.xs, params.xs),
      ...usedY.map((y) => y.seed),
    ],
  };
  const finalCotangents = inputs.carries
    .map((carry, i) => (isLive[i] ? (g[i] ?? zerosLike(carry)) : null))
    .filter((c) => c !== null);
  const loop = makeScan(
    { params: joinScan(reverseParams), outputs: results },
    {
      consts: [...(steps === null ? [] : [steps]), ...keep(otherInputs, otherConsts)],
      carries: [...finalCotangents, ...present(sums).map((sum) => zerosLike(sum))],
      xs: [
        ...keep(history, params.carries),
        ...usedResiduals.map(({ stacked }) => stacked),
        ...keep(inputs.xs, params.xs),
        ...usedY.map((y) => y.cotangent),
      ],
    },
    { length, reverse: !reverse, stop: stop === undefined ? undefined : "count" },
  );
  let next = 0;
  const take = (want: boolean): Node | null => (want ? pick(loop, next++) : null);
  const carryOut = isLive.map((live) => take(live));
  const sumOut = sums.map((sum) => take(sum !== null));
  const xOut = wanted.xs.map((want) => take(want));
  present(xOut).forEach((stack, i) => {
    const each = xGrads[i];
    if (each !== null) stacks.set(each, stack);
  });
  for (const each of factors) stacks.set(each, pick(loop, next++));
  const constGiven = sumOut.map((sum, i) => {
    const [product, reduction] = [products[i], reductions[i]];
    if (product !== null) return stackedProduct(product, stacks.get(product.left)!, stacks.get(product.right)!);
    return reduction === null ? sum : stackedSum(reduction, stacks.get(reduction.value)!);
  });
  const constOut = wanted.consts.map((want) => (want ? constGiven.shift()! : null));
  return [...constOut, ...carryOut, ...xOut];
}

/**
 * Forward mode of a scan: one loop that carries values and tangents together, so that no history is stored. Returns the tangents
 * of the results.
 */
export function scanJvp(node: Node<"scan">, tangents: readonly (Node | null)[], forward: Forward): (Node | null)[] {
  const { body, carries: carryCount } = node.attrs;
  const params = splitScan(node, body.params);
  const inputs = splitScan(node, node.inputs);
  const given = splitScan(node, tangents);
  // A carry has a tangent if its initial value has one, or if a step gives it one.
  const active = params.carries.map((_, i) => given.carries[i] !== null);
  const fixed = [...params.consts, ...params.xs].filter((_, i) => [...given.consts, ...given.xs][i] !== null);
  const order = topological(body.outputs);
  for (let grown = true; grown; ) {
    const reached = dependents(order, [...fixed, ...params.carries.filter((_, i) => active[i])]);
    grown = false;
    params.carries.forEach((carry, i) => {
      if (active[i] || !isInexact(carry.dtype) || !reached.has(body.outputs[i])) return;
      active[i] = true;
      grown = true;
    });
  }
  const seed = (param: Node, is: boolean): Node | null =>
    is && isInexact(param.dtype) ? input(param.shape, param.dtype, "tangent") : null;
  const seeds: ScanParts<Node | null> = {
    consts: params.consts.map((p, i) => seed(p, given.consts[i] !== null)),
    carries: params.carries.map((p, i) => seed(p, active[i])),
    xs: params.xs.map((p, i) => seed(p, given.xs[i] !== null)),
  };
  const wrt = body.params.filter((_, i) => joinScan(seeds)[i] !== null);
  const inner = forward(body.outputs, wrt, present(joinScan(seeds)));
  const isGiven = seeds.carries.map((s) => s !== null);
  const carryTangents = body.outputs
    .slice(0, carryCount)
    .flatMap((output, i) => (isGiven[i] ? [inner[i] ?? zerosLike(output)] : []));
  const ys = body.outputs.slice(carryCount);
  const yTangents = inner.slice(carryCount);
  const loop = makeScan(
    {
      params: joinScan({
        consts: [...params.consts, ...present(seeds.consts)],
        carries: [...params.carries, ...present(seeds.carries)],
        xs: [...params.xs, ...present(seeds.xs)],
      }),
      outputs: [...body.outputs.slice(0, carryCount), ...carryTangents, ...ys, ...present(yTangents)],
    },
    {
      consts: [...inputs.consts, ...present(given.consts)],
      carries: [
        ...inputs.carries,
        ...inputs.carries.flatMap((carry, i) => (isGiven[i] ? [given.carries[i] ?? zerosLike(carry)] : [])),
      ],
      xs: [...inputs.xs, ...present(given.xs)],
    },
    node.attrs,
  );
  let next = carryCount;
  const carryOut = isGiven.map((is) => (is ? pick(loop, next++) : null));
  next += ys.length;
  return [...carryOut, ...yTangents.map((tangent) => (tangent === null ? null : pick(loop, next++)))];
}

const present = <T>(items: readonly (T | null)[]): T[] => items.filter((item): item is T & {} => item !== null);
