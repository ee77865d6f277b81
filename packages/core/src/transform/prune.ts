// Removes dead parts of loops: unused results, carries that feed only themselves, inputs that the step does not read, loops
// without steps. The reverse pass relies on this (see scan.ts).
import { functionOrder, type GraphFn, isOp, type Node, outputAvals, topological } from "../graph/index.js";
import { build } from "../ops/index.js";
import { joinScan, makeScan, type ScanParts, splitScan } from "./scan.js";
import { rebuild } from "./walk.js";

/** Results of each multi-result node that are picked. */
function pickedOutputs(order: readonly Node[]): Map<Node, Set<number>> {
  const picked = new Map<Node, Set<number>>();
  for (const node of order) {
    if (!isOp(node, "pick")) continue;
    const tuple = node.inputs[0];
    const set = picked.get(tuple) ?? new Set<number>();
    set.add(node.attrs.index);
    picked.set(tuple, set);
  }
  return picked;
}

/** Live carries: read from outside, by a live result, or by another live carry. */
function liveCarries(node: Node<"scan">, body: GraphFn, picked: ReadonlySet<number>): boolean[] {
  const { carries } = node.attrs;
  const params = splitScan(node, body.params).carries;
  const live = params.map((_, i) => picked.has(i) || (i === 0 && node.attrs.stop === "while"));
  for (;;) {
    const wanted = body.outputs.filter((_, i) => (i < carries ? live[i] : picked.has(i)));
    const read = new Set(topological(wanted));
    const grown = params.findIndex((param, i) => !live[i] && read.has(param));
    if (grown < 0) return live;
    live[grown] = true;
  }
}

/** Prunes every scan of the graph and simplifies its body with `simplify`. */
export function pruneScan(fn: GraphFn, simplify: (fn: GraphFn) => GraphFn): GraphFn {
  const order = functionOrder(fn);
  if (!order.some((node) => node.op === "scan")) return fn;
  const picked = pickedOutputs(order);
  const map = new Map<Node, Node>(fn.params.map((p) => [p, p]));
  /** For every replaced loop: the replacement of each result. */
  const replaced = new Map<Node, (index: number) => Node>();
  for (const node of order) {
    if (map.has(node)) continue;
    if (isOp(node, "scan")) {
      const result =
        node.attrs.length === 0 ? emptyLoop(node, map) : prunedLoop(node, picked.get(node) ?? new Set(), map, simplify);
      replaced.set(node, result);
      continue;
    }
    if (isOp(node, "pick")) {
      const result = replaced.get(node.inputs[0]);
      if (result !== undefined) {
        map.set(node, result(node.attrs.index));
        continue;
      }
    }
    map.set(
      node,
      rebuild(
        node,
        node.inputs.map((input) => map.get(input)!),
      ),
    );
  }
  return { params: fn.params, outputs: fn.outputs.map((output) => map.get(output)!) };
}

/** Without steps the carries keep their initial values, and stacked results are empty. */
function emptyLoop(node: Node<"scan">, map: ReadonlyMap<Node, Node>): (index: number) => Node {
  const { carries } = splitScan(node, node.inputs);
  return (index) => (index < carries.length ? map.get(carries[index])! : build.zerosLike(outputAvals(node)[index]));
}

function prunedLoop(
  node: Node<"scan">,
  picked: ReadonlySet<number>,
  map: ReadonlyMap<Node, Node>,
  simplify: (fn: GraphFn) => GraphFn,
): (index: number) => Node {
  const { carries, length, reverse, stop } = node.attrs;
  const body = simplify(node.attrs.body);
  const live = liveCarries(node, body, picked);
  const kept = body.outputs.map((_, i) => (i < carries ? live[i] : picked.has(i)));
  const outputs = body.outputs.filter((_, i) => kept[i]);
  const read = new Set(topological(outputs));
  const params = splitScan(node, body.params);
  const inputs = splitScan(
    node,
    node.inputs.map((input) => map.get(input)!),
  );
  const isRead = (param: Node): boolean => read.has(param);
  const keepConst = params.consts.map((param, i) => isRead(param) || (i === 0 && stop === "count"));
  const keepX = params.xs.map(isRead);
  const filter = <T>(items: readonly T[], mask: readonly boolean[]): T[] => items.filter((_, i) => mask[i]);
  const index = new Map<number, number>();
  kept.forEach((keep, i) => {
    if (keep) index.set(i, index.size);
  });
  const keep = <T>(parts: ScanParts<T>): ScanParts<T> => ({
    consts: filter(parts.consts, keepConst),
    carries: filter(parts.carries, live),
    xs: filter(parts.xs, keepX),
  });
  const loop = makeScan({ params: joinScan(keep(params)), outputs }, keep(inputs), { length, reverse, stop });
  return (i) => build.pick(loop, index.get(i)!);
}
