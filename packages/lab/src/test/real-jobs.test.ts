// End-to-end tests with real jobs: weft scale measures a PyTorch DDP job with and without its sampler, and the lab distinguishes
// them; the same job runs under SLURM; the compilation of a JAX job is reported separately.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { ProbeFacts, RunFile } from "@weft/formats/internal";
import type { StudyReport } from "../diagnosis/index.js";
import { studyFromScaleDirectory } from "../import/index.js";
import { probeEnvironment } from "../runner/index.js";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { jaxScript, loaderScript, trainScript, variantScript } from "./jobs.js";
import { loudly, type Python, pythonWith } from "./python.js";
import { type Slurm, startSlurm } from "./slurm.js";

const weft = join(dirname(fileURLToPath(import.meta.url)), "../../../cli/bin/weft.js");

interface Scaled {
  folder: string;
  studies: StudyReport[];
}

function scale(args: string[], cwd: string, env: Record<string, string | undefined> = process.env): Scaled {
  const done = spawnSync(
    process.execPath,
    [weft, "scale", "--json", "--no-pictures", "--out", join(cwd, "runs"), ...args],
    { cwd, env, encoding: "utf8", timeout: 240_000 },
  );
  assert.ok(done.status === 0 || done.status! >= 3, done.stderr);
  return JSON.parse(done.stdout) as Scaled;
}

/** The last facts of a file of records. */
function studyFacts(path: string): ProbeFacts {
  const lines = readFileSync(path, "utf8").trimEnd().split("\n");
  const records = lines.map((line) => JSON.parse(line) as { type: string; facts?: ProbeFacts });
  return Object.assign({}, ...records.flatMap((r) => (r.type === "facts" ? [r.facts] : [])));
}

