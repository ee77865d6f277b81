// States and operators under the names of QuTiP.
import { WeftError } from "@weft/core/internal/graph";
import {
  Operator,
  type OperatorEntry,
  sigmaX,
  sigmaY,
  sigmaZ,
  destroy as truncatedDestroy,
} from "../operators/index.js";
import { checkQobj, densityMatrix, ketOf, Qobj } from "./qobj.js";

/** Largest number of levels of a ket. */
const mostLevels = 2 ** 24;
const check = (n: number, name: string): number => {
  if (!Number.isInteger(n) || n < 1 || n > mostLevels)
    throw new WeftError(`${name}: the dimension must be a whole number from 1 to ${mostLevels}, got ${n}`);
  return n;
};
const diagonal = (n: number, value: (k: number) => OperatorEntry): Qobj =>
  new Qobj(Operator.build(n, n, (i, j) => (i === j ? value(i) : 0)));

const checkOffset = (offset: number, name: string): number => {
  if (!Number.isInteger(offset) || offset < 0)
    throw new WeftError(`${name}: the lowest level must be a whole number >= 0, got ${offset}`);
  return offset;
};
/** One number of levels, or one per subsystem. */
type Levels = number | readonly number[];
const listOf = (N: Levels): readonly number[] => (typeof N === "number" ? [N] : N);

/** Lowering (annihilation) operator of N levels, the lowest of which has `offset` quanta. */
export const destroy = (N: number, offset = 0): Qobj =>
  checkOffset(offset, "destroy") === 0
    ? new Qobj(truncatedDestroy(check(N, "destroy")))
    : new Qobj(Operator.build(check(N, "destroy"), N, (i, j) => (j === i + 1 ? Math.sqrt(offset + j) : 0)));
/** Raising (creation) operator of N levels, the lowest of which has `offset` quanta. */
export const create = (N: number, offset = 0): Qobj => destroy(N, offset).dag();
/** Number operator of N levels, the lowest of which has `offset` quanta. */
export const num = (N: number, offset = 0): Qobj => diagonal(check(N, "num"), (k) => k + checkOffset(offset, "num"));
/** Identity; a list of dimensions gives that of a product space. */
export const qeye = (N: Levels): Qobj => onDims(N, "qeye", 1);
/** Identity, as `qeye`. */
export const identity = qeye;
/** Zero operator; a list of dimensions gives that of a product space. */
export const qzero = (N: Levels): Qobj => onDims(N, "qzero", 0);

function onDims(N: Levels, name: string, value: number): Qobj {
  const dims = listOf(N);
  dims.forEach((n) => void check(n, name));
  const n = dims.reduce((a, b) => a * b, 1);
  return new Qobj(
    Operator.build(n, n, (i, j) => (i === j ? value : 0)),
    [dims, dims],
  );
}

/**
 * Matrix with entries on diagonals: `offsets[k]` is the place of `diagonals[k]`, positive above the main diagonal. One list of
 * numbers is one diagonal.
 */
export function qdiags(
  given: readonly OperatorEntry[] | readonly (readonly OperatorEntry[])[],
  places: number | readonly number[] = 0,
): Qobj {
  const diagonals = (Array.isArray(given[0]) ? given : [given]) as readonly (readonly OperatorEntry[])[];
  const offsets = [places].flat() as number[];
  if (diagonals.length !== offsets.length || diagonals.length === 0)
    throw new WeftError(
      `qdiags: needs one offset per diagonal, got ${diagonals.length} diagonals, ${offsets.length} offsets`,
    );
  const n = diagonals[0].length + Math.abs(offsets[0]);
  const bad = diagonals.findIndex((x, k) => x.length + Math.abs(offsets[k]) !== n);
  if (bad >= 0)
    throw new WeftError(`qdiags: diagonal ${bad} has ${diagonals[bad].length} entries, which do not fit ${n} levels`);
  return new Qobj(
    diagonals
      .map((x, k) => Operator.build(n, n, (i, j) => (j - i === offsets[k] ? x[Math.min(i, j)] : 0)))
      .reduce((sum, m) => sum.add(m)),
  );
}
/** |n><m| of N levels. */
export const projection = (N: number, n: number, m: number): Qobj => basis(N, n).mul(basis(N, m).dag());

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

const parts = (x: OperatorEntry): { re: number; im: number } => (typeof x === "number" ? { re: x, im: 0 } : x);
const conjugate = (x: OperatorEntry): OperatorEntry => ({ re: parts(x).re, im: -parts(x).im });

