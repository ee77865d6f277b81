// Chooses the placement of a run: plans its step under the memory limit, and checks that the compiled program fits.
import { h200, type Rates, serverCore } from "@weft/core/internal/cost";
import { bytesOf, numel } from "@weft/core/internal/graph";
import { build } from "@weft/core/internal/ops";
import { knownRates, session, tracing } from "@weft/core/internal/runtime";
import {
  evenBounds,
  planStep,
  type StepPlan,
  type StepPlanOptions,
  showBytes,
  showSeconds,
} from "@weft/core/internal/shard";
import { Tensor, treeLeaves, treeMap, zeros } from "@weft/core/internal/tensor";
import { boundsBySpeed } from "../data/index.js";
import { TrainError } from "./errors.js";
import type { RankGroup } from "./group.js";
import { decisionOf, leavesOf, type PlacementDecision, replicatedDecision, StatePlacement } from "./state-placement.js";
import { type RankBatch, StepExecutables, type StepOptions, type TrainState } from "./step.js";

/** A tensor of a shape and dtype that is never computed. */
const placeholder = ({ shape, dtype }: Tensor): Tensor => new Tensor(build.input(shape, dtype));

/** The state of a run as placeholders: nothing is allocated, whatever its size. */
export function abstractState<P>({ task, optimizer, scaling, window, dtype }: StepOptions<P>): TrainState<P> {
  const from = new Tensor(build.input([2], "int32"));
  const params = treeMap(
    placeholder,
    tracing(() => task.init(from)),
  );
  const inner = tracing(() => (scaling?.optimizer ?? optimizer).init(params));
  const scalar = (): Tensor => new Tensor(build.input([], "int32"));
  return {
    params,
    optimizer: treeMap(placeholder, inner),
    modelState: treeMap(placeholder, tracing(() => task.modelState?.() ?? {}) as Tensor),
    halted: scalar(),
    step: scalar(),
    log: new Tensor(build.input([window, 5], dtype)),
  };
}

/** Rates for plans: measured ones of this machine, or typical ones. */
function ratesForPlans(ranks: number): Rates {
  const { device } = session();
  return knownRates(device, ranks) ?? knownRates(device) ?? (device.traits.usesHostCores ? serverCore : h200);
}

/** The batch of all ranks as placeholders. */
const wholeBatch = ({ inputs, rows }: Pick<RankBatch, "inputs" | "rows">): unknown =>
  treeMap(({ shape, dtype }) => new Tensor(build.input([rows, ...shape.slice(1)], dtype)), inputs as Tensor);

/** Plans the step of a run for a batch; ranks get the plan of rank 0. */
export function planRun<P>(
  options: StepOptions<P>,
  batch: Pick<RankBatch, "inputs" | "rows">,
  devices: number,
  memory: StepPlanOptions["memory"],
  rates = ratesForPlans(devices),
  more: Pick<StepPlanOptions, "accumulation" | "orLeast" | "speeds"> = {},
): { plan: StepPlan; state: TrainState<P> } {
  const state = abstractState(options);
  const tracer = new StepExecutables(options, new StatePlacement(replicatedDecision(1), 0));
  const { fn, roles } = tracer.trace(state, wholeBatch(batch));
  return { plan: planStep(fn, roles, { devices, rates, memory, bucketBytes: options.bucketBytes, ...more }), state };
}

/** Placement and programs of a run with memory limits, one for each rank. */
export function placeRun<P>(
  options: StepOptions<P>,
  batch: RankBatch,
  group: RankGroup,
  memory: readonly number[],
  accumulation = 1,
  speeds?: readonly number[],
): { placement: StatePlacement; plan: StepPlan; bytes: number } {
  // What is left free on every device, because programs need more than their estimates.
  let spare = 0;
  const tried = new Set<string>();
  const more = { accumulation, speeds, orLeast: true };
  for (;;) {
    const limits = memory.map((bytes) => Math.max(1, bytes - spare));
    const { plan, state } = planRun(options, batch, group.size, limits, undefined, more);
    const { fits, bytes: estimate, limit } = plan;
    // Ranks may have measured other rates: all of them follow the first one.
    const text = group.agree(JSON.stringify({ decision: decisionOf(plan), fits, estimate, limit }));
    const agreed = JSON.parse(text) as { decision: PlacementDecision; fits: boolean; estimate: number; limit: number };
    const placement = new StatePlacement(agreed.decision, group.rank);
    const bytes = compiledBytes(options, placement, state, batch, accumulation > 1);
    // The rank that is most above its limit decides for all.
    const over = group.most(bytes - memory[group.rank]);
    if (over <= 0) return { placement, plan, bytes: group.most(bytes) };
    // What the program needs beyond its estimate, another one will need too.
    const beyond = over - (agreed.estimate - (agreed.limit + spare));
    if (!agreed.fits || tried.has(text)) {
      const limit = agreed.limit + spare;
      throw nothingFits(options, batch, { name: plan.name, bytes: over + limit, limit }, memory, more, beyond);
    }
    tried.add(text);
    spare = Math.max(beyond, agreed.limit + spare - 0.97 * agreed.estimate);
  }
}

/** Time for the search of a number of devices that would do. */
const adviceSeconds = 10;

/**
 * The error of a run that fits in no placement, with the number of such devices that would do.
 *
 * @param beyond - Bytes that programs need beyond their estimates.
 */
