// Layers and optimizers against PyTorch itself: same weights, same inputs, then results, gradients and steps must agree.
// In float64, where both sides agree to rounding, and one training step in float32.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { DType } from "../graph/index.js";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import * as optim from "../optim/index.js";
import { assertClose } from "../test/compare.js";
import { onEachDevice } from "../test/devices.js";
import * as nn from "./index.js";
import { type Answer, askTorch, needsTorch, type Request, send } from "./torch.testkit.js";

const double = { dtype: "float64" } as const;
const random = (shape: number[], seed: number, dtype: DType = "float64"): Tensor => weft.randn(shape, { seed, dtype });

/** One layer with its inputs. */
interface LayerCase {
  name: string;
  kind: string;
  options: Record<string, unknown>;
  params: () => unknown;
  inputs: () => Record<string, Tensor>;
  apply: (params: never, inputs: Record<string, Tensor>) => Tensor;
}

const attentionCase = (
  name: string,
  inputs: () => Record<string, Tensor>,
  extra: (inputs: Record<string, Tensor>) => Partial<Parameters<typeof nn.attention.apply>[2]> = () => ({}),
): LayerCase => ({
  name: `attention, ${name}`,
  kind: "attention",
  options: { width: 12, heads: 3 },
  params: () => withBiases(nn.attention.init({ width: 12, ...double }, weft.key(3))),
  inputs,
  apply: (p: nn.Attention, i) => nn.attention.apply(p, i.x, { heads: 3, ...extra(i) }),
});

/** Biases start at zero; other values show where they enter. */
function withBiases<P>(params: P): P {
  let seed = 50;
  return weft.treeMap((p) => (p.rank === 1 ? p.add(random([...p.shape], seed++).mul(0.3)) : p), params);
}

const encoderOptions = { width: 12, heads: 3, feedForward: 20 };
const encoderCase = (activation: nn.Activation, norm: "post" | "pre"): LayerCase => ({
  name: `encoder layer, ${norm}-norm, ${activation}`,
  kind: "encoderLayer",
  options: { ...encoderOptions, activation, norm },
  params: () => withBiases(nn.encoderLayer.init({ ...encoderOptions, ...double }, weft.key(4))),
  inputs: () => ({ x: random([2, 5, 12], 10) }),
  apply: (p: nn.EncoderLayer, i) => nn.encoderLayer.apply(p, i.x, { heads: 3, activation, norm }),
});

/** Outputs of all steps, and behind them the parts of the last state. */
const recurrentCase = (kind: "lstm" | "gru", more: { bias?: boolean }, given: string[]): LayerCase => ({
  name: `${kind} of ${given}`,
  kind,
  options: { in: 3, out: 4, ...more },
  params: () => (kind === "lstm" ? nn.lstm : nn.gru).init({ in: 3, out: 4, ...more, ...double }, weft.key(8)),
  inputs: () => Object.fromEntries(given.map((name, i) => [name, random(name === "x" ? [2, 5, 3] : [2, 4], 30 + i)])),
  apply: (p: nn.Recurrent, i) => {
    if (kind === "gru") {
      const [out, last] = nn.gru.apply(p, i.x, i.hidden);
      return weft.concat([out, last.unsqueeze(1)], 1);
    }
    const start = i.hidden === undefined ? undefined : { hidden: i.hidden, cell: i.cell };
    const [out, { hidden, cell }] = nn.lstm.apply(p, i.x, start);
    return weft.concat([out, hidden.unsqueeze(1), cell.unsqueeze(1)], 1);
  },
});

