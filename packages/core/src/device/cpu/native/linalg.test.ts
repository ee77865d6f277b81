// The C linear algebra against the reference rules, in every form: built-in code one matrix at a time and in lanes,
// LAPACK at every size, and the measured choice between them. Where vectors are not unique, their defining equations.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type DType, isComplex, numel, realOf } from "../../../graph/index.js";
import * as c from "../../../ops/reference/complex.js";
import { adjointMatrix, buildMatrix, identityMatrix, type Matrix, multiply } from "../../../ops/reference/matrix.js";
import { aval, runAll } from "../../../ops/reference/testkit.js";
import { complexes, type Value } from "../../../ops/reference/value.js";
import {
  backends,
  bind,
  checkEigh,
  checkQr,
  checkSvd,
  close,
  closeMatrix,
  closeValue,
  compile,
  definite,
  dtypes,
  empty,
  hermitian,
  largest,
  native,
  noCompiler,
  pack,
  plus,
  precision,
  randomMatrix,
  run,
  scaledColumns,
  unpack,
  vectorOf,
} from "./linalg-testkit.js";

const sizes = [1, 2, 3, 5, 8, 17, 40];
/** One matrix, which the lanes leave to scalar code, and more than fill a vector, with some left over. */
const batchesOf = (n: number): number[] => (n <= 8 ? [1, 11] : [1, 2]);
/** The reference takes seconds for large decompositions; beyond this their equations alone decide. */
const referenceSize = 17;

const many = (batch: number, make: () => Matrix): Matrix[] => Array.from({ length: batch }, make);
const nan = c.complex(Number.NaN, Number.NaN);

/** A random matrix that the dtype can hold, so that products of two keep their rank in it. */
const held = (dtype: DType, m: number, n: number): Matrix =>
  isComplex(dtype) ? randomMatrix(m, n) : randomMatrix(m, n).map((row) => row.map((x) => c.complex(x.re)));

