// Optimizers against hand-worked steps, on problems with known answers, and in jitted loops that never retrace.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { assertClose } from "../test/compare.js";
import { onEachDevice } from "../test/devices.js";
import * as optim from "./index.js";

const double = { dtype: "float64" } as const;
const tensor = (data: number[]): Tensor => weft.tensor(data, double);

/** The parameter after each of several gradients. */
function path<S>(optimizer: optim.Optimizer<S>, start: number[], gradients: number[][]): number[] {
  let param = tensor(start);
  let state = optimizer.init(param);
  return gradients.flatMap((g) => {
    [param, state] = optimizer.update(param, tensor(g), state);
    return Array.from(param.dataSync() as Float64Array);
  });
}

onEachDevice(() => {
  test("plain descent, momentum, Nesterov and decay by hand", () => {
    assertClose(path(optim.sgd({ learningRate: 0.5 }), [1], [[2], [-1]]), [0, 0.5]);
    // buffer 2, then 0.5 * 2 - 1 = 0
    assertClose(path(optim.sgd({ learningRate: 0.5, momentum: 0.5 }), [1], [[2], [-1]]), [0, 0]);
    // g + 0.5 buffer: 3, then -1 + 0
    assertClose(path(optim.sgd({ learningRate: 0.5, momentum: 0.5, nesterov: true }), [1], [[2], [-1]]), [-0.5, 0]);
    // 2 + 0.1 * 1 = 2.1
    assertClose(path(optim.sgd({ learningRate: 0.5, weightDecay: 0.1 }), [1], [[2]]), [1 - 1.05]);
  });

  test("Adam's first step is the rate, whatever the gradient's size; epsilon is added to the corrected root", () => {
    const first = path(optim.adam({ learningRate: 0.1 }), [1, 1, 1], [[1e-3, -7, 1e6]]);
    assertClose(first, [0.9, 1.1, 0.9], { rtol: 2e-6 });
    assertClose(path(optim.adam({ learningRate: 0.1, epsilon: 3 }), [1], [[3]]), [1 - 0.1 * (3 / 6)]);
    // A second, opposite gradient: m = 0.9 * 0.1 g - 0.1 g, corrected by 1 - 0.81.
    const g = 2;
    const mean = (0.9 * 0.1 * g - 0.1 * g) / (1 - 0.9 ** 2);
    const root = Math.sqrt((0.999 * 0.001 + 0.001) * g * g) / Math.sqrt(1 - 0.999 ** 2);
    const second = path(optim.adam({ learningRate: 0.1, epsilon: 0 }), [0], [[g], [-g]]);
    assertClose(second, [-0.1, -0.1 - (0.1 * mean) / root], { rtol: 1e-12 });
  });

  test("weight decay: Adam's goes through the moments, AdamW's does not", () => {
    const settings = { learningRate: 0.1, weightDecay: 0.5 };
    assertClose(path(optim.adam(settings), [4], [[0]]), [3.9], { rtol: 1e-7 });
    assertClose(path(optim.adamW(settings), [4], [[0]]), [4 * (1 - 0.05)]);
  });

  test("Lion and LAMB end 20 steps where optax does", () => {
    const gradients = Array.from({ length: 20 }, (_, t) => [1, 2, 3].map((k) => Math.sin((t + 1) * k)));
    const last = <S>(optimizer: optim.Optimizer<S>): number[] => path(optimizer, [1, -2, 0.5], gradients).slice(-3);
    const settings = { learningRate: 0.01, betas: [0.8, 0.95], weightDecay: 0.1 } as const;
    const close = { rtol: 1e-12, atol: 0 };
    assertClose(last(optim.lion(settings)), [0.9405460604165258, -1.9805162365100235, 0.49019353764323387], close);
    assertClose(
      last(optim.lion({ learningRate: 0.1 })),
      [0.7982816290161212, -2.1961436477896497, 0.49910085948272076],
      close,
    );
    assertClose(
      last(optim.lamb({ ...settings, epsilon: 1e-3 })),
      [0.8615663840288289, -1.8481820160599922, 0.42234766450452493],
      close,
    );
    assertClose(
      last(optim.lamb({ learningRate: 0.1 })),
      [0.14565921827723602, -2.9529947791015356, 0.2073298803738055],
      close,
    );
  });

  test("adaptive optimizers keep the tree, its dtypes and one program", () => {
    const params = { layer: [weft.ones([2, 2]), weft.ones([2], double)], name: "net" };
    const makers = [optim.adagrad, optim.adadelta, optim.adamax, optim.nadam, optim.radam, optim.lion, optim.lamb];
    for (const make of makers) {
      const optimizer = make({ weightDecay: 0.1 });
      const step = weft.jit((p: typeof params, s: optim.AdamState) => optimizer.update(p, p, s), { donate: [1] });
      let [after, state] = step(params, optimizer.init(params));
      [after, state] = step(after, state);
      assert.deepEqual([after.name, state.step.itemSync(), step.programs], ["net", 2, 1]);
      assert.deepEqual(
        after.layer.map((t) => t.dtype),
        ["float32", "float64"],
      );
      assert.ok(after.layer.every((t) => t.less(1).all().itemSync()));
    }
    assert.throws(() => optim.lion({ epsilon: 1 } as object), /lion: there is no option "epsilon"/);
    assert.throws(() => optim.nadam({ betas: [1, 0.9] }), /nadam: betas\[0\] must be at least 0 and below 1, got 1/);
  });

  test("decayVectors: false leaves out biases and norms, in every optimizer", () => {
    const settings = { learningRate: 0.1, weightDecay: 0.5, decayVectors: false };
    for (const optimizer of [
      optim.adamW(settings),
      optim.adam(settings),
      optim.sgd(settings),
    ] as optim.Optimizer<never>[]) {
      const params = { matrix: weft.tensor([[4]]), vector: weft.tensor([4]) };
      const zero = weft.treeMap((t) => weft.zerosLike(t), params);
      const [{ matrix, vector }] = optimizer.update(params, zero, optimizer.init(params));
      assert.equal(vector.itemSync(), 4);
      assert.ok((matrix.itemSync() as number) < 4);
    }
    assert.throws(() => optim.adamW({ decayVectors: "no" as never }), /adamW: decayVectors must be true or false/);
  });

  test("small corrections keep their digits in float32", () => {
    // 1 - 0.999 computed in float32 is off by 5e-5 of itself, and with it the first step.
    const optimizer = optim.adam({ learningRate: 1, epsilon: 0, betas: [0.5, 0.999] });
    const param = weft.tensor([0]);
    const [next] = optimizer.update(param, weft.tensor([0.25]), optimizer.init(param));
    assertClose(next, [-1], { rtol: 3e-7, atol: 0 });
  });

  test("a jitted step with donated parameters reaches the minimum without a second trace", () => {
    const target = weft.tensor([3, -2]);
    let traces = 0;
    const optimizer = optim.adam({ learningRate: 0.05 });
    const step = weft.jit(
      (params: { w: Tensor }, state: optim.AdamState) => {
        traces++;
        const [loss, grads] = weft.valueAndGrad((p: { w: Tensor }) => p.w.sub(target).square().sum())(params);
        return [...optimizer.update(params, grads, state), loss] as const;
      },
      { donate: [0, 1] },
    );
    let params = { w: weft.zeros([2]) };
    let state = optimizer.init(params);
    let loss: Tensor | null = null;
    for (let i = 0; i < 600; i++) [params, state, loss] = step(params, state);
    assertClose(params.w, [3, -2], { atol: 1e-3 });
    assert.ok(loss!.itemSync() < 1e-5);
    assert.equal(traces, 1);
    assert.equal(state.step.itemSync(), 600);
  });

  test("the rate as an argument and as a schedule, both without a second trace", () => {
    const byTensor = weft.jit((p: Tensor, rate: Tensor) => {
      const optimizer = optim.sgd({ learningRate: rate });
      return optimizer.update(p, weft.ones([1]), optimizer.init(p))[0];
    });
    assertClose(byTensor(weft.tensor([1]), weft.tensor(0.25)), [0.75]);
    assertClose(byTensor(weft.tensor([1]), weft.tensor(0.5)), [0.5]);
    assert.equal(byTensor.programs, 1);
    // 1/t: 1 + 1/2 + 1/3
    const decaying = optim.sgd({ learningRate: (step) => step.cast("float64").reciprocal() });
    assertClose(path(decaying, [0], [[1], [1], [1]]), [-1, -1.5, -11 / 6]);
  });

  test("update preserves the tree structure and does not modify its arguments", () => {
    const params = { layers: [{ w: tensor([1]) }, { w: tensor([2]) }], name: "net" };
    const grads = { layers: [{ w: tensor([1]) }, { w: tensor([1]) }], name: "net" };
    const optimizer = optim.sgd({ learningRate: 1, momentum: 0.9 });
    const state = optimizer.init(params);
    const [next] = optimizer.update(params, grads, state);
    assertClose(next.layers[1].w, [1]);
    assert.equal(next.name, "net");
    assertClose(params.layers[1].w, [2]);
    assertClose((state.momentum as typeof params).layers[0].w, [0]);
  });

  test("clipping uses the norm over all tensors, and acts only if it exceeds the limit", () => {
    const grads = { a: tensor([3]), b: tensor([0, 4]) };
    const [scaled, norm] = optim.clipByGlobalNorm(grads, 2.5);
    assertClose(norm, 5);
    assertClose(scaled.b, [0, 2], { rtol: 1e-6 });
    assertClose(optim.clipByGlobalNorm(grads, 10)[0].a, [3]);
  });
});

