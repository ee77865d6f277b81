// The fused attention of a program: which custom functions it takes the place of, the constants that its kernels are
// compiled with, and their launches. See native/attention.cuh for what they compute.
import { decimal, type Strided, whole } from "../../compile/index.js";
import {
  type AttentionKernel,
  bytesOf,
  type DType,
  isHalf,
  type Node,
  numel,
  type Precision,
} from "../../graph/index.js";
import { droppedOf, keptScale } from "../../ops/index.js";
import { seesEverywhere } from "../../transform/index.js";
import {
  type AttentionShape,
  attentionOf,
  attentionShape,
  givesMaskGradient,
  mergedBatch,
  operandPlaces,
} from "../attention-operands.js";
import type { AttentionSupport } from "../contract.js";
import type { AttentionPlaces, CudnnAttentionCall, HeadStrides } from "./cudnn-attention.js";

/** Heads of half types, whose tiles are half as large, may be larger. */
const maxSize = (dtype: DType): number => (isHalf(dtype) ? 256 : 128);
const rowsPerBlock = 64;
const threads = 128;

const paddedSize = (size: number): number => Math.ceil(size / 16) * 16;
const modes: Record<Precision, number> = { float32: 0, tf32: 1, bfloat16: 2, float16: 3 };

function precisionOf({ dtype }: AttentionShape, kernel: AttentionKernel, fallback: Precision): Precision {
  return isHalf(dtype) ? (dtype as Precision) : (kernel.precision ?? fallback);
}

/** Shared memory in which the tiles of a round may lie twice, so that the next ones arrive meanwhile. */
const stagedBytes = 72 << 10;

/** Shared memory of a block: tiles of 64 rows that stay, tiles that change, and numbers and bits per row of the latter. */
function sharedMemory(
  { size, queries, keys }: AttentionShape,
  precision: Precision,
  { gradient, mask }: AttentionKernel,
  copies = true,
): { stages: number; bytes: number } {
  // A byte per tile of the other side.
  const states =
    mask === "segments" || mask === "bool" ? Math.ceil(Math.max(queries, keys) / rowsPerBlock / 16) * 16 : 0;
  const [bytes, pad] = modes[precision] < 2 ? [4, 4] : [2, 8];
  const tile = rowsPerBlock * (paddedSize(size) + pad) * bytes;
  const total = (stages: number): number =>
    (gradient ? 2 : 1) * tile + stages * (2 * tile + rowsPerBlock * 16) + states;
  const stages = copies && total(2) <= stagedBytes ? 2 : 1;
  return { stages, bytes: total(stages) };
}

/** Whether the kernels can take the place of a custom function on a GPU with this much shared memory per block. */
export function canFuse(node: Node<"custom">, gpu: AttentionSupport): boolean {
  const { kernel } = node.attrs;
  if (kernel === undefined) return false;
  const shape = attentionShape(node, kernel);
  const precision = precisionOf(shape, kernel, gpu.precision);
  if (shape.dtype !== "float32" && !isHalf(shape.dtype)) return false;
  if (shape.size > maxSize(shape.dtype) || shape.batch * shape.heads * shape.queries * shape.keys === 0) return false;
  if (precision !== "float32" && gpu.major < 8) return false;
  if (kernel.dropout > 0) {
    const keys = node.inputs[(kernel.packed ? 1 : 3) + (kernel.mask === "none" ? 0 : 1)].shape.slice(0, -1);
    // One key for all, or one for each example of the whole batch.
    if (keys.length > 0 && numel(keys) !== shape.batch) return false;
  }
  return sharedMemory(shape, precision, kernel).bytes <= gpu.sharedBytes;
}

/** How heads with one query each are computed: threads per key, heads per block that share keys, and parts of the keys. */
interface SingleQuery {
  lanes: number;
  together: number;
  parts: number;
  /** Warps of a block on tensor cores; null without them. */
  warps: number | null;
}

/** Threads of a block of single queries without tensor cores (W_SINGLE_THREADS). */
const singleThreads = 256;
/** Keys up to which a block has them all, and from which the heads of a group share a block, so that keys are read once. */
const manyKeys = 1024;
/** Keys of the smallest part, and blocks that share the work of a large GPU evenly, whatever a mask hides from some of them. */
const partKeys = 256;
const evenBlocks = 1056;