for (const backend of backends) {
  describe(`linear algebra: ${backend.name}`, { skip: backend.skip }, () => {
    const use = (): void => {
      const families = native!.init(backend.path);
      assert.equal(families, backend.path === null ? 0 : 6);
      native!.set_crossover(backend.crossover);
      native!.set_threads(1);
    };
    const each = (name: string, body: (dtype: DType, n: number, batch: number, what: string) => void): void => {
      for (const dtype of dtypes) {
        test(`${name}, ${dtype}`, () => {
          use();
          for (const n of sizes)
            for (const batch of batchesOf(n)) body(dtype, n, batch, `${name} ${dtype} [${batch},${n},${n}]`);
        });
      }
    };

    each("cholesky", (dtype, n, batch, what) => {
      const matrices = many(batch, () => definite(n));
      // What lies above the diagonal must not matter.
      if (n > 1) matrices[0][0][n - 1] = nan;
      const a = pack(dtype, n, n, matrices);
      const expected = runAll("cholesky", {}, [a], [aval(a.shape, dtype)])[0];
      closeValue(run.cholesky(a), expected, precision(dtype), what);
    });

    each("cholesky where some are not positive definite", (dtype, n, batch, what) => {
      const matrices = many(batch, () => definite(n));
      matrices[batch - 1][n - 1][n - 1] = c.complex(-1);
      if (batch > 3) matrices[3][0][0] = nan;
      const a = pack(dtype, n, n, matrices);
      const expected = runAll("cholesky", {}, [a], [aval(a.shape, dtype)])[0];
      assert.ok(complexes(expected).some(c.isNaNComplex));
      closeValue(run.cholesky(a), expected, precision(dtype), what);
    });

    each("triangularSolve", (dtype, n, batch, what) => {
      for (let form = 0; form < 8; form++) {
        const attrs = { lower: (form & 1) > 0, adjoint: (form & 2) > 0, unit: (form & 4) > 0 };
        // Small off the diagonal, or a unit triangle of this size would be hopelessly ill-conditioned.
        const matrices = many(batch, () =>
          plus(scaledColumns(randomMatrix(n, n), new Array(n).fill(1 / n)), identityMatrix(n)),
        );
        for (const matrix of matrices)
          for (let i = 0; i < n; i++) {
            if (attrs.unit) matrix[i][i] = nan;
            for (let j = 0; j < n; j++) if (attrs.lower ? j > i : j < i) matrix[i][j] = nan;
          }
        const k = 1 + (form % 3);
        const a = pack(dtype, n, n, matrices);
        const b = pack(
          dtype,
          n,
          k,
          many(batch, () => randomMatrix(n, k)),
        );
        const expected = runAll("triangularSolve", attrs, [a, b], [aval(b.shape, dtype)])[0];
        closeValue(run.triangularSolve(a, b, attrs), expected, precision(dtype), `${what} ${JSON.stringify(attrs)}`);
      }
    });

    each("solve and det", (dtype, n, batch, what) => {
      // The largest entries lie on the other diagonal: nothing goes without swaps of rows. A zero row has no inverse.
      const size = 1 + 1.5 * Math.sqrt(n);
      const matrices = many(batch, () => plus(identityMatrix(n), randomMatrix(n, n), 1 / size).reverse());
      if (batch > 1) matrices[1][n - 1] = matrices[1][n - 1].map(() => c.zero);
      const a = pack(dtype, n, n, matrices);
      for (const k of [1, 3]) {
        const b = pack(
          dtype,
          n,
          k,
          many(batch, () => randomMatrix(n, k)),
        );
        const expected = runAll("solve", {}, [a, b], [aval(b.shape, dtype)])[0];
        if (batch > 1) assert.ok(complexes(expected).some(c.isNaNComplex));
        closeValue(run.solve(a, b), expected, 50 * precision(dtype), what);
      }
      const det = runAll("det", {}, [a], [aval([batch], dtype)])[0];
      if (batch > 1) assert.equal(c.abs(complexes(run.det(a))[1]), 0);
      complexes(det).forEach((z, g) => {
        close([complexes(run.det(a))[g]], [z], 20 * precision(dtype), `${what} det ${g}`);
      });
    });

    each("eigh", (dtype, n, batch, what) => {
      const matrices = many(batch, () => hermitian(n));
      if (n > 1) matrices[0][0][n - 1] = nan;
      const a = pack(dtype, n, n, matrices);
      const [w, v] = checkEigh(a, precision(dtype), what);
      if (n > referenceSize) return;
      const expected = runAll("eigh", {}, [a], [aval([batch, n], realOf(dtype)), aval(a.shape, dtype)]);
      closeValue(w, expected[0], precision(dtype), `${what} values`);
      closeValue(v, expected[1], 500 * precision(dtype), `${what} vectors`);
    });

    each("eigh of degenerate, zero and non-finite matrices", (dtype, n, batch, what) => {
      const [q] = run.qr(pack(dtype, n, n, [randomMatrix(n, n)]));
      const columns = unpack(q)[0];
      const spectrum = Array.from({ length: n }, (_, i) => (i < n / 2 ? 1 : 3));
      const projectors = multiply(scaledColumns(columns, spectrum), adjointMatrix(columns));
      const diagonal = buildMatrix(n, n, (i, j) => c.complex(i === j ? n - i : 0));
      const none = buildMatrix(n, n, () => c.zero);
      const a = pack(
        dtype,
        n,
        n,
        many(batch, () => projectors),
      );
      const [w] = checkEigh(a, precision(dtype), what);
      close(complexes(w), many(batch, () => [spectrum.map((x) => c.complex(x))]).flat(2), precision(dtype), what);
      const [exact, vectors] = checkEigh(
        pack(
          dtype,
          n,
          n,
          many(batch, () => diagonal),
        ),
        precision(dtype),
        what,
      );
      assert.deepEqual(
        vectorOf(exact, batch - 1),
        Array.from({ length: n }, (_, i) => i + 1),
      );
      assert.ok(complexes(vectors).every((x) => x.im === 0 && (x.re === 0 || x.re === 1)));
      checkEigh(
        pack(
          dtype,
          n,
          n,
          many(batch, () => none),
        ),
        precision(dtype),
        what,
      );
      const spoilt = many(batch, () => hermitian(n));
      spoilt[0] = spoilt[0].map((row, i) =>
        row.map((x, j) => (i === n - 1 && j === 0 ? c.complex(Number.POSITIVE_INFINITY) : x)),
      );
      const [values] = run.eigh(pack(dtype, n, n, spoilt));
      assert.ok(vectorOf(values, 0).every(Number.isNaN));
      if (batch > 1) assert.ok(vectorOf(values, 1).every(Number.isFinite));
    });

    each("qr and svd", (dtype, n, batch, what) => {
      for (const [rows, columns] of [
        [n, n],
        [n + 3, n],
        [n, n + 4],
        [2 * n + 9, n],
      ]) {
        const a = pack(
          dtype,
          rows,
          columns,
          many(batch, () => randomMatrix(rows, columns)),
        );
        const label = `${what} ${rows}x${columns}`;
        const k = Math.min(rows, columns);
        const factors = checkQr(a, precision(dtype), label);
        const [, s] = checkSvd(a, precision(dtype), label);
        if (n > 8) continue;
        const shapes = [aval([batch, rows, k], dtype), aval([batch, k, columns], dtype)];
        const expected = runAll("qr", {}, [a], shapes);
        closeValue(factors[0], expected[0], 100 * precision(dtype), `${label} q`);
        closeValue(factors[1], expected[1], 100 * precision(dtype), `${label} r`);
        const singular = runAll("svd", {}, [a], [shapes[0], aval([batch, k], realOf(dtype)), shapes[1]])[1];
        closeValue(s, singular, precision(dtype), `${label} s`);
      }
    });

    each("qr and svd of rank-deficient and non-finite matrices", (dtype, n, batch, what) => {
      const rank = Math.floor(n / 2);
      for (const [rows, columns] of [
        [n, n],
        [n + 2, n],
        [n, n + 2],
      ]) {
        const product = (): Matrix =>
          rank === 0
            ? buildMatrix(rows, columns, () => c.zero)
            : multiply(held(dtype, rows, rank), held(dtype, rank, columns));
        const a = pack(dtype, rows, columns, many(batch, product));
        checkQr(a, precision(dtype), `${what} ${rows}x${columns}`);
        const [, s] = checkSvd(a, precision(dtype), `${what} ${rows}x${columns}`);
        for (const value of vectorOf(s, batch - 1).slice(rank))
          assert.ok(value <= precision(dtype) * n, `${what}: rank (${value})`);
        const spoilt = many(batch, () => randomMatrix(rows, columns));
        spoilt[0][0][0] = nan;
        for (const value of [
          ...run.svd(pack(dtype, rows, columns, spoilt)),
          ...run.qr(pack(dtype, rows, columns, spoilt)),
        ]) {
          const part = numel(value.shape) / batch;
          const all = complexes(value);
          assert.ok(all.slice(0, part).every(c.isNaNComplex), `${what}: not finite`);
          assert.ok(all.slice(part).every(c.isFiniteComplex), `${what}: the others are`);
        }
      }
    });

    test("ill-conditioned systems are solved to a small residual", () => {
      use();
      for (const dtype of dtypes)
        for (const n of [3, 8, 17]) {
          const hilbert = buildMatrix(n, n, (i, j) => c.complex(1 / (i + j + 1), i === j ? 0 : (i - j) * 1e-3));
          const a = pack(
            dtype,
            n,
            n,
            many(3, () => hilbert),
          );
          const b = pack(
            dtype,
            n,
            2,
            many(3, () => randomMatrix(n, 2)),
          );
          unpack(run.solve(a, b)).forEach((x, g) => {
            const residual = plus(multiply(unpack(a)[g], x), unpack(b)[g], -1);
            const size = n * largest(x.flat());
            assert.ok(
              largest(residual.flat()) <= precision(dtype) * size,
              `${dtype} ${n}: ${largest(residual.flat()) / size}`,
            );
          });
          checkSvd(a, precision(dtype), `hilbert svd ${dtype} ${n}`);
          checkQr(a, precision(dtype), `hilbert qr ${dtype} ${n}`);
          checkEigh(a, precision(dtype), `hilbert eigh ${dtype} ${n}`);
        }
    });

    test("very large and very small numbers neither overflow nor vanish", () => {
      use();
      for (const dtype of ["float64", "complex128"] as const)
        for (const factor of [1e-200, 1e-305, 1e200, 1e306]) {
          const scaled = (a: Matrix): Matrix => a.map((row) => row.map((x) => c.scale(x, factor)));
          const general = pack(
            dtype,
            5,
            4,
            many(2, () => scaled(randomMatrix(5, 4))),
          );
          checkQr(general, precision(dtype), `qr at ${factor}`);
          checkSvd(general, precision(dtype), `svd at ${factor}`);
          const [w] = checkEigh(
            pack(
              dtype,
              4,
              4,
              many(2, () => scaled(hermitian(4))),
            ),
            precision(dtype),
            `eigh at ${factor}`,
          );
          assert.ok(Math.abs(vectorOf(w, 0)[3]) > factor / 10);
          const a = pack(
            dtype,
            4,
            4,
            many(2, () => scaled(plus(randomMatrix(4, 4), identityMatrix(4), 2))),
          );
          const b = pack(
            dtype,
            4,
            1,
            many(2, () => scaled(randomMatrix(4, 1))),
          );
          unpack(run.solve(a, b)).forEach((x, g) => {
            closeMatrix(multiply(unpack(a)[g], x), unpack(b)[g], 1e-12, `solve at ${factor}`);
          });
        }
    });

    test("empty matrices and empty batches are answered", () => {
      use();
      for (const dtype of dtypes) {
        const none = pack(dtype, 0, 0, [[], []]);
        assert.deepEqual(complexes(run.det(none)), [c.one, c.one]);
        for (const shape of [
          [0, 3, 3],
          [2, 0, 0],
          [2, 0, 3],
          [2, 3, 0],
        ]) {
          const a = empty(dtype, shape);
          run.qr(a);
          run.svd(a);
          if (shape[1] !== shape[2]) continue;
          run.cholesky(a);
          run.eigh(a);
          run.det(a);
          run.solve(a, empty(dtype, [shape[0], shape[1], 0]));
        }
      }
    });

    test("threads give the same bits, and a wrong dtype is refused", () => {
      use();
      const sizesOf: [number, number][] = [
        [4, 700],
        [8, 90],
        [20, 30],
      ];
      for (const dtype of dtypes)
        for (const [n, batch] of sizesOf) {
          const a = pack(
            dtype,
            n,
            n,
            many(batch, () => definite(n)),
          );
          const all = (): Value[] => [run.cholesky(a), run.solve(a, a), run.det(a), ...run.qr(a), ...run.svd(a)];
          // LAPACK's last bits of eigenvalues depend on the thread on some processors.
          const exact = backend.path === null;
          native!.set_threads(1);
          const alone = all();
          const eigen = run.eigh(a);
          native!.set_threads(3);
          assert.deepEqual(all(), alone, `${dtype} ${n}`);
          if (exact) assert.deepEqual(run.eigh(a), eigen, `${dtype} ${n}`);
          else closeValue(run.eigh(a)[0], eigen[0], 50 * precision(dtype), `${dtype} ${n}`);
        }
      assert.equal(native!.cholesky(4, 1, 1, new Float64Array(2), new Float64Array(2)), 2);
    });
  });
}

