// From a graph to C: the schedule of a function and the source of its program. Everything that goes in and comes out is plain data, so
// that it can happen in another thread.
import { type ConvSupport, type Schedule, scheduleFunction } from "../../compile/index.js";
import { isSmallProduct } from "../../cost/index.js";
import { type DType, type GraphFn, type Node, numel, WeftError } from "../../graph/index.js";
import { convRoles } from "../../ops/index.js";
import type { CompileOptions } from "../contract.js";
import { fitsInPlace } from "./attention.js";
import { processorHas } from "./compiler.js";
import { type Extension, extensionOf } from "./native-units.js";
import { writeProgram } from "./program.js";
import type { SavedProgram } from "./saved-program.js";

/** A program before it is compiled. */
export interface GeneratedProgram extends Omit<SavedProgram, "library"> {
  /** Translation units in C. */
  units: readonly string[];
  /** What it exchanges with other processes; empty if it needs no group. */
  tables: readonly bigint[];
}

function extensionsOf(plan: Schedule): Set<Extension> {
  const found = new Set<Extension>();
  for (const step of plan.steps) {
    if (step.kind === "loop") for (const inner of extensionsOf(step.body)) found.add(inner);
    const extension = step.kind === "library" ? extensionOf(step.node.op) : null;
    if (extension !== null) found.add(extension);
  }
  return found;
}

/** Whether the library has products of this half type. Others run in float32, where they are as fast and casts are fused. */
const hasProducts = (dtype: DType): boolean => dtype === "bfloat16" && processorHas("avx512_bf16");

/** Vectors and small matrices are generated code, which computes in float32. */
function halfMatmul({ shape, dtype, inputs: [a] }: Node<"matmul">): boolean {
  const sizes = [...shape.slice(-2), a.shape[a.shape.length - 1]];
  const isSmall = isSmallProduct("float32", numel(shape.slice(0, -2)), sizes);
  return hasProducts(dtype) && !shape.slice(-2).includes(1) && !isSmall;
}

/** Groups of fewer channels are direct loops in float32. */
const enoughChannels = 16;

/** Whether direct loops of the library read and write bfloat16 numbers: `is_grouped` and `is_planes` of native/conv-*.h. */
function loopsOfHalves(node: Node<"conv">): boolean {
  const { x, w } = convRoles(node);
  const { kind, groups, channelsLast, stride } = node.attrs;
  const channels = x.shape[channelsLast ? x.shape.length - 1 : 1];
  const [ins, outs] = [channels / groups, w.shape[0] / groups];
  if (node.dtype !== "bfloat16" || (kind === "input" && stride.some((n) => n !== 1))) return false;
  const isFew = (ins <= 4 && outs <= 4) || (ins === 8 && outs === 8);
  if (channelsLast) return isFew && channels >= 4 && w.shape[0] >= 4;
  return ins <= 8 && outs <= 8 && (groups > 1 || (x.shape[0] > 1 && ins * outs <= 16));
}

/** The code takes every geometry. */
const conv: ConvSupport = {
  supports: () => true,
  symmetric: false,
  loopsDepthwise: false,
  widensHalf(node) {
    const { x, w } = convRoles(node);
    const { groups, channelsLast } = node.attrs;
    const channels = x.shape[channelsLast ? x.shape.length - 1 : 1];
    if (loopsOfHalves(node)) return false;
    const isWide = groups === 1 || Math.min(channels, w.shape[0]) >= groups * enoughChannels;
    return !hasProducts(node.dtype) || !isWide;
  },
};

/** Dtypes of running products and extrema in native/scan.h. */
const scanned: ReadonlySet<DType> = new Set<DType>(["float32", "float64", "int32", "int64"]);

export const cpuSchedule = (fn: GraphFn, { donated, constants = new Map() }: CompileOptions): Schedule =>
  scheduleFunction(fn, {
    parallelRows: 16,
    countsOnes: true,
    argsOfColumns: true,
    separateDraws: true,
    longReduction: 32768,
    tallColumns: 1 << 17,
    donated,
    conv,
    halfMatmul,
    selects: () => true,
    customFits: fitsInPlace,
    scans: (dtype) => scanned.has(dtype),
    lanes: { constants },
  });

export function generateProgram(fn: GraphFn, options: CompileOptions): GeneratedProgram {
  try {
    return generateDeep(fn, options);
  } catch (error) {
    if (error instanceof RangeError && /call stack/.test(error.message))
      throw new WeftError("this function nests its operations too deeply to be compiled; divide it into several");
    throw error;
  }
}

function generateDeep(fn: GraphFn, options: CompileOptions): GeneratedProgram {
  const plan = cpuSchedule(fn, options);
  const { units, kernels, tables } = writeProgram(plan);
  return {
    units,
    kernels,
    tables,
    scratchBytes: plan.scratchBytes,
    aliases: [...plan.aliases],
    extensions: [...extensionsOf(plan)],
  };
}
