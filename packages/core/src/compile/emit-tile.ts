// Element-wise kernels that read transposed: a block copies tiles of its operands through shared memory, reading along the axis
// that is contiguous in the operand and computing along the one that is contiguous in the result.
import { bytesOf, numel } from "../graph/index.js";
import { BodyPrinter, EmitScope, firstOf, vectorBase } from "./body.js";
import { loadsUnder, unpackIndex } from "./emit-common.js";
import type { CudaKernel } from "./emit-cuda-common.js";
import { vectorLines, vectorStores } from "./emit-vector.js";
import type { KExpr, LoopKernel, LoopVariable } from "./kernel.js";
import { storageType } from "./scalar.js";

type Load = Extract<KExpr, { kind: "load" }>;

interface TilePlan {
  /** Contiguous in the results. */
  x: LoopVariable;
  /** Contiguous in the tiled operands. */
  y: LoopVariable;
  loads: Load[];
  /** Rows and columns of a tile. */
  edge: number;
}

const threads = 256;
/** Sizes of both axes from which a tile saves more than it costs. */
const minSize = 16;
/** Shared memory of all tiles of a block: static arrays end at 48 KiB, and several blocks share a multiprocessor. */
const tileBytes = 36 << 10;
const edges = [64, 32];

/** Copies do not interpret the elements. */
export const rawTypes: Record<number, string> = {
  1: "uint8_t",
  2: "uint16_t",
  4: "uint32_t",
  8: "uint64_t",
  16: "uint4",
};

/** Elements between the rows of a tile: columns fall into different banks. */
const pitch = (edge: number, bytes: number): number => edge + Math.max(1, 4 / bytes);

/** The tiles of a kernel; null where every operand is read as well as it can be. */
function tilePlan(kernel: LoopKernel): TilePlan | null {
  if (kernel.kind !== "rows" || kernel.reductions.length + kernel.columnSums.length > 0) return null;
  const variables = [...kernel.outer, ...kernel.inner];
  const x = variables[variables.length - 1];
  if (x === undefined || x.size < minSize || !kernel.stores.every((s) => s.address.stride(x.name) === 1)) return null;
  const strided = loadsUnder(kernel.stores.map((s) => s.value)).filter(({ address, guard, dynamic, dtype, buffer }) => {
    const stride = address.stride(x.name);
    if (guard !== null || dynamic.length > 0 || stride === 0 || stride === 1) return false;
    return rawTypes[bytesOf(dtype)] !== undefined && numel(kernel.buffers[buffer].shape) > 0;
  });
  const along = (v: LoopVariable): Load[] => strided.filter(({ address }) => address.stride(v.name) === 1);
  const [y] = variables
    .slice(0, -1)
    .filter((v) => v.size >= minSize)
    .sort((a, b) => along(b).length - along(a).length);
  const loads = y === undefined ? [] : along(y);
  if (loads.length === 0) return null;
  const bytes = (edge: number): number =>
    loads.reduce((n, { dtype }) => n + edge * pitch(edge, bytesOf(dtype)) * bytesOf(dtype), 0);
  const edge = edges.find((e) => bytes(e) <= tileBytes && (e === 32 || Math.min(x.size, y.size) >= e));
  return edge === undefined ? null : { x, y, loads, edge };
}

/** Elements of a word of shared memory. */
const perWord = (bytes: number): number => Math.max(1, 4 / bytes);

/** Neighbors that a thread stores at once: a word of them, where every result allows it. */
function storeWidth(kernel: LoopKernel, x: LoopVariable, aligned: boolean): number {
  const width = Math.min(...kernel.stores.map(({ buffer }) => perWord(bytesOf(kernel.buffers[buffer].dtype))));
  const vector = { variable: x.name, width };
  const fits = x.size % width === 0 && kernel.stores.every(({ address }) => vectorBase(address, vector) !== null);
  return aligned && fits ? width : 1;
}

/** The statement that copies one element to a tile, or a word of neighbors where they are aligned, and their number. */
function copyText(load: Load, k: number, { y, edge }: TilePlan, aligned: boolean): { width: number; text: string } {
  const bytes = bytesOf(load.dtype);
  const row = `xi * ${pitch(edge, bytes)} + yi`;
  const vector = { variable: y.name, width: perWord(bytes) };
  const base = aligned && vector.width > 1 && y.size % vector.width === 0 ? vectorBase(load.address, vector) : null;
  const read = (raw: string, address: string): string =>
    `*(${raw}*)(s${k} + ${row}) = *(const ${raw}*)((const ${rawTypes[bytes]}*)p${load.buffer} + ${address});`;
  return base === null
    ? { width: 1, text: read(rawTypes[bytes], load.address.print()) }
    : { width: vector.width, text: read("uint32_t", base.print()) };
}

