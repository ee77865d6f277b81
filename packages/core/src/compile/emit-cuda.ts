// The CUDA dialect of loop kernels. Element-wise kernels assign several elements to every thread; rows are reduced by a thread,
// part of a warp, a warp or a block, always in the same order; columns by tiles of 32 columns and 8 row lanes.
import { bytesOf, isComplex, numel } from "../graph/index.js";
import { BodyPrinter, EmitScope, firstOf, keptName, vectorBase } from "./body.js";
import { withoutDiagonals } from "./diagonals.js";
import { chooseStash, comparedValues, isArg, loadsUnder, mentionsAny, writeText } from "./emit-common.js";
import { emitColumns } from "./emit-cuda-columns.js";
import {
  blockSize,
  type CudaEmitOptions,
  type CudaKernel,
  joinSpread,
  pointers,
  reductionCode,
  unpackAs,
  vectorWidths,
} from "./emit-cuda-common.js";
import { emitMap } from "./emit-cuda-map.js";
import { emitNarrow, narrowThreads } from "./emit-narrow.js";
import { emitTiles, readsTiles } from "./emit-tile.js";
import { vectorLines, vectorStores } from "./emit-vector.js";
import type { KExpr, LoopKernel, Reduction, Store } from "./kernel.js";
import { isProductRow, matrixLoads, prefetches, rowThreads, vectorsAhead } from "./row-threads.js";
import { computeType, storageType } from "./scalar.js";
import { joinShortAxes } from "./short-axes.js";
import { word } from "./text.js";

/** Number of row values that a thread keeps in registers between passes, and of more where they are few registers in all. */
const maxKept = 16;
const maxKeptWords = 64;

/** Whether a kernel has tiles in shared memory. */
export const isTiled = (kernel: LoopKernel): boolean => readsTiles(kernel) || narrowThreads(kernel) !== null;

/** Threads per block of a kernel. */
export function cudaThreads(kernel: LoopKernel): number {
  if (kernel.kind === "columns" || kernel.reductions.length === 0) return blockSize;
  const narrow = narrowThreads(kernel);
  if (narrow !== null) return narrow;
  return Math.max(blockSize, rowThreads(kernel));
}

/** How partial results of threads are combined: a statement on one lane's value and another's. `count`: elements of a lane, and of all. */
function joinStatements(r: Reduction, group: number, count: { own: string; all: number }): string[] {
  const name = `r${r.slot}`;
  const dtype = r.argument.dtype;
  if (r.fn === "spread") return [joinSpread(r, name, count.own, count.all, (x) => `w_join_sum<${group}>(${x})`)];
  if (isComplex(dtype)) {
    const fn = r.fn === "sum" ? "w_join_csum" : "w_join_cprod";
    return [`${fn}<${group}>(&${name}r, &${name}i);`];
  }
  if (isArg(r)) return [`w_join_${word(r.fn)}<${group}>(&b${name}, &${name});`];
  return [`${name} = w_join_${word(r.fn)}<${group}>(${name});`];
}

/** Values that one pass computes and a later one needs stay in registers, loads included. */
const stashRule = ({ kind }: KExpr): "stash" | "skip" =>
  kind === "const" || kind === "index" || kind === "dynamic" ? "skip" : "stash";

/** Contiguous elements of a row that a thread processes at once. */
function rowVector(kernel: LoopKernel, length: number, group: number): number {
  if (kernel.inner.length !== 1) return 1;
  const exact = (width: number): boolean => length % (group * width) === 0;
  // With a tail, some threads have no element in the last round.
  const withTail = (width: number): boolean =>
    kernel.columnSums.length === 0 && length % width === 0 && length >= group * width;
  const strides = [...kernel.loads, ...kernel.stores].map(({ address }) => address.stride(kernel.inner[0].name));
  if (strides.some((stride) => stride !== null && stride !== 0 && stride !== 1)) return 1;
  // A vector of 16 bytes: the threads of a warp then access neighbors, and no instruction writes half of a sector.
  const smallest = Math.min(...kernel.buffers.map(({ dtype }) => bytesOf(dtype)));
  return vectorWidths.find((w) => w * smallest <= 16 && (exact(w) || withTail(w))) ?? 1;
}

/** Registers for vectors that stay between passes, per thread. Larger blocks would spill others. */
const keptRegisters = (threads: number): number => (threads > 256 ? 0 : 32);

