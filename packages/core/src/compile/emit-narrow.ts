// Reductions of many short rows: a block copies its rows to shared memory in order, one thread reduces each row there, and results of
// the shape of the rows go back through shared memory. Part of a warp per row would leave lanes idle and access memory in pieces.
import { bytesOf, numel } from "../graph/index.js";
import { BodyPrinter, EmitScope } from "./body.js";
import {
  comparedValues,
  linearAddress,
  loadsUnder,
  mentionsAny,
  type ReductionCode,
  unpackIndex,
  writeText,
} from "./emit-common.js";
import type { CudaKernel } from "./emit-cuda-common.js";
import { rawTypes } from "./emit-tile.js";
import type { KExpr, LoopKernel, Reduction, Store } from "./kernel.js";
import { type CValue, storageType, storeText } from "./scalar.js";

type Load = Extract<KExpr, { kind: "load" }>;

interface Tile {
  name: string;
  bytes: number;
  /** Elements between rows. */
  pitch: number;
  loads: Load[];
  stores: Store[];
}

interface NarrowPlan {
  length: number;
  units: number;
  /** Rows of a block, which are its threads. */
  rows: number;
  tiles: Tile[];
}

/** The most elements of a row, and the fewest rows, that one thread per row is for; tests lower the latter. */
export const narrowRows = { length: 96, rows: 1 << 14 };
/** Shared memory of a block: several blocks share a multiprocessor. */
const tileBytes = 28 << 10;
const rowCounts = [256, 128, 64];

const commonDivisor = (a: number, b: number): number => (b === 0 ? a : commonDivisor(b, a % b));

/** Rows in shared memory are padded to avoid bank conflicts of a warp. Otherwise whole rows are copied in order, which is faster. */
function pitchOf(length: number, bytes: number): number {
  const perWord = Math.max(1, 4 / bytes);
  const words = Math.ceil(length / perWord);
  if (length % perWord === 0 && commonDivisor(words, 32) < 4) return length;
  return (words | 1) * perWord;
}

/** Whether a store belongs to the last pass over a row. */
function lastPass(
  kernel: LoopKernel,
  inside: ReadonlySet<string>,
  outside: ReadonlySet<string>,
): { isLast(store: Store): boolean } {
  const scope = new EmitScope("");
  const printer = new BodyPrinter(kernel, { top: scope, row: scope, element: scope }, inside, outside, "0");
  const last = Math.max(
    ...[...kernel.reductions.map((r) => r.argument), ...kernel.stores.map((s) => s.value)].map((e) => printer.stage(e)),
  );
  return { isLast: (store) => printer.stage(store.value) === last };
}

/** The shared memory of a kernel; null where rows are long or few, or operands are read otherwise. */
function narrowPlan(kernel: LoopKernel): NarrowPlan | null {
  const { outer, inner, reductions, columnSums, stores, buffers } = kernel;
  const length = numel(inner.map((v) => v.size));
  const units = numel(outer.map((v) => v.size));
  if (kernel.kind !== "rows" || reductions.length === 0 || columnSums.length > 0) return null;
  if (length < 2 || length > narrowRows.length || units < narrowRows.rows) return null;
  const names = new Set(inner.map((v) => v.name));
  const outside = new Set(outer.map((v) => v.name));
  const linear = linearAddress([...outer, ...inner]).key;
  const tiles: Tile[] = [];
  const add = (bytes: number): Tile => {
    const tile = { name: `tile${tiles.length}`, bytes, pitch: pitchOf(length, bytes), loads: [], stores: [] };
    tiles.push(tile);
    return tile;
  };
  for (const load of loadsUnder([...reductions.map((r) => r.argument), ...stores.map((s) => s.value)])) {
    if (!mentionsAny(load.address, names) && load.dynamic.length === 0) continue;
    if (load.guard !== null || load.dynamic.length > 0) return null;
    // One number per column: all threads read the same.
    if (!mentionsAny(load.address, outside)) continue;
    if (load.address.key !== linear || rawTypes[bytesOf(load.dtype)] === undefined) return null;
    const known = tiles.find(({ loads }) => loads.some(({ buffer }) => buffer === load.buffer));
    (known ?? add(bytesOf(load.dtype))).loads.push(load);
  }
  if (tiles.length === 0) return null;
  const { isLast } = lastPass(kernel, names, outside);
  for (const store of stores) {
    if (!mentionsAny(store.address, names)) continue;
    const bytes = bytesOf(buffers[store.buffer].dtype);
    if (store.address.key !== linear || rawTypes[bytes] === undefined) return null;
    // What the last pass writes may replace what it reads at the same place.
    const read = isLast(store) ? tiles.find((t) => t.bytes === bytes && t.stores.length === 0) : undefined;
    (read ?? add(bytes)).stores.push(store);
  }
  const rows = rowCounts.find((n) => tiles.reduce((sum, t) => sum + n * t.pitch * t.bytes, 0) <= tileBytes);
  return rows === undefined ? null : { length, units, rows, tiles };
}

/** Threads per block of a kernel that is emitted with one thread per row; null for others. */
export const narrowThreads = (kernel: LoopKernel): number | null => narrowPlan(kernel)?.rows ?? null;

