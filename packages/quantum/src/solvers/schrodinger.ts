// Schrödinger equation for states and propagators: d psi/dt = -i H(t) psi. Columns of a propagator and pieces of time are lanes of
// one batched program.
import { WeftError } from "@weft/core/internal/graph";
import { session } from "@weft/core/internal/runtime";
import {
  arange,
  concat,
  customVjp,
  matmul,
  shard,
  stack,
  Tensor,
  tensor,
  treeMap,
  vmap,
} from "@weft/core/internal/tensor";
import { identityOperator, Operator, type OperatorLike } from "../operators/index.js";
import { adaptive } from "./adaptive.js";
import { withBreaks } from "./borders.js";
import {
  applyInverse,
  applyUnitary,
  type DenseProgram,
  denseProgram,
  isDense,
  runDense,
  runStepwise,
} from "./dense.js";
import { hermitianExponential } from "./exponential.js";
import { applyGate, type GateProgram, runGates } from "./gates.js";
import { denseTerms, generatorTable } from "./generators.js";
import { singleSnapshot, stepper, stepsFor } from "./lindblad.js";
import { runSaving, runSteps, splitSteps } from "./loop.js";
import { schrodingerTerms, usesTerms } from "./matrix-free.js";
import { type GradientKind, type GradientMethod, type Method, type MethodName, resolveMethod } from "./methods.js";
import { needsPieces, type Piece, runPieces, shiftedTo } from "./pieces.js";
import {
  adaptivePieces,
  checkHamiltonian,
  checkKeys,
  dimensionOf,
  driveTable,
  type Grid,
  type Hamiltonian,
  timeGrid,
} from "./problem.js";
import { type Evolution, type Observables, observe, summary } from "./result.js";
import {
  durationFor,
  equalPieces,
  type SaveOptions,
  type Snapshot,
  savePlan,
  stateOptionNames,
  takePieces,
} from "./saves.js";
import { trotterProgram } from "./trotter.js";

/** Options of `schrodinger`. @inline */
export interface SchrodingerOptions extends SaveOptions {
  /** End time. Default: the last time of `tsave`. */
  duration?: Tensor | number;
  /** Number of fixed steps: a multiple of `saves` and, for piecewise constant amplitudes, of the segments. */
  steps?: number;
  /** The solver. */
  method?: MethodName | Method;
  /** How gradients go through the evolution. */
  gradient?: GradientKind | GradientMethod;
  /** Operators whose expectation values are recorded, by name. */
  observables?: Observables;
  /** Precision of the states; default: complex128. */
  dtype?: "complex64" | "complex128";
  /**
   * Where a reverse pass by reversal takes the gate angles from. "steps" computes them in every step, "blocks" stores tables for
   * one block of steps at a time: with both, memory does not depend on the number of steps. "tables" stores them for all steps.
   * Default: "steps". On a GPU, and for gates in several pieces of time, every lane would compute the angles separately, so
   * small tables are stored, and blocks of that size beyond.
   */
  angles?: (typeof angleKinds)[number];
}

const propagatorOptions = [
  "duration",
  "steps",
  "method",
  "gradient",
  "dtype",
  "angles",
  "chunks",
  "strategy",
  "columns",
  "divide",
];

const angleKinds = ["steps", "blocks", "tables"] as const;
/** Steps of a block over all pieces of time, for `angles: "blocks"`. */
const blockSteps = 2048;
/** Largest size of the tables in bytes; larger ones are split into blocks. */
const tableBytes = 16 << 20;
/** Smallest number of steps of a piece in a block. */
const minSteps = 16;

/** Options of `propagator`. @inline */
export interface PropagatorOptions extends Omit<SchrodingerOptions, keyof SaveOptions | "observables"> {
  /**
   * Number of pieces of time that run in parallel and whose propagators are multiplied. The default fills the device without
   * adding work to small problems.
   */
  chunks?: number;
  /**
   * "gates": small gates in sequence, each column a lane of one kernel, the fastest form while a column fits into registers;
   * "dense": whole matrices, all columns in one product. Default: by size.
   */
  strategy?: "gates" | "dense";
  /** Initial states [count, D] to propagate instead of all columns. Needs `chunks: 1`. */
  columns?: Tensor;
  /**
   * Sharding constraints: mesh axes that shard the columns and the pieces of time. By default the sharding planner decides. No
   * effect on one device.
   */
  divide?: { columns?: string; pieces?: string };
}

