// What the forms of CUDA loop kernels share: the kernel that they give, pointers and indices, statements of reductions.
import { type DType, kindOf } from "../graph/index.js";
import type { BodyPrinter } from "./body.js";
import { foldCode, initial, isArg, type ReductionCode, unpackIndex } from "./emit-common.js";
import type { LoopVariable, Reduction } from "./kernel.js";
import { type CValue, computeType } from "./scalar.js";

export interface CudaKernel {
  /** The body of a function of `void* const* p` (the buffers), `bx` of `gx` blocks, and `n` elements. */
  text: string;
  /** Number of elements of a kernel that is one plain loop; texts of different sizes are then equal. */
  n: number;
  blocks: number;
  threads: number;
  /** Minimum number of blocks per multiprocessor. */
  together?: number;
  /** Two loops must round alike what one compares with the extremum that the other found: products and sums are not fused. */
  isUnfused?: boolean;
}

export interface CudaEmitOptions {
  /** A result aliases an operand: the compiler must not assume otherwise. */
  mayAlias: boolean;
  /** Number of blocks after which threads take a second turn; kernels with a launch of their own have no limit, and are faster. */
  maxBlocks: number;
  /** Buffers are aligned to 16 bytes (not inside loops, which read slices). */
  aligned: boolean;
}
export const blockSize = 256;
/** Elements per thread and vector, if enough threads remain: one vector load of halves, two of floats. */
export const vectorWidths = [8, 4, 2];

/** Variables from one linear index; 32-bit arithmetic where everything fits. */
export const unpackAs = (variables: readonly LoopVariable[], from: string): string[] =>
  unpackIndex(variables, from).map((line) => line.replace("const long", "const ix"));

export function pointers(printer: BodyPrinter, options: CudaEmitOptions): string[] {
  return printer.pointers().map((line) => {
    const marked = options.mayAlias ? line : line.replace(/\* (p\d+) =/, "* __restrict__ $1 =");
    return options.aligned ? marked.replace(/p\[(\d+)\];/, "__builtin_assume_aligned(p[$1], 16);") : marked;
  });
}

/** The running mean beside a sum of squared deviations. */
export const meanOf = (name: string): string => name.replace(/^r/, "m");

/** Squared deviations of all threads from the common mean. `count` is how many elements a thread has, `join` adds those of all threads. */
export function joinSpread(
  r: Reduction,
  name: string,
  count: string,
  length: number,
  join: (x: string) => string,
): string {
  const type = computeType[r.argument.dtype];
  const mean = meanOf(name);
  return `{ const ${type} own = (${type})(${count}), all = ${join(`own * ${mean}`)} / (${type})${length}, apart = ${mean} - all; ${name} = ${join(`${name} + own * apart * apart`)}; }`;
}

/** `number`: which of a thread's elements an element is, from 1. */
export function reductionCode(r: Reduction, value: CValue, name = `r${r.slot}`, number = ""): ReductionCode {
  const { dtype } = r.argument;
  const type = computeType[dtype];
  if (r.fn === "spread") {
    const mean = meanOf(name);
    return {
      declare: [`${type} ${name} = ${initial("sum", dtype)}, ${mean} = ${initial("sum", dtype)};`],
      update: [
        `{ const ${type} apart = ${value[0]} - ${mean}; ${mean} += apart * ((${type})1 / (${type})(${number})); ${name} += apart * (${value[0]} - ${mean}); }`,
      ],
      end: [],
    };
  }
  const fold = foldCode(r, value, name, type);
  if (fold !== null) return fold;
  const [v] = value;
  if (isArg(r)) {
    const order = r.fn === "argmax" ? ">" : "<";
    const nan = kindOf(dtype) === "float" ? ` || (${v} != ${v} && b${name} == b${name})` : "";
    return {
      // An index beyond every row marks a lane without elements.
      declare: [`int ${name} = 0x7fffffff; ${type} b${name} = ${initial(r.fn, dtype)};`],
      update: [
        `if (${name} == 0x7fffffff || ${v} ${order} b${name}${nan}) { b${name} = ${v}; ${name} = (int)(${r.position.print()}); }`,
      ],
      end: [],
    };
  }
  return {
    declare: [`${type} ${name} = ${initial(r.fn, dtype)};`],
    update: [extremum(r.fn as "max" | "min", name, v, dtype)],
    end: [],
  };
}

/** NaN propagates. */
function extremum(fn: "max" | "min", name: string, v: string, dtype: DType): string {
  const nan = kindOf(dtype) === "float" ? ` || ${v} != ${v}` : "";
  return `${name} = (${v} ${fn === "max" ? ">" : "<"} ${name}${nan}) ? ${v} : ${name};`;
}
