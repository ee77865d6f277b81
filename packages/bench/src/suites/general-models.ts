// Whole models of the general GPU suite: training steps of GPT-2 and of a Llama-style stack, and an LSTM by scan. Parameters come
// from the same numbers as those of the peers, and the losses of the first steps are compared.
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";
import { type GeneralRow, indices, numbers, prepared, sameDigest } from "./general-rows.js";

type Params = Record<string, Tensor>;

/** Parameters of a given deviation; gains of norms are 1 and biases 0. */
function parameters(shapes: Record<string, readonly number[]>): Params {
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape], i) => {
      const fill = name.endsWith("gain") ? 1 : name.endsWith("bias") ? 0 : null;
      if (fill !== null) return [name, weft.full([...shape], fill).realize()];
      return [
        name,
        weft
          .jit((x: Tensor) => x.mul(0.035))(numbers(shape, i + 1))
          .realize(),
      ];
    }),
  );
}

/** A training step with AdamW; the numbers to compare are the losses of the first three steps. */
function trainingRow(params: Params, loss: (p: Params) => Tensor, precision: "bf16" | "tf32") {
  const optimizer = optim.adamW({ learningRate: 1e-4 });
  const cast = (p: Params): Params => (precision === "bf16" ? nn.castParameters(p, "bfloat16") : p);
  const step = weft.jit(
    (p: Params, s: ReturnType<typeof optimizer.init>) =>
      weft.withPrecision(precision, () => {
        const [value, grads] = weft.valueAndGrad((q: Params) => loss(cast(q)))(p);
        return [...optimizer.update(p, grads as Params, s), value] as const;
      }),
    { donate: [0, 1] },
  );
  let [p, s] = [params, optimizer.init(params)];
  let value: Tensor | null = null;
  const call = (): void => {
    value?.dispose();
    [p, s, value] = step(p, s) as unknown as [Params, typeof s, Tensor];
  };
  const check = [1, 2, 3].map(() => {
    call();
    return Number(value!.dataSync()[0]);
  });
  const release = (): void => {
    for (const leaf of weft.treeLeaves([p, s, value] as never)) (leaf as Tensor).dispose();
  };
  return { check, call, finish: () => weft.session().device.synchronize(), release };
}

const closeLosses =
  (tolerance: number): GeneralRow["check"] =>
  ({ weft: own, ...peers }) => {
    for (const [name, other] of Object.entries(peers))
      for (let i = 0; i < own.length; i++)
        if (!(Math.abs(own[i] - other[i]) <= tolerance * Math.max(1, Math.abs(other[i]))))
          return `loss ${i + 1} is ${own[i]}, ${name} has ${other[i]}`;
    return null;
  };

/** The step of GPT-2 124M: pre-norm blocks, learned positions, tied embedding. */
function gptRow(batch: number, precision: "bf16" | "tf32", wanted: number): GeneralRow {
  const [layers, width, heads, length, vocabulary] = [12, 768, 12, 1024, 50304];
  const tokens = batch * length;
  const weights = layers * 12 * width * width + vocabulary * width;
  return {
    id: `gpt2-${precision}`,
    title: `GPT-2 124M training step, ${precision}, batch ${batch} x ${length}`,
    peers: { "torch.compile": wanted, torch: null },
    names: { torch: `gpt2 ${batch} ${precision}`, "torch.compile": `gpt2-compiled ${batch} ${precision}` },
    check: closeLosses(0.01),
    flops: tokens * (6 * weights + 12 * layers * width * length),
    make(quick) {
      const [L, D, H, T, B, V] = quick ? [1, 16, 2, 8, 2, 32] : [layers, width, heads, length, batch, vocabulary];
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
      const linear = (h: Tensor, p: Params, name: string): Tensor =>
        h.matmul(p[name].transpose()).add(p[`${name}.bias`]);
      const norm = (h: Tensor, p: Params, name: string): Tensor =>
        weft.layerNorm(h).mul(p[`${name}.gain`]).add(p[`${name}.bias`]);
      const loss = (p: Params): Tensor => {
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

const llamaRow: GeneralRow = {
  id: "llama",
  title: "Llama-style stack (8 layers, width 2048, 16 heads, 4 key heads, SwiGLU), training step, bf16, 4 x 2048",
  peers: { "torch.compile": 1, torch: null },
  names: { torch: "llama", "torch.compile": "llama-compiled" },
  check: closeLosses(0.01),
  make(quick) {
    const [L, D, H, G, F, T, B] = quick ? [1, 32, 4, 2, 64, 8, 2] : [8, 2048, 16, 4, 5632, 2048, 4];
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
    const loss = (p: Params): Tensor => {
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
  },
};

const lstmRow: GeneralRow = {
  id: "lstm",
  title: "LSTM by scan, value and gradient, 256 steps, batch 128, width 512, tf32",
  peers: { torch: 1 },
  check: sameDigest(0.05),
  make(quick) {
    const [T, B, D] = quick ? [4, 2, 8] : [256, 128, 512];
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
  },
};

export const modelRows: GeneralRow[] = [gptRow(16, "bf16", 1.05), gptRow(8, "tf32", 1), llamaRow, lstmRow];
