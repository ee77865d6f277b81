// Hamiltonians and collapse operators in the forms of QuTiP: operators, and [operator, coefficient] pairs whose coefficient is a
// function of time or a list of values.
import { WeftError } from "@weft/core/internal/graph";
import { tracing } from "@weft/core/internal/runtime";
import { maximum, stack, Tensor, tensor as tensorOf } from "@weft/core/internal/tensor";
import { Operator, type OperatorEntry } from "../operators/index.js";
import { type Hamiltonian, hamiltonian, hostFunction, type Jump } from "../solvers/index.js";
import { checkDims, Qobj } from "./qobj.js";
import { spline } from "./spline.js";

/** Numbers that coefficients get as their second argument. */
export type Args = Readonly<Record<string, number>>;
/**
 * A coefficient: a function from times [m] to values [m], real or complex, in terms of tensors, such as `(t) => t.cos()`, or the values
 * at the times of `tlist`, between which a cubic spline interpolates as in QuTiP.
 */
export type Coefficient = ((t: Tensor, args: Args) => Tensor) | readonly OperatorEntry[];
/** An operator, or a sum of operators and [operator, coefficient] pairs. */
export type QobjEvo = Qobj | readonly (Qobj | readonly [Qobj, Coefficient])[];
/** A collapse operator, constant or multiplied by a coefficient (its rate is the squared magnitude). */
export type CollapseOperator = Qobj | readonly [Qobj, Coefficient];

/** Times of a solver, and what coefficients need beside time. */
interface TimeContext {
  tlist: readonly number[];
  args: Args;
}

type Pair = readonly [Qobj, Coefficient];
const isPair = (term: unknown): term is Pair => Array.isArray(term);

/** The terms of H as a list; a term that is neither an operator nor a pair is an error. */
function termsOf(H: QobjEvo, name: string): readonly (Qobj | Pair)[] {
  const terms = H instanceof Operator ? [H as Qobj] : H;
  if (!Array.isArray(terms) || terms.length === 0)
    throw new WeftError(`${name}: needs an operator or a list of operators and [operator, coefficient] pairs`);
  terms.forEach((term, k) => {
    const operator = isPair(term) ? term[0] : term;
    if (!(operator instanceof Qobj))
      throw new WeftError(`${name}[${k}]: needs a Qobj or a pair [Qobj, coefficient]; make one with Qobj.of(matrix)`);
    if (isPair(term) && term.length !== 2)
      throw new WeftError(`${name}[${k}]: a pair has an operator and a coefficient, got ${term.length} entries`);
  });
  return terms;
}

/** The coefficient as a function of the time since tlist[0]. */
function coefficientOf(c: Coefficient, name: string, { tlist, args }: TimeContext): (t: Tensor) => Tensor {
  const [begin] = tlist;
  const absolute = (t: Tensor): Tensor => (begin === 0 ? t : t.add(begin));
  if (Array.isArray(c)) return (t) => spline(tlist, c, name)(absolute(t));
  if (typeof c !== "function")
    throw new WeftError(
      `${name}: a coefficient is a function of tensors, such as (t) => t.mul(2).cos(), or a list with one value per time of tlist, ` +
        `got ${typeof c === "string" ? `the string "${String(c).slice(0, 40)}"` : typeof c}`,
    );
  return (t) => {
    const value: unknown = c(absolute(t), args);
    if (!(value instanceof Tensor))
      throw new WeftError(
        `${name}: a coefficient gets a tensor of times and must return a tensor, got ${String(value).slice(0, 40)}; write t.cos() for Math.cos(t)`,
      );
    if (value.rank !== 1 || value.shape[0] !== t.shape[0])
      throw new WeftError(
        `${name}: a coefficient must give [m] values for [m] times, got [${value.shape.join(", ")}] for [${t.shape[0]}]; ` +
          "write t.mul(0).add(x) for a constant",
      );
    return value;
  };
}

const imaginary = (x: Tensor): Tensor => (x.dtype.startsWith("complex") ? x.imag() : x.mul(0));

