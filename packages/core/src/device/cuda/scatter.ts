// How scatters are launched: the kernels of native/scatter.cu and native/extreme.cu in order, and the memory that they work in.
import { isZeroBase } from "../../compile/index.js";
import { bytesOf, type DType, isComplex, isHalf, isOp, kindOf, type Node, numel } from "../../graph/index.js";
import { type LibraryCalls, launchOrder, orderWorkspace, type SortShape } from "./scan-sort.js";

const intBytes = 4;
const padded = (count: number): number => Math.ceil((count * intBytes) / 64) * 64;
const blocksFor = (count: number, per = 256): number => Math.max(1, Math.ceil(count / per));

/** Number of updates above which a row is heavy (W_LIGHT). */
const lightRow = 32;
/** Updates per row on average up to which 256 threads add those of a heavy row. */
const mediumRow = 2048;
/** Elements of a row below which a warp would have idle lanes. */
const narrowRow = 16;
/** Updates, and updates per row on average, from which sorting all of them is faster than sorting row by row; tests lower it. */
export const manyUpdates = { total: 1 << 21, perRow: 8 };
/** Bytes of a result that every block has in shared memory. */
const binBytes = 32 << 10;
/** Copies of results of so many bytes: one for every warp, or for some of them, because threads wait for each other at one place. */
const copiesOf = (bytes: number): number => Math.max(1, Math.min(32, Math.floor(binBytes / bytes)));
/** Integers that GPUs add atomically. */
const isWhole = (dtype: DType): boolean => kindOf(dtype) === "int" && bytesOf(dtype) >= 4;
/** Numbers whose sums in float64 do not depend on the order, unless updates of one place differ by 2^27 in size or more. */
const hasWideSums = (dtype: DType): boolean => isHalf(dtype) || dtype === "float32" || dtype === "complex64";
/** Updates of narrow rows from which they are added atomically in float64; tests lower it. */
export const wideSums = { least: 1 << 16 };

interface ScatterShape {
  /** Rows of all batches together, and the updates of one and of all. */
  rows: number;
  count: number;
  total: number;
  before: number;
  n: number;
  after: number;
}

function scatterShape(node: Node<"scatterAdd"> | Node<"scatterReduce">): ScatterShape {
  const { axis, batch } = node.attrs;
  const { shape, dtype } = node.inputs[0];
  const batches = numel(shape.slice(0, batch));
  const count = numel(node.inputs[1].shape.slice(batch));
  return {
    rows: batches * shape[axis],
    count,
    total: count * batches,
    before: numel(shape.slice(batch, axis)),
    n: shape[axis],
    after: numel(shape.slice(axis + 1)) * (isComplex(dtype) ? 2 : 1),
  };
}

/** Whether sums are held in float64: many updates of narrow rows, for which lists cost more than they are worth. */
function usesWideSums(dtype: DType, { rows, total, before, after }: ScatterShape): boolean {
  const updates = total * before * after;
  return hasWideSums(dtype) && after <= narrowRow && updates >= wideSums.least && rows * before * after <= 4 * updates;
}

/** The order of the updates by their rows. */
const orderOf = ({ total, count }: ScatterShape): SortShape => ({
  rows: count === 0 ? 0 : total / count,
  n: count,
  first: 0,
  count,
  bytes: intBytes,
});
const isSorted = ({ rows, total }: ScatterShape): boolean =>
  total >= Math.max(manyUpdates.total, manyUpdates.perRow * rows);

/** Bytes of scratch memory of sums and products. */
export function scatterWorkspace(node: Node): number {
  const isProduct = isOp(node, "scatterReduce") && node.attrs.fn === "prod";
  if (!(isProduct || isOp(node, "scatterAdd")) || isWhole(node.dtype)) return 0;
  if (isProduct && node.dtype === "float32") return numel(node.shape) * 8;
  const shape = scatterShape(node);
  const { rows, total, before, after } = shape;
  if (usesWideSums(node.dtype, shape)) return rows * before * after * 8;
  const lists = 2 * padded(rows) + 64 + 2 * padded(total) + padded(total / lightRow + 1);
  return lists + 256 + (isSorted(shape) ? orderWorkspace(orderOf(shape)) : 0);
}

