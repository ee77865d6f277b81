// Matrix products through OpenBLAS, or by a blocked loop where it is missing.
#pragma once
#include "prelude.h"

typedef void (*gemm_real)(int, int, int, int, int, int, float, const void*, int, const void*, int, float, void*, int);
typedef void (*gemm_double)(int, int, int, int, int, int, double, const void*, int, const void*, int, double, void*,
                            int);
typedef void (*gemm_complex)(int, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*,
                             void*, int);
static gemm_real blas_s;
static gemm_double blas_d;
static gemm_complex blas_c, blas_z;
static int blas_parallel; /* 0: none, 1: own pthreads, 2: OpenMP */
static void (*blas_threads)(int);

/* Element i,j of a strided operand, conjugated if asked. */
#define FALLBACK(name, T)                                                                                              \
  static void name(long m, long n, long k, const T* a, long ars, long acs, int aconj, const T* b, long brs, long bcs,  \
                   int bconj, T* c, long crs) {                                                                        \
    for (long i0 = 0; i0 < m; i0 += 32)                                                                                \
      for (long j0 = 0; j0 < n; j0 += 256) {                                                                           \
        long i1 = i0 + 32 < m ? i0 + 32 : m, j1 = j0 + 256 < n ? j0 + 256 : n;                                         \
        for (long i = i0; i < i1; i++)                                                                                 \
          for (long j = j0; j < j1; j++) c[i * crs + j] = 0;                                                           \
        for (long p0 = 0; p0 < k; p0 += 128) {                                                                         \
          long p1 = p0 + 128 < k ? p0 + 128 : k;                                                                       \
          for (long i = i0; i < i1; i++)                                                                               \
            for (long p = p0; p < p1; p++) {                                                                           \
              T x = a[i * ars + p * acs];                                                                              \
              if (aconj) x = (T)conj(x);                                                                               \
              T* ci = c + i * crs;                                                                                     \
              if (bconj)                                                                                               \
                for (long j = j0; j < j1; j++) ci[j] += x * (T)conj(b[p * brs + j * bcs]);                             \
              else if (bcs == 1)                                                                                       \
                for (long j = j0; j < j1; j++) ci[j] += x * b[p * brs + j];                                            \
              else                                                                                                     \
                for (long j = j0; j < j1; j++) ci[j] += x * b[p * brs + j * bcs];                                      \
            }                                                                                                          \
        }                                                                                                              \
      }                                                                                                                \
  }
FALLBACK(fallback_s, float)
FALLBACK(fallback_d, double)
FALLBACK(fallback_c, float complex)
FALLBACK(fallback_z, double complex)

/* CBLAS: 111 no transpose, 112 transpose, 113 conjugate transpose, 114 conjugate. */
static int transposition(int transposed, int conjugated) {
  return conjugated ? (transposed ? 113 : 114) : (transposed ? 112 : 111);
}
static long leading(long stride, long least) { return stride > least ? stride : least > 1 ? least : 1; }

static void one_gemm(int dtype, long m, long n, long k, const char* a, long ars, long acs, int aconj, const char* b,
                     long brs, long bcs, int bconj, char* c, long crs) {
  if (m == 0 || n == 0) return;
  int at = !(acs == 1 || k == 1), bt = !(bcs == 1 || n == 1);
  if (at && !(ars == 1 || m == 1)) at = 2;
  if (bt && !(brs == 1 || k == 1)) bt = 2;
  int have = dtype == 0 ? blas_s != NULL : dtype == 1 ? blas_d != NULL : dtype == 2 ? blas_c != NULL : blas_z != NULL;
  /* The library counts in ints. */
  const long top = 2147483647, strides = ars | acs | brs | bcs | crs;
  if (!have || at == 2 || bt == 2 || k == 0 || (m | n | k | strides) > top) {
    switch (dtype) {
      case 0: fallback_s(m, n, k, (const float*)a, ars, acs, 0, (const float*)b, brs, bcs, 0, (float*)c, crs); return;
      case 1:
        fallback_d(m, n, k, (const double*)a, ars, acs, 0, (const double*)b, brs, bcs, 0, (double*)c, crs);
        return;
      case 2:
        fallback_c(m, n, k, (const float complex*)a, ars, acs, aconj, (const float complex*)b, brs, bcs, bconj,
                   (float complex*)c, crs);
        return;
      default:
        fallback_z(m, n, k, (const double complex*)a, ars, acs, aconj, (const double complex*)b, brs, bcs, bconj,
                   (double complex*)c, crs);
        return;
    }
  }
  int lda = (int)(at ? leading(acs, m) : leading(ars, k)), ldb = (int)(bt ? leading(bcs, k) : leading(brs, n));
  int ldc = (int)leading(crs, n);
  int ta = transposition(at, aconj && dtype > 1), tb = transposition(bt, bconj && dtype > 1);
  float cone[2] = {1, 0}, czero[2] = {0, 0};
  double zone[2] = {1, 0}, zzero[2] = {0, 0};
  switch (dtype) {
    case 0: blas_s(101, ta, tb, (int)m, (int)n, (int)k, 1.0f, a, lda, b, ldb, 0.0f, c, ldc); return;
    case 1: blas_d(101, ta, tb, (int)m, (int)n, (int)k, 1.0, a, lda, b, ldb, 0.0, c, ldc); return;
    case 2: blas_c(101, ta, tb, (int)m, (int)n, (int)k, cone, a, lda, b, ldb, czero, c, ldc); return;
    default: blas_z(101, ta, tb, (int)m, (int)n, (int)k, zone, a, lda, b, ldb, zzero, c, ldc); return;
  }
}

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
    one_gemm(dtype, m, n, k, a, ars, acs, aconj, b, brs, bcs, bconj, c, crs);
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
             (const char*)b + bo * size, brs, bcs, bconj, (char*)c + (co + from * crs) * size, crs);
  }
}
