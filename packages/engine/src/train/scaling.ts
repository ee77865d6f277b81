// Loss scaling for float16: gradients are computed of a scaled loss so that small ones do not vanish, and a step that
// overflows is left out and the scale halved. Constants are those of PyTorch's GradScaler.
import { minimum, type Tensor, tensor, where } from "../tensor/index.js";

export interface LossScaling {
  initial: number;
  /** false: the scale stays as it is; an overflow then ends the run. */
  dynamic: boolean;
}

export interface ScaleState {
  scale: Tensor;
  /** Steps since the last overflow or growth, int32. */
  streak: Tensor;
}

const growthInterval = 2000;
/** Below this no scale helps: the gradients are not merely too large for the format. */
export const leastScale = 2 ** -14;

export const scalingOf = (precision: string, given: number | "dynamic" | undefined): LossScaling | null => {
  if (precision !== "float16") return null;
  return typeof given === "number" ? { initial: given, dynamic: false } : { initial: 2 ** 16, dynamic: true };
};

export const freshScale = ({ initial }: LossScaling): ScaleState => ({
  scale: tensor(initial, { dtype: "float32" }),
  streak: tensor(0, { dtype: "int32" }),
});

/** The scale after a step: halved by an overflow, doubled after a long streak without one. */
export function nextScale(scaling: LossScaling, { scale, streak }: ScaleState, finite: Tensor): ScaleState {
  if (!scaling.dynamic) return { scale: scale.add(0), streak: streak.add(0) };
  const count = where(finite, streak.add(1), 0);
  const grow = count.greaterEqual(growthInterval);
  const larger = minimum(scale.mul(2), 2 ** 24);
  return {
    scale: where(finite, where(grow, larger, scale), scale.mul(0.5)),
    streak: where(grow, 0, count).cast("int32"),
  };
}
