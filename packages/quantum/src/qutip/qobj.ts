// Operators and states with the dimensions of their subsystems, as QuTiP's Qobj.
import { WeftError } from "@weft/core/internal/graph";
import { eigh, expm, solve, svd } from "@weft/core/internal/tensor";
import { checkFinite, Operator, type OperatorEntry, type OperatorLike } from "../operators/index.js";

const size = (dims: readonly number[]): number => dims.reduce((a, b) => a * b, 1);
const ones = (dims: readonly number[]): number[] => dims.map(() => 1);

type Dims = readonly [readonly number[], readonly number[]];
const printed = ([rows, columns]: Dims): string => `[${rows.join(", ")}] x [${columns.join(", ")}]`;
const isSame = (a: readonly number[], b: readonly number[]): boolean => a.join() === b.join();

/** Kets and bras with a 1 per subsystem: QuTiP writes one for all of them since 5.1. */
function withOnes(dims: Dims): Dims {
  const [rows, columns] = dims;
  if (rows.length === columns.length) return dims;
  if (columns.join() === "1") return [rows, ones(rows)];
  return rows.join() === "1" ? [ones(columns), columns] : dims;
}

/** Throws unless the argument is an operator. */
export function checkQobj(given: unknown, name: string): void {
  if (!(given instanceof Operator))
    throw new WeftError(`${name}: needs a Qobj, got ${given === null ? "null" : typeof given}; make one with Qobj.of`);
}

/** Throws unless the subsystems of an operator are those of `dims`: levels in another order are other states. */
export function checkDims(operator: Qobj, dims: Dims, name: string): void {
  if (isSame(operator.dims[0], dims[0]) && isSame(operator.dims[1], dims[1])) return;
  throw new WeftError(
    `${name}: its dimensions ${printed(operator.dims)} are not ${printed(dims)}; order the factors of tensor() alike, or give dims to Qobj.of`,
  );
}

/**
 * Matrix with the dimensions of its subsystems: an operator, a ket (one column), or a bra (one row). Solvers accept it as an
 * `Operator`.
 */
export class Qobj extends Operator {
  /** Dimensions of the subsystems of rows and columns; a 1 per subsystem for the columns of a ket. */
  readonly dims: Dims;

  constructor(matrix: Operator, dims: Dims = [[matrix.rows], [matrix.columns]]) {
    super(matrix.rows, matrix.columns, matrix.re, matrix.im);
    if (!Array.isArray(dims) || dims.length !== 2 || !dims.every(Array.isArray))
      throw new WeftError(`Qobj: dims are two lists of dimensions, [[2, 3], [2, 3]], got ${JSON.stringify(dims)}`);
    this.dims = withOnes(dims);
    if (size(dims[0]) !== matrix.rows || size(dims[1]) !== matrix.columns)
      throw new WeftError(`Qobj: dims ${printed(dims)} do not fit a ${matrix.rows}x${matrix.columns} matrix`);
    checkFinite(this, "Qobj");
  }

  /** A Qobj of a matrix, or the argument if it is one. */
  static of(matrix: OperatorLike, dims?: Dims): Qobj {
    if (matrix instanceof Qobj && dims === undefined) return matrix;
    return new Qobj(Operator.from(matrix, "Qobj"), dims);
  }

  get isket(): boolean {
    return this.columns === 1 && this.rows > 1;
  }

  get isbra(): boolean {
    return this.rows === 1 && this.columns > 1;
  }

  get isoper(): boolean {
    return !this.isket && !this.isbra;
  }

  /** Numbers of rows and columns. */
  get shape(): [number, number] {
    return [this.rows, this.columns];
  }

  get isherm(): boolean {
    return this.rows === this.columns && this.hermitianError() <= 1e-12 * Math.max(1, this.size());
  }

  override add(other: Operator): Qobj {
    this.#sameDims(other, "add");
    return new Qobj(super.add(other), this.dims);
  }

  override sub(other: Operator): Qobj {
    this.#sameDims(other, "sub");
    return new Qobj(super.sub(other), this.dims);
  }

