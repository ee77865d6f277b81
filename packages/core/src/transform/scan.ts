// Loops under the transforms. The reverse pass of a scan is a scan in the opposite direction. The forward scan stores its carries,
// and the reverse scan rematerializes each step from them.
import { amend, type GraphFn, isInexact, type Node, topological } from "../graph/index.js";
import { build, make, shapeRules } from "../ops/index.js";

const { add, input, pick, zerosLike } = build;

type Backward = (
  outputs: readonly Node[],
  cotangents: readonly (Node | null)[],
  wrt: readonly Node[],
) => (Node | null)[];

interface ScanParts<T> {
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

const historyStart = new WeakMap<Node, number>();

/**
 * The stacked carries at the start of each step. They are added to the outputs of the scan node itself, so that value and gradient
 * share one loop; unused outputs are pruned before compilation.
 */
function carryHistory(node: Node<"scan">): Node[] {
  const { body } = node.attrs;
  const carries = splitScan(node, body.params).carries;
  let start = historyStart.get(node);
  if (start === undefined) {
    start = body.outputs.length;
    historyStart.set(node, start);
    const attrs = { ...node.attrs, body: { params: body.params, outputs: [...body.outputs, ...carries] } };
    amend(node, attrs, shapeRules.scan(node.inputs, attrs) as NonNullable<Node["outputs"]>);
  }
  return carries.map((_, i) => pick(node, start + i));
}

export function scanVjp(
  node: Node<"scan">,
  g: readonly (Node | null)[],
  needs: readonly boolean[],
  backward: Backward,
): (Node | null)[] {
  const { body, length, reverse, carries: carryCount } = node.attrs;
  const outputCount = body.outputs.length;
  const params = splitScan(node, body.params);
  const inputs = splitScan(node, node.inputs);
  const wanted = splitScan(node, needs);
  const history = carryHistory(node);

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
  const carryGrads = grads.slice(0, liveCarries.length);
  const constGrads = grads.slice(liveCarries.length, liveCarries.length + constParams.length);
  const xGrads = grads.slice(liveCarries.length + constParams.length);

  const sums = constParams.map((param) => input(param.shape, param.dtype, "dconst"));
  const results = [
    ...carryGrads.map((d, i) => d ?? zerosLike(liveCarries[i])),
    ...constGrads.map((d, i) => (d === null ? sums[i] : add(sums[i], d))),
    ...xGrads.map((d, i) => d ?? zerosLike(xParams[i])),
  ];
  // Pass only what the reverse step reads: unused carries would keep dead placeholders alive.
  const used = new Set(topological(results));
  const keep = <T>(items: readonly T[], nodes: readonly Node[]): T[] => items.filter((_, i) => used.has(nodes[i]));
  const yInputs = ySeeds.filter((y) => y !== null);
  const usedY = yInputs.filter((y) => used.has(y.seed));
  const reverseBody: GraphFn = {
    params: [
      ...keep(params.consts, params.consts),
      ...carrySeeds.filter((seed) => seed !== null),
      ...sums,
      ...keep(params.carries, params.carries),
      ...keep(params.xs, params.xs),
      ...usedY.map((y) => y.seed),
    ],
    outputs: results,
  };
  const finalCotangents = inputs.carries
    .map((carry, i) => (isLive[i] ? (g[i] ?? zerosLike(carry)) : null))
    .filter((c) => c !== null);
  const loop = make(
    "scan",
    [
      ...keep(inputs.consts, params.consts),
      ...finalCotangents,
      ...sums.map((sum) => zerosLike(sum)),
      ...keep(history, params.carries),
      ...keep(inputs.xs, params.xs),
      ...usedY.map((y) => y.cotangent),
    ],
    {
      body: reverseBody,
      consts: keep(params.consts, params.consts).length,
      carries: liveCarries.length + sums.length,
      length,
      reverse: !reverse,
    },
  );
  let next = 0;
  const take = (want: boolean): Node | null => (want ? pick(loop, next++) : null);
  const carryOut = isLive.map((live) => take(live));
  const constOut = wanted.consts.map((want) => take(want));
  const xOut = wanted.xs.map((want) => take(want));
  return [...constOut, ...carryOut, ...xOut];
}

/** Builds a scan over the given body. */
export function makeScan(body: GraphFn, parts: ScanParts<Node>, length: number, reverse: boolean): Node {
  return make("scan", [...parts.consts, ...parts.carries, ...parts.xs], {
    body,
    consts: parts.consts.length,
    carries: parts.carries.length,
    length,
    reverse,
  });
}
