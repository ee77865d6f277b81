// The C dialect of loop kernels: a function over a range of outer iterations, rows in several passes, the innermost loop
// vectorized by the compiler.

import { isExpensive } from "../cost/index.js";
import { bytesOf, isComplex, isHalf, numel, range } from "../graph/index.js";
import { BodyPrinter, type Depth, EmitScope } from "./body.js";
import { withoutDiagonals } from "./diagonals.js";
import { emitColumnsC } from "./emit-c-columns.js";
import { emitJoined, emitKept } from "./emit-c-copies.js";
import { finishedTogether } from "./emit-c-finish.js";
import { emitGathersC } from "./emit-c-gathers.js";
import { inChunks, withHalfRows } from "./emit-c-halves.js";
import {
  chooseStash,
  comparedValues,
  type EmittedKernel,
  foldCode,
  initial,
  isArg,
  isFloatKind,
  loadsUnder,
  maxSharedLines,
  mentionsAny,
  storeLines,
  unpackIndex,
} from "./emit-common.js";
import { emitNarrowC } from "./emit-narrow-c.js";
import { emitTilesC } from "./emit-tile-c.js";
import { splitPoints, unsplitGuards } from "./guards.js";
import type { KExpr, LoopKernel, LoopVariable, Reduction, Store } from "./kernel.js";
import { withPhases } from "./phases.js";
import { type CValue, computeBytes, computeType } from "./scalar.js";
import { withSplitAxes } from "./split-axes.js";
import { word } from "./text.js";

/** Rows longer than this are summed in double precision. */
const longRow = 16384;
/** Expensive values are stored between passes over a row when the row is at most this long. */
const maxStash = 16384;
/** Shorter rows are not worth a second version of their loop. */
const minReadAhead = 8;
const vectorLanes = 16;

/** Statements of one reduction: declarations, the update for an element, the end, and its simd clause. */
function reductionCode(r: Reduction, value: CValue, rowLength: number, name = `r${r.slot}`) {
  const dtype = r.argument.dtype;
  const wide = r.fn === "sum" && dtype === "float32" && rowLength > longRow;
  const type = wide ? "double" : computeType[dtype];
  const fold = foldCode(r, value, name, type);
  if (fold !== null) {
    const sign = r.fn === "sum" ? "+" : "*";
    const simd = !isComplex(dtype) ? [`reduction(${sign}:${name})`] : [`reduction(+:${name}r,${name}i)`];
    return { ...fold, simd: isComplex(dtype) && r.fn !== "sum" ? null : simd };
  }
  const [v] = value;
  if (isArg(r)) {
    const order = r.fn === "argmax" ? ">" : "<";
    const nan = isFloatKind(dtype) ? ` || (${v} != ${v} && b${name} == b${name})` : "";
    return {
      declare: [`int32_t ${name} = 0; ${type} b${name} = ${initial(r.fn, dtype)}; int s${name} = 0;`],
      update: [
        `if (!s${name} || ${v} ${order} b${name}${nan}) { s${name} = 1; b${name} = ${v}; ${name} = (int32_t)(${r.position.print()}); }`,
      ],
      end: [],
      simd: null,
    };
  }
  const order = r.fn === "max" ? ">" : "<";
  const plain = {
    declare: `${type} ${name} = ${initial(r.fn, dtype)};`,
    update: `${name} = ${v} ${order} ${name} ? ${v} : ${name};`,
    simd: `reduction(${word(r.fn)}:${name})`,
  };
  if (!isFloatKind(dtype)) return { declare: [plain.declare], update: [plain.update], end: [], simd: [plain.simd] };
  // NaN propagates: the maximum ignores it, a flag records it.
  return {
    declare: [plain.declare, `int n${name} = 0;`],
    update: [plain.update, `n${name} |= ${v} != ${v};`],
    end: [`if (n${name}) ${name} = w_nan_${computeType[dtype] === "double" ? "d" : "f"}();`],
    simd: [plain.simd, `reduction(|:n${name})`],
  };
}

/**
 * Accumulators of a long row: a sum waits for the one before, so that several are computed side by side. Conversions of half types keep
 * processors busy meanwhile.
 */
const accumulators = { whole: 4, half: 2 };
/** Elements of a row that are reduced in single precision before they are added to what came before. */
const blockLength = 8192;
/** Bytes of the shortest row with several accumulators, as it is computed: joining their lanes takes as long as part of a shorter one. */
const minShared = { whole: 4096, half: 8192 };

/**
 * Loops over the first `count` elements of a row with several accumulators, for rows that are long and cheap; null for others. The
 * elements of a block are divided into consecutive parts, one per accumulator.
 */
