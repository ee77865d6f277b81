// `numpy` of jax-js over Weft: names, argument orders and defaults.
import { Array, keep, lift, mapTree, narrow, tensorOf, unwrap, weft, wrap } from "./array.mjs";
import * as fft from "./fft.mjs";
import * as linalg from "./linalg.mjs";

const JsArray = globalThis.Array;
const axesOf = (axis) => (axis === null ? undefined : axis);

/** Functions that differ in their name at most. */
const same = {
  add: "add",
  multiply: "mul",
  subtract: "sub",
  divide: "div",
  trueDivide: "div",
  negative: "neg",
  reciprocal: "reciprocal",
  floor: "floor",
  ceil: "ceil",
  sin: "sin",
  cos: "cos",
  tan: "tan",
  asin: "asin",
  acos: "acos",
  atan: "atan",
  arcsin: "asin",
  arccos: "acos",
  arctan: "atan",
  atan2: "atan2",
  arctan2: "atan2",
  sinh: "sinh",
  cosh: "cosh",
  tanh: "tanh",
  asinh: "asinh",
  acosh: "acosh",
  atanh: "atanh",
  arcsinh: "asinh",
  arccosh: "acosh",
  arctanh: "atanh",
  exp: "exp",
  exp2: "exp2",
  expm1: "expm1",
  log: "log",
  log2: "log2",
  log10: "log10",
  log1p: "log1p",
  logaddexp: "logaddexp",
  logaddexp2: "logaddexp2",
  sqrt: "sqrt",
  cbrt: "cbrt",
  square: "square",
  abs: "abs",
  absolute: "abs",
  sign: "sign",
  signbit: "signbit",
  copysign: "copysign",
  minimum: "minimum",
  maximum: "maximum",
  fmin: "fmin",
  fmax: "fmax",
  greater: "greater",
  less: "less",
  equal: "equal",
  notEqual: "notEqual",
  greaterEqual: "greaterEqual",
  lessEqual: "lessEqual",
  logicalAnd: "logicalAnd",
  logicalOr: "logicalOr",
  logicalXor: "logicalXor",
  logicalNot: "logicalNot",
  bitwiseAnd: "bitwiseAnd",
  bitwiseOr: "bitwiseOr",
  bitwiseXor: "bitwiseXor",
  invert: "bitwiseNot",
  leftShift: "leftShift",
  rightShift: "rightShift",
  where: "where",
  floorDivide: "floorDivide",
  remainder: "mod",
  fmod: "fmod",
  power: "pow",
  pow: "pow",
  floatPower: "pow",
  hypot: "hypot",
  heaviside: "heaviside",
  sinc: "sinc",
  trunc: "trunc",
  round: "round",
  around: "round",
  rint: "round",
  isnan: "isNaN",
  isinf: "isInf",
  isfinite: "isFinite",
  positive: "positive",
  matmul: "matmul",
  outer: "outer",
  vecdot: "vecdot",
  kron: "kron",
  broadcastTo: "broadcastTo",
  broadcastArrays: "broadcastTensors",
  unstack: "unstack",
  rot90: "rot90",
  tril: "tril",
  triu: "triu",
  deg2rad: "radians",
  radians: "radians",
  rad2deg: "degrees",
  degrees: "degrees",
  isneginf: "isNegInf",
  isposinf: "isPosInf",
  moveaxis: "moveAxis",
  swapaxes: "transpose",
  zerosLike: "zerosLike",
  onesLike: "onesLike",
  vander: "vander",
  tensordot: "tensordot",
};
export const functions = Object.fromEntries(
  Object.entries(same).map(([name, ours]) => [
    name,
    (...args) => {
      if (weft[ours] === undefined) throw new Error(`adapter: Weft has no ${ours}`);
      return lift(weft[ours])(...args);
    },
  ]),
);
const reduce =
  (name) =>
  (x, axis = null, options) => {
    const t = tensorOf(x);
    const result = weft[name](t, axesOf(axis), keep(options));
    return wrap(
      ["sum", "prod", "countNonzero"].includes(name)
        ? narrow(result, name === "countNonzero" ? undefined : t.dtype)
        : result,
    );
  };
