// How scatterAdd and argsort are launched: the kernels of native/scatter.cuh and native/sort.cuh in order, and the memory
// that they work in.
import { isZeroBase } from "../../compile/index.js";
import { isComplex, isOp, type Node, numel } from "../../graph/index.js";

/** What the launches need of a program in progress. */
export interface LibraryCalls {
  launch(name: string, blocks: number, threads: number, args: readonly number[]): void;
  zero(address: number, bytes: number): void;
  copy(to: number, from: number, bytes: number): void;
  multiprocessors: number;
}

const intBytes = 4;
const padded = (count: number): number => Math.ceil((count * intBytes) / 64) * 64;
const blocksFor = (count: number, per = 256): number => Math.max(1, Math.ceil(count / per));

/** Elements that one block sorts in shared memory (W_TILE), and above how many updates a row is heavy (W_LIGHT). */
const sortTile = 2048;
const lightRow = 32;

interface ScatterShape {
  /** Rows of all batches together, and the updates of one and of all. */
  rows: number;
  count: number;
  total: number;
  before: number;
  n: number;
  after: number;
}

function scatterShape(node: Node<"scatterAdd">): ScatterShape {
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

/** Bytes of scratch memory that a library op works in. */
export function workspaceBytes(node: Node): number {
  if (isOp(node, "scatterAdd")) {
    const { rows, total } = scatterShape(node);
    return 2 * padded(rows) + 64 + 2 * padded(total) + padded(total / lightRow + 1);
  }
  if (isOp(node, "argsort")) {
    const n = node.shape[node.shape.length - 1];
    return n > sortTile ? padded(numel(node.shape)) : 0;
  }
  return 0;
}

export function launchScatter(
  node: Node<"scatterAdd">,
  type: string,
  addresses: { base: number; indices: number; updates: number; out: number; workspace: number },
  calls: LibraryCalls,
): void {
  const { rows, count, total, before, n, after } = scatterShape(node);
  const base = isZeroBase(node, node.inputs[0]) ? 0 : addresses.base;
  const { indices, updates, out, workspace } = addresses;
  const counts = workspace;
  const cursor = counts + padded(rows);
  const offsets = cursor + 64;
  const slot = offsets + padded(rows);
  const list = slot + padded(total);
  const heavy = list + padded(total);
  calls.zero(counts, padded(rows) + 64);
  if (total > 0) {
    calls.launch("w_scatter_count", blocksFor(total), 256, [indices, counts, slot, total, count, n]);
    calls.launch("w_scatter_place", blocksFor(rows), 256, [counts, offsets, cursor, heavy, rows]);
    calls.launch("w_scatter_list", blocksFor(total), 256, [indices, slot, offsets, list, total, count, n]);
  }
  calls.launch(`w_scatter_light_${type}`, blocksFor(rows, 8), 256, [
    base,
    updates,
    out,
    counts,
    offsets,
    list,
    rows,
    before,
    n,
    after,
    count,
  ]);
  if (total > lightRow)
    calls.launch(`w_scatter_heavy_${type}`, Math.min(calls.multiprocessors, Math.ceil(total / lightRow)), 1024, [
      base,
      indices,
      updates,
      out,
      counts,
      offsets,
      cursor,
      heavy,
      list,
      before,
      n,
      after,
      count,
    ]);
}

export function launchSort(
  node: Node<"argsort">,
  type: string,
  addresses: { x: number; out: number; workspace: number },
  calls: LibraryCalls,
): void {
  const n = node.shape[node.shape.length - 1];
  const rows = numel(node.shape.slice(0, -1));
  const descending = Number(node.attrs.descending);
  const tiles = Math.ceil(n / sortTile);
  const passes = Math.ceil(Math.log2(tiles));
  // Merging goes to and fro between the result and the workspace, and must end in the result.
  let [from, to] = passes % 2 === 0 ? [addresses.out, addresses.workspace] : [addresses.workspace, addresses.out];
  calls.launch(`w_sort_tiles_${type}`, rows * tiles, 512, [addresses.x, from, n, tiles, descending]);
  for (let pass = 0, run = sortTile; pass < passes; pass++, run *= 2) {
    calls.launch(`w_sort_merge_${type}`, blocksFor(rows * n), 256, [addresses.x, from, to, rows, n, run, descending]);
    [from, to] = [to, from];
  }
}
