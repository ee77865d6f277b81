// What all stochastic trajectories share: noise, averages with standard errors, records. Noise is counter-based: that of a step
// depends on the seed, the trajectory and the step alone, so results are the same on any number of devices. Trajectories are
// lanes of one batched program.
import { isComplex, WeftError } from "@weft/core/internal/graph";
import {
  arange,
  complex,
  conj,
  full,
  imag,
  key,
  real,
  scan,
  stack,
  Tensor,
  vmap,
  where,
} from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import { Operator, type OperatorLike } from "../operators/index.js";
import { inputTable } from "./generators.js";
import { lindblad, type OpenSystem } from "./lindblad.js";
import type { MethodName } from "./methods.js";
import { channelsOf, type OpenRates, openRates } from "./open-rates.js";
import { checkHamiltonian, checkJumps, dimensionOf, type Grid, matrixOf, timeGrid } from "./problem.js";
import { expectation, type Observables, roomFor } from "./result.js";

/** Options that all kinds of trajectories share. @inline */
export interface TrajectoryOptions {
  /** Length of the evolution in ns. */
  duration: Tensor | number;
  /** Number of fixed steps, a multiple of `saves`. */
  steps: number;
  /** Number of trajectories. */
  trajectories: number;
  /** Fixes the noise. Default: 0. */
  seed?: number;
  /** Number of the first trajectory, to continue a sample or to divide it among programs. Default: 0. */
  first?: number;
  /** Number of equally spaced times at which observables are recorded. Default: 1, the end. */
  saves?: number;
  /** Operators whose expectation values are recorded, by name. */
  observables?: Observables;
  /** Precision of the states; default: complex128. */
  dtype?: "complex64" | "complex128";
}

/** Mean of an observable over trajectories. */
export interface Average {
  /** [saves] */
  mean: Tensor;
  /** Standard error of the mean, [saves]. */
  error: Tensor;
}

/** Result of a simulation of trajectories, as lazy tensors. */
export interface Trajectories {
  /** Final states [trajectories, D] or density matrices [trajectories, D, D]. */
  final: Tensor;
  /** Times of the saves. */
  times: Tensor;
  /** Means and standard errors of the observables over trajectories. */
  averages: Record<string, Average>;
  /**
   * Diffusive: measurement records, integrated between saves, [trajectories, saves, channels]. Jumps: number of jumps of every
   * channel between saves.
   */
  records: Tensor;
  /**
   * Estimated bias of the mean final density matrix from the length of the steps: that of the master equation with steps of the same
   * order. Throws if it is above 0.02.
   */
  check(): number;
}

/** Largest bias of the mean state that `check` accepts. */
const largestBias = 0.02;

/** The bias of averages: the error of equally long steps of `method` in the master equation, which averages obey. */
export function biasOf(
  system: OpenSystem,
  initial: Tensor | OperatorLike,
  { duration, steps, dtype }: TrajectoryOptions,
  method: MethodName,
): number {
  const grid = timeGrid({ duration, steps, dtype });
  const rho = startOf(initial, dimensionOf(system.hamiltonian), grid, false);
  return lindblad(system, rho, { duration, steps, dtype, method }).check({ error: largestBias }).error!;
}

/** A checked system with its operators as functions. */
export interface Setup {
  grid: Grid;
  saves: number;
  every: number;
  rates: OpenRates;
  /** The jump operators, roots of rates included, for the inputs of a step. */
  channelsAt(u: Tensor): { apply(x: Tensor): Tensor }[];
  /** Number of jump operators. */
  channels: number;
  /** Inputs of every step: drives, then rates that depend on time, [steps, inputs]. */
  drives: Tensor;
  D: number;
}

const positive = (name: string, value: number): void => {
  if (!Number.isInteger(value) || value < 1)
    throw new WeftError(`trajectories: ${name} must be a whole number >= 1, got ${value}`);
};

/** Checks a system and its options. */
export function setup(system: OpenSystem, options: TrajectoryOptions): Setup {
  positive("trajectories", options.trajectories);
  const saves = options.saves ?? 1;
  positive("saves", saves);
  const grid = timeGrid(options);
  if (grid.steps % saves !== 0)
    throw new WeftError(`trajectories: ${grid.steps} steps do not divide into ${saves} saves`);
  const h = checkHamiltonian(system.hamiltonian);
  const jumps = checkJumps(system.jumps, h);
  if (jumps.length === 0) throw new WeftError("trajectories: the system has no jump operators; use schrodinger");
  const channels = channelsOf(h, jumps, grid);
  return {
    grid,
    saves,
    every: grid.steps / saves,
    rates: openRates(h, jumps, grid),
    channelsAt: (u) => channels.map(({ apply }) => ({ apply: (x) => apply(x, u) })),
    channels: channels.length,
    drives: inputTable(h, jumps, grid, [0.5]).index(":", 0),
    D: dimensionOf(h),
  };
}

/** Keys of a step's noise: the seed and the trajectory in one word, the seed and the step in the other. */
export const stepKey = (seed: Tensor, trajectory: Tensor, step: Tensor): Tensor =>
  stack([seed.index(0).add(trajectory), seed.index(1).add(step)], 0);

export const norm2 = (x: Tensor): Tensor => real(x).square().add(imag(x).square()).sum();
/** x times a real scalar. */
export const scaleBy = (x: Tensor, by: Tensor): Tensor =>
  isComplex(x.dtype) ? complex(real(x).mul(by), imag(x).mul(by)) : x.mul(by);
