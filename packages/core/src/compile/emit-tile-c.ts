// Element-wise kernels in C that read transposed: tiles of their operands are copied along the axis that is contiguous in the
// operand, and computed along the one that is contiguous in the result.
import { bytesOf, isComplex, numel } from "../graph/index.js";
import { BodyPrinter, EmitScope } from "./body.js";
import { loadsUnder, storeLines, unpackIndex } from "./emit-common.js";
import type { KExpr, LoopKernel, LoopVariable } from "./kernel.js";
import { storageType } from "./scalar.js";
import type { Tally } from "./tally.js";

type Load = Extract<KExpr, { kind: "load" }>;

/** Sizes of both axes from which a tile saves more than it costs. */
const minSize = 8;
/** Columns of a tile; its rows are two cache lines of the operand. */
const columns = 64;
const rowBytes = 128;
/** Operands that are copied; with more, tiles leave the first-level cache. */
const maxLoads = 4;

interface TilePlan {
  /** Contiguous in the results. */
  x: LoopVariable;
  /** Contiguous in the tiled operands. */
  y: LoopVariable;
  loads: Load[];
  rows: number;
}

/** The tiles of a kernel; null where every operand is read as well as it can be. */
function tilePlan(kernel: LoopKernel): TilePlan | null {
  if (kernel.reductions.length + kernel.columnSums.length > 0) return null;
  const variables = [...kernel.outer, ...kernel.inner];
  const x = variables[variables.length - 1];
  if (x === undefined || x.size < minSize || !kernel.stores.every((s) => s.address.stride(x.name) === 1)) return null;
  const strided = loadsUnder(kernel.stores.map((s) => s.value)).filter(({ address, guard, dynamic }) => {
    const stride = address.stride(x.name);
    return guard === null && dynamic.length === 0 && stride !== null && stride !== 0 && stride !== 1;
  });
  const along = (v: LoopVariable): Load[] => strided.filter(({ address }) => address.stride(v.name) === 1);
  const [y] = variables
    .slice(0, -1)
    .filter((v) => v.size >= minSize)
    .sort((a, b) => along(b).length - along(a).length);
  const loads = y === undefined ? [] : along(y);
  if (loads.length === 0 || loads.length > maxLoads) return null;
  const narrowest = Math.min(...loads.map(({ dtype }) => bytesOf(dtype)));
  return { x, y, loads, rows: Math.min(y.size, Math.max(16, rowBytes / narrowest)) };
}

/** The kernel with tiles; null where plain loops are as good. */
export function emitTilesC(kernel: LoopKernel): { text: string; units: number; tally: Tally } | null {
  const plan = tilePlan(kernel);
  if (plan === null) return null;
  const { x, y, loads, rows } = plan;
  const others = [...kernel.outer, ...kernel.inner].filter((v) => v !== x && v !== y);
  const [top, row, element] = [new EmitScope("  "), new EmitScope("    "), new EmitScope("        ")];
  const printer = new BodyPrinter(
    kernel,
    { top, row, element },
    new Set([x.name, y.name]),
    new Set(others.map((v) => v.name)),
    "0",
  );
  const width = Math.min(columns, x.size);
  loads.forEach((load, k) => {
    printer.tiles.set(load.id, { name: `q${k}`, index: `yi * ${width} + xi` });
  });
  for (const line of storeLines(kernel, printer, kernel.stores)) element.add(line);
  printer.tally.add("simple", 0.5 * kernel.stores.length * kernel.size);
  const [across, down] = [Math.ceil(x.size / width), Math.ceil(y.size / rows)];
  // Inside the braces, the variables have their values at the first element of the tile.
  const tiles = loads.flatMap((load, k) => {
    const parts = isComplex(load.dtype) ? 2 : 1;
    const from = `p${load.buffer} + ${parts} * (${load.address.print()})`;
    const copy = `w_transpose_${bytesOf(load.dtype)}(${from}, ${load.address.stride(x.name)}, q${k}, ${width}, xe, ye);`;
    return [
      `    ${storageType[load.dtype]} q${k}[${width * rows * parts}] __attribute__((aligned(64)));`,
      `    { const long ${x.name} = x0, ${y.name} = y0; (void)${x.name}; (void)${y.name}; ${copy} }`,
    ];
  });
  /** Elements of a tile along a variable. */
  const extent = (size: number, first: string, edge: number): string =>
    `${first} + ${edge} < ${size} ? ${edge} : ${size} - ${first}`;
  const text = [
    ...printer.pointers().map((l) => `  ${l}`),
    ...top.lines,
    "  for (long u = lo; u < hi; u++) {",
    `    const long x0 = u % ${across} * ${width}, y0 = u / ${across} % ${down} * ${rows}, o = u / ${across * down}; (void)o;`,
    `    const long xe = ${extent(x.size, "x0", width)}, ye = ${extent(y.size, "y0", rows)};`,
    ...unpackIndex(others, "o").map((l) => `    ${l}`),
    ...row.lines,
    ...tiles,
    "    for (long yi = 0; yi < ye; yi++) {",
    `      const long ${y.name} = y0 + yi; (void)${y.name};`,
    '      _Pragma("omp simd")',
    "      for (long xi = 0; xi < xe; xi++) {",
    `        const long ${x.name} = x0 + xi; (void)${x.name};`,
    ...element.lines,
    "      }",
    "    }",
    "  }",
  ].join("\n");
  return { text, units: numel(others.map((v) => v.size)) * across * down, tally: printer.tally };
}
