// Diffusive trajectories: the stochastic Schrödinger and master equations of continuous homodyne detection.
import { WeftError } from "@weft/core/internal/graph";
import { adjoint, randn, real, stack, Tensor } from "@weft/core/internal/tensor";
import { Operator, type OperatorLike } from "../operators/index.js";
import type { OpenSystem } from "./lindblad.js";
import {
  biasOf,
  norm2,
  overlapProduct,
  runTrajectories,
  type Setup,
  type StepInputs,
  scaleBy,
  seedWords,
  setup,
  startOf,
  stepKey,
  type Trajectories,
  type TrajectoryOptions,
} from "./trajectories.js";

/** Integration methods of diffusive equations. */
const diffusiveMethods = ["rouchon", "euler", "milstein", "platen"] as const;

/** Options of `diffusive`. @inline */
export interface DiffusiveOptions extends TrajectoryOptions {
  /**
   * "rouchon" (default) multiplies by Kraus operators: states stay positive, strong order 1; "milstein": strong order 1, one
   * channel; "euler": Euler-Maruyama, strong order 1/2; "platen": means of second order in the step, one detected channel.
   */
  method?: (typeof diffusiveMethods)[number];
  /** Probability of detection for each jump operator, 0 to 1. Default: 1. Below 1 the state is a density matrix. */
  efficiencies?: readonly number[];
  /** Increments of the Wiener processes [trajectories, steps, channels] instead of random ones, to replay a record. */
  noise?: Tensor;
}

const trace = (rho: Tensor): Tensor => rho.diagonal().sum();

/** What a step of a diffusive equation needs to know of a state: pure or mixed. */
interface Kind {
  /** <L + L^H> */
  signal(lx: Tensor, x: Tensor): Tensor;
  /** A state of norm or trace 1. */
  normalized(x: Tensor): Tensor;
}
const pure: Kind = {
  signal: (lx, psi) => overlapProduct(psi, lx).mul(2),
  normalized: (psi) => scaleBy(psi, norm2(psi).rsqrt()),
};
const mixed: Kind = {
  signal: (lrho) => real(trace(lrho)).mul(2),
  normalized: (rho) => scaleBy(rho, real(trace(rho)).reciprocal()),
};

type DiffusiveStep = (x: Tensor, u: Tensor, dw: Tensor) => { next: Tensor; record: Tensor };

/** One step by Kraus operators: M x (pure) or M x M^H + lost photons (mixed), normalized. */
function rouchonStep(
  { rates, channelsAt, grid }: Setup,
  efficiencies: readonly number[],
  isPure: boolean,
): DiffusiveStep {
  const { h } = grid;
  const kind = isPure ? pure : mixed;
  return (x, u, dw) => {
    const channels = channelsAt(u);
    const first = channels.map((l) => l.apply(x));
    const dy = first.map((lx, j) => {
      const eta = Math.sqrt(efficiencies[j]);
      return dw.index(j).add(kind.signal(lx, x).mul(eta).mul(h));
    });
    /** (1 - K h + s + s^2 / 2 - sum of eta L^2 h / 2) y with s = sum of sqrt(eta) dY L. */
    const kraus = (y: Tensor, ly: readonly Tensor[]): Tensor => {
      const detected = (parts: readonly Tensor[]): Tensor =>
        parts.map((part, j) => scaleBy(part, dy[j].mul(Math.sqrt(efficiencies[j])))).reduce((a, b) => a.add(b));
      const s = detected(ly);
      const second = detected(channels.map((l) => l.apply(s)));
      const drift = channels.map((l, j) => scaleBy(l.apply(ly[j]), h.mul(efficiencies[j]))).reduce((a, b) => a.add(b));
      return y
        .add(scaleBy(rates.effective(y, u), h))
        .add(s)
        .add(second.sub(drift).mul(0.5));
    };
    const moved = kraus(x, first);
    if (isPure) return { next: kind.normalized(moved), record: stack(dy, 0) };
    const turned = adjoint(moved);
    let next = kraus(
      turned,
      channels.map((l) => l.apply(turned)),
    );
    channels.forEach((l, j) => {
      if (efficiencies[j] < 1) next = next.add(scaleBy(l.apply(adjoint(l.apply(x))), h.mul(1 - efficiencies[j])));
    });
    return { next: kind.normalized(next), record: stack(dy, 0) };
  };
}

