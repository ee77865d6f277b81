// Predicted times of rows at a device count: for workers of this machine from the kernels that they will compile, for other
// machines from the planner's estimated cost of operations.
import { predictParts } from "@weft/cluster/internal";
import { h200, type Rates } from "@weft/core/internal/cost";
import { type GraphFn, WeftError } from "@weft/core/internal/graph";
import { partitionFunction, planSharding, type ShardingPlan } from "@weft/core/internal/shard";
import { copyGraph, simplify } from "@weft/core/internal/transform";
import { batchOf, graphOf, type RowSpec, resizeBatch } from "./rows.js";

const machines: Record<string, Rates> = { h200 };

export function machineRates(machine: string): Rates {
  const rates = machines[machine.toLowerCase()];
  if (rates === undefined)
    throw new WeftError(`--simulate ${machine}: known machines are ${Object.keys(machines).join(", ")}`);
  return rates;
}

function planRow(row: RowSpec, devices: number, rates: Rates): { fn: GraphFn; plan: ShardingPlan } {
  const fn = simplify(copyGraph(graphOf(row)));
  const ranks = Array.from({ length: devices }, (_, i) => i);
  return { fn, plan: planSharding(fn, { ranks, rates, params: fn.params.map(() => null) }) };
}

/** Predicted seconds of a row on CPU workers with these rates, from the kernels of the slowest worker. */
export function expectRow(row: RowSpec, devices: number, rates: Rates): number {
  const { fn, plan: made } = planRow(row, devices, rates);
  const { mesh, params, strategy, results } = made;
  return predictParts(partitionFunction(fn, { mesh, params, strategy: (node) => strategy(node), results }), rates)
    .seconds;
}

interface RowPrediction {
  seconds: number;
  single: number;
  devicesUsed: number;
  bytes: number;
  name: string;
}

export function predictRow(row: RowSpec, devices: number, rates: Rates): RowPrediction {
  const { plan: found } = planRow(row, devices, rates);
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
  const uses = (batch: number): boolean => planRow(resizeBatch(row, batch), devices, rates).plan.mesh.size > 1;
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
