// How a command is started at a device count: as it is, through torchrun, or through SLURM. One row a launcher.
import { fillTemplate, PlanError } from "./plan.js";

export type Launcher = "local" | "torchrun" | "srun" | "sbatch";

export const launchers: readonly Launcher[] = ["local", "torchrun", "srun", "sbatch"];

/** What a site's SLURM wants to know. */
export interface Site {
  partition?: string;
  account?: string;
  qos?: string;
  /** Names for `module load`. */
  modules?: string[];
  /** Folder of a Python virtual environment to activate. */
  venv?: string;
  /** hh:mm:ss, as SLURM writes it; the run's own limit where not given. */
  time?: string;
  cpusPerDevice?: number;
  /** GPUs to ask for per device; 0 on machines without. */
  gpusPerDevice?: number;
  memory?: string;
  /** Devices that fit on one node: more are spread over several. */
  devicesPerNode?: number;
  /** Further #SBATCH (or srun) options as they are written. */
  extra?: string[];
}

interface LauncherRow {
  /** True when the launcher itself puts the count into the command, so that {n} need not be there. */
  placesCount: boolean;
  command(template: readonly string[], devices: number, site: Site): string[];
}

/** `python train.py` and `train.py` alike: torchrun wants the script. */
function script(template: readonly string[]): string[] {
  const rest = /(?:^|\/)python[\d.]*$/.test(template[0]) ? template.slice(1) : [...template];
  if (rest.length === 0) throw new PlanError("torchrun needs a script to start; write it behind --");
  return rest;
}

/** The Python that has torchrun: the one that the command names, else the one on PATH. */
const interpreter = (template: readonly string[]): string =>
  /(?:^|\/)python[\d.]*$/.test(template[0]) ? template[0] : "python3";

export const nodesFor = (devices: number, site: Site): number =>
  site.devicesPerNode === undefined ? 1 : Math.ceil(devices / site.devicesPerNode);

const rows: Record<Launcher, LauncherRow> = {
  local: {
    placesCount: false,
    command: (template, devices) => fillTemplate(template, devices),
  },
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
  // Inside the job the command runs as it is; the script around it is made elsewhere.
  sbatch: {
    placesCount: false,
    command: (template, devices) => fillTemplate(template, devices),
  },
};

export function launcherRow(launcher: Launcher): LauncherRow {
  return rows[launcher];
}

/** The options of SLURM that describe the site. `per` says whether one task is a device (srun) or the whole node's launcher (sbatch). */
export function siteOptions(site: Site, devices: number, per: "task" | "node"): string[] {
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
