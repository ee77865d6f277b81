// Properties of this machine: compiler, libraries, kernel cache, devices. Measures nothing.
import { accessSync, constants } from "node:fs";
import { findCompiler } from "./device/cpu/compiler.js";
import { findOpenBlas } from "./device/cpu/openblas.js";
import { compilerSelfTest, type SelfTest } from "./device/cpu/toolchain.js";
import { cudaLibraries, type LibraryName, type LibraryPaths, libraryVersions } from "./device/cuda/index.js";
import { cacheContents, cacheLimit, cacheRoot, makeFolder } from "./device/index.js";
import { type SavedRates, savedRates } from "./runtime/index.js";

/** The C compiler that programs are built with, or null. */
export function compiler(): { command: string; version: string } | null {
  const found = findCompiler();
  return found === null ? null : { command: found.command, version: found.version };
}

/** Whether loops that this compiler vectorizes give right results (tested once, see the notice on stderr); null without one. */
export const compilerTest = (): SelfTest | null => compilerSelfTest();

/** The path of OpenBLAS, or null. How it was built to use threads is known once a CpuDevice has loaded it (`blas`). */
export const openBlas = (): string | null => findOpenBlas();

/** The kernel cache on disk. */
export interface CacheReport {
  /** Where it is. */
  folder: string;
  /** Number of files. */
  files: number;
  /** Size of all files. */
  bytes: number;
  /** Size limit; the least recently used files are removed above it (WEFT_CACHE_BYTES). */
  limitBytes: number;
  /** Whether new programs can be stored. */
  writable: boolean;
}

/** The folder of compiled programs and what is in it. */
export function cache(): CacheReport {
  const folder = cacheRoot();
  let writable = true;
  try {
    makeFolder(folder);
    accessSync(folder, constants.W_OK);
  } catch {
    writable = false;
  }
  return { folder, ...cacheContents(), limitBytes: cacheLimit(), writable };
}

/** Stored rates of this machine, by device, threads and number of workers that were measured together. */
export const rates = (): SavedRates[] => savedRates();

/** NVIDIA's libraries by path (null where one is missing); null without a driver. */
export const cuda = (): LibraryPaths | null => cudaLibraries()?.paths ?? null;

/** Their versions (the driver's is the newest CUDA that it supports); null where one is missing or does not say. */
export function cudaVersions(): Record<LibraryName, string | null> | null {
  const found = cudaLibraries();
  return found === null ? null : libraryVersions(found);
}

export { availableDevices as devices, gpuCount } from "./device/index.js";
