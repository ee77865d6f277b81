// Functions whose shape depends on values, and functions of dtypes: they run eagerly, so that the cases cannot hold them. Expected
// values are those of NumPy for the same arrays.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { type DType, type Tensor, tensor, useDevice } from "../index.js";
import { testDevices } from "./devices.js";

const rows = (t: Tensor): unknown => t.arraySync();

for (const device of testDevices())
  describe(`selection on ${device.name}`, () => {
    const x = (): Tensor => {
      useDevice(device.make());
      return tensor([
        [3, 0, 2],
        [0, 5, 2],
      ]);
    };

    test("nonzero and argwhere list indices in row-major order", () => {
      const t = x();
      assert.deepEqual(weft.nonzero(t).map(rows), [
        [0, 0, 1, 1],
        [0, 2, 1, 2],
      ]);
      assert.deepEqual(rows(weft.argwhere(t)), [
        [0, 0],
        [0, 2],
        [1, 1],
        [1, 2],
      ]);
      assert.deepEqual(weft.nonzero(weft.zeros([0, 2])).map(rows), [[], []]);
      assert.deepEqual(weft.argwhere(tensor(3)).shape, [1, 0]);
      assert.throws(() => weft.nonzero(tensor(3)), /scalar/);
    });

    test("a mask selects elements or rows, and carries gradients", () => {
      const t = x();
      assert.deepEqual(rows(weft.mask(t, t.greater(1))), [3, 2, 5, 2]);
      assert.deepEqual(rows(t.mask(tensor([false, true]))), [[0, 5, 2]]);
      assert.deepEqual(t.mask(tensor(false)).shape, [0, 2, 3]);
      assert.deepEqual(rows(weft.compress(tensor([true, false, true]), t, 1)), [
        [3, 2],
        [0, 2],
      ]);
      assert.deepEqual(rows(weft.compress(tensor([0, 1]).cast("bool"), t)), [0]);
      const slope = weft.grad((v: Tensor) => v.mask(v.greater(1)).square().sum())(t);
      assert.deepEqual(rows(slope), [
        [6, 0, 4],
        [0, 10, 4],
      ]);
      assert.throws(() => t.mask(t), /bool/);
      assert.throws(() => t.mask(tensor([true, false, true])), /does not match/);
    });

    test("values are set by a mask, also inside jit", () => {
      const t = x();
      assert.deepEqual(rows(t.setMask(t.equal(0), -1)), [
        [3, -1, 2],
        [-1, 5, 2],
      ]);
      const set = weft.jit((v: Tensor, w: Tensor) => v.setMask(v.greater(2), w));
      assert.deepEqual(rows(set(t, tensor([10, 20]))), [
        [10, 0, 2],
        [0, 20, 2],
      ]);
      assert.deepEqual(rows(t.setMask(tensor([true, false]), tensor([7, 8, 9]))), [
        [7, 8, 9],
        [0, 5, 2],
      ]);
    });

    test("unique elements: sorted, first positions, inverse and counts", () => {
      const t = x();
      const all = weft.uniqueAll(t);
      assert.deepEqual([all.values, all.indices, all.inverseIndices, all.counts].map(rows), [
        [0, 2, 3, 5],
        [1, 2, 0, 4],
        [
          [2, 0, 1],
          [0, 3, 1],
        ],
        [2, 2, 1, 1],
      ]);
      assert.deepEqual(rows(weft.uniqueValues(tensor([Number.NaN, 1, -0, Number.NaN, 0]))), [
        -0,
        1,
        Number.NaN,
        Number.NaN,
      ]);
      assert.deepEqual(rows(weft.uniqueCounts(tensor([true, true, false])).counts), [1, 2]);
      assert.deepEqual(rows(weft.uniqueInverse(tensor([5n, 2n ** 53n + 1n, 2n ** 53n, 5n])).values), [
        5n,
        2n ** 53n,
        2n ** 53n + 1n,
      ]);
      const z = tensor([
        { re: 1, im: 2 },
        { re: 1, im: -1 },
        { re: 1, im: 2 },
      ]);
      assert.deepEqual(rows(weft.uniqueValues(z)), [
        { re: 1, im: -1 },
        { re: 1, im: 2 },
      ]);
      assert.deepEqual(weft.uniqueAll(weft.zeros([0])).values.shape, [0]);
      for (const dtype of weft.dtypes) assert.equal(weft.uniqueValues(tensor([1, 0, 1], { dtype })).dtype, dtype);
    });

    test("counts and bins that are read", () => {
      x();
      assert.deepEqual(rows(weft.bincount(tensor([0, 3, 3], { dtype: "int32" }))), [1n, 0n, 0n, 2n]);
      const { counts, edges } = weft.histogram(tensor([1, 2, 2, 3]), 2);
      assert.deepEqual(
        [rows(counts), rows(edges)],
        [
          [1n, 3n],
          [1, 2, 3],
        ],
      );
      assert.deepEqual(rows(weft.repeat(tensor([1, 2]), tensor([2, 1], { dtype: "int32" }))), [1, 1, 2]);
    });
  });

