// The on-disk cache of compiled kernels that all processes of a user share: its paths and its size limit. A process that adds a
// file checks the limit from time to time and removes the least recently used files. Independent of compilers.
import { readdirSync, rmSync, type Stats, statSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { WeftError } from "../graph/index.js";
import { settings } from "../settings/index.js";
import { cacheRoot, privateCacheIfMade } from "./cache-root.js";

/** Folders of kernels below the root. Other folders there (rates, data, environments) are neither counted nor removed. */
const kernelFolders = ["cpu", "cuda", "emulated"] as const;
type KernelFolder = (typeof kernelFolders)[number];
export const kernelFolder = (name: KernelFolder): string => join(cacheRoot(), name);

/** Paths of a cache file: in the cache, and in the private folder of this process. */
export function cachePlaces(name: KernelFolder, file: string): string[] {
  const own = privateCacheIfMade();
  const folders = [kernelFolder(name), ...(own === null ? [] : [join(own, name)])];
  return [...new Set(folders)].map((folder) => join(folder, file));
}

const day = 24 * 3600e3;
/** Files younger than this are not removed: another process may have found one and not opened it yet. */
const justUsed = 10 * 60e3;
/** Minimum time between two checks of the limit over all processes, and number of added files within one process. */
const lookEvery = 10 * 60e3;
const lookAfter = 256;

/** Maximum size of the kernel cache on disk in bytes. */
export const cacheLimit = (): number => settings.cacheBytes.get();

/** When this process last looked for a file that it found or added: it removes none that it may be about to open. */
const lookedAt = new Map<string, number>();
let added = 0;

function noteUse(path: string): void {
  lookedAt.delete(path);
  lookedAt.set(path, Date.now());
  // The oldest come first. A process that never ends must remember neither every file nor keep them all on disk.
  for (const [oldest, time] of lookedAt) {
    if (Date.now() - time < justUsed) break;
    lookedAt.delete(oldest);
  }
}

/** Size and times of a file; null if it cannot be read. */
function lookAt(path: string): Stats | null {
  try {
    return statSync(path, { throwIfNoEntry: false }) ?? null;
  } catch {
    return null;
  }
}

/** Code is loaded from here: files of other users, or that every user may write, are ignored. */
const isOurs = ({ uid, mode }: Stats): boolean =>
  process.getuid === undefined || ((uid === process.getuid() || uid === 0) && (mode & 0o002) === 0);

/** Whether a file is in the cache. A hit updates the file's time, at most once a day. */
export function isCached(path: string): boolean {
  const found = lookAt(path);
  if (found === null || !isOurs(found)) return false;
  noteUse(path);
  const now = Date.now();
  if (now - found.mtimeMs > day) {
    try {
      utimesSync(path, now / 1e3, now / 1e3);
    } catch {
      // A read-only cache keeps its times.
    }
  }
  return true;
}

/** Records that a file was added, and prunes the cache from time to time. */
export function addedToCache(path: string): void {
  noteUse(path);
  added++;
  const stamp = join(dirname(path), "..", ".pruned");
  const last = lookAt(stamp)?.mtimeMs ?? 0;
  if (Date.now() - last < lookEvery && added % lookAfter !== 0) return;
  try {
    writeFileSync(stamp, "");
    pruneCache();
  } catch (error) {
    if (error instanceof WeftError) throw error;
    // Not writable, or the disk is full: the cache is not pruned.
  }
}

interface Entry {
  path: string;
  bytes: number;
  used: number;
}

/** Finished files by age, and temporary files of killed processes. */
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
      const [ours, rest] = /^[0-9a-f]{32,40}\.(?:so|o|cubin|json|self-test)(.*)$/.exec(file) ?? [];
      if (ours === undefined) continue;
      if (rest === "") files.push({ path, bytes: found.size, used: found.mtimeMs });
      else if (Date.now() - found.mtimeMs > day) leftovers.push(path);
    }
  }
  return { files, leftovers };
}

interface CacheContents {
  files: number;
  bytes: number;
}

export function cacheContents(): CacheContents {
  const { files } = entries();
  return { files: files.length, bytes: files.reduce((sum, { bytes }) => sum + bytes, 0) };
}

/**
 * Removes the least recently used files until a tenth of the limit is free. Several processes may do this at once, and a file
 * that is gone when somebody opens it is compiled again; files that are loaded stay usable without their names.
 */
export function pruneCache(limit = cacheLimit()): CacheContents {
  const { files, leftovers } = entries();
  for (const path of leftovers) rmSync(path, { recursive: true, force: true });
  let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  let count = files.length;
  if (bytes <= limit) return { files: count, bytes };
  const now = Date.now();
  const removable = files.filter(({ path, used }) => now - Math.max(used, lookedAt.get(path) ?? 0) > justUsed);
  for (const file of removable.sort((a, b) => a.used - b.used)) {
    if (bytes <= 0.9 * limit) break;
    rmSync(file.path, { force: true });
    bytes -= file.bytes;
    count--;
  }
  return { files: count, bytes };
}
