// Whole models of the general suite that read or make images: ViT, EfficientNet, ConvNeXt, a diffusion U-Net, a variational autoencoder
// with transposed convolutions, and MLP-Mixer. The peer is peers/torch_nets_images.py.
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { type GeneralRow, indices, numbers, type Sizer } from "./general-row.js";
import { few, layers, netRow, type Shapes, shapesOf, type Weights } from "./general-training.js";

const { linear, norm } = layers;
const { layer, norm: normShapes } = shapesOf;
const half = "bfloat16";

/** Shapes of a transformer block with biases; attention is one projection to queries, keys and values. */
const blockShapes = (name: string, d: number): Shapes => ({
  ...normShapes(`${name}.n1`, d),
  ...layer(`${name}.qkv`, [3 * d, d]),
  ...layer(`${name}.out`, [d, d]),
  ...normShapes(`${name}.n2`, d),
  ...layer(`${name}.up`, [4 * d, d]),
  ...layer(`${name}.down`, [d, 4 * d]),
});

function vitRow(s: Sizer): GeneralRow {
  const [B, size, patch, D, L, classes] = [s(64), s(224), s(16), s(768), s(12), s(1000)];
  const heads = Math.max(1, D / 64);
  const tokens = (size / patch) ** 2;
  return netRow("vit", `ViT-B/16 training step, bf16, batch ${B} x ${size} x ${size}`, {}, () => {
    const shapes: Shapes = {
      ...layer("patch", [D, 3, patch, patch]),
      class: [1, 1, D],
      place: [1, tokens + 1, D],
      ...Object.assign({}, ...Array.from({ length: L }, (_, i) => blockShapes(`${i}`, D))),
      ...normShapes("last", D),
      ...layer("head", [classes, D]),
    };
    const [x, y] = [numbers([B, 3, size, size], 301, half), indices([B], 302, classes)];
    const loss = (p: Weights): Tensor => {
      const patches = weft.conv2d(x, p.patch, { stride: patch, bias: p["patch.bias"] });
      const line = patches.reshape([B, D, tokens]).transpose(1, 2);
      let h = weft.concat([p.class.expand([B, 1, D]), line], 1).add(p.place);
      for (let i = 0; i < L; i++) {
        const joint = linear(norm(h, p, `${i}.n1`), p, `${i}.qkv`).reshape([B, tokens + 1, 3, heads, D / heads]);
        h = h.add(linear(weft.packedAttention(joint).reshape([B, tokens + 1, D]), p, `${i}.out`));
        h = h.add(linear(weft.gelu(linear(norm(h, p, `${i}.n2`), p, `${i}.up`)), p, `${i}.down`));
      }
      const logits = linear(norm(h, p, "last").index(":", 0), p, "head");
      return weft.crossEntropy(logits.cast("float32"), y);
    };
    return { shapes, loss, precision: "bf16" };
  });
}

function mixerRow(s: Sizer): GeneralRow {
  const [B, size, patch, D, L, classes] = [s(64), s(224), s(16), s(768), s(12), s(1000)];
  const T = (size / patch) ** 2;
  return netRow("mlp-mixer", `MLP-Mixer B/16 training step, bf16, batch ${B} x ${size} x ${size}`, {}, () => {
    const shapes: Shapes = { ...layer("patch", [D, 3, patch, patch]) };
    for (let i = 0; i < L; i++)
      Object.assign(shapes, {
        ...normShapes(`${i}.n1`, D),
        ...layer(`${i}.mix`, [D / 2, T]),
        ...layer(`${i}.unmix`, [T, D / 2]),
        ...normShapes(`${i}.n2`, D),
        ...layer(`${i}.up`, [4 * D, D]),
        ...layer(`${i}.down`, [D, 4 * D]),
      });
    Object.assign(shapes, { ...normShapes("last", D), ...layer("head", [classes, D]) });
    const [x, y] = [numbers([B, 3, size, size], 311, half), indices([B], 312, classes)];
    const loss = (p: Weights): Tensor => {
      const mlp = (h: Tensor, a: string, b: string): Tensor => linear(weft.gelu(linear(h, p, a)), p, b);
      const patches = weft.conv2d(x, p.patch, { stride: patch, bias: p["patch.bias"] });
      let h = patches.reshape([B, D, T]).transpose(1, 2);
      for (let i = 0; i < L; i++) {
        const across = norm(h, p, `${i}.n1`).transpose(1, 2);
        h = h.add(mlp(across, `${i}.mix`, `${i}.unmix`).transpose(1, 2));
        h = h.add(mlp(norm(h, p, `${i}.n2`), `${i}.up`, `${i}.down`));
      }
      return weft.crossEntropy(linear(norm(h, p, "last").mean(1), p, "head").cast("float32"), y);
    };
    return { shapes, loss, precision: "bf16" };
  });
}

