// Inputs of solvers and their checks: Hamiltonian terms on some sites, drives with their time dependence, and jump operators.
import { type DType, isComplex, WeftError } from "@weft/core/internal/graph";
import { arange, full, stopGradient, Tensor, tensor, where } from "@weft/core/internal/tensor";
import { concreteOperator, concreteValues } from "../concrete.js";
import { identityOperator, isTensor, Operator, type OperatorLike } from "../operators/index.js";
import { unknownName } from "../schema/index.js";
import type { TimePieces } from "./adaptive.js";

/** Operator on some sites. Rows of the matrix count the levels of the sites; the first site has the slowest index. */
export interface HamiltonianTerm {
  /** Numbers of the parts that it acts on. */
  sites: readonly number[];
  /** Matrix on the sites. */
  matrix: Tensor | Operator;
}

/**
 * Amplitudes of K drives: a table [segments, K] over equal segments, or a function from times [m] to values [m, K].
 */
type Amplitudes = Tensor | ((times: Tensor) => Tensor);

/** Hamiltonian as a sum of local terms: static + sum of amplitude_k(t) drive_k. */
export interface Hamiltonian {
  /** Number of levels of each site. */
  dims: readonly number[];
  /** Terms that do not depend on time. */
  static: readonly HamiltonianTerm[];
  /** Terms that amplitudes multiply. */
  drives: readonly HamiltonianTerm[];
  /** Amplitudes of the drives; null without drives. */
  amplitudes: Amplitudes | null;
  /** Times [n] at which the amplitudes begin or end to change: steps of adaptive methods end there. Default: found by sampling. */
  breaks?: Tensor;
}

/** Jump (collapse) operator of a Lindblad equation. */
export interface Jump {
  /** The collapse operator, without the root of the rate. */
  operator: Tensor | OperatorLike;
  /** Sites that it acts on. Default: the whole space. */
  sites?: readonly number[];
  /** Rate per unit of time, or a function from times [m] to rates [m]. Default: 1. */
  rate?: Tensor | number | ((times: Tensor) => Tensor);
}

/** Matrices on the whole space, for `hamiltonian`. */
interface HamiltonianParts {
  /** The operator that does not depend on time. */
  static: Tensor | OperatorLike;
  /** Operators that amplitudes multiply. */
  drives?: readonly (Tensor | OperatorLike)[];
  /** Amplitude of each drive: functions of time, or values of segments. */
  amplitudes?: Amplitudes | readonly (readonly number[])[];
}

const tolerance = 1e-9;

function checked(
  matrix: Tensor | OperatorLike,
  name: string,
  levels: number | null,
  readsValues = true,
): Tensor | Operator {
  const operator = isTensor(matrix) ? matrix : Operator.from(matrix, name);
  const [rows, columns] = operator instanceof Tensor ? operator.shape.slice(-2) : [operator.rows, operator.columns];
  if (rows !== columns || (levels !== null && rows !== levels))
    throw new WeftError(
      `${name}: needs a ${levels ?? "square"}${levels === null ? "" : `x${levels}`} matrix, got ${rows}x${columns}`,
    );
  const values = operator instanceof Operator ? operator : readsValues ? concreteOperator(operator) : null;
  if (values !== null) checkHermitian(values, name, "take (H + H^H) / 2, or put decay into jumps");
  return operator;
}

/** Throws unless a matrix of numbers is finite and Hermitian. */
export function checkHermitian(matrix: Operator, name: string, remedy: string): void {
  if (matrix.re.some((x) => !Number.isFinite(x)) || matrix.im.some((x) => !Number.isFinite(x)))
    throw new WeftError(`${name}: has an entry that is not a finite number`);
  const error = matrix.hermitianError();
  if (error > tolerance * Math.max(matrix.size(), 1))
    throw new WeftError(
      `${name}: is not Hermitian, an entry differs from its mirror's conjugate by ${error.toExponential(2)}; ${remedy}`,
    );
}

/** Throws if an object has a key that is not known: a misspelled option must not be ignored. */
export function checkKeys(given: object, known: readonly string[], name: string): void {
  for (const [key, value] of Object.entries(given))
    if (value !== undefined && !known.includes(key))
      throw new WeftError(`${name}: ${unknownName("option ", key, known)}`);
}

/**
 * Builds a Hamiltonian of matrices on the whole space: static + sum of amplitude_k(t) drive_k.
 *
 * @example
 * ```ts
 * import { destroy, hamiltonian, numberOperator } from "@weft/quantum";
 *
 * // A driven oscillator with five levels.
 * const a = destroy(5);
 * const h = hamiltonian({
 *   static: numberOperator(5).scale(2 * Math.PI),
 *   drives: [a.add(a.adjoint())],
 *   amplitudes: (t) => t.mul(2 * Math.PI).cos().mul(0.1).unsqueeze(1),
 * });
 * console.log(h.dims, h.drives.length); // [ 5 ] 1
 * ```
 */