/** Displacement operator exp(alpha a^H - alpha^* a). */
export const displace = (N: number, alpha: OperatorEntry): Qobj =>
  create(N)
    .scale(alpha)
    .sub(destroy(N).scale(conjugate(alpha)))
    .expm();
/** Squeezing operator exp((z^* a^2 - z a^H^2) / 2). */
export const squeeze = (N: number, z: OperatorEntry): Qobj => {
  const square = destroy(N).mul(destroy(N));
  return square.scale(conjugate(z)).sub(square.dag().scale(z)).scale(0.5).expm();
};

/** Spin operators of spin j: "x", "y", "z", "+", "-"; without a name the list of x, y and z. */
export function jmat(j: number): [Qobj, Qobj, Qobj];
export function jmat(j: number, which: "x" | "y" | "z" | "+" | "-"): Qobj;
export function jmat(j: number, which?: "x" | "y" | "z" | "+" | "-"): Qobj | [Qobj, Qobj, Qobj] {
  if (which === undefined) return [jmat(j, "x"), jmat(j, "y"), jmat(j, "z")];
  const n = spinLevels(j, "jmat");
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
  all.forEach((factor, k) => void checkQobj(factor, `tensor: factor ${k}`));
  return all.reduce((a, b) => a.kron(b));
};

/** Basis state |n> of N levels; lists give a state of a product space, `basis([2, 3], [1, 0])`. */
export function basis(N: Levels, n: Levels = typeof N === "number" ? 0 : N.map(() => 0)): Qobj {
  const [dims, levels] = [listOf(N), listOf(n)];
  dims.forEach((d) => void check(d, "basis"));
  if (levels.length !== dims.length || levels.some((k, at) => !Number.isInteger(k) || k < 0 || k >= dims[at]))
    throw new WeftError(`basis: there is no level [${levels.join(", ")}] among [${dims.join(", ")}]`);
  const at = levels.reduce((sum, k, i) => sum * dims[i] + k, 0);
  const size = check(
    dims.reduce((a, b) => a * b, 1),
    "basis",
  );
  return ketOf(
    Array.from({ length: size }, (_, k) => Number(k === at)),
    dims,
  );
}
/** Product state of digits: ket("10") is |1>|0>; `dim` is the number of levels of every subsystem. */
export function ket(digits: string, dim: Levels = 2): Qobj {
  const levels = [...digits].map((x) => (/^[0-9]$/.test(x) ? Number(x) : Number.NaN));
  return basis(typeof dim === "number" ? levels.map(() => dim) : dim, levels);
}
/** Fock state |n>, as `basis`. */
export const fock = basis;
/** Density matrix of a Fock state. */
export const fockDm = (N: Levels, n?: Levels): Qobj => ket2dm(basis(N, n));
/** Product state of digits as a bra, as `ket`. */
export const bra = (digits: Parameters<typeof ket>[0], dim: Levels = 2): Qobj => ket(digits, dim).dag();
/** Singlet state (|01> - |10>) / sqrt(2). */
export const singletState = (): Qobj => bellState("11");
/** Triplet states |11>, (|01> + |10>) / sqrt(2) and |00>. */
export const tripletStates = (): Qobj[] => [basis([2, 2], [1, 1]), bellState("10"), basis([2, 2], [0, 0])];
/** Ket of zeros. */
export const zeroKet = (N: Levels): Qobj => basis(N).scale(0);

/** State |j, m> of a spin j: |j, j> is the first level. `type` "dm" gives its density matrix, "bra" the bra. */
export function spinState(j: number, m: number, type: "ket" | "bra" | "dm" = "ket"): Qobj {
  const levels = spinLevels(j, "spinState");
  if (!Number.isInteger(j - m) || Math.abs(m) > j)
    throw new WeftError(`spinState: m must be one of -${j}, ..., ${j} in steps of 1, got ${m}`);
  return stateAs(basis(levels, j - m), type, "spinState");
}
/** Coherent state of a spin j: exp(theta (e^(i phi) J- - e^(-i phi) J+) / 2) |j, j>. */
export function spinCoherent(j: number, theta: number, phi: number, type: "ket" | "bra" | "dm" = "ket"): Qobj {
  const lower = jmat(j, "-").scale({ re: (theta / 2) * Math.cos(phi), im: (theta / 2) * Math.sin(phi) });
  return stateAs(lower.sub(lower.dag()).expm().mul(spinState(j, j)), type, "spinCoherent");
}

