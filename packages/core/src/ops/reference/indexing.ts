// Ops whose positions depend on data: gather, scatterAdd, argsort, argmax and argmin.
import {
  InternalError,
  isComplex,
  makeStorage,
  numel,
  type OpAttrs,
  range,
  type Shape,
  withoutAxes,
} from "../../graph/index.js";
import * as c from "./complex.js";
import {
  complexes,
  copyElements,
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

/**
 * How positions of x: [...batch, ...before, n, ...after], of indices: [...batch, ...I], and of the gathered
 * tensor: [...batch, ...before, ...I, ...after] correspond.
 */
function gatherLayout(x: Shape, indices: Shape, axis: number, batch: number) {
  const chosen = indices.slice(batch);
  const shape = [...x.slice(0, axis), ...chosen, ...x.slice(axis + 1)];
  return {
    shape,
    /** Position in `indices` for a position of the gathered tensor. */
    decider: (index: readonly number[]): number =>
      linearIndex(indices, [...index.slice(0, batch), ...index.slice(axis, axis + chosen.length)]),
    /** Position in x for the index `picked`. */
    source: (index: readonly number[], picked: number): number =>
      linearIndex(x, [...index.slice(0, axis), picked, ...index.slice(axis + chosen.length)]),
  };
}

function gather(x: Value, indices: Value, axis: number, batch: number): Value {
  const layout = gatherLayout(x.shape, indices.shape, axis, batch);
  const last = x.shape[axis] - 1;
  return copyElements(x, layout.shape, (index) => {
    if (last < 0) return null;
    const picked = Number(indices.data[layout.decider(index)]);
    return layout.source(index, Math.min(last, Math.max(0, picked)));
  });
}

function scatterAdd(base: Value, indices: Value, updates: Value, axis: number, batch: number): Value {
  const layout = gatherLayout(base.shape, indices.shape, axis, batch);
  function accumulate<T>(sums: T[], terms: ArrayLike<T>, plus: (a: T, b: T) => T): T[] {
    forEachIndex(layout.shape, (index, linear) => {
      const picked = Number(indices.data[layout.decider(index)]);
      if (picked < 0 || picked >= base.shape[axis]) return;
      const target = layout.source(index, picked);
      sums[target] = plus(sums[target], terms[linear]);
    });
    return sums;
  }
  if (isComplex(base.dtype))
    return fromComplexes(base.dtype, base.shape, accumulate(complexes(base), complexes(updates), c.add));
  if (isIntegral(base.dtype))
    return fromIntegers(
      base.dtype,
      base.shape,
      accumulate(integers(base), integers(updates), (a, b) => a + b),
    );
  return fromReals(
    base.dtype,
    base.shape,
    accumulate(Array.from(reals(base)), reals(updates), (a, b) => a + b),
  );
}

function scatterReduce(
  base: Value,
  indices: Value,
  updates: Value,
  { axis, batch, fn }: OpAttrs["scatterReduce"],
): Value {
  const layout = gatherLayout(base.shape, indices.shape, axis, batch);
  const [found, candidates] = [ordered(base), ordered(updates)];
  forEachIndex(layout.shape, (index, linear) => {
    const picked = Number(indices.data[layout.decider(index)]);
    if (picked < 0 || picked >= base.shape[axis]) return;
    const target = layout.source(index, picked);
    const [a, x] = [found[target], candidates[linear]];
    if (fn === "prod") found[target] = ((a as number) * (x as number)) as typeof a;
    else if (isNaNElement(x) || (fn === "max" ? x > a : x < a)) found[target] = x;
  });
  return isIntegral(base.dtype)
    ? fromIntegers(base.dtype, base.shape, found as bigint[])
    : fromReals(base.dtype, base.shape, found as number[]);
}

/** Elements that compare with < and >: exact for every real dtype. */
function ordered(x: Value): (number | bigint)[] {
  return isIntegral(x.dtype) ? integers(x) : Array.from(reals(x));
}

const isNaNElement = (x: number | bigint): boolean => typeof x === "number" && Number.isNaN(x);

/** Both orders are stable; NaN is greater than every number, as in PyTorch. */
function argsort(x: Value, descending: boolean, first: number, count: number): Value {
  const keys = ordered(x);
  const length = x.shape[x.shape.length - 1];
  const rows = numel(x.shape.slice(0, -1));
  const order = makeStorage("int32", rows * count) as Int32Array;
  const direction = descending ? -1 : 1;
  const compare = (a: number | bigint, b: number | bigint): number => {
    if (isNaNElement(a) || isNaNElement(b)) return direction * (Number(isNaNElement(a)) - Number(isNaNElement(b)));
    return a < b ? -direction : a > b ? direction : 0;
  };
  for (let row = 0; row < rows; row++) {
    const at = row * length;
    const sorted = range(length).sort((i, j) => compare(keys[at + i], keys[at + j]) || i - j);
    order.set(sorted.slice(first, first + count), row * count);
  }
  return { shape: [...x.shape.slice(0, -1), count], dtype: "int32", data: order };
}

/** First extremum; NaN wins, also in argmin. */
function argreduce(x: Value, fn: "argmax" | "argmin", axis: number): Value {
  if (x.shape[axis] === 0) throw new InternalError(`${fn} over an axis of size 0`);
  const keys = ordered(x);
  const shape = withoutAxes(x.shape, [axis]);
  const best = makeStorage("int32", numel(shape)) as Int32Array;
  const beats = (a: number | bigint, b: number | bigint): boolean => {
    if (isNaNElement(b)) return false;
    return isNaNElement(a) || (fn === "argmax" ? a > b : a < b);
  };
  forEachIndex(shape, (index, linear) => {
    const at = (i: number) => keys[linearIndex(x.shape, [...index.slice(0, axis), i, ...index.slice(axis)])];
    for (let i = 1; i < x.shape[axis]; i++) if (beats(at(i), at(best[linear]))) best[linear] = i;
  });
  return { shape, dtype: "int32", data: best };
}

function updateSlice(base: Value, start: Value, update: Value, axis: number, batch: number): Value {
  const [n, m] = [base.shape[axis], update.shape[axis]];
  const perBatch = numel(base.shape.slice(batch, axis));
  const inner = numel(base.shape.slice(axis + 1)) * (isComplex(base.dtype) ? 2 : 1);
  const data = base.data.slice() as Value["data"];
  for (let row = 0; row < numel(base.shape.slice(0, axis)); row++) {
    const at = Math.min(Math.max(Number(start.data[Math.floor(row / perBatch)]), 0), n - m);
    data.set(update.data.subarray(row * m * inner, (row + 1) * m * inner) as never, (row * n + at) * inner);
  }
  return { shape: base.shape, dtype: base.dtype, data };
}

export const indexingRules: ReferenceRules<
  "gather" | "scatterAdd" | "scatterReduce" | "updateSlice" | "argsort" | "argreduce"
> = {
  gather: ([x, indices], { attrs }) => gather(x, indices, attrs.axis, attrs.batch),
  updateSlice: ([base, start, update], { attrs }) => updateSlice(base, start, update, attrs.axis, attrs.batch),
  scatterAdd: ([base, indices, updates], { attrs }) => scatterAdd(base, indices, updates, attrs.axis, attrs.batch),
  scatterReduce: ([base, indices, updates], { attrs }) => scatterReduce(base, indices, updates, attrs),
  argsort: ([x], { attrs: { descending, first = 0 }, shape }) => argsort(x, descending, first, shape[shape.length - 1]),
  argreduce: ([x], { attrs }) => argreduce(x, attrs.fn, attrs.axis),
};
