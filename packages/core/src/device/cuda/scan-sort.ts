// How running sums and argsort are launched: the kernels of native/scan.cu and native/sort.cu in order, and the memory that they
// work in.
import { bytesOf, type DType, isComplex, isHalf, isOp, type Node, numel } from "../../graph/index.js";

/** What the launches need of a program in progress. */
export interface LibraryCalls {
  launch(name: string, blocks: number, threads: number, args: readonly number[], sharedBytes?: number): void;
  zero(address: number, bytes: number): void;
  copy(to: number, from: number, bytes: number): void;
  multiprocessors: number;
  /** Compute capability, without what follows the point. */
  major: number;
}

const aligned = (bytes: number): number => Math.ceil(bytes / 256) * 256;

/** Threads of the scan kernels (W_SCAN_THREADS). */
const scanThreads = 256;
/** Threads that keep the memory of a large GPU busy. */
const busyThreads = 132 * 2048;
/** Shorter segments cost more in their sums than they gain. */
const minSegment = 32;

interface ScanShape {
  lines: number;
  n: number;
  inner: number;
  /** Pieces of a line, and elements per piece. */
  segments: number;
  length: number;
  /** Bytes of an element, and of a sum. */
  bytes: number;
  sumBytes: number;
}

/** Bytes of the number that sums are held in: float for halves, double for floats. */
const sumBytesOf = (dtype: DType): number => {
  const part = bytesOf(dtype) / (isComplex(dtype) ? 2 : 1);
  return isHalf(dtype) ? 4 : dtype === "float32" || dtype === "complex64" ? 8 : part;
};

/** Integers whose running sums are wider: kernels read them as they are (the types of native/scan.cu). */
const narrowSums: Partial<Record<DType, readonly DType[]>> = {
  int32: ["int64"],
  uint8: ["uint64", "int32"],
  bool: ["int64", "int32"],
};
export const sumsNarrow = (from: DType, to: DType): boolean => narrowSums[from]?.includes(to) ?? false;

/** Dtypes of running products and extrema in native/scan.cu. */
const scanned: ReadonlySet<DType> = new Set<DType>(["float32", "float64", "int32", "int64"]);
/** Shorter lines are joined by generated loops. */
const minScan = 512;
export const scans = (dtype: DType, length: number): boolean => scanned.has(dtype) && length >= minScan;

function scanShape(node: Node<"cumsum">): ScanShape {
  const { dtype } = node;
  const { shape } = node.inputs[0];
  const { axis } = node.attrs;
  const parts = isComplex(dtype) ? 2 : 1;
  const [outer, n, inner] = [numel(shape.slice(0, axis)), shape[axis], numel(shape.slice(axis + 1)) * parts];
  const lines = outer * inner;
  const bytes = bytesOf(dtype) / parts;
  // Contiguous lines: a block per segment, rounds of two vectors per thread, and twice as many blocks as run at once, so that the
  // second pass finds the end of the operand in the cache. Others: a thread per segment.
  const round = inner === 1 ? scanThreads * Math.min(16, 32 / bytes) : minSegment;
  const wanted = (inner === 1 ? (2 * busyThreads) / scanThreads : busyThreads) / Math.max(1, lines);
  const rounds = Math.ceil(n / round);
  const segments = Math.max(1, Math.min(rounds, Math.floor(wanted)));
  const length = Math.ceil(rounds / segments) * round;
  return { lines, n, inner, segments: Math.ceil(n / length), length, bytes, sumBytes: sumBytesOf(dtype) };
}

export function launchScan(
  node: Node<"cumsum">,
  type: string,
  { x, out, workspace }: { x: number; out: number; workspace: number },
  calls: LibraryCalls,
): void {
  const { lines, n, inner, segments, length, bytes } = scanShape(node);
  const reverse = Number(node.attrs.reverse);
  const sums = segments > 1 ? workspace : 0;
  if (inner === 1) {
    const isAligned = (size: number, at: number): boolean => (n * size) % 16 === 0 && at % 16 === 0;
    const wide = Number(isAligned(bytesOf(node.inputs[0].dtype), x) && isAligned(bytes, out));
    const blocks = lines * segments;
    if (segments > 1)
      calls.launch(`w_scan_sums_${type}`, blocks, scanThreads, [x, sums, n, segments, length, reverse, wide]);
    calls.launch(`w_scan_lines_${type}`, blocks, scanThreads, [x, out, sums, n, segments, length, reverse, wide]);
    return;
  }
  const blocks = Math.ceil((lines * segments) / scanThreads);
  const shape = [lines, n, inner, segments, length, reverse];
  if (segments > 1) calls.launch(`w_scan_column_sums_${type}`, blocks, scanThreads, [x, sums, ...shape]);
  calls.launch(`w_scan_columns_${type}`, blocks, scanThreads, [x, out, sums, ...shape]);
}