const x = (): Record<string, Tensor> => ({ x: random([2, 5, 12], 10) });
const cases: LayerCase[] = [
  {
    name: "linear",
    kind: "linear",
    options: { in: 12, out: 7 },
    params: () => nn.linear.init({ in: 12, out: 7, ...double }, weft.key(1)),
    inputs: x,
    apply: (p: nn.Linear, i) => nn.linear.apply(p, i.x),
  },
  {
    name: "embedding with repeated ids",
    kind: "embedding",
    options: { vocabulary: 9, width: 4 },
    params: () => nn.embedding.init({ vocabulary: 9, width: 4, ...double }, weft.key(2)),
    inputs: () => ({ ids: weft.tensor(Int32Array.from([0, 8, 3, 3, 3, 1]), { shape: [2, 3] }) }),
    apply: (p: nn.Embedding, i) => nn.embedding.apply(p, i.ids),
  },
  {
    name: "layer norm",
    kind: "layerNorm",
    options: { width: 12 },
    params: () => withBiases(nn.layerNorm.init({ width: 12, ...double })),
    inputs: x,
    apply: (p: nn.LayerNorm, i) => nn.layerNorm.apply(p, i.x),
  },
  attentionCase("no mask", x),
  attentionCase(
    "causal mask",
    () => ({ ...x(), mask: nn.causalMask(5) }),
    (i) => ({ mask: i.mask }),
  ),
  attentionCase(
    "additive mask",
    () => ({ ...x(), mask: random([5, 5], 12) }),
    (i) => ({ mask: i.mask }),
  ),
  attentionCase(
    "other keys and values",
    () => ({ ...x(), memory: random([2, 7, 12], 13) }),
    (i) => ({ memory: i.memory }),
  ),
  encoderCase("relu", "post"),
  encoderCase("gelu", "post"),
  encoderCase("relu", "pre"),
  encoderCase("gelu", "pre"),
  recurrentCase("lstm", {}, ["x"]),
  recurrentCase("lstm", { bias: false }, ["x", "hidden", "cell"]),
  recurrentCase("gru", {}, ["x"]),
  recurrentCase("gru", {}, ["x", "hidden"]),
];

const tree = (params: unknown): Record<string, unknown> =>
  Object.fromEntries(Object.entries(nn.stateDict(params)).map(([name, t]) => [name, send(t)]));

const isFloat = (t: Tensor): boolean => t.dtype.startsWith("float");
const cotangentOf = (item: LayerCase): Tensor =>
  random([...item.apply(item.params() as never, item.inputs()).shape], 77);

/** Result and gradients of sum(result * cotangent), by PyTorch's names. */
function ours(item: LayerCase): Record<string, Tensor> {
  const params = item.params();
  const inputs = item.inputs();
  const floats = Object.fromEntries(Object.entries(inputs).filter(([, t]) => isFloat(t)));
  const loss = (p: unknown, f: Record<string, Tensor>): [Tensor, Tensor] => {
    const out = item.apply(p as never, { ...inputs, ...f });
    return [out.mul(cotangentOf(item)).sum(), out];
  };
  // Compiled as one program: that is how layers are used, and it spares a compilation for every gradient.
  const program = weft.jit((p: unknown, f: Record<string, Tensor>) => {
    const [[, out], grads] = weft.valueAndGrad(loss, { argument: [0, 1], hasAux: true })(p, f);
    const [byParam, byInput] = grads as unknown as [unknown, unknown];
    return { out, params: byParam, inputs: byInput };
  });
  return nn.stateDict(program(params, floats));
}

const classifierOptions = { vocabulary: 40, width: 16, heads: 4, layers: 2, feedForward: 24, classes: 4 };
const batch = (): { ids: Tensor; labels: Tensor } => ({
  ids: weft.randint(0, 40, [3, 6], { seed: 21 }),
  labels: weft.randint(0, 4, [3], { seed: 22 }),
});