/**
 * The Hamiltonian of a list of terms, from the time tlist[0] on. A term c(t) A enters with its Hermitian part: Re c (A + A^H) / 2 +
 * Im c i (A - A^H) / 2; the sum must be Hermitian, which is checked at some times.
 */
export function hamiltonianOf(H: QobjEvo, context: TimeContext): { h: Hamiltonian; first: Qobj } {
  const terms = termsOf(H, "H");
  const fixed = terms.filter((term): term is Qobj => !isPair(term));
  const moving = terms.flatMap((term, k) =>
    isPair(term) ? [{ A: term[0], c: coefficientOf(term[1], `H[${k}]`, context) }] : [],
  );
  const first = fixed[0] ?? moving[0].A;
  if (first.rows !== first.columns)
    throw new WeftError(`H: needs square operators, got ${first.rows}x${first.columns}`);
  const still = fixed.reduce((sum, term) => sum.add(term), new Qobj(Operator.zeros(first.rows), first.dims));
  moving.forEach(({ A }, k) => void checkDims(A, first.dims, `H: operator of coefficient ${k}`));
  const drives = moving.flatMap(({ A, c }) => [
    { matrix: A.add(A.dag()).scale(0.5), value: (t: Tensor) => c(t).real() },
    { matrix: A.sub(A.dag()).scale({ re: 0, im: 0.5 }), value: (t: Tensor) => imaginary(c(t)) },
  ]);
  const used = drives.filter(({ matrix }) => matrix.size() > 0);
  checkSum(still, moving, context.tlist);
  const h = hamiltonian({
    static: still,
    ...(used.length > 0 && {
      drives: used.map(({ matrix }) => matrix),
      amplitudes: (t: Tensor) =>
        stack(
          used.map(({ value }) => value(t).cast(t.dtype)),
          1,
        ),
    }),
  });
  return { h, first };
}

/** Number of times at which the sum of all terms is checked, so that short pulses are seen too. */
const checkedTimes = 1024;

/**
 * Throws unless the sum of all terms is Hermitian at many times. What is not Hermitian in a sum is -i (A - A^H) of its terms times real
 * parts of the coefficients, and A + A^H times imaginary ones: these matrices are compared entry by entry.
 */
function checkSum(still: Qobj, moving: readonly { A: Qobj; c(t: Tensor): Tensor }[], tlist: readonly number[]): void {
  const duration = tlist[tlist.length - 1] - tlist[0];
  const count = moving.length === 0 ? 1 : checkedTimes;
  const at = Float64Array.from({ length: count }, (_, k) => ((k + 0.5) / count) * duration);
  const excess = [still, ...moving.map(({ A }) => A)].map((A) => A.sub(A.dag()));
  const sums = moving.map(({ A }) => A.add(A.dag()));
  const values = moving.map(({ c }, j) => {
    // A real coefficient of a Hermitian operator cannot be wrong.
    const isComplex = tracing(() => c(tensorOf([0, 1], { dtype: "float64" }))).dtype.startsWith("complex");
    if (!isComplex && excess[j + 1].size() === 0) return null;
    const [re, im] = [(t: Tensor) => c(t).real(), (t: Tensor) => imaginary(c(t))].map(
      (part) => hostFunction(part)(at)[0],
    );
    return { re, im, isTurned: im.some((x) => x !== 0) };
  });
  const size = Math.max(1, still.size(), ...moving.map(({ A }) => A.size()));
  // Entries at which a term alone is not Hermitian; a coefficient with an imaginary part makes all entries of its term such.
  const entries = Array.from(still.re.keys()).filter(
    (e) =>
      excess.some(({ re, im }) => re[e] !== 0 || im[e] !== 0) ||
      sums.some(({ re, im }, j) => values[j]?.isTurned === true && (re[e] !== 0 || im[e] !== 0)),
  );
  const isBad = (k: number): boolean => {
    let most = 1;
    for (const value of values) if (value !== null) most += Math.hypot(value.re[k], value.im[k]);
    for (const e of entries) {
      let [re, im] = [excess[0].re[e], excess[0].im[e]];
      for (let j = 0; j < values.length; j++) {
        const value = values[j];
        if (value === null) continue;
        const [a, b] = [value.re[k], value.im[k]];
        re += a * excess[j + 1].re[e] - b * sums[j].im[e];
        im += a * excess[j + 1].im[e] + b * sums[j].re[e];
      }
      if (Math.hypot(re, im) > 1e-9 * size * most) return true;
    }
    return false;
  };
  const bad = entries.length === 0 ? -1 : at.findIndex((_, k) => isBad(k));
  if (bad >= 0)
    throw new WeftError(
      `H: is not Hermitian at t = ${at[bad] + tlist[0]}; add the adjoint terms [A.dag(), conjugate coefficient], and put decay into cOps`,
    );
}

