// Generates SLURM scripts for `weft train`, with one task per rank on one or several nodes: srun starts the ranks.
import { checkOptionNames } from "@weft/core/internal/graph";
import { ConfigError } from "./config.js";

/** Options of `slurmScript`. */
interface SlurmOptions {
  /** Name of the job. */
  name: string;
  /** The command after `weft train`: a configuration and its options, without --devices. */
  command: readonly string[];
  /** The `weft` command on the cluster. */
  program?: string;
  /** Number of nodes. */
  nodes: number;
  /** Ranks on each node. */
  ranksPerNode: number;
  /** Cores of each rank. */
  cpusPerRank: number;
  /** GPUs of each rank. */
  gpusPerRank?: number;
  /** Partition of the job. */
  partition?: string;
  /** Account of the job. */
  account?: string;
  /** Time limit, hh:mm:ss. */
  time?: string;
  /** Memory of a node, as SLURM writes it. */
  memory?: string;
  /** Modules to load. */
  modules?: readonly string[];
  /** Environment variables to export. */
  environment?: Readonly<Record<string, string>>;
  /** Additional `#SBATCH` options, verbatim. */
  extra?: readonly string[];
}

const word = (text: string): string => (/^[\w@%+=:,./{}-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

const slurmNames = [
  ...["name", "command", "program", "nodes", "ranksPerNode", "cpusPerRank", "gpusPerRank", "partition", "account"],
  ...["time", "memory", "modules", "environment", "extra"],
] as (keyof SlurmOptions)[];

function requireCount(name: string, value: number): void {
  if (!Number.isInteger(value) || value < 1)
    throw new ConfigError(`slurm: ${name} must be a whole number above 0, got ${value}`);
}

/** Generates a SLURM script that trains with one task per rank. */
export function slurmScript(options: SlurmOptions): string {
  checkOptionNames("slurmScript", options, slurmNames);
  const { name, command, nodes, ranksPerNode, cpusPerRank, gpusPerRank = 0, environment = {} } = options;
  requireCount("nodes", nodes);
  requireCount("ranksPerNode", ranksPerNode);
  requireCount("cpusPerRank", cpusPerRank);
  for (const variable of Object.keys(environment))
    if (!/^[A-Za-z_]\w*$/.test(variable))
      throw new ConfigError(`slurm: "${variable}" is not the name of a variable; write NAME=value`);
  for (const [field, value] of Object.entries({
    name,
    partition: options.partition,
    account: options.account,
    time: options.time,
  }))
    if (value !== undefined && /[\s#]/.test(value)) throw new ConfigError(`slurm: ${field} "${value}" has white space`);
  const ranks = nodes * ranksPerNode;
  const sbatch = [
    `--job-name=${name}`,
    `--nodes=${nodes}`,
    `--ntasks-per-node=${ranksPerNode}`,
    `--cpus-per-task=${cpusPerRank}`,
    ...(gpusPerRank > 0 ? [`--gpus-per-task=${gpusPerRank}`] : []),
    ...(options.partition === undefined ? [] : [`--partition=${options.partition}`]),
    ...(options.account === undefined ? [] : [`--account=${options.account}`]),
    ...(options.memory === undefined ? [] : [`--mem=${options.memory}`]),
    `--time=${options.time ?? "02:00:00"}`,
    `--output=${name}-%j.out`,
    // One minute before the limit every rank gets SIGTERM and writes a checkpoint.
    "--signal=TERM@60",
    ...(options.extra ?? []),
  ];
  return `${[
    "#!/bin/bash",
    ...sbatch.map((line) => `#SBATCH ${line}`),
    "",
    "set -euo pipefail",
    'cd "$SLURM_SUBMIT_DIR"',
    ...(options.modules ?? []).map((module) => `module load ${word(module)}`),
    ...Object.entries(environment).map(([variable, value]) => `export ${variable}=${word(value)}`),
    `export OMP_NUM_THREADS=${cpusPerRank} WEFT_THREADS=${cpusPerRank}`,
    "",
    `# ${nodes} node${nodes === 1 ? "" : "s"} x ${ranksPerNode} rank${ranksPerNode === 1 ? "" : "s"}; srun is the only launcher. --resume: a job that was requeued goes on.`,
    `srun --kill-on-bad-exit=1 ${nodes > 1 ? "--mpi=pmix " : ""}${options.program ?? "weft"} train ${command.map(word).join(" ")} --devices ${ranks} --resume`,
  ].join("\n")}\n`;
}
