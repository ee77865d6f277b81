// What `weft init` writes: for each goal the files, with comments that say what to change, and the three commands to type.

/** Answers of the user. */
export interface InitAnswers {
  name: string;
  /** Devices of the job script. */
  devices: number;
  /** The job to measure. */
  command: string;
  /** Data of the user for a text classifier, as it stands in the configuration. */
  data?: { dataset: string; path: string; label?: string; text?: readonly string[] };
}

/** The files of a goal. */
interface InitFiles {
  files: Record<string, string>;
  /** The kind of YAML file whose schema is written beside, for editors. */
  schema: string;
  /** A script for SLURM is written by `weft train` from this configuration. */
  train?: string;
  next: readonly [string, string, string];
}

interface InitGoal {
  title: string;
  write: (answers: InitAnswers) => InitFiles;
}

const schemaLine = (kind: string): string => `# yaml-language-server: $schema=${kind}.schema.json`;

const trainingSections = (batch: number, rate: number): string => `training:
  epochs: 3
  global_batch: ${batch}             # samples of one step over all devices; batch_per_rank: of one device
optimizer:
  type: adamw                   # adamw, adam, sgd
  learning_rate: ${rate}
# precision: { compute: bfloat16 }   # on GPUs
# device: cuda                       # default: the cores of this machine
`;

const syntheticData = `  dataset: synthetic            # csv, jsonl, parquet or folder: your own; ag_news, imdb: weft data get ag_news
  # path: reviews.csv           # your file, or a folder with train.csv and test.csv
  # label: stars                # its column of the class; text: [title, body] names those of the text`;

const ownData = ({ dataset, path, label, text }: NonNullable<InitAnswers["data"]>): string =>
  [
    `  dataset: ${dataset}`,
    `  path: ${JSON.stringify(path)}   # one row of ten is for the test, unless it is a folder with both splits`,
    ...(label === undefined ? [] : [`  label: ${JSON.stringify(label)}`]),
    ...(text === undefined ? [] : [`  text: ${JSON.stringify(text)}`]),
  ].join("\n");

const textYaml = ({ name, data }: InitAnswers): string => `${schemaLine("train")}
# A text classifier. Keys, defaults and units: docs/training.md, or hover in an editor with the YAML language server.
name: ${name}
model:
  vocab_size: 1000
  d_model: 32
  n_heads: 4
  num_layers: 1
  dim_feedforward: 64
  max_seq_len: 32               # longer texts are cut
data:
${data === undefined ? syntheticData : ownData(data)}
${trainingSections(32, 0.003)}`;

const modelYaml = (name: string): string => `${schemaLine("train")}
# Your own model: ${name}.mjs exports init, loss and data. Everything under options is passed to them.
name: ${name}
model: ./${name}.mjs
options: { rows: 256, width: 16 }
${trainingSections(32, 0.01)}`;

const modelModule = `// A model as plain functions over a tree of tensors. The loss is written for a whole batch, as on one device.
import * as weft from "@weft/core";

export function init(key, { width }) {
  const keys = weft.splitKey(key);
  return {
    first: weft.randn([4, width], { key: keys.index(0) }).mul(0.5),
    second: weft.randn([width, 1], { key: keys.index(1) }).mul(0.5),
  };
}

export function loss(params, { x, y }) {
  return weft.tanh(x.matmul(params.first)).matmul(params.second).sub(y).square().mean();
}

// Replace this by your data: one row per sample, or { rows, batch(samples) } for data that does not fit in memory.
export function data({ rows }) {
  const x = weft.randn([rows, 4], { seed: 1 });
  const y = x.index(":", "0:1").mul(2).sub(x.index(":", "1:2"));
  return { train: { x, y }, validation: { x: x.index("0:32"), y: y.index("0:32") } };
}
`;

const gateYaml = (name: string): string => `${schemaLine("quantum-gate")}
# An X gate on a transmon in its rotating frame. Frequencies in GHz, times in ns. All keys: docs/quantum.md.
name: ${name}
device:
  parts:
    q: { kind: duffing, frequency: 0, anharmonicity: -0.3, levels: 4 }
pulses:
  - on: q
    name: x
    operator: n                  # the in-phase quadrature
    shape: piecewise
    length: 10
    values: [0.05, 0.15, 0.25, 0.3, 0.3, 0.3, 0.25, 0.15, 0.05, 0.02]
  - on: q
    name: y
    operator: phi                # the other quadrature, which suppresses leakage
    shape: piecewise
    length: 10
    values: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
evolution: { steps: 100, method: pwcExpm }
target: { gate: X, compensation: virtual-z }
learn: [q.x.values, q.y.values]  # what weft quantum optimize changes
bounds: { "q.*.values": [-0.5, 0.5] }
`;

