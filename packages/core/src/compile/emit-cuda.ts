// The CUDA dialect of loop kernels. Element-wise kernels assign several elements to every thread; rows are reduced by a thread,
// part of a warp, a warp or a block, always in the same order; columns by tiles of 32 columns and 8 row lanes.
import { bytesOf, type DType, isComplex, kindOf, numel } from "../graph/index.js";
import { BodyPrinter, EmitScope, firstOf, keptName, vectorBase } from "./body.js";
import {
  chooseStash,
  foldCode,
  initial,
  isArg,
  loadsUnder,
  mentionsAny,
  type ReductionCode,
  unpackIndex,
  writeText,
} from "./emit-common.js";
import { emitNarrow, narrowThreads } from "./emit-narrow.js";
import { emitTiles, readsTiles } from "./emit-tile.js";
import { vectorLines, vectorStores } from "./emit-vector.js";
import type { KExpr, LoopKernel, LoopVariable, Reduction, Store } from "./kernel.js";
import { isProductRow, matrixLoads, prefetches, rowThreads, vectorsAhead } from "./row-threads.js";
import { type CValue, computeType, eachPart, storageType } from "./scalar.js";
import { word } from "./text.js";

export interface CudaKernel {
  /** The body of a function of `void* const* p` (the buffers), `bx` of `gx` blocks, and `n` elements. */
  text: string;
  /** Number of elements of a kernel that is one plain loop; texts of different sizes are then equal. */
  n: number;
  blocks: number;
  threads: number;
  /** Minimum number of blocks per multiprocessor. */
  together?: number;
}

interface CudaEmitOptions {
  /** A result aliases an operand: the compiler must not assume otherwise. */
  mayAlias: boolean;
  /** Number of blocks after which threads take a second turn; kernels with a launch of their own have no limit, and are faster. */
  maxBlocks: number;
  /** Buffers are aligned to 16 bytes (not inside loops, which read slices). */
  aligned: boolean;
}

const blockSize = 256;
/** Elements per thread and vector, if enough threads remain: one vector load of halves, two of floats. */
const vectorWidths = [8, 4, 2];
/** Number of sums per thread. */
const maxSums = 24;
/** Number of blocks of column sums that keeps all multiprocessors reading. */
const enoughTiles = 192;
/** Number of threads below which a vector of halves, or of floats, would leave multiprocessors idle. */
const enoughThreads = { halves: 1 << 16, floats: 1 << 14 };
/** Number of elements from which a thread takes several, if they are read one by one. */
const enoughElements = 1 << 18;
/** Cost per element from which loops are not unrolled. */
const longBody = 96;
/** Number of row values that a thread keeps in registers between passes. */
const maxKept = 16;

/** Variables from one linear index; 32-bit arithmetic where everything fits. */
const unpackAs = (variables: readonly LoopVariable[], from: string): string[] =>
  unpackIndex(variables, from).map((line) => line.replace("const long", "const ix"));

function pointers(printer: BodyPrinter, options: CudaEmitOptions): string[] {
  return printer.pointers().map((line) => {
    const marked = options.mayAlias ? line : line.replace(/\* (p\d+) =/, "* __restrict__ $1 =");
    return options.aligned ? marked.replace(/p\[(\d+)\];/, "__builtin_assume_aligned(p[$1], 16);") : marked;
  });
}

/** Whether a kernel has tiles in shared memory. */
export const isTiled = (kernel: LoopKernel): boolean => readsTiles(kernel) || narrowThreads(kernel) !== null;

/** Threads per block of a kernel. */
export function cudaThreads(kernel: LoopKernel): number {
  if (kernel.kind === "columns" || kernel.reductions.length === 0) return blockSize;
  const narrow = narrowThreads(kernel);
  if (narrow !== null) return narrow;
  return Math.max(blockSize, rowThreads(kernel));
}