export function nothingFits<P>(
  options: StepOptions<P>,
  batch: Pick<RankBatch, "inputs" | "rows">,
  { name, bytes, limit }: Pick<StepPlan, "name" | "bytes" | "limit">,
  memory: readonly number[],
  how: Pick<StepPlanOptions, "accumulation" | "speeds">,
  beyond = 0,
): TrainError {
  const begin = performance.now();
  // Further devices are like the smallest and slowest one.
  const smallest = Math.min(...memory);
  const { speeds } = how;
  const enough = [1.25, 1.5, 2, 3, 4]
    .map((factor) => Math.ceil(factor * memory.length))
    .find((count) => {
      if (count > batch.rows || performance.now() - begin > 1e3 * adviceSeconds) return false;
      const limits = Array.from({ length: count }, (_, i) => Math.max(1, (memory[i] ?? smallest) - beyond));
      const own = speeds && limits.map((_, i) => speeds[i] ?? Math.min(...speeds));
      return planRun(options, batch, count, limits, undefined, { ...how, speeds: own, orLeast: true }).plan.fits;
    });
  const advice =
    enough === undefined
      ? "Give more memory, more devices, or a smaller batch"
      : `About ${enough} such devices would do (predicted); or give more memory, or a smaller batch`;
  return new TrainError(
    `no placement of the step fits in ${showBytes(limit)} per device: ${name} needs ${showBytes(bytes)}. ${advice}`,
  );
}

/** Bytes that the compiled programs of a step need on this rank. */
export function compiledBytes<P>(
  options: StepOptions<P>,
  placement: StatePlacement,
  whole: TrainState<P>,
  batch: RankBatch,
  accumulates = false,
): number {
  const leaves = leavesOf(whole);
  const placed = placement.ofState(leaves);
  let i = 0;
  const local = treeMap((leaf) => {
    const at = i++;
    return zeros(placed[at].localShape(placement.rank, leaf.shape), { dtype: leaf.dtype });
  }, whole);
  const { rank, ranks, speeds } = placement.share;
  const bounds = speeds === undefined ? evenBounds(batch.rows, ranks) : boundsBySpeed(batch.rows, speeds);
  const count = bounds[rank + 1] - bounds[rank];
  const inputs = treeMap(
    (leaf) => zeros([count, ...leaf.shape.slice(1)], { dtype: leaf.dtype }),
    batch.inputs as Tensor,
  );
  const programs = new StepExecutables(options, placement, leaves);
  const working = programs.workingBytes(local, { ...batch, inputs, bounds }, accumulates);
  const held = [...treeLeaves(local), ...treeLeaves(inputs)].reduce((n, t) => n + numel(t.shape) * bytesOf(t.dtype), 0);
  return held + working;
}

/** The candidates of a plan as a table, the chosen one first, with the reason for each. */
export function explainStep(plan: StepPlan): string {
  const { candidates, rates, seconds } = plan;
  const reason = (candidate: (typeof candidates)[number]): string => {
    if (candidate.name === plan.name && candidate.seconds === seconds) return "chosen";
    if (candidate.bytes > candidate.limit) return `needs ${(candidate.bytes / candidate.limit).toFixed(2)}x the memory`;
    return candidate.seconds > seconds ? `${(candidate.seconds / seconds).toFixed(2)}x the time` : "no faster";
  };
  const rows = [...new Map([...candidates].reverse().map((c) => [c.name, c])).values()]
    .sort((a, b) => Number(b.name === plan.name) - Number(a.name === plan.name) || a.seconds - b.seconds)
    .map((c) => [
      c.name,
      showBytes(c.bytes),
      showSeconds(c.seconds),
      showSeconds(c.communicate),
      showSeconds(c.recompute),
      reason(c),
    ]);
  const head = ["placement", "memory per device", "step", "communicate", "rematerialize", ""];
  const limits = [...new Set(plan.devices.memory)].sort((a, b) => a - b);
  const limit = !Number.isFinite(limits[0])
    ? "no memory limit"
    : `at most ${limits.length === 1 ? "" : `${showBytes(limits[0])} to `}${showBytes(limits[limits.length - 1])} per device`;
  const label = `predicted${rates.assumed ? ` for ${rates.name}` : " from measured rates"}`;
  return [
    `${plan.split.data * plan.split.model} devices, ${limit}: ${plan.name}`,
    `${showSeconds(seconds)} per step and ${showBytes(plan.bytes)} per device (${label}).`,
    "",
    ...tableOf([head, ...rows]),
    ...(plan.parts.length === 0
      ? []
      : ["", "Devices differ; the step waits for the one that computes longest.", "", ...tableOf(partsOf(plan))]),
  ].join("\n");
}

/** What each device has of a step. */
const partsOf = ({ parts }: StepPlan): string[][] => [
  ["device", "speed", "rows", "compute", "memory", "limit"],
  ...parts.map(({ rank, speed, rows, seconds, bytes, memory }) => [
    String(rank),
    `${speed.toFixed(2)}x`,
    String(rows),
    showSeconds(seconds),
    showBytes(bytes),
    Number.isFinite(memory) ? showBytes(memory) : "none",
  ]),
];

/** Lines of a table whose columns are aligned. */
function tableOf(table: readonly (readonly string[])[]): string[] {
  const widths = table[0].map((_, i) => Math.max(...table.map((row) => row[i].length)));
  return table.map((row) => `  ${row.map((cell, i) => cell.padEnd(widths[i])).join("  ")}`.trimEnd());
}
