// `node bench/train-full.mjs ag_news_small --data DIR [--device cpu] [--resume] [--run DIR]`: a full training by a shipped
// configuration, outside CI. Writes results/training-NAME-DEVICE.json with every epoch. `--from DIR` takes a run that is done.
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { allowedCores } from "./lib/contestant.mjs";
import { hardware, versions } from "./lib/hardware.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    data: { type: "string" },
    device: { type: "string", default: "cpu" },
    run: { type: "string" },
    from: { type: "string" },
    resume: { type: "boolean", default: false },
  },
});
const name = positionals[0] ?? "ag_news_small";
const run = options.from ?? options.run ?? join("runs", name);
if (options.from === undefined) {
  const args = ["train", join(here, "../configs", `${name}.yaml`), "--device", options.device, "--output", run];
  if (options.data !== undefined) args.push("--data", options.data);
  if (options.resume) args.push("--resume");
  const done = spawnSync(process.execPath, [join(here, "../packages/cli/bin/weft.js"), ...args], { stdio: "inherit" });
  if (done.status !== 0) process.exit(done.status ?? 1);
}
const epochs = readFileSync(join(run, "metrics.csv"), "utf8")
  .trimEnd()
  .split("\n")
  .slice(1)
  .map((line) => line.split(",").map(Number))
  .map(([epoch, trainLoss, seconds, valLoss, valAccuracy]) => ({ epoch, trainLoss, seconds, valLoss, valAccuracy }));
/** Of the rows held out for choosing, and of the test split, which was looked at once; an older run has the latter alone. */
const { test = null } = JSON.parse(readFileSync(join(run, "run.json"), "utf8"));
const best = epochs.reduce((a, b) => (b.valAccuracy > a.valAccuracy ? b : a));
const report = {
  benchmark: "full training",
  name,
  device: options.device,
  at: new Date().toISOString(),
  hardware: hardware(allowedCores()),
  versions: versions(),
  config: readFileSync(join(run, "config.yaml"), "utf8").replace(
    /^(\s*(?:path|output|tokenizer)): .*\/.*$/gm,
    "$1: ...",
  ),
  bestValidation: best.valAccuracy,
  bestEpoch: best.epoch,
  finalValidation: epochs.at(-1).valAccuracy,
  testAccuracy: test?.accuracy ?? null,
  testLoss: test?.loss ?? null,
  epochs,
};
writeFileSync(join(here, `results/training-${name}-${options.device}.json`), `${JSON.stringify(report, null, 1)}\n`);
console.log(
  `${name}: validation ${report.finalValidation} (best ${best.valAccuracy} at epoch ${best.epoch}), test ${report.testAccuracy}`,
);
