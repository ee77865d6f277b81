// Element-wise kernels in C that read elements by indices from memory: positions are computed by vectors, elements are read one by one, and
// what is computed from them is vectors again. Instructions that read a vector of elements are slower, and half types have none.
import { isComplex, numel } from "../graph/index.js";
import { BodyPrinter, EmitScope } from "./body.js";
import { type EmittedKernel, loadsUnder, storeLines, unpackIndex } from "./emit-common.js";
import type { KExpr, LoopKernel } from "./kernel.js";
import { storageType } from "./scalar.js";

type Load = Extract<KExpr, { kind: "load" }>;
type Dynamic = Load["dynamic"][number];

/** Elements whose positions are known at a time. */
const chunk = 256;
const shortest = 32;
/** More arrays leave the first-level cache. */
const most = 8;

/** The loads whose positions differ from element to element, and their indices; null for kernels that are computed otherwise. */
function gathersOf(kernel: LoopKernel, printer: BodyPrinter): { loads: Load[]; indices: Dynamic[] } | null {
  const all = loadsUnder(kernel.stores.map((s) => s.value));
  if (all.some(({ guard, dtype }) => guard !== null || isComplex(dtype))) return null;
  const loads = all.filter(({ dynamic }) => dynamic.some((index) => printer.depth(index) === 2));
  const indices = [...new Set(loads.flatMap((load) => load.dynamic.filter((index) => printer.depth(index) === 2)))];
  if (loads.length === 0 || loads.length + indices.length > most) return null;
  // Indices that are gathered themselves are rare.
  return loadsUnder(indices).some((load) => loads.includes(load)) ? null : { loads, indices };
}

/** The kernel in chunks of three loops each; null where nothing is gathered. */
export function emitGathersC(kernel: LoopKernel): EmittedKernel | null {
  const { outer, inner, reductions, columnSums, stores, buffers } = kernel;
  const [variable, ...others] = inner;
  if (variable === undefined || others.length + reductions.length + columnSums.length > 0) return null;
  const { name, size } = variable;
  if (size < shortest || stores.some(({ buffer }) => isComplex(buffers[buffer].dtype))) return null;
  const [top, row] = [new EmitScope("  "), new EmitScope("    ")];
  const positions = new EmitScope("        ");
  const scopes = { top, row, element: positions };
  const printer = new BodyPrinter(kernel, scopes, new Set([name]), new Set(outer.map((v) => v.name)), name);
  const gathers = gathersOf(kernel, printer);
  if (gathers === null) return null;
  const { loads, indices } = gathers;
  const at = `[${name} - c_]`;
  const known = indices.map((index, k) => {
    const [place] = printer.value(index);
    positions.add(`i${k}_${at} = (int32_t)${place};`);
    return { index, place, array: `i${k}_` };
  });
  // All reads come before all writes: a result may alias an operand.
  const isMoved = stores.every(({ value, buffer }) =>
    loads.some((l) => l === value && l.dtype === buffers[buffer].dtype),
  );
  const results = new EmitScope("        ");
  scopes.element = results;
  for (const { index, place } of known) results.values.set(index.id, [place]);
  loads.forEach((load, k) => {
    printer.tiles.set(load.id, { name: `e${k}_`, index: `${name} - c_` });
  });
  for (const line of storeLines(kernel, printer, stores)) results.add(line);
  printer.tally.add("simple", 0.5 * stores.length * kernel.size);
  const element = (load: Load): string => `p${load.buffer}[${load.address.print()}]`;
  const reads = isMoved
    ? stores.map(({ value, buffer, address }) => `p${buffer}[${address.print()}] = ${element(value as Load)};`)
    : loads.map((load, k) => `e${k}_${at} = ${element(load)};`);
  const loop = `      for (long ${name} = c_; ${name} < e_; ${name}++) {`;
  const placed = known.map(({ array, place }) => `        const long ${place} = ${array}${at}; (void)${place};`);
  const isFlat = outer.length === 0;
  const [from, to] = isFlat ? ["lo", "hi"] : ["0", String(size)];
  const body = [
    ...row.lines,
    `    for (long c_ = ${from}; c_ < ${to}; c_ += ${chunk}) {`,
    `      const long e_ = c_ + ${chunk} < ${to} ? c_ + ${chunk} : ${to};`,
    ...known.map(({ array }) => `      int32_t ${array}[${chunk}] __attribute__((aligned(64)));`),
    ...(isMoved
      ? []
      : loads.map((l, k) => `      ${storageType[l.dtype]} e${k}_[${chunk}] __attribute__((aligned(64)));`)),
    '      _Pragma("omp simd")',
    loop,
    ...positions.lines,
    "      }",
    // The empty statement keeps compilers from reading vectors of elements.
    '      _Pragma("GCC unroll 8")',
    loop,
    ...placed,
    ...reads.map((line) => `        ${line}`),
    '        __asm__ volatile("");',
    "      }",
    ...(isMoved ? [] : ['      _Pragma("omp simd")', loop, ...placed, ...results.lines, "      }"]),
    "    }",
  ];
  const whole = isFlat
    ? body
    : ["  for (long u = lo; u < hi; u++) {", ...unpackIndex(outer, "u").map((l) => `    ${l}`), ...body, "  }"];
  const text = [...printer.pointers().map((l) => `  ${l}`), ...top.lines, ...whole].join("\n");
  return { text, units: isFlat ? size : numel(outer.map((v) => v.size)), tally: printer.tally };
}
