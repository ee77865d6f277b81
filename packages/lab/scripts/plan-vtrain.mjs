// Compares the choice of the placement search with vTrain's measured configurations: of every job, the search predicts the step of each
// measured configuration without pipeline stages, and the fastest prediction is compared with the fastest measurement. The rates
// are published figures of the A100; nothing is fitted. Writes bench/results/vtrain-plans.json.
//   node packages/lab/scripts/plan-vtrain.mjs VTRAIN     (a checkout of VIA-Research/vTrain)
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { h200 } from "../../core/dist/cost/index.js";
import * as weft from "../../core/dist/index.js";
import { adamW } from "../../core/dist/optim/index.js";
import { mean, median, quantile } from "../../formats/dist/stats/index.js";
import { defineModel } from "../../models/dist/index.js";
import { planRun } from "../../train/dist/trainer/plan-run.js";
import { readConfigurations } from "../dist/import/index.js";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error("usage: plan-vtrain.mjs VTRAIN");

/** Published figures: 312 TFLOP/s in 16 bits, 19.5 in 32, 2.0 TB/s, NVLink 3, and 8 x 200 Gbit/s between nodes. */
const ring = (members, gigabytes, base = 8.4) => ({
  members,
  latency: (base + 2 * (members - 1) * 3.4) * 1e-6,
  bandwidth: gigabytes * 1e9,
});
const scaled = (table, factor) => table.map(([size, rate]) => [size, rate * factor]);
const linksOf = (list) => Object.fromEntries(Object.keys(h200.links).map((kind) => [kind, list]));
const node = 8;
const a100 = (devices) => ({
  ...h200,
  name: "A100 (published)",
  matmul: Object.fromEntries(
    Object.entries(h200.matmul).map(([dtype, table]) => [
      dtype,
      scaled(table, dtype.endsWith("16") ? 312 / 989 : 19.5 / 60),
    ]),
  ),
  bandwidth: scaled(h200.bandwidth, 2.0 / 4.8),
  links: linksOf([ring(2, 200), ring(4, 225), ring(8, 230)]),
  ...(devices > node && { between: { devices: node, links: linksOf([ring(devices, 180, 30)]) } }),
});

/** A Llama with as many parameters per layer as the measured model; its query, key and value are products of their own. */
function candidatesOf({ devices, hidden, heads, layers, sequence }, rows, accumulation) {
  const model = defineModel(
    {
      model_type: "llama",
      hidden_size: hidden,
      num_hidden_layers: layers,
      num_attention_heads: heads,
      intermediate_size: Math.round(hidden / 24) * 64,
      vocab_size: 51200,
      max_position_embeddings: sequence,
      tie_word_embeddings: true,
    },
    { task: "causal-lm" },
  );
  const options = {
    task: {
      init: (key) => model.init(key),
      loss: (params, ids) => model.loss(params, { inputIds: ids, labels: ids }, { dtype: "bfloat16" }),
      evaluate: (_, ids) => ids.sum(),
    },
    optimizer: adamW({ learningRate: 1e-4 }),
    group: { rank: 0, size: devices },
    ...{ dtype: "float32", seed: 1, gradientClip: 1, bucketBytes: 4 << 20, window: 1, scaling: null },
  };
  const batch = { inputs: weft.zeros([1, sequence], { dtype: "int32" }), rows };
  return planRun(options, batch, devices, undefined, a100(devices), { accumulation }).plan.candidates;
}

const plans = new Map();
function predicted(row) {
  const { devices, globalBatch, microBatch, tensor, data } = row;
  const rows = microBatch * data;
  const key = [devices, rows, globalBatch, row.hidden, row.layers, row.sequence].join(" ");
  if (!plans.has(key)) plans.set(key, candidatesOf(row, rows, globalBatch / rows));
  const name = tensor > 1 ? `data ${data}, model ${tensor}` : `data ${data}`;
  return plans.get(key).find((candidate) => candidate.name === name)?.seconds;
}

function score(kind) {
  const jobs = new Map();
  for (const row of readConfigurations(join(directory, "data", `ground_truth_${kind}.csv`))) {
    const key = [row.devices, row.globalBatch, row.hidden, row.layers, row.sequence].join(" ");
    jobs.set(key, [...(jobs.get(key) ?? []), row]);
  }
  const regrets = [];
  let rows = 0;
  for (const all of jobs.values()) {
    const flat = all.filter(({ pipeline }) => pipeline === 1);
    if (new Set(flat.map(({ tensor }) => tensor)).size < 2) continue;
    rows += flat.length;
    const made = flat.map((row) => ({ ...row, seconds: predicted(row) ?? Number.POSITIVE_INFINITY }));
    const picked = made.reduce((a, b) => (b.seconds < a.seconds ? b : a));
    const least = (list) => Math.min(...list.map(({ milliseconds }) => milliseconds));
    regrets.push({ flat: picked.milliseconds / least(flat) - 1, all: picked.milliseconds / least(all) - 1 });
  }
  const summary = (list) => ({
    mean: mean(list),
    median: median(list),
    p90: quantile(list, 0.9),
    max: Math.max(...list),
    within3Percent: list.filter((regret) => regret <= 0.03).length,
  });
  return {
    ...{ nodes: kind, jobs: regrets.length, configurations: rows },
    withoutPipelines: summary(regrets.map(({ flat }) => flat)),
    withPipelines: summary(regrets.map(({ all }) => all)),
  };
}

const result = {
  what: "how much slower the configuration that the placement search chooses is than the fastest measured one, by job of VIA-Research/vTrain",
  rule: "jobs with measured configurations of at least two degrees of tensor parallelism and no pipeline stages; the search predicts each of these with published rates of the A100, and the fastest prediction is chosen",
  caution:
    "the measured programs are Megatron's; the planned model is a Llama with as many parameters per layer; pipeline stages are not placements of the search, so that withPipelines compares with configurations that it cannot choose",
  rows: ["single", "multi"].map(score),
};
writeFileSync(join(root, "bench/results/vtrain-plans.json"), `${JSON.stringify(result, null, 2)}\n`);
console.log(JSON.stringify(result, null, 2));