interface SolverSetup {
  method: Method;
  gradient: GradientMethod;
  grid: Grid;
  D: number;
  /** Gates of every step, or null for Runge-Kutta methods. */
  gates: { program: GateProgram; enter(state: Tensor): Tensor; leave(state: Tensor): Tensor } | null;
}

function prepare(h: Hamiltonian, options: SchrodingerOptions): SolverSetup {
  const { method, gradient } = resolveMethod(options.method, "schrodinger", options.gradient);
  const duration = durationFor(options);
  const grid = timeGrid({ dtype: options.dtype, duration, steps: stepsFor(method, options.steps) });
  const D = dimensionOf(checkHamiltonian(h));
  const same = (state: Tensor): Tensor => state;
  let gates: SolverSetup["gates"] = null;
  if (method.name === "trotter2" || method.name === "trotter4") {
    const { angles } = options;
    if (angles !== undefined && !angleKinds.includes(angles))
      throw new WeftError(`propagator: angles must be one of ${angleKinds.join(", ")}, got ${String(angles)}`);
    gates = trotterProgram(h, grid, method, (sites, gate, state) => applyGate(h.dims, sites, gate, state));
    if (angles === "tables") gates.program.stepAngles = null;
    gates.program.block = blockFor(gates.program, angles, 1);
  } else if (method.name === "pwcExpm") {
    const { fixed, drives } = denseTerms(h, grid);
    const table = hermitianExponential(
      generatorTable(fixed, driveTable(h, grid, method.stages).index(":", 0), drives),
      grid.h,
    );
    const program: GateProgram = {
      dims: [D],
      slots: [{ sites: [0], kind: "table", index: 0 }],
      fixed: [],
      tables: [table],
      angles: [],
      at: arange(0, grid.steps, 1, { dtype: "float64" }),
      stepAngles: null,
    };
    gates = { program, enter: same, leave: same };
  }
  return { method, gradient, grid, D, gates };
}

/** Number of steps of a piece whose angles are stored together, or undefined to compute them in every step. */
function blockFor(
  { dims, angles: tables }: GateProgram,
  angles: SchrodingerOptions["angles"],
  pieces: number,
): number | undefined {
  if (angles === "steps" || (angles === undefined && pieces === 1 && !onGpu())) return undefined;
  // Gradients of the angles are stored per column in float64.
  const columns = dims.reduce((a, b) => a * b, 1);
  const bytes = 8 * columns * tables.reduce((sum, { shape }) => sum + shape[1], 0);
  const all = angles === "blocks" ? blockSteps : tableBytes / Math.max(1, bytes);
  return Math.max(minSteps, Math.ceil(all / pieces));
}

const minusI = { re: 0, im: -1 };

/** -i H psi with the drives u: [K] */
function rateOf(h: Hamiltonian, grid: Grid): (psi: Tensor, u: Tensor) => Tensor {
  if (usesTerms(h, null)) return schrodingerTerms(h, grid);
  const { fixed, drives } = denseTerms(h, grid);
  const still = fixed.mul(minusI);
  const turns = drives.map((drive) => drive.mul(minusI));
  return (psi, u) => {
    const generator = turns.reduce((sum, turn, k) => sum.add(turn.mul(u.index(k))), still);
    return matmul(generator, psi.unsqueeze(1)).squeeze(1);
  };
}

/**
 * Rows of all steps in pieces [pieces, rows of a piece, ...]. If the steps do not divide, the first pieces have one row more; the others
 * are padded, and end before that row. One loop for all of them is compiled once.
 */
