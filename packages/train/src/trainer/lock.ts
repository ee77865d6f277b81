// The lock of a run's folder: one process trains there at a time. The kernel releases it when that process ends.
import { closeSync, existsSync, fstatSync, mkdirSync, openSync, readFileSync, rmdirSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { lockFile } from "@weft/cluster/internal";
import { TrainError } from "./errors.js";

/** The process of this host that locks an inode, in words. */
function holderOf(inode: number): string {
  try {
    const line = readFileSync("/proc/locks", "utf8")
      .split("\n")
      .find((text) => text.includes(" FLOCK ") && text.includes(`:${inode} `));
    const pid = /\sWRITE\s+(\d+)\s/.exec(line ?? "")?.[1];
    if (pid !== undefined) return `process ${pid}`;
  } catch {
    // Not on Linux.
  }
  return "another process";
}

/** Makes a folder and those above it, one by one: on a read-only disk the recursive call says that the folder does not exist. */
function makeFolder(folder: string): void {
  if (existsSync(folder) && statSync(folder).isDirectory()) return;
  const above = dirname(folder);
  if (above !== folder) makeFolder(above);
  try {
    mkdirSync(folder, { recursive: false });
  } catch (error) {
    // Another rank may have made it meanwhile.
    if ((error as NodeJS.ErrnoException).code === "EEXIST" && statSync(folder).isDirectory()) return;
    throw new TrainError(
      `${folder} cannot be created (${(error as Error).message.split(",")[0]}); name another folder with --out`,
    );
  }
}

/** Locks a run's folder; the returned function releases it. Throws if another process trains there. */
export function lockRun(folder: string): () => void {
  const created = !existsSync(folder);
  makeFolder(folder);
  const file = openSync(folder, "r");
  if (!lockFile(file)) {
    const holder = holderOf(fstatSync(file).ino);
    closeSync(file);
    throw new TrainError(`${folder} is in use by ${holder}; wait for it, or name another folder with --out`);
  }
  return () => {
    closeSync(file);
    try {
      // A run that failed before it wrote anything leaves no folder behind.
      if (created) rmdirSync(folder);
    } catch {
      // It has written something.
    }
  };
}
