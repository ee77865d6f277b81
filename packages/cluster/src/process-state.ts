// What the system says about a process of this host.
import { readFileSync } from "node:fs";

/** The state letter of a process of this host; null when it is gone. */
export function processState(pid: number): string | null {
  try {
    return /\)\s+(\S)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1] ?? null;
  } catch {
    return null;
  }
}

/** Whether a process of this host may still do something: stopped ones may, ended ones that nobody has looked after do not. */
export function isAlive(pid: number): boolean {
  const state = processState(pid);
  return state !== null && state !== "Z" && state !== "X";
}