function unequalRows(
  xs: ReturnType<typeof tablesOf>,
  pieces: number,
  steps: number,
): ReturnType<typeof tablesOf> & { end?: Tensor } {
  const { count, length, rest } = splitSteps(steps, pieces);
  const rows = (x: Tensor, from: number, to: number, each: number): Tensor =>
    x.index(`${from}:${to}`).reshape([(to - from) / each, each, ...x.shape.slice(1)]);
  if (rest === 0) return treeMap((x: Tensor) => rows(x, 0, steps, length), xs);
  const long = rest * (length + 1);
  const padded = (x: Tensor): Tensor =>
    concat([
      rows(x, 0, long, length + 1),
      rows(x, long, steps, length).pad(Array.from({ length: x.rank + 1 }, (_, k) => [0, Number(k === 1)] as const)),
    ]);
  const begins = Array.from({ length: count + 1 }, (_, k) => k * length + Math.min(k, rest));
  const first = tensor(begins.slice(0, count), { dtype: "float64" });
  return {
    tables: xs.tables.map(padded),
    angles: xs.angles.map(padded),
    at: first.unsqueeze(1).add(arange(0, length + 1, 1, { dtype: "float64" })),
    end: tensor(begins.slice(1), { dtype: "float64" }),
  };
}

/** Values that differ between steps, with the steps as leading axis. */
const tablesOf = ({ tables, angles, at }: Pick<GateProgram, "tables" | "angles" | "at">) => ({ tables, angles, at });

/**
 * Solves the Schrödinger equation for an initial state [D]. Batches go through `vmap`.
 *
 * @param psi0 - Initial state.
 *
 * @example
 * ```ts
 * import { basisState, hamiltonian, schrodinger, sigmaX, sigmaZ, stateFidelity } from "@weft/quantum";
 *
 * // Resonant Rabi oscillation in the rotating frame: a pi pulse.
 * const h = hamiltonian({ static: sigmaZ.scale(0), drives: [sigmaX], amplitudes: [[Math.PI / 2]] });
 * const { final } = schrodinger(h, basisState(2, 0), { duration: 1, steps: 10, method: "pwcExpm" });
 * console.log(stateFidelity(final, basisState(2, 1)).itemSync()); // 1, up to rounding
 * ```
 */
export function schrodinger(given: Hamiltonian, psi0: Tensor | OperatorLike, options: SchrodingerOptions): Evolution {
  checkKeys(options, [...stateOptionNames, "angles"], "schrodinger");
  const { method, gradient, grid, D, gates } = prepare(given, options);
  const h = method.tolerance === undefined ? given : withBreaks(given, [], grid);
  const plan = savePlan(options, durationFor(options));
  const start = startOf(psi0, D, grid);
  const values = observe(options.observables, "state", grid.complex);
  const snapshot = (psi: Tensor): Snapshot => ({ state: plan.keepStates ? [psi] : [], values: values(psi) });
  const finish = (final: Tensor, all: Snapshot | null, more: Partial<Evolution> = {}): Evolution => {
    const saved = all === null ? singleSnapshot(snapshot(final)) : plan.pick(all, () => snapshot(start));
    const refined = (): Tensor =>
      schrodinger(given, psi0, { ...options, steps: 2 * grid.steps, progress: undefined }).final;
    return summary({ final, saved, plan, grid, method, gradient, kind: "state", refined, ...more });
  };
  if (needsPieces(options, plan, method, grid.steps)) {
    const solve = (psi: Tensor, piece: Piece, steps: number): Evolution =>
      schrodinger(shiftedTo(piece, h, [], grid.duration).hamiltonian, psi, {
        duration: grid.duration.mul(piece.length),
        steps: method.tolerance === undefined ? steps : undefined,
        method,
        gradient,
        dtype: grid.complex,
        angles: options.angles,
      });
    const { steps } = grid;
    const run = runPieces(start, { plan, grid, h, steps, progress: options.progress }, solve, snapshot);
    return finish(run.final, plan.isFinalOnly ? null : run.saved, run.report);
  }
  if (method.tolerance !== undefined) {
    const { pieces, drives } = adaptivePieces(h, grid, plan.ends);
    const rate = rateOf(h, grid);
    const run = adaptive((y, time, u) => rate(y, drives(time, u)), start, grid.duration, pieces, {
      tableau: method.tableau!,
      limits: method.tolerance,
      emit: snapshot,
    });
    return finish(run.final, plan.isFinalOnly ? null : run.saved, run.report);
  }
  const { pieces, picked } = equalPieces(plan, grid.steps);
  if (gates === null) {
    const { enter, step } = stepper(rateOf(h, grid), method, grid, { gradient });
    const advance = (state: readonly Tensor[], xs: Tensor): Tensor[] => runSteps(step, [...state], xs, gradient);
    const u = driveTable(h, grid, method.stages);
    const errorOf = ([, error]: readonly Tensor[]): Partial<Evolution> => (error === undefined ? {} : { error });
    if (plan.isFinalOnly) {
      const last = advance(enter(start), u);
      return finish(last[0], null, errorOf(last));
    }
    const [last, all] = runSaving(advance, enter(start), u, pieces, ([psi]) => snapshot(psi));
    return finish(last[0], takePieces(all, pieces, picked), errorOf(last));
  }
  const { program, enter, leave } = gates;
  const entered = enter(start);
  if (plan.isFinalOnly) return finish(leave(runGates(program, entered, gradient)), null);
  const advance = (psi: Tensor, xs: ReturnType<typeof tablesOf>): Tensor =>
    runGates({ ...program, ...xs }, psi, gradient);
  const [last, all] = runSaving(advance, entered, tablesOf(program), pieces, (psi) => snapshot(leave(psi)));
  return finish(leave(last), takePieces(all, pieces, picked));
}

