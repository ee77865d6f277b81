// The ranks of a run as the trainer sees them: sums over all of them, inside a jitted step and outside. One rank needs
// nothing.
import type { Tensor } from "../tensor/index.js";

export interface Group {
  readonly rank: number;
  readonly size: number;
  /** The sum over ranks, as part of a graph (inside jit). All ranks issue their sums in one order. */
  sum(value: Tensor): Tensor;
  /** Seconds spent in collectives and waiting for them since the start: in all, and with nothing else to do. */
  times(): { total: number; exposed: number };
  close(): void;
}

export const alone: Group = {
  rank: 0,
  size: 1,
  sum: (value) => value,
  times: () => ({ total: 0, exposed: 0 }),
  close: () => {},
};