function singleQuery({ batch, heads, shared, queries, keys, size, dtype }: AttentionShape, kernel: AttentionKernel) {
  if (queries !== 1 || kernel.gradient || kernel.dropout > 0 || kernel.mask === "segments") return null;
  const group = heads / shared;
  const onTensorCores = isHalf(dtype) && (size === 64 || size === 128);
  const sizes = onTensorCores ? [8, 4, 2] : [4, 2];
  const together = keys <= manyKeys ? 1 : (sizes.find((n) => group % n === 0) ?? 1);
  const blocks = (batch * heads) / together;
  const wanted = Math.max(1, Math.floor(evenBlocks / blocks));
  const parts = keys <= manyKeys ? 1 : Math.min(Math.ceil(keys / partKeys), wanted);
  const lanes = 2 ** Math.ceil(Math.log2(Math.ceil((size * bytesOf(dtype)) / 16)));
  const warps = onTensorCores ? (keys <= manyKeys ? 8 : 4) : null;
  return { lanes, together, parts, warps } satisfies SingleQuery;
}

/** Bytes between the kernels of a call: two numbers per query of a gradient, partial results of single queries. */
export function attentionWorkspace(node: Node): number {
  const kernel = attentionOf(node);
  if (kernel === null) return 0;
  const shape = attentionShape(node, kernel);
  const { batch, heads, queries, size } = shape;
  if (kernel.gradient) return batch * heads * queries * 8;
  const { parts = 1 } = singleQuery(shape, kernel) ?? {};
  return parts > 1 ? batch * heads * parts * (size + 2) * 4 : 0;
}

export interface AttentionCall {
  /** Struct and kernels, with @ for the name of the program's kernel. */
  text: string;
  launches: { suffix: string; blocks: number }[];
  threads: number;
  sharedBytes: number;
  /** Bytes of the gradient of the mask that must be zero before: kernels skip what lies outside a band. */
  clearedBytes: number;
  /** The kernels start with w_begin. */
  begins: boolean;
}

const elementNames: Partial<Record<DType, [string, string]>> = {
  float32: ["float", "w_att_element<float>"],
  bfloat16: ["uint16_t", "w_att_bf16"],
  float16: ["uint16_t", "w_att_f16"],
};

/** The call for cuDNN; null where its kernels do not compute the same. */
export function cudnnCallOf(node: Node, operands: readonly Strided[]): CudnnAttentionCall | null {
  const kernel = attentionOf(node)!;
  const { gradient, scale, lower, upper, mask, dropout } = kernel;
  const shape = attentionShape(node, kernel);
  // cuDNN gives no zeros for queries that see nothing.
  const sees = seesEverywhere(kernel, shape.queries, shape.keys);
  if (dropout > 0 || !isHalf(shape.dtype) || !sees || givesMaskGradient(kernel)) return null;
  const bias = mask === "float" ? biasOf(node, operands, shape) : null;
  if (mask !== "none" && bias === null) return null;
  // Its gradients are wrong where all queries add the same numbers.
  if (gradient && bias && bias.dims[2] < shape.queries) return null;
  const places = Object.entries(operandPlaces(node, operands)).filter(
    ([name]) => gradient || ["q", "k", "v", "out"].includes(name),
  );
  if (places.some(([, place]) => place.offset % 8 !== 0)) return null;
  const strides = places.map(([name, { batch, head, row }]) => [name, { batch, head, row }]);
  const call = { kernel: { gradient, scale, lower, upper }, ...shape, strides: Object.fromEntries(strides) };
  return bias === null ? oneQuery(call) : { ...call, bias };
}

