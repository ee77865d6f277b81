// Placements of a step over ranks: every one gives the losses of one device, and plans keep to the memory limit.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { serverCore } from "@weft/core/internal/cost";
import type { Stage } from "@weft/core/internal/shard";
import { scratch } from "../data/testkit.js";
import { singleRank } from "./group.js";
import { optionsOf, type PlacedAnswer, type PlacedCase, takeSteps } from "./placed-steps.testkit.js";
import { explainStep, planRun } from "./plan-run.js";
import { launchRanks } from "./ranks.js";
import { decisionOf, type PlacementDecision, parseBytes, parseMemory } from "./state-placement.js";

const folder = scratch();
const skip = weft.CpuDevice.available() ? false : "needs the CPU device";
if (skip === false) weft.setDevice("cpu");
// Small programs are interpreted, which is quicker than to compile them for every rank.
delete process.env.WEFT_INTERPRET;
const program = fileURLToPath(new URL("./placed-steps.testkit.js", import.meta.url));

/** Runs the cases on this many ranks; returns the answers of every rank. */
async function onRanks(size: number, cases: readonly PlacedCase[]): Promise<PlacedAnswer[][]> {
  const place = join(folder, `ranks${size}`);
  mkdirSync(place, { recursive: true });
  writeFileSync(join(place, "cases.json"), JSON.stringify(cases));
  await launchRanks({ size, coresPerRank: 1, command: [process.execPath, program, join(place, "cases.json"), place] });
  return Array.from({ length: size }, (_, r) => JSON.parse(readFileSync(join(place, `rank${r}.json`), "utf8")));
}

const small = { rows: 11, layers: 2, width: 12, steps: 3 };
const decided = (
  data: number,
  model: number,
  stage: Stage,
  dim: number,
  rematerialized: number[],
): PlacementDecision => ({
  data,
  model,
  // Leaves in the order of names: head, then bias and weight of every layer. Biases stay whole along the model axis.
  params: Array.from({ length: 5 }, (_, i) => ({ stage, dim: i > 0 && i % 2 === 0 ? dim : -1 })),
  inputs: [-1],
  rematerialized,
});

const compare = (answers: PlacedAnswer[][], cases: readonly PlacedCase[]): void => {
  cases.forEach((given, c) => {
    const { losses } = takeSteps({ ...given, decision: undefined, memory: undefined }, singleRank);
    for (const [rank, own] of answers.entries())
      own[c].losses.forEach((loss, i) => {
        const off = Math.abs(loss - losses[i]) / losses[i];
        assert.ok(off <= 1e-6, `${given.name}, rank ${rank}, step ${i}: ${loss}, one device ${losses[i]}`);
      });
  });
};

test("ZeRO, tensor parallelism and rematerialization have the losses of one device, on 3 and 4 ranks", {
  skip,
}, async () => {
  const every = [0, 1, 2, 3, 4, 5];
  const three: PlacedCase[] = [
    { ...small, name: "replicated" },
    { ...small, name: "ZeRO-2", decision: decided(3, 1, 2, -1, []) },
    { ...small, name: "ZeRO-3, rematerialized", decision: decided(3, 1, 3, -1, every) },
    { ...small, name: "tensor", decision: decided(1, 3, 0, 1, every) },
  ];
  compare(await onRanks(3, three), three);
  const four: PlacedCase[] = [{ ...small, name: "mixed", decision: decided(2, 2, 3, 1, [1, 2]) }];
  compare(await onRanks(4, four), four);
});

test("sequences over two ranks have the losses of one device, also with divided state", { skip }, async () => {
  const tiny = { rows: 3, layers: 1, width: 8, positions: 6, steps: 3 };
  // Embedding, head, nine tensors of the layer, norm.
  const along = (data: number, model: number, stage: Stage, rematerialized: number[] = []): PlacementDecision => ({
    data,
    model,
    params: Array.from({ length: 12 }, () => ({ stage, dim: -1 })),
    inputs: [1],
    rematerialized,
  });
  const two: PlacedCase[] = [
    { ...tiny, name: "sequence, ZeRO-1", decision: along(1, 2, 1) },
    { ...tiny, name: "sequence, ZeRO-3, rematerialized", decision: along(1, 2, 3, [0, 1, 2]) },
    // Positions that two ranks do not divide evenly.
    { ...tiny, positions: 7, name: "odd sequence", decision: along(1, 2, 2) },
  ];
  compare(await onRanks(2, two), two);
});

