// Trees of tensors: nested arrays and plain objects with tensors at the leaves. Parameters, states and batches are such
// trees; every transform takes and returns them.
import { WeftError } from "../graph/index.js";
import { Tensor } from "./tensor.js";

/** Anything that holds tensors: a tensor, an array or object of trees; other values ride along unchanged. */
export type Tree = unknown;

export interface TreeDef {
  /** Identifies structure and the values that are not tensors. */
  key: string;
  rebuild(leaves: readonly Tensor[]): unknown;
}

const isPlain = (x: object): boolean => {
  const proto = Object.getPrototypeOf(x);
  return proto === Object.prototype || proto === null;
};

const opaqueIds = new WeakMap<object, number>();
let nextOpaque = 0;

function opaqueKey(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (value === null || (typeof value !== "object" && typeof value !== "function"))
    return `${typeof value}:${Object.is(value, -0) ? "-0" : String(value)}`;
  let id = opaqueIds.get(value);
  if (id === undefined) {
    id = nextOpaque++;
    opaqueIds.set(value, id);
  }
  return `#${id}`;
}

/** Takes a tree apart into its tensors, in a fixed order, and the recipe to put it together again. */
export function flattenTree(tree: Tree): { leaves: Tensor[]; def: TreeDef } {
  const leaves: Tensor[] = [];
  const visit = (
    at: unknown,
    depth: number,
  ): { key: string; make: (leaves: readonly Tensor[], next: { i: number }) => unknown } => {
    if (depth > 200) throw new WeftError("a tree of tensors is nested more than 200 levels deep, or contains itself");
    if (at instanceof Tensor) {
      leaves.push(at);
      return { key: "*", make: (all, next) => all[next.i++] };
    }
    if (Array.isArray(at)) {
      const parts = at.map((part) => visit(part, depth + 1));
      return {
        key: `[${parts.map((p) => p.key).join(",")}]`,
        make: (all, next) => parts.map((p) => p.make(all, next)),
      };
    }
    if (typeof at === "object" && at !== null && isPlain(at)) {
      const names = Object.keys(at).sort();
      const parts = names.map((name) => visit((at as Record<string, unknown>)[name], depth + 1));
      return {
        key: `{${names.map((name, i) => `${JSON.stringify(name)}:${parts[i].key}`).join(",")}}`,
        make: (all, next) => Object.fromEntries(names.map((name, i) => [name, parts[i].make(all, next)])),
      };
    }
    return { key: opaqueKey(at), make: () => at };
  };
  const { key, make } = visit(tree, 0);
  return { leaves, def: { key, rebuild: (all) => make(all, { i: 0 }) } };
}

export const treeLeaves = (tree: Tree): Tensor[] => flattenTree(tree).leaves;

/** Applies a function to every tensor of a tree (and the tensors at the same places of further trees). */
export function treeMap<T>(fn: (leaf: Tensor, ...others: Tensor[]) => Tensor, tree: T, ...rest: Tree[]): T {
  const { leaves, def } = flattenTree(tree);
  const others = rest.map((other) => {
    const flat = flattenTree(other);
    if (flat.leaves.length !== leaves.length)
      throw new WeftError(`treeMap: the trees differ: ${leaves.length} tensors and ${flat.leaves.length}`);
    return flat.leaves;
  });
  return def.rebuild(leaves.map((leaf, i) => fn(leaf, ...others.map((o) => o[i])))) as T;
}
