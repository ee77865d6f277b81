// Attention by cuDNN's fused kernels: the operation graphs of the forward and backward pass, in the form that cuDNN recognizes.
// Used on half types without dropout where the mask is a band, added numbers or none; everything else runs the kernels of
// native/attention.ts.
import { type AttentionKernel, type DType, isHalf } from "../../graph/index.js";
import type { AttentionShape } from "../attention-operands.js";
import type { CudaContext } from "./context.js";
import { CudnnError, CudnnGraph, type CudnnTensor, type CudnnType, cudnnOf } from "./cudnn.js";

/** Where element [b, h, row, 0] of an operand lies: strides in elements. */
export interface HeadStrides {
  batch: number;
  head: number;
  row: number;
}

/** A call: shapes and strides of everything in memory. */
export interface CudnnAttentionCall extends AttentionShape {
  kernel: Pick<AttentionKernel, "gradient" | "scale" | "lower" | "upper">;
  /** Numbers added to the scores: sizes and strides [batch, heads, queries, keys], with sizes of 1 where all see the same. */
  bias?: { dtype: DType; dims: number[]; strides: number[] };
  strides: Record<"q" | "k" | "v" | "out", HeadStrides> & Partial<Record<"g" | "dq" | "dk" | "dv", HeadStrides>>;
}

/** Addresses of a call; gradients are given for backward passes. */
export type AttentionPlaces = Record<"q" | "k" | "v" | "out" | "logSums", number> &
  Partial<Record<"g" | "dq" | "dk" | "dv" | "bias", number>>;

/** A plan that was found for a call. */
export interface CudnnAttention {
  /** Scratch memory in bytes, of cuDNN and of sums that it accumulates in memory. */
  readonly workspaceBytes: number;
  run(places: AttentionPlaces, workspace: number): void;
}

const types: Partial<Record<DType, CudnnType>> = { bfloat16: "bfloat16", float16: "half", float32: "float" };

/** The largest head that cuDNN's kernels take; sizes are multiples of 8, so that rows are aligned. */
const maxSize = 256;
/** First architecture with these kernels. */
const minMajor = 8;

class Builder {
  readonly graph: CudnnGraph;
  readonly type: CudnnType;

  constructor(
    readonly call: CudnnAttentionCall,
    context: CudaContext,
  ) {
    this.graph = new CudnnGraph(context, cudnnOf(context)!);
    this.type = types[call.dtype]!;
    this.bias = call.bias === undefined ? null : this.graph.tensor({ ...call.bias, type: types[call.bias.dtype]! });
  }

  /** [batch, heads, length, size] in memory. */
  rows(strides: HeadStrides, heads: number, length: number): CudnnTensor {
    return this.graph.tensor({
      dims: [this.call.batch, heads, length, this.call.size],
      strides: [strides.batch, strides.head, strides.row, 1],
      type: this.type,
    });
  }

  /** The same, with the last axes exchanged. */
  columns(strides: HeadStrides, heads: number, length: number): CudnnTensor {
    return this.graph.tensor({
      dims: [this.call.batch, heads, this.call.size, length],
      strides: [strides.batch, strides.head, 1, strides.row],
      type: this.type,
    });
  }

  /** One number per query, in memory or not. */
  perQuery(inMemory: boolean): CudnnTensor {
    const { batch, heads, queries } = this.call;
    const options = {
      dims: [batch, heads, queries, 1],
      strides: [heads * queries, queries, 1, 1],
      type: "float" as const,
    };
    return inMemory ? this.graph.tensor(options) : this.graph.virtual(options);
  }

  scores(): CudnnTensor {
    const { batch, heads, queries, keys } = this.call;
    return this.graph.virtual({
      dims: [batch, heads, queries, keys],
      strides: [heads * queries * keys, queries * keys, keys, 1],
      type: "float",
    });
  }

  /** What is added to the scores, in memory. */
  readonly bias: CudnnTensor | null;

  /** Products of queries and keys, scaled, with the bias. */
  biased(product: CudnnTensor): CudnnTensor {
    const scaled = this.graph.pointwise("mul", [product, this.graph.scalar(this.call.kernel.scale)]);
    return this.bias === null ? scaled : this.graph.pointwise("add", [scaled, this.bias]);
  }

