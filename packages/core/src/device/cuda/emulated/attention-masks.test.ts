// Segment ids and gradients of added masks in the fused attention of the emulated GPU, against the ops that it stands for.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { agree, data, device, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

type Attend = (q: weft.Tensor, k: weft.Tensor, v: weft.Tensor, bias: weft.Tensor) => weft.Tensor;
interface Case {
  shape: { batch?: number; heads?: number; shared?: number; queries: number; keys: number; size?: number };
  attend: Attend;
  bias?: number[];
}

/** The result and the gradients with respect to all operands; the bias last. */
function both({ shape, attend, bias }: Case): weft.Tensor[] {
  const { batch = 1, heads = 2, shared = heads, queries, keys, size = 16 } = shape;
  const operands = [
    data([batch, heads, queries, size], 1, 3),
    data([batch, shared, keys, size], 2, 3),
    data([batch, shared, keys, size], 3, 3),
    data(bias ?? [1], 5),
  ];
  const w = data([batch, heads, queries, size], 4);
  const wanted = bias === undefined ? [0, 1, 2] : [0, 1, 2, 3];
  const loss = (...args: weft.Tensor[]): weft.Tensor =>
    (attend as (...a: weft.Tensor[]) => weft.Tensor)(...args)
      .mul(w)
      .sum();
  const program = weft.jit((...args: weft.Tensor[]) => [
    (attend as (...a: weft.Tensor[]) => weft.Tensor)(...args),
    ...(weft.grad(loss, { argument: wanted })(...args) as unknown as weft.Tensor[]),
  ]);
  return program(...operands);
}

function checkFused(name: string, given: Case): void {
  const log = agree(() => both(given), 3e-5);
  assert.ok(
    log.some((kernel) => kernel.endsWith("_k")) && !log.some((kernel) => kernel.startsWith("cublas")),
    `${name}: both passes are fused: ${log}`,
  );
}

/** Ids of sequences of these lengths, one row after the other. */
const ids = (...rows: number[][]): weft.Tensor =>
  weft.tensor(
    rows.map((lengths) => lengths.flatMap((n, i) => Array.from({ length: n }, () => i + 1))),
    { dtype: "int32" },
  );

test("segments skip tiles, share tiles, and leave queries without keys", { skip }, () => {
  const packed = (): weft.Tensor => ids([70, 64, 66], [3, 190, 7]);
  for (const options of [{}, { causal: true }, { window: 20 }])
    checkFused(`packed ${JSON.stringify(options)}`, {
      shape: { batch: 2, queries: 200, keys: 200 },
      attend: (q, k, v) => weft.scaledDotProductAttention(q, k, v, { segments: packed(), ...options }),
    });
  checkFused("queries and keys of different lengths, grouped heads, unordered ids", {
    shape: { heads: 4, shared: 2, queries: 70, keys: 130 },
    attend: (q, k, v) => {
      const rows = weft.tensor([Array.from({ length: 70 }, (_, i) => (i * 7) % 5)], { dtype: "uint8" });
      const columns = weft.tensor([Array.from({ length: 130 }, (_, i) => (i < 64 ? 9 : i % 4))], { dtype: "uint8" });
      return weft.scaledDotProductAttention(q, k, v, { segments: [rows, columns] });
    },
  });
});

test("segments compared by hand run the same kernels", { skip }, () => {
  checkFused("by hand", {
    shape: { queries: 130, keys: 130 },
    attend: (q, k, v) => {
      const own = ids([70, 60]);
      const same = own.unsqueeze(2).equal(own.unsqueeze(1)).unsqueeze(1);
      return weft.softmax(q.matmul(k.transpose()).div(4).where(same, Number.NEGATIVE_INFINITY)).matmul(v);
    },
  });
});

test("ids of 64 bits, and other masks beside segments, are read as masks", { skip }, () => {
  checkFused("int64", {
    shape: { queries: 70, keys: 70 },
    attend: (q, k, v) => weft.scaledDotProductAttention(q, k, v, { segments: ids([30, 40]).cast("int64") }),
  });
  checkFused("with a mask", {
    shape: { queries: 70, keys: 70 },
    attend: (q, k, v) =>
      weft.scaledDotProductAttention(q, k, v, { segments: ids([30, 40]), mask: data([70, 70], 8).greater(-0.3) }),
  });
});

