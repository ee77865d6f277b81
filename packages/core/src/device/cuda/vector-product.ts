// Products of one or a few rows by own kernels: libraries cut such products along the sum and add up the parts in a second launch.
// One row with a matrix that lies in memory row by row is native/vector.cu, a few rows with one that lies the other way, as the weights of
// linear layers do, native/skinny.cu. One row with such a matrix is a generated loop.
import { type DType, isComplex, isHalf } from "../../graph/index.js";
import type { CublasProduct } from "./products.js";
import type { LibraryCalls } from "./scan-sort.js";

/** Names of the kernels' dtypes, and bytes of an element. */
const elements: Partial<Record<DType, readonly [string, number]>> = {
  float16: ["f16", 2],
  bfloat16: ["bf16", 2],
  float32: ["f32", 4],
  float64: ["f64", 8],
};
const activations = { none: 0, relu: 1, gelu: 2 };
/** Threads of a block, and bytes of a row that it adds up (W_VECTOR_BESIDE times 16). */
const threads = 256;
const blockBytes = 32;
/** Fewer columns leave multiprocessors idle, longer sums too; libraries read larger matrices as fast. */
const fits = { columns: 512, sum: 1 << 14, bytes: 64 << 20 };

/** Launches a product if the kernel can compute it, epilogue included. */
export function launchVectorProduct(product: CublasProduct, calls: LibraryCalls): boolean {
  const { dtype, m, n, k, left, right, out, batch, scale, epilogue } = product;
  const known = elements[dtype];
  if (known === undefined || isComplex(dtype) || n !== 1 || batch.length > 0 || scale !== 1) return false;
  const [name, bytes] = known;
  const aligned = left.address % 16 === 0 && (left.ld * bytes) % 16 === 0 && (m * bytes) % 16 === 0;
  if (left.op !== 0 || right.op !== 0 || !aligned || m < fits.columns || k > fits.sum) return false;
  if (m * k * bytes > fits.bytes) return false;
  calls.launch(`w_vector_columns_${name}`, Math.ceil((m * bytes) / blockBytes), threads, [
    ...[right.address, left.address, out.address, epilogue?.bias ?? 0],
    ...[k, m, left.ld, activations[epilogue?.activation ?? "none"]],
  ]);
  return true;
}

/** Rows that the kernel of few rows takes at once, and rows of the matrix per block (W_SKINNY_BESIDE, W_SKINNY_ROWS). */
const few = { rows: 8, perBlock: 16 };
/** Fewer rows of the matrix have too few blocks for longer sums. */
const fewBlocks = { rows: 256, sum: 1 << 11 };
/** Threads of a block of few rows: more where there are too few blocks to keep the memory busy. */
const fewThreads = (blocks: number, multiprocessors: number): number => (blocks <= multiprocessors ? 512 : 256);
const bitsOf = (x: number): number => new Uint32Array(Float32Array.of(x).buffer)[0];

/** Launches the product of a few rows if the kernel can compute it, epilogue included. */
export function launchFewRows(product: CublasProduct, calls: LibraryCalls): boolean {
  const { dtype, m, n, k, left, right, out, batch, scale, epilogue } = product;
  if (!isHalf(dtype) || n < 2 || n > few.rows || batch.length > 0 || left.op !== 1 || right.op !== 0) return false;
  const aligned = [left.address, right.address, 2 * left.ld, 2 * right.ld, 2 * k].every((at) => at % 16 === 0);
  if (!aligned || calls.major < 8 || m * k * 2 > fits.bytes) return false;
  if (k > (m < fewBlocks.rows ? fewBlocks.sum : fits.sum)) return false;
  const blocks = Math.ceil(m / few.perBlock);
  calls.launch(`w_skinny_${elements[dtype]![0]}`, blocks, fewThreads(blocks, calls.multiprocessors), [
    ...[right.address, left.address, out.address, epilogue?.bias ?? 0],
    ...[n, k, m, right.ld, left.ld, out.ld, bitsOf(scale), activations[epilogue?.activation ?? "none"]],
  ]);
  return true;
}
