// State of a process of this host, from /proc.
import { readFileSync } from "node:fs";

/** State letter of a process of this host; null if it does not exist. */
export function processState(pid: number): string | null {
  try {
    return /\)\s+(\S)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1] ?? null;
  } catch {
    return null;
  }
}

/** Whether a process of this host can still run: a stopped one can, a zombie cannot. */
export function isAlive(pid: number): boolean {
  const state = processState(pid);
  return state !== null && state !== "Z" && state !== "X";
}
