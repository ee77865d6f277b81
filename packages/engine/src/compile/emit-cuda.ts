// The CUDA dialect of loop kernels. Element-wise kernels give every thread some elements; rows are reduced by part of a
// warp, a warp or a block, always in the same order; columns by tiles of 32 columns and 8 row lanes.
import { type DType, isComplex, kindOf, numel } from "../graph/index.js";
import { BodyPrinter, Scope } from "./body.js";
import { initial, isArg, mentionsAny, unpack, writeText } from "./emit-common.js";
import type { LoopKernel, LoopVariable, Reduction, Store } from "./kernel.js";
import { type CValue, computeType, literal } from "./scalar.js";

export interface CudaKernel {
  /** The function without its name and argument list. */
  text: string;
  blocks: number;
  threads: number;
}

export interface CudaOptions {
  /** A result lies where an operand lies: the compiler must not assume otherwise. */
  mayAlias: boolean;
  /** Blocks that fill the device several times over. */
  maxBlocks: number;
}

const blockSize = 256;

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
  return printer
    .pointers()
    .map((line) => (options.mayAlias ? line : line.replace(/\* (p\d+) =/, "* __restrict__ $1 =")));
}

function emitMap(kernel: LoopKernel, options: CudaOptions): CudaKernel {
  const variables = [...kernel.outer, ...kernel.inner];
  const names = new Set(variables.map((v) => v.name));
  const top = new Scope("  ");
  const element = new Scope("    ");
  const printer = new BodyPrinter(kernel, { top, row: element, element }, names, new Set(), "0");
  const values = kernel.stores.map((s) => printer.value(s.value));
  kernel.stores.forEach((s, i) => {
    for (const line of writeText(kernel, s, values[i])) element.add(line);
  });
  const text = [
    ...pointers(printer, options).map((l) => `  ${l}`),
    ...top.lines,
    "#pragma unroll 4",
    `  for (ix e = (ix)blockIdx.x * ${blockSize} + threadIdx.x; e < ${kernel.size}; e += (ix)gridDim.x * ${blockSize}) {`,
    ...unpackAs(variables, "e").map((l) => `    ${l}`),
    ...element.lines,
    "  }",
  ].join("\n");
  return {
    text,
    blocks: Math.max(1, Math.min(options.maxBlocks, Math.ceil(kernel.size / blockSize))),
    threads: blockSize,
  };
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
  const printer = new BodyPrinter(kernel, scopes, innerNames, new Set(outer.map((v) => v.name)), "0");
  const isElement = (s: Store): boolean =>
    inner.length > 0 && (printer.depth(s.value) === 2 || mentionsAny(s.address, innerNames));
  const elementStores = kernel.stores.filter(isElement);
  const rowStores = kernel.stores.filter((s) => !isElement(s));
  const stageOf = (s: Store): number => printer.stage(s.value);
  const last = Math.max(0, ...kernel.reductions.map((r) => printer.stage(r.argument)), ...elementStores.map(stageOf));
  for (let stage = 0; stage <= last; stage++) {
    const reductions = kernel.reductions.filter((r) => printer.stage(r.argument) === stage);
    const stores = elementStores.filter((s) => stageOf(s) === stage);
    if (reductions.length === 0 && stores.length === 0) continue;
    const element = new Scope("    ");
    scopes.element = element;
    const after: string[] = [];
    for (const r of reductions) {
      const code = reductionCode(r, printer.value(r.argument));
      for (const line of code.declare) row.add(line);
      for (const line of code.update) element.add(line);
      after.push(...joinStatements(r, group), ...code.after);
    }
    const values = stores.map((s) => printer.value(s.value));
    stores.forEach((s, i) => {
      for (const line of writeText(kernel, s, values[i])) element.add(`if (active) { ${line} }`);
    });
    row.add(`for (ix e = lane; e < ${length}; e += ${group}) {`);
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
    `  ix u = (ix)blockIdx.x * ${rowsPerBlock} + threadIdx.x / ${group};`,
    // Threads beyond the last row work along on it, so that whole warps take part in every exchange.
    `  const int active = u < ${units};`,
    `  if (!active) u = ${units - 1};`,
    ...unpackAs(outer, "u").map((l) => `  ${l}`),
    ...row.lines,
  ].join("\n");
  return { text, blocks: Math.ceil(units / rowsPerBlock), threads };
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
    `  const ix o = (ix)blockIdx.x / ${tiles};`,
    `  ix ${vector.name} = ((ix)blockIdx.x % ${tiles}) * 32 + tx;`,
    `  const int inside = ${vector.name} < ${vector.size};`,
    `  if (!inside) ${vector.name} = ${vector.size - 1};`,
    ...unpackAs(outer, "o").map((l) => `  ${l}`),
    ...row.lines,
    ...declare.map((l) => `  ${l}`),
    `  for (ix e = ty; e < ${depth}; e += 8) {`,
    ...unpackAs(reduced, "e").map((l) => `    ${l}`),
    ...element.lines,
    ...update.map((l) => `    ${l}`),
    "  }",
    ...finish.map((l) => `  ${l}`),
  ].join("\n");
  return { text, blocks: outerCount * tiles, threads: 256 };
}

/** A kernel as the body of `extern "C" __global__ void name(const Args args)`, where args.p are its buffers. */
export function emitCudaKernel(kernel: LoopKernel, options: CudaOptions): CudaKernel {
  Scope.reset();
  const emitted =
    kernel.kind === "columns"
      ? emitColumns(kernel, options)
      : kernel.reductions.length === 0
        ? emitMap(kernel, options)
        : emitRows(kernel, options);
  const large = kernel.buffers.some((node) => numel(node.shape) * 2 >= 2 ** 31) || kernel.size >= 2 ** 31;
  const head = `  typedef ${large ? "long long" : "int"} ix; void* const* p = args.p;`;
  return { ...emitted, text: `${head}\n${emitted.text.replaceAll("const long ", "const ix ")}` };
}
