// States and operators under the names of QuTiP.
import { WeftError } from "@weft/core/internal/graph";
import { expm } from "@weft/core/internal/tensor";
import {
  Operator,
  type OperatorEntry,
  sigmaX,
  sigmaY,
  sigmaZ,
  destroy as truncatedDestroy,
} from "../operators/index.js";
import { ketOf, Qobj } from "./qobj.js";

const check = (n: number, name: string): number => {
  if (!Number.isInteger(n) || n < 1)
    throw new WeftError(`${name}: the dimension must be a whole number >= 1, got ${n}`);
  return n;
};
const diagonal = (n: number, value: (k: number) => OperatorEntry): Qobj =>
  new Qobj(Operator.build(n, n, (i, j) => (i === j ? value(i) : 0)));

/** Lowering (annihilation) operator of N levels. */
export const destroy = (N: number): Qobj => new Qobj(truncatedDestroy(check(N, "destroy")));
/** Raising (creation) operator of N levels. */
export const create = (N: number): Qobj => destroy(N).dag();
/** Number operator. */
export const num = (N: number): Qobj => diagonal(check(N, "num"), (k) => k);
/** Identity. */
export const qeye = (N: number): Qobj => diagonal(check(N, "qeye"), () => 1);
/** Position operator (a + a^H) / sqrt(2). */
export const position = (N: number): Qobj => destroy(N).add(create(N)).scale(Math.SQRT1_2);
/** Momentum operator -i (a - a^H) / sqrt(2). */
export const momentum = (N: number): Qobj => destroy(N).sub(create(N)).scale({ re: 0, im: -Math.SQRT1_2 });
/** Pauli X. */
export const sigmax = (): Qobj => new Qobj(sigmaX);
/** Pauli Y. */
export const sigmay = (): Qobj => new Qobj(sigmaY);
/** Pauli Z. */
export const sigmaz = (): Qobj => new Qobj(sigmaZ);
/** Raising operator of a spin, |0><1|: QuTiP counts |0> as spin up. */
export const sigmap = (): Qobj =>
  sigmax()
    .add(sigmay().scale({ re: 0, im: 1 }))
    .scale(0.5);
/** Lowering operator of a spin, |1><0|. */
export const sigmam = (): Qobj => sigmap().dag();

/** Exponential of any operator. */
export const expmOf = (operator: Qobj): Qobj =>
  new Qobj(
    Operator.fromPairs(operator.rows, operator.rows, expm(operator.tensor()).dataSync() as Float64Array),
    operator.dims,
  );

const parts = (x: OperatorEntry): { re: number; im: number } => (typeof x === "number" ? { re: x, im: 0 } : x);
const conjugate = (x: OperatorEntry): OperatorEntry => ({ re: parts(x).re, im: -parts(x).im });

/** Displacement operator exp(alpha a^H - alpha^* a). */
export const displace = (N: number, alpha: OperatorEntry): Qobj =>
  expmOf(
    create(N)
      .scale(alpha)
      .sub(destroy(N).scale(conjugate(alpha))),
  );
/** Squeezing operator exp((z^* a^2 - z a^H^2) / 2). */
export const squeeze = (N: number, z: OperatorEntry): Qobj => {
  const square = destroy(N).mul(destroy(N));
  return expmOf(square.scale(conjugate(z)).sub(square.dag().scale(z)).scale(0.5));
};

/** Spin operators of spin j: "x", "y", "z", "+", "-". */
export function jmat(j: number, which: "x" | "y" | "z" | "+" | "-"): Qobj {
  if (!Number.isInteger(2 * j) || j < 0) throw new WeftError(`jmat: j must be a multiple of 1/2, got ${j}`);
  const n = 2 * j + 1;
  const m = (k: number): number => j - k;
  const up = new Qobj(Operator.build(n, n, (a, b) => (b === a + 1 ? Math.sqrt(j * (j + 1) - m(b) * (m(b) + 1)) : 0)));
  if (which === "+") return up;
  if (which === "-") return up.dag();
  if (which === "x") return up.add(up.dag()).scale(0.5);
  if (which === "y") return up.sub(up.dag()).scale({ re: 0, im: -0.5 });
  if (which === "z") return diagonal(n, m);
  throw new WeftError(`jmat: which must be "x", "y", "z", "+" or "-", got ${String(which)}`);
}

