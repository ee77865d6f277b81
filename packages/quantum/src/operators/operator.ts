// Small complex matrices on the host. As literals they become constants of the program, so that the compiler can drop products
// with zero.
import { type DType, isComplex, WeftError } from "@weft/core/internal/graph";
import { type ComplexNumber, full, Tensor, tensor } from "@weft/core/internal/tensor";

/** A real or complex matrix entry. */
export type OperatorEntry = number | ComplexNumber;
/** An operator, or a matrix as nested rows. */
export type OperatorLike = Operator | readonly (readonly OperatorEntry[])[];

/** Largest number of entries of a matrix on the host: 2 GiB. */
const largestSize = 2 ** 27;

const parts = (x: OperatorEntry): [number, number] => (typeof x === "number" ? [x, 0] : [x.re, x.im]);

/**
 * Complex matrix on the host.
 *
 * @example
 * ```ts
 * import { Operator, sigmaZ } from "@weft/quantum";
 *
 * const y = Operator.from([[0, { re: 0, im: -1 }], [{ re: 0, im: 1 }, 0]]);
 * console.log(y.mul(y.adjoint()).trace(), sigmaZ.kron(y).rows); // { re: 2, im: 0 } 4
 * ```
 */
export class Operator {
  constructor(
    /** Number of rows. */
    readonly rows: number,
    /** Number of columns. */
    readonly columns: number,
    /** Real parts, row by row. */
    readonly re: Float64Array,
    /** Imaginary parts, row by row. */
    readonly im: Float64Array,
  ) {}

  /** Matrix of zeros. */
  static zeros(rows: number, columns = rows): Operator {
    if (!(rows * columns <= largestSize))
      throw new WeftError(
        `operators: a ${rows}x${columns} matrix has more than ${largestSize} entries; give local terms (sites) instead of whole matrices`,
      );
    return new Operator(rows, columns, new Float64Array(rows * columns), new Float64Array(rows * columns));
  }

  /** An operator from nested rows. */
  static from(matrix: OperatorLike, name = "operator"): Operator {
    if (matrix instanceof Operator) return matrix;
    const columns = matrix[0]?.length ?? 0;
    if (columns === 0 || matrix.some((row) => row.length !== columns))
      throw new WeftError(`${name}: needs rows of one length, got lengths ${matrix.map((r) => r.length).join(", ")}`);
    return checkFinite(
      Operator.build(matrix.length, columns, (i, j) => matrix[i][j]),
      name,
    );
  }

