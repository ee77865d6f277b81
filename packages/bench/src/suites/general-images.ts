// Rows of the general suite on images: convolutions of every kind with gradients, pooling, normalization and interpolation. The
// peer is peers/torch_images.py.
import type { ConvOptions, DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { compiled, type GeneralRow, numbers, rowOf, type Sizer, tf32 } from "./general-row.js";

interface ConvRow {
  id: string;
  batch: number;
  channels: number;
  out?: number;
  size: readonly number[];
  kernel: number;
  dtype?: DType;
  backward?: boolean;
  options?: ConvOptions;
}

/** A convolution with padding that keeps the size, or its gradients with respect to both operands. */
function convRow(row: ConvRow, s: Sizer): GeneralRow {
  const { kernel, dtype = "bfloat16", backward = false, options = {} } = row;
  const [batch, channels, size] = [s(row.batch), s(row.channels), row.size.map(s)];
  const out = row.out === undefined ? channels : s(row.out);
  const groups = options.groups === row.channels ? channels : Math.min(channels, options.groups ?? 1);
  const { channelsLast = false, stride = 1, dilation = 1 } = options;
  const convolve = [weft.conv1d, weft.conv2d, weft.conv3d][size.length - 1];
  const padding = ((kernel - 1) / 2) * (dilation as number);
  const apply = (x: Tensor, w: Tensor): Tensor => convolve(x, w, { ...options, groups, padding });
  const loss = (x: Tensor, w: Tensor): Tensor => apply(x, w).cast("float32").square().sum();
  const words = [
    `${size.length}-d convolution, kernel ${kernel}, ${channels}${out === channels ? "" : ` to ${out}`} channels`,
    `${size.join(" x ")}, batch ${batch}`,
    ...(groups > 1 ? [groups === channels ? "depthwise" : `${groups} groups`] : []),
    ...(stride !== 1 ? [`stride ${stride}`] : []),
    ...(dilation !== 1 ? [`dilation ${dilation}`] : []),
    `${channelsLast ? "channels-last, " : ""}${dtype === "float32" ? "tf32" : dtype === "float16" ? "f16" : "bf16"}`,
    ...(backward ? ["forward + backward"] : []),
  ];
  return rowOf(
    row.id,
    words.join(", "),
    tf32(
      backward
        ? (x, w) => weft.grad(loss as never, { argument: [0, 1] })(x as never, w as never)
        : (x, w) => apply(x, w),
    ),
    () => [
      numbers(channelsLast ? [batch, ...size, channels] : [batch, channels, ...size], 1, dtype),
      numbers([out, channels / groups, ...size.map(() => kernel)], 2, dtype),
    ],
    { tolerance: 0.1 },
  );
}

const last = { channelsLast: true };
const convRows: ConvRow[] = [
  { id: "conv-gradient", batch: 64, channels: 64, size: [56, 56], kernel: 3, dtype: "float32", backward: true },
  { id: "conv-last", batch: 128, channels: 256, size: [28, 28], kernel: 3, backward: true, options: last },
  {
    id: "conv-strided",
    batch: 128,
    channels: 128,
    out: 256,
    size: [56, 56],
    kernel: 3,
    options: { ...last, stride: 2 },
  },
  {
    id: "conv-dilated",
    batch: 32,
    channels: 128,
    size: [64, 64],
    kernel: 3,
    dtype: "float16",
    options: { dilation: 2 },
  },
  {
    id: "conv-grouped",
    batch: 64,
    channels: 256,
    size: [28, 28],
    kernel: 3,
    backward: true,
    options: { ...last, groups: 32 },
  },
  { id: "depthwise", batch: 128, channels: 192, size: [56, 56], kernel: 7, options: { groups: 192 } },
  { id: "depthwise-last", batch: 128, channels: 192, size: [56, 56], kernel: 7, options: { ...last, groups: 192 } },
  {
    id: "depthwise-gradient",
    batch: 64,
    channels: 192,
    size: [56, 56],
    kernel: 3,
    backward: true,
    options: { ...last, groups: 192 },
  },
  { id: "conv1d", batch: 64, channels: 256, size: [4096], kernel: 9, backward: true },
  { id: "conv3d", batch: 8, channels: 64, size: [16, 56, 56], kernel: 3, backward: true },
];

/** A function of images with a gradient that is not constant. */
const gradientOf =
  (f: (x: Tensor) => Tensor) =>
  (x: Tensor): Tensor =>
    weft.grad((y: Tensor) => f(y).cast("float32").square().sum())(x) as Tensor;

function layerRows(s: Sizer): GeneralRow[] {
  const [b, c, n] = [s(64), s(128), s(56)];
  const sizes = `${b} x ${c} x ${n} x ${n}`;
  const first = (dtype: DType) => (): Tensor[] => [numbers([b, c, n, n], 1, dtype)];
  const images = (dtype: DType) => (): Tensor[] => [numbers([b, n, n, c], 1, dtype)];
  const window = { kernel: 3, stride: 2, padding: 1 };
  const row = (id: string, title: string, f: (x: Tensor) => unknown, operands: () => Tensor[], tolerance = 0.05) =>
    rowOf(id, title, f as never, operands, { tolerance, peers: compiled });
  return [
    row("max-pool", `max pooling 3 x 3, ${sizes} f32`, (x) => weft.maxPool2d(x, window), first("float32")),
    row(
      "max-pool-gradient",
      `gradient of max pooling 3 x 3, ${sizes} bf16, channels-last`,
      gradientOf((x) => weft.maxPool2d(x, { ...window, channelsLast: true })),
      images("bfloat16"),
    ),
    row("average-pool", `mean pooling 3 x 3, ${sizes} f32`, (x) => weft.avgPool2d(x, window), first("float32")),
    row("batch-norm", `batch norm in training, ${sizes} f32`, (x) => weft.batchNorm(x), first("float32")),
    row(
      "batch-norm-gradient",
      `gradient through batch norm and relu, ${sizes} bf16, channels-last`,
      gradientOf((x) => weft.relu(weft.batchNorm(x, { channelsLast: true }))),
      images("bfloat16"),
      0.2,
    ),
    row(
      "group-norm-gradient",
      `gradient through group norm, 32 groups, ${sizes} f32`,
      gradientOf((x) => weft.silu(weft.groupNorm(x, Math.min(32, c)))),
      first("float32"),
    ),
    row(
      "interpolate",
      `bilinear interpolation to twice the size, ${sizes} f32`,
      (x) => weft.interpolate(x, { scale: 2, mode: "linear" }),
      first("float32"),
    ),
    rowOf(
      "conv-transposed",
      `transposed convolution 4 x 4, stride 2, ${sizes} bf16`,
      (x, w) => weft.convTranspose2d(x, w, { stride: 2, padding: 1 }),
      () => [numbers([b, c, n, n], 1, "bfloat16"), numbers([c, s(64), 4, 4], 2, "bfloat16")],
      { tolerance: 0.1 },
    ),
  ];
}

export const imageRows = (s: Sizer): GeneralRow[] => [...convRows.map((row) => convRow(row, s)), ...layerRows(s)];
