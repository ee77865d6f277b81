// Rows on machines that are not here: the planner's prices for a row at a device count. Everything from here is a prediction.
import { WeftError } from "../graph/index.js";
import { h200, plan, type Rates } from "../shard/index.js";
import { copyGraph, simplify } from "../transform/index.js";
import { batchOf, graphOf, type RowSpec, withBatch } from "./rows.js";

const machines: Record<string, Rates> = { h200 };

export function ratesOf(machine: string): Rates {
  const rates = machines[machine.toLowerCase()];
  if (rates === undefined)
    throw new WeftError(`--simulate ${machine}: known machines are ${Object.keys(machines).join(", ")}`);
  return rates;
}

function planRow(row: RowSpec, devices: number, rates: Rates) {
  const fn = simplify(copyGraph(graphOf(row)));
  const ranks = Array.from({ length: devices }, (_, i) => i);
  return plan(fn, { ranks, rates, params: fn.params.map(() => null) });
}

export interface Prediction {
  seconds: number;
  single: number;
  devicesUsed: number;
  bytes: number;
  name: string;
}

export function predictRow(row: RowSpec, devices: number, rates: Rates): Prediction {
  const found = planRow(row, devices, rates);
  const chosen = found.alternatives.find((a) => a.mesh.key === found.mesh.key && a.name === found.name);
  return {
    seconds: found.seconds,
    single: found.single,
    devicesUsed: found.mesh.size,
    bytes: (chosen?.bytes ?? 0) * found.mesh.size,
    name: found.name,
  };
}

/** The smallest batch (a power of two times this row's, up or down) for which the planner uses more than one device. */
export function paysFrom(row: RowSpec, devices: number, rates: Rates): number | null {
  const uses = (batch: number): boolean => planRow(withBatch(row, batch), devices, rates).mesh.size > 1;
  let batch = batchOf(row);
  if (uses(batch)) {
    while (batch >= 2 && uses(batch >> 1)) batch >>= 1;
    return batch;
  }
  for (let i = 0; i < 16; i++) {
    batch *= 2;
    if (uses(batch)) return batch;
  }
  return null;
}
