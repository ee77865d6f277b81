// Whole models of the general suite: training steps of GPT-2, of a Llama-style stack and of ResNet-50, and an LSTM by scan. Parameters come
// from the same numbers as those of the peers, and the losses of the first steps are compared.
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import type { PreparedRow } from "./contestant.js";
import { type GeneralRow, indices, numbers, prepared, type Sizer, sameDigest } from "./general-row.js";
import { closeLosses, parameters, trainingRow, type Weights } from "./general-training.js";

/** The step of GPT-2 124M: pre-norm blocks, learned positions, tied embedding. */
function gptRow(s: Sizer, size: number, precision: "bf16" | "tf32", wanted: number): GeneralRow {
  const [layers, width, length, vocabulary, batch] = [s(12), s(768), s(1024), s(50304), s(size)];
  const heads = Math.max(1, width / 64);
  const tokens = batch * length;
  const weights = layers * 12 * width * width + vocabulary * width;
  return {
    id: `gpt2-${precision}`,
    title: `GPT-2 training step, ${layers} layers, width ${width}, ${precision}, batch ${batch} x ${length}`,
    peers: { "torch.compile": wanted, torch: null },
    names: { torch: `gpt2 ${size} ${precision}`, "torch.compile": `gpt2-compiled ${size} ${precision}` },
    check: closeLosses(0.002),
    flops: tokens * (6 * weights + 12 * layers * width * length),
    make() {
      const [L, D, H, T, B, V] = [layers, width, heads, length, batch, vocabulary];
      const shapes: Record<string, readonly number[]> = {
        wte: [V, D],
        wpe: [T, D],
        "last.gain": [D],
        "last.bias": [D],
      };
      for (let i = 0; i < L; i++)
        Object.assign(shapes, {
          [`${i}.n1.gain`]: [D],
          [`${i}.n1.bias`]: [D],
          [`${i}.qkv`]: [3 * D, D],
          [`${i}.qkv.bias`]: [3 * D],
          [`${i}.out`]: [D, D],
          [`${i}.out.bias`]: [D],
          [`${i}.n2.gain`]: [D],
          [`${i}.n2.bias`]: [D],
          [`${i}.up`]: [4 * D, D],
          [`${i}.up.bias`]: [4 * D],
          [`${i}.down`]: [D, 4 * D],
          [`${i}.down.bias`]: [D],
        });
      const [x, y] = [indices([B, T], 101, V), indices([B, T], 102, V)];
      const linear = (h: Tensor, p: Weights, name: string): Tensor =>
        h.matmul(p[name].transpose()).add(p[`${name}.bias`]);
      const norm = (h: Tensor, p: Weights, name: string): Tensor =>
        weft.layerNorm(h).mul(p[`${name}.gain`]).add(p[`${name}.bias`]);
      const loss = (p: Weights): Tensor => {
        let h = weft.take(p.wte, x, 0).add(p.wpe);
        for (let i = 0; i < L; i++) {
          const joint = linear(norm(h, p, `${i}.n1`), p, `${i}.qkv`).reshape([B, T, 3, H, D / H]);
          const seen = weft.packedAttention(joint, { causal: true }).reshape([B, T, D]);
          h = h.add(linear(seen, p, `${i}.out`));
          h = h.add(linear(weft.gelu(linear(norm(h, p, `${i}.n2`), p, `${i}.up`)), p, `${i}.down`));
        }
        return weft.crossEntropy(norm(h, p, "last").matmul(p.wte.transpose()).cast("float32"), y);
      };
      return trainingRow(parameters(shapes), loss, precision);
    },
  };
}

/** Rotary position embedding of [batch, heads, length, size]: pairs are halves of a head. */
function rotate(x: Tensor): Tensor {
  const [length, size] = x.shape.slice(-2);
  const half = size / 2;
  const angles = weft
    .arange(0, length)
    .unsqueeze(1)
    .mul(weft.exp(weft.arange(0, half).mul(-Math.log(10000) / half)));
  const [c, s] = [weft.cos(angles).cast(x.dtype), weft.sin(angles).cast(x.dtype)];
  const [a, b] = [x.index("...", `0:${half}`), x.index("...", `${half}:${size}`)];
  return weft.concat([a.mul(c).sub(b.mul(s)), a.mul(s).add(b.mul(c))], -1);
}

