// SLURM scripts of weft train: linted by the lab, and run by a real SLURM where available.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Hosts, noHosts } from "@weft/testing/hosts";

interface Slurm {
  env: Record<string, string>;
  stop(): void;
}
// The lab's helper to start a SLURM cluster; packages do not import each other's tests, so it is loaded by path.
const kit = new URL("../../../lab/dist/test/slurm.js", import.meta.url);
const { startSlurm } = (await import(kit.href)) as {
  startSlurm: (nodes: number, gpus?: number, hosts?: Hosts) => Promise<Slurm | string>;
};

const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "weft-train-slurm-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const env = { ...process.env, WEFT_DATASETS: join(folder, "data") };
const config = join(folder, "tiny.yaml");
writeFileSync(
  config,
  `name: tiny
model: { vocab_size: 300, d_model: 16, n_heads: 2, num_layers: 1, dim_feedforward: 24, max_seq_len: 32 }
data: { dataset: synthetic, train_limit: 210, test_limit: 61, validation: 0 }
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

test("the lab's linter accepts scripts for one node and for several", () => {
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
    "--device cuda",
    "module load cuda/12.4",
    "module load gcc",
    "export A='b c'",
    "--signal=TERM@60",
  ])
    assert.ok(text.includes(part), part);
  assert.match(
    text,
    /srun --kill-on-bad-exit=1 weft train \S+tiny\.yaml --device cuda --epochs 3 --devices 2 --resume/,
  );
  assert.match(readFileSync(join(folder, "several.sh"), "utf8"), /--nodes=2\n#SBATCH --ntasks-per-node=4/);
  assert.equal(call(["train", config, "--devices", "3", "--nodes", "2", "--slurm", join(folder, "x.sh")]).status, 2);
});

test("a script uses the GPUs that it reserves, and reserves the ones that it uses", () => {
  const write = (name: string, ...more: string[]): { status: number | null; stderr: string } =>
    call(["train", config, "--devices", "2", "--slurm", join(folder, name), ...more]);
  assert.match(write("x.sh", "--device", "cuda").stderr, /device cuda in a SLURM job needs --gpus-per-rank 1/);
  assert.match(write("x.sh", "--gpus-per-rank", "1", "--device", "cpu").stderr, /device cpu would not use them/);
  assert.match(write("x.sh", "--gpus-per-rank", "1", "--device", "cuda:1").stderr, /write device: cuda instead/);
  assert.match(write("x.sh", "--gpus-per-rank", "2").stderr, /a rank computes on one GPU/);
  assert.equal(write("all.sh", "--gpus-per-rank", "1", "--memory", "2GB", "--global-batch", "42").status, 0);
  const script = readFileSync(join(folder, "all.sh"), "utf8");
  assert.match(script, /--device cuda --global-batch 42 --memory 2GB --devices 2/);
  // The linter finds the same mistakes in scripts that somebody wrote or changed.
  const problems = (text: string): string[] => {
    writeFileSync(join(folder, "changed.sh"), text);
    const linted = call(["lint", join(folder, "changed.sh"), config, "--json"]);
    return (JSON.parse(linted.stdout) as { problems: { id: string }[] }).problems.map((p) => p.id);
  };
  assert.deepEqual(problems(script), []);
  assert.deepEqual(problems(script.replace(" --device cuda", "")), ["weft-device"]);
  assert.deepEqual(problems(script.replace("--device cuda", "--device cuda:1")), ["weft-device"]);
  assert.deepEqual(problems(script.replace(/.*gpus-per-task.*\n/, "")), ["weft-device"]);
  assert.deepEqual(problems(script.replace("--devices 2", "--devices 4")), ["weft-ranks"]);
});

/** Runs a script of weft train to its end; returns the job's output. */
async function submitted(slurm: Slurm, script: string, cwd = folder): Promise<string> {
  // The cluster has no `weft` on its path: use the checkout's.
  const text = readFileSync(script, "utf8");
  writeFileSync(script, text.replace(/ weft train/, ` ${process.execPath} ${weft} train`));
  const child = spawn("sbatch", ["--wait", "--output", `${script}.out`, script], {
    env: { ...env, ...slurm.env, WEFT_DATASETS: env.WEFT_DATASETS, PATH: `${cwd}:${process.env.PATH}` },
    cwd,
    stdio: ["ignore", "ignore", "pipe"],
    timeout: 180_000,
  });
  let errors = "";
  child.stderr.on("data", (chunk) => {
    errors += chunk;
  });
  const status = await new Promise((resolve) => child.on("close", resolve));
  const log = existsSync(`${script}.out`) ? readFileSync(`${script}.out`, "utf8") : "";
  assert.equal(status, 0, errors + log);
  return log;
}
const linesOf = (...path: string[]): string[] =>
  readFileSync(join(folder, ...path), "utf8")
    .trimEnd()
    .split("\n");
const losses = (run: string, rank: number): number[] =>
  linesOf(run, `rank${rank}.jsonl`)
    .map((line) => JSON.parse(line) as { type: string; loss: number })
    .filter((r) => r.type === "step")
    .map((r) => r.loss);

describe("a real SLURM", { skip: availableParallelism() < 2 ? "needs two cores" : false }, () => {
  let slurm: Slurm | string = "not started";
  before(async () => {
    slurm = await startSlurm(2);
    if (typeof slurm === "string") console.error(`weft: training under SLURM is NOT tested: ${slurm}`);
  });
  after(() => {
    if (typeof slurm !== "string") slurm.stop();
  });
  const write = (name: string, ...more: string[]): string => {
    const script = join(folder, `${name}.sh`);
    const args = ["--devices", "2", "--slurm", script, "--output", join(folder, name), "--time", "00:10:00", ...more];
    assert.equal(call(["train", config, ...args]).status, 0);
    return script;
  };

  test("a job on one node runs two ranks", async (t) => {
    if (typeof slurm === "string") return t.skip(slurm);
    const log = await submitted(slurm, write("one-node"));
    assert.match(log, /tiny: 2 ranks.*global batch 21 = 11 per rank/);
    assert.match(log, /done after 20 steps/);
    assert.ok(existsSync(join(folder, "one-node", "rank1.jsonl")));
    assert.equal(linesOf("one-node", "metrics.csv").length, 3);
  });

  test("SIGTERM from SLURM writes a checkpoint and completes the job; submitted again it resumes", async (t) => {
    if (typeof slurm === "string") return t.skip(slurm);
    const script = write("termed", "--epochs", "400");
    const clustered = { ...env, ...slurm.env };
    const scancel = async (): Promise<void> => {
      const taken = join(folder, "termed", "rank1.jsonl");
      const end = performance.now() + 120_000;
      while (!(existsSync(taken) && readFileSync(taken, "utf8").includes('"step":5'))) {
        assert.ok(performance.now() < end, "the job takes no steps");
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      spawnSync("scancel", ["--signal=TERM", "--name=tiny"], { env: clustered });
    };
    const [log] = await Promise.all([submitted(slurm, script), scancel()]);
    const stopped = Number(/stopped after (\d+) steps/.exec(log)?.[1]);
    assert.ok(stopped >= 5 && stopped < 4000, log);
    assert.match(log, /a checkpoint is written, --resume continues from it/);
    assert.equal(
      (JSON.parse(readFileSync(join(folder, "termed", "run.json"), "utf8")) as { status: string }).status,
      "canceled",
    );
    writeFileSync(
      script,
      readFileSync(script, "utf8").replace("--epochs 400", `--epochs 400 --max-steps ${stopped + 3}`),
    );
    const again = await submitted(slurm, script);
    assert.match(again, new RegExp(`resumed at step ${stopped}`));
    assert.deepEqual(
      linesOf("termed", "rank0.jsonl")
        .map((line) => JSON.parse(line) as { type: string; step: number })
        .filter((r) => r.type === "step")
        .map((r) => r.step),
      Array.from({ length: stopped + 3 }, (_, i) => i),
    );
  });

  test("the cluster job of weft init runs", async (t) => {
    if (typeof slurm === "string") return t.skip(slurm);
    const home = join(folder, "cluster");
    assert.equal(call(["init", "slurm", home, "--name", "cluster"]).status, 0);
    symlinkSync(fileURLToPath(new URL("../../../../node_modules", import.meta.url)), join(home, "node_modules"));
    // The job calls `weft`, which is on the path of an installed package.
    writeFileSync(join(home, "weft"), `#!/bin/sh\nexec ${process.execPath} ${weft} "$@"\n`, { mode: 0o755 });
    const log = await submitted(slurm, join(home, "job.sh"), home);
    assert.match(log, /mean 0\.\d+ on cluster/);
  });

  test("two nodes with one rank each sum over MPI and give the curve of one node", async (t) => {
    if (typeof slurm === "string") return t.skip(slurm);
    const types = spawnSync("srun", ["--mpi=list"], { env: { ...env, ...slurm.env }, encoding: "utf8" });
    const missing = !existsSync("/usr/bin/mpirun") || !`${types.stdout}${types.stderr}`.includes("pmix");
    if (missing) {
      console.error("weft: training on two nodes is NOT tested: no OpenMPI, or a SLURM without PMIx");
      return t.skip("no OpenMPI, or a SLURM without PMIx");
    }
    // Both nodes are this host: disable MPI's shared memory so that it uses the network.
    const network = ["--env", "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp", "OMPI_ALLOW_RUN_AS_ROOT=1"];
    const script = write("two-nodes", "--nodes", "2", ...network);
    const text = readFileSync(script, "utf8");
    assert.match(text, /--nodes=2\n#SBATCH --ntasks-per-node=1/);
    assert.match(text, /^srun --kill-on-bad-exit=1 --mpi=pmix /m);
    writeFileSync(script, text.replace(/^srun /m, "srun bash -c 'echo \"here $SLURMD_NODENAME\"'\n$&"));
    const log = await submitted(slurm, script);
    for (const node of ["weft1", "weft2"]) assert.ok(log.includes(`here ${node}`), log);
    assert.match(log, /done after 20 steps/);
    const kindOf = (run: string): unknown =>
      linesOf(run, "rank1.jsonl")
        .map((line) => JSON.parse(line) as { facts?: { backend?: string } })
        .find((r) => r.facts?.backend !== undefined)?.facts?.backend;
    assert.deepEqual(["one-node", "two-nodes"].map(kindOf), ["shm", "mpi"]);
    const [near, apart] = ["one-node", "two-nodes"].map((run) => losses(run, 0));
    assert.equal(apart.length, 20);
    assert.deepEqual(losses("two-nodes", 1), apart);
    apart.forEach((loss, i) => {
      assert.ok(Math.abs(loss / near[i] - 1) < 1e-5, `step ${i}: ${loss} on two nodes, ${near[i]} on one`);
    });
  });
});

