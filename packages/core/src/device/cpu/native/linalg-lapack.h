// Linear algebra through LAPACK, for matrices too large for the built-in code. LAPACK counts by columns: it
// sees every row-major matrix transposed, and each routine below says how it lives with that.
#pragma once
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linalg.h"

typedef struct {
  void *potrf[4], *getrf[4], *getrs[4], *trsm[4], *evd[4], *geqrf[4], *gqr[4], *gesdd[4], *geev[4], *gemm[4], *laswp[4];
} wl_routines;
static wl_routines wl_lapack;
/* Limits OpenBLAS to the calling thread: its own setting, or that of its OpenMP library. */
static void (*wl_set_blas_threads)(int);
static int (*wl_get_blas_threads)(void);

static int wl_resolve(void* library, const char* const names[4], void* slots[4]) {
  for (int d = 0; d < 4; d++)
    if (!(slots[d] = dlsym(library, names[d]))) {
      memset(slots, 0, 4 * sizeof slots[0]);
      return 0;
    }
  return 1;
}

int wl_init(const char* library_path) {
  memset(&wl_lapack, 0, sizeof wl_lapack);
  wl_set_blas_threads = 0;
  wl_get_blas_threads = 0;
  void* library = library_path ? dlopen(library_path, RTLD_NOW | RTLD_LOCAL) : 0;
  if (!library) return 0;
  wl_routines* to = &wl_lapack;
  const char* const potrf[] = {"spotrf_", "dpotrf_", "cpotrf_", "zpotrf_"};
  const char* const getrf[] = {"sgetrf_", "dgetrf_", "cgetrf_", "zgetrf_"};
  const char* const getrs[] = {"sgetrs_", "dgetrs_", "cgetrs_", "zgetrs_"};
  const char* const trsm[] = {"strsm_", "dtrsm_", "ctrsm_", "ztrsm_"};
  const char* const evd[] = {"ssyevd_", "dsyevd_", "cheevd_", "zheevd_"};
  const char* const geqrf[] = {"sgeqrf_", "dgeqrf_", "cgeqrf_", "zgeqrf_"};
  const char* const gqr[] = {"sorgqr_", "dorgqr_", "cungqr_", "zungqr_"};
  const char* const gesdd[] = {"sgesdd_", "dgesdd_", "cgesdd_", "zgesdd_"};
  const char* const geev[] = {"sgeev_", "dgeev_", "cgeev_", "zgeev_"};
  const char* const gemm[] = {"sgemm_", "dgemm_", "cgemm_", "zgemm_"};
  const char* const laswp[] = {"slaswp_", "dlaswp_", "claswp_", "zlaswp_"};
  wl_resolve(library, geev, to->geev);
  if (wl_resolve(library, gemm, to->gemm)) wl_resolve(library, laswp, to->laswp);
  int families = wl_resolve(library, potrf, to->potrf) + wl_resolve(library, trsm, to->trsm);
  families += wl_resolve(library, evd, to->evd) + wl_resolve(library, gesdd, to->gesdd);
  /* These routines are used in pairs; callers test for the first of a pair only. */
  if (wl_resolve(library, getrs, to->getrs)) families += wl_resolve(library, getrf, to->getrf);
  if (wl_resolve(library, gqr, to->gqr)) families += wl_resolve(library, geqrf, to->geqrf);
  int (*build)(void) = (int (*)(void))dlsym(library, "openblas_get_parallel");
  const int openmp = build && build() == 2;
  const char* setter = openmp ? "omp_set_num_threads" : "openblas_set_num_threads";
  wl_set_blas_threads = (void (*)(int))dlsym(library, setter);
  wl_get_blas_threads = (int (*)(void))dlsym(library, openmp ? "omp_get_max_threads" : "openblas_get_num_threads");
  return families;
}