/** Height and width of images that are halved five times. */
const imageSize = (s: Sizer): number => Math.max(64, s(224));

/** Expansion, channels, repetitions, stride and kernel of the stages of EfficientNet-B0. */
const stages = [
  [1, 16, 1, 1, 3],
  [6, 24, 2, 2, 3],
  [6, 40, 2, 2, 5],
  [6, 80, 3, 2, 3],
  [6, 112, 3, 1, 5],
  [6, 192, 4, 2, 5],
  [6, 320, 1, 1, 3],
];

function efficientNetRow(s: Sizer): GeneralRow {
  const [B, size, classes] = [few(s, 128), imageSize(s), s(1000)];
  return netRow(
    "efficientnet",
    `EfficientNet-B0 training step, bf16, batch ${B} x ${size} x ${size}`,
    { tolerance: 0.02 },
    () => {
      const shapes: Shapes = {};
      const conv = (name: string, to: number, from: number, kernel: number): void => {
        Object.assign(shapes, { [name]: [to, from, kernel, kernel], [`${name}.gain`]: [to], [`${name}.bias`]: [to] });
      };
      const blocks: { name: string; stride: number; from: number; to: number; inner: number }[] = [];
      conv("stem", s(32), 3, 3);
      let channels = s(32);
      stages.forEach(([expansion, width, count, stride, kernel], stage) => {
        for (let i = 0; i < count; i++) {
          const [name, inner, to] = [`${stage}.${i}`, channels * expansion, s(width)];
          if (expansion > 1) conv(`${name}.expand`, inner, channels, 1);
          conv(`${name}.depth`, inner, 1, kernel);
          Object.assign(
            shapes,
            layer(`${name}.squeeze`, [channels / 4, inner]),
            layer(`${name}.excite`, [inner, channels / 4]),
          );
          conv(`${name}.project`, to, inner, 1);
          blocks.push({ name, stride: i === 0 ? stride : 1, from: channels, to, inner });
          channels = to;
        }
      });
      conv("last", s(1280), channels, 1);
      Object.assign(shapes, layer("head", [classes, s(1280)]));
      const [x, y] = [numbers([B, 3, size, size], 321, half), indices([B], 322, classes)];
      const loss = (p: Weights): Tensor => {
        const convolve = (h: Tensor, name: string, stride = 1, groups = 1): Tensor => {
          const padding = (shapes[name][2] - 1) / 2;
          const to = weft.conv2d(h, p[name], { stride, padding, groups });
          return weft.batchNorm(to, { weight: p[`${name}.gain`], bias: p[`${name}.bias`] });
        };
        let h = weft.silu(convolve(x, "stem", 2));
        for (const { name, stride, from, to, inner } of blocks) {
          const wide = inner === from ? h : weft.silu(convolve(h, `${name}.expand`));
          const deep = weft.silu(convolve(wide, `${name}.depth`, stride, inner));
          const squeezed = weft.silu(linear(deep.mean([2, 3]), p, `${name}.squeeze`));
          const gates = weft.sigmoid(linear(squeezed, p, `${name}.excite`)).reshape([B, inner, 1, 1]);
          const narrow = convolve(deep.mul(gates), `${name}.project`);
          h = stride === 1 && from === to ? h.add(narrow) : narrow;
        }
        const pooled = weft.silu(convolve(h, "last")).mean([2, 3]);
        return weft.crossEntropy(linear(pooled, p, "head").cast("float32"), y);
      };
      return { shapes, loss, precision: "bf16" };
    },
  );
}

