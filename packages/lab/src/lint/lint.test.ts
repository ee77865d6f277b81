import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { emptyRun } from "../model/index.js";
import { lintFiles } from "./index.js";

const directory = mkdtempSync(join(tmpdir(), "weft-lint-"));
after(() => rmSync(directory, { recursive: true }));

function file(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}
const ids = (paths: string[], options = {}) => lintFiles(paths, options).map((p) => `${p.id}:${p.line ?? ""}`);

const guideScript = `#!/bin/bash
#SBATCH --job-name=agnews
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8

srun --mpi=pmix \\
    torchrun \\
    --nnodes=1 \\
    --nproc_per_node=4 \\
    --rdzv_endpoint=$SLURM_NODELIST:29500 \\
    src/train.py --config configs/a.yaml
`;

test("a script with 16 processes for 4 GPUs and a node list as endpoint has both problems", () => {
  const path = file("guide.sh", guideScript);
  const problems = lintFiles([path]);
  assert.deepEqual(
    problems.map((p) => p.id),
    ["slurm-tasks", "compressed-nodelist"],
  );
  assert.match(problems[0]!.message, /4 tasks per node and each torchrun starts 4 processes: 16 processes for 4 GPUs/);
  assert.equal(problems[0]!.line, 8);
});

test("a correct script has no problems", () => {
  const path = file(
    "good.sh",
    `#!/bin/bash
#SBATCH -N1 --gres=gpu:4 --ntasks-per-node=1 -c 16
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
export OMP_NUM_THREADS=4
torchrun --nproc_per_node=4 train.py
`,
  );
  assert.deepEqual(ids([path]), []);
});

test("cores per rank are compared with the loaders of the configuration that the command names", () => {
  const config = file("c.yaml", "data:\n  num_workers: 2\n");
  const script = file(
    "cores.sh",
    `#SBATCH -N1 --gres=gpu:4 --ntasks-per-node=1 -c 4
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
torchrun --nproc_per_node=4 train.py --config configs/c.yaml
`,
  );
  const problems = lintFiles([script, config]);
  assert.deepEqual(
    problems.map((p) => `${p.id} ${p.severity}`),
    ["cores-per-rank error", "omp-threads warning"],
  );
  assert.match(problems[0]!.message, /12 processes/);
  assert.equal(problems[0]!.fix, "--cpus-per-task=12");
  assert.match(problems[1]!.message, /16 threads on 4 cores/);
});

test("more ranks than GPUs, missing devices, inconsistent nodes and a launch on one node only are found", () => {
  const script = file(
    "wrong.sh",
    `#SBATCH --nodes=2 --gres=gpu:a100:2
export CUDA_VISIBLE_DEVICES=0,3
N=4
torchrun --nnodes=1 --nproc_per_node=$N train.py
`,
  );
  const config = file("d.yaml", "training:\n  device: cuda:5\n");
  assert.deepEqual(ids([script, config]), [
    "ranks-above-gpus:4",
    "nodes-disagree:4",
    "one-node-launch:4",
    "device-ordinal:2",
    "device-ordinal:2",
  ]);
  assert.deepEqual(ids([file("idle.sh", "#SBATCH --gres=gpu:4\npython train.py\n")]), ["idle-gpus:2"]);
});

test("unresolved values are not reported", () => {
  const script = file(
    "unknown.sh",
    "#SBATCH --gres=gpu:4 --ntasks=$T\nsrun torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE t.py\n",
  );
  assert.deepEqual(ids([script]), []);
});

test("keys that the program never read are reported from the facts of the probe", () => {
  const config = file("e.yaml", "optimizer:\n  type: adamw\n  lr: 0.1\ntraining:\n  epochs: 3\n");
  const run = emptyRun("r", 1, { kind: "scale", path: "r" });
  run.ranks = [
    {
      rank: 0,
      facts: { configs: [{ file: "/elsewhere/e.yaml", keys: [], read: ["training.epochs", "optimizer.lr"] }] },
    },
  ];
  const problems = lintFiles([config], { runs: [run] });
  assert.deepEqual(
    problems.map((p) => [p.id, p.line, p.severity]),
    [["key-never-read", 2, "warning"]],
  );
  assert.match(problems[0]!.message, /optimizer\.type is set and the program never read it/);
  assert.deepEqual(ids([config]), []);
});

test("unreadable files are named", () => {
  assert.deepEqual(ids([join(directory, "absent.yaml"), directory]), ["unreadable:", "unreadable:"]);
  assert.deepEqual(ids([file("dup.yaml", "a: 1\na: 2\n")]), ["duplicate-key:2"]);
  assert.equal(lintFiles([file("bad.yaml", "a: [1,\nb: }")])[0]!.id, "bad-yaml");
});

test("here-documents, branches, ranges of nodes and kinds of GPUs are not misread", () => {
  const honest = [
    "#SBATCH --gres=gpu:8 -c 64\ncat > other.sh <<'EOF'\n#SBATCH --ntasks=99\nsrun torchrun --nproc_per_node=99 x.py\nEOF\ntorchrun --standalone --nproc_per_node=8 t.py\n",
    '#SBATCH --gres=gpu:3090:4\nif [ -n "$SMALL" ]; then\n  N=16\nelse\n  N=4\nfi\ntorchrun --standalone --nproc_per_node=$N t.py\n',
    "#SBATCH --nodes=2-4 --gpus=16 --ntasks-per-node=1\nsrun torchrun --nproc_per_node=8 t.py\n",
  ];
  for (const [k, text] of honest.entries()) assert.deepEqual(ids([file(`honest${k}.sh`, text)]), [], text);
  assert.deepEqual(ids([file("late.sh", "#SBATCH -N1\ncd here\n#SBATCH --gres=gpu:4\npython t.py\n")]), [
    "late-directive:3",
  ]);
  assert.deepEqual(
    ids([file("kind.sh", "#SBATCH --gres=gpu:3090:4\ntorchrun --standalone --nproc_per_node=8 t.py\n")]),
    ["ranks-above-gpus:2"],
  );
  assert.ok(lintFiles([file("deep.yaml", "a: ".repeat(3000))]).length <= 10);
});
