// The small layers against closed forms, and what their errors say.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { assertClose } from "../test/compare.js";
import { onEachDevice } from "../test/devices.js";
import * as nn from "./index.js";

const key = () => weft.key(11);
const numbers = (t: weft.Tensor): number[] => Array.from(t.dataSync() as ArrayLike<number>, Number);

onEachDevice(() => {
  test("linear: x W^T + b by hand, with and without bias", () => {
    const weight = weft.tensor([
      [1, 2, 3],
      [4, 5, 6],
    ]);
    const x = weft.tensor([
      [1, 0, -1],
      [2, 2, 2],
    ]);
    assertClose(nn.linear.apply({ weight }, x), [-2, -2, 12, 30]);
    assertClose(nn.linear.apply({ weight, bias: weft.tensor([10, 20]) }, x), [8, 18, 22, 50]);
    assert.deepEqual(nn.linear.apply({ weight }, weft.ones([2, 5, 4, 3])).shape, [2, 5, 4, 2]);
  });

  test("linear: fresh weights and biases fill (-1/sqrt(in), 1/sqrt(in)) evenly", () => {
    const { weight, bias } = nn.linear.init({ in: 100, out: 80 }, key());
    assert.deepEqual([weight.shape, bias?.shape], [[80, 100], [80]]);
    for (const t of [weight, bias!]) {
      const data = numbers(t);
      assert.ok(data.every((v) => Math.abs(v) <= 0.1));
      assert.ok(Math.max(...data) > 0.09 && Math.min(...data) < -0.09);
    }
    const mean = weight.mean().itemSync();
    const deviation = weight.std().itemSync();
    assert.ok(Math.abs(mean) < 0.003, `mean ${mean}`);
    assert.ok(Math.abs(deviation - 0.1 / Math.sqrt(3)) < 0.002, `deviation ${deviation}`);
    assert.equal("bias" in nn.linear.init({ in: 2, out: 2, bias: false }, key()), false);
  });

  test("the same key gives the same parameters, another key others", () => {
    const draw = (seed: number): number[] => numbers(nn.linear.init({ in: 5, out: 4 }, weft.key(seed)).weight);
    assert.deepEqual(draw(1), draw(1));
    assert.notDeepEqual(draw(1), draw(2));
    const { weight, bias } = nn.linear.init({ in: 5, out: 5 }, key());
    assert.notDeepEqual(numbers(weight).slice(0, 5), numbers(bias!));
  });

  test("embedding: rows by id; the gradient counts how often a row was used", () => {
    const params = nn.embedding.init({ vocabulary: 4, width: 3 }, key());
    const table = numbers(params.weight);
    const ids = weft.tensor(Int32Array.from([2, 0, 2, 2]), { shape: [2, 2] });
    const out = nn.embedding.apply(params, ids);
    assert.deepEqual(out.shape, [2, 2, 3]);
    assert.deepEqual(
      numbers(out),
      [2, 0, 2, 2].flatMap((row) => table.slice(3 * row, 3 * row + 3)),
    );
    const grads = weft.grad((p: nn.Embedding) => nn.embedding.apply(p, ids).sum())(params);
    assert.deepEqual(numbers(grads.weight), [1, 1, 1, 0, 0, 0, 3, 3, 3, 0, 0, 0]);
  });

  test("embedding: fresh rows are standard normal", () => {
    const { weight } = nn.embedding.init({ vocabulary: 200, width: 50 }, key());
    assert.ok(Math.abs(weight.mean().itemSync()) < 0.03);
    assert.ok(Math.abs(weight.std().itemSync() - 1) < 0.03);
  });

  test("layer norm: mean 0, deviation 1, then scale and shift", () => {
    const fresh = nn.layerNorm.init({ width: 4 });
    const x = weft.tensor([[1, 3, 5, 7]]);
    const scale = 1 / Math.sqrt(5);
    assertClose(
      nn.layerNorm.apply(fresh, x, { epsilon: 0 }),
      [-3, -1, 1, 3].map((v) => v * scale),
    );
    const params = { weight: weft.tensor([1, 2, 3, 4]), bias: weft.tensor([0, 0, 1, 1]) };
    assertClose(nn.layerNorm.apply(params, x, { epsilon: 4 }), [-1, -2 / 3, 2, 5]);
  });

  test("alphaDropout keeps mean 0 and variance 1", () => {
    const x = weft.randn([40, 1000], { seed: 3 });
    assert.equal(nn.alphaDropout(x, { rate: 0.3 }), x);
    const out = numbers(nn.alphaDropout(x, { rate: 0.3, key: key() }));
    const mean = out.reduce((sum, v) => sum + v, 0) / out.length;
    const variance = out.reduce((sum, v) => sum + (v - mean) ** 2, 0) / out.length;
    assert.ok(Math.abs(mean) < 0.03 && Math.abs(variance - 1) < 0.05, `mean ${mean}, variance ${variance}`);
    // 0.3 of the elements have the value that PyTorch gives to dropped ones.
    const [scale, low] = [1 / Math.sqrt(0.7 * (1 + 0.3 * 1.7580993408473766 ** 2)), -1.7580993408473766];
    const dropped = out.filter((v) => Math.abs(v - (scale * low - scale * 0.3 * low)) < 1e-6).length / out.length;
    assert.ok(Math.abs(dropped - 0.3) < 0.02, `${dropped}`);
  });

  test("dropout drops the given fraction, preserves the mean, and does nothing without a key", () => {
    const x = weft.full([100, 100], 2);
    assert.equal(nn.dropout(x, { rate: 0.25 }), x);
    assert.equal(nn.dropout(x, { rate: 0.25, key: null }), x);
    assert.equal(nn.dropout(x, { rate: 0, key: key() }), x);
    const out = numbers(nn.dropout(x, { rate: 0.25, key: key() }));
    const dropped = out.filter((v) => v === 0).length;
    assert.ok(Math.abs(dropped / 1e4 - 0.25) < 0.02, `${dropped} of 10000`);
    assert.ok(out.every((v) => v === 0 || Math.abs(v - 2 / 0.75) < 1e-6));
    assert.deepEqual(numbers(nn.dropout(x, { rate: 0.25, key: key() })), out);
    assert.notDeepEqual(numbers(nn.dropout(x, { rate: 0.25, key: weft.key(12) })), out);
    const g = numbers(weft.grad((t: weft.Tensor) => nn.dropout(t, { rate: 0.25, key: key() }).sum())(x));
    g.forEach((v, i) => {
      assert.ok(out[i] === 0 ? v === 0 : Math.abs(v - 1 / 0.75) < 1e-6);
    });
  });
});