export function hamiltonian(parts: HamiltonianParts): Hamiltonian {
  checkKeys(parts, ["static", "drives", "amplitudes"], "hamiltonian");
  const { static: fixed, drives = [], amplitudes } = parts;
  if (amplitudes !== undefined && drives.length === 0)
    throw new WeftError("hamiltonian: amplitudes without drives; give the operators that they multiply");
  const first = checked(fixed, "hamiltonian: static", null);
  const d = first instanceof Tensor ? first.shape[first.rank - 1] : first.rows;
  const table =
    amplitudes === undefined || amplitudes instanceof Tensor || typeof amplitudes === "function"
      ? (amplitudes ?? null)
      : tensor(amplitudes as number[][], { dtype: "float64" });
  return checkHamiltonian({
    dims: [d],
    static: [{ sites: [0], matrix: first }],
    drives: drives.map((drive, k) => ({ sites: [0], matrix: checked(drive, `hamiltonian: drive ${k}`, d) })),
    amplitudes: table,
  });
}

/** Hamiltonians whose terms were checked. */
const known = new WeakSet<Hamiltonian>();

/**
 * Checks the sites, sizes and hermiticity of the terms. Solvers call it, because a Hamiltonian may be written as an object; tensors that
 * would have to be computed for it are not read.
 */
export function checkHamiltonian(h: Hamiltonian): Hamiltonian {
  if (known.has(h)) return h;
  const bad = h.dims.findIndex((d) => !(Number.isInteger(d) && d >= 1));
  if (h.dims.length === 0 || bad >= 0)
    throw new WeftError(`hamiltonian: dims must be whole numbers >= 1, got [${h.dims.join(", ")}]`);
  for (const [kind, terms] of [
    ["static", h.static],
    ["drive", h.drives],
  ] as const)
    terms.forEach(({ sites, matrix }, k) => {
      if (sites.length === 0 || sites.some((s, i) => !(s in h.dims) || (i > 0 && s <= sites[i - 1])))
        throw new WeftError(
          `hamiltonian: ${kind} term ${k} acts on sites [${sites.join(", ")}]; they must ascend and lie in 0..${h.dims.length - 1}`,
        );
      const name = `hamiltonian: ${kind} term ${k}`;
      if (!(matrix instanceof Operator || matrix instanceof Tensor))
        throw new WeftError(`${name}: its matrix must be an Operator or a tensor; make one with Operator.from(rows)`);
      const isComputed = matrix instanceof Operator || matrix.node.value !== null;
      checked(matrix, name, levelsOf(h.dims, sites), isComputed);
    });
  if (h.drives.length > 0 && h.amplitudes === null)
    throw new WeftError(
      `hamiltonian: ${h.drives.length} drives have no amplitudes; give a table or a function of time`,
    );
  if (h.amplitudes instanceof Tensor && (h.amplitudes.rank !== 2 || h.amplitudes.shape[1] !== h.drives.length))
    throw new WeftError(
      `hamiltonian: amplitudes must be [segments, ${h.drives.length}] for ${h.drives.length} drives, got [${h.amplitudes.shape.join(", ")}]`,
    );
  known.add(h);
  return h;
}

export const levelsOf = (dims: readonly number[], sites: readonly number[]): number =>
  sites.reduce((product, s) => product * dims[s], 1);
export const dimensionOf = (h: Hamiltonian): number => h.dims.reduce((a, b) => a * b, 1);

export const matrixOf = (m: Tensor | Operator, dtype: DType): Tensor =>
  m instanceof Operator ? m.tensor(dtype) : m.cast(dtype);

/** A term on the whole space: an Operator if the term is one. */
export function onWholeSpace(h: Pick<Hamiltonian, "dims">, term: HamiltonianTerm, dtype: DType): Tensor | Operator {
  if (term.sites.length === h.dims.length)
    return term.matrix instanceof Operator ? term.matrix : term.matrix.cast(dtype);
  const rest = h.dims.map((_, k) => k).filter((k) => !term.sites.includes(k));
  const restLevels = levelsOf(h.dims, rest);
  const order = [...term.sites, ...rest];
  const dims = order.map((k) => h.dims[k]);
  const n = h.dims.length;
  const back = h.dims.map((_, k) => order.indexOf(k));
  const D = levelsOf(h.dims, order);
  if (term.matrix instanceof Operator) {
    const wide = term.matrix.kron(identityOperator(restLevels));
    const place = Array.from({ length: D }, (_, at) => {
      const digits: number[] = [];
      for (let k = n - 1, left = at; k >= 0; k--) {
        digits[k] = left % h.dims[k];
        left = Math.floor(left / h.dims[k]);
      }
      return order.reduce((sum, k) => sum * h.dims[k] + digits[k], 0);
    });
    return Operator.build(D, D, (i, j) => wide.at(place[i], place[j]));
  }
  const m = levelsOf(h.dims, term.sites);
  const eye = identityOperator(restLevels).tensor(dtype).reshape([1, restLevels, 1, restLevels]);
  const wide = term.matrix
    .cast(dtype)
    .reshape([m, 1, m, 1])
    .mul(eye)
    .reshape([...dims, ...dims]);
  return wide.permute([...back, ...back.map((k) => k + n)]).reshape([D, D]);
}