/** Threads of a block in passes over memory, digits of a pass (W_DIGITS), and elements per thread (W_SORT_ITEMS). */
const sortThreads = 512;
const digits = 256;
const sortItems = 8;
/** Sizes of networks that sort short rows in registers, and the threads of a block of them (W_BITONIC_THREADS). */
const networks = [8, 16, 32, 64, 128, 256];
const networkThreads = 256;
/** Threads (W_TOPK_THREADS) and bins (W_TOPK_BINS) of a selection. */
const topkThreads = 512;
const topkBins = 2048;
/** Shorter rows are sorted whole, and longer orders too: selection ranks by counting. */
const minTopkRow = 1024;
const maxTopk = 1024;

/** Bytes of a key. */
const keyBytes = (dtype: DType): number => (dtype === "bool" ? 1 : bytesOf(dtype));
/** Elements of a row that one block sorts in 48 KiB of shared memory. */
const maxRow = (bytes: number): number => sortItems * (bytes === 8 ? 512 : 1024);
/** Shared memory of counts and starts. */
const rankBytes = (threads: number): number => (threads / 32) * digits * 2 + digits * 4;

/** Rows to put in order. */
export interface SortShape {
  rows: number;
  n: number;
  /** Where the order begins, and how many elements of it are wanted from there. */
  first: number;
  count: number;
  /** Bytes of a key. */
  bytes: number;
  /** The elements themselves are wanted, not their places. */
  values?: boolean;
}

function sortShape(node: Node<"argsort">): SortShape {
  const { shape, dtype } = node.inputs[0];
  const n = shape[shape.length - 1];
  const count = node.shape[node.shape.length - 1];
  return {
    rows: numel(shape.slice(0, -1)),
    n,
    first: node.attrs.first ?? 0,
    count,
    bytes: keyBytes(dtype),
    values: node.attrs.values === true,
  };
}

/** Elements per tile of passes over memory. */
const tileLength = sortThreads * sortItems;

const fitsBlock = ({ n, bytes }: SortShape): boolean => n <= maxRow(bytes);
const selects = ({ n, first, count, values = false }: SortShape): boolean =>
  !values && first === 0 && n > minTopkRow && count <= Math.min(maxTopk, n / 4);
/** Shorter rows are sorted. */
const minNthRow = 512;
/** A block selects from a row of any length; few and very long rows would leave the GPU idle, and are sorted. */
export const selectsPlaces = (rows: number, n: number): boolean => n <= 1 << 17 || rows >= 128;

/** One launch of a selection: how many candidates a row has, and into how many parts they are cut. */
interface TopkLevel {
  candidates: number;
  parts: number;
}

/** Launches until one part per row is left. Rows are cut so that a part fits shared memory and few rows still fill a GPU. */
function topkLevels({ rows, n, count, bytes }: SortShape): TopkLevel[] {
  const levels: TopkLevel[] = [];
  for (let candidates = n; ; candidates = levels[levels.length - 1].parts * count) {
    const wanted = Math.ceil((candidates * rows * topkThreads) / busyThreads);
    const length = Math.min(maxRow(bytes), Math.max(wanted, 2 * minTopkRow, 4 * count));
    const parts = Math.ceil(candidates / length);
    levels.push({ candidates, parts });
    if (parts === 1) return levels;
  }
}

interface SortRun {
  x: number;
  out: number;
  workspace: number;
  descending: boolean;
}

function launchTopk(shape: SortShape, type: string, how: SortRun, calls: LibraryCalls): void {
  const { rows, n, count, bytes } = shape;
  let from = 0;
  let next = how.workspace;
  for (const { candidates, parts } of topkLevels(shape)) {
    const to = parts === 1 ? how.out : next;
    const chosen = Math.ceil(count / 4) * 4 * bytes + count * 4;
    const keys = Math.ceil((Math.ceil(candidates / parts) * bytes) / 16) * 16;
    const args = [how.x, from, to, n, candidates, parts, count, Number(how.descending)];
    calls.launch(`w_topk_rows_${type}`, rows * parts, topkThreads, args, keys + Math.max(topkBins * 4, chosen));
    from = to;
    next += aligned(rows * parts * count * 4);
  }
}

export function launchSort(
  node: Node<"argsort">,
  type: string,
  at: Omit<SortRun, "descending">,
  calls: LibraryCalls,
): void {
  launchOrder(sortShape(node), type, { ...at, descending: node.attrs.descending }, calls);
}

