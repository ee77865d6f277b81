// How many threads reduce a row on a GPU: one where rows are short and many, part of a warp, a warp, or a block; for products of a matrix
// with a vector, as many as have the whole row on its way at once.
import { bytesOf, type DType, isComplex, numel } from "../graph/index.js";
import { vectorBase } from "./body.js";
import { loadsUnder, mentionsAny } from "./emit-common.js";
import type { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel } from "./kernel.js";

/** Threads of a block that holds several rows. */
const blockSize = 256;

/** Threads per row: the next power of two up to a warp, then a warp, then a block. */
function groupSize(length: number): number {
  if (length <= 32) return Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(1, length))));
  if (length <= 1024) return 32;
  return length <= 8192 ? 256 : 1024;
}

/** Length of rows that one thread sums, in elements and in bytes. */
const maxLoneRow = { elements: 256, bytes: 256 };
/** Number of rows from which one thread for each fills a GPU. */
const enoughRows = 1 << 16;

/**
 * Whether one thread reduces a row, as in products and distances: the operands are small and read many times, so that they come from
 * caches, and neighboring rows read neighbors, the same elements or short rows.
 */
function isLoneRow({ kind, outer, inner, stores, reductions, columnSums, buffers }: LoopKernel): boolean {
  if (kind !== "rows" || inner.length !== 1 || outer.length === 0 || reductions.length === 0) return false;
  const [{ name, size }] = inner;
  const [rows, beside] = [numel(outer.map((v) => v.size)), outer[outer.length - 1].name];
  if (size > maxLoneRow.elements || rows < enoughRows || columnSums.length > 0) return false;
  if (stores.some(({ address }) => address.mentions(name))) return false;
  const loads = loadsUnder(reductions.map((r) => r.argument));
  if (loads.some(({ dynamic }) => dynamic.length > 0)) return false;
  // Windows that overlap: neighboring rows begin at neighboring elements, so that a warp reads each element once.
  const slides = loads.every(({ address }) => address.stride(beside) === 1 && address.stride(name) === 1);
  if (slides && loads.length > 0) return true;
  const read = [...new Set(loads.map(({ buffer }) => buffer))].reduce((sum, i) => sum + numel(buffers[i].shape), 0);
  return (
    reductions.length === 1 &&
    read <= (rows * size) / 16 &&
    loads.every(({ address, dtype }) => {
      const stride = address.stride(beside);
      return stride === 0 || stride === 1 || size * bytesOf(dtype) <= maxLoneRow.bytes;
    })
  );
}

/** Length of rows that are summed by as few warps as have all of them on their way at once, and the number of such rows that fills a GPU. */
const productRow = { shortest: 1024, longest: 1 << 14, enough: 2048 };
/** Vectors of a long row that a thread has on their way at once. */
export const vectorsAhead = 8;

function usesReduction(root: KExpr): boolean {
  const seen = new Set([root]);
  for (const e of seen) {
    if (e.kind === "reduced") return true;
    if ("args" in e) for (const arg of e.args) seen.add(arg);
  }
  return false;
}

/** Whether a long row belongs to the product of a matrix and a vector: one pass over operands of which one is shared by all rows. */
export function isProductRow({ kind, outer, inner, stores, reductions, columnSums }: LoopKernel): boolean {
  if (kind !== "rows" || inner.length !== 1 || reductions.length === 0 || columnSums.length > 0) return false;
  const [{ name, size }] = inner;
  const { shortest, longest, enough } = productRow;
  if (size <= shortest || size > longest || numel(outer.map((v) => v.size)) < enough) return false;
  if (stores.some(({ address }) => address.mentions(name))) return false;
  const rows = new Set(outer.map((v) => v.name));
  return reductions.every(
    ({ argument }) =>
      !usesReduction(argument) && loadsUnder([argument]).some(({ address }) => !mentionsAny(address, rows)),
  );
}

/** Warps per row such that no thread takes a second turn. */
function productThreads({ inner: [{ size }], reductions }: LoopKernel): number {
  const bytes = Math.max(...loadsUnder(reductions.map((r) => r.argument)).map(({ dtype }) => bytesOf(dtype)));
  return Math.min(blockSize, 2 ** Math.ceil(Math.log2(Math.max(32, (size * bytes) / (16 * vectorsAhead)))));
}

/** Threads per row of a kernel. */
export function rowThreads(kernel: LoopKernel): number {
  if (isLoneRow(kernel)) return 1;
  return isProductRow(kernel) ? productThreads(kernel) : groupSize(numel(kernel.inner.map((v) => v.size)));
}

/** Loads of the rows of a matrix by whole vectors: expression, buffer, and the address of a vector by its first element. */
export function matrixLoads(
  { reductions, inner: [{ name }], outer }: LoopKernel,
  width: number,
): { id: number; buffer: number; base: Ix; dtype: DType }[] {
  const rows = new Set(outer.map((v) => v.name));
  return loadsUnder(reductions.map((r) => r.argument)).flatMap(({ id, buffer, address, dynamic, guard, dtype }) => {
    const base = vectorBase(address, { variable: name, width });
    if (base === null || !mentionsAny(address, rows) || dynamic.length > 0 || guard !== null) return [];
    return isComplex(dtype) ? [] : [{ id, buffer, base, dtype }];
  });
}

/** Bytes of a line of memory, which a thread asks for at once. */
const lineBytes = 128;

/** Requests for the rows of the matrix of a product, which come before the vector is known. */
export function prefetches(
  { reductions, inner: [{ name }], outer }: LoopKernel,
  length: number,
  group: number,
): string[] {
  const rows = new Set(outer.map((v) => v.name));
  const loads = loadsUnder(reductions.map((r) => r.argument)).filter(
    ({ address, dynamic, guard }) => mentionsAny(address, rows) && dynamic.length === 0 && guard === null,
  );
  return loads.flatMap(({ address, buffer, dtype }) => {
    const bytes = bytesOf(dtype);
    const each = lineBytes / bytes;
    if (address.stride(name) !== 1) return [];
    const place = `p${buffer} + ${address.print()}`;
    const turns = Math.min(4, Math.ceil(length / (group * each)));
    return Array.from({ length: turns }, (_, t) => {
      const at = `lane * ${each} + ${t * group * each}`;
      return `  { const ix ${name} = ${at}; if (${name} < ${length}) w_prefetch(${place}); }`;
    });
  });
}