interface TimeOptions {
  /** End time; a tensor to differentiate with respect to it. */
  duration: Tensor | number;
  steps: number;
  dtype?: "complex64" | "complex128";
}

export interface Grid {
  steps: number;
  /** Step size, a real scalar. */
  h: Tensor;
  duration: Tensor;
  /** The duration as a number, or null if it is a tracer. */
  total: number | null;
  real: "float32" | "float64";
  complex: "complex64" | "complex128";
}

export function timeGrid(options: TimeOptions): Grid {
  const { duration, steps, dtype = "complex128" } = options;
  if (!Number.isInteger(steps) || steps < 1)
    throw new WeftError(`evolve: steps must be a whole number >= 1, got ${steps}`);
  if (dtype !== "complex64" && dtype !== "complex128")
    throw new WeftError(`evolve: dtype must be "complex64" or "complex128", got ${String(dtype)}`);
  if (typeof duration === "number" && !(duration > 0 && Number.isFinite(duration)))
    throw new WeftError(`evolve: duration must be a positive number, got ${duration}`);
  if (duration instanceof Tensor && (duration.rank !== 0 || isComplex(duration.dtype)))
    throw new WeftError(
      `evolve: duration must be one real number, got ${duration.dtype} [${duration.shape.join(", ")}]`,
    );
  const real = dtype === "complex64" ? "float32" : "float64";
  const total = duration instanceof Tensor ? duration.cast(real) : full([], duration, { dtype: real });
  const known = typeof duration === "number" ? duration : (concreteValues(duration)?.[0] ?? null);
  return { steps, h: total.div(steps), duration: total, total: known, real, complex: dtype };
}

/**
 * Drives at the stages of every step: [steps, stages, K]. For a table [steps, 1, K], because each step lies in one segment.
 */
export function driveTable(h: Hamiltonian, grid: Grid, stages: readonly number[]): Tensor {
  const k = h.drives.length;
  const { steps } = grid;
  if (k === 0) return full([steps, 1, 0], 0, { dtype: grid.real });
  if (h.amplitudes instanceof Tensor) {
    const [segments] = h.amplitudes.shape;
    if (steps % segments !== 0)
      throw new WeftError(
        `evolve: ${steps} steps do not divide into the ${segments} segments of the amplitudes; ` +
          `use ${Math.ceil(steps / segments) * segments} steps`,
      );
    return h.amplitudes
      .cast(grid.real)
      .reshape([segments, 1, 1, k])
      .expand([segments, steps / segments, 1, k])
      .reshape([steps, 1, k]);
  }
  const s = stages.length;
  // In float64, because float32 does not represent step indices beyond 2^24 / stages exactly.
  const offsets = tensor([...stages], { dtype: "float64" });
  const at = arange(0, steps, 1, { dtype: "float64" })
    .unsqueeze(1)
    .add(offsets)
    .reshape([steps * s]);
  const values = h.amplitudes!(at.mul(grid.h.cast("float64")).cast(grid.real));
  if (values.rank !== 2 || values.shape[0] !== steps * s || values.shape[1] !== k)
    throw new WeftError(
      `evolve: the amplitudes' function must give [${steps * s}, ${k}] for [${steps * s}] times, got [${values.shape.join(", ")}]`,
    );
  return values.cast(grid.real).reshape([steps, s, k]);
}

/** Drives [stages, K] of one step whose index is a tensor, for drives that are functions of time. */
export function drivesAt(h: Hamiltonian, grid: Grid, stages: readonly number[], step: Tensor): Tensor {
  if (typeof h.amplitudes !== "function") throw new WeftError("evolve: drives of a table are not functions of time");
  const times = tensor([...stages], { dtype: "float64" })
    .add(step)
    .mul(grid.h.cast("float64"));
  return h.amplitudes(times.cast(grid.real)).cast(grid.real);
}

/** Saved times and others, as ascending ends of pieces, with the indices of those that are saved. */
function piecesAt(saved: readonly number[], others: readonly number[]): Pick<TimePieces, "ends" | "picked"> {
  const isNear = (x: number, y: number): boolean => Math.abs(x - y) <= 1e-12;
  const more = others.filter((x) => !saved.some((y) => isNear(x, y)));
  const ends = [...saved, ...more].sort((x, y) => x - y);
  return { ends, picked: saved.map((x) => ends.findIndex((y) => isNear(x, y))) };
}

