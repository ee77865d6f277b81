// Trees of tensors, and tensors as text.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";

weft.useDevice(new weft.ReferenceDevice());

test("rebuild restores the structure of a tree with other tensors", () => {
  const [a, b, c] = [1, 2, 3].map((n) => weft.tensor([n]));
  const tree = { z: [a, { k: null, f: 3, g: "text" }], a: b, deep: { deeper: [[c]] }, none: undefined };
  const { leaves, def } = weft.flattenTree(tree);
  assert.deepEqual(leaves, [b, c, a]);
  const again = def.rebuild(leaves) as typeof tree;
  assert.equal(again.z[0], a);
  assert.equal(again.deep.deeper[0][0], c);
  assert.deepEqual(again.z[1], { k: null, f: 3, g: "text" });
  assert.ok("none" in again);
});

test("keys distinguish structures and other values", () => {
  const x = weft.tensor([1]);
  const trees: unknown[] = [
    x,
    [x],
    [[x]],
    { x },
    { y: x },
    [x, x],
    [x, 1],
    [x, "1"],
    [x, true],
    [x, null],
    [x, undefined],
    [x, 0],
    [x, -0],
    [x, 1n],
    [x, ["a", "b"]],
    [x, ["a,b"]],
    [x, 'a","b'],
    [x, new Map()],
    [x, () => 1],
  ];
  const keys = trees.map((tree) => weft.flattenTree(tree).def.key);
  assert.equal(new Set(keys).size, keys.length, `${keys}`);
  const opaque = new Map();
  assert.equal(weft.flattenTree([opaque]).def.key, weft.flattenTree([opaque]).def.key);
});

test("treeMap walks several trees together", () => {
  const params = { w: weft.tensor([1, 2]), b: weft.tensor([3]) };
  const sum = weft.treeMap((p: Tensor, q: Tensor) => p.add(q), params, {
    w: weft.tensor([10, 20]),
    b: weft.tensor([30]),
  });
  assert.deepEqual(sum.w.arraySync(), [11, 22]);
  assert.deepEqual(sum.b.arraySync(), [33]);
});

test("tensors print as nested brackets, long axes shortened", () => {
  const shown: [Tensor, string][] = [
    [weft.tensor(2.5), "float32[] 2.5"],
    [
      weft.tensor(
        [
          [1, 2],
          [3, 4],
        ],
        { dtype: "int32" },
      ),
      "int32[2, 2] [[1, 2], [3, 4]]",
    ],
    [weft.tensor([true, false]), "bool[2] [true, false]"],
    [weft.tensor([{ re: 1, im: -2 }]), "complex64[1] [1-2i]"],
    [weft.zeros([0, 2]), "float32[0, 2] []"],
    [weft.arange(12), "float32[12] [0, 1, 2, ..., 9, 10, 11]"],
    [
      weft.tensor([Number.NaN, Number.POSITIVE_INFINITY, 1e-7, 123456789.5], { dtype: "float64" }),
      "float64[4] [NaN, Infinity, 1.0000e-7, 1.2346e+8]",
    ],
    [weft.tensor([9007199254740993n]), "int64[1] [9007199254740993]"],
  ];
  for (const [x, text] of shown) assert.equal(String(x), text);
});

test("data, item and array return JavaScript values", async () => {
  assert.deepEqual(
    weft
      .tensor([
        [1, 2],
        [3, 4],
      ])
      .arraySync(),
    [
      [1, 2],
      [3, 4],
    ],
  );
  assert.deepEqual(weft.tensor([true, false]).arraySync(), [true, false]);
  assert.deepEqual(weft.tensor([{ re: 1, im: 2 }]).arraySync(), [{ re: 1, im: 2 }]);
  assert.deepEqual(
    weft.tensor([0.1, 1000.7], { dtype: "float16" }).dataSync(),
    Float32Array.of(0.0999755859375, 1000.5),
  );
  assert.deepEqual(weft.tensor([0.1], { dtype: "bfloat16" }).dataSync(), Float32Array.of(0.10009765625));
  assert.equal(await weft.tensor([[7]]).item(), 7);
  assert.equal(await weft.tensor(true).item(), 1);
  assert.deepEqual(await weft.tensor([1, 2]).data(), Float32Array.of(1, 2));
  assert.deepEqual(await weft.zeros([2, 0]).array(), [[], []]);
  const own = Float32Array.of(8, 8);
  assert.equal(await weft.tensor([3, 4]).data(own), own);
  assert.deepEqual(own, Float32Array.of(3, 4));
  await assert.rejects(weft.tensor([1, 2, 3]).data(own), /data: cannot put float32\[3\] into a Float32Array of 2/);
  await assert.rejects(weft.tensor([1], { dtype: "int32" }).data(own), /it needs a Int32Array of 1/);
  const raw = weft.tensor([1], { dtype: "float16" }).rawSync();
  assert.deepEqual(raw, Uint16Array.of(0x3c00));
});