function convNextRow(s: Sizer): GeneralRow {
  const [B, size, classes] = [few(s, 64), imageSize(s), s(1000)];
  const depths = s(16) < 16 ? [1, 1, 1, 1] : [3, 3, 9, 3];
  const widths = [96, 192, 384, 768].map(s);
  const title = `ConvNeXt-T training step, bf16, channels-last, batch ${B} x ${size} x ${size}`;
  return netRow("convnext", title, { tolerance: 0.02 }, () => {
    const shapes: Shapes = { ...layer("stem", [widths[0], 3, 4, 4]), ...normShapes("stem.n", widths[0]) };
    depths.forEach((count, stage) => {
      const d = widths[stage];
      if (stage > 0)
        Object.assign(
          shapes,
          normShapes(`${stage}.n`, widths[stage - 1]),
          layer(`${stage}.down`, [d, widths[stage - 1], 2, 2]),
        );
      for (let i = 0; i < count; i++)
        Object.assign(shapes, {
          ...layer(`${stage}.${i}.depth`, [d, 1, 7, 7]),
          ...normShapes(`${stage}.${i}.n`, d),
          ...layer(`${stage}.${i}.up`, [4 * d, d]),
          ...layer(`${stage}.${i}.down`, [d, 4 * d]),
          [`${stage}.${i}.scale.gain`]: [d],
        });
    });
    Object.assign(shapes, { ...normShapes("last", widths[3]), ...layer("head", [classes, widths[3]]) });
    const [x, y] = [numbers([B, size, size, 3], 331, half), indices([B], 332, classes)];
    const loss = (p: Weights): Tensor => {
      const conv = (h: Tensor, name: string, options: { stride?: number; padding?: number; groups?: number }): Tensor =>
        weft.conv2d(h, p[name], { ...options, bias: p[`${name}.bias`], channelsLast: true });
      let h = norm(conv(x, "stem", { stride: 4 }), p, "stem.n");
      depths.forEach((count, stage) => {
        if (stage > 0) h = conv(norm(h, p, `${stage}.n`), `${stage}.down`, { stride: 2 });
        for (let i = 0; i < count; i++) {
          const name = `${stage}.${i}`;
          const deep = norm(conv(h, `${name}.depth`, { padding: 3, groups: widths[stage] }), p, `${name}.n`);
          const inner = linear(weft.gelu(linear(deep, p, `${name}.up`)), p, `${name}.down`);
          h = h.add(inner.mul(p[`${name}.scale.gain`]));
        }
      });
      return weft.crossEntropy(linear(norm(h.mean([1, 2]), p, "last"), p, "head").cast("float32"), y);
    };
    return { shapes, loss, precision: "bf16" };
  });
}

