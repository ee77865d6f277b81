// Quantum jumps (Monte Carlo wave functions): kets decay under the effective Hamiltonian until their norm reaches a random
// threshold; the time of this event is located inside the step, and one of the jump operators is applied.
import { rand, stack, type Tensor, where } from "@weft/core/internal/tensor";
import type { OperatorLike } from "../operators/index.js";
import type { OpenSystem } from "./lindblad.js";
import {
  biasOf,
  norm2,
  runTrajectories,
  scaleBy,
  seedWords,
  setup,
  startOf,
  stepKey,
  type Trajectories,
  type TrajectoryOptions,
} from "./trajectories.js";

/** A ket that is not normalized, and the squared norm at which it jumps. */
interface Waiting {
  psi: Tensor;
  threshold: Tensor;
}

/** Jumps that are located in one step; a further one happens at the start of the next. */
const jumpsPerStep = 2;
/** Smallest total rate of the jumps of a state that is not dark, relative to the inverse of a step. */
const darkBelow = 1e-14;
/** Iterations for the time of a jump, from a cubic interpolation of the logarithm of the norm. */
const iterations = 4;

/**
 * Quantum-jump trajectories (Monte Carlo wave functions) of kets. Steps are Runge-Kutta steps of fourth order; the times of jumps
 * are located inside them. Averages approach the master equation; gradients with respect to parameters do not include the
 * dependence of the jumps on them.
 *
 * @param initial - A ket [D].
 *
 * @example
 * ```ts
 * import { basisState, hamiltonian, jumpTrajectories, sigmaMinus, sigmaX, sigmaZ } from "@weft/quantum";
 *
 * const system = { hamiltonian: hamiltonian({ static: sigmaX.scale(0.5) }), jumps: [{ operator: sigmaMinus, rate: 0.2 }] };
 * const run = jumpTrajectories(system, basisState(2, 0), { duration: 2, steps: 40, trajectories: 500, observables: { z: sigmaZ } });
 * console.log(run.averages.z.mean.itemSync(), run.records.shape); // ... [ 500, 1, 1 ]
 * ```
 */
export function jumpTrajectories(
  system: OpenSystem,
  initial: Tensor | OperatorLike,
  options: TrajectoryOptions,
): Trajectories {
  const ready = setup(system, options);
  const { grid, channelsAt, rates, D } = ready;
  const seed = seedWords(options.seed);
  const leastRate = grid.h.reciprocal().mul(darkBelow);
  const evolve = (psi: Tensor, u: Tensor, h: Tensor): Tensor => {
    const at = (x: Tensor): Tensor => rates.effective(x, u);
    const k1 = at(psi);
    const k2 = at(psi.add(scaleBy(k1, h.mul(0.5))));
    const k3 = at(psi.add(scaleBy(k2, h.mul(0.5))));
    const k4 = at(psi.add(scaleBy(k3, h)));
    return psi.add(scaleBy(k1.add(k4).add(k2.add(k3).mul(2)), h.div(6)));
  };
  /** Probability of each jump per unit of time, times the squared norm. */
  const intensities = (psi: Tensor, u: Tensor): Tensor =>
    stack(
      channelsAt(u).map((l) => norm2(l.apply(psi))),
      0,
    );
  const normalized = (psi: Tensor): Tensor => scaleBy(psi, norm2(psi).rsqrt());
  const step = (
    { psi, threshold }: Waiting,
    { u, at, trajectory }: { u: Tensor; at: Tensor; trajectory: Tensor },
  ): { next: Waiting; record: Tensor } => {
    // Two numbers for every jump: its channel and the next threshold.
    const drawn = rand([2 * jumpsPerStep], { key: stepKey(seed, trajectory, at), dtype: grid.real });
    let [ket, limit, left] = [psi, threshold, grid.h];
    let counts = intensities(psi, u).mul(0);
    for (let k = 0; k < jumpsPerStep; k++) {
      const end = evolve(ket, u, left);
      const isBelow = norm2(end).less(limit);
      const time = where(isBelow, crossing(ket, end, limit, left, u), 0);
      const there = evolve(ket, u, time);
      const weights = intensities(there, u);
      // A state that no channel leaves does not jump, even if rounding has reduced its norm.
      const jumps = isBelow.logicalAnd(weights.sum().greater(norm2(there).mul(leastRate)));
      const chosen = choice(weights, drawn.index(2 * k));
      const after = channelsAt(u)
        .map((l, j) => scaleBy(l.apply(there), chosen.index(j)))
        .reduce((a, b) => a.add(b));
      ket = where(jumps, normalized(after), ket);
      limit = where(jumps, drawn.index(2 * k + 1), limit);
      left = where(jumps, left.sub(time), left);
      counts = counts.add(chosen.mul(where(jumps, 1, 0).cast(grid.real)));
    }
    return { next: { psi: evolve(ket, u, left), threshold: limit }, record: counts };
  };
  /** The time at which the squared norm falls to the limit: a cubic through logarithms of the norm and their slopes. */
  const crossing = (from: Tensor, to: Tensor, limit: Tensor, h: Tensor, u: Tensor): Tensor => {
    const [n0, n1] = [norm2(from), norm2(to)];
    const slope0 = intensities(from, u).sum().div(n0).neg().mul(h);
    const slope1 = intensities(to, u).sum().div(n1).neg().mul(h);
    const [drop, wanted] = [n1.log().sub(n0.log()), limit.log().sub(n0.log())];
    const c2 = drop.mul(3).sub(slope0.mul(2)).sub(slope1);
    const c3 = slope0.add(slope1).sub(drop.mul(2));
    let s = wanted.div(drop);
    for (let k = 0; k < iterations; k++) {
      const value = c3.mul(s).add(c2).mul(s).add(slope0).mul(s).sub(wanted);
      const slope = c3.mul(3).mul(s).add(c2.mul(2)).mul(s).add(slope0);
      s = s.sub(value.div(slope)).clip(0, 1);
    }
    return s.mul(h);
  };
  const psi = startOf(initial, D, grid, true);
  // Steps count from 0.
  const start = (trajectory: Tensor): Waiting => ({
    psi,
    threshold: rand([], { key: stepKey(seed, trajectory, trajectory.mul(0).sub(1)), dtype: grid.real }),
  });
  const run = runTrajectories(ready, options, { start, step, state: ({ psi: ket }) => normalized(ket), isPure: true });
  return { ...run, check: () => biasOf(system, initial, options, "rk4") };
}

/** One of the channels by a uniform number, as a row of one 1 and zeros. */
function choice(weights: Tensor, uniform: Tensor): Tensor {
  const [n] = weights.shape;
  const at = uniform.mul(weights.sum());
  let [below, chosen]: [Tensor | null, Tensor[]] = [null, []];
  for (let j = 0; j < n; j++) {
    const upTo: Tensor = below === null ? weights.index(j) : below.add(weights.index(j));
    const isBelow = j === n - 1 ? null : at.less(upTo);
    const isAbove = below === null ? null : at.greaterEqual(below);
    const one = weights.index(j).mul(0).add(1);
    const first = isBelow === null ? one : where(isBelow, one, 0);
    chosen = [...chosen, isAbove === null ? first : where(isAbove, first, 0)];
    below = upTo;
  }
  return stack(chosen, 0);
}
