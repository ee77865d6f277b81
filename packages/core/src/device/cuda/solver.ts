// Linear algebra by cuSOLVER and cuBLAS, with the conventions of the ops. The libraries are column-major and read a
// row-major matrix as its transpose; each call has a comment that says why its result is right. Knows addresses and shapes only.
import { bytesOf, isComplex, type Node, numel, type OpName, realOf } from "../../graph/index.js";
import { factorizationOps, type factorizations } from "../../ops/index.js";
import { CudaBuffer, type CudaContext } from "./context.js";
import {
  CudaError,
  type NativeFunction,
  notThere,
  result32,
  result64,
  type Solver,
  type SolverLetter,
} from "./driver.js";
import type { HostBlock } from "./host-memory.js";

type SolverOp = Exclude<(typeof factorizations)[number], "eig">;
export const isSolverOp = (op: OpName): boolean => factorizationOps.has(op);
type SolverDType = "float32" | "float64" | "complex64" | "complex128";

/** The library's letter, and its numbers for the type and for the type of real results. */
const kinds: Record<SolverDType, { letter: SolverLetter; type: number; real: number; form: "or" | "un" }> = {
  float32: { letter: "S", type: 0, real: 0, form: "or" },
  float64: { letter: "D", type: 1, real: 1, form: "or" },
  complex64: { letter: "C", type: 4, real: 0, form: "un" },
  complex128: { letter: "Z", type: 5, real: 1, form: "un" },
};

const lower = 0;
const upper = 1;
const right = 1;
const wholeMatrix = "S".charCodeAt(0);
/** From this size on, matrices are worth a call each. */
const largeMatrix = 256;
/** Systems of at most this size ([a | b] in W_SMALL_BYTES) are solved by a warp each, where there are enough to fill a GPU. */
const smallSystemBytes = 4352;
const warpSize = 32;
const manySystems = 64;
/** What the batched singular value solver takes. */
const smallMatrix = 32;
/** Matrices of one call of the batched eigenvalue and singular value solvers, which fail with very many. */
const mostAtOnce = 1 << 15;

/** Launches one of the linear-algebra kernels, one thread per element. */
type LaunchKernel = (name: string, elements: number, args: readonly number[]) => void;

interface SolverCall {
  node: Node;
  inputs: readonly number[];
  outputs: readonly number[];
}

interface Task extends SolverCall {
  dtype: SolverDType;
  bytes: number;
  rows: number;
  columns: number;
  count: number;
}

export class LinearAlgebra {
  readonly #solver: Solver;
  #handles: { solver: number; params: number; jacobi: number } | null = null;
  #temporary: CudaBuffer[] = [];
  #host: HostBlock | null = null;

  /** Null without the libraries; the host computes then. */
  static make(context: CudaContext, launch: LaunchKernel): LinearAlgebra | null {
    const { solver, blas } = context.libraries;
    return solver === null || blas === null ? null : new LinearAlgebra(context, launch, solver);
  }

  private constructor(
    readonly context: CudaContext,
    readonly launch: LaunchKernel,
    solver: Solver,
  ) {
    this.#solver = solver;
  }

  run(call: SolverCall): void {
    const { shape, dtype } = call.node.inputs[0];
    const [rows, columns] = shape.slice(-2);
    const count = numel(shape.slice(0, -2));
    const task = { ...call, dtype: dtype as SolverDType, bytes: bytesOf(dtype), rows, columns, count };
    if (rows * columns * count === 0) return;
    try {
      this.#rules[call.node.op as SolverOp](task);
    } finally {
      // In stream order: whoever gets this memory next writes to it later.
      for (const buffer of this.#temporary.splice(0)) this.context.free(buffer);
    }
  }

  readonly #rules: Record<SolverOp, (task: Task) => void> = {
    cholesky: (task) => this.#cholesky(task),
    triangularSolve: (task) => this.#triangularSolve(task),
    solve: (task) => this.#solve(task),
    det: (task) => this.#det(task),
    eigh: (task) => this.#eigh(task),
    qr: (task) => this.#qr(task),
    lu: (task) => this.#lu(task),
    svd: (task) => this.#svd(task),
  };

