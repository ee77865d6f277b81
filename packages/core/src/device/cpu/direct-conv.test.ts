// Convolutions with few channels per group, whose sums stay in registers, and those whose windows are packed from the image: values and
// both gradients against plain loops, for whole and partial vectors of channels and pixels, paddings, dilations and strides.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";
import { CpuDevice } from "./index.js";

const skip = CpuDevice.available() ? false : "no C compiler";
type Tensor = weft.Tensor;

interface Case {
  groups: number;
  /** Channels of a group, in and out. */
  each: [number, number];
  size: [number, number];
  kernel: [number, number];
  stride?: number;
  padding?: number;
  dilation?: number;
}

const grouped: Case[] = [
  { groups: 33, each: [1, 1], size: [5, 23], kernel: [3, 3], padding: 1 },
  { groups: 16, each: [1, 1], size: [6, 70], kernel: [5, 7], padding: 3 },
  { groups: 17, each: [3, 4], size: [4, 9], kernel: [1, 2], dilation: 2, padding: 1 },
  { groups: 16, each: [2, 2], size: [7, 8], kernel: [3, 3], padding: 1 },
  { groups: 32, each: [2, 1], size: [9, 6], kernel: [2, 3], stride: 2 },
  { groups: 8, each: [4, 2], size: [3, 5], kernel: [3, 5], padding: 4 },
  { groups: 19, each: [1, 1], size: [13, 37], kernel: [7, 7], padding: 3 },
  { groups: 16, each: [1, 1], size: [10, 14], kernel: [3, 5], padding: 2 },
  { groups: 34, each: [1, 1], size: [9, 20], kernel: [3, 3], stride: 2, padding: 1 },
  { groups: 16, each: [1, 1], size: [11, 41], kernel: [2, 9], stride: 3, padding: 2, dilation: 2 },
  { groups: 16, each: [1, 1], size: [3, 4], kernel: [7, 7], padding: 3 },
  { groups: 12, each: [1, 1], size: [9, 21], kernel: [7, 7], padding: 3 },
  { groups: 5, each: [1, 1], size: [6, 11], kernel: [3, 3], stride: 2, padding: 1 },
  { groups: 4, each: [1, 1], size: [1, 1], kernel: [3, 3], padding: 1 },
  { groups: 40, each: [1, 1], size: [5, 9], kernel: [3, 3], padding: 1 },
  { groups: 3, each: [4, 2], size: [5, 6], kernel: [3, 3], padding: 1 },
  { groups: 3, each: [8, 8], size: [5, 7], kernel: [3, 3], padding: 1 },
  { groups: 2, each: [8, 8], size: [6, 5], kernel: [3, 2], stride: 2, padding: 1 },
  { groups: 5, each: [4, 4], size: [5, 6], kernel: [2, 3], padding: 1 },
  { groups: 7, each: [1, 3], size: [4, 9], kernel: [2, 3], padding: 1, dilation: 2 },
  { groups: 16, each: [1, 2], size: [4, 9], kernel: [3, 2], padding: 1 },
];
const packed: Case[] = [
  { groups: 1, each: [3, 5], size: [6, 21], kernel: [3, 2], padding: 1 },
  { groups: 1, each: [1, 1], size: [9, 18], kernel: [5, 5], padding: 2 },
  { groups: 1, each: [16, 33], size: [9, 11], kernel: [3, 3], padding: 1 },
  { groups: 1, each: [48, 16], size: [7, 8], kernel: [3, 2], padding: 2, dilation: 2 },
  { groups: 1, each: [32, 50], size: [8, 9], kernel: [3, 3], stride: 2, padding: 1 },
  { groups: 1, each: [96, 20], size: [4, 5], kernel: [3, 3], padding: 3 },
  { groups: 1, each: [5, 3], size: [6, 5], kernel: [3, 3], padding: 1 },
  { groups: 2, each: [16, 17], size: [5, 4], kernel: [2, 2] },
  { groups: 1, each: [3, 18], size: [6, 7], kernel: [1, 1] },
  { groups: 1, each: [16, 32], size: [8, 11], kernel: [4, 4], stride: 2, padding: 1 },
  { groups: 1, each: [3, 8], size: [9, 10], kernel: [7, 5], stride: 2, padding: 3 },
  { groups: 1, each: [8, 5], size: [7, 9], kernel: [2, 2], stride: 3, padding: 1 },
  { groups: 1, each: [20, 7], size: [5, 6], kernel: [1, 1], stride: 2 },
  { groups: 1, each: [7, 48], size: [4, 19], kernel: [2, 3], padding: 2 },
];
const casesOf = { float32: [...grouped, ...packed], float64: grouped, bfloat16: [...grouped, ...packed] };
const batch = 2;
const numberAt = (i: number): number => ((i * 7919) % 13) - 6;
const filled = (n: number, from: number): number[] => Array.from({ length: n }, (_, i) => numberAt(i + from));
/** To the nearest bfloat16, ties to even, from the bits of a float32 number. */
function toBfloat(x: number): number {
  const [bits] = new Uint32Array(Float32Array.of(x).buffer);
  const kept = (bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000;
  return new Float32Array(Uint32Array.of(kept).buffer)[0];
}
const numbers = async (t: Tensor): Promise<number[]> => Array.from(await t.data(), Number);

for (const channelsLast of [true, false])
  for (const dtype of ["float32", "float64", "bfloat16"] as const)
    test(`channels ${channelsLast ? "last" : "first"}, ${dtype}`, { skip }, async () => {
      weft.setDevice("cpu");
      const prepared = casesOf[dtype].map((given) => {
        const { groups, each, size, kernel, stride = 1, padding = 0, dilation = 1 } = given;
        const [c, o] = [groups * each[0], groups * each[1]];
        const out = size.map((n, i) => Math.floor((n + 2 * padding - dilation * (kernel[i] - 1) - 1) / stride) + 1);
        const [x, w] = [filled(batch * c * size[0] * size[1], 0), filled(o * each[0] * kernel[0] * kernel[1], 5)];
        const cotangent = filled(batch * o * out[0] * out[1], 3);
        const place = (n: number, channel: number, i: number, j: number, all: number, [h, v]: number[]): number =>
          channelsLast ? ((n * h + i) * v + j) * all + channel : ((n * all + channel) * h + i) * v + j;
        const expected = { y: cotangent.map(() => 0), x: x.map(() => 0), w: w.map(() => 0) };
        for (let n = 0; n < batch; n++)
          for (let oc = 0; oc < o; oc++)
            for (let i = 0; i < out[0]; i++)
              for (let j = 0; j < out[1]; j++)
                for (let q = 0; q < each[0] * kernel[0] * kernel[1]; q++) {
                  const [ic, k0, k1] = [
                    Math.floor(q / kernel[0] / kernel[1]),
                    Math.floor(q / kernel[1]) % kernel[0],
                    q % kernel[1],
                  ];
                  const [a, b] = [i * stride + k0 * dilation - padding, j * stride + k1 * dilation - padding];
                  if (a < 0 || a >= size[0] || b < 0 || b >= size[1]) continue;
                  const at = place(n, Math.floor(oc / each[1]) * each[0] + ic, a, b, c, size);
                  const [to, tap] = [place(n, oc, i, j, o, out), oc * each[0] * kernel[0] * kernel[1] + q];
                  expected.y[to] += x[at] * w[tap];
                  expected.x[at] += cotangent[to] * w[tap];
                  expected.w[tap] += cotangent[to] * x[at];
                }
        const shape = (all: number, [h, v]: number[]): number[] =>
          channelsLast ? [batch, h, v, all] : [batch, all, h, v];
        const conv = (a: Tensor, b: Tensor): Tensor =>
          weft.conv2d(a, b, { stride, padding, dilation, groups, channelsLast });
        const image = weft.tensor(x, { shape: shape(c, size), dtype });
        const weight = weft.tensor(w, { shape: [o, each[0], ...kernel], dtype });
        const upstream = weft.tensor(cotangent, { shape: shape(o, out), dtype });
        return { label: JSON.stringify(given), expected, conv, operands: [image, weight, upstream] };
      });
      // All in one program: compiling takes longer than computing.
      const all = weft.jit((operands: Tensor[][]) =>
        operands.map(([a, b, g], i) => {
          const loss = (t: { a: Tensor; b: Tensor }): Tensor => prepared[i].conv(t.a, t.b).mul(g).sum();
          const gradient = weft.grad(loss)({ a, b });
          return [prepared[i].conv(a, b), gradient.a, gradient.b].map((t) => t.cast("float64"));
        }),
      );
      const results = all(prepared.map(({ operands }) => operands));
      // Sums of small whole numbers are exact, and rounded once; a zero may have either sign.
      const plain = (values: readonly number[]): number[] =>
        values.map((v) => (dtype === "bfloat16" ? toBfloat(v) : v) + 0);
      for (const [i, { label, expected }] of prepared.entries()) {
        const [y, gx, gw] = await Promise.all(results[i].map(numbers));
        assert.deepEqual(plain(y), plain(expected.y), `y of ${label}`);
        assert.deepEqual(plain(gx), plain(expected.x), `gradient of x of ${label}`);
        assert.deepEqual(plain(gw), plain(expected.w), `gradient of w of ${label}`);
      }
    });