/** Settings of one optimizer in both dialects. */
const optimizers: [string, string, Record<string, unknown>, () => optim.Optimizer<unknown>][] = [
  ["plain descent", "sgd", { lr: 0.1 }, () => optim.sgd({ learningRate: 0.1 })],
  [
    "momentum and decay",
    "sgd",
    { lr: 0.1, momentum: 0.9, weight_decay: 0.05 },
    () => optim.sgd({ learningRate: 0.1, momentum: 0.9, weightDecay: 0.05 }),
  ],
  [
    "Nesterov",
    "sgd",
    { lr: 0.1, momentum: 0.8, nesterov: true },
    () => optim.sgd({ learningRate: 0.1, momentum: 0.8, nesterov: true }),
  ],
  ["Adam", "adam", { lr: 0.01 }, () => optim.adam({ learningRate: 0.01 })],
  [
    "Adam, large epsilon and decay",
    "adam",
    { lr: 0.01, betas: [0.8, 0.95], eps: 0.1, weight_decay: 0.1 },
    () => optim.adam({ learningRate: 0.01, betas: [0.8, 0.95], epsilon: 0.1, weightDecay: 0.1 }),
  ],
  [
    "Adam with amsgrad",
    "adam",
    { lr: 0.05, betas: [0.5, 0.6], amsgrad: true, weight_decay: 0.1 },
    () => optim.adam({ learningRate: 0.05, betas: [0.5, 0.6], amsgrad: true, weightDecay: 0.1 }),
  ],
  ["RMSprop", "rmsprop", {}, () => optim.rmsprop()],
  [
    "RMSprop, centered with momentum",
    "rmsprop",
    { lr: 0.02, alpha: 0.9, momentum: 0.7, centered: true, weight_decay: 0.1 },
    () => optim.rmsprop({ learningRate: 0.02, alpha: 0.9, momentum: 0.7, centered: true, weightDecay: 0.1 }),
  ],
  ["AdamW with PyTorch's defaults", "adamW", {}, () => optim.adamW()],
  [
    "AdamW, rate as a tensor",
    "adamW",
    { lr: 0.02, weight_decay: 0.3 },
    () => optim.adamW({ learningRate: weft.tensor(0.02, double), weightDecay: 0.3 }),
  ],
  [
    "dampened momentum",
    "sgd",
    { lr: 0.1, momentum: 0.9, dampening: 0.3 },
    () => optim.sgd({ learningRate: 0.1, momentum: 0.9, dampening: 0.3 }),
  ],
  ["Adagrad", "adagrad", {}, () => optim.adagrad()],
  [
    "Adagrad with all options",
    "adagrad",
    { lr: 0.2, lr_decay: 0.1, weight_decay: 0.3, initial_accumulator_value: 0.4, eps: 0.01 },
    () => optim.adagrad({ learningRate: 0.2, rateDecay: 0.1, weightDecay: 0.3, initial: 0.4, epsilon: 0.01 }),
  ],
  ["Adadelta", "adadelta", {}, () => optim.adadelta()],
  [
    "Adadelta with all options",
    "adadelta",
    { lr: 0.5, rho: 0.7, eps: 1e-3, weight_decay: 0.2 },
    () => optim.adadelta({ learningRate: 0.5, rho: 0.7, epsilon: 1e-3, weightDecay: 0.2 }),
  ],
  ["Adamax", "adamax", {}, () => optim.adamax()],
  [
    "Adamax with all options",
    "adamax",
    { lr: 0.1, betas: [0.7, 0.8], eps: 0.1, weight_decay: 0.2 },
    () => optim.adamax({ learningRate: 0.1, betas: [0.7, 0.8], epsilon: 0.1, weightDecay: 0.2 }),
  ],
  ["NAdam", "nadam", {}, () => optim.nadam()],
  [
    "NAdam with all options",
    "nadam",
    { lr: 0.1, betas: [0.7, 0.8], eps: 0.1, weight_decay: 0.2, momentum_decay: 0.05, decoupled_weight_decay: true },
    () =>
      optim.nadam({
        learningRate: 0.1,
        betas: [0.7, 0.8],
        epsilon: 0.1,
        weightDecay: 0.2,
        momentumDecay: 0.05,
        decoupled: true,
      }),
  ],
  // With the default betas the first five steps are not rectified.
  ["RAdam", "radam", { lr: 0.1, weight_decay: 0.2 }, () => optim.radam({ learningRate: 0.1, weightDecay: 0.2 })],
  [
    "RAdam with all options",
    "radam",
    { lr: 0.1, betas: [0.7, 0.9], eps: 0.1, weight_decay: 0.2, decoupled_weight_decay: true },
    () => optim.radam({ learningRate: 0.1, betas: [0.7, 0.9], epsilon: 0.1, weightDecay: 0.2, decoupled: true }),
  ],
];