function llamaRow(s: Sizer): GeneralRow {
  const [L, D, F, T, B] = [s(8), s(2048), s(5632), s(2048), s(4)];
  const H = Math.max(1, D / 128);
  const G = Math.max(1, H / 4);
  const make = (): PreparedRow => {
    const size = D / H;
    const shapes: Record<string, readonly number[]> = {};
    for (let i = 0; i < L; i++)
      Object.assign(shapes, {
        [`${i}.n1.gain`]: [D],
        [`${i}.q`]: [D, D],
        [`${i}.k`]: [G * size, D],
        [`${i}.v`]: [G * size, D],
        [`${i}.o`]: [D, D],
        [`${i}.n2.gain`]: [D],
        [`${i}.gate`]: [F, D],
        [`${i}.up`]: [F, D],
        [`${i}.down`]: [D, F],
      });
    const input = numbers([B, T, D], 77, "bfloat16");
    const norm = (h: Tensor, gain: Tensor): Tensor => {
      const wide = h.cast("float32");
      return wide
        .mul(wide.square().mean(-1, { keepDims: true }).add(1e-6).rsqrt())
        .cast(h.dtype)
        .mul(gain);
    };
    const heads = (x: Tensor, count: number): Tensor => x.reshape([B, T, count, size]).transpose(1, 2);
    const loss = (p: Weights): Tensor => {
      let h = input.cast("bfloat16");
      for (let i = 0; i < L; i++) {
        const n = norm(h, p[`${i}.n1.gain`]);
        const [q, k, v] = [p[`${i}.q`], p[`${i}.k`], p[`${i}.v`]].map((w) => n.matmul(w.transpose()));
        const seen = weft.scaledDotProductAttention(rotate(heads(q, H)), rotate(heads(k, G)), heads(v, G), {
          causal: true,
        });
        h = h.add(seen.transpose(1, 2).reshape([B, T, D]).matmul(p[`${i}.o`].transpose()));
        const m = norm(h, p[`${i}.n2.gain`]);
        const gated = weft.silu(m.matmul(p[`${i}.gate`].transpose())).mul(m.matmul(p[`${i}.up`].transpose()));
        h = h.add(gated.matmul(p[`${i}.down`].transpose()));
      }
      return h.cast("float32").square().mean();
    };
    return trainingRow(parameters(shapes), loss, "bf16");
  };
  return {
    id: "llama",
    title: `Llama-style stack (${L} layers, width ${D}, ${H} heads, ${G} key heads, SwiGLU), training step, bf16, ${B} x ${T}`,
    peers: { "torch.compile": 1, torch: null },
    names: { torch: "llama", "torch.compile": "llama-compiled" },
    check: closeLosses(0.002),
    make,
  };
}

function lstmRow(s: Sizer): GeneralRow {
  const [T, B, D] = [s(256), s(128), s(512)];
  const make = (): PreparedRow => {
    const run = (wx: Tensor, wh: Tensor, xs: Tensor): Tensor => {
      const inputs = xs.matmul(wx.transpose().mul(0.05));
      const w = wh.transpose().mul(0.05);
      const cell = ([h, c]: [Tensor, Tensor], x: Tensor): [[Tensor, Tensor], Tensor] => {
        const gates = x.add(h.matmul(w));
        const part = (k: number): Tensor => gates.index(":", `${k * D}:${(k + 1) * D}`);
        const next = weft
          .sigmoid(part(1))
          .mul(c)
          .add(weft.sigmoid(part(0)).mul(weft.tanh(part(2))));
        const out = weft.sigmoid(part(3)).mul(weft.tanh(next));
        return [[out, next], out];
      };
      const zero = weft.zeros([B, D]);
      const [, hs] = weft.scan(cell, [zero, zero] as [Tensor, Tensor], inputs);
      return (hs as Tensor).square().mean();
    };
    const f = (...args: Tensor[]) =>
      weft.withPrecision("tf32", () => weft.grad(run, { argument: [0, 1] })(args[0], args[1], args[2]));
    return prepared(f as never, [numbers([4 * D, D], 1), numbers([4 * D, D], 2), numbers([T, B, D], 3)]);
  };
  return {
    id: "lstm",
    title: `LSTM by scan, value and gradient, ${T} steps, batch ${B}, width ${D}, tf32`,
    peers: { torch: 1 },
    check: sameDigest(0.05),
    make,
  };
}