test("heads, hidden units and the vocabulary over 2 and 3 ranks have the losses of one device", { skip }, async () => {
  const given: PlacedCase = { name: "layers", rows: 8, layers: 2, width: 16, positions: 6, steps: 3 };
  // Links that cost nothing, so that the tiny layers are divided.
  const free = [{ members: 8, latency: 1e-9, bandwidth: 1e15 }];
  const links = Object.fromEntries(Object.keys(serverCore.links).map((kind) => [kind, free])) as never;
  for (const size of [2, 3]) {
    // Four heads in two groups: three ranks have different parts of them.
    const inputs = weft.zeros([1, 6], { dtype: "int32" });
    const { plan } = planRun(optionsOf(given, { rank: 0, size }), { inputs, rows: 8 }, size, undefined, {
      ...serverCore,
      links,
    });
    const candidate = plan.candidates.find(({ name }) => name === `data 1, model ${size}`)!;
    const decision = decisionOf({ ...plan, ...candidate });
    assert.equal(decision.params.filter(({ dim }) => dim >= 0).length, 15, "seven tensors per layer, and the head");
    const cases = [{ ...given, decision }];
    compare(await onRanks(size, cases), cases);
  }
});

test("GPT-2's fused attention projection is divided by heads over 2 and 3 ranks, with the losses of one device", {
  skip,
}, async () => {
  const given: PlacedCase = { name: "gpt2", rows: 8, layers: 2, width: 16, positions: 6, steps: 3, gpt2: true };
  // Collectives cost as much as those of a large model in proportion, so that layers are divided inside and not between them.
  const link = [{ members: 8, latency: 1e-6, bandwidth: 1e15 }];
  const links = Object.fromEntries(Object.keys(serverCore.links).map((kind) => [kind, link])) as never;
  for (const size of [2, 3]) {
    const inputs = weft.zeros([1, 6], { dtype: "int32" });
    const { plan } = planRun(optionsOf(given, { rank: 0, size }), { inputs, rows: 8 }, size, undefined, {
      ...serverCore,
      links,
    });
    const candidate = plan.candidates.find(({ name }) => name === `data 1, model ${size}`)!;
    const decision = decisionOf({ ...plan, ...candidate });
    const { fn, roles } = plan.model;
    // Weights [width, heads, 3, size] by heads, in both layers.
    const fused = roles.params.flatMap((at, i) => (fn.params[at].shape.length === 4 ? [decision.params[i].dim] : []));
    assert.deepEqual(fused, [1, 1]);
    assert.match(explainStep(plan), new RegExp(`data 1, model ${size}`));
    const cases = [{ ...given, decision }];
    compare(await onRanks(size, cases), cases);
  }
});

test("a step that needs four times the memory of a worker is placed on four, with the losses of one", {
  skip,
}, async () => {
  // Interpreted programs have no memory plan.
  process.env.WEFT_INTERPRET = "0";
  const given: PlacedCase = { name: "four times", rows: 1536, layers: 6, width: 48, steps: 3 };
  const { bytes } = takeSteps({ ...given, steps: 1 }, singleRank);
  const memory = Math.floor(bytes / 4);
  // Weights dominate: ZeRO-3 leaves a quarter of the state and of the gradients, and what single layers need: each is as large as a
  // bucket of gradients.
  const [layers, width] = [6, 128];
  const heavy: PlacedCase = { name: "weights", rows: 8, layers, width, steps: 2 };
  const params = Array.from({ length: 2 * layers + 1 }, () => ({ stage: 3 as const, dim: -1 }));
  const decision = { data: 4, model: 1, params, inputs: [-1], rematerialized: [] };
  const cases = [
    { ...given, memory },
    { ...heavy, decision },
  ];
  const answers = await onRanks(4, cases);
  compare(answers, cases);
  const layer = 4 * (width * width + width);
  const weights = layers * layer + 12 * width;
  const most = (3 + 1) * (weights / 4) + 4 * layer;
  for (const [answer, other] of answers) {
    assert.ok(answer.bytes <= memory, `${answer.bytes} of ${memory}`);
    assert.ok(other.bytes <= most, `${other.bytes} of ${most}: weights ${weights}, a layer ${layer}`);
  }
});