const cumulative = (name) => (x, axis) => {
  const t = tensorOf(x);
  const source = axis === undefined || t.rank === 0 ? t.reshape([-1]) : t;
  return wrap(narrow(weft[name](source, axis ?? 0), t.dtype));
};
const cumulativeOptions =
  (name) =>
  (x, { axis, includeInitial } = {}) => {
    const t = tensorOf(x);
    if (t.rank > 1 && axis === undefined) throw new Error("axis is required");
    const source = t.rank === 0 ? t.reshape([1]) : t;
    return wrap(narrow(weft[name](source, axis ?? 0, { includeInitial }), t.dtype));
  };
const integerLike = (value) => typeof value === "number" && Number.isInteger(value);

const pads = (x, width) => {
  const { rank } = tensorOf(x);
  if (typeof width === "number") return JsArray.from({ length: rank }, () => [width, width]);
  if (!JsArray.isArray(width)) {
    const given = new Map(
      Object.entries(width).map(([axis, pair]) => [Number(axis) < 0 ? Number(axis) + rank : Number(axis), pair]),
    );
    for (const axis of given.keys()) if (!(axis >= 0 && axis < rank)) throw new Error(`no axis ${axis}`);
    return JsArray.from({ length: rank }, (_, i) => given.get(i) ?? [0, 0]);
  }
  if (width.length === 2 && typeof width[0] === "number") return JsArray.from({ length: rank }, () => width);
  return width.length === 1 ? JsArray.from({ length: rank }, () => width[0]) : width;
};
/** Sizes of the pieces between positions. */
const sizesOf = (positions, size) => {
  const ends = [...positions.map((p) => Math.min(size, p < 0 ? p + size : p)), size];
  return ends.map((end, i) => Math.max(0, end - (i === 0 ? 0 : ends[i - 1])));
};
const split = (x, pieces, axis = 0) => {
  const t = tensorOf(x);
  const size = t.shape.at(axis);
  return weft.split(t, typeof pieces === "number" ? pieces : sizesOf(pieces, size), axis).map(wrap);
};
const arraySplit = (x, pieces, axis = 0) => {
  if (typeof pieces !== "number") return split(x, pieces, axis);
  const size = tensorOf(x).shape.at(axis);
  const [least, extra] = [Math.floor(size / pieces), size % pieces];
  return split(
    x,
    JsArray.from({ length: pieces - 1 }, (_, i) => (i + 1) * least + Math.min(i + 1, extra)),
    axis,
  );
};
const joined = (axis, atLeast) => (xs) =>
  wrap(
    weft.concat(
      xs.map((x) => atLeast(tensorOf(x))),
      axis,
    ),
  );
/** Axes of operands in numbers instead of letters. */
const letters = (list) => list.map((i) => (i === null ? "..." : String.fromCharCode(97 + i))).join("");
const einsum = (...args) => {
  if (typeof args[0] === "string") return wrap(weft.einsum(args[0], ...args.slice(1).map(unwrap)));
  const out = args.length % 2 === 1 ? args.at(-1) : null;
  const operands = args.filter((_, i) => i % 2 === 0 && i + 1 < args.length);
  const axes = args.filter((_, i) => i % 2 === 1).map(letters);
  return wrap(weft.einsum(out === null ? axes.join() : `${axes.join()}->${letters(out)}`, ...operands.map(unwrap)));
};
const arange = (start, stop, step, { dtype, ...options } = {}) => {
  const given = [start, stop, step].filter((value) => value !== undefined);
  return wrap(
    weft.arange(start, stop, step, { dtype: dtype ?? (given.every(integerLike) ? "int32" : "float32"), ...options }),
  );
};
const array = (x, { shape, dtype } = {}) => {
  const t = tensorOf(x, dtype);
  return wrap(shape === undefined ? t : t.reshape(shape));
};
const indices = (dimensions, { dtype = "int32", sparse = false } = {}) => {
  const grids = dimensions.map((n, i) => {
    const alone = weft.arange(0, n, 1, { dtype }).reshape(dimensions.map((_, k) => (k === i ? n : 1)));
    return sparse ? alone : alone.expand(dimensions);
  });
  if (sparse) return grids.map(wrap);
  return wrap(grids.length === 0 ? weft.zeros([0], { dtype }) : weft.stack(grids));
};
const diagIndices = (n, ndim = 2) => {
  if (!Number.isInteger(n) || n < 0 || !Number.isInteger(ndim) || ndim < 0) throw new Error("not a size");
  const index = arange(n);
  return JsArray.from({ length: ndim }, () => index);
};
const matrixOf = (m, v) => weft.matmul(m, v.unsqueeze(-1)).squeeze(-1);
const resultType = (...args) => weft.resultType(...args.map((x) => (typeof x === "string" ? x : unwrap(x))));
const checkTypes = (...args) => {
  if (args.length === 0) throw new TypeError("resultType: no arguments");
  return resultType(...args);
};