  #sameDims(other: Operator, name: string): void {
    if (typeof other === "number")
      throw new WeftError(
        `Qobj.${name}: adds operators; write qeye(${this.rows}).scale(${String(other)}) for a number`,
      );
    checkQobj(other, `Qobj.${name}`);
    checkDims(Qobj.of(other, other instanceof Qobj ? undefined : sizesOf(other, this.dims)), this.dims, `Qobj.${name}`);
  }

  override scale(factor: OperatorEntry): Qobj {
    return new Qobj(super.scale(factor), this.dims);
  }

  override mul(other: Operator): Qobj {
    if (typeof other === "number") throw new WeftError("Qobj.mul: multiplies operators; use scale for numbers");
    checkQobj(other, "Qobj.mul");
    const product = super.mul(other);
    if (!(other instanceof Qobj)) return new Qobj(product, [this.dims[0], columnsOf(other, this.dims[1])]);
    checkDims(other, [this.dims[1], other.dims[1]], "Qobj.mul");
    return new Qobj(product, [this.dims[0], other.dims[1]]);
  }

  /** Product of n factors. */
  pow(n: number): Qobj {
    if (!Number.isInteger(n) || n < 0 || this.rows !== this.columns)
      throw new WeftError(`Qobj.pow: needs a square operator and a whole number >= 0, got ${n}`);
    const one = new Qobj(
      Operator.build(this.rows, this.rows, (i, j) => Number(i === j)),
      this.dims,
    );
    return Array.from({ length: n }).reduce((product: Qobj) => product.mul(this), one);
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

  /** Complex conjugate, without transposition. */
  conj(): Qobj {
    return new Qobj(
      this.map((re, im) => [re, -im]),
      this.dims,
    );
  }

  /** Diagonal entries. */
  diag(): OperatorEntry[] {
    return Array.from({ length: Math.min(this.rows, this.columns) }, (_, k) => plain(this.at(k, k)));
  }

  /** <this|other> of two kets or bras, as QuTiP: the left one is conjugated. */
  overlap(other: Qobj): OperatorEntry {
    const [left, right] = [this, other].map((x) => (x.isbra ? x.dag() : x));
    if (!left.isket || !right.isket)
      throw new WeftError(
        "Qobj.overlap: needs two kets or bras, got an operator; matrixElement(bra, ket) takes operators",
      );
    return left.dag().mul(right).tr();
  }

  /** Norm: by default that of a ket, or the trace norm of an operator. "fro": Frobenius, "max": largest magnitude, "one": largest column sum. */
  norm(kind: "tr" | "l2" | "fro" | "max" | "one" = this.isoper ? "tr" : "l2"): number {
    if (!["tr", "l2", "fro", "max", "one"].includes(kind))
      throw new WeftError(`Qobj.norm: kind must be "tr", "l2", "fro", "max" or "one", got ${String(kind)}`);
    if (kind === "max") return this.size();
    if (kind === "one")
      return Math.max(
        ...Array.from({ length: this.columns }, (_, j) =>
          Array.from({ length: this.rows }, (_, i) => Math.hypot(...Object.values(this.at(i, j)))).reduce(
            (a, b) => a + b,
          ),
        ),
      );
    const squares = Math.sqrt(this.re.reduce((s, x, k) => s + x * x + this.im[k] ** 2, 0));
    if (kind === "fro" || !this.isoper) return squares;
    // Singular values; those of a Hermitian operator are exact to the last digits.
    const values = this.isherm
      ? this.eigenenergies().map(Math.abs)
      : Array.from(svd(this.tensor()).s.dataSync() as Float64Array);
    return kind === "l2" ? Math.max(...values) : values.reduce((sum, x) => sum + x, 0);
  }

  /** The state with norm (or trace) 1. */
  unit(): Qobj {
    const norm = this.norm();
    if (!(norm > 0)) throw new WeftError("Qobj.unit: the norm is 0, so that there is no state of norm 1");
    return this.scale(1 / norm);
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

  /** Lowest eigenvalue and its eigenstate. */
  groundstate(): [number, Qobj] {
    const [values, states] = this.eigenstates();
    return [values[0], states[0]];
  }

  /** <bra|A|ket> of two kets or bras, as QuTiP: the left one is conjugated. */
  matrixElement(bra: Qobj, ket: Qobj): OperatorEntry {
    return (bra.isbra ? bra.dag() : bra).overlap(this.mul(ket.isbra ? ket.dag() : ket));
  }

  /** Projector |psi><psi| of a ket or bra. */
  proj(): Qobj {
    if (this.isoper)
      throw new WeftError(`Qobj.proj: needs a ket or a bra, got an operator of ${this.rows} x ${this.columns}`);
    return densityMatrix(this);
  }

  /** tr(A^2) of a density matrix, 1 for a normalized ket. */
  purity(): number {
    const rho = densityMatrix(this);
    return rho.mul(rho).trace().re;
  }

  /** Exponential exp(A). */
  expm(): Qobj {
    this.#square("expm");
    return new Qobj(
      Operator.fromPairs(this.rows, this.rows, expm(this.tensor()).dataSync() as Float64Array),
      this.dims,
    );
  }

  /** Square root of a Hermitian operator without negative eigenvalues. */
  sqrtm(): Qobj {
    return this.apply((x) => (x < 0 ? { re: 0, im: Math.sqrt(-x) } : Math.sqrt(x)));
  }

  /** Inverse. */
  inv(): Qobj {
    this.#square("inv");
    const one = Operator.build(this.rows, this.rows, (i, j) => Number(i === j));
    const numbers = solve(this.tensor(), one.tensor()).dataSync() as Float64Array;
    if (!numbers.every(Number.isFinite)) throw new WeftError("Qobj.inv: the operator is singular");
    return new Qobj(Operator.fromPairs(this.rows, this.rows, numbers), [this.dims[1], this.dims[0]]);
  }

  #square(name: string): void {
    if (this.rows !== this.columns)
      throw new WeftError(`Qobj.${name}: needs a square operator, got ${this.rows}x${this.columns}`);
  }

  /** The subsystems in another order: the new subsystem k is the old subsystem order[k]. */
  permute(order: readonly number[]): Qobj {
    const count = this.dims[0].length;
    if (this.dims[1].length !== count || [...order].sort((a, b) => a - b).join() !== [...this.dims[0].keys()].join())
      throw new WeftError(`Qobj.permute: order must hold each of 0..${count - 1} once, got [${order.join(", ")}]`);
    const [rows, columns] = this.dims.map((dims) => ({ to: order.map((k) => dims[k]), from: sources(dims, order) }));
    return new Qobj(
      Operator.build(this.rows, this.columns, (i, j) => this.at(rows.from[i], columns.from[j])),
      [rows.to, columns.to],
    );
  }

  /** The operator without entries whose real or imaginary part is smaller than `atol`. */
  tidyup(atol = 1e-12): Qobj {
    const kept = (x: number): number => (Math.abs(x) < atol ? 0 : x);
    return new Qobj(
      this.map((re, im) => [kept(re), kept(im)]),
      this.dims,
    );
  }

  /** Whether A^H A = 1 within 1e-12 of its size. */
  get isunitary(): boolean {
    if (this.rows !== this.columns) return false;
    const { re, im } = this.dag().mul(this);
    const n = this.rows;
    return re.every((x, k) => Math.hypot(x - Number(k % (n + 1) === 0), im[k]) <= 1e-12 * n);
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
    const [dims] = this.isbra ? [this.dims[1]] : this.dims;
    if (keep.some((k, i) => !(k in dims) || (i > 0 && k <= keep[i - 1])))
      throw new WeftError(`ptrace: subsystems [${keep.join(", ")}] must ascend and lie in 0..${dims.length - 1}`);
    const rho = densityMatrix(this);
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
const plain = ({ re, im }: { re: number; im: number }): OperatorEntry => (im === 0 ? re : { re, im });

/** A ket of amplitudes. */
export const ketOf = (amplitudes: readonly OperatorEntry[], dims: readonly number[] = [amplitudes.length]): Qobj =>
  new Qobj(
    Operator.build(amplitudes.length, 1, (i) => amplitudes[i]),
    [dims, ones(dims)],
  );

/** The density matrix of a ket or bra; operators stay as they are. */
export const densityMatrix = (state: Qobj): Qobj =>
  state.isket ? state.mul(state.dag()) : state.isbra ? state.dag().mul(state) : state;

/** For each state of subsystems in another order, the number of the same state in the old order. */
function sources(dims: readonly number[], order: readonly number[]): number[] {
  const stride = dims.map((_, k) => size(dims.slice(k + 1)));
  return Array.from({ length: size(dims) }, (_, at) => {
    let [left, sum] = [at, 0];
    for (const k of [...order].reverse()) {
      sum += (left % dims[k]) * stride[k];
      left = Math.floor(left / dims[k]);
    }
    return sum;
  });
}

/** Dimensions of the columns of a matrix without subsystems, whose rows have the dimensions `dims`. */
const columnsOf = ({ columns }: Operator, dims: readonly number[]): readonly number[] =>
  columns === size(dims) ? dims : columns === 1 ? ones(dims) : [columns];

/** Dimensions of a matrix without subsystems: those of the other operand if the sizes are equal. */
const sizesOf = ({ rows, columns }: Operator, dims: Dims): Dims =>
  rows === size(dims[0]) && columns === size(dims[1]) ? dims : [[rows], [columns]];
