// Rows of the general GPU suite: attention, memory-bound work and linear algebra as users write them, at sizes that nothing was
// tuned for. Every row computes from the same numbers as its peer (peers/torch_general.py), and the results are compared.
import type { DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import type { Answers, ContestRow } from "./contest.js";
import type { PreparedRow } from "./contestant.js";

export interface GeneralRow extends ContestRow {
  make(quick: boolean): PreparedRow | Promise<PreparedRow>;
}

/** Numbers in [-1, 1) from the index of an element, computed on the device; torch_general.py has the same. */
export function numbers(shape: readonly number[], salt: number, dtype: DType = "float32"): Tensor {
  const size = shape.reduce((a, b) => a * b, 1);
  const made = weft.jit(() => {
    const index = weft.arange(0, size, 1, { dtype: "int64" });
    const hash = index
      .mul(2654435761)
      .add(salt * 40503)
      .mod(2 ** 32);
    return hash
      .cast("float64")
      .mul(2 ** -31)
      .sub(1)
      .cast("float32")
      .cast(dtype)
      .reshape([...shape]);
  });
  return made().realize();
}

/** Whole numbers below a bound from the index of an element. */
export const indices = (shape: readonly number[], salt: number, below: number): Tensor =>
  weft
    .jit((x: Tensor) =>
      x
        .add(1)
        .mul(below / 2)
        .cast("int32")
        .clip(0, below - 1),
    )(numbers(shape, salt))
    .realize();

/** Numbers by which results are compared: mean, mean of squares, and a few elements of each. */
export function digest(tensors: readonly Tensor[]): number[] {
  return tensors.flatMap((t) => {
    const flat = t.cast("float64").reshape([t.size]);
    const places = [0, Math.min(1, t.size - 1), Math.floor(t.size / 3), Math.floor(t.size / 2), t.size - 1];
    const few = places.map((at) => Number(flat.index(at).dataSync()));
    return [Number(flat.mean().dataSync()[0]), Number(flat.square().mean().dataSync()[0]), ...few];
  });
}

/** Compares digests of Weft and every peer. */
export function sameDigest(tolerance: number): (answers: Answers) => string | null {
  return ({ weft: own, ...peers }) => {
    for (const [name, other] of Object.entries(peers)) {
      if (other.length !== own.length) return `${name} has ${other.length} numbers to compare, Weft ${own.length}`;
      for (let i = 0; i < own.length; i++) {
        const group = other.slice(i - (i % 7), i - (i % 7) + 7);
        const scale = Math.max(Math.sqrt(Math.abs(group[1])), Math.abs(other[i]), 1e-30);
        const off = Math.abs(own[i] - other[i]) / scale;
        if (!(off <= tolerance)) return `number ${i} is ${own[i]}, ${name} has ${other[i]} (off by ${off})`;
      }
    }
    return null;
  };
}

const drop = (tree: unknown): void => {
  for (const leaf of weft.treeLeaves(tree as Tensor)) leaf.dispose();
};
const finish = (): void => weft.session().device.synchronize();

/** A jitted function of fixed arguments as a row. */
export function prepared(f: (...args: Tensor[]) => unknown, args: readonly Tensor[], compare = true): PreparedRow {
  const call = weft.jit(f as never) as unknown as (...args: readonly Tensor[]) => unknown;
  const result = call(...args);
  const leaves = weft.treeLeaves(result as Tensor);
  const check = compare ? digest(leaves) : [];
  drop(result);
  return { check, call: () => drop(call(...args)), finish, release: () => drop([...args]) };
}

const best = { torch: 1 } as const;
const both = { torch: 1, "torch.compile": 1 } as const;

interface AttentionSize {
  b: number;
  h: number;
  kv?: number;
  t: number;
  d: number;
  causal?: boolean;
  dtype?: "bfloat16" | "float16";
  backward?: boolean;
  window?: number;
}

function attentionRow({
  b,
  h,
  kv = h,
  t,
  d,
  causal = false,
  dtype = "bfloat16",
  backward = true,
  window,
}: AttentionSize): GeneralRow {
  const kind = dtype === "bfloat16" ? "bf16" : "f16";
  const shape = `${kind} b${b} h${h}${kv === h ? "" : ` kv${kv}`} t${t} d${d}`;
  const title = `attention ${shape}${causal ? " causal" : ""}${window === undefined ? "" : ` window ${window}`}, ${backward ? "forward + backward" : "forward"}`;
  const id = `attention ${kind} ${b} ${h} ${kv} ${t} ${d} ${Number(causal)} ${Number(backward)} ${window ?? 0}`;
  const pairs = causal ? (t * (t + 1)) / 2 : t * t;
  return {
    id: id.replaceAll(" ", "-"),
    title,
    names: { torch: id },
    peers: { torch: 0.95 },
    check: sameDigest(dtype === "bfloat16" ? 0.1 : 0.02),
    ...(window === undefined && { flops: (backward ? 14 : 4) * b * h * pairs * d }),
    make(quick) {
      const [n, batch] = quick ? [32, 1] : [t, b];
      const q = numbers([batch, h, n, d], 1, dtype);
      const [k, v] = [numbers([batch, kv, n, d], 2, dtype), numbers([batch, kv, n, d], 3, dtype)];
      const options = { causal, ...(window !== undefined && { window: [window, 0] as [number, number] }) };
      const attend = (...x: Tensor[]): Tensor => weft.scaledDotProductAttention(x[0], x[1], x[2], options);
      const loss = (...x: Tensor[]): Tensor =>
        attend(...x)
          .cast("float32")
          .sum();
      const f = backward
        ? (...x: Tensor[]) => weft.grad(loss, { argument: [0, 1, 2] })(...x)
        : (...x: Tensor[]) => attend(...x);
      return prepared(f, [q, k, v]);
    },
  };
}

interface SingleOptions {
  title: string;
  shape: readonly number[];
  /** Bytes that must move. */
  bytes?: number;
  dtype?: DType;
  tolerance?: number;
  peers?: Record<string, number | null>;
  /** Whether results are compared; random draws are not. */
  compare?: boolean;
}

function single(id: string, f: (x: Tensor) => unknown, options: SingleOptions): GeneralRow {
  const { title, shape, bytes, dtype = "float32", tolerance = 1e-4, peers = best, compare = true } = options;
  return {
    id,
    title,
    peers,
    ...(compare && { check: sameDigest(tolerance) }),
    ...(bytes !== undefined && { bytes }),
    make(quick) {
      const small = quick ? shape.map((n) => Math.min(n, 64)) : shape;
      return prepared((x) => f(x), [numbers(small, 1, dtype)], compare);
    },
  };
}

const square = [8192, 8192] as const;
const whole = 8192 * 8192;
const line = 1 << 24;

const memoryRows: GeneralRow[] = [
  single("softmax", (x) => weft.softmax(x), {
    title: "softmax 8192 x 8192 f32",
    shape: square,
    bytes: 8 * whole,
    peers: both,
  }),
  single("softmax-odd", (x) => weft.softmax(x), {
    title: "softmax 4096 x 5003 bf16",
    shape: [4096, 5003],
    dtype: "bfloat16",
    bytes: 4 * 4096 * 5003,
    tolerance: 0.02,
    peers: both,
  }),
  single("layernorm", (x) => weft.layerNorm(x), {
    title: "layer norm 8192 x 8192 f32",
    shape: square,
    bytes: 8 * whole,
    peers: both,
  }),
  single("logsumexp", (x) => weft.logsumexp(x, -1), {
    title: "logsumexp 8192 x 50304 bf16",
    shape: [8192, 50304],
    dtype: "bfloat16",
    bytes: 2 * 8192 * 50304,
    tolerance: 0.02,
    peers: both,
  }),
  single("gelu", (x) => weft.gelu(x), {
    title: "gelu 8192 x 8192 bf16",
    shape: square,
    dtype: "bfloat16",
    bytes: 4 * whole,
    tolerance: 0.02,
    peers: both,
  }),
  single("sum", (x) => x.sum(), { title: "sum 8192 x 8192 f32", shape: square, bytes: 4 * whole, tolerance: 1 }),
  single("sum-prime", (x) => x.square().sum(), {
    title: "sum of squares of 67,108,859 f32 (a prime)",
    shape: [67108859],
    bytes: 4 * 67108859,
  }),
  single("sum-columns", (x) => x.sum(0), {
    title: "sum of columns 8192 x 8192 f32",
    shape: square,
    bytes: 4 * whole,
    tolerance: 1e-2,
  }),
  single("max-long", (x) => x.max(), {
    title: "maximum of 16,777,213 f32 (a prime)",
    shape: [16777213],
    bytes: 4 * 16777213,
  }),
  single("argmax", (x) => x.argmax(-1), { title: "argmax of rows 8192 x 8192 f32", shape: square, bytes: 4 * whole }),
  single("argmax-long", (x) => x.argmax(0), { title: "argmax of 2^24 f32", shape: [line], bytes: 4 * line }),
  single("transpose", (x) => x.transpose().mul(1.5), {
    title: "transpose and scale 8192 x 8192 f32",
    shape: square,
    bytes: 8 * whole,
    peers: both,
  }),
  single("transpose-odd", (x) => x.transpose().mul(1.5), {
    title: "transpose and scale 5003 x 9001 f32",
    shape: [5003, 9001],
    bytes: 8 * 5003 * 9001,
    peers: both,
  }),
  single("transpose-half", (x) => x.transpose().mul(1.5), {
    title: "transpose and scale 8192 x 8192 bf16",
    shape: square,
    dtype: "bfloat16",
    bytes: 4 * whole,
    tolerance: 0.02,
    peers: both,
  }),
  single("permute", (x) => x.permute([3, 1, 2, 0]).add(1), {
    title: "permute 128 x 64 x 64 x 128 to 3120, f32",
    shape: [128, 64, 64, 128],
    bytes: 8 * whole,
    peers: both,
  }),
  single("concat", (x) => weft.concat([x, x.mul(2)], 1), {
    title: "concatenate two 4096 x 8192 f32",
    shape: [4096, 8192],
    bytes: 12 * 4096 * 8192,
    peers: both,
  }),
  single("cumsum", (x) => weft.cumsum(x, -1), {
    title: "cumsum of rows 8192 x 8192 f32",
    shape: square,
    bytes: 8 * whole,
    tolerance: 1e-2,
  }),
  single("cumsum-columns", (x) => weft.cumsum(x, 0), {
    title: "cumsum of columns 8192 x 8192 f32",
    shape: square,
    bytes: 8 * whole,
    tolerance: 1e-2,
  }),
  single("cumsum-line", (x) => weft.cumsum(x, 0), {
    title: "cumsum of 2^24 f32",
    shape: [line],
    bytes: 8 * line,
    tolerance: 1e-1,
  }),
  single("sort", (x) => weft.sort(x, -1), { title: "sort rows 8192 x 8192 f32", shape: square }),
  single("sort-short", (x) => weft.sort(x, -1), { title: "sort rows 1,048,576 x 64 f32", shape: [1 << 20, 64] }),
  single("sort-line", (x) => weft.sort(x, -1), { title: "sort 2^24 f32", shape: [line] }),
  single("argsort-half", (x) => weft.argsort(x, -1), {
    title: "argsort rows 4096 x 4096 bf16",
    shape: [4096, 4096],
    dtype: "bfloat16",
  }),
  single(
    "topk",
    (x) => {
      const { values, indices: at } = weft.topk(x, 50);
      return [values, at];
    },
    { title: "top 50 of rows 8192 x 8192 f32", shape: square },
  ),
  single("randn", (x) => weft.randn([...x.shape]), {
    title: "randn 8192 x 8192 f32",
    shape: square,
    bytes: 4 * whole,
    compare: false,
    peers: { torch: 1 },
  }),
  single("rand", (x) => weft.rand([...x.shape]), {
    title: "uniform 8192 x 8192 f32",
    shape: square,
    bytes: 4 * whole,
    compare: false,
    peers: { torch: 1 },
  }),
  single(
    "rmsnorm",
    (x) =>
      weft.grad((y: Tensor) => {
        const w = y.cast("float32");
        return w
          .mul(w.square().mean(-1, { keepDims: true }).add(1e-6).rsqrt())
          .cast("bfloat16")
          .cast("float32")
          .square()
          .sum();
      })(x),
    {
      title: "gradient of RMS norm 16384 x 4096 bf16",
      shape: [16384, 4096],
      dtype: "bfloat16",
      tolerance: 0.1,
      peers: both,
    },
  ),
];

/** Rows with operands of their own. */
const otherRows: GeneralRow[] = [
  {
    id: "gather",
    title: "gather 262,144 rows of 50304 x 256 f32",
    peers: best,
    check: sameDigest(1e-6),
    bytes: 8 * 262144 * 256,
    make: (quick) => {
      const [v, n] = quick ? [100, 40] : [50304, 262144];
      return prepared((w, i) => weft.take(w, i, 0), [numbers([v, 256], 1), indices([n], 2, v)]);
    },
  },
  {
    id: "embedding-gradient",
    title: "gradient of an embedding 50304 x 768, 16384 ids",
    peers: best,
    check: sameDigest(1e-4),
    make: (quick) => {
      const [v, n] = quick ? [100, 40] : [50304, 16384];
      const loss = (w: Tensor, i: Tensor): Tensor => weft.take(w, i, 0).square().sum();
      return prepared((w, i) => weft.grad(loss)(w, i), [numbers([v, 768], 1), indices([n], 2, v)]);
    },
  },
  {
    id: "cross-entropy",
    title: "cross-entropy with gradient, 8192 x 50304 bf16 logits",
    peers: both,
    check: sameDigest(0.1),
    bytes: 4 * 8192 * 50304,
    make: (quick) => {
      const [n, v] = quick ? [16, 100] : [8192, 50304];
      const loss = (x: Tensor, y: Tensor): Tensor => weft.crossEntropy(x.cast("float32"), y);
      return prepared((x, y) => weft.grad(loss)(x, y), [numbers([n, v], 1, "bfloat16"), indices([n], 2, v)]);
    },
  },
  {
    id: "conv",
    title: "convolution 3 x 3, 64 channels, 56 x 56, batch 64, tf32",
    peers: { torch: 1 },
    check: sameDigest(0.05),
    make: (quick) => {
      const [n, c, s] = quick ? [2, 8, 8] : [64, 64, 56];
      const f = (x: Tensor, w: Tensor): Tensor => weft.withPrecision("tf32", () => weft.conv2d(x, w, { padding: 1 }));
      return prepared(f as never, [numbers([n, c, s, s], 1), numbers([c, c, 3, 3], 2)]);
    },
  },
  ...(
    [
      ["cholesky", 8192, (p: Tensor) => weft.cholesky(p)],
      ["solve", 4096, (p: Tensor, s: Tensor) => weft.solve(p, s)],
      ["eigh", 2048, (_: Tensor, s: Tensor) => weft.eigh(s).values],
    ] as const
  ).map(
    ([name, size, f]): GeneralRow => ({
      id: name,
      title: `${name} ${size} f32`,
      peers: best,
      check: sameDigest(2e-2),
      make: (quick) => {
        const n = quick ? 12 : size;
        const a = numbers([n, n], 1);
        const symmetric = weft
          .jit((x: Tensor) => x.add(x.transpose()))(a)
          .realize();
        const positive = weft
          .jit((x: Tensor) => x.matmul(x.transpose()).add(weft.eye(n).mul(n)))(a)
          .realize();
        a.dispose();
        return prepared(f as never, [positive, symmetric]);
      },
    }),
  ),
];

const attentionRows: GeneralRow[] = [
  { b: 4, h: 16, t: 4096, d: 64 },
  { b: 4, h: 16, t: 4096, d: 64, causal: true },
  { b: 4, h: 16, t: 4096, d: 128 },
  { b: 4, h: 16, t: 4096, d: 128, causal: true },
  { b: 4, h: 16, t: 4096, d: 128, causal: true, backward: false },
  { b: 16, h: 12, t: 1024, d: 64, causal: true },
  { b: 1, h: 16, t: 16384, d: 128, causal: true },
  { b: 2, h: 32, kv: 8, t: 4096, d: 128, causal: true },
  { b: 8, h: 16, t: 2048, d: 256, causal: true },
  { b: 8, h: 16, t: 2048, d: 32 },
  { b: 8, h: 12, t: 1000, d: 96, causal: true, dtype: "float16" as const },
  { b: 4, h: 16, t: 4096, d: 64, window: 256, causal: true },
].map(attentionRow);

export const generalRows: GeneralRow[] = [...attentionRows, ...memoryRows, ...otherRows];