/** An added mask as cuDNN takes it: rows of keys in memory, aligned. */
function biasOf(node: Node, operands: readonly Strided[], shape: AttentionShape): CudnnAttentionCall["bias"] | null {
  const at = attentionOf(node)!.packed ? 1 : 3;
  const { strides, offset } = operands[at];
  const batch = mergedBatch(node.inputs[at].shape.slice(0, -3), strides);
  const [head, row, key] = strides.slice(-3);
  const lead = [batch ?? -1, head, row];
  const { dtype } = node.inputs[at];
  const aligned = 16 / bytesOf(dtype);
  if (key !== 1 || [offset, ...lead].some((n) => n < 0 || n % aligned !== 0)) return null;
  const dims = [shape.batch, shape.heads, shape.queries].map((n, i) => (lead[i] === 0 ? 1 : n));
  // Strides of axes of one element are those of a tensor in order.
  const packed = [dims[1] * dims[2] * shape.keys, dims[2] * shape.keys, shape.keys];
  return { dtype, dims: [...dims, shape.keys], strides: [...lead.map((n, i) => (n === 0 ? packed[i] : n)), 1] };
}

/** Heads that share keys, with one query each, are the queries of one head: keys and values are read once for all of them. */
function oneQuery(call: CudnnAttentionCall): CudnnAttentionCall {
  const { kernel, heads, shared, queries, keys, strides } = call;
  const seesAll = (kernel.upper ?? keys) >= keys - 1 && (kernel.lower ?? 0) <= 0;
  if (queries !== 1 || heads === shared || kernel.gradient || !seesAll) return call;
  const group = heads / shared;
  const fold = (s: HeadStrides): HeadStrides => ({ batch: s.batch, head: s.head * group, row: s.head });
  return {
    ...call,
    kernel: { gradient: false, scale: kernel.scale },
    heads: shared,
    queries: group,
    strides: { ...strides, q: fold(strides.q), out: fold(strides.out) },
  };
}

