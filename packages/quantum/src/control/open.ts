// Open systems under piecewise constant controls: d^2 - 1 real unknowns (the trace is constant), sparse generators and scalar
// steps, so that a batch compiles into one lane kernel. Optimization and meta-learning use it instead of the general solvers.
import { type DType, WeftError } from "@weft/core/internal/graph";
import { scan, type Tensor, tensor, vmap, zeros } from "@weft/core/internal/tensor";
import { BoundedCache, structureKey } from "../cache/index.js";
import {
  basisState,
  densityOf,
  Operator,
  type OperatorLike,
  onSite,
  pauli,
  sigmaMinus,
  sigmaX,
  sigmaY,
  sigmaZ,
} from "../operators/index.js";
import { commutatorOf, dissipator, hermitianBasis, realMatrix } from "../solvers/internal.js";

/** State transfer of an open system under piecewise constant controls. */
export interface ControlProblem {
  /** Hamiltonian without controls. */
  drift?: OperatorLike;
  /** Hamiltonians that the controls multiply. */
  controls: readonly OperatorLike[];
  /** Collapse operators at rate 1, one or several per channel; a task has one rate per channel. */
  channels: readonly (OperatorLike | readonly OperatorLike[])[];
  /** Initial density matrices and pure target states; the fidelity is the mean over the pairs. */
  pairs: readonly { initial: OperatorLike; target: OperatorLike }[];
  /** Number of segments of the pulse. */
  segments: number;
  /** Length of the pulse. */
  duration: number;
  /** Amplitudes are clipped to [-limit, limit]. */
  limit?: number;
}

/** Taylor orders of one step. On constant segments order 4 is the classical Runge-Kutta method. */
export const stepMethods = { euler: 1, midpoint: 2, rk4: 4, taylor6: 6, taylor8: 8 } as const;
/** Name of a step method. */
export type StepMethod = keyof typeof stepMethods;

/** Integration steps of a control problem. */
export interface SegmentSteps {
  /** Integration method within a segment. */
  method: StepMethod;
  /** Number of steps per segment. */
  perSegment: number;
}

interface GeneratorTerm {
  /** Factor of the term: none (drift), a control, or a rate. */
  source: "drift" | "control" | "rate";
  index: number;
  value: number;
}
interface Cell {
  row: number;
  column: number;
  terms: GeneratorTerm[];
}

/** A checked problem with its operators as sparse real matrices. */
export interface PreparedProblem {
  /** The problem as it was given. */
  problem: ControlProblem;
  /** Hash of the problem: equal problems have equal keys. */
  key: string;
  /** Dimension of the Hilbert space. */
  dimension: number;
  /** Nonzero cells of the generator; column 0 is the constant part. */
  cells: Cell[];
  /** Coordinates of the initial states without the first, which is 1/sqrt(d) for all states. */
  initial: number[][];
  /** Coordinates of the target states, in the same form. */
  target: number[][];
}

/** Real coordinates Re tr(basis . matrix) of a Hermitian matrix. */
const coordinates = (matrix: Operator): number[] => hermitianBasis(matrix.rows).map((b) => b.mul(matrix).trace().re);

function checkSquare(matrix: Operator, d: number, name: string): Operator {
  if (matrix.rows !== d || matrix.columns !== d)
    throw new WeftError(`${name} is ${matrix.rows}x${matrix.columns}, the other operators are ${d}x${d}`);
  if (matrix.re.some((x) => !Number.isFinite(x)) || matrix.im.some((x) => !Number.isFinite(x)))
    throw new WeftError(`${name} holds a number that is not finite`);
  return matrix;
}

function checkState(rho: Operator, name: string, pure: boolean): Operator {
  if (rho.hermitianError() > 1e-12 || Math.abs(rho.trace().re - 1) > 1e-9)
    throw new WeftError(
      `${name} is not a density matrix: it must be Hermitian with trace 1, this has ${rho.trace().re}`,
    );
  const purity = rho.mul(rho).trace().re;
  if (pure && Math.abs(purity - 1) > 1e-9)
    throw new WeftError(`${name} is mixed (purity ${purity}); tr(rho target) is a fidelity only for pure targets`);
  return rho;
}

/** The operators of a channel: one matrix, or a list of matrices, which has one more level of nesting. */
function channelOperators(channel: ControlProblem["channels"][number], name: string): Operator[] {
  const isGroup = Array.isArray(channel) && (channel[0] instanceof Operator || Array.isArray(channel[0]?.[0]));
  const list = (isGroup ? channel : [channel]) as readonly OperatorLike[];
  return list.map((m) => Operator.from(m, name));
}

