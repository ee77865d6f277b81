// Cases of the products: matmul in all combinations of ranks, einsum, tensordot, kron, outer.

import * as weft from "../../index.js";
import { type Case, inexact, numbers } from "./case.js";

const product = (a: weft.Tensor, b: weft.Tensor): weft.Tensor => weft.matmul(a, b);

const matmulShapes: [number[], number[]][] = [
  [[3], [3]],
  [[3], [3, 4]],
  [[2, 3], [3]],
  [
    [2, 3],
    [3, 4],
  ],
  [[3], [2, 3, 4]],
  [[2, 4, 3], [3]],
  [
    [2, 4, 3],
    [3, 2],
  ],
  [
    [4, 3],
    [2, 3, 2],
  ],
  [
    [2, 4, 3],
    [2, 3, 2],
  ],
  [
    [2, 1, 4, 3],
    [5, 3, 2],
  ],
  [
    [1, 2, 2],
    [3, 2, 1],
  ],
  [
    [1, 1],
    [1, 1],
  ],
  [
    [2, 0],
    [0, 3],
  ],
  [
    [0, 2],
    [2, 3],
  ],
  [
    [2, 3, 0],
    [0, 2],
  ],
  [
    [0, 2, 3],
    [0, 3, 2],
  ],
];

const matmuls: Case[] = [
  ...matmulShapes.map(
    ([a, b]): Case => ({
      name: `matmul: [${a}] by [${b}]`,
      dtypes: numbers,
      inputs: (s) => [s.any(a), s.any(b)],
      fn: product,
      np: "a @ b",
      loose: 4,
    }),
  ),
  {
    name: "matmul: transposed and adjoint operands",
    dtypes: inexact,
    inputs: (s) => [s.any([3, 4]), s.any([3, 2]), s.any([2, 3, 3])],
    fn: (a, b, c) => [a.T.matmul(b), b.adjoint().matmul(a), c.matmul(c.T), a.flip(0).T.matmul(b)],
    np: "(a.T @ b, b.conj().T @ a, c @ np.swapaxes(c, 1, 2), np.flip(a, 0).T @ b)",
    loose: 4,
  },
  {
    name: "matmul: odd sizes beyond one block",
    dtypes: ["float32", "float64", "complex64", "int32"],
    inputs: (s) => [s.any([37, 65]), s.any([65, 33])],
    fn: (a, b) => a.matmul(b),
    np: "a @ b",
    grad: false,
    loose: 20,
  },
  {
    name: "matmul: booleans count",
    dtypes: ["bool"],
    inputs: (s) => [s.any([3, 4]), s.any([4, 2])],
    fn: product,
    np: "a.astype(np.int32) @ b.astype(np.int32)",
  },
  {
    name: "matmul: mixed dtypes",
    dtypes: ["float32"],
    inputs: (s) => [s.any([2, 3]), s.any([3, 2], "complex64"), s.any([3, 2], "int32")],
    fn: (a, b, c) => [a.matmul(b), c.matmul(a)],
    np: "(a @ b, c @ a)",
    grad: false,
    loose: 4,
  },
];

const equations: [string, number[][]][] = [
  [
    "ij,jk->ik",
    [
      [2, 3],
      [3, 4],
    ],
  ],
  [
    "ij,jk",
    [
      [2, 3],
      [3, 4],
    ],
  ],
  [
    "bij,bjk->bik",
    [
      [2, 3, 4],
      [2, 4, 2],
    ],
  ],
  [
    "bij,bkj->kib",
    [
      [2, 3, 4],
      [2, 5, 4],
    ],
  ],
  ["i,j->ij", [[2], [3]]],
  ["i,i->", [[4], [4]]],
  ["ii->i", [[3, 3]]],
  ["ii", [[3, 3]]],
  ["iij->j", [[2, 2, 3]]],
  ["ij->ji", [[2, 3]]],
  ["ijk->k", [[2, 3, 4]]],
  [
    "ij,jk,kl->il",
    [
      [2, 3],
      [3, 4],
      [4, 2],
    ],
  ],
  [
    "abc,cd,db->a",
    [
      [2, 3, 4],
      [4, 2],
      [2, 3],
    ],
  ],
  [
    "ij,ij->ij",
    [
      [2, 3],
      [2, 3],
    ],
  ],
  ["ij,k->", [[2, 3], [2]]],
  [",ij->ij", [[], [2, 3]]],
  [
    "ij,jk->ik",
    [
      [2, 0],
      [0, 3],
    ],
  ],
];

const einsums: Case[] = equations.map(([equation, shapes]) => ({
  name: `einsum: ${equation} of ${shapes.map((s) => `[${s}]`).join("")}`,
  dtypes: ["int32", ...inexact],
  inputs: (s) => shapes.map((shape) => s.any(shape)),
  fn: (...operands) => weft.einsum(equation, ...operands),
  np: `np.einsum("${equation}", ${["a", "b", "c"].slice(0, shapes.length).join(", ")})`,
  loose: 8,
}));

const otherProducts: Case[] = [
  {
    name: "tensordot: a number and lists of axes",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3, 4]), s.any([3, 4, 2])],
    fn: (a, b) => [
      weft.tensordot(a, b),
      weft.tensordot(a, b, [
        [0, 2],
        [-1, 1],
      ]),
      weft.tensordot(a, b.permute([2, 0, 1]), 0).sum([0, 5]),
    ],
    np: "(np.tensordot(a, b), np.tensordot(a, b, [[0, 2], [-1, 1]]), np.tensordot(a, np.transpose(b, (2, 0, 1)), 0).sum((0, 5)))",
    loose: 8,
  },
  {
    name: "kron: equal and different ranks",
    dtypes: numbers,
    inputs: (s) => [s.any([2, 3]), s.any([2, 2]), s.any([3])],
    fn: (a, b, v) => [weft.kron(a, b), weft.kron(v, v), weft.kron(a, v)],
    np: "(np.kron(a, b), np.kron(c, c), np.kron(a, c))",
  },
  {
    name: "outer: vectors",
    dtypes: numbers,
    inputs: (s) => [s.any([3]), s.any([2])],
    fn: weft.outer,
    np: "np.outer(a, b)",
  },
];

export const products: Case[] = [...matmuls, ...einsums, ...otherProducts];