function emitMap(kernel: LoopKernel, options: CudaEmitOptions): CudaKernel {
  const variables = [...kernel.outer, ...kernel.inner];
  const last = variables[variables.length - 1];
  const width = vectorOf(kernel);
  const top = new EmitScope("  ");
  const row = new EmitScope("    ");
  const element = new EmitScope("      ");
  const innerNames = new Set(width === 1 ? variables.map((v) => v.name) : [last.name]);
  const outerNames = new Set(variables.map((v) => v.name).filter((name) => !innerNames.has(name)));
  const printer = new BodyPrinter(
    kernel,
    { top, row: width === 1 ? element : row, element },
    innerNames,
    outerNames,
    "0",
  );
  if (width > 1 && options.aligned) printer.vector = { variable: last.name, width, add: (line) => row.add(line) };
  const values = kernel.stores.map((s) => printer.value(s.value));
  const vectors = kernel.size / width;
  const plain = variables.length <= 1;
  const count = plain ? "n" : String(kernel.size);
  const lines = [...pointers(printer, options).map((l) => `  ${l}`), ...top.lines];
  const turns = (index: string, first: string, end: string, each: number): string =>
    `  for (ix ${index} = (ix)bx * ${each}${first}; ${index} < ${end}; ${index} += (ix)gx * ${each}) {`;
  const loop = turns("v", " + threadIdx.x", width === 1 ? count : `${count} / ${width}`, blockSize);
  // Elements of a block, in rounds: its loads are on their way before the first of them is needed. Long bodies have enough
  // independent loads, and four copies of them take the compiler long.
  const rounds = width === 1 && kernel.size >= enoughElements && kernel.cost <= longBody ? 4 : 1;
  if (width === 1) {
    const unpacked = unpackAs(variables, "v").map((l) => `      ${l}`);
    const written = (of: readonly CValue[]): string[] =>
      kernel.stores.flatMap((s, i) => writeText(kernel, s, of[i]).map((line) => `      ${line}`));
    const body = [...unpacked, ...element.lines, ...written(values)];
    const held = values.map((value, k) => eachPart(value, (_, part) => `o${k}_${part}`));
    const each = [
      "#pragma unroll",
      `    for (int round = 0; round < ${rounds}; round++) {`,
      `      const ix v = first + round * ${blockSize} + threadIdx.x;`,
    ];
    if (rounds === 1) lines.push(loop, ...body);
    else
      lines.push(
        turns("first", "", count, rounds * blockSize),
        `    if (first + ${rounds * blockSize} <= ${count}) {`,
        ...held.flatMap((names, k) =>
          names.map((name) => `    ${computeType[kernel.stores[k].value.dtype]} ${name}[${rounds}];`),
        ),
        ...each,
        ...unpacked,
        ...element.lines,
        ...held.flatMap((names, k) => names.map((name, part) => `      ${name}[round] = ${values[k][part]};`)),
        "    }",
        ...each,
        ...unpacked,
        ...written(held.map((names) => eachPart(names, (name) => `${name}[round]`))),
        "    } } else",
        `    for (ix v = first + threadIdx.x; v < ${count}; v += ${blockSize}) {`,
        ...body,
        "    }",
      );
  } else {
    // Vectors run along the last variable: the other variables are the same for all elements of one.
    const part = { name: `${last.name}q`, size: last.size / width };
    const unpacked = plain ? [`const ix ${part.name} = v;`] : unpackAs([...variables.slice(0, -1), part], "v");
    const vector = { variable: last.name, width };
    const stores = vectorStores(kernel, kernel.stores, values, vector, options.aligned);
    lines.push(
      loop,
      ...unpacked.map((l) => `    ${l}`),
      `    const ix ${firstOf(last.name)} = ${part.name} * ${width};`,
    );
    lines.push(...row.lines, ...vectorLines(vector, [], element.lines, stores, "").map((l) => `    ${l}`));
  }
  lines.push("  }");
  return {
    text: lines.join("\n"),
    n: plain ? kernel.size : 0,
    blocks: Math.max(1, Math.min(options.maxBlocks, Math.ceil(vectors / blockSize / rounds))),
    threads: blockSize,
  };
}

/** Whether an operand is read element by element along a variable, because neighbors lie apart or are not aligned. */
function readsScattered(kernel: LoopKernel, variable: string, width: number): boolean {
  const vector = { variable, width };
  return loadsUnder(kernel.stores.map((s) => s.value)).some(({ address, dynamic, dtype }) => {
    if (dynamic.length > 0 || address.stride(variable) === 0) return false;
    return isComplex(dtype) || vectorBase(address, vector) === null;
  });
}