interface ScatterAddresses {
  base: number;
  indices: number;
  updates: number;
  out: number;
  workspace: number;
}

/** Integers: additions in any order give the same sums. */
function launchWhole(node: Node<"scatterAdd">, type: string, at: ScatterAddresses, calls: LibraryCalls): void {
  const { before, n, after, count } = scatterShape(node);
  const { base, indices, updates, out } = at;
  const bytes = numel(node.shape) * bytesOf(node.dtype);
  if (base === 0) calls.zero(out, bytes);
  else calls.copy(out, base, bytes);
  const total = numel(node.inputs[2].shape);
  if (total === 0) return;
  const args = [indices, updates, out, total, before, n, after, count];
  const blocks = Math.min(2 * calls.multiprocessors, Math.ceil(total / 1024));
  if (updates === 0 && before * after === 1 && 4 * numel(node.shape) <= binBytes) {
    const copies = copiesOf(4 * numel(node.shape));
    const sizes = [total, count, n, numel(node.shape), copies];
    calls.launch(`w_scatter_counts_${type}`, blocks, 1024, [indices, out, ...sizes], 4 * copies * numel(node.shape));
    return;
  }
  if (bytes > binBytes) calls.launch(`w_scatter_whole_${type}`, blocksFor(total), 256, args);
  else calls.launch(`w_scatter_bins_${type}`, blocks, 1024, [...args, numel(node.shape)], bytes);
}

function launchWide(node: Node<"scatterAdd">, type: string, at: ScatterAddresses, calls: LibraryCalls): void {
  const { rows, before, n, after, count, total } = scatterShape(node);
  const { base, indices, updates, out, workspace } = at;
  const size = rows * before * after;
  const all = total * before * after;
  calls.zero(workspace, size * 8);
  const args = [indices, updates, workspace, all, before, n, after, count];
  if (size * 8 <= binBytes) {
    const copies = copiesOf(size * 8);
    const blocks = Math.min(4 * calls.multiprocessors, Math.ceil(all / 512));
    calls.launch(`w_scatter_sums_${type}`, blocks, 512, [...args, size, copies], copies * size * 8);
  } else calls.launch(`w_scatter_wide_${type}`, blocksFor(all), 256, args);
  calls.launch(`w_scatter_rounded_${type}`, blocksFor(size), 256, [base, workspace, out, size]);
}

export function launchScatter(
  node: Node<"scatterAdd">,
  type: string,
  addresses: ScatterAddresses,
  calls: LibraryCalls,
): void {
  const shape = scatterShape(node);
  const base = isZeroBase(node, node.inputs[0]) ? 0 : addresses.base;
  if (isWhole(node.dtype)) {
    launchWhole(node, type, { ...addresses, base }, calls);
    return;
  }
  if (usesWideSums(node.dtype, shape)) {
    launchWide(node, type, { ...addresses, base }, calls);
    return;
  }
  launchLists(shape, type, { ...addresses, base }, calls);
}

/** Neighbors that a lane adds at once: as many as leave no lane idle. Elements have at most 8 bytes; buffers that do not start anywhere do so at multiples of 16. */
function neighborsOf({ after }: ScatterShape, addresses: readonly number[]): number {
  if (addresses.some((address) => address % 16 !== 0)) return 1;
  return [4, 2].find((width) => after % width === 0 && after >= 32 * width) ?? 1;
}