static inline double wl_get(int dtype, const void* from, long i) {
  return wl_is_single(dtype) ? ((const float*)from)[i] : ((const double*)from)[i];
}
static inline void wl_put(int dtype, void* to, long i, double x) {
  if (wl_is_single(dtype)) ((float*)to)[i] = (float)x;
  else ((double*)to)[i] = x;
}
static void wl_fill_nan(int dtype, void* to, long elements) {
  for (long i = 0; i < elements * wl_parts(dtype); i++) wl_put(dtype, to, i, NAN);
}
static int wl_is_finite(int dtype, const void* from, long elements) {
  double sum = 0;
  for (long i = 0; i < elements * wl_parts(dtype); i++) {
    const double x = wl_get(dtype, from, i);
    sum += x - x;
  }
  return sum == 0;
}
/* Element i of "to" = element i of "from" times re + i im. */
static inline void wl_put_times(int dtype, const void* from, long i, double re, double im, void* to, long at) {
  if (!wl_is_complex(dtype)) return wl_put(dtype, to, at, wl_get(dtype, from, i) * re);
  const double x = wl_get(dtype, from, 2 * i), y = wl_get(dtype, from, 2 * i + 1);
  wl_put(dtype, to, 2 * at, x * re - y * im);
  wl_put(dtype, to, 2 * at + 1, x * im + y * re);
}
/* Elements of a block whose rows and columns both stay in the first-level cache. */
#define WL_TRANSPOSE_BLOCK 16
#define WL_TRANSPOSE(T)                                                                                                \
  for (long i = i0; i < i1; i++)                                                                                       \
    for (long j = j0; j < j1; j++) ((T*)to)[j * to_stride + i] = ((const T*)from)[i * from_stride + j];
/* Rows of "from" become columns of "to"; strides in elements. */
static void wl_transpose_part(int dtype, long rows, long columns, const void* from, long from_stride, void* to,
                              long to_stride) {
  typedef struct {
    double re, im;
  } pair;
  for (long i0 = 0; i0 < rows; i0 += WL_TRANSPOSE_BLOCK)
    for (long j0 = 0; j0 < columns; j0 += WL_TRANSPOSE_BLOCK) {
      const long i1 = i0 + WL_TRANSPOSE_BLOCK < rows ? i0 + WL_TRANSPOSE_BLOCK : rows;
      const long j1 = j0 + WL_TRANSPOSE_BLOCK < columns ? j0 + WL_TRANSPOSE_BLOCK : columns;
      if (wl_size(dtype) == 4) WL_TRANSPOSE(float)
      else if (wl_size(dtype) == 8) WL_TRANSPOSE(double)
      else WL_TRANSPOSE(pair)
    }
}
static void wl_transpose(int dtype, long rows, long columns, const char* from, char* to) {
  wl_transpose_part(dtype, rows, columns, from, columns, to, rows);
}

/* Bytes of an array of dtype, rounded up so that the next one in the scratch space is aligned. */
static size_t wl_space(long elements, long size) { return ((size_t)(elements * size) + 63) / 64 * 64; }
/* The length of a workspace as LAPACK reports it: in the first (real) number of the workspace. */
static int wl_reported(int dtype, const void* work) {
  const double size = wl_get(dtype, work, 0);
  /* A float may have rounded the length down. */
  return (int)(wl_is_single(dtype) ? size * 1.000001 + 1 : size);
}

typedef void wl_getrf(const int*, const int*, void*, const int*, int*, int*);

typedef struct {
  int work, real_work, int_work;
} wl_lengths;

static int wl_call_evd(int d, int n, void* a, void* w, void* work, void* rwork, int* iwork, wl_lengths length) {
  typedef void real(const char*, const char*, const int*, void*, const int*, void*, void*, const int*, int*, const int*,
                    int*, size_t, size_t);
  typedef void complex_(const char*, const char*, const int*, void*, const int*, void*, void*, const int*, void*,
                        const int*, int*, const int*, int*, size_t, size_t);
  int info = 0;
  if (wl_is_complex(d))
    ((complex_*)wl_lapack.evd[d])("V", "U", &n, a, &n, w, work, &length.work, rwork, &length.real_work, iwork,
                                  &length.int_work, &info, 1, 1);
  else ((real*)wl_lapack.evd[d])("V", "U", &n, a, &n, w, work, &length.work, iwork, &length.int_work, &info, 1, 1);
  return info;
}

static wl_lengths wl_evd_lengths(const wl_job* job) {
  double work[2] = {0}, rwork[2] = {0}, none[2];
  int iwork = 0;
  wl_call_evd(job->dtype, (int)job->n, none, none, work, rwork, &iwork, (wl_lengths){-1, -1, -1});
  const int real_work = wl_is_complex(job->dtype) ? wl_reported(job->dtype, rwork) : 0;
  return (wl_lengths){wl_reported(job->dtype, work), real_work, iwork};
}

