// Generates CUDA C from a schedule: each kernel once, several small ones as one launch. Needs no GPU.
import {
  type CudaKernel,
  cudaThreads,
  emitBlockCuda,
  emitCudaKernel,
  emitLaneCuda,
  isTiled,
  type LoopKernel,
  type Schedule,
  type ScheduleOptions,
  type ScheduleStep,
} from "../../compile/index.js";
import type { Precision } from "../../graph/index.js";
import { attentionOf, fitsAttention } from "../attention-operands.js";
import { type AttentionCall, attentionCall, attentionWorkspace } from "./attention.js";
import { unfused } from "./compiler.js";
import { preludeFor } from "./prelude.js";
import { isResident, type ResidentLoop, residentLoop } from "./resident-loop.js";
import { scanSortWorkspace, scans, selectsPlaces, sumsNarrow } from "./scan-sort.js";
import { scatterWorkspace } from "./scatter.js";

/** Schedule options of this device. */
export const cudaScheduleOptions: ScheduleOptions = {
  parallelRows: 1024,
  longReduction: 4096,
  splitColumns: 512,
  columnsInRows: 32,
  columnEpilogues: true,
  gathersThrough: true,
  onePassMoments: true,
  halfMatmul: () => true,
  // Beyond, the library reads memory as fast and what is fused weighs nothing.
  vectorRows: 64 << 20,
  trueHalfSpectra: true,
  selects: selectsPlaces,
  sortsValues: true,
  sumsNarrow,
  scans,
  countsOnes: true,
  overwrites: true,
  copiesInKernels: true,
  workspace: (node) => scatterWorkspace(node) + scanSortWorkspace(node) + attentionWorkspace(node),
  customFits: (node, input, strided) =>
    fitsAttention(attentionOf(node)!, node.inputs.indexOf(input), strided, input.shape),
  lanes: { blocks: true, savingLanes: 16384, localBytes: 8192 },
  batching: {
    mayBatch: (kernel) => cudaThreads(kernel) === 256 && !isTiled(kernel) && kernel.size < 2 ** 31,
    maxBuffers: 480,
  },
};

const boundsOf = ({ threads, together = 0 }: { threads: number; together?: number }): string =>
  together > 0 ? `${threads}, ${together}` : String(threads);

interface Prepared extends CudaKernel {
  name: string;
}

export interface CudaProgramText {
  source: string;
  names: string[];
  /** By loop kernel, lane kernel or batch. */
  kernels: Map<object, Prepared>;
  attention: Map<ScheduleStep, AttentionCall & { name: string }>;
  /** Loops that are one launch. */
  loops: Map<ScheduleStep, ResidentLoop & { name: string }>;
}

type LibraryStep = Extract<ScheduleStep, { kind: "library" }>;

/**
 * The CUDA C of a plan and of the loops in it, equal kernels once. Needs no GPU. Attention that a library computes gets no
 * kernel.
 */
