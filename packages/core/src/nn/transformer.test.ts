// Attention, encoder and classifier against closed forms: symmetries, masks, counts of parameters and of kernels.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { assertClose } from "../test/compare.js";
import { onEachDevice } from "../test/devices.js";
import * as nn from "./index.js";

const key = () => weft.key(5);
const numbers = (t: Tensor): number[] => Array.from(t.dataSync() as ArrayLike<number>, Number);
const double = { dtype: "float64" } as const;
const random = (shape: number[], seed: number): Tensor => weft.randn(shape, { seed, ...double });

/** Attention that passes values through: queries and keys are zero, value and output projections the identity. */
function uniformAttention(width: number): nn.Attention {
  const eye = weft.eye(width, double);
  return {
    in_proj_weight: weft.concat([weft.zeros([2 * width, width], double), eye]),
    in_proj_bias: weft.zeros([3 * width], double),
    out_proj: { weight: eye, bias: weft.zeros([width], double) },
  };
}

onEachDevice(() => {
  test("attention with equal scores averages; a causal mask averages the past", () => {
    const x = random([2, 4, 6], 1);
    const rows = numbers(x);
    const at = (b: number, row: number, column: number): number => rows[(b * 4 + row) * 6 + column];
    const averages = (seen: (row: number) => number): number[] =>
      [0, 1].flatMap((b) =>
        [0, 1, 2, 3].flatMap((row) =>
          [0, 1, 2, 3, 4, 5].map((column) => {
            const count = seen(row);
            return Array.from({ length: count }, (_, j) => at(b, j, column)).reduce((s, v) => s + v, 0) / count;
          }),
        ),
      );
    const params = uniformAttention(6);
    assertClose(
      nn.attention.apply(params, x, { heads: 2 }),
      averages(() => 4),
    );
    assertClose(
      nn.attention.apply(params, x, { heads: 2, mask: nn.causalMask(4) }),
      averages((row) => row + 1),
    );
  });

  test("attention follows a sharp score: each query finds its key", () => {
    const width = 4;
    const params = uniformAttention(width);
    const sharp = {
      ...params,
      in_proj_weight: weft.concat([weft.eye(4, double).mul(60), weft.eye(4, double), weft.eye(4, double)]),
    };
    const keys = weft.eye(4, double);
    const queries = keys.flip(0);
    assertClose(nn.attention.apply(sharp, queries, { heads: 1, memory: keys }), numbers(queries), { atol: 1e-10 });
  });

  test("a fully masked query gives the output bias, and gradients are finite", () => {
    const params = nn.attention.init({ width: 4, ...double }, key());
    const bias = random([4], 8);
    const biased = { ...params, out_proj: { ...params.out_proj, bias } };
    const mask = weft.tensor([
      [true, true, false],
      [false, false, false],
      [false, true, true],
    ]);
    const x = random([3, 4], 2);
    const out = nn.attention.apply(biased, x, { heads: 2, mask });
    assertClose(out.index(1), numbers(bias));
    const grads = weft.grad((p: nn.Attention) => nn.attention.apply(p, x, { heads: 2, mask }).square().sum())(biased);
    for (const leaf of weft.treeLeaves(grads)) assert.ok(numbers(leaf).every(Number.isFinite));
  });

  test("hidden scores far above the visible ones change neither result nor gradients", () => {
    const [open, all] = [5, 8];
    const q = random([2, 4, 6], 5).mul(10);
    const [k, v] = [random([2, all, 6], 6), random([2, all, 6], 7)];
    const seen = weft.arange(all, { dtype: "int32" }).less(open).unsqueeze(0);
    const huge = k.mul(1000).where(seen.reshape([1, all, 1]).logicalNot(), k);
    const both = [
      weft.grad((q: weft.Tensor) => weft.scaledDotProductAttention(q, huge, v, { mask: seen }).square().sum())(q),
      weft.grad((q: weft.Tensor) => {
        const [visible, values] = [k, v].map((x) => x.index(":", `:${open}`));
        return weft.scaledDotProductAttention(q, visible, values).square().sum();
      })(q),
    ];
    assertClose(both[0], numbers(both[1]), { rtol: 1e-9, atol: 1e-12 });
  });

  test("attention without a batch, with one and with two leading axes is the same", () => {
    const params = nn.attention.init({ width: 6, ...double }, key());
    const x = random([2, 3, 4, 6], 3);
    const all = numbers(nn.attention.apply(params, x, { heads: 3 }));
    const one = numbers(nn.attention.apply(params, x.reshape([6, 4, 6]), { heads: 3 }));
    const single = numbers(nn.attention.apply(params, x.index(1, 2), { heads: 3 }));
    assertClose(one, all, { rtol: 1e-13 });
    assertClose(single, all.slice(-24), { rtol: 1e-12 });
  });

  test("the encoder is permutation equivariant without position encodings", () => {
    const options = { width: 8, heads: 2, feedForward: 12, layers: 2 };
    const params = nn.encoder.init({ ...options, finalNorm: true, ...double }, key());
    const x = random([5, 8], 4);
    const order = [3, 0, 4, 1, 2];
    const straight = nn.encoder.apply(params, x, { heads: 2 }).take(order, 0);
    assertClose(nn.encoder.apply(params, x.take(order, 0), { heads: 2 }), numbers(straight), { rtol: 1e-12 });
    const withPositions = (t: Tensor): Tensor =>
      nn.encoder.apply(params, t.add(nn.positions(5, 8, double)), { heads: 2 });
    const apart = weft
      .max(
        withPositions(x)
          .take(order, 0)
          .sub(withPositions(x.take(order, 0)))
          .abs(),
      )
      .itemSync();
    assert.ok(apart > 0.01, `positions change nothing: ${apart}`);
  });

  test("pre-norm with zero weights is the identity, post-norm normalizes", () => {
    const fresh = nn.encoderLayer.init({ width: 4, heads: 2, feedForward: 6, ...double }, key());
    const zero = weft.treeMap((p) => p.mul(0), fresh);
    const x = random([3, 4], 6);
    assertClose(nn.encoderLayer.apply(zero, x, { heads: 2, norm: "pre" }), numbers(x));
    const normed = { ...zero, norm1: fresh.norm1, norm2: fresh.norm2 };
    const out = nn.encoderLayer.apply(normed, x, { heads: 2, epsilon: 0 });
    assertClose(out.mean(-1), [0, 0, 0], { atol: 1e-12 });
    assertClose(out.std(-1), [1, 1, 1]);
  });

  test("dropout acts in training only, when a key is given", () => {
    const options = { vocabulary: 20, width: 8, heads: 2, layers: 1, feedForward: 12, classes: 3 };
    const params = nn.textClassifier.init(options, key());
    const ids = weft.randint(0, 20, [4, 5], { seed: 1 });
    const run = (dropout: number, k: weft.Key | null): number[] =>
      numbers(nn.textClassifier.apply(params, ids, { heads: 2, dropout, key: k }));
    assert.deepEqual(run(0.5, null), run(0, null));
    assert.deepEqual(run(0.5, weft.key(1)), run(0.5, weft.key(1)));
    assert.notDeepEqual(run(0.5, weft.key(1)), run(0.5, weft.key(2)));
    assert.notDeepEqual(run(0.5, weft.key(1)), run(0, null));
  });

  test("masked padding does not change the result", () => {
    const options = { vocabulary: 20, width: 8, heads: 2, layers: 2, feedForward: 12, classes: 3, ...double };
    const params = nn.textClassifier.init(options, key());
    const short = weft.tensor(Int32Array.from([3, 7, 5]), { shape: [1, 3] });
    const padded = weft.tensor(Int32Array.from([3, 7, 5, 0, 0]), { shape: [1, 5] });
    const mask = weft.tensor([[true, true, true, false, false]]);
    const alone = numbers(nn.textClassifier.apply(params, short, { heads: 2 }));
    assertClose(nn.textClassifier.apply(params, padded, { heads: 2, mask }), alone, { rtol: 1e-12 });
    assert.notDeepEqual(numbers(nn.textClassifier.apply(params, padded, { heads: 2 })), alone);
  });
});

