// OpenBLAS, and one matrix product by it or by a blocked loop where it is missing.
#pragma once
#include <complex.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
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
static void (*openmp_threads)(int); /* that of the library behind the OpenMP build */

/* Element i,j of a strided operand, conjugated if asked. */
#define FALLBACK(name, T)                                                                                              \
  static void name(long m, long n, long k, const T* a, long ars, long acs, int aconj, const T* b, long brs, long bcs,  \
                   int bconj, T* c, long crs, int accumulate) {                                                        \
    for (long i0 = 0; i0 < m; i0 += 32)                                                                                \
      for (long j0 = 0; j0 < n; j0 += 256) {                                                                           \
        long i1 = i0 + 32 < m ? i0 + 32 : m, j1 = j0 + 256 < n ? j0 + 256 : n;                                         \
        for (long i = i0; i < i1 && !accumulate; i++)                                                                  \
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

/* c = a b, or c += a b, on the threads that OpenBLAS is set to. */
static void one_gemm(int dtype, long m, long n, long k, const char* a, long ars, long acs, int aconj, const char* b,
                     long brs, long bcs, int bconj, char* c, long crs, int accumulate) {
  if (m == 0 || n == 0) return;
  int at = !(acs == 1 || k == 1), bt = !(bcs == 1 || n == 1);
  if (at && !(ars == 1 || m == 1)) at = 2;
  if (bt && !(brs == 1 || k == 1)) bt = 2;
  int have = dtype == 0 ? blas_s != NULL : dtype == 1 ? blas_d != NULL : dtype == 2 ? blas_c != NULL : blas_z != NULL;
  /* The library counts in ints. */
  const long top = 2147483647, strides = ars | acs | brs | bcs | crs;
  if (!have || at == 2 || bt == 2 || k == 0 || (m | n | k | strides) > top) {
    switch (dtype) {
      case 0:
        fallback_s(m, n, k, (const float*)a, ars, acs, 0, (const float*)b, brs, bcs, 0, (float*)c, crs, accumulate);
        return;
      case 1:
        fallback_d(m, n, k, (const double*)a, ars, acs, 0, (const double*)b, brs, bcs, 0, (double*)c, crs, accumulate);
        return;
      case 2:
        fallback_c(m, n, k, (const float complex*)a, ars, acs, aconj, (const float complex*)b, brs, bcs, bconj,
                   (float complex*)c, crs, accumulate);
        return;
      default:
        fallback_z(m, n, k, (const double complex*)a, ars, acs, aconj, (const double complex*)b, brs, bcs, bconj,
                   (double complex*)c, crs, accumulate);
        return;
    }
  }
  int lda = (int)(at ? leading(acs, m) : leading(ars, k)), ldb = (int)(bt ? leading(bcs, k) : leading(brs, n));
  int ldc = (int)leading(crs, n);
  int ta = transposition(at, aconj && dtype > 1), tb = transposition(bt, bconj && dtype > 1);
  float cone[2] = {1, 0}, cbeta[2] = {(float)accumulate, 0};
  double zone[2] = {1, 0}, zbeta[2] = {accumulate, 0};
  switch (dtype) {
    case 0: blas_s(101, ta, tb, (int)m, (int)n, (int)k, 1.0f, a, lda, b, ldb, (float)accumulate, c, ldc); return;
    case 1: blas_d(101, ta, tb, (int)m, (int)n, (int)k, 1.0, a, lda, b, ldb, (double)accumulate, c, ldc); return;
    case 2: blas_c(101, ta, tb, (int)m, (int)n, (int)k, cone, a, lda, b, ldb, cbeta, c, ldc); return;
    default: blas_z(101, ta, tb, (int)m, (int)n, (int)k, zone, a, lda, b, ldb, zbeta, c, ldc); return;
  }
}

/* Versions of OpenBLAS that are older than a processor take it for one without vectors, at a fraction of its speed. The core that they
   should assume then; NULL where they know what the processor has. */
static const char* better_core(void* lib) {
#if defined(__x86_64__)
  const char* (*corename)(void) = (const char* (*)(void))dlsym(lib, "openblas_get_corename");
  const char* name = corename && !getenv("OPENBLAS_CORETYPE") ? corename() : NULL;
  static const char* const weak[] = {"Prescott", "Core2", "Penryn", "Dunnington", "Atom", "Nehalem", "Sandybridge"};
  for (size_t i = 0; name && i < sizeof weak / sizeof *weak; i++) {
    if (strcasecmp(name, weak[i]) != 0) continue;
    if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
      return "SkylakeX";
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "Haswell" : NULL;
  }
#endif
  return NULL;
}

/* Loads OpenBLAS; without a path, or where it is missing, products use the blocked loop. */
static void load_blas(const char* path) {
  void* lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  const char* core = lib ? better_core(lib) : NULL;
  if (core) {
    /* It chooses its kernels while it is loaded. Child processes must not inherit the choice. */
    dlclose(lib);
    setenv("OPENBLAS_CORETYPE", core, 1);
    lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unsetenv("OPENBLAS_CORETYPE");
  }
  if (!lib) return;
  blas_s = (gemm_real)dlsym(lib, "cblas_sgemm");
  blas_d = (gemm_double)dlsym(lib, "cblas_dgemm");
  blas_c = (gemm_complex)dlsym(lib, "cblas_cgemm");
  blas_z = (gemm_complex)dlsym(lib, "cblas_zgemm");
  blas_threads = (void (*)(int))dlsym(lib, "openblas_set_num_threads");
  int (*parallel)(void) = (int (*)(void))dlsym(lib, "openblas_get_parallel");
  blas_parallel = blas_s ? (parallel ? parallel() : 1) : 0;
  if (blas_s && blas_parallel == 0) blas_parallel = 1;
  if (blas_parallel == 2) openmp_threads = (void (*)(int))dlsym(lib, "omp_set_num_threads");
}