function stateAs(psi: Qobj, type: string, name: string): Qobj {
  if (type === "ket") return psi;
  if (type === "bra") return psi.dag();
  if (type === "dm") return ket2dm(psi);
  throw new WeftError(`${name}: type must be "ket", "bra" or "dm", got ${String(type)}`);
}

function spinLevels(j: number, name: string): number {
  if (!Number.isInteger(2 * j) || j < 0) throw new WeftError(`${name}: j must be a multiple of 1/2, got ${j}`);
  return 2 * j + 1;
}
/** Density matrix |psi><psi|. */
export function ket2dm(psi: Qobj): Qobj {
  if (psi.isoper) throw new WeftError(`ket2dm: needs a ket or a bra, got an operator of ${psi.rows} x ${psi.columns}`);
  return densityMatrix(psi);
}

/**
 * Coherent state: displacement of the vacuum in the truncated space ("operator", as QuTiP's default), or the amplitudes of the
 * infinite space ("analytic").
 */
export function coherent(N: number, alpha: OperatorEntry, method: "operator" | "analytic" = "operator"): Qobj {
  if (method === "operator") return displace(N, alpha).mul(basis(N, 0));
  if (method !== "analytic")
    throw new WeftError(`coherent: method must be "operator" or "analytic", got ${String(method)}`);
  check(N, "coherent");
  const { re, im } = parts(alpha);
  const amplitudes = [{ re: Math.exp(-(re * re + im * im) / 2), im: 0 }];
  for (let k = 1; k < N; k++) {
    const { re: a, im: b } = amplitudes[k - 1];
    amplitudes.push({ re: (a * re - b * im) / Math.sqrt(k), im: (a * im + b * re) / Math.sqrt(k) });
  }
  return ketOf(amplitudes);
}
/** Density matrix of a coherent state. */
export const coherentDm = (N: number, alpha: OperatorEntry, method?: "operator" | "analytic"): Qobj =>
  ket2dm(coherent(N, alpha, method));

/**
 * Thermal state with n quanta on average, populations proportional to (n / (1 + n))^k: normalized in the truncated space ("operator", as
 * QuTiP's default), or with the populations of the infinite space ("analytic"), whose sum is below 1.
 */
export function thermalDm(N: number, n: number, method: "operator" | "analytic" = "operator"): Qobj {
  if (method !== "operator" && method !== "analytic")
    throw new WeftError(`thermalDm: method must be "operator" or "analytic", got ${String(method)}`);
  if (!(n >= 0 && Number.isFinite(n)))
    throw new WeftError(`thermalDm: the average number of quanta must be a finite number >= 0, got ${n}`);
  const weights = Array.from({ length: check(N, "thermalDm") }, (_, k) =>
    n === 0 ? Number(k === 0) : (n / (1 + n)) ** k,
  );
  const total = method === "analytic" ? 1 + n : weights.reduce((a, b) => a + b, 0);
  return diagonal(N, (k) => weights[k] / total);
}
/** Identity divided by the number of levels. */
export function maximallyMixedDm(N: Levels): Qobj {
  const one = qeye(N);
  return one.scale(1 / one.rows);
}

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
/** A state of N qubits from the amplitudes of its basis states. */
function qubits(N: number, name: string, amplitude: (k: number) => number): Qobj {
  if (!Number.isInteger(N) || N < 1 || 2 ** N > mostLevels)
    throw new WeftError(`${name}: the number of qubits must be a whole number from 1 to 24, got ${N}`);
  return ketOf(
    Array.from({ length: 2 ** N }, (_, k) => amplitude(k)),
    Array.from({ length: N }, () => 2),
  );
}
/** (|0...0> + |1...1>) / sqrt(2) of N qubits. */
export const ghzState = (N = 3): Qobj => qubits(N, "ghzState", (k) => (k === 0 || k === 2 ** N - 1 ? Math.SQRT1_2 : 0));
/** Equal superposition of one excitation among N qubits. */
export const wState = (N = 3): Qobj =>
  qubits(N, "wState", (k) => (Number.isInteger(Math.log2(k)) ? 1 / Math.sqrt(N) : 0));

/** A B - B A, or A B + B A for kind "anti". */
export function commutator(A: Qobj, B: Qobj, kind: "normal" | "anti" = "normal"): Qobj {
  if (kind !== "normal" && kind !== "anti")
    throw new WeftError(`commutator: kind must be "normal" or "anti", got ${String(kind)}`);
  return kind === "anti" ? A.mul(B).add(B.mul(A)) : A.mul(B).sub(B.mul(A));
}
