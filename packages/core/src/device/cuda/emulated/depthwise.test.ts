// Depthwise convolutions of channels-last images on the emulated GPU: one and two spatial axes, strides, dilation, uneven padding,
// both gradients and half types, against the reference device.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { agree, data, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

interface Case {
  size: number[];
  kernel: number[];
  options: weft.ConvOptions;
  channels?: number;
  dtype?: "float16" | "bfloat16";
}

const cases: Case[] = [
  { size: [9, 10], kernel: [3, 3], options: { padding: 1 } },
  { size: [11, 21], kernel: [5, 7], options: { padding: [2, 3] } },
  {
    size: [7, 9],
    kernel: [2, 5],
    options: {
      padding: [
        [1, 0],
        [3, 1],
      ],
    },
    channels: 12,
  },
  { size: [9, 12], kernel: [3, 3], options: { stride: [2, 1], padding: 1 } },
  { size: [9, 20], kernel: [3, 3], options: { stride: [1, 2], dilation: [1, 2] } },
  { size: [19], kernel: [7], options: { padding: 3 } },
  { size: [6, 8], kernel: [1, 1], options: {} },
  { size: [8, 9], kernel: [3, 3], options: { padding: 1 }, dtype: "bfloat16" },
  { size: [8, 9], kernel: [3, 5], options: { padding: 1 }, dtype: "float16" },
];

for (const { size, kernel, options, channels = 8, dtype } of cases)
  test(`depthwise ${size.join(" x ")} by ${kernel.join(" x ")}, ${JSON.stringify(options)} ${dtype ?? ""}`, {
    skip,
  }, () => {
    const conv = size.length === 1 ? weft.conv1d : weft.conv2d;
    const apply = (x: weft.Tensor, w: weft.Tensor): weft.Tensor =>
      conv(x, w, { ...options, groups: channels, channelsLast: true });
    const operands = (): [weft.Tensor, weft.Tensor] => {
      const [x, w] = [data([2, ...size, channels], 1), data([channels, 1, ...kernel], 2)];
      return dtype === undefined ? [x, w] : [x.cast(dtype), w.cast(dtype)];
    };
    const wide = (t: weft.Tensor): weft.Tensor => t.cast("float32");
    const loss = (x: weft.Tensor, w: weft.Tensor): weft.Tensor => {
      const y = wide(apply(x, w));
      return y.mul(data([...y.shape], 3)).sum();
    };
    const launched = agree(
      () => {
        const [x, w] = operands();
        const [dx, dw] = weft.grad(loss, { argument: [0, 1] })(x, w) as weft.Tensor[];
        return [wide(apply(x, w)), wide(dx), wide(dw)];
      },
      dtype === undefined ? 1e-5 : 0.03,
    );
    const has = (name: string): boolean => launched.some((kernelName) => kernelName.startsWith(`w_depthwise_${name}_`));
    assert.ok((has("apply") || has("tile")) && has("sum"), `${launched}`);
  });

test("depthwise convolutions with channels first are computed with channels last", { skip }, () => {
  const shapes = [
    [2, 32, 9, 8],
    [32, 1, 3, 3],
    [32, 1, 3, 3],
    [32, 1, 5, 5],
  ];
  const operands = (): weft.Tensor[] => shapes.map((shape, i) => data(shape, i + 1).cast("bfloat16"));
  const loss = (x: weft.Tensor, ...weights: weft.Tensor[]): weft.Tensor => {
    const h = weights.reduce((y, w, i) => {
      const padding = (w.shape[2] - 1) / 2;
      return weft.silu(weft.conv2d(y, w, { groups: 32, padding, stride: i === 1 ? 2 : 1 }));
    }, x);
    return h.cast("float32").square().sum();
  };
  const step = weft.jit(weft.grad(loss, { argument: [0, 1, 2, 3] }) as (...x: weft.Tensor[]) => weft.Tensor[]);
  const launched = agree(() => {
    const gradients = step(...operands());
    return gradients.map((g) => g.cast("float32").mul(1 / 16));
  }, 0.05);
  const kernels = launched.filter((name) => name.startsWith("w_depthwise_"));
  assert.equal(kernels.filter((name) => name.startsWith("w_depthwise_sum_")).length, 3, `${launched}`);
});
