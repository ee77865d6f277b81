// Matrix products by cuBLASLt (biases and activations inside the product, the algorithm chosen by timing) and by cuBLAS.
// Works on addresses, strides and dtypes; knows no nodes.
import { createHash } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { BatchDim, LibraryEpilogue, MatrixOperand } from "../../compile/index.js";
import { type DType, InternalError, type Precision } from "../../graph/index.js";
import { settings } from "../../settings/index.js";
import { makeFolder } from "../cache-root.js";
import { kernelFolder } from "../kernel-cache.js";
import type { CudaContext } from "./context.js";
import { type BlasLt, result64 } from "./driver.js";

/** Data type, type of the constants, and the exact way to compute. */
const types: Partial<Record<DType, { data: number; scale: number; compute: number }>> = {
  float16: { data: 2, scale: 0, compute: 68 },
  bfloat16: { data: 14, scale: 0, compute: 68 },
  float32: { data: 0, scale: 0, compute: 68 },
  float64: { data: 1, scale: 1, compute: 70 },
  complex64: { data: 4, scale: 4, compute: 68 },
  complex128: { data: 5, scale: 5, compute: 70 },
};
/** How float32 operands are rounded on their way into the tensor cores. */
const fastCompute: Record<Precision, number> = { float32: 68, tf32: 77, float16: 74, bfloat16: 75 };

/** An operand as a column-major library sees it: not transposed (0), transposed (1) or adjoint (2). */
interface CublasOperand {
  address: number;
  op: number;
  ld: number;
}

/** out [m, n] = op(left) op(right), column-major, once for each element of the batch. */
export interface CublasProduct {
  dtype: DType;
  precision: Precision;
  m: number;
  n: number;
  k: number;
  left: CublasOperand;
  right: CublasOperand;
  out: { address: number; ld: number };
  /** Strides in elements: a of the right factor, b of the left one, c of the result. */
  batch: readonly BatchDim[];
  /** The result is multiplied by it. */
  scale: number;
  /** What happens to the result then, on its way to memory; the bias has one number per row of the column-major result. */
  epilogue: { activation: LibraryEpilogue["activation"]; bias: number } | null;
}

const attribute = { transA: 3, transB: 4, epilogue: 7, bias: 8 };
const layoutAttribute = { count: 5, stride: 6 };
const preferenceAttribute = { workspace: 1, alignments: [5, 6, 7, 8] };
const epilogues = { none: 1, relu: 2, gelu: 32 };
const withBias = 4;
/** An algorithm with what is known of it: algorithm (64), workspace (8), state (4), waves (4), reserved (16). */
const resultBytes = 96;
const algorithmBytes = 64;
const candidates = 12;
/** Below this size of all runs, launch time dominates or the time of choosing is not worth it. */
const worthTuning = 2e9;
const maxPlans = 2048;

interface LtPlan {
  desc: number;
  layouts: [number, number, number];
  /** Address of the chosen algorithm; 0: the default of cuBLAS is faster. */
  algorithm: number;
  bias: number;
}

const int32 = (value: number): Uint8Array => new Uint8Array(Int32Array.of(value).buffer);
const int64 = (value: number): Uint8Array => new Uint8Array(BigInt64Array.of(BigInt(value)).buffer);

function alignment(address: number): number {
  let step = 256;
  while (step > 1 && address % step !== 0) step /= 2;
  return step;
}

export class Products {
  readonly #plans = new Map<string, LtPlan | null>();
  #handle: number | null = null;
  #slab: { address: number; view: Uint8Array; next: number } | null = null;
  /** Number of algorithms that were chosen by timing. */
  tuned = 0;

  constructor(
    readonly context: CudaContext,
    readonly autotune: boolean = settings.cudaAutotune.get(),
  ) {}

  /** Issues one of `repeats` runs of a product; returns whether scale and epilogue were applied too. */
  issue(product: CublasProduct, repeats = 1): boolean {
    if (product.batch.length > 1) throw new InternalError("a product over several batch axes needs pointers");
    const plan = this.#plan(product, repeats);
    if (plan !== null && plan.algorithm !== 0) {
      this.#runLt(product, plan, plan.algorithm);
      return true;
    }
    this.#runBlas(product);
    return product.epilogue === null;
  }

  /** A product whose batch is given by tables of pointers: of the left factors, the right ones, the results. */
  issuePointers(product: CublasProduct, count: number, tables: { left: number; right: number; out: number }): void {
    const { dtype, m, n, k, left, right, out } = product;
    const { data } = typesOf(dtype);
    const { handle } = this.context.blas();
    const [one, zero] = this.#scalars(dtype);
    const code = this.context.libraries.blas!.cublasGemmBatchedEx(
      ...[handle, left.op, right.op, m, n, k, one],
      ...[tables.left, data, left.ld, tables.right, data, right.ld, zero],
      ...[tables.out, data, out.ld, count, computeOf(product), -1],
    );
    this.context.check("cublasGemmBatchedEx", code);
  }

