// Whole models of the general suite beyond images: an encoder-decoder transformer with relative bias, mixture of experts, state spaces,
// an LSTM language model, recommendation, graph networks, a physics-informed net, a Gaussian process. The peer is peers/torch_nets.py.
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import { imageNetRows } from "./general-nets-images.js";
import { eager, type GeneralRow, indices, numbers, rowOf, type Sizer } from "./general-row.js";
import { layers, netRow, type Shapes, shapesOf, type Weights } from "./general-training.js";

const { linear, norm, rms } = layers;
const { layer, norm: normShapes } = shapesOf;
const half = "bfloat16";

/** The bucket of T5 of every distance between a query and a key: half of the buckets are single distances, the others logarithmic. */
function buckets(queries: number, keys: number, twoSided: boolean): Tensor {
  const whole = { dtype: "int32" } as const;
  const apart = weft.arange(0, keys, 1, whole).sub(weft.arange(0, queries, 1, whole).unsqueeze(1));
  const count = twoSided ? 16 : 32;
  const far = twoSided ? weft.abs(apart) : weft.maximum(apart.neg(), 0);
  const exact = count / 2;
  const log = weft.log(far.cast("float32").add(1e-6).div(exact)).div(Math.log(128 / exact));
  const wide = log
    .mul(count - exact)
    .cast("int32")
    .add(exact);
  const bucket = weft.where(far.less(exact), far, weft.minimum(wide, count - 1));
  return twoSided ? bucket.add(apart.greater(0).cast("int32").mul(16)) : bucket;
}

function t5Row(s: Sizer): GeneralRow {
  const [B, S, T, D, F, L, V] = [s(32), s(512), s(128), s(512), s(2048), s(6), s(32128)];
  const H = Math.max(1, D / 64);
  const title = `T5-small training step (relative bias, padding, cross attention), bf16, ${B} x ${S} to ${B} x ${T}`;
  return netRow("t5", title, { peers: eager }, () => {
    const shapes: Shapes = { table: [V, D], "bias.in": [32, H], "bias.out": [32, H] };
    const attention = (name: string): void => {
      Object.assign(shapes, { [`${name}.gain`]: [D] });
      for (const part of "qkvo") shapes[`${name}.${part}`] = [D, D];
    };
    const feed = (name: string): void => {
      Object.assign(shapes, { [`${name}.gain`]: [D], [`${name}.up`]: [F, D], [`${name}.down`]: [D, F] });
    };
    for (let i = 0; i < L; i++) [attention(`e${i}.self`), feed(`e${i}.feed`)];
    for (let i = 0; i < L; i++) [attention(`d${i}.self`), attention(`d${i}.cross`), feed(`d${i}.feed`)];
    Object.assign(shapes, { "e.gain": [D], "d.gain": [D] });
    const [x, y] = [indices([B, S], 361, V), indices([B, T], 362, V)];
    const lengths = indices([B, 1, 1, 1], 363, S).add(1).realize();
    const loss = (p: Weights): Tensor => {
      const heads = (h: Tensor): Tensor => h.reshape([B, h.shape[1], H, D / H]).transpose(1, 2);
      const attend = (h: Tensor, from: Tensor | null, name: string, mask: Tensor, causal = false): Tensor => {
        const n = rms(h, p, name);
        const [q, k, v] = ["q", "k", "v"].map((w) => heads(linear(w === "q" ? n : (from ?? n), p, `${name}.${w}`)));
        const seen = weft.scaledDotProductAttention(q, k, v, { mask, causal, scale: 1 });
        return h.add(linear(seen.transpose(1, 2).reshape(h.shape), p, `${name}.o`));
      };
      const feed = (h: Tensor, name: string): Tensor =>
        h.add(linear(weft.relu(linear(rms(h, p, name), p, `${name}.up`)), p, `${name}.down`));
      const biasOf = (n: number, name: string, twoSided: boolean): Tensor =>
        p[name]
          .index(buckets(n, n, twoSided))
          .permute([2, 0, 1])
          .unsqueeze(0);
      const visible = weft.where(weft.arange(0, S, 1, { dtype: "int32" }).less(lengths), 0, -1e9).cast(half);
      const encoderBias = biasOf(S, "bias.in", true).add(visible);
      const decoderBias = biasOf(T, "bias.out", false);
      let h = p.table.index(x);
      for (let i = 0; i < L; i++) h = feed(attend(h, null, `e${i}.self`, encoderBias), `e${i}.feed`);
      const memory = rms(h, p, "e");
      let d = p.table.index(y);
      for (let i = 0; i < L; i++) {
        d = attend(d, null, `d${i}.self`, decoderBias, true);
        d = feed(attend(d, memory, `d${i}.cross`, visible), `d${i}.feed`);
      }
      const logits = rms(d, p, "d").matmul(p.table.transpose());
      return weft.crossEntropy(logits.cast("float32"), y);
    };
    return { shapes, loss, precision: "bf16" };
  });
}

