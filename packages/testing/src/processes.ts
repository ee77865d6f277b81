// For tests: whether a process runs.
import { readFileSync } from "node:fs";

/** Whether a process runs. One that has ended stays a zombie where the first process collects none, as in many containers. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return process.platform !== "linux" || !/\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}
