// `numpy.linalg` and `lax.linalg` of jax-js over Weft.
import { lift, tensorOf, unwrap, weft, wrap } from "./array.mjs";

export const inv = (a) => wrap(weft.inv(tensorOf(a)));
export const det = lift(weft.det);
export const solve = lift(weft.solve);
export const matmul = lift(weft.matmul);
export const matrixPower = lift(weft.matrixPower);
export const svdvals = lift(weft.svdvals);
export const outer = lift(weft.outer);
export const cross = lift(weft.cross);
export const vecdot = lift(weft.vecdot);

/** The Hermitian part, which jax-js takes unless told otherwise. */
const symmetric = (a, yes = true) => (yes ? a.add(weft.transpose(a)).mul(0.5) : a);

export const cholesky = (a, { upper, symmetrizeInput } = {}) =>
  wrap(weft.cholesky(symmetric(tensorOf(a), symmetrizeInput), { upper }));
export const eigh = (a, { symmetrizeInput } = {}) => {
  const { values, vectors } = weft.eigh(symmetric(tensorOf(a), symmetrizeInput));
  return [wrap(values), wrap(vectors)];
};
export const eigvalsh = (a, { symmetrizeInput } = {}) => wrap(weft.eigvalsh(symmetric(tensorOf(a), symmetrizeInput)));
export const svd = (a, { fullMatrices = false, computeUv = true } = {}) => {
  if (!computeUv) return wrap(weft.svdvals(tensorOf(a)));
  const { u, s, vh } = weft.svd(tensorOf(a), { fullMatrices });
  return [u, s, vh].map(wrap);
};
export const lstsq = (a, b) => wrap(weft.lstsq(tensorOf(a), tensorOf(b)).solution);
export const slogdet = (a) => {
  const { sign, logabsdet } = weft.slogdet(tensorOf(a));
  return [wrap(sign), wrap(logabsdet)];
};
export const multiDot = (factors) => wrap(factors.map(unwrap).reduce((a, b) => weft.matmul(a, b)));
export const matrixTranspose = lift((a) => weft.transpose(a));
export const vectorNorm = (x, { ord, axis = null, keepdims } = {}) =>
  wrap(weft.vectorNorm(tensorOf(x), { order: ord, axes: axis ?? undefined, keepDims: keepdims }));
export const matrixNorm = (x, { ord, keepdims } = {}) =>
  wrap(weft.matrixNorm(tensorOf(x), { order: ord, keepDims: keepdims }));
export const norm = (x, { ord = null, axis = null, keepdims = false } = {}) => {
  const t = tensorOf(x);
  const axes = axis === null ? null : typeof axis === "number" ? [axis] : axis;
  if (axes !== null && axes.length > 2) throw new Error("norm: at most two axes");
  if (ord === null) return vectorNorm(x, { axis: axes, keepdims });
  const count = axes?.length ?? t.rank;
  if (count === 1) {
    if (typeof ord === "string") throw new Error(`norm: ${ord} of a vector`);
    return vectorNorm(x, { ord, axis: axes, keepdims });
  }
  if (count !== 2) throw new Error("norm: a vector or a matrix");
  const [rows, columns] = axes ?? [0, 1];
  if (axes !== null && (rows - columns) % t.rank === 0) throw new Error("norm: one axis twice");
  const moved = weft.moveAxis(t, [rows, columns], [-2, -1]);
  const result = weft.matrixNorm(moved, { order: ord === "f" ? "fro" : ord, keepDims: keepdims });
  return wrap(keepdims ? weft.moveAxis(result, [-2, -1], [rows, columns]) : result);
};
export { tensordot, trace } from "./linalg-shared.mjs";

/** `lax.linalg`: the same with another order of results. */
export const lax = {
  cholesky: (a, options) => cholesky(a, { symmetrizeInput: false, ...options }),
  eigh: (a, { symmetrizeInput = true, lower = true } = {}) => {
    if (symmetrizeInput) return eigh(a).reverse();
    const t = tensorOf(a);
    const triangle = lower ? weft.tril(t) : weft.triu(t);
    const other = lower ? weft.tril(t, -1) : weft.triu(t, 1);
    return eigh(wrap(triangle.add(weft.transpose(other))), { symmetrizeInput: false }).reverse();
  },
  svd,
  lu: (a) => {
    const { l, u, permutation } = weft.lu(tensorOf(a));
    const order = weft.stopGradient(permutation).arraySync();
    const rows = order.map((_, i) => i);
    const pivots = order.slice(0, Math.min(...u.shape.slice(-2))).map((row, i) => {
      const at = rows.indexOf(row);
      [rows[i], rows[at]] = [rows[at], rows[i]];
      return at;
    });
    const [m, n] = tensorOf(a).shape;
    const grown = (t) =>
      weft.pad(t, [
        [0, m - t.shape[0]],
        [0, n - t.shape[1]],
      ]);
    const both = grown(weft.tril(l, -1)).add(grown(u));
    return [both, weft.tensor(pivots, { dtype: "int32" }), permutation].map(wrap);
  },
  triangularSolve: (a, b, { leftSide = false, lower = false, transposeA = false, unitDiagonal = false } = {}) => {
    const [m, v] = [tensorOf(a), tensorOf(b)];
    const matrix = transposeA === leftSide ? weft.transpose(m) : m;
    const solved = weft.triangularSolve(matrix, leftSide ? v : weft.transpose(v), {
      lower: transposeA === leftSide ? !lower : lower,
      unit: unitDiagonal,
    });
    return wrap(leftSide ? solved : weft.transpose(solved));
  },
};
