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
    name: "tensorsolve: axes of b, then of x",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([6, 6]), s.any([2, 3])],
    fn: (a, b) => weft.tensorsolve(a.reshape([2, 3, 6]), b),
    np: "np.linalg.tensorsolve(a.reshape(2, 3, 6), b)",
    loose: 50,
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

const composed: Case[] = [
  ...(
    [
      ["square", [2, 3, 3]],
      ["tall", [4, 2]],
      ["wide", [2, 4]],
      ["a row", [1, 3]],
    ] as const
  ).map(
    ([what, shape]): Case => ({
      name: `lu: ${what}`,
      dtypes: matrixDTypes,
      inputs: (s) => [s.matrix([...shape])],
      fn: (a) => {
        const { permutation, l, u } = weft.lu(a);
        return [l, u, permutation.cast(a.dtype), l.matmul(u)];
      },
      np: "lu_parts(a)",
      loose: 20,
    }),
  ),
  {
    name: "slogdet: both signs, singular, larger",
    dtypes: matrixDTypes,
    inputs: (s) => [s.any([3, 2, 2]), s.matrix([5, 5]), s.nonzero([1, 1])],
    fn: (a, b, c) => [a, b, c].flatMap((x) => Object.values(weft.slogdet(x))),
    np: "sum((tuple(np.linalg.slogdet(x)) for x in (a, b, c)), ())",
    loose: 50,
  },
  {
    name: "slogdet: no pivot, beyond the range of numbers",
    dtypes: matrixDTypes,
    inputs: (s) => [s.exact([2, 2], [1, 2, 2, 4]), s.exact([2, 2], [0, 1e30, 1e30, 0])],
    fn: (a, b) => [a, b].flatMap((x) => Object.values(weft.slogdet(x))),
    np: "sum((tuple(np.linalg.slogdet(x)) for x in (a, b)), ())",
    grad: false,
    loose: 8,
  },
  {
    name: "eig: values by their power sums, vectors by what they rebuild",
    dtypes: matrixDTypes,
    inputs: (s) => [s.any([2, 3, 3]), s.matrix([5, 5])],
    fn: (a, b) =>
      [a, b].flatMap((x) => {
        const { values, vectors } = weft.eig(x);
        const powers = [1, 2, 3].map((k) => values.pow(k).sum(-1));
        const square = vectors.mul(values.square().unsqueeze(-2)).matmul(vectors.inv());
        return [...powers, square, vectors.abs().square().sum(-2)];
      }),
    np: "sum((eig_parts(x) for x in (a, b)), ())",
    grad2: false,
    loose: 200,
  },
  {
    name: "eigvals: symmetric, rotated, one by one",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([3, 3]), s.any([1, 1])],
    fn: (a, b) => [weft.eigvals(hermitian(a)).square().sum(-1), weft.eigvals(b)],
    np: `((np.linalg.eigvals(${h}) ** 2).sum(-1), b[0] + 0j)`,
    grad2: false,
    loose: 50,
  },
  {
    name: "eigvalsh: a batch",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([2, 3, 3])],
    fn: (a) => weft.eigvalsh(hermitian(a)),
    np: `np.linalg.eigvalsh(${h})`,
    loose: 20,
  },
  {
    name: "svdvals: tall and wide",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([4, 3]), s.matrix([2, 2, 3])],
    fn: (a, b) => [weft.svdvals(a), weft.svdvals(b)],
    np: "(np.linalg.svd(a, compute_uv=False), np.linalg.svd(b, compute_uv=False))",
    loose: 20,
  },
  {
    name: "svd: full matrices",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([4, 2]), s.matrix([2, 2, 3])],
    fn: (a, b) =>
      [a, b].flatMap((x) => {
        const { u, s, vh } = weft.svd(x, { fullMatrices: true });
        const k = s.shape[s.shape.length - 1];
        const last = u.shape.length - 1;
        const thin = weft.gather(
          u,
          weft.arange(k, undefined, undefined, { dtype: "int32" }).expand([...u.shape.slice(0, -1), k]),
          last,
        );
        return [s, u.adjoint().matmul(u), vh.matmul(vh.adjoint()), thin.matmul(thin.adjoint())];
      }),
    np: "sum((full_svd_parts(x) for x in (a, b)), ())",
    grad: false,
    loose: 50,
  },
  {
    name: "qr: complete",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([4, 2]), s.matrix([2, 4])],
    fn: (a, b) => {
      const [x, y] = [weft.qr(a, { mode: "complete" }), weft.qr(b, { mode: "complete" })];
      return [x.q.adjoint().matmul(x.q), x.r, x.q.matmul(x.r), y.q, y.r];
    },
    np: "(np.eye(4) + 0 * a[0, 0], complete_r(a), a, *positive_qr(b))",
    grad: false,
    loose: 50,
  },
  {
    name: "cholesky: the upper factor",
    dtypes: matrixDTypes,
    inputs: (s) => [s.any([2, 3, 3])],
    fn: (a) => weft.cholesky(positive(a), { upper: true }),
    np: `ct(np.linalg.cholesky(${p}))`,
    loose: 20,
  },
  {
    name: "pinv: tall, wide, rank deficient",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([4, 3]), s.matrix([2, 2, 4])],
    fn: (a, b) => [weft.pinv(a), weft.pinv(b)],
    np: "(np.linalg.pinv(a), np.linalg.pinv(b))",
    grad2: false,
    loose: 100,
  },
  {
    name: "pinv: without full rank, empty",
    dtypes: matrixDTypes,
    inputs: (s) => [s.exact([2, 2], [1, 2, 2, 4]), s.any([0, 3])],
    fn: (a, b) => [weft.pinv(a), weft.pinv(b)],
    np: "(np.linalg.pinv(a), np.zeros((3, 0)))",
    grad: false,
    loose: 50,
  },
  {
    name: "matrixRank: full, deficient, zero, with a tolerance",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([2, 3, 4]), s.exact([2, 2], [1, 2, 2, 4]), s.exact([2, 3], [0, 0, 0, 0, 0, 0])],
    fn: (a, b, c) => [weft.matrixRank(a), weft.matrixRank(b), weft.matrixRank(c), weft.matrixRank(a, { rtol: 0.5 })],
    np: "(np.linalg.matrix_rank(a), np.linalg.matrix_rank(b), np.linalg.matrix_rank(c), (lambda s: (s > 0.5 * s.max(-1, keepdims=True)).sum(-1))(np.linalg.svd(a, compute_uv=False)))",
    grad: false,
  },
  {
    name: "lstsq: more equations than unknowns, and fewer",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([4, 2]), s.any([4, 3]), s.any([4]), s.matrix([2, 4])],
    fn: (a, b, v, w) => [
      ...Object.values(weft.lstsq(a, b)),
      weft.lstsq(a, v).solution,
      weft.lstsq(w, weft.ones([2], { dtype: w.dtype })).solution,
    ],
    np: "lstsq_parts(a, b, c, d)",
    grad: false,
    loose: 100,
  },
  {
    name: "lstsq: its gradient",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([4, 2]), s.any([4])],
    fn: (a, b) => weft.lstsq(a, b).solution,
    np: "np.linalg.lstsq(a, b, rcond=None)[0]",
    grad2: false,
    loose: 100,
  },
  {
    name: "matrixNorm: all orders",
    dtypes: matrixDTypes,
    inputs: (s) => [s.matrix([2, 3, 4])],
    fn: (a) => [
      ...(["fro", "nuc", 1, -1, 2, -2, Infinity, -Infinity] as const).map((order) => weft.matrixNorm(a, { order })),
      weft.matrixNorm(a, { keepDims: true }),
      weft.matrixNorm(a, { order: 1, keepDims: true }),
    ],
    np: "(*(np.linalg.norm(a, o, (-2, -1)) for o in ('fro', 'nuc', 1, -1, 2, -2, np.inf, -np.inf)), np.linalg.norm(a, 'fro', (-2, -1), True), np.linalg.norm(a, 1, (-2, -1), True))",
    grad2: false,
    loose: 50,
  },
  {
    name: "vectorNorm: orders and axes",
    dtypes: inexact,
    inputs: (s) => [s.nonzero([2, 3])],
    fn: (a) => [
      weft.vectorNorm(a),
      weft.vectorNorm(a, { axes: 1, order: 3 }),
      weft.vectorNorm(a, { axes: 0, order: 1, keepDims: true }),
      weft.vectorNorm(a, { axes: [-1], order: Infinity }),
      weft.vectorNorm(a, { axes: -1, order: -Infinity }),
      weft.vectorNorm(a, { axes: 0, order: -2 }),
      weft.vectorNorm(a, { axes: 0, order: 0 }),
    ],
    np: "(np.linalg.norm(a.reshape(-1)), np.linalg.norm(a, 3, 1), np.linalg.norm(a, 1, 0, True), np.linalg.norm(a, np.inf, -1), np.linalg.norm(a, -np.inf, -1), np.linalg.norm(a, -2, 0), np.linalg.norm(a, 0, 0))",
    grad2: false,
    loose: 20,
  },
  {
    name: "diagonal: beside the main one",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (a) => [1, -1, 3, -2, 5].map((offset) => weft.diagonal(a, { offset })),
    np: "tuple(np.diagonal(a, o, -2, -1) for o in (1, -1, 3, -2, 5))",
  },
  {
    name: "trace: beside the main diagonal",
    dtypes: numbers,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (a) => [1, -2].map((offset) => weft.trace(a, { offset })),
    np: "tuple(np.trace(a, o, -2, -1) for o in (1, -2))",
  },
  {
    name: "lu: empty matrices",
    dtypes: matrixDTypes,
    inputs: (s) => [s.any([2, 0, 0]), s.any([0, 3])],
    fn: (a, b) => [...Object.values(weft.slogdet(a)), weft.lu(b).u, weft.eigvals(a), weft.det(a), weft.inv(a)],
    np: "(np.ones(2), np.zeros(2), np.zeros((0, 3)), np.zeros((2, 0)), np.ones(2), a)",
    grad: false,
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

export const linalg: Case[] = [...solving, ...eigen, ...factors, ...composed, ...simple];
