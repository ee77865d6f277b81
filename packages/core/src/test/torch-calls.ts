// Random calls of functions that PyTorch has too, with their gradients: convolutions, pooling, normalization, attention,
// interpolation, losses, linear algebra, Fourier transforms, orders, activations. Every call is written twice: as a function of
// tensors and as an expression of PyTorch. The same seed gives the same call.
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import type { Host } from "./cases/index.js";
import { Dice } from "./dice.js";

export interface TorchCall {
  name: string;
  inputs: Host[];
  fn: (...inputs: Tensor[]) => Tensor | Tensor[];
  /** The same in PyTorch, of operands a, b, c, d, e. */
  torch: string;
  /** Operands with gradients. */
  grads: number[];
  /** Multiplies the tolerance. */
  loose?: number;
}

/** Draws sizes, numbers and choices of one call. */
class Draw extends Dice {
  between(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  many(count: number, low: number, high: number): number[] {
    return Array.from({ length: count }, () => this.between(low, high));
  }

  /** Numbers in (-1, 1), no two of which are equal by accident. */
  floats(...shape: number[]): Host {
    const data = Array.from({ length: shape.reduce((n, d) => n * d, 1) }, () => this.below(2 ** 24) / 2 ** 23 - 1);
    return { shape, dtype: "float64", data };
  }

  ints(high: number, ...shape: number[]): Host {
    const data = Array.from({ length: shape.reduce((n, d) => n * d, 1) }, () => this.below(high));
    return { shape, dtype: "int32", data };
  }

  bools(...shape: number[]): Host {
    return { ...this.ints(2, ...shape), dtype: "bool" };
  }
}

type Maker = (draw: Draw) => Omit<TorchCall, "name">;

const bool = (flag: boolean): string => (flag ? "True" : "False");
/** Axes of [batch, channels, ...spatial] with the channels last, and back. */
const lastChannels = (rank: number): number[] => [0, ...Array.from({ length: rank - 2 }, (_, i) => i + 2), 1];
const firstChannels = (rank: number): number[] => [0, rank - 1, ...Array.from({ length: rank - 2 }, (_, i) => i + 1)];
/** Real and imaginary parts as a last axis. */
const parts = (z: Tensor): Tensor => weft.stack([z.real(), z.imag()], -1);
/** A positive definite matrix. */
const plus = (x: Tensor, n: number): Tensor =>
  x.matmul(x.transpose()).add(weft.eye(x.shape[x.rank - 1], { dtype: "float64" }).mul(n));

function convolution(draw: Draw): Omit<TorchCall, "name"> {
  const [n, transposed, groups] = [draw.between(1, 3), draw.chance(35), draw.pick([1, 1, 2, 3])];
  const [inner, outer] = draw.many(2, 1, 3).map((c) => c * groups);
  const [stride, dilation, padding] = [draw.many(n, 1, 3), draw.many(n, 1, 2), draw.many(n, 0, 2)];
  const kernel = draw.many(n, 1, 3);
  const size = kernel.map(
    (k, i) => Math.max(1, dilation[i] * (k - 1) + 1 - 2 * padding[i]) + draw.below(n === 3 ? 3 : 6),
  );
  const hasBias = draw.chance(50);
  const x = draw.floats(draw.chance(5) ? 0 : draw.between(1, 2), inner, ...size);
  const weight = transposed
    ? draw.floats(inner, outer / groups, ...kernel)
    : draw.floats(outer, inner / groups, ...kernel);
  const extra = transposed ? stride.map((s, i) => draw.below(Math.max(s, dilation[i]))) : [];
  // A transposed convolution must leave something after its padding.
  const cut = transposed ? padding.map((p, i) => (p * 2 < dilation[i] * (kernel[i] - 1) + 1 ? p : 0)) : padding;
  const channelsLast = draw.chance(30);
  const inputs = [x, weight, ...(hasBias ? [draw.floats(outer)] : [])];
  const convolve = [weft.conv1d, weft.conv2d, weft.conv3d][n - 1];
  const transpose = [weft.convTranspose1d, weft.convTranspose2d, weft.convTranspose3d][n - 1];
  const options = { stride, dilation, groups, channelsLast };
  const name = `F.conv${transposed ? "_transpose" : ""}${n}d`;
  const more = transposed ? `, output_padding=[${extra}]` : "";
  return {
    inputs,
    grads: inputs.map((_, i) => i),
    loose: 10,
    fn: (a, w, bias) => {
      const given = channelsLast ? a.permute(lastChannels(n + 2)) : a;
      const all = { ...options, padding: cut, ...(hasBias && { bias }) };
      const y = transposed ? transpose(given, w, { ...all, outputPadding: extra }) : convolve(given, w, all);
      return channelsLast ? y.permute(firstChannels(n + 2)) : y;
    },
    torch: `${name}(a, b, ${hasBias ? "c" : "None"}, stride=[${stride}], padding=[${cut}], dilation=[${dilation}], groups=${groups}${more})`,
  };
}

function pooling(draw: Draw): Omit<TorchCall, "name"> {
  const [n, isMax] = [draw.between(1, 3), draw.chance(50)];
  const [kernel, stride] = [draw.many(n, 1, 3), draw.many(n, 1, 3)];
  const padding = kernel.map((k) => draw.below(Math.floor(k / 2) + 1));
  const dilation = isMax ? draw.many(n, 1, 2) : kernel.map(() => 1);
  const [ceilMode, countIncludePad] = [draw.chance(40), draw.chance(50)];
  const size = kernel.map((k, i) => dilation[i] * (k - 1) + 1 + draw.below(n === 3 ? 3 : 6));
  const max = [weft.maxPool1d, weft.maxPool2d, weft.maxPool3d][n - 1];
  const mean = [weft.avgPool1d, weft.avgPool2d, weft.avgPool3d][n - 1];
  const common = `a, [${kernel}], [${stride}], [${padding}]`;
  return {
    inputs: [draw.floats(draw.between(1, 2), draw.between(1, 2), ...size)],
    grads: [0],
    fn: (a) =>
      isMax
        ? max(a, { kernel, stride, padding, dilation, ceilMode })
        : mean(a, { kernel, stride, padding, ceilMode, countIncludePad }),
    torch: isMax
      ? `F.max_pool${n}d(${common}, [${dilation}], ${bool(ceilMode)})`
      : `F.avg_pool${n}d(${common}, ${bool(ceilMode)}, ${bool(countIncludePad)})`,
  };
}

function adaptive(draw: Draw): Omit<TorchCall, "name"> {
  const [n, isMax] = [draw.between(1, 3), draw.chance(50)];
  const [size, out] = [draw.many(n, 1, 7), draw.many(n, 1, 5)];
  const max = [weft.adaptiveMaxPool1d, weft.adaptiveMaxPool2d, weft.adaptiveMaxPool3d][n - 1];
  const mean = [weft.adaptiveAvgPool1d, weft.adaptiveAvgPool2d, weft.adaptiveAvgPool3d][n - 1];
  return {
    inputs: [draw.floats(draw.between(1, 2), 2, ...size)],
    grads: [0],
    fn: (a) => (isMax ? max : mean)(a, out),
    torch: `F.adaptive_${isMax ? "max" : "avg"}_pool${n}d(a, [${out}])`,
  };
}

function normalization(draw: Draw): Omit<TorchCall, "name"> {
  const kind = draw.pick(["batch", "group", "instance", "layer"] as const);
  const [groups, epsilon] = [draw.between(1, 3), draw.pick([1e-5, 0.1])];
  const channels = groups * draw.between(1, 3);
  const spatial = draw.many(draw.between(1, 2), 2, 4);
  const shape = [draw.between(2, 3), channels, ...spatial];
  const width = kind === "layer" ? shape[shape.length - 1] : channels;
  return {
    inputs: [draw.floats(...shape), draw.floats(width), draw.floats(width)],
    grads: [0, 1, 2],
    loose: 100,
    fn: (a, weight, bias) =>
      ({
        batch: () => weft.batchNorm(a, { weight, bias, epsilon }),
        group: () => weft.groupNorm(a, groups, { weight, bias, epsilon }),
        instance: () => weft.instanceNorm(a, { weight, bias, epsilon }),
        layer: () => weft.layerNorm(a, { weight, bias, epsilon }),
      })[kind](),
    torch: {
      batch: `F.batch_norm(a, None, None, b, c, True, 0.1, ${epsilon})`,
      group: `F.group_norm(a, ${groups}, b, c, ${epsilon})`,
      instance: `F.instance_norm(a, None, None, b, c, True, 0.1, ${epsilon})`,
      layer: `F.layer_norm(a, [${width}], b, c, ${epsilon})`,
    }[kind],
  };
}

function attention(draw: Draw): Omit<TorchCall, "name"> {
  const [shared, repeat] = [draw.between(1, 2), draw.pick([1, 1, 2])];
  const [queries, size] = [draw.between(1, 5), draw.between(1, 4)];
  const kind = draw.pick(["none", "causal", "bool", "float"] as const);
  const keys = kind === "causal" ? queries : draw.between(1, 5);
  const batch = draw.chance(5) ? 0 : draw.between(1, 2);
  const scale = draw.pick([undefined, 0.3]);
  const heads = shared * repeat;
  const full = [batch, heads, queries, keys];
  const shape = draw.pick([[queries, keys], full, [batch, 1, 1, keys]]);
  const mask = kind === "bool" ? [draw.bools(...shape)] : kind === "float" ? [draw.floats(...shape)] : [];
  // A row without keys is NaN in PyTorch and 0 here.
  if (kind === "bool") mask[0].data = mask[0].data.map((x, i) => (i % keys === 0 ? 1 : x));
  return {
    inputs: [
      draw.floats(batch, heads, queries, size),
      draw.floats(batch, shared, keys, size),
      draw.floats(batch, shared, keys, size),
      ...mask,
    ],
    grads: kind === "float" ? [0, 1, 2, 3] : [0, 1, 2],
    loose: 10,
    fn: (q, k, v, m) =>
      weft.scaledDotProductAttention(q, k, v, {
        mask: m,
        causal: kind === "causal",
        ...(scale !== undefined && { scale }),
      }),
    torch: `F.scaled_dot_product_attention(a, b, c, ${mask.length > 0 ? "d" : "None"}, is_causal=${bool(kind === "causal")}, scale=${scale ?? "None"}, enable_gqa=True)`,
  };
}

function interpolation(draw: Draw): Omit<TorchCall, "name"> {
  const n = draw.between(1, 3);
  const mode = draw.pick(n === 2 ? (["nearest", "linear", "cubic"] as const) : (["nearest", "linear"] as const));
  const names = { nearest: "nearest", linear: ["linear", "bilinear", "trilinear"][n - 1], cubic: "bicubic" };
  const alignCorners = mode !== "nearest" && draw.chance(50);
  // The derivative of PyTorch's nearest neighbors uses other neighbors than its value for other factors.
  const scale = draw.chance(40) ? draw.pick(mode === "nearest" ? [0.5, 2] : [0.5, 1.5, 2, 2.3]) : null;
  const [input, size] = [draw.many(n, scale === null ? 1 : Math.ceil(1 / scale), 5), draw.many(n, 1, 7)];
  const corners = mode === "nearest" ? "" : `, align_corners=${bool(alignCorners)}`;
  return {
    inputs: [draw.floats(draw.between(1, 2), draw.between(1, 2), ...input)],
    grads: [0],
    loose: 10,
    fn: (a) =>
      weft.interpolate(a, {
        ...(scale === null ? { size } : { scale }),
        mode,
        ...(mode !== "nearest" && { alignCorners }),
      }),
    torch: `F.interpolate(a, ${scale === null ? `size=[${size}]` : `scale_factor=${scale}`}, mode='${names[mode]}'${corners})`,
  };
}

const losses: Maker = (draw) => {
  const reduction = draw.pick(["mean", "sum", "none"] as const);
  const [rows, classes, factor] = [draw.between(1, 4), draw.between(2, 5), draw.pick([0.5, 1, 1.7])];
  const two = [draw.floats(rows, classes), draw.floats(rows, classes)];
  const sign = { ...draw.ints(2, rows), dtype: "float64" as const };
  sign.data = sign.data.map((x) => 2 * x - 1);
  const how = `reduction='${reduction}'`;
  const pair = (fn: TorchCall["fn"], torch: string): Omit<TorchCall, "name"> => ({
    inputs: two,
    grads: [0, 1],
    fn,
    torch,
  });
  return draw.pick<() => Omit<TorchCall, "name">>([
    () => ({
      inputs: [two[0], draw.ints(classes, rows)],
      grads: [0],
      fn: (a, b) => weft.crossEntropy(a, b, { reduction, labelSmoothing: factor / 4 }),
      torch: `F.cross_entropy(a, b, ${how}, label_smoothing=${factor / 4})`,
    }),
    () => ({
      ...pair((a, b) => weft.crossEntropy(a, b.softmax(), { reduction }), `F.cross_entropy(a, b.softmax(-1), ${how})`),
    }),
    () => pair((a, b) => weft.mseLoss(a, b, { reduction }), `F.mse_loss(a, b, ${how})`),
    () => pair((a, b) => weft.l1Loss(a, b, { reduction }), `F.l1_loss(a, b, ${how})`),
    () =>
      pair((a, b) => weft.huberLoss(a, b, { reduction, delta: factor }), `F.huber_loss(a, b, ${how}, delta=${factor})`),
    () =>
      pair(
        (a, b) => weft.smoothL1Loss(a, b, { reduction, beta: factor }),
        `F.smooth_l1_loss(a, b, ${how}, beta=${factor})`,
      ),
    () =>
      pair(
        (a, b) => weft.binaryCrossEntropyWithLogits(a.mul(30), b.sigmoid(), { reduction }),
        `F.binary_cross_entropy_with_logits(a * 30, b.sigmoid(), ${how})`,
      ),
    () =>
      pair(
        (a, b) => weft.klDivLoss(a.logSoftmax(), b.softmax(), { reduction }),
        `F.kl_div(a.log_softmax(-1), b.softmax(-1), ${how})`,
      ),
    () => pair((a, b) => weft.poissonNllLoss(a, b.square(), { reduction }), `F.poisson_nll_loss(a, b * b, ${how})`),
    () => ({
      inputs: [...two, draw.floats(rows, classes)],
      grads: [0, 1, 2],
      fn: (a, b, c) => weft.gaussianNllLoss(a, b, c.exp(), { reduction }),
      torch: `F.gaussian_nll_loss(a, b, c.exp(), ${how})`,
    }),
    () => ({
      inputs: [...two, sign],
      grads: [0, 1],
      fn: (a, b, c) => weft.cosineEmbeddingLoss(a, b, c, { reduction, margin: factor / 4 }),
      torch: `F.cosine_embedding_loss(a, b, c, margin=${factor / 4}, ${how})`,
      loose: 1e5,
    }),
    () => ({
      inputs: [draw.floats(rows), draw.floats(rows), sign],
      grads: [0, 1],
      fn: (a, b, c) => [
        weft.marginRankingLoss(a, b, c, { reduction, margin: factor }),
        weft.hingeEmbeddingLoss(a, c, { reduction, margin: factor }),
      ],
      torch: `[F.margin_ranking_loss(a, b, c, margin=${factor}, ${how}), F.hinge_embedding_loss(a, c, margin=${factor}, ${how})]`,
    }),
    () => ({
      inputs: [...two, draw.floats(rows, classes)],
      grads: [0, 1, 2],
      fn: (a, b, c) => weft.tripletMarginLoss(a, b, c, { reduction, margin: factor }),
      torch: `F.triplet_margin_loss(a, b, c, margin=${factor}, ${how})`,
      loose: 100,
    }),
  ])();
};

const algebra: Maker = (draw) => {
  const [n, columns] = [draw.between(1, 5), draw.between(1, 3)];
  const batch = draw.pick<number[]>([[], [], [2], [2, 1], [0]]);
  const square = draw.floats(...batch, n, n);
  const one = (fn: TorchCall["fn"], torch: string, inputs = [square]): Omit<TorchCall, "name"> => ({
    inputs,
    grads: inputs.map((_, i) => i),
    fn,
    torch,
    loose: 1e4,
  });
  const right = draw.floats(...batch, n, columns);
  const tall = draw.floats(...batch, n + columns, n);
  return draw.pick<() => Omit<TorchCall, "name">>([
    () => one((a, b) => weft.solve(plus(a, 2), b), "torch.linalg.solve(plus(a, 2), b)", [square, right]),
    () => one((a) => weft.inv(plus(a, 2)), "torch.linalg.inv(plus(a, 2))"),
    () => one((a) => weft.det(a), "torch.linalg.det(a)"),
    () => one((a) => weft.slogdet(plus(a, 1)).logabsdet, "torch.linalg.slogdet(plus(a, 1))[1]"),
    () => one((a) => weft.cholesky(plus(a, 2)), "torch.linalg.cholesky(plus(a, 2))"),
    () => one((a) => weft.eigvalsh(a.add(a.transpose())), "torch.linalg.eigvalsh(a + a.mT)"),
    () => one((a) => weft.svdvals(a), "torch.linalg.svdvals(a)", [tall]),
    () => one((a) => weft.pinv(a), "torch.linalg.pinv(a)", [tall]),
    () => one((a) => weft.expm(a), "torch.linalg.matrix_exp(a)"),
    () => one((a) => weft.matrixPower(a, 3), "torch.linalg.matrix_power(a, 3)"),
    () => one((a) => weft.matrixNorm(a), "torch.linalg.matrix_norm(a)"),
    () => one((a) => weft.vectorNorm(a, { axes: -1, order: 3 }), "torch.linalg.vector_norm(a, 3, -1)"),
    () => one((a) => weft.trace(a), "torch.diagonal(a, dim1=-2, dim2=-1).sum(-1)"),
    () =>
      one(
        (a, b) => weft.triangularSolve(weft.tril(a).add(weft.eye(n, { dtype: "float64" }).mul(3)), b),
        `torch.linalg.solve_triangular(a.tril() + 3 * torch.eye(${n}), b, upper=False)`,
        [square, right],
      ),
    () => {
      // Signs of the columns of q are free: q r and the size of r's diagonal are not.
      const both = (a: Tensor): Tensor[] => {
        const { q, r } = weft.qr(a);
        return [q.matmul(r), weft.diagonal(r).abs()];
      };
      return one(both, "(lambda f: [f[0] @ f[1], torch.diagonal(f[1], dim1=-2, dim2=-1).abs()])(torch.linalg.qr(a))", [
        tall,
      ]);
    },
    () =>
      one((a, b) => weft.lstsq(a, b).solution, "torch.linalg.pinv(a) @ b", [
        tall,
        draw.floats(...batch, n + columns, columns),
      ]),
    () => one((a, b) => weft.matmul(a, b), "a @ b", [square, right]),
    () =>
      one((a, b) => weft.einsum("...ij,...kj->...ik", a, b), "torch.einsum('...ij,...kj->...ik', a, b)", [
        tall,
        square,
      ]),
    () => one((a, b) => weft.kron(a, b), "torch.kron(a, b)", [draw.floats(2, 3), draw.floats(3, 2)]),
  ])();
};

const fourier: Maker = (draw) => {
  const shape = draw.many(draw.between(1, 3), 1, 6);
  const axis = draw.below(shape.length);
  const norm = draw.pick(["backward", "ortho", "forward"] as const);
  const n = draw.pick([shape[axis], draw.between(1, 8)]);
  const how = `n=${n}, dim=${axis}, norm='${norm}'`;
  const one = (fn: TorchCall["fn"], torch: string): Omit<TorchCall, "name"> => ({
    inputs: [draw.floats(...shape), draw.floats(...shape)],
    grads: [0, 1],
    fn,
    torch,
    loose: 10,
  });
  const z = "torch.complex(a, b)";
  const options = { n, axis, norm };
  return draw.pick<() => Omit<TorchCall, "name">>([
    () => one((a, b) => parts(weft.fft(weft.complex(a, b), options)), `parts(torch.fft.fft(${z}, ${how}))`),
    () => one((a, b) => parts(weft.ifft(weft.complex(a, b), options)), `parts(torch.fft.ifft(${z}, ${how}))`),
    () => one((a, b) => parts(weft.rfft(a.mul(b), options)), `parts(torch.fft.rfft(a * b, ${how}))`),
    () => one((a, b) => weft.irfft(weft.complex(a, b), options), `torch.fft.irfft(${z}, ${how})`),
    () => one((a, b) => parts(weft.fftn(weft.complex(a, b), { norm })), `parts(torch.fft.fftn(${z}, norm='${norm}'))`),
    () => one((a, b) => parts(weft.rfftn(a.mul(b), { norm })), `parts(torch.fft.rfftn(a * b, norm='${norm}'))`),
    () => one((a, b) => weft.hfft(weft.complex(a, b), options), `torch.fft.hfft(${z}, ${how})`),
    () => one((a, b) => weft.fftshift(a.mul(b)), "torch.fft.fftshift(a * b)"),
  ])();
};

const orders: Maker = (draw) => {
  const shape = draw.many(draw.between(1, 3), 1, 5);
  const axis = draw.below(shape.length);
  const n = shape[axis];
  const x = draw.floats(...shape);
  const [descending, k] = [draw.chance(50), draw.between(1, n)];
  const one = (fn: TorchCall["fn"], torch: string, ...more: Host[]): Omit<TorchCall, "name"> => ({
    inputs: [x, ...more],
    grads: [0],
    fn,
    torch,
    loose: 10,
  });
  const index = draw.ints(n, ...shape);
  const sorted = draw.floats(draw.between(1, 6));
  sorted.data.sort((p, q) => p - q);
  return draw.pick<() => Omit<TorchCall, "name">>([
    () => one((a) => weft.sort(a, axis, { descending }), `torch.sort(a, ${axis}, descending=${bool(descending)})[0]`),
    () => one((a) => weft.topk(a, k, axis).values, `torch.topk(a, ${k}, ${axis})[0]`),
    () => one((a, i) => weft.gather(a, i, axis), `torch.gather(a, ${axis}, b)`, index),
    () => one((a, i) => weft.scatterAdd(a, i, a.mul(2), axis), `a.scatter_add(${axis}, b, a * 2)`, index),
    () => one((a) => weft.quantile(a, 0.3, axis), `torch.quantile(a, 0.3, ${axis})`),
    () => one((a) => weft.max(a, axis), `torch.amax(a, ${axis})`),
    () => one((a) => weft.cumsum(a, axis), `torch.cumsum(a, ${axis})`),
    () => one((a) => weft.cumprod(weft.round(a.mul(2)), axis), `torch.cumprod(torch.round(a * 2), ${axis})`),
    () => one((a) => weft.cumprod(a, axis), `torch.cumprod(a, ${axis})`),
    () => one((a) => weft.prod(a.mul(a.greater(-0.3)), axis), `torch.prod(a * (a > -0.3), ${axis})`),
    () => one((a) => weft.logsumexp(a.mul(50), axis), `torch.logsumexp(a * 50, ${axis})`),
    () => one((a) => weft.variance(a, axis, { correction: 0 }), `torch.var(a, ${axis}, correction=0)`),
    () => one((a) => weft.roll(a, k, axis), `torch.roll(a, ${k}, ${axis})`),
    () => one((a) => weft.flip(a, [axis]), `torch.flip(a, [${axis}])`),
    () => one((a) => weft.diff(a, axis), `torch.diff(a, dim=${axis})`),
    () => ({
      ...one(
        (s, v) => weft.searchsorted(s, v, { side: descending ? "right" : "left" }),
        `torch.searchsorted(a, b, right=${bool(descending)})`,
        x,
      ),
      inputs: [sorted, x],
      grads: [],
    }),
    () => one((a) => weft.tril(a.reshape([1, -1]), k - 2), `torch.tril(a.reshape(1, -1), ${k - 2})`),
    () => one((a) => weft.repeat(a, 2, axis), `torch.repeat_interleave(a, 2, ${axis})`),
  ])();
};

const activations: Maker = (draw) => {
  const shape = draw.many(draw.between(1, 3), 1, 5);
  const axis = draw.below(shape.length);
  const one = (fn: TorchCall["fn"], torch: string, loose = 20): Omit<TorchCall, "name"> => ({
    inputs: [draw.floats(...shape)],
    grads: [0],
    fn: (a) => fn(a.mul(6)),
    torch: torch.replace("X", "a * 6"),
    loose,
  });
  return draw.pick<() => Omit<TorchCall, "name">>([
    () => one((a) => weft.gelu(a), "F.gelu(X)"),
    () => one((a) => weft.gelu(a, { approximate: true }), "F.gelu(X, approximate='tanh')"),
    () => one((a) => weft.silu(a), "F.silu(X)"),
    () => one((a) => weft.mish(a), "F.mish(X)"),
    () => one((a) => weft.softplus(a), "F.softplus(X, threshold=1000)"),
    () => one((a) => weft.elu(a), "F.elu(X)"),
    () => one((a) => weft.selu(a), "F.selu(X)"),
    () => one((a) => weft.celu(a), "F.celu(X)"),
    () => one((a) => weft.hardSilu(a), "F.hardswish(X)"),
    // PyTorch rounds 1 / 6 to float32.
    () => one((a) => weft.hardSigmoid(a), "F.hardsigmoid(X)", 1e6),
    () => one((a) => weft.relu6(a), "F.relu6(X)"),
    () => one((a) => weft.leakyRelu(a), "F.leaky_relu(X)"),
    () => one((a) => weft.logSigmoid(a), "F.logsigmoid(X)"),
    () => one((a) => weft.softshrink(a), "F.softshrink(X)"),
    () => one((a) => weft.hardshrink(a), "F.hardshrink(X)"),
    () => one((a) => weft.tanhshrink(a), "F.tanhshrink(X)"),
    () => one((a) => weft.softsign(a), "F.softsign(X)"),
    () => one((a) => weft.softmax(a, axis), `F.softmax(X, ${axis})`),
    () => one((a) => weft.logSoftmax(a, axis), `F.log_softmax(X, ${axis})`),
    () => one((a) => weft.erf(a), "torch.erf(X)"),
    // PyTorch's derivative of digamma has ten digits.
    () => one((a) => weft.digamma(a.abs().add(0.5)), "torch.digamma((X).abs() + 0.5)", 1e5),
    () => one((a) => weft.gammaln(a.abs().add(0.5)), "torch.lgamma((X).abs() + 0.5)"),
    () => one((a) => weft.special.ndtri(a.sigmoid()), "torch.special.ndtri((X).sigmoid())"),
    () => one((a) => weft.sinc(a), "torch.sinc(X)"),
    () => one((a) => weft.pow(a.abs().add(0.1), 1.7), "torch.pow((X).abs() + 0.1, 1.7)"),
    () => one((a) => weft.atan2(a, a.add(1)), "torch.atan2(X, a * 6 + 1)"),
  ])();
};

const makers: Record<string, Maker> = {
  convolution,
  pooling,
  adaptive,
  normalization,
  attention,
  interpolation,
  losses,
  algebra,
  fourier,
  orders,
  activations,
};

/** Calls that stay well-conditioned when their operands are large or small; what overflows or vanishes inside is what is looked for. */
const anyScale = new Set(["convolution", "pooling", "normalization", "attention", "losses", "orders", "activations"]);

/** Some calls with operands of other magnitudes, drawn apart so that the calls themselves stay the same. */
function scaled(call: TorchCall, maker: string, draw: Draw): TorchCall {
  // PyTorch adds 1e-12 to the squares of norms; ndtri has its poles where a sigmoid is rounded to 0 and 1.
  const isApart = /cosine_embedding|ndtri/.test(call.torch);
  if (!anyScale.has(maker) || isApart || !draw.chance(40)) return call;
  const inputs = call.inputs.map((input) => {
    const factor = draw.pick([1, 1e-4, 40, 1000]);
    // Operands of two values are signs.
    return input.dtype !== "float64" || new Set(input.data.map(Math.abs)).size < 2
      ? input
      : { ...input, data: input.data.map((x) => x * factor) };
  });
  return { ...call, inputs, loose: 1e5 * (call.loose ?? 1) };
}

export function torchCall(seed: number): TorchCall {
  const draw = new Draw(seed * 13 + 5);
  const maker = draw.pick(Object.keys(makers));
  return scaled({ name: `${maker} ${seed}`, ...makers[maker](draw) }, maker, new Draw(seed * 17 + 3));
}