function trainCommand(python: Python, folder: TestFolder): string[] {
  const script = folder.file("train.py", trainScript);
  return [python.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node={n}", script];
}

describe("a real PyTorch DDP job", () => {
  let python: Python | string = "not looked for";
  before(async () => {
    python = await pythonWith("torch");
  });

  test("divided and replicated work are distinguished from the records alone", (t) => {
    if (typeof python === "string") return t.skip(loudly(python));
    using folder = new TestFolder();
    const right = scale(["--devices", "1,2", "--name", "right", "--", ...trainCommand(python, folder)], folder.path);
    const wrong = scale(
      ["--devices", "1", "2", "--name", "wrong", "--", ...trainCommand(python, folder), "--no-sampler"],
      folder.path,
    );

    const [good] = right.studies;
    const [bad] = wrong.studies;
    assert.deepEqual(
      good.runs.map((r) => [r.devices, r.status, r.epochSeconds?.n]),
      [
        [1, "ok", 4],
        [2, "ok", 4],
      ],
    );
    const at = (report: StudyReport) => report.scaling.find((p) => p.devices === 2)!;
    assert.deepEqual([at(good).workRatio, at(good).workKnown], [1, "counted"]);
    assert.deepEqual([at(bad).workRatio, at(bad).workKnown, at(bad).valid], [2, "counted", false]);
    assert.equal(good.findings.filter((f) => f.id === "work-not-divided").length, 0);
    assert.equal(bad.findings[0].id, "work-not-divided");
    assert.equal(bad.valid, false);
    assert.ok(Math.abs(at(bad).workSpeedup! - 2 * at(bad).speedup) < 1e-9);

    // The facts of the probe, rank by rank.
    const study = studyFromScaleDirectory(right.folder);
    const two = study.runs.find((r) => r.devices === 2)!;
    assert.deepEqual(
      two.ranks.map((r) => [
        r.rank,
        r.facts.samplerClass,
        r.facts.samplerSharded,
        r.facts.parallelism,
        r.facts.backend,
      ]),
      [0, 1].map((rank) => [rank, "DistributedSampler", true, "ddp", "gloo"]),
    );
    assert.equal(two.ranks[0].facts.datasetSamples, 2048);
    assert.equal(two.ranks[0].facts.parameters, 128 * 512 + 512 + 512 * 512 + 512 + 512 * 2 + 2);
    // Reverse order of the parameters; the first bucket closes at 1 MiB, which the middle layer's weights pass.
    assert.deepEqual(two.ranks[0].facts.ddpBucketBytes, [4 * (2 + 2 * 512 + 512 + 512 * 512), 4 * (512 + 128 * 512)]);
    assert.equal(two.steps.length, 2 * 5 * 16);
    assert.ok(two.steps.every((s) => s.samples === 64 && s.durationUs > 0 && s.dataWaitUs! < s.durationUs));
    assert.ok(two.samples.length > 0 && two.samples.every((s) => s.host!.cpuPercent !== undefined));
    assert.ok(
      two.samples.some((s) => s.host!.processes! >= 2),
      "the ranks were counted",
    );
    const hashes = studyFromScaleDirectory(wrong.folder)
      .runs.find((r) => r.devices === 2)!
      .ranks.map((r) => r.facts.indexHash);
    assert.equal(hashes.length, 2);
    assert.equal(hashes[0], hashes[1], "without a sampler both ranks draw the same samples");
  });

  test("subsets per rank are divided work, and ranks without the DDP wrapper train different models", (t) => {
    if (typeof python === "string") return t.skip(loudly(python));
    using folder = new TestFolder();
    const script = folder.file("variant.py", variantScript);
    const command = [python.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node={n}", script];
    const measure = (name: string) =>
      scale(["--devices", "1,2", "--name", name, "--", ...command, `--${name}`], folder.path).studies[0];
    const subset = measure("subset");
    assert.deepEqual([subset.scaling[1].workRatio, subset.scaling[1].workKnown], [1, "counted"]);
    assert.notEqual(subset.status, "not valid", JSON.stringify(subset.findings));
    const alone = measure("no-wrapper");
    assert.equal(alone.status, "not valid");
    assert.ok(alone.findings.some((f) => f.id === "ranks-train-different-models" && f.severity === "invalid"));
    assert.equal(alone.scaling[1].workSpeedup, null);
  });

  test("epochs of persistent loaders have orders of their own, and constant batches are no evidence", (t) => {
    if (typeof python === "string") return t.skip(loudly(python));
    using folder = new TestFolder();
    const script = folder.file("loaders.py", loaderScript);
    const facts = (kind: string) => {
      const home = join(folder.path, kind);
      mkdirSync(home);
      const env = { ...process.env, ...probeEnvironment(home, {}) };
      execFileSync((python as Python).python, [script, kind], { env, timeout: 120_000 });
      return studyFacts(join(home, "rank0.jsonl"));
    };
    const { epochIndexHashes: shuffled = [], datasetHash } = facts("shuffled");
    assert.equal(new Set(shuffled).size, 3, String(shuffled));
    const zeros = facts("zeros");
    assert.equal(zeros.contentHash, undefined);
    assert.equal(zeros.epochIndexHashes?.length, 3);
    // A thread that reads ahead: epochs are whole, and no step has parts that belong to another.
    assert.equal(facts("threaded").datasetHash, datasetHash, "a hash of the data, not of the order");
    const lines = readFileSync(join(folder.path, "threaded/rank0.jsonl"), "utf8").trimEnd().split("\n");
    const records = lines.map((line) => JSON.parse(line) as { type: string; samples?: number; dataWaitUs?: number });
    assert.deepEqual(
      records.flatMap((r) => (r.type === "epoch" ? [r.samples] : [])),
      [64, 64, 64],
    );
    assert.ok(records.every((r) => r.dataWaitUs === undefined));
  });

  test("Ctrl-C terminates all processes of a torchrun job", async (t) => {
    if (typeof python === "string") return t.skip(loudly(python));
    using folder = new TestFolder();
    const forever = folder.file("forever.py", trainScript.replace("range(5)", "range(100000)"));
    const command = trainCommand(python, folder).map((part) => (part.endsWith("train.py") ? forever : part));
    const child = spawn(
      process.execPath,
      [weft, "scale", "--devices", "2", "--out", join(folder.path, "runs"), "--no-pictures", "--", ...command],
      { cwd: folder.path, stdio: "ignore" },
    );
    const exited = new Promise<number | null>((resolve) => child.on("exit", (code) => resolve(code)));
    const ours = (): number => processesNaming(forever).length;
    const deadline = performance.now() + 60_000;
    const ranks = (): string[] => {
      const runs = join(folder.path, "runs");
      if (!existsSync(runs)) return [];
      const [study] = readdirSync(runs);
      const home = join(runs, study ?? "none", "runs/n2-r0");
      return existsSync(home) ? readdirSync(home).filter((n) => /^rank\d\.jsonl$/.test(n)) : [];
    };
    while (ranks().length < 2 && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 200));
    assert.equal(ranks().length, 2, "both ranks were training");
    assert.ok(ours() >= 2);
    child.kill("SIGINT");
    assert.equal(await exited, 1);
    assert.equal(ours(), 0);
    const [study] = readdirSync(join(folder.path, "runs"));
    const file = JSON.parse(readFileSync(join(folder.path, "runs", study, "runs/n2-r0/run.json"), "utf8")) as RunFile;
    assert.equal(file.status, "canceled");
  });
});

/** Processes whose command line names a file. */
function processesNaming(path: string): string[] {
  return readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return (
        readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(path) &&
        !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"))
      );
    } catch {
      return false;
    }
  });
}