/** Prepared problems by structure. */
const preparedProblems = new BoundedCache<PreparedProblem>("operators", {
  entries: 64,
  sizeOf: ({ cells, initial, target }) =>
    8 * ([...initial, ...target].flat().length + cells.reduce((n, cell) => n + 2 + 3 * cell.terms.length, 0)),
});

/** Checks a control problem and converts its operators; cached by structure. */
export function prepareProblem(problem: ControlProblem): PreparedProblem {
  const matrices = (list: readonly OperatorLike[], name: string): Operator[] =>
    list.map((m, i) => Operator.from(m, `${name}[${i}]`));
  const key = structureKey(
    problem.drift === undefined ? null : Operator.from(problem.drift, "drift"),
    matrices(problem.controls, "controls"),
    problem.channels.map((c, i) => channelOperators(c, `channels[${i}]`)),
    problem.pairs.map((p) => [Operator.from(p.initial, "initial"), Operator.from(p.target, "target")]),
    [problem.segments, problem.duration, problem.limit ?? null],
  );
  return preparedProblems.get(key, () => checkAndPrepare(problem, key));
}

function checkAndPrepare(problem: ControlProblem, key: string): PreparedProblem {
  const { segments, duration, limit } = problem;
  if (!Number.isInteger(segments) || segments < 1)
    throw new WeftError(`control: segments must be a whole number >= 1, got ${segments}`);
  if (!(duration > 0 && Number.isFinite(duration)))
    throw new WeftError(`control: duration must be above 0, got ${duration}`);
  if (limit !== undefined && !(limit > 0)) throw new WeftError(`control: limit must be above 0, got ${limit}`);
  if (problem.controls.length === 0) throw new WeftError("control: controls is empty; give at least one Hamiltonian");
  if (problem.pairs.length === 0) throw new WeftError("control: pairs is empty; give an initial state and its target");
  const d = Operator.from(problem.controls[0], "controls[0]").rows;
  const cells = new Map<number, Cell>();
  const place = (matrix: Operator, source: GeneratorTerm["source"], index: number): void => {
    matrix.re.forEach((value, at) => {
      if (value === 0) return;
      const cell = cells.get(at) ?? { row: Math.floor(at / matrix.columns), column: at % matrix.columns, terms: [] };
      cell.terms.push({ source, index, value });
      cells.set(at, cell);
    });
  };
  const hamiltonian = (given: OperatorLike, name: string): Operator => {
    const h = checkSquare(Operator.from(given, name), d, name);
    if (h.hermitianError() > 1e-12)
      throw new WeftError(`${name} is not Hermitian; a Hamiltonian must equal its conjugate transpose`);
    return realMatrix(d, commutatorOf(h));
  };
  if (problem.drift !== undefined) place(hamiltonian(problem.drift, "drift"), "drift", 0);
  problem.controls.forEach((h, k) => {
    place(hamiltonian(h, `controls[${k}]`), "control", k);
  });
  problem.channels.forEach((c, k) => {
    for (const operator of channelOperators(c, `channels[${k}]`))
      place(realMatrix(d, dissipator(checkSquare(operator, d, `channels[${k}]`))), "rate", k);
  });
  const state = (given: OperatorLike, name: string, pure: boolean): number[] =>
    coordinates(checkState(checkSquare(Operator.from(given, name), d, name), name, pure)).slice(1);
  return {
    problem,
    key,
    dimension: d,
    cells: [...cells.values()],
    initial: problem.pairs.map((p, i) => state(p.initial, `pairs[${i}].initial`, false)),
    target: problem.pairs.map((p, i) => state(p.target, `pairs[${i}].target`, true)),
  };
}

/** The problem with its operators as nested numbers, for JSON. */
export function plainProblem(problem: ControlProblem): ControlProblem {
  const plain = (given: OperatorLike): OperatorLike => {
    const m = Operator.from(given);
    return Array.from({ length: m.rows }, (_, i) => Array.from({ length: m.columns }, (_, j) => m.at(i, j)));
  };
  return {
    ...problem,
    ...(problem.drift !== undefined && { drift: plain(problem.drift) }),
    controls: problem.controls.map(plain),
    channels: problem.channels.map((c) => channelOperators(c, "channel").map(plain)),
    pairs: problem.pairs.map((p) => ({ initial: plain(p.initial), target: plain(p.target) })),
  };
}