/** Several elements per thread where the innermost variable allows it and enough threads remain. */
function vectorOf(kernel: LoopKernel): number {
  const variable = kernel.inner[kernel.inner.length - 1];
  const last = variable?.size ?? 1;
  const small = kernel.buffers.some((b) => bytesOf(b.dtype) <= 2 && numel(b.shape) * 2 > kernel.size);
  // Elements that are read one by one are read by neighboring threads, which then share cache lines; halves are stored in pairs
  // and more.
  const isWide = kernel.stores.every((s) => bytesOf(kernel.buffers[s.buffer].dtype) >= 4);
  if (isWide && variable !== undefined && readsScattered(kernel, variable.name, 2)) return 1;
  for (const width of vectorWidths) {
    // No thread stores more than 16 bytes at once: its stores would each be a part of a sector.
    if (last % width !== 0 || (width === 8 && (!small || isWide))) continue;
    if (kernel.size / width >= (width === 8 ? enoughThreads.halves : enoughThreads.floats)) return width;
  }
  return 1;
}

/** How partial results of threads are combined: a statement on one lane's value and another's. */
function joinStatements(r: Reduction, group: number): string[] {
  const name = `r${r.slot}`;
  const dtype = r.argument.dtype;
  if (isComplex(dtype)) {
    const fn = r.fn === "sum" ? "w_join_csum" : "w_join_cprod";
    return [`${fn}<${group}>(&${name}r, &${name}i);`];
  }
  if (isArg(r)) return [`w_join_${word(r.fn)}<${group}>(&b${name}, &${name});`];
  return [`${name} = w_join_${word(r.fn)}<${group}>(${name});`];
}

function reductionCode(r: Reduction, value: CValue, name = `r${r.slot}`): ReductionCode {
  const { dtype } = r.argument;
  const type = computeType[dtype];
  const fold = foldCode(r, value, name, type);
  if (fold !== null) return fold;
  const [v] = value;
  if (isArg(r)) {
    const order = r.fn === "argmax" ? ">" : "<";
    const nan = kindOf(dtype) === "float" ? ` || (${v} != ${v} && b${name} == b${name})` : "";
    return {
      // An index beyond every row marks a lane without elements.
      declare: [`int ${name} = 0x7fffffff; ${type} b${name} = ${initial(r.fn, dtype)};`],
      update: [
        `if (${name} == 0x7fffffff || ${v} ${order} b${name}${nan}) { b${name} = ${v}; ${name} = (int)(${r.position.print()}); }`,
      ],
      end: [],
    };
  }
  return {
    declare: [`${type} ${name} = ${initial(r.fn, dtype)};`],
    update: [extremum(r.fn as "max" | "min", name, v, dtype)],
    end: [],
  };
}

