// Errors at the call: numbers that a dtype cannot represent, and tensors after dispose().
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { memoryManager } from "../runtime/index.js";

weft.setDevice("reference");

/** Numbers next to the range of every integer dtype: the first doubles that do not fit. */
const outside = {
  int8: [-129, 128],
  uint8: [-1, 256],
  int16: [-32769, 32768],
  uint16: [-1, 65536],
  int32: [-(2 ** 31) - 1, 2 ** 31],
  uint32: [-1, 2 ** 32],
  int64: [-(2 ** 64), 2 ** 63],
  uint64: [-1, 2 ** 64],
} as const;

test("integer dtypes reject fractions, NaN and numbers out of range, and name the element", () => {
  for (const [dtype, [below, above]] of Object.entries(outside) as ["int32", readonly [number, number]][]) {
    for (const bad of [
      1.5,
      -0.5,
      1e-30,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
      above,
      below,
    ]) {
      const refused = (name: string) => (error: Error) =>
        error instanceof weft.DTypeError && error.message.includes(name) && error.message.includes(`is ${bad},`);
      assert.throws(() => weft.tensor(bad, { dtype }), refused("element []"));
      assert.throws(() => weft.tensor([0, bad], { dtype }), refused("element [1]"));
      assert.throws(
        () =>
          weft.tensor(
            [
              [0, 1, 2],
              [3, 4, bad],
            ],
            { dtype },
          ),
        refused("element [1, 2]"),
      );
      assert.throws(
        () => weft.tensor(Float64Array.of(1, 2, bad, 4), { dtype, shape: [2, 2] }),
        refused("element [1, 0]"),
      );
      assert.throws(() => weft.full([2], bad, { dtype }), refused("full: the value"));
    }
  }
  assert.throws(() => weft.tensor(Float32Array.of(0.1), { dtype: "int32" }), /element \[0\].*not a whole number/);
  assert.throws(() => weft.tensor([2n ** 63n], { dtype: "int64" }), /does not fit into int64/);
  assert.throws(() => weft.tensor(BigInt64Array.of(256n), { dtype: "uint8" }), /element \[0\] is 256/);
  assert.throws(
    () => weft.tensor(Uint32Array.of(1, 2 ** 32 - 1), { dtype: "int32" }),
    /element \[1\] is 4294967295.*int32/,
  );
  assert.throws(() => weft.tensor(BigUint64Array.of(2n ** 64n - 1n), { dtype: "int64" }), /int64/);
  assert.throws(() => weft.tensor([2n ** 64n]), /does not fit into uint64/);
  assert.throws(() => weft.tensor([1]).add(2n ** 64n), /expected a tensor or a number/);
  assert.throws(() => weft.arange(0, 300, 1, { dtype: "uint8" }), /arange: the last element is 299/);
  assert.throws(() => weft.arange(0, 3, 0.5, { dtype: "int32" }), /arange: the step is 0.5/);
});

test("bool accepts only 0 and 1", () => {
  for (const bad of [2, -1, 0.5, Number.NaN]) {
    assert.throws(() => weft.tensor([0, bad], { dtype: "bool" }), /element \[1\].*neither true/);
    assert.throws(() => weft.tensor(Float32Array.of(bad), { dtype: "bool" }), /element \[0\]/);
    assert.throws(() => weft.full([1], bad, { dtype: "bool" }), /full: the value/);
  }
  assert.deepEqual(weft.tensor([0, 1, true, -0], { dtype: "bool" }).arraySync(), [false, true, true, false]);
});

test("representable numbers of every typed array are stored exactly", () => {
  assert.deepEqual(weft.tensor([-(2 ** 31), 2 ** 31 - 1, -0], { dtype: "int32" }).arraySync(), [
    -(2 ** 31),
    2 ** 31 - 1,
    0,
  ]);
  assert.deepEqual(weft.tensor([2n ** 63n - 1n, -(2n ** 63n)]).arraySync(), [2n ** 63n - 1n, -(2n ** 63n)]);
  assert.deepEqual(weft.tensor([2 ** 63 - 1024], { dtype: "int64" }).arraySync(), [2n ** 63n - 1024n]);
  for (const data of [Int8Array.of(-3, 4), Int16Array.of(-3, 4), Int32Array.of(-3, 4)])
    assert.deepEqual(
      [weft.tensor(data).dtype, weft.tensor(data).arraySync()],
      [`int${8 * data.BYTES_PER_ELEMENT}`, [-3, 4]],
    );
  for (const data of [Uint8Array.of(3, 4), Uint16Array.of(3, 4), Uint32Array.of(3, 4)])
    assert.deepEqual(
      [weft.tensor(data).dtype, weft.tensor(data).arraySync()],
      [`uint${8 * data.BYTES_PER_ELEMENT}`, [3, 4]],
    );
  const largest = 2n ** 64n - 1n;
  assert.deepEqual(weft.tensor(BigUint64Array.of(largest)).arraySync(), [largest]);
  assert.deepEqual(weft.full([1], largest).arraySync(), [largest]);
  assert.deepEqual(weft.full([1], -(2n ** 63n)).arraySync(), [-(2n ** 63n)]);
  assert.deepEqual(
    weft
      .tensor([largest - 9n])
      .add(9n)
      .sub(2n ** 63n)
      .arraySync(),
    [2n ** 63n - 1n],
  );
  assert.deepEqual(weft.arange(9, 0, -3, { dtype: "uint8" }).arraySync(), [9, 6, 3]);
  assert.deepEqual(
    weft
      .tensor([largest, 3n])
      .greater(weft.tensor([-1n, 3n]))
      .arraySync(),
    [true, false],
  );
  assert.deepEqual(
    weft
      .tensor([-1n, 2n ** 63n - 1n])
      .less(weft.tensor([largest, 2n ** 63n]))
      .arraySync(),
    [true, true],
  );
  assert.throws(() => weft.tensor(new DataView(new ArrayBuffer(4)) as never), /DataView/);
});

test("every use of a tensor that was disposed before it was computed throws", () => {
  const uses: ((t: weft.Tensor) => unknown)[] = [
    (t) => t.add(1),
    (t) => t.dataSync(),
    (t) => t.toString(),
    (t) => t.realize(),
    (t) => weft.concat([t, t]),
    (t) => weft.grad((x: weft.Tensor) => x.sum())(t),
    (t) => weft.jit((x: weft.Tensor) => x.mul(2))(t),
    (t) => t.reshape([3, 1]),
  ];
  for (const use of uses)
    for (const computed of [false, true]) {
      const made = weft.ones([3]).add(1);
      if (computed) made.realize();
      memoryManager.recordSites = computed;
      made.dispose();
      made.dispose();
      memoryManager.recordSites = false;
      const where = computed
        ? / tensor .*was disposed at .*refuse\.test\.js:\d+/
        : / was disposed \(WEFT_MEMORY_SITES=1/;
      assert.throws(() => use(made), where);
    }
  const made = weft.ones([2]).add(1);
  const reader = made.mul(3);
  made.dispose();
  assert.deepEqual(reader.arraySync(), [6, 6], "operations built before dispose() still get the value");
  assert.deepEqual([made.shape, made.dtype], [[2], "float32"]);
});
