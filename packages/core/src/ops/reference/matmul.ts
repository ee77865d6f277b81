// Batched matrix products, summed in double (floats), in pairs of doubles (complex) or exactly (integers).
import {
  bfloat16Bits,
  bfloat16Value,
  float16Bits,
  float16Value,
  isComplex,
  numel,
  type Precision,
} from "../../graph/index.js";
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

const word = new Uint32Array(1);
const float = new Float32Array(word.buffer);

/** tf32 keeps ten bits of the mantissa; halves round away from zero. */
function tf32(x: number): number {
  float[0] = x;
  if (!Number.isFinite(x)) return x;
  word[0] = (word[0] + 0x1000) & 0xffffe000;
  return float[0];
}

const roundings: Record<Precision, ((x: number) => number) | null> = {
  float32: null,
  tf32,
  bfloat16: (x) => bfloat16Value(bfloat16Bits(x)),
  float16: (x) => float16Value(float16Bits(x)),
};

/** A float32 operand rounded to the precision of a product. */
export function seen(x: Value, precision: Precision | undefined): Value {
  const round = precision === undefined || x.dtype !== "float32" ? null : roundings[precision];
  return round === null ? x : fromReals("float32", x.shape, Array.from(reals(x), round));
}

export const matmulRules: ReferenceRules<"matmul"> = {
  matmul: ([a, b], { attrs }) => matmul(seen(a, attrs.precision), seen(b, attrs.precision)),
};