/** Whether a kernel reads through tiles in shared memory. */
export const readsTiles = (kernel: LoopKernel): boolean => tilePlan(kernel) !== null;

/** The kernel with tiles; null where a plain loop is as good. */
export function emitTiles(
  kernel: LoopKernel,
  pointers: (printer: BodyPrinter) => string[],
  aligned: boolean,
): CudaKernel | null {
  const plan = tilePlan(kernel);
  if (plan === null) return null;
  const { x, y, loads, edge } = plan;
  const others = [...kernel.outer, ...kernel.inner].filter((v) => v !== x && v !== y);
  const [top, row, element] = [new EmitScope("  "), new EmitScope("  "), new EmitScope("    ")];
  const printer = new BodyPrinter(
    kernel,
    { top, row, element },
    new Set([x.name, y.name]),
    new Set(others.map((v) => v.name)),
    "0",
  );
  const width = storeWidth(kernel, x, aligned);
  loads.forEach((load, k) => {
    printer.tiles.set(load.id, { name: `q${k}`, index: `(xi + j) * ${pitch(edge, bytesOf(load.dtype))} + yi` });
  });
  const values = kernel.stores.map((s) => printer.value(s.value));
  const tilesX = Math.ceil(x.size / edge);
  const tilesY = Math.ceil(y.size / edge);
  const inside = [
    ...(x.size % edge === 0 ? [] : [`x0 + xi < ${x.size}`]),
    ...(y.size % edge === 0 ? [] : [`y0 + yi < ${y.size}`]),
  ].join(" && ");
  /** A loop over a tile, with several neighbors along the fast axis per thread. */
  const loop = (fast: string, slow: string, each: number, lines: readonly string[]): string[] => [
    "#pragma unroll",
    `  for (int k = 0; k < ${(edge * edge) / threads / each}; k++) {`,
    `    const int t = k * ${threads} + (int)threadIdx.x, ${fast} = t % ${edge / each} * ${each}, ${slow} = t / ${edge / each};`,
    ...(inside === "" ? [] : [`    if (!(${inside})) continue;`]),
    ...lines.map((line) => `    ${line}`),
    "  }",
  ];
  const copies = loads.map((load, k) => copyText(load, k, plan, aligned));
  const copyLoops = [...new Set(copies.map((copy) => copy.width))].flatMap((each) =>
    loop("yi", "xi", each, [
      `const ix ${x.name} = x0 + xi, ${each > 1 ? firstOf(y.name) : y.name} = y0 + yi;`,
      ...copies.filter((copy) => copy.width === each).map(({ text }) => text),
    ]),
  );
  const vector = { variable: x.name, width };
  const stores = vectorStores(kernel, kernel.stores, values, vector, aligned && width > 1);
  const text = [
    ...loads.map(
      ({ dtype }, k) =>
        `  __shared__ __align__(16) ${rawTypes[bytesOf(dtype)]} s${k}[${edge * pitch(edge, bytesOf(dtype))}];`,
    ),
    ...loads.map(({ dtype }, k) => `  const ${storageType[dtype]}* q${k} = (const ${storageType[dtype]}*)s${k};`),
    ...pointers(printer).map((l) => `  ${l}`),
    ...top.lines,
    `  const ix x0 = (ix)bx % ${tilesX} * ${edge}, y0 = (ix)bx / ${tilesX} % ${tilesY} * ${edge};`,
    `  const ix o = (ix)bx / ${tilesX * tilesY};`,
    ...unpackIndex(others, "o").map((l) => `  ${l.replace("const long", "const ix")}`),
    ...row.lines,
    ...copyLoops,
    "  __syncthreads();",
    ...loop("xi", "yi", width, [
      `const ix ${firstOf(x.name)} = x0 + xi, ${y.name} = y0 + yi;`,
      ...vectorLines(vector, [], element.lines, stores, ""),
    ]),
  ].join("\n");
  return { text, n: 0, blocks: numel(others.map((v) => v.size)) * tilesX * tilesY, threads };
}
