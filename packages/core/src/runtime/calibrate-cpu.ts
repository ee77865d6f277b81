// Measures what the kernels of a CPU cost: products by shape and layout, arithmetic by class, sums down columns. Many
// probes are kernels of one program whose steps are timed one by one, so that all of them need one run of the compiler.

import {
  type KernelWork,
  type OpClass,
  opClasses,
  type ProductTable,
  type RateCurve,
  type Rates,
} from "../cost/index.js";
import type { Device, DeviceBuffer, Executable } from "../device/index.js";
import { type DType, type GraphFn, type Node, numel, range } from "../graph/index.js";
import { build, make } from "../ops/index.js";
import type { Effort } from "./effort.js";

/** Sizes of m, n and k that are measured in every combination. */
const productSizes = [8, 32, 128, 512] as const;
const layouts = ["nn", "tn", "nt", "ns"] as const;
/** Row stride of one head, in heads: the projections of four heads for queries, keys and values lie in one matrix. */
const rowsApart = 12;
/** Operands come from a block of this many numbers, which stays in the L2 cache: fetching them is measured separately. */
const blockSize = 1 << 18;

/** Duration of a measurement, synchronization with other processes, and how much of the processor was available. */
interface Conditions {
  quick: boolean;
  effort: Effort;
  /** A barrier with the other processes, so that all of them are busy during the measurement. */
  together?: () => void;
}

