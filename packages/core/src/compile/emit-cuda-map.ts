// Element-wise loop kernels in CUDA: several elements per thread, in vectors where operands and results lie in order.
import { bytesOf, isComplex, numel } from "../graph/index.js";
import { BodyPrinter, EmitScope, firstOf, vectorBase } from "./body.js";
import { loadsUnder, writeText } from "./emit-common.js";
import {
  blockSize,
  type CudaEmitOptions,
  type CudaKernel,
  pointers,
  unpackAs,
  vectorWidths,
} from "./emit-cuda-common.js";
import { vectorLines, vectorStores } from "./emit-vector.js";
import { Ix } from "./index-expr.js";
import type { LoopKernel } from "./kernel.js";
import { type CValue, computeType, eachPart } from "./scalar.js";

/** Number of threads below which a vector of halves, or of floats, would leave multiprocessors idle. */
const enoughThreads = { halves: 1 << 16, floats: 1 << 14 };
/** Number of elements from which a thread takes several, if they are read one by one. */
const enoughElements = 1 << 18;
/** Number of vectors from which threads write several each. */
const enoughVectors = 1 << 20;
/** Cost per element from which loops are not unrolled. */
const longBody = 96;

export function emitMap(kernel: LoopKernel, options: CudaEmitOptions): CudaKernel {
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
  if (width > 1 && options.aligned) printer.vector = { variable: last.name, width, scope: row };
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
      // Quotients of numbers that may be negative take several instructions.
      `    W_ASSUME(${firstOf(last.name)} >= 0);`,
    );
    lines.push(...row.lines, ...vectorLines(vector, [], element.lines, stores, "").map((l) => `    ${l}`));
  }
  lines.push("  }");
  return {
    text: lines.join("\n"),
    n: plain ? kernel.size : 0,
    blocks: Math.max(1, Math.min(options.maxBlocks, Math.ceil(vectors / blockSize / rounds / turnsOf(kernel, width)))),
    threads: blockSize,
  };
}

/** Vectors that a thread writes one after the other: where next to nothing is read, starting blocks would take longer than writing. */
function turnsOf({ loads, stores, buffers, size }: LoopKernel, width: number): number {
  const bytes = (of: readonly { buffer: number }[]): number =>
    [...new Set(of.map(({ buffer }) => buffer))].reduce(
      (sum, i) => sum + numel(buffers[i].shape) * bytesOf(buffers[i].dtype),
      0,
    );
  const isWritten = width > 1 && size / width >= enoughVectors && 4 * bytes(loads) <= bytes(stores);
  return isWritten ? 4 : 1;
}

/** Whether the elements of a vector along a variable come from a few neighbors, as where each is read several times. */
function isNear(address: Ix, variable: string, width: number): boolean {
  if (address.stride(variable) !== null) return false;
  const at = (i: number): Ix => address.substitute(new Map([[variable, Ix.constant(i)]]));
  const [low, high] = at(width - 1)
    .add(at(0).times(-1))
    .range();
  return low >= 0 && high < width;
}

/** Whether an operand is read element by element along a variable, because neighbors lie apart or are not aligned. */
function readsScattered(kernel: LoopKernel, variable: string, width: number): boolean {
  const vector = { variable, width };
  return loadsUnder(kernel.stores.map((s) => s.value)).some(({ address, dynamic, dtype }) => {
    const stride = address.stride(variable);
    if (dynamic.length > 0 || stride === 0 || isNear(address, variable, width)) return false;
    // Bytes of interleaved colors: the elements of a vector lie in a few words.
    if (stride !== null && Math.abs(stride) * bytesOf(dtype) <= 4 && bytesOf(dtype) < 4) return false;
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
