// Indices that int32 cannot hold: values of wider dtypes must not wrap into the range of an axis, and axes that int32 cannot number are
// refused before memory is allocated. Out-of-range indices are clamped when reading and dropped when writing, as docs/tensors.md says.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { onEachDevice } from "./devices.js";

onEachDevice(() => {
  const x = (): weft.Tensor => weft.tensor([10, 20, 30]);

  // Each is 1 modulo 2^32, the place of 20, or -1, the last place.
  const cases = [
    { dtype: "int64", value: 4294967297n, read: 30 },
    { dtype: "int64", value: -4294967295n, read: 10 },
    { dtype: "uint64", value: 18446744069414584321n, read: 30 },
    { dtype: "uint32", value: 4294967295, read: 30 },
  ] as const;
  for (const { dtype, value, read } of cases)
    test(`${value} as ${dtype} is out of range`, () => {
      const at = weft.tensor([value] as number[], { dtype });
      assert.deepEqual(x().take(at).arraySync(), [read]);
      assert.deepEqual(weft.gather(x(), at).arraySync(), [read]);
      assert.deepEqual(x().index(at).arraySync(), [read]);
      assert.deepEqual(
        x()
          .scatterAdd(at, weft.tensor([1]))
          .arraySync(),
        [10, 20, 30],
      );
      assert.deepEqual(weft.scatter(x(), at, weft.tensor([1])).arraySync(), [10, 20, 30]);
      assert.deepEqual(weft.segmentReduce(weft.tensor([[7]]), at, 2).arraySync(), [[0], [0]]);
      assert.deepEqual(weft.oneHot(at, 3).arraySync(), [[0, 0, 0]]);
      assert.ok(Number.isNaN(weft.crossEntropy(weft.tensor([[1, 2, 3]]), at).itemSync()));
    });

  test("axes of 2^31 elements and more are refused where places are counted", () => {
    const long = weft.zeros([2 ** 31 + 11], { dtype: "uint8" });
    const refused = { name: "ShapeError", message: /more places than int32/ };
    for (const count of [
      () => long.argmax(),
      () => weft.argmin(long),
      () => weft.argsort(long),
      () => long.sort(),
      () => weft.topk(long, 2),
      () => long.take([1]),
      () => weft.scatter(long, weft.tensor([1], { dtype: "int32" }), weft.ones([1], { dtype: "uint8" })),
      () => weft.bincount(weft.tensor([2 ** 33], { dtype: "int64" })),
    ])
      assert.throws(count, refused);
    // Rows of it are numbered one by one.
    assert.equal(
      long
        .slice([0], [2 ** 20])
        .argmax()
        .itemSync(),
      0,
    );
  });
});

test("a loop of more than 2^31 steps counts all of them", {
  skip: weft.CpuDevice.available() ? false : "no C compiler",
}, () => {
  weft.useDevice(new weft.CpuDevice());
  const ones = weft.ones([50_000], { dtype: "int8" });
  assert.equal(ones.unsqueeze(1).mul(ones).sum().itemSync(), 2_500_000_000);
});

// Indices over 2^31 without memory for what they count: programs compute these values where they read them.
test("elements beyond 2^31 and 2^32 are those of their indices", {
  skip: weft.CpuDevice.available() ? false : "no C compiler",
}, () => {
  weft.useDevice(new weft.CpuDevice());
  const dtype = "int64";
  const n = 2 ** 31 + 11;
  const line = weft.arange(n, { dtype });
  const square = weft.arange(2 ** 32, { dtype }).reshape([2 ** 16, 2 ** 16]);
  const tail = weft.concat([weft.zeros([2 ** 31], { dtype: "int8" }), weft.arange(20, { dtype: "int8" })]);
  const values: [weft.Tensor, number[]][] = [
    [line.slice([n - 2], [n]), [n - 2, n - 1]],
    [line.flip([0]).slice([0], [2]), [n - 1, n - 2]],
    [line.index("-1::-1073741824"), [n - 1, n - 1 - 2 ** 30, n - 1 - 2 ** 31]],
    [line.roll(2 ** 31).slice([0], [2]), [11, 12]],
    [square.take([65535], 0).index(0, "-2:"), [2 ** 32 - 2, 2 ** 32 - 1]],
    [square.T.index(-1, "-2:"), [2 ** 32 - 1 - 2 ** 16, 2 ** 32 - 1]],
    [weft.gather(square, weft.tensor([[65535]], { dtype: "int32" }), 1).index("-1:", 0), [2 ** 32 - 1]],
    [tail.slice([2 ** 31 - 1], [2 ** 31 + 3]), [0, 0, 1, 2]],
    [
      weft
        .arange(3, { dtype: "int8" })
        .pad([[2 ** 32, 1]])
        .slice([2 ** 32], [2 ** 32 + 4]),
      [0, 1, 2, 0],
    ],
    [weft.tile(weft.arange(4, { dtype: "int8" }), [2 ** 30]).slice([2 ** 32 - 3], [2 ** 32]), [1, 2, 3]],
  ];
  const results = weft.jit(() => values.map(([t]) => t.cast("float64")))();
  results.forEach((t, i) => {
    assert.deepEqual(Array.from(t.dataSync() as Float64Array), values[i][1]);
  });
});

test("the reference device refuses what JavaScript cannot hold, and lives on", () => {
  weft.useDevice(new weft.ReferenceDevice());
  const refused = { name: "ShapeError", message: /more elements than JavaScript computes here/ };
  const far = [2 ** 31 + 10];
  assert.throws(
    () =>
      weft
        .arange(2 ** 31 + 11, { dtype: "int64" })
        .slice(far, [2 ** 31 + 11])
        .dataSync(),
    refused,
  );
  assert.throws(
    () =>
      weft
        .rand([2 ** 33], { seed: 1 })
        .max()
        .dataSync(),
    refused,
  );
  assert.equal(weft.arange(5).sum().itemSync(), 10);
});

test("options follow the last number of a range", () => {
  const dtype = "int32";
  assert.deepEqual(weft.arange(3, { dtype }).arraySync(), [0, 1, 2]);
  assert.deepEqual(weft.arange(1, 3, { dtype }).arraySync(), [1, 2]);
  assert.deepEqual(weft.arange(1, 6, 2, { dtype }).arraySync(), [1, 3, 5]);
  assert.throws(() => weft.arange(3, { step: 2 } as never), /arange: there is no option "step"/);
});
