// Parameter trees as flat dictionaries with dotted names ("encoder.layers.0.linear1.weight"), the form in which
// checkpoints are kept; where a tree follows PyTorch's naming, the names are those of its state_dict.
import { ShapeError, showShape, WeftError } from "../graph/index.js";
import { Tensor, treeLeaves } from "../tensor/index.js";

export type StateDict = Record<string, Tensor>;

function walk(at: unknown, path: string, visit: (path: string, leaf: Tensor) => Tensor): unknown {
  if (at instanceof Tensor) return visit(path, at);
  const below = (name: string | number): string => (path === "" ? `${name}` : `${path}.${name}`);
  if (Array.isArray(at)) return at.map((part, i) => walk(part, below(i), visit));
  if (typeof at === "object" && at !== null)
    return Object.fromEntries(Object.entries(at).map(([name, part]) => [name, walk(part, below(name), visit)]));
  return at;
}

/** A tree of the same form, made of what a function gives for each tensor and its dotted name. */
export const mapNamed = <P>(params: P, fn: (name: string, leaf: Tensor) => Tensor): P => walk(params, "", fn) as P;

/** Every tensor of a tree by its dotted name. */
export function stateDict(params: unknown): StateDict {
  const named: StateDict = {};
  walk(params, "", (path, leaf) => {
    named[path] = leaf;
    return leaf;
  });
  return named;
}

/** A tree like `params` with the tensors of a dictionary: the same names and shapes, cast to the tree's dtypes. */
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

/** The number of elements in all tensors of a tree. */
export const countParameters = (params: unknown): number => treeLeaves(params).reduce((n, leaf) => n + leaf.size, 0);
