// Linear algebra over batches of matrices. Real matrices use the complex implementation, in double precision.
import { type DType, numel, outputAvals, realOf, type Shape } from "../../graph/index.js";
import type { Complex } from "./complex.js";
import * as c from "./complex.js";
import { hermitianEigenpairs } from "./eigen.js";
import { generalEigenpairs } from "./eigen-general.js";
import {
  choleskyFactor,
  determinant,
  householderQr,
  luWithOrder,
  type Matrix,
  solveMatrix,
  solveTriangle,
} from "./matrix.js";
import { singularTriplets } from "./svd.js";
import { complexes, fromComplexes, fromReals, type ReferenceRules, type Value } from "./value.js";

const leading = (shape: Shape): Shape => shape.slice(0, -2);

/** The matrices of a batch, in row-major order of the leading dimensions. */
function matrices(value: Value): Matrix[] {
  const [rows, columns] = value.shape.slice(-2);
  const elements = complexes(value);
  return Array.from({ length: numel(leading(value.shape)) }, (_, g) =>
    Array.from({ length: rows }, (_, i) => {
      const start = (g * rows + i) * columns;
      return elements.slice(start, start + columns);
    }),
  );
}

const fromMatrices = (dtype: DType, shape: Shape, batch: readonly Matrix[]): Value =>
  fromComplexes(dtype, shape, batch.flat(2));

const fromVectors = (dtype: DType, shape: Shape, batch: readonly (readonly number[])[]): Value =>
  fromReals(dtype, shape, batch.flat());

const notANumber: Complex = c.complex(Number.NaN, Number.NaN);
const allNaN = (a: Matrix): Matrix => a.map((row) => row.map(() => notANumber));

export const linalgRules: ReferenceRules<
  "cholesky" | "triangularSolve" | "solve" | "det" | "eigh" | "qr" | "lu" | "eig" | "svd"
> = {
  cholesky: ([a]) =>
    fromMatrices(
      a.dtype,
      a.shape,
      matrices(a).map((x) => choleskyFactor(x) ?? allNaN(x)),
    ),
  triangularSolve: ([a, b], { attrs }) => {
    const right = matrices(b);
    return fromMatrices(
      a.dtype,
      b.shape,
      matrices(a).map((x, g) => solveTriangle(x, right[g], attrs)),
    );
  },
  solve: ([a, b]) => {
    const right = matrices(b);
    return fromMatrices(
      a.dtype,
      b.shape,
      matrices(a).map((x, g) => solveMatrix(x, right[g]) ?? allNaN(right[g])),
    );
  },
  det: ([a]) => fromComplexes(a.dtype, leading(a.shape), matrices(a).map(determinant)),
  eigh: ([a]) => {
    const results = matrices(a).map(hermitianEigenpairs);
    return [
      fromVectors(
        realOf(a.dtype),
        a.shape.slice(0, -1),
        results.map((r) => r.values),
      ),
      fromMatrices(
        a.dtype,
        a.shape,
        results.map((r) => r.vectors),
      ),
    ];
  },
  qr: ([a]) => {
    const [m, n] = a.shape.slice(-2);
    const k = Math.min(m, n);
    const results = matrices(a).map(householderQr);
    return [
      fromMatrices(
        a.dtype,
        [...leading(a.shape), m, k],
        results.map((x) => x.q),
      ),
      fromMatrices(
        a.dtype,
        [...leading(a.shape), k, n],
        results.map((x) => x.r),
      ),
    ];
  },
  lu: ([a]) => {
    const results = matrices(a).map(luWithOrder);
    return [
      fromMatrices(
        a.dtype,
        a.shape,
        results.map((x) => x.factors),
      ),
      fromVectors(
        "int32",
        a.shape.slice(0, -1),
        results.map((x) => x.order),
      ),
    ];
  },
  eig: ([a], node) => {
    const [{ dtype }] = outputAvals(node);
    const results = matrices(a).map(generalEigenpairs);
    return [
      fromComplexes(
        dtype,
        a.shape.slice(0, -1),
        results.flatMap((x) => x.values),
      ),
      fromMatrices(
        dtype,
        a.shape,
        results.map((x) => x.vectors),
      ),
    ];
  },
  svd: ([a]) => {
    const [m, n] = a.shape.slice(-2);
    const k = Math.min(m, n);
    const results = matrices(a).map(singularTriplets);
    return [
      fromMatrices(
        a.dtype,
        [...leading(a.shape), m, k],
        results.map((x) => x.u),
      ),
      fromVectors(
        realOf(a.dtype),
        [...leading(a.shape), k],
        results.map((x) => x.s),
      ),
      fromMatrices(
        a.dtype,
        [...leading(a.shape), k, n],
        results.map((x) => x.vh),
      ),
    ];
  },
};
