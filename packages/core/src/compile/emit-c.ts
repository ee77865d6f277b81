// The C dialect of loop kernels: a function over a range of outer iterations, rows in several passes, the innermost loop
// vectorized by the compiler.

import { isExpensive } from "../cost/index.js";
import { bytesOf, type DType, isComplex, kindOf, numel, range } from "../graph/index.js";
import { BodyPrinter, type Depth, EmitScope } from "./body.js";
import { chooseStash, foldCode, initial, isArg, mentionsAny, storeLines, unpackIndex } from "./emit-common.js";
import { emitNarrowC } from "./emit-narrow-c.js";
import { emitTilesC } from "./emit-tile-c.js";
import { splitPoints, unsplitGuards } from "./guards.js";
import { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel, LoopVariable, Reduction, Store } from "./kernel.js";
import { withPhases } from "./phases.js";
import { type CValue, computeType, literal, storeText, wrapText } from "./scalar.js";
import type { Tally } from "./tally.js";
import { word } from "./text.js";

/** Rows longer than this are summed in double precision. */
const longRow = 16384;
/** Expensive values are stored between passes over a row when the row is at most this long. */
const maxStash = 16384;
const columnBlock = 256;
/** Shorter rows are not worth a second version of their loop. */
const minReadAhead = 8;
const vectorLanes = 16;
const isFloatKind = (dtype: DType): boolean => kindOf(dtype) === "float";

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

/** Accumulators of a long row: a sum waits for the one before, so that several are computed side by side. */
const accumulators = 4;
/** Elements of a row that are reduced in single precision before they are added to what came before. */
const blockLength = 8192;
const minShared = 256;
/** Longer expressions keep the processor busy by themselves. */
const maxSharedLines = 6;

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
  if (others.length > 0 || reductions.length === 0 || variable === undefined || variable.size < minShared) return null;
  if (body.length > maxSharedLines || splitPoints(kernel, variable).length > 0) return null;
  if (reductions.some((r) => isArg(r) || isComplex(r.argument.dtype) || isExpensiveUnder(r.argument))) return null;
  const { name, size } = variable;
  const blocks = Math.ceil(size / blockLength);
  const part = Math.floor(size / blocks / accumulators / vectorLanes) * vectorLanes;
  const names = range(accumulators).map((k) => (r: Reduction) => `r${r.slot}_${k}`);
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
    `    for (long s_ = 0; s_ < ${blocks * accumulators * part}; s_ += ${accumulators * part}) {`,
    ...codes.flat().flatMap((code) => code.declare.map((line) => `      ${line}`)),
    `      _Pragma("omp simd ${simd.join(" ")}")`,
    `      for (long i_ = 0; i_ < ${part}; i_++) {`,
    ...parts,
    "      }",
    ...reductions.flatMap((r) => names.map((nameOf) => `      ${joinText(r, nameOf(r))}`)),
    "    }",
  ];
  return { lines, count: blocks * accumulators * part };
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

