// The CUDA dialect of loop kernels. Element-wise kernels give every thread some elements; rows are reduced by part of a
// warp, a warp or a block, always in the same order; columns by tiles of 32 columns and 8 row lanes.
import { type DType, isComplex, kindOf, numel } from "../graph/index.js";
import { BodyPrinter, Scope } from "./body.js";
import { initial, isArg, mentionsAny, unpack, writeText } from "./emit-common.js";
import type { KExpr, LoopKernel, LoopVariable, Reduction, Store } from "./kernel.js";
import { type CValue, computeType, literal } from "./scalar.js";

export interface CudaKernel {
  /** The body of a function of `void* const* p` (the buffers), `bx` of `gx` blocks, and `n` elements. */
  text: string;
  /** Elements of a kernel that is one plain loop; texts of different sizes are then equal. */
  n: number;
  blocks: number;
  threads: number;
}

export interface CudaOptions {
  /** A result lies where an operand lies: the compiler must not assume otherwise. */
  mayAlias: boolean;
  /** Blocks that fill the device several times over. */
  maxBlocks: number;
  /** Buffers begin at multiples of 16 bytes (not so inside loops, which read slices). */
  aligned: boolean;
}

const blockSize = 256;
/** Elements that a thread of a plain loop takes at once: one vector load of floats. */
const vectorWidth = 4;
/** Values of a row that a thread keeps in registers between passes. */
const maxKept = 16;

/** Threads that share a row: the next power of two up to a warp, then a warp, then a block. */
function groupSize(length: number): number {
  if (length <= 32) return Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(1, length))));
  if (length <= 1024) return 32;
  return length <= 8192 ? 256 : 1024;
}

/** Variables of one running number; 32-bit arithmetic where everything fits. */
const unpackAs = (variables: readonly LoopVariable[], from: string): string[] =>
  unpack(variables, from).map((line) => line.replace("const long", "const ix"));

function pointers(printer: BodyPrinter, options: CudaOptions): string[] {
  return printer.pointers().map((line) => {
    const marked = options.mayAlias ? line : line.replace(/\* (p\d+) =/, "* __restrict__ $1 =");
    return options.aligned ? marked.replace(/p\[(\d+)\];/, "__builtin_assume_aligned(p[$1], 16);") : marked;
  });
}

/** The threads of a kernel's blocks. */
export function cudaThreads(kernel: LoopKernel): number {
  if (kernel.kind === "columns" || kernel.reductions.length === 0) return blockSize;
  return Math.max(blockSize, groupSize(numel(kernel.inner.map((v) => v.size))));
}

function emitMap(kernel: LoopKernel, options: CudaOptions): CudaKernel {
  const variables = [...kernel.outer, ...kernel.inner];
  const names = new Set(variables.map((v) => v.name));
  const top = new Scope("  ");
  const element = new Scope("      ");
  const printer = new BodyPrinter(kernel, { top, row: element, element }, names, new Set(), "0");
  const values = kernel.stores.map((s) => printer.value(s.value));
  const width = vectorOf(kernel);
  const vectors = kernel.size / width;
  const plain = variables.length <= 1;
  const count = plain ? "n" : String(kernel.size);
  const lines = [...pointers(printer, options).map((l) => `  ${l}`), ...top.lines];
  const loop = `  for (ix v = (ix)bx * ${blockSize} + threadIdx.x; v < ${width === 1 ? count : `${count} / ${width}`}; v += (ix)gx * ${blockSize}) {`;
  const unpacked = unpackAs(variables, "e").map((l) => `      ${l}`);
  if (width === 1) {
    lines.push("#pragma unroll 4", loop, "      const ix e = v;", ...unpacked, ...element.lines);
    kernel.stores.forEach((s, i) => {
      for (const line of writeText(kernel, s, values[i])) lines.push(`      ${line}`);
    });
    lines.push("  }");
  } else {
    // All of a thread's elements are read and computed before any is written: a result may lie where an operand lies.
    const kept = kernel.stores.map((s, i) => values[i].map((_, part) => ({ name: `o${i}_${part}`, s, i, part })));
    const declared = kept.flat().map(({ name, s }) => `${computeType[s.value.dtype]} ${name}[${width}];`);
    lines.push(
      loop,
      ...declared.map((l) => `    ${l}`),
      "#pragma unroll",
      `    for (int j = 0; j < ${width}; j++) {`,
      `      const ix e = v * ${width} + j;`,
      ...unpacked,
      ...element.lines,
      ...kept.flat().map(({ name, i, part }) => `      ${name}[j] = ${values[i][part]};`),
      "    }",
      "#pragma unroll",
      `    for (int j = 0; j < ${width}; j++) {`,
      `      const ix e = v * ${width} + j;`,
      ...unpacked,
    );
    kernel.stores.forEach((s, i) => {
      const value = kept[i].map(({ name }) => `${name}[j]`) as unknown as CValue;
      for (const line of writeText(kernel, s, value)) lines.push(`      ${line}`);
    });
    lines.push("    }", "  }");
  }
  return {
    text: lines.join("\n"),
    n: plain ? kernel.size : 0,
    blocks: Math.max(1, Math.min(options.maxBlocks, Math.ceil(vectors / blockSize))),
    threads: blockSize,
  };
}

