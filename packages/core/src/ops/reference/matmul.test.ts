import assert from "node:assert/strict";
import { test } from "node:test";
import type { DType, Shape } from "../../graph/index.js";
import { aval, complexTensor, numbers, runOne, tensor } from "./testkit.js";
import type { Value } from "./value.js";

const matmul = (a: Value, b: Value, shape: Shape, dtype: DType = a.dtype): number[] =>
  numbers(runOne("matmul", {}, [a, b], aval(shape, dtype)));

test("products of one matrix, a batch, and empty ones", () => {
  const a = tensor([2, 3], [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(matmul(a, tensor([3, 2], [7, 8, 9, 10, 11, 12]), [2, 2]), [58, 64, 139, 154]);
  const batch = tensor([2, 1, 2], [1, 2, 3, 4]);
  assert.deepEqual(matmul(batch, tensor([2, 2, 1], [1, 1, 10, 100]), [2, 1, 1]), [3, 430]);
  assert.deepEqual(matmul(tensor([2, 0], []), tensor([0, 2], []), [2, 2]), [0, 0, 0, 0]);
  assert.deepEqual(matmul(tensor([0, 2], []), tensor([2, 3], [1, 2, 3, 4, 5, 6]), [0, 3]), []);
  assert.deepEqual(matmul(tensor([0, 1, 2], []), tensor([0, 2, 1], []), [0, 1, 1]), []);
});

test("complex products do not conjugate", () => {
  const a = complexTensor([1, 2], [1, 2, 0, 1]);
  const b = complexTensor([2, 1], [3, 4, 5, -6]);
  assert.deepEqual(matmul(a, b, [1, 1]), [-5 + 6, 10 + 5]);
});

test("infinities stay infinite in real products", () => {
  const inf = Number.POSITIVE_INFINITY;
  assert.deepEqual(matmul(tensor([1, 2], [inf, 1]), tensor([2, 1], [1, 1]), [1, 1]), [inf]);
});

test("integers wrap, floats round once", () => {
  const a = tensor([1, 2], [65536, 3], "int32");
  assert.deepEqual(matmul(a, tensor([2, 1], [65536, 5], "int32"), [1, 1]), [15]);
  const thirds = tensor([1, 3], [1 / 3, 1 / 3, 1 / 3]);
  const exact = 3 * Math.fround(1 / 3) * 1;
  assert.deepEqual(matmul(thirds, tensor([3, 1], [1, 1, 1]), [1, 1]), [Math.fround(exact)]);
  const halves = tensor([1, 3], [2048, 1, 1], "float16");
  assert.deepEqual(matmul(halves, tensor([3, 1], [1, 1, 1], "float16"), [1, 1]), [2050]);
});