describe("error messages", () => {
  const message = (text: RegExp, body: () => unknown): void => assert.throws(body, text);
  test("of invalid options", () => {
    message(/linear.init: in must be a positive whole number, got 0/, () => nn.linear.init({ in: 0, out: 1 }, key()));
    message(/vocabulary must be .* got 1.5/, () => nn.embedding.init({ vocabulary: 1.5, width: 2 }, key()));
    message(/dropout: rate must be in \[0, 1\), got 1/, () => nn.dropout(weft.ones([2]), { rate: 1, key: key() }));
  });
  test("of invalid inputs", () => {
    const params = nn.linear.init({ in: 3, out: 2 }, key());
    message(/linear: x \[4, 2\] must have 3 features/, () => nn.linear.apply(params, weft.ones([4, 2])));
    const table = nn.embedding.init({ vocabulary: 3, width: 2 }, key());
    message(/embedding: ids are integers, got float32; use ids.cast/, () => nn.embedding.apply(table, weft.ones([4])));
  });
});

describe("state dictionaries", () => {
  const params = (): { a: weft.Tensor; list: { w: weft.Tensor }[]; rate: number } => ({
    a: weft.tensor([1, 2]),
    list: [{ w: weft.tensor([3]) }, { w: weft.tensor([4]) }],
    rate: 0.5,
  });
  test("stateDict and loadStateDict are inverses", () => {
    assert.deepEqual(Object.keys(nn.stateDict(params())), ["a", "list.0.w", "list.1.w"]);
    const dict = { a: weft.tensor([7, 8]), "list.0.w": weft.tensor([9]), "list.1.w": weft.tensor([10]) };
    const loaded = nn.loadStateDict(params(), dict);
    assert.deepEqual(numbers(loaded.a), [7, 8]);
    assert.deepEqual(numbers(loaded.list[1].w), [10]);
    assert.equal(loaded.rate, 0.5);
    assert.equal(nn.countParameters(params()), 4);
  });
  test("missing, extra and misshapen entries are named", () => {
    const whole = nn.stateDict(params());
    const { a: _, ...rest } = whole;
    assert.throws(() => nn.loadStateDict(params(), rest), /"a" is missing; the dictionary has list.0.w, list.1.w/);
    assert.throws(() => nn.loadStateDict(params(), { ...whole, b: weft.ones([1]) }), /no parameter is called b/);
    assert.throws(
      () => nn.loadStateDict(params(), { ...whole, a: weft.ones([3]) }),
      /"a" has shape \[3\], expected \[2\]/,
    );
  });
});

