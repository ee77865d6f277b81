// The cores that this process may use, in the order in which workers get them. Reads Linux files only.
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";

/** "0-3,8" as numbers. */
export function parseCpuList(text: string): number[] {
  return text
    .trim()
    .split(",")
    .filter((piece) => piece !== "")
    .flatMap((piece) => {
      const [from, to = from] = piece.split("-").map(Number);
      return Array.from({ length: to - from + 1 }, (_, i) => from + i);
    });
}

const read = (path: string): string | null => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
};

/** Orders hardware threads: the first thread of every core before the second ones, so that workers get separate cores. */
export function orderCores(allowed: readonly number[], siblings: (cpu: number) => readonly number[]): number[] {
  const turn = (cpu: number): number =>
    siblings(cpu)
      .filter((other) => allowed.includes(other))
      .indexOf(cpu);
  return [...allowed].sort((a, b) => turn(a) - turn(b) || a - b);
}

type ReadFile = (path: string) => string | null;

/** Quota of one control group in processors (1.5 is one and a half); infinite without one. */
function quotaIn(folder: string, readFile: ReadFile): number {
  const [quota, period] =
    readFile(join(folder, "cpu.max"))?.trim().split(/\s+/) ??
    ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map((name) => readFile(join(folder, name))?.trim());
  const share = Number(quota) / Number(period);
  return share > 0 && Number.isFinite(share) ? share : Number.POSITIVE_INFINITY;
}

/** Processors that the control groups of this process may use, version 1 or 2: the smallest quota on the way to the root. */
export function cpuQuota(readFile: ReadFile = read): number {
  const root = "/sys/fs/cgroup";
  let least = Number.POSITIVE_INFINITY;
  for (const line of (readFile("/proc/self/cgroup") ?? "").split("\n").slice(0, 64)) {
    const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === undefined || path.includes("..")) continue;
    const mounts =
      controllers === ""
        ? [root]
        : controllers.split(",").includes("cpu")
          ? [join(root, controllers), join(root, "cpu")]
          : [];
    const names = path
      .split("/")
      .filter((name) => name !== "")
      .slice(0, 64);
    for (const mount of mounts)
      for (let depth = names.length; depth >= 0; depth--)
        least = Math.min(least, quotaIn(join(mount, ...names.slice(0, depth)), readFile));
  }
  return least;
}

/** Number of threads for the cores and the quota of this process. */
export const threadsFor = (cores: number, quota: number): number => Math.max(1, Math.min(cores, Math.round(quota)));

/** Default number of threads of a device. */
export const defaultThreads = (): number => threadsFor(availableParallelism(), cpuQuota());

/**
 * Whether idle threads may spin for a moment before they sleep. Under a quota, spinning uses up processor time that the program
 * needs; users turn it off with the variable of OpenMP.
 */
export const maySpin = (): boolean =>
  process.env.OMP_WAIT_POLICY?.toLowerCase() !== "passive" && cpuQuota() >= availableParallelism();

let known: number[] | null = null;

/** The cores of this process, best first. */
export function coreOrder(): number[] {
  if (known !== null) return known;
  const status = read("/proc/self/status");
  const list = status === null ? null : /^Cpus_allowed_list:\s*(\S+)/m.exec(status);
  const count = defaultThreads();
  const allowed = list == null ? Array.from({ length: count }, (_, i) => i) : parseCpuList(list[1]);
  const ordered = orderCores(allowed, (cpu) => {
    const text = read(`/sys/devices/system/cpu/cpu${cpu}/topology/thread_siblings_list`);
    return text === null ? [cpu] : parseCpuList(text);
  });
  // A container may see all cores while its quota covers only some.
  known = ordered.slice(0, Math.max(1, count));
  return known;
}
