// Estimated cost of compiled kernels: the compiler's operation counts times measured rates. Unlike the planner's cost of
// ops, nothing is assumed about fusion. Works on numbers only, without graphs, code or devices.
import { type BinaryFn, type CollectiveKind, type DType, isBig, type UnaryFn } from "../graph/index.js";
import { functionCost } from "./index.js";
import { linkTime, matmulRate, type Rates, valueAt } from "./rates.js";

/** Classes of arithmetic that take about the same time per operation, vectorized where the compiler can. */
export const opClasses = [
  "simple",
  "divide",
  "exp",
  "log",
  "tanh",
  "erf",
  "libm",
  "uniform",
  "normal",
  "dropoutMask",
  "lookup",
  "strided",
  "product",
] as const;
export type OpClass = (typeof opClasses)[number];

/** The class of a function, and its number of operations of that class. */
export function classOf(fn: UnaryFn | BinaryFn, dtype: DType): [OpClass, number] {
  const wide = dtype === "float64" || isBig(dtype) || dtype === "complex64" ? 2 : dtype === "complex128" ? 4 : 1;
  const effort = functionCost(fn);
  // erfc is computed like erf.
  if (effort === "vectorized") return wide === 1 ? [fn === "erfc" ? "erf" : (fn as OpClass), 1] : ["libm", wide / 2];
  if (effort === "division") return ["divide", wide];
  if (effort === "library") return ["libm", wide];
  return ["simple", wide];
}

interface MatrixProduct {
  dtype: DType;
  batch: number;
  m: number;
  n: number;
  k: number;
  /** Whether the operands are transposed in memory. */
  left: boolean;
  right: boolean;
  /** Whether rows of the right operand are strided, as those of one attention head. */
  spread?: boolean;
}

/** Work of one kernel or library call, counted by the code generator. */
export interface KernelWork {
  /** Memory accesses: buffer, bytes, and the contiguous bytes per access where it is narrow. */
  touches: { place: string; bytes: number; run?: number }[];
  ops: Partial<Record<OpClass, number>>;
  /** Inner loops started: rows times passes over them. */
  rows: number;
  product?: MatrixProduct;
  /** Floating-point operations of factorizations. */
  linalg?: number;
  collective?: { kind: CollectiveKind; members: number; bytes: number };
  /** A loop: the kernels of one step, and the number of steps. */
  loop?: { steps: number; kernels: readonly KernelWork[] };
}

/** Seconds of matrix products: sizes of m, n and k, and one number per triple, m outermost. */
export interface ProductTable {
  sizes: readonly number[];
  /** Layout of the operands: n plain, t transposed. */
  nn: readonly number[];
  tn: readonly number[];
  nt: readonly number[];
  /** Plain, with strided rows of the right operand. */
  ns: readonly number[];
}

/** Rate of a class that was not measured, from the rates that every machine has. */
const otherwise: { [K in OpClass]: (rates: Rates) => number } = {
  simple: (rates) => rates.simple,
  divide: (rates) => rates.simple,
  exp: (rates) => rates.special,
  log: (rates) => rates.special,
  tanh: (rates) => rates.special,
  erf: (rates) => rates.special,
  libm: (rates) => rates.special,
  uniform: (rates) => rates.random,
  normal: (rates) => rates.random,
  dropoutMask: (rates) => 4 * rates.random,
  lookup: (rates) => rates.lookup,
  strided: (rates) => rates.lookup,
  product: (rates) => rates.simple,
};

export const opRate = (rates: Rates, op: OpClass): number => rates.ops?.[op] ?? otherwise[op](rates);

/** Position of a size in a table: the point before it, and the fraction to the next in logarithms. */
function between(sizes: readonly number[], x: number): { at: number; part: number; beyond: number } {
  const last = sizes.length - 1;
  if (x >= sizes[last]) return { at: last, part: 0, beyond: x / sizes[last] };
  if (x <= sizes[0]) return { at: 0, part: 0, beyond: 1 };
  const above = sizes.findIndex((size) => size > x);
  return { at: above - 1, part: Math.log(x / sizes[above - 1]) / Math.log(sizes[above] / sizes[above - 1]), beyond: 1 };
}

/** Seconds of one product by a table: log-log interpolation between its points, proportional beyond the last. */
export function tableTime(table: ProductTable, product: MatrixProduct): number {
  const { sizes } = table;
  const along = [product.m, product.n, product.k].map((size) => between(sizes, size));
  const times = product.left ? table.tn : product.right ? table.nt : product.spread ? table.ns : table.nn;
  let sum = 0;
  for (let corner = 0; corner < 8; corner++) {
    let weight = 1;
    let index = 0;
    along.forEach(({ at, part }, i) => {
      const high = (corner >> i) & 1;
      weight *= high ? part : 1 - part;
      index = index * sizes.length + Math.min(sizes.length - 1, at + high);
    });
    if (weight > 0) sum += weight * Math.log(times[index]);
  }
  return Math.exp(sum) * along.reduce((n, { beyond }) => n * beyond, 1);
}