/** Rows too long to keep every value: operands that several passes read stay in registers as they were loaded. */
function keepVectors(
  printer: BodyPrinter,
  kernel: LoopKernel,
  { width, items, threads }: { width: number; items: number; threads: number },
): void {
  const roots = [
    ...[...kernel.reductions, ...kernel.columnSums].map(({ argument }) => argument),
    ...kernel.stores.map(({ value }) => value),
  ];
  const stages = new Map<KExpr, Set<number>>();
  for (const root of roots)
    for (const load of loadsUnder([root])) stages.set(load, (stages.get(load) ?? new Set()).add(printer.stage(root)));
  const vector = { variable: kernel.inner[0].name, width };
  let left = keptRegisters(threads);
  for (const [load, passes] of stages) {
    if (load.kind !== "load" || passes.size < 2 || load.guard !== null || load.dynamic.length > 0) continue;
    if (isComplex(load.dtype) || printer.depth(load) < 2 || vectorBase(load.address, vector) === null) continue;
    const registers = Math.ceil((items * bytesOf(load.dtype)) / 4);
    if (registers > left) continue;
    left -= registers;
    printer.keptVectors.set(load.id, false);
  }
}

/** Loads of a kernel whose vectors are kept, by id. */
function keptLoads(printer: BodyPrinter, kernel: LoopKernel): Map<number, KExpr> {
  const roots = [...kernel.reductions.map((r) => r.argument), ...kernel.stores.map((s) => s.value)];
  return new Map(loadsUnder(roots).flatMap((load) => (printer.keptVectors.has(load.id) ? [[load.id, load]] : [])));
}