describe("a real SLURM of three hosts, each with a network, processes and a name of its own", { skip: noHosts }, () => {
  let hosts: Hosts | null = null;
  let slurm: Slurm | string = "not started";
  before(async () => {
    hosts = new Hosts(3);
    slurm = await startSlurm(3, 0, hosts);
    if (typeof slurm === "string") console.error(`weft: SLURM of several hosts is NOT tested: ${slurm}`);
  });
  after(() => {
    if (typeof slurm !== "string") slurm.stop();
    hosts?.remove();
  });

  test("a training with one rank on each host has the losses of a single process", async (t) => {
    if (typeof slurm === "string") return t.skip(slurm);
    const script = join(folder, "three-hosts.sh");
    const network = ["OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp", "OMPI_ALLOW_RUN_AS_ROOT=1", "PMIX_MCA_gds=hash"];
    const place = ["--slurm", script, "--output", join(folder, "three-hosts"), "--time", "00:10:00"];
    const args = ["train", config, "--devices", "3", "--nodes", "3", ...place, "--env", ...network];
    assert.equal(call(args).status, 0);
    const text = readFileSync(script, "utf8");
    writeFileSync(script, text.replace(/^srun /m, "srun hostname\n$&"));
    const log = await submitted(slurm, script);
    for (const host of ["host1", "host2", "host3"]) assert.ok(log.includes(`${host}\n`), log);
    assert.match(log, /done after 20 steps/);
    assert.equal(call(["train", config, "--devices", "1", "--output", join(folder, "alone")]).status, 0);
    const [apart, alone] = ["three-hosts", "alone"].map((run) => losses(run, 0));
    assert.equal(apart.length, 20);
    apart.forEach((loss, i) => {
      assert.ok(Math.abs(loss / alone[i] - 1) < 1e-4, `step ${i}: ${loss} on three hosts, ${alone[i]} on one`);
    });
  });

  test("workers of a job on three hosts join a dispatcher of the job and compute together", async (t) => {
    if (typeof slurm === "string" || hosts === null) return t.skip(String(slurm));
    const program = join(folder, "sums.mjs");
    const [cluster, core] = [import.meta.resolve("@weft/cluster"), import.meta.resolve("@weft/core")];
    writeFileSync(
      program,
      `import { connect } from ${JSON.stringify(cluster)};
import * as weft from ${JSON.stringify(core)};
const cluster = await connect(process.argv[2]);
while (cluster.workers.length < 3) await new Promise((resolve) => setTimeout(resolve, 100));
const rows = weft.shard(weft.arange(600, { dtype: "float32" }).reshape([60, 10]), { 0: "d" });
console.log("sum", await rows.sum().item(), "of", new Set(cluster.workers.map((w) => w.process.host)).size, "hosts");
await cluster.close();
process.exit(0);
`,
    );
    const [node, { cert, key, ca }] = [`${process.execPath} ${weft}`, hosts.tls];
    // On every host: its own address, and a worker that listens there.
    const here = join(folder, "here.sh");
    const own = "ip -4 -o addr show dev eth0 | tr -s ' ' | cut -d' ' -f4 | cut -d/ -f1";
    writeFileSync(
      here,
      `[ -z "$1" ] && exec sh -c "${own}"\nexec ${node} worker --host $1 --data-host $(sh $0) --cores 1\n`,
    );
    const script = join(folder, "cluster-job.sh");
    writeFileSync(
      script,
      `#!/bin/bash
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:05:00
export WEFT_TLS_CERT=${cert} WEFT_TLS_KEY=${key} WEFT_TLS_CA=${ca} WEFT_RATES=assumed
export WEFT_TOKEN=$(openssl rand -hex 32) WEFT_WORKER_TOKEN=$(openssl rand -hex 32)
head=$(sh ${here})
${node} server --host $head -p 9000 --json > ${folder}/server.out & server=$!
until grep -q 9000 ${folder}/server.out; do sleep 0.2; done
srun --overlap sh ${here} $head > ${folder}/workers.out 2>&1 & workers=$!
WEFT_FORCE_SHARD=1 timeout 60 ${process.execPath} ${program} $head:9000
status=$?
kill $workers $server
exit $status
`,
    );
    const log = await submitted(slurm, script).catch((error: Error) => {
      const workers = join(folder, "workers.out");
      throw new Error(`${error.message}\n${existsSync(workers) ? readFileSync(workers, "utf8") : "no workers"}`);
    });
    // 0 + 1 + ... + 599
    assert.match(log, /sum 179700 of 3 hosts/);
  });
});