describe("a real SLURM", () => {
  let slurm: Slurm | string = "not started";
  let python: Python | string = "not looked for";
  before(async () => {
    slurm = await startSlurm();
    python = await pythonWith("torch");
  });
  after(() => {
    if (typeof slurm !== "string") slurm.stop();
  });

  test("runs the DDP job through sbatch, and the lab analyzes the result", (t) => {
    if (typeof slurm === "string") return t.skip(loudly(slurm));
    if (typeof python === "string") return t.skip(loudly(python));
    using folder = new TestFolder();
    const site = ["--partition", "test", "--time-limit", "5m", "--sample-seconds", "0.5"];
    const result = scale(
      ["--devices", "1,2", "--launcher", "sbatch", ...site, "--", ...trainCommand(python, folder), "--no-sampler"],
      folder.path,
      slurm.env,
    );
    const [report] = result.studies;
    assert.deepEqual(
      report.runs.map((r) => [r.devices, r.status]),
      [
        [1, "ok"],
        [2, "ok"],
      ],
    );
    assert.equal(report.findings[0].id, "work-not-divided");
    const study = studyFromScaleDirectory(result.folder);
    const two = study.runs.find((r) => r.devices === 2)!;
    assert.equal(two.ranks.length, 2);
    assert.ok(two.samples.length > 0, "the job sampled its own machine");
    const file = JSON.parse(readFileSync(join(result.folder, "runs/n2-r0/run.json"), "utf8")) as RunFile;
    assert.match(file.job!, /^\d+$/);
    assert.ok(file.seconds! > 0);
    assert.match(readFileSync(join(result.folder, "runs/n2-r0/stdout.log"), "utf8"), /done/);
  });

  test("following resumes after a lost connection, and a failing count keeps the others", async (t) => {
    if (typeof slurm === "string") return t.skip(loudly(slurm));
    using folder = new TestFolder();
    const env = slurm.env;
    const args = [
      weft,
      "scale",
      "--devices",
      "1,2,3",
      "--launcher",
      "sbatch",
      "--partition",
      "test",
      "--out",
      join(folder.path, "runs"),
      "--no-pictures",
      "--no-probe",
      "--",
      "bash",
      "-c",
      "sleep 2; test {n} -ne 2",
    ];
    const child = spawn(process.execPath, args, { cwd: folder.path, env, stdio: "ignore" });
    const exited = new Promise<number | null>((resolve) => child.on("exit", (code) => resolve(code)));
    const submitted = (): string[] => {
      const [study] = existsSync(join(folder.path, "runs")) ? readdirSync(join(folder.path, "runs")) : [];
      const path = join(folder.path, "runs", study ?? "none", "slurm.json");
      return existsSync(path)
        ? (JSON.parse(readFileSync(path, "utf8")) as { jobs: { job: string }[] }).jobs.map((j) => j.job)
        : [];
    };
    const deadline = performance.now() + 30_000;
    while (submitted().length < 3 && performance.now() < deadline)
      await new Promise((resolve) => setTimeout(resolve, 100));
    const jobs = submitted();
    assert.equal(jobs.length, 3);
    child.kill("SIGHUP");
    assert.equal(await exited, 1);
    const queue = execFileSync("squeue", ["--noheader", "--format=%i"], { env, encoding: "utf8" });
    assert.ok(
      jobs.some((job) => queue.includes(job)),
      "the jobs go on without us",
    );
    const [study] = readdirSync(join(folder.path, "runs"));
    const attached = spawnSync(
      process.execPath,
      [weft, "scale", "--json", "--no-pictures", "--attach", join(folder.path, "runs", study)],
      { env, encoding: "utf8", timeout: 90_000 },
    );
    assert.ok(attached.status === 0 || attached.status === 4, attached.stderr);
    assert.match(attached.stderr, /n2-r0 \(2 devices\) failed: the command ended with exit code 1/);
    const report = (JSON.parse(attached.stdout) as Scaled).studies[0];
    assert.deepEqual(
      report.runs.map((r) => [r.devices, r.status]),
      [
        [1, "ok"],
        [2, "failed"],
        [3, "ok"],
      ],
    );
    assert.deepEqual(
      report.scaling.map((p) => p.devices),
      [1, 3],
    );
  });
});

describe("a real JAX job", () => {
  let python: Python | string = "not looked for";
  before(async () => {
    python = await pythonWith("jax");
  });

  test("reports its devices, and compilation separately from steady steps", (t) => {
    if (typeof python === "string") return t.skip(loudly(python));
    using folder = new TestFolder();
    const script = folder.file("job.py", jaxScript);
    const command = ["env", "XLA_FLAGS=--xla_force_host_platform_device_count={n}", python.python, script];
    const result = scale(["--devices", "1,2", "--", ...command], folder.path);
    const study = studyFromScaleDirectory(result.folder);
    assert.deepEqual(
      study.runs.map((r) => [
        r.devices,
        r.status,
        r.ranks[0].facts.framework,
        r.ranks[0].facts.deviceCount,
        r.ranks[0].facts.parallelism,
      ]),
      [
        [1, "ok", "jax", 1, "none"],
        [2, "ok", "jax", 2, "sharding"],
      ],
    );
    for (const run of study.runs) {
      assert.equal(run.steps.length, 30);
      assert.ok(run.ranks[0].facts.compileSeconds! > 0);
      assert.equal(run.steps[0].compile, true);
      assert.equal(run.steps.filter((s) => s.compile).length < 3, true);
      assert.ok(run.steps[0].durationUs > 10 * run.steps[29].durationUs);
    }
  });
});