/** Transformer blocks whose feed-forward layers are experts: every token goes to two of them, up to a capacity. */
function expertsRow(s: Sizer): GeneralRow {
  const [B, T, D, F, L, E] = [s(8), s(1024), s(1024), s(4096), s(4), 8];
  const [H, tokens] = [Math.max(1, D / 64), B * T];
  const capacity = Math.floor((2 * tokens * 1.25) / E);
  const title = `mixture of ${E} experts (top 2, capacity ${capacity}), ${L} blocks, width ${D}, training step, bf16, ${B} x ${T}`;
  return netRow("experts", title, {}, () => {
    const shapes: Shapes = {};
    for (let i = 0; i < L; i++)
      Object.assign(shapes, {
        ...normShapes(`${i}.n1`, D),
        [`${i}.qkv`]: [3 * D, D],
        [`${i}.out`]: [D, D],
        ...normShapes(`${i}.n2`, D),
        [`${i}.router`]: [E, D],
        [`${i}.up`]: [E, D, F],
        [`${i}.down`]: [E, F, D],
      });
    const x = numbers([B, T, D], 371, half);
    const experts = (h: Tensor, p: Weights, name: string): Tensor => {
      const shares = weft.softmax(linear(h, p, `${name}.router`).cast("float32"), -1);
      const best = weft.topk(shares, 2);
      const weights = best.values.div(best.values.sum(-1, { keepDims: true })).reshape([2 * tokens, 1]);
      const chosen = best.indices.reshape([2 * tokens]);
      const marks = weft.oneHot(chosen, E, { dtype: "int32" });
      const place = weft.cumsum(marks, 0, { dtype: "int32" }).mul(marks).sum(-1).cast("int32").sub(1);
      const fits = place.less(capacity);
      // Tokens beyond the capacity share a slot that is not computed.
      const slot = weft.where(fits, chosen.mul(capacity).add(place), E * capacity);
      const copies = h
        .unsqueeze(1)
        .expand([tokens, 2, D])
        .reshape([2 * tokens, D]);
      const slots = weft.indexAdd(weft.zeros([E * capacity + 1, D], { dtype: half }), slot, copies);
      const grouped = slots.index(`:${E * capacity}`).reshape([E, capacity, D]);
      const out = weft
        .gelu(grouped.matmul(p[`${name}.up`]))
        .matmul(p[`${name}.down`])
        .reshape([E * capacity, D]);
      const back = weft.concat([out, weft.zeros([1, D], { dtype: half })], 0).index(slot);
      return back.mul(weights.cast(half)).reshape([tokens, 2, D]).sum(1);
    };
    const loss = (p: Weights): Tensor => {
      let h = x.cast(half);
      for (let i = 0; i < L; i++) {
        const joint = linear(norm(h, p, `${i}.n1`), p, `${i}.qkv`).reshape([B, T, 3, H, D / H]);
        h = h.add(linear(weft.packedAttention(joint, { causal: true }).reshape([B, T, D]), p, `${i}.out`));
        h = h.add(experts(norm(h, p, `${i}.n2`).reshape([tokens, D]), p, `${i}`).reshape([B, T, D]));
      }
      return h.cast("float32").square().mean();
    };
    return { shapes, loss, precision: "bf16" };
  });
}

/** Sums of every stretch of a line: out[i][j] is the sum of elements j + 1 to i, and -Infinity where i < j. */
function stretches(x: Tensor): Tensor {
  const sums = weft.cumsum(x, -1);
  const n = x.shape[x.rank - 1];
  const seen = weft.tril(weft.ones([n, n], { dtype: "bool" }));
  return weft.where(seen, sums.unsqueeze(-1).sub(sums.unsqueeze(-2)), -Infinity);
}