/** A state's change dx = drift dt + sum of noise dW, and the signals <L + L^H> of the channels. */
interface Change {
  drift: Tensor;
  noise: Tensor[];
  signals: Tensor[];
  /** L x of every channel. */
  lx: Tensor[];
}

function changeOf({ rates, channelsAt }: Setup, efficiencies: readonly number[], isPure: boolean) {
  const kind = isPure ? pure : mixed;
  return (x: Tensor, u: Tensor): Change => {
    const lx = channelsAt(u).map((l) => l.apply(x));
    const signals = lx.map((y) => kind.signal(y, x));
    if (!isPure) {
      const noise = lx.map((y, j) => y.add(adjoint(y)).sub(scaleBy(x, signals[j])).mul(Math.sqrt(efficiencies[j])));
      return { drift: rates.lindblad(x, u), noise, signals, lx };
    }
    const drift = signals.reduce(
      (sum, e, j) => sum.add(scaleBy(lx[j], e.mul(0.5)).sub(scaleBy(x, e.square().div(8)))),
      rates.effective(x, u),
    );
    return { drift, noise: lx.map((y, j) => y.sub(scaleBy(x, signals[j].mul(0.5)))), signals, lx };
  };
}

/** Euler-Maruyama, or Milstein's method with the second-order term of one channel. */
function explicitDiffusion(
  ready: Setup,
  efficiencies: readonly number[],
  isPure: boolean,
  isMilstein: boolean,
): DiffusiveStep {
  const { h } = ready.grid;
  const kind = isPure ? pure : mixed;
  const change = changeOf(ready, efficiencies, isPure);
  return (x, u, dw) => {
    const { drift, noise, signals, lx } = change(x, u);
    let next = x.add(scaleBy(drift, h));
    ready.channelsAt(u).forEach((l, j) => {
      const e = signals[j];
      next = next.add(scaleBy(noise[j], dw.index(j)));
      if (!isMilstein) return;
      // b'(x)[b] (dW^2 - h) / 2
      const lb = l.apply(noise[j]);
      const slope = isPure
        ? lb
            .sub(scaleBy(noise[j], e.mul(0.5)))
            .sub(scaleBy(x, overlapProduct(noise[j], lx[j]).add(overlapProduct(x, lb))))
        : lb
            .add(adjoint(lb))
            .sub(scaleBy(noise[j], e))
            .sub(scaleBy(x, kind.signal(lb, x)))
            .mul(Math.sqrt(efficiencies[j]));
      next = next.add(scaleBy(slope, dw.index(j).square().sub(h).mul(0.5)));
    });
    const record = signals.map((e, j) => dw.index(j).add(e.mul(h).mul(Math.sqrt(efficiencies[j]))));
    return { next: kind.normalized(next), record: stack(record, 0) };
  };
}

/** Platen's explicit method of weak order 2 with one detected channel. */
function platenStep(ready: Setup, efficiencies: readonly number[], isPure: boolean): DiffusiveStep {
  const { h } = ready.grid;
  const kind = isPure ? pure : mixed;
  const change = changeOf(ready, efficiencies, isPure);
  const seen = efficiencies.findIndex((e) => e > 0);
  const root = h.sqrt();
  return (x, u, dw) => {
    const { drift, noise, signals } = change(x, u);
    const [b, w] = [noise[seen], dw.index(seen)];
    const moved = x.add(scaleBy(drift, h));
    const [up, down] = [root, root.neg()].map((by) => change(moved.add(scaleBy(b, by)), u).noise[seen]);
    const later = change(moved.add(scaleBy(b, w)), u).drift;
    const next = x
      .add(scaleBy(drift.add(later), h.mul(0.5)))
      .add(scaleBy(up.add(down).add(b.mul(2)), w.mul(0.25)))
      .add(scaleBy(up.sub(down), w.square().sub(h).div(root.mul(4))));
    const found = kind.normalized(next);
    // The signal is integrated by the trapezoidal rule.
    const after = change(found, u).signals;
    const record = signals.map((e, j) =>
      dw.index(j).add(
        e
          .add(after[j])
          .mul(h)
          .mul(Math.sqrt(efficiencies[j]) / 2),
      ),
    );
    return { next: found, record: stack(record, 0) };
  };
}