/** Several elements a thread where the innermost variable allows it and there are enough threads left. */
function vectorOf(kernel: LoopKernel): number {
  const last = kernel.inner[kernel.inner.length - 1]?.size ?? 1;
  return last % vectorWidth === 0 && kernel.size >= 1 << 16 ? vectorWidth : 1;
}

/** How partial results of threads are joined: a statement on one lane's value and another's. */
function joinStatements(r: Reduction, group: number): string[] {
  const name = `r${r.slot}`;
  const dtype = r.argument.dtype;
  if (isComplex(dtype)) {
    const fn = r.fn === "sum" ? "w_join_csum" : "w_join_cprod";
    return [`${fn}<${group}>(&${name}r, &${name}i);`];
  }
  if (isArg(r)) return [`w_join_${r.fn}<${group}>(&b${name}, &${name});`];
  return [`${name} = w_join_${r.fn}<${group}>(${name});`];
}

function reductionCode(r: Reduction, value: CValue): { declare: string[]; update: string[]; after: string[] } {
  const name = `r${r.slot}`;
  const dtype = r.argument.dtype;
  const type = computeType[dtype];
  if (isComplex(dtype)) {
    const [re, im] = value as readonly [string, string];
    const update =
      r.fn === "sum"
        ? [`${name}r += ${re};`, `${name}i += ${im};`]
        : [
            `{ ${type} a = ${name}r * ${re} - ${name}i * ${im}; ${name}i = ${name}r * ${im} + ${name}i * ${re}; ${name}r = a; }`,
          ];
    return {
      declare: [`${type} ${name}r = ${literal(r.fn === "sum" ? 0 : 1, dtype)}, ${name}i = ${literal(0, dtype)};`],
      update,
      after: [],
    };
  }
  const [v] = value;
  if (isArg(r)) {
    const order = r.fn === "argmax" ? ">" : "<";
    const nan = kindOf(dtype) === "float" ? ` || (${v} != ${v} && b${name} == b${name})` : "";
    return {
      // An index beyond every row marks a lane that saw nothing.
      declare: [`int ${name} = 0x7fffffff; ${type} b${name} = ${initial(r.fn, dtype)};`],
      update: [
        `if (${name} == 0x7fffffff || ${v} ${order} b${name}${nan}) { b${name} = ${v}; ${name} = (int)(${r.position.print()}); }`,
      ],
      after: [],
    };
  }
  const after = r.dtype === "uint8" ? [`${name} &= 255;`] : [];
  const declare = [`${type} ${name} = ${initial(r.fn, dtype)};`];
  if (r.fn === "sum" || r.fn === "prod")
    return { declare, update: [`${name} ${r.fn === "sum" ? "+" : "*"}= ${v};`], after };
  return { declare, update: [extremum(r.fn as "max" | "min", name, v, dtype)], after };
}

/** NaN wins and stays. */
function extremum(fn: "max" | "min", name: string, v: string, dtype: DType): string {
  const nan = kindOf(dtype) === "float" ? ` || ${v} != ${v}` : "";
  return `${name} = (${v} ${fn === "max" ? ">" : "<"} ${name}${nan}) ? ${v} : ${name};`;
}

