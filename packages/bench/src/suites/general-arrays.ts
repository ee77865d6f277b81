// Rows of the general suite on arrays: selection and sorting, scatter, reductions along every axis, casts, small batched
// matrices, Fourier transforms and optimizer updates. The peer is peers/torch_arrays.py.
import type { DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import * as optim from "@weft/core/optim";
import {
  compiled,
  eager,
  type GeneralRow,
  indices,
  numbers,
  rowOf,
  type Sizer,
  sameDigest,
  tf32,
  unaryRow,
} from "./general-row.js";

const largest = (x: Tensor, k: number): Tensor[] => {
  const { values, indices: at } = weft.topk(x, Math.min(k, x.shape[x.shape.length - 1]));
  return [values, at];
};

function selections(s: Sizer): GeneralRow[] {
  const line = s(1 << 24);
  const [places, updates] = [s(1 << 20), s(1 << 22)];
  return [
    unaryRow("topk-vocabulary", `top 40 of ${s(64)} rows of ${s(50304)} f32`, [s(64), s(50304)], (x) => largest(x, 40)),
    unaryRow("topk-line", `top 40 of ${line} f32`, [line], (x) => largest(x, 40)),
    unaryRow(
      "topk-half",
      `values of the top 8 of rows ${s(16384)} x ${s(4096)} bf16`,
      [s(16384), s(4096)],
      (x) => largest(x, 8)[0],
      { dtype: "bfloat16" },
    ),
    unaryRow("median", `median of rows ${s(4096)} x 4095 f32`, [s(4096), 4095], (x) => weft.median(x, -1)),
    rowOf(
      "sort-int",
      `sort ${updates} int32`,
      (x) => weft.sort(x, -1),
      () => [indices([updates], 1, 1 << 30)],
    ),
    rowOf(
      "bincount",
      `bincount of ${line} int32 in 1000 bins`,
      (x) => weft.bincount(x, { length: 1000 }),
      () => [indices([line], 1, 1000)],
    ),
    rowOf(
      "scatter-rows",
      `add ${s(262144)} rows of 128 f32 to ${s(10000)} rows`,
      (x, i, u) => weft.indexAdd(x, i, u, 0),
      () => [numbers([s(10000), s(128)], 1), indices([s(262144)], 2, s(10000)), numbers([s(262144), s(128)], 3)],
      { tolerance: 1e-3 },
    ),
    rowOf(
      "scatter-elements",
      `add ${updates} f32 to ${places} places`,
      (x, i, u) => weft.indexAdd(x, i, u, 0),
      () => [numbers([places], 1), indices([updates], 2, places), numbers([updates], 3)],
      { tolerance: 1e-3 },
    ),
    rowOf(
      "gather-elements",
      `gather ${s(64)} elements of each row of ${s(65536)} x ${s(1024)} f32`,
      (x, i) => weft.gather(x, i, 1),
      () => [numbers([s(65536), s(1024)], 1), indices([s(65536), s(64)], 2, s(1024))],
    ),
    rowOf(
      "one-hot",
      `one-hot encoding of ${places} ids, 128 classes, f32`,
      (i) => weft.oneHot(i, 128),
      () => [indices([places], 1, 128)],
      { bytes: 4 * 128 * places, peers: compiled },
    ),
  ];
}

function reductions(s: Sizer): GeneralRow[] {
  const [c, n] = [s(256), s(8192)];
  const sums = (bytes: number) => ({ bytes, tolerance: 1e-2, peers: compiled });
  const innerLoss = (y: Tensor): Tensor => weft.layerNorm(y).cast("float32").square().mul(y.cast("float32")).sum();
  return [
    unaryRow(
      "sum-middle",
      `sum of the middle axis of ${c} x ${s(1024)} x ${c} f32`,
      [c, s(1024), c],
      (x) => x.sum(1),
      sums(4 * c * c * s(1024)),
    ),
    unaryRow(
      "sum-outer",
      `sum of the outer axes of ${s(64)} x ${c} x ${s(64)} x ${s(64)} f32`,
      [s(64), c, s(64), s(64)],
      (x) => x.sum([0, 2, 3]),
      sums(4 * c * s(64) ** 3),
    ),
    unaryRow(
      "max-odd",
      `maximum of columns ${s(65521)} x ${s(1021)} f32`,
      [s(65521), s(1021)],
      (x) => x.max(0),
      sums(4 * s(65521) * s(1021)),
    ),
    unaryRow(
      "sum-narrow",
      `sum of rows ${s(1 << 22)} x 17 f32`,
      [s(1 << 22), 17],
      (x) => x.sum(-1),
      sums(4 * 17 * s(1 << 22)),
    ),
    unaryRow(
      "softmax-narrow",
      `softmax of rows ${s(1 << 20)} x 50 f32`,
      [s(1 << 20), 50],
      (x) => weft.softmax(x),
      sums(8 * 50 * s(1 << 20)),
    ),
    unaryRow(
      "softmax-columns",
      `softmax of columns ${s(4096)} x ${n} f32`,
      [s(4096), n],
      (x) => weft.softmax(x, 0),
      sums(8 * s(4096) * n),
    ),
    unaryRow("variance", `variance of rows ${n} x ${n} f16`, [n, n], (x) => weft.variance(x.cast("float32"), -1), {
      ...sums(2 * n * n),
      dtype: "float16",
    }),
    unaryRow(
      "argmin-middle",
      `argmin of the middle axis of ${s(64)} x ${s(4096)} x ${s(128)} f32`,
      [s(64), s(4096), s(128)],
      (x) => x.argmin(1),
      { bytes: 4 * s(64) * s(4096) * s(128) },
    ),
    unaryRow("norm-double", `2-norm of ${s(1 << 24)} f64`, [s(1 << 24)], (x) => weft.norm(x), {
      bytes: 8 * s(1 << 24),
      dtype: "float64",
    }),
    unaryRow("sum-short", `sum of ${s(1000)} f32`, [s(1000)], (x) => x.sum(), { tolerance: 1e-2 }),
    unaryRow(
      "layernorm-gradient",
      `gradient through layer norm ${s(16384)} x ${s(1024)} bf16`,
      [s(16384), s(1024)],
      (x) => weft.grad(innerLoss)(x),
      { dtype: "bfloat16", tolerance: 0.1, peers: compiled },
    ),
  ];
}

function elementwise(s: Sizer): GeneralRow[] {
  const n = s(8192);
  const whole = n * n;
  const images = [s(256), s(224), s(224), 3];
  const bytes = (per: number, tolerance = 1e-4) => ({ bytes: per * whole, tolerance, peers: compiled });
  const square = `${n} x ${n}`;
  return [
    unaryRow("cast", `cast ${square} f32 to bf16`, [n, n], (x) => x.cast("bfloat16"), bytes(6, 0.01)),
    rowOf(
      "image-bytes",
      `normalize ${images.join(" x ")} uint8 to channels-first bf16`,
      (x) => x.cast("float32").div(255).sub(0.45).div(0.22).permute([0, 3, 1, 2]).cast("bfloat16"),
      () => [indices(images, 1, 256).cast("uint8").realize()],
      { bytes: 9 * s(256) * s(224) ** 2, tolerance: 0.02, peers: compiled },
    ),
    rowOf(
      "masked-fill",
      `masked fill ${square} bf16`,
      (x, m) => weft.where(m, x, -1e4),
      () => [numbers([n, n], 1, "bfloat16"), numbers([n, n], 2).greater(0).realize()],
      bytes(5, 0.02),
    ),
    unaryRow("tril", `lower triangle ${square} f32`, [n, n], (x) => weft.tril(x), { bytes: 6 * whole }),
    unaryRow("difference", `differences along rows ${square} f32`, [n, n], (x) => weft.diff(x), bytes(8)),
    unaryRow("strided", `every second column of ${square} f32`, [n, n], (x) => x.index(":", "::2").mul(2), bytes(6)),
    unaryRow("broadcast", `outer sum of two lines, ${square} f16`, [n], (x) => x.unsqueeze(1).add(x), {
      ...bytes(2, 0.01),
      dtype: "float16",
    }),
    rowOf(
      "int8-add",
      `sum of two ${s(1 << 26)} int8`,
      (x, y) => x.add(y),
      () =>
        [1, 2].map((salt) =>
          indices([s(1 << 26)], salt, 60)
            .cast("int8")
            .realize(),
        ),
      { bytes: 3 * s(1 << 26), peers: compiled },
    ),
    unaryRow(
      "sines",
      `sine times exponential ${square} f32`,
      [n, n],
      (x) => weft.sin(x.mul(40)).mul(weft.exp(x)),
      bytes(8),
    ),
    unaryRow("roll", `roll by 100 columns ${square} f32`, [n, n], (x) => weft.roll(x, 100, 1), bytes(8)),
  ];
}

const productRow = (id: string, shapes: readonly (readonly number[])[], dtype: DType, kind: string): GeneralRow => {
  const size = shapes[0].reduce((a, b) => a * b, 1);
  const [a, b] = shapes.map((shape) => shape.join(" x "));
  return rowOf(
    id,
    `product of ${a} and ${b} ${kind}`,
    tf32((x, y) => x.matmul(y)),
    () => shapes.map((shape, i) => numbers(shape, i + 1, dtype)),
    { tolerance: dtype === "float64" ? 1e-9 : 0.02, flops: 2 * size * shapes[1][shapes[1].length - 1] },
  );
};

function products(s: Sizer): GeneralRow[] {
  const [n, d, v] = [s(8192), s(768), s(50304)];
  const big = s(16384);
  const loss = (x: Tensor, w: Tensor, y: Tensor): Tensor =>
    weft.crossEntropy(x.matmul(w.transpose()).cast("float32"), y);
  const pair = (count: number, m: number, k: number): number[][] => [
    [s(count), m, k],
    [s(count), k, m],
  ];
  return [
    productRow("batched-8", pair(65536, 8, 8), "float32", "tf32"),
    productRow("batched-32", pair(16384, 32, 32), "float32", "tf32"),
    productRow("batched-half", pair(4096, 128, 64), "float16", "f16"),
    productRow(
      "matrix-vector",
      [
        [big, big],
        [big, 1],
      ],
      "bfloat16",
      "bf16",
    ),
    productRow(
      "thin",
      [
        [16, n],
        [n, n],
      ],
      "bfloat16",
      "bf16",
    ),
    productRow(
      "odd-product",
      [
        [s(1023), s(4097)],
        [s(4097), s(2049)],
      ],
      "bfloat16",
      "bf16",
    ),
    productRow(
      "double",
      [
        [s(4096), s(4096)],
        [s(4096), s(4096)],
      ],
      "float64",
      "f64",
    ),
    rowOf(
      "linear-cross-entropy",
      `linear layer and cross-entropy with gradients, ${n} x ${d} by ${v}, bf16`,
      (x, w, y) => weft.grad(loss, { argument: [0, 1] })(x, w, y),
      () => [numbers([n, d], 1, "bfloat16"), numbers([v, d], 2, "bfloat16"), indices([n], 3, v)],
      { tolerance: 0.1, peers: compiled },
    ),
  ];
}

function transforms(s: Sizer): GeneralRow[] {
  const n = s(4096);
  const spectrum = (x: Tensor): Tensor => weft.fft(weft.complex(x, x));
  const loose = { tolerance: 1e-3 };
  const images = [s(64), s(512), s(512)];
  return [
    unaryRow("fft-rows", `fft of rows ${n} x ${n} c64`, [n, n], spectrum, loose),
    unaryRow("fft-odd", `fft of rows ${n} x 1000 c64`, [n, 1000], spectrum, loose),
    unaryRow("rfft-line", `rfft of ${s(1 << 24)} f32`, [s(1 << 24)], (x) => weft.rfft(x), loose),
    unaryRow("rfft2", `rfft2 of images ${images.join(" x ")} f32`, images, (x) => weft.rfft2(x), loose),
  ];
}

/** Well-conditioned matrices. */
const dominant = (count: number, n: number): Tensor =>
  weft
    .jit((x: Tensor) => x.add(weft.eye(n).mul(2 * n)))(numbers([count, n, n], 1))
    .realize();

function solvers(s: Sizer): GeneralRow[] {
  const transposed = (a: Tensor): Tensor => a.transpose(-1, -2);
  const list: [string, number, number, string, (a: Tensor) => Tensor][] = [
    ["batched-solve", s(65536), 8, "solve", (a) => weft.solve(a, transposed(a))],
    ["batched-inverse", s(16384), 16, "inverse", (a) => weft.inv(a)],
    ["batched-determinant", s(16384), 12, "log determinant", (a) => weft.slogdet(a).logabsdet],
    ["batched-cholesky", s(8192), 32, "product and cholesky", (a) => weft.cholesky(a.matmul(transposed(a)))],
    ["batched-eigenvalues", s(4096), 16, "eigvalsh", (a) => weft.eigvalsh(a.add(transposed(a)))],
    ["qr", 1, s(4096), "factor r of qr", (a) => weft.abs(weft.qr(a).r)],
    ["svd", 1, s(1024), "singular values", (a) => weft.svdvals(a)],
    ["triangular", 1, s(8192), "triangular solve by its columns", (a) => weft.triangularSolve(a, a)],
  ];
  return list.map(([id, count, n, title, f]) =>
    rowOf(id, `${title} of ${count} x ${n} x ${n} f32`, f as never, () => [dominant(count, n)], { tolerance: 2e-2 }),
  );
}

/** Shapes of the parameters of GPT-2. */
const gpt2Shapes = (width: number, layers: number, vocabulary: number): number[][] => {
  const [w, ...vectors] = [width, 1, 1, 3, 1, 1, 1, 4, 1];
  const block = [...vectors.map((k) => [k * w]), [3 * w, w], [w, w], [4 * w, w], [w, 4 * w]];
  return [[vocabulary, w], [1024, w], ...Array.from({ length: layers }, () => block).flat(), [w], [w]];
};

/** AdamW on parameters, gradients and moments: 28 bytes per parameter. */
function optimizerRow(s: Sizer): GeneralRow {
  const shapes = gpt2Shapes(s(768), 12, s(50257));
  const count = shapes.reduce((sum, shape) => sum + shape.reduce((a, b) => a * b, 1), 0);
  type Tree = Record<string, Tensor>;
  const tree = (first: number): Tree =>
    Object.fromEntries(shapes.map((shape, i) => [`p${i}`, numbers(shape, i + first)]));
  return {
    id: "adamw",
    title: `AdamW update, ${shapes.length} tensors, ${count} parameters f32`,
    peers: eager,
    check: sameDigest(1e-3),
    bytes: 28 * count,
    make() {
      const optimizer = optim.adamW({ learningRate: 1e-3, weightDecay: 0.01 });
      const grads = tree(1);
      const step = weft.jit((p: Tree, m: ReturnType<typeof optimizer.init>, g: Tree) => optimizer.update(p, g, m), {
        donate: [0, 1],
      });
      let p = tree(2);
      let m = optimizer.init(p);
      const call = (): void => {
        [p, m] = step(p, m, grads) as [Tree, typeof m];
      };
      call();
      call();
      const check = Array.from(p[`p${shapes.length - 1}`].dataSync() as Float32Array).slice(0, 7);
      const release = (): void => {
        for (const leaf of weft.treeLeaves([p, m, grads] as never)) (leaf as Tensor).dispose();
      };
      return { check, call, finish: () => weft.session().device.synchronize(), release };
    },
  };
}

export const arrayRows = (s: Sizer): GeneralRow[] => [
  ...selections(s),
  ...reductions(s),
  ...elementwise(s),
  ...products(s),
  ...transforms(s),
  ...solvers(s),
  optimizerRow(s),
];
