// Classes of dimensions of a function that are split together. Dimensions that ops connect are one class; those of layers that look
// alike share one, so that a planner decides about all layers at once.
import { type GraphFn, type Node, numel } from "../graph/index.js";
import { factorsOf } from "./factors.js";
import { classify } from "./factors-scan.js";

/** Classes of the dimensions of each parameter and of the factors of each node. */
export interface DimensionClasses {
  ofParam(param: Node): number[];
  ofNode(node: Node): number[];
}

/** Whether a node repeats one number (a learning rate), which says nothing about the dimensions of what reads it. */
const repeatsNumber = (node: Node): boolean => node.op === "expand" && numel(node.inputs[0].shape) === 1;

/** Computes the classes of a function. */
export function dimensionClasses(fn: GraphFn): DimensionClasses {
  const { classes, elements, dimsOf } = classify(fn, 0, 0, factorsOf, repeatsNumber);
  const roots = (of: readonly number[]): number[] => of.map((element) => classes.find(element));
  const params = fn.params.map((param) => roots(dimsOf(param)));
  const shared = alikeClasses(
    new Set(params.flat()),
    [...elements].map(([node, own]) => [node, roots(own)]),
    params,
  );
  const named = (of: readonly number[]): number[] => roots(of).map((root) => shared.get(root) ?? root);
  return { ofParam: (param) => named(dimsOf(param)), ofNode: (node) => named(elements.get(node) ?? []) };
}

/**
 * The first class of those that look alike, by class: ops of the same kinds and shapes read and write them. Two classes that one op or
 * parameter has are never the same: a stack of square layers alternates between two.
 */
function alikeClasses(
  ids: ReadonlySet<number>,
  nodes: readonly (readonly [Node, readonly number[]])[],
  params: readonly (readonly number[])[],
): Map<number, number> {
  const looks = new Map([...ids].map((id) => [id, new Set<string>()]));
  const beside = new Map([...ids].map((id) => [id, new Set<number>()]));
  const meet = (own: readonly number[]): void => {
    for (const id of own) for (const other of own) if (id !== other) beside.get(id)?.add(other);
  };
  for (const own of params) meet(own);
  for (const [{ op, shape }, own] of nodes) {
    if (!own.some((id) => ids.has(id))) continue;
    meet(own);
    const text = `${op} ${shape}`;
    own.forEach((id, factor) => {
      looks.get(id)?.add(`${text} ${factor}`);
    });
  }
  const groups = new Map<string, number[][]>();
  const first = new Map<number, number>();
  for (const [id, texts] of looks) {
    const key = [...texts].sort().join();
    const lists = groups.get(key) ?? [];
    groups.set(key, lists);
    const fitting = lists.find((list) => !list.some((other) => beside.get(id)!.has(other)));
    if (fitting === undefined) lists.push([id]);
    else fitting.push(id);
    first.set(id, fitting?.[0] ?? id);
  }
  return first;
}