/** Collapse operators as a list of jumps; one operator is a list of one. */
export function jumpsOf(
  cOps: CollapseOperator | readonly CollapseOperator[],
  dims: Qobj["dims"],
  context: TimeContext,
): Jump[] {
  return collapseList(cOps).map((c, k) => {
    const name = `cOps[${k}]`;
    const operator = isPair(c) ? c[0] : c;
    if (!(operator instanceof Qobj))
      throw new WeftError(`${name}: needs a Qobj or a pair [Qobj, coefficient]; make one with Qobj.of(matrix)`);
    checkDims(operator, dims, name);
    if (!isPair(c)) return { operator };
    return { operator, rate: rateOf(c[1], name, context) };
  });
}

/** The squared magnitude of a coefficient. Of a list of values the squares are interpolated, as QuTiP does. */
function rateOf(c: Coefficient, name: string, context: TimeContext): (t: Tensor) => Tensor {
  const isList = Array.isArray(c);
  const squares = (list: readonly OperatorEntry[]): number[] =>
    list.map((x) => (typeof x === "number" ? x * x : x.re ** 2 + x.im ** 2));
  const coefficient = coefficientOf(isList ? squares(c) : c, name, context);
  if (isList) checkRate(coefficient, name, context.tlist);
  return (t) => {
    const value = coefficient(t);
    return (isList ? maximum(value, 0) : value.real().square().add(imaginary(value).square())).cast(t.dtype);
  };
}

/**
 * Throws if a spline through squared values falls below zero by more than rounding and a little overshoot, which is cut off: with negative
 * rates a state is no state any more.
 */
function checkRate(rate: (t: Tensor) => Tensor, name: string, tlist: readonly number[]): void {
  const duration = tlist[tlist.length - 1] - tlist[0];
  const at = Float64Array.from({ length: checkedTimes }, (_, k) => ((k + 0.5) / checkedTimes) * duration);
  const [values] = hostFunction(rate)(at);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (least < -overshoot * most)
    throw new WeftError(
      `${name}: the cubic spline through the squared values falls to ${least.toPrecision(3)} at t = ${tlist[0] + at[values.indexOf(least)]}, ` +
        "which is no rate; give more times, or a function",
    );
}
/** Negative rates of splines that are cut off, relative to the largest rate. */
const overshoot = 0.01;

/** Collapse operators as a list. A list of an operator and a coefficient is one pair. */
export function collapseList(cOps: CollapseOperator | readonly CollapseOperator[]): readonly CollapseOperator[] {
  if (cOps instanceof Operator) return [cOps as Qobj];
  if (cOps === null || cOps === undefined) return [];
  const list = cOps as readonly unknown[];
  if (!Array.isArray(list)) throw new WeftError(`cOps: needs an operator or a list of operators, got ${typeof cOps}`);
  const isOnePair =
    list.length === 2 && list[0] instanceof Operator && (typeof list[1] === "function" || isNumbers(list[1]));
  return isOnePair ? [cOps as Pair] : (cOps as readonly CollapseOperator[]);
}

const isNumbers = (x: unknown): boolean => Array.isArray(x) && !(x[0] instanceof Operator) && !Array.isArray(x[0]);
