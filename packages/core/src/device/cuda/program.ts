// A schedule on the GPU: its kernels compiled into one module, and the function that issues its steps to the stream, directly
// or while a CUDA graph is recorded.
import {
  type BatchDim,
  contiguousOperand,
  type LibraryEpilogue,
  type Location,
  libraryEpilogue,
  loopMemory,
  type MatrixOperand,
  memoryKey,
  mergeBatch,
  type Schedule,
  type ScheduleStep,
} from "../../compile/index.js";
import {
  bytesOf,
  InternalError,
  isOp,
  makeStorage,
  type Node,
  numel,
  outputAvals,
  type Precision,
  sameShape,
  stridesOf,
} from "../../graph/index.js";
import { type ReferenceRule, referenceRules, type Value } from "../../ops/index.js";
import { attentionOf } from "../attention-operands.js";
import type { KernelInfo } from "../contract.js";
import { attentionArguments, attentionOffsets, attentionPlaces, cudnnCallOf } from "./attention.js";
import { stagedCollective } from "./collective.js";
import { CudaBuffer, type CudaContext } from "./context.js";
import type { Convolutions } from "./convolution.js";
import { type CudnnAttention, cudnnAttention } from "./cudnn-attention.js";
import type { FourierTransforms } from "./fourier.js";
import { kernelInfo } from "./kernel-info.js";
import { allowSharedMemory, functionOf, type Launcher, libraryFunction, loadModule } from "./launch.js";
import { issueLibraryOp, updateCall } from "./library-calls.js";
import { type CublasProduct, columnMajor, type Products } from "./products.js";
import type { LibraryCalls } from "./scan-sort.js";
import { isSolverOp, LinearAlgebra } from "./solver.js";
import { type CudaProgramText, writeCudaProgram } from "./source.js";
import { launchFewRows, launchVectorProduct } from "./vector-product.js";

/** Addresses of inputs, outputs and scratch memory in one run. */
export interface Addresses {
  inputs: readonly number[];
  outputs: readonly number[];
  scratch: number;
}

type ProductStep = Extract<ScheduleStep, { kind: "library" }>;

/** Rows of a piece when a schedule ends in one large product that is its only result; 0 otherwise. */
function pieceRows(plan: Schedule): number {
  const last = plan.steps[plan.steps.length - 1];
  if (last?.kind !== "library" || last.matrices === null || last.epilogue !== null) return 0;
  const { node } = last;
  const location = plan.locations.get(memoryKey(node));
  if (plan.fn.outputs.length !== 1 || location?.kind !== "output" || plan.layouts.has(node)) return 0;
  if (node.shape.length !== 2 || sizeOf(node) < fromBytes) return 0;
  // Full waves of tiles on the large GPUs, and a copy that takes long enough to hide the next piece.
  const rows = Math.max(1024, Math.ceil(pieceBytes / (node.shape[1] * bytesOf(node.dtype)) / 256) * 256);
  return rows * 2 <= node.shape[0] ? rows : 0;
}
const largestNumber = (numbers: Iterable<number>): number => {
  let most = 0;
  for (const x of numbers) most = Math.max(most, x);
  return most;
};
/** Hand-written kernels that start with w_begin. */
const begins = /^w_(skinny|update|vector)_/;
const fromBytes = 32 << 20;
const pieceBytes = 16 << 20;

const usesHost = (plan: Schedule): boolean =>
  plan.steps.some((step) =>
    step.kind === "loop"
      ? step.node.attrs.stop !== undefined || usesHost(step.body)
      : step.kind === "collective" || (step.kind === "library" && isSolverOp(step.node.op)),
  );

/** Attention steps of a schedule, and of its loops, that cuDNN computes. */
function libraryAttention(
  plan: Schedule,
  context: CudaContext,
  found = new Map<ScheduleStep, CudnnAttention>(),
): typeof found {
  for (const step of plan.steps) {
    if (step.kind === "loop") libraryAttention(step.body, context, found);
    if (step.kind !== "library" || attentionOf(step.node) === null) continue;
    const call = cudnnCallOf(step.node, step.operands!);
    const made = call === null ? null : cudnnAttention(context, call);
    if (made !== null) found.set(step, made);
  }
  return found;
}

/** The CUDA source of a schedule for the GPU of a context. */
export const writeCudaSource = (
  plan: Schedule,
  context: CudaContext,
  precision: Precision,
  byLibrary: ReadonlyMap<ScheduleStep, CudnnAttention> = libraryAttention(plan, context),
): CudaProgramText => writeCudaProgram(plan, context.multiprocessors * 16, precision, (step) => byLibrary.has(step));

