import assert from "node:assert/strict";
import { test } from "node:test";
import { type DType, isComplex, realOf, type Shape } from "../../graph/index.js";
import * as c from "./complex.js";
import { adjointMatrix, buildMatrix, column, inner, type Matrix, multiply } from "./matrix.js";
import { threefry2x32 } from "./random.js";
import { assertClose, aval, complexTensor, numbers, runAll, runOne, tensor } from "./testkit.js";
import { complexes, fromComplexes, type Value } from "./value.js";

const { NaN: nan } = Number;
const exactTypes = ["float64", "complex128"] as const;

/** Numbers in [-1, 1) that depend on the seed alone. */
function noise(shape: Shape, dtype: DType, seed = 1): Value {
  const count = shape.reduce((n, d) => n * d, 1);
  const entries = Array.from({ length: count }, (_, i) => {
    const [r0, r1] = threefry2x32(seed, 0, i, 0);
    return c.complex(r0 / 2 ** 31 - 1, isComplex(dtype) ? r1 / 2 ** 31 - 1 : 0);
  });
  return fromComplexes(dtype, shape, entries);
}

function toMatrix(value: Value): Matrix {
  const [rows, columns] = value.shape;
  const entries = complexes(value);
  return buildMatrix(rows, columns, (i, j) => entries[i * columns + j]);
}

const fromMatrix = (a: Matrix, dtype: DType): Value => fromComplexes(dtype, [a.length, a[0].length], a.flat());

function assertSame(a: Matrix, b: Matrix, tolerance = 1e-12): void {
  const flat = (m: Matrix) => m.flat().flatMap((z) => [z.re, z.im]);
  assertClose(flat(a), flat(b), tolerance);
}

const unit = (n: number): Matrix => buildMatrix(n, n, (i, j) => c.complex(i === j ? 1 : 0));
const orthonormalColumns = (a: Matrix, tolerance = 1e-13): void =>
  assertSame(multiply(adjointMatrix(a), a), unit(a[0]?.length ?? 0), tolerance);
const diagonal = (values: readonly number[]): Matrix =>
  buildMatrix(values.length, values.length, (i, j) => c.complex(i === j ? values[i] : 0));

const eigh = (a: Value): Value[] =>
  runAll("eigh", {}, [a], [aval(a.shape.slice(0, -1), realOf(a.dtype)), aval(a.shape, a.dtype)]);
function qr(a: Value): Value[] {
  const [m, n] = a.shape.slice(-2);
  const lead = a.shape.slice(0, -2);
  const k = Math.min(m, n);
  return runAll("qr", {}, [a], [aval([...lead, m, k], a.dtype), aval([...lead, k, n], a.dtype)]);
}
function svd(a: Value): Value[] {
  const [m, n] = a.shape.slice(-2);
  const lead = a.shape.slice(0, -2);
  const k = Math.min(m, n);
  const avals = [aval([...lead, m, k], a.dtype), aval([...lead, k], realOf(a.dtype)), aval([...lead, k, n], a.dtype)];
  return runAll("svd", {}, [a], avals);
}
const cholesky = (a: Value): Value => runOne("cholesky", {}, [a], aval(a.shape, a.dtype));
const solve = (a: Value, b: Value): Value => runOne("solve", {}, [a, b], aval(b.shape, b.dtype));
const det = (a: Value): number[] => numbers(runOne("det", {}, [a], aval(a.shape.slice(0, -2), a.dtype)));

test("cholesky: known factor, reconstruction, and NaN where not positive definite", () => {
  assertClose(numbers(cholesky(tensor([2, 2], [4, 99, 2, 5], "float64"))), [2, 0, 1, 2], 0);
  for (const dtype of exactTypes) {
    const b = toMatrix(noise([5, 5], dtype));
    const a = multiply(b, adjointMatrix(b));
    const l = toMatrix(cholesky(fromMatrix(a, dtype)));
    assertSame(multiply(l, adjointMatrix(l)), a);
    assert.ok(l.every((row, i) => row[i].re > 0 && row[i].im === 0 && row.slice(i + 1).every((z) => z.re === 0)));
  }
  const mixed = cholesky(tensor([2, 2, 2], [1, 2, 2, 1, 9, 0, 0, 1], "float32"));
  assertClose(numbers(mixed), [nan, nan, nan, nan, 3, 0, 0, 1], 0);
  assertClose(numbers(cholesky(tensor([1, 1], [nan]))), [nan], 0);
});

test("triangularSolve in all its forms reads one triangle only", () => {
  for (const dtype of exactTypes) {
    const full = toMatrix(noise([4, 4], dtype, 2)).map((row, i) =>
      row.map((z, j) => (i === j ? c.complex(z.re + 3, z.im) : z)),
    );
    const x = toMatrix(noise([4, 3], dtype, 3));
    for (const lower of [true, false])
      for (const adjointed of [true, false])
        for (const unitDiagonal of [true, false]) {
          const triangle = buildMatrix(4, 4, (i, j) => {
            if (i === j && unitDiagonal) return c.complex(1);
            return i === j || i > j === lower ? full[i][j] : c.complex(0);
          });
          const b = multiply(adjointed ? adjointMatrix(triangle) : triangle, x);
          const attrs = { lower, adjoint: adjointed, unit: unitDiagonal };
          const found = runOne(
            "triangularSolve",
            attrs,
            [fromMatrix(full, dtype), fromMatrix(b, dtype)],
            aval([4, 3], dtype),
          );
          assertSame(toMatrix(found), x);
        }
  }
});

