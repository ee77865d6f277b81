// How long `weft analyze` takes for 1,000 runs without pictures. Makes the runs (500 studies of two), checks the result, measures the whole
// process, and writes bench/results/lab-analyze.json.
//   npm run build && node bench/lab-analyze.mjs [runs]
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const runs = Number(process.argv[2] ?? 1000);
const home = mkdtempSync(join(tmpdir(), "weft-bench-"));
const epochs = 20;
const yaml = ["studies:"];
for (let study = 0; study < runs / 2; study++) {
  yaml.push(`  - name: S${study}`, "    samples: 25000", "    batch_per_rank: 32", "    runs:");
  for (const devices of [1, 4]) {
    const name = `s${study}_n${devices}`;
    mkdirSync(join(home, name));
    const rows = ["epoch,train_loss,train_time,val_loss,val_acc"];
    for (let e = 1; e <= epochs; e++) {
      const seconds = (10 + study * 0.01 + Math.sin(e * 7 + study) * 0.1) / (devices === 1 ? 1 : 3.5);
      rows.push(`${e},${(1 / e + (devices - 1) * 0.05).toFixed(6)},${seconds.toFixed(6)},0.5,0.8`);
    }
    writeFileSync(join(home, name, "metrics.csv"), `${rows.join("\n")}\n`);
    yaml.push(`      - {dir: ${name}, devices: ${devices}}`);
  }
}
writeFileSync(join(home, "study.yaml"), `${yaml.join("\n")}\n`);
const weft = join(root, "packages/cli/bin/weft.js");
const samples = [];
try {
  for (let repeat = 0; repeat < 5; repeat++) {
    const started = performance.now();
    const { status, stdout } = spawnSync(
      process.execPath,
      [weft, "analyze", home, "--json", "--no-pictures", "--out", join(home, "out")],
      { encoding: "utf8", maxBuffer: 1 << 30 },
    );
    const seconds = (performance.now() - started) / 1000;
    const { studies } = JSON.parse(stdout);
    const right =
      status === 0 &&
      studies.length === runs / 2 &&
      studies.every((s) => s.valid && Math.abs(s.scaling[1].speedup - 3.5) < 0.05);
    if (!right) throw new Error("the analysis is wrong: no time is reported");
    samples.push(seconds);
  }
} finally {
  rmSync(home, { recursive: true });
}
const median = [...samples].sort((a, b) => a - b)[Math.floor(samples.length / 2)];
const result = {
  what: `weft analyze of ${runs} runs of ${epochs} epochs, without pictures, whole process`,
  hardware: { cpu: cpus()[0]?.model, cores: cpus().length },
  versions: { node: process.version },
  seconds: { median, samples },
  limit: 5,
};
mkdirSync(join(root, "bench/results"), { recursive: true });
writeFileSync(join(root, "bench/results/lab-analyze.json"), `${JSON.stringify(result, null, 2)}\n`);
console.log(`${runs} runs: median ${median.toFixed(2)} s of ${samples.map((s) => s.toFixed(2)).join(", ")}`);
