// Where measured rates wait for the next process: a file a machine, device and number of neighbours. Files that are
// damaged, of another version or of another machine count as absent: what they should say is measured again. So do those
// that were measured while others used the machine, after some minutes.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { parseRates, type Rates } from "../cost/index.js";
import { cacheRoot, type Device, makeFolder } from "../device/index.js";

/** Changes with what is measured and how. */
const version = 7;
/** No file of ours comes near it. */
const maxBytes = 1 << 20;

/** What was measured on a busy machine is better than nothing for this long. */
const disturbedMinutes = 10;

/** What rates are about. `neighbours`: devices of the same kind on this machine that were measured together. */
export interface RatesKey {
  device: string;
  threads: number;
  neighbours: number;
  processor: string;
  cores: number;
  library: string;
}

export interface SavedRates {
  key: RatesKey;
  /** When they were measured, as ISO text. */
  measured: string;
  rates: Rates;
}

function keyOf(device: Device, neighbours: number): RatesKey {
  const { threads = 0, blas = "" } = device as { threads?: number; blas?: string };
  const processor = cpus()[0]?.model.trim() ?? "unknown";
  return { device: device.name, threads, neighbours, processor, cores: cpus().length, library: blas };
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

/** What was measured on this machine before; null where nothing was. */
export const knownRates = (device: Device, neighbours = 1): Rates | null =>
  read(fileOf(keyOf(device, neighbours)))?.rates ?? null;

/** Whether others worked on the machine meanwhile. */
export const isDisturbed = (rates: Rates): boolean =>
  rates.disturbed === true || rates.crowded?.rates.disturbed === true;

/** Keeps rates for the next time; true where it could. */
export function saveRates(device: Device, rates: Rates, neighbours = 1): boolean {
  const key = keyOf(device, neighbours);
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

/** Everything that was measured on this machine. */
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
    .sort((a, b) => a.key.neighbours - b.key.neighbours || a.key.threads - b.key.threads);
}
