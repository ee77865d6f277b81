// Cases of the linear algebra, real and complex. Factors that are unique only up to a phase are compared through what
// does not depend on it; Hermitian arguments are made Hermitian inside, so that every perturbation stays in the domain.

import type { Tensor } from "../../index.js";
import * as weft from "../../index.js";
import { anyDType, type Case, inexact, matrixDTypes, numbers } from "./case.js";

const hermitian = (a: Tensor): Tensor => a.add(a.adjoint()).mul(0.5);
const positive = (a: Tensor): Tensor =>
  a.matmul(a.adjoint()).add(weft.eye(a.shape[a.shape.length - 1], { dtype: a.dtype }));
const h = "(a + ct(a)) / 2";
const p = "(a @ ct(a) + np.eye(a.shape[-1]))";

const solving: Case[] = [
  {
    name: "solve: matrices, vectors, batches",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([3, 3]), s.any([3, 2]), s.any([3]), s.matrix([2, 1, 3, 3])],
    fn: (a, b, v, batch) => [weft.solve(a, b), weft.solve(a, v), weft.solve(batch, b)],
    np: "(np.linalg.solve(a, b), np.linalg.solve(a, c), np.linalg.solve(d, np.broadcast_to(b, (2, 1, 3, 2))))",
    loose: 20,
  },
  {
    name: "solve: one by one, no right-hand sides",
    dtypes: matrixDTypes,
    inputs: (s) => [s.nonzero([1, 1]), s.any([1, 1]), s.any([1, 0])],
    fn: (a, b, none) => [weft.solve(a, b), weft.solve(a, none)],
    np: "(b / a, c)",
    loose: 4,
  },
  ...(["lower", "upper"] as const).flatMap((side) =>
    [false, true].flatMap((adjoint): Case[] => [
      {
        name: `triangularSolve: ${side}${adjoint ? ", adjoint" : ""}`,
        dtypes: matrixDTypes,
        inputs: (s) => [s.matrix([2, 3, 3]), s.any([3, 2])],
        fn: (a, b) => [
          weft.triangularSolve(a, b, { lower: side === "lower", adjoint }),
          weft.triangularSolve(a, b, { lower: side === "lower", adjoint, unit: true }),
        ],
        np: `tuple(np.linalg.solve(${adjoint ? "ct" : ""}(t), np.broadcast_to(b, (2, 3, 2))) for t in triangles(a, ${side === "lower" ? "True" : "False"}))`,
        loose: 20,
      },
    ]),
  ),
  {
    name: "triangularSolve: a vector",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([3, 3]), s.any([3])],
    fn: (a, b) => weft.triangularSolve(a, b),
    np: "np.linalg.solve(np.tril(a), b)",
    loose: 20,
  },
  {
    name: "inv: a batch",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([2, 3, 3]), s.nonzero([1, 1])],
    fn: (a, b) => [weft.inv(a), b.inv()],
    np: "(np.linalg.inv(a), 1 / b)",
    loose: 20,
  },
  {
    name: "det: sizes 1 to 4",
    dtypes: matrixDTypes,
    inputs: (s) => [s.nonzero([1, 1]), s.any([2, 2, 2]), s.any([3, 3]), s.matrix([4, 4])],
    fn: (a, b, c, d) => [weft.det(a), b.det(), c.det(), d.det()],
    np: "tuple(np.linalg.det(x) for x in (a, b, c, d))",
    loose: 20,
  },
  {
    name: "cholesky: a batch",
    dtypes: matrixDTypes,
    inputs: (s) => [s.any([2, 3, 3])],
    fn: (a) => weft.cholesky(positive(a)),
    np: `np.linalg.cholesky(${p})`,
    loose: 20,
  },
  {
    name: "cholesky: not positive definite",
    dtypes: matrixDTypes,
    inputs: (s) => [s.exact([2, 2], [1, 2, 2, 1])],
    fn: (a) => a.cholesky().isNaN().any(),
    np: "np.array(True)",
    grad: false,
  },
  {
    name: "solve: a singular matrix gives no finite number",
    dtypes: matrixDTypes,
    inputs: (s) => [s.exact([2, 2], [1, 2, 2, 4]), s.exact([2, 1], [1, 1])],
    fn: (a, b) => weft.solve(a, b).isFinite().all(),
    np: "np.array(False)",
    grad: false,
  },
];