export function writeCudaProgram(
  plan: Schedule,
  maxBlocks: number,
  precision: Precision = "float32",
  hasLibraryKernel: (step: LibraryStep) => boolean = () => false,
): CudaProgramText {
  const texts = new Map<string, string>();
  const kernels = new Map<object, Prepared>();
  const devices = new Map<string, string>();
  const named = (text: string): string => {
    const name = texts.get(text) ?? `k${texts.size}`;
    texts.set(text, name);
    return name;
  };
  let isUnfused = false;
  const emit: typeof emitCudaKernel = (kernel, how) => {
    const emitted = emitCudaKernel(kernel, how);
    isUnfused ||= emitted.isUnfused ?? false;
    return emitted;
  };
  const addBody = (text: string): string => {
    const name = devices.get(text) ?? `f${devices.size}`;
    devices.set(text, name);
    return name;
  };
  const add = (kernel: LoopKernel, mayAlias: boolean, aligned: boolean): void => {
    if (kernel.size === 0) return;
    const emitted = emit(kernel, { mayAlias, maxBlocks: Number.POSITIVE_INFINITY, aligned });
    // The number of elements comes last, so that eager operations on tensors of many sizes are compiled once.
    const count = kernel.buffers.length;
    const [args, n] = emitted.n > 0 ? [count + 1, `(long long)p[${count}]`] : [count, "0"];
    const whole = emitted.n < 2 ** 31 ? "int" : "long long";
    const text = `extern "C" __global__ void __launch_bounds__(${boundsOf(emitted)}) @(const Args<${args}> args) {\n  void* const* p = args.p; const int bx = blockIdx.x, gx = gridDim.x; const ${whole} n = (${whole})${n};\n${emitted.text}\n}`;
    kernels.set(kernel, { ...emitted, name: named(text) });
  };
  /** One launch for several kernels: each has a range of the blocks, found in a table. */
  const addBatch = (step: Extract<ScheduleStep, { kind: "batch" }>, mayAlias: boolean, aligned: boolean): void => {
    const rows: number[][] = [];
    const bodies: string[] = [];
    let [start, offset, threads, together] = [0, 0, 0, 0];
    for (const kernel of step.kernels) {
      const emitted = emit(kernel, { mayAlias, maxBlocks, aligned });
      const body = addBody(emitted.text);
      if (!bodies.includes(body)) bodies.push(body);
      rows.push([start, offset, emitted.n, bodies.indexOf(body), emitted.blocks]);
      start += emitted.blocks;
      offset += kernel.buffers.length;
      threads = emitted.threads;
      together = Math.max(together, emitted.together ?? 0);
    }
    const table = rows.flat().join(", ");
    const cases = bodies.map((body, i) => `    case ${i}: ${body}(args.p + row[1], b, row[4], row[2]); break;`);
    const text = `static __constant__ int @_table[${rows.length * 5}] = { ${table} };
extern "C" __global__ void __launch_bounds__(${boundsOf({ threads, together })}) @(const __grid_constant__ Args<${offset}> args) {
  int low = 0, high = ${rows.length};
  while (high - low > 1) { int middle = (low + high) / 2; if (@_table[5 * middle] <= (int)blockIdx.x) low = middle; else high = middle; }
  const int* row = @_table + 5 * low;
  const int b = (int)blockIdx.x - row[0];
  switch (row[3]) {
${cases.join("\n")}
  }
}`;
    kernels.set(step, { text, n: 0, blocks: start, threads, name: named(text) });
  };
  const attention: CudaProgramText["attention"] = new Map();
  const addAttention = (step: LibraryStep): void => {
    if (hasLibraryKernel(step)) return;
    const call = attentionCall(step.node, step.operands!, precision);
    attention.set(step, { ...call, name: named(call.text) });
  };
  const addLanes = ({ program }: Extract<ScheduleStep, { kind: "lane" }>, aligned: boolean): void => {
    const emitted = program.form === "block" ? emitBlockCuda(program) : emitLaneCuda(program, aligned);
    const buffers = program.inputs.length + program.outputs.length;
    const text = `extern "C" __global__ void __launch_bounds__(${emitted.threads}) @(const Args<${buffers}> args) {\n  void* const* p = args.p;\n${emitted.text}\n}`;
    kernels.set(program, { ...emitted, text, n: 0, name: named(text) });
  };
  const loops: CudaProgramText["loops"] = new Map();
  /** Blocks write what others have read before: no operand is constant for the whole launch. */
  const addLoop = (step: Extract<ScheduleStep, { kind: "loop" }>): boolean => {
    if (!isResident(step)) return false;
    const loop = residentLoop(step, (kernel) => emit(kernel, { mayAlias: true, maxBlocks, aligned: false }), addBody);
    if (loop !== null) loops.set(step, { ...loop, name: named(loop.text) });
    return loop !== null;
  };
  const visit = (inner: Schedule, aligned: boolean): void => {
    const mayAlias = inner.aliases.size > 0;
    for (const step of inner.steps) {
      const overwrites = (kernel: LoopKernel): boolean => mayAlias || inner.overwriting.has(kernel);
      if (step.kind === "kernel") add(step.kernel, overwrites(step.kernel), aligned);
      else if (step.kind === "batch") addBatch(step, step.kernels.some(overwrites), aligned);
      else if (step.kind === "library" && attentionOf(step.node) !== null) addAttention(step);
      // An epilogue finishes its product where it lies.
      else if (step.kind === "library" && step.epilogue !== null) add(step.epilogue, true, aligned);
      else if (step.kind === "loop") {
        if (!addLoop(step)) visit(step.body, false);
      } else if (step.kind === "lane") addLanes(step, aligned);
    }
  };
  visit(plan, true);
  const shared = [...devices].map(
    ([text, name]) =>
      `static __device__ __forceinline__ void ${name}(void* const* p, int bx, int gx, int n) {\n${text}\n}`,
  );
  const functions = [...shared, ...[...texts].map(([text, name]) => text.replaceAll("@", name))].join("\n\n");
  const text = `template <int N> struct Args { void* p[N]; };\n${functions}\n`;
  const source = (isUnfused ? unfused : "") + preludeFor(text) + text;
  const more = [...attention.values()].flatMap(({ name, launches }) => launches.map((l) => name + l.suffix));
  return { source, names: [...new Set([...texts.values(), ...more])], kernels, attention, loops };
}