/** Pi pulse on one qubit, from |0> to |1>: controls X and Y, channels dephasing and relaxation. */
export function qubitFlip(
  options: { segments?: number; duration?: number; detuning?: number; limit?: number } = {},
): ControlProblem {
  const { segments = 60, duration = 1, detuning = 0, limit = 10 } = options;
  return {
    ...(detuning !== 0 && { drift: sigmaZ.scale(detuning) }),
    controls: [sigmaX, sigmaY],
    channels: [sigmaZ.scale(Math.SQRT1_2), sigmaMinus],
    pairs: [{ initial: densityOf(basisState(2, 0)), target: densityOf(basisState(2, 1)) }],
    segments,
    duration,
    limit,
  };
}

/**
 * Controlled-Z gate on two qubits: coupling J ZZ with J T = pi/4 (twice that is not an entangling gate), controls X, Y and Z of
 * both qubits, dephasing and relaxation of both; the fidelity is the mean over twelve product states.
 */
export function controlledZ(options: { segments?: number; coupling?: number; limit?: number } = {}): ControlProblem {
  const { segments = 30, coupling = 1, limit = 10 } = options;
  const both = (m: Operator): Operator[] => [onSite(m, 0, [2, 2]), onSite(m, 1, [2, 2])];
  const cz = Operator.build(4, 4, (i, j) => (i !== j ? 0 : i === 3 ? -1 : 1));
  const r = Math.SQRT1_2;
  const [zero, one, plus, turned] = [
    [1, 0],
    [0, 1],
    [r, r],
    [r, { re: 0, im: r }],
  ].map((state) => Operator.build(2, 1, (i) => state[i]));
  const products = [zero, one, plus, turned].flatMap((a, i) =>
    [zero, one, plus, turned].flatMap((b, j) => (i + j === 3 ? [] : [a.kron(b)])),
  );
  return {
    drift: pauli("ZZ").scale(coupling),
    controls: ["XI", "YI", "IX", "IY", "ZI", "IZ"].map(pauli),
    channels: [both(sigmaZ.scale(Math.SQRT1_2)), both(sigmaMinus)],
    pairs: products.map((psi) => ({ initial: densityOf(psi), target: densityOf(cz.mul(psi)) })),
    segments,
    duration: Math.PI / 4 / coupling,
    limit,
  };
}

/** A scalar and its sign: cells that differ only in sign share a coefficient. */
interface Signed {
  value: Tensor;
  negative: boolean;
}

/** Coefficients of the cells in one step, without duplicates. */
function coefficients(
  cells: readonly Cell[],
  controls: readonly Tensor[],
  rates: readonly Tensor[],
  like: Tensor,
): Signed[] {
  const known = new Map<string, Tensor>();
  return cells.map(({ terms }) => {
    const sign = Math.sign(terms[0].value);
    const key = terms.map((t) => `${t.source}${t.index}:${t.value * sign}`).join("|");
    let value = known.get(key);
    if (value === undefined) {
      const parts = terms.map((t) => {
        const factor = t.value * sign;
        if (t.source === "drift") return zeros([], { dtype: like.dtype }).add(factor);
        const variable = t.source === "control" ? controls[t.index] : rates[t.index];
        return factor === 1 ? variable : variable.mul(factor);
      });
      value = parts.reduce((a, b) => a.add(b));
      known.set(key, value);
    }
    return { value, negative: sign < 0 };
  });
}

/** The generator without its constant part (column 0) applied to a state. */
function applyLinear(
  cells: readonly Cell[],
  coefficient: readonly Signed[],
  state: readonly Tensor[],
): (Tensor | null)[] {
  const out: (Tensor | null)[] = state.map(() => null);
  cells.forEach(({ row, column }, i) => {
    if (row === 0 || column === 0) return;
    const { value, negative } = coefficient[i];
    const term = value.mul(state[column - 1]);
    const sum = out[row - 1];
    out[row - 1] = sum === null ? (negative ? term.neg() : term) : negative ? sum.sub(term) : sum.add(term);
  });
  return out;
}

const plus = (a: Tensor, b: Tensor | null): Tensor => (b === null ? a : a.add(b));