/** What one pass computes and a later one needs again stays in registers, loads included. */
function keepBetweenPasses(printer: BodyPrinter, kernel: LoopKernel): void {
  const firstPass = new Map<number, number>();
  const visit = (expr: KExpr, stage: number): void => {
    if (printer.depth(expr) < 2 || expr.kind === "const" || expr.kind === "index" || expr.kind === "dynamic") return;
    const first = firstPass.get(expr.id);
    if (first !== undefined && first < stage) {
      printer.stash.set(expr.id, { name: `s${expr.id}`, dtype: expr.dtype });
      return;
    }
    if (first === stage) return;
    firstPass.set(expr.id, stage);
    if ("args" in expr) for (const arg of expr.args) visit(arg, stage);
  };
  const uses = [
    ...kernel.reductions.map((r) => ({ stage: printer.stage(r.argument), expr: r.argument })),
    ...kernel.stores.map((s) => ({ stage: printer.stage(s.value), expr: s.value })),
  ];
  for (const { stage, expr } of uses.sort((a, b) => a.stage - b.stage)) visit(expr, stage);
}

function emitRows(kernel: LoopKernel, options: CudaOptions): CudaKernel {
  const { outer, inner } = kernel;
  const length = numel(inner.map((v) => v.size));
  const group = groupSize(length);
  const threads = Math.max(blockSize, group);
  const rowsPerBlock = threads / group;
  const units = numel(outer.map((v) => v.size));
  const innerNames = new Set(inner.map((v) => v.name));
  const top = new Scope("  ");
  const row = new Scope("  ");
  const scopes = { top, row, element: new Scope("    ") };
  const printer = new BodyPrinter(kernel, scopes, innerNames, new Set(outer.map((v) => v.name)), "i");
  const isElement = (s: Store): boolean =>
    inner.length > 0 && (printer.depth(s.value) === 2 || mentionsAny(s.address, innerNames));
  const elementStores = kernel.stores.filter(isElement);
  const rowStores = kernel.stores.filter((s) => !isElement(s));
  const stageOf = (s: Store): number => printer.stage(s.value);
  const last = Math.max(0, ...kernel.reductions.map((r) => printer.stage(r.argument)), ...elementStores.map(stageOf));
  const items = Math.ceil(length / group);
  if (items <= maxKept) keepBetweenPasses(printer, kernel);
  for (const { name, dtype } of printer.stash.values())
    row.add(`${computeType[dtype]} ${name}[${items * (isComplex(dtype) ? 2 : 1)}];`);
  const written = new Set<number>();
  for (let stage = 0; stage <= last; stage++) {
    const reductions = kernel.reductions.filter((r) => printer.stage(r.argument) === stage);
    const stores = elementStores.filter((s) => stageOf(s) === stage);
    if (reductions.length === 0 && stores.length === 0) continue;
    const element = new Scope("    ");
    scopes.element = element;
    // In its first pass a kept value is computed and written; only later passes read it.
    const fresh = [...printer.stash].filter(([id]) => !written.has(id));
    for (const [id] of fresh) printer.stash.delete(id);
    const after: string[] = [];
    for (const r of reductions) {
      const code = reductionCode(r, printer.value(r.argument));
      for (const line of code.declare) row.add(line);
      for (const line of code.update) element.add(line);
      after.push(...joinStatements(r, group), ...code.after);
    }
    const values = stores.map((s) => printer.value(s.value));
    for (const [id, stash] of fresh) {
      printer.stash.set(id, stash);
      const value = element.values.get(id);
      if (value === undefined) continue;
      written.add(id);
      value.forEach((part, k) => {
        element.add(`${stash.name}[${value.length === 1 ? "i" : `2*(i) + ${k}`}] = ${part};`);
      });
    }
    stores.forEach((s, i) => {
      for (const line of writeText(kernel, s, values[i])) element.add(`if (active) { ${line} }`);
    });
    if (printer.stash.size > 0) {
      row.add("#pragma unroll");
      row.add(`for (int i = 0; i < ${items}; i++) {`);
      row.add(`  const ix e = lane + i * ${group};`);
      if (length % group !== 0) row.add(`  if (e >= ${length}) break;`);
    } else row.add(`for (ix e = lane; e < ${length}; e += ${group}) {`);
    for (const line of unpackAs(inner, "e")) row.add(`  ${line}`);
    row.append(element.lines);
    row.add("}");
    for (const line of after) row.add(line);
  }
  const values = rowStores.map((s) => printer.value(s.value));
  rowStores.forEach((s, i) => {
    for (const line of writeText(kernel, s, values[i])) row.add(`if (active && lane == 0) { ${line} }`);
  });
  const text = [
    ...pointers(printer, options).map((l) => `  ${l}`),
    ...top.lines,
    `  const ix lane = threadIdx.x % ${group};`,
    `  ix u = (ix)bx * ${rowsPerBlock} + threadIdx.x / ${group};`,
    // Threads beyond the last row work along on it, so that whole warps take part in every exchange.
    `  const int active = u < ${units};`,
    `  if (!active) u = ${units - 1};`,
    ...unpackAs(outer, "u").map((l) => `  ${l}`),
    ...row.lines,
  ].join("\n");
  return { text, n: 0, blocks: Math.ceil(units / rowsPerBlock), threads };
}

