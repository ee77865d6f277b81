// The folder of compiled kernels that all processes of a user share: where it lies, and how much it may hold. Who adds a file
// looks now and then whether there is too much, and removes what was used longest ago. Knows nothing of compilers.
import { readdirSync, rmSync, type Stats, statSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { WeftError } from "../graph/index.js";
import { settings } from "../settings/index.js";
import { cacheRoot, privateCacheIfMade } from "./cache-root.js";

/** Folders of kernels below the root; what lies beside them (rates, data, environments) is not counted and not removed. */
const kernelFolders = ["cpu", "cuda", "emulated"] as const;
type KernelFolder = (typeof kernelFolders)[number];
export const kernelFolder = (name: KernelFolder): string => join(cacheRoot(), name);

/** Where a file of the cache may lie: in the cache, and where that cannot be written in the folder of this process. */
export function cachePlaces(name: KernelFolder, file: string): string[] {
  const own = privateCacheIfMade();
  const folders = [kernelFolder(name), ...(own === null ? [] : [join(own, name)])];
  return [...new Set(folders)].map((folder) => join(folder, file));
}

const day = 24 * 3600e3;
/** Files this young are left alone: another process may have looked one up and not yet opened it. */
const justUsed = 10 * 60e3;
/** Looking costs a look at every file, so it is done this often: by time over all processes, by files within one. */
const lookEvery = 10 * 60e3;
const lookAfter = 256;

/** Maximum size of the kernel cache on disk in bytes. */
export const cacheLimit = (): number => settings.cacheBytes.get();

/** What this process has used stays, however long ago a file was made. */
const own = new Set<string>();
let added = 0;

/** What is known of a file; null where it cannot be looked at, whatever the reason. */
function lookAt(path: string): Stats | null {
  try {
    return statSync(path, { throwIfNoEntry: false }) ?? null;
  } catch {
    return null;
  }
}

/** Code is loaded from here: files of other users, or that every user may write, are as good as not there. */
const isOurs = ({ uid, mode }: Stats): boolean =>
  process.getuid === undefined || ((uid === process.getuid() || uid === 0) && (mode & 0o002) === 0);

/** Whether a file is in the cache. One that is counts as used today: its time is set anew, at most once a day. */
export function isCached(path: string): boolean {
  const found = lookAt(path);
  if (found === null || !isOurs(found)) return false;
  own.add(path);
  const now = Date.now();
  if (now - found.mtimeMs > day) {
    try {
      utimesSync(path, now / 1e3, now / 1e3);
    } catch {
      // A cache that is only read keeps its times; who may write it does not mind.
    }
  }
  return true;
}

/** Says that a file was added; now and then this is when the cache is cut back to its limit. */
export function addedToCache(path: string): void {
  own.add(path);
  added++;
  const stamp = join(dirname(path), "..", ".pruned");
  const last = lookAt(stamp)?.mtimeMs ?? 0;
  if (Date.now() - last < lookEvery && added % lookAfter !== 0) return;
  try {
    writeFileSync(stamp, "");
    pruneCache();
  } catch (error) {
    if (error instanceof WeftError) throw error;
    // Somebody else's folder, or a disk that is full: the cache stays as it is.
  }
}

interface Entry {
  path: string;
  bytes: number;
  used: number;
}

/** Finished files by age, and what processes that were killed left behind. */
function entries(): { files: Entry[]; leftovers: string[] } {
  const files: Entry[] = [];
  const leftovers: string[] = [];
  for (const name of kernelFolders) {
    let names: string[] = [];
    try {
      names = readdirSync(kernelFolder(name));
    } catch {
      continue;
    }
    for (const file of names) {
      const path = join(kernelFolder(name), file);
      const found = lookAt(path);
      if (found === null) continue;
      const [ours, rest] = /^[0-9a-f]{32,40}\.(?:so|cubin|json)(.*)$/.exec(file) ?? [];
      if (ours === undefined) continue;
      if (rest === "") files.push({ path, bytes: found.size, used: found.mtimeMs });
      else if (Date.now() - found.mtimeMs > day) leftovers.push(path);
    }
  }
  return { files, leftovers };
}

export interface CacheContents {
  files: number;
  bytes: number;
}

export function cacheContents(): CacheContents {
  const { files } = entries();
  return { files: files.length, bytes: files.reduce((sum, { bytes }) => sum + bytes, 0) };
}

/**
 * Removes the files used longest ago until a tenth of the limit is free. Several processes may do this at once, and a file
 * that is gone when somebody opens it is compiled again; files that are loaded stay usable without their names.
 */
export function pruneCache(limit = cacheLimit()): CacheContents {
  const { files, leftovers } = entries();
  for (const path of leftovers) rmSync(path, { recursive: true, force: true });
  let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  let count = files.length;
  if (bytes <= limit) return { files: count, bytes };
  const now = Date.now();
  const removable = files.filter(({ path, used }) => !own.has(path) && now - used > justUsed);
  for (const file of removable.sort((a, b) => a.used - b.used)) {
    if (bytes <= 0.9 * limit) break;
    rmSync(file.path, { force: true });
    bytes -= file.bytes;
    count--;
  }
  return { files: count, bytes };
}
