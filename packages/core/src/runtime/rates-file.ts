// Measured rates on disk: one file per machine, device and number of neighbors. Files that are damaged, of another version or
// of another machine are ignored and measured again, and so are, after some minutes, those measured on a busy machine.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { parseRates, type Rates } from "../cost/index.js";
import { cacheRoot, type Device, makeFolder } from "../device/index.js";

/** Changes with what is measured and how. */
const version = 8;
/** Larger files were not written by Weft. */
const maxBytes = 1 << 20;

/** How long rates that were measured on a busy machine are used. */
const disturbedMinutes = 10;

/** What rates belong to. `neighbors`: devices of the same kind on this machine that were measured together. */
interface RatesKey {
  device: string;
  threads: number;
  neighbors: number;
  processor: string;
  cores: number;
  library: string;
}

export interface SavedRates {
  /** What was measured: device, threads, number of workers. */
  key: RatesKey;
  /** When they were measured, as ISO text. */
  measured: string;
  /** The measured rates. */
  rates: Rates;
}

function keyOf(device: Device, neighbors: number): RatesKey {
  const { threads = 0, blas = "" } = device as { threads?: number; blas?: string };
  const processor = cpus()[0]?.model.trim() ?? "unknown";
  return { device: device.name, threads, neighbors, processor, cores: cpus().length, library: blas };
}

const folder = (): string => join(cacheRoot(), "rates");

function fileOf(key: RatesKey): string {
  const text = JSON.stringify([version, ...Object.values(key)]);
  return join(folder(), `${createHash("sha256").update(text).digest("hex").slice(0, 16)}.json`);
}

function read(file: string): SavedRates | null {
  try {
    if (statSync(file).size > maxBytes) return null;
    const found = JSON.parse(readFileSync(file, "utf8")) as SavedRates & { version: number };
    if (found.version !== version || typeof found.measured !== "string" || fileOf(found.key) !== file) return null;
    const rates = parseRates(found.rates);
    const age = Date.now() - Date.parse(found.measured);
    if (!(age >= 0) || (isDisturbed(rates) && age > disturbedMinutes * 60e3)) return null;
    return { key: found.key, measured: found.measured, rates };
  } catch {
    return null;
  }
}

/** Stored rates of this machine; null if there are none. */
export const knownRates = (device: Device, neighbors = 1): Rates | null =>
  read(fileOf(keyOf(device, neighbors)))?.rates ?? null;

/** Whether other processes used the machine during the measurement. */
const isDisturbed = (rates: Rates): boolean => rates.disturbed === true || rates.crowded?.rates.disturbed === true;

/** Stores rates on disk; returns whether that worked. */
export function saveRates(device: Device, rates: Rates, neighbors = 1): boolean {
  const key = keyOf(device, neighbors);
  const file = fileOf(key);
  const own = `${file}.${process.pid}`;
  try {
    makeFolder(folder());
    writeFileSync(own, `${JSON.stringify({ version, key, measured: new Date().toISOString(), rates })}\n`);
    renameSync(own, file);
    return true;
  } catch {
    // A disk that cannot be written is no error: the next process measures again.
    try {
      rmSync(own, { force: true });
    } catch {
      // Nor is one that has no such folder.
    }
    return false;
  }
}

/** All stored rates of this machine. */
export function savedRates(): SavedRates[] {
  let names: string[] = [];
  try {
    names = readdirSync(folder());
  } catch {
    return [];
  }
  const processor = cpus()[0]?.model.trim() ?? "unknown";
  return names
    .flatMap((name) => (name.endsWith(".json") ? (read(join(folder(), name)) ?? []) : []))
    .filter(({ key }) => key.processor === processor && key.cores === cpus().length)
    .sort((a, b) => a.key.neighbors - b.key.neighbors || a.key.threads - b.key.threads);
}