function sharedSums(
  kernel: LoopKernel,
  reductions: readonly Reduction[],
  values: readonly CValue[],
  body: readonly string[],
): { lines: string[]; count: number } | null {
  const [variable, ...others] = kernel.inner;
  if (others.length > 0 || reductions.length === 0 || variable === undefined) return null;
  const loads = loadsUnder(reductions.map((r) => r.argument));
  const kind = loads.some(({ dtype }) => isHalf(dtype)) ? "half" : "whole";
  const count = accumulators[kind];
  const bytes = Math.max(...reductions.map((r) => computeBytes(r.argument.dtype)));
  if (variable.size * bytes < minShared[kind]) return null;
  if (body.length > maxSharedLines || splitPoints(kernel, variable).length > 0) return null;
  if (reductions.some((r) => isArg(r) || isComplex(r.argument.dtype) || isExpensiveUnder(r.argument))) return null;
  const { name, size } = variable;
  const blocks = Math.ceil(size / blockLength);
  const part = Math.floor(size / blocks / count / vectorLanes) * vectorLanes;
  const names = range(count).map((k) => (r: Reduction) => `r${r.slot}_${k}`);
  // Inside a block, rows are as short as those that are summed in single precision.
  const codes = names.map((nameOf) => reductions.map((r, i) => reductionCode(r, values[i], part, nameOf(r))));
  const simd = codes.flatMap((list) => list.flatMap((code) => code.simd ?? []));
  const parts = codes.flatMap((list, k) => [
    `        { const long ${name} = s_ + ${k * part} + i_; (void)${name};`,
    ...body.map((line) => `    ${line}`),
    ...list.flatMap((code) => code.update).map((line) => `          ${line}`),
    "        }",
  ]);
  const lines = [
    `    for (long s_ = 0; s_ < ${blocks * count * part}; s_ += ${count * part}) {`,
    ...codes.flat().flatMap((code) => code.declare.map((line) => `      ${line}`)),
    `      _Pragma("omp simd ${simd.join(" ")}")`,
    `      for (long i_ = 0; i_ < ${part}; i_++) {`,
    ...parts,
    "      }",
    ...reductions.flatMap((r) => names.map((nameOf) => `      ${joinText(r, nameOf(r))}`)),
    "    }",
  ];
  return { lines, count: blocks * count * part };
}

/** The statement that adds an accumulator to the result of its reduction. */
function joinText(r: Reduction, from: string): string {
  const name = `r${r.slot}`;
  if (r.fn === "sum") return `${name} += ${from};`;
  if (r.fn === "prod") return `${name} *= ${from};`;
  const nan = isFloatKind(r.argument.dtype) ? ` n${name} |= n${from};` : "";
  return `${name} = ${from} ${r.fn === "max" ? ">" : "<"} ${name} ? ${from} : ${name};${nan}`;
}

function isExpensiveUnder(expr: KExpr): boolean {
  return isWorthStash(expr) || ("args" in expr && expr.args.some(isExpensiveUnder));
}

function rowPositionText(inner: readonly LoopVariable[]): string {
  let stride = 1;
  const parts: string[] = [];
  for (let i = inner.length - 1; i >= 0; i--) {
    parts.push(stride === 1 ? inner[i].name : `${inner[i].name}*${stride}`);
    stride *= inner[i].size;
  }
  return parts.join(" + ") || "0";
}

/** Elements that are compared at a time when the place of an extreme is looked for. */
const searchBlock = 64;

/**
 * A pass that only looks for the place of an extreme: the extreme is found by vectors, then the first block that has it. Null for others.
 */