test("gradients of added masks of every shape, with bands and by hand", { skip }, () => {
  for (const bias of [[70], [9, 70], [2, 9, 70], [2, 1, 9, 70]])
    checkFused(`mask ${bias}`, {
      shape: { batch: 2, queries: 9, keys: 70 },
      attend: (q, k, v, mask) => weft.scaledDotProductAttention(q, k, v, { mask }),
      bias,
    });
  checkFused("causal", {
    shape: { queries: 130, keys: 130 },
    attend: (q, k, v, mask) => weft.scaledDotProductAttention(q, k, v, { mask, causal: true }),
    bias: [2, 130, 130],
  });
  checkFused("dropout", {
    shape: { queries: 9, keys: 70 },
    attend: (q, k, v, mask) => weft.scaledDotProductAttention(q, k, v, { mask, dropout: 0.3, key: weft.key(5) }),
    bias: [2, 9, 70],
  });
  checkFused("by hand", {
    shape: { queries: 9, keys: 70 },
    attend: (q, k, v, mask) => weft.softmax(q.matmul(k.transpose()).div(4).add(mask)).matmul(v),
    bias: [2, 9, 70],
  });
});

/** Which keys every example sees: bool [batch, 1, 1, keys]. */
const visible = (...rows: ((key: number) => boolean)[]): weft.Tensor => {
  const keys = 200;
  const open = rows.map((row) => [[Array.from({ length: keys }, (_, j) => row(j))]]);
  return weft.tensor(open, { dtype: "bool" });
};

test("tiles of keys that padding hides are skipped, forward and backward", { skip }, () => {
  const padding = (): weft.Tensor =>
    visible(
      (j) => j < 70,
      (j) => j >= 128,
      () => false,
      () => true,
      (j) => j % 64 === 3 && j < 128,
    );
  for (const options of [{}, { causal: true }])
    checkFused(`padding ${JSON.stringify(options)}`, {
      shape: { batch: 5, heads: 2, shared: 1, queries: 70, keys: 200 },
      attend: (q, k, v) => weft.scaledDotProductAttention(q, k, v, { mask: padding(), ...options }),
    });
  checkFused("dropout, few queries", {
    shape: { batch: 5, queries: 9, keys: 200 },
    attend: (q, k, v) => weft.scaledDotProductAttention(q, k, v, { mask: padding(), dropout: 0.3, key: weft.key(5) }),
  });
  // What hidden tiles hold is not even read: zero weights would make NaN of it.
  weft.setDevice(device());
  const holed = data([1, 1, 200, 16], 3).where(weft.arange(0, 200).unsqueeze(1).less(128), Number.NaN);
  const [q, mask] = [data([1, 1, 70, 16], 1), visible((j) => j < 70)];
  const attend = (x: weft.Tensor, y: weft.Tensor): weft.Tensor => weft.scaledDotProductAttention(q, x, y, { mask });
  const program = weft.jit((x: weft.Tensor, y: weft.Tensor) => [
    attend(x, y),
    weft
      .grad((a: weft.Tensor) => attend(a, y).sum())(x)
      .index(":", ":", ":128"),
  ]);
  for (const result of program(holed, holed))
    assert.ok(Array.from(result.dataSync() as ArrayLike<number>, Number).every(Number.isFinite));
});

test("half-precision numbers are added to scores as they are where no gradient is taken", { skip }, () => {
  for (const dtype of ["bfloat16", "float16", "float32"] as const)
    for (const shape of [
      [2, 9, 70],
      [2, 1, 1, 70],
    ]) {
      const attend = (q: weft.Tensor, k: weft.Tensor, v: weft.Tensor, mask: weft.Tensor): weft.Tensor =>
        weft.scaledDotProductAttention(q, k, v, { mask }).cast("float32");
      const program = weft.jit(attend);
      const operands = (): [weft.Tensor, weft.Tensor, weft.Tensor, weft.Tensor] => {
        const at = (length: number, seed: number): weft.Tensor => data([2, 2, length, 16], seed, 3).cast(dtype);
        return [at(9, 1), at(70, 2), at(70, 3), data(shape, 5, 4).cast(dtype)];
      };
      agree(() => program(...operands()), dtype === "float32" ? 3e-5 : 2e-2);
      weft.setDevice(device());
      const kernels = program.kernels(...operands());
      assert.ok(!kernels.some((name) => name.includes("max")), `${dtype} ${shape}: ${kernels}`);
    }
});
