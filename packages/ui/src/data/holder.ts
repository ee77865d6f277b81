// The process that trains in a run's folder. It holds the kernel's lock on the folder, and a process id alone proves nothing:
// ids are reused, and files can be written by anybody.
import { readdirSync, readFileSync, readlinkSync, realpathSync, statSync } from "node:fs";

/** Process ids that lock an inode of this number; 0 stands for a process of another container. */
function lockersOf(real: string): number[] {
  try {
    const inode = String(statSync(real).ino);
    // 1: FLOCK  ADVISORY  WRITE 7416 fe:01:123456 0 EOF
    const line = /\sFLOCK\s+\S+\s+WRITE\s+(\d+)\s+[\da-f]+:[\da-f]+:(\d+)\s/g;
    return [...readFileSync("/proc/locks", "latin1").matchAll(line)]
      .filter((match) => match[2] === inode)
      .map((match) => Number(match[1]));
  } catch {
    return [];
  }
}

/** Whether some process holds the lock of a folder. */
export const isHeld = (folder: string): boolean => lockersOf(folder).length > 0;

/** Process id of the holder of the lock of a folder; null if it is not known for certain. */
export function holderOf(folder: string): number | null {
  let real: string;
  try {
    real = realpathSync(folder);
  } catch {
    return null;
  }
  // Inodes of different file systems may be equal: the process must have this very folder open.
  return lockersOf(real).find((pid) => pid > 1 && hasOpen(pid, real)) ?? null;
}

function hasOpen(pid: number, path: string): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`) === path;
      } catch {
        return false;
      }
    });
  } catch {
    // A process of another user: it cannot be stopped from here either.
    return false;
  }
}

/** Whether this machine can say who holds a lock. */
export function canTellHolder(): boolean {
  try {
    readFileSync("/proc/locks");
    return true;
  } catch {
    return false;
  }
}

/** Whether a process exists that was there when a record was written, and so may be the one that wrote it. */
export function wasAliveAt(pid: number, t: number): boolean {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    if (fields[0] === "Z") return false;
    const boot = Number(/btime (\d+)/.exec(readFileSync("/proc/stat", "latin1"))?.[1]);
    // Ticks of 10 ms since the machine started; a second of tolerance, because the boot time is in seconds.
    return boot + Number(fields[19]) / 100 <= t + 2;
  } catch {
    return false;
  }
}