/** Lists of the updates of each row, which are joined in their order. */
function launchLists(
  shape: ScatterShape,
  type: string,
  { base, indices, updates, out, workspace }: ScatterAddresses,
  calls: LibraryCalls,
): void {
  const { rows, count, total, before, n, after } = shape;
  const counts = workspace;
  const cursor = counts + padded(rows);
  const offsets = cursor + 64;
  const slot = offsets + padded(rows);
  const list = slot + padded(total);
  const heavy = list + padded(total);
  const sorting = Math.ceil((heavy + padded(total / lightRow + 1)) / 256) * 256;
  const sorted = isSorted(shape);
  calls.zero(counts, padded(rows) + 64);
  if (sorted) {
    launchOrder(orderOf(shape), "i32", { x: indices, out: list, workspace: sorting, descending: false }, calls);
    calls.launch("w_scatter_ends", blocksFor(total), 256, [indices, list, offsets, counts, total, count, n]);
    calls.launch("w_scatter_rows", blocksFor(rows), 256, [counts, offsets, cursor, heavy, rows]);
  } else if (total > 0) {
    calls.launch("w_scatter_count", blocksFor(total), 256, [indices, counts, slot, total, count, n]);
    calls.launch("w_scatter_place", blocksFor(rows), 256, [counts, offsets, cursor, heavy, rows]);
    calls.launch("w_scatter_list", blocksFor(total), 256, [indices, slot, offsets, list, total, count, n]);
  }
  const light = [base, updates, out, counts, offsets, list, rows, before, n, after, count];
  if (after <= narrowRow) calls.launch(`w_scatter_narrow_${type}`, blocksFor(rows * after), 256, light);
  else
    calls.launch(`w_scatter_light_${type}`, blocksFor(rows, 8), 256, [
      ...light,
      neighborsOf(shape, [base, updates, out]),
    ]);
  if (total > lightRow) {
    const lists = [counts, offsets, cursor, heavy, list];
    const most = Math.ceil(total / lightRow);
    if (!sorted)
      calls.launch("w_scatter_order", Math.min(calls.multiprocessors, most), 1024, [indices, ...lists, n, count]);
    // Many rows of some hundred updates: several of them on a multiprocessor at once.
    const [threads, each] = total <= rows * mediumRow ? [256, 4] : [1024, 1];
    const blocks = Math.min(each * calls.multiprocessors, most * before * Math.ceil(after / 32));
    const args = [base, updates, out, ...lists, before, n, after, count];
    calls.launch(`w_scatter_heavy_${type}`, blocks, threads, args);
  }
}

/** Products of elements and their updates: of integers exact, of float32 in float64, of float64 in the order of the updates. */
function launchProduct(
  node: Node<"scatterReduce">,
  type: string,
  { base, indices, updates, out, workspace }: ScatterAddresses,
  calls: LibraryCalls,
): void {
  const shape = scatterShape(node);
  if (node.dtype === "float64") {
    launchLists(shape, `p${type}`, { base, indices, updates, out, workspace }, calls);
    return;
  }
  const [size, total] = [numel(node.shape), numel(node.inputs[2].shape)];
  const products = node.dtype === "float32" ? workspace : out;
  const { before, n, after, count } = shape;
  calls.launch(`w_product_base_${type}`, blocksFor(size), 256, [base, products, size]);
  if (total > 0) {
    const args = [indices, updates, products, total, before, n, after, count];
    calls.launch(`w_product_join_${type}`, blocksFor(total), 256, args);
  }
  if (products !== out) calls.launch(`w_scatter_rounded_${type}`, blocksFor(size), 256, [0, products, out, size]);
}

/** Products or extremes of elements and their updates. */
export function launchReduced(
  node: Node<"scatterReduce">,
  type: string,
  addresses: ScatterAddresses,
  calls: LibraryCalls,
): void {
  if (node.attrs.fn === "prod") {
    launchProduct(node, type, addresses, calls);
    return;
  }
  const { base, indices, updates, out } = addresses;
  const { before, n, after, count } = scatterShape(node);
  const largest = Number(node.attrs.fn === "max");
  const [size, total] = [numel(node.shape), numel(node.inputs[2].shape)];
  const blocks = Math.min(blocksFor(size), 16 * calls.multiprocessors);
  calls.launch(`w_extreme_base_${type}`, blocks, 256, [base, out, size, largest]);
  if (total === 0) return;
  const args = [indices, updates, out, total, before, n, after, count, largest];
  calls.launch(`w_extreme_join_${type}`, blocksFor(total), 256, args);
}
