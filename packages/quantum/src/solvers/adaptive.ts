// Adaptive Runge-Kutta methods as a loop that ends when it arrives. Step sizes are constants of differentiation.
import {
  abs,
  full,
  maximum,
  minimum,
  scan,
  stopGradient,
  type Tensor,
  tensor,
  where,
  whileLoop,
} from "@weft/core/internal/tensor";
import type { Tolerance } from "./methods.js";
import { type Snapshot, takePieces } from "./saves.js";
import type { Tableau } from "./tableaus.js";

interface AdaptiveRun {
  final: Tensor;
  /** At the saved pieces, [saves, ...]. */
  saved: Snapshot;
  report: { accepted: Tensor; reached: Tensor; error: Tensor };
}

/** Pieces of time: no step crosses the end of one. */
export interface TimePieces {
  /** Ends as fractions of the duration, ascending to 1. */
  ends: readonly number[];
  /** Indices of the pieces whose ends are saved. */
  picked: readonly number[];
  /** [pieces, ...]: values that are constant in a piece. */
  table: Tensor;
  /** Further times [n] as fractions of the duration at which steps end, or null. */
  breaks: Tensor | null;
}

/** d state / dt at a time. `u` holds the drives of the current piece if they are piecewise constant. */
type Rate = (state: Tensor, time: Tensor, u: Tensor) => Tensor;
interface Carry {
  y: Tensor;
  time: Tensor;
  h: Tensor;
  accepted: Tensor;
  /** Sum of the norms of the estimated errors of all steps. */
  error: Tensor;
}

/** The next state and the estimated errors of one step. */
export type Stages = (y: Tensor, time: Tensor, h: Tensor, u: Tensor) => { next: Tensor; estimates: Tensor[] };

/** Stages of states up to this size are written out, as code for every element. Larger ones would take long to compile. */
const unrolledTo = 9;
/** From this size on stages are written out, too: kernels, equal ones compiled once, that read only the stages with weights. */
const unrolledFrom = 1024;

/** Weighted sum of the stages, without those of weight zero. */
const combine = (weights: readonly number[], ks: readonly Tensor[], h: Tensor): Tensor | null =>
  weights.reduce<Tensor | null>((sum, w, j) => {
    if (w === 0) return sum;
    const part = ks[j].mul(h.mul(w));
    return sum === null ? part : sum.add(part);
  }, null);

const unrolledStages =
  ({ a, c, errors }: Tableau, rate: Rate): Stages =>
  (y, time, h, u) => {
    const ks: Tensor[] = [];
    let next = y;
    for (let stage = 0; stage < c.length; stage++) {
      const offset = combine(a[stage], ks, h);
      // The last stage is evaluated at the new state.
      next = offset === null ? y : y.add(offset);
      ks.push(rate(next, time.add(h.mul(c[stage])), u));
    }
    return { next, estimates: errors.map((e) => combine(e, ks, h)!) };
  };

/** Stages as a loop: the right-hand side is compiled once. */
const loopedStages =
  ({ a, c, errors }: Tableau, rate: Rate): Stages =>
  (y, time, h, u) => {
    const dtype = h.dtype;
    // A last stage that no estimate uses is not evaluated.
    const isLastUsed = errors.some((e) => (e[c.length - 1] ?? 0) !== 0);
    const n = isLastUsed ? c.length : c.length - 1;
    const wide = (row: readonly number[]): number[] => Array.from({ length: n }, (_, k) => row[k] ?? 0);
    const column = y.shape.map(() => 1);
    // Sum of the stages with the weights of a row [stages].
    const weighted = (ks: Tensor, row: Tensor): Tensor => ks.mul(row.mul(h).reshape([n, ...column])).sum(0);
    const [ks, states] = scan(
      (carry: Tensor, x: { row: Tensor; at: Tensor; own: Tensor }): [Tensor, Tensor] => {
        const state = y.add(weighted(carry, x.row));
        const k = rate(state, time.add(h.mul(x.at)), u);
        return [carry.add(k.unsqueeze(0).mul(x.own.reshape([n, ...column]))), state];
      },
      y
        .unsqueeze(0)
        .expand([n, ...y.shape])
        .mul(0),
      {
        row: tensor(a.slice(0, n).map(wide), { dtype }),
        at: tensor(c.slice(0, n), { dtype }),
        own: tensor(
          Array.from({ length: n }, (_, k) => Array.from({ length: n }, (_, j) => Number(j === k))),
          { dtype },
        ),
      },
    );
    return {
      next: isLastUsed ? states.index(n - 1) : y.add(weighted(ks, tensor(wide(a[n]), { dtype }))),
      estimates: errors.map((e) => weighted(ks, tensor(wide(e), { dtype }))),
    };
  };

