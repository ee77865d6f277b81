// Batches of matrix products, shared out over threads.
#pragma once
#include "blas.h"

static const long gemm_bytes[4] = {4, 8, 8, 16};

static int blas_threads_now;
static void use_blas_threads(int n) {
  if (n == blas_threads_now || !blas_threads) return;
  blas_threads(n);
  blas_threads_now = n;
}

static void wr_gemm(int dtype, long m, long n, long k, const void* a, long ars, long acs, int aconj, const void* b,
                    long brs, long bcs, int bconj, void* c, long crs, int rank, const long* sizes, const long* as,
                    const long* bs, const long* cs, int threads) {
  long batch = 1, size = gemm_bytes[dtype];
  for (int i = 0; i < rank; i++) batch *= sizes[i];
  double work = 2.0 * m * n * k * batch * (dtype > 1 ? 4 : 1);
  int split = threads > 1 && work > 4e5;
  /* The OpenMP build of OpenBLAS shares our threads when it is called outside a parallel region. */
  if (batch == 1 && (!split || blas_parallel == 2)) {
    /* Small products are faster on one thread than OpenBLAS's own choice (a second one pays from about n = 128). */
    if (blas_parallel == 2) use_blas_threads(work < 3e6 ? 1 : threads);
    one_gemm(dtype, m, n, k, a, ars, acs, aconj, b, brs, bcs, bconj, c, crs, 0);
    return;
  }
  /* Otherwise each thread takes whole products, or whole rows of them. */
  long pieces = split && batch < threads ? (threads + batch - 1) / batch : 1;
  if (pieces > m) pieces = m > 0 ? m : 1;
  long total = batch * pieces;
#pragma omp parallel for num_threads(threads) if (split) schedule(static)
  for (long item = 0; item < total; item++) {
    long at = item / pieces, piece = item % pieces, ao = 0, bo = 0, co = 0;
    for (int d = rank - 1; d >= 0; d--) {
      long i = at % sizes[d];
      at /= sizes[d];
      ao += i * as[d];
      bo += i * bs[d];
      co += i * cs[d];
    }
    long from = m * piece / pieces, to = m * (piece + 1) / pieces;
    one_gemm(dtype, to - from, n, k, (const char*)a + (ao + from * ars) * size, ars, acs, aconj,
             (const char*)b + bo * size, brs, bcs, bconj, (char*)c + (co + from * crs) * size, crs, 0);
  }
}
