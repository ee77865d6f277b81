// From a graph to C: the schedule of a function and the source of its program. Everything that goes in and comes out is plain data, so
// that it can happen in another thread.
import { type Schedule, scheduleFunction } from "../../compile/index.js";
import { type GraphFn, WeftError } from "../../graph/index.js";
import type { CompileOptions } from "../contract.js";
import { type Extension, extensionOf } from "./native-units.js";
import { writeProgram } from "./program.js";
import type { SavedProgram } from "./saved-program.js";

/** A program before it is compiled. */
export interface GeneratedProgram extends Omit<SavedProgram, "library"> {
  /** Translation units in C. */
  units: readonly string[];
  /** Whether it exchanges data with other processes. */
  needsGroup: boolean;
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

const needsGroup = (plan: Schedule): boolean =>
  plan.steps.some((step) => (step.kind === "loop" ? needsGroup(step.body) : step.kind === "collective"));

/** Products run in float32; the code takes every geometry. */
const conv = { supports: () => true, widensHalf: true, symmetric: false, loopsDepthwise: false };

export const planFor = (fn: GraphFn, { donated, constants = new Map() }: CompileOptions): Schedule =>
  scheduleFunction(fn, {
    parallelRows: 16,
    separateDraws: true,
    longReduction: 32768,
    donated,
    conv,
    selects: () => true,
    lanes: { constants },
  });

export function generate(fn: GraphFn, options: CompileOptions): GeneratedProgram {
  try {
    return generateDeep(fn, options);
  } catch (error) {
    if (error instanceof RangeError && /call stack/.test(error.message))
      throw new WeftError("this function nests its operations too deeply to be compiled; divide it into several");
    throw error;
  }
}

function generateDeep(fn: GraphFn, options: CompileOptions): GeneratedProgram {
  const plan = planFor(fn, options);
  const { units, kernels } = writeProgram(plan);
  return {
    units,
    kernels,
    scratchBytes: plan.scratchBytes,
    aliases: [...plan.aliases],
    extensions: [...extensionsOf(plan)],
    needsGroup: needsGroup(plan),
  };
}