/** Learning rates of 20 steps in both dialects. */
const schedules: [string, string, Record<string, unknown>, optim.LearningRateSchedule][] = [
  ["ExponentialLR", "ExponentialLR", { gamma: 0.8 }, optim.decay({ learningRate: 0.5, factor: 0.8 })],
  [
    "StepLR",
    "StepLR",
    { step_size: 3, gamma: 0.5 },
    optim.decay({ learningRate: 0.5, factor: 0.5, every: 3, staircase: true }),
  ],
  [
    "PolynomialLR",
    "PolynomialLR",
    { total_iters: 12, power: 2.5 },
    optim.schedule({ shape: "linear", learningRate: 0.5, totalSteps: 12, power: 2.5 }),
  ],
  [
    "CosineAnnealingLR",
    "CosineAnnealingLR",
    { T_max: 20, eta_min: 0.05 },
    optim.schedule({ shape: "cosine", learningRate: 0.5, totalSteps: 20, minRatio: 0.1 }),
  ],
  [
    "CosineAnnealingWarmRestarts",
    "CosineAnnealingWarmRestarts",
    { T_0: 5 },
    optim.schedule({ shape: "cosine", learningRate: 0.5, totalSteps: 20, cycles: 4 }),
  ],
  [
    "LinearLR",
    "LinearLR",
    { start_factor: 1, end_factor: 0.2, total_iters: 10 },
    optim.schedule({ shape: "linear", learningRate: 0.5, totalSteps: 10, minRatio: 0.2 }),
  ],
  ["ConstantLR", "ConstantLR", { factor: 1, total_iters: 0 }, optim.schedule({ shape: "constant", learningRate: 0.5 })],
];
const gradients = (): Tensor[] => Array.from({ length: 20 }, (_, i) => i + 1).map((seed) => random([3, 2], seed));
const clipped = (): Tensor[] => [random([3, 2], 5), random([4], 6)];

function trainRequest(dtype: DType): Request {
  const { ids, labels } = batch();
  const params = nn.textClassifier.init({ ...classifierOptions, dtype }, weft.key(7));
  return {
    task: "train",
    kind: "textClassifier",
    options: classifierOptions,
    params: tree(params),
    ids: send(ids),
    labels: send(labels),
    optimizer: "adam",
    // A large epsilon: gradients that are zero but for rounding must not become steps of full size.
    settings: { lr: 0.01, eps: 1e-3 },
  };
}

function trainOurs(dtype: DType): Record<string, Tensor> {
  const { ids, labels } = batch();
  const params = nn.textClassifier.init({ ...classifierOptions, dtype }, weft.key(7));
  const optimizer = optim.adam({ learningRate: 0.01, epsilon: 1e-3 });
  const step = weft.jit((p: nn.TextClassifier, state: optim.AdamState) => {
    const loss = (q: nn.TextClassifier): Tensor =>
      weft.crossEntropy(nn.textClassifier.apply(q, ids, { heads: 4 }), labels);
    const [value, grads] = weft.valueAndGrad(loss)(p);
    return { loss: value, grads, params: optimizer.update(p, grads, state)[0] };
  });
  return nn.stateDict(step(params, optimizer.init(params)));
}

function assertSame(actual: Record<string, Tensor>, expected: Answer, tolerance: number): void {
  assert.deepEqual(Object.keys(actual).sort(), Object.keys(expected).sort());
  for (const [name, wire] of Object.entries(expected))
    assertClose(actual[name], { ...wire, dtype: actual[name].dtype }, { name, rtol: tolerance, atol: tolerance });
}

