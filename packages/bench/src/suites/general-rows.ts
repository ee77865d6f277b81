// Rows of the general suite: attention, memory-bound work and linear algebra as users write them, at sizes that nothing was
// tuned for. The peer is peers/torch_general.py.
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import {
  compiled,
  type GeneralRow,
  indices,
  numbers,
  prepared,
  rowOf,
  type Sizer,
  sameDigest,
  tf32,
  unaryRow,
} from "./general-row.js";

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

function attentionRow(size: AttentionSize, s: Sizer): GeneralRow {
  const { h, kv = h, d, causal = false, dtype = "bfloat16", backward = true, window } = size;
  const kind = dtype === "bfloat16" ? "bf16" : "f16";
  const idOf = (b: number, t: number): string =>
    `attention ${kind} ${b} ${h} ${kv} ${t} ${d} ${Number(causal)} ${Number(backward)} ${window ?? 0}`;
  const [b, t] = [s(size.b), s(size.t)];
  const shape = `${kind} b${b} h${h}${kv === h ? "" : ` kv${kv}`} t${t} d${d}`;
  const pairs = causal ? (t * (t + 1)) / 2 : t * t;
  return {
    id: idOf(size.b, size.t).replaceAll(" ", "-"),
    title: `attention ${shape}${causal ? " causal" : ""}${window === undefined ? "" : ` window ${window}`}, ${backward ? "forward + backward" : "forward"}`,
    names: { torch: idOf(b, t) },
    peers: { torch: 0.95 },
    check: sameDigest(dtype === "bfloat16" ? 0.1 : 0.02),
    ...(window === undefined && { flops: (backward ? 14 : 4) * b * h * pairs * d }),
    make() {
      const q = numbers([b, h, t, d], 1, dtype);
      const [k, v] = [numbers([b, kv, t, d], 2, dtype), numbers([b, kv, t, d], 3, dtype)];
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

const attentionSizes: AttentionSize[] = [
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
  { b: 8, h: 12, t: 1000, d: 96, causal: true, dtype: "float16" },
  { b: 4, h: 16, t: 4096, d: 64, window: 256, causal: true },
  { b: 1, h: 4, t: 131072, d: 128, causal: true },
];

const rmsNormGradient = (x: Tensor): unknown =>
  weft.grad((y: Tensor) => {
    const w = y.cast("float32");
    return w
      .mul(w.square().mean(-1, { keepDims: true }).add(1e-6).rsqrt())
      .cast("bfloat16")
      .cast("float32")
      .square()
      .sum();
  })(x);

function memoryRows(s: Sizer): GeneralRow[] {
  const n = s(8192);
  const square = [n, n];
  const whole = n * n;
  const line = s(1 << 24);
  const half = { dtype: "bfloat16", tolerance: 0.02 } as const;
  return [
    unaryRow("softmax", `softmax ${n} x ${n} f32`, square, (x) => weft.softmax(x), {
      bytes: 8 * whole,
      peers: compiled,
    }),
    unaryRow("softmax-odd", `softmax ${s(4096)} x ${s(5003)} bf16`, [s(4096), s(5003)], (x) => weft.softmax(x), {
      ...half,
      bytes: 4 * s(4096) * s(5003),
      peers: compiled,
    }),
    unaryRow("layernorm", `layer norm ${n} x ${n} f32`, square, (x) => weft.layerNorm(x), {
      bytes: 8 * whole,
      peers: compiled,
    }),
    unaryRow("logsumexp", `logsumexp ${n} x ${s(50304)} bf16`, [n, s(50304)], (x) => weft.logsumexp(x, -1), {
      ...half,
      bytes: 2 * n * s(50304),
      peers: compiled,
    }),
    unaryRow("gelu", `gelu ${n} x ${n} bf16`, square, (x) => weft.gelu(x), {
      ...half,
      bytes: 4 * whole,
      peers: compiled,
    }),
    unaryRow("sum", `sum ${n} x ${n} f32`, square, (x) => x.sum(), { bytes: 4 * whole, tolerance: 1 }),
    unaryRow("sum-prime", `sum of squares of ${s(67108859)} f32`, [s(67108859)], (x) => x.square().sum(), {
      bytes: 4 * s(67108859),
    }),
    unaryRow("sum-columns", `sum of columns ${n} x ${n} f32`, square, (x) => x.sum(0), {
      bytes: 4 * whole,
      tolerance: 1e-2,
    }),
    unaryRow("max-long", `maximum of ${s(16777213)} f32`, [s(16777213)], (x) => x.max(), { bytes: 4 * s(16777213) }),
    unaryRow("argmax", `argmax of rows ${n} x ${n} f32`, square, (x) => x.argmax(-1), { bytes: 4 * whole }),
    unaryRow("argmax-long", `argmax of ${line} f32`, [line], (x) => x.argmax(0), { bytes: 4 * line }),
    unaryRow("transpose", `transpose and scale ${n} x ${n} f32`, square, (x) => x.transpose().mul(1.5), {
      bytes: 8 * whole,
      peers: compiled,
    }),
    unaryRow(
      "transpose-odd",
      `transpose and scale ${s(5003)} x ${s(9001)} f32`,
      [s(5003), s(9001)],
      (x) => x.transpose().mul(1.5),
      { bytes: 8 * s(5003) * s(9001), peers: compiled },
    ),
    unaryRow("transpose-half", `transpose and scale ${n} x ${n} bf16`, square, (x) => x.transpose().mul(1.5), {
      ...half,
      bytes: 4 * whole,
      peers: compiled,
    }),
    unaryRow(
      "permute",
      `permute ${s(128)} x 64 x 64 x ${s(128)} to 3120, f32`,
      [s(128), s(64), s(64), s(128)],
      (x) => x.permute([3, 1, 2, 0]).add(1),
      { bytes: 8 * s(128) ** 2 * s(64) ** 2, peers: compiled },
    ),
    unaryRow("concat", `concatenate two ${s(4096)} x ${n} f32`, [s(4096), n], (x) => weft.concat([x, x.mul(2)], 1), {
      bytes: 12 * s(4096) * n,
      peers: compiled,
    }),
    unaryRow("cumsum", `cumsum of rows ${n} x ${n} f32`, square, (x) => weft.cumsum(x, -1), {
      bytes: 8 * whole,
      tolerance: 1e-2,
    }),
    unaryRow("cumsum-columns", `cumsum of columns ${n} x ${n} f32`, square, (x) => weft.cumsum(x, 0), {
      bytes: 8 * whole,
      tolerance: 1e-2,
    }),
    unaryRow("cumsum-line", `cumsum of ${line} f32`, [line], (x) => weft.cumsum(x, 0), {
      bytes: 8 * line,
      tolerance: 1e-1,
    }),
    unaryRow("sort", `sort rows ${n} x ${n} f32`, square, (x) => weft.sort(x, -1)),
    unaryRow("sort-short", `sort rows ${s(1 << 20)} x 64 f32`, [s(1 << 20), 64], (x) => weft.sort(x, -1)),
    unaryRow("sort-line", `sort ${line} f32`, [line], (x) => weft.sort(x, -1)),
    unaryRow(
      "argsort-half",
      `argsort rows ${s(4096)} x ${s(4096)} bf16`,
      [s(4096), s(4096)],
      (x) => weft.argsort(x, -1),
      { dtype: "bfloat16" },
    ),
    unaryRow("topk", `top 50 of rows ${n} x ${n} f32`, square, (x) => {
      const { values, indices: at } = weft.topk(x, Math.min(50, n));
      return [values, at];
    }),
    unaryRow("randn", `randn ${n} x ${n} f32`, square, () => weft.randn(square), { bytes: 4 * whole, compare: false }),
    unaryRow("rand", `uniform ${n} x ${n} f32`, square, () => weft.rand(square), { bytes: 4 * whole, compare: false }),
    unaryRow("rmsnorm", `gradient of RMS norm ${s(16384)} x ${s(4096)} bf16`, [s(16384), s(4096)], rmsNormGradient, {
      dtype: "bfloat16",
      tolerance: 0.1,
      peers: compiled,
    }),
  ];
}

/** Rows with operands of their own. */
function otherRows(s: Sizer): GeneralRow[] {
  const [vocabulary, ids] = [s(50304), s(262144)];
  const embeddingLoss = (w: Tensor, i: Tensor): Tensor => weft.take(w, i, 0).square().sum();
  const logitLoss = (x: Tensor, y: Tensor): Tensor => weft.crossEntropy(x.cast("float32"), y);
  const matrices = (n: number) => (): Tensor[] => {
    const a = numbers([n, n], 1);
    const symmetric = weft
      .jit((x: Tensor) => x.add(x.transpose()))(a)
      .realize();
    const positive = weft
      .jit((x: Tensor) => x.matmul(x.transpose()).add(weft.eye(n).mul(n)))(a)
      .realize();
    a.dispose();
    return [positive, symmetric];
  };
  return [
    rowOf(
      "gather",
      `gather ${ids} rows of ${vocabulary} x 256 f32`,
      (w, i) => weft.take(w, i, 0),
      () => [numbers([vocabulary, s(256)], 1), indices([ids], 2, vocabulary)],
      { bytes: 8 * ids * s(256), tolerance: 1e-6 },
    ),
    rowOf(
      "embedding-gradient",
      `gradient of an embedding ${vocabulary} x 768, ${s(16384)} ids`,
      (w, i) => weft.grad(embeddingLoss)(w, i),
      () => [numbers([vocabulary, s(768)], 1), indices([s(16384)], 2, vocabulary)],
    ),
    rowOf(
      "cross-entropy",
      `cross-entropy with gradient, ${s(8192)} x ${vocabulary} bf16 logits`,
      (x, y) => weft.grad(logitLoss)(x, y),
      () => [numbers([s(8192), vocabulary], 1, "bfloat16"), indices([s(8192)], 2, vocabulary)],
      { bytes: 4 * s(8192) * vocabulary, tolerance: 0.1, peers: compiled },
    ),
    rowOf(
      "conv",
      `convolution 3 x 3, 64 channels, ${s(56)} x ${s(56)}, batch ${s(64)}, tf32`,
      tf32((x, w) => weft.conv2d(x, w, { padding: 1 })),
      () => [numbers([s(64), s(64), s(56), s(56)], 1), numbers([s(64), s(64), 3, 3], 2)],
      { tolerance: 0.05 },
    ),
    rowOf("cholesky", `cholesky ${s(8192)} f32`, (p) => weft.cholesky(p), matrices(s(8192)), { tolerance: 2e-2 }),
    rowOf("solve", `solve ${s(4096)} f32`, (p, y) => weft.solve(p, y), matrices(s(4096)), { tolerance: 2e-2 }),
    rowOf("eigh", `eigh ${s(2048)} f32`, (_, y) => weft.eigh(y).values, matrices(s(2048)), { tolerance: 2e-2 }),
  ];
}

export const generalRows = (s: Sizer): GeneralRow[] => [
  ...attentionSizes.map((size) => attentionRow(size, s)),
  ...memoryRows(s),
  ...otherRows(s),
];
