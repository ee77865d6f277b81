// Job scripts that weft train writes: linted by the lab, and run by a real SLURM where there can be one.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

interface Slurm {
  env: Record<string, string>;
  stop(): void;
}
// The lab's own way to start a cluster for tests; packages do not import each other's tests, so it is loaded by place.
const kit = new URL("../../../lab/dist/test/slurm.js", import.meta.url);
const { startSlurm } = (await import(kit.href)) as { startSlurm: () => Promise<Slurm | string> };

const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "weft-train-slurm-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const env = { ...process.env, WEFT_DATA: join(folder, "data") };
const config = join(folder, "tiny.yaml");
writeFileSync(
  config,
  `name: tiny
model: { vocab_size: 300, d_model: 16, n_heads: 2, num_layers: 1, dim_feedforward: 24, max_seq_len: 32 }
data: { dataset: synthetic, train_limit: 210, test_limit: 61 }
training: { epochs: 2, global_batch: 21 }
optimizer: { learning_rate: 0.01 }
`,
);
const call = (
  args: string[],
  more: Record<string, string> = {},
): { status: number | null; stdout: string; stderr: string } =>
  spawnSync(process.execPath, [weft, ...args], {
    encoding: "utf8",
    env: { ...env, ...more },
    cwd: folder,
    timeout: 180_000,
  });

test("scripts for one node and for several: the lab's linter finds nothing", () => {
  const one = [
    "train",
    config,
    "--devices",
    "2",
    "--slurm",
    join(folder, "one.sh"),
    "--partition",
    "gpu",
    "--modules",
    "cuda/12.4",
    "gcc",
    "--env",
    "A=b c",
    "--gpus-per-rank",
    "1",
    "--epochs",
    "3",
  ];
  const several = [
    "train",
    config,
    "--devices",
    "8",
    "--nodes",
    "2",
    "--slurm",
    join(folder, "several.sh"),
    "--time",
    "00:30:00",
    "--account",
    "x",
  ];
  for (const args of [one, several]) assert.equal(call(args).status, 0);
  const linted = call(["lint", join(folder, "one.sh"), join(folder, "several.sh"), "--json"]);
  assert.equal(linted.status, 0, linted.stdout);
  assert.deepEqual((JSON.parse(linted.stdout) as { problems: unknown[] }).problems, []);
  const text = readFileSync(join(folder, "one.sh"), "utf8");
  for (const part of [
    "--nodes=1",
    "--ntasks-per-node=2",
    "--partition=gpu",
    "--gpus-per-task=1",
    "module load cuda/12.4",
    "module load gcc",
    "export A='b c'",
    "--signal=TERM@60",
  ])
    assert.ok(text.includes(part), part);
  assert.match(text, /srun --kill-on-bad-exit=1 weft train \S+tiny\.yaml --epochs 3 --devices 2 --resume/);
  assert.match(readFileSync(join(folder, "several.sh"), "utf8"), /--nodes=2\n#SBATCH --ntasks-per-node=4/);
  assert.equal(call(["train", config, "--devices", "3", "--nodes", "2", "--slurm", join(folder, "x.sh")]).status, 2);
});

describe("a real SLURM", { skip: availableParallelism() < 2 ? "needs two cores" : false }, () => {
  let slurm: Slurm | string = "not started";
  before(async () => {
    slurm = await startSlurm();
    if (typeof slurm === "string") console.error(`weft: training under SLURM is NOT tested: ${slurm}`);
  });
  after(() => {
    if (typeof slurm !== "string") slurm.stop();
  });

  test("sbatch runs the script: two tasks, two ranks, one run", (t) => {
    if (typeof slurm === "string") return t.skip(slurm);
    const script = join(folder, "job.sh");
    assert.equal(
      call([
        "train",
        config,
        "--devices",
        "2",
        "--slurm",
        script,
        "--output",
        join(folder, "run"),
        "--time",
        "00:10:00",
      ]).status,
      0,
    );
    // The cluster has no `weft` on its path: the checkout's own is called.
    writeFileSync(script, readFileSync(script, "utf8").replace(" weft train", ` ${process.execPath} ${weft} train`));
    const done = spawnSync("sbatch", ["--wait", script], {
      env: { ...env, ...slurm.env, WEFT_DATA: env.WEFT_DATA },
      cwd: folder,
      encoding: "utf8",
      timeout: 180_000,
    });
    const log = spawnSync("bash", ["-c", "cat tiny-*.out"], { cwd: folder, encoding: "utf8" }).stdout;
    assert.equal(done.status, 0, done.stderr + log);
    assert.match(log, /tiny: 2 ranks.*global batch 21 = 11 a rank/);
    assert.match(log, /done after 20 steps/);
    assert.ok(existsSync(join(folder, "run", "rank1.jsonl")));
    assert.equal(
      readFileSync(join(folder, "run", "metrics.csv"), "utf8")
        .trimEnd()
        .split("\n").length,
      3,
    );
  });
});
