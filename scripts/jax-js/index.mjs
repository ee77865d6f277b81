// Stands in for the package @jax-js/jax when its tests run on Weft.
import { Array, inner, leaves, mapTree, tensorOf, unwrap, weft, wrap } from "./array.mjs";
import { lax, nn, random, scipySpecial } from "./library.mjs";
import { numpy } from "./numpy.mjs";

export { Array, lax, nn, numpy, random, scipySpecial };

/** Names of devices in jax-js: "cpu" is its slow reference, "wasm" generates code. */
const names = { cpu: "reference", wasm: "cpu" };
export const devices = Object.keys(names);
export const init = async (...wanted) => (wanted.length === 0 ? devices : wanted.filter((name) => name in names));
let current = "cpu";
export const defaultDevice = (name) => {
  if (name !== undefined) {
    current = name;
    weft.setDevice(names[name]);
  }
  return current;
};
defaultDevice("wasm");
export const DType = {
  Float16: "float16",
  Float32: "float32",
  Float64: "float64",
  Int32: "int32",
  Uint32: "uint32",
  Bool: "bool",
};
export const setDebug = () => {};

const owned = (fn) => Object.assign(fn, { dispose() {} });
const outward = (tree) => mapTree(tree, wrap);
const options = ({ argnums, ...rest } = {}) => ({ ...rest, ...(argnums === undefined ? {} : { argument: argnums }) });

export const grad =
  (fn, opts) =>
  (...args) =>
    outward(weft.grad(inner(fn), options(opts))(...leaves(args)));
export const valueAndGrad =
  (fn, opts) =>
  (...args) =>
    outward(weft.valueAndGrad(inner(fn), options(opts))(...leaves(args)));
export const jvp = (fn, args, tangents, opts) =>
  outward(weft.jvp(inner(fn), leaves(args), likeArgs(leaves(tangents), leaves(args)), opts));
const likeArgs = (tangents, args) =>
  JSON.parse(JSON.stringify([])) && zip(tangents, args, (t, a) => weft.cast(t, a.dtype).expand(a.shape));
const zip = (a, b, fn) => {
  if (globalThis.Array.isArray(a)) return a.map((x, i) => zip(x, b[i], fn));
  if (a instanceof weft.Tensor) return fn(a, b);
  return Object.fromEntries(Object.entries(a).map(([key, x]) => [key, zip(x, b[key], fn)]));
};
export const vjp = (fn, args, { hasAux = false } = {}) => {
  const primals = leaves(args);
  const [value, back, aux] = hasAux ? weft.vjpWithAux(inner(fn), ...primals) : weft.vjp(inner(fn), ...primals);
  const pull = owned((cotangent) =>
    outward(back(zip(leaves(cotangent), value, (c, v) => weft.cast(c, v.dtype).expand(v.shape)))),
  );
  return hasAux ? [outward(value), pull, outward(aux)] : [outward(value), pull];
};
export const linearize = (fn, args, { hasAux = false } = {}) => {
  const primals = leaves(args);
  const along = (tangents) =>
    weft.jvp(inner(fn), primals, likeArgs(leaves(tangents), primals), ...(hasAux ? [{ hasAux }] : []));
  const [value, , aux] = along(zip(primals, primals, (p) => weft.zerosLike(p)));
  const map = owned((...tangents) => outward(along(tangents)[1]));
  return hasAux ? [outward(value), map, outward(aux)] : [outward(value), map];
};
/** Axes of trees: one number for all leaves of an argument, or a tree of numbers. */
export const vmap =
  (fn, inAxes = 0) =>
  (...args) => {
    const flat = [];
    const axes = [];
    const collect = (tree, axis) => {
      const t = globalThis.Array.isArray(tree) || (tree && tree.constructor === Object) ? null : tensorOf(tree);
      if (t !== null) {
        flat.push(t);
        axes.push(axis ?? null);
        return (list) => wrap(list.shift());
      }
      const parts = Object.entries(tree).map(([key, x]) => [
        key,
        collect(x, typeof axis === "object" && axis !== null ? axis[key] : axis),
      ]);
      return (list) => {
        const built = parts.map(([key, make]) => [key, make(list)]);
        return globalThis.Array.isArray(tree) ? built.map(([, x]) => x) : Object.fromEntries(built);
      };
    };
    const makers = args.map((arg, i) => collect(arg, typeof inAxes === "number" ? inAxes : inAxes[i]));
    const run = weft.vmap((...list) => mapTree(fn(...makers.map((make) => make(list))), unwrap), { inAxes: axes });
    return outward(run(...flat));
  };
export const jit = (fn, { staticArgnums = [] } = {}) => {
  const programs = new Map();
  return owned((...args) => {
    const fixed = staticArgnums.map((i) => JSON.stringify(args[i]));
    const key = fixed.join();
    if (!programs.has(key)) {
      const given = new Map(staticArgnums.map((i) => [i, args[i]]));
      const whole = (...rest) => {
        const all = [...rest];
        for (const i of [...given.keys()].sort((a, b) => a - b)) all.splice(i, 0, given.get(i));
        return fn(...all);
      };
      programs.set(key, weft.jit(inner(whole)));
    }
    return outward(programs.get(key)(...leaves(args.filter((_, i) => !staticArgnums.includes(i)))));
  });
};
const matrixOf =
  (transform) =>
  (fn) =>
  (...args) =>
    outward(transform(inner(fn))(...leaves(args)));
export const jacfwd = matrixOf(weft.jacfwd);
export const jacrev = matrixOf(weft.jacrev);
export const jacobian = jacrev;
export const hessian = matrixOf(weft.hessian);

export const tree = {
  ref: (x) => x,
  dispose: () => {},
  map: (fn, first, ...rest) => {
    const go = (x, others) => {
      if (globalThis.Array.isArray(x))
        return x.map((item, i) =>
          go(
            item,
            others.map((o) => o[i]),
          ),
        );
      if (x !== null && typeof x === "object" && x.constructor === Object)
        return Object.fromEntries(
          Object.entries(x).map(([key, item]) => [
            key,
            go(
              item,
              others.map((o) => o[key]),
            ),
          ]),
        );
      return fn(x, ...others);
    };
    return go(first, rest);
  },
  leaves: (x) => {
    const found = [];
    mapTree(x, (leaf) => found.push(leaf));
    return found;
  },
};
tree.flatten = (x) => [tree.leaves(x), x];
tree.structure = (x) => x;
tree.unflatten = (structure, list) => {
  const rest = [...list];
  return mapTree(structure, () => rest.shift());
};
export const blockUntilReady = async (x) => {
  await Promise.all(tree.leaves(x).map((leaf) => leaf.blockUntilReady?.()));
  return x;
};
export const devicePut = async (x) => mapTree(x, (leaf) => wrap(tensorOf(leaf)));