/** The constants and kernels of a call; operands as they lie in memory. */
export function attentionCall(node: Node, operands: readonly Strided[], fallback: Precision): AttentionCall {
  const kernel = attentionOf(node)!;
  const shape = attentionShape(node, kernel);
  const precision = precisionOf(shape, kernel, fallback);
  const mode = modes[precision];
  const [element, access] = elementNames[shape.dtype]!;
  const tensors = kernel.packed ? 1 : 3;
  const hasMask = kernel.mask !== "none";
  const [addedElement, addedAccess] = elementNames[kernel.mask === "float" ? node.inputs[tensors].dtype : "float32"]!;
  const extras = tensors + (hasMask ? 1 : 0) + (kernel.dropout > 0 ? 1 : 0);
  const { q, k, v, out, g, dq, dk, dv } = operandPlaces(node, operands);
  const mask = hasMask ? operands[tensors] : null;
  const maskShape = hasMask ? node.inputs[tensors].shape : [];
  const isDense = mask !== null && kernel.mask !== "segments";
  const maskBatch = mask === null ? 0 : mergedBatch(maskShape.slice(0, isDense ? -3 : -1), mask.strides)!;
  const [mh, ms, mt] = isDense ? mask.strides.slice(-3) : [0, 0, 0];
  const wide = element === "float" ? 4 : 8;
  const read = kernel.gradient ? [q, k, v, g] : [q, k, v];
  const divides = (by: number): boolean =>
    shape.size % by === 0 && read.every((p) => [p.batch, p.row, p.head, p.offset].every((s) => s % by === 0));
  const vector = divides(wide) ? wide : 1;
  const copies = vector > 1 && ((mode === 0 && element === "float") || (mode >= 2 && element !== "float"));
  // Numbers that are rounded on their way into shared memory do not travel by themselves.
  const memory = sharedMemory(shape, precision, kernel, copies);
  const written = kernel.gradient ? [dq, dk, dv] : [out];
  const pairs =
    shape.size % 2 === 0 && written.every((p) => [p.batch, p.row, p.head, p.offset].every((s) => s % 2 === 0));
  const words = Math.ceil(shape.keys / 32);
  const integers: Record<string, number> = {
    MODE: mode,
    S: shape.queries,
    T: shape.keys,
    H: shape.heads,
    D: shape.size,
    DP: paddedSize(shape.size),
    LD: paddedSize(shape.size) + (mode < 2 ? 4 : 8),
    VECTOR: vector,
    WORDS: words,
    STAGES: memory.stages,
    MASK: { none: 0, bool: 1, float: 2, segments: 3 }[kernel.mask],
    THRESHOLD: droppedOf(kernel.dropout),
    GROUP: shape.heads / shape.shared,
    // Beyond all distances, and far from overflow.
    LOWER: kernel.lower ?? -(2 ** 30),
    UPPER: kernel.upper ?? 2 ** 30,
  };
  const single = vector > 1 ? singleQuery(shape, kernel) : null;
  if (single !== null) {
    const { lanes, together, parts, warps } = single;
    Object.assign(integers, { LANES: lanes, TOGETHER: together, PARTS: parts, WARPS: warps ?? singleThreads / 32 });
  }
  const dropKey = kernel.dropout > 0 ? extras - 1 : null;
  const keyLead = dropKey === null ? [] : node.inputs[dropKey].shape.slice(0, -1);
  const keyBatch = dropKey === null ? 0 : mergedBatch(keyLead, operands[dropKey].strides.slice(0, -1))!;
  const flags: Record<string, boolean> = {
    DROP: kernel.dropout > 0,
    BAND: kernel.lower !== undefined || kernel.upper !== undefined,
    // One key per example: elements are numbered within their example.
    OWN: keyLead.length > 0,
    COPY: copies,
    // The gradient of an added mask is stored, as large as the scores.
    BIAS: givesMaskGradient(kernel),
    PAIRS: pairs,
    POSITIVE: kernel.scale > 0,
    ROWS16: vector > 1 && [out.batch, out.row, out.head, out.offset].every((n) => n % wide === 0),
  };
  const strides: Record<string, number> = { MB: maskBatch, MH: mh, MS: ms, MT: mt, KEY: keyBatch };
  for (const [name, p] of Object.entries({ Q: q, K: k, V: v, O: out, G: g, DQ: dq, DK: dk, DV: dv })) {
    strides[`${name}B`] = p.batch;
    strides[`${name}S`] = p.row;
    strides[`${name}H`] = p.head;
  }
  const float = (x: number): string => decimal(Math.fround(x));
  const config = [
    "struct @_config {",
    `  typedef ${element} E; typedef ${mode < 2 ? "float" : "uint16_t"} Shared; typedef ${access} Element;`,
    `  typedef ${addedElement} A; typedef ${addedAccess} Added;`,
    // Elements are numbered in 32 bits where that is enough.
    `  typedef ${shape.batch * shape.heads * shape.queries * shape.keys < 2 ** 32 ? "uint32_t" : "uint64_t"} Index;`,
    ...Object.entries(integers).map(([name, value]) => `  static const int ${name} = ${whole(value)};`),
    ...Object.entries(flags).map(([name, value]) => `  static const bool ${name} = ${Boolean(value)};`),
    ...Object.entries(strides).map(([name, value]) => `  static const long long ${name} = ${whole(value)};`),
    `  static __device__ __forceinline__ float SCALE() { return ${float(kernel.scale)}f; }`,
    `  static __device__ __forceinline__ float KEEP() { return ${float(keptScale(kernel.dropout))}f; }`,
    "};",
  ];
  // Small heads leave room for four blocks on a multiprocessor, if they use at most 128 registers per thread.
  const bounds = shape.size <= 32 ? `${threads}, 4` : threads;
  const entry = (suffix: string, fn: string, count: number): string =>
    `extern "C" __global__ void __launch_bounds__(${bounds}) @${suffix}(const Args<${count}> args) { extern __shared__ __align__(16) char memory[]; ${fn}<@_config>(args.p, memory); }`;
  if (single !== null) return singleCall(config, shape, single);
  const blocksOf = (length: number, heads: number): number => shape.batch * heads * Math.ceil(length / rowsPerBlock);
  const text = kernel.gradient
    ? [entry("", "w_attention_query_gradient", 13), entry("_k", "w_attention_key_gradient", 13)]
    : [entry("", "w_attention_forward", 9)];
  return {
    text: [...config, ...text].join("\n"),
    launches: kernel.gradient
      ? [
          { suffix: "", blocks: blocksOf(shape.queries, shape.heads) },
          { suffix: "_k", blocks: blocksOf(shape.keys, shape.shared) },
        ]
      : [{ suffix: "", blocks: blocksOf(shape.queries, shape.heads) }],
    threads,
    sharedBytes: memory.bytes,
    clearedBytes:
      flags["BIAS"] && flags["BAND"] ? shape.batch * shape.heads * shape.queries * shape.keys * bytesOf("float32") : 0,
    begins: false,
  };
}

