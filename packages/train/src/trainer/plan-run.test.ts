// Plans of training steps: against all decisions of small instances, and for a Llama of 8 billion parameters on a
// simulated cluster of 16 hosts with 8 devices.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { h200, serverCore } from "@weft/core/internal/cost";
import { SplitProblem, type Stage } from "@weft/core/internal/shard";
import { adamW } from "@weft/core/optim";
import { initLlama, type Llama, type LlamaShape, llama8b, llamaLoss } from "./llama.testkit.js";
import { explainStep, planRun } from "./plan-run.js";
import type { StepOptions } from "./step.js";

weft.setDevice("reference");

function optionsOf(shape: LlamaShape, devices: number): StepOptions<Llama> {
  return {
    task: {
      init: (key) => initLlama(shape, key),
      loss: (params, batch) => llamaLoss(shape, params, batch as weft.Tensor),
      evaluate: (_params, batch) => (batch as weft.Tensor).sum(),
    },
    optimizer: adamW({ learningRate: 1e-4 }) as never,
    group: { rank: 0, size: devices },
    dtype: "float32",
    seed: 1,
    gradientClip: 1,
    bucketBytes: 1 << 22,
    window: 1,
    scaling: null,
  };
}

const ids = (rows: number, length: number) => ({ inputs: weft.zeros([1, length], { dtype: "int32" }), rows });
const tiny: LlamaShape = { layers: 1, width: 8, heads: 2, groups: 1, hidden: 12, vocabulary: 20 };

const search = (devices: number, from: number): void => {
  const { plan } = planRun(optionsOf(tiny, devices), ids(14, 6), devices, undefined, serverCore);
  const problem = new SplitProblem(
    plan.model,
    { data: devices, model: 1, classes: new Set() },
    { devices, rates: serverCore },
  );
  // Every subset of a few increments; the others are never chosen.
  problem.increments.splice(0, from);
  problem.increments.splice(14);
  const { increments } = problem;
  const evaluate = (bits: number) => {
    const { stages, rematerialized } = problem.decision(increments.filter((_, i) => (bits >> i) & 1));
    return problem.candidate("", stages, rematerialized);
  };
  const all = Array.from({ length: 1 << increments.length }, (_, bits) => evaluate(bits));
  const [most, least] = [all[0].bytes, Math.min(...all.map(({ bytes }) => bytes))];
  for (const part of [0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95]) {
    const limit = least + part * (most - least) + 1e-6;
    const best = Math.min(...all.filter(({ bytes }) => bytes <= limit).map(({ seconds }) => seconds));
    const found = problem.solve(limit);
    assert.ok(found !== null, `${devices} devices, limit ${part}`);
    const { bytes, seconds } = problem.candidate("", found.stages, found.rematerialized);
    assert.ok(bytes <= limit, `${bytes} of ${limit}`);
    assert.ok(seconds <= 1.01 * best, `${devices} devices: ${seconds}, the best is ${best} (limit ${part})`);
  }
  assert.equal(problem.solve(0.99 * least), null);
};

test("the search finds the fastest decision of all within the limit, on 3, 4 and 7 devices", () => {
  for (const devices of [3, 4, 7]) for (const from of [0, 6]) search(devices, from);
});

test("devices of other speeds get other parts of the batch, where that is faster and fits", () => {
  const shape = { ...tiny, layers: 2, width: 64, hidden: 128 };
  const plan = (speeds: number[], memory?: number[]) =>
    planRun(optionsOf(shape, speeds.length), ids(140, 16), speeds.length, memory, serverCore, { speeds }).plan;
  for (const count of [3, 5, 7]) {
    // One device is `count` times as fast as the others.
    const even = plan(new Array<number>(count).fill(1));
    const uneven = plan(Array.from({ length: count }, (_, i) => (i === 0 ? count : 1)));
    assert.equal(even.split.division, undefined);
    assert.equal(even.parts.length, 0);
    assert.equal(uneven.split.division, "speed");
    const rows = uneven.parts.map((part) => part.rows);
    assert.equal(
      rows.reduce((a, b) => a + b),
      140,
    );
    assert.ok(Math.abs(rows[0] / rows[1] - count) < 0.35, `${rows}`);
    // The rates are those of the first device: the others take as long with a part that is smaller by that factor.
    const computes = uneven.parts.map((part) => part.seconds);
    assert.ok(Math.max(...computes) < 1.3 * Math.min(...computes), `${computes}`);
    const equal = uneven.candidates.find(({ split }) => split.division === "equal")!;
    assert.ok(equal.seconds > 1.5 * uneven.seconds, "equal parts wait for the slow devices");
    assert.match(explainStep(uneven), /by speed .*chosen[\s\S]*in equal parts .*x the time[\s\S]*0 +1\.00x +\d+/);
  }
  // A fast device whose memory is too small for its share of the rows, and for its part of the state.
  const free = plan([4, 1, 1]);
  const [large, small] = [4 * free.bytes, 0.6 * free.parts[0].bytes];
  const tight = plan([4, 1, 1], [small, large, large]);
  assert.ok(tight.parts.every(({ bytes, memory }) => bytes <= memory));
  assert.ok(tight.seconds >= free.seconds);
  assert.throws(() => plan([1, 1, 1], [1, 2]), /3 devices need 3 limits of memory/);
});