test("a large batch is divided among the threads that were set, a small one is not", { skip: noCompiler }, () => {
  const regions = (batch: number): number => {
    const a = pack(
      "float64",
      8,
      8,
      many(batch, () => identityMatrix(8)),
    );
    const before = native!.regions();
    native!.set_threads(3);
    run.eigh(a);
    native!.set_threads(1);
    return native!.regions() - before;
  };
  native!.init(null);
  assert.deepEqual([4, 256].map(regions), [0, 1]);
});

test("the lanes are right on machines with narrower vectors", { skip: noCompiler }, () => {
  if (process.arch !== "x64") return;
  for (const flags of [[], ["-mavx2", "-mfma"]]) {
    const other = compile(flags);
    assert.ok(typeof other !== "string");
    const here = bind(other);
    const a = pack(
      "complex128",
      6,
      6,
      many(7, () => definite(6)),
    );
    native!.init(null);
    for (const op of ["cholesky", "eigh"] as const) {
      const results = [native!, here].map((n) => {
        const out = [empty("complex128", a.shape), empty("complex128", a.shape)];
        n[op](3, 7, 6, a.data, ...out.slice(0, op === "eigh" ? 2 : 1).map((x) => x.data));
        return out;
      });
      for (const i of [0, 1]) closeValue(results[1][i], results[0][i], 1e-10, `${op} with ${flags}`);
    }
  }
});
