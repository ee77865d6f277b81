// The array class that jax-js's tests expect, over Weft's tensors: names, argument orders and defaults of jax-js in front, one call of
// Weft behind. Weft never consumes operands, so that `ref` and `dispose` do nothing.
import * as api from "../../packages/core/dist/index.js";

/** Weft, as an object whose functions are looked up by name. */
export const weft = { ...api };

const JsArray = globalThis.Array;
// Newer versions of Node have it; the elements of the tests are exact in both.
globalThis.Float16Array ??= class Float16Array extends Float32Array {};

/** A tensor with the methods of a jax-js array. */
export class Array {
  constructor(t) {
    this.t = t;
  }
  get shape() {
    return [...this.t.shape];
  }
  get dtype() {
    return this.t.dtype;
  }
  get ndim() {
    return this.t.rank;
  }
  get size() {
    return this.t.size;
  }
  get ref() {
    return this;
  }
  get device() {
    return "cpu";
  }
  dispose() {}
  async blockUntilReady() {
    await this.t.realize();
    return this;
  }
  dataSync() {
    return fromStorage(this.t.dtype, this.t.dataSync());
  }
  async data() {
    return fromStorage(this.t.dtype, await this.t.data());
  }
  js() {
    return plain(this.t.dtype, this.t.arraySync());
  }
  async jsAsync() {
    return plain(this.t.dtype, await this.t.array());
  }
  item() {
    return plain(this.t.dtype, this.t.itemSync());
  }
  toString() {
    return `${this.dtype}[${this.shape}]`;
  }
  [Symbol.toPrimitive](hint) {
    return hint === "string" ? this.toString() : this.item();
  }
  *[Symbol.iterator]() {
    for (const part of weft.unstack(this.t)) yield new Array(part);
  }
  neg() {
    return new Array(this.t.neg());
  }
  astype(dtype) {
    return new Array(this.t.cast(dtype));
  }
  view(dtype) {
    return dtype === undefined ? this : new Array(weft.bitcast(this.t, dtype));
  }
  reshape(shape) {
    return new Array(this.t.reshape(typeof shape === "number" ? [shape] : shape));
  }
  flatten() {
    return this.reshape(-1);
  }
  ravel() {
    return this.reshape(-1);
  }
  transpose(order) {
    const axes = order ?? this.shape.map((_, i) => this.ndim - 1 - i);
    return new Array(this.t.permute(axes));
  }
  diagonal(offset = 0, a = 0, b = 1) {
    return new Array(weft.diagonal(weft.moveAxis(this.t, [a, b], [-2, -1]), { offset }));
  }
  sort(axis = -1) {
    return new Array(this.t.sort(axis));
  }
  argsort(axis = -1) {
    return new Array(this.t.argsort(axis));
  }
  slice(...index) {
    const specs = index.map((at) => {
      if (at instanceof Array) return at.t.dtype === "float32" ? at.t.cast("int32") : at.t;
      return JsArray.isArray(at) ? `${at[0] ?? ""}:${at[1] ?? ""}` : at;
    });
    return new Array(weft.index(this.t, ...specs));
  }
}

/** Dtypes whose elements jax-js returns as plain numbers or booleans. */
function plain(dtype, value) {
  if (JsArray.isArray(value)) return value.map((item) => plain(dtype, item));
  if (dtype === "bool") return Boolean(value);
  return typeof value === "bigint" ? Number(value) : value;
}

function fromStorage(dtype, data) {
  if (dtype === "float16") return new Float16Array(data);
  if (dtype === "bool") return Int32Array.from(data, Number);
  return data;
}

/** The tensor of an array, or of a value that jax-js accepts in its place. */
export function unwrap(x) {
  if (x instanceof Array) return x.t;
  if (JsArray.isArray(x) && x.some((item) => item instanceof Array)) return weft.stack(x.map(unwrap));
  if (JsArray.isArray(x) || ArrayBuffer.isView(x)) return weft.tensor(x);
  return x;
}
/** As {@link unwrap}, but numbers become tensors too. */
export const tensorOf = (x, dtype) => {
  const isNested = JsArray.isArray(x) && !JSON.stringify(x).includes("{");
  if (typeof dtype === "string" && (isNested || ArrayBuffer.isView(x))) return weft.tensor(x, { dtype });
  const t = unwrap(x);
  return t instanceof weft.Tensor ? (dtype === undefined ? t : t.cast(dtype)) : weft.tensor(t, { dtype });
};
export const wrap = (t) => (t instanceof weft.Tensor ? new Array(t) : t);

/** Maps the leaves of nested arrays and objects. */
export function mapTree(tree, fn) {
  if (JsArray.isArray(tree)) return tree.map((item) => mapTree(item, fn));
  if (tree !== null && typeof tree === "object" && !(tree instanceof Array) && !(tree instanceof weft.Tensor))
    return Object.fromEntries(Object.entries(tree).map(([key, item]) => [key, mapTree(item, fn)]));
  return fn(tree);
}
/** A function of arrays as a function of tensors. */
export const inner =
  (fn) =>
  (...args) =>
    mapTree(fn(...mapTree(args, wrap)), unwrap);
/** Tensors of all leaves, also of those that are numbers. */
export const leaves = (tree) => mapTree(tree, (x) => (typeof x === "function" ? x : tensorOf(x)));

/** A Weft function of tensors as a function of arrays. */
export const lift =
  (fn) =>
  (...args) =>
    mapTree(fn(...args.map((x) => (x instanceof Array ? x.t : x))), wrap);

/** Options of reductions in Weft's names. */
export const keep = (options = {}) => {
  const { keepdims, ...rest } = options ?? {};
  return keepdims === undefined ? mapTree(rest, unwrap) : { ...mapTree(rest, unwrap), keepDims: keepdims };
};

/** Sums of 32-bit integers and counts are 64 bits wide in Weft, as in NumPy; jax-js has no such dtype. */
export const narrow = (t, like) => {
  if (t.dtype === "int64") return t.cast(like === "bool" || like === undefined ? "int32" : like);
  return t.dtype === "uint64" ? t.cast("uint32") : t;
};

for (const name of [
  "add",
  "sub",
  "mul",
  "div",
  "mod",
  "greater",
  "less",
  "equal",
  "notEqual",
  "greaterEqual",
  "lessEqual",
])
  Array.prototype[name] = function (other) {
    return new Array(weft[name](this.t, unwrap(other)));
  };
for (const name of ["sum", "prod", "mean", "min", "max", "all", "any"])
  Array.prototype[name] = function (axis = null, options) {
    const t = weft[name](this.t, axis ?? undefined, keep(options));
    return new Array(name === "mean" ? t : narrow(t, this.dtype));
  };
