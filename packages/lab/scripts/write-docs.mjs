// Fills docs/lab.md with real output: every ```console block is run (in a scratch directory that holds `experiments/` and the small files
// below) and its output written under the command; tables between `<!-- figures NAME -->` marks come from bench/results.
//   npm run build && node packages/lab/scripts/write-docs.mjs          (--check: fail when the page is not up to date; --figures: only the tables)
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const page = join(root, "docs/lab.md");
const check = process.argv.includes("--check");
/** Only the tables, not the commands. */
const onlyFigures = process.argv.includes("--figures");
const scratch = mkdtempSync(join(tmpdir(), "weft-docs-"));
cpSync(join(root, "packages/lab/testdata/ddp_experiments"), join(scratch, "experiments"), { recursive: true });
writeFileSync(
  join(scratch, "batches.json"),
  JSON.stringify({
    points: [
      { devices: 8, throughput: 7759.6, globalBatch: 768 },
      { devices: 64, throughput: 53186, globalBatch: 4608 },
      { devices: 512, throughput: 138650, globalBatch: 3072 },
    ],
  }),
);
writeFileSync(join(scratch, "points.json"), '{"metric": "throughput", "points": [[1, 364.27], [4, 1432.73]]}\n');
mkdirSync(join(scratch, "scripts"));
mkdirSync(join(scratch, "configs"));
writeFileSync(
  join(scratch, "scripts/train.sh"),
  `#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=2

srun torchrun --nproc_per_node=4 --rdzv_endpoint=$SLURM_NODELIST:29500 train.py --config configs/agnews.yaml
`,
);
writeFileSync(
  join(scratch, "configs/agnews.yaml"),
  "data:\n  num_workers: 2\ntraining:\n  batch_size: 32\n  device: cuda:7\n",
);

/** Runs `weft …` and gives what a user would see. */
function run(command) {
  const [, ...args] = command.match(/"[^"]*"|\S+/g).map((w) => w.replaceAll('"', ""));
  const { stdout, stderr } = spawnSync(process.execPath, [join(root, "packages/cli/bin/weft.js"), ...args], {
    cwd: scratch,
    encoding: "utf8",
    env: { ...process.env, WEFT_LEDGER: ".weft/ledger.jsonl", WEFT_PROGRESS: "0" },
  });
  // Progress appears when a command is slow; it is no part of the output.
  const said = stderr.replaceAll(/^weft: .*\d+%.*\n/gm, "");
  return `${said}${stdout}`.replaceAll(scratch, ".").trimEnd();
}