function emitColumns(kernel: LoopKernel, options: CudaOptions): CudaKernel {
  const { outer, inner, reduced } = kernel;
  const vector = inner[0] ?? { name: "c_", size: 1 };
  const tiles = Math.ceil(vector.size / 32);
  const outerCount = numel(outer.map((v) => v.size));
  const depth = numel(reduced.map((v) => v.size));
  const top = new Scope("  ");
  const row = new Scope("  ");
  const element = new Scope("    ");
  const names = new Set([vector.name, ...reduced.map((v) => v.name)]);
  const printer = new BodyPrinter(kernel, { top, row, element }, names, new Set(outer.map((v) => v.name)), "0");
  const declare: string[] = [];
  const update: string[] = [];
  const finish: string[] = [];
  kernel.reductions.forEach((r, i) => {
    const code = reductionCode(r, printer.value(r.argument));
    declare.push(...code.declare);
    update.push(...code.update);
    const name = `r${r.slot}`;
    const fn = isComplex(r.argument.dtype)
      ? `w_tile_c${r.fn}(&${name}r, &${name}i);`
      : `${name} = w_tile_${r.fn}(${name});`;
    finish.push(fn, ...code.after);
    const store = kernel.stores[i];
    const value: CValue = isComplex(r.argument.dtype) ? [`${name}r`, `${name}i`] : [name];
    for (const line of writeText(kernel, store, value)) finish.push(`if (ty == 0 && inside) { ${line} }`);
  });
  const text = [
    ...pointers(printer, options).map((l) => `  ${l}`),
    ...top.lines,
    "  const ix tx = threadIdx.x % 32, ty = threadIdx.x / 32;",
    `  const ix o = (ix)bx / ${tiles};`,
    `  ix ${vector.name} = ((ix)bx % ${tiles}) * 32 + tx;`,
    `  const int inside = ${vector.name} < ${vector.size};`,
    `  if (!inside) ${vector.name} = ${vector.size - 1};`,
    ...unpackAs(outer, "o").map((l) => `  ${l}`),
    ...row.lines,
    ...declare.map((l) => `  ${l}`),
    "#pragma unroll 4",
    `  for (ix e = ty; e < ${depth}; e += 8) {`,
    ...unpackAs(reduced, "e").map((l) => `    ${l}`),
    ...element.lines,
    ...update.map((l) => `    ${l}`),
    "  }",
    ...finish.map((l) => `  ${l}`),
  ].join("\n");
  return { text, n: 0, blocks: outerCount * tiles, threads: 256 };
}

/** A kernel as the body of a device function; see CudaKernel. */
export function emitCudaKernel(kernel: LoopKernel, options: CudaOptions): CudaKernel {
  Scope.reset();
  const emitted =
    kernel.kind === "columns"
      ? emitColumns(kernel, options)
      : kernel.reductions.length === 0
        ? emitMap(kernel, options)
        : emitRows(kernel, options);
  const large = kernel.buffers.some((node) => numel(node.shape) * 2 >= 2 ** 31) || kernel.size >= 2 ** 31;
  const head = `  typedef ${large ? "long long" : "int"} ix;`;
  const indexed = emitted.text.replaceAll("const long ", "const ix ");
  // Element numbers below 2^31: the upper half of a counter is known to be zero.
  const counted = large ? indexed : indexed.replaceAll("(uint64_t)(", "(uint64_t)(uint32_t)(");
  return { ...emitted, text: `${head}\n${counted}` };
}