  #handle(): { solver: number; params: number; jacobi: number } {
    if (this.#handles === null) {
      const solver = result64("cusolverDnCreate", (out) => this.#solver.cusolverDnCreate(out));
      this.context.check("cusolverDnSetStream", this.#solver.cusolverDnSetStream(solver, this.context.stream));
      const params = result64("cusolverDnCreateParams", (out) => this.#solver.cusolverDnCreateParams(out));
      const jacobi = result64("cusolverDnCreateGesvdjInfo", (out) => this.#solver.cusolverDnCreateGesvdjInfo(out));
      this.#handles = { solver, params, jacobi };
    }
    return this.#handles;
  }

  #kernel(name: string, { dtype }: Task, elements: number, ...args: number[]): void {
    this.launch(`${name}_${dtype}`, elements, args);
  }

  /** Memory until the end of the call. */
  #take(bytes: number): number {
    const buffer = this.context.allocate(Math.max(bytes, 8));
    this.#temporary.push(buffer);
    return buffer.address;
  }

  #copy(to: number, from: number, bytes: number): void {
    this.context.check("cuMemcpyDtoD", this.context.driver.cuMemcpyDtoDAsync_v2(to, from, bytes, this.context.stream));
  }

  #zeros(count: number): number {
    const address = this.#take(4 * count);
    this.context.check("cuMemsetD8", this.context.driver.cuMemsetD8Async(address, 0, 4 * count, this.context.stream));
    return address;
  }

  /** A copy of an input that may be overwritten. */
  #working({ inputs, bytes, rows, columns, count }: Task): number {
    const address = this.#take(bytes * rows * columns * count);
    this.#copy(address, inputs[0], bytes * rows * columns * count);
    return address;
  }

  /** Addresses of equally spaced matrices, for the batched calls. */
  #pointers(base: number, stride: number, count: number): number {
    const table = this.#take(8 * count);
    this.launch("w_addresses", count, [base, stride, table, count]);
    return table;
  }

  /** Calls a function of the library's 64-bit interface with the workspaces that it asks for. */
  #call(
    name: string,
    size: NativeFunction,
    fn: NativeFunction,
    args: readonly number[],
    info: number,
    ...more: number[]
  ) {
    const [device, host] = [new BigUint64Array(1), new BigUint64Array(1)];
    this.context.check(`${name}_bufferSize`, size(...args, device, host, ...more));
    const [deviceBytes, hostBytes] = [Number(device[0]), Number(host[0])];
    const work = this.#take(deviceBytes);
    this.context.check(name, fn(...args, work, deviceBytes, this.#hostMemory(hostBytes), hostBytes, info, ...more));
  }

  #hostMemory(bytes: number): number {
    if (bytes === 0) return 0;
    if (this.#host === null || this.#host.bytes < bytes)
      this.#host = this.context.hostBlock(2 ** Math.ceil(Math.log2(Math.max(bytes, 4096))));
    return this.#host.address;
  }

  /** out[g] = in[g]^T, by tiles. `lowerOnly`: zeros above the diagonal of out; NaN for matrices with a flag. */
  #transpose(task: Task, from: number, to: number, rows: number, columns: number, lowerOnly = 0, flags = 0): void {
    const tiles = Math.ceil(rows / 32) * Math.ceil(columns / 32) * task.count;
    this.#kernel("w_transpose", task, tiles * 256, from, to, rows, columns, task.count, lowerOnly, flags);
  }

  /** By the lower triangle in columns: the library is a third slower with the upper one, which rows would be without a copy. */
  #cholesky(task: Task): void {
    const { dtype, bytes, rows: n, count, inputs, outputs } = task;
    if (this.#isSmall(task, 1)) {
      this.#kernel("w_small_cholesky", task, warpSize * count, inputs[0], outputs[0], n, count);
      return;
    }
    const { letter, type } = kinds[dtype];
    const { solver, params } = this.#handle();
    const columns = this.#take(bytes * n * n * count);
    this.#transpose(task, inputs[0], columns, n, n);
    const info = this.#zeros(count);
    if (count > 1 && n < largeMatrix) {
      const code = this.#solver[`cusolverDn${letter}potrfBatched`](
        ...[solver, lower, n, this.#pointers(columns, bytes * n * n, count), n, info, count],
      );
      this.context.check("cusolverDnpotrfBatched", code);
    } else {
      for (let g = 0; g < count; g++)
        this.#call(
          "cusolverDnXpotrf",
          this.#solver.cusolverDnXpotrf_bufferSize,
          this.#solver.cusolverDnXpotrf,
          [solver, params, lower, n, type, columns + g * bytes * n * n, n, type],
          info + 4 * g,
        );
    }
    this.#kernel("w_flag_diagonal", task, n * count, columns, info, n, count);
    this.#transpose(task, columns, outputs[0], n, n, 1, info);
  }

  /** a x = b is x^T a^T = b^T: from the right, with the other triangle. */
  #triangularSolve(task: Task): void {
    const { node, dtype, bytes, rows: n, count, inputs, outputs } = task;
    const { lower: isLower, adjoint, unit } = (node as Node<"triangularSolve">).attrs;
    const k = node.inputs[1].shape[node.inputs[1].shape.length - 1];
    if (k === 0) return;
    const [out] = outputs;
    this.#copy(out, inputs[1], bytes * n * k * count);
    const blas = this.context.libraries.blas!;
    const { handle, scalars } = this.context.blas();
    const { letter, real } = kinds[dtype];
    const one = real === 1 ? scalars + 64 : scalars;
    const triangle = isLower ? upper : lower;
    // A column is a row: the vector on the other side, with the other transpose.
    if (k === 1 && count === 1 && !isComplex(dtype)) {
      const form = [handle, triangle, adjoint ? 0 : 1, unit ? 1 : 0, n];
      this.context.check("cublas trsv", blas[`cublas${letter}trsv_v2`](...form, inputs[0], n, out, 1));
      return;
    }
    const form = [handle, right, triangle, adjoint ? 2 : 0, unit ? 1 : 0, k, n, one];
    if (count === 1) {
      this.context.check("cublas trsm", blas[`cublas${letter}trsm_v2`](...form, inputs[0], n, out, k));
      return;
    }
    const [a, b] = [this.#pointers(inputs[0], bytes * n * n, count), this.#pointers(out, bytes * n * k, count)];
    this.context.check("cublas trsmBatched", blas[`cublas${letter}trsmBatched`](...form, a, n, b, k, count));
  }

  /** Factors of matrices in columns, pivots as 64-bit numbers where the matrices are large or not square. */
  #factor(task: Task, info: number): { factors: number; pivots: number; long: boolean } {
    const { dtype, bytes, rows: m, columns: n, count, inputs } = task;
    const { letter, type } = kinds[dtype];
    const factors = this.#take(bytes * m * n * count);
    this.#transpose(task, inputs[0], factors, m, n);
    const long = n >= largeMatrix || m !== n;
    const k = Math.min(m, n);
    const pivots = this.#take((long ? 8 : 4) * k * count);
    if (!long) {
      const { handle } = this.context.blas();
      const table = this.#pointers(factors, bytes * n * n, count);
      const code = this.context.libraries.blas![`cublas${letter}getrfBatched`](
        handle,
        n,
        table,
        n,
        pivots,
        info,
        count,
      );
      this.context.check("cublas getrfBatched", code);
      return { factors, pivots, long };
    }
    const { solver, params } = this.#handle();
    for (let g = 0; g < count; g++) {
      const args = [solver, params, m, n, type, factors + g * bytes * m * n, m];
      const [device, host] = [new BigUint64Array(1), new BigUint64Array(1)];
      const sized = this.#solver.cusolverDnXgetrf_bufferSize(...args, type, device, host);
      this.context.check("cusolverDnXgetrf_bufferSize", sized);
      const [deviceBytes, hostBytes] = [Number(device[0]), Number(host[0])];
      const work = [this.#take(deviceBytes), deviceBytes, this.#hostMemory(hostBytes), hostBytes, info + 4 * g];
      const code = this.#solver.cusolverDnXgetrf(...args, pivots + 8 * k * g, type, ...work);
      this.context.check("cusolverDnXgetrf", code);
    }
    return { factors, pivots, long };
  }

  /** Whether a warp factors each matrix, with k columns beside it. */
  #isSmall({ dtype, bytes, rows: n, columns, count }: Task, k: number): boolean {
    const fits = n === columns && n <= warpSize && n * (n + k) * bytes <= smallSystemBytes;
    return fits && !isComplex(dtype) && count >= manySystems;
  }

  /** A zero pivot is part of the result. */
  #lu(task: Task): void {
    const { rows: m, columns: n, count, inputs, outputs } = task;
    if (this.#isSmall(task, 0)) {
      this.#kernel("w_small_lu", task, warpSize * count, inputs[0], ...outputs, 0, n, count);
      return;
    }
    const { factors, pivots, long } = this.#factor(task, this.#zeros(count));
    this.#transpose(task, factors, outputs[0], n, m);
    this.launch(`w_row_order${long ? "_long" : ""}`, count, [pivots, outputs[1], m, Math.min(m, n), count]);
  }

  /** Right sides and solutions are in columns for the library. */
  #solve(task: Task): void {
    const { node, dtype, bytes, rows: n, count, inputs, outputs } = task;
    const { letter, type } = kinds[dtype];
    const k = node.inputs[1].shape[node.inputs[1].shape.length - 1];
    if (k === 0) return;
    if (this.#isSmall(task, k)) {
      this.#kernel("w_small_solve", task, warpSize * count, ...inputs, outputs[0], n, k, count);
      return;
    }
    const info = this.#zeros(count);
    const { factors, pivots, long } = this.#factor(task, info);
    const each = n * k;
    const sides = this.#take(bytes * each * count);
    this.#transpose(task, inputs[1], sides, n, k);
    if (long) {
      const { solver, params } = this.#handle();
      const solved = this.#zeros(1);
      for (let g = 0; g < count; g++) {
        const left = [type, factors + g * bytes * n * n, n, pivots + 8 * n * g];
        const code = this.#solver.cusolverDnXgetrs(
          ...[solver, params, 0, n, k, ...left, type, sides + g * bytes * each, n, solved],
        );
        this.context.check("cusolverDnXgetrs", code);
      }
    } else {
      const { handle } = this.context.blas();
      const tables = [this.#pointers(factors, bytes * n * n, count), this.#pointers(sides, bytes * each, count)];
      const blas = this.context.libraries.blas!;
      const call = [handle, 0, n, k, tables[0], n, pivots, tables[1], n];
      result32("cublas getrsBatched", (out) => blas[`cublas${letter}getrsBatched`](...call, out, count));
    }
    this.#transpose(task, sides, outputs[0], k, n, 0, info);
  }

  #det(task: Task): void {
    const { rows: n, count, inputs, outputs } = task;
    if (this.#isSmall(task, 0)) {
      this.#kernel("w_small_lu", task, warpSize * count, inputs[0], 0, 0, outputs[0], n, count);
      return;
    }
    const { factors, pivots, long } = this.#factor(task, this.#zeros(count));
    this.#kernel(long ? "w_det_long" : "w_det", task, count, factors, pivots, outputs[0], n, count);
  }

  /** The transpose of a Hermitian matrix is its conjugate: the same values, conjugate vectors, the other triangle. */
  #eigh(task: Task): void {
    const { dtype, bytes, rows: n, count, inputs, outputs } = task;
    const { type, real } = kinds[dtype];
    const { solver, params } = this.#handle();
    const flags = this.#zeros(count);
    const info = this.#zeros(count);
    const vectors = this.#working(task);
    this.#kernel("w_flag_lower", task, n * n * count, inputs[0], flags, n, count);
    this.#kernel("w_clear_flagged", task, n * n * count, vectors, flags, n * n, count);
    const [values] = outputs;
    const problem = (a: number, w: number): number[] => [solver, params, 1, upper, n, type, a, n, real, w, type];
    const { cusolverDnXsyevBatched, cusolverDnXsyevBatched_bufferSize } = this.#solver;
    const realBytes = bytesOf(realOf(dtype));
    const one = (g: number): void =>
      this.#call(
        "cusolverDnXsyevd",
        this.#solver.cusolverDnXsyevd_bufferSize,
        this.#solver.cusolverDnXsyevd,
        problem(vectors + g * bytes * n * n, values + g * realBytes * n),
        info + 4 * g,
      );
    let batched = count > 1;
    if (batched) {
      const name = "cusolverDnXsyevBatched";
      try {
        for (let g = 0; g < count; g += mostAtOnce)
          this.#call(
            name,
            cusolverDnXsyevBatched_bufferSize,
            cusolverDnXsyevBatched,
            problem(vectors + g * bytes * n * n, values + g * realBytes * n),
            info + 4 * g,
            Math.min(mostAtOnce, count - g),
          );
      } catch (error) {
        // Libraries before CUDA 12.6 have none.
        if (!(error instanceof CudaError) || error.code !== notThere) throw error;
        batched = false;
      }
    }
    if (!batched) for (let g = 0; g < count; g++) one(g);
    this.#kernel("w_turn_vectors", task, n * count, vectors, outputs[1], n, count);
    for (const marks of [flags, info]) {
      this.launch(`w_nan_flagged_${realOf(dtype)}`, n * count, [values, marks, n, count]);
      this.#kernel("w_nan_flagged", task, n * n * count, outputs[1], marks, n * n, count);
    }
  }

  #qr(task: Task): void {
    const { dtype, bytes, rows: m, columns: n, count, inputs, outputs } = task;
    const { letter, type, form } = kinds[dtype];
    const { solver, params } = this.#handle();
    const k = Math.min(m, n);
    const factors = this.#take(bytes * m * n * count);
    const info = this.#zeros(1);
    const tau = this.#take(bytes * k * count);
    const phases = this.#take(bytes * k * count);
    this.#kernel("w_matrix_copy", task, m * n * count, inputs[0], m * n, n, factors, m * n, m, m, n, count, 1);
    for (let g = 0; g < count; g++)
      this.#call(
        "cusolverDnXgeqrf",
        this.#solver.cusolverDnXgeqrf_bufferSize,
        this.#solver.cusolverDnXgeqrf,
        [solver, params, m, n, type, factors + g * bytes * m * n, m, type, tau + g * bytes * k, type],
        info,
      );
    this.#kernel("w_upper", task, k * n * count, factors, outputs[1], phases, m, n, k, count);
    const name = `cusolverDn${letter}${form}gqr` as "cusolverDnSorgqr";
    const args = (g: number): number[] => [solver, m, k, k, factors + g * bytes * m * n, m, tau + g * bytes * k];
    const words = result32(`${name}_bufferSize`, (out) => this.#solver[`${name}_bufferSize`](...args(0), out));
    const work = this.#take(bytes * words);
    for (let g = 0; g < count; g++) this.context.check(name, this.#solver[name](...args(g), work, words, info));
    this.#kernel("w_orthogonal", task, m * k * count, factors, m * n, phases, outputs[0], m, k, count);
  }

  #svd(task: Task): void {
    const { rows: m, columns: n } = task;
    if (m <= smallMatrix && n <= smallMatrix) this.#smallSvd(task);
    else if (this.#jacobiSvd(task)) return;
    else if (m <= n) this.#wideSvd(task);
    else this.#tallSvd(task);
  }

  /** The library sees a^T = u' s v'^H, so u = conj(v') and v^H = u'^T. */
  #smallSvd(task: Task): void {
    const { dtype, bytes, rows: m, columns: n, count, outputs } = task;
    const { solver, jacobi } = this.#handle();
    const k = Math.min(m, n);
    const a = this.#working(task);
    const [us, vs] = [this.#take(bytes * n * n * count), this.#take(bytes * m * m * count)];
    const info = this.#zeros(count);
    const { letter } = kinds[dtype];
    const real = bytesOf(realOf(dtype));
    const name = `cusolverDn${letter}gesvdjBatched` as const;
    for (let g = 0; g < count; g += mostAtOnce) {
      const some = Math.min(mostAtOnce, count - g);
      const results = [outputs[1] + g * real * k, us + g * bytes * n * n, n, vs + g * bytes * m * m, m];
      const args = [solver, 1, n, m, a + g * bytes * m * n, n, ...results];
      const size = this.#solver[`${name}_bufferSize`];
      const words = result32(`${name}_bufferSize`, (out) => size(...args, out, jacobi, some));
      const work = this.#take(bytes * words);
      this.context.check(name, this.#solver[name](...args, work, words, info + 4 * g, jacobi, some));
    }
    this.#kernel("w_matrix_copy", task, k * m * count, vs, m * m, m, outputs[0], m * k, k, k, m, count, 3);
    this.#kernel("w_matrix_copy", task, k * n * count, us, n * n, n, outputs[2], k * n, n, k, n, count, 0);
  }

  /** As above, by Jacobi rotations, which take half the time of the QR method. False where they did not converge. */
  #jacobiSvd(task: Task): boolean {
    const { dtype, bytes, rows: m, columns: n, count, outputs } = task;
    const { solver, jacobi } = this.#handle();
    const k = Math.min(m, n);
    const a = this.#working(task);
    const vs = this.#take(bytes * m * k * count);
    const info = this.#zeros(count);
    const { letter } = kinds[dtype];
    const real = bytesOf(realOf(dtype));
    const args = (g: number): number[] => [
      ...[solver, 1, 1, n, m, a + g * bytes * m * n, n, outputs[1] + g * real * k],
      ...[outputs[2] + g * bytes * k * n, n, vs + g * bytes * m * k, m],
    ];
    const name = `cusolverDn${letter}gesvdj` as const;
    const words = result32(`${name}_bufferSize`, (out) => this.#solver[`${name}_bufferSize`](...args(0), out, jacobi));
    const work = this.#take(bytes * words);
    for (let g = 0; g < count; g++)
      this.context.check(name, this.#solver[name](...args(g), work, words, info + 4 * g, jacobi));
    const codes = new Int32Array(count);
    this.context.transfers.download(new CudaBuffer(info, 4 * count), new Uint8Array(codes.buffer));
    if (codes.some((code) => code !== 0)) return false;
    this.#kernel("w_matrix_copy", task, k * m * count, vs, m * k, m, outputs[0], m * k, k, k, m, count, 3);
    return true;
  }

  /** With the library's results exactly where ours go. */
  #wideSvd(task: Task): void {
    const { bytes, rows: m, columns: n, count, outputs } = task;
    const [u, s, vh] = outputs;
    const a = this.#working(task);
    const real = bytesOf(realOf(task.dtype));
    for (let g = 0; g < count; g++)
      this.#gesvd(task, n, m, a + g * bytes * m * n, s + g * real * m, vh + g * bytes * m * n, u + g * bytes * m * m);
  }

  #tallSvd(task: Task): void {
    const { bytes, rows: m, columns: n, count, inputs, outputs } = task;
    const a = this.#take(bytes * m * n * count);
    const [u, vh] = [this.#take(bytes * m * n * count), this.#take(bytes * n * n * count)];
    const real = bytesOf(realOf(task.dtype));
    this.#kernel("w_matrix_copy", task, m * n * count, inputs[0], m * n, n, a, m * n, m, m, n, count, 1);
    for (let g = 0; g < count; g++) {
      const s = outputs[1] + g * real * n;
      this.#gesvd(task, m, n, a + g * bytes * m * n, s, u + g * bytes * m * n, vh + g * bytes * n * n);
    }
    this.#kernel("w_matrix_copy", task, m * n * count, u, m * n, m, outputs[0], m * n, n, n, m, count, 1);
    this.#kernel("w_matrix_copy", task, n * n * count, vh, n * n, n, outputs[2], n * n, n, n, n, count, 1);
  }

  /** Thin factors of a column-major matrix with at least as many rows as columns. */
  #gesvd({ dtype }: Task, rows: number, columns: number, a: number, s: number, u: number, vh: number): void {
    const { type, real } = kinds[dtype];
    const { solver, params } = this.#handle();
    this.#call(
      "cusolverDnXgesvd",
      this.#solver.cusolverDnXgesvd_bufferSize,
      this.#solver.cusolverDnXgesvd,
      [solver, params, wholeMatrix, wholeMatrix, rows, columns, type, a, rows, real, s, type, u, rows, type, vh].concat(
        [columns, type],
      ),
      this.#zeros(1),
    );
  }
}