/**
 * Diffusive trajectories under continuous homodyne detection of every jump operator: the stochastic Schrödinger equation for
 * kets, the stochastic master equation for density matrices and efficiencies below 1. Differentiable.
 *
 * @param initial - A ket [D] or a density matrix [D, D].
 *
 * @example
 * ```ts
 * import { basisState, diffusive, hamiltonian, sigmaMinus, sigmaX, sigmaZ } from "@weft/quantum";
 *
 * const system = { hamiltonian: hamiltonian({ static: sigmaX.scale(0.5) }), jumps: [{ operator: sigmaMinus, rate: 0.2 }] };
 * const run = diffusive(system, basisState(2, 0), { duration: 2, steps: 200, trajectories: 500, observables: { z: sigmaZ } });
 * console.log(run.averages.z.mean.itemSync(), run.averages.z.error.itemSync(), run.records.shape); // ... [ 500, 1, 1 ]
 * ```
 */
export function diffusive(system: OpenSystem, initial: Tensor | OperatorLike, options: DiffusiveOptions): Trajectories {
  const ready = setup(system, options);
  const { grid, channels, D } = ready;
  const efficiencies = options.efficiencies ?? new Array<number>(channels).fill(1);
  if (efficiencies.length !== channels || efficiencies.some((e) => !(e >= 0 && e <= 1)))
    throw new WeftError(
      `diffusive: needs one efficiency from 0 to 1 for each of the ${channels} jump operators, got ${efficiencies.join(", ")}`,
    );
  const method = options.method ?? "rouchon";
  if (!diffusiveMethods.includes(method))
    throw new WeftError(`diffusive: method must be one of ${diffusiveMethods.join(", ")}, got ${String(method)}`);
  if (method === "milstein" && channels > 1)
    throw new WeftError(
      `diffusive: milstein is of first order for one channel only, and the system has ${channels}; use rouchon`,
    );
  if (method === "platen" && efficiencies.filter((e) => e > 0).length !== 1)
    throw new WeftError(
      `diffusive: platen is for one detected channel, and efficiencies are ${efficiencies.join(", ")}; use rouchon`,
    );
  const rank = initial instanceof Tensor ? initial.rank : Operator.from(initial, "initial state").columns === 1 ? 1 : 2;
  const isPure = efficiencies.every((e) => e === 1) && rank === 1;
  const start = startOf(initial, D, grid, isPure);
  const { noise = null } = options;
  const shape = [options.trajectories, grid.steps, channels];
  if (noise !== null && (noise.rank !== 3 || noise.shape.some((n, k) => n !== shape[k])))
    throw new WeftError(`diffusive: noise must be [${shape.join(", ")}], got [${noise.shape.join(", ")}]`);
  const seed = seedWords(options.seed);
  const advance =
    method === "rouchon"
      ? rouchonStep(ready, efficiencies, isPure)
      : method === "platen"
        ? platenStep(ready, efficiencies, isPure)
        : explicitDiffusion(ready, efficiencies, isPure, method === "milstein");
  const root = grid.h.sqrt();
  const step = (x: Tensor, { u, at, trajectory, dw }: StepInputs): { next: Tensor; record: Tensor } => {
    const drawn = dw ?? randn([channels], { key: stepKey(seed, trajectory, at), dtype: grid.real }).mul(root);
    return advance(x, u, drawn.cast(grid.real));
  };
  const run = runTrajectories(ready, options, { start: () => start, step, state: (x) => x, isPure }, noise);
  return { ...run, check: () => biasOf(system, initial, options, method === "platen" ? "rouchon2" : "rouchon1") };
}