test("solve and det: hand-computed, pivoting, singular, batched", () => {
  assertClose(numbers(solve(tensor([2, 2], [0, 2, 4, 0], "float64"), tensor([2, 1], [6, 8], "float64"))), [2, 3], 0);
  assertClose(det(tensor([2, 2], [0, 2, 4, 0], "float64")), [-8], 0);
  assertClose(det(tensor([3, 3], [2, 0, 1, 1, 3, 2, 1, 1, 4], "float64")), [18], 1e-15);
  assertClose(det(complexTensor([2, 2], [0, 1, 1, 0, 1, 0, 0, 1])), [-2, 0], 0);
  assert.deepEqual(det(tensor([0, 0], [])), [1]);
  assert.deepEqual(det(tensor([2, 2, 2], [1, 2, 2, 4, 1, 0, 0, 1])), [0, 1]);
  const batch = solve(tensor([2, 2, 2], [1, 2, 2, 4, 1, 0, 0, 2]), tensor([2, 2, 1], [1, 1, 4, 6]));
  assertClose(numbers(batch), [nan, nan, 4, 3], 0);
  for (const dtype of exactTypes) {
    const a = noise([6, 6], dtype, 4);
    const b = noise([6, 2], dtype, 5);
    assertSame(multiply(toMatrix(a), toMatrix(solve(a, b))), toMatrix(b));
  }
});

test("eigh: Pauli matrices, ascending, with the phase that op.ts fixes", () => {
  const root = Math.SQRT1_2;
  const [xValues, xVectors] = eigh(tensor([2, 2], [0, 1, 1, 0], "float64"));
  assertClose(numbers(xValues), [-1, 1], 1e-15);
  assertClose(numbers(xVectors), [root, root, -root, root], 1e-15);
  const [yValues, yVectors] = eigh(complexTensor([2, 2], [0, 0, 0, -1, 0, 1, 0, 0]));
  assertClose(numbers(yValues), [-1, 1], 1e-15);
  assertClose(numbers(yVectors), [root, 0, root, 0, 0, -root, 0, root], 1e-15);
});

test("eigh reconstructs, is orthonormal, reads the lower triangle, and fixes phases", () => {
  for (const dtype of exactTypes) {
    const half = toMatrix(noise([7, 7], dtype, 6));
    const a = buildMatrix(7, 7, (i, j) => c.complex(half[i][j].re + half[j][i].re, half[i][j].im - half[j][i].im));
    const spoiled = a.map((row, i) => row.map((z, j) => (j > i ? c.complex(nan) : z)));
    const [values, vectors] = eigh(fromMatrix(spoiled, dtype));
    const v = toMatrix(vectors);
    const ascending = numbers(values);
    assert.deepEqual(
      ascending,
      [...ascending].sort((p, q) => p - q),
    );
    orthonormalColumns(v);
    assertSame(multiply(multiply(v, diagonal(ascending)), adjointMatrix(v)), a, 1e-13);
    for (let j = 0; j < 7; j++) {
      const entries = column(v, j);
      const sizes = entries.map((z) => Math.hypot(z.re, z.im));
      const largest = entries[sizes.indexOf(Math.max(...sizes))];
      assert.ok(largest.re > 0 && largest.im === 0);
    }
  }
});

test("eigh of degenerate, diagonal, zero, empty and non-finite matrices", () => {
  const [values, vectors] = eigh(tensor([3, 3], [2, 0, 0, 0, 1, 0, 0, 0, 2], "float64"));
  assertClose(numbers(values), [1, 2, 2], 0);
  orthonormalColumns(toMatrix(vectors), 0);
  const ones = eigh(tensor([4, 4], new Array(16).fill(1), "float64"));
  assertClose(numbers(ones[0]), [0, 0, 0, 4], 1e-15);
  orthonormalColumns(toMatrix(ones[1]));
  assertClose(numbers(eigh(tensor([2, 2], [0, 0, 0, 0]))[0]), [0, 0], 0);
  assert.equal(eigh(tensor([0, 0], []))[1].data.length, 0);
  assertClose(numbers(eigh(tensor([2, 2], [nan, 0, 0, 1]))[0]), [nan, nan], 0);
  const hilbert = buildMatrix(8, 8, (i, j) => c.complex(1 / (i + j + 1)));
  const found = numbers(eigh(fromMatrix(hilbert, "float64"))[0]);
  assertClose([found[0] / 1.11153896637244e-10, found[7]], [1, 1.69593899692194], 1e-5);
});