/** The step of a diffusion model: the noise of images is predicted from the noisy images and their times. */
function unetRow(s: Sizer): GeneralRow {
  const [B, size, C] = [few(s, 64), s(32), s(128)];
  const widths = [C, 2 * C, 2 * C, 2 * C];
  const levels = s(16) < 16 ? 2 : 4;
  const groups = Math.min(32, C);
  const time = 4 * C;
  const title = `diffusion U-Net training step, width ${C}, bf16, batch ${B} x ${size} x ${size}`;
  return netRow("unet", title, { tolerance: 0.02 }, () => {
    const shapes: Shapes = {
      ...layer("time.0", [time, C]),
      ...layer("time.1", [time, time]),
      ...layer("in", [C, 3, 3, 3]),
    };
    const residual = (name: string, from: number, to: number): void => {
      Object.assign(shapes, {
        ...normShapes(`${name}.n1`, from),
        ...layer(`${name}.c1`, [to, from, 3, 3]),
        ...layer(`${name}.time`, [to, time]),
        ...normShapes(`${name}.n2`, to),
        ...layer(`${name}.c2`, [to, to, 3, 3]),
        ...(from === to ? {} : layer(`${name}.skip`, [to, from, 1, 1])),
      });
    };
    const attention = (name: string, d: number): void => {
      Object.assign(shapes, normShapes(`${name}.n`, d), layer(`${name}.qkv`, [3 * d, d]), layer(`${name}.out`, [d, d]));
    };
    const down: number[] = [C];
    let channels = C;
    for (let l = 0; l < levels; l++) {
      for (const i of [0, 1]) {
        residual(`d${l}.${i}`, channels, widths[l]);
        channels = widths[l];
        if (l === 1) attention(`d${l}.${i}.a`, channels);
        down.push(channels);
      }
      if (l + 1 < levels) {
        Object.assign(shapes, layer(`d${l}.down`, [channels, channels, 3, 3]));
        down.push(channels);
      }
    }
    residual("m.0", channels, channels);
    attention("m.a", channels);
    residual("m.1", channels, channels);
    for (let l = levels - 1; l >= 0; l--) {
      for (const i of [0, 1, 2]) {
        residual(`u${l}.${i}`, channels + down.pop()!, widths[l]);
        channels = widths[l];
        if (l === 1) attention(`u${l}.${i}.a`, channels);
      }
      if (l > 0) Object.assign(shapes, layer(`u${l}.up`, [channels, channels, 3, 3]));
    }
    Object.assign(shapes, normShapes("last", channels), layer("out", [3, channels, 3, 3]));
    const [x, noise] = [numbers([B, 3, size, size], 341, half), numbers([B, 3, size, size], 342)];
    const t = indices([B], 343, 1000);
    const loss = (p: Weights): Tensor => {
      const conv = (h: Tensor, name: string, stride = 1): Tensor =>
        weft.conv2d(h, p[name], { stride, padding: (shapes[name][2] - 1) / 2, bias: p[`${name}.bias`] });
      const grouped = (h: Tensor, name: string): Tensor =>
        weft.groupNorm(h, groups, { weight: p[`${name}.gain`], bias: p[`${name}.bias`] });
      const rates = weft.exp(weft.arange(0, C / 2).mul(-Math.log(10000) / (C / 2)));
      const angles = t.cast("float32").unsqueeze(1).mul(rates);
      const wave = weft.concat([weft.sin(angles), weft.cos(angles)], -1).cast(half);
      const when = weft.silu(linear(weft.silu(linear(wave, p, "time.0")), p, "time.1"));
      const res = (h: Tensor, name: string): Tensor => {
        const first = conv(weft.silu(grouped(h, `${name}.n1`)), `${name}.c1`);
        const timed = first.add(linear(when, p, `${name}.time`).unsqueeze(-1).unsqueeze(-1));
        const second = conv(weft.silu(grouped(timed, `${name}.n2`)), `${name}.c2`);
        return second.add(p[`${name}.skip`] === undefined ? h : conv(h, `${name}.skip`));
      };
      const attend = (h: Tensor, name: string): Tensor => {
        const [, d, height, width] = h.shape;
        const line = grouped(h, `${name}.n`)
          .reshape([B, d, height * width])
          .transpose(1, 2);
        const size = Math.min(64, d);
        const joint = linear(line, p, `${name}.qkv`).reshape([B, height * width, 3, d / size, size]);
        const seen = linear(weft.packedAttention(joint).reshape([B, height * width, d]), p, `${name}.out`);
        return h.add(seen.transpose(1, 2).reshape(h.shape));
      };
      let h = conv(x, "in");
      const skips = [h];
      for (let l = 0; l < levels; l++) {
        for (const i of [0, 1]) {
          h = res(h, `d${l}.${i}`);
          if (l === 1) h = attend(h, `d${l}.${i}.a`);
          skips.push(h);
        }
        if (l + 1 < levels) skips.push((h = conv(h, `d${l}.down`, 2)));
      }
      h = res(attend(res(h, "m.0"), "m.a"), "m.1");
      for (let l = levels - 1; l >= 0; l--) {
        for (const i of [0, 1, 2]) {
          h = res(weft.concat([h, skips.pop()!], 1), `u${l}.${i}`);
          if (l === 1) h = attend(h, `u${l}.${i}.a`);
        }
        if (l > 0) h = conv(weft.interpolate(h, { scale: 2 }), `u${l}.up`);
      }
      return weft.mseLoss(conv(weft.silu(grouped(h, "last")), "out").cast("float32"), noise);
    };
    return { shapes, loss, precision: "bf16" };
  });
}