/** The training step of ResNet-50, channels-last. */
function resnetRow(s: Sizer, precision: "bf16" | "tf32"): GeneralRow {
  const [B, size, classes] = [s(128), s(224), s(1000)];
  const blocks = s(16) < 16 ? [1, 1, 1, 1] : [3, 4, 6, 3];
  const widths = [64, 128, 256, 512].map(s);
  const make = (): PreparedRow => {
    const shapes: Record<string, readonly number[]> = {};
    const conv = (name: string, from: number, to: number, kernel: number): void => {
      Object.assign(shapes, { [name]: [to, from, kernel, kernel], [`${name}.gain`]: [to], [`${name}.bias`]: [to] });
    };
    conv("stem", 3, widths[0], 7);
    let channels = widths[0];
    blocks.forEach((count, stage) => {
      for (let i = 0; i < count; i++) {
        const [name, width] = [`${stage}.${i}`, widths[stage]];
        conv(`${name}.a`, channels, width, 1);
        conv(`${name}.b`, width, width, 3);
        conv(`${name}.c`, width, 4 * width, 1);
        if (i === 0) conv(`${name}.d`, channels, 4 * width, 1);
        channels = 4 * width;
      }
    });
    Object.assign(shapes, { head: [classes, channels], "head.bias": [classes] });
    const x = numbers([B, size, size, 3], 201, precision === "bf16" ? "bfloat16" : "float32");
    const y = indices([B], 202, classes);
    const loss = (p: Weights): Tensor => {
      const layer = (h: Tensor, name: string, stride = 1): Tensor => {
        const kernel = shapes[name][2];
        const to = weft.conv2d(h, p[name], { stride, padding: (kernel - 1) / 2, channelsLast: true });
        return weft.batchNorm(to, { weight: p[`${name}.gain`], bias: p[`${name}.bias`], channelsLast: true });
      };
      let h = weft.relu(layer(x, "stem", 2));
      h = weft.maxPool2d(h, { kernel: 3, stride: 2, padding: 1, channelsLast: true });
      blocks.forEach((count, stage) => {
        for (let i = 0; i < count; i++) {
          const [name, stride] = [`${stage}.${i}`, i === 0 && stage > 0 ? 2 : 1];
          const inner = weft.relu(layer(weft.relu(layer(h, `${name}.a`)), `${name}.b`, stride));
          h = weft.relu(layer(inner, `${name}.c`).add(i === 0 ? layer(h, `${name}.d`, stride) : h));
        }
      });
      const logits = h.mean([1, 2]).matmul(p.head.transpose()).add(p["head.bias"]);
      return weft.crossEntropy(logits.cast("float32"), y);
    };
    return trainingRow(parameters(shapes), loss, precision);
  };
  return {
    id: `resnet50-${precision}`,
    title: `ResNet-50 training step, ${precision}, channels-last, batch ${B} x ${size} x ${size}`,
    peers: { "torch.compile": 1, torch: null },
    names: { torch: `resnet50 ${precision}`, "torch.compile": `resnet50-compiled ${precision}` },
    check: closeLosses(0.01),
    make,
  };
}

export const modelRows = (s: Sizer): GeneralRow[] => [
  resnetRow(s, "tf32"),
  gptRow(s, 16, "bf16", 1.05),
  gptRow(s, 8, "tf32", 1),
  llamaRow(s),
  lstmRow(s),
  resnetRow(s, "bf16"),
];