interface EmittedKernel {
  /** The function without its name: equal texts are equal kernels. */
  text: string;
  /** Number of outer iterations to distribute. */
  units: number;
  /** Operation counts of the text. */
  tally: Tally;
  /** Column sums: the width of a column. */
  columns?: number;
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
  const hasRow = inner.length > 0;
  const depthOf = (e: KExpr): Depth => (hasRow ? printer.depth(e) : (Math.min(printer.depth(e), 1) as Depth));
  if (rowLength >= 2 && rowLength <= maxStash)
    chooseStash(printer, kernel, (e) => (isWorthStash(e) ? "stash" : "visit"));
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
  for (const line of storeLines(kernel, printer, rowStores)) row.add(line);
  const head = printer.pointers().map((l) => `  ${l}`);
  const rowText = flat
    ? row.lines
    : ["  for (long u = lo; u < hi; u++) {", ...unpackIndex(outer, "u").map((l) => `    ${l}`), ...row.lines, "  }"];
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

function emitColumns(kernel: LoopKernel): EmittedKernel {
  const { outer, inner, reduced } = kernel;
  const vector = inner[0] ?? { name: "c_", size: 1 };
  const outerCount = numel(outer.map((v) => v.size));
  let block = Math.min(columnBlock, vector.size);
  // Enough blocks for several threads, none narrower than a cache line.
  while (block > 32 && outerCount * Math.ceil(vector.size / block) < 8) block = Math.ceil(block / 2 / 16) * 16;
  const blocks = Math.ceil(vector.size / block);
  const top = new EmitScope("  ");
  const row = new EmitScope("    ");
  const element = new EmitScope("        ");
  const innerNames = new Set([vector.name, ...reduced.map((v) => v.name)]);
  const printer = new BodyPrinter(kernel, { top, row, element }, innerNames, new Set(outer.map((v) => v.name)), "0");
  const at = `(${vector.name} - cb)`;
  const accumulate: string[] = [];
  const finish: string[] = [];
  /** Statements that move sums in single precision to those in double precision, column by column. */
  const flush: string[] = [];
  const isLong = numel(reduced.map((v) => v.size)) > columnRows;
  kernel.reductions.forEach((r, i) => {
    const value = printer.value(r.argument);
    const dtype = r.argument.dtype;
    const type = computeType[dtype];
    const name = `a${r.slot}`;
    const isFlushed = isLong && r.fn === "sum" && type === "float";
    const parts = isComplex(dtype) ? 2 : 1;
    const starts = parts === 2 ? [literal(r.fn === "sum" ? 0 : 1, dtype), literal(0, dtype)] : [initial(r.fn, dtype)];
    for (let k = 0; k < parts; k++) {
      row.add(`${type} ${name}${k}[${block}] __attribute__((aligned(64)));`);
      row.add(`for (long c = 0; c < ${block}; c++) ${name}${k}[c] = ${starts[k]};`);
      if (!isFlushed) continue;
      row.add(`double d${name}${k}[${block}] __attribute__((aligned(64)));`);
      row.add(`for (long c = 0; c < ${block}; c++) d${name}${k}[c] = 0;`);
      flush.push(`d${name}${k}[c] += ${name}${k}[c];`, `${name}${k}[c] = 0;`);
    }
    if (isArg(r)) row.add(`int32_t i${name}[${block}] __attribute__((aligned(64))) = {0};`);
    accumulate.push(...columnUpdate(r, name, at, value, type));
    printer.tally.add("simple", 2 * parts * kernel.size);
    const store = kernel.stores[i];
    const total = (k: number): string =>
      isArg(r)
        ? `i${name}[${at}]`
        : isFlushed
          ? `(float)(d${name}${k}[${at}] + ${name}${k}[${at}])`
          : `${name}${k}[${at}]`;
    const result: CValue = parts === 2 ? [total(0), total(1)] : [wrapText(total(0), r.dtype)];
    finish.push(...storeText(`p${store.buffer}`, store.address.print(), kernel.buffers[store.buffer].dtype, result));
  });
  const columnLoop = (indent: string, body: readonly string[], simd: boolean): string[] => {
    const ends = [...(simd ? splitPoints(kernel, vector) : []), vector.size];
    return ends.flatMap((end, i) => {
      const from = i === 0 ? "cb" : `(cb > ${ends[i - 1]} ? cb : ${ends[i - 1]})`;
      const to = i === ends.length - 1 ? "ce" : `(ce < ${end} ? ce : ${end})`;
      return [
        ...(simd ? [`${indent}_Pragma("omp simd")`] : []),
        `${indent}for (long ${vector.name} = ${from}; ${vector.name} < ${to}; ${vector.name}++) {`,
        ...body,
        `${indent}}`,
      ];
    });
  };
  const text = [
    ...printer.pointers().map((l) => `  ${l}`),
    ...top.lines,
    "  for (long u = lo; u < hi; u++) {",
    `    const long o = u / ${blocks}, cb = (u % ${blocks}) * ${block};`,
    `    const long ce = cb + ${block} < ${vector.size} ? cb + ${block} : ${vector.size};`,
    ...unpackIndex(outer, "o").map((l) => `    ${l}`),
    ...row.lines,
    ...reducedLoops(
      reduced,
      [...element.lines, ...accumulate.map((l) => `        ${l}`)],
      (body) => columnLoop("      ", body, true),
      flush.length === 0 ? null : `for (long c = 0; c < ${block}; c++) { ${flush.join(" ")} }`,
    ),
    ...columnLoop(
      "    ",
      finish.map((l) => `      ${l}`),
      false,
    ),
    "  }",
  ].join("\n");
  const width = block * Math.max(...kernel.reductions.map((r) => bytesOf(r.argument.dtype)));
  return { text, units: outerCount * blocks, tally: printer.tally, columns: width };
}

/** Rows that are added to accumulators in memory at a time. */
const rowsAtOnce = 4;
/** Rows of a column that are summed in single precision before they are added to what came before. */
const columnRows = 512;

/** Loops over the reduced variables. Several rows of a cheap body are added together: the accumulators are read and written once. */
function reducedLoops(
  reduced: readonly LoopVariable[],
  body: readonly string[],
  columns: (body: readonly string[]) => string[],
  flush: string | null,
): string[] {
  const [last] = reduced.slice(-1);
  const flushed = (rows: number): string[] =>
    flush === null ? [] : [`      if ((n_ += ${rows}) >= ${columnRows}) { n_ = 0; ${flush} }`];
  const several = last !== undefined && last.size >= 2 * rowsAtOnce && body.length <= maxSharedLines;
  const whole = several ? last.size - (last.size % rowsAtOnce) : 0;
  const rows = range(rowsAtOnce).flatMap((k) => [
    `        { const long ${last?.name} = r_ + ${k}; (void)${last?.name};`,
    ...body,
    "        }",
  ]);
  const shared = [...columns(rows), ...flushed(rowsAtOnce)];
  return [
    ...(flush === null ? [] : ["    long n_ = 0;"]),
    ...reduced.slice(0, -1).map((v) => `    for (long ${v.name} = 0; ${v.name} < ${v.size}; ${v.name}++) {`),
    ...(whole > 0 ? [`    for (long r_ = 0; r_ < ${whole}; r_ += ${rowsAtOnce}) {`, ...shared, "    }"] : []),
    ...(last === undefined
      ? []
      : [`    for (long ${last.name} = ${whole}; ${last.name} < ${last.size}; ${last.name}++) {`]),
    ...columns(body),
    ...flushed(1),
    ...reduced.map(() => "    }"),
  ];
}

function columnUpdate(r: Reduction, name: string, at: string, value: CValue, type: string): string[] {
  const a = `${name}0[${at}]`;
  if (value.length === 2) {
    const b = `${name}1[${at}]`;
    if (r.fn === "sum") return [`${a} += ${value[0]};`, `${b} += ${value[1]};`];
    return [
      `{ ${type} x = ${a} * ${value[0]} - ${b} * ${value[1]}; ${b} = ${a} * ${value[1]} + ${b} * ${value[0]}; ${a} = x; }`,
    ];
  }
  const [v] = value;
  if (isArg(r)) {
    // Only a better element replaces the best one, so that the first of equals stays; the first NaN is better than all numbers.
    const isNan = isFloatKind(r.argument.dtype) ? ` | ((${v} != ${v}) & (${a} == ${a}))` : "";
    return [
      `{ const int w = (${v} ${r.fn === "argmax" ? ">" : "<"} ${a})${isNan};`,
      `i${name}[${at}] = w ? (int32_t)(${r.position.print()}) : i${name}[${at}];`,
      `${a} = w ? ${v} : ${a}; }`,
    ];
  }
  if (r.fn === "sum") return [`${a} += ${v};`];
  if (r.fn === "prod") return [`${a} *= ${v};`];
  const order = r.fn === "max" ? ">" : "<";
  const nan = isFloatKind(r.dtype) ? ` || ${v} != ${v}` : "";
  return [`${a} = (${v} ${order} ${a}${nan}) ? ${v} : ${a};`];
}

const withoutInner = (ix: Ix, name: string): Ix => ix.substitute(new Map([[name, Ix.zero]]));

/** Whether an address has stride one along the inner variable, from a multiple of four on. */
function inFours(ix: Ix, name: string): boolean {
  const rest = withoutInner(ix, name);
  return ix.stride(name) === 1 && rest.constant % 4 === 0 && [...rest.terms.values()].every((t) => t.factor % 4 === 0);
}

/** A kernel that is only a dropout mask: whole blocks of random bits, four elements each. */
function emitKept(kernel: LoopKernel): EmittedKernel | null {
  const [store, ...others] = kernel.stores;
  const { outer, inner } = kernel;
  if (others.length > 0 || kernel.reductions.length > 0 || inner.length !== 1) return null;
  const { value, address } = store;
  const [{ name, size }] = inner;
  if (value.kind !== "random" || value.draw !== "dropoutMask" || size % 4 !== 0) return null;
  if (!inFours(value.ix, name) || !inFours(address, name)) return null;
  const row = new EmitScope("    ");
  const top = new EmitScope("  ");
  const scopes = { top, row, element: new EmitScope("    ") };
  const printer = new BodyPrinter(kernel, scopes, new Set([name]), new Set(outer.map((v) => v.name)), name);
  if (value.args.some((key) => printer.depth(key) === 2)) return null;
  const [k0, k1] = value.args.map((key) => printer.value(key)[0]);
  const flat = outer.length === 0;
  const [from, count] = flat ? ["lo", "hi - lo"] : ["0", String(size / 4)];
  const number = `(uint64_t)(${withoutInner(value.ix, name).print()}) / 4 + ${from}`;
  const to = `(uint32_t*)(p${store.buffer} + ${withoutInner(address, name).print()}) + ${from}`;
  row.add(`w_dropout_mask_blocks(${to}, (uint32_t)${k0}, (uint32_t)${k1}, ${number}, ${count}, ${value.threshold}u);`);
  const body = flat
    ? row.lines
    : ["  for (long u = lo; u < hi; u++) {", ...unpackIndex(outer, "u").map((l) => `    ${l}`), ...row.lines, "  }"];
  const head = printer.pointers().map((l) => `  ${l}`);
  printer.tally.add("dropoutMask", kernel.size);
  return {
    text: [...head, ...top.lines, ...body].join("\n"),
    units: flat ? size / 4 : numel(outer.map((v) => v.size)),
    tally: printer.tally,
  };
}

type Load = Extract<KExpr, { kind: "load" }>;

/** A concatenation of contiguous arrays: the memory of each and its range in the result; null for anything else. */
function joinedParts(value: KExpr, { name, size }: LoopVariable): { low: number; high: number; load: Load }[] | null {
  const parts: { low: number; high: number; load: Load }[] = [];
  let end = Number.POSITIVE_INFINITY;
  for (let at: KExpr | null = value; at !== null; ) {
    const [test, chosen, rest]: (KExpr | null)[] =
      at.kind === "where" ? at.args : [(at as Load).guard ?? null, at, null];
    if (test?.kind !== "inRange" || chosen?.kind !== "load" || chosen.guard !== test) return null;
    const plain = test.ix.key === Ix.variable(name, size).key && chosen.dynamic.length === 0;
    // A single number (a loss among gradients) is copied from any layout.
    const isRun = chosen.address.stride(name) === 1 || test.high - test.low === 1;
    if (!plain || !isRun) return null;
    // Every position is in one part: the tests are consecutive.
    if (end !== Number.POSITIVE_INFINITY && test.low !== end) return null;
    end = test.high;
    parts.push({ low: test.low, high: test.high, load: chosen });
    at = rest ?? null;
  }
  return parts.length < 2 || parts[0].low !== 0 ? null : parts;
}

/** Average length from which the parts of rows are copied one by one. */
const minPart = 16;

/** A kernel that is only a concatenation (a bucket of gradients): one copy per part instead of a test per element. */
function emitJoined(kernel: LoopKernel): EmittedKernel | null {
  const [store, ...others] = kernel.stores;
  const { outer, inner } = kernel;
  if (others.length > 0 || kernel.reductions.length > 0 || inner.length !== 1) return null;
  const [{ name, size }] = inner;
  const parts = joinedParts(store.value, inner[0]);
  if (parts === null || parts.at(-1)?.high !== size || store.address.stride(name) !== 1) return null;
  // Short parts of many rows are quicker as a test per element.
  if (outer.length > 0 && size < minPart * parts.length) return null;
  const [top, row] = [new EmitScope("  "), new EmitScope("    ")];
  const outerNames = new Set(outer.map((v) => v.name));
  const printer = new BodyPrinter(kernel, { top, row, element: row }, new Set([name]), outerNames, name);
  const from = new Map([[name, Ix.variable("a", size)]]);
  // Complex numbers are two elements of their array.
  const each = isComplex(store.value.dtype) ? 2 : 1;
  const place = (buffer: number, address: Ix): string =>
    `p${buffer} + ${each === 1 ? "" : `${each}*`}(${address.substitute(from).print()})`;
  const to = place(store.buffer, store.address);
  const isFlat = outer.length === 0;
  const body = parts.map(({ low, high, load }) => {
    const ends = isFlat
      ? `a = lo > ${low} ? lo : ${low}, b = hi < ${high} ? hi : ${high}; if (a < b)`
      : `a = ${low}, b = ${high};`;
    const bytes = `(b - a) * ${each} * sizeof(*p${store.buffer})`;
    return `  { const long ${ends} __builtin_memmove(${to}, ${place(load.buffer, load.address)}, ${bytes}); }`;
  });
  printer.tally.add("simple", (each * kernel.size) / 2);
  const rows = [
    "  for (long u = lo; u < hi; u++) {",
    ...unpackIndex(outer, "u").map((l) => `    ${l}`),
    ...body,
    "  }",
  ];
  return {
    text: [...printer.pointers().map((l) => `  ${l}`), ...top.lines, ...(isFlat ? body : rows)].join("\n"),
    units: isFlat ? size : numel(outer.map((v) => v.size)),
    tally: printer.tally,
  };
}

/**
 * A kernel as the body of `void name(void* const* p, long lo, long hi)`. `inRows`: units must be rows in their order, as an epilogue's
 * are.
 */
export function emitKernel(kernel: LoopKernel, inRows = false): EmittedKernel {
  EmitScope.reset();
  if (kernel.kind === "rows" && !inRows) {
    for (const emit of [emitKept, emitJoined, emitTilesC, emitNarrowC]) {
      const special = emit(kernel);
      if (special !== null) return special;
      EmitScope.reset();
    }
  }
  return kernel.kind === "rows" ? emitRows(kernel) : emitColumns(kernel);
}

/** Minimum number of bytes that a kernel reads and writes. */
export function kernelBytes(kernel: LoopKernel): number {
  return kernel.buffers.reduce((n, node) => n + numel(node.shape) * bytesOf(node.dtype), 0);
}
