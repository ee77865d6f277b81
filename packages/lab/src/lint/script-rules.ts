// Lint rules for job scripts: task arithmetic, devices, cores, rendezvous. Each rule examines one script and one launch; unknown
// values are not reported.
import type { LintProblem } from "./problem.js";
import { type Launch, positiveInteger, type Script } from "./script.js";

/** The resources that a script requests, as far as they can be resolved. */
interface Resources {
  nodes: number;
  /** Tasks on one node; null when not stated. */
  tasksPerNode: number | null;
  coresPerTask: number | null;
  gpusPerNode: number | null;
  /** Processes that torchrun starts per node. */
  processes: number | null;
  workers: number | null;
  /** Device of `weft train`; null when unknown. */
  device: string | null;
}

interface ValidityRule {
  id: string;
  find: (script: Script, launch: Launch, r: Resources) => Omit<LintProblem, "file" | "id"> | null;
}

function gpusOf(script: Script, launch: Launch, nodes: number, tasksPerNode: number | null): number | null {
  const flag = (name: string): string | undefined => launch.srunFlags.get(name) ?? script.directives.get(name)?.value;
  const gres = flag("gres");
  // gpu, gpu:4, gpu:a100:4, gpu:3090:4: the count comes last, and a kind may be a number.
  const match = gres === undefined ? null : /(?:^|,)gpu(?::([^:,()]+))?(?::(\d+))?/.exec(gres);
  if (match !== null) return match[2] !== undefined ? Number(match[2]) : (positiveInteger(match[1]) ?? 1);
  const perNode = positiveInteger(flag("gpus-per-node")?.split(":").at(-1));
  if (perNode !== null) return perNode;
  const perTask = positiveInteger(flag("gpus-per-task")?.split(":").at(-1));
  if (perTask !== null) return perTask * (tasksPerNode ?? 1);
  const all = positiveInteger(flag("gpus")?.split(":").at(-1));
  return all === null ? null : all / nodes;
}

/** What the configurations of a command say, where they are among the files. */
export interface ConfigLookup {
  /** `data.num_workers` of a configuration; null when unknown. */
  workers: (config: string) => number | null;
  /** `device` of a configuration: "cpu" if it has none; null when unknown. */
  device: (config: string) => string | null;
}

/** The device of a `weft train` command: its option, else the environment's, else the configuration's. */
function deviceOf(script: Script, launch: Launch, lookup: ConfigLookup): string | null {
  if (launch.launcher !== "weft") return null;
  const named = launch.flags.get("device") ?? script.variables.get("WEFT_DEVICE")?.value;
  return named ?? launch.configs.map(lookup.device).find((device) => device !== null) ?? null;
}

function resourcesOf(script: Script, launch: Launch, lookup: ConfigLookup): Resources {
  const workers = launch.configs.map(lookup.workers).find((w) => w !== null) ?? null;
  const flag = (name: string): string | undefined => launch.srunFlags.get(name) ?? script.directives.get(name)?.value;
  const nodes = positiveInteger(flag("nodes")) ?? 1;
  const all = positiveInteger(flag("ntasks"));
  const tasksPerNode = positiveInteger(flag("ntasks-per-node")) ?? (all === null ? null : all / nodes);
  const gpusPerNode = gpusOf(script, launch, nodes, tasksPerNode);
  const given = launch.flags.get("nproc-per-node");
  const processes = positiveInteger(given) ?? (given === "gpu" || given === "auto" ? gpusPerNode : null);
  const coresPerTask = positiveInteger(flag("cpus-per-task"));
  const device = deviceOf(script, launch, lookup);
  return { nodes, tasksPerNode, coresPerTask, gpusPerNode, processes, workers, device };
}

const noConfigs: ConfigLookup = { workers: () => null, device: () => null };

/** GPUs per node that a script requests; null when not stated. */
export function gpusAsked(script: Script): number | null {
  const known = script.launches.flatMap((launch) => resourcesOf(script, launch, noConfigs).gpusPerNode ?? []);
  return known.length === 0 ? null : Math.max(...known);
}