/** The upper median of a nonempty list. */
export const upperMedian = (list: readonly number[]): number =>
  [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/** Seconds of each kernel of a program: the median of several runs, as programs run in practice, not at their best. */
function timeKernels(device: Device, fn: GraphFn, seconds: number, conditions: Conditions): Timed {
  const { quick, effort, together } = conditions;
  const was = device.timing;
  device.timing = true;
  const executable = device.compile(fn, {});
  const buffers: DeviceBuffer[] = fn.params.map((param) => {
    const bytes = filled(param);
    const buffer = device.allocate(bytes.byteLength);
    device.upload(buffer, bytes);
    return buffer;
  });
  const runs: number[][] = executable.kernels.map(() => []);
  try {
    together?.();
    const end = performance.now() + (quick ? 0 : seconds * 1e3);
    for (let i = 0; i < (quick ? 2 : 6) || performance.now() < end; i++) {
      const results = effort.during(() => executable.run(buffers));
      // The first run touches new memory.
      for (let k = 0; i > 0 && k < runs.length; k++) runs[k].push(executable.lastTimes![k]);
      for (const result of results) device.free(result);
    }
    together?.();
  } finally {
    for (const buffer of buffers) device.free(buffer);
    device.timing = was;
  }
  return { executable, seconds: runs.map(upperMedian) };
}

interface Timed {
  executable: Executable;
  seconds: number[];
}

/** Random numbers, which no shortcut of the hardware speeds up, and random indices. */
function filled(param: Node): Uint8Array {
  const count = numel(param.shape);
  if (param.dtype === "int32")
    return new Uint8Array(Int32Array.from({ length: count }, (_, i) => (i * 7919) % 65536).buffer);
  const numbers = param.dtype === "float64" ? new Float64Array(count) : new Float32Array(count);
  for (let i = 0; i < count; i++) numbers[i] = 0.5 + (i % 97) / 200;
  return new Uint8Array(numbers.buffer);
}

/** A stack of matrices inside the block of operands, plain or transposed. */
class Block {
  #at = 0;

  constructor(readonly source: Node) {}

  take(batch: number, rows: number, columns: number, isTransposed: boolean, apart = 1): Node {
    const count = batch * rows * columns * apart;
    if (this.#at + count > blockSize) this.#at = 0;
    const part = build.slice(this.source, [this.#at], [this.#at + count]);
    this.#at += count;
    if (apart > 1) return build.sliceAxis(build.reshape(part, [batch, rows, apart * columns]), 2, 0, columns);
    if (!isTransposed) return build.reshape(part, [batch, rows, columns]);
    return build.permute(build.reshape(part, [batch, columns, rows]), [0, 2, 1]);
  }
}

/** The number of matrices in a stack: a call takes some microseconds, and small products stay library calls. */
function batchFor(m: number, n: number, k: number): number {
  const wanted = Math.ceil(1e6 / (2 * m * n * k));
  const room = Math.floor(blockSize / 4 / (m * k + k * n + m * n));
  return Math.max(1, Math.min(wanted, room, Math.max(m, n, k) <= 16 ? 7 : 64));
}

/** Seconds of products of every shape and layout. */
function measureProducts(device: Device, dtype: DType, conditions: Conditions): ProductTable {
  const source = build.input([blockSize], dtype);
  const block = new Block(source);
  const outputs = productSizes.flatMap((m) =>
    productSizes.flatMap((n) =>
      productSizes.flatMap((k) =>
        layouts.flatMap((layout) => {
          const apart = layout === "ns" ? rowsApart : 1;
          if (apart * k * n > blockSize) return [];
          const batch = Math.max(1, Math.floor(batchFor(m, n, k) / apart));
          const left = block.take(batch, m, k, layout === "tn");
          const product = build.matmul(left, block.take(batch, k, n, layout === "nt", apart));
          // Only one number is a result; the rest is scratch memory, which probes share, so that it stays in the cache.
          return [build.slice(product, [0, 0, 0], [1, 1, 1])];
        }),
      ),
    ),
  );
  const { executable, seconds } = timeKernels(device, { params: [source], outputs }, 0.3, conditions);
  const count = productSizes.length ** 3;
  const empty = (): number[] => new Array<number>(count);
  const table = { sizes: productSizes, nn: empty(), tn: empty(), nt: empty(), ns: empty() };
  const clock = Math.min(...seconds) / 2;
  executable.kernels.forEach(({ work }, i) => {
    if (work?.product === undefined) return;
    const { batch, m, n, k, left, right, spread } = work.product;
    const [a, b, c] = [m, n, k].map((size) => productSizes.indexOf(size as never));
    const at = (a * productSizes.length + b) * productSizes.length + c;
    table[left ? "tn" : right ? "nt" : spread ? "ns" : "nn"][at] = Math.max(1e-10, (seconds[i] - clock) / batch);
  });
  // The row stride makes no difference for products that are too large to be measured.
  for (const at of range(count)) {
    const known = table.nn[at] ?? table.nt[at] ?? table.tn[at];
    for (const layout of layouts) table[layout][at] ??= known;
  }
  return table;
}

/** Rows and columns of the measured column sums: narrow ones take longer than their bytes suggest. */
const columnProbes = [
  [2048, 192],
  [1024, 640],
  [256, 2304],
] as const;

const float64Probes = [96, 256];
/** Two products of this size evict other data from a cache that is shared with other processes. */
const pause = 640;
/** Elements of passes over memory in a cache, and over memory that is no longer in a cache. */
const hotProbes = [1 << 13, 1 << 16];
const coldProbes = [1 << 18, 1 << 20, 1 << 22];

/** A program of probes: each an output of its own, of its own size so that nothing is fused with its neighbor. */
class Probes {
  readonly params: Node[] = [];
  readonly outputs: Node[] = [];
  readonly names: string[] = [];

  input(shape: number[], dtype: DType = "float32"): Node {
    const node = build.input(shape, dtype);
    this.params.push(node);
    return node;
  }

  add(name: string, output: Node): void {
    this.names.push(name);
    this.outputs.push(output);
  }

  /** The sum of several results that do not wait for each other. */
  many(name: string, repeats: number, step: (x: Node, y: Node) => Node): void {
    const length = 8192 + 64 * this.names.length;
    const [x, y] = [this.input([length]), this.input([length])];
    const parts = Array.from({ length: repeats }, (_, i) => step(build.scale(x, 1 + i / 64), y));
    this.add(name, parts.reduce(build.add));
  }

  /** Seconds and counted work of the kernel that writes each probe. */
  measure(device: Device, conditions: Conditions): Map<string, { seconds: number; work: KernelWork }> {
    const { params, outputs, names } = this;
    const { executable, seconds } = timeKernels(device, { params, outputs }, 0.1, conditions);
    const found = new Map<string, { seconds: number; work: KernelWork }>();
    executable.kernels.forEach(({ work }, i) => {
      const written = work?.touches.flatMap(({ place }) => names.filter((_, o) => place === `b[${params.length + o}]`));
      if (written?.length === 1) found.set(written[0], { seconds: seconds[i], work: work! });
    });
    return found;
  }
}

function probes(): Probes {
  const all = new Probes();
  all.many("simple", 12, (x, y) =>
    build.where(build.lt(x, y), build.add(x, y), build.binary("max", build.mul(x, y), build.sub(y, x))),
  );
  all.many("divide", 4, build.div);
  for (const fn of ["exp", "tanh", "erf", "log"] as const) all.many(fn, 4, (x) => build.unary(fn, x));
  all.many("libm", 2, (x) => build.unary("sin", x));
  const key = all.input([2], "int32");
  for (const kind of ["uniform", "normal"] as const)
    all.add(kind, make("random", [key], { kind, shape: [32768 + 64 * all.names.length], dtype: "float32" }));
  const mask = { kind: "dropoutMask", shape: [32768 + 64 * all.names.length], dtype: "bool", threshold: 6554 } as const;
  all.add("dropoutMask", make("random", [key], mask));
  all.add("lookup", build.gather(all.input([1 << 16]), all.input([1 << 15], "int32"), 0, 0));
  // A matrix operand prevents merging of the dimensions, after which indices would be quotients.
  const beside = build.expandTo(all.input([128, 32]), [32, 128, 32]);
  all.add("strided", build.add(build.permute(all.input([32, 32, 128]), [0, 2, 1]), beside));
  all.add("product", build.matmul(all.input([512, 8, 8]), all.input([512, 8, 8])));
  const scores = all.input([2048, 10]);
  const shifted = build.sub(scores, build.unreduce(build.reduce("max", scores, [1]), scores.shape, [1]));
  all.add("row", build.sum(build.unary("exp", shifted), [1]));
  for (const [rows, width] of columnProbes) all.add(`columns ${width}`, build.sum(all.input([rows, width]), [0]));
  for (const n of float64Probes)
    all.add(`float64 ${n}`, build.matmul(all.input([n, n], "float64"), all.input([n, n], "float64")));
  // The order of the outputs is that of the program: products between the passes evict their data from the caches.
  for (const [i, elements] of coldProbes.entries()) {
    all.add(`pause ${i}`, build.matmul(all.input([pause, pause + 32 * i]), all.input([pause + 32 * i, pause])));
    all.add(`cold ${elements}`, build.add(all.input([elements]), all.input([elements])));
  }
  return all;
}

interface OpRates extends Pick<Rates, "ops" | "row" | "columns"> {
  ops: Record<OpClass, number>;
  /** Bandwidth of memory that is not in a cache. */
  cold: RateCurve;
  float64: RateCurve;
}

/** Arithmetic of each class on vectors in the first caches, rows, and sums down columns. */
function measureOps(device: Device, conditions: Conditions): OpRates {
  const measured = probes().measure(device, conditions);
  const ops = {} as Record<OpClass, number>;
  const simple = measured.get("simple")!;
  ops.simple = simple.work.ops.simple! / simple.seconds;
  for (const op of opClasses) {
    const probe = measured.get(op);
    const count = probe?.work.ops[op] ?? 0;
    if (op === "simple" || probe === undefined || count === 0) continue;
    // The rest of the probe was measured before.
    const rest = (probe.work.ops.simple ?? 0) / ops.simple;
    ops[op] = count / Math.max(probe.seconds / 4, probe.seconds - rest);
  }
  const secondsOf = (work: KernelWork): number =>
    opClasses.reduce((n, op) => n + (work.ops[op] ?? 0) / (ops[op] ?? Number.POSITIVE_INFINITY), 0);
  const cold = coldProbes.flatMap((elements): [number, number][] => {
    const probe = measured.get(`cold ${elements}`);
    return probe === undefined ? [] : [[12 * elements, (12 * elements) / probe.seconds]];
  });
  const row = measured.get("row");
  const columns = columnProbes.flatMap(([, width]): [number, number][] => {
    const probe = measured.get(`columns ${width}`);
    const bytes = probe?.work.touches.reduce((n, touch) => n + touch.bytes, 0) ?? 0;
    const run = probe?.work.touches[0].run;
    return run === undefined ? [] : [[run, bytes / probe!.seconds]];
  });
  return {
    ops,
    cold,
    float64: float64Probes.map((n) => [n, (2 * n ** 3) / measured.get(`float64 ${n}`)!.seconds]),
    ...(row === undefined || row.work.rows === 0
      ? {}
      : { row: Math.max(0, row.seconds - secondsOf(row.work)) / row.work.rows }),
    ...(columns.length === 0 ? {} : { columns: columns as RateCurve }),
  };
}

/** Bandwidth of memory in the caches of a core: one pass, repeated. */
function measureHot(device: Device, conditions: Conditions): RateCurve {
  return hotProbes.map((elements) => {
    const params = [build.input([elements], "float32"), build.input([elements], "float32")];
    const fn = { params, outputs: [build.add(params[0], params[1])] };
    const { seconds } = timeKernels(device, fn, 0.01, conditions);
    return [12 * elements, (12 * elements) / seconds[0]];
  });
}

/** Everything that is measured inside programs. */
export function measureCpu(device: Device, conditions: Conditions): Omit<Rates, "kernel" | "call" | "links"> {
  const { cold, float64, ...rates } = measureOps(device, conditions);
  const table = measureProducts(device, "float32", conditions);
  const cubes = productSizes.flatMap((n, i): [number, number][] => {
    const at = (i * productSizes.length + i) * productSizes.length + i;
    return [[n, (2 * n ** 3) / table.nn[at]]];
  });
  const { simple, exp, lookup, uniform } = rates.ops;
  return {
    name: `${device.name} (measured)`,
    assumed: false,
    matmul: { float32: cubes, float64 },
    products: { float32: table },
    bandwidth: [...measureHot(device, conditions), ...cold],
    // Linear algebra is a separate library that most programs never load: factorizations of middling size reach about a sixth of a product.
    linalg: cubes[2][1] / 6,
    simple,
    special: exp,
    lookup,
    random: uniform,
    ...rates,
  };
}