/** A variational autoencoder with the encoder and the decoder of DCGAN. */
function vaeRow(s: Sizer): GeneralRow {
  const [B, size, Z] = [few(s, 256), 64, s(128)];
  const widths = [64, 128, 256, 512].map(s);
  const title = `variational autoencoder with transposed convolutions, training step, tf32, batch ${B} x ${size} x ${size}`;
  return netRow("vae", title, { tolerance: 0.01 }, () => {
    const shapes: Shapes = {};
    const kernel = (name: string, a: number, b: number, to: number): void => {
      Object.assign(shapes, { [name]: [a, b, 4, 4], [`${name}.gain`]: [to], [`${name}.bias`]: [to] });
    };
    widths.forEach((width, i) => {
      kernel(`e${i}`, width, i === 0 ? 3 : widths[i - 1], width);
    });
    const flat = widths[3] * (size / 16) ** 2;
    Object.assign(shapes, layer("code", [2 * Z, flat]), layer("decode", [flat, Z]));
    for (let i = 3; i > 0; i--) kernel(`g${i}`, widths[i], widths[i - 1], widths[i - 1]);
    Object.assign(shapes, layer("g0", [widths[0], 3, 4, 4], 3));
    const [x, noise] = [numbers([B, 3, size, size], 351), numbers([B, Z], 352)];
    const loss = (p: Weights): Tensor => {
      const normed = (h: Tensor, name: string): Tensor =>
        weft.batchNorm(h, { weight: p[`${name}.gain`], bias: p[`${name}.bias`] });
      let h = x;
      for (let i = 0; i < 4; i++)
        h = weft.leakyRelu(normed(weft.conv2d(h, p[`e${i}`], { stride: 2, padding: 1 }), `e${i}`), 0.2);
      const code = linear(h.reshape([B, flat]), p, "code");
      const [mean, logs] = [code.index(":", `:${Z}`), code.index(":", `${Z}:`)];
      const z = mean.add(noise.mul(weft.exp(logs.mul(0.5))));
      let g = linear(z, p, "decode").reshape([B, widths[3], size / 16, size / 16]);
      for (let i = 3; i > 0; i--)
        g = weft.relu(normed(weft.convTranspose2d(g, p[`g${i}`], { stride: 2, padding: 1 }), `g${i}`));
      const image = weft.tanh(weft.convTranspose2d(g, p.g0, { stride: 2, padding: 1, bias: p["g0.bias"] }));
      const divergence = mean.square().add(weft.exp(logs)).sub(1).sub(logs).sum(1).mean().mul(0.5);
      return image.sub(x).square().mean().add(divergence.mul(0.001));
    };
    return { shapes, loss, precision: "tf32" };
  });
}

export const imageNetRows = (s: Sizer): GeneralRow[] => [
  vitRow(s),
  efficientNetRow(s),
  convNextRow(s),
  unetRow(s),
  vaeRow(s),
  mixerRow(s),
];