/** Pieces of time for an adaptive method, and the drives: per piece for tables, else as a function of time. */
export function adaptivePieces(
  h: Hamiltonian,
  grid: Grid,
  saved: readonly number[],
): { pieces: TimePieces; drives: (time: Tensor, u: Tensor) => Tensor } {
  const k = h.drives.length;
  if (!(h.amplitudes instanceof Tensor)) {
    const { amplitudes } = h;
    const drives = (time: Tensor): Tensor =>
      amplitudes!(time.reshape([1]))
        .cast(grid.real)
        .reshape([k]);
    // Times that are tracers are compared inside the loop.
    const { total } = grid;
    const known = h.breaks === undefined ? [] : total === null ? null : concreteValues(h.breaks);
    const inside = (known ?? []).map((t) => t / total!).filter((x) => x > 0 && x < 1);
    const { ends, picked } = piecesAt(saved, [...new Set(inside)]);
    const table = full([ends.length, k], 0, { dtype: grid.real });
    const breaks = known === null ? stopGradient(h.breaks!.cast(grid.real).div(grid.duration)) : null;
    return { pieces: { ends, picked, table, breaks }, drives: k === 0 ? (_, u) => u : drives };
  }
  const [segments] = h.amplitudes.shape;
  const { ends, picked } = piecesAt(
    saved,
    Array.from({ length: segments }, (_, i) => (i + 1) / segments),
  );
  const segmentOf = ends.map((end, i) => Math.floor(((end + (ends[i - 1] ?? 0)) / 2) * segments));
  const table = h.amplitudes.cast(grid.real);
  return {
    pieces: { ends, picked, table: ends.length === segments ? table : table.take(segmentOf, 0), breaks: null },
    drives: (_, u) => u,
  };
}

export interface CheckedJump {
  operator: Tensor | Operator;
  sites: readonly number[] | null;
  rate: Tensor | number | ((times: Tensor) => Tensor);
}

/** A negative rate is no decay: NaN inside a trace, where it cannot be an error, so that no number follows from it. */
const physicalRate = (rate: Tensor): Tensor => where(rate.less(0), Number.NaN, rate);

function checkRate(rate: NonNullable<Jump["rate"]>, name: string): CheckedJump["rate"] {
  if (typeof rate === "function") return (times) => physicalRate(rate(times));
  const values = typeof rate === "number" ? [rate] : concreteValues(rate);
  if (rate instanceof Tensor && (rate.size !== 1 || isComplex(rate.dtype)))
    throw new WeftError(`${name}: the rate must be one real number, got ${rate.dtype} [${rate.shape.join(", ")}]`);
  if (values !== null && !(values[0] >= 0 && Number.isFinite(values[0])))
    throw new WeftError(`${name}: the rate must be a number >= 0, got ${values[0]}`);
  return values === null ? physicalRate(rate as Tensor) : rate;
}

export function checkJumps(jumps: readonly Jump[], h: Pick<Hamiltonian, "dims">): CheckedJump[] {
  return jumps.map((jump, k) => {
    checkKeys(jump, ["operator", "sites", "rate"], `jump ${k}`);
    const { operator, sites, rate = 1 } = jump;
    const made = isTensor(operator) ? operator : Operator.from(operator, `jump ${k}`);
    const [rows, columns] = made instanceof Tensor ? made.shape : [made.rows, made.columns];
    if (sites?.some((s, i) => !(s in h.dims) || (i > 0 && s <= sites[i - 1])) || sites?.length === 0)
      throw new WeftError(`jump ${k}: sites [${sites.join(", ")}] must ascend and lie in 0..${h.dims.length - 1}`);
    const levels = levelsOf(h.dims, sites ?? h.dims.map((_, i) => i));
    if (rows !== levels || columns !== levels)
      throw new WeftError(`jump ${k}: needs a ${levels}x${levels} matrix, got ${rows}x${columns}`);
    const values = made instanceof Operator ? made : concreteOperator(made);
    if (values !== null && [...values.re, ...values.im].some((x) => !Number.isFinite(x)))
      throw new WeftError(`jump ${k}: has an entry that is not a finite number`);
    return { operator: made, sites: sites ?? null, rate: checkRate(rate, `jump ${k}`) };
  });
}

/** A jump operator on the whole space. */
export const wholeJump = (h: Pick<Hamiltonian, "dims">, jump: CheckedJump, dtype: DType): CheckedJump =>
  jump.sites === null
    ? jump
    : { ...jump, sites: null, operator: onWholeSpace(h, { sites: jump.sites, matrix: jump.operator }, dtype) };
