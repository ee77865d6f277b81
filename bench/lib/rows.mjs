// The table of the benchmark: what is measured, against whom, what is wanted, and how each answer is checked before a
// time is believed.
import * as data from "./data.mjs";

const close = (actual, expected, relative, absolute) =>
  actual.findIndex((a, i) => !(Math.abs(a - expected[i]) <= absolute + relative * Math.abs(expected[i])));

function compare(actual, expected, relative, absolute) {
  if (actual.length !== expected.length) return `${actual.length} values, expected ${expected.length}`;
  const wrong = close(actual, expected, relative, absolute);
  return wrong < 0 ? null : `value ${wrong} is ${actual[wrong]}, expected ${expected[wrong]}`;
}

/** Each contestant's sampled values against exact ones. */
const exact =
  (expected, relative, absolute = relative) =>
  (checks) =>
    firstProblem(checks, (check) => compare(check, expected(), relative, absolute));

function firstProblem(checks, test) {
  for (const [name, check] of Object.entries(checks)) {
    const problem = test(check, name);
    if (problem !== null) return `${name}: ${problem}`;
  }
  return null;
}

/** Training: losses fall, and all contestants go through the same ones. */
function sameLosses(checks) {
  const reference = checks.torch ?? checks.weft;
  return firstProblem(checks, (losses) => {
    if (!(losses.at(-1) < losses[0])) return `the loss does not fall: ${losses.join(", ")}`;
    return compare(losses, reference, 2e-4, 0);
  });
}

const product = (checks) =>
  firstProblem(checks, (error) => (error <= 1 ? null : `Freivalds' test fails: ${error} times the rounding error`));

const rowSamples = (kind) => () => data.places(4096 * 1024).map((place) => data.rowValue(kind, 1024, 5, place));

const complexSamples = () => {
  const [a, b] = [data.uniform(2 * 4096 * 64, 8), data.uniform(2 * 4096 * 64, 9)];
  return data.places(a.length).map((place) => data.complexProductValue(a, b, 8, place));
};

const chainInput = () => data.places(1 << 24).map((i) => Math.fround(-3 + 6 * (data.hash(i, 6) / 2 ** 32)));

const trainingPeers = { torch: 1.2 };

/** `peers`: contestant -> the ratio (its time / Weft's) that is wanted; null where it is only reported. */
export const rows = [
  ...[64, 512, 2048, 4096].map((n) => ({
    id: `matmul-${n}`,
    title: `matmul f32 n=${n} through jit`,
    flops: 2 * n ** 3,
    peers: { openblas: n === 64 ? 0.7 : 0.95 },
    check: product,
  })),
  {
    id: "chain",
    title: "fused chain of 8 cheap ops with one exp, 64 MB",
    bytes: 2 ** 27,
    peers: { copy: 0.9, memcpy: null },
    check: ({ weft, ...copies }) =>
      exact(() => chainInput().map(data.chainValue), 2e-6)({ weft }) ?? exact(chainInput, 0)(copies),
  },
  {
    id: "softmax",
    title: "softmax [4096, 1024]",
    bytes: 2 ** 25,
    peers: { torch: 1.2 },
    check: exact(rowSamples("softmax"), 5e-6, 1e-9),
  },
  {
    id: "layer-norm",
    title: "layer norm [4096, 1024]",
    bytes: 2 ** 25,
    peers: { torch: 1.2 },
    check: exact(rowSamples("layer-norm"), 1e-5),
  },
  {
    id: "mlp",
    title: "MLP training step (784-512-512-10, batch 256, Adam)",
    peers: { ...trainingPeers, tfjs: 5, jaxjs: 3, "torch-fused": null },
    check: sameLosses,
  },
  {
    id: "transformer",
    title:
      "transformer training step (d 128, 4 heads, 2 layers, ff 256, seq 128, batch 32, vocabulary 20000, Adam, dropout 0)",
    peers: { ...trainingPeers, "torch-fused": null },
    check: sameLosses,
  },
  {
    id: "complex-matmul",
    title: "complex64 batched matmul [4096, 8, 8]",
    flops: 8 * 4096 * 8 ** 3,
    peers: { torch: 3 },
    check: exact(complexSamples, 3e-6),
  },
  {
    id: "tiny",
    title: "one jitted call on tiny inputs",
    peers: {},
    limitMs: 0.03,
    check: exact(() => [6, 13, 22, 33], 0),
  },
];

/** Which process answers for a peer, and under which row name. */
export const seats = {
  weft: { process: "weft", row: (id) => id },
  openblas: { process: "native", row: (id) => id },
  copy: { process: "native", row: (id) => id },
  memcpy: { process: "native", row: (id) => `${id}-memcpy` },
  torch: { process: "torch", row: (id) => id },
  "torch-fused": { process: "torch", row: (id) => `${id}-fused` },
  tfjs: { process: "tfjs", row: (id) => id },
  jaxjs: { process: "jaxjs", row: (id) => id },
};

export const peerNames = {
  openblas: "OpenBLAS by koffi",
  copy: "compiled copy loop",
  memcpy: "memcpy",
  torch: "PyTorch eager",
  "torch-fused": "PyTorch, fused Adam",
  tfjs: "TensorFlow.js",
  jaxjs: "jax-js",
};

/** Starts in processes of their own: cold, then from the disk cache. */
export const coldLimits = { cold: 5000, cached: 300 };
