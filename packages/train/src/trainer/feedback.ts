// Error feedback of compressed gradients: what a rank did not send of its gradients is part of the optimizer state, so that
// checkpoints hold it and a resumed run continues bit for bit.
import { type Tensor, treeLeaves, zeros } from "@weft/core/internal/tensor";
import type { Optimizer } from "@weft/core/optim";
import { mark } from "./markers.js";

/** Optimizer state with the error feedback of parameters, by their number: [ranks, ...shape of the parameter]. */
interface WithFeedback {
  inner: unknown;
  feedback: Record<string, Tensor>;
}

/** Gradients with fewer elements are sent as they are. */
const leastElements = 1024;

/** Whether a tensor of the optimizer state, by its dotted name, is error feedback. */
export const isFeedback = (name: string): boolean => /^feedback\.\d+$/.test(name);

/** The optimizer with error feedback in its state; the collective pass of the compiler replaces the marked values. */
export function withFeedback(optimizer: Optimizer<unknown>, ranks: number): Optimizer<unknown> {
  return {
    ...optimizer,
    init(params: unknown): WithFeedback {
      const feedback = treeLeaves(params).flatMap((leaf, i) =>
        leaf.size < leastElements ? [] : [[String(i), zeros([ranks, ...leaf.shape], { dtype: leaf.dtype })] as const],
      );
      return { inner: optimizer.init(params as never), feedback: Object.fromEntries(feedback) };
    },
    update(params: unknown, gradients: unknown, state: unknown) {
      const { inner, feedback } = state as WithFeedback;
      const [next, after] = optimizer.update(params as never, gradients as never, inner as never);
      const carried = Object.entries(feedback).map(([i, kept]) => [i, mark(kept, "feedback", Number(i))] as const);
      return [next, { inner: after, feedback: Object.fromEntries(carried) }] as never;
    },
  } as Optimizer<unknown>;
}