/** Integrates from 0 to `duration` and takes snapshots at the ends of pieces. */
export function adaptive(
  rate: Rate,
  start: Tensor,
  duration: Tensor,
  { ends: given, picked, table, breaks }: TimePieces,
  {
    tableau,
    limits,
    emit,
    stages,
  }: {
    tableau: Tableau;
    limits: Tolerance;
    emit(state: Tensor): Snapshot;
    /** Stages in scaled time of a method that is not explicit. */
    stages?(duration: Tensor): Stages;
  },
): AdaptiveRun {
  const pieces = given.length;
  const dtype = duration.dtype;
  // Time runs from 0 to 1, so that the gradient with respect to the duration is that of the generator.
  const scaled: Rate = (y, time, u) => rate(y, time.mul(duration), u).mul(duration);
  const { order } = tableau;
  const longest = limits.maxStep === Number.POSITIVE_INFINITY ? null : duration.reciprocal().mul(limits.maxStep);
  const isLooped = start.size > unrolledTo && start.size < unrolledFrom;
  const stagesOf = stages?.(duration) ?? (isLooped ? loopedStages : unrolledStages)(tableau, scaled);
  const lengthOf = (x: Tensor): Tensor => abs(x).square().sum().sqrt();
  const norm = (x: Tensor, scale: Tensor): Tensor => abs(x).div(scale).square().mean();
  const step =
    (end: Tensor, u: Tensor) =>
    ({ y, time, h, accepted, error }: Carry): Carry => {
      // The next time at which a step must end.
      const stop = breaks === null ? end : where(breaks.greater(time), breaks, end).min().minimum(end);
      const left = stop.sub(time);
      const trial = stopGradient(minimum(longest === null ? h : minimum(h, longest), left));
      const { next, estimates } = stagesOf(y, time, trial, u);
      const scale = maximum(abs(y), abs(next)).mul(limits.relative).add(limits.absolute);
      const [high, low] = estimates.map((e) => norm(e, scale));
      const squared = low === undefined ? high : high.square().div(maximum(high.add(low.mul(0.01)), 1e-40));
      const size = stopGradient(maximum(squared.sqrt(), 1e-10));
      const good = size.lessEqual(1);
      const factor = size
        .pow(-1 / order)
        .mul(0.9)
        .clip(0.2, 5);
      return {
        y: where(good, next, y),
        // The last step ends exactly at the end of the piece.
        time: where(good, where(trial.less(left), time.add(trial), stop), time),
        // A step truncated at the end does not limit the next step size.
        h: stopGradient(where(good, maximum(trial.mul(factor), where(trial.less(h), h, 0)), trial.mul(factor))),
        accepted: accepted.add(where(good, 1, 0)),
        error: error.add(stopGradient(where(good, lengthOf(estimates[0]), 0))),
      };
    };
  const init: Carry = {
    y: start,
    time: full([], 0, { dtype }),
    h: full([], 1e-2 / pieces, { dtype }),
    accepted: full([], 0, { dtype }),
    error: full([], 0, { dtype }),
  };
  const advance = (carry: Carry, end: Tensor, u: Tensor): Carry =>
    whileLoop(({ time }) => time.less(end), step(end, u), carry, { maxTrips: limits.maxSteps });
  const ends = tensor([...given], { dtype });
  const arrivedAt = (after: Carry, end: Tensor): Tensor => arrived(after.y, after.time.greaterEqual(end));
  let last: Carry;
  let all: Snapshot;
  if (pieces === 1) {
    last = advance(init, ends.index(0), table.index(0));
    const { state, values } = emit(arrivedAt(last, ends.index(0)));
    const rows = (x: Tensor): Tensor => x.unsqueeze(0);
    all = {
      state: state.map(rows),
      values: Object.fromEntries(Object.entries(values).map(([name, x]) => [name, rows(x)])),
    };
  } else
    [last, all] = scan(
      (carry: Carry, x: { end: Tensor; u: Tensor }): [Carry, Snapshot] => {
        const after = advance(carry, x.end, x.u);
        return [after, emit(arrivedAt(after, x.end))];
      },
      init,
      { end: ends, u: table },
    );
  const reached = last.time.greaterEqual(1 - 1e-12);
  return {
    final: arrived(last.y, reached),
    saved: takePieces(all, pieces, picked),
    report: { accepted: last.accepted, reached, error: last.error },
  };
}

/** A state before the end is no result: NaN, so that no number that follows from it can be mistaken for one. */
const arrived = (y: Tensor, reached: Tensor): Tensor => where(reached, y, Number.NaN);