static size_t wl_lapack_eigh_bytes(const wl_job* job) {
  const wl_lengths length = wl_evd_lengths(job);
  const long size = wl_size(job->dtype);
  return wl_space(job->n * job->n, size) + wl_space(length.work, size) + wl_space(length.real_work, size) +
         wl_space(length.int_work, sizeof(int));
}

/* The transpose of a Hermitian matrix is its conjugate: the same eigenvalues, and conjugated vectors as rows. */
static void wl_lapack_eigh(const wl_job* job, long first, long count, void* scratch) {
  const long n = job->n, size = wl_size(job->dtype);
  const int d = job->dtype, parts = wl_parts(d);
  const wl_lengths length = wl_evd_lengths(job);
  char *a = scratch, *work = a + wl_space(n * n, size), *rwork = work + wl_space(length.work, size);
  int* iwork = (int*)(rwork + wl_space(length.real_work, size));
  for (long g = first; g < first + count; g++) {
    char *values = job->out[0] + g * job->out_bytes[0], *out = job->out[1] + g * job->out_bytes[1];
    int failed = 0;
    memcpy(a, job->a + g * job->a_bytes, job->a_bytes);
    for (long i = 0; i < n; i++) failed |= !wl_is_finite(d, a + i * n * size, i + 1);
    failed = failed || wl_call_evd(d, (int)n, a, values, work, rwork, iwork, length) != 0;
    if (failed) {
      wl_fill_nan(wl_real_of(d), values, n);
      wl_fill_nan(d, out, n * n);
      continue;
    }
    for (long j = 0; j < n; j++) {
      char* vector = a + j * n * size;
      double largest = 0, re = 1, im = 0;
      long pivot = 0;
      for (int pass = 0; pass < 2; pass++)
        for (long i = 0; i < n; i++) {
          const double x = wl_get(d, vector, i * parts), y = parts == 2 ? wl_get(d, vector, i * parts + 1) : 0;
          const double square = x * x + y * y;
          if (pass == 0) largest = square > largest ? square : largest;
          else if (square >= 0.999 * 0.999 * largest) {
            pivot = i, re = x / sqrt(square), im = y / sqrt(square);
            break;
          }
        }
      /* The conjugate of (component times conjugate phase), as the vector itself is conjugated. */
      for (long i = 0; i < n; i++) {
        wl_put_times(d, vector, i, re, -im, out, i * n + j);
        if (parts == 2) wl_put(d, out, (i * n + j) * 2 + 1, i == pivot ? 0 : -wl_get(d, out, (i * n + j) * 2 + 1));
      }
    }
  }
}

typedef void wl_geqrf(const int*, const int*, void*, const int*, void*, void*, const int*, int*);
typedef void wl_gqr(const int*, const int*, const int*, void*, const int*, const void*, void*, const int*, int*);

static int wl_qr_length(const wl_job* job) {
  const int m = (int)job->m, n = (int)job->n, k = m < n ? m : n, query = -1, d = job->dtype;
  double first[2] = {0}, second[2] = {0}, none[2];
  int info = 0;
  ((wl_geqrf*)wl_lapack.geqrf[d])(&m, &n, none, &m, none, first, &query, &info);
  ((wl_gqr*)wl_lapack.gqr[d])(&m, &k, &k, none, &m, none, second, &query, &info);
  const int a = wl_reported(d, first), b = wl_reported(d, second);
  return a > b ? a : b;
}

static size_t wl_lapack_qr_bytes(const wl_job* job) {
  const long size = wl_size(job->dtype);
  return wl_space(job->m * job->n, size) + wl_space(job->m, size) + wl_space(wl_qr_length(job), size);
}