test("heads, hidden units and the vocabulary are divided together, and so are residual stacks of square layers", () => {
  const shape = { layers: 3, width: 1024, heads: 16, groups: 8, hidden: 2816, vocabulary: 8192 };
  const { plan } = planRun(optionsOf(shape, 8), ids(16, 256), 8, undefined, h200);
  const { fn, roles } = plan.model;
  const divided = plan.candidates.find(({ name }) => name === "data 1, model 8")!;
  // Each layer: q, k, v, gate and up by columns, o and down by rows; the head by the vocabulary. The embedding and norms stay whole.
  const dims = roles.params.map((at) => plan.model.splitDim(fn.params[at], divided.split.classes));
  const shapes = roles.params.map((at) => fn.params[at].shape.join("x"));
  const of = (text: string): string => String([...new Set(dims.filter((_, i) => shapes[i] === text))].sort());
  assert.deepEqual(["1024x2816", "2816x1024", "1024x512", "1024x8192", "8192x1024", "1024"].map(of), [
    "1",
    "0",
    "1",
    "1",
    "-1",
    "-1",
  ]);
  assert.equal(dims.filter((dim, i) => shapes[i] === "1024x1024" && dim === 0).length, 3, "o");
  assert.equal(dims.filter((dim, i) => shapes[i] === "1024x1024" && dim === 1).length, 3, "q");
  // Almost all work is divided: it takes about as long as with rows divided.
  const rows = plan.candidates.find(({ name }) => name === "data 8")!;
  const compute = (one: typeof rows): number => one.seconds - one.communicate;
  assert.ok(compute(divided) < 1.4 * compute(rows), `${compute(divided)} and ${compute(rows)}`);

  const square = (residual: boolean): StepOptions<weft.Tensor[]> => ({
    ...(optionsOf(tiny, 4) as unknown as StepOptions<weft.Tensor[]>),
    task: {
      init: () => Array.from({ length: 6 }, () => weft.zeros([96, 96])),
      loss: (layers, batch) => {
        let x = batch as weft.Tensor;
        for (let i = 0; i < layers.length; i += 2) {
          const y = weft.relu(x.matmul(layers[i])).matmul(layers[i + 1]);
          x = residual ? x.add(y) : weft.relu(y);
        }
        return x.square().mean();
      },
      evaluate: (_params, batch) => (batch as weft.Tensor).sum(),
    },
  });
  for (const residual of [true, false]) {
    const batch = { inputs: weft.zeros([1, 96]), rows: 8 };
    const { plan: made } = planRun(square(residual), batch, 4, undefined, serverCore);
    const classes = made.model.parameterClasses(4);
    const chosen = made.model.roles.params.map((at) => made.model.splitDim(made.model.fn.params[at], classes));
    // Columns and rows in turns.
    assert.ok(
      chosen.every((dim, i) => dim === (i % 2 === 0 ? chosen[0] : 1 - chosen[0])),
      `${chosen}`,
    );
  }
});

test("a Llama of 8 billion parameters is placed on 16 x 8 devices within their memory", () => {
  const far = { members: 128, latency: 30e-6, bandwidth: 45e9 };
  const links = Object.fromEntries(
    Object.keys(h200.links).map((kind) => [kind, [far]]),
  ) as unknown as typeof h200.links;
  const rates = { ...h200, between: { devices: 8, links } };
  const memory = 80e9;
  const { plan } = planRun(optionsOf(llama8b, 128), ids(128, 2048), 128, memory, rates);
  assert.ok(plan.bytes <= memory, `${plan.bytes}`);
  assert.equal(plan.split.data * plan.split.model, 128);
  // Everything on every device would need 128 GB for parameters, gradients and moments alone.
  assert.ok(plan.stages.some((stage: Stage) => stage > 0) || plan.split.model > 1);
  assert.match(explainStep(plan), /chosen[\s\S]*needs [\d.]+x the memory/);
  // Within a host layers are divided: with rows alone a step would take 30% longer.
  assert.ok(plan.split.model > 1, plan.name);
  console.log(`planned in ${plan.planned.toFixed(0)} ms: ${plan.name}`);
  // Five seconds of an idle core; the machine of the tests may be busy.
  assert.ok(plan.planned < 60_000);
});

test("a limit that nothing fits in is an error with what would be needed", () => {
  assert.throws(
    () => planRun(optionsOf(tiny, 2), ids(8, 6), 2, 1000, serverCore),
    /no placement of the step fits in 1\.0 kB per device: .* needs about .* Give more memory, more devices, or a smaller batch/,
  );
});
