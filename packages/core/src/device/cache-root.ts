// The root folder of the on-disk cache, and whether it can be trusted: compiled code from it is executed. A folder that other
// users can write to is not used. Where nothing can be written, a private temporary folder replaces it.
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { homedir, tmpdir } from "node:os";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { settings } from "../settings/index.js";

const noticed = new Set<string>();

/** Prints a notice on stderr, once per process. */
export function noticeOnce(text: string): void {
  if (noticed.has(text)) return;
  noticed.add(text);
  process.stderr.write(`weft: ${text}\n`);
}

/** Makes a folder and those above it. The recursive form of Node does not return where the system refuses with ENOENT (/proc). */
export function makeFolder(folder: string): void {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true) return;
  if (dirname(folder) !== folder) makeFolder(dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if (!(statSync(folder, { throwIfNoEntry: false })?.isDirectory() ?? false)) throw error;
  }
}

let privateRoot: string | null = null;

/** A private folder of this process, removed at exit. */
function privateCache(): string {
  if (privateRoot !== null) return privateRoot;
  let failure: unknown = null;
  // A memory file system, in case the disk is full.
  for (const place of [tmpdir(), "/dev/shm"]) {
    try {
      const made = mkdtempSync(join(place, "weft-private-"));
      chmodSync(made, 0o700);
      process.once("exit", () => rmSync(made, { recursive: true, force: true }));
      privateRoot = made;
      return made;
    } catch (error) {
      failure ??= error;
    }
  }
  throw failure;
}

/** The private folder; null if it was not created. */
export const privateCacheIfMade = (): string | null => privateRoot;

/** The cache folder that the environment names; null if it names none. */
function wanted(): string | null {
  const given = settings.cacheDir.get();
  if (given !== undefined) return resolve(given);
  const shared = process.env.XDG_CACHE_HOME;
  if (shared !== undefined && isAbsolute(shared)) return join(shared, "weft");
  try {
    const home = homedir();
    return isAbsolute(home) ? join(home, ".cache", "weft") : null;
  } catch {
    return null;
  }
}

/** The reason why a folder must not be used; null if it may be. */
function distrust(folder: string): string | null {
  const { uid, gid, mode } = statSync(folder);
  const own = process.getuid?.();
  if (own === undefined) return null;
  if (uid !== own && uid !== 0) return `belongs to another user (uid ${uid})`;
  if ((mode & 0o002) !== 0) return "can be written by every user (chmod o-w makes it usable)";
  // Many systems give every user a group of the same number, which has no other members.
  if ((mode & 0o020) !== 0 && gid !== own) return "can be written by its group (chmod g-w makes it usable)";
  return null;
}

/** In a user namespace, users of the host that it does not know appear as this one. */
const unknownUser = 65_534;

/**
 * The reason why the folders above one must not be trusted: whoever can rename a folder in them can put another one in its place while it
 * is used.
 */
function distrustAbove(folder: string): string | null {
  const own = process.getuid?.();
  if (own === undefined) return null;
  for (let above = dirname(realpathSync(folder)); ; above = dirname(above)) {
    const { uid, mode } = statSync(above);
    // Only owners rename what is in a sticky folder, such as /tmp.
    const isSticky = (mode & 0o1000) !== 0;
    if (uid !== own && uid !== 0 && uid !== unknownUser)
      return `is in ${above}, which belongs to another user (uid ${uid})`;
    if ((mode & 0o002) !== 0 && !isSticky) return `is in ${above}, where every user can replace it`;
    if (dirname(above) === above) return null;
  }
}

const remedy = "set WEFT_CACHE_DIR to a folder of your own; until then kernels are compiled again by every process";
const decided = new Map<string, string>();

/** Creates a folder of the cache and checks that it is trusted; returns the reason if it cannot be used. */
function refusal(folder: string, below: readonly string[]): string | null {
  try {
    makeFolder(folder);
  } catch (error) {
    return `cannot be made (${(error as Error).message})`;
  }
  try {
    const found = distrust(folder) ?? distrustAbove(folder);
    if (found !== null) return found;
    for (const name of below) {
      const inner = join(folder, name);
      if (statSync(inner, { throwIfNoEntry: false }) === undefined) continue;
      const why = distrust(inner);
      if (why !== null) return `holds ${name}, which ${why}`;
    }
    return null;
  } catch (error) {
    return `cannot be read (${(error as Error).message})`;
  }
}

/** Folders below the root that code is loaded from. */
const codeFolders = ["cpu", "cuda", "emulated"];

/** The root of the cache that processes share, or the private folder if none can be trusted. */
export function cacheRoot(): string {
  const folder = wanted();
  const key = folder ?? "";
  const cached = decided.get(key);
  if (cached !== undefined) return cached;
  const why = folder === null ? "has no place, because there is no home folder" : refusal(folder, codeFolders);
  if (why !== null) noticeOnce(`the kernel cache${folder === null ? "" : ` ${folder}`} ${why}; ${remedy}`);
  const root = why === null ? folder! : privateCache();
  decided.set(key, root);
  return root;
}

const diskProblems = new Set([
  "EROFS",
  "EACCES",
  "EPERM",
  "ENOSPC",
  "EDQUOT",
  "ENOENT",
  "ENOTDIR",
  "EIO",
  "ELOOP",
  "ENAMETOOLONG",
]);
const diskMessages =
  /no space left on device|disk quota exceeded|read-only file system|error writing to|permission denied/i;

/** Whether an error means that a file could not be written. */
const isDiskProblem = (error: unknown): boolean =>
  diskProblems.has((error as NodeJS.ErrnoException).code ?? "") || diskMessages.test((error as Error).message ?? "");

function madeFolder(root: string, name: string): string {
  const folder = join(root, name);
  makeFolder(folder);
  return folder;
}

/** The folder to use after an error in the cache; throws the error if another folder does not help. */
function folderAfter(error: unknown, root: string, name: string): string {
  if (!isDiskProblem(error) || root === privateRoot) throw error;
  noticeOnce(
    `the kernel cache ${root} cannot be written (${(error as Error).message.split("\n").slice(0, 2).join(" ")}); ${remedy}`,
  );
  return madeFolder(privateCache(), name);
}

/** Writes a file to the cache, or to the private folder if the cache is not writable. */
export function inWritableFolder<T>(name: string, make: (folder: string) => T): T {
  const root = cacheRoot();
  try {
    return make(madeFolder(root, name));
  } catch (error) {
    return make(folderAfter(error, root, name));
  }
}

/** The same for what takes a while. */
export async function inWritableFolderAsync<T>(name: string, make: (folder: string) => Promise<T>): Promise<T> {
  const root = cacheRoot();
  try {
    return await make(madeFolder(root, name));
  } catch (error) {
    return await make(folderAfter(error, root, name));
  }
}

/** Random bytes that processes of this user share and others cannot read; created on first use. */
export function userSecret(): Buffer {
  return inWritableFolder("secret", (folder) => {
    const path = join(folder, "names");
    const read = (): Buffer | null => {
      const facts = statSync(path, { throwIfNoEntry: false });
      if (facts === undefined || (facts.mode & 0o077) !== 0 || facts.size < 32) return null;
      return readFileSync(path);
    };
    const found = read();
    if (found !== null) return found;
    const own = join(folder, `names.${process.pid}.${randomBytes(8).toString("hex")}`);
    writeFileSync(own, randomBytes(32), { mode: 0o600, flag: "wx" });
    try {
      linkSync(own, path);
    } catch {
      // Another process was faster.
    } finally {
      rmSync(own, { force: true });
    }
    return read() ?? Buffer.alloc(0);
  });
}
