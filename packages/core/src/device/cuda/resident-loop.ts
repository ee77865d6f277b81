// Loops whose steps are only generated kernels, as one cooperative launch: its blocks stay on the multiprocessors for all steps
// and wait for each other between kernels, which takes less time than a launch. For long loops of small kernels, such as time
// steps of differential equations.
import {
  type CudaKernel,
  cudaThreads,
  isTiled,
  type Location,
  type LoopKernel,
  memoryKey,
  type Schedule,
  type ScheduleStep,
} from "../../compile/index.js";
import { bytesOf, InternalError, type Node, numel } from "../../graph/index.js";

type LoopStep = Extract<ScheduleStep, { kind: "loop" }>;

/** What the host passes for a buffer: one address, or the two that a carry alternates between. */
type LoopWord =
  | { kind: "scratch"; offset: number }
  | { kind: "input"; index: number }
  | { kind: "carry"; index: number; other: boolean }
  | { kind: "output"; index: number };

export interface ResidentLoop {
  text: string;
  words: LoopWord[];
  /** Blocks that have work. */
  blocks: number;
  threads: number;
}

/** Elements of the largest kernel: beyond, launches take little of the time and more blocks hide more latency. */
const maxSize = 1 << 20;
const minSteps = 4;
/** Blocks that fill large GPUs about twice. */
const fewBlocks = 264;
/** Blocks of 256 threads that become one: their registers must suffice for bodies of many terms. */
const maxJoined = 3;
/** Addresses in the arguments of a launch. */
const maxWords = 400;

const kernelsOf = (step: ScheduleStep): LoopKernel[] | null =>
  step.kind === "kernel" ? [step.kernel] : step.kind === "batch" ? step.kernels : null;

const isPlain = ({ reductions, columnSums }: LoopKernel): boolean => reductions.length + columnSums.length === 0;

/** Whether a loop can be one launch. */
export function isResident({ node, body }: LoopStep): boolean {
  if (node.attrs.stop !== undefined || node.attrs.length < minSteps) return false;
  return body.steps.every(
    (step) =>
      step.kind === "copy" ||
      kernelsOf(step)?.every((k) => k.size > 0 && k.size <= maxSize && cudaThreads(k) === 256 && !isTiled(k)),
  );
}

/**
 * Whether blocks wait for each other after a step. What a step reads of the loop's own arguments is not written in the same
 * iteration unless a carry is updated in place, so a copy of an argument needs no barrier before it.
 */
function needsBarrier(body: Schedule, k: number): boolean {
  const next = body.steps[k + 1];
  return next?.kind !== "copy" || body.aliases.size > 0 || body.locations.get(memoryKey(next.from))?.kind !== "input";
}

/** Pointers of a loop's buffers as text; the same buffer is passed once. */
class LoopPointers {
  readonly words: LoopWord[] = [];
  readonly #known = new Map<string, number>();

  constructor(readonly step: LoopStep) {}

  #word(key: string, ...words: LoopWord[]): number {
    let at = this.#known.get(key);
    if (at === undefined) {
      at = this.words.length + 1;
      this.words.push(...words);
      this.#known.set(key, at);
    }
    return at;
  }

  #carry(index: number, isResult: boolean): string {
    const at = this.#word(`c${index}`, { kind: "carry", index, other: false }, { kind: "carry", index, other: true });
    return `(s & 1) ? a[${at + (isResult ? 0 : 1)}] : a[${at + (isResult ? 1 : 0)}]`;
  }

  #row(at: number, node: Node): string {
    return `(char*)a[${at}] + (long long)t * ${numel(node.shape) * bytesOf(node.dtype)}`;
  }

  of(plan: Schedule, node: Node): string {
    const location = plan.locations.get(memoryKey(node));
    if (location === undefined) throw new InternalError(`no memory for %${node.id} (${node.op})`);
    return this.at(plan, location);
  }

  at(plan: Schedule, location: Location): string {
    const { consts, carries } = this.step.node.attrs;
    if (location.kind === "scratch") {
      const { offset } = location;
      return `a[${this.#word(`s${offset}`, { kind: "scratch", offset })}]`;
    }
    const { index } = location;
    if (location.kind === "output") {
      if (index < carries) return this.#carry(index, true);
      return this.#row(this.#word(`y${index}`, { kind: "output", index }), plan.fn.outputs[index]);
    }
    if (index >= consts && index < consts + carries) return this.#carry(index - consts, false);
    const at = this.#word(`i${index}`, { kind: "input", index });
    return index < consts ? `a[${at}]` : this.#row(at, plan.fn.params[index]);
  }
}

/** A loop as one kernel; null where it needs too many addresses. `bodyOf` names a device function with the text. */
export function residentLoop(
  step: LoopStep,
  emit: (kernel: LoopKernel) => CudaKernel,
  bodyOf: (text: string) => string,
): ResidentLoop | null {
  const { node, body } = step;
  const pointers = new LoopPointers(step);
  const lines: string[] = [];
  let [blocks, barriers] = [1, 0];
  body.steps.forEach((inner, k) => {
    if (inner.kind === "copy") {
      const to = pointers.at(body, { kind: "output", index: inner.to });
      const bytes = numel(inner.from.shape) * bytesOf(inner.from.dtype);
      lines.push(`    w_grid_copy(${to}, ${pointers.of(body, inner.from)}, ${bytes});`);
    }
    for (const kernel of kernelsOf(inner) ?? []) {
      const emitted = emit(kernel);
      const name = bodyOf(emitted.text);
      blocks = Math.max(blocks, emitted.blocks);
      const places = kernel.buffers.map((buffer) => pointers.of(body, buffer)).join(", ");
      lines.push(`    { void* const p[] = { ${places} };`);
      // A loop over elements takes any number of blocks of 256 threads: here those that the launch has.
      if (isPlain(kernel)) lines.push(`      ${name}(p, blockIdx.x, blocks, ${emitted.n}); }`);
      // Their blocks are numbered by what they reduce, and share memory.
      else
        lines.push(
          `      for (int b = blockIdx.x; b < ${emitted.blocks}; b += gridDim.x) { ${name}(p, b, ${emitted.blocks}, ${emitted.n}); __syncthreads(); } }`,
        );
    }
    if (needsBarrier(body, k)) lines.push(`    w_grid_barrier(counter, s * @barriers + ${++barriers}u);`);
  });
  const { length, reverse } = node.attrs;
  const count = pointers.words.length + 1;
  if (count > maxWords) return null;
  // A few blocks of plain loops become one larger block, which needs no barrier of the device.
  const isOneBlock = blocks <= maxJoined && body.steps.every((inner) => (kernelsOf(inner) ?? []).every(isPlain));
  const threads = isOneBlock ? blocks * 256 : 256;
  // Few blocks wait for the slowest: the compiler orders their loads better with fewer registers.
  const bounds = !isOneBlock && blocks <= fewBlocks ? "256, 2" : threads;
  const text = `extern "C" __global__ void __launch_bounds__(${bounds}) @(const __grid_constant__ Args<${count}> args) {
  void* const* a = args.p;
  unsigned* counter = (unsigned*)a[0];
  for (unsigned s = 0; s < ${length}u; s++) {
    const int t = ${reverse ? `${length - 1} - (int)s` : "(int)s"};
    const int blocks = gridDim.x * (blockDim.x / 256);
${lines.join("\n").replaceAll("@barriers", `${barriers}u`)}
  }
}`;
  return { text, words: pointers.words, blocks: isOneBlock ? 1 : blocks, threads };
}
