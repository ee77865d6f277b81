// Metadata of compiled programs on disk, by the structure of their graph. A process that finds an entry loads the code without
// scheduling or generating it again, which takes most of the time of a warm start. The key includes everything that a
// schedule depends on, including the files of this package. An invalid entry is ignored.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Aval, bytesOf, type GraphFn, numel, structuralKey } from "../../graph/index.js";
import { allSettings, settings } from "../../settings/index.js";
import { makeFolder } from "../cache-root.js";
import type { CompileOptions, KernelInfo } from "../contract.js";
import { addedToCache, isCached, kernelFolder } from "../kernel-cache.js";
import { type Extension, extensions } from "./native-units.js";
import { cachedLibrary, compilerIdentity } from "./toolchain.js";

export interface SavedProgram {
  /** The shared object's name in the cache. */
  library: string;
  kernels: KernelInfo[];
  scratchBytes: number;
  /** Result, and the parameter whose memory it takes over. */
  aliases: [number, number][];
  extensions: Extension[];
}

/** Below this number of kernels, scheduling is faster than reading a file. */
export const worthSaving = 12;

/** The layers whose code determines the generated programs. */
const layers = [
  "graph",
  "ops",
  "transform",
  "cost",
  "shard",
  "compile",
  "device",
  "device/native",
  "device/cpu",
  "device/cpu/native",
];

/** Changes with every build of this package: names, sizes and times of its files. */
export function engineIdentity(root = fileURLToPath(new URL("../..", import.meta.url))): string {
  const hash = createHash("sha256");
  for (const layer of layers)
    for (const name of readdirSync(join(root, layer)).sort()) {
      if (!/\.(js|c|h)$/.test(name) || name.endsWith(".test.js")) continue;
      const { size, mtimeMs } = statSync(join(root, layer, name));
      hash.update(`${layer}/${name} ${size} ${mtimeMs}\n`);
    }
  return hash.digest("hex");
}

let identity: string | null = null;

/** The file of a program; null if it is not saved: it is specialized on values, or debug output is on. */
export function programFile(fn: GraphFn, { donated = [], constants }: CompileOptions): string | null {
  const compiler = compilerIdentity();
  if (compiler === null || (constants?.size ?? 0) > 0 || settings.debug.get() > 0) return null;
  try {
    identity ??= engineIdentity();
  } catch {
    return null;
  }
  const laneSettings = allSettings()
    .filter(({ name }) => name.startsWith("WEFT_LANE"))
    .map((setting) => `${setting.name}=${setting.get()}`);
  const hash = createHash("sha256");
  for (const part of [identity, compiler, structuralKey(fn), donated.map(Number).join(""), ...laneSettings])
    hash.update(part).update("\0");
  return join(kernelFolder("cpu"), `${hash.digest("hex").slice(0, 40)}.json`);
}

const isCount = (value: unknown, below = Number.MAX_SAFE_INTEGER): boolean =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) < below;

const bytesIn = ({ shape, dtype }: Aval): number => numel(shape) * bytesOf(dtype);

/** Whether the content of a file is valid for this function. */
function fits(saved: SavedProgram, fn: GraphFn): boolean {
  return (
    /^[0-9a-f]{40}\.so$/.test(saved.library) &&
    isCount(saved.scratchBytes) &&
    Array.isArray(saved.extensions) &&
    saved.extensions.every((name) => extensions.includes(name)) &&
    saved.kernels.every(
      ({ name, kind, flops, bytes }) =>
        typeof name === "string" && kind && Number.isFinite(flops) && Number.isFinite(bytes),
    ) &&
    saved.aliases.every(
      ([result, param]) =>
        isCount(result, fn.outputs.length) &&
        isCount(param, fn.params.length) &&
        bytesIn(fn.outputs[result]) === bytesIn(fn.params[param]),
    )
  );
}

export function readSaved(file: string, fn: GraphFn): SavedProgram | null {
  try {
    if (!isCached(file)) return null;
    const saved = JSON.parse(readFileSync(file, "utf8")) as SavedProgram;
    return fits(saved, fn) && cachedLibrary(saved.library) !== null ? saved : null;
  } catch {
    return null;
  }
}

export function writeSaved(file: string, library: string, program: Omit<SavedProgram, "library">): void {
  try {
    makeFolder(kernelFolder("cpu"));
    const temporary = `${file}.${process.pid}.tmp`;
    writeFileSync(temporary, JSON.stringify({ library: basename(library), ...program }));
    renameSync(temporary, file);
    addedToCache(file);
  } catch {
    // Not writable: the next process schedules again.
  }
}