export const numpy = {
  ...functions,
  Array,
  array,
  einsum,
  arange,
  indices,
  split,
  arraySplit,
  diagIndices,
  resultType: checkTypes,
  linalg,
  fft,
  float16: "float16",
  float32: "float32",
  float64: "float64",
  int32: "int32",
  uint32: "uint32",
  bool: "bool",
  e: Math.E,
  pi: Math.PI,
  inf: Infinity,
  nan: NaN,
  eulerGamma: 0.5772156649015329,
  promoteTypes: weft.promoteTypes,
  finfo: weft.finfo,
  iinfo: weft.iinfo,
  sum: reduce("sum"),
  prod: reduce("prod"),
  mean: reduce("mean"),
  min: reduce("min"),
  max: reduce("max"),
  all: reduce("all"),
  any: reduce("any"),
  ptp: reduce("ptp"),
  countNonzero: reduce("countNonzero"),
  average: reduce("average"),
  std: reduce("std"),
  var_: reduce("variance"),
  argmax: reduce("argmax"),
  argmin: reduce("argmin"),
  cumsum: cumulative("cumsum"),
  cumprod: cumulative("cumprod"),
  cumulativeSum: cumulativeOptions("cumsum"),
  cumulativeProd: cumulativeOptions("cumprod"),
  zeros: (shape, options) => wrap(weft.zeros(shape, options)),
  ones: (shape, options) => wrap(weft.ones(shape, options)),
  full: (shape, value, { dtype } = {}) =>
    wrap(value instanceof Array ? value.t.expand(shape) : weft.full(shape, value, { dtype })),
  fullLike: (x, value, options) => wrap(weft.fullLike(tensorOf(x), unwrap(value), options)),
  eye: (n, columns, options) => wrap(weft.eye(n, { columns, ...options })),
  identity: (n, options) => wrap(weft.eye(n, options)),
  tri: (n, m, k = 0, { dtype } = {}) => wrap(weft.tri(n, { columns: m, k, dtype })),
  linspace: (start, stop, count = 50, endpoint = true, options) =>
    wrap(weft.linspace(start, stop, count, { endpoint, ...options })),
  logspace: (start, stop, count = 50, endpoint = true, base = 10, options) =>
    wrap(weft.logspace(start, stop, count, { endpoint, base, ...options })),
  geomspace: (start, stop, count = 50, endpoint = true, options) =>
    wrap(weft.geomspace(start, stop, count, { endpoint, ...options })),
  bartlett: (n) => wrap(weft.signal.bartlett(n)),
  blackman: (n) => wrap(weft.signal.blackman(n)),
  hann: (n) => wrap(weft.signal.hann(n)),
  convolve: (x, y, mode) => wrap(weft.signal.convolve(unwrap(x), unwrap(y), { mode })),
  correlate: (x, y, mode) => wrap(weft.signal.correlate(unwrap(x), unwrap(y), { mode })),
  ndim: (x) => tensorOf(x).rank,
  shape: (x) => [...tensorOf(x).shape],
  size: (x, axis) => (axis === undefined ? tensorOf(x).size : tensorOf(x).shape[axis]),
  isscalar: (x) => (x instanceof Array ? x.ndim === 0 : typeof x === "number" || typeof x === "boolean"),
  astype: (x, dtype) => wrap(tensorOf(x, dtype)),
  transpose: (x, order) => wrap(tensorOf(x)).transpose(order),
  permuteDims: (x, order) => wrap(tensorOf(x)).transpose(order),
  matrixTranspose: (x) => {
    if (tensorOf(x).rank < 2) throw new Error("needs a matrix");
    return wrap(weft.transpose(tensorOf(x)));
  },
  reshape: (x, shape) => wrap(tensorOf(x)).reshape(shape),
  ravel: (x) => wrap(tensorOf(x)).reshape(-1),
  squeeze: (x, axis = null) => wrap(weft.squeeze(unwrap(x), axesOf(axis))),
  expandDims: (x, axis) => {
    const t = tensorOf(x);
    const axes = typeof axis === "number" ? [axis] : axis;
    const rank = t.rank + axes.length;
    const at = axes.map((a) => {
      if (a < -rank || a >= rank) throw new Error(`axis ${a} is out of bounds`);
      return a < 0 ? a + rank : a;
    });
    if (new Set(at).size < at.length) throw new Error("an axis twice");
    return wrap(at.sort((a, b) => a - b).reduce((y, a) => y.unsqueeze(a), t));
  },
  pad: (x, width, options) => wrap(weft.pad(unwrap(x), pads(x, width), options)),
  flip: (x, axis = null) => wrap(weft.flip(unwrap(x), axesOf(axis))),
  flipud: (x) => wrap(weft.flip(unwrap(x), 0)),
  fliplr: (x) => wrap(weft.flip(unwrap(x), 1)),
  roll: (x, shift, axis = null) => wrap(weft.roll(unwrap(x), shift, axis)),
  repeat: (x, count, axis) => wrap(weft.repeat(unwrap(x), count, axis)),
  tile: (x, counts) => wrap(weft.tile(unwrap(x), typeof counts === "number" ? [counts] : counts)),
  concatenate: (xs, axis = 0) =>
    wrap(
      weft.concat(
        xs.map((x) => tensorOf(x)),
        axis,
      ),
    ),
  append: (x, y, axis = null) => wrap(weft.concat([tensorOf(x), tensorOf(y)], axis)),
  stack: (xs, axis) =>
    wrap(
      weft.stack(
        xs.map((x) => tensorOf(x)),
        axis,
      ),
    ),
  hstack: (xs) => joined(tensorOf(xs[0]).rank > 1 ? 1 : 0, (t) => (t.rank === 0 ? t.reshape([1]) : t))(xs),
  vstack: joined(0, (t) => (t.rank < 2 ? t.reshape([1, t.size]) : t)),
  dstack: joined(2, (t) => (t.rank < 2 ? t.reshape([1, t.size, 1]) : t.rank === 2 ? t.unsqueeze(2) : t)),
  columnStack: joined(1, (t) => (t.rank < 2 ? t.reshape([t.size, 1]) : t)),
  hsplit: (x, pieces) => split(x, pieces, tensorOf(x).rank > 1 ? 1 : 0),
  vsplit: (x, pieces) => split(x, pieces, 0),
  dsplit: (x, pieces) => split(x, pieces, 2),
  diag: (v, k = 0) =>
    wrap(tensorOf(v).rank === 1 ? weft.diag(unwrap(v), { offset: k }) : weft.diagonal(unwrap(v), { offset: k })),
  diagflat: (v, k = 0) => wrap(weft.diag(tensorOf(v).reshape([-1]), { offset: k })),
  diagonal: (x, ...rest) => wrap(tensorOf(x)).diagonal(...rest),
  diagIndicesFrom: (x) => {
    const { shape, rank } = tensorOf(x);
    if (rank < 2 || shape.some((n) => n !== shape[0])) throw new Error("not square");
    return diagIndices(shape[0], rank);
  },
  trace: (x, offset = 0, a = 0, b = 1) => wrap(tensorOf(x)).diagonal(offset, a, b).sum(-1),
  sort: (x, axis = -1) => wrap(weft.sort(unwrap(x), axis)),
  argsort: (x, axis = -1) => wrap(weft.argsort(unwrap(x), axis)),
  take: (x, at, axis = null) => {
    const t = tensorOf(at).cast("int32");
    return wrap(weft.take(unwrap(x), t, axesOf(axis)));
  },
  takeAlongAxis: (x, at, axis = -1) => wrap(weft.gather(tensorOf(x), tensorOf(at).cast("int32"), axis)),
  select: (conditions, choices, otherwise) =>
    wrap(weft.select(conditions.map(unwrap), choices.map(unwrap), unwrap(otherwise ?? 0))),
  isin: (x, of, options) => wrap(weft.isIn(tensorOf(x), tensorOf(of), options)),
  allclose: (x, y, { rtol, atol, equalNaN } = {}) => {
    const [a, b] = [tensorOf(x), tensorOf(y)];
    if (JSON.stringify(a.shape) !== JSON.stringify(b.shape)) return false;
    return Boolean(weft.allClose(a, b, { rtol: rtol ?? 1e-5, atol: atol ?? 1e-7, equalNaN }).itemSync());
  },
  arrayEqual: (x, y, options) => wrap(weft.arrayEqual(tensorOf(x), tensorOf(y), options)),
  arrayEquiv: (x, y) => {
    try {
      return wrap(weft.all(weft.equal(tensorOf(x), tensorOf(y))));
    } catch {
      return wrap(weft.tensor(false));
    }
  },
  applyAlongAxis: (fn, axis, x, ...rest) => {
    const moved = weft.moveAxis(tensorOf(x), axis, -1);
    const rows = moved.reshape([-1, moved.shape.at(-1)]);
    const out = weft.vmap((row) => unwrap(fn(wrap(row), ...rest)))(rows);
    const shaped = out.reshape([...moved.shape.slice(0, -1), ...out.shape.slice(1)]);
    const at = axis < 0 ? axis + moved.rank : axis;
    const lead = moved.rank - 1;
    const order = JsArray.from({ length: shaped.rank }, (_, i) => i);
    const inner = order.splice(lead);
    order.splice(at, 0, ...inner);
    return wrap(shaped.permute(order));
  },
  applyOverAxes: (fn, x, axes) =>
    axes.reduce(
      (y, axis) => {
        const at = axis < 0 ? axis + y.ndim : axis;
        const next = fn(y, at);
        if (next.ndim === y.ndim) return next;
        if (next.ndim !== y.ndim - 1) throw new Error("the function changed the rank");
        return wrap(next.t.unsqueeze(at));
      },
      wrap(tensorOf(x)),
    ),
  matvec: (m, v) => wrap(matrixOf(tensorOf(m), tensorOf(v))),
  vecmat: (v, m) => wrap(matrixOf(weft.transpose(tensorOf(m)), tensorOf(v))),
  dot: (x, y) => {
    const [a, b] = [tensorOf(x), tensorOf(y)];
    if (a.rank === 0 || b.rank === 0) return wrap(a.mul(b));
    return wrap(weft.tensordot(a, b, [[a.rank - 1], [Math.max(0, b.rank - 2)]]));
  },
  inner: (x, y) => wrap(weft.tensordot(tensorOf(x), tensorOf(y), [[-1], [-1]])),
  vdot: (x, y) => wrap(weft.vecdot(tensorOf(x).reshape([-1]), tensorOf(y).reshape([-1]))),
  cross: (x, y, { axis = -1 } = {}) => wrap(weft.cross(tensorOf(x), tensorOf(y), axis)),
  meshgrid: (xs, options) => weft.meshgrid(xs.map(unwrap), options).map(wrap),
  fromfunction: (fn, shape, { dtype = "float32" } = {}) => {
    if (!shape.every((n) => Number.isInteger(n) && n >= 0)) throw new Error("fromfunction: a shape");
    const call = (...at) => mapTree(fn(...at.map(wrap)), (x) => tensorOf(x));
    const mapped = shape.reduceRight(
      (inner, _, i) => weft.vmap(inner, { inAxes: shape.map((__, k) => (k === i ? 0 : null)) }),
      call,
    );
    return mapTree(mapped(...shape.map((n) => weft.arange(0, n, 1, { dtype }))), wrap);
  },
  clip: (x, low, high) => wrap(weft.clip(unwrap(x), unwrap(low) ?? null, unwrap(high) ?? null)),
  divmod: (x, y) => [functions.floorDivide(x, y), functions.remainder(x, y)],
  modf: (x) => {
    const { fraction, whole } = weft.modf(unwrap(x));
    return [wrap(fraction), wrap(whole)];
  },
  unwrap: (x, discont = null, axis = -1, period = 2 * Math.PI) =>
    wrap(weft.unwrap(tensorOf(x), axis, { period, discontinuity: discont ?? undefined })),
  trapezoid: (y, x = null, { dx, axis } = {}) =>
    wrap(
      weft.trapezoid(tensorOf(y), {
        x: x === null ? undefined : tensorOf(x),
        dx: dx === undefined ? undefined : unwrap(dx),
        axis,
      }),
    ),
  diff: (x, n, axis, { prepend, append } = {}) => {
    const edge = (value) => (value === undefined ? undefined : edgeOf(tensorOf(x), unwrap(value), axis ?? -1));
    return wrap(weft.diff(tensorOf(x), axis, { n, prepend: edge(prepend), append: edge(append) }));
  },
  ediff1d: (x, { toBegin, toEnd } = {}) => {
    const t = tensorOf(x).reshape([-1]);
    const part = (value) => (value === undefined ? [] : [tensorOf(value).reshape([-1]).cast(t.dtype)]);
    return wrap(weft.concat([...part(toBegin), weft.diff(t), ...part(toEnd)]));
  },
  nanToNum: (x, { nan, posinf, neginf } = {}) =>
    wrap(
      weft.nanToNum(tensorOf(x), {
        nan: unwrap(nan),
        posinf: unwrap(posinf) ?? undefined,
        neginf: unwrap(neginf) ?? undefined,
      }),
    ),
  cov: (x, y = null, { rowvar = true } = {}) => wrap(weft.cov(stacked(x, y, rowvar), { rows: rowvar })),
  corrcoef: (x, y = null) => wrap(weft.corrcoef(stacked(x, y, true))),
  polyval: (p, x) => wrap(weft.poly.val(tensorOf(p), unwrap(x))),
  polyadd: (a, b) => wrap(weft.poly.add(tensorOf(a), tensorOf(b))),
  polysub: (a, b) => wrap(weft.poly.sub(tensorOf(a), tensorOf(b))),
  polymul: (a, b, options) => wrap(weft.poly.mul(tensorOf(a), tensorOf(b), options)),
  vander: (x, { n, increasing } = {}) => wrap(weft.vander(tensorOf(x), { columns: n, increasing })),
};

const edgeOf = (t, value, axis) => {
  if (value instanceof weft.Tensor && value.rank > 0) return value;
  const at = axis < 0 ? axis + t.rank : axis;
  return weft.cast(value, t.dtype).expand(t.shape.map((d, i) => (i === at ? 1 : d)));
};
const stacked = (x, y, rows) => {
  const two = (t) => (t.rank < 2 ? t.reshape([1, t.size]) : rows ? t : t.T);
  const both = [x, y].filter((v) => v !== null && v !== undefined).map((v) => two(tensorOf(v)));
  const joint = weft.concat(both, 0);
  return rows ? joint : joint.T;
};
