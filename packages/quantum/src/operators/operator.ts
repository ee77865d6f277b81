// Small complex matrices on the host: what a user writes a model with. They know nothing of tensors but how to become one;
// as literals they are part of the program, so that a compiler can drop what multiplies with zero.
import { type DType, isComplex, WeftError } from "@weft/core/internal/graph";
import { type ComplexNumber, full, Tensor, tensor } from "@weft/core/internal/tensor";

export type OperatorEntry = number | ComplexNumber;
/** A matrix as users may give it. */
export type OperatorLike = Operator | readonly (readonly OperatorEntry[])[];

const parts = (x: OperatorEntry): [number, number] => (typeof x === "number" ? [x, 0] : [x.re, x.im]);

export class Operator {
  constructor(
    readonly rows: number,
    readonly columns: number,
    readonly re: Float64Array,
    readonly im: Float64Array,
  ) {}

  static zeros(rows: number, columns = rows): Operator {
    return new Operator(rows, columns, new Float64Array(rows * columns), new Float64Array(rows * columns));
  }

  static from(matrix: OperatorLike, name = "operator"): Operator {
    if (matrix instanceof Operator) return matrix;
    const columns = matrix[0]?.length ?? 0;
    if (columns === 0 || matrix.some((row) => row.length !== columns))
      throw new WeftError(`${name}: needs rows of one length, got lengths ${matrix.map((r) => r.length).join(", ")}`);
    return Operator.build(matrix.length, columns, (i, j) => matrix[i][j]);
  }

  static build(rows: number, columns: number, entry: (i: number, j: number) => OperatorEntry): Operator {
    const out = Operator.zeros(rows, columns);
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) [out.re[i * columns + j], out.im[i * columns + j]] = parts(entry(i, j));
    return out;
  }

  at(i: number, j: number): ComplexNumber {
    return { re: this.re[i * this.columns + j], im: this.im[i * this.columns + j] };
  }

  map(fn: (re: number, im: number, at: number) => [number, number]): Operator {
    const out = Operator.zeros(this.rows, this.columns);
    for (let k = 0; k < this.re.length; k++) [out.re[k], out.im[k]] = fn(this.re[k], this.im[k], k);
    return out;
  }

  add(other: Operator): Operator {
    return this.map((re, im, k) => [re + other.re[k], im + other.im[k]]);
  }

  sub(other: Operator): Operator {
    return this.add(other.scale(-1));
  }

  scale(factor: OperatorEntry): Operator {
    const [a, b] = parts(factor);
    return this.map((re, im) => [a * re - b * im, a * im + b * re]);
  }

  mul(other: Operator): Operator {
    if (this.columns !== other.rows)
      throw new WeftError(
        `operators: ${this.rows}x${this.columns} by ${other.rows}x${other.columns} has no product; their dimensions differ`,
      );
    return Operator.build(this.rows, other.columns, (i, j) => {
      let [re, im] = [0, 0];
      for (let k = 0; k < this.columns; k++) {
        const [a, b] = [i * this.columns + k, k * other.columns + j];
        re += this.re[a] * other.re[b] - this.im[a] * other.im[b];
        im += this.re[a] * other.im[b] + this.im[a] * other.re[b];
      }
      return { re, im };
    });
  }

  adjoint(): Operator {
    return Operator.build(this.columns, this.rows, (i, j) => {
      const { re, im } = this.at(j, i);
      return { re, im: -im };
    });
  }

  transpose(): Operator {
    return Operator.build(this.columns, this.rows, (i, j) => this.at(j, i));
  }

  kron(other: Operator): Operator {
    const { rows, columns } = other;
    return Operator.build(this.rows * rows, this.columns * columns, (i, j) => {
      const a = this.at(Math.floor(i / rows), Math.floor(j / columns));
      const b = other.at(i % rows, j % columns);
      return { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re };
    });
  }

  trace(): ComplexNumber {
    let [re, im] = [0, 0];
    for (let i = 0; i < Math.min(this.rows, this.columns); i++) {
      re += this.re[i * this.columns + i];
      im += this.im[i * this.columns + i];
    }
    return { re, im };
  }

  /** The largest |a - a^H| of an entry: 0 for Hermitian matrices. */
  hermitianError(): number {
    const other = this.adjoint();
    return this.re.reduce((worst, re, k) => Math.max(worst, Math.hypot(re - other.re[k], this.im[k] - other.im[k])), 0);
  }

  /** The largest magnitude of an entry. */
  size(): number {
    return this.re.reduce((worst, re, k) => Math.max(worst, Math.hypot(re, this.im[k])), 0);
  }

  /** As a tensor: complex, or real where the dtype is (imaginary parts must be zero then). */
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
   * As numbers of the program itself, one padded entry for each that is not zero: made inside a loop it stays inside, and
   * lane kernels fold the zeros away. For small matrices.
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

/** Product of all, left to right. */
export const product = (first: Operator, ...rest: Operator[]): Operator => rest.reduce((a, b) => a.mul(b), first);
/** Kronecker product of all; the first factor has the slowest index. */
export const kronAll = (factors: readonly Operator[]): Operator => factors.reduce((a, b) => a.kron(b));
export const sumOf = (terms: readonly Operator[]): Operator => terms.reduce((a, b) => a.add(b));

/** Whether a tensor was given, or a matrix of numbers. */
export const isTensor = (x: Tensor | OperatorLike): x is Tensor => x instanceof Tensor;