describe("against PyTorch", needsTorch, () => {
  let answers: Record<string, Answer>;
  before(() => {
    weft.setDevice("reference");
    const named: [string, Request][] = [
      ...cases.map((item): [string, Request] => [
        item.name,
        {
          task: "differentiate",
          kind: item.kind,
          options: item.options,
          params: tree(item.params()),
          inputs: Object.fromEntries(Object.entries(item.inputs()).map(([name, t]) => [name, send(t)])),
          cotangent: send(cotangentOf(item)),
        },
      ]),
      ["train float64", trainRequest("float64")],
      ["train float32", trainRequest("float32")],
      ...optimizers.map(([name, optimizer, settings]): [string, Request] => [
        name,
        { task: "optimize", optimizer, settings, param: send(random([3, 2], 9)), grads: gradients().map(send) },
      ]),
      ...schedules.map(([name, kind, settings]): [string, Request] => [
        name,
        { task: "schedule", kind, settings, rate: 0.5, steps: 20 },
      ]),
      ["clip", { task: "clip", grads: clipped().map(send), limit: 0.5 }],
    ];
    const list = askTorch(named.map(([, request]) => request));
    answers = Object.fromEntries(named.map(([name], i) => [name, list[i]]));
  });

  onEachDevice(() => {
    for (const item of cases) test(item.name, () => assertSame(ours(item), answers[item.name], 1e-11));
    test("text classifier: loss, gradients, one step of Adam, float64", () =>
      assertSame(trainOurs("float64"), answers["train float64"], 1e-10));
    test("text classifier: loss, gradients, one step of Adam, float32", () =>
      assertSame(trainOurs("float32"), answers["train float32"], 3e-5));

    for (const [name, , , make] of optimizers) {
      test(name, () => {
        const optimizer = make();
        const step = weft.jit((p: Tensor, g: Tensor, s: unknown) => optimizer.update(p, g, s));
        let param = random([3, 2], 9);
        let state = optimizer.init(param);
        const after = Object.fromEntries(
          gradients().map((g, i) => {
            [param, state] = step(param, g, state);
            return [String(i), param];
          }),
        );
        // PyTorch holds the product of NAdam's momenta in float32.
        assertSame(after, answers[name], name.startsWith("NAdam") ? 1e-7 : 1e-13);
        assert.equal(step.programs, 1);
      });
    }

    for (const [name, , , rate] of schedules) {
      test(`schedule ${name}`, () => {
        const steps = Array.from({ length: 20 }, (_, i) => i + 1);
        const traced = weft.vmap((step: Tensor) => weft.mul(rate(step), weft.ones([], double)))(
          weft.tensor(steps, { dtype: "int32" }),
        );
        const numbers = weft.tensor(steps.map(rate), double);
        for (const rates of [traced, numbers]) assertSame({ rates }, answers[name], 1e-13);
      });
    }

    test("clipping by the global norm", () => {
      const [scaled, norm] = optim.clipByGlobalNorm(clipped(), 0.5);
      assertSame({ 0: scaled[0], 1: scaled[1], norm }, answers["clip"], 1e-13);
    });
  });
});

test("fresh parameters are distributed as PyTorch's", needsTorch, () => {
  weft.setDevice("reference");
  const options = { vocabulary: 3000, width: 32, heads: 4, layers: 1, feedForward: 64, classes: 8 };
  const [torch] = askTorch([{ task: "initialize", kind: "textClassifier", options }]);
  const named = nn.stateDict(nn.textClassifier.init(options, weft.key(5)));
  assert.deepEqual(Object.keys(named).sort(), Object.keys(torch).sort());
  for (const [name, t] of Object.entries(named)) {
    const deviation = t.std().itemSync();
    const largest = t.abs().max().itemSync();
    const [theirDeviation, theirLargest] = torch[name].data;
    // Both are samples: a few hundred draws agree to some per cent; the largest of a uniform one is near its bound.
    const room = t.size > 200 ? 0.1 : 0.5;
    assert.ok(
      Math.abs(deviation - theirDeviation) <= room * theirDeviation,
      `${name}: ${deviation}, ${theirDeviation}`,
    );
    assert.ok(Math.abs(largest - theirLargest) <= 2 * room * theirLargest, `${name}: ${largest}, ${theirLargest}`);
  }
});