test("what depends on values cannot be traced", () => {
  const t = tensor([1, 0]);
  for (const fn of [weft.nonzero, weft.argwhere, weft.uniqueValues, (v: Tensor) => v.mask(v.cast("bool"))])
    assert.throws(() => weft.jit((v: Tensor) => fn(v) as Tensor)(t), /value|trac/);
});

test("the sign bit of NaN is read, and no differences are taken zero times", () => {
  for (const device of testDevices()) {
    useDevice(device.make());
    const bits = new Uint32Array([0xffc00000, 0x7fc00000, 0x80000000]);
    assert.deepEqual(rows(weft.signbit(tensor(new Float32Array(bits.buffer)))), [true, false, true], device.name);
    assert.deepEqual(rows(weft.diff(tensor([1, 5]), 0, { n: 0, prepend: tensor([0]) })), [1, 5]);
  }
});

test("limits and kinds of dtypes", () => {
  const float32 = weft.finfo("float32");
  assert.deepEqual(
    [float32.eps, float32.max, float32.smallestNormal],
    [2 ** -23, 3.4028234663852886e38, 1.1754943508222875e-38],
  );
  assert.equal(weft.finfo("float64").max, Number.MAX_VALUE);
  assert.deepEqual([weft.finfo("complex128").dtype, weft.finfo("float16").max], ["float64", 65504]);
  assert.deepEqual(weft.iinfo("int64"), { dtype: "int64", bits: 64, max: 2n ** 63n - 1n, min: -(2n ** 63n) });
  assert.equal(weft.iinfo(tensor([1], { dtype: "uint16" })).max, 65535n);
  assert.throws(() => weft.finfo("int32"), /iinfo/);
  assert.throws(() => weft.iinfo("float32"), /finfo/);
  const kinds: [DType, Extract<Parameters<typeof weft.isOfKind>[1], string>][] = [
    ["int8", "signed integer"],
    ["uint64", "unsigned integer"],
    ["bfloat16", "real floating"],
    ["complex64", "complex floating"],
    ["bool", "bool"],
  ];
  for (const [dtype, kind] of kinds) {
    assert.ok(weft.isOfKind(dtype, kind) && weft.isOfKind(dtype, ["float64", kind]) && weft.isOfKind(dtype, dtype));
    assert.equal(weft.isOfKind(dtype, "numeric"), dtype !== "bool");
  }
  const castable: [DType, DType, boolean][] = [
    ["int8", "int16", true],
    ["int16", "int8", false],
    ["uint8", "int8", false],
    ["uint8", "int16", true],
    ["int32", "float32", false],
    ["int16", "float32", true],
    ["int32", "float64", true],
    ["float32", "complex64", true],
    ["float64", "complex64", false],
    ["complex64", "float64", false],
    ["bool", "int8", true],
    ["float16", "bfloat16", false],
  ];
  for (const [from, to, expected] of castable) assert.equal(weft.canCast(from, to), expected, `${from} to ${to}`);
  assert.equal(weft.resultType("int8", "uint8", tensor([1], { dtype: "int16" }), 3), "int16");
  assert.equal(weft.resultType(tensor([1n]), tensor([2n ** 63n]), "float16"), "float16");
  assert.equal(weft.namespaceInfo().defaultDtypes.realFloating, tensor([1]).dtype);
  assert.equal(weft.namespaceInfo().dtypes.length, 15);
  assert.deepEqual([weft.pi, weft.e, weft.inf, weft.nan, weft.newaxis], [Math.PI, Math.E, Infinity, Number.NaN, null]);
});