/** Mamba 2 as its authors write it in plain PyTorch: state spaces by products within chunks, and a short product between them. */
function mambaRow(s: Sizer): GeneralRow {
  const [B, T, D, L, N, Q] = [s(8), s(2048), s(768), s(8), s(64), s(64)];
  const [inner, P] = [2 * D, Math.min(64, D)];
  const [H, chunks, mixed] = [inner / P, T / Q, inner + 2 * N];
  return netRow("mamba2", `Mamba 2 (${L} layers, width ${D}, state ${N}), training step, tf32, ${B} x ${T}`, {}, () => {
    const shapes: Shapes = {};
    for (let i = 0; i < L; i++)
      Object.assign(shapes, {
        [`${i}.n1.gain`]: [D],
        [`${i}.in`]: [inner + mixed + H, D],
        ...layer(`${i}.conv`, [mixed, 1, 4]),
        [`${i}.dt.bias`]: [H],
        [`${i}.a.bias`]: [H],
        [`${i}.d.gain`]: [H],
        [`${i}.n2.gain`]: [inner],
        [`${i}.out`]: [D, inner],
      });
    const input = numbers([B, T, D], 381);
    const states = (x: Tensor, a: Tensor, b: Tensor, c: Tensor): Tensor => {
      const [X, A] = [x.reshape([B, chunks, Q, H, P]), a.reshape([B, chunks, Q, H]).permute([0, 3, 1, 2])];
      const [Bs, Cs] = [b, c].map((t) => t.reshape([B, chunks, Q, N]));
      const sums = weft.cumsum(A, -1);
      const weights = weft
        .einsum("bcln,bcsn->bcls", Cs, Bs)
        .unsqueeze(1)
        .mul(weft.exp(stretches(A)));
      const within = weft.einsum("bhcls,bcshp->bclhp", weights, X);
      const last = sums.index("...", `${Q - 1}:${Q}`);
      const kept = weft.exp(last.sub(sums)).permute([0, 2, 3, 1]).unsqueeze(-1);
      const own = weft.einsum("bcln,bclhp->bchpn", Bs, X.mul(kept));
      const decay = weft.exp(
        stretches(
          weft.pad(last.squeeze(-1), [
            [0, 0],
            [0, 0],
            [1, 0],
          ]),
        ),
      );
      const padded = weft.concat([weft.zeros([B, 1, H, P, N]), own], 1);
      const before = weft.einsum("bhzc,bchpn->bzhpn", decay, padded).index(":", `:${chunks}`);
      const across = weft
        .einsum("bcln,bchpn->bclhp", Cs, before)
        .mul(weft.exp(sums).permute([0, 2, 3, 1]).unsqueeze(-1));
      return within.add(across).reshape([B, T, H, P]);
    };
    const loss = (p: Weights): Tensor => {
      let h = input.mul(1);
      for (let i = 0; i < L; i++) {
        const joint = linear(rms(h, p, `${i}.n1`), p, `${i}.in`);
        const [gate, local, dt] = weft.split(joint, [inner, mixed, H], -1);
        const line = weft.conv1d(local.transpose(1, 2), p[`${i}.conv`], {
          bias: p[`${i}.conv.bias`],
          padding: 3,
          groups: mixed,
        });
        const [x, b, c] = weft.split(weft.silu(line.index("...", `:${T}`).transpose(1, 2)), [inner, N, N], -1);
        const step = weft.softplus(dt.add(p[`${i}.dt.bias`]));
        const wide = x.reshape([B, T, H, P]);
        const out = states(wide.mul(step.unsqueeze(-1)), step.mul(weft.exp(p[`${i}.a.bias`]).neg()), b, c);
        const y = out.add(wide.mul(p[`${i}.d.gain`].unsqueeze(-1))).reshape([B, T, inner]);
        h = h.add(linear(rms(y.mul(weft.silu(gate)), p, `${i}.n2`), p, `${i}.out`));
      }
      return h.square().mean();
    };
    return { shapes, loss, precision: "tf32" };
  });
}

function languageModelRow(s: Sizer): GeneralRow {
  const [B, T, D, V] = [s(64), s(128), s(1024), s(33278)];
  const title = `language model of two LSTM layers, width ${D}, training step, tf32, ${B} x ${T}`;
  return netRow("lstm-language", title, { peers: eager }, () => {
    const shapes: Shapes = { table: [V, D] };
    for (const i of [0, 1])
      Object.assign(shapes, {
        [`${i}.weight_ih_l0`]: [4 * D, D],
        [`${i}.weight_hh_l0`]: [4 * D, D],
        [`${i}.bias_ih_l0.bias`]: [4 * D],
        [`${i}.bias_hh_l0.bias`]: [4 * D],
      });
    Object.assign(shapes, layer("head", [V, D]));
    const [x, y] = [indices([B, T], 391, V), indices([B, T], 392, V)];
    const loss = (p: Weights): Tensor => {
      let h = p.table.index(x);
      for (const i of [0, 1]) {
        const [weight_ih_l0, weight_hh_l0] = [p[`${i}.weight_ih_l0`], p[`${i}.weight_hh_l0`]];
        const [bias_ih_l0, bias_hh_l0] = [p[`${i}.bias_ih_l0.bias`], p[`${i}.bias_hh_l0.bias`]];
        [h] = nn.lstm.apply({ weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 }, h);
      }
      return weft.crossEntropy(linear(h, p, "head"), y);
    };
    return { shapes, loss, precision: "tf32" };
  });
}