function searchLines(
  kernel: LoopKernel,
  printer: BodyPrinter,
  reductions: readonly Reduction[],
  stores: readonly Store[],
): string[] | null {
  const [r, ...more] = reductions;
  const [variable, ...others] = kernel.inner;
  if (r === undefined || !isArg(r) || more.length + stores.length + others.length + printer.stash.size > 0) return null;
  if (variable === undefined || variable.size < 2 * searchBlock) return null;
  if (splitPoints(kernel, variable).length > 0 || isExpensiveUnder(r.argument)) return null;
  const { name, size } = variable;
  const [v] = printer.value(r.argument);
  const body = printer.scopes.element.lines;
  const extreme: Reduction = { ...r, fn: r.fn === "argmax" ? "max" : "min" };
  const shared = sharedSums(kernel, [extreme], [[v]], body);
  const code = reductionCode(extreme, [v], size, `r${r.slot}`);
  printer.tally.add("simple", 2 * kernel.size);
  const best = `b${r.slot}`;
  const isNan = isFloatKind(r.argument.dtype) ? `nr${r.slot} ? ${v} != ${v} : ` : "";
  return [
    `    int32_t at${r.slot} = 0;`,
    "    {",
    ...code.declare.map((line) => `    ${line}`),
    ...(shared === null ? [] : shared.lines),
    ...innerLoops(
      kernel,
      [...body, ...code.update.map((line) => `      ${line}`)],
      code.simd,
      false,
      shared?.count ?? 0,
    ),
    `    const ${computeType[r.argument.dtype]} ${best} = r${r.slot}; (void)${best};`,
    `    for (long c_ = 0; c_ < ${size}; c_ += ${searchBlock}) {`,
    `      const long e_ = c_ + ${searchBlock} < ${size} ? c_ + ${searchBlock} : ${size};`,
    "      int some_ = 0;",
    '      _Pragma("omp simd reduction(|:some_)")',
    `      for (long ${name} = c_; ${name} < e_; ${name}++) {`,
    ...body,
    `        some_ |= ${isNan}${v} == ${best};`,
    "      }",
    "      if (!some_) continue;",
    `      for (long ${name} = c_; ${name} < e_; ${name}++) {`,
    ...body,
    `        if (${isNan}${v} == ${best}) { at${r.slot} = (int32_t)(${r.position.print()}); break; }`,
    "      }",
    "      break;",
    "    }",
    "    }",
    `    const int32_t r${r.slot} = at${r.slot};`,
  ];
}

/** Shorter rows compute all parts of a concatenation and select: a branch that is not predicted takes as long. */
const minBranch = 32;

/** A pass over rows that belong to one part each of a concatenation: a loop per part. Null for others. */
function branchLines(
  kernel: LoopKernel,
  printer: BodyPrinter,
  reductions: readonly Reduction[],
  stores: readonly Store[],
): string[] | null {
  const [store, ...others] = stores;
  if (store === undefined || reductions.length + others.length + printer.stash.size > 0) return null;
  if (numel(kernel.inner.map((v) => v.size)) < minBranch) return null;
  const testOf = (e: KExpr): KExpr | null =>
    e.kind === "where" && e.args[0].kind === "inRange" && printer.depth(e.args[0]) === 1 ? e.args[0] : null;
  const linesOf = (value: KExpr): string[] => {
    const test = testOf(value);
    if (test !== null && value.kind === "where") {
      const [, chosen, rest] = value.args;
      return [`    if (${printer.value(test)[0]}) {`, ...linesOf(chosen), "    } else {", ...linesOf(rest), "    }"];
    }
    const element = new EmitScope("      ");
    printer.scopes.element = element;
    for (const line of storeLines(kernel, printer, [{ ...store, value }])) element.add(line);
    return innerLoops(kernel, element.lines, [], false);
  };
  if (testOf(store.value) === null) return null;
  printer.tally.add("simple", 0.5 * kernel.size);
  return linesOf(store.value);
}

const isWorthStash = (e: KExpr): boolean =>
  e.kind === "random" || ((e.kind === "unary" || e.kind === "binary") && isExpensive(e.fn));

/** Innermost loops of fewer elements are unrolled inside the next one. */
const tinyLoop = 8;

/** A map whose last axis is tiny (pairs of a doubled image, windows side by side) runs over the two last axes. */
function overTwoAxes(kernel: LoopKernel): LoopKernel {
  const { outer, inner, reductions } = kernel;
  const isTiny = inner.length === 1 && inner[0].size < tinyLoop && inner[0].size > 1;
  if (reductions.length > 0 || !isTiny || outer.length < 2 || outer[outer.length - 1].size < 2 * tinyLoop)
    return kernel;
  return { ...kernel, outer: outer.slice(0, -1), inner: [outer[outer.length - 1], ...inner] };
}

