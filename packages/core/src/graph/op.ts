// The op union: every primitive operation of the graph language with its attributes. Everything else in Weft is
// composed of these. The rule tables in ops/ are typed over this union, so a new op without a rule does not compile.
import type { DType } from "./dtype.js";
import type { GraphFn, Node } from "./node.js";
import type { Shape } from "./shape.js";

export const unaryFns = [
  "neg",
  "abs",
  "sign",
  "floor",
  "ceil",
  "round",
  "trunc",
  "sqrt",
  "rsqrt",
  "reciprocal",
  "exp",
  "expm1",
  "log",
  "log1p",
  "sin",
  "cos",
  "tan",
  "asin",
  "acos",
  "atan",
  "sinh",
  "cosh",
  "tanh",
  "asinh",
  "acosh",
  "atanh",
  "erf",
  "erfc",
  "not",
  "isnan",
  "isfinite",
  "signbit",
  "real",
  "imag",
  "conj",
] as const;
export type UnaryFn = (typeof unaryFns)[number];

export const binaryFns = [
  "add",
  "sub",
  "mul",
  "div",
  "pow",
  "mod",
  "floordiv",
  "max",
  "min",
  "atan2",
  "hypot",
  "copysign",
  "nextafter",
  "eq",
  "ne",
  "lt",
  "le",
  "and",
  "or",
  "xor",
  "lshift",
  "rshift",
  "complex",
] as const;
export type BinaryFn = (typeof binaryFns)[number];

export const reduceFns = ["sum", "prod", "max", "min"] as const;
export type ReduceFn = (typeof reduceFns)[number];

export const argReduceFns = ["argmax", "argmin"] as const;
type ArgReduceFn = (typeof argReduceFns)[number];

export const randomKinds = ["bits", "uniform", "normal", "dropoutMask"] as const;
type RandomKind = (typeof randomKinds)[number];

export type ExtremeFn = "max" | "min";
/** Functions of scans and scatters beside sums, in the order of native/scan.h. */
export const scanFns = ["prod", "max", "min"] as const;
export type ScanFn = (typeof scanFns)[number];

/** When a loop ends before its last step; see the op scan. */
export const loopStops = ["while", "count"] as const;
export type LoopStop = (typeof loopStops)[number];
/** Length of a loop without a bound on its steps. */
export const unboundedLength = 2 ** 31 - 1;

/** Which of the three tensors of a convolution is computed from the other two. */
export const convKinds = ["forward", "input", "weight"] as const;
export type ConvKind = (typeof convKinds)[number];

/** Kinds of Fourier transforms: complex to complex, real to half spectrum, half spectrum to real. */
export const fftKinds = ["c2c", "r2c", "c2r"] as const;
type FftKind = (typeof fftKinds)[number];

export const collectiveKinds = ["allReduce", "allGather", "reduceScatter", "allToAll", "exchange"] as const;
export type CollectiveKind = (typeof collectiveKinds)[number];

/** A box of a tensor (start <= index < stop along every axis) that is sent to or received from a rank. */
export interface Transfer {
  rank: number;
  start: readonly number[];
  stop: readonly number[];
}

/** Precisions to which operands of a float32 product may be rounded, most exact first. */
export const precisions = ["float32", "tf32", "float16", "bfloat16"] as const;
export type Precision = (typeof precisions)[number];

/** A constant: numbers for real dtypes, a pair for complex ones. */
export type Scalar = number | { re: number; im: number };

/** A user-defined gradient on nodes; null means no gradient. */
export interface CustomRule {
  name: string;
  backward(inputs: Node[], outputs: Node[], cotangents: Node[]): (Node | null)[];
  /** The same function on operands of other sizes, if it supports them: used for one device's part of a larger function. */
  onParts?(inputs: Node[]): Node;
}

export const attentionKinds = ["attention"] as const;
export const attentionMasks = ["none", "bool", "float", "segments"] as const;

/**
 * Marks a custom function that devices may run as one kernel; the body computes the same in ops. Inputs: queries, keys, values
 * [..., length, heads, size] (packed: one tensor [..., length, 3, heads, size]), a mask [..., heads, queries, keys] unless
 * "none" or "segments", segment ids [..., queries + keys] (int32) of queries and keys one after the other with "segments": a query
 * sees keys of its own segment; a key [2] with dropout. Keys and values may have fewer heads, each shared by consecutive heads of the queries. Query i
 * sees key j only if lower <= j - i <= upper, where these are given. Results: like queries; the logarithm of the sum of exponentials per row; with dropout the
 * dropout mask as bits. The gradient takes all of these and the cotangent.
 */
export interface AttentionKernel {
  kind: (typeof attentionKinds)[number];
  gradient: boolean;
  packed: boolean;
  scale: number;
  mask: (typeof attentionMasks)[number];
  /** False: the gradient does not include that of a float mask, which is as large as the scores. */
  maskGradient?: boolean;
  lower?: number;
  upper?: number;
  dropout: number;
  precision?: Precision;
}

