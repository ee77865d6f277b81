// Memory of a training step on one device, by the life of every value after the step is rewritten for a decision.
import { functionOrder, topological } from "../graph/index.js";
import { markOf } from "./marks.js";
import type { DeviceGrid, DeviceShare } from "./step-devices.js";
import { peakBytes, type StepModel, type StepSplit } from "./step-model.js";
import { rewriteStep } from "./step-rewrite.js";

/**
 * How a parameter is divided over the ranks of the data axis, and over those of the model axis if that does not split it. 0: not
 * at all. 1: its optimizer state (ZeRO-1); gradients of micro-steps are added up whole, and exchanged once. 2: its gradient too
 * (ZeRO-2), exchanged in every micro-step. 3: the parameter too, gathered where it is used (ZeRO-3).
 */
export type Stage = 0 | 1 | 2 | 3;

/** What is divided over ranks, by number of the parameter, and which segments are rematerialized. */
interface Decided {
  stages: readonly Stage[];
  rematerialized: ReadonlySet<number>;
}

/** Axes that may divide the state of a parameter, how many devices they have, and the size of the dimension that they divide. */
export function zeroAxes(
  model: StepModel,
  i: number,
  split: StepSplit,
): { axes: string[]; parts: number; size: number } {
  const param = model.fn.params[model.roles.params[i]];
  const dim = split.model === 1 ? -1 : model.splitDim(param, split.classes);
  const size = Math.max(1, ...param.shape.filter((_, at) => at !== dim));
  return dim < 0
    ? { axes: ["data", "model"], parts: split.data * split.model, size }
    : { axes: ["data"], parts: split.data, size };
}

/** The part of a parameter's state that a device has once it is divided. */
export function zeroShare(model: StepModel, i: number, split: StepSplit, grid: DeviceGrid, rank: number): number {
  const { axes, size } = zeroAxes(model, i, split);
  return grid.stateShare(rank, size, axes);
}

/** Bytes that the values of a step need at one time, by split of a device and its parts of divided state. */
type LivePeak = (split: StepSplit, shares: readonly number[]) => number;

/** The largest number of bytes that live at one time, after the step is rewritten for a decision. */
export function livePeak(model: StepModel, { stages, rematerialized }: Decided): LivePeak {
  const { fn, roles } = model;
  const gathered = new Set(stages.flatMap((stage, i) => (stage === 3 ? [i] : [])));
  const rewritten = rewriteStep(fn, roles, {
    gathered,
    segmentOf: (node) => {
      const segment = model.segmentOf(node);
      return rematerialized.has(segment) && !model.crosses(node) ? segment : -1;
    },
  });
  const params = new Set(fn.params);
  // Ranks sum every gradient as soon as it is there, so that order decides what lives at one time.
  const gradients = functionOrder(rewritten.fn)
    .filter((node) => markOf(node)?.kind === "gradient")
    .sort((a, b) => a.depth - b.depth);
  const order = topological([...gradients, ...rewritten.fn.outputs], (node) => params.has(node));
  return (split, shares) =>
    peakBytes(order, (node) => {
      const source = rewritten.origin.get(node);
      if (source === undefined || params.has(node)) return 0;
      const mark = markOf(node);
      if (mark?.kind === "forward" || mark?.kind === "backward") return model.bytes(source, split);
      if (mark?.kind === "gradient")
        return stages[mark.index] >= 1 ? shares[mark.index] * model.bytes(source, split) : 0;
      // Updates are written in place of the state.
      if (mark !== null || model.phaseOf(source) === "update" || !model.isStored(source)) return 0;
      return (source.outputs ?? [source]).reduce((n, _, i) => n + model.bytes(source, split, i), 0);
    });
}

/** Bytes of a device by the life of every value. */
export function confirmedBytes(
  model: StepModel,
  { stages }: Decided,
  peak: LivePeak,
  split: StepSplit,
  { rank }: DeviceShare,
  grid: DeviceGrid,
  accumulation: number,
): number {
  const { fn, roles } = model;
  const shares = roles.params.map((_, i) => zeroShare(model, i, split, grid, rank));
  let persistent = fn.params.reduce((n, param) => n + model.bytes(param, split), 0);
  roles.params.forEach((at, i) => {
    const saved = 1 - shares[i];
    const whole = model.bytes(fn.params[at], split);
    if (stages[i] === 3) persistent -= saved * whole;
    if (stages[i] >= 1) for (const s of roles.states[i]) persistent -= saved * model.bytes(fn.params[s], split);
    // Sums of micro-steps.
    if (accumulation > 1) persistent += whole * (stages[i] >= 2 ? shares[i] : 1);
  });
  return persistent + peak(split, shares);
}