  /** An operator from a function of row and column. */
  static build(rows: number, columns: number, entry: (i: number, j: number) => OperatorEntry): Operator {
    const out = Operator.zeros(rows, columns);
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) [out.re[i * columns + j], out.im[i * columns + j]] = parts(entry(i, j));
    return out;
  }

  /** An operator from interleaved real and imaginary parts, as complex tensors are stored. */
  static fromPairs(rows: number, columns: number, pairs: ArrayLike<number>, start = 0): Operator {
    const out = Operator.zeros(rows, columns);
    for (let k = 0; k < out.re.length; k++) {
      out.re[k] = pairs[start + 2 * k];
      out.im[k] = pairs[start + 2 * k + 1];
    }
    return out;
  }

  /** The entry in row i and column j. */
  at(i: number, j: number): ComplexNumber {
    return { re: this.re[i * this.columns + j], im: this.im[i * this.columns + j] };
  }

  /** Applies a function to every entry. */
  map(fn: (re: number, im: number, at: number) => [number, number]): Operator {
    const out = Operator.zeros(this.rows, this.columns);
    for (let k = 0; k < this.re.length; k++) [out.re[k], out.im[k]] = fn(this.re[k], this.im[k], k);
    return out;
  }

  /** Sum of two operators. */
  add(other: Operator): Operator {
    if (this.rows !== other.rows || this.columns !== other.columns)
      throw new WeftError(
        `operators: ${this.rows}x${this.columns} and ${other.rows}x${other.columns} have no sum; their dimensions differ`,
      );
    const out = new Operator(this.rows, this.columns, this.re.slice(), this.im.slice());
    for (let k = 0; k < out.re.length; k++) {
      out.re[k] += other.re[k];
      out.im[k] += other.im[k];
    }
    return out;
  }

  /** Difference of two operators. */
  sub(other: Operator): Operator {
    return this.add(other.scale(-1));
  }

  /** Product with a number. */
  scale(factor: OperatorEntry): Operator {
    const [a, b] = parts(factor);
    const out = Operator.zeros(this.rows, this.columns);
    for (let k = 0; k < out.re.length; k++) {
      out.re[k] = a * this.re[k] - b * this.im[k];
      out.im[k] = a * this.im[k] + b * this.re[k];
    }
    return out;
  }

  /** Matrix product. */
  mul(other: Operator): Operator {
    if (this.columns !== other.rows)
      throw new WeftError(
        `operators: ${this.rows}x${this.columns} by ${other.rows}x${other.columns} has no product; their dimensions differ`,
      );
    // Entries of zero are skipped: most operators on product spaces consist of them.
    const out = Operator.zeros(this.rows, other.columns);
    const width = other.columns;
    for (let i = 0; i < this.rows; i++)
      for (let k = 0; k < this.columns; k++) {
        const [a, b] = [this.re[i * this.columns + k], this.im[i * this.columns + k]];
        if (a === 0 && b === 0) continue;
        for (let j = 0; j < width; j++) {
          const [x, y] = [other.re[k * width + j], other.im[k * width + j]];
          out.re[i * width + j] += a * x - b * y;
          out.im[i * width + j] += a * y + b * x;
        }
      }
    return out;
  }

  /** Conjugate transpose. */
  adjoint(): Operator {
    const out = this.transpose();
    for (let k = 0; k < out.im.length; k++) out.im[k] = -out.im[k];
    return out;
  }

  /** Transpose, without conjugation. */
  transpose(): Operator {
    const out = Operator.zeros(this.columns, this.rows);
    for (let i = 0; i < this.rows; i++)
      for (let j = 0; j < this.columns; j++) {
        out.re[j * this.rows + i] = this.re[i * this.columns + j];
        out.im[j * this.rows + i] = this.im[i * this.columns + j];
      }
    return out;
  }

  /** Kronecker product. */
  kron(other: Operator): Operator {
    const { rows, columns } = other;
    const out = Operator.zeros(this.rows * rows, this.columns * columns);
    for (let i = 0; i < this.rows; i++)
      for (let j = 0; j < this.columns; j++) {
        const [a, b] = [this.re[i * this.columns + j], this.im[i * this.columns + j]];
        if (a === 0 && b === 0) continue;
        for (let k = 0; k < rows; k++)
          for (let l = 0; l < columns; l++) {
            const at = (i * rows + k) * out.columns + j * columns + l;
            const [x, y] = [other.re[k * columns + l], other.im[k * columns + l]];
            out.re[at] = a * x - b * y;
            out.im[at] = a * y + b * x;
          }
      }
    return out;
  }

  /** Sum of the diagonal entries. */
  trace(): ComplexNumber {
    let [re, im] = [0, 0];
    for (let i = 0; i < Math.min(this.rows, this.columns); i++) {
      re += this.re[i * this.columns + i];
      im += this.im[i * this.columns + i];
    }
    return { re, im };
  }

  /** Largest entry of |a - a^H|: 0 for Hermitian matrices, infinite for those that are not square. */
  hermitianError(): number {
    const n = this.rows;
    if (this.columns !== n) return Number.POSITIVE_INFINITY;
    let worst = 0;
    for (let i = 0; i < n; i++)
      for (let j = 0; j <= i; j++) {
        const [u, v] = [i * n + j, j * n + i];
        const [a, b] = [this.re[u] - this.re[v], this.im[u] + this.im[v]];
        if (!(Math.abs(a) + Math.abs(b) <= worst)) worst = Math.max(worst, Math.hypot(a, b));
      }
    return worst;
  }

  /** Largest entry of |a^H a - 1|: 0 for unitary matrices. */
  unitaryError(): number {
    return this.adjoint()
      .mul(this)
      .map((re, im, k) => [re - Number(k % (this.columns + 1) === 0), im])
      .size();
  }

  /** Largest magnitude of an entry. */
  size(): number {
    let worst = 0;
    for (let k = 0; k < this.re.length; k++) {
      const [a, b] = [Math.abs(this.re[k]), Math.abs(this.im[k])];
      // The square root is needed only for a new largest entry; NaN counts as one.
      if (!(a + b <= worst)) worst = Math.max(worst, Math.hypot(a, b));
    }
    return worst;
  }

  /** The matrix as a tensor. A real dtype requires imaginary parts of zero. */
  tensor(dtype: DType = "complex128"): Tensor {
    const shape = [this.rows, this.columns];
    if (!isComplex(dtype)) {
      if (this.im.some((x) => x !== 0)) throw new WeftError(`operator: a complex matrix does not fit ${dtype}`);
      return tensor(this.re, { shape }).cast(dtype);
    }
    const pairs = new Float64Array(2 * this.re.length);
    this.re.forEach((re, k) => {
      pairs[2 * k] = re;
      pairs[2 * k + 1] = this.im[k];
    });
    return tensor(pairs, { dtype, shape });
  }

  /**
   * The matrix as constants of the graph, one padded entry per nonzero. Inside a loop it is not hoisted to an argument, and
   * lane kernels fold the zeros. For small matrices.
   */
  literal(dtype: DType = "complex128"): Tensor {
    const entries: Tensor[] = [];
    for (let i = 0; i < this.rows; i++)
      for (let j = 0; j < this.columns; j++) {
        const { re, im } = this.at(i, j);
        if (re === 0 && im === 0) continue;
        const one = full([1, 1], isComplex(dtype) ? { re, im } : re, { dtype });
        entries.push(
          one.pad([
            [i, this.rows - 1 - i],
            [j, this.columns - 1 - j],
          ]),
        );
      }
    return entries.length === 0
      ? full([this.rows, this.columns], 0, { dtype })
      : entries.reduce((sum, entry) => sum.add(entry));
  }
}

/** The operator. Throws if an entry is not a finite number: what is computed from it would be NaN far from here. */
export function checkFinite<T extends Operator>(operator: T, name: string): T {
  const { re, im, columns } = operator;
  for (let k = 0; k < re.length; k++)
    if (!(Number.isFinite(re[k]) && Number.isFinite(im[k])))
      throw new WeftError(
        `${name}: the entry in row ${Math.floor(k / columns)} and column ${k % columns} is not a finite number ` +
          `(${re[k]}, ${im[k]}); entries are numbers or { re, im }`,
      );
  return operator;
}

/** Kronecker product of all factors; the first factor has the slowest index. */
export const kronAll = (factors: readonly Operator[]): Operator => factors.reduce((a, b) => a.kron(b));

/** Whether the argument is a tensor rather than a host matrix. */
export const isTensor = (x: Tensor | OperatorLike): x is Tensor => x instanceof Tensor;
