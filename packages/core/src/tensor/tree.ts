// Trees of tensors: nested arrays and plain objects with tensors at the leaves, such as parameters, optimizer states and batches.
// Every transform takes and returns trees.
import { WeftError } from "../graph/index.js";
import { checkArguments } from "./convert.js";
import { Tensor } from "./tensor.js";

/** A tensor, or nested arrays and plain objects that hold tensors. Other values are passed through unchanged. */
export type Tree = unknown;

export interface TreeDef {
  /** Identifies structure and the values that are not tensors. */
  key: string;
  /** The tree with other leaves. */
  rebuild(leaves: readonly Tensor[]): unknown;
  /** Whether another tree would have the same key; its tensors are put into `leaves`. Much quicker than taking it apart. */
  matches(tree: Tree, leaves: Tensor[]): boolean;
}

/** A place in a tree. */
interface Part {
  key: string;
  make(leaves: readonly Tensor[], next: { i: number }): unknown;
  matches(at: unknown, leaves: Tensor[]): boolean;
}

const leafPart: Part = {
  key: "*",
  make: (all, next) => all[next.i++],
  matches: (at, leaves) => {
    if (!(at instanceof Tensor)) return false;
    leaves.push(at);
    return true;
  },
};

const listPart = (parts: readonly Part[]): Part => ({
  key: `[${parts.map((p) => p.key).join(",")}]`,
  make: (all, next) => parts.map((p) => p.make(all, next)),
  matches: (at, leaves) => {
    if (!Array.isArray(at) || at.length !== parts.length) return false;
    for (let i = 0; i < parts.length; i++) if (!parts[i].matches(at[i], leaves)) return false;
    return true;
  },
});

function objectPart(names: readonly string[], parts: readonly Part[]): Part {
  return {
    key: `{${names.map((name, i) => `${JSON.stringify(name)}:${parts[i].key}`).join(",")}}`,
    make: (all, next) => {
      const made: Record<string, unknown> = {};
      for (let i = 0; i < names.length; i++) {
        const value = parts[i].make(all, next);
        // Assigning to this name would not create a property.
        if (names[i] === "__proto__") Object.defineProperty(made, names[i], { value, ...ordinary });
        else made[names[i]] = value;
      }
      return made;
    },
    matches: (at, leaves) => {
      if (typeof at !== "object" || at === null || Array.isArray(at) || at instanceof Tensor || !isPlain(at))
        return false;
      if (Object.keys(at).length !== names.length) return false;
      for (let i = 0; i < names.length; i++) {
        if (!Object.hasOwn(at, names[i])) return false;
        if (!parts[i].matches((at as Record<string, unknown>)[names[i]], leaves)) return false;
      }
      return true;
    },
  };
}

const ordinary = { enumerable: true, configurable: true, writable: true };

function opaquePart(value: unknown): Part {
  const key = opaqueKey(value);
  return {
    key,
    make: () => value,
    matches: (at) => Object.is(at, value) || (!(at instanceof Tensor) && !isTree(at) && opaqueKey(at) === key),
  };
}

const isTree = (x: unknown): boolean => Array.isArray(x) || (typeof x === "object" && x !== null && isPlain(x));

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

/** Flattens a tree into its tensors, in a fixed order, and a definition that rebuilds it. */
export function flattenTree(tree: Tree): { leaves: Tensor[]; def: TreeDef } {
  const leaves: Tensor[] = [];
  const visit = (at: unknown, depth: number): Part => {
    if (depth > 200) throw new WeftError("a tree of tensors is nested more than 200 levels deep, or contains itself");
    if (at instanceof Tensor) {
      leaves.push(at);
      return leafPart;
    }
    if (Array.isArray(at)) return listPart(at.map((part) => visit(part, depth + 1)));
    if (typeof at === "object" && at !== null && isPlain(at)) {
      const names = Object.keys(at).sort();
      return objectPart(
        names,
        names.map((name) => visit((at as Record<string, unknown>)[name], depth + 1)),
      );
    }
    refuseHidden(at);
    return opaquePart(at);
  };
  const { key, make, matches } = visit(tree, 0);
  return { leaves, def: { key, rebuild: (all) => make(all, { i: 0 }), matches } };
}

/** Throws at an object that holds tensors but is not part of a tree: transforms would silently treat them as constants. */
function refuseHidden(x: unknown): void {
  if (typeof x !== "object" || x === null || ArrayBuffer.isView(x)) return;
  const inside = x instanceof Map || x instanceof Set ? x.values() : Object.values(x);
  for (const value of inside)
    if (value instanceof Tensor)
      throw new WeftError(
        `a tree of tensors contains a ${x.constructor?.name ?? "object"} that holds tensors, which no transform would find; ` +
          "use plain objects and arrays",
      );
}

/** The tensors of a tree, in a fixed order. */
export const treeLeaves = (tree: Tree): Tensor[] => flattenTree(tree).leaves;

const shortened = (text: string): string => (text.length > 120 ? `${text.slice(0, 117)}...` : text);

/** A tree in which every number is replaced. */
export function mapNumbers(tree: Tree, replace: (value: number) => Tensor): Tree {
  if (typeof tree === "number") return replace(tree);
  if (Array.isArray(tree)) return tree.map((part) => mapNumbers(part, replace));
  if (typeof tree !== "object" || tree === null || tree instanceof Tensor || !isPlain(tree)) return tree;
  return Object.fromEntries(Object.entries(tree).map(([name, part]) => [name, mapNumbers(part, replace)]));
}

/** Name of a class of the tree whose content changes in place, such as a typed array; null if there is none. */
export function mutableIn(tree: Tree): string | null {
  if (typeof tree !== "object" || tree === null || tree instanceof Tensor) return null;
  if (ArrayBuffer.isView(tree) || tree instanceof ArrayBuffer || tree instanceof Map || tree instanceof Set)
    return tree.constructor.name;
  const inside = Array.isArray(tree) ? tree : isPlain(tree) ? Object.values(tree) : [];
  return inside.map(mutableIn).find((name) => name !== null) ?? null;
}

/** Structure of a tree as text, without the values that are not tensors. */
function outline(tree: Tree): string {
  if (tree instanceof Tensor) return "*";
  const parts = Array.isArray(tree)
    ? tree.map((part, i): [string, string] => [String(i), outline(part)])
    : isTree(tree)
      ? Object.entries(tree as object).map(([name, part]): [string, string] => [JSON.stringify(name), outline(part)])
      : [];
  const held = parts.filter(([, inside]) => inside !== "");
  return held.length === 0
    ? ""
    : `{${held
        .map(([name, inside]) => `${name}: ${inside}`)
        .sort()
        .join(", ")}}`;
}

/**
 * Applies a function to every tensor of a tree, and to the tensors at the same positions of further trees, which must have tensors at
 * the same places.
 */
export function treeMap<T>(fn: (leaf: Tensor, ...others: Tensor[]) => Tensor, tree: T, ...rest: Tree[]): T {
  checkArguments("treeMap", "function", { fn });
  const { leaves, def } = flattenTree(tree);
  const others = rest.map((other) => {
    const flat = flattenTree(other);
    if (flat.def.key !== def.key && outline(other) !== outline(tree))
      throw new WeftError(
        `treeMap: the trees differ: ${leaves.length} tensors ${shortened(outline(tree))} and ` +
          `${flat.leaves.length} tensors ${shortened(outline(other))}`,
      );
    return flat.leaves;
  });
  return def.rebuild(leaves.map((leaf, i) => fn(leaf, ...others.map((o) => o[i])))) as T;
}