  /** Where the scale and zero lie, in the type of the product's constants. */
  #scalars(dtype: DType, scale = 1): [number, number] {
    const scalars = this.context.scalars();
    const double = typesOf(dtype).compute === 70;
    const zero = double ? scalars + 80 : scalars + 8;
    if (scale === 1) return [double ? scalars + 64 : scalars, zero];
    const key = `${double} ${scale}`;
    let address = this.#scales.get(key);
    if (address === undefined) {
      // A complex constant is two numbers: the second is zero.
      const numbers = double ? Float64Array.of(scale, 0) : Float32Array.of(scale, 0);
      const slot = new Uint8Array(algorithmBytes);
      slot.set(new Uint8Array(numbers.buffer));
      address = this.#keep(slot);
      this.#scales.set(key, address);
    }
    return [address, zero];
  }

  readonly #scales = new Map<string, number>();

  #runBlas(product: CublasProduct): void {
    const { dtype, m, n, k, left, right, out, batch } = product;
    const { data } = typesOf(dtype);
    const { handle } = this.context.blas();
    const blas = this.context.libraries.blas!;
    // Where the epilogue stays a kernel, the kernel scales too.
    const [one, zero] = this.#scalars(dtype, product.epilogue === null ? product.scale : 1);
    const head = [handle, left.op, right.op, m, n, k, one];
    if (batch.length === 0) {
      const code = blas.cublasGemmEx(
        ...head,
        ...[left.address, data, left.ld, right.address, data, right.ld, zero],
        ...[out.address, data, out.ld, computeOf(product), -1],
      );
      this.context.check("cublasGemmEx", code);
    } else {
      const [d] = batch;
      const code = blas.cublasGemmStridedBatchedEx(
        ...head,
        ...[left.address, data, left.ld, d.b, right.address, data, right.ld, d.a, zero],
        ...[out.address, data, out.ld, d.c, d.size, computeOf(product), -1],
      );
      this.context.check("cublasGemmStridedBatchedEx", code);
    }
  }

  #runLt(product: CublasProduct, plan: LtPlan, algorithm: number): void {
    const lt = this.context.libraries.lt!;
    const { left, right, out, epilogue } = product;
    const [one, zero] = this.#scalars(product.dtype, product.scale);
    if (epilogue !== null && epilogue.bias !== 0 && epilogue.bias !== plan.bias) {
      const code = lt.cublasLtMatmulDescSetAttribute(plan.desc, attribute.bias, int64(epilogue.bias), 8);
      this.context.check("cublasLtMatmulDescSetAttribute", code);
      plan.bias = epilogue.bias;
    }
    const [l, r, o] = plan.layouts;
    const workspace = this.context.workspace();
    const code = lt.cublasLtMatmul(
      ...[this.#handle, plan.desc, one, left.address, l, right.address, r, zero],
      ...[out.address, o, out.address, o, algorithm, workspace.address, workspace.bytes, this.context.stream],
    );
    this.context.check("cublasLtMatmul", code);
  }

  /** The cuBLASLt configuration of a product; null if cuBLAS computes it. */
  #plan(product: CublasProduct, repeats: number): LtPlan | null {
    const { lt } = this.context.libraries;
    const large = flopsOf(product) * repeats >= worthTuning;
    if (lt === null || (product.epilogue === null && !(large && this.autotune))) return null;
    const key = keyOf(product);
    const place = large ? key : `${key} as guessed`;
    const known = this.#plans.get(place);
    if (known !== undefined) return known;
    // Timing is not possible while work is only recorded; the first call is never recorded.
    if (this.context.capturing && product.epilogue === null) return null;
    if (this.#plans.size >= maxPlans) this.#forget(lt);
    const plan = this.#makePlan(lt, product, key, large && this.autotune && !this.context.capturing);
    this.#plans.set(place, plan);
    return plan;
  }

  #forget(lt: BlasLt): void {
    for (const plan of this.#plans.values()) {
      if (plan === null) continue;
      lt.cublasLtMatmulDescDestroy(plan.desc);
      for (const layout of plan.layouts) lt.cublasLtMatrixLayoutDestroy(layout);
    }
    this.#plans.clear();
  }

  #makePlan(lt: BlasLt, product: CublasProduct, key: string, tune: boolean): LtPlan | null {
    const { context } = this;
    context.enter();
    this.#handle ??= result64("cublasLtCreate", (out) => lt.cublasLtCreate(out));
    const { data, scale } = typesOf(product.dtype);
    const { m, n, k, left, right, out, batch, epilogue } = product;
    const desc = result64("cublasLtMatmulDescCreate", (o) => lt.cublasLtMatmulDescCreate(o, computeOf(product), scale));
    const set = (name: number, value: Uint8Array): void =>
      context.check(
        "cublasLtMatmulDescSetAttribute",
        lt.cublasLtMatmulDescSetAttribute(desc, name, value, value.length),
      );
    set(attribute.transA, int32(left.op));
    set(attribute.transB, int32(right.op));
    if (epilogue !== null) {
      set(
        attribute.epilogue,
        int32(
          epilogues[epilogue.activation] === 1
            ? withBias
            : epilogues[epilogue.activation] + (epilogue.bias === 0 ? 0 : withBias),
        ),
      );
      if (epilogue.bias !== 0) set(attribute.bias, int64(epilogue.bias));
    }
    const layout = (rows: number, columns: number, ld: number, stride: number): number => {
      const made = result64("cublasLtMatrixLayoutCreate", (o) =>
        lt.cublasLtMatrixLayoutCreate(o, data, rows, columns, ld),
      );
      if (batch.length === 1) {
        for (const [name, value] of [
          [layoutAttribute.count, int32(batch[0].size)],
          [layoutAttribute.stride, int64(stride)],
        ] as const)
          context.check(
            "cublasLtMatrixLayoutSetAttribute",
            lt.cublasLtMatrixLayoutSetAttribute(made, name, value, value.length),
          );
      }
      return made;
    };
    const d = batch[0] ?? { a: 0, b: 0, c: 0 };
    const layouts: LtPlan["layouts"] = [
      left.op === 0 ? layout(m, k, left.ld, d.b) : layout(k, m, left.ld, d.b),
      right.op === 0 ? layout(k, n, right.ld, d.a) : layout(n, k, right.ld, d.a),
      layout(m, n, out.ld, d.c),
    ];
    const plan: LtPlan = { desc, layouts, algorithm: 0, bias: epilogue?.bias ?? 0 };
    const file = choiceFile(context, key);
    const kept = tune ? readChoice(file) : null;
    if (kept !== null) {
      plan.algorithm = kept.length === 0 ? 0 : this.#keep(kept);
      if (plan.algorithm !== 0 || epilogue === null) return plan;
    }
    const found = this.#heuristics(lt, product, plan);
    if (found.length === 0) return null;
    if (!tune) {
      plan.algorithm = this.#keep(found[0]);
      return plan;
    }
    const choice = this.#fastest(product, plan, found);
    if (choice === undefined) return null;
    plan.algorithm = choice === null ? 0 : this.#keep(choice);
    writeChoice(file, choice);
    return plan;
  }

  /** Candidate algorithms of the library's heuristic, best first. */
  #heuristics(lt: BlasLt, product: CublasProduct, plan: LtPlan): Uint8Array[] {
    const preference = result64("cublasLtMatmulPreferenceCreate", (o) => lt.cublasLtMatmulPreferenceCreate(o));
    const set = (name: number, value: Uint8Array): number =>
      lt.cublasLtMatmulPreferenceSetAttribute(preference, name, value, value.length);
    set(preferenceAttribute.workspace, int64(this.context.workspace().bytes));
    const { left, right, out } = product;
    [left, right, out, out].forEach(({ address }, i) => {
      set(preferenceAttribute.alignments[i], int32(alignment(address)));
    });
    const [l, r, o] = plan.layouts;
    const results = new Uint8Array(candidates * resultBytes);
    const count = new Int32Array(1);
    const code = lt.cublasLtMatmulAlgoGetHeuristic(
      ...[this.#handle, plan.desc, l, r, o, o, preference, candidates, results, count],
    );
    lt.cublasLtMatmulPreferenceDestroy(preference);
    if (code !== 0) return [];
    const state = new DataView(results.buffer);
    return Array.from({ length: count[0] }, (_, i) => i)
      .filter((i) => state.getInt32(i * resultBytes + 72, true) === 0)
      .map((i) => results.slice(i * resultBytes, i * resultBytes + algorithmBytes));
  }

  /** Times the candidates (and the default of cuBLAS if there is no epilogue); null: cuBLAS; undefined: none works. */
  #fastest(product: CublasProduct, plan: LtPlan, found: Uint8Array[]): Uint8Array | null | undefined {
    this.tuned++;
    const plain = product.epilogue === null ? [null] : [];
    const field = [...plain, ...found].map((choice) => {
      const slot = choice === null ? 0 : this.#keep(choice);
      const run = (): void => (choice === null ? this.#runBlas(product) : this.#runLt(product, plan, slot));
      return { choice, run, seconds: Number.POSITIVE_INFINITY };
    });
    // Warm up, and drop candidates that fail or are much slower.
    for (const entry of field) {
      try {
        entry.run();
        entry.seconds = this.#time(entry.run, 1);
      } catch (error) {
        if (this.context.lost !== null) throw error;
      }
    }
    const leader = Math.min(...field.map((entry) => entry.seconds));
    const close = field.filter((entry) => entry.seconds <= 1.15 * leader);
    if (close.length === 0) return undefined;
    // Interleaved, because the clock of the GPU changes; the best time of each candidate counts.
    const count = Math.max(1, Math.min(20, Math.ceil(1e-3 / leader)));
    const rounds = leader > 5e-3 ? 2 : 4;
    for (const entry of close) entry.seconds = Number.POSITIVE_INFINITY;
    for (let round = 0; round < rounds; round++)
      for (const entry of close) entry.seconds = Math.min(entry.seconds, this.#time(entry.run, count));
    // A later candidate must be clearly faster than an earlier one, so that noise does not decide.
    let best = close[0];
    for (const entry of close) if (entry.seconds < best.seconds * 0.985) best = entry;
    return best.choice;
  }

  /** Seconds of one run: the mean of a few. */
  #time(run: () => void, count: number): number {
    const [seconds] = this.context.measure(1, (mark) => {
      for (let i = 0; i < count; i++) run();
      mark();
    });
    return seconds / count;
  }

  /** Copies an algorithm to memory that the library can read. */
  #keep(algorithm: Uint8Array): number {
    const bytes = 1 << 14;
    if (this.#slab === null || this.#slab.next + algorithmBytes > bytes)
      this.#slab = { ...this.context.hostBlock(bytes), next: 0 };
    const at = this.#slab.next;
    this.#slab.view.set(algorithm, at);
    this.#slab.next += algorithmBytes;
    return this.#slab.address + at;
  }
}

