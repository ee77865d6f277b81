// Cases of creation functions: constants, ranges, random numbers. The unused input makes them functions of a tensor.
import * as weft from "../../index.js";
import { anyDType, type Case, floats, numbers } from "./case.js";

const constants: Case[] = [
  {
    name: "zeros: and ones of every dtype",
    dtypes: anyDType,
    inputs: (s) => [s.any([2])],
    fn: (x) => [weft.zeros([2, 2], { dtype: x.dtype }), weft.ones([3], { dtype: x.dtype })],
    np: "(np.zeros((2, 2), a.dtype), np.ones(3, a.dtype))",
    grad: false,
    vmap: false,
  },
  {
    name: "zerosLike: keeps shape and dtype",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 1])],
    fn: (x) => [weft.zerosLike(x), weft.zerosLike(x, { dtype: "int32" })],
    np: "(np.zeros_like(a), np.zeros((2, 1), np.int32))",
    grad: false,
  },
  {
    name: "onesLike: keeps shape and dtype",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 0]), s.any([2])],
    fn: (x, y) => [weft.onesLike(x), weft.onesLike(y, { dtype: "float64" })],
    np: "(np.ones_like(a), np.ones(2))",
    grad: false,
  },
  {
    name: "ones: no elements, a scalar",
    dtypes: ["float32"],
    inputs: (s) => [s.any([1])],
    fn: () => [weft.ones([0, 2]), weft.ones([])],
    np: "(np.ones((0, 2)), np.array(1.0))",
    grad: false,
    vmap: false,
  },
  {
    name: "full: numbers, truth, complex numbers",
    dtypes: ["float32"],
    inputs: (s) => [s.any([1])],
    fn: () => [
      weft.full([2], 0.1),
      weft.full([2], true),
      weft.full([1, 2], { re: 1, im: -2 }),
      weft.full([2], 2, { dtype: "int32" }),
      weft.full([2], 0.1).cast("float64"),
      weft.full([3], 2, { dtype: "int32" }).cast("float32").mul(2),
    ],
    np: "(np.full(2, 0.1, np.float32), np.full(2, True), np.full((1, 2), 1 - 2j, np.complex64), np.full(2, 2), np.full(2, np.float32(0.1), np.float64), np.full(3, 4.0))",
    grad: false,
    vmap: false,
  },
  {
    name: "tensor: nested arrays and typed arrays",
    dtypes: ["float32"],
    inputs: (s) => [s.any([1])],
    fn: () => [
      weft.tensor([
        [1, 2.5],
        [-3, 4],
      ]),
      weft.tensor([true, false]),
      weft.tensor(Int32Array.of(1, 2, 3, 4), { shape: [2, 2] }),
      weft.tensor([{ re: 1, im: 2 }, 3]),
      weft.tensor([[], []]),
      weft.tensor([1, -1], { dtype: "int64" }),
    ],
    np: "(np.array([[1, 2.5], [-3, 4]]), np.array([True, False]), np.array([[1, 2], [3, 4]]), np.array([1 + 2j, 3]), np.zeros((2, 0)), np.array([1, -1]))",
    grad: false,
    vmap: false,
  },
  {
    name: "arange: ranges and steps",
    dtypes: ["int32", "int64", ...floats],
    inputs: (s) => [s.any([1])],
    fn: (x) => [
      weft.arange(5, undefined, 1, { dtype: x.dtype }),
      weft.arange(2, 9, 3, { dtype: x.dtype }),
      weft.arange(3, -3, -2, { dtype: x.dtype }),
      weft.arange(3, 1, 1, { dtype: x.dtype }),
    ],
    np: "(np.arange(5), np.arange(2, 9, 3), np.arange(3, -3, -2), np.arange(3, 1))",
    grad: false,
    vmap: false,
  },
  {
    name: "linspace: both ends",
    dtypes: floats,
    inputs: (s) => [s.any([1])],
    fn: (x) => [
      weft.linspace(-1, 2, 7, { dtype: x.dtype }),
      weft.linspace(3, 3, 1, { dtype: x.dtype }),
      weft.linspace(0, 1, 0, { dtype: x.dtype }),
    ],
    np: "(np.linspace(-1, 2, 7), np.array([3.0]), np.zeros(0))",
    grad: false,
    vmap: false,
  },
  {
    name: "eye: square and not",
    dtypes: anyDType,
    inputs: (s) => [s.any([1])],
    fn: (x) => [weft.eye(3, { dtype: x.dtype }), weft.eye(2, { columns: 4, dtype: x.dtype })],
    np: "(np.eye(3), np.eye(2, 4))",
    grad: false,
    vmap: false,
  },
  {
    name: "add: constants fold as they would compute",
    dtypes: numbers,
    inputs: (s) => [s.any([3])],
    fn: (x) => {
      const c = weft.full([3], 3, { dtype: x.dtype });
      return [x.add(c).sub(c), x.mul(c.add(c)), c.mul(c).sum(), c.sum().add(x), x.add(weft.zerosLike(x)), c.prod()];
    },
    np: "(a, a * 6, np.full((), 27), a + 9, a, np.full((), 27))",
    grad: false,
    loose: 4,
  },
];

