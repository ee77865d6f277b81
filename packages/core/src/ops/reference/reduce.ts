// Reductions and running sums. Floats accumulate in double and are rounded once; integers accumulate exactly and wrap.
import { type DType, InternalError, integerLimits, isComplex, type ReduceFn, withoutAxes } from "../../graph/index.js";
import * as c from "./complex.js";
import { maxInteger, minInteger } from "./scalar.js";
import {
  complexes,
  forEachIndex,
  fromComplexes,
  fromIntegers,
  fromReals,
  integers,
  isIntegral,
  linearIndex,
  type ReferenceRules,
  reals,
  type Value,
} from "./value.js";

interface Monoid<T> {
  start: T;
  step(sum: T, x: T): T;
}

interface ReduceRow {
  real: Monoid<number>;
  complex?: Monoid<c.Complex>;
  integer(dtype: DType): Monoid<bigint>;
}

/** What an empty reduction gives is `start`: for max the lowest number of the dtype, for min the highest. */
const reduceTable: Record<ReduceFn, ReduceRow> = {
  sum: {
    real: { start: 0, step: (a, x) => a + x },
    complex: { start: c.zero, step: c.add },
    integer: () => ({ start: 0n, step: (a, x) => a + x }),
  },
  prod: {
    real: { start: 1, step: (a, x) => a * x },
    complex: { start: c.one, step: c.mul },
    integer: () => ({ start: 1n, step: (a, x) => BigInt.asIntN(64, a * x) }),
  },
  max: {
    real: { start: Number.NEGATIVE_INFINITY, step: Math.max },
    integer: (dtype) => ({ start: integerLimits(dtype).low, step: maxInteger }),
  },
  min: {
    real: { start: Number.POSITIVE_INFINITY, step: Math.min },
    integer: (dtype) => ({ start: integerLimits(dtype).high, step: minInteger }),
  },
};

/** Folds all elements that differ only along `axes` into one. */
function fold<T>(x: Value, elements: ArrayLike<T>, axes: readonly number[], monoid: Monoid<T>): T[] {
  const shape = withoutAxes(x.shape, axes);
  const remaining = x.shape.map((_, axis) => axis).filter((axis) => !axes.includes(axis));
  const sums = new Array<T>(shape.reduce((n, d) => n * d, 1)).fill(monoid.start);
  forEachIndex(x.shape, (index, linear) => {
    const target = linearIndex(
      shape,
      remaining.map((axis) => index[axis]),
    );
    sums[target] = monoid.step(sums[target], elements[linear]);
  });
  return sums;
}

function reduce(fn: ReduceFn, x: Value, axes: readonly number[]): Value {
  const row = reduceTable[fn];
  const shape = withoutAxes(x.shape, axes);
  if (isComplex(x.dtype)) {
    if (!row.complex) throw new InternalError(`${fn} is not defined on ${x.dtype}`);
    return fromComplexes(x.dtype, shape, fold(x, complexes(x), axes, row.complex));
  }
  if (isIntegral(x.dtype)) return fromIntegers(x.dtype, shape, fold(x, integers(x), axes, row.integer(x.dtype)));
  return fromReals(x.dtype, shape, fold(x, reals(x), axes, row.real));
}

/** Running sums along an axis, each from the start (or the end) up to and with its own position. */
function running<T>(x: Value, elements: ArrayLike<T>, axis: number, reverse: boolean, monoid: Monoid<T>): T[] {
  const length = x.shape[axis];
  const stride = x.shape.slice(axis + 1).reduce((n, d) => n * d, 1);
  const sums = Array.from(elements);
  for (let linear = 0; linear < sums.length; linear++) {
    const here = reverse ? sums.length - 1 - linear : linear;
    const position = Math.floor(here / stride) % length;
    if (position === (reverse ? length - 1 : 0)) continue;
    sums[here] = monoid.step(sums[here + (reverse ? stride : -stride)], sums[here]);
  }
  return sums;
}

function cumsum(x: Value, axis: number, reverse: boolean): Value {
  const { real, complex, integer } = reduceTable.sum;
  if (isComplex(x.dtype) && complex)
    return fromComplexes(x.dtype, x.shape, running(x, complexes(x), axis, reverse, complex));
  if (isIntegral(x.dtype))
    return fromIntegers(x.dtype, x.shape, running(x, integers(x), axis, reverse, integer(x.dtype)));
  return fromReals(x.dtype, x.shape, running(x, reals(x), axis, reverse, real));
}

export const reduceRules: ReferenceRules<"reduce" | "cumsum"> = {
  reduce: ([x], { attrs }) => reduce(attrs.fn, x, attrs.axes),
  cumsum: ([x], { attrs }) => cumsum(x, attrs.axis, attrs.reverse),
};
