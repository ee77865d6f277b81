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
export function planFor<P>(
  options: StepOptions<P>,
  batch: Pick<RankBatch, "inputs" | "rows">,
  devices: number,
  memory: number | undefined,
  rates = ratesForPlans(devices),
  more: Pick<StepPlanOptions, "accumulation" | "orLeast"> = {},
): { plan: StepPlan; state: TrainState<P> } {
  const state = abstractState(options);
  const tracer = new StepExecutables(options, new StatePlacement(replicatedDecision(1), 0));
  const { fn, roles } = tracer.trace(state, wholeBatch(batch));
  return { plan: planStep(fn, roles, { devices, rates, memory, bucketBytes: options.bucketBytes, ...more }), state };
}

/** Placement and programs of a run with a memory limit. */
export function placeRun<P>(
  options: StepOptions<P>,
  batch: RankBatch,
  group: RankGroup,
  memory: number,
  accumulation = 1,
  speeds?: readonly number[],
): { placement: StatePlacement; plan: StepPlan; bytes: number } {
  let limit = memory;
  let least = { bytes: Number.POSITIVE_INFINITY, name: "" };
  const tried = new Set<string>();
  for (;;) {
    const { plan, state } = planFor(options, batch, group.size, limit, undefined, { accumulation, orLeast: true });
    const { fits, bytes: estimate } = plan;
    // Ranks may have measured other rates: all of them follow the first one.
    const text = group.agree(JSON.stringify({ decision: { ...decisionOf(plan), speeds }, fits, estimate }));
    const agreed = JSON.parse(text) as { decision: PlacementDecision; fits: boolean; estimate: number };
    const placement = new StatePlacement(agreed.decision, group.rank);
    // The rank that needs most decides for all.
    const bytes = group.most(compiledBytes(options, placement, state, batch, accumulation > 1));
    if (bytes <= memory) return { placement, plan, bytes };
    if (bytes < least.bytes) least = { bytes, name: plan.name };
    if (!agreed.fits || tried.has(text))
      throw new TrainError(
        `no placement of the step fits in ${showBytes(memory)} per device: ${least.name} needs ${showBytes(least.bytes)}. ` +
          "Give more memory, more devices, or a smaller batch",
      );
    tried.add(text);
    // What the program needs beyond its estimate, another one will need too.
    limit = Math.min(memory - (bytes - agreed.estimate), 0.97 * agreed.estimate);
  }
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
  const { candidates, memory, rates, seconds } = plan;
  const reason = (candidate: (typeof candidates)[number]): string => {
    if (candidate.name === plan.name && candidate.seconds === seconds) return "chosen";
    if (candidate.bytes > memory) return `needs ${(candidate.bytes / memory).toFixed(2)}x the memory`;
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
  const table = [["placement", "memory per device", "step", "communicate", "rematerialize", ""], ...rows];
  const widths = table[0].map((_, i) => Math.max(...table.map((row) => row[i].length)));
  const lines = table.map((row) => `  ${row.map((cell, i) => cell.padEnd(widths[i])).join("  ")}`.trimEnd());
  const limit = Number.isFinite(memory) ? `at most ${showBytes(memory)} per device` : "no memory limit";
  const label = `predicted${rates.assumed ? ` for ${rates.name}` : " from measured rates"}`;
  return [
    `${plan.split.data * plan.split.model} devices, ${limit}: ${plan.name}`,
    `${showSeconds(seconds)} per step and ${showBytes(plan.bytes)} per device (${label}).`,
    "",
    ...lines,
  ].join("\n");
}
