import assert from "node:assert/strict";
import { test } from "node:test";
import type { ReduceFn } from "../../graph/index.js";
import { assertClose, aval, complexTensor, numbers, runOne, tensor } from "./testkit.js";
import { fromIntegers, integers, type Value } from "./value.js";

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;
const six = tensor([2, 3], [1, -2, 3, 4, 5, -6]);

function reduce(fn: ReduceFn, x: Value, axes: number[]): Value {
  const shape = x.shape.filter((_, i) => !axes.includes(i));
  return runOne("reduce", { fn, axes }, [x], aval(shape, x.dtype));
}
const cumsum = (x: Value, axis: number, reverse = false): Value =>
  runOne("cumsum", { axis, reverse }, [x], aval(x.shape, x.dtype));

test("reductions over rows, columns, everything and nothing", () => {
  assert.deepEqual(numbers(reduce("sum", six, [0])), [5, 3, -3]);
  assert.deepEqual(numbers(reduce("sum", six, [1])), [2, 3]);
  assert.deepEqual(numbers(reduce("sum", six, [0, 1])), [5]);
  assert.deepEqual(numbers(reduce("sum", six, [])), [1, -2, 3, 4, 5, -6]);
  assert.deepEqual(numbers(reduce("prod", six, [1])), [-6, -120]);
  assert.deepEqual(numbers(reduce("max", six, [1])), [3, 5]);
  assert.deepEqual(numbers(reduce("min", six, [0])), [1, -2, -6]);
});

test("max and min propagate NaN", () => {
  assertClose(numbers(reduce("max", tensor([2, 2], [1, nan, 2, 3]), [1])), [nan, 3]);
  assertClose(numbers(reduce("min", tensor([2, 2], [nan, 1, 2, 3]), [1])), [nan, 2]);
});

test("empty reductions give the neutral element of the dtype", () => {
  const none = tensor([2, 0], []);
  assert.deepEqual(numbers(reduce("sum", none, [1])), [0, 0]);
  assert.deepEqual(numbers(reduce("prod", none, [1])), [1, 1]);
  assert.deepEqual(numbers(reduce("max", none, [1])), [-inf, -inf]);
  assert.deepEqual(numbers(reduce("min", none, [1])), [inf, inf]);
  assert.deepEqual(numbers(reduce("max", tensor([0], [], "int32"), [0])), [-(2 ** 31)]);
  assert.deepEqual(numbers(reduce("min", tensor([0], [], "uint8"), [0])), [255]);
  assert.equal(reduce("sum", none, [0]).data.length, 0);
});

test("float32 sums accumulate in double, so a million small terms are not lost", () => {
  const count = 1_000_000;
  const ones = tensor([count + 1], new Float64Array(count + 1).fill(1).fill(2 ** 25, 0, 1));
  assert.deepEqual(numbers(reduce("sum", ones, [0])), [2 ** 25 + count]);
  assert.deepEqual(numbers(reduce("prod", tensor([3], [1e-30, 1e-30, 1e30]), [0])), [
    Math.fround(Math.fround(1e-30) ** 2 * Math.fround(1e30)),
  ]);
});

test("integers sum exactly and wrap; bool max is any, min is all", () => {
  assert.deepEqual(numbers(reduce("sum", tensor([2], [2 ** 31 - 1, 2], "int32"), [0])), [-(2 ** 31) + 1]);
  assert.deepEqual(integers(reduce("sum", fromIntegers("int64", [2], [2n ** 53n, 1n]), [0])), [2n ** 53n + 1n]);
  assert.deepEqual(numbers(reduce("prod", tensor([3], [7, 11, 13], "uint8"), [0])), [1001 % 256]);
  const flags = tensor([3, 2], [0, 0, 0, 1, 1, 1], "bool");
  assert.deepEqual(numbers(reduce("max", flags, [1])), [0, 1, 1]);
  assert.deepEqual(numbers(reduce("min", flags, [1])), [0, 0, 1]);
});

test("complex sums and products; no order, so no maximum", () => {
  const z = complexTensor([3], [1, 2, 0, 1, 3, -1]);
  assert.deepEqual(numbers(reduce("sum", z, [0])), [4, 2]);
  assert.deepEqual(numbers(reduce("prod", z, [0])), [-5, 5]);
  assert.throws(() => reduce("max", z, [0]), /max is not defined on complex128/);
});

test("cumsum runs along an axis, from either end", () => {
  assert.deepEqual(numbers(cumsum(six, 1)), [1, -1, 2, 4, 9, 3]);
  assert.deepEqual(numbers(cumsum(six, 0)), [1, -2, 3, 5, 3, -3]);
  assert.deepEqual(numbers(cumsum(six, 1, true)), [2, 1, 3, 3, -1, -6]);
  const cube = tensor([2, 2, 2], [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual(numbers(cumsum(cube, 1, true)), [4, 6, 3, 4, 12, 14, 7, 8]);
  assert.deepEqual(numbers(cumsum(complexTensor([2], [1, 1, 2, -3]), 0)), [1, 1, 3, -2]);
  assert.deepEqual(numbers(cumsum(tensor([3], [200, 100, 1], "uint8"), 0)), [200, 44, 45]);
  assert.equal(cumsum(tensor([2, 0], []), 1).data.length, 0);
});