const studyYaml = (name: string): string => `${schemaLine("study")}
# For runs that exist already, with a metrics.csv or records.jsonl each: which of them answer one question. Then:
# weft analyze study.yaml
studies:
  - name: ${name}
    # samples: 120000            # of one epoch: with these Weft sees whether the work was divided
    # batch_per_rank: 32
    runs: []                     # - { dir: runs/one, devices: 1 }
`;

const measureScript = ({ name, command, devices }: InitAnswers): string => `#!/bin/bash
# Measures how a job scales, says whether the measurement is valid, and why it is not faster. {n} is the number of devices.
set -euo pipefail
weft scale --devices 1,${devices} --name ${name} --out runs -- ${command}
weft diagnose runs/${name}
`;

const clusterScript = ({ name, devices }: InitAnswers): string => `#!/bin/bash
#SBATCH --job-name=${name}
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=${devices}
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --output=${name}-%j.out

# A dispatcher, one worker per task, and a program that uses them as one device. On one node the processes of a user find
# their tokens by themselves; several nodes need certificates: docs/security.md.
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
port=$((20000 + SLURM_JOB_ID % 20000))
weft server -p $port &
server=$!
trap 'kill $server 2> /dev/null || true' EXIT
srun weft worker -p $port --cores "\${SLURM_CPUS_PER_TASK:-1}" --wait 60 &
export WEFT_CONNECT=localhost:$port WEFT_SHARD_RULES=$PWD/sharding.yaml
until weft top -p $port --once --json 2> /dev/null | grep -q '"workers":\\[{'; do sleep 1; done
node ${name}.mjs
`;

const clusterProgram = `// Runs on one device, or on the workers of a cluster when WEFT_CONNECT names one.
import * as weft from "@weft/core";

const x = weft.randn([512, 256], { seed: 1 });
const w = weft.randn([256, 128], { seed: 2 });
const layer = weft.jit((x, w) => weft.named("layer", () => weft.tanh(x.matmul(w))).square().mean());
console.log(\`mean \${(await layer(x, w).item()).toFixed(6)} on \${weft.session().device.name}\`);
process.exit(0);
`;

const shardingYaml = `${schemaLine("sharding")}
# How named parts of the program are split. Without a rule the planner decides, and may decide not to split.
scopes:
  layer: { shard: { axis: 0 } }  # rows over the workers
`;

/** The goals of `weft init`. */
export const goals: Readonly<Record<string, InitGoal>> = {
  text: {
    title: "a text classifier",
    write: ({ name, ...rest }) => ({
      files: { [`${name}.yaml`]: textYaml({ name, ...rest }) },
      schema: "train",
      train: `${name}.yaml`,
      next: [`weft train ${name}.yaml`, `weft classify runs/${name} "some text"`, "sbatch job.sh"],
    }),
  },
  model: {
    title: "a model of your own in JavaScript or TypeScript",
    write: ({ name }) => ({
      files: { [`${name}.yaml`]: modelYaml(name), [`${name}.mjs`]: modelModule },
      schema: "train",
      train: `${name}.yaml`,
      next: [`weft train ${name}.yaml`, `weft train ${name}.yaml --devices 2 --out runs/${name}-2`, "sbatch job.sh"],
    }),
  },
  quantum: {
    title: "a quantum gate",
    write: ({ name }) => ({
      files: { [`${name}.yaml`]: gateYaml(name) },
      schema: "quantum-gate",
      next: [
        `weft quantum run ${name}.yaml`,
        `weft quantum optimize ${name}.yaml --out runs/${name}`,
        `weft quantum pictures ${name}.yaml`,
      ],
    }),
  },
  pytorch: {
    title: "measure a PyTorch job",
    write: (answers) => ({
      files: { "measure.sh": measureScript(answers), "study.yaml": studyYaml(answers.name) },
      schema: "study",
      next: ["bash measure.sh", `weft analyze runs/${answers.name}`, `weft ui runs`],
    }),
  },
  slurm: {
    title: "a cluster of workers on SLURM",
    write: (answers) => ({
      files: {
        "job.sh": clusterScript(answers),
        [`${answers.name}.mjs`]: clusterProgram,
        "sharding.yaml": shardingYaml,
      },
      schema: "sharding",
      next: [`node ${answers.name}.mjs`, "weft lint job.sh sharding.yaml", "sbatch job.sh"],
    }),
  },
};