export interface OpAttrs {
  /** A placeholder: a parameter of a traced function. */
  input: { shape: Shape; dtype: DType; name: string };
  /** A leaf whose value is a buffer of the runtime (see Node.value). */
  data: { shape: Shape; dtype: DType };
  const: { value: Scalar; dtype: DType };
  /** Index along one axis. */
  iota: { shape: Shape; axis: number; dtype: DType };
  /**
   * Counter-based random numbers. Input: keys int32 [...batch, 2]; output [...batch, ...shape]. A number depends only on its key
   * and position. `within`: `shape` is a window of a larger draw, so that shards agree with the whole.
   */
  random: {
    kind: RandomKind;
    shape: Shape;
    dtype: DType;
    within?: { shape: Shape; start: readonly number[] };
    /** For "dropoutMask": number of dropped values out of 65536. */
    threshold?: number;
  };
  /**
   * Identity op that marks a differentiation variable, so that simplification cannot merge it with another node, or with the name
   * "residual" a value of a loop's step that the reverse pass stores.
   */
  alias: { name: string };
  /**
   * Identity op that simplification does not remove, so that rematerialization (checkpoint) is not merged with the first computation.
   */
  barrier: { tag: number };
  /**
   * Identity op with a sharding constraint: the mesh axes that split each dimension (none: replicated), for its value and its
   * gradient. Ignored on single devices.
   */
  pin: { dims: readonly (readonly string[])[]; backward: readonly (readonly string[])[] };
  unary: { fn: UnaryFn };
  /** Both operands have the output's shape and one dtype (comparisons give bool; "complex" takes two reals). */
  binary: { fn: BinaryFn };
  /** Inputs: condition (bool), value if true, value if false; one shape. */
  where: Record<never, never>;
  cast: { dtype: DType };
  reshape: { shape: Shape };
  permute: { axes: readonly number[] };
  /** Broadcasts dimensions of size 1; the rank stays the same. */
  expand: { shape: Shape };
  /** start <= index < stop by step >= 1, one entry per axis. */
  slice: { start: readonly number[]; stop: readonly number[]; step: readonly number[] };
  /** Pads with zeros (false); amounts >= 0. */
  pad: { low: readonly number[]; high: readonly number[] };
  flip: { axes: readonly number[] };
  concat: { axis: number };
  /** Removes the reduced axes. Axes are ascending. */
  reduce: { fn: ReduceFn; axes: readonly number[] };
  /** Index (int32) of the first largest or smallest element along an axis, which is dropped. */
  argreduce: { fn: ArgReduceFn; axis: number };
  /** `dtype`: that of the sums where numbers are narrower; `fn`: another running function. Only compilers set these. */
  cumsum: { axis: number; reverse: boolean; dtype?: DType; fn?: ScanFn };
  /**
   * [...b, m, k] x [...b, k, n] -> [...b, m, n]; batch dimensions are equal. `precision`: rounding of float32 operands (sums stay
   * in float32); by default the device decides. CPUs do not round operands.
   */
  matmul: { precision?: Precision };
  /**
   * Convolution over one to three spatial axes, as the trilinear form of x, w and y
   * sum of x[n, c, stride * p + dilation * k - low] w[o, c, k] y[n, o, p], where x is zero outside: "forward" computes y from (x, w),
   * "input" x from (y, w), "weight" w from (x, y). Shapes: x [batch, channels, ...], w [out, channels / groups, ...],
   * y [batch, out, ...]; with `channelsLast` the channels of x, w and y come last. `size`: spatial extents of the result.
   */
  conv: {
    kind: ConvKind;
    size: Shape;
    stride: readonly number[];
    dilation: readonly number[];
    low: readonly number[];
    groups: number;
    channelsLast: boolean;
    precision?: Precision;
  };
  /**
   * x: [...batch, ...before, n, ...after], indices (int32): [...batch, ...I] -> [...batch, ...before, ...I, ...after].
   * `axis` is the position of n in x, `batch` the number of shared leading dimensions. Indices are clamped to [0, n).
   */
  gather: { axis: number; batch: number };
  /** Inputs: base (like gather's x), indices, updates (like gather's output). Out-of-range updates are dropped. */
  scatterAdd: { axis: number; batch: number };
  /** The same with another function of an element and its updates than their sum; NaN wins. Numbers of 4 or 8 bytes. */
  scatterReduce: { axis: number; batch: number; fn: ScanFn };
  /**
   * Discrete Fourier transform over the last `axes` axes (one to three), without normalization. The sign of the exponent is negative
   * unless `inverse`; r2c is never and c2r always inverse. r2c gives the first size / 2 + 1 numbers of the last axis of a spectrum
   * whose others are conjugates; c2r takes these, ignores what must be real in them, and gives `size` real numbers. `size`: last axis
   * of the side that is not a half spectrum.
   */
  fft: { kind: FftKind; inverse: boolean; axes: number; size: number };
  /**
   * Inputs: base [...batch, ...before, n, ...after], start (int32) [...batch], update like base with m <= n elements along `axis`.
   * The base with the update written at start, which is clamped to [0, n - m]. In place where the base is not needed afterwards.
   */
  updateSlice: { axis: number; batch: number };
  /** Stable order of the last axis, int32: `count` positions of it from `first` on; all from there, and from 0, if absent. */
  /** `values`: the sorted elements instead of their indices; only schedules of some devices have it. */
  argsort: { descending: boolean; first?: number | undefined; count?: number | undefined; values?: true | undefined };
  /** Lower factor of a Hermitian positive definite matrix (reads its lower triangle); NaN if it is not positive definite. */
  cholesky: Record<never, never>;
  /** a x = b with a triangular; `adjoint` solves a^H x = b. */
  triangularSolve: { lower: boolean; adjoint: boolean; unit: boolean };
  /** a x = b, a: [..., n, n], b: [..., n, k]; NaN if a is singular. */
  solve: Record<never, never>;
  det: Record<never, never>;
  /** Eigenvalues ascending (real) and eigenvectors in columns, normalized so that the largest component is real and positive. */
  eigh: Record<never, never>;
  /** Thin: q [..., m, k], r [..., k, n], k = min(m, n), diagonal of r real and >= 0. */
  qr: Record<never, never>;
  /**
   * LU decomposition with row pivots: the factors in one matrix [..., m, n] (l below the diagonal, whose ones are not stored, u on and
   * above it), and the rows of a in their new order, int32 [..., m].
   */
  lu: Record<never, never>;
  /** Eigenvalues (complex, in no order) and eigenvectors of norm 1 in columns, largest component real and positive, of any square matrix. */
  eig: Record<never, never>;
  /** Thin: u [..., m, k], s [..., k] descending, vh [..., k, n]. */
  svd: Record<never, never>;
  /**
   * A loop. Inputs: consts, initial carries, xs (leading axis = length). Body parameters: consts, carries, x slices;
   * body results: carries, y slices. Outputs: final carries, stacked ys. `reverse` runs from the last index to the first.
   *
   * `stop` makes `length` an upper bound. "while": carry 0 is a predicate (bool), and the loop runs while an element of it is true.
   * "count": const 0 is a number of steps (int32), and the loop runs steps 0 to n - 1 (with `reverse`: n - 1 to 0) for its largest
   * element n. Rows of ys that belong to steps that did not run are zero. If the predicate or the count has dimensions, which
   * vmap creates, each element belongs to one row of the batch: the body leaves a row unchanged in steps after its end, so
   * that devices may end rows separately.
   */
  scan: { body: GraphFn; consts: number; carries: number; length: number; reverse: boolean; stop?: LoopStop };
  /** A function with a user-defined gradient. The body is inlined before compilation unless the device has a kernel for it. */
  custom: { body: GraphFn; rule: CustomRule; kernel?: AttentionKernel };
  /**
   * Communication between the devices of a group. Occurs only in per-device functions, which the partitioner or an SPMD program
   * builds. The members of a group are the ranks in the entry of `groups` that contains `rank`, in that order. Reductions use the
   * same order, so that all members get identical bits. All devices issue their collectives in ascending `sequence` and must not
   * skip any.
   *
   * - allReduce: reduces operands of one shape by `fn`.
   * - allGather: concatenates the operands along `axis`.
   * - reduceScatter: reduces operands of one shape by `fn`; each member gets its part along `axis`.
   * - allToAll: splits the operand along `splitAxis`, sends piece j to member j, and concatenates the received pieces along `axis`.
   * - exchange: sends boxes of the operand as `sends` lists them; the receiver places them as its `receives` lists them, the k-th
   *   send to a rank matching the k-th receive from there (boxes to itself included). Other elements are zero.
   */
  collective: {
    kind: CollectiveKind;
    fn: ReduceFn;
    groups: readonly (readonly number[])[];
    rank: number;
    sequence: number;
    axis: number;
    splitAxis: number;
    /** Extents of the members' parts along `axis` (allGather, reduceScatter, allToAll); zero is allowed. */
    sizes: readonly number[];
    /** Extents of the pieces along `splitAxis` (allToAll). */
    splitSizes: readonly number[];
    sends: readonly Transfer[];
    receives: readonly Transfer[];
    /** The result. */
    shape: Shape;
    dtype: DType;
  };
  /** One output of a node that has several. */
  pick: { index: number };
}
export type OpName = keyof OpAttrs;

/** Default attributes of a collective; each kind overrides those that it uses. */
export const bareCollective = {
  fn: "sum",
  sequence: 0,
  axis: 0,
  splitAxis: 0,
  sizes: [],
  splitSizes: [],
  sends: [],
  receives: [],
} as const satisfies Partial<OpAttrs["collective"]>;
