// The cores that this process may use, in the order in which workers get them. Reads Linux files only.
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

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

let known: number[] | null = null;

/** The cores of this process, best first. */
export function coreOrder(): number[] {
  if (known !== null) return known;
  const status = read("/proc/self/status");
  const list = status === null ? null : /^Cpus_allowed_list:\s*(\S+)/m.exec(status);
  const count = availableParallelism();
  const allowed = list == null ? Array.from({ length: count }, (_, i) => i) : parseCpuList(list[1]);
  const ordered = orderCores(allowed, (cpu) => {
    const text = read(`/sys/devices/system/cpu/cpu${cpu}/topology/thread_siblings_list`);
    return text === null ? [cpu] : parseCpuList(text);
  });
  // A container may see all cores while its quota covers only some.
  known = ordered.slice(0, Math.max(1, count));
  return known;
}
