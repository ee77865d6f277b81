// Scores the law of three kinds of parallelism on vTrain's measured configurations: 40 rows are chosen by their settings alone,
// without their times; the others are predicted. Writes bench/results/vtrain.json.
//   node packages/lab/scripts/predict-vtrain.mjs VTRAIN     (a checkout of VIA-Research/vTrain)
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { mean, median, quantile } from "../../formats/dist/stats/index.js";
import { readConfigurations } from "../dist/import/index.js";
import { chooseConfigurations, fitParallelLaw } from "../dist/predict/index.js";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error("usage: predict-vtrain.mjs VTRAIN");
const counts = { single: 24, multi: 16 };
const sets = Object.entries(counts).map(([kind, count]) => {
  const rows = readConfigurations(join(directory, "data", `ground_truth_${kind}.csv`));
  const chosen = new Set(chooseConfigurations(rows, count));
  return { kind, rows, chosen };
});
const law = fitParallelLaw(sets.flatMap(({ rows, chosen }) => rows.filter((_, i) => chosen.has(i))));

function errorsOf({ kind, rows, chosen }) {
  const held = rows.filter((_, i) => !chosen.has(i)).map((row) => ({ row, ...law(row) }));
  const errors = held.map(({ row, milliseconds }) => Math.abs(milliseconds / row.milliseconds - 1));
  const inside = held.filter(({ row, interval: [low, high] }) => low <= row.milliseconds && row.milliseconds <= high);
  return {
    nodes: kind,
    measured: chosen.size,
    heldBack: held.length,
    meanError: mean(errors),
    medianError: median(errors),
    p90Error: quantile(errors, 0.9),
    coverage: inside.length / held.length,
  };
}

/** Of every job: how much slower the configuration that is chosen (by measured times of the 40 rows, else by predicted ones) is than the fastest. */
function regretsOf({ rows, chosen }) {
  const jobs = new Map();
  for (const [i, row] of rows.entries()) {
    const key = [row.devices, row.globalBatch, row.hidden, row.layers, row.sequence].join(" ");
    jobs.set(key, [
      ...(jobs.get(key) ?? []),
      { time: row.milliseconds, predicted: chosen.has(i) ? row.milliseconds : law(row).milliseconds },
    ]);
  }
  return [...jobs.values()]
    .filter((list) => list.length > 1)
    .map((list) => {
      const picked = list.reduce((a, b) => (b.predicted < a.predicted ? b : a));
      return picked.time / Math.min(...list.map((x) => x.time)) - 1;
    });
}
const regrets = sets.flatMap(regretsOf);
const result = {
  what: "iteration times of VIA-Research/vTrain's measured configurations, predicted from 40 of them",
  rule: "24 rows of one node and 16 of many, chosen by their settings alone: the most central one, then always the one farthest from all chosen ones (chooseConfigurations)",
  caution:
    "the form of the law, the split into 24 and 16 and the weights of the settings were chosen with all rows in view; only the constants are fitted on the 40",
  rows: sets.map(errorsOf),
  regret: {
    jobs: regrets.length,
    mean: mean(regrets),
    median: median(regrets),
    p90: quantile(regrets, 0.9),
    max: Math.max(...regrets),
  },
};
writeFileSync(join(root, "bench/results/vtrain.json"), `${JSON.stringify(result, null, 2)}\n`);
console.log(JSON.stringify(result, null, 2));