describe("a real SLURM with GPUs", { skip: availableParallelism() < 2 ? "needs two cores" : false }, () => {
  let slurm: Slurm | string = "not started";
  before(async () => {
    slurm = await startSlurm(1, 2);
    if (typeof slurm === "string") console.error(`weft: GPU jobs under SLURM are NOT tested: ${slurm}`);
  });
  after(() => {
    if (typeof slurm !== "string") slurm.stop();
  });

  test("each rank of a job trains on the GPU that SLURM gave it", async (t) => {
    if (typeof slurm === "string") return t.skip(slurm);
    // The smallest model: the emulated GPU compiles each kernel with the host's compiler.
    const core = import.meta.resolve("@weft/core");
    writeFileSync(
      join(folder, "line.mjs"),
      `import * as weft from ${JSON.stringify(core)};
export const init = () => ({ w: weft.tensor([0.5]) });
export const loss = (params, batch) => params.w.mul(batch.x).sub(batch.y).square().mean();
export const data = () => ({ x: weft.tensor([1, 2, 3, 4]), y: weft.tensor([3, 6, 9, 12]) });
`,
    );
    const yaml = join(folder, "line.yaml");
    writeFileSync(
      yaml,
      "name: line\nmodel: line.mjs\ntraining: { epochs: 3, global_batch: 4 }\noptimizer: { type: sgd, learning_rate: 0.01 }\n",
    );
    const script = join(folder, "gpus.sh");
    const emulated = import.meta.resolve("@weft/testing/emulated-cuda");
    const args = ["--devices", "2", "--gpus-per-rank", "1", "--slurm", script, "--output", join(folder, "gpus")];
    const settings = ["--env", `NODE_OPTIONS=--import=${emulated}`, "WEFT_CUDA_GRAPHS=0"];
    assert.equal(call(["train", yaml, ...args, "--time", "00:10:00", ...settings]).status, 0);
    // Each task of the job also reports which GPU SLURM shows it.
    const text = readFileSync(script, "utf8");
    const shown = "srun bash -c 'echo \"task $SLURM_LOCALID sees GPU $CUDA_VISIBLE_DEVICES\"'\n";
    writeFileSync(script, text.replace(/^srun /m, `${shown}$&`));
    const log = await submitted(slurm, script);
    for (const k of [0, 1]) assert.match(log, new RegExp(`task ${k} sees GPU ${k}$`, "m"));
    // A CPU device would be "2 ranks of 1 core".
    assert.match(log, /line: 2 ranks, global batch 4/);
    assert.match(log, /done after 3 steps/);
    // Mean of (w x - 3 x)^2 is 7.5 (w - 3)^2, and a step multiplies w - 3 by 1 - 0.02 * 7.5.
    for (const rank of [0, 1])
      losses("gpus", rank).forEach((loss, i) => {
        const expected = 7.5 * (2.5 * 0.85 ** i) ** 2;
        assert.ok(Math.abs(loss / expected - 1) < 1e-5, `rank ${rank}, step ${i}: ${loss}, expected ${expected}`);
      });
  });
});
