// Batched matrix products, summed in double (floats), in pairs of doubles (complex) or exactly (integers).
import { isComplex, numel } from "../../graph/index.js";
import * as c from "./complex.js";
import {
  complexes,
  fromComplexes,
  fromIntegers,
  fromReals,
  integers,
  isIntegral,
  type ReferenceRules,
  reals,
  type Value,
} from "./value.js";

interface Extents {
  batch: number;
  m: number;
  k: number;
  n: number;
}

function product<T>(
  { batch, m, k, n }: Extents,
  a: ArrayLike<T>,
  b: ArrayLike<T>,
  start: T,
  addProduct: (sum: T, x: T, y: T) => T,
): T[] {
  const out: T[] = [];
  for (let g = 0; g < batch; g++)
    for (let i = 0; i < m; i++)
      for (let j = 0; j < n; j++) {
        let sum = start;
        for (let l = 0; l < k; l++) sum = addProduct(sum, a[(g * m + i) * k + l], b[(g * k + l) * n + j]);
        out.push(sum);
      }
  return out;
}

function matmul(a: Value, b: Value): Value {
  const rank = a.shape.length;
  const [m, k] = a.shape.slice(rank - 2);
  const n = b.shape[rank - 1];
  const lead = a.shape.slice(0, rank - 2);
  const extents = { batch: numel(lead), m, k, n };
  const shape = [...lead, m, n];
  if (isComplex(a.dtype)) {
    const sums = product(extents, complexes(a), complexes(b), c.zero, (sum, x, y) => c.add(sum, c.mul(x, y)));
    return fromComplexes(a.dtype, shape, sums);
  }
  if (isIntegral(a.dtype)) {
    const sums = product(extents, integers(a), integers(b), 0n, (sum, x, y) => sum + x * y);
    return fromIntegers(a.dtype, shape, sums);
  }
  return fromReals(
    a.dtype,
    shape,
    product(extents, reals(a), reals(b), 0, (sum, x, y) => sum + x * y),
  );
}

export const matmulRules: ReferenceRules<"matmul"> = {
  matmul: ([a, b]) => matmul(a, b),
};
