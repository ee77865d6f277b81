// Reductions of outer axes in CUDA: tiles of 32 columns and 8 row lanes, or one thread per column where columns are short.
import { bytesOf, isComplex, numel } from "../graph/index.js";
import { BodyPrinter, EmitScope, firstOf } from "./body.js";
import { initial, isArg, loadsUnder, type ReductionCode, writeText } from "./emit-common.js";
import {
  blockSize,
  type CudaEmitOptions,
  type CudaKernel,
  joinSpread,
  meanOf,
  pointers,
  reductionCode,
  unpackAs,
  vectorWidths,
} from "./emit-cuda-common.js";
import type { LoopKernel, LoopVariable, Reduction } from "./kernel.js";
import { computeType } from "./scalar.js";
import { word } from "./text.js";

/** Number of sums per thread. */
const maxSums = 24;
/** Number of blocks of column sums that keeps all multiprocessors reading. */
const enoughTiles = 192;
/** Rows of columns that one thread reduces, and the threads that then fill a GPU; longer columns take 8 row lanes. */
const shortColumns = { rows: 64, threads: 1 << 16 };
/** Threads up to which each has twice as many rows on their way, so that memory is kept busy. */
const fewThreads = 1 << 17;
/** Registers of a reduction per column. */
const registersOf = (r: Reduction): number => (r.fn === "spread" || isArg(r) ? 2 : 1);

/** Columns per thread: as many as leave enough blocks, and no lane of a warp idle. `across`: threads of a block side by side. */
function columnVector(kernel: LoopKernel, columns: number, outerCount: number, across: number): number {
  if (kernel.reductions.some((r) => isComplex(r.argument.dtype))) return 1;
  const registers = kernel.reductions.reduce((sum, r) => sum + registersOf(r), 0);
  const bytes = Math.max(...loadsUnder(kernel.reductions.map((r) => r.argument)).map(({ dtype }) => bytesOf(dtype)), 1);
  const fits = (w: number): boolean =>
    columns % w === 0 &&
    // Wider vectors leave gaps between what a warp reads at once.
    w * bytes <= 32 &&
    columns >= across * w &&
    w * registers <= maxSums &&
    outerCount * Math.ceil(columns / (across * w)) >= enoughTiles;
  return vectorWidths.find(fits) ?? 1;
}

/** Statements that reduce columns: declarations, the update for an element, and the end with the stores. */
function columnReductions(
  kernel: LoopKernel,
  printer: BodyPrinter,
  { width, lanes, depth, vector }: { width: number; lanes: number; depth: number; vector: LoopVariable },
): ReductionCode {
  const [declare, update, together, finish]: string[][] = [[], [], [], []];
  const each = `for (int j = 0; j < ${width}; j++)`;
  const own = `${Math.floor(depth / lanes)} + (ty < ${depth % lanes} ? 1 : 0)`;
  const joinAll = (fn: string, name: string): string => `w_tiles_${word(fn)}<${width}>(${name});`;
  for (const r of kernel.reductions) {
    const { dtype } = r.argument;
    const slot = `r${r.slot}`;
    const name = width === 1 ? slot : `${slot}[j]`;
    const code = reductionCode(r, printer.value(r.argument), name, `e / ${lanes} + 1`);
    update.push(...code.update);
    if (width === 1) declare.push(...code.declare);
    else
      for (const [type, of, from] of [
        [isArg(r) ? "int" : computeType[dtype], slot, isArg(r) ? "0x7fffffff" : initial(r.fn, dtype)],
        ...(r.fn === "spread" ? [[computeType[dtype], meanOf(slot), initial("sum", dtype)]] : []),
        ...(isArg(r) ? [[computeType[dtype], `b${slot}`, initial(r.fn, dtype)]] : []),
      ])
        declare.push(`${type} ${of}[${width}];`, "#pragma unroll", `${each} ${of}[j] = ${from};`);
    if (lanes > 1 && width > 1 && !isArg(r)) {
      if (r.fn === "spread") {
        const [type, mean, all] = [computeType[dtype], meanOf(slot), `all${slot}`];
        together.push(
          `${type} ${all}[${width}];`,
          `${each} ${all}[j] = (${type})(${own}) * ${mean}[j];`,
          joinAll("sum", all),
          `${each} { const ${type} apart = ${mean}[j] - ${all}[j] / (${type})${depth}; ${name} += (${type})(${own}) * apart * apart; }`,
        );
      }
      together.push(joinAll(r.fn === "spread" ? "sum" : r.fn, slot));
    } else if (lanes > 1)
      finish.push(
        r.fn === "spread"
          ? joinSpread(r, name, own, depth, (x) => `w_tile_sum(${x})`)
          : isArg(r)
            ? `w_tile_${word(r.fn)}(&b${name}, &${name});`
            : isComplex(dtype)
              ? `w_tile_c${word(r.fn)}(&${name}r, &${name}i);`
              : `${name} = w_tile_${word(r.fn)}(${name});`,
      );
    finish.push(...code.end);
  }
  // What is computed from the results, by one thread per column.
  const last = new EmitScope("  ");
  Object.assign(printer.scopes, { row: last, element: last });
  printer.vector = null;
  printer.reducedAt = width === 1 ? "" : "[j]";
  const written = kernel.stores.flatMap((store) => writeText(kernel, store, printer.value(store.value)));
  const body = [
    ...finish,
    `if (${lanes === 1 ? "inside" : "ty == 0 && inside"}) {`,
    ...last.lines,
    ...written.map((line) => `  ${line}`),
    "}",
  ];
  const end =
    width === 1
      ? body
      : [
          ...together,
          "#pragma unroll",
          `${each} {`,
          `const ix ${vector.name} = ${firstOf(vector.name)} + j;`,
          ...body,
          "}",
        ];
  return { declare, update, end };
}