/** NaN propagates. */
function extremum(fn: "max" | "min", name: string, v: string, dtype: DType): string {
  const nan = kindOf(dtype) === "float" ? ` || ${v} != ${v}` : "";
  return `${name} = (${v} ${fn === "max" ? ">" : "<"} ${name}${nan}) ? ${v} : ${name};`;
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
  if (items <= maxKept && !isProductRow(kernel)) chooseStash(printer, kernel, stashRule);
  else if (width > 1 && options.aligned) keepVectors(printer, kernel, { width, items, threads });
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
  for (let stage = 0; stage <= last; stage++) {
    const reductions = kernel.reductions.filter((r) => printer.stage(r.argument) === stage);
    const stores = elementStores.filter((s) => stageOf(s) === stage);
    const summed = sums.filter((s) => printer.stage(s.argument) === stage);
    if (reductions.length + stores.length + summed.length === 0) continue;
    const element = new EmitScope("    ");
    scopes.element = element;
    const loads: string[] = [];
    if (width > 1 && options.aligned)
      printer.vector = { variable: inner[0].name, width, add: (line) => loads.push(line) };
    // The first pass computes and writes a stashed value; only later passes read it.
    const fresh = [...printer.stash].filter(([id]) => !written.has(id));
    for (const [id] of fresh) printer.stash.delete(id);
    const after: string[] = [];
    for (const r of reductions) {
      const code = reductionCode(r, printer.value(r.argument));
      for (const line of code.declare) row.add(line);
      for (const line of code.update) element.add(line);
      after.push(...joinStatements(r, group), ...code.end);
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
      for (const line of vectorLines(vector, loads, body, written, guard)) row.add(`  ${line}`);
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
    return { text, n: 0, blocks: units / depth, threads, together: 4 };
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
  return { text, n: 0, blocks: Math.ceil(units / rowsPerBlock), threads };
}

/** Columns per thread: as many as leave enough blocks, and no lane of a warp idle. */
function columnVector(kernel: LoopKernel, columns: number, outerCount: number): number {
  if (kernel.reductions.some((r) => isArg(r) || isComplex(r.argument.dtype))) return 1;
  const fits = (w: number): boolean =>
    columns % w === 0 &&
    columns >= 32 * w &&
    w * kernel.reductions.length <= maxSums &&
    outerCount * Math.ceil(columns / (32 * w)) >= enoughTiles;
  return vectorWidths.find(fits) ?? 1;
}

function emitColumns(kernel: LoopKernel, options: CudaEmitOptions): CudaKernel {
  const { outer, inner, reduced } = kernel;
  const vector = inner[0] ?? { name: "c_", size: 1 };
  const outerCount = numel(outer.map((v) => v.size));
  const width = columnVector(kernel, vector.size, outerCount);
  const tiles = Math.ceil(vector.size / (32 * width));
  const depth = numel(reduced.map((v) => v.size));
  const top = new EmitScope("  ");
  const row = new EmitScope("  ");
  const element = new EmitScope("    ");
  const names = new Set([vector.name, ...reduced.map((v) => v.name)]);
  const printer = new BodyPrinter(kernel, { top, row, element }, names, new Set(outer.map((v) => v.name)), "0");
  const loads: string[] = [];
  if (width > 1 && options.aligned)
    printer.vector = { variable: vector.name, width, add: (line) => loads.push(`    ${line}`) };
  const declare: string[] = [];
  const update: string[] = [];
  const finish: string[] = [];
  const each = `for (int j = 0; j < ${width}; j++)`;
  kernel.reductions.forEach((r, i) => {
    const slot = `r${r.slot}`;
    const name = width === 1 ? slot : `${slot}[j]`;
    const code = reductionCode(r, printer.value(r.argument), name);
    update.push(...code.update);
    const start = `${each} ${name} = ${initial(r.fn, r.argument.dtype)};`;
    if (width === 1) declare.push(...code.declare);
    else declare.push(`${computeType[r.argument.dtype]} ${slot}[${width}];`, "#pragma unroll", start);
    const fn = isComplex(r.argument.dtype)
      ? `w_tile_c${word(r.fn)}(&${name}r, &${name}i);`
      : `${name} = w_tile_${word(r.fn)}(${name});`;
    const store = kernel.stores[i];
    const value: CValue = isComplex(r.argument.dtype) ? [`${name}r`, `${name}i`] : [name];
    const written = writeText(kernel, store, value).map((line) => `if (ty == 0 && inside) { ${line} }`);
    const column = width === 1 ? [] : [`const ix ${vector.name} = ${firstOf(vector.name)} + j;`];
    if (width > 1) finish.push("#pragma unroll", `${each} {`);
    finish.push(...column, fn, ...code.end, ...written);
    if (width > 1) finish.push("}");
  });
  const first = width === 1 ? vector.name : firstOf(vector.name);
  const body =
    width === 1
      ? [...element.lines, ...update.map((l) => `    ${l}`)]
      : [
          ...loads,
          "    #pragma unroll",
          `    ${each} {`,
          `    const ix ${vector.name} = ${first} + j;`,
          ...element.lines,
          ...update.map((l) => `    ${l}`),
          "    }",
        ];
  const text = [
    ...pointers(printer, options).map((l) => `  ${l}`),
    ...top.lines,
    "  const ix tx = threadIdx.x % 32, ty = threadIdx.x / 32;",
    `  const ix o = (ix)bx / ${tiles};`,
    `  ix ${first} = (((ix)bx % ${tiles}) * 32 + tx) * ${width};`,
    `  const int inside = ${first} < ${vector.size};`,
    `  if (!inside) ${first} = ${vector.size - width};`,
    ...unpackAs(outer, "o").map((l) => `  ${l}`),
    ...row.lines,
    ...declare.map((l) => `  ${l}`),
    "#pragma unroll 4",
    `  for (ix e = ty; e < ${depth}; e += 8) {`,
    ...unpackAs(reduced, "e").map((l) => `    ${l}`),
    ...body,
    "  }",
    ...finish.map((l) => `  ${l}`),
  ].join("\n");
  return { text, n: 0, blocks: outerCount * tiles, threads: 256 };
}

/** A kernel as the body of a device function; see CudaKernel. */
export function emitCudaKernel(kernel: LoopKernel, options: CudaEmitOptions): CudaKernel {
  EmitScope.reset();
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