  /** The bias among the tensors of a run. */
  biasAt({ bias }: AttentionPlaces): [CudnnTensor, number][] {
    return this.bias === null ? [] : [[this.bias, bias!]];
  }

  /** Scores outside the band become -infinity. cuDNN skips tiles if the comparisons have exactly this form. */
  banded(scores: CudnnTensor): CudnnTensor {
    const { graph, call } = this;
    const { lower, upper } = call.kernel;
    let masked = scores;
    const index = (axis: number): CudnnTensor => graph.pointwise("index", [masked], { axis, type: "int32" });
    const select = (open: CudnnTensor): CudnnTensor =>
      graph.pointwise("select", [masked, graph.scalar(Number.NEGATIVE_INFINITY), open]);
    const whole = { type: "int32", precision: "int32" } as const;
    const compared = { type: "bool", precision: "bool" } as const;
    if (upper !== undefined) {
      let row = index(2);
      const column = index(3);
      if (upper !== 0 && upper === call.keys - call.queries) {
        row = graph.pointwise("add", [row, graph.scalar(call.keys, "int32")], whole);
        row = graph.pointwise("sub", [row, graph.scalar(call.queries, "int32")], whole);
      } else if (upper !== 0) row = graph.pointwise("add", [row, graph.scalar(upper, "int32")], whole);
      masked = select(graph.pointwise("greaterEqual", [row, column], compared));
    }
    if (lower !== undefined) {
      const row = index(2);
      const column = graph.pointwise("add", [index(3), graph.scalar(1 - lower)], { type: "float" });
      masked = select(graph.pointwise("greater", [column, row], compared));
    }
    return masked;
  }
}

function buildForward(context: CudaContext, call: CudnnAttentionCall): CudnnAttention {
  const builder = new Builder(call, context);
  const { graph, type } = builder;
  const { strides, heads, shared, queries, keys } = call;
  const q = builder.rows(strides.q, heads, queries);
  const k = builder.columns(strides.k, shared, keys);
  const product = graph.matmul(q, k, builder.scores());
  const masked = builder.banded(builder.biased(product));
  const top = graph.reduce("max", masked, builder.perQuery(false));
  const exp = graph.pointwise("exp", [graph.pointwise("sub", [masked, top])]);
  const total = graph.reduce("add", exp, builder.perQuery(false));
  const log = graph.pointwise("log", [total]);
  const logSums = builder.perQuery(true);
  graph.pointwise("add", [top, log], { out: logSums });
  const weights = graph.pointwise("div", [exp, total], { type });
  const v = builder.rows(strides.v, shared, keys);
  const out = builder.rows(strides.out, heads, queries);
  graph.matmul(weights, v, out);
  const plan = graph.build();
  return {
    workspaceBytes: plan.workspaceBytes,
    run: (at, workspace) =>
      plan.run(
        [[q, at.q], [k, at.k], [v, at.v], [out, at.out], [logSums, at.logSums], ...builder.biasAt(at)],
        workspace,
      ),
  };
}

const aligned = (bytes: number): number => Math.ceil(bytes / 256) * 256;

