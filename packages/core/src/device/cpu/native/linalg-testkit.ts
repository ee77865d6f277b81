// What the tests of the C linear algebra share: the compiled library, matrices in and out of it, and the equations that
// its results must satisfy where they are not unique. Knows the reference, not the tests.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import koffi, { type LibraryHandle } from "koffi";
import { type DType, makeStorage, numel, realOf, type Shape } from "../../../graph/index.js";
import * as c from "../../../ops/reference/complex.js";
import { adjointMatrix, buildMatrix, identityMatrix, type Matrix, multiply } from "../../../ops/reference/matrix.js";
import { complexes, fromComplexes, type Value } from "../../../ops/reference/value.js";
import { nativeSource } from "../../native-source.js";
import { unitsOf } from "../native-units.js";

export const dtypes: DType[] = ["float32", "float64", "complex64", "complex128"];
const folder = mkdtempSync(join(tmpdir(), "weft-linalg-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

/** The threads of the runtime library, and how often they were used. */
const pool = (): string =>
  `#define _GNU_SOURCE\n${nativeSource("cpu/native/pool.h", "cpu/native/share.h")}
   static long regions;
   static void run(w_kernel fn, void* const* p, long from, long count, long chunks, double weight) {
     regions++;
     pool_run(fn, p, from, count, chunks, weight);
   }
   static weft_runtime table = {.run = run};
   void wl_set_threads(int);
   void use_threads(int n) {
     pool_grow(n - 1);
     atomic_store(&pool.team, n);
     wx_runtime = &table;
     wl_set_threads(n);
   }
   long shared_regions(void) { return regions; }`;

export function compile(flags: readonly string[] = ["-march=native"]): LibraryHandle | string {
  const name = join(folder, `linalg${flags.join("")}`);
  const units = [...unitsOf("linalg"), pool()].map((source, i) => {
    writeFileSync(`${name}-${i}.c`, source);
    return `${name}-${i}.c`;
  });
  const common = ["-O2", "-ftree-vectorize", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC", "-shared"];
  const warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-pass-failed"];
  try {
    execFileSync("cc", ["--version"], { stdio: "ignore" });
  } catch {
    return "there is no C compiler (cc) here";
  }
  execFileSync("cc", [...common, ...warnings, ...flags, ...units, "-o", `${name}.so`, "-lm", "-ldl"]);
  return koffi.load(`${name}.so`);
}

const signatures = {
  init: "int wl_init(const char*)",
  set_threads: "void use_threads(int)",
  regions: "long shared_regions()",
  set_crossover: "void wl_set_crossover(long)",
  cholesky: "int wl_cholesky(int, long, long, const void*, void*)",
  triangular_solve: "int wl_triangular_solve(int, long, long, long, int, int, int, const void*, const void*, void*)",
  solve: "int wl_solve(int, long, long, long, const void*, const void*, void*)",
  det: "int wl_det(int, long, long, const void*, void*)",
  eigh: "int wl_eigh(int, long, long, const void*, void*, void*)",
  qr: "int wl_qr(int, long, long, long, const void*, void*, void*)",
  svd: "int wl_svd(int, long, long, long, const void*, void*, void*, void*)",
};
export type Native = Record<keyof typeof signatures, (...args: unknown[]) => number>;
export const bind = (library: LibraryHandle): Native =>
  Object.fromEntries(Object.entries(signatures).map(([name, text]) => [name, library.func(text)])) as unknown as Native;

export const library = compile();
export const native = typeof library === "string" ? null : bind(library);

const candidates = [
  process.env.WEFT_OPENBLAS ?? "",
  ...[
    "",
    "/usr/lib/x86_64-linux-gnu/",
    "/usr/lib/aarch64-linux-gnu/",
    "/usr/lib64/",
    "/opt/homebrew/opt/openblas/lib/",
  ].flatMap((place) => ["libopenblas.so.0", "libopenblas.so", "libopenblas.dylib"].map((name) => place + name)),
].filter((path) => path !== "");
const openblas = candidates.find((path) => (native?.init(path) ?? 0) > 0);

export interface Backend {
  name: string;
  path: string | null;
  crossover: number;
  skip: string | false;
}
export const noCompiler = typeof library === "string" ? library : false;
const noLapack = noCompiler || (openblas === undefined ? `no OpenBLAS among ${candidates.join(", ")}` : false);
export const backends: Backend[] = [
  { name: "built-in", path: null, crossover: -1, skip: noCompiler },
  { name: "LAPACK at every size", path: openblas ?? null, crossover: 0, skip: noLapack },
  { name: "the measured choice", path: openblas ?? null, crossover: -1, skip: noLapack },
];
for (const { name, skip } of backends) if (skip) console.log(`# SKIP linear algebra, ${name}: ${skip}`);

let seed = 1;
function random(): number {
  seed = (Math.imul(seed, 1664525) + 1013904223) | 0;
  return (seed >>> 8) / 2 ** 23 - 1;
}
export const randomMatrix = (m: number, n: number): Matrix => buildMatrix(m, n, () => c.complex(random(), random()));
export const plus = (a: Matrix, b: Matrix, factor = 1): Matrix =>
  a.map((row, i) => row.map((x, j) => c.add(x, c.scale(b[i][j], factor))));
export const hermitian = (n: number): Matrix => {
  const a = randomMatrix(n, n);
  return plus(a, adjointMatrix(a));
};
export const definite = (n: number): Matrix => {
  const a = randomMatrix(n, n);
  return plus(multiply(a, adjointMatrix(a)), identityMatrix(n), n / 4);
};

/** Matrices as the dtype holds them: rounded, and without imaginary parts where it has none. */
export const pack = (dtype: DType, m: number, n: number, batch: readonly Matrix[]): Value =>
  fromComplexes(dtype, [batch.length, m, n], batch.flat(2));
export const empty = (dtype: DType, shape: Shape): Value => ({ dtype, shape, data: makeStorage(dtype, numel(shape)) });
export function unpack(value: Value): Matrix[] {
  const [batch, m, n] = value.shape;
  const all = complexes(value);
  return Array.from({ length: batch }, (_, g) => buildMatrix(m, n, (i, j) => all[(g * m + i) * n + j]));
}

function call(op: keyof typeof signatures, outputs: Value[], inputs: readonly Value[], ...numbers: number[]): Value[] {
  const { dtype, shape } = inputs[0];
  const pointers = [...inputs, ...outputs].map((value) => value.data);
  const code = native![op](dtypes.indexOf(dtype), shape[0], ...numbers, ...pointers);
  assert.equal(code, 0, `wl_${op} returned ${code}`);
  return outputs;
}
export const run = {
  cholesky: (a: Value) => call("cholesky", [empty(a.dtype, a.shape)], [a], a.shape[1])[0],
  triangularSolve: (a: Value, b: Value, f: { lower: boolean; adjoint: boolean; unit: boolean }) =>
    call(
      "triangular_solve",
      [empty(b.dtype, b.shape)],
      [a, b],
      b.shape[1],
      b.shape[2],
      +f.lower,
      +f.adjoint,
      +f.unit,
    )[0],
  solve: (a: Value, b: Value) => call("solve", [empty(b.dtype, b.shape)], [a, b], b.shape[1], b.shape[2])[0],
  det: (a: Value) => call("det", [empty(a.dtype, [a.shape[0]])], [a], a.shape[1])[0],
  eigh: (a: Value) =>
    call("eigh", [empty(realOf(a.dtype), a.shape.slice(0, 2)), empty(a.dtype, a.shape)], [a], a.shape[1]),
  qr: (a: Value) => {
    const [g, m, n] = a.shape;
    const k = Math.min(m, n);
    return call("qr", [empty(a.dtype, [g, m, k]), empty(a.dtype, [g, k, n])], [a], m, n);
  },
  svd: (a: Value) => {
    const [g, m, n] = a.shape;
    const k = Math.min(m, n);
    return call(
      "svd",
      [empty(a.dtype, [g, m, k]), empty(realOf(a.dtype), [g, k]), empty(a.dtype, [g, k, n])],
      [a],
      m,
      n,
    );
  },
};

export const precision = (dtype: DType): number => (dtype === "float32" || dtype === "complex64" ? 2e-5 : 1e-12);
export const largest = (all: readonly c.Complex[]): number => all.reduce((max, z) => Math.max(max, c.abs(z)), 0);

/** Off by no more than `tolerance` of the largest number; NaN where NaN is expected and only there. */
export function close(
  actual: readonly c.Complex[],
  expected: readonly c.Complex[],
  tolerance: number,
  what: string,
): void {
  assert.equal(actual.length, expected.length, what);
  const bound = tolerance * largest(expected.filter(c.isFiniteComplex));
  for (const [i, e] of expected.entries()) {
    if (c.isNaNComplex(e))
      assert.ok(c.isNaNComplex(actual[i]), `${what}: element ${i} is ${JSON.stringify(actual[i])}, not NaN`);
    else {
      const error = c.abs(c.sub(actual[i], e));
      assert.ok(
        error <= bound,
        `${what}: element ${i} is ${JSON.stringify(actual[i])}, not ${JSON.stringify(e)} (${error})`,
      );
    }
  }
}
export const closeMatrix = (actual: Matrix, expected: Matrix, tolerance: number, what: string): void =>
  close(actual.flat(), expected.flat(), tolerance, what);
export const closeValue = (actual: Value, expected: Value, tolerance: number, what: string): void =>
  close(complexes(actual), complexes(expected), tolerance, what);

const orthonormalColumns = (a: Matrix, columns: number, tolerance: number, what: string): void =>
  closeMatrix(multiply(adjointMatrix(a), a), identityMatrix(columns), tolerance, `${what}: orthonormal`);
export const scaledColumns = (a: Matrix, by: readonly number[]): Matrix =>
  a.map((row) => row.map((x, j) => c.scale(x, by[j])));
export const vectorOf = (value: Value, g: number): number[] => {
  const n = value.shape[1];
  return complexes(value)
    .slice(g * n, (g + 1) * n)
    .map((z) => z.re);
};
const isSorted = (x: readonly number[], direction: 1 | -1): boolean =>
  x.every((v, i) => i === 0 || direction * (v - x[i - 1]) >= 0);

export function checkEigh(a: Value, tolerance: number, what: string): Value[] {
  const [w, v] = run.eigh(a);
  unpack(a).forEach((matrix, g) => {
    const values = vectorOf(w, g);
    const vectors = unpack(v)[g];
    const full = buildMatrix(matrix.length, matrix.length, (i, j) => {
      if (i === j) return c.complex(matrix[i][i].re);
      return i > j ? matrix[i][j] : c.conj(matrix[j][i]);
    });
    assert.ok(isSorted(values, 1), `${what}: ascending`);
    orthonormalColumns(vectors, values.length, tolerance, what);
    const again = multiply(scaledColumns(vectors, values), adjointMatrix(vectors));
    closeMatrix(again, full, tolerance, `${what}: v w v^H`);
    for (let j = 0; j < values.length; j++) {
      const column = vectors.map((row) => row[j]);
      const pivot = column.find((x) => c.abs(x) >= 0.99899 * largest(column))!;
      const other = column.find((x) => c.abs(x) >= 0.99901 * largest(column))!;
      assert.ok(
        [pivot, other].some((x) => x.im === 0 && x.re > 0),
        `${what}: phase of vector ${j}`,
      );
    }
  });
  return [w, v];
}

export function checkSvd(a: Value, tolerance: number, what: string): Value[] {
  const [u, s, vh] = run.svd(a);
  unpack(a).forEach((matrix, g) => {
    const values = vectorOf(s, g);
    assert.ok(isSorted(values, -1) && values.every((x) => x >= 0), `${what}: descending`);
    orthonormalColumns(unpack(u)[g], values.length, tolerance, `${what} u`);
    orthonormalColumns(adjointMatrix(unpack(vh)[g]), values.length, tolerance, `${what} v`);
    closeMatrix(multiply(scaledColumns(unpack(u)[g], values), unpack(vh)[g]), matrix, tolerance, `${what}: u s vh`);
  });
  return [u, s, vh];
}

export function checkQr(a: Value, tolerance: number, what: string): Value[] {
  const [q, r] = run.qr(a);
  unpack(a).forEach((matrix, g) => {
    const [left, right] = [unpack(q)[g], unpack(r)[g]];
    orthonormalColumns(left, right.length, tolerance, what);
    closeMatrix(multiply(left, right), matrix, tolerance, `${what}: q r`);
    right.forEach((row, i) => {
      assert.ok(row[i].im === 0 && row[i].re >= 0, `${what}: diagonal of r`);
      for (const x of row.slice(0, i)) assert.equal(c.abs(x), 0, `${what}: below the diagonal of r`);
    });
  });
  return [q, r];
}
