// Memory that this process can still use: of the machine, and of the control groups that it is in. Linux gives out more memory than
// there is and ends a process that uses it, often another one.
import { readFileSync } from "node:fs";
import { totalmem } from "node:os";

const read = (path: string): string | null => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
};
const numberIn = (text: string | null, pattern: RegExp): number => Number(pattern.exec(text ?? "")?.[1] ?? Number.NaN);

interface ControlGroup {
  limit: string;
  used: string;
  statistics: string;
}

/** The files of the control groups that limit memory, of both versions, from this process's group to the root. */
export function controlGroups(own = read("/proc/self/cgroup") ?? "", root = "/sys/fs/cgroup"): ControlGroup[] {
  const found: ControlGroup[] = [];
  for (const line of own.split("\n")) {
    const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === undefined || (controllers !== "" && !controllers.split(",").includes("memory"))) continue;
    const [base, limit, used] =
      controllers === ""
        ? [root, "memory.max", "memory.current"]
        : [`${root}/memory`, "memory.limit_in_bytes", "memory.usage_in_bytes"];
    // Containers see their own group as the root, wherever it is outside.
    const parts = path.split("/").filter((part) => part !== "" && part !== "..");
    for (let depth = parts.length; depth >= 0; depth--) {
      const folder = [base, ...parts.slice(0, depth)].join("/");
      found.push({ limit: `${folder}/${limit}`, used: `${folder}/${used}`, statistics: `${folder}/memory.stat` });
    }
  }
  return found;
}

let groups: ControlGroup[] | null = null;

/** Files in memory that the kernel gives back when a group needs the room. */
const reclaimable = (statistics: string | null): number =>
  ["inactive_file", "active_file"].reduce(
    (sum, name) => sum + (numberIn(statistics, new RegExp(`^${name} (\\d+)$`, "m")) || 0),
    0,
  );

/** Bytes that are free on the machine and in the control groups of this process; what files take is counted as free. */
export function availableMemory(): number {
  // Groups without a limit stay without one, nearly always.
  groups ??= controlGroups().filter(({ limit }) => /^\d+\s*$/.test(read(limit) ?? ""));
  let least = numberIn(read("/proc/meminfo"), /^MemAvailable:\s+(\d+) kB$/m) * 1024;
  if (Number.isNaN(least)) least = totalmem();
  for (const { limit, used, statistics } of groups) {
    const free = numberIn(read(limit), /^(\d+)/) - numberIn(read(used), /^(\d+)/) + reclaimable(read(statistics));
    if (free < least) least = free;
  }
  return least;
}