/** Copies the rows of a block to shared memory, or back: in words of 16 bytes where rows are not padded. */
function copyLines({ name, bytes, pitch }: Tile, memory: string, plan: NarrowPlan, into: boolean): string[] {
  const { length, rows } = plan;
  const copy = (type: string, shared: string, global: string): string =>
    into
      ? `((${type}*)${name})[${shared}] = ((const ${type}*)${memory})[${global}];`
      : `((${type}*)${memory})[${global}] = ((const ${type}*)${name})[${shared}];`;
  const raw = rawTypes[bytes];
  const loop = (from: string, end: string, line: string): string[] => [
    "#pragma unroll 4",
    `  for (int i = ${from} + (int)threadIdx.x; i < ${end}; i += ${rows}) ${line}`,
  ];
  const first = `(ix)bx * ${rows * length}`;
  if (pitch !== length || bytes === 16)
    return loop("0", `${length} * count`, copy(raw, `i / ${length} * ${pitch} + i % ${length}`, `${first} + i`));
  const perVector = 16 / bytes;
  return [
    ...loop("0", `${length} * count / ${perVector}`, copy("uint4", "i", `(ix)bx * ${(rows * length) / perVector} + i`)),
    `  for (int i = ${length} * count / ${perVector} * ${perVector} + (int)threadIdx.x; i < ${length} * count; i += ${rows}) ${copy(raw, "i", `${first} + i`)}`,
  ];
}

/** The kernel with one thread per row; null where another form is as good. */
export function emitNarrow(
  kernel: LoopKernel,
  pointers: (printer: BodyPrinter) => string[],
  reductionCode: (r: Reduction, value: CValue) => ReductionCode,
  aligned: boolean,
): CudaKernel | null {
  const plan = aligned ? narrowPlan(kernel) : null;
  if (plan === null) return null;
  const { length, units, rows, tiles } = plan;
  const { outer, inner } = kernel;
  const names = new Set(inner.map((v) => v.name));
  const top = new EmitScope("  ");
  const row = new EmitScope("  ");
  const scopes = { top, row, element: new EmitScope("    ") };
  const printer = new BodyPrinter(kernel, scopes, names, new Set(outer.map((v) => v.name)), "e");
  const place = ({ pitch }: Tile): string => `(int)threadIdx.x * ${pitch} + e`;
  for (const tile of tiles)
    for (const { id, dtype } of tile.loads)
      printer.tiles.set(id, { name: `((const ${storageType[dtype]}*)${tile.name})`, index: place(tile) });
  const within = tiles.flatMap((tile) => tile.stores.map((store) => ({ tile, store })));
  const stageOf = (s: Store): number => printer.stage(s.value);
  const last = Math.max(
    0,
    ...kernel.reductions.map((r) => printer.stage(r.argument)),
    ...within.map((w) => stageOf(w.store)),
  );
  for (let stage = 0; stage <= last; stage++) {
    const reductions = kernel.reductions.filter((r) => printer.stage(r.argument) === stage);
    const stores = within.filter(({ store }) => stageOf(store) === stage);
    if (reductions.length + stores.length === 0) continue;
    const element = new EmitScope("    ");
    scopes.element = element;
    const after: string[] = [];
    for (const r of reductions) {
      const code = reductionCode(r, printer.value(r.argument));
      for (const line of code.declare) row.add(line);
      for (const line of code.update) element.add(line);
      after.push(...code.end);
    }
    // All values are computed before any is written: a result may replace an operand.
    const values = stores.map(({ store }) => printer.value(store.value));
    stores.forEach(({ tile, store }, i) => {
      const { dtype } = kernel.buffers[store.buffer];
      for (const line of storeText(`((${storageType[dtype]}*)${tile.name})`, place(tile), dtype, values[i]))
        element.add(line);
    });
    row.add("#pragma unroll 8");
    row.add(`for (int e = 0; e < ${length}; e++) {`);
    for (const line of unpackIndex(inner, "e")) row.add(`  ${line}`);
    row.append(element.lines);
    row.add("}");
    for (const line of after) row.add(line);
  }
  for (const store of kernel.stores.filter((s) => !within.some((w) => w.store === s)))
    for (const line of writeText(kernel, store, printer.value(store.value))) row.add(`if (active) { ${line} }`);
  const text = [
    ...tiles.map(({ name, bytes, pitch }) => `  __shared__ __align__(16) ${rawTypes[bytes]} ${name}[${rows * pitch}];`),
    ...pointers(printer).map((l) => `  ${l}`),
    ...top.lines,
    `  const int count = ${units} - (ix)bx * ${rows} < ${rows} ? (int)(${units} - (ix)bx * ${rows}) : ${rows};`,
    ...tiles.flatMap((tile) =>
      tile.loads.slice(0, 1).flatMap(({ buffer }) => copyLines(tile, `p${buffer}`, plan, true)),
    ),
    "  __syncthreads();",
    `  ix u = (ix)bx * ${rows} + threadIdx.x;`,
    // Threads beyond the last row repeat it, with elements that nobody reads.
    "  const int active = (int)threadIdx.x < count;",
    `  if (!active) u = ${units - 1};`,
    ...unpackIndex(outer, "u").map((l) => `  ${l}`),
    ...row.lines,
    ...(within.length > 0 ? ["  __syncthreads();"] : []),
    ...within.flatMap(({ tile, store }) => copyLines(tile, `p${store.buffer}`, plan, false)),
  ].join("\n");
  return { text, n: 0, blocks: Math.ceil(units / rows), threads: rows, isUnfused: comparedValues(kernel).size > 0 };
}