const rules: readonly ValidityRule[] = [
  {
    id: "slurm-tasks",
    find: (script, launch, { tasksPerNode, processes, gpusPerNode, nodes }) => {
      if (
        launch.launcher !== "torchrun" ||
        !launch.bySrun ||
        tasksPerNode === null ||
        tasksPerNode <= 1 ||
        processes === null
      )
        return null;
      const total = tasksPerNode * processes * nodes;
      return {
        severity: "error",
        line: launch.line,
        message: `srun starts ${tasksPerNode} tasks per node and each torchrun starts ${processes} processes: ${total} processes${gpusPerNode === null ? "" : ` for ${gpusPerNode * nodes} GPUs`}`,
        fix: script.isSlurm
          ? "#SBATCH --ntasks-per-node=1 and let torchrun start the ranks, or drop torchrun and keep one task per GPU"
          : "srun --ntasks-per-node=1 torchrun ...",
      };
    },
  },
  {
    id: "ranks-above-gpus",
    find: (_, launch, { processes, gpusPerNode }) =>
      launch.launcher !== "torchrun" || processes === null || gpusPerNode === null || processes <= gpusPerNode
        ? null
        : {
            severity: "error",
            line: launch.line,
            message: `${processes} processes per node and ${gpusPerNode} GPU${gpusPerNode === 1 ? "" : "s"}: ranks will share a device or fail with "invalid device ordinal"`,
            fix: `--nproc_per_node=${gpusPerNode}, or ask for ${processes} GPUs`,
          },
  },
  {
    id: "idle-gpus",
    find: (_, launch, { processes, gpusPerNode, tasksPerNode }) => {
      const ranks =
        launch.launcher === "torchrun"
          ? processes
          : launch.bySrun
            ? tasksPerNode
            : launch.launcher === "python"
              ? 1
              : null;
      if (ranks === null || gpusPerNode === null || ranks >= gpusPerNode) return null;
      return {
        severity: "warning",
        line: launch.line,
        message: `${gpusPerNode} GPUs per node are requested and ${ranks} process${ranks === 1 ? "" : "es"} started: ${gpusPerNode - ranks} stay idle`,
        fix: `torchrun --nproc_per_node=${gpusPerNode} ..., or ask for ${ranks}`,
      };
    },
  },
  {
    id: "weft-ranks",
    find: (_, launch, { tasksPerNode, nodes }) => {
      const ranks = positiveInteger(launch.flags.get("devices"));
      if (launch.launcher !== "weft" || !launch.bySrun || ranks === null || tasksPerNode === null) return null;
      const tasks = tasksPerNode * nodes;
      return ranks === tasks
        ? null
        : {
            severity: "error",
            line: launch.line,
            message: `srun starts ${tasks} task${tasks === 1 ? "" : "s"} and weft train expects ${ranks}: each task is one rank`,
            fix: `--devices ${tasks}, or #SBATCH --ntasks-per-node=${Math.ceil(ranks / nodes)}`,
          };
    },
  },
  {
    id: "weft-device",
    find: (script, launch, { device, gpusPerNode }) => {
      if (device === null) return null;
      const perTask = launch.srunFlags.has("gpus-per-task") || script.directives.has("gpus-per-task");
      const isGpu = device.startsWith("cuda");
      const [message, fix] =
        gpusPerNode !== null && !isGpu
          ? [
              `GPUs are requested and weft train computes on ${device}: they stay idle`,
              "--device cuda, or ask for none",
            ]
          : gpusPerNode === null && isGpu && script.isSlurm
            ? [`weft train computes on ${device} and the job asks for no GPUs`, "#SBATCH --gpus-per-task=1"]
            : perTask && /^cuda:\d*[1-9]/.test(device)
              ? [`each task sees only its own GPU, as cuda:0; ${device} does not exist there`, "--device cuda"]
              : [null, ""];
      return message === null ? null : { severity: "error", line: launch.line, message, fix };
    },
  },
  {
    id: "cores-per-rank",
    find: (script, launch, { coresPerTask, processes, tasksPerNode, workers }) => {
      if (coresPerTask === null || processes === null || launch.launcher !== "torchrun") return null;
      const cores = launch.bySrun ? coresPerTask : coresPerTask * (tasksPerNode ?? 1);
      const perRank = cores / processes;
      const wanted = 1 + (workers ?? 1);
      if (perRank >= wanted) return null;
      return {
        severity: perRank < wanted / 2 ? "error" : "warning",
        line: script.directives.get("cpus-per-task")?.line ?? launch.line,
        message: `${cores} cores for ${processes} ranks with ${workers ?? "at least 1"} loader${workers === 1 ? "" : "s"} each: ${processes * wanted} processes, ${(perRank).toFixed(1)} cores per rank`,
        fix: `--cpus-per-task=${processes * wanted}`,
      };
    },
  },
  {
    id: "omp-threads",
    find: (script, _, { coresPerTask, processes }) => {
      const variable = script.variables.get("OMP_NUM_THREADS");
      if (variable === undefined || coresPerTask === null || processes === null || processes <= 1) return null;
      const all = /^\$\{?SLURM_CPUS_PER_TASK\}?$/.test(variable.value);
      const threads = all ? coresPerTask : positiveInteger(variable.value);
      if (threads === null || threads * processes <= coresPerTask) return null;
      return {
        severity: "warning",
        line: variable.line,
        message: `OMP_NUM_THREADS=${threads} in each of ${processes} ranks: ${threads * processes} threads on ${coresPerTask} cores`,
        fix: `export OMP_NUM_THREADS=${Math.max(1, Math.floor(coresPerTask / processes))}`,
      };
    },
  },
  {
    id: "compressed-nodelist",
    find: (script, launch) => {
      const isList = (value: string | undefined): boolean =>
        value !== undefined && /\$\{?SLURM_(JOB_)?NODELIST\}?/.test(value) && !value.includes("scontrol");
      const endpoint = launch.flags.get("rdzv-endpoint") ?? launch.flags.get("master-addr");
      const master = script.variables.get("MASTER_ADDR");
      if (!isList(endpoint) && !isList(master?.value)) return null;
      return {
        severity: "error",
        line: isList(endpoint) ? launch.line : master!.line,
        message:
          "SLURM_NODELIST is a compressed list (node[01-04]), not a host name: the rendezvous fails on more than one node",
        fix: 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1), then --rdzv_endpoint="$head:29500"',
      };
    },
  },
  {
    id: "nodes-disagree",
    find: (_, launch, { nodes }) => {
      const given = positiveInteger(launch.flags.get("nnodes"));
      if (launch.launcher !== "torchrun" || given === null || given === nodes) return null;
      return {
        severity: "error",
        line: launch.line,
        message: `torchrun waits for ${given} node${given === 1 ? "" : "s"}, SLURM gives ${nodes}`,
        fix: `--nnodes=${nodes}, or #SBATCH --nodes=${given}`,
      };
    },
  },
  {
    id: "one-node-launch",
    find: (_, launch, { nodes }) =>
      nodes <= 1 || launch.bySrun || launch.launcher !== "torchrun"
        ? null
        : {
            severity: "error",
            line: launch.line,
            message: `torchrun is started without srun, so only on the first of ${nodes} nodes`,
            fix: `srun --ntasks-per-node=1 torchrun --nnodes=${nodes} ...`,
          },
  },
  {
    id: "device-ordinal",
    find: (script, launch, { gpusPerNode, processes }) => {
      const visible = script.variables.get("CUDA_VISIBLE_DEVICES");
      if (visible === undefined) return null;
      const ordinals = visible.value.split(",").map((s) => (/^\d+$/.test(s.trim()) ? Number(s) : null));
      if (ordinals.some((o) => o === null)) return null;
      const missing = gpusPerNode === null ? [] : ordinals.filter((o) => o! >= gpusPerNode);
      if (missing.length > 0)
        return {
          severity: "error",
          line: visible.line,
          message: `CUDA_VISIBLE_DEVICES names device ${missing.join(", ")}, but the job gets ${gpusPerNode} GPU${gpusPerNode === 1 ? "" : "s"} (0 to ${gpusPerNode! - 1})`,
          fix: "leave CUDA_VISIBLE_DEVICES to SLURM",
        };
      if (processes !== null && launch.launcher === "torchrun" && ordinals.length < processes)
        return {
          severity: "error",
          line: visible.line,
          message: `${ordinals.length} visible device${ordinals.length === 1 ? "" : "s"} for ${processes} ranks: cuda:${ordinals.length} and above do not exist`,
          fix: `export CUDA_VISIBLE_DEVICES=${Array.from({ length: processes }, (_, i) => i).join(",")}`,
        };
      return null;
    },
  },
];

/** Lints one script; `lookup` finds the configurations that its commands name. */
export function lintScript(script: Script, lookup: ConfigLookup): LintProblem[] {
  const late = script.lateDirectives.map(
    (line): LintProblem => ({
      file: script.file,
      line,
      id: "late-directive",
      severity: "warning",
      message: "SLURM reads no #SBATCH line behind the first command: this one has no effect",
      fix: "move it to the top of the script",
    }),
  );
  const ofLaunches = script.launches.flatMap((launch) => {
    const nodes = launch.srunFlags.get("nodes") ?? script.directives.get("nodes")?.value;
    // A range or a variable: nothing per node is known.
    if (nodes !== undefined && positiveInteger(nodes) === null) return [];
    const resources = resourcesOf(script, launch, lookup);
    return rules.flatMap(({ id, find }) => {
      const found = find(script, launch, resources);
      return found === null ? [] : [{ file: script.file, id, ...found }];
    });
  });
  return [...late, ...ofLaunches];
}