const random: Case[] = [
  {
    name: "rand: a seed gives the same numbers everywhere",
    dtypes: floats,
    inputs: (s) => [s.any([1])],
    fn: (x) => [
      weft.rand([3, 5], { seed: 7, dtype: x.dtype }),
      weft.rand([4], { seed: -3, dtype: x.dtype, low: -1, high: 3 }),
      weft.rand([0, 2], { seed: 1, dtype: x.dtype }),
    ],
    grad: false,
    vmap: false,
  },
  {
    name: "randn: mean and deviation",
    dtypes: floats,
    inputs: (s) => [s.any([1])],
    fn: (x) => [
      weft.randn([3, 5], { seed: 11, dtype: x.dtype }),
      weft.randn([4], { seed: 2 ** 40 + 5, dtype: x.dtype, mean: 2, std: 0.5 }),
    ],
    grad: false,
    vmap: false,
    loose: 8,
  },
  {
    name: "randint: bounds",
    dtypes: ["float32"],
    inputs: (s) => [s.any([1])],
    fn: () => [weft.randint(-3, 4, [50], { seed: 5 }), weft.randint(0, 1, [3], { seed: 5 })],
    grad: false,
    vmap: false,
  },
  {
    name: "bernoulli: probabilities",
    dtypes: ["float32"],
    inputs: (s) => [s.any([1])],
    fn: () => [0, 0.3, 1].map((p) => weft.bernoulli(p, [40], { seed: 9 })),
    grad: false,
    vmap: false,
  },
  {
    name: "dropoutMask: rows of whole blocks and others, many keys",
    dtypes: ["int32"],
    inputs: (s) => [s.between(-1000, 1000, [2]), s.between(-1000, 1000, [3, 2])],
    fn: (key, keys) => [
      weft.dropoutMask([6, 16], 0.3, key),
      weft.dropoutMask([3, 7], 0.5, key),
      weft.dropoutMask([2, 70, 1000], 0.1, key),
      weft.dropoutMask([4, 12], 0.9, keys),
      weft.dropoutMask([5], 0.2, keys),
      weft.dropoutMask([], 0.5, keys),
    ],
  },
  {
    name: "permutation: sizes",
    dtypes: ["float32"],
    inputs: (s) => [s.any([1])],
    fn: () => [17, 1, 0].map((n) => weft.permutation(n, { seed: 4 })),
    grad: false,
    vmap: false,
  },
  {
    name: "splitKey: keys as data",
    dtypes: ["int32"],
    inputs: (s) => [s.between(-1000, 1000, [2]), s.between(-1000, 1000, [3, 2])],
    fn: (key, keys) => [
      weft.splitKey(key, 3),
      weft.rand([2, 2], { key }),
      weft.randn([4], { key: keys, dtype: "float64" }),
    ],
  },
  {
    name: "key: of a seed",
    dtypes: ["int32"],
    inputs: (s) => [s.any([1])],
    fn: () => [weft.key(5), weft.key(-1), weft.key(2 ** 33 + 1)],
    np: "(np.array([5, 0]), np.array([-1, -1]), np.array([1, 2]))",
    vmap: false,
  },
];

export const creation: Case[] = [...constants, ...random];
