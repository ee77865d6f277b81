// `node bench/train-workers.mjs --data DIR`: the same training (the small model on the real rows, one global batch) on one
// worker and on two: the accuracies must agree within half a point. Writes results/train-workers.json.
// Options: --config ag_news_small  --epochs 5  --global-batch 64  --out FILE
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { allowedCores } from "./lib/contestant.mjs";
import { hardware, versions } from "./lib/hardware.mjs";
import { weftCommand } from "./lib/train-work.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    data: { type: "string" },
    config: { type: "string", default: "ag_news_small" },
    epochs: { type: "string", default: "5" },
    "global-batch": { type: "string", default: "64" },
    out: { type: "string", default: join(here, "results/train-workers.json") },
  },
});
const folder = mkdtempSync(join(tmpdir(), "weft-bench-workers-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const config = join(folder, "config.yaml");
const shipped = readFileSync(join(here, "../configs", `${options.config}.yaml`), "utf8");
const text = shipped.replace(/^ {2}batch_per_rank: .*$/m, `  global_batch: ${options["global-batch"]}`);
if (text === shipped) throw new Error(`configs/${options.config}.yaml has no batch_per_rank`);
writeFileSync(config, text);

const runs = [1, 2].map((workers) => {
  const output = join(folder, String(workers));
  const args = [
    "train",
    config,
    "--device",
    "cpu",
    "--devices",
    workers,
    "--epochs",
    options.epochs,
    "--output",
    output,
  ];
  if (options.data !== undefined) args.push("--data", options.data);
  const done = spawnSync(process.execPath, [weftCommand, ...args.map(String)], { stdio: ["ignore", 2, 2] });
  if (done.status !== 0) process.exit(done.status ?? 1);
  const { test } = JSON.parse(readFileSync(join(output, "run.json"), "utf8"));
  const losses = readFileSync(join(output, "rank0.jsonl"), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line))
    .filter(({ type }) => type === "step")
    .map(({ loss }) => loss);
  return { workers, testAccuracy: test.accuracy, testLoss: test.loss, losses };
});
const [one, two] = runs;
const apart = one.losses.map((loss, i) => Math.abs(two.losses[i] / loss - 1));
const report = {
  benchmark: "one worker and two",
  name: options.config,
  at: new Date().toISOString(),
  hardware: hardware(allowedCores()),
  versions: versions(),
  epochs: Number(options.epochs),
  globalBatch: Number(options["global-batch"]),
  steps: one.losses.length,
  runs: runs.map(({ losses, ...row }) => ({ ...row, lastLoss: losses.at(-1) })),
  difference: Math.abs(one.testAccuracy - two.testAccuracy),
  /** Largest relative distance of the losses in the first 20 steps, and in all. */
  lossesApart: { first20: Math.max(...apart.slice(0, 20)), all: Math.max(...apart) },
};
writeFileSync(options.out, `${JSON.stringify(report, null, 1)}\n`);
console.log(JSON.stringify(report));
process.exitCode = report.difference <= 0.005 ? 0 : 1;
