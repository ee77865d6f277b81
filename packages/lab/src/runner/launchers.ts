// The launchers: how a command is started at a device count (directly, through torchrun, or through SLURM).
import { fillTemplate, PlanError } from "./plan.js";

/** How the command of a study is started. */
export type StudyLauncher = "local" | "torchrun" | "srun" | "sbatch";

/** The names of the launchers. */
export const launchers: readonly StudyLauncher[] = ["local", "torchrun", "srun", "sbatch"];

/** SLURM options of a site. */
export interface SlurmSite {
  partition?: string;
  account?: string;
  qos?: string;
  /** Names for `module load`. */
  modules?: string[];
  /** Folder of a Python virtual environment to activate. */
  venv?: string;
  /** hh:mm:ss in SLURM's notation; default: the time limit of the run. */
  time?: string;
  cpusPerDevice?: number;
  /** GPUs to request per device; 0 on machines without GPUs. */
  gpusPerDevice?: number;
  memory?: string;
  /** Devices per node; more are distributed over several nodes. */
  devicesPerNode?: number;
  /** Further #SBATCH (or srun) options as they are written. */
  extra?: string[];
}

interface LauncherRow {
  /** True when the launcher passes the device count itself, so that {n} is optional. */
  placesCount: boolean;
  command(template: readonly string[], devices: number, site: SlurmSite): string[];
}

/** The script of `python train.py` or `train.py`, which torchrun needs. */
function script(template: readonly string[]): string[] {
  const rest = /(?:^|\/)python[\d.]*$/.test(template[0]) ? template.slice(1) : [...template];
  if (rest.length === 0) throw new PlanError("torchrun needs a script to start; write it behind --");
  return rest;
}

/** The Python that runs torchrun: the one of the command, else the one on PATH. */
const interpreter = (template: readonly string[]): string =>
  /(?:^|\/)python[\d.]*$/.test(template[0]) ? template[0] : "python3";

export const nodesFor = (devices: number, site: SlurmSite): number =>
  site.devicesPerNode === undefined ? 1 : Math.ceil(devices / site.devicesPerNode);

const rows: Record<StudyLauncher, LauncherRow> = {
  local: { placesCount: false, command: (template, devices) => fillTemplate(template, devices) },
  torchrun: {
    placesCount: true,
    command: (template, devices) => [
      interpreter(template),
      "-m",
      "torch.distributed.run",
      "--standalone",
      `--nproc_per_node=${devices}`,
      ...fillTemplate(script(template), devices),
    ],
  },
  srun: {
    placesCount: true,
    command: (template, devices, site) => [
      "srun",
      `--ntasks=${devices}`,
      `--nodes=${nodesFor(devices, site)}`,
      ...siteOptions(site, devices, "task"),
      ...fillTemplate(template, devices),
    ],
  },
  // Inside the job the command runs unchanged; slurm-script.ts writes the script around it.
  sbatch: { placesCount: false, command: (template, devices) => fillTemplate(template, devices) },
};

export function launcherRow(launcher: StudyLauncher): LauncherRow {
  return rows[launcher];
}

/** The options of SLURM that describe the site. `per` says whether one task is a device (srun) or the whole node's launcher (sbatch). */
export function siteOptions(site: SlurmSite, devices: number, per: "task" | "node"): string[] {
  const nodes = nodesFor(devices, site);
  const perNode = Math.ceil(devices / nodes);
  const options: string[] = [];
  if (site.partition !== undefined) options.push(`--partition=${site.partition}`);
  if (site.account !== undefined) options.push(`--account=${site.account}`);
  if (site.qos !== undefined) options.push(`--qos=${site.qos}`);
  if (site.cpusPerDevice !== undefined)
    options.push(`--cpus-per-task=${site.cpusPerDevice * (per === "task" ? 1 : perNode)}`);
  if (site.gpusPerDevice !== undefined && site.gpusPerDevice > 0)
    options.push(
      per === "task" ? `--gpus-per-task=${site.gpusPerDevice}` : `--gres=gpu:${site.gpusPerDevice * perNode}`,
    );
  if (site.memory !== undefined) options.push(`--mem=${site.memory}`);
  if (site.time !== undefined) options.push(`--time=${site.time}`);
  return [...options, ...(site.extra ?? [])];
}
