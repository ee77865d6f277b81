// Mixed precision and loss scaling: what master weights are for, what an overflow does, and that a half-precision run
// learns what a full one learns.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import * as optim from "../optim/index.js";
import { onEachDevice } from "../test/devices.js";
import * as nn from "./index.js";

const value = (t: weft.Tensor): number => Number(t.dataSync()[0]);

onEachDevice(() => {
  test("master weights keep updates that a half type loses", () => {
    // 1 - 2^-10 rounds back to 1 in bfloat16: trained in place nothing would ever change.
    const gradient = (w: weft.Tensor): weft.Tensor => w.mul(0).add(1);
    const optimizer = optim.sgd({ learningRate: 2 ** -10 });
    let half = weft.ones([1], { dtype: "bfloat16" });
    let master = { w: weft.ones([1]) };
    let [halfState, state] = [optimizer.init(half), optimizer.init(master)];
    for (let i = 0; i < 8; i++) {
      [half, halfState] = optimizer.update(half, gradient(half), halfState);
      half.dataSync();
      const loss = (p: typeof master): weft.Tensor => nn.castParameters(p, "bfloat16").w.cast("float32").sum();
      const grads = weft.grad(loss)(master);
      assert.equal(grads.w.dtype, "float32");
      [master, state] = optimizer.update(master, grads, state);
    }
    assert.equal(value(half), 1);
    assert.equal(value(master.w), 1 - 8 * 2 ** -10);
  });

  test("castParameters casts what is multiplied and keeps norms and embeddings", () => {
    const params = nn.textClassifier.init(
      { vocabulary: 5, width: 8, heads: 2, layers: 1, feedForward: 8, classes: 2 },
      weft.key(0),
    );
    const cast = nn.stateDict(nn.castParameters(params, "bfloat16"));
    for (const [name, leaf] of Object.entries(cast))
      assert.equal(leaf.dtype, /norm|embedding/.test(name) ? "float32" : "bfloat16", name);
    const ids = weft.tensor(Int32Array.of(1, 2, 3, 4), { shape: [1, 4] });
    const logits = nn.textClassifier.apply(nn.castParameters(params, "bfloat16"), ids, { heads: 2 });
    assert.equal(logits.dtype, "bfloat16");
    const exact = nn.textClassifier.apply(params, ids, { heads: 2 });
    assert.ok(value(logits.cast("float32").sub(exact).abs().max()) < 0.05);
    assert.notDeepEqual([...logits.cast("float32").dataSync()], [...exact.dataSync()]);
    assert.throws(() => nn.castParameters(params, "int32"), /castParameters: dtype is bfloat16/);
  });

  test("an overflow skips the step and halves the scale; steps without one double it", () => {
    const scaled = optim.lossScaled(optim.adam({ learningRate: 0.1 }), { initial: 1024, interval: 2 });
    let params = { w: weft.ones([2]) };
    let state = scaled.init(params);
    const step = weft.jit((p: typeof params, s: typeof state, g: weft.Tensor) => scaled.update(p, { w: g }, s));
    const at = (): [number, number, number] => [value(state.scale), value(state.good), value(state.skipped)];

    [params, state] = step(params, state, weft.tensor([1024, Number.POSITIVE_INFINITY]));
    assert.deepEqual([...params.w.dataSync()], [1, 1], "nothing moved");
    assert.equal(value(state.inner.step), 0, "nor did the optimizer's own state");
    assert.deepEqual(at(), [512, 0, 1]);

    [params, state] = step(params, state, weft.tensor([512, -512]));
    assert.deepEqual(at(), [512, 1, 1]);
    const moved = [...(params.w.dataSync() as Float32Array)];
    assert.ok(Math.abs(moved[0] - 0.9) < 1e-5 && Math.abs(moved[1] - 1.1) < 1e-5, `${moved}`);

    [params, state] = step(params, state, weft.tensor([512, -512]));
    assert.deepEqual(at(), [1024, 0, 1], "doubled after two good steps");
    [params, state] = step(params, state, weft.tensor([Number.NaN, 0]));
    assert.deepEqual(at(), [512, 0, 2]);
    assert.equal(step.programs, 1);
    assert.throws(() => optim.lossScaled(optim.sgd({ learningRate: 1 }), { backoff: 2 }), /lossScaled: backoff/);
  });

  test("scaling the loss saves gradients that float16 would round to zero", () => {
    const scaled = optim.lossScaled(optim.sgd({ learningRate: 1 }), { initial: 2 ** 14 });
    const params = { w: weft.ones([1]) };
    const state = scaled.init(params);
    // The gradient 1e-8 is below float16's smallest number, 6e-8.
    const loss = (p: typeof params): weft.Tensor =>
      p.w
        .cast("float16")
        .mul(weft.tensor([1], { dtype: "float16" }))
        .cast("float32")
        .mul(1e-8)
        .sum();
    const plain = weft.grad(loss)(params);
    assert.equal(value(plain.w), 0);
    const grads = weft.grad((p: typeof params) => scaled.scaleLoss(loss(p), state))(params);
    const [next] = scaled.update(params, grads, state);
    assert.ok(Math.abs(1 - value(next.w) - 1e-8) <= 6.1e-8 && value(grads.w) > 0, `${value(grads.w)}`);
  });

  test("a half-precision run learns what a full one learns", () => {
    const losses = (dtype: weft.DType): number[] => {
      const optimizer = optim.lossScaled(optim.adam({ learningRate: 3e-3 }), { initial: 256 });
      let params = nn.linear.init({ in: 4, out: 3 }, weft.key(1));
      let state = optimizer.init(params);
      const x = weft.randn([32, 4], { seed: 2 });
      const y = x.argmax(1).minimum(2);
      const step = weft.jit((p: nn.Linear, s: typeof state) => {
        const loss = (q: nn.Linear): weft.Tensor =>
          weft.crossEntropy(nn.linear.apply(nn.castParameters(q, dtype), x.cast(dtype)), y);
        const [l, grads] = weft.valueAndGrad((q: nn.Linear) => optimizer.scaleLoss(loss(q), s))(p);
        return [...optimizer.update(p, grads, s), l.div(s.scale)] as const;
      });
      const all: number[] = [];
      for (let i = 0; i < 20; i++) {
        let loss: weft.Tensor;
        [params, state, loss] = step(params, state);
        all.push(value(loss));
      }
      return all;
    };
    const full = losses("float32");
    for (const dtype of ["float16", "bfloat16"] as const)
      losses(dtype).forEach((loss, i) => {
        assert.ok(Math.abs(loss - full[i]) < 0.02 * full[i], `${dtype}, step ${i}: ${loss}, float32 ${full[i]}`);
      });
    assert.ok(full[19] < full[0]);
  });
});
