// Attention of the CPU device without its scores in memory: which custom functions native/attention.c computes, and its calls.
import { decimal, type Strided } from "../../compile/index.js";
import { type KernelWork, opCost } from "../../cost/index.js";
import type { AttentionKernel, DType, Node } from "../../graph/index.js";
import {
  type AttentionPlace,
  attentionOf,
  attentionShape,
  fitsAttention,
  givesMaskGradient,
  mergedBatch,
  operandPlaces,
} from "../attention-operands.js";

/** Element types as native/attention.c numbers them. */
const codes: Partial<Record<DType, number>> = { float32: 0, bfloat16: 4, float16: 5 };
const masks = { none: 0, bool: 1, float: 2, segments: 3 } as const;
/** Tiles of larger heads would not stay in the second-level cache. */
const largestHead = 512;
/** Scores of a head from which tiles are faster than separate operations: calls of the library for float32 products take longer. */
const fewestScores = { bfloat16: 1024, others: 4096 };
/** Fewer queries are products of a few rows, which read keys and values once and whose scores are few. */
const fewestQueries = 8;

const tensorsOf = ({ packed }: AttentionKernel): number => (packed ? 1 : 3);

/** Whether the device has a kernel for a custom function. */
export function hasAttentionKernel(node: Node<"custom">): boolean {
  const { kernel } = node.attrs;
  if (kernel === undefined || kernel.dropout > 0) return false;
  const { batch, heads, queries, keys, size, dtype } = attentionShape(node, kernel);
  if (codes[dtype] === undefined || size > largestHead || size * keys * batch * heads === 0) return false;
  const mask = kernel.mask === "float" ? node.inputs[tensorsOf(kernel)].dtype : "float32";
  if (codes[mask] === undefined || (givesMaskGradient(kernel) && mask !== "float32")) return false;
  const fewest = dtype === "bfloat16" ? fewestScores.bfloat16 : fewestScores.others;
  return queries >= fewestQueries && queries * keys >= fewest;
}

/** Whether the kernel reads an operand in place: rows of BLAS matrices do not overlap. */
export function fitsInPlace(node: Node<"custom">, input: Node, strided: Strided): boolean {
  const kernel = attentionOf(node)!;
  const index = node.inputs.indexOf(input);
  if (!fitsAttention(kernel, index, strided, input.shape)) return false;
  const isTokens = index < tensorsOf(kernel) || input.shape.length >= (kernel.packed ? 4 : 3);
  const hasMask = kernel.mask !== "none" && index === tensorsOf(kernel);
  if (!isTokens || hasMask) return true;
  const { shape } = input;
  const tail = kernel.packed && index === 0 ? 4 : 3;
  return strided.strides[shape.length - tail] >= shape[shape.length - 1];
}

/** What the kernel is called in profiles. */
export const attentionName = (node: Node<"custom">): string =>
  attentionOf(node)!.gradient ? "attentionGradient" : "attention";

/** The products of the kernel as one of the same work. */
export function attentionProduct(node: Node<"custom">): NonNullable<KernelWork["product"]> {
  const kernel = attentionOf(node)!;
  const { batch, heads, queries, keys, dtype } = attentionShape(node, kernel);
  const products = batch * heads;
  const k = Math.max(1, Math.round(opCost(node).flops / (2 * products * queries * keys)));
  return { dtype, batch: products, m: queries, n: keys, k, left: false, right: false, spread: false };
}

/** C expressions for the addresses of operands and results. */
interface Addresses {
  input(i: number): string;
  output(i: number): string;
}

/** The C statement that runs the kernel; see the description in native/attention.c. */
export function attentionStatement(node: Node<"custom">, operands: readonly Strided[], at: Addresses): string {
  const kernel = attentionOf(node)!;
  const { gradient, packed, scale } = kernel;
  const { batch, heads, shared, queries, keys, size, dtype } = attentionShape(node, kernel);
  const first = tensorsOf(kernel);
  const hasMask = kernel.mask !== "none";
  const place = operandPlaces(node, operands);
  const numbers = ({ batch, row, head, offset }: AttentionPlace): number[] => [batch, row, head, offset];
  const maskStrides = [0, 0, 0, 0];
  let maskOffset = "";
  let maskType: DType = "float32";
  if (hasMask) {
    const { strides, offset } = operands[first];
    const { shape, dtype } = node.inputs[first];
    const isDense = kernel.mask !== "segments";
    maskStrides[0] = mergedBatch(shape.slice(0, isDense ? -3 : -1), strides)!;
    if (isDense) maskStrides.splice(1, 3, ...strides.slice(-3));
    const bytes = { none: 1, bool: 1, segments: 4, float: dtype === "float32" ? 4 : 2 }[kernel.mask];
    maskOffset = offset === 0 ? "" : ` + ${offset * bytes}`;
    if (kernel.mask === "float") maskType = dtype;
  }
  const description = [
    ...[Number(gradient), codes[dtype]!, batch, heads, shared, queries, keys, size],
    ...[masks[kernel.mask], codes[maskType]!, kernel.lower ?? -(2 ** 40), kernel.upper ?? 2 ** 40, ...maskStrides],
    ...[place.q, place.k, place.v, place.out, place.g, place.dq, place.dk, place.dv].flatMap(numbers),
  ];
  const tensor = (i: number): string => at.input(packed ? 0 : i);
  const rest = first + Number(hasMask);
  const given = [...[0, 1, 2].map(tensor), hasMask ? `(char*)${at.input(first)}${maskOffset}` : "NULL"];
  const results = gradient
    ? [
        ...[rest, rest + 1, rest + 2].map(at.input),
        ...[0, 1, 2].map((i) => at.output(packed ? 0 : i)),
        givesMaskGradient(kernel) ? at.output(first) : "NULL",
      ]
    : [at.output(0), at.output(1), ...new Array<string>(5).fill("NULL")];
  const pointers = [...given, ...results].map((x) => `(void*)${x}`);
  return `W_TRY(rt->attention((const int64_t[]){${description.join(", ")}}, ${decimal(scale)}, (void* const[]){${pointers.join(", ")}}, threads));`;
}
