// Single-qubit gates before and after a gate that maximize its fidelity: virtual Z, or arbitrary. Coordinate ascent over the
// qubits inside the program, with a closed form per qubit. At the maximum their gradient vanishes, so they are constants of
// differentiation.
import { range, WeftError } from "@weft/core/internal/graph";
import {
  abs,
  adjoint,
  angle,
  complex,
  concat,
  conj,
  cos,
  matmul,
  scan,
  sin,
  stack,
  stopGradient,
  type Tensor,
  tensor,
  treeMap,
  vmap,
  where,
} from "@weft/core/internal/tensor";
import { identityOperator, Operator, type OperatorLike } from "../operators/index.js";
import { blockOf, targetOf, type Unitary } from "./gates.js";

/** Single-qubit gates that compensation may use. */
export type Compensation = "none" | "virtual-z" | "single-qubit";

/** Options of `compensate`. @inline */
interface CompensateOptions {
  /** Sweeps over all qubits. */
  rounds?: number;
}

const qubitsOf = (block: Tensor): number => {
  const n = Math.log2(block.shape[block.rank - 1]);
  if (!Number.isInteger(n)) throw new WeftError("compensate: needs qubits, the block's size is not a power of two");
  return n;
};

const product = (a: Tensor, b: Tensor): Tensor => {
  const [m, n] = [a.shape[0], b.shape[0]];
  return a
    .reshape([m, 1, m, 1])
    .mul(b.reshape([1, n, 1, n]))
    .reshape([m * n, m * n]);
};

/** exp(i x) of real x */
const turn = (x: Tensor): Tensor => complex(cos(x), sin(x));

/** The best angles x of exp(i x Z) after the gate [n] and before it [n]. */
export function virtualZAngles(u: Unitary, target: Tensor | OperatorLike, { rounds = 60 }: CompensateOptions = {}) {
  const block = stopGradient(blockOf(u));
  const n = qubitsOf(block);
  const size = 2 ** n;
  const real = block.dtype === "complex64" ? "float32" : "float64";
  // tr(V^H P U Q) = sum of p_i w_ij q_j for diagonal P, Q
  const weights = conj(targetOf(target, block)).mul(block);
  const signs = Operator.build(n, size, (k, s) => ((s >> (n - 1 - k)) & 1 ? -1 : 1)).tensor(real);
  const phases = (x: Tensor): Tensor => turn(x.reshape([n, 1]).mul(signs).sum(0));
  /** Maximizes over one angle: |a e^{ix} + b e^{-ix}| is largest where both terms have the same phase. */
  const improve = (x: Tensor, sums: Tensor, k: number): Tensor => {
    const other = x.mul(identityOperator(n).tensor(real).index(k).neg().add(1));
    const parts = phases(other).mul(sums);
    const sign = signs.index(k);
    const plus = where(sign.greater(0), parts, 0).sum();
    const minus = where(sign.less(0), parts, 0).sum();
    const best = angle(minus).sub(angle(plus)).mul(0.5);
    return other.add(identityOperator(n).tensor(real).index(k).mul(best));
  };
  const round = ([after, before]: [Tensor, Tensor]): [Tensor, Tensor] => {
    for (let k = 0; k < n; k++) after = improve(after, matmul(weights, phases(before).unsqueeze(1)).squeeze(1), k);
    for (let k = 0; k < n; k++) before = improve(before, matmul(phases(after).unsqueeze(0), weights).squeeze(0), k);
    return [after, before];
  };
  const run = (start: [Tensor, Tensor]): [Tensor, Tensor] =>
    scan((c: [Tensor, Tensor]): [[Tensor, Tensor], []] => [round(c), []], start, [], { length: rounds })[0];
  const overlap = ([after, before]: [Tensor, Tensor]): Tensor =>
    abs(phases(after).unsqueeze(1).mul(weights).mul(phases(before).unsqueeze(0)).sum());
  const found = vmap((x: Tensor) => {
    const [after, before] = run([x.index(`0:${n}`), x.index(`${n}:`)]);
    return { after, before, overlap: overlap([after, before]) };
  })(
    tensor(
      range(starts).map((k) => range(2 * n).map((j) => Math.PI * startAngle(k, j))),
      { dtype: real },
    ),
  );
  return { ...bestOf(found), phases };
}

/** Ascents from several gates, because the overlap is stationary where it vanishes. The first one starts without gates. */
const starts = 4;
/** Numbers from 0 to 1 in no order; 0 for the first start. */
const startAngle = (start: number, j: number): number => (start * (j + 1) * 0.6180339887498949) % 1;

/** The ascent with the largest overlap; one that is larger by rounding only does not replace an earlier one. */
function bestOf<T extends { overlap: Tensor }>(found: T): T {
  const pick = (k: number): T => treeMap((x: Tensor) => x.index(k), found);
  return range(starts)
    .slice(1)
    .reduce((best, k) => {
      const other = pick(k);
      const isBetter = other.overlap.greater(best.overlap.mul(1 + 1e-7).add(1e-12));
      return treeMap((a: Tensor, b: Tensor) => where(isBetter, a, b), other, best);
    }, pick(0));
}