export const overlapProduct = (a: Tensor, b: Tensor): Tensor => real(conj(a).mul(b)).sum();
/** Mean and standard error over the trajectories of values [trajectories, saves]; one trajectory has no error: NaN. */
function average(values: Tensor): Average {
  const [n] = values.shape;
  const mean = values.mean(0);
  const variance = values
    .sub(mean)
    .square()
    .sum(0)
    .div(n - 1);
  return { mean, error: variance.div(n).sqrt() };
}

/** What one step of a trajectory reads. */
export interface StepInputs {
  /** Drives [K]. */
  u: Tensor;
  /** Number of the step. */
  at: Tensor;
  trajectory: Tensor;
  /** Given increments of the noise, or null. */
  dw: Tensor | null;
}

/** A stochastic process: its state, and how a step changes it. */
interface Process<C> {
  start(trajectory: Tensor): C;
  step(state: C, now: StepInputs): { next: C; record: Tensor };
  /** The normalized ket or density matrix. */
  state(of: C): Tensor;
  isPure: boolean;
}

/** Runs all trajectories and collects averages and records at the saves. */
export function runTrajectories<C>(
  ready: Setup,
  options: TrajectoryOptions,
  process: Process<C>,
  noise: Tensor | null = null,
): Omit<Trajectories, "check"> {
  const { grid, saves, every, drives, channels } = ready;
  const observables = Object.entries(options.observables ?? {}).map(([name, given]) => {
    const matrix =
      given instanceof Tensor ? given.cast(grid.complex) : literal(Operator.from(given, `observable ${name}`), grid);
    return [name, matrix] as const;
  });
  const kind = process.isPure ? "state" : "density";
  const cut = (x: Tensor): Tensor => x.reshape([saves, every, ...x.shape.slice(1)]);
  const counters = arange(0, grid.steps, 1, { dtype: "int32" });
  interface Rows {
    u: Tensor;
    at: Tensor;
    dw: Tensor[];
  }
  const one = (trajectory: Tensor, dw: Tensor[]): { final: Tensor; values: Tensor[]; records: Tensor } => {
    const xs: Rows = { u: cut(drives), at: cut(counters), dw: dw.map(cut) };
    const [last, [values, records]] = scan(
      (state: C, piece: Rows): [C, [Tensor[], Tensor]] => {
        const zero = full([channels], 0, { dtype: grid.real });
        const [after, record] = scan(
          ([before, sum]: [C, Tensor], { u, at, dw: given }: Rows): [[C, Tensor], null] => {
            const { next, record: dy } = process.step(before, { u, at, trajectory, dw: given[0] ?? null });
            return [[next, sum.add(dy)], null];
          },
          [state, zero] as [C, Tensor],
          piece,
        )[0];
        const now = process.state(after);
        return [after, [observables.map(([, o]) => real(expectation(o, now, kind))), record]];
      },
      process.start(trajectory),
      xs,
    );
    return { final: process.state(last), values, records };
  };
  const numbers = arange(0, options.trajectories, 1, { dtype: "int32" }).add(options.first ?? 0);
  const all = vmap((trajectory: Tensor, dw: Tensor[]) => one(trajectory, dw))(numbers, noise === null ? [] : [noise]);
  return {
    final: all.final,
    times: arange(1, saves + 1, 1, { dtype: grid.real }).mul(grid.duration.div(saves)),
    averages: Object.fromEntries(observables.map(([name], k) => [name, average(all.values[k])])),
    records: all.records,
  };
}

/** Observables of small systems are constants of the program, whose zeros cost nothing. */
const literal = (o: Operator, grid: Grid): Tensor =>
  o.rows <= 4 ? o.literal(grid.complex) : matrixOf(o, grid.complex);

/** The two words of a seed. */
export const seedWords = (seed: number | undefined): Tensor => {
  if (seed !== undefined && !Number.isInteger(seed))
    throw new WeftError(`trajectories: seed must be a whole number, got ${seed}`);
  return key(seed ?? 0);
};

/** The initial state as a ket [D], or as a density matrix [D, D]. */
export function startOf(given: Tensor | OperatorLike, D: number, grid: Grid, isPure: boolean): Tensor {
  const x =
    given instanceof Tensor ? given.cast(grid.complex) : Operator.from(given, "initial state").tensor(grid.complex);
  const isKet = x.shape[0] === D && (x.rank === 1 || (x.rank === 2 && x.shape[1] === 1 && D > 1));
  const ket = isKet ? x.reshape([D]) : null;
  if (isPure) {
    if (ket === null)
      throw new WeftError(
        `trajectories: the initial state must be a ket [${D}], got [${x.shape.join(", ")}]; density matrices need efficiencies below 1`,
      );
    return ofNormOne(ket, norm2(ket));
  }
  if (ket !== null) return ofNormOne(ket.reshape([D, 1]).mul(conj(ket).reshape([1, D])), norm2(ket));
  if (x.rank !== 2 || x.shape[0] !== D || x.shape[1] !== D)
    throw new WeftError(`trajectories: the initial state must be [${D}] or [${D}, ${D}], got [${x.shape.join(", ")}]`);
  return ofNormOne(x, real(x.diagonal().sum()));
}

/** Throws unless the norm (or trace) of an initial state is 1, because it decides when jumps happen; inside a trace the state is NaN. */
function ofNormOne(x: Tensor, norm: Tensor): Tensor {
  const known = concreteValues(norm);
  const room = roomFor(x);
  if (known === null) return where(norm.sub(1).abs().lessEqual(room), x, Number.NaN);
  if (!(Math.abs(known[0] - 1) <= room))
    throw new WeftError(
      `trajectories: the norm (or trace) of the initial state is ${known[0]} instead of 1; divide by it`,
    );
  return x;
}
