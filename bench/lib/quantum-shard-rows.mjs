// The programs of bench/quantum-shard.mjs (W8): tasks, an ensemble with one pulse, meta-batches, and the propagator of a chain
// by columns and by columns x pieces of time; value and gradient each. How much may reach a worker is part of the row: what
// value and gradient take (twice: a sum passes by in both directions), and the propagators of pieces of time; never anything
// that grows with the number of steps.
import * as weft from "@weft/core";
import * as quantum from "@weft/quantum";
import { chainLoss, chainParameters } from "../programs/chain.mjs";
import { ensemble, policyStart, taskBatch } from "./meta-work.mjs";

const segments = 60;
const steps = { method: "rk4", perSegment: 1 };
const tensor = (data, shape) => weft.tensor(data, { shape });
const flip = () => quantum.prepareProblem(quantum.qubitFlip({ segments }));

/** Every task has its own pulse: nothing is shared, nothing moves. */
function tasks(count) {
  const given = ensemble(count);
  const args = [tensor(given.controls, [count, segments, 2]), tensor(given.rates, [count, 2])];
  const each = weft.vmap(
    weft.valueAndGrad((u, g) => quantum.controlInfidelity(flip(), steps, u, g), { argument: [0, 1] }),
  );
  return { args, fn: (u, g) => each(u, g), most: 0, moved: "tasks" };
}

/** One pulse for all environments: value and gradient are one sum. */
function robust(count) {
  const given = ensemble(count);
  const args = [tensor(given.controls.slice(0, 2 * segments), [segments, 2]), tensor(given.rates, [count, 2])];
  const loss = (u, g) =>
    weft
      .vmap((rates) => quantum.controlInfidelity(flip(), steps, u, rates))(g)
      .mean();
  return {
    args,
    fn: (u, g) => weft.valueAndGrad((x) => loss(x, g))(u),
    most: 2 * 4 * (1 + 2 * segments),
    moved: "value and gradient",
  };
}

/** One meta-gradient: 5 steps of adaptation for every task, 49,016 parameters. */
function meta(count) {
  const options = { width: 128, hidden: 2, segments, controls: 2 };
  const params = {
    layers: policyStart().map(({ out, inputs, weight }) => ({
      weight: tensor(weight, [out, inputs]),
      bias: weft.zeros([out]),
    })),
  };
  const { rates, features } = taskBatch(count, 0);
  const loss = (p, task) =>
    quantum.controlInfidelity(flip(), steps, quantum.policy.apply(p, task.features, options), task.rates);
  const size = weft.treeLeaves(params).reduce((n, leaf) => n + leaf.size, 0);
  return {
    args: [params, { rates: tensor(rates, [count, 2]), features: tensor(features, [count, 3]) }],
    fn: (p, batch) => {
      const { grads, loss: mean } = quantum.metaGradient(loss, p, batch, { steps: 5, rate: 0.01, order: 1 });
      return [mean, grads];
    },
    // The values of the tasks may be put together instead of their mean.
    most: 2 * 4 * (1 + size) + 4 * count,
    moved: "values and gradient",
  };
}

/** X on a chain of n qubits: gradients of the gates (a matrix each), and the propagators of pieces of time, are put together. */
function chain(n, count, chunks, strategy) {
  const both = weft.valueAndGrad(chainLoss(n, { steps: count, chunks, strategy }));
  const matrix = 16 * 4 ** n;
  return {
    args: [chainParameters(n)],
    fn: (p) => both(p),
    // Propagators of pieces once forward and, a piece's slope at a time, back: never more for more steps.
    most: matrix * (10 + (chunks ?? 8) * (2 + (chunks ?? 8))),
    moved: "gradients of gates and propagators of pieces",
  };
}

/** Why nobody would divide these: they are measured, and not judged. */
const shortCall = (ms, workers) =>
  `a call of ${ms} ms leaves each of ${workers} workers less than a millisecond: no more than handing it out takes; batch more`;
const fewColumns =
  "eight columns a worker: each still adds up gradients of whole 64 x 64 matrices; cut time as well (the default on a cluster)";

/** [title, program, why it is not judged] by id. */
export const rows = {
  "tasks-65536": ["W1, 65,536 tasks, each its own pulse", () => tasks(65536)],
  "ensemble-262144": ["W1, one pulse for 262,144 environments", () => robust(262144)],
  "meta-256": ["W2, meta-gradient of 256 tasks", () => meta(256)],
  "chunks-6": ["W4 n=6, 1,000 steps, 8 pieces x 64 columns", () => chain(6, 1000, 8, "dense")],
  "chunks-4": ["W4 n=4, 5,000 steps, 8 pieces x 16 columns", () => chain(4, 5000, 8, "gates")],
  "default-6": ["W4 n=6, 1,000 steps, pieces as the solver chooses", () => chain(6, 1000)],
  "meta-32": ["W2, meta-gradient of 32 tasks", () => meta(32), { small: shortCall(4, 8) }],
  "chunks-3": [
    "W4 n=3, 4,992 steps, 16 pieces x 8 columns",
    () => chain(3, 4992, 16, "gates"),
    { small: shortCall(5, 8) },
  ],
  "columns-6": ["W4 n=6, 1,000 steps, by columns alone", () => chain(6, 1000, 1, "dense"), { small: fewColumns }],
};