const eigen: Case[] = [
  {
    name: "eigh: values",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([2, 4, 4])],
    fn: (a) => weft.eigh(hermitian(a)).values,
    np: `np.linalg.eigvalsh(${h})`,
    loose: 20,
  },
  {
    name: "eigh: vectors with their fixed phase",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([3, 3])],
    fn: (a) => {
      const { vectors } = weft.eigh(hermitian(a));
      return vectors;
    },
    np: `fixed_phase(np.linalg.eigh(${h})[1])`,
    loose: 50,
  },
  {
    name: "eigh: a function of the matrix",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([2, 3, 3])],
    fn: (a) => {
      const { values, vectors } = weft.eigh(hermitian(a));
      return vectors.mul(values.sin().cast(vectors.dtype).unsqueeze(-2)).matmul(vectors.adjoint());
    },
    np: `np.stack([linalg.funm(x, np.sin) for x in ${h}])`,
    loose: 50,
  },
  {
    name: "eigh: one by one",
    dtypes: matrixDTypes,
    inputs: (s) => [s.any([1, 1])],
    fn: (a) => {
      const { values, vectors } = weft.eigh(hermitian(a));
      return [values, vectors.abs()];
    },
    np: "(np.real(a)[0], np.ones((1, 1)))",
    grad: false,
  },
];

const factors: Case[] = [
  ...(
    [
      ["square", [3, 3]],
      ["tall", [2, 4, 3]],
      ["wide", [3, 5]],
      ["a column", [4, 1]],
    ] as const
  ).flatMap(([what, shape]): Case[] => [
    {
      name: `qr: ${what}`,
      dtypes: matrixDTypes,
      inputs: (s) => [s.matrix([...shape])],
      fn: (a) => {
        const { q, r } = weft.qr(a);
        return [q, r];
      },
      np: "positive_qr(a)",
      loose: 50,
    },
    {
      name: `svd: ${what}`,
      dtypes: matrixDTypes,
      inputs: (s) => [s.matrix([...shape])],
      fn: (a) => {
        const { u, s, vh } = weft.svd(a);
        const shrunk = u.mul(s.mul(s).cast(u.dtype).unsqueeze(-2)).matmul(vh);
        return [s, shrunk, u.matmul(u.adjoint()), vh.adjoint().matmul(vh)];
      },
      np: "svd_parts(a)",
      loose: 50,
    },
  ]),
  {
    name: "matrixPower: both signs and zero",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([3, 3])],
    fn: (a) => [0, 1, 2, 5, -2].map((n) => weft.matrixPower(a, n)),
    np: "tuple(np.linalg.matrix_power(a, n) for n in [0, 1, 2, 5, -2])",
    loose: 50,
  },
  {
    name: "expm: small, larger, a batch",
    dtypes: matrixDTypes,
    inputs: (s) => [s.any([3, 3]), s.any([2, 2, 2])],
    fn: (a, b) => [weft.expm(a), weft.expm(b.mul(3)), weft.expm(a.mul(0.1), { squarings: 0 })],
    np: "(linalg.expm(a), linalg.expm(3 * b), linalg.expm(0.1 * a))",
    loose: 300,
  },
];

const simple: Case[] = [
  {
    name: "adjoint: the last two axes",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3, 2])],
    fn: (a) => weft.adjoint(a),
    np: "ct(a)",
  },
  {
    name: "trace: square and not",
    dtypes: numbers,
    inputs: (s) => [s.any([2, 3, 3]), s.any([2, 4])],
    fn: (a, b) => [weft.trace(a), b.trace()],
    np: "(np.trace(a, axis1=-2, axis2=-1), np.trace(b))",
  },
  {
    name: "diagonal: square and not",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 3, 3]), s.any([4, 2])],
    fn: (a, b) => [weft.diagonal(a), b.diagonal()],
    np: "(np.diagonal(a, axis1=-2, axis2=-1), np.diagonal(b))",
  },
  {
    name: "diag: vectors and batches",
    dtypes: anyDType,
    inputs: (s) => [s.any([3]), s.any([2, 2])],
    fn: (a, b) => [weft.diag(a), weft.diag(b)],
    np: "(np.diag(a), np.stack([np.diag(x) for x in b]))",
  },
  {
    name: "tril: and triu",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (a) => [weft.tril(a), weft.triu(a)],
    np: "(np.tril(a), np.triu(a))",
  },
  {
    name: "triu: a column",
    dtypes: inexact,
    inputs: (s) => [s.any([3, 1])],
    fn: (x) => weft.triu(x),
    np: "np.triu(a)",
  },
];

export const linalg: Case[] = [...solving, ...eigen, ...factors, ...simple];