test("qr: known, reconstruction for tall, square, wide and deficient", () => {
  const [q, r] = qr(tensor([2, 2], [3, 5, -4, 10], "float64"));
  assertClose(numbers(q), [0.6, 0.8, -0.8, 0.6], 1e-15);
  assertClose(numbers(r), [5, -5, 0, 10], 1e-14);
  for (const dtype of exactTypes) {
    for (const [m, n] of [
      [6, 3],
      [4, 4],
      [3, 5],
      [1, 4],
      [4, 1],
    ]) {
      const a = noise([m, n], dtype, 7);
      const [left, right] = qr(a).map(toMatrix);
      orthonormalColumns(left);
      assertSame(multiply(left, right), toMatrix(a), 1e-13);
      right.forEach((row, i) => {
        assert.ok(row[i].re >= 0 && row[i].im === 0);
        assert.ok(row.slice(0, i).every((z) => z.re === 0 && z.im === 0));
      });
    }
    const flat = fromMatrix(
      buildMatrix(4, 3, (i, j) => c.complex(j === 1 ? 0 : i + 1)),
      dtype,
    );
    const [left, right] = qr(flat).map(toMatrix);
    orthonormalColumns(left);
    assertSame(multiply(left, right), toMatrix(flat), 1e-13);
  }
  assert.deepEqual(
    qr(tensor([2, 0], [])).map((x) => x.shape),
    [
      [2, 0],
      [0, 0],
    ],
  );
});

test("svd: known values, reconstruction, order, orthonormality", () => {
  const [, known] = svd(tensor([2, 2], [3, 0, 4, 5], "float64"));
  assertClose(numbers(known), [Math.sqrt(45), Math.sqrt(5)], 1e-15);
  for (const dtype of exactTypes) {
    for (const [m, n] of [
      [6, 3],
      [5, 5],
      [3, 6],
      [1, 4],
      [4, 1],
    ]) {
      const a = noise([m, n], dtype, 8);
      const [u, s, vh] = svd(a);
      const sizes = numbers(s);
      assert.deepEqual(
        sizes,
        [...sizes].sort((p, q) => q - p),
      );
      orthonormalColumns(toMatrix(u));
      orthonormalColumns(adjointMatrix(toMatrix(vh)));
      assertSame(multiply(multiply(toMatrix(u), diagonal(sizes)), toMatrix(vh)), toMatrix(a), 1e-13);
    }
  }
});

test("svd of rank-deficient matrices still has orthonormal factors", () => {
  for (const dtype of exactTypes) {
    for (const [m, n, rank] of [
      [5, 4, 2],
      [4, 5, 1],
      [4, 4, 0],
      [6, 6, 3],
    ]) {
      const a =
        rank === 0
          ? tensor([m, n], new Array(m * n).fill(0), dtype)
          : fromMatrix(multiply(toMatrix(noise([m, rank], dtype, 9)), toMatrix(noise([rank, n], dtype, 10))), dtype);
      const [u, s, vh] = svd(a);
      const sizes = numbers(s);
      assert.equal(sizes.filter((x) => x > 1e-12).length, rank);
      orthonormalColumns(toMatrix(u));
      orthonormalColumns(adjointMatrix(toMatrix(vh)));
      assertSame(multiply(multiply(toMatrix(u), diagonal(sizes)), toMatrix(vh)), toMatrix(a), 1e-13);
    }
  }
});

test("svd of huge and tiny entries, of batches, of nothing and of NaN", () => {
  assertClose(
    numbers(svd(tensor([2, 2], [3e200, 0, 4e200, 5e200], "float64"))[1]),
    [Math.sqrt(45) * 1e200, Math.sqrt(5) * 1e200],
    1e-14,
  );
  const tiny = numbers(svd(tensor([1, 2], [3e-200, 4e-200], "float64"))[1]);
  assert.ok(Math.abs(tiny[0] / 5e-200 - 1) < 1e-14);
  assertClose(numbers(svd(tensor([2, 1, 1], [2, -3]))[1]), [2, 3], 0);
  assert.deepEqual(
    svd(tensor([0, 3], [])).map((x) => x.shape),
    [[0, 0], [0], [0, 3]],
  );
  assertClose(numbers(svd(tensor([1, 2], [nan, 1]))[1]), [nan], 0);
});

test("float32 and complex64 are computed in double and rounded once", () => {
  const a = noise([4, 4], "float32", 11);
  const wide = { ...a, dtype: "float64" as const, data: Float64Array.from(a.data as Float32Array) };
  assert.deepEqual(numbers(svd(a)[1]), numbers(svd(wide)[1]).map(Math.fround));
  assert.deepEqual(det(a), det(wide).map(Math.fround));
  const z = noise([3, 3], "complex64", 12);
  const wideZ = { ...z, dtype: "complex128" as const, data: Float64Array.from(z.data as Float32Array) };
  assert.deepEqual(numbers(eigh(z)[0]), numbers(eigh(wideZ)[0]).map(Math.fround));
});

test("inner is conjugate-linear on the left", () => {
  assert.deepEqual(inner([c.complex(0, 1)], [c.complex(0, 1)]), c.complex(1, 0));
});