test("positions: sines and cosines by the formula", () => {
  weft.setDevice("reference");
  const table = numbers(nn.positions(50, 6, double));
  for (const [row, column] of [
    [0, 0],
    [0, 1],
    [7, 2],
    [49, 3],
    [31, 5],
  ]) {
    const angle = row / 10000 ** ((2 * Math.floor(column / 2)) / 6);
    const expected = column % 2 === 0 ? Math.sin(angle) : Math.cos(angle);
    assert.ok(Math.abs(table[row * 6 + column] - expected) < 1e-14);
  }
  assert.deepEqual(nn.positions(3, 5).shape, [3, 5]);
});

test("the study's classifier has 2,825,476 parameters, with two classes 2,825,218", () => {
  const study = { vocabulary: 20000, width: 128, heads: 4, layers: 2, feedForward: 256 };
  assert.equal(nn.countParameters(nn.textClassifier.init({ ...study, classes: 4 }, key())), 2_825_476);
  assert.equal(nn.countParameters(nn.textClassifier.init({ ...study, classes: 2 }, key())), 2_825_218);
});

describe("error messages", () => {
  test("of invalid heads, widths, masks and options", () => {
    const params = nn.attention.init({ width: 6 }, key());
    const x = weft.ones([2, 6]);
    assert.throws(() => nn.attention.apply(params, x, { heads: 4 }), /width 6 is not a multiple of heads 4/);
    assert.throws(() => nn.attention.apply(params, weft.ones([2, 5]), { heads: 2 }), /x \[2, 5\] must have 6 features/);
    assert.throws(() => nn.attention.apply(params, weft.ones([6]), { heads: 2 }), /x is \[..., length, 6\], got \[6\]/);
    const layer = nn.encoderLayer.init({ width: 6, heads: 2, feedForward: 4 }, key());
    const wrong = { heads: 2, activation: "tanh" as nn.Activation };
    assert.throws(() => nn.encoderLayer.apply(layer, x, wrong), /activation "tanh" is not one of relu, gelu/);
    const options = { vocabulary: 9, width: 4, heads: 2, layers: 1, feedForward: 4, classes: 2 };
    const model = nn.textClassifier.init(options, key());
    const ids = weft.zeros([2, 3], { dtype: "int32" });
    assert.throws(
      () => nn.textClassifier.apply(model, ids, { heads: 2, mask: weft.ones([2, 4]) }),
      /mask \[2, 4\] must have the shape of ids \[2, 3\]/,
    );
  });
});
