// Shape rules: shape and dtype of the results of every op. The caller handles broadcasting and promotion (tensor/ does, with errors
// for users); checks here find bugs in Weft.
import {
  type Aval,
  complexOf,
  type DType,
  InternalError,
  isComplex,
  type Node,
  type OpAttrs,
  type OpName,
  outputAvals,
  realOf,
  type Shape,
  ShapeError,
  sameShape,
  showShape,
  withoutAxes,
} from "../graph/index.js";

/** Batch and channels of the result, with its spatial extents. */
function convShape([first, second]: readonly Node[], { kind, size, groups, channelsLast }: OpAttrs["conv"]): Shape {
  const channels = (node: Node): number => node.shape[channelsLast ? node.shape.length - 1 : 1];
  const [lead, inner] =
    kind === "forward"
      ? [first.shape[0], second.shape[0]]
      : kind === "input"
        ? [first.shape[0], channels(second) * groups]
        : [channels(second), channels(first) / groups];
  return channelsLast ? [lead, ...size, inner] : [lead, inner, ...size];
}

type ShapeRule<K extends OpName> = (inputs: readonly Node[], attrs: OpAttrs[K]) => Aval | readonly Aval[];

const same = (inputs: readonly Node[]): Aval => ({ shape: inputs[0].shape, dtype: inputs[0].dtype });
const comparisons = new Set(["eq", "ne", "lt", "le"]);
const tests = new Set(["isnan", "isfinite", "signbit"]);

function expectSame(op: string, a: Shape, b: Shape): void {
  if (!sameShape(a, b)) throw new InternalError(`${op}: shapes ${showShape(a)} and ${showShape(b)} differ`);
}

/** Indices are int32; a longer axis would get wrong ones. */
function expectPlaces(op: string, size: number): void {
  if (size >= 2 ** 31)
    throw new ShapeError(
      `${op}: an axis of ${size} elements has more places than int32, the dtype of indices, can name (2147483647); reshape it into rows`,
    );
}

const matrixParts = (shape: Shape) => ({
  batch: shape.slice(0, -2),
  rows: shape[shape.length - 2],
  columns: shape[shape.length - 1],
});

function unaryDType(fn: string, dtype: DType): DType {
  if (tests.has(fn)) return "bool";
  if (isComplex(dtype) && (fn === "real" || fn === "imag" || fn === "abs")) return realOf(dtype);
  return dtype;
}

