// Parameter trees as flat dictionaries with dotted names ("encoder.layers.0.linear1.weight"), the form in which
// checkpoints are kept; where a tree follows PyTorch's naming, the names are those of its state_dict.
import { ShapeError, showShape, WeftError } from "../graph/index.js";
import { Tensor, treeLeaves } from "../tensor/index.js";

/** Tensors by their dotted names. */
export type StateDict = Record<string, Tensor>;

function walk(at: unknown, path: string, visit: (path: string, leaf: Tensor) => Tensor): unknown {
  if (at instanceof Tensor) return visit(path, at);
  const below = (name: string | number): string => (path === "" ? `${name}` : `${path}.${name}`);
  if (Array.isArray(at)) return at.map((part, i) => walk(part, below(i), visit));
  if (typeof at === "object" && at !== null)
    return Object.fromEntries(Object.entries(at).map(([name, part]) => [name, walk(part, below(name), visit)]));
  return at;
}

/** Applies a function to every tensor of a tree and its dotted name, and returns a tree of the same structure. */
export const mapNamed = <P>(params: P, fn: (name: string, leaf: Tensor) => Tensor): P => walk(params, "", fn) as P;

/** All tensors of a tree by their dotted names. */
export function stateDict(params: unknown): StateDict {
  const named: StateDict = {};
  walk(params, "", (path, leaf) => {
    named[path] = leaf;
    return leaf;
  });
  return named;
}

/**
 * Replaces the tensors of a tree by those of a dictionary with the same names and shapes, cast to the dtypes of the tree.
 */
export function loadStateDict<P>(params: P, dict: StateDict): P {
  const unused = new Set(Object.keys(dict));
  const loaded = walk(params, "", (path, leaf) => {
    const given = dict[path];
    if (given === undefined)
      throw new WeftError(`loadStateDict: "${path}" is missing; the dictionary has ${Object.keys(dict).join(", ")}`);
    if (showShape(given.shape) !== showShape(leaf.shape))
      throw new ShapeError(
        `loadStateDict: "${path}" has shape ${showShape(given.shape)}, expected ${showShape(leaf.shape)}`,
      );
    unused.delete(path);
    return given.dtype === leaf.dtype ? given : given.cast(leaf.dtype);
  });
  if (unused.size > 0) throw new WeftError(`loadStateDict: no parameter is called ${[...unused].join(", ")}`);
  return loaded as P;
}

/** Number of elements in all tensors of a tree. */
export const countParameters = (params: unknown): number => treeLeaves(params).reduce((n, leaf) => n + leaf.size, 0);