function emitRows(given: LoopKernel): EmittedKernel {
  const kernel = overTwoAxes(withPhases(given));
  const { outer, inner } = kernel;
  const flat = outer.length === 0 && kernel.reductions.length === 0 && inner.length === 1;
  const rowLength = numel(inner.map((v) => v.size));
  const top = new EmitScope("  ");
  const row = new EmitScope("    ");
  const innerNames = new Set(inner.map((v) => v.name));
  const outerNames = new Set(outer.map((v) => v.name));
  const scopes = { top, row, element: new EmitScope("      ") };
  const printer = new BodyPrinter(kernel, scopes, innerNames, outerNames, rowPositionText(inner));
  const halves = withHalfRows(kernel, printer, flat);
  const hasRow = inner.length > 0;
  const depthOf = (e: KExpr): Depth => (hasRow ? printer.depth(e) : (Math.min(printer.depth(e), 1) as Depth));
  const compared = comparedValues(kernel);
  if (rowLength >= 2 && rowLength <= maxStash)
    chooseStash(printer, kernel, (e) => (isWorthStash(e) || compared.has(e) ? "stash" : "visit"));
  for (const { name, dtype } of printer.stash.values())
    row.add(`${computeType[dtype]} ${name}[${rowLength * (isComplex(dtype) ? 2 : 1)}] __attribute__((aligned(64)));`);

  const stageOf = (s: { value: KExpr }): number => printer.stage(s.value);
  // A store of a row value comes after the pass that finishes it.
  const elementStores = kernel.stores.filter(
    (s) => hasRow && (depthOf(s.value) === 2 || mentionsAny(s.address, innerNames)),
  );
  const rowStores = kernel.stores.filter((s) => !elementStores.includes(s));
  const lastStage = Math.max(
    0,
    ...kernel.reductions.map((r) => printer.stage(r.argument)),
    ...elementStores.map(stageOf),
  );
  const written = new Set<number>();
  for (let stage = 0; stage <= lastStage; stage++) {
    const reductions = kernel.reductions.filter((r) => printer.stage(r.argument) === stage);
    const stores = elementStores.filter((s) => stageOf(s) === stage);
    if (reductions.length === 0 && stores.length === 0) continue;
    const element = new EmitScope("      ");
    scopes.element = element;
    const mayReadAhead = printer.stash.size === 0 && readsAhead(kernel, flat);
    const fresh = [...printer.stash].filter(([id]) => !written.has(id));
    const before = new Map(fresh);
    // The first pass computes and writes a stashed value; only later passes read it.
    for (const [id] of before) printer.stash.delete(id);
    const simd: string[] = [];
    let vector = true;
    const ends: string[] = [];
    const special =
      searchLines(kernel, printer, reductions, stores) ??
      (flat || mayReadAhead ? null : branchLines(kernel, printer, reductions, stores));
    if (special !== null) {
      row.append(special);
      continue;
    }
    const folded = reductions.map((r) => printer.value(r.argument));
    const shared = stores.length === 0 && !mayReadAhead ? sharedSums(kernel, reductions, folded, element.lines) : null;
    for (const [k, r] of reductions.entries()) {
      // Accumulators are joined as those of long rows are: in double precision.
      const code = reductionCode(r, folded[k], shared === null ? rowLength : Number.POSITIVE_INFINITY);
      for (const line of code.declare) row.add(line);
      for (const line of code.update) element.add(line);
      printer.tally.add("simple", kernel.size * code.update.length);
      ends.push(...code.end);
      if (code.simd === null) vector = false;
      else simd.push(...code.simd);
    }
    const writes = storeLines(kernel, printer, stores);
    for (const [id, stash] of before) {
      const value = element.values.get(id);
      printer.stash.set(id, stash);
      if (value === undefined) continue;
      written.add(id);
      const at = printer.rowPosition;
      const parts = isComplex(stash.dtype) ? value.map((_, k) => `[2*(${at}) + ${k}]`) : [`[${at}]`];
      for (const [k, place] of parts.entries()) element.add(`${stash.name}${place} = ${value[k]};`);
    }
    for (const line of writes) element.add(line);
    const usesShared = shared !== null && vector && !fresh.some(([id]) => written.has(id));
    if (usesShared) row.append(shared.lines);
    const loops = innerLoops(kernel, element.lines, vector ? simd : null, flat, usesShared ? shared.count : 0);
    row.append(mayReadAhead ? withReadAhead(kernel, printer, { reductions, stores, simd, vector, loops }) : loops);
    printer.tally.add("simple", 0.5 * stores.length * kernel.size);
    // Loops over whole vectors count as vectorized; the remainder of others counts as scalar.
    const last = inner[inner.length - 1]?.size ?? 1;
    if (!flat && last % vectorLanes !== 0) printer.tally.rows += kernel.size / last;
    for (const line of ends) row.add(line);
  }
  const finish = finishedTogether(kernel, printer, rowStores, elementStores.length > 0);
  if (finish === null) for (const line of storeLines(kernel, printer, rowStores)) row.add(line);
  const [before, after] = [halves.before(), halves.after()];
  const whole = [...before, ...row.lines, ...after];
  const head = printer.pointers().map((l) => `  ${l}`);
  const rowText = flat
    ? before.length > 0
      ? inChunks(whole)
      : row.lines
    : finish !== null
      ? finish(whole)
      : ["  for (long u = lo; u < hi; u++) {", ...unpackIndex(outer, "u").map((l) => `    ${l}`), ...whole, "  }"];
  const text = [...head, ...top.lines, ...rowText].join("\n");
  return { text, units: flat ? rowLength : numel(outer.map((v) => v.size)), tally: printer.tally };
}

