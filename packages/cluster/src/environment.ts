// Rank, world size and group name of this process, from Weft's variables or those of the launcher (OpenMPI, SLURM).
// Reads only the environment.
import { hash } from "node:crypto";
import { WeftError } from "@weft/core/internal/graph";
import { printable } from "./printable.js";

/** Rank and world size of a process, as its launcher set them. */
export interface RankEnvironment {
  /** Rank of this process, from 0. */
  rank: number;
  /** Number of processes. */
  size: number;
  /** Processes of the group on this host, and the rank among them. */
  localSize: number;
  /** Rank among the processes of this host. */
  localRank: number;
  /** Group name: shared by all processes of the job and by no other job. */
  name: string;
  /** Who started the process. */
  launcher: "weft" | "openmpi" | "slurm" | "none";
}

type Environment = Readonly<Record<string, string | undefined>>;

function integer(env: Environment, name: string): number {
  const text = (env[name] ?? "").trim();
  if (!/^\d{1,7}$/.test(text))
    throw new WeftError(`${name}=${printable(text.slice(0, 100))} is not a whole number from 0 to 9999999`);
  return Number(text);
}

/** The facts of a launcher, which must not contradict each other. */
function checked(facts: RankEnvironment, rank: string, size: string): RankEnvironment {
  if (facts.size < 1) throw new WeftError(`${size}=${facts.size}: a job has at least one process`);
  if (facts.rank >= facts.size)
    throw new WeftError(`${rank}=${facts.rank} is not below ${size}=${facts.size}; ranks count from 0`);
  // Launchers give the number for the first host; another one may have more.
  const localSize = Math.min(facts.size, Math.max(1, facts.localSize, facts.localRank + 1));
  if (facts.localRank >= localSize)
    throw new WeftError(`rank ${facts.localRank} on this host is not below ${size}=${facts.size}`);
  return { ...facts, localSize };
}

const orElse = (env: Environment, name: string, otherwise: number): number =>
  env[name] === undefined ? otherwise : integer(env, name);

/** A name that file systems accept; different texts have different names. */
function safe(text: string): string {
  const name = text.replace(/[^\w.-]/g, "-");
  return name === text && text.length <= 80 ? name : `${name.slice(0, 40)}-${hash("sha256", text, "hex").slice(0, 32)}`;
}

function fromWeft(env: Environment): RankEnvironment {
  const missing = ["WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_GROUP"].filter((name) => env[name] === undefined);
  if (missing.length > 0)
    throw new WeftError(
      `${missing.join(" and ")} must be set too: WEFT_RANK (0, 1, ...), WEFT_WORLD_SIZE (how many processes) and WEFT_GROUP (any name that they share)`,
    );
  const [rank, size] = [integer(env, "WEFT_RANK"), integer(env, "WEFT_WORLD_SIZE")];
  if (env.WEFT_GROUP === "") throw new WeftError("WEFT_GROUP is empty; give any name that the processes share");
  const localSize = orElse(env, "WEFT_LOCAL_SIZE", size);
  const localRank = orElse(env, "WEFT_LOCAL_RANK", rank % Math.max(1, localSize));
  const facts = { rank, size, localSize, localRank, name: safe(env.WEFT_GROUP as string), launcher: "weft" } as const;
  return checked(facts, "WEFT_RANK", "WEFT_WORLD_SIZE");
}

function fromOpenMpi(env: Environment): RankEnvironment {
  const size = integer(env, "OMPI_COMM_WORLD_SIZE");
  const job = env.OMPI_MCA_ess_base_jobid ?? env.PMIX_NAMESPACE ?? env.OMPI_MCA_orte_hnp_uri ?? "job";
  const facts: RankEnvironment = {
    rank: integer(env, "OMPI_COMM_WORLD_RANK"),
    size,
    localSize: orElse(env, "OMPI_COMM_WORLD_LOCAL_SIZE", size),
    localRank: orElse(env, "OMPI_COMM_WORLD_LOCAL_RANK", 0),
    name: safe(`ompi-${job}`),
    launcher: "openmpi",
  };
  return checked(facts, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
}

function fromSlurm(env: Environment): RankEnvironment {
  const size = integer(env, "SLURM_NTASKS");
  const nodes = orElse(env, "SLURM_STEP_NUM_NODES", orElse(env, "SLURM_JOB_NUM_NODES", 1));
  // The format is "4(x2)" or "4,2": the first number is taken for every node.
  const perNode = Number(
    /^(\d{1,7})/.exec(env.SLURM_STEP_TASKS_PER_NODE ?? env.SLURM_TASKS_PER_NODE ?? "")?.[1] ?? size,
  );
  const facts: RankEnvironment = {
    rank: integer(env, "SLURM_PROCID"),
    size,
    localSize: nodes <= 1 ? size : Math.min(size, perNode),
    localRank: orElse(env, "SLURM_LOCALID", 0),
    name: safe(`slurm-${env.SLURM_JOB_ID ?? "0"}-${env.SLURM_STEP_ID ?? "0"}`),
    launcher: "slurm",
  };
  return checked(facts, "SLURM_PROCID", "SLURM_NTASKS");
}

/** Reads the rank environment; rank 0 of 1 without a launcher. */
export function rankFromEnvironment(env: Environment = process.env): RankEnvironment {
  if (["WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_GROUP"].some((name) => env[name] !== undefined)) return fromWeft(env);
  if (env.OMPI_COMM_WORLD_RANK !== undefined) return fromOpenMpi(env);
  // A batch script itself is not a task: only processes started by srun have a rank in the step.
  if (env.SLURM_PROCID !== undefined && env.SLURM_STEP_ID !== undefined && env.SLURM_NTASKS !== undefined)
    return fromSlurm(env);
  return { rank: 0, size: 1, localSize: 1, localRank: 0, name: "alone", launcher: "none" };
}

/**
 * Index of this process's GPU among those that it sees. A launcher that gives each process GPUs of its own (SLURM with
 * --gpus-per-task, Ray) numbers them from 0; otherwise every process of a host sees all of its GPUs.
 */
export function localDeviceIndex(env: Environment = process.env): number {
  const { localRank, launcher } = rankFromEnvironment(env);
  const visible = env.CUDA_VISIBLE_DEVICES?.split(",").filter((id) => id.trim() !== "").length;
  const ownGpus = launcher === "slurm" && (env.SLURM_GPUS_PER_TASK ?? env.SLURM_TRES_PER_TASK?.match(/gpu/)) != null;
  return ownGpus || visible === 1 ? 0 : localRank;
}