test("dropout with one key per example drops the same elements in any batch, and checks shapes", () => {
  weft.setDevice("reference");
  const keys = weft.splitKey(weft.key(3), 4);
  const x = weft.ones([4, 5, 6]);
  const whole = numbers(nn.dropout(x, { rate: 0.5, key: keys }));
  const part = numbers(nn.dropout(x.index("2:4"), { rate: 0.5, key: keys.index("2:4") }));
  assert.deepEqual(part, whole.slice(60));
  assert.notDeepEqual(whole.slice(0, 30), whole.slice(30, 60));
  assert.throws(() => nn.dropout(weft.ones([3, 5]), { rate: 0.5, key: keys }), /one for each of \[4\] examples/);
});

test("a model holds a layer and its parameters, and loads others from a dictionary", () => {
  weft.setDevice("reference");
  const layer = nn.model(nn.linear, { in: 3, out: 2 }, key());
  const x = weft.tensor([[1, 2, 3]]);
  assert.equal(layer.size, 8);
  assert.deepEqual(numbers(layer.forward(x)), numbers(nn.linear.apply(layer.params, x)));
  const other = layer.load({ weight: weft.ones([2, 3]), bias: weft.tensor([10, 20]) });
  assert.deepEqual(numbers(other.forward(x)), [16, 26]);
  assert.deepEqual(Object.keys(layer.stateDict()), ["weight", "bias"]);
  const grads = weft.grad((p: nn.Linear) => other.apply(p, x).sum())(other.params);
  assert.deepEqual(numbers(grads.weight), [1, 2, 3, 1, 2, 3]);
  assert.deepEqual(numbers(other.with({ weight: weft.zeros([2, 3]) }).forward(x)), [0, 0]);
});

test("reluDropout and its gradient equal dropout of relu, in batches and without a key", () => {
  const x = weft.randn([6, 20], { seed: 1 });
  const w = weft.randn([6, 20], { seed: 2 });
  const options = { rate: 0.4, key: weft.key(3) };
  const both = [
    (t: weft.Tensor): weft.Tensor => nn.reluDropout(t, options),
    (t: weft.Tensor): weft.Tensor => nn.dropout(weft.relu(t), options),
  ];
  const [own, plain] = both.map((f) => [
    ...numbers(f(x)),
    ...numbers(weft.grad((t: weft.Tensor) => f(t).mul(w).sum())(x)),
    ...numbers(weft.grad((t: weft.Tensor) => f(t.mul(t)).mul(w).sum())(x)),
    ...numbers(weft.vmap((t: weft.Tensor) => weft.grad((u: weft.Tensor) => f(u).sum())(t))(weft.stack([x, w]))),
  ]);
  assert.deepEqual(own, plain);
  assert.ok(own.slice(0, 120).filter((v) => v === 0).length > 60);
  assert.deepEqual(numbers(nn.reluDropout(x, { rate: 0.4 })), numbers(weft.relu(x)));
  // One key per example.
  const keys = weft.splitKey(weft.key(4), 6);
  assert.deepEqual(
    numbers(nn.reluDropout(x, { rate: 0.4, key: keys })),
    numbers(nn.dropout(weft.relu(x), { rate: 0.4, key: keys })),
  );
});