/** Kernels of heads with one query each; they have shared memory of fixed sizes. */
function singleCall(
  config: readonly string[],
  { batch, heads }: AttentionShape,
  { together, parts, warps }: SingleQuery,
) {
  const threads = warps === null ? singleThreads : 32 * warps;
  const entry = (suffix: string, fn: string): string =>
    `extern "C" __global__ void __launch_bounds__(${threads}) @${suffix}(const Args<9> args) { w_begin(); ${fn}<@_config>(args.p, 0); }`;
  const joins = parts > 1;
  return {
    text: [
      ...config,
      entry("", warps === null ? "w_attention_single" : "w_attention_single_group"),
      ...(joins ? [entry("_j", "w_attention_single_join")] : []),
    ].join("\n"),
    launches: [
      { suffix: "", blocks: ((batch * heads) / together) * parts },
      ...(joins ? [{ suffix: "_j", blocks: batch * heads }] : []),
    ],
    threads,
    sharedBytes: 0,
    clearedBytes: 0,
    begins: true,
  } satisfies AttentionCall;
}

/** Element offsets of the places in `buffers`, as attentionArguments takes them. */
export const attentionOffsets = (node: Node, operands: readonly Strided[]): number[] => {
  const { q, k, v, out, g, dq, dk, dv } = operandPlaces(node, operands);
  return [q, k, v, out, g, dq, dk, dv].map((p) => p.offset);
};

/** The addresses that the kernels take, from those of operands, results and workspace (all without offsets). */
export function attentionArguments(
  node: Node,
  offsets: readonly number[],
  operands: readonly { address: number; offset: number }[],
  results: readonly number[],
  workspace: number,
): number[] {
  const kernel = attentionOf(node)!;
  const size = node.inputs[0].dtype === "float32" ? 4 : 2;
  const [q, k, v, , g, dq, dk, dv] = offsets;
  const tensors = kernel.packed ? 1 : 3;
  const at = (i: number, offset: number): number => operands[kernel.packed ? 0 : i].address + offset * size;
  const hasMask = kernel.mask !== "none";
  const mask = hasMask ? operands[tensors].address + operands[tensors].offset * bytesOf(node.inputs[tensors].dtype) : 0;
  const extras = tensors + (hasMask ? 1 : 0);
  const keyed = kernel.dropout > 0;
  const key = keyed ? operands[extras].address + operands[extras].offset * 4 : 0;
  const inputs = [at(0, q), at(1, k), at(2, v), mask];
  if (!kernel.gradient) return [...inputs, key, results[0], results[1], keyed ? results[2] : 0, workspace];
  const saved = extras + (keyed ? 1 : 0);
  const plain = (i: number): number => operands[i].address + operands[i].offset * (i === saved ? size : 4);
  const cotangent = operands[operands.length - 1];
  const to = (i: number, offset: number): number => results[kernel.packed ? 0 : i] + offset * size;
  return [
    ...inputs,
    plain(saved),
    plain(saved + 1),
    keyed ? plain(saved + 2) : 0,
    cotangent.address + g * size,
    to(0, dq),
    to(1, dk),
    to(2, dv),
    workspace,
    givesMaskGradient(kernel) ? results[tensors] : 0,
  ];
}

/** The same addresses by name, for cuDNN. */
export function attentionPlaces(node: Node, args: readonly number[]): AttentionPlaces {
  const [q, k, v, bias] = args;
  if (!attentionOf(node)!.gradient) return { q, k, v, bias, out: args[5], logSums: args[6] };
  return { q, k, v, bias, out: args[4], logSums: args[5], g: args[7], dq: args[8], dk: args[9], dv: args[10] };
}
