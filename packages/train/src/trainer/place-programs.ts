// Decides where the state of a run is, replicated or as a plan under the memory limit says, and makes its step programs.
import { showBytes } from "@weft/core/internal/shard";
import type { RunConfig } from "./config.js";
import type { RankGroup } from "./group.js";
import { abstractState, placeRun } from "./plan-run.js";
import { leavesOf, parseMemory, replicatedDecision, StatePlacement } from "./state-placement.js";
import { type RankBatch, StepExecutables, type StepOptions } from "./step.js";
import type { DataShare } from "./task.js";

/**
 * The step programs of a rank, with the placement of its state.
 *
 * @param firstBatch - The shapes of the first batch, for a share of it.
 * @param note - Receives remarks for the user.
 */
export function placePrograms(
  steps: StepOptions,
  { distributed: { memory }, training }: RunConfig,
  group: RankGroup,
  speeds: readonly number[] | undefined,
  firstBatch: (share: DataShare) => RankBatch,
  note: (text: string) => void,
): StepExecutables {
  if (memory === undefined) {
    if (speeds !== undefined) note(`batches are divided by speed: ${speeds.join(" : ")}`);
    const replicated = { ...replicatedDecision(group.size), speeds };
    if (steps.compression === undefined) return new StepExecutables(steps, new StatePlacement(replicated, group.rank));
    const placement = new StatePlacement({ ...replicated, feedback: true }, group.rank);
    return new StepExecutables(steps, placement, leavesOf(abstractState(steps)));
  }
  const limits = parseMemory(memory, group.size);
  const batch = firstBatch({ rank: group.rank, ranks: group.size });
  const { placement, plan, bytes } = placeRun(steps, batch, group, limits, training.accumulation, speeds);
  note(`${plan.name}: ${showBytes(bytes)} of ${showBytes(Math.max(...limits))} per device`);
  const { speeds: weights } = placement.decision;
  if (weights !== undefined)
    note(`batches are divided ${weights.map((w) => (w / weights[0]).toPrecision(3)).join(" : ")}`);
  return new StepExecutables(steps, placement, leavesOf(abstractState(steps)));
}