/** Stable order of rows. */
export function launchOrder(shape: SortShape, type: string, how: SortRun, calls: LibraryCalls): void {
  const { rows, n, first, count, bytes, values = false } = shape;
  const { x, out, workspace } = how;
  const descending = Number(how.descending);
  const tiles = Math.ceil(n / tileLength);
  if (rows * count === 0) return;
  const network = networks.find((size) => n <= size);
  if (network !== undefined) {
    const together = networkThreads / Math.min(32, network);
    const args = [x, out, values ? out : 0, rows, n, first, count, descending, network];
    // A key and its place.
    const shared = together * (network + 1) * (bytes === 8 ? 16 : bytes === 4 ? 8 : 4);
    calls.launch(`w_bitonic_${type}`, Math.ceil(rows / together), networkThreads, args, shared);
    return;
  }
  if (selects(shape)) {
    launchTopk(shape, type, how, calls);
    return;
  }
  if (first > 0 && n > minNthRow) {
    const held = fitsBlock(shape);
    const shared = topkBins * 4 + (held ? n * bytes : 0);
    calls.launch(
      `w_topk_nth_${type}`,
      rows * count,
      topkThreads,
      [x, out, n, first, count, descending, Number(held)],
      shared,
    );
    return;
  }
  if (fitsBlock(shape)) {
    const threads = Math.max(32, Math.ceil(n / sortItems / 32) * 32);
    const shared = Math.max(rankBytes(threads), Math.ceil((n * bytes) / 2) * 2 + n * 2);
    calls.launch(`w_sort_rows_${type}`, rows, threads, [x, out, values ? out : 0, n, first, count, descending], shared);
    return;
  }
  const passes = bytes;
  const total = rows * n;
  const counts = workspace;
  const totals = counts + aligned(rows * digits * tiles * 4);
  const ping = totals + aligned(rows * digits * 4);
  // Places go to and fro between two arrays and end in the result, which is one of them if it is large enough.
  const other = count === n ? out : ping + aligned(total * 4);
  const keys = values ? ping : count === n ? ping + aligned(total * 4) : other + aligned(total * 4);
  const keyPlaces = [keys, keys + aligned(total * bytes)];
  const ends = (pass: number): number =>
    values ? 0 : pass === passes ? out : (passes - pass) % 2 === 0 ? other : ping;
  const shared = rankBytes(sortThreads) + tileLength * (bytes + (values ? 0 : 4));
  const exact = Number(values);
  for (let pass = 0; pass < passes; pass++) {
    const isLast = pass === passes - 1;
    const from = pass === 0 ? 0 : keyPlaces[pass % 2];
    const to = isLast ? 0 : keyPlaces[(pass + 1) % 2];
    const pieces = [n, tiles, tileLength, 8 * pass, descending];
    calls.launch(`w_sort_count_${type}`, rows * tiles, sortThreads, [x, from, counts, ...pieces, exact]);
    const startThreads = Math.min(1024, Math.max(32, Math.ceil(tiles / 128) * 32));
    calls.launch("w_sort_starts", rows * digits, startThreads, [counts, totals, tiles]);
    const moves = [x, from, ends(pass), to, ends(pass + 1), counts, totals, ...pieces];
    const results = [isLast ? count : n, values && isLast ? out : 0, exact];
    calls.launch(`w_sort_move_${type}`, rows * tiles, sortThreads, [...moves, ...results], shared);
  }
}

/** Bytes of scratch memory of a running sum or argsort. */
export function scanSortWorkspace(node: Node): number {
  if (isOp(node, "cumsum")) {
    const { lines, segments, sumBytes } = scanShape(node);
    return segments > 1 ? aligned(lines * segments * sumBytes) : 0;
  }
  return isOp(node, "argsort") ? orderWorkspace(sortShape(node)) : 0;
}

/** Bytes of scratch memory of {@link launchOrder}. */
export function orderWorkspace(shape: SortShape): number {
  const { rows, n, count, bytes } = shape;
  if (rows * count === 0) return 0;
  if (selects(shape))
    return topkLevels(shape).reduce((sum, { parts }) => sum + (parts > 1 ? aligned(rows * parts * count * 4) : 0), 0);
  if (fitsBlock(shape) || shape.first > 0) return 0;
  const counts = aligned(rows * digits * Math.ceil(n / tileLength) * 4) + aligned(rows * digits * 4);
  const places = shape.values ? 0 : count === n ? 1 : 2;
  return counts + places * aligned(rows * n * 4) + 2 * aligned(rows * n * bytes);
}