const result = (name) => JSON.parse(readFileSync(join(root, `bench/results/${name}.json`), "utf8"));
const percent = (x) => `${(x * 100).toFixed(1)}%`;
const figures = {
  batches: () => {
    const p = result("prediction-batches");
    const row = (name, f, coverage = "-") =>
      `| ${name} | ${percent(f.median)} | ${percent(f.p90)} | ${percent(f.max)} | ${coverage} |`;
    return [
      `| on ${p.crossValidated.series} series of ${p.families} benchmarks of MLPerf Training, predicting the largest count | median error | 90th percentile | largest | 80% intervals that held |`,
      "|---|---|---|---|---|",
      row(
        "weft predict, each benchmark left out in turn",
        p.crossValidated,
        percent(p.crossValidated.intervalCoverage),
      ),
      row("compute + constant (t = a * batch / N + b)", p.computePlusConstant),
      row("weft predict without the batches", p.withoutBatches),
      ...Object.entries(p.byDistance).map(([name, f]) =>
        row(`weft predict, ${name} ahead (${f.series} series)`, f, percent(f.intervalCoverage)),
      ),
    ].join("\n");
  },
  prediction: () => {
    const p = result("prediction");
    const row = (name, f, coverage) =>
      `| ${name} | ${percent(f.median)} | ${percent(f.p90)} | ${percent(f.max)} | ${coverage} |`;
    return [
      `| on ${p.series} series of ${p.families} model families, predicting the largest count | median error | 90th percentile | largest | 80% intervals that held |`,
      "|---|---|---|---|---|",
      row("weft predict, each family left out in turn", p.crossValidated, percent(p.crossValidated.intervalCoverage)),
      row("ring law, one parameter", p.ringLaw, "-"),
      row("logarithmic law, one parameter", p.logLaw, "-"),
      row(
        `weft predict, ${p.independent.series} series from other sources`,
        p.independent.shipped,
        percent(p.independent.intervalCoverage),
      ),
      row("ring law on those", p.independent.ringLaw, "-"),
      row("logarithmic law on those", p.independent.logLaw, "-"),
    ].join("\n");
  },
  vtrain: () => {
    const v = result("vtrain");
    return [
      "| configurations | measured | held back | mean error | median error | 90th percentile | 80% intervals that held |",
      "|---|---|---|---|---|---|---|",
      ...v.rows.map(
        (r) =>
          `| ${r.nodes === "single" ? "one node" : "many nodes"} | ${r.measured} | ${r.heldBack} | ${percent(r.meanError)} | ${percent(r.medianError)} | ${percent(r.p90Error)} | ${percent(r.coverage)} |`,
      ),
      "",
      `Over ${v.regret.jobs} jobs the chosen configuration is ${percent(v.regret.mean)} slower than the fastest one in the mean (median ${percent(v.regret.median)}, 90th percentile ${percent(v.regret.p90)}). ${v.caution[0].toUpperCase()}${v.caution.slice(1)}.`,
    ].join("\n");
  },
  gpu: () => {
    const g = result("scalefault-gpu");
    const said = (list) => (list.length === 0 ? "-" : list.join(", "));
    const peers = (r, tool) => said(r.peers?.[tool]?.says ?? []);
    return [
      "| job | Weft, main cause | TensorBoard plugin advises on | HTA's tables show |",
      "|---|---|---|---|",
      ...g.results.map(
        (r) =>
          `| ${r.job}${r.effective ? "" : " (its removal changes nothing)"} | ${r.top ?? "-"} | ${peers(r, "tensorboard")} | ${peers(r, "hta")} |`,
      ),
      "",
      `Of ${g.faulty} faults that cost a tenth of a step or more, Weft names ${percent(g.topCause)} first, the plugin's advice fits ${percent(g.peers.tensorboard.namedFault)}, HTA's tables fit ${percent(g.peers.hta.namedFault)}; of ${g.healthy} healthy jobs ${percent(g.falseAlarms)}, ${percent(g.peers.tensorboard.falseAlarms)} and ${percent(g.peers.hta.falseAlarms)} raise an alarm. ${percent(g.insideInterval)} of ${g.promises} promised step times lie in their intervals. ${g.device}, PyTorch ${g.torch}. ${g.caution}`,
    ].join("\n");
  },
  analyze: () => {
    const b = result("lab-analyze");
    return `${b.what}: ${b.seconds.median.toFixed(1)} s (median of ${b.seconds.samples.length}; ${b.hardware.cores} cores, Node ${b.versions.node}).`;
  },
};

const before = readFileSync(page, "utf8");
const filled = before
  .replaceAll(/```console\n\$ (weft[^\n]*)\n[\s\S]*?```/g, (text, command) =>
    onlyFigures ? text : `\`\`\`console\n$ ${command}\n${run(command)}\n\`\`\``,
  )
  .replaceAll(
    /<!-- figures (\w+) -->[\s\S]*?<!-- end -->/g,
    (_, name) => `<!-- figures ${name} -->\n${figures[name]()}\n<!-- end -->`,
  );
mkdirSync(join(root, "docs/images"), { recursive: true });
if (!check) {
  if (!onlyFigures)
    for (const name of ["AGNews_speedup_efficiency.png", "IMDB_speedup_efficiency.png"])
      cpSync(join(scratch, "weft-report", name), join(root, "docs/images", name));
  writeFileSync(page, filled);
}
rmSync(scratch, { recursive: true });
// The formatter lays tables out its own way; only what they say is compared.
const plain = (text) => text.replaceAll(/\s+/g, "").replaceAll(/-{3,}/g, "---");
if (check && plain(filled) !== plain(before)) {
  console.error("docs/lab.md is not what the commands print: node packages/lab/scripts/write-docs.mjs");
  process.exit(1);
}
