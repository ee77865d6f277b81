// The BLAS library called directly: what the products of a row cost without Weft, on the same cores.

import { openBlasPath } from "@weft/core/internal/device";
import koffi from "koffi";
import type { RowSpec } from "./rows.js";

type Gemm = (...args: unknown[]) => void;

function loadGemm(threads: number): Gemm | null {
  const path = openBlasPath();
  if (path === null) return null;
  const library = koffi.load(path);
  library.func("void openblas_set_num_threads(int n)")(threads);
  return library.func(
    "void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda, " +
      "const float* b, int ldb, float beta, _Out_ float* c, int ldc)",
  ) as Gemm;
}

const products = (row: RowSpec): [number, number, number][] => {
  if (row.kind === "product") return [[row.m, row.k, row.n]];
  if (row.kind === "mlp") return row.dims.slice(1).map((out, i) => [row.batch, row.dims[i], out]);
  return [];
};

/** Seconds of each repeat, or null if there is no library or the row has no product. */
export function rawProducts(row: RowSpec, threads: number, warmup: number, repeats: number): number[] | null {
  const shapes = products(row);
  const gemm = shapes.length === 0 ? null : loadGemm(threads);
  if (gemm === null) return null;
  const filled = (n: number): Float32Array =>
    Float32Array.from({ length: n }, (_, i) => ((i * 2654435761) >>> 16) / 65536 - 0.5);
  const calls = shapes.map(([m, k, n]) => ({
    m,
    k,
    n,
    a: filled(m * k),
    b: filled(k * n),
    c: new Float32Array(m * n),
  }));
  const times: number[] = [];
  for (let i = -warmup; i < repeats; i++) {
    const start = performance.now();
    for (const { m, k, n, a, b, c } of calls) gemm(101, 111, 111, m, n, k, 1, a, k, b, n, 0, c, n);
    if (i >= 0) times.push((performance.now() - start) / 1e3);
  }
  return times;
}
