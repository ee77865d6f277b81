// The model of a configuration: contents of a packed batch, initialization of tables, and padding without effect.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { assertClose } from "@weft/testing/compare";
import { columns, headColumns } from "../data/index.js";
import { halfOf, makeModel, unpackBatch } from "./model.js";
import { tinyRaw } from "./testkit.js";

weft.setDevice("reference");

function pack(rows: { label: number; ids: number[] }[], length: number): weft.Tensor {
  const width = headColumns + length;
  const data = new Int32Array(rows.length * width);
  rows.forEach(({ label, ids }, row) => {
    data.set([row, label, ids.length, 11 + row, 22 + row, rows.length, ...ids], row * width);
  });
  return weft.tensor(data, { shape: [rows.length, width], dtype: "int32" });
}

test("unpacking a batch returns what was packed", () => {
  assert.equal(Object.keys(columns).length, headColumns);
  const batch = unpackBatch(
    pack(
      [
        { label: 2, ids: [5, 6] },
        { label: 0, ids: [] },
      ],
      3,
    ),
  );
  assert.deepEqual(batch.ids.arraySync(), [
    [5, 6, 0],
    [0, 0, 0],
  ]);
  assert.deepEqual(batch.mask.arraySync(), [
    [true, true, false],
    [false, false, false],
  ]);
  assert.deepEqual(batch.labels.arraySync(), [2, 0]);
  assert.deepEqual(batch.real.arraySync(), [true, false]);
  assert.deepEqual(batch.keys.arraySync(), [
    [11, 22],
    [12, 23],
  ]);
  assert.deepEqual(batch.total.arraySync(), [2, 2]);
});

test("padding changes no logits, and a row without tokens has finite logits", () => {
  const model = makeModel(tinyRaw(), 4, "float64");
  const params = model.init(weft.key(1));
  const rows = [
    { label: 0, ids: [3, 9, 27] },
    { label: 1, ids: [8] },
    { label: 0, ids: [] },
  ];
  const short = model.logits(params, unpackBatch(pack(rows, 3)), null);
  const long = model.logits(params, unpackBatch(pack(rows, 9)), null);
  assertClose(long, short, { rtol: 1e-12, atol: 1e-12 });
  assert.ok(short.isFinite().all().itemSync());
});

test("padding positions neither read nor update any row of the table", () => {
  const model = makeModel(tinyRaw(), 4, "float64");
  const params = model.init(weft.key(1));
  const packed = pack(
    [
      { label: 0, ids: [3, 9, 27] },
      { label: 1, ids: [8] },
      { label: 2, ids: [] },
    ],
    7,
  );
  const [plain, spread] = [unpackBatch(packed), unpackBatch(packed, 300)];
  const numbers = spread.ids.arraySync() as number[][];
  assert.deepEqual(numbers[0], [3, 9, 27, 3, 4, 5, 6], "tokens stay, places count on");
  assert.deepEqual(numbers[1].slice(0, 2), [8, 8]);
  assert.equal(new Set(numbers.flat()).size > 14, true, "all over the table");
  const of = (batch: typeof plain): { logits: weft.Tensor; table: weft.Tensor } => {
    const f = (p: typeof params): weft.Tensor => model.logits(p, batch, null).square().sum();
    return { logits: model.logits(params, batch, null), table: weft.grad(f)(params).embedding.weight };
  };
  const [a, b] = [of(plain), of(spread)];
  assertClose(b.logits, a.logits, { rtol: 1e-12, atol: 1e-12 });
  assertClose(b.table, a.table, { rtol: 1e-12, atol: 1e-12 });
  const touched = b.table.abs().sum(1).greater(0).cast("int32").arraySync() as number[];
  assert.deepEqual(
    touched.flatMap((t, row) => (t === 1 ? [row] : [])),
    [3, 8, 9, 27],
  );
});

test("embedding_std scales token and position embeddings only", () => {
  const stds = (std: number): number[] => {
    const raw = tinyRaw({ model: { positions: "learned", embedding_std: std } });
    const { embedding, positions, classifier } = makeModel(raw, 4, "float32").init(weft.key(2));
    return [embedding.weight, positions!.weight, classifier.weight].map((t) => t.std().itemSync() as number);
  };
  const [one, small] = [stds(1), stds(0.05)];
  assert.ok(Math.abs(one[0] - 1) < 0.05 && Math.abs(one[1] - 1) < 0.1);
  assert.ok(Math.abs(small[0] / one[0] - 0.05) < 1e-6 && Math.abs(small[1] / one[1] - 0.05) < 1e-6);
  assert.equal(small[2], one[2]);
});

test("tf32 rounds the operands of products on devices that support it; everything else is float32", () => {
  const before = weft.session().device;
  weft.setDevice("reference");
  try {
    const of = (compute: "float32" | "tf32"): { model: ReturnType<typeof makeModel>; logits: weft.Tensor } => {
      const model = makeModel(tinyRaw({ precision: { compute } }), 4, "float32");
      const batch = unpackBatch(pack([{ label: 0, ids: [3, 9, 27] }], 3));
      return { model, logits: model.logits(model.init(weft.key(1)), batch, null) };
    };
    const [exact, rounded] = [of("float32").logits, of("tf32").logits];
    assertClose(rounded, exact, { rtol: 2e-2, atol: 2e-2 });
    assert.ok((rounded.sub(exact).abs().max().itemSync() as number) > 1e-6, "nothing was rounded");
  } finally {
    weft.setDevice(before);
  }
});

test("half-precision configurations are recognized", () => {
  const of = (compute: "float32" | "tf32" | "float64" | "bfloat16" | "float16"): string | null =>
    halfOf(tinyRaw({ precision: { compute } }));
  assert.deepEqual(
    [of("float32"), of("tf32"), of("float64"), of("bfloat16"), of("float16")],
    [null, null, null, "bfloat16", "float16"],
  );
});