function buildBackward(context: CudaContext, call: CudnnAttentionCall): CudnnAttention {
  const builder = new Builder(call, context);
  const { graph, type } = builder;
  const { strides, batch, heads, shared, queries, keys, size } = call;
  const q = builder.rows(strides.q, heads, queries);
  const k = builder.columns(strides.k, shared, keys);
  const v = builder.columns(strides.v, shared, keys);
  const out = builder.rows(strides.out, heads, queries);
  const g = builder.rows(strides.g!, heads, queries);
  const logSums = builder.perQuery(true);
  const scale = graph.scalar(call.kernel.scale);
  // delta = sum(g out), one number per query, goes through memory.
  const touched = graph.virtual({
    dims: [batch, heads, queries, size],
    strides: [heads * queries * size, queries * size, size, 1],
    type: "float",
  });
  graph.pointwise("mul", [g, out], { out: touched });
  const sums = graph.reduce("add", touched, builder.perQuery(false));
  const delta = builder.perQuery(true);
  graph.pointwise("mul", [sums, graph.scalar(1)], { out: delta });
  // weights = exp(scores - log-sums); dv = weights^T g.
  const product = graph.matmul(q, k, builder.scores());
  const shifted = graph.pointwise("sub", [builder.biased(product), logSums]);
  const weights = graph.pointwise("exp", [builder.banded(shifted)]);
  const turned = {
    dims: [batch, heads, keys, queries],
    strides: [heads * queries * keys, queries * keys, 1, keys],
    type,
  };
  const ofKeys = (a: CudnnTensor, b: CudnnTensor, to: CudnnTensor): void => {
    if (heads === shared) {
      graph.matmul(a, b, to);
      return;
    }
    // Heads that share keys are summed.
    const each = graph.virtual({
      dims: [batch, heads, keys, size],
      strides: [heads * keys * size, keys * size, size, 1],
      type,
    });
    graph.reduce("add", graph.matmul(a, b, each), to);
  };
  const dv = builder.rows(strides.dv!, shared, keys);
  ofKeys(graph.reshape(weights, turned), g, dv);
  // ds = weights (g v^T - delta) scale; dk = ds^T q; dq = ds k.
  const dp = graph.pointwise("sub", [graph.matmul(g, v, builder.scores()), delta]);
  const ds = graph.pointwise("mul", [graph.pointwise("mul", [dp, weights]), scale]);
  const dk = builder.rows(strides.dk!, shared, keys);
  ofKeys(graph.reshape(ds, turned), q, dk);
  const keysAgain = graph.reshape(k, {
    dims: [batch, shared, keys, size],
    strides: [strides.k.batch, strides.k.head, strides.k.row, 1],
    type: "float",
  });
  // Blocks of keys add to the gradient of the queries in memory, in float32.
  const sum = graph.tensor({
    dims: [batch, heads, queries, size],
    strides: [heads * queries * size, queries * size, size, 1],
    type: "float",
  });
  graph.matmul(ds, keysAgain, sum);
  const dq = builder.rows(strides.dq!, heads, queries);
  graph.pointwise("identity", [sum], { out: dq });
  const plan = graph.build();
  const deltaBytes = aligned(batch * heads * queries * 4);
  const sumBytes = aligned(batch * heads * queries * size * 4);
  return {
    workspaceBytes: deltaBytes + sumBytes + plan.workspaceBytes,
    run: (at, workspace) =>
      plan.run(
        [
          [q, at.q],
          [k, at.k],
          [v, at.v],
          [out, at.out],
          [logSums, at.logSums],
          [g, at.g!],
          [dq, at.dq!],
          [dk, at.dk!],
          [dv, at.dv!],
          [delta, workspace],
          [sum, workspace + deltaBytes],
          ...builder.biasAt(at),
        ],
        workspace + deltaBytes + sumBytes,
      ),
  };
}

const known = new WeakMap<CudaContext, Map<string, CudnnAttention | null>>();

/** cuDNN's plan for a call, equal calls sharing one; null where cuDNN is missing or has no engine for it. */
export function cudnnAttention(context: CudaContext, call: CudnnAttentionCall): CudnnAttention | null {
  const { dtype, size, queries, keys, strides } = call;
  const major = Math.floor(Number(context.architecture.slice(3)) / 10);
  if (!isHalf(dtype) || size % 8 !== 0 || size > maxSize || major < minMajor || cudnnOf(context) === null) return null;
  if (queries < 2 || keys < 2) return null;
  const rows = Object.values(strides);
  if (rows.some((s) => [s.batch, s.head, s.row].some((n) => n % 8 !== 0))) return null;
  let plans = known.get(context);
  if (plans === undefined) {
    plans = new Map();
    known.set(context, plans);
  }
  const key = JSON.stringify(call);
  const found = plans.get(key);
  if (found !== undefined) return found;
  let made: CudnnAttention | null = null;
  try {
    made = call.kernel.gradient ? buildBackward(context, call) : buildForward(context, call);
  } catch (error) {
    if (!(error instanceof CudnnError)) throw error;
  }
  plans.set(key, made);
  return made;
}
