// Operators and states with the dimensions of their subsystems, as QuTiP's Qobj.
import { WeftError } from "@weft/core/internal/graph";
import { eigh } from "@weft/core/internal/tensor";
import { Operator, type OperatorEntry, type OperatorLike } from "../operators/index.js";

const size = (dims: readonly number[]): number => dims.reduce((a, b) => a * b, 1);
const ones = (dims: readonly number[]): number[] => dims.map(() => 1);

/**
 * Matrix with the dimensions of its subsystems: an operator, a ket (one column), or a bra (one row). Solvers accept it as an
 * `Operator`.
 */
export class Qobj extends Operator {
  constructor(
    matrix: Operator,
    /** Dimensions of the subsystems of rows and columns; 1 for the columns of a ket. */
    readonly dims: readonly [readonly number[], readonly number[]] = [[matrix.rows], [matrix.columns]],
  ) {
    super(matrix.rows, matrix.columns, matrix.re, matrix.im);
    if (size(dims[0]) !== matrix.rows || size(dims[1]) !== matrix.columns)
      throw new WeftError(
        `Qobj: dims [${dims[0].join(", ")}] x [${dims[1].join(", ")}] do not fit a ${matrix.rows}x${matrix.columns} matrix`,
      );
  }

  /** A Qobj of a matrix, or the argument if it is one. */
  static of(matrix: OperatorLike, dims?: readonly [readonly number[], readonly number[]]): Qobj {
    if (matrix instanceof Qobj && dims === undefined) return matrix;
    return new Qobj(Operator.from(matrix, "Qobj"), dims);
  }

  get isket(): boolean {
    return this.columns === 1 && this.rows > 1;
  }

  get isherm(): boolean {
    return this.rows === this.columns && this.hermitianError() <= 1e-12 * Math.max(1, this.size());
  }

  override add(other: Operator): Qobj {
    this.#sameShape(other, "add");
    return new Qobj(super.add(other), this.dims);
  }

  override sub(other: Operator): Qobj {
    this.#sameShape(other, "sub");
    return new Qobj(super.sub(other), this.dims);
  }

  #sameShape(other: Operator, name: string): void {
    if (other.rows !== this.rows || other.columns !== this.columns)
      throw new WeftError(
        `Qobj.${name}: ${this.rows}x${this.columns} and ${other.rows}x${other.columns} have different shapes`,
      );
  }

  override scale(factor: OperatorEntry): Qobj {
    return new Qobj(super.scale(factor), this.dims);
  }

  override mul(other: Operator): Qobj {
    const columns = other instanceof Qobj ? other.dims[1] : [other.columns];
    return new Qobj(super.mul(other), [this.dims[0], columns]);
  }

  override adjoint(): Qobj {
    return new Qobj(super.adjoint(), [this.dims[1], this.dims[0]]);
  }

  override transpose(): Qobj {
    return new Qobj(super.transpose(), [this.dims[1], this.dims[0]]);
  }

  override kron(other: Operator): Qobj {
    const { dims } = other instanceof Qobj ? other : new Qobj(other);
    return new Qobj(super.kron(other), [
      [...this.dims[0], ...dims[0]],
      [...this.dims[1], ...dims[1]],
    ]);
  }

  /** Conjugate transpose. */
  dag(): Qobj {
    return this.adjoint();
  }

  /** Trace: a number if it is real, else { re, im }. */
  tr(): OperatorEntry {
    return plain(this.trace());
  }

  /** Norm of a ket, or trace norm of an operator. */
  norm(): number {
    if (this.isket || this.rows === 1) return Math.sqrt(this.re.reduce((s, x, k) => s + x * x + this.im[k] ** 2, 0));
    return this.adjoint()
      .mul(this)
      .eigenenergies()
      .reduce((sum, x) => sum + Math.sqrt(Math.max(0, x)), 0);
  }

  /** The state with norm (or trace) 1. */
  unit(): Qobj {
    return this.scale(1 / this.norm());
  }

  /** Eigenvalues of a Hermitian operator, ascending. */
  eigenenergies(): number[] {
    return this.eigenstates()[0];
  }

  /** Eigenvalues (ascending) and eigenstates of a Hermitian operator. */
  eigenstates(): [number[], Qobj[]] {
    if (this.hermitianError() > 1e-9 * Math.max(1, this.size()))
      throw new WeftError("Qobj.eigenstates: the operator is not Hermitian");
    const { values, vectors } = eigh(this.tensor());
    const numbers = vectors.dataSync() as Float64Array;
    const n = this.rows;
    const ket = (k: number): Qobj =>
      new Qobj(
        Operator.build(n, 1, (i) => ({ re: numbers[2 * (i * n + k)], im: numbers[2 * (i * n + k) + 1] })),
        [this.dims[0], ones(this.dims[0])],
      );
    return [Array.from(values.dataSync() as Float64Array), Array.from({ length: n }, (_, k) => ket(k))];
  }

  /** f(A) of a Hermitian operator A, through its eigenvalues. */
  apply(f: (x: number) => OperatorEntry): Qobj {
    const [values, states] = this.eigenstates();
    return states
      .map((state, k) => state.mul(state.dag()).scale(f(values[k])))
      .reduce((sum, term) => sum.add(term), new Qobj(Operator.zeros(this.rows), this.dims));
  }

  /** Reduced density matrix of the subsystems `sel`. */
  ptrace(sel: number | readonly number[]): Qobj {
    const keep = [sel].flat() as number[];
    const [dims] = this.dims;
    if (keep.some((k, i) => !(k in dims) || (i > 0 && k <= keep[i - 1])))
      throw new WeftError(`ptrace: subsystems [${keep.join(", ")}] must ascend and lie in 0..${dims.length - 1}`);
    const rho = this.isket ? this.mul(this.dag()) : this;
    const rest = dims.map((_, k) => k).filter((k) => !keep.includes(k));
    const stride = dims.map((_, k) => size(dims.slice(k + 1)));
    const offset = (index: number, subsystems: readonly number[]): number => {
      let [left, sum] = [index, 0];
      for (const k of [...subsystems].reverse()) {
        sum += (left % dims[k]) * stride[k];
        left = Math.floor(left / dims[k]);
      }
      return sum;
    };
    const kept = keep.map((k) => dims[k]);
    const traced = size(rest.map((k) => dims[k]));
    const out = Operator.build(size(kept), size(kept), (i, j) => {
      let [re, im] = [0, 0];
      for (let t = 0; t < traced; t++) {
        const at = (offset(i, keep) + offset(t, rest)) * rho.columns + offset(j, keep) + offset(t, rest);
        re += rho.re[at];
        im += rho.im[at];
      }
      return { re, im };
    });
    return new Qobj(out, [kept, kept]);
  }

  /** Rows of numbers; complex entries are { re, im }. */
  full(): OperatorEntry[][] {
    return Array.from({ length: this.rows }, (_, i) =>
      Array.from({ length: this.columns }, (_, j) => plain(this.at(i, j))),
    );
  }
}

/** A number if the imaginary part is zero. */
export const plain = ({ re, im }: { re: number; im: number }): OperatorEntry => (im === 0 ? re : { re, im });

/** A ket of amplitudes. */
export const ketOf = (amplitudes: readonly OperatorEntry[], dims: readonly number[] = [amplitudes.length]): Qobj =>
  new Qobj(
    Operator.build(amplitudes.length, 1, (i) => amplitudes[i]),
    [dims, ones(dims)],
  );

/** The density matrix of a ket; operators stay as they are. */
export const densityMatrix = (state: Qobj): Qobj => (state.isket ? state.mul(state.dag()) : state);