/** Number of lanes that fills a GPU. */
const lanesWanted = 4096;

/** Smallest dimension at which whole matrices are faster than gates; a GPU holds larger columns on chip. */
const denseFrom = { cpu: 32, gpu: 128 };
/** Largest number of unrolled operations per step of a CPU kernel; more would take minutes to compile. */
const unrolledLimit = 4000;
/** Largest dimension at which whole matrices are affordable. */
const denseTo = 1024;
const onGpu = (): boolean => session().device.traits.warpSize > 1;

function strategyFor(wanted: PropagatorOptions["strategy"], program: GateProgram, D: number): "gates" | "dense" {
  const possible = isDense(program);
  if (wanted === "dense" && !possible)
    throw new WeftError(
      'propagator: strategy "dense" needs Trotter steps whose drives act on one site each; use "gates", or leave it out',
    );
  if (wanted !== undefined && wanted !== "dense" && wanted !== "gates")
    throw new WeftError(`propagator: strategy must be "gates" or "dense", got ${String(wanted)}`);
  if (wanted !== undefined) return wanted;
  const unrolled = program.slots
    .filter((slot) => slot.kind === "fixed")
    .reduce((sum, slot) => sum + 8 * D * program.fixed[slot.index].shape[0], 0);
  const large = onGpu() ? D >= denseFrom.gpu : D >= denseFrom.cpu || unrolled > unrolledLimit;
  return possible && large && D <= denseTo ? "dense" : "gates";
}

function chunksFor(wanted: number | undefined, steps: number, D: number, strategy: "gates" | "dense"): number {
  if (wanted !== undefined) {
    if (!Number.isInteger(wanted) || wanted < 1 || wanted > steps)
      throw new WeftError(`propagator: chunks must be a whole number from 1 to the ${steps} steps, got ${wanted}`);
    return wanted;
  }
  const workers = Math.max(1, session().device.traits.devices);
  return piecesFor(steps, D, strategy, { workers, gpu: onGpu() });
}

/**
 * Default number of pieces of time. A piece has at least 32 steps, because with fewer the product of the pieces costs more than
 * the steps. A CPU needs few lanes, and its products do not gain from width. Every worker gets the same number of pieces.
 */
export function piecesFor(
  steps: number,
  D: number,
  strategy: "gates" | "dense",
  { workers, gpu }: { workers: number; gpu: boolean },
): number {
  const each = strategy === "gates" ? 16 : workers === 1 ? 1 : 32;
  const full = Math.floor((gpu ? lanesWanted : workers * each) / D);
  const most = Math.min(Math.floor(steps / 32), 128);
  // A number of pieces that is not a multiple of the workers leaves some workers idle.
  const even = (pieces: number, round: (x: number) => number): number => round(pieces / workers) * workers;
  return Math.max(1, Math.min(even(full, Math.ceil), most < workers ? most : even(most, Math.floor)));
}

