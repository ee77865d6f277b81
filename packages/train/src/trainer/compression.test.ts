// Compressed gradients through the trainer on two ranks: losses close to plain ones, error feedback in checkpoints so that a resumed
// run continues bit for bit, bytes reported, and configurations in which it cannot apply refused.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { scratch } from "../data/testkit.js";
import { loadAnyConfig } from "./config.js";
import { launchRanks } from "./ranks.js";
import type { RankTrained, RankTraining } from "./trained-ranks.testkit.js";

const folder = scratch();
const skip = weft.CpuDevice.available() ? false : "needs the CPU device";
delete process.env.WEFT_INTERPRET;
const program = fileURLToPath(new URL("./trained-ranks.testkit.js", import.meta.url));
const file = join(folder, "mlp.yaml");
const model = fileURLToPath(new URL("../../testdata/models/mlp.mjs", import.meta.url));
writeFileSync(
  file,
  [
    "name: compressed",
    `model: ${model}`,
    "options: { width: 300 }",
    "training: { epochs: 4, global_batch: 12, gradient_clip: 1 }",
    "optimizer: { learning_rate: 0.01 }",
  ].join("\n"),
);
const compressed = (how: string): string[] => [`distributed.compression=${how}`];

async function onTwoRanks(trainings: RankTraining[]): Promise<RankTrained[]> {
  const [given, answers] = ["trainings.json", "answers.json"].map((name) => join(folder, name));
  writeFileSync(given, JSON.stringify(trainings));
  await launchRanks({ size: 2, coresPerRank: 1, command: [process.execPath, program, given, answers] });
  return JSON.parse(readFileSync(answers, "utf8")) as RankTrained[];
}

test("losses, resumed runs and bytes with compressed gradients", { skip }, async () => {
  const run = (name: string, set: string[] = []): RankTraining => ({ file, output: join(folder, name), set });
  const halves = compressed("bfloat16");
  const few = compressed('{"top_k": 0.05}');
  const [plain, half, halfCut, halfRest, top, topCut, topRest] = await onTwoRanks([
    run("plain"),
    run("half", halves),
    { ...run("half-cut", halves), maxSteps: 7 },
    { ...run("half-cut", halves), resume: true },
    run("top", few),
    { ...run("top-cut", few), maxSteps: 7 },
    { ...run("top-cut", few), resume: true },
  ]);
  assert.equal(plain.losses.length, 16);
  assert.deepEqual([...halfCut.losses, ...halfRest.losses], half.losses);
  assert.deepEqual([...topCut.losses, ...topRest.losses], top.losses);
  assert.notDeepEqual(half.losses, plain.losses);
  half.losses.forEach((loss, i) => {
    assert.ok(Math.abs(loss - plain.losses[i]) <= 0.02 * plain.losses[i], `step ${i}: ${loss} and ${plain.losses[i]}`);
  });
  // Batches of 12 rows differ; an epoch has four of them.
  const epoch = (k: number): number => top.losses.slice(4 * k, 4 * k + 4).reduce((a, b) => a + b, 0);
  assert.ok(epoch(3) < epoch(0), top.losses.join(", "));
  assert.match(half.notes.join(), /gradients are sent as bfloat16: a rank receives [\d.]+ \w+ per step/);
  assert.match(top.notes.join(), /gradients are sent by their largest 5%/);
  assert.deepEqual(plain.notes, []);
});

test("compression is refused where it cannot apply", () => {
  const load =
    (set: string[], options = {}) =>
    () =>
      loadAnyConfig(file, { set, devices: 2, ...options });
  assert.throws(load([...compressed("bfloat16"), "distributed.memory=1GB"]), /cannot be used with distributed\.memory/);
  assert.throws(
    load([...compressed("bfloat16"), "precision.compute=float16"]),
    /cannot be used with precision\.compute/,
  );
  assert.throws(load(compressed("int8")), /distributed\.compression is "int8"/);
  assert.throws(load(compressed('{"top_k": 2}')), /distributed\.compression/);
  assert.throws(load([], { compression: "top-k=0" }), /--compress top-k=0: write bfloat16/);
  assert.deepEqual(load([], { compression: "top-k=0.01" })().distributed.compression, { top_k: 0.01 });
});
