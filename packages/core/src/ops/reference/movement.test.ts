import assert from "node:assert/strict";
import { test } from "node:test";
import { aval, complexTensor, numbers, runOne, tensor } from "./testkit.js";
import { fromIntegers, integers } from "./value.js";

const six = tensor([2, 3], [1, 2, 3, 4, 5, 6]);

test("reshape, permute and expand", () => {
  assert.deepEqual(numbers(runOne("reshape", { shape: [3, 2] }, [six], aval([3, 2]))), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(numbers(runOne("permute", { axes: [1, 0] }, [six], aval([3, 2]))), [1, 4, 2, 5, 3, 6]);
  const cube = tensor([2, 3, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  const turned = runOne("permute", { axes: [2, 0, 1] }, [cube], aval([2, 2, 3]));
  assert.deepEqual(numbers(turned), [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]);
  const column = tensor([2, 1], [1, 2]);
  assert.deepEqual(numbers(runOne("expand", { shape: [2, 3] }, [column], aval([2, 3]))), [1, 1, 1, 2, 2, 2]);
  assert.equal(runOne("expand", { shape: [2, 0] }, [column], aval([2, 0])).data.length, 0);
});

test("slice steps from start to before stop", () => {
  const x = tensor([7], [0, 1, 2, 3, 4, 5, 6]);
  assert.deepEqual(numbers(runOne("slice", { start: [1], stop: [6], step: [2] }, [x], aval([3]))), [1, 3, 5]);
  assert.deepEqual(numbers(runOne("slice", { start: [1], stop: [7], step: [4] }, [x], aval([2]))), [1, 5]);
  assert.deepEqual(numbers(runOne("slice", { start: [3], stop: [3], step: [1] }, [x], aval([0]))), []);
  const corner = runOne("slice", { start: [1, 0], stop: [2, 3], step: [1, 2] }, [six], aval([1, 2]));
  assert.deepEqual(numbers(corner), [4, 6]);
});

test("pad surrounds with zeros, flip reverses", () => {
  const padded = runOne("pad", { low: [1, 0], high: [0, 2] }, [six], aval([3, 5]));
  assert.deepEqual(numbers(padded), [0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 0, 0]);
  assert.deepEqual(numbers(runOne("pad", { low: [2], high: [1] }, [tensor([0], [])], aval([3]))), [0, 0, 0]);
  assert.deepEqual(numbers(runOne("flip", { axes: [1] }, [six], aval([2, 3]))), [3, 2, 1, 6, 5, 4]);
  assert.deepEqual(numbers(runOne("flip", { axes: [0, 1] }, [six], aval([2, 3]))), [6, 5, 4, 3, 2, 1]);
  const z = complexTensor([2], [1, 2, 3, 4]);
  assert.deepEqual(numbers(runOne("flip", { axes: [0] }, [z], aval([2], "complex128"))), [3, 4, 1, 2]);
});

test("concat along any axis, with empty operands", () => {
  const two = tensor([2, 1], [7, 8]);
  const none = tensor([2, 0], []);
  assert.deepEqual(numbers(runOne("concat", { axis: 1 }, [six, none, two], aval([2, 4]))), [1, 2, 3, 7, 4, 5, 6, 8]);
  const rows = runOne("concat", { axis: 0 }, [six, tensor([1, 3], [7, 8, 9])], aval([3, 3]));
  assert.deepEqual(numbers(rows), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test("movement keeps every bit: NaN payloads and large integers", () => {
  const odd = { shape: [2], dtype: "float16" as const, data: Uint16Array.of(0x7e01, 0x8000) };
  const flipped = runOne("flip", { axes: [0] }, [odd], aval([2], "float16"));
  assert.deepEqual([...(flipped.data as Uint16Array)], [0x8000, 0x7e01]);
  const large = fromIntegers("int64", [1, 2], [2n ** 62n + 1n, -1n]);
  const tall = runOne("permute", { axes: [1, 0] }, [large], aval([2, 1], "int64"));
  assert.deepEqual(integers(tall), [2n ** 62n + 1n, -1n]);
});

test("a result that is not what the node promised is an internal error", () => {
  assert.throws(() => runOne("permute", { axes: [1, 0] }, [six], aval([2, 3])), /permute .*\[2, 3\] and is .*\[3, 2\]/);
});
