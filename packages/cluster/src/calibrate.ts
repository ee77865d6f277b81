// What a worker tells the planner about itself: what was measured on this machine before, or is measured now, once. Workers
// that a launcher started together measure together: each alone, all at once, and the links between them.
import { cpus } from "node:os";
import type { Rates } from "@weft/core/internal/cost";
import { type Device, ShmGroup } from "@weft/core/internal/device";
import { allAgree, isQuiet, knownRates, measureGroup, ratesOf, saveRates } from "@weft/core/internal/runtime";
import { log } from "./debug.js";

/** The workers of one launcher: who this one is among them, and a name that only they know. */
export interface Neighbors {
  rank: number;
  count: number;
  name: string;
}

export interface CalibrateOptions {
  /** True: measure again. False: nothing is measured. Otherwise where this has not been done on this machine. */
  calibrate?: boolean;
  neighbors?: Neighbors;
}

/** Seconds that workers wait for each other before they measure alone. */
const patience = 20;

/** WEFT_RATES=assumed, as tests set it: what they see must not depend on how busy a machine is. */
const isAssumed = (): boolean => process.env.WEFT_RATES === "assumed";

/** Null where the planner has to assume. */
export function workerRates(device: Device, { calibrate, neighbors }: CalibrateOptions): Rates | null {
  const count = neighbors?.count ?? 1;
  if (calibrate === false || (calibrate === undefined && isAssumed())) return null;
  const known = calibrate ? null : knownRates(device, count);
  if (known !== null) return known;
  if (!device.traits.sharesHost)
    return calibrate && device.traits.asynchronous ? ratesOf(device, { fresh: true }) : null;
  // More workers than cores would measure each other.
  if (count * device.traits.threads > cpus().length) return null;
  // What is measured on a busy machine is wrong, and takes long: only who asks for it gets it.
  if (neighbors === undefined || count === 1) {
    if (!calibrate && !isQuiet()) return null;
    announce();
    return ratesOf(device, { fresh: calibrate });
  }
  return measureTogether(device, neighbors, calibrate ?? false);
}

/** Some seconds during which nothing else is heard of a worker: who watches is told why. */
function announce(): void {
  const text = "measuring this device for the planner, once a machine (WEFT_RATES=assumed skips it)";
  if (process.stderr.isTTY) process.stderr.write(`weft worker: ${text}\n`);
  log("worker", () => text);
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
    log("worker", () => `the workers could not measure together: ${(error as Error).message}`);
    return null;
  } finally {
    device.group = null;
    group?.close();
  }
}
