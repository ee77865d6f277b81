// The C dialect of loop kernels that reduce over rows: sums of columns, in blocks of columns that stay in the cache.
import { bytesOf, isComplex, numel, range } from "../graph/index.js";
import { BodyPrinter, EmitScope } from "./body.js";
import { type EmittedKernel, initial, isArg, isFloatKind, maxSharedLines, unpackIndex } from "./emit-common.js";
import { splitPoints } from "./guards.js";
import type { LoopKernel, LoopVariable, Reduction } from "./kernel.js";
import { type CValue, computeType, literal, selectText, storeText, wrapText } from "./scalar.js";

/** Columns of a block. */
const columnBlock = 256;

/** A kernel that reduces over rows. */
export function emitColumnsC(kernel: LoopKernel): EmittedKernel {
  const { outer, inner, reduced } = kernel;
  const vector = inner[0] ?? { name: "c_", size: 1 };
  const outerCount = numel(outer.map((v) => v.size));
  let block = Math.min(columnBlock, vector.size);
  // Enough blocks for several threads, none narrower than a cache line.
  while (block > 32 && outerCount * Math.ceil(vector.size / block) < 8) block = Math.ceil(block / 2 / 16) * 16;
  const blocks = Math.ceil(vector.size / block);
  const top = new EmitScope("  ");
  /** Accumulators. */
  const declared = new EmitScope("    ");
  /** What all columns of a row share, such as its place. */
  const row = new EmitScope("      ");
  const element = new EmitScope("        ");
  const rowNames = new Set([...outer, ...reduced].map((v) => v.name));
  const printer = new BodyPrinter(kernel, { top, row, element }, new Set([vector.name]), rowNames, "0");
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
      declared.add(`${type} ${name}${k}[${block}] __attribute__((aligned(64)));`);
      declared.add(`for (long c = 0; c < ${block}; c++) ${name}${k}[c] = ${starts[k]};`);
      if (!isFlushed) continue;
      declared.add(`double d${name}${k}[${block}] __attribute__((aligned(64)));`);
      declared.add(`for (long c = 0; c < ${block}; c++) d${name}${k}[c] = 0;`);
      flush.push(`d${name}${k}[c] += ${name}${k}[c];`, `${name}${k}[c] = 0;`);
    }
    const mayBeNan = isFloatKind(dtype) && (r.fn === "max" || r.fn === "min");
    if (mayBeNan)
      declared.add(
        `${type === "double" ? "int64_t" : "int32_t"} n${name}[${block}] __attribute__((aligned(64))) = {0};`,
      );
    if (isArg(r)) declared.add(`int32_t i${name}[${block}] __attribute__((aligned(64))) = {0};`);
    accumulate.push(...columnUpdate(r, name, at, value, type));
    printer.tally.add("simple", 2 * parts * kernel.size);
    const store = kernel.stores[i];
    const total = (k: number): string =>
      isArg(r)
        ? `(int32_t)i${name}[${at}]`
        : isFlushed
          ? `(float)(d${name}${k}[${at}] + ${name}${k}[${at}])`
          : mayBeNan
            ? `(n${name}[${at}] ? w_nan_${type === "double" ? "d" : "f"}() : ${name}${k}[${at}])`
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
    ...declared.lines,
    ...reducedLoops(
      reduced,
      row.lines,
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

/** The names that a statement of a scope defines. */
const namesIn = (line: string): string[] =>
  (/^\s*(?:const )?\w+ (\w+(?:, \w+)*)(?: = .*)?;$/.exec(line)?.[1] ?? "").split(", ");

/** Loops over the reduced variables. `before` is computed once per row. Several rows of a cheap body are added together: the accumulators are read and written once. */
function reducedLoops(
  reduced: readonly LoopVariable[],
  before: readonly string[],
  body: readonly string[],
  columns: (body: readonly string[]) => string[],
  flush: string | null,
): string[] {
  const [last] = reduced.slice(-1);
  const flushed = (rows: number): string[] =>
    flush === null ? [] : [`      if ((n_ += ${rows}) >= ${columnRows}) { n_ = 0; ${flush} }`];
  const several = last !== undefined && last.size >= 2 * rowsAtOnce && body.length <= maxSharedLines;
  const whole = several ? last.size - (last.size % rowsAtOnce) : 0;
  const isOwn = new Set([last?.name, ...before.flatMap(namesIn)]);
  const ownOf = (lines: readonly string[], k: number): string[] =>
    lines.map((line) => line.replace(/\b[a-z]\w*\b/g, (name) => (isOwn.has(name) ? `${name}_${k}` : name)));
  const places = range(rowsAtOnce).flatMap((k) => [
    `      const long ${last?.name}_${k} = r_ + ${k}; (void)${last?.name}_${k};`,
    ...ownOf(before, k),
  ]);
  const rows = range(rowsAtOnce).flatMap((k) => ["        {", ...ownOf(body, k), "        }"]);
  const shared = [...places, ...columns(rows), ...flushed(rowsAtOnce)];
  return [
    ...(flush === null ? [] : ["    long n_ = 0;"]),
    ...reduced.slice(0, -1).map((v) => `    for (long ${v.name} = 0; ${v.name} < ${v.size}; ${v.name}++) {`),
    ...(whole > 0 ? [`    for (long r_ = 0; r_ < ${whole}; r_ += ${rowsAtOnce}) {`, ...shared, "    }"] : []),
    ...(last === undefined
      ? []
      : [`    for (long ${last.name} = ${whole}; ${last.name} < ${last.size}; ${last.name}++) {`]),
    ...before,
    ...columns(body),
    ...flushed(1),
    ...reduced.map(() => "    }"),
  ];
}

/** The type of places beside elements of a type: vectors of both have as many lanes. */
const placeType = (type: string): string => (type === "double" || type.includes("64") ? "int64_t" : "int32_t");

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
    // Only a better element replaces the best one, so that the first of equals stays; the first NaN is better than all numbers. Selects of
    // bits, because compilers do not vectorize the branches that they make of others.
    const order = r.fn === "argmax" ? [">", "<="] : ["<", ">="];
    const isBetter = isFloatKind(r.argument.dtype)
      ? `!(${v} ${order[1]} ${a}) & (${a} == ${a})`
      : `${v} ${order[0]} ${a}`;
    const place = placeType(type);
    return [
      `{ const int w = ${isBetter};`,
      `i${name}[${at}] = ${selectText(place, "w", `(${place})(${r.position.print()})`, `i${name}[${at}]`)};`,
      `${a} = ${selectText(type, "w", v, a)}; }`,
    ];
  }
  if (r.fn === "sum") return [`${a} += ${v};`];
  if (r.fn === "prod") return [`${a} *= ${v};`];
  const order = r.fn === "max" ? ">" : "<";
  // The extreme ignores NaN, as one instruction does; a flag records it.
  return [
    `${a} = ${v} ${order} ${a} ? ${v} : ${a};`,
    ...(isFloatKind(r.dtype) ? [`n${name}[${at}] |= ${v} != ${v};`] : []),
  ];
}