/** The recommendation model DLRM: bags of ids in tables, products of all pairs of features, two stacks of layers. */
function recommendationRow(s: Sizer): GeneralRow {
  const [B, tables, rows, D, bag] = [s(8192), s(26), s(100000), 64, 4];
  const title = `DLRM (${tables} tables of ${rows} x ${D}, bags of ${bag}), training step with SGD, tf32, batch ${B}`;
  return netRow("dlrm", title, {}, () => {
    const stack = (name: string, widths: readonly number[]): Shapes =>
      Object.assign({}, ...widths.slice(1).map((to, i) => layer(`${name}.${i}`, [to, widths[i]])));
    const features = tables + 1;
    const [bottom, top] = [
      [13, s(512), s(256), D],
      [D + (features * (features - 1)) / 2, s(512), s(256), 1],
    ];
    const shapes: Shapes = { ...stack("bottom", bottom), ...stack("top", top) };
    for (let i = 0; i < tables; i++) shapes[`table${i}`] = [rows, D];
    const dense = numbers([B, 13], 401);
    const ids = indices([tables, B, bag], 402, rows);
    const clicks = indices([B], 403, 2).cast("float32").realize();
    const [above, below] = [[] as number[], [] as number[]];
    for (let i = 0; i < features; i++) for (let j = 0; j < i; j++) [above.push(i), below.push(j)];
    const loss = (p: Weights): Tensor => {
      const through = (h: Tensor, name: string): Tensor => {
        for (let i = 0; i < 3; i++) {
          h = linear(h, p, `${name}.${i}`);
          if (name === "bottom" || i < 2) h = weft.relu(h);
        }
        return h;
      };
      const first = through(dense, "bottom");
      const bags = Array.from({ length: tables }, (_, i) =>
        weft.embeddingBag(ids.index(i), p[`table${i}`], { mode: "sum" }),
      );
      const all = weft.stack([first, ...bags], 1);
      const pairs = all
        .matmul(all.transpose())
        .index(":", weft.tensor(above, { dtype: "int32" }), weft.tensor(below, { dtype: "int32" }));
      const logits = through(weft.concat([first, pairs], 1), "top").squeeze(-1);
      return weft.binaryCrossEntropyWithLogits(logits, clicks);
    };
    return { shapes, loss, precision: "tf32", sgd: 0.1 };
  });
}

/** Three layers of a graph network on nodes with a label each: sums over neighbors, or attention to them. */
function graphRow(s: Sizer, kind: "gcn" | "gat"): GeneralRow {
  const [N, E, D, H, classes] = [s(169343), s(1166243), s(128), 4, s(40)];
  const widths = [D, s(256), s(256), classes];
  const name = kind === "gcn" ? "graph convolutions" : `graph attention (${H} heads)`;
  const title = `${name}, three layers, ${N} nodes, ${E} edges, training step, tf32`;
  return netRow(kind, title, {}, () => {
    const shapes: Shapes = {};
    for (let i = 0; i < 3; i++) {
      Object.assign(shapes, layer(`${i}`.concat(".w"), [widths[i + 1], widths[i]]));
      if (kind === "gat")
        Object.assign(shapes, { [`${i}.from`]: [H, widths[i + 1] / H], [`${i}.to`]: [H, widths[i + 1] / H] });
      if (i < 2) Object.assign(shapes, normShapes(`${i}.n`, widths[i + 1]));
    }
    const x = numbers([N, D], 411);
    const [from, to, y] = [indices([E], 412, N), indices([E], 413, N), indices([N], 414, classes)];
    const loss = (p: Weights): Tensor => {
      const sums = (values: Tensor): Tensor => weft.segmentReduce(values, to, N);
      const degree = sums(weft.ones([E])).add(1);
      const scale = degree.rsqrt();
      const convolve = (h: Tensor): Tensor => {
        const rate = scale.index(from).mul(scale.index(to)).unsqueeze(-1);
        return sums(h.index(from).mul(rate)).add(h.div(degree.unsqueeze(-1)));
      };
      const attend = (h: Tensor, i: number): Tensor => {
        const heads = h.reshape([N, H, h.shape[1] / H]);
        const [a, b] = ["from", "to"].map((part) => heads.mul(p[`${i}.${part}`]).sum(-1));
        const scores = weft.leakyRelu(a.index(from).add(b.index(to)), 0.2);
        const most = weft.stopGradient(weft.segmentReduce(scores, to, N, { mode: "max" }));
        const shares = weft.exp(scores.sub(most.index(to)));
        const weights = shares.div(sums(shares).index(to));
        return sums(heads.index(from).mul(weights.unsqueeze(-1))).reshape(h.shape);
      };
      let h = x.mul(1);
      for (let i = 0; i < 3; i++) {
        const wide = h.matmul(p[`${i}.w`].transpose());
        h = (kind === "gcn" ? convolve(wide) : attend(wide, i)).add(p[`${i}.w.bias`]);
        if (i < 2) h = weft.relu(weft.batchNorm(h, { weight: p[`${i}.n.gain`], bias: p[`${i}.n.bias`] }));
      }
      return weft.crossEntropy(h, y);
    };
    return { shapes, loss, precision: "tf32" };
  });
}