/** Dense strategy: pieces of time in parallel, then their product applied to the initial columns. */
function evolveDense(
  dense: DenseProgram,
  start: Tensor,
  chunks: number,
  grid: Grid,
  gradient: GradientMethod,
  divide: PropagatorOptions["divide"],
): Tensor {
  const { unitaries, lead } = dense;
  const first = constrain(start, 1, chunks === 1 ? divide?.columns : undefined);
  const [D] = first.shape;
  const rows = (angles: Tensor[], pieces: number): Tensor[] =>
    angles.map((a) => a.reshape([pieces, a.shape[0] / pieces, D]).permute([1, 0, 2]));
  const cut = (from: number, to: number): Tensor[] => dense.angles.map((a) => a.index(`${from}:${to}`));
  /** Runs `pieces` pieces of `each` steps in parallel, starting at step `from`. */
  const run = (x: Tensor, from: number, pieces: number, each: number): Tensor => {
    if (gradient.kind !== "reversal" || dense.stepwise === null)
      return runDense({ unitaries, angles: rows(cut(from, from + pieces * each), pieces) }, x, gradient);
    const begins = arange(from, from + pieces * each, each, { dtype: "float64" });
    return runStepwise(unitaries, dense.stepwise, begins, each, x);
  };
  const entered = applyUnitary(lead, first);
  if (chunks === 1) return applyInverse(lead, run(entered, 0, 1, grid.steps));
  const { count, length } = splitSteps(grid.steps, chunks);
  const eye = identityOperator(D).tensor(first.dtype);
  const all = run(
    constrain(
      eye
        .unsqueeze(1)
        .expand([D, count, D])
        .reshape([D, count * D]),
      1,
      [divide?.pieces ?? [], divide?.columns ?? []].flat(),
    ),
    0,
    count,
    length,
  );
  let total = matmul(timeProduct(all.reshape([D, count, D]).permute([1, 0, 2])), entered);
  const rest = grid.steps - count * length;
  if (rest > 0) total = run(total, count * length, 1, rest);
  return applyInverse(lead, total);
}

/** Adds a sharding constraint on a dimension if mesh axes are given. Gradients are left to the planner. */
const constrain = (x: Tensor, dimension: number, axes: string | readonly string[] | undefined): Tensor =>
  axes === undefined || axes.length === 0 ? x : shard(x, { [dimension]: axes });

/** Largest number of pieces that are multiplied sequentially; more are multiplied as a tree, which suits GPUs. */
const chainTo = 16;

/** The matrices of a stack. Their cotangents become one stack, which devices sum once, not piece by piece. */
const unstack = customVjp(
  (maps: Tensor): Tensor[] => Array.from({ length: maps.shape[0] }, (_, k) => maps.index(k)),
  (_, __, cotangents) => [stack(cotangents)],
);

/**
 * Product of a stack of matrices in time order: the first acts first. Few matrices are multiplied sequentially, so that devices
 * gather the pieces once and multiply their own columns; many are multiplied pairwise.
 */
function timeProduct(maps: Tensor): Tensor {
  let rest = shard(maps, {});
  if (rest.shape[0] <= chainTo) return unstack(rest).reduce((total, map) => matmul(map, total));
  while (rest.shape[0] > 1) {
    const [n] = rest.shape;
    const even = n - (n % 2);
    const pairs = matmul(rest.index(`1:${even}:2`), rest.index(`0:${even}:2`));
    if (n % 2 === 0) rest = pairs;
    else {
      const [count] = pairs.shape;
      const joined = matmul(rest.index(n - 1), pairs.index(count - 1)).unsqueeze(0);
      rest = count === 1 ? joined : concat([pairs.index(`0:${count - 1}`), joined]);
    }
  }
  return rest.index(0);
}

/**
 * Propagator [D, D] over the duration, or the images of the initial states `columns` as columns [D, count]. Columns and pieces of
 * time run in parallel.
 *
 * @example
 * ```ts
 * import { hamiltonian, propagator, sigmaX, sigmaZ } from "@weft/quantum";
 *
 * const drive = { drives: [sigmaX], amplitudes: [[0.3], [0.1]] };
 * const { final } = propagator(hamiltonian({ static: sigmaZ, ...drive }), { duration: 2, steps: 100 });
 * console.log(final.adjoint().matmul(final).real().arraySync()); // the identity: the propagator is unitary
 * ```
 */