/** The constant part of the generator, which relaxation contributes. */
function constantPart(prepared: PreparedProblem, coefficient: readonly Signed[]): Map<number, Tensor> {
  const first = 1 / Math.sqrt(prepared.dimension);
  const out = new Map<number, Tensor>();
  prepared.cells.forEach(({ row, column }, i) => {
    if (row === 0 || column !== 0) return;
    const { value, negative } = coefficient[i];
    out.set(row - 1, plus(value.mul(negative ? -first : first), out.get(row - 1) ?? null));
  });
  return out;
}

/** Coordinates of the final state for one initial state: controls [segments, n], rates [channels]. */
function evolveOne(
  prepared: PreparedProblem,
  steps: SegmentSteps,
  controls: Tensor,
  rates: Tensor,
  initial: readonly Tensor[],
): Tensor[] {
  const { problem, cells } = prepared;
  const order = stepMethods[steps.method];
  const h = problem.duration / problem.segments / steps.perSegment;
  const rateScalars = problem.channels.map((_, k) => rates.index(k));
  const perStep = steps.perSegment === 1 ? controls : repeatEach(controls, steps.perSegment);
  const step = (state: Tensor[], u: Tensor): [Tensor[], null] => {
    const scalars = problem.controls.map((_, k) => u.index(k));
    const coefficient = coefficients(cells, scalars, rateScalars, state[0]);
    const constant = constantPart(prepared, coefficient);
    // Horner's form of the Taylor series: v + h (s + h/2 A (s + h/3 A (...))) with s = A v + c.
    const slope = applyLinear(cells, coefficient, state).map((a, i) => sumOf(a, constant.get(i) ?? null, state[i]));
    let inner = slope;
    for (let k = order; k >= 2; k--) {
      const image = applyLinear(cells, coefficient, inner);
      inner = slope.map((s, i) => (image[i] === null ? s : s.add(image[i].mul(h / k))));
    }
    return [state.map((v, i) => v.add(inner[i].mul(h))), null];
  };
  return scan(step, [...initial], perStep)[0];
}

const sumOf = (a: Tensor | null, b: Tensor | null, like: Tensor): Tensor =>
  a === null ? (b ?? zeros([], { dtype: like.dtype })) : plus(a, b);

/** Repeats every row. */
function repeatEach(rows: Tensor, times: number): Tensor {
  const [count, width] = rows.shape;
  return rows
    .unsqueeze(1)
    .expand([count, times, width])
    .reshape([count * times, width]);
}

function checkOperands(prepared: PreparedProblem, controls: Tensor, rates: Tensor): void {
  const { segments, controls: operators, channels } = prepared.problem;
  if (controls.shape.length !== 2 || controls.shape[0] !== segments || controls.shape[1] !== operators.length)
    throw new WeftError(
      `control: controls must be [${segments}, ${operators.length}] (segments, operators), got [${controls.shape}]; use vmap for batches`,
    );
  if (rates.shape.length !== 1 || rates.shape[0] !== channels.length)
    throw new WeftError(`control: rates must be [${channels.length}], one per channel, got [${rates.shape}]`);
}

/**
 * Infidelity of one task. Differentiable; batches go through `vmap`.
 *
 * @param controls - Amplitudes [segments, operators].
 * @param rates - Lindblad rates [channels].
 */
export function controlInfidelity(
  prepared: PreparedProblem,
  steps: SegmentSteps,
  controls: Tensor,
  rates: Tensor,
): Tensor {
  checkOperands(prepared, controls, rates);
  const dtype: DType = controls.dtype;
  const { limit } = prepared.problem;
  const used = limit === undefined ? controls : controls.clip(-limit, limit);
  const like = rates.cast(dtype);
  const missed = (start: Tensor[], weigh: (v: Tensor, i: number) => Tensor | null): Tensor =>
    evolveOne(prepared, steps, used, like, start)
      .flatMap((v, i) => weigh(v, i) ?? [])
      .reduce((a, b) => a.add(b))
      .neg()
      .add(1 - 1 / prepared.dimension);
  if (prepared.initial.length === 1) {
    const [target] = prepared.target;
    return missed(
      prepared.initial[0].map((x) => zeros([], { dtype }).add(x)),
      (v, i) => (target[i] === 0 ? null : v.mul(target[i])),
    );
  }
  // Several initial states are lanes of one program.
  const each = vmap((start: Tensor, target: Tensor) =>
    missed(
      prepared.initial[0].map((_, i) => start.index(i)),
      (v, i) => v.mul(target.index(i)),
    ),
  );
  return each(tensor(prepared.initial, { dtype }), tensor(prepared.target, { dtype })).mean();
}
