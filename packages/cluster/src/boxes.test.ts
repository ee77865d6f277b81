import assert from "node:assert/strict";
import { test } from "node:test";
import { denseStrides, putPart, takePart } from "./boxes.js";

test("boxes are copied out of an array and back, along any axis", () => {
  const shape = [4, 5, 3];
  const strides = denseStrides(shape, 2);
  const whole = Uint8Array.from({ length: 120 }, (_, i) => i + 1);
  for (const [start, sizes] of [
    [
      [0, 0, 0],
      [4, 5, 3],
    ],
    [
      [1, 0, 0],
      [2, 5, 3],
    ],
    [
      [0, 2, 0],
      [4, 2, 3],
    ],
    [
      [1, 3, 1],
      [3, 1, 2],
    ],
    [
      [0, 0, 2],
      [1, 5, 1],
    ],
    [
      [2, 0, 0],
      [0, 5, 3],
    ],
  ]) {
    const offset = start.reduce((n, s, i) => n + s * strides[i], 0);
    const part = { offset, sizes, strides, element: 2 };
    const taken = takePart(whole, part);
    const expected: number[] = [];
    for (let a = 0; a < sizes[0]; a++)
      for (let b = 0; b < sizes[1]; b++)
        for (let c = 0; c < sizes[2]; c++)
          for (let byte = 0; byte < 2; byte++)
            expected.push(whole[(((start[0] + a) * 5 + start[1] + b) * 3 + start[2] + c) * 2 + byte]);
    assert.deepEqual([...taken], expected);
    const copy = whole.slice();
    const erased = copy.map((x) => x);
    putPart(new Uint8Array(taken.length), erased, part);
    assert.equal(erased.filter((x) => x === 0).length, taken.length);
    putPart(taken, erased, part);
    assert.deepEqual(erased, whole);
  }
});