function typesOf(dtype: DType): { data: number; scale: number; compute: number } {
  const known = types[dtype];
  if (known === undefined) throw new InternalError(`matmul of ${dtype}`);
  return known;
}

const computeOf = ({ dtype, precision }: CublasProduct): number =>
  dtype === "float32" ? fastCompute[precision] : typesOf(dtype).compute;

const flopsOf = ({ m, n, k, batch }: CublasProduct): number => 2 * m * n * k * (batch[0]?.size ?? 1);

/** Everything that the choice of an algorithm may depend on. */
function keyOf(product: CublasProduct): string {
  const { dtype, m, n, k, left, right, out, batch, epilogue } = product;
  const d = batch[0];
  const parts: (string | number)[] = [dtype, computeOf(product), m, n, k, left.op, right.op, left.ld, right.ld, out.ld];
  if (d !== undefined) parts.push("x", d.size, d.a, d.b, d.c);
  if (epilogue !== null) parts.push(epilogue.activation, epilogue.bias === 0 ? "" : "bias");
  parts.push("@", alignment(left.address), alignment(right.address), alignment(out.address));
  return parts.join(" ");
}

function choiceFile(context: CudaContext, key: string): string {
  const version = context.libraries.paths.cublasLt ?? "";
  const gpu = `${context.name} ${context.architecture} ${context.driverVersion} ${context.ltVersion()} ${version}`;
  const hash = createHash("sha256").update(`${gpu}\0${key}`).digest("hex").slice(0, 40);
  return join(kernelFolder("cuda"), "products", `${hash}.algorithm`);
}

