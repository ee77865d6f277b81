// Rates of a worker for the planner: measured earlier on this machine, or measured now. Workers started by one launcher
// measure together: each on its own, all at once, and the links between them.
import { cpus } from "node:os";
import type { Rates } from "@weft/core/internal/cost";
import { type Device, ShmGroup } from "@weft/core/internal/device";
import { allAgree, isQuiet, knownRates, measureGroup, ratesOf, saveRates } from "@weft/core/internal/runtime";
import { logDebug } from "./debug.js";
import { clusterSettings } from "./settings.js";

/** The workers of one launcher: this worker's rank among them, their number, and the name of their group. */
interface Neighbors {
  rank: number;
  count: number;
  name: string;
}

export interface CalibrateOptions {
  /** True: measure again. False: never measure. Default: measure once per machine. */
  calibrate?: boolean;
  neighbors?: Neighbors;
}

/** Seconds that workers wait for each other before they fall back to assumed rates. */
const patience = 20;

/** WEFT_RATES=assumed: tests set it, so that plans do not depend on the load of the machine. */
const isAssumed = (): boolean => clusterSettings.rates.get() === "assumed";

/** Null if nothing is measured and the planner has to assume rates. */
export function workerRates(device: Device, { calibrate, neighbors }: CalibrateOptions): Rates | null {
  const count = neighbors?.count ?? 1;
  if (calibrate === false || (calibrate === undefined && isAssumed())) return null;
  const cached = calibrate ? null : knownRates(device, count);
  if (cached !== null) return cached;
  if (!device.traits.sharesHost)
    return calibrate && device.traits.asynchronous ? ratesOf(device, { fresh: true }) : null;
  // More workers than cores would measure each other.
  if (count * device.traits.threads > cpus().length) return null;
  // Measurements on a busy machine are wrong and slow: take them only on request.
  if (neighbors === undefined || count === 1) {
    if (!calibrate && !isQuiet()) return null;
    announce();
    return ratesOf(device, { fresh: calibrate });
  }
  return measureTogether(device, neighbors, calibrate ?? false);
}

/** Measuring takes seconds; the terminal and the log say why the worker is silent. */
function announce(): void {
  const text = "measuring this device for the planner, once per machine (WEFT_RATES=assumed skips it)";
  if (process.stderr.isTTY) process.stderr.write(`weft worker: ${text}\n`);
  logDebug("worker", () => text);
}

function measureTogether(device: Device, { rank, count, name }: Neighbors, isForced: boolean): Rates | null {
  let group: ShmGroup | null = null;
  try {
    group = ShmGroup.join(name, rank, count, { joinTimeout: patience });
    if (!allAgree(group, isForced || isQuiet())) return null;
    announce();
    device.group = group;
    const rates = measureGroup(group, device);
    if (rates !== null) saveRates(device, rates, count);
    group.barrier();
    return rates ?? knownRates(device, count);
  } catch (error) {
    logDebug("worker", () => `the workers could not measure together: ${(error as Error).message}`);
    return null;
  } finally {
    device.group = null;
    group?.close();
  }
}