describe("error messages", () => {
  test("settings out of range are named", () => {
    assert.throws(() => optim.sgd({ learningRate: -1 }), /sgd: learningRate must be at least 0, got -1/);
    assert.throws(
      () => optim.sgd({ learningRate: 1, nesterov: true }),
      /nesterov needs a momentum above 0 and no dampening/,
    );
    assert.throws(() => optim.adam({ betas: [0.9, 1] }), /adam: betas\[1\] must be at least 0 and below 1, got 1/);
    assert.throws(() => optim.adamW({ weightDecay: Number.NaN }), /adamW: weightDecay must be at least 0, got NaN/);
  });
  test("complex parameters and other trees are refused", () => {
    const complex = weft.zeros([2], { dtype: "complex64" });
    assert.throws(() => optim.adam().init(complex), /a parameter is complex64; keep its real and imaginary parts/);
    const optimizer = optim.adam();
    const params = { a: weft.ones([1]), b: weft.ones([1]) };
    assert.throws(
      () => optimizer.update(params, { a: weft.ones([1]) } as typeof params, optimizer.init(params)),
      /the trees differ/,
    );
  });
});

test("schedules: warm-up in a straight line, then constant, linear or cosine; numbers and tensors agree", () => {
  const shapes = ["constant", "linear", "cosine"] as const;
  const at = (shape: (typeof shapes)[number], step: number): number =>
    optim.schedule({ shape, learningRate: 2, warmupSteps: 4, totalSteps: 14, minRatio: 0.1 })(step);
  assert.deepEqual(
    [1, 2, 4, 5].map((s) => at("cosine", s)),
    [0.5, 1, 2, 2],
  );
  assert.ok(Math.abs(at("cosine", 10) - 2 * (0.1 + 0.9 * 0.5)) < 1e-12, "half-way down the cosine");
  assert.ok(Math.abs(at("linear", 10) - 2 * (0.1 + 0.9 * 0.5)) < 1e-12);
  assert.ok(Math.abs(at("cosine", 15) - 0.2) < 1e-12 && Math.abs(at("linear", 99) - 0.2) < 1e-12);
  assert.equal(at("constant", 99), 2);
  for (const shape of shapes)
    for (const step of [1, 3, 4, 5, 9, 14, 30]) {
      const rate = optim.schedule({ shape, learningRate: 2, warmupSteps: 4, totalSteps: 14, minRatio: 0.1 });
      const traced = rate(weft.tensor(step, { dtype: "int32" }));
      const value = typeof traced === "number" ? traced : (traced.itemSync() as number);
      assert.ok(Math.abs(value - rate(step)) < 1e-14, `${shape} at ${step}: ${value}, ${rate(step)}`);
    }
  assert.throws(() => optim.schedule({ shape: "cosine", learningRate: 1 }), /cosine needs totalSteps \(0\) above/);
});

test("accumulation takes one step with the mean of k gradients, and none in between", () => {
  const inner = optim.adam({ learningRate: 0.1 });
  const wrapped = optim.accumulate(inner, 3);
  const step = weft.jit((p: weft.Tensor, g: weft.Tensor, s: optim.AccumulateState<optim.AdamState>) =>
    wrapped.update(p, g, s),
  );
  const grads = Array.from({ length: 6 }, (_, i) => weft.randn([4], { seed: i, dtype: "float64" }));
  const start = weft.ones([4], { dtype: "float64" });
  let [p, s] = [start, wrapped.init(start)];
  let [q, t] = [start, inner.init(start)];
  grads.forEach((g, i) => {
    const before = p.dataSync();
    [p, s] = step(p, g, s);
    if (i % 3 < 2) assert.deepEqual(p.dataSync(), before);
    else {
      const mean = grads
        .slice(i - 2, i + 1)
        .reduce((a, b) => a.add(b))
        .div(3);
      [q, t] = inner.update(q, mean, t);
      assertClose(p, q, { rtol: 1e-14, atol: 1e-14 });
    }
  });
  assert.equal(step.programs, 1);
});