/** A stored choice: empty for cuBLAS, otherwise an algorithm; null if there is none or it is damaged. */
function readChoice(file: string): Uint8Array | null {
  try {
    const bytes = readFileSync(file);
    return bytes.length === 0 || bytes.length === algorithmBytes ? bytes : null;
  } catch {
    return null;
  }
}

function writeChoice(file: string, choice: Uint8Array | null): void {
  try {
    makeFolder(join(file, ".."));
    const temporary = `${file}.${process.pid}.tmp`;
    writeFileSync(temporary, choice ?? new Uint8Array(0));
    renameSync(temporary, file);
  } catch {
    // Not writable: the next process times the candidates again.
  }
}

/** A row-major operand as cuBLAS sees it: not transposed (0), transposed (1) or adjoint (2), with its leading dimension. */
export function columnMajor(operand: MatrixOperand, rows: number, columns: number): { op: number; ld: number } {
  const [rs, cs] = operand.strides.slice(-2);
  const plain = cs === 1 || columns === 1;
  if (plain) {
    if (operand.conjugate) throw new InternalError("a conjugated operand that is not transposed");
    return { op: 0, ld: Math.max(rs, columns, 1) };
  }
  return { op: operand.conjugate ? 2 : 1, ld: Math.max(cs, rows, 1) };
}