/** Tensor product. */
export const tensor = (...factors: readonly (Qobj | readonly Qobj[])[]): Qobj => {
  const all = factors.flat() as Qobj[];
  if (all.length === 0) throw new WeftError("tensor: needs at least one factor");
  return all.reduce((a, b) => a.kron(b));
};

/** Basis state |n> of N levels. */
export function basis(N: number, n = 0): Qobj {
  if (!Number.isInteger(n) || n < 0 || n >= check(N, "basis"))
    throw new WeftError(`basis: there is no level ${n} among ${N}`);
  return ketOf(Array.from({ length: N }, (_, k) => (k === n ? 1 : 0)));
}
/** Fock state |n>, as `basis`. */
export const fock = basis;
/** Density matrix of a Fock state. */
export const fockDm = (N: number, n = 0): Qobj => ket2dm(basis(N, n));
/** Density matrix |psi><psi|. */
export const ket2dm = (psi: Qobj): Qobj => psi.mul(psi.dag());

/**
 * Coherent state: displacement of the vacuum in the truncated space ("operator", as QuTiP's default), or the amplitudes of the
 * infinite space ("analytic").
 */
export function coherent(N: number, alpha: OperatorEntry, method: "operator" | "analytic" = "operator"): Qobj {
  if (method === "operator") return displace(N, alpha).mul(basis(N, 0));
  const { re, im } = parts(alpha);
  const amplitudes = [{ re: Math.exp(-(re * re + im * im) / 2), im: 0 }];
  for (let k = 1; k < N; k++) {
    const { re: a, im: b } = amplitudes[k - 1];
    amplitudes.push({ re: (a * re - b * im) / Math.sqrt(k), im: (a * im + b * re) / Math.sqrt(k) });
  }
  return ketOf(amplitudes);
}
/** Density matrix of a coherent state. */
export const coherentDm = (N: number, alpha: OperatorEntry): Qobj => ket2dm(coherent(N, alpha));

/** Thermal state with n quanta on average in the truncated space, populations proportional to (n / (1 + n))^k. */
export function thermalDm(N: number, n: number): Qobj {
  if (!(n >= 0)) throw new WeftError(`thermalDm: the average number of quanta must not be negative, got ${n}`);
  const weights = Array.from({ length: check(N, "thermalDm") }, (_, k) =>
    n === 0 ? Number(k === 0) : (n / (1 + n)) ** k,
  );
  const total = weights.reduce((a, b) => a + b, 0);
  return diagonal(N, (k) => weights[k] / total);
}
/** Identity / N. */
export const maximallyMixedDm = (N: number): Qobj => qeye(N).scale(1 / N);

/** Bell states "00": (|00> + |11>) / sqrt(2), "01": (|00> - |11>), "10": (|01> + |10>), "11": (|01> - |10>). */
export function bellState(state: "00" | "01" | "10" | "11" = "00"): Qobj {
  const s = Math.SQRT1_2;
  const table: Record<string, number[]> = {
    "00": [s, 0, 0, s],
    "01": [s, 0, 0, -s],
    "10": [0, s, s, 0],
    "11": [0, s, -s, 0],
  };
  if (!Object.hasOwn(table, state)) throw new WeftError(`bellState: known are 00, 01, 10, 11, got ${String(state)}`);
  return ketOf(table[state], [2, 2]);
}
/** (|0...0> + |1...1>) / sqrt(2) of N qubits. */
export const ghzState = (N = 3): Qobj =>
  ketOf(
    Array.from({ length: 2 ** N }, (_, k) => (k === 0 || k === 2 ** N - 1 ? Math.SQRT1_2 : 0)),
    Array.from({ length: N }, () => 2),
  );
/** Equal superposition of one excitation among N qubits. */
export const wState = (N = 3): Qobj =>
  ketOf(
    Array.from({ length: 2 ** N }, (_, k) => (Number.isInteger(Math.log2(k)) ? 1 / Math.sqrt(N) : 0)),
    Array.from({ length: N }, () => 2),
  );

/** A B - B A, or A B + B A for kind "anti". */
export const commutator = (A: Qobj, B: Qobj, kind: "normal" | "anti" = "normal"): Qobj =>
  kind === "anti" ? A.mul(B).add(B.mul(A)) : A.mul(B).sub(B.mul(A));