export const shapeRules: { [K in OpName]: ShapeRule<K> } = {
  input: (_, { shape, dtype }) => ({ shape, dtype }),
  data: (_, { shape, dtype }) => ({ shape, dtype }),
  const: (_, { dtype }) => ({ shape: [], dtype }),
  iota: (_, { shape, axis, dtype }) => {
    if (dtype === "int32" && !shape.includes(0)) expectPlaces("positions", shape[axis]);
    return { shape, dtype };
  },
  random: ([key], { shape, dtype }) => ({ shape: [...key.shape.slice(0, -1), ...shape], dtype }),
  alias: same,
  barrier: same,
  pin: same,
  unary: ([x], { fn }) => ({ shape: x.shape, dtype: unaryDType(fn, x.dtype) }),
  binary: ([a, b], { fn }) => {
    expectSame(fn, a.shape, b.shape);
    if (a.dtype !== b.dtype) throw new InternalError(`${fn}: dtypes ${a.dtype} and ${b.dtype} differ`);
    const dtype = comparisons.has(fn) ? "bool" : fn === "complex" ? complexOf(a.dtype) : a.dtype;
    return { shape: a.shape, dtype };
  },
  where: ([condition, a, b]) => {
    expectSame("where", condition.shape, a.shape);
    expectSame("where", a.shape, b.shape);
    if (a.dtype !== b.dtype) throw new InternalError(`where: dtypes ${a.dtype} and ${b.dtype} differ`);
    return { shape: a.shape, dtype: a.dtype };
  },
  cast: ([x], { dtype }) => ({ shape: x.shape, dtype }),
  reshape: ([x], { shape }) => ({ shape, dtype: x.dtype }),
  permute: ([x], { axes }) => ({ shape: axes.map((a) => x.shape[a]), dtype: x.dtype }),
  expand: ([x], { shape }) => {
    if (x.shape.length !== shape.length || x.shape.some((d, i) => d !== 1 && d !== shape[i]))
      throw new InternalError(`expand: ${showShape(x.shape)} to ${showShape(shape)}`);
    return { shape, dtype: x.dtype };
  },
  slice: ([x], { start, stop, step }) => ({
    shape: start.map((s, i) => Math.max(0, Math.ceil((stop[i] - s) / step[i]))),
    dtype: x.dtype,
  }),
  pad: ([x], { low, high }) => ({ shape: x.shape.map((d, i) => d + low[i] + high[i]), dtype: x.dtype }),
  flip: same,
  concat: (inputs, { axis }) => ({
    shape: inputs[0].shape.map((d, i) => (i === axis ? inputs.reduce((n, x) => n + x.shape[axis], 0) : d)),
    dtype: inputs[0].dtype,
  }),
  reduce: ([x], { axes }) => ({ shape: withoutAxes(x.shape, axes), dtype: x.dtype }),
  argreduce: ([x], { fn, axis }) => {
    expectPlaces(fn, x.shape[axis]);
    return { shape: withoutAxes(x.shape, [axis]), dtype: "int32" };
  },
  cumsum: ([x], { dtype = x.dtype }) => ({ shape: x.shape, dtype }),
  matmul: ([a, b]) => {
    const left = matrixParts(a.shape);
    const right = matrixParts(b.shape);
    expectSame("matmul batch", left.batch, right.batch);
    if (left.columns !== right.rows) throw new InternalError(`matmul: ${showShape(a.shape)} by ${showShape(b.shape)}`);
    return { shape: [...left.batch, left.rows, right.columns], dtype: a.dtype };
  },
  conv: (inputs, attrs) => ({ shape: convShape(inputs, attrs), dtype: inputs[0].dtype }),
  gather: ([x, indices], { axis, batch }) => {
    expectPlaces("gather", x.shape[axis]);
    return {
      shape: [...x.shape.slice(0, axis), ...indices.shape.slice(batch), ...x.shape.slice(axis + 1)],
      dtype: x.dtype,
    };
  },
  scatterAdd: (inputs, { axis }) => {
    expectPlaces("scatter", inputs[0].shape[axis]);
    return same(inputs);
  },
  scatterReduce: (inputs, { axis }) => {
    expectPlaces("scatter", inputs[0].shape[axis]);
    return same(inputs);
  },
  updateSlice: (inputs, { axis }) => {
    expectPlaces("dynamicUpdateSlice", inputs[0].shape[axis]);
    return same(inputs);
  },
  fft: ([x], { kind, size }) => ({
    shape: kind === "c2c" ? x.shape : [...x.shape.slice(0, -1), kind === "r2c" ? Math.floor(size / 2) + 1 : size],
    dtype: kind === "c2c" ? x.dtype : kind === "r2c" ? complexOf(x.dtype) : realOf(x.dtype),
  }),
  argsort: ([x], { first = 0, count, values }) => {
    expectPlaces("sorting", x.shape[x.shape.length - 1]);
    const shape = [...x.shape.slice(0, -1), count ?? x.shape[x.shape.length - 1] - first];
    return { shape, dtype: values ? x.dtype : "int32" };
  },
  cholesky: same,
  triangularSolve: ([, b]) => ({ shape: b.shape, dtype: b.dtype }),
  solve: ([, b]) => ({ shape: b.shape, dtype: b.dtype }),
  det: ([a]) => ({ shape: a.shape.slice(0, -2), dtype: a.dtype }),
  eigh: ([a]) => [
    { shape: a.shape.slice(0, -1), dtype: realOf(a.dtype) },
    { shape: a.shape, dtype: a.dtype },
  ],
  qr: ([a]) => {
    const { batch, rows, columns } = matrixParts(a.shape);
    const k = Math.min(rows, columns);
    return [
      { shape: [...batch, rows, k], dtype: a.dtype },
      { shape: [...batch, k, columns], dtype: a.dtype },
    ];
  },
  lu: ([a]) => [
    { shape: a.shape, dtype: a.dtype },
    { shape: a.shape.slice(0, -1), dtype: "int32" },
  ],
  eig: ([a]) => [
    { shape: a.shape.slice(0, -1), dtype: isComplex(a.dtype) ? a.dtype : complexOf(a.dtype) },
    { shape: a.shape, dtype: isComplex(a.dtype) ? a.dtype : complexOf(a.dtype) },
  ],
  svd: ([a]) => {
    const { batch, rows, columns } = matrixParts(a.shape);
    const k = Math.min(rows, columns);
    return [
      { shape: [...batch, rows, k], dtype: a.dtype },
      { shape: [...batch, k], dtype: realOf(a.dtype) },
      { shape: [...batch, k, columns], dtype: a.dtype },
    ];
  },
  scan: (_, { body, carries, length }) =>
    body.outputs.map((output, i) => ({
      shape: i < carries ? output.shape : [length, ...output.shape],
      dtype: output.dtype,
    })),
  custom: (_, { body }) => body.outputs.map(({ shape, dtype }) => ({ shape, dtype })),
  collective: (_, { shape, dtype }) => ({ shape, dtype }),
  pick: ([tuple], { index }) => outputAvals(tuple)[index],
};