export function propagator(h: Hamiltonian, options: PropagatorOptions): Evolution {
  checkKeys(options, propagatorOptions, "propagator");
  const ready = prepare(h, options);
  const { method, gradient, grid, D, gates } = ready;
  const done = (columns: Tensor, more: Partial<Evolution> = {}): Evolution =>
    summary({
      final: columns,
      saved: { states: null, expectations: {} },
      plan: savePlan({}, grid.duration),
      grid,
      method,
      gradient,
      kind: "propagator",
      refined: () => propagator(h, { ...options, steps: 2 * grid.steps }).final,
      ...more,
    });
  const starts = options.columns?.cast(grid.complex) ?? identityOperator(D).tensor(grid.complex);
  if (starts.rank !== 2 || starts.shape[1] !== D)
    throw new WeftError(`propagator: columns must be initial states [count, ${D}], got [${starts.shape.join(", ")}]`);
  if (gates === null) {
    const { duration, steps, dtype } = options;
    const known = method.tolerance === undefined ? h : withBreaks(h, [], grid);
    const run = (psi: Tensor) => {
      const { final, accepted, reached, error } = schrodinger(known, psi, { duration, steps, dtype, method, gradient });
      return { final, more: [accepted, reached].filter((x) => x !== null), error: error === null ? [] : [error] };
    };
    const { final, more, error } = vmap(run)(starts) as { final: Tensor; more: Tensor[]; error: Tensor[] };
    const [accepted, reached] = more;
    return done(final.T, {
      ...(accepted !== undefined && { accepted: accepted.max(), reached: reached.all() }),
      ...(error.length > 0 && { error: error[0].max() }),
    });
  }
  const { program, enter, leave } = gates;
  const strategy = strategyFor(options.strategy, program, D);
  // Without drives all steps are equal, so pieces of time gain nothing.
  const isDriven = program.tables.length + program.angles.length > 0;
  const pieces = options.columns === undefined ? chunksFor(options.chunks, grid.steps, D, strategy) : 1;
  const chunks = isDriven ? pieces : 1;
  if (options.columns !== undefined && (options.chunks ?? 1) !== 1)
    throw new WeftError("propagator: pieces of time need the whole propagator; give chunks or columns, not both");
  if (strategy === "dense") {
    // On a GPU, computing the angles of a step takes a dozen kernels beside its few products: store small tables.
    const small = 16 * grid.steps * D <= tableBytes;
    if (onGpu() && options.angles === undefined && small) program.stepAngles = null;
    const first = vmap(enter)(starts).T;
    const out = evolveDense(denseProgram(program, !onGpu()), first, chunks, grid, gradient, options.divide);
    return done(vmap(leave, { inAxes: 1, outAxes: 1 })(out));
  }
  const shared = constrain(starts, 0, options.divide?.columns);
  if (chunks === 1) return done(vmap((psi: Tensor) => leave(runGates(program, enter(psi), gradient)))(shared).T);
  // Lanes of different pieces are at different times and cannot share the computation of angles.
  program.block = blockFor(program, options.angles, chunks);
  const cut = unequalRows(tablesOf(program), chunks, grid.steps);
  const sharded = treeMap((x: Tensor) => constrain(x, 0, options.divide?.pieces), cut);
  const columnsOf = ({ end, ...xs }: typeof cut): Tensor =>
    vmap((psi: Tensor) => runGates({ ...program, ...xs, ...(end !== undefined && { end }) }, psi, gradient))(shared).T;
  const total = timeProduct(vmap(columnsOf)(sharded));
  const inside = vmap(leave, { inAxes: 1, outAxes: 1 });
  const first = vmap(enter, { inAxes: 1, outAxes: 1 })(starts.T);
  return done(inside(matmul(total, first)));
}

function startOf(psi0: Tensor | OperatorLike, D: number, grid: Grid): Tensor {
  const psi = psi0 instanceof Tensor ? psi0.cast(grid.complex) : Operator.from(psi0, "psi0").tensor(grid.complex);
  const flat = psi.rank === 2 && psi.shape[1] === 1 ? psi.squeeze(1) : psi;
  if (flat.rank !== 1 || flat.shape[0] !== D)
    throw new WeftError(`schrodinger: psi0 must be [${D}], got [${psi.shape.join(", ")}]; batches go through vmap`);
  return flat;
}