export function productTime(rates: Rates, product: MatrixProduct): number {
  const { batch, m, n, k, dtype } = product;
  const flops = 2 * batch * m * n * k;
  if (flops === 0) return 0;
  const table = rates.products?.[dtype];
  if (table !== undefined) return batch * tableTime(table, product);
  return flops / matmulRate(rates, dtype, m, n, k);
}

/** Reuse distances: recently accessed memory comes from a cache, other memory from DRAM. */
class Touched {
  #clock = 0;
  readonly #last = new Map<string, number>();

  /** Bytes accessed since the last access to the buffer, its own included. */
  distance(place: string, bytes: number): number {
    const last = this.#last.get(place);
    return last === undefined ? Number.POSITIVE_INFINITY : Math.max(bytes, this.#clock - last);
  }

  touch(touches: KernelWork["touches"]): void {
    for (const { bytes } of touches) this.#clock += bytes;
    for (const { place } of touches) this.#last.set(place, this.#clock);
  }
}

/** Bytes that stay in the caches of one core from kernel to kernel. */
const nearBytes = 1 << 20;

export interface KernelCost {
  seconds: number;
  /** Components of the cost; memory and arithmetic overlap. */
  memory: number;
  arithmetic: number;
}

/** Seconds of memory traffic: every buffer at the bandwidth of the cache that still holds it. */
function trafficTime(work: KernelWork, rates: Rates, touched: Touched): number {
  let own = 0;
  for (const { bytes } of work.touches) own += bytes;
  let seconds = 0;
  for (const { place, bytes, run } of work.touches) {
    if (bytes === 0) continue;
    const far = Math.max(own, touched.distance(place, bytes));
    const rate = valueAt(rates.bandwidth, far);
    // Near memory does not depend on prefetching.
    const isNarrow = run !== undefined && rates.columns !== undefined && far > nearBytes;
    seconds += bytes / (isNarrow ? Math.min(rate, valueAt(rates.columns!, run)) : rate);
  }
  return seconds;
}

/** Cost of one kernel after all previous accesses. */
function kernelCost(work: KernelWork, rates: Rates, touched: Touched): KernelCost {
  let arithmetic = 0;
  for (const op of opClasses) arithmetic += (work.ops[op] ?? 0) / opRate(rates, op);
  arithmetic += work.rows * (rates.row ?? 0);
  if (work.linalg !== undefined) arithmetic += work.linalg / rates.linalg;
  const memory = trafficTime(work, rates, touched);
  touched.touch(work.touches);
  if (work.collective !== undefined) {
    const { kind, members, bytes } = work.collective;
    const seconds = linkTime(rates, kind, members, bytes);
    return { seconds, memory: seconds, arithmetic: 0 };
  }
  if (work.product !== undefined) {
    // Tables were measured with operands in cache: fetching is added. An epilogue works on rows that are still cached.
    const product = productTime(rates, work.product);
    const seconds = rates.products === undefined ? Math.max(product, memory) : product + memory;
    return { seconds: rates.kernel + seconds + arithmetic, memory, arithmetic: arithmetic + product };
  }
  if (work.loop !== undefined) {
    // Two steps determine what stays in cache from step to step.
    const { steps, kernels } = work.loop;
    const once = (): number => kernels.reduce((n, kernel) => n + kernelCost(kernel, rates, touched).seconds, 0);
    const first = once();
    const seconds = steps > 1 ? first + (steps - 1) * once() : first * steps;
    return { seconds, memory, arithmetic: seconds };
  }
  return { seconds: rates.kernel + Math.max(memory, arithmetic), memory, arithmetic };
}

/** Costs of the kernels of a function that is called repeatedly. */
export function costKernels(kernels: readonly KernelWork[], rates: Rates): KernelCost[] {
  const touched = new Touched();
  const warm = (list: readonly KernelWork[]): void => {
    for (const work of list) {
      warm(work.loop?.kernels ?? []);
      touched.touch(work.touches);
    }
  };
  warm(kernels);
  return kernels.map((work) => kernelCost(work, rates, touched));
}

/** Seconds of a function, call overhead included. */
export function predictKernels(kernels: readonly KernelWork[], rates: Rates): number {
  return costKernels(kernels, rates).reduce((n, { seconds }) => n + seconds, rates.call);
}