/** The first statement of a kernel that is not a prefetch. */
const begin = "  w_begin();";
function emitRows(kernel: LoopKernel, options: CudaEmitOptions): CudaKernel {
  const { outer, inner } = kernel;
  const length = numel(inner.map((v) => v.size));
  const group = rowThreads(kernel);
  const threads = Math.max(blockSize, group);
  const rowsPerBlock = threads / group;
  const units = numel(outer.map((v) => v.size));
  const innerNames = new Set(inner.map((v) => v.name));
  const top = new EmitScope("  ");
  const row = new EmitScope("  ");
  const scopes = { top, row, element: new EmitScope("    ") };
  const printer = new BodyPrinter(kernel, scopes, innerNames, new Set(outer.map((v) => v.name)), "i");
  const isElement = (s: Store): boolean =>
    inner.length > 0 && (printer.depth(s.value) === 2 || mentionsAny(s.address, innerNames));
  const elementStores = kernel.stores.filter(isElement);
  const rowStores = kernel.stores.filter((s) => !isElement(s));
  const stageOf = (s: Store): number => printer.stage(s.value);
  const sums = kernel.columnSums;
  const last = Math.max(
    0,
    ...[...kernel.reductions, ...sums].map((r) => printer.stage(r.argument)),
    ...elementStores.map(stageOf),
  );
  const width = rowVector(kernel, length, group);
  const items = Math.ceil(length / (group * width)) * width;
  const mayStash = (items <= maxKept || (items <= 2 * maxKept && threads <= 256)) && !isProductRow(kernel);
  if (mayStash) chooseStash(printer, kernel, stashRule);
  const words = [...printer.stash.values()].reduce((sum, { dtype }) => sum + items * Math.ceil(bytesOf(dtype) / 4), 0);
  if (mayStash && items > maxKept && words > maxKeptWords) printer.stash.clear();
  const isUnfused = [...comparedValues(kernel)].some(({ id }) => !printer.stash.has(id));
  if (printer.stash.size === 0 && items > maxKept && width > 1 && options.aligned && !isProductRow(kernel))
    keepVectors(printer, kernel, { width, items, threads });
  const ahead =
    width > 1 && options.aligned && items <= vectorsAhead * width && isProductRow(kernel)
      ? matrixLoads(kernel, width)
      : [];
  for (const { id } of ahead) printer.keptVectors.set(id, true);
  const kept = keptLoads(printer, kernel);
  for (const [id, { dtype }] of kept)
    row.add(`__align__(16) ${storageType[dtype]} ${keptName(id)}[${items / width}][${width}];`);
  for (const { name, dtype } of printer.stash.values())
    row.add(`${computeType[dtype]} ${name}[${items * (isComplex(dtype) ? 2 : 1)}];`);
  // All of a row is on its way before the first of it is used.
  for (const { id, buffer, base } of ahead) {
    const inside = length % (group * width) === 0 ? "" : `if (${firstOf(inner[0].name)} < ${length}) `;
    row.add("#pragma unroll");
    row.add(`for (int c = 0; c < ${items / width}; c++) {`);
    row.add(`  const ix ${firstOf(inner[0].name)} = (c * ${group} + lane) * ${width};`);
    row.add(`  ${inside}w_load<${width}>(${keptName(id)}[c], p${buffer} + ${base.print()});`);
    row.add("}");
  }
  // Otherwise the assembler moves them to their uses, for fewer registers.
  if (ahead.length > 0) row.add("__syncwarp();");
  const written = new Set<number>();
  const guard = units % rowsPerBlock === 0 ? "" : "if (active)";
  const number = width > 1 ? `c * ${width} + j + 1` : `e / ${group} + 1`;
  const turn = group * width;
  const own = `${Math.floor(length / turn) * width} + (lane * ${width} < ${length % turn} ? ${width} : 0)`;
  for (let stage = 0; stage <= last; stage++) {
    const reductions = kernel.reductions.filter((r) => printer.stage(r.argument) === stage);
    const stores = elementStores.filter((s) => stageOf(s) === stage);
    const summed = sums.filter((s) => printer.stage(s.argument) === stage);
    if (reductions.length + stores.length + summed.length === 0) continue;
    const element = new EmitScope("    ");
    scopes.element = element;
    const loads = new EmitScope("");
    if (width > 1 && options.aligned) printer.vector = { variable: inner[0].name, width, scope: loads };
    // The first pass computes and writes a stashed value; only later passes read it.
    const fresh = [...printer.stash].filter(([id]) => !written.has(id));
    for (const [id] of fresh) printer.stash.delete(id);
    const after: string[] = [];
    for (const r of reductions) {
      const code = reductionCode(r, printer.value(r.argument), undefined, number);
      for (const line of code.declare) row.add(line);
      for (const line of code.update) element.add(line);
      after.push(...joinStatements(r, group, { own, all: length }), ...code.end);
    }
    const values = stores.map((s) => printer.value(s.value));
    for (const s of summed) element.add(`a${sums.indexOf(s)}[i] += ${printer.value(s.argument)[0]};`);
    for (const [id, stash] of fresh) {
      printer.stash.set(id, stash);
      const value = element.values.get(id);
      if (value === undefined) continue;
      written.add(id);
      value.forEach((part, k) => {
        element.add(`${stash.name}[${value.length === 1 ? "i" : `2*(i) + ${k}`}] = ${part};`);
      });
    }
    const unrolled = printer.stash.size + sums.length > 0;
    if (unrolled || printer.keptVectors.size > 0) row.add("#pragma unroll");
    else if (isProductRow(kernel)) row.add(`#pragma unroll ${vectorsAhead}`);
    if (width > 1) {
      const vector = { variable: inner[0].name, width };
      const written = vectorStores(kernel, stores, values, vector, options.aligned);
      const body = unrolled ? [`  const int i = c * ${width} + j;`, ...element.lines] : element.lines;
      row.add(`for (int c = 0; c < ${items / width}; c++) {`);
      row.add(`  const ix ${firstOf(vector.variable)} = (c * ${group} + lane) * ${width};`);
      if (length % (group * width) !== 0) row.add(`  if (${firstOf(vector.variable)} >= ${length}) break;`);
      for (const line of vectorLines(vector, loads.lines, body, written, guard)) row.add(`  ${line}`);
    } else {
      if (unrolled) {
        row.add(`for (int i = 0; i < ${items}; i++) {`);
        row.add(`  const ix e = lane + i * ${group};`);
        if (length % group !== 0) row.add(`  if (e >= ${length}) break;`);
      } else row.add(`for (ix e = lane; e < ${length}; e += ${group}) {`);
      for (const line of unpackAs(inner, "e")) row.add(`  ${line}`);
      row.append(element.lines);
      const writes = stores.flatMap((s, k) => writeText(kernel, s, values[k]));
      if (writes.length > 0) row.add(`  ${guard} { ${writes.join(" ")} }`);
    }
    row.add("}");
    for (const load of loadsUnder([...reductions, ...summed].map((r) => r.argument).concat(stores.map((s) => s.value))))
      if (printer.keptVectors.has(load.id)) printer.keptVectors.set(load.id, true);
    // Otherwise the compiler keeps what it computed from them instead, which takes more registers.
    const pinned = ahead.length > 0 ? [] : kept;
    for (const [id, { dtype }] of pinned) row.add(`w_pin<${(items * bytesOf(dtype)) / 4}>(${keptName(id)});`);
    for (const line of after) row.add(line);
  }
  const values = rowStores.map((s) => printer.value(s.value));
  rowStores.forEach((s, i) => {
    for (const line of writeText(kernel, s, values[i])) row.add(`if (active && lane == 0) { ${line} }`);
  });
  const head = [...pointers(printer, options).map((l) => `  ${l}`), `  const ix lane = threadIdx.x % ${group};`];
  const unpacked = unpackAs(outer, "u").map((l) => `  ${l}`);
  if (sums.length > 0) {
    const { depth } = sums[0];
    const at = width > 1 ? `(i / ${width} * ${group} + lane) * ${width} + i % ${width}` : `lane + i * ${group}`;
    const text = [
      ...head,
      begin,
      ...top.lines,
      "  const int active = 1;",
      ...sums.map((_, k) => `  float a${k}[${items}];`),
      "#pragma unroll",
      `  for (int i = 0; i < ${items}; i++) { ${sums.map((_, k) => `a${k}[i] = 0.0f;`).join(" ")} }`,
      "#pragma unroll 1",
      `  for (int w = threadIdx.x / ${group}; w < ${depth}; w += ${rowsPerBlock}) {`,
      `  const ix u = (ix)bx * ${depth} + w;`,
      ...unpacked,
      ...row.lines,
      "  }",
      `  __shared__ float joined[${rowsPerBlock}][${length}];`,
      ...sums.flatMap(({ buffer }, k) => [
        "  __syncthreads();",
        "#pragma unroll",
        `  for (int i = 0; i < ${items}; i++) joined[threadIdx.x / ${group}][${at}] = a${k}[i];`,
        "  __syncthreads();",
        `  for (int c = threadIdx.x; c < ${length}; c += ${threads}) {`,
        "    float sum = joined[0][c];",
        `    for (int w = 1; w < ${rowsPerBlock}; w++) sum += joined[w][c];`,
        `    p${buffer}[(ix)bx * ${length} + c] = sum;`,
        "  }",
      ]),
    ].join("\n");
    // Rows are latency-bound: more resident warps hide it.
    return { text, n: 0, blocks: units / depth, threads, together: 4, isUnfused };
  }
  const text = [
    ...head,
    `  ix u = (ix)bx * ${rowsPerBlock} + threadIdx.x / ${group};`,
    // Threads beyond the last row repeat it, so that whole warps take part in every shuffle.
    `  const int active = u < ${units};`,
    `  if (!active) u = ${units - 1};`,
    ...unpacked,
    ...(isProductRow(kernel) ? prefetches(kernel, length, group) : []),
    begin,
    ...top.lines,
    ...row.lines,
  ].join("\n");
  return { text, n: 0, blocks: Math.ceil(units / rowsPerBlock), threads, isUnfused };
}