/** A net that solves Burgers' equation: the loss has second derivatives with respect to the inputs. */
function physicsRow(s: Sizer): GeneralRow {
  const [N, D, L] = [s(65536), s(256), s(6)];
  const title = `physics-informed net of Burgers' equation, ${L} layers of ${D}, training step, f32, ${N} points`;
  return netRow("pinn", title, { peers: eager, tolerance: 1e-4 }, () => {
    const widths = [2, ...Array.from({ length: L }, () => D), 1];
    const shapes: Shapes = Object.assign({}, ...widths.slice(1).map((to, i) => layer(`${i}.w`, [to, widths[i]])));
    const [x, t] = [numbers([N], 421), numbers([N], 422)];
    const loss = (p: Weights): Tensor => {
      const net = (a: Tensor, b: Tensor): Tensor => {
        let h = weft.stack([a, b], -1);
        for (let i = 0; i <= L; i++) h = i < L ? weft.tanh(linear(h, p, `${i}.w`)) : linear(h, p, `${i}.w`);
        return h.squeeze(-1);
      };
      const slope = (a: Tensor): [Tensor, Tensor] =>
        weft.grad((q: Tensor, r: Tensor) => net(q, r).sum(), { argument: [0, 1] })(a, t) as [Tensor, Tensor];
      const u = net(x, t);
      const [ux, ut] = slope(x);
      const uxx = weft.grad((q: Tensor) => slope(q)[0].sum())(x);
      const residual = ut.add(u.mul(ux)).sub(uxx.mul(0.01 / Math.PI));
      const start = net(x, weft.zeros([N])).add(weft.sin(x.mul(Math.PI)));
      return residual.square().mean().add(start.square().mean());
    };
    return { shapes, loss, precision: "float32", range: 0.3 };
  });
}

/** Value and gradient of the negative log likelihood of a Gaussian process with one length per feature. */
function gaussianProcessRow(s: Sizer): GeneralRow {
  const [n, d] = [s(4096), 8];
  const likelihood = (lengths: Tensor, scale: Tensor, noise: Tensor, x: Tensor, y: Tensor): Tensor => {
    const z = x.div(weft.exp(lengths));
    const squares = z.square().sum(-1);
    const apart = squares.unsqueeze(1).add(squares).sub(z.matmul(z.transpose()).mul(2));
    const kernel = weft.exp(weft.maximum(apart, 0).mul(-0.5)).mul(weft.exp(scale));
    const factor = weft.cholesky(kernel.add(weft.eye(n, { dtype: "float64" }).mul(weft.exp(noise))));
    const v = weft.triangularSolve(factor, y.unsqueeze(1));
    const logs = weft.log(weft.diagonal(factor)).sum();
    return v.square().sum().mul(0.5).add(logs);
  };
  return rowOf(
    "gaussian-process",
    `likelihood of a Gaussian process of ${n} points with its gradient, f64`,
    (...args) => weft.valueAndGrad(likelihood as (...x: Tensor[]) => Tensor, { argument: [0, 1, 2] })(...args),
    () => [
      numbers([d], 431, "float64"),
      numbers([1], 432, "float64").reshape([]),
      numbers([1], 433, "float64").reshape([]),
      numbers([n, d], 434, "float64"),
      numbers([n], 435, "float64"),
    ],
    { peers: { torch: 1, "torch.compile": null }, tolerance: 1e-5 },
  );
}

export const netRows = (s: Sizer): GeneralRow[] => [
  ...imageNetRows(s),
  t5Row(s),
  expertsRow(s),
  mambaRow(s),
  recommendationRow(s),
  graphRow(s, "gcn"),
  graphRow(s, "gat"),
  languageModelRow(s),
  physicsRow(s),
  gaussianProcessRow(s),
];