static void wl_lapack_qr(const wl_job* job, long first, long count, void* scratch) {
  const int m = (int)job->m, n = (int)job->n, k = m < n ? m : n, length = wl_qr_length(job);
  const int d = job->dtype, parts = wl_parts(d);
  char *a = scratch, *tau = a + wl_space(job->m * n, wl_size(d)), *work = tau + wl_space(m, wl_size(d));
  for (long g = first; g < first + count; g++) {
    char *q = job->out[0] + g * job->out_bytes[0], *r = job->out[1] + g * job->out_bytes[1];
    const char* source = job->a + g * job->a_bytes;
    int info = 0;
    if (!wl_is_finite(d, source, job->m * n)) {
      wl_fill_nan(d, q, job->m * k);
      wl_fill_nan(d, r, job->n * k);
      continue;
    }
    wl_transpose(d, m, n, source, a);
    ((wl_geqrf*)wl_lapack.geqrf[d])(&m, &n, a, &m, tau, work, &length, &info);
    memset(r, 0, job->out_bytes[1]);
    for (long i = 0; i < k; i++) {
      /* The phases of r's diagonal are stored on the diagonal until q has been multiplied by them. */
      for (long j = i; j < n; j++) memcpy(r + (i * n + j) * wl_size(d), a + (j * m + i) * wl_size(d), wl_size(d));
    }
    ((wl_gqr*)wl_lapack.gqr[d])(&m, &k, &k, a, &m, tau, work, &length, &info);
    for (long i = 0; i < k; i++) {
      const double x = wl_get(d, r, (i * n + i) * parts), y = parts == 2 ? wl_get(d, r, (i * n + i) * 2 + 1) : 0;
      const double norm = hypot(x, y), re = norm > 0 ? x / norm : 1, im = norm > 0 ? y / norm : 0;
      for (long row = 0; row < m; row++) wl_put_times(d, a, i * m + row, re, im, q, row * k + i);
      for (long j = i; j < n; j++) wl_put_times(d, r, i * n + j, re, -im, r, i * n + j);
      if (parts == 2) wl_put(d, r, (i * n + i) * 2 + 1, 0);
    }
  }
}

static int wl_call_gesdd(int d, int m, int n, void* a, void* u, void* s, void* vh, void* work, void* rwork, int* iwork,
                         int length) {
  typedef void real(const char*, const int*, const int*, void*, const int*, void*, void*, const int*, void*, const int*,
                    void*, const int*, int*, int*, size_t);
  typedef void complex_(const char*, const int*, const int*, void*, const int*, void*, void*, const int*, void*,
                        const int*, void*, const int*, void*, int*, int*, size_t);
  const int k = m < n ? m : n;
  int info = 0;
  /* The transpose is n x m: its u is our vh and its vh our u, so that neither needs a copy. */
  if (wl_is_complex(d))
    ((complex_*)wl_lapack.gesdd[d])("S", &n, &m, a, &n, s, vh, &n, u, &k, work, &length, rwork, iwork, &info, 1);
  else ((real*)wl_lapack.gesdd[d])("S", &n, &m, a, &n, s, vh, &n, u, &k, work, &length, iwork, &info, 1);
  return info;
}

static wl_lengths wl_svd_lengths(const wl_job* job) {
  double work[2] = {0}, none[2];
  int iwork = 0;
  const int k = (int)(job->m < job->n ? job->m : job->n), large = (int)(job->m + job->n - k);
  wl_call_gesdd(job->dtype, (int)job->m, (int)job->n, none, none, none, none, work, none, &iwork, -1);
  const int tall = 5 * k + 7, other = 2 * large + 2 * k + 1;
  const int real_work = wl_is_complex(job->dtype) ? k * (tall > other ? tall : other) : 0;
  return (wl_lengths){wl_reported(job->dtype, work), real_work, 8 * k};
}

static size_t wl_lapack_svd_bytes(const wl_job* job) {
  const wl_lengths length = wl_svd_lengths(job);
  const long size = wl_size(job->dtype);
  return wl_space(job->m * job->n, size) + wl_space(length.work, size) + wl_space(length.real_work, size) +
         wl_space(length.int_work, sizeof(int));
}

static void wl_lapack_svd(const wl_job* job, long first, long count, void* scratch) {
  const wl_lengths length = wl_svd_lengths(job);
  const long size = wl_size(job->dtype), k = job->m < job->n ? job->m : job->n;
  const int d = job->dtype;
  char *a = scratch, *work = a + wl_space(job->m * job->n, size), *rwork = work + wl_space(length.work, size);
  int* iwork = (int*)(rwork + wl_space(length.real_work, size));
  for (long g = first; g < first + count; g++) {
    char *u = job->out[0] + g * job->out_bytes[0], *s = job->out[1] + g * job->out_bytes[1];
    char* vh = job->out[2] + g * job->out_bytes[2];
    memcpy(a, job->a + g * job->a_bytes, job->a_bytes);
    if (wl_is_finite(d, a, job->m * job->n) &&
        wl_call_gesdd(d, (int)job->m, (int)job->n, a, u, s, vh, work, rwork, iwork, length.work) == 0)
      continue;
    wl_fill_nan(d, u, job->m * k);
    wl_fill_nan(wl_real_of(d), s, k);
    wl_fill_nan(d, vh, k * job->n);
  }
}
