// Errors at the call: numbers that a dtype cannot represent, and tensors after dispose().
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";

weft.setDevice("reference");

const integers = { uint8: [0, 255], int32: [-(2 ** 31), 2 ** 31 - 1], int64: [-(2 ** 63), 2 ** 63] } as const;

test("integer dtypes reject fractions, NaN and numbers out of range, and name the element", () => {
  for (const [dtype, [low, high]] of Object.entries(integers) as ["int32", readonly [number, number]][]) {
    const above = dtype === ("int64" as string) ? high : high + 1;
    const below = dtype === ("int64" as string) ? low * 2 : low - 1;
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
  assert.throws(() => weft.tensor(Uint32Array.of(1, 2 ** 32 - 1)), /element \[1\] is 4294967295.*int32/);
  assert.throws(() => weft.tensor(BigUint64Array.of(2n ** 64n - 1n)), /int64/);
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
    assert.deepEqual([weft.tensor(data).dtype, weft.tensor(data).arraySync()], ["int32", [-3, 4]]);
  for (const data of [Uint16Array.of(3, 4), Uint32Array.of(3, 4)])
    assert.deepEqual([weft.tensor(data).dtype, weft.tensor(data).arraySync()], ["int32", [3, 4]]);
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
      made.dispose();
      made.dispose();
      assert.throws(() => use(made), /this float32\[3\] tensor .*was disposed at .*refuse\.test\.js:\d+/);
    }
  const made = weft.ones([2]).add(1);
  const reader = made.mul(3);
  made.dispose();
  assert.deepEqual(reader.arraySync(), [6, 6], "operations built before dispose() still get the value");
  assert.deepEqual([made.shape, made.dtype], [[2], "float32"]);
});