export function emitColumns(kernel: LoopKernel, options: CudaEmitOptions): CudaKernel {
  const { outer, inner, reduced } = kernel;
  const vector = inner[0] ?? { name: "c_", size: 1 };
  const outerCount = numel(outer.map((v) => v.size));
  const depth = numel(reduced.map((v) => v.size));
  const isShort = depth <= shortColumns.rows && outerCount * vector.size >= shortColumns.threads && vector.size >= 256;
  const lanes = isShort ? 1 : 8;
  const across = blockSize / lanes;
  const width = columnVector(kernel, vector.size, outerCount, across);
  const tiles = Math.ceil(vector.size / (across * width));
  const top = new EmitScope("  ");
  const row = new EmitScope("  ");
  const element = new EmitScope("    ");
  const names = new Set([vector.name, ...reduced.map((v) => v.name)]);
  const printer = new BodyPrinter(kernel, { top, row, element }, names, new Set(outer.map((v) => v.name)), "0");
  const loads = new EmitScope("    ");
  if (width > 1 && options.aligned) printer.vector = { variable: vector.name, width, scope: loads };
  const { declare, update, end } = columnReductions(kernel, printer, { width, lanes, depth, vector });
  const first = width === 1 ? vector.name : firstOf(vector.name);
  const body =
    width === 1
      ? [...element.lines, ...update.map((l) => `    ${l}`)]
      : [
          ...loads.lines,
          "    #pragma unroll",
          `    for (int j = 0; j < ${width}; j++) {`,
          `    const ix ${vector.name} = ${first} + j;`,
          ...element.lines,
          ...update.map((l) => `    ${l}`),
          "    }",
        ];
  const text = [
    ...pointers(printer, options).map((l) => `  ${l}`),
    ...top.lines,
    `  const ix tx = threadIdx.x % ${across}, ty = threadIdx.x / ${across};`,
    `  const ix o = (ix)bx / ${tiles};`,
    `  ix ${first} = (((ix)bx % ${tiles}) * ${across} + tx) * ${width};`,
    `  const int inside = ${first} < ${vector.size};`,
    `  if (!inside) ${first} = ${vector.size - width};`,
    ...unpackAs(outer, "o").map((l) => `  ${l}`),
    ...row.lines,
    ...declare.map((l) => `  ${l}`),
    `#pragma unroll ${isShort || outerCount * tiles * blockSize <= fewThreads ? 8 : 4}`,
    `  for (ix e = ty; e < ${depth}; e += ${lanes}) {`,
    ...unpackAs(reduced, "e").map((l) => `    ${l}`),
    ...body,
    "  }",
    ...end.map((l) => `  ${l}`),
  ].join("\n");
  return { text, n: 0, blocks: outerCount * tiles, threads: blockSize };
}
