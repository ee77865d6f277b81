// Tsitouras' adaptive Runge-Kutta method of orders 5 and 4, as a loop that ends when it arrives. Step sizes are constants of
// differentiation.
import {
  abs,
  full,
  maximum,
  minimum,
  scan,
  stopGradient,
  type Tensor,
  where,
  whileLoop,
} from "@weft/core/internal/tensor";
import type { Tolerance } from "./methods.js";

const c = [0, 0.161, 0.327, 0.9, 0.9800255409045097, 1, 1];
const a: readonly (readonly number[])[] = [
  [],
  [0.161],
  [-0.008480655492356989, 0.335480655492357],
  [2.8971530571054935, -6.359448489975075, 4.3622954328695815],
  [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
  [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383],
  [0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774],
];
// Difference of the weights of the two orders.
const e = [
  0.001780011052225777,
  0.000816434459656747,
  -0.007880878010261995,
  0.1447110071732629,
  -0.5823571654525552,
  0.45808210592918697,
  -1 / 66,
];

interface AdaptiveRun {
  final: Tensor;
  /** [pieces, ...] */
  states: Tensor;
  report: { accepted: Tensor; reached: Tensor };
}

/** d state / dt at a time. `u` holds the drives of the current piece if they are piecewise constant. */
type Rate = (state: Tensor, time: Tensor, u: Tensor) => Tensor;
interface Carry {
  y: Tensor;
  time: Tensor;
  h: Tensor;
  accepted: Tensor;
}

/**
 * Integrates from 0 to `duration` in equal pieces and returns the state at the end of each. No step crosses a piece boundary.
 * `table` [pieces, ...] holds the values that are constant in a piece.
 */
export function adaptive(rate: Rate, start: Tensor, duration: Tensor, table: Tensor, limits: Tolerance): AdaptiveRun {
  const [pieces] = table.shape;
  const dtype = duration.dtype;
  // Time runs from 0 to 1, so that the gradient with respect to the duration is that of the generator.
  const scaled: Rate = (y, time, u) => rate(y, time.mul(duration), u).mul(duration);
  const bound = Math.max(1, Math.ceil(limits.maxSteps / pieces));
  const step =
    (end: Tensor, u: Tensor) =>
    ({ y, time, h, accepted }: Carry): Carry => {
      const left = end.sub(time);
      const trial = minimum(h, left);
      const ks: Tensor[] = [];
      for (let stage = 0; stage < 7; stage++) {
        const offset = a[stage].reduce<Tensor | null>((sum, w, j) => {
          const part = ks[j].mul(trial.mul(w));
          return sum === null ? part : sum.add(part);
        }, null);
        ks.push(scaled(offset === null ? y : y.add(offset), time.add(trial.mul(c[stage])), u));
      }
      const next = a[6].reduce((sum, w, j) => sum.add(ks[j].mul(trial.mul(w))), y);
      const error = e.slice(1).reduce((sum, w, j) => sum.add(ks[j + 1].mul(trial.mul(w))), ks[0].mul(trial.mul(e[0])));
      const scale = maximum(abs(y), abs(next)).mul(limits.relative).add(limits.absolute);
      const size = stopGradient(maximum(abs(error).div(scale).square().mean().sqrt(), 1e-10));
      const good = size.lessEqual(1);
      const factor = size.pow(-0.2).mul(0.9).clip(0.2, 5);
      return {
        y: where(good, next, y),
        // The last step ends exactly at the end of the piece.
        time: where(good, where(trial.less(left), time.add(trial), end), time),
        // A step truncated at the end does not limit the next step size.
        h: stopGradient(where(good, maximum(trial.mul(factor), where(trial.less(h), h, 0)), trial.mul(factor))),
        accepted: accepted.add(where(good, 1, 0)),
      };
    };
  const ends = full([pieces], 1, { dtype }).cumsum(0).div(pieces);
  const init: Carry = {
    y: start,
    time: full([], 0, { dtype }),
    h: full([], 1e-2 / pieces, { dtype }),
    accepted: full([], 0, { dtype }),
  };
  const piece = (carry: Carry, end: Tensor, u: Tensor): Carry =>
    whileLoop(({ time }) => time.less(end), step(end, u), carry, { maxTrips: bound });
  const pieceByPiece = (): [Carry, Tensor] =>
    scan(
      (carry: Carry, x: { end: Tensor; u: Tensor }): [Carry, Tensor] => {
        const after = piece(carry, x.end, x.u);
        return [after, arrived(after.y, after.time.greaterEqual(x.end))];
      },
      init,
      { end: ends, u: table },
    );
  const singlePiece = (): [Carry, Tensor] => {
    const after = piece(init, ends.index(0), table.index(0));
    return [after, arrived(after.y, after.time.greaterEqual(ends.index(0))).unsqueeze(0)];
  };
  const [last, states] = pieces === 1 ? singlePiece() : pieceByPiece();
  const reached = last.time.greaterEqual(1 - 1e-12);
  return { final: arrived(last.y, reached), states, report: { accepted: last.accepted, reached } };
}

/** A state before the end is no result: NaN, so that no number that follows from it can be mistaken for one. */
const arrived = (y: Tensor, reached: Tensor): Tensor => where(reached, y, Number.NaN);