/** Library handles that issue calls, shared by the programs of a device. */
interface LibraryCallers {
  products: Products;
  convolutions: Convolutions | null;
  fourier: FourierTransforms;
}

export class CudaProgram {
  readonly kernels: KernelInfo[] = [];
  /** Steps that run on the host, or in libraries that allocate and wait, cannot be part of a graph. */
  readonly usesHost: boolean;
  readonly source: string;
  readonly #text: CudaProgramText;
  readonly #cudnn: ReadonlyMap<ScheduleStep, CudnnAttention>;
  /** Scratch memory of cuDNN, for one step at a time. A recorded graph uses it, so it lives as long as the program. */
  #cudnnWorkspace: CudaBuffer | null = null;
  readonly #functions = new Map<string, number>();

  constructor(
    readonly context: CudaContext,
    readonly launcher: Launcher,
    readonly libraries: LibraryCallers,
    readonly plan: Schedule,
    readonly precision: Precision,
  ) {
    this.#cudnn = libraryAttention(plan, context);
    this.#text = writeCudaSource(plan, context, precision, this.#cudnn);
    this.source = this.#text.source;
    this.usesHost = usesHost(plan);
    this.#calls = this.#makeCalls();
    for (const step of plan.steps) {
      const info = kernelInfo(step, this.#cudnn.has(step) ? "_cudnn" : "");
      if (info !== null) this.kernels.push(info);
    }
    this.#readEpilogues(plan);
    this.#pieceRows = pieceRows(plan);
    if (this.#text.names.length > 0) {
      this.#module = loadModule(context, this.source);
      try {
        for (const name of this.#text.names) this.#functions.set(name, functionOf(context, this.#module, name));
        this.#allowSharedMemory();
      } catch (error) {
        this.release();
        throw error;
      }
    }
  }

  #module: number | null = null;

  /** Unloads the kernels and frees the pointer tables; the stream has finished with both. */
  release(): void {
    for (const table of this.#tables.values()) this.context.free(table);
    this.#tables.clear();
    if (this.#cudnnWorkspace !== null) this.context.free(this.#cudnnWorkspace);
    this.#cudnnWorkspace = null;
    if (this.#counter !== null) this.context.free(this.#counter);
    this.#counter = null;
    this.#functions.clear();
    if (this.#module !== null) this.context.driver.cuModuleUnload(this.#module);
    this.#module = null;
  }

  /** Epilogues that cuBLASLt computes inside the product. */
  readonly #epilogues = new Map<ScheduleStep, LibraryEpilogue>();
  readonly #pieceRows: number;

  #readEpilogues(plan: Schedule): void {
    for (const step of plan.steps) {
      if (step.kind === "loop") this.#readEpilogues(step.body);
      if (step.kind !== "library" || step.epilogue === null || step.matrices === null) continue;
      const known = libraryEpilogue(step.epilogue, step.node);
      if (known === null) continue;
      const needsLt = known.bias !== null || known.activation !== "none";
      if (!needsLt || this.context.libraries.lt !== null) this.#epilogues.set(step, known);
    }
  }

  /** Requests more than 48 KiB of shared memory per block where kernels need it. */
  #allowSharedMemory(): void {
    for (const { name, launches, sharedBytes } of this.#text.attention.values()) {
      if (sharedBytes <= 48 << 10) continue;
      for (const { suffix } of launches)
        allowSharedMemory(this.context, this.#functions.get(name + suffix)!, sharedBytes);
    }
  }

  #attention(plan: Schedule, step: ProductStep, addresses: Addresses): void {
    const operands = step.operands!.map((o) => ({ address: this.#at(plan, o.node, addresses), offset: o.offset }));
    const results = outputAvals(step.node).map((_, i) => this.#at(plan, step.node, addresses, i));
    const offsets = attentionOffsets(step.node, step.operands!);
    const args = attentionArguments(step.node, offsets, operands, results, addresses.scratch + step.workspace);
    const library = this.#cudnn.get(step);
    if (library !== undefined) {
      library.run(attentionPlaces(step.node, args), this.#libraryWorkspace());
      return;
    }
    const call = this.#text.attention.get(step)!;
    if (call.clearedBytes > 0) this.#clear(results[results.length - 1], call.clearedBytes);
    for (const { suffix, blocks } of call.launches)
      this.launcher.launch(
        this.#functions.get(call.name + suffix)!,
        [blocks, 1],
        call.threads,
        args,
        call.sharedBytes,
        call.begins,
      );
  }

  #libraryWorkspace(): number {
    const bytes = Math.max(...[...this.#cudnn.values()].map((made) => made.workspaceBytes));
    if (bytes === 0) return 0;
    this.#cudnnWorkspace ??= this.context.allocate(bytes);
    return this.#cudnnWorkspace.address;
  }

  /** Issues all steps to the stream; `after` is called after each step. */
  issue(addresses: Addresses, after?: (step: number) => void): void {
    this.#repeats = 1;
    this.#issuePlan(this.plan, addresses, after);
  }

  /** Whether the result is one large product, which can be delivered in pieces. */
  get deliversInPieces(): boolean {
    return this.#pieceRows > 0;
  }

  /** Issues all steps, the last product in blocks of rows on demand; yields the bytes of each block. */
  *issueInPieces(addresses: Addresses): Generator<number, void> {
    const { plan } = this;
    const last = plan.steps[plan.steps.length - 1] as ProductStep;
    this.#issuePlan({ ...plan, steps: plan.steps.slice(0, -1) }, addresses);
    const [rows, columns] = last.node.shape;
    // The first copy starts after a smaller piece, and with even numbers a smaller one is left for the last copy: both wait.
    for (let start = 0; start < rows; ) {
      const count = Math.min(start === 0 ? this.#pieceRows / 2 : this.#pieceRows, rows - start);
      this.#matmul(plan, last, addresses, { start, count });
      yield count * columns * bytesOf(last.node.dtype);
      start += count;
    }
  }

  #issuePlan(plan: Schedule, addresses: Addresses, after?: (step: number) => void): void {
    let number = 0;
    const ranges = plan === this.plan ? this.context.ranges : null;
    let joined: ScheduleStep | null = null;
    for (const [i, step] of plan.steps.entries()) {
      if (step === joined) continue;
      if (after === undefined && this.#updatePair(plan, step, plan.steps[i + 1], addresses)) {
        joined = plan.steps[i + 1];
        continue;
      }
      // Collectives through the host gain nothing from an early start.
      if (step.kind === "collective" && step.phase === "start") continue;
      ranges?.push(this.kernels[number]?.name ?? step.kind);
      if (step.kind === "kernel") this.#launch(plan, step.kernel, step.kernel.buffers, addresses);
      else if (step.kind === "batch") {
        const buffers = step.kernels.flatMap((k) => k.buffers);
        this.#launch(plan, step, buffers, addresses);
      } else if (step.kind === "collective")
        stagedCollective(
          this.context,
          this.context.group,
          step.node,
          this.#operand(plan, step.node.inputs[0], addresses),
          this.#at(plan, step.node, addresses),
        );
      else if (step.kind === "copy")
        this.#copy(addresses.outputs[step.to], this.#at(plan, step.from, addresses), sizeOf(step.from));
      else if (step.kind === "loop") this.#loop(plan, step, addresses);
      else if (step.kind === "lane") this.#lanes(plan, step, addresses);
      else if (step.matrices !== null) this.#matmul(plan, step, addresses);
      else if (step.operands !== undefined) this.#attention(plan, step, addresses);
      else this.#library(plan, step, addresses);
      ranges?.pop();
      after?.(number);
      number++;
    }
  }

  #address(location: Location, addresses: Addresses): number {
    if (location.kind === "scratch") return addresses.scratch + location.offset;
    return location.kind === "input" ? addresses.inputs[location.index] : addresses.outputs[location.index];
  }

  #at(plan: Schedule, node: Node, addresses: Addresses, index = 0): number {
    const location = plan.locations.get(memoryKey(node, index));
    if (location === undefined) throw new InternalError(`no memory for %${node.id} (${node.op})`);
    return this.#address(location, addresses);
  }

  #operand(plan: Schedule, node: Node, addresses: Addresses): number {
    return this.#at(plan, contiguousOperand(plan, node), addresses);
  }

  #launch(plan: Schedule, key: object, buffers: readonly Node[], addresses: Addresses): void {
    const prepared = this.#text.kernels.get(key);
    if (prepared === undefined) return;
    const args = buffers.map((node) => this.#at(plan, node, addresses));
    if (prepared.n > 0) args.push(prepared.n);
    this.launcher.launch(this.#functions.get(prepared.name)!, [prepared.blocks, 1], prepared.threads, args, 0, true);
  }

  #lanes(plan: Schedule, { node, program }: Extract<ScheduleStep, { kind: "lane" }>, addresses: Addresses): void {
    const prepared = this.#text.kernels.get(program)!;
    const inputs = node.inputs.map((x) => this.#operand(plan, x, addresses));
    const outputs = outputAvals(node).map((_, i) => this.#at(plan, node, addresses, i));
    this.launcher.launch(this.#functions.get(prepared.name)!, [prepared.blocks, 1], prepared.threads, [
      ...inputs,
      ...outputs,
    ]);
  }

  #copy(to: number, from: number, bytes: number): void {
    if (bytes === 0 || to === from) return;
    const { driver } = this.context.libraries;
    this.context.check("cuMemcpyDtoD", driver.cuMemcpyDtoDAsync_v2(to, from, bytes, this.context.stream));
  }

  #loop(plan: Schedule, step: Extract<ScheduleStep, { kind: "loop" }>, addresses: Addresses): void {
    const { node, body } = step;
    const { consts, carries, length, reverse, stop } = node.attrs;
    const start = addresses.scratch + step.offset;
    const memory = loopMemory(step).carries;
    const current = memory.map(({ reads }) => start + reads);
    const other = memory.map(({ writes }) => start + writes);
    const inputs = node.inputs.map((x) => this.#operand(plan, x, addresses));
    for (let c = 0; c < carries; c++) this.#copy(current[c], inputs[consts + c], sizeOf(node.inputs[consts + c]));
    const ys = body.fn.outputs.map((_, i) => (i < carries ? 0 : this.#at(plan, node, addresses, i)));
    const steps = stop === "count" ? Math.min(length, this.#largest(inputs[0], node.inputs[0])) : length;
    const resident = this.#text.loops.get(step);
    if (resident !== undefined) {
      const args = resident.words.map((word) => {
        if (word.kind === "scratch") return start + word.offset;
        if (word.kind === "carry") return (word.other ? other : current)[word.index];
        return word.kind === "input" ? inputs[word.index] : ys[word.index];
      });
      const counter = this.#barrierCounter();
      this.#clear(counter, 4);
      const fn = this.#functions.get(resident.name)!;
      this.launcher.launchTogether(fn, resident.blocks, resident.threads, [counter, ...args]);
      for (let c = 0; c < carries; c++)
        this.#copy(
          this.#at(plan, node, addresses, c),
          (length % 2 === 0 ? current : other)[c],
          sizeOf(body.fn.outputs[c]),
        );
      return;
    }
    let s = 0;
    const around = this.#repeats;
    this.#repeats *= Math.max(1, steps);
    for (; s < steps; s++) {
      if (stop === "while" && this.#largest(current[0], node.inputs[consts]) === 0) break;
      const t = reverse ? steps - 1 - s : s;
      this.#issuePlan(body, {
        inputs: inputs.map((address, i) =>
          i < consts
            ? address
            : i < consts + carries
              ? current[i - consts]
              : address + (t * sizeOf(node.inputs[i])) / Math.max(1, length),
        ),
        outputs: body.fn.outputs.map((y, i) => (i < carries ? other[i] : ys[i] + t * sizeOf(y))),
        scratch: start,
      });
      for (let c = 0; c < carries; c++) [current[c], other[c]] = [other[c], current[c]];
    }
    this.#repeats = around;
    ys.forEach((address, i) => {
      if (i >= carries && s < length) {
        const row = sizeOf(body.fn.outputs[i]);
        this.#clear(address + s * row, (length - s) * row);
      }
    });
    for (let c = 0; c < carries; c++)
      this.#copy(this.#at(plan, node, addresses, c), current[c], sizeOf(body.fn.outputs[c]));
  }

  /** How often the steps that are being issued run in one call: the lengths of the loops around them. */
  #repeats = 1;

  /** Counts the arrivals at barriers of a launch; recorded graphs use it, so it lives as long as the program. */
  #counter: CudaBuffer | null = null;

  #barrierCounter(): number {
    this.#counter ??= this.context.allocate(64);
    return this.#counter.address;
  }

  /** The largest element of a predicate or a number of steps, read back from the device; at least 0. */
  #largest(address: number, { shape, dtype }: Node): number {
    const bytes = new Uint8Array(numel(shape) * bytesOf(dtype));
    if (bytes.byteLength === 0) return 0;
    this.context.transfers.download(new CudaBuffer(address, bytes.byteLength), bytes);
    return largestNumber(dtype === "int32" ? new Int32Array(bytes.buffer) : bytes);
  }

  #clear(address: number, bytes: number): void {
    if (bytes === 0) return;
    const { driver } = this.context.libraries;
    this.context.check("cuMemsetD8", driver.cuMemsetD8Async(address, 0, bytes, this.context.stream));
  }

  #matmul(plan: Schedule, step: ProductStep, addresses: Addresses, rows?: { start: number; count: number }): void {
    const { node } = step;
    const [a, b] = step.matrices!;
    const rank = node.shape.length - 2;
    const [all, n] = node.shape.slice(-2);
    const k = node.inputs[0].shape[rank + 1];
    const { start, count: m } = rows ?? { start: 0, count: all };
    if (m * n === 0) return;
    const size = bytesOf(node.dtype);
    const out = [...(plan.layouts.get(node) ?? stridesOf(node.shape))];
    const batch = mergeBatch(node.shape.slice(0, rank), a.strides, b.strides, out);
    const place = (operand: MatrixOperand, skip: number): number =>
      this.#at(plan, operand.node, addresses) + (operand.offset + skip * operand.strides[rank]) * size;
    const ldc = Math.max(out[rank], n);
    const epilogue = this.#epilogues.get(step) ?? null;
    // Row-major c = a b is column-major c^T = b^T a^T: the operands change places.
    const product: CublasProduct = {
      dtype: node.dtype,
      precision: (node as Node<"matmul">).attrs.precision ?? this.precision,
      m: n,
      n: m,
      k,
      left: { address: place(b, 0), ...columnMajor(b, k, n) },
      right: { address: place(a, start), ...columnMajor(a, all, k) },
      out: { address: this.#at(plan, node, addresses) + start * ldc * size, ld: ldc },
      batch: batch.length > 1 ? [] : batch,
      scale: epilogue?.scale ?? 1,
      epilogue:
        epilogue === null || (epilogue.bias === null && epilogue.activation === "none")
          ? null
          : {
              activation: epilogue.activation,
              bias: epilogue.bias === null ? 0 : this.#at(plan, epilogue.bias, addresses),
            },
    };
    if (batch.length > 1) this.#pointers(step, product, batch);
    else {
      const isOwn = launchVectorProduct(product, this.#calls) || launchFewRows(product, this.#calls);
      if ((isOwn || this.libraries.products.issue(product, this.#repeats)) && epilogue !== null) return;
    }
    if (step.epilogue !== null) this.#launch(plan, step.epilogue, step.epilogue.buffers, addresses);
  }

  /** A batch that one stride cannot describe: a kernel writes the pointers of its products. */
  #pointers(step: ProductStep, product: CublasProduct, batch: readonly BatchDim[]): void {
    const count = numel(batch.map((d) => d.size));
    const size = bytesOf(product.dtype);
    let table = this.#tables.get(step);
    if (table === undefined) {
      table = this.context.allocate(3 * 8 * count);
      this.#tables.set(step, table);
    }
    const { address } = table;
    const pad = (values: number[]): number[] => [...values, ...new Array<number>(8 - values.length).fill(0)];
    this.launcher.launch(libraryFunction(this.context, "w_pointers"), [Math.ceil(count / 256), 1], 256, [
      product.right.address,
      product.left.address,
      product.out.address,
      address,
      count,
      batch.length,
      ...pad(batch.map((d) => d.size)),
      ...pad(batch.map((d) => d.a * size)),
      ...pad(batch.map((d) => d.b * size)),
      ...pad(batch.map((d) => d.c * size)),
    ]);
    this.libraries.products.issuePointers(product, count, {
      left: address + 8 * count,
      right: address,
      out: address + 16 * count,
    });
  }

  /** Pointer tables of batched products: a recorded graph reads them, so they live as long as the program. */
  readonly #tables = new Map<ScheduleStep, CudaBuffer>();

  readonly #calls: LibraryCalls;

  #makeCalls(): LibraryCalls {
    const { context } = this;
    return {
      launch: (name, blocks, threads, args, sharedBytes = 0) => {
        const fn = libraryFunction(context, name);
        if (sharedBytes > 48 << 10) allowSharedMemory(context, fn, sharedBytes);
        this.launcher.launch(fn, [blocks, 1], threads, args, sharedBytes, begins.test(name));
      },
      zero: (address, bytes) => {
        const { driver } = context.libraries;
        context.check("cuMemsetD8", driver.cuMemsetD8Async(address, 0, bytes, context.stream));
      },
      copy: (to, from, bytes) => this.#copy(to, from, bytes),
      multiprocessors: context.multiprocessors,
      major: Math.floor(Number(context.architecture.slice(3)) / 10),
    };
  }

  #library(plan: Schedule, step: ProductStep, addresses: Addresses): void {
    const { node } = step;
    if (numel(outputAvals(node)[0].shape) === 0) return;
    issueLibraryOp(node, {
      input: (i) => this.#operand(plan, node.inputs[i], addresses),
      output: this.#at(plan, node, addresses),
      workspace: addresses.scratch + step.workspace,
      kernels: this.#calls,
      convolutions: isOp(node, "conv") ? this.libraries.convolutions : null,
      fourier: this.libraries.fourier,
      linearAlgebra: () => this.#linearAlgebra(plan, node, addresses),
      onHost: () => this.#onHost(plan, node, addresses),
    });
  }

  /** Two updates of equal shapes in place, such as the keys and values of a layer, in one launch. */
  #updatePair(plan: Schedule, first: ScheduleStep, second: ScheduleStep | undefined, addresses: Addresses): boolean {
    if (first.kind !== "library" || second?.kind !== "library") return false;
    const [a, b] = [first.node, second.node];
    if (!isOp(a, "updateSlice") || !isOp(b, "updateSlice") || !sameUpdate(a, b)) return false;
    if (b.inputs.some((x) => contiguousOperand(plan, x) === a) || numel(a.inputs[2].shape) === 0) return false;
    const places = [a, b].map((node) => ({
      output: this.#at(plan, node, addresses),
      operands: node.inputs.map((x) => this.#operand(plan, x, addresses)),
    }));
    // Otherwise the second could write where the first reads.
    if (places.some(({ output, operands }) => output !== operands[0])) return false;
    const { name, count, sizes } = updateCall(a);
    const blocks = Math.ceil(count / 256);
    const pointers = places.flatMap(({ output, operands }) => [output, operands[1], operands[2]]);
    this.#calls.launch(name.replace("w_update_", "w_update_pair_"), 2 * blocks, 256, [...pointers, count, ...sizes]);
    return true;
  }

  /** Runs an op by the vendor's solvers, or on the host without them. */
  #linearAlgebra(plan: Schedule, node: Node, addresses: Addresses): void {
    const algebra = linearAlgebraOf(this.context, this.launcher);
    if (algebra === null) {
      this.#onHost(plan, node, addresses);
      return;
    }
    const inputs = node.inputs.map((x) => this.#operand(plan, x, addresses));
    const outputs = outputAvals(node).map((_, i) => this.#at(plan, node, addresses, i));
    algebra.run({ node, inputs, outputs });
  }

  /** Runs an op on the host by its reference rule. */
  #onHost(plan: Schedule, node: Node, addresses: Addresses): void {
    const inputs = node.inputs.map((x): Value => {
      const data = makeStorage(x.dtype, numel(x.shape));
      const buffer = new CudaBuffer(this.#operand(plan, x, addresses), data.byteLength);
      this.context.transfers.download(buffer, new Uint8Array(data.buffer));
      return { shape: x.shape, dtype: x.dtype, data };
    });
    const rule = referenceRules[node.op as keyof typeof referenceRules] as ReferenceRule<typeof node.op>;
    const result = rule(inputs, node as never);
    (Array.isArray(result) ? result : [result]).forEach((value, i) => {
      const bytes = new Uint8Array(value.data.buffer, value.data.byteOffset, value.data.byteLength);
      this.context.transfers.upload(new CudaBuffer(this.#at(plan, node, addresses, i), bytes.byteLength), bytes);
    });
  }
}

const sameUpdate = (a: Node<"updateSlice">, b: Node<"updateSlice">): boolean =>
  a.dtype === b.dtype &&
  a.attrs.axis === b.attrs.axis &&
  a.attrs.batch === b.attrs.batch &&
  sameShape(a.shape, b.shape) &&
  sameShape(a.inputs[2].shape, b.inputs[2].shape);

const algebras = new WeakMap<CudaContext, LinearAlgebra | null>();

function linearAlgebraOf(context: CudaContext, launcher: Launcher): LinearAlgebra | null {
  let known = algebras.get(context);
  if (known === undefined) {
    known = LinearAlgebra.make(context, (name, elements, args) => {
      const fn = libraryFunction(context, name);
      launcher.launch(fn, [Math.ceil(elements / 256), 1], 256, args);
    });
    algebras.set(context, known);
  }
  return known;
}

const sizeOf = (node: Node): number => numel(node.shape) * bytesOf(node.dtype);
