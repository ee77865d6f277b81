import assert from "node:assert/strict";
import { test } from "node:test";
import type { Shape } from "../../graph/index.js";
import { aval, complexTensor, numbers, runOne, tensor } from "./testkit.js";
import { fromIntegers, integers, type Value } from "./value.js";

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;
const indices = (shape: Shape, xs: number[]): Value => tensor(shape, xs, "int32");

function gather(x: Value, at: Value, axis: number, batch: number, shape: Shape): number[] {
  return numbers(runOne("gather", { axis, batch }, [x, at], aval(shape, x.dtype)));
}

test("gather takes along an axis and clamps its indices", () => {
  const x = tensor([2, 3], [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(gather(x, indices([2], [2, 0]), 1, 0, [2, 2]), [3, 1, 6, 4]);
  assert.deepEqual(gather(x, indices([3], [1, 1, 0]), 0, 0, [3, 3]), [4, 5, 6, 4, 5, 6, 1, 2, 3]);
  assert.deepEqual(gather(x, indices([], [1]), 0, 0, [3]), [4, 5, 6]);
  assert.deepEqual(gather(x, indices([2, 2], [0, 1, 2, 9]), 1, 0, [2, 2, 2]), [1, 2, 3, 3, 4, 5, 6, 6]);
  assert.deepEqual(gather(x, indices([2], [-4, 99]), 1, 0, [2, 2]), [1, 3, 4, 6]);
  assert.deepEqual(gather(x, indices([0], []), 1, 0, [2, 0]), []);
});

test("gather with batch dimensions and dimensions before the axis", () => {
  const x = tensor([2, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  assert.deepEqual(gather(x, indices([2, 1], [2, 0]), 2, 1, [2, 2, 1]), [2, 5, 6, 9]);
  assert.deepEqual(gather(x, indices([2, 2], [1, 0, 1, 1]), 1, 1, [2, 2, 3]), [3, 4, 5, 0, 1, 2, 9, 10, 11, 9, 10, 11]);
  assert.deepEqual(gather(x, indices([2, 2], [0, 1, 2, 0]), 2, 2, [2, 2]), [0, 4, 8, 9]);
  assert.deepEqual(gather(complexTensor([2], [1, 2, 3, 4]), indices([1], [1]), 0, 0, [1]), [3, 4]);
});

test("scatterAdd adds repeated indices and drops those out of range", () => {
  const base = tensor([4], [1, 1, 1, 1]);
  const sum = runOne(
    "scatterAdd",
    { axis: 0, batch: 0 },
    [base, indices([5], [0, 2, 2, -1, 4]), tensor([5], [10, 20, 30, 40, 50])],
    aval([4]),
  );
  assert.deepEqual(numbers(sum), [11, 1, 51, 1]);
  assert.deepEqual(numbers(base), [1, 1, 1, 1]);
  const rows = runOne(
    "scatterAdd",
    { axis: 1, batch: 1 },
    [tensor([2, 2], [0, 0, 0, 0]), indices([2, 3], [0, 0, 1, 1, 1, 1]), tensor([2, 3], [1, 2, 3, 4, 5, 6])],
    aval([2, 2]),
  );
  assert.deepEqual(numbers(rows), [3, 3, 0, 15]);
  const z = runOne(
    "scatterAdd",
    { axis: 0, batch: 0 },
    [complexTensor([2], [0, 0, 0, 0]), indices([2], [1, 1]), complexTensor([2], [1, 2, 3, 4])],
    aval([2], "complex128"),
  );
  assert.deepEqual(numbers(z), [0, 0, 4, 6]);
  const large = fromIntegers("int64", [1], [2n ** 53n]);
  const one = fromIntegers("int64", [1], [1n]);
  const exact = runOne("scatterAdd", { axis: 0, batch: 0 }, [large, indices([1], [0]), one], aval([1], "int64"));
  assert.deepEqual(integers(exact), [2n ** 53n + 1n]);
});

test("float32 scatterAdd accumulates in double", () => {
  const terms = tensor([1001], new Float64Array(1001).fill(1));
  const base = tensor([1], [2 ** 25]);
  const sum = runOne(
    "scatterAdd",
    { axis: 0, batch: 0 },
    [base, indices([1001], new Array(1001).fill(0)), terms],
    aval([1]),
  );
  assert.deepEqual(numbers(sum), [Math.fround(2 ** 25 + 1001)]);
});

test("argsort is stable and sorts NaN last", () => {
  const x = tensor([2, 5], [3, nan, 1, 3, -inf, 0, -0, nan, nan, inf]);
  const order = (descending: boolean) => numbers(runOne("argsort", { descending }, [x], aval([2, 5], "int32")));
  assert.deepEqual(order(false), [4, 2, 0, 3, 1, 0, 1, 4, 2, 3]);
  assert.deepEqual(order(true), [1, 0, 3, 2, 4, 2, 3, 4, 0, 1]);
  const large = fromIntegers("int64", [2], [2n ** 53n + 1n, 2n ** 53n]);
  assert.deepEqual(numbers(runOne("argsort", { descending: false }, [large], aval([2], "int32"))), [1, 0]);
  assert.equal(runOne("argsort", { descending: false }, [tensor([2, 0], [])], aval([2, 0], "int32")).data.length, 0);
});

test("argmax and argmin return the first extremum, or the first NaN", () => {
  const x = tensor([3, 4], [1, 5, 5, 2, 4, nan, 9, nan, -1, -1, 0, 0]);
  const best = (fn: "argmax" | "argmin", axis: number, shape: Shape) =>
    numbers(runOne("argreduce", { fn, axis }, [x], aval(shape, "int32")));
  assert.deepEqual(best("argmax", 1, [3]), [1, 1, 2]);
  assert.deepEqual(best("argmin", 1, [3]), [0, 1, 0]);
  assert.deepEqual(best("argmax", 0, [4]), [1, 1, 1, 1]);
  assert.throws(() => runOne("argreduce", { fn: "argmax", axis: 0 }, [tensor([0], [])], aval([], "int32")), /size 0/);
});