/** Unitary factor w of the polar decomposition of a 2x2 matrix r: it maximizes |tr(r w^H)|. */
function polar(r: Tensor): Tensor {
  const [a, b, c, d] = [r.index(0, 0), r.index(0, 1), r.index(1, 0), r.index(1, 1)];
  const det = a.mul(d).sub(b.mul(c));
  const size = abs(det);
  const flat = size.less(1e-300);
  const direction = where(flat, 1, det.div(where(flat, 1, size)));
  const cofactor = stack([stack([conj(d), conj(c).neg()]), stack([conj(b).neg(), conj(a)])]);
  const sum = r.add(cofactor.mul(direction));
  const scale = abs(sum.index(0, 0))
    .square()
    .add(abs(sum.index(0, 1)).square())
    .sqrt();
  const none = scale.less(1e-150);
  return where(none, identityOperator(2).tensor(r.dtype), sum.div(where(none, 1, scale)));
}

/** A rotation about an axis that no gate is symmetric to; the identity for the first start. */
function startGate(start: number, j: number): Operator {
  const x = Math.PI * startAngle(start, j);
  const [c, s] = [Math.cos(x), Math.sin(x)];
  const axis = [2 / 7, 3 / 7, 6 / 7];
  return Operator.from([
    [
      { re: c, im: -s * axis[2] },
      { re: -s * axis[1], im: -s * axis[0] },
    ],
    [
      { re: s * axis[1], im: -s * axis[0] },
      { re: c, im: s * axis[2] },
    ],
  ]);
}

/** The best single-qubit unitaries [2 n, 2, 2]: those after the gate, then those before it. */
export function singleQubitGates(u: Unitary, target: Tensor | OperatorLike, { rounds = 120 }: CompensateOptions = {}) {
  const block = stopGradient(blockOf(u));
  const n = qubitsOf(block);
  const goal = targetOf(target, block);
  const join = (gates: Tensor, from: number): Tensor =>
    Array.from({ length: n }, (_, k) => gates.index(from + k)).reduce((a, b) => product(a, b));
  /** The matrix r with tr(A r) = the overlap as a function of one factor A. */
  const environment = (m: Tensor, others: Tensor, from: number, k: number): Tensor => {
    const left = 2 ** k;
    const right = 2 ** (n - 1 - k);
    const eye = identityOperator(2).tensor(block.dtype);
    const factors = Array.from({ length: n }, (_, q) => (q === k ? eye : others.index(from + q)));
    // m times the other factors, then the partial trace over all qubits but k.
    const full = matmul(
      factors.reduce((a, b) => product(a, b)),
      m,
    ).reshape([left, 2, right, left, 2, right]);
    const l = identityOperator(left).tensor(block.dtype).reshape([left, 1, 1, left, 1, 1]);
    const r = identityOperator(right).tensor(block.dtype).reshape([1, 1, right, 1, 1, right]);
    return full.mul(l).mul(r).sum([0, 2, 3, 5]);
  };
  const put = (gates: Tensor, at: number, one: Tensor): Tensor =>
    concat([gates.index(`0:${at}`), one.unsqueeze(0), gates.index(`${at + 1}:`)]);
  const round = (start: Tensor): Tensor => {
    let gates = start;
    for (let k = 0; k < n; k++) {
      const m = matmul(block, matmul(join(gates, n), adjoint(goal)));
      gates = put(gates, k, adjoint(polar(environment(m, gates, 0, k))));
    }
    for (let k = 0; k < n; k++) {
      const m = matmul(adjoint(goal), matmul(join(gates, 0), block));
      gates = put(gates, n + k, adjoint(polar(environment(m, gates, n, k))));
    }
    return gates;
  };
  const { gates } = bestOf(
    vmap((start: Tensor) => {
      const [found] = scan((c: Tensor): [Tensor, []] => [round(c), []], start, [], { length: rounds });
      const whole = matmul(join(found, 0), matmul(block, join(found, n)));
      return { gates: found, overlap: abs(conj(goal).mul(whole).sum()) };
    })(stack(range(starts).map((k) => stack(range(2 * n).map((j) => startGate(k, j).tensor(block.dtype)))))),
  );
  return { after: join(gates, 0), before: join(gates, n), gates };
}

/**
 * Applies the single-qubit gates that maximize the fidelity of a gate with its target. Differentiable; the corrections are
 * constants of differentiation.
 *
 * @example
 * ```ts
 * import { averageGateInfidelity, compensate, gate } from "@weft/quantum";
 *
 * // A CZ gate is a CNOT up to single-qubit gates.
 * const corrected = compensate(gate("CZ").tensor(), gate("CNOT"), "single-qubit");
 * console.log(averageGateInfidelity(corrected, gate("CNOT")).itemSync() < 1e-9); // true
 * ```
 */
export function compensate(
  u: Unitary,
  target: Tensor | OperatorLike,
  kind: Compensation,
  options: CompensateOptions = {},
): Tensor {
  const block = blockOf(u);
  if (kind === "none") return block;
  if (kind === "virtual-z") {
    const { after, before, phases } = virtualZAngles(u, target, options);
    return phases(stopGradient(after))
      .unsqueeze(1)
      .mul(block)
      .mul(phases(stopGradient(before)).unsqueeze(0));
  }
  if (kind !== "single-qubit")
    throw new WeftError(`compensate: there is no "${String(kind)}"; known: none, virtual-z, single-qubit`);
  const { after, before } = singleQubitGates(u, target, options);
  return matmul(stopGradient(after), matmul(block, stopGradient(before)));
}
