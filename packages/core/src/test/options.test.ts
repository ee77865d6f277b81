// Options with a wrong name or value, and arguments of a wrong form, are refused: other libraries' words must not be ignored in silence.
// The functions come from the compiled declarations, so that a new one is checked without a change here.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import * as nn from "../nn/index.js";
import * as optim from "../optim/index.js";
import { optionsParameters } from "../testing/declarations.js";

const x = weft.tensor([
  [2, 1],
  [1, 3],
]);
const vector = weft.tensor([1, 2]);
const places = weft.tensor([0, 1], { dtype: "int32" });
const cube = (axes: number, size: number): Tensor => weft.ones([1, 1, ...new Array<number>(axes).fill(size)]);
const heads = weft.ones([1, 1, 2, 2]);
const double = (t: Tensor): Tensor => t.mul(2);
const total = (t: Tensor): Tensor => t.sum();
const key = weft.key(0);
const sequence = weft.ones([1, 3, 4]);
const layer = { width: 4, heads: 2, feedForward: 8 };
const classifier = { vocabulary: 5, classes: 2, layers: 1, ...layer };
const folder = mkdtempSync(join(tmpdir(), "weft-options-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const path = join(folder, "a.npz");

/** Arguments of a parameter by its name, or by its type. */
const argumentOf: Record<string, unknown> = {
  axis: 0,
  axes: 0,
  count: 3,
  degrees: 1,
  exponent: 1,
  fn: double,
  groups: 1,
  high: 3,
  key,
  low: 0,
  n: 4,
  p: 50,
  path,
  probability: 0.5,
  q: 0.5,
  rate: 1,
  shape: [2],
  start: 1,
  stop: 3,
  value: 1,
  number: 1,
  Tensor: x,
  TensorLike: x,
};

/** Arguments without options of functions for which the table above has the wrong ones. */
const argumentsOf: Record<string, readonly unknown[]> = {
  "attention.apply": [nn.attention.init({ width: 4 }, key), sequence],
  "batchNorm.apply": [nn.batchNorm.init({ channels: 1 }), cube(2, 3)],
  "conv.apply": [nn.conv.init({ in: 1, out: 1, kernel: [3] }, key), cube(1, 4)],
  "encoder.apply": [nn.encoder.init({ ...layer, layers: 1 }, key), sequence],
  "encoderLayer.apply": [nn.encoderLayer.init(layer, key), sequence],
  "io.writeNpz": [path, {}],
  "layerNorm.apply": [nn.layerNorm.init({ width: 2 }), x],
  "textClassifier.apply": [nn.textClassifier.init(classifier, key), weft.zeros([1, 3], { dtype: "int32" })],
  batchNorm: [cube(2, 3)],
  bincount: [places],
  castParameters: [{ x }, "bfloat16"],
  categorical: [vector],
  choice: [4, [2]],
  cosineEmbeddingLoss: [x, x, vector],
  crossEntropy: [x, places],
  ctcLoss: [weft.ones([3, 1, 2]), places.reshape([1, 2]), ...[3, 1].map((k) => weft.tensor([k], { dtype: "int32" }))],
  digitize: [x, vector],
  dirichlet: [vector, [2]],
  fold: [weft.ones([1, 4, 1]), [2, 2]],
  foriLoop: [0, 2, (_: Tensor, c: Tensor) => c, vector],
  fromBuffer: [new Float32Array(4).buffer],
  gridSample: [weft.ones([1, 1, 2, 2]), weft.zeros([1, 1, 1, 2])],
  groupNorm: [cube(2, 3), 1],
  hessian: [total],
  instanceNorm: [cube(2, 3)],
  interp: [x, vector, vector],
  interpolate: [cube(2, 3)],
  lossScaled: [optim.sgd({ learningRate: 1 })],
  meshgrid: [[vector, vector]],
  nllLoss: [x, places],
  multivariateNormal: [vector, x, [2]],
  oneHot: [places, 2],
  packedAttention: [weft.ones([2, 3, 1, 2])],
  pad: [vector, [[1, 1]]],
  scaledDotProductAttention: [heads, heads, heads],
  scan: [(c: Tensor, v: Tensor): [Tensor, Tensor] => [c, v], weft.zeros([2]), x],
  scatter: [vector, places, vector],
  searchsorted: [vector, x],
  segmentReduce: [x, places, 2],
  shard: [x, { 0: "a" }],
  vander: [vector],
  gamma: [1, [2]],
  beta: [1, 2, [2]],
  associativeScan: [(a: Tensor, b: Tensor) => a.add(b), vector],
  reduceWindow: [x, [1], "sum"],
  slidingWindow: [x, [1]],
  tensor: [[1, 2]],
  triangular: [0, 1, 3, [2]],
  embeddingBag: [weft.zeros([1, 2], { dtype: "int32" }), x],
  maxUnpool2d: [weft.ones([1, 1, 1, 1]), weft.zeros([1, 1, 1, 1], { dtype: "int32" })],
  unfold: [weft.ones([1, 1, 2, 2])],
  unpackBits: [weft.zeros([2], { dtype: "uint8" })],
  unwrap: [x, 0],
  "signal.convolve": [vector, vector],
  "signal.correlate": [vector, vector],
  whileLoop: [(c: Tensor) => c.sum().less(-1), double, vector],
};

/** Options without which a call is not complete. */
const optionsOf: Record<string, object> = {
  "attention.apply": { heads: 2 },
  "attention.init": { width: 4 },
  "batchNorm.apply": { state: nn.batchNorm.state({ channels: 1 }), training: true },
  "batchNorm.init": { channels: 1 },
  "batchNorm.state": { channels: 1 },
  "conv.init": { in: 1, out: 1, kernel: [3] },
  "embedding.init": { vocabulary: 3, width: 2 },
  "encoder.apply": { heads: 2 },
  "encoder.init": { ...layer, layers: 1 },
  "encoderLayer.apply": { heads: 2 },
  "encoderLayer.init": layer,
  fold: { kernel: 2 },
  "gru.init": { in: 2, out: 2 },
  unfold: { kernel: 2 },
  "layerNorm.init": { width: 2 },
  "lstm.init": { in: 2, out: 2 },
  "linear.init": { in: 2, out: 2 },
  "textClassifier.apply": { heads: 2 },
  "textClassifier.init": classifier,
  alphaDropout: { rate: 0.5 },
  dropout: { rate: 0.5 },
  interpolate: { size: 2 },
  reluDropout: { rate: 0.5 },
  decay: { learningRate: 1, factor: 0.5 },
  maxUnpool2d: { kernel: 1 },
  schedule: { learningRate: 1 },
  sgd: { learningRate: 1 },
};

const entries = { "": weft, nn, optim };
const found = Object.entries(entries).flatMap(([folder, module]) =>
  optionsParameters(fileURLToPath(new URL(join("..", folder, "index.d.ts"), import.meta.url)))
    .filter(({ parameters, at }) => parameters[at].name !== "params")
    .map((parameter) => ({ ...parameter, module })),
);

/** What a call with these options besides the necessary ones throws, or null. */
async function errorOf({ name, module, parameters, at }: (typeof found)[number], options: object) {
  const isWindow = /Pool/.test(name) && !name.startsWith("adaptive");
  const spatial = Number(/(?:conv|pool)\w*([123])d$/i.exec(name)?.[1] ?? 0);
  const special =
    spatial === 0 || name in argumentsOf
      ? argumentsOf[name]
      : /conv/.test(name)
        ? [cube(spatial, 4), cube(spatial, 3)]
        : [cube(spatial, 4)];
  const others = parameters.filter((_, i) => i !== at);
  const usual = (p: { name: string; type: string }): unknown => argumentOf[p.name] ?? argumentOf[p.type];
  const args = others.map((p, i) => (special !== undefined && i in special ? special[i] : spatial > 0 ? 2 : usual(p)));
  args.splice(at, 0, { ...(isWindow ? { kernel: 2 } : optionsOf[name]), ...options });
  const path = name.split(".");
  const call = path.reduce<unknown>((from, part) => (from as Record<string, unknown>)[part], module) as (
    ...args: unknown[]
  ) => unknown;
  const owner = path.length < 2 ? undefined : (module as unknown as Record<string, unknown>)[path[0]];
  try {
    const result = await call.call(owner, ...args);
    // Functions of functions look at their options when they are called.
    if (typeof result === "function" && !["decay", "schedule"].includes(name))
      (result as (t: Tensor) => unknown)(vector);
    await (result as { close?: () => Promise<void> } | undefined)?.close?.();
    return null;
  } catch (error) {
    return error as Error;
  }
}

/** Values that an option cannot have, by its type. */
function wrongValues(type: string): unknown[] {
  if (type === "boolean") return ["no", 1];
  if (type === "number") return ["1", Number.NaN];
  if (type === "DType") return ["float33"];
  if (/^(Tensor|Key)\b/.test(type)) return ["x"];
  // An empty object is a specification of nothing for these.
  if (/^(ShardSpec|VaryingAxes)$/.test(type)) return ["nonsense", 7];
  return type.includes("=>") ? [1] : ["nonsense", {}];
}

/** Options whose every number has a meaning. */
const anyNumber = ["nan", "posinf", "neginf", "value", "left", "right", "discontinuity"];

test("every public function with options is found", () => {
  const names = found.map(({ name }) => name);
  assert.ok(names.length > 200, `only ${names.length}`);
  for (const name of ["sum", "io.readNpz", "signal.hann", "linear.init", "adam", "conv2d"])
    assert.ok(names.includes(name), name);
});

test("every public function refuses options that do not exist", async () => {
  await weft.io.writeNpz(path, {});
  const wrong: string[] = [];
  for (const parameter of found) {
    const { name, members } = parameter;
    const plain = await errorOf(parameter, {});
    if (plain !== null) wrong.push(`${name}: the call of this test is not valid: ${plain.message}`);
    const error = await errorOf(parameter, { nonsense: 1 });
    if (!/there is no option "nonsense"/.test(String(error))) wrong.push(`${name}: ${String(error)}`);
    const empty = Object.fromEntries(
      [...members.keys()].flatMap((m) => (m in (optionsOf[name] ?? {}) || m === "kernel" ? [] : [[m, undefined]])),
    );
    const unset = await errorOf(parameter, empty);
    if (unset !== null) wrong.push(`${name} with undefined for every option: ${unset.message}`);
  }
  assert.equal(wrong.length, 0, wrong.join("\n"));
});

test("every public function refuses values that an option cannot have", async () => {
  const wrong: string[] = [];
  for (const parameter of found)
    for (const [option, type] of parameter.members)
      for (const value of wrongValues(type)) {
        if (Number.isNaN(value) && anyNumber.includes(option)) continue;
        const error = await errorOf(parameter, { [option]: value });
        if (!(error instanceof weft.WeftError))
          wrong.push(
            `${parameter.name}: { ${option}: ${String(value)} }: ${error === null ? "accepted" : error.message}`,
          );
      }
  assert.equal(wrong.length, 0, wrong.join("\n"));
});

/** Calls that get another library's options. */
const calls: Record<string, (options: never) => unknown> = {
  sum: (o) => x.sum(0, o),
  grad: (o) => weft.grad(total, o)(x),
  valueAndGrad: (o) => weft.valueAndGrad(total, o)(x),
  jvp: (o) => weft.jvp(double as never, [x] as never, [x] as never, o),
  vmap: (o) => weft.vmap(double, o)(x),
  std: (o) => weft.std(x, 0, o),
  layerNorm: (o) => weft.layerNorm(x, o),
  scaledDotProductAttention: (o) => weft.scaledDotProductAttention(heads, heads, heads, o),
  conv2d: (o) => weft.conv2d(cube(2, 4), cube(2, 3), o),
  adam: (o) => optim.adam(o),
  mseLoss: (o) => weft.mseLoss(x, x, o),
};

test("functions whose options depend on their types refuse options that do not exist", () => {
  for (const name of ["grad", "valueAndGrad", "jvp"])
    assert.throws(() => calls[name]({ nonsense: 1 } as never), /there is no option "nonsense"/, name);
});

test("words of other libraries are translated", () => {
  const meant: [string, object, RegExp][] = [
    ["sum", { keepdims: true }, /did you mean "keepDims"/],
    ["sum", { keepdim: true }, /did you mean "keepDims"/],
    ["grad", { argnums: [0] }, /did you mean "argument"/],
    ["vmap", { in_axes: 1 }, /did you mean "inAxes"/],
    ["std", { ddof: 1 }, /did you mean "correction"/],
    ["layerNorm", { eps: 1 }, /did you mean "epsilon"/],
    ["scaledDotProductAttention", { is_causal: true }, /did you mean "causal"/],
    ["conv2d", { pad: 1 }, /did you mean "padding"/],
    ["adam", { lr: 1 }, /did you mean "learningRate"/],
    ["mseLoss", { reduction: "avg" }, /"mean", "sum" or "none"/],
  ];
  for (const [name, options, expected] of meant) assert.throws(() => calls[name](options as never), expected, name);
});

test("arguments of a wrong form get a sentence, not a stack trace", () => {
  const wrong: [() => unknown, RegExp][] = [
    [() => x.sum({ axis: 1 } as never), /axes are a number or an array/],
    [() => weft.sort(x, { descending: true } as never), /an axis is a number/],
    [() => x.reshape(4 as never), /one array, such as reshape/],
    [() => x.permute(1 as never), /one array, such as permute/],
    [() => weft.zeros([2], "float64" as never), /options are an object/],
    [() => (x as unknown as number) + 1, /take tensors of one element/],
  ];
  for (const [call, expected] of wrong) assert.throws(call, expected);
  assert.equal((weft.tensor([2]) as unknown as number) + 1, 3);
});