/** A kernel as the body of a device function; see CudaKernel. */
export function emitCudaKernel(given: LoopKernel, options: CudaEmitOptions): CudaKernel {
  EmitScope.reset();
  const kernel = withoutDiagonals(given);
  joinShortAxes(kernel);
  const emitted =
    kernel.kind === "columns"
      ? emitColumns(kernel, options)
      : kernel.reductions.length + kernel.columnSums.length === 0
        ? (emitTiles(kernel, (printer) => pointers(printer, options), options.aligned) ?? emitMap(kernel, options))
        : (emitNarrow(kernel, (printer) => pointers(printer, options), reductionCode, options.aligned) ??
          emitRows(kernel, options));
  const large = kernel.buffers.some((node) => numel(node.shape) * 2 >= 2 ** 31) || kernel.size >= 2 ** 31;
  const head = `  typedef ${large ? "long long" : "int"} ix;`;
  const indexed = emitted.text.replaceAll("const long ", "const ix ");
  // Element numbers are below 2^31: the upper half of the counter is zero.
  const counted = large ? indexed : indexed.replaceAll("(uint64_t)(", "(uint64_t)(uint32_t)(");
  return { ...emitted, text: [head, ...(counted.includes(begin) ? [] : [begin]), counted].join("\n") };
}