/** Whether rows have guards along their innermost variable that splitting its loop does not resolve. */
function readsAhead(kernel: LoopKernel, flat: boolean): boolean {
  const last = kernel.inner[kernel.inner.length - 1];
  return !flat && kernel.inner.length === 1 && last.size >= minReadAhead && unsplitGuards(kernel, last);
}

/** The loops of a pass, and a version for rows all of whose guarded loads stay in their buffers without clamped indices. */
function withReadAhead(
  kernel: LoopKernel,
  printer: BodyPrinter,
  pass: { reductions: Reduction[]; stores: Store[]; simd: string[]; vector: boolean; loops: string[] },
): string[] {
  const [{ name, size }] = kernel.inner;
  const element = new EmitScope("      ");
  printer.scopes.element = element;
  printer.unclamped = { variable: name, size, conditions: new Set() };
  const updates = pass.reductions.flatMap((r) => reductionCode(r, printer.value(r.argument), size).update);
  for (const line of updates) element.add(line);
  for (const line of storeLines(kernel, printer, pass.stores)) element.add(line);
  const conditions = [...printer.unclamped.conditions];
  printer.unclamped = null;
  const ahead = innerLoops(kernel, element.lines, pass.vector ? pass.simd : null, false);
  if (conditions.length === 0) return ahead;
  // The other rows are few. The empty statement keeps compilers from vectorizing their loops, which takes them long.
  const others = pass.loops.map((line) =>
    line.trimStart().startsWith("for (long") ? `${line} __asm__ volatile("");` : line,
  );
  return [
    `    if (${conditions.join(" && ")}) {`,
    ...ahead,
    "    } else {",
    ...others.filter((l) => !l.includes("_Pragma")),
    "    }",
  ];
}

/** Nested loops over the elements of a row, the last one vectorized and split where tests of `pad` and `concat` change. */
function innerLoops(
  kernel: LoopKernel,
  body: readonly string[],
  simd: readonly string[] | null,
  flat: boolean,
  first = 0,
): string[] {
  const { inner } = kernel;
  const lines: string[] = [];
  if (inner.length === 0) return [...body];
  const last = inner[inner.length - 1];
  // The compiler unrolls a tiny loop; the one around it is then the one of vectors.
  const isTiny = inner.length === 2 && kernel.reductions.length === 0 && last.size < tinyLoop;
  if (isTiny && simd !== null) lines.push(`    _Pragma("omp simd ${simd.join(" ")}")`);
  for (const v of inner.slice(0, -1)) lines.push(`    for (long ${v.name} = 0; ${v.name} < ${v.size}; ${v.name}++) {`);
  const ends = [...splitPoints(kernel, last), last.size];
  ends.forEach((end, i) => {
    const start = i === 0 ? first : ends[i - 1];
    if (isTiny) lines.push(`    _Pragma("GCC unroll ${tinyLoop}")`);
    else if (simd !== null) lines.push(`    _Pragma("omp simd ${simd.join(" ")}")`);
    const from = !flat ? String(start) : i === 0 ? "lo" : `(lo > ${start} ? lo : ${start})`;
    const to = !flat ? String(end) : i === ends.length - 1 ? "hi" : `(hi < ${end} ? hi : ${end})`;
    lines.push(`    for (long ${last.name} = ${from}; ${last.name} < ${to}; ${last.name}++) {`, ...body, "    }");
  });
  for (const _ of inner.slice(1)) lines.push("    }");
  return lines;
}

/**
 * A kernel as the body of `void name(void* const* p, long lo, long hi)`. `inRows`: units must be rows in their order, as an epilogue's
 * are.
 */
export function emitKernel(given: LoopKernel, inRows = false): EmittedKernel {
  EmitScope.reset();
  const kernel = inRows ? given : withSplitAxes(withoutDiagonals(given));
  if (kernel.kind === "rows" && !inRows) {
    for (const emit of [emitKept, emitJoined, emitTilesC, emitGathersC, emitNarrowC]) {
      const special = emit(kernel);
      if (special !== null) return special;
      EmitScope.reset();
    }
  }
  return kernel.kind === "rows" ? emitRows(kernel) : emitColumnsC(kernel);
}

/** Minimum number of bytes that a kernel reads and writes. */
export function kernelBytes(kernel: LoopKernel): number {
  return kernel.buffers.reduce((n, node) => n + numel(node.shape) * bytesOf(node.dtype), 0);
}