test("models of weights fit on four workers with a hundredth more than a quarter of the memory of one", {
  skip,
}, async () => {
  process.env.WEFT_INTERPRET = "0";
  // What is above a quarter: the activations of all rows on every rank, since layers and tables are divided, not rows.
  const shapes: [PlacedCase, number][] = [
    [{ name: "wide layers", rows: 8, layers: 3, width: 160, table: 16, steps: 2 }, 1.01],
    [{ name: "large table", rows: 8, layers: 1, width: 32, table: 6000, steps: 2 }, 1.01],
    [{ name: "deep and narrow", rows: 8, layers: 6, width: 24, positions: 6, steps: 2 }, 1.01],
    // Both dimensions of a weight are those of the residual stream; ZeRO alone needs 1.39.
    [{ name: "square layers with a residual stream", rows: 8, layers: 6, width: 256, steps: 2 }, 1.02],
  ];
  const cases = shapes.map(([given, factor]) => {
    const { bytes } = takeSteps({ ...given, steps: 1 }, singleRank);
    return { ...given, memory: Math.floor((factor * bytes) / 4) };
  });
  const answers = await onRanks(4, cases);
  compare(answers, cases);
  for (const own of answers)
    own.forEach(({ bytes }, c) => {
      assert.ok(bytes <= cases[c].memory, `${cases[c].name}: ${bytes} of ${cases[c].memory}`);
    });
});

test("3, 5 and 7 ranks of different speed and memory keep to their own limits, with the losses of one device", {
  skip,
}, async () => {
  process.env.WEFT_INTERPRET = "0";
  const given: PlacedCase = { name: "uneven", rows: 96, layers: 2, width: 32, steps: 2 };
  const { bytes } = takeSteps({ ...given, steps: 1 }, singleRank);
  for (const size of [3, 5, 7]) {
    // The first rank is fast and small, the last one slow and large.
    const speeds = Array.from({ length: size }, (_, i) => (i === 0 ? 4 : i === size - 1 ? 1 : 2));
    const memory = Array.from({ length: size }, (_, i) =>
      Math.floor(bytes * (i === 0 ? 0.4 : i === size - 1 ? 0.9 : 0.5)),
    );
    const cases = [{ ...given, memory, speeds }];
    const answers = await onRanks(size, cases);
    compare(answers, cases);
    for (const [rank, [{ own, decision }]] of answers.entries()) {
      assert.ok(own <= memory[rank], `rank ${rank} of ${size}: ${own} of ${memory[rank]}`);
      assert.deepEqual(decision, answers[0][0].decision, "all ranks follow one plan");
    }
    assert.ok(
      answers[0][0].decision.params.some(({ stage }) => stage > 0),
      "the state is divided",
    );
    // The state is divided as the memory is.
    assert.ok(answers[size - 1][0].own > answers[1][0].own);
  }
});

test("sizes are read with their units, and anything else is an error", () => {
  assert.deepEqual(["512MB", "1.5 GiB", "2g", 1000, "7"].map(parseBytes), [512e6, 1.5 * 2 ** 30, 2e9, 1000, 7]);
  for (const wrong of ["", "many", "-1MB", "0", "1TBB", "1e9x"])
    assert.throws(() => parseBytes(wrong), /is not a size/);
  assert.deepEqual(parseMemory("2GB", 2), [2e9, 2e9]);
  assert.deepEqual(parseMemory("2GB, 1GB", 2), [2e9, 1e9]);
  assert.deepEqual(parseMemory(["1kB", 7], 2), [1000, 7]);
  assert.throws(() => parseMemory(["1kB", 7], 3), /2 sizes for 3 ranks/);
});
