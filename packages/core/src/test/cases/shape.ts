// Cases of the functions that move elements without computing.
import * as weft from "../../index.js";
import { anyDType, type Case, floats, inexact, numbers, singles } from "./case.js";

const moving: Case[] = [
  {
    name: "reshape: merge, split, infer",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (x) => [x.reshape([6, 4]), x.reshape([2, -1]), x.reshape([1, 24, 1]), x.transpose().reshape([3, 8])],
    np: "(a.reshape(6, 4), a.reshape(2, -1), a.reshape(1, 24, 1), np.swapaxes(a, -1, -2).reshape(3, 8))",
  },
  {
    name: "reshape: scalars and nothing",
    dtypes: inexact,
    inputs: (s) => [s.any([]), s.any([0, 3])],
    fn: (x, y) => [x.reshape([1, 1]), y.reshape([3, 0]), y.reshape([0])],
    np: "(a.reshape(1, 1), b.reshape(3, 0), b.reshape(0))",
  },
  {
    name: "permute: all orders of three axes",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (x) => [x.permute([0, 2, 1]), x.permute([1, 0, 2]), x.permute([2, 0, 1]), x.permute([-1, 1, 0])],
    np: "tuple(np.transpose(a, p) for p in [(0, 2, 1), (1, 0, 2), (2, 0, 1), (2, 1, 0)])",
  },
  {
    name: "permute: axes of size 1 and nothing",
    dtypes: numbers,
    inputs: (s) => [s.any([1, 3, 1]), s.any([0, 2])],
    fn: (x, y) => [x.permute([2, 1, 0]), x.permute([1, 0, 2]), y.permute([1, 0])],
    np: "(a.transpose(2, 1, 0), a.transpose(1, 0, 2), b.T)",
  },
  {
    name: "transpose: last two and chosen axes",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (x) => [weft.transpose(x), x.transpose(0, 2), x.T.add(1)],
    np: "(np.swapaxes(a, 1, 2), np.swapaxes(a, 0, 2), np.swapaxes(a, 1, 2) + 1)",
  },
  {
    name: "moveAxis: forwards and backwards",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (x) => [weft.moveAxis(x, 0, 2), weft.moveAxis(x, -1, 0)],
    np: "(np.moveaxis(a, 0, 2), np.moveaxis(a, -1, 0))",
  },
  {
    name: "expand: ones grow, axes appear",
    dtypes: anyDType,
    inputs: (s) => [s.any([3, 1]), s.any([])],
    fn: (x, y) => [x.expand([3, 4]), x.expand([2, -1, 4]), y.expand([2, 2])],
    np: "(np.broadcast_to(a, (3, 4)), np.broadcast_to(a, (2, 3, 4)), np.broadcast_to(b, (2, 2)))",
  },
  {
    name: "broadcastTo: to nothing",
    dtypes: floats,
    inputs: (s) => [s.any([3, 1])],
    fn: (x) => weft.broadcastTo(x, [3, 0]),
    np: "np.broadcast_to(a, (3, 0))",
  },
  {
    name: "broadcastTensors: three of them",
    dtypes: inexact,
    inputs: (s) => [s.any([3, 1]), s.any([4]), s.any([])],
    fn: (x, y, z) => weft.broadcastTensors(x, y, z),
    np: "tuple(np.broadcast_arrays(a, b, c))",
  },
  {
    name: "squeeze: all, one, several",
    dtypes: inexact,
    inputs: (s) => [s.any([1, 3, 1, 2])],
    fn: (x) => [x.squeeze(), x.squeeze(0), x.squeeze([0, -2]), x.unsqueeze(0), x.unsqueeze(-1)],
    np: "(a.squeeze(), a.squeeze(0), a.squeeze((0, 2)), a[None], a[..., None])",
  },
  {
    name: "unsqueeze: in the middle",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3])],
    fn: (x) => weft.unsqueeze(x, 1),
    np: "a[:, None]",
  },
  {
    name: "flatten: whole and part",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3, 4]), s.any([])],
    fn: (x, y) => [weft.flatten(x), x.flatten(1), x.flatten(0, 1), y.flatten()],
    np: "(a.reshape(-1), a.reshape(2, 12), a.reshape(6, 4), b.reshape(1))",
  },
  {
    name: "pad: zeros, a value, uneven",
    dtypes: numbers,
    inputs: (s) => [s.any([2, 3])],
    fn: (x) => [
      weft.pad(x, [
        [1, 2],
        [0, 1],
      ]),
      x.pad(
        [
          [0, 0],
          [2, 0],
        ],
        3,
      ),
    ],
    np: "(np.pad(a, ((1, 2), (0, 1))), np.pad(a, ((0, 0), (2, 0)), constant_values=3))",
  },
  {
    name: "pad: nothing grows",
    dtypes: ["bool", "float32"],
    inputs: (s) => [s.any([0, 2])],
    fn: (x) =>
      x.pad([
        [1, 1],
        [0, 1],
      ]),
    np: "np.pad(a, ((1, 1), (0, 1)))",
  },
  {
    name: "flip: all, one, twice",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 3, 2])],
    fn: (x) => [weft.flip(x), x.flip(1), x.flip([0, -1]), x.flip(0).flip(0)],
    np: "(np.flip(a), np.flip(a, 1), np.flip(a, (0, 2)), a)",
  },
  {
    name: "concat: along each axis",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 3]), s.any([1, 3]), s.any([2, 1])],
    fn: (x, y, z) => [weft.concat([x, y]), weft.concat([x, z, x], 1), weft.concat([x, z], -1)],
    np: "(np.concatenate([a, b]), np.concatenate([a, c, a], 1), np.concatenate([a, c], 1))",
  },
  {
    name: "concat: an empty part, another dtype",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3]), s.any([0, 3]), s.any([1, 3], "int32")],
    fn: (x, y, z) => [weft.concat([x, y]), weft.concat([z, x])],
    np: "(a, np.concatenate([c, a]))",
  },
  {
    name: "stack: front, back, scalars",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 3]), s.any([2, 3]), s.any([])],
    fn: (x, y, z) => [weft.stack([x, y]), weft.stack([x, y, x], -1), weft.stack([z, z])],
    np: "(np.stack([a, b]), np.stack([a, b, a], -1), np.stack([c, c]))",
  },
  {
    name: "split: equal and uneven pieces",
    dtypes: inexact,
    inputs: (s) => [s.any([4, 3])],
    fn: (x) => [...weft.split(x, 2), ...x.split([1, 2], 1), ...x.split([0, 4])],
    np: "(a[:2], a[2:], a[:, :1], a[:, 1:], a[:0], a)",
  },
  {
    name: "tile: fewer and more repeats than axes",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3])],
    fn: (x) => [weft.tile(x, [2]), x.tile([2, 2]), x.tile([2, 1, 2]), x.tile([0, 1])],
    np: "(np.tile(a, 2), np.tile(a, (2, 2)), np.tile(a, (2, 1, 2)), np.tile(a, (0, 1)))",
  },
  {
    name: "roll: both ways, further than the size",
    dtypes: inexact,
    inputs: (s) => [s.any([4, 3])],
    fn: (x) => [weft.roll(x, 1), x.roll(-1, 1), x.roll(9, 0), x.roll(0)],
    np: "(np.roll(a, 1), np.roll(a, -1, 1), np.roll(a, 9, 0), a)",
  },
  {
    name: "slice: steps and negative positions",
    dtypes: anyDType,
    inputs: (s) => [s.any([5, 7])],
    fn: (x) => [
      weft.slice(x, [1, 0], [4, 7]),
      x.slice([0, 1], [5, 7], [2, 3]),
      x.slice([-3, 0], [-1, 100]),
      x.slice([3, 2], [1, 5]),
    ],
    np: "(a[1:4], a[0:5:2, 1:7:3], a[-3:-1], a[3:1, 2:5])",
  },
  {
    name: "slice: every step over every remainder",
    dtypes: singles,
    inputs: (s) => [s.any([7, 2])],
    fn: (x) => [2, 3, 4, 6, 9].map((step) => x.slice([step % 3, 0], [7, 2], [step, 1])),
    np: "tuple(a[s % 3:7:s] for s in [2, 3, 4, 6, 9])",
  },
];

const views: Case[] = [
  {
    name: "reshape: of transposed, flipped and strided views",
    dtypes: inexact,
    inputs: (s) => [s.any([4, 6])],
    fn: (x) => [
      x.T.reshape([8, 3]),
      x.flip(1).reshape([3, 8]),
      x.slice([0, 0], [4, 6], [2, 3]).reshape([4]),
      x.unsqueeze(1).expand([4, 2, 6]).reshape([8, 6]),
    ],
    np: "(a.T.reshape(8, 3), np.flip(a, 1).reshape(3, 8), a[::2, ::3].reshape(4), np.repeat(a, 2, 0))",
  },
  {
    name: "add: views of one tensor meet",
    dtypes: numbers,
    inputs: (s) => [s.any([3, 3])],
    fn: (x) => [x.add(x.T), x.flip(0).mul(x.roll(1, 1)), x.index(0).add(x.index(":", 1))],
    np: "(a + a.T, np.flip(a, 0) * np.roll(a, 1, 1), a[0] + a[:, 1])",
  },
];

export const shapes: Case[] = [...moving, ...views];
