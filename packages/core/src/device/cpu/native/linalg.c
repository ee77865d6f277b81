// Linear algebra over batches of matrices, part of the CPU device's runtime library: entry points, the
// choice between built-in code and LAPACK, and threads. It knows row-major contiguous memory, nothing of graphs.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>

#include "abi.h"
#include "linalg-blocked.h"
#include "linalg-lapack.h"
#include "linalg.h"
#include "share.h"

weft_runtime* wx_runtime;

typedef struct {
  wl_kernel* built_in[2][2]; /* [complex][wide] */
  wl_kernel* lapack;
  size_t (*lapack_bytes)(const wl_job*);
  void* const* routine;   /* null where LAPACK is missing */
  double weight;          /* operations per matrix divided by n^3, roughly */
  long alone[2], many[2]; /* [complex]: up to this size the built-in code wins, measured for one matrix and for many
                                with eight lanes */
  int blocked;            /* whether the LAPACK form divides one matrix among threads */
} wl_op;

#define WL_BUILT_IN(name)                                                                                              \
  {                                                                                                                    \
    {wl_##name##_r1, wl_##name##_rw}, { wl_##name##_c1, wl_##name##_cw }                                               \
  }

enum { WL_OK = 0, WL_NO_MEMORY = 1, WL_BAD_DTYPE = 2, WL_NO_LAPACK = 3 };

static int wl_threads = 1;
void wl_set_threads(int n) { wl_threads = n < 1 ? 1 : n; }

/* Up to this size the built-in code is used, in place of what was measured; -1 goes back to that. */
static long wl_crossover = -1;
void wl_set_crossover(long n) { wl_crossover = n; }

typedef struct {
  const wl_job* job;
  long batch, step;
  size_t bytes;
  wl_kernel* kernel;
  atomic_int failed;
} wl_task;

static void wl_groups(void* const* p, long lo, long hi) {
  wl_task* t = p[0];
  void* scratch = aligned_alloc(64, t->bytes);
  if (!scratch) atomic_store(&t->failed, 1);
  for (long g = lo; g < hi && scratch; g++) {
    const long first = g * t->step, left = t->batch - first;
    t->kernel(t->job, first, left < t->step ? left : t->step, scratch);
  }
  free(scratch);
}

static int wl_run(const wl_job* job, long batch, long step, size_t bytes, int threads, wl_kernel* kernel, double work) {
  wl_task task = {.job = job, .batch = batch, .step = step, .bytes = (bytes + 127) / 64 * 64, .kernel = kernel};
  wx_share(wl_groups, (void*[]){&task}, (batch + step - 1) / step, threads, work);
  return atomic_load(&task.failed) ? WL_NO_MEMORY : WL_OK;
}

/* Below this many operations, waking threads costs more than they save. */
#define WL_WORTH_THREADS 4e5
/* From this size on, LAPACK uses its own threads for a single matrix. It wakes them for every column of a panel: with 256 columns
   waiting took twenty times as long as the work of one thread. */
#define WL_WORTH_BLAS_THREADS 1024

static int wl_is_worth_blas_threads(long n, long batch) { return n >= WL_WORTH_BLAS_THREADS && batch < wl_threads; }
/* Whether LAPACK uses threads of its own; returns how many it had. */
static int wl_lend_threads(int own) {
  const int inner = own ? wl_threads : 1;
  const int before = wl_set_blas_threads && wl_get_blas_threads ? wl_get_blas_threads() : inner;
  if (before != inner) wl_set_blas_threads(inner);
  return before;
}
static void wl_return_threads(int before) {
  if (wl_set_blas_threads && wl_get_blas_threads && wl_get_blas_threads() != before) wl_set_blas_threads(before);
}

static int wl_dispatch(const wl_op* op, const wl_job* job, long batch) {
  const int cx = wl_is_complex(job->dtype);
  const long m = job->m > job->n ? job->m : job->n;
  const double work = op->weight * (1 + cx) * (double)m * (double)job->n * (double)job->n * (double)batch;
  int threads = work < WL_WORTH_THREADS ? 1 : wl_threads;
  const long narrower = op->many[cx] * WL_WIDE / 8;
  const long measured = batch >= WL_WIDE && narrower > op->alone[cx] ? narrower : op->alone[cx];
  if (!*op->routine || m <= (wl_crossover >= 0 ? wl_crossover : measured)) {
    /* Empty lanes cost as much as full ones, and many lanes of large matrices do not fit the cache. */
    const int wide = batch >= (m <= 4 ? 2 : WL_WIDE / 2) && m <= 64;
    const long step = wide ? WL_WIDE : 1, groups = (batch + step - 1) / step;
    const size_t bytes = (size_t)step * (job->numbers * (1 + cx) * sizeof(double) + job->places * sizeof(long));
    return wl_run(job, batch, step, bytes, threads < groups ? threads : (int)groups, op->built_in[cx][wide], work);
  }
  const size_t bytes = op->lapack_bytes ? op->lapack_bytes(job) : 0;
  /* Few matrices: threads share the work on each, ours or those of LAPACK. */
  wl_job own_job = *job;
  own_job.threads = op->blocked && batch < wl_threads ? threads : 1;
  const int own = !op->blocked && wl_is_worth_blas_threads(m, batch), before = wl_lend_threads(own);
  const int code = wl_run(&own_job, batch, 1, bytes, own || own_job.threads > 1 ? 1 : threads, op->lapack, work);
  wl_return_threads(before);
  return code;
}

int wl_cholesky(int dtype, long batch, long n, const void* a, void* out) {
  static const wl_op op = {WL_BUILT_IN(cholesky), wl_lapack_cholesky, 0, wl_lapack.potrf, 0.3, {8, 4}, {64, 32}, 1};
  if (dtype < 0 || dtype > 3) return WL_BAD_DTYPE;
  if (batch * n == 0) return WL_OK;
  const long bytes = n * n * wl_size(dtype);
  const wl_job job = {
      .dtype = dtype, .m = n, .n = n, .a = a, .out = {out}, .a_bytes = bytes, .out_bytes = {bytes}, .numbers = n * n};
  return wl_dispatch(&op, &job, batch);
}

int wl_triangular_solve(int dtype, long batch, long n, long k, int lower, int adjoint, int unit, const void* a,
                        const void* b, void* out) {
  static const wl_op op = {
      WL_BUILT_IN(triangular_solve), wl_lapack_triangular_solve, 0, wl_lapack.trsm, 1, {8, 8}, {16, 8}, 1};
  if (dtype < 0 || dtype > 3) return WL_BAD_DTYPE;
  if (batch * n * k == 0) return WL_OK;
  const long size = wl_size(dtype);
  const wl_job job = {.dtype = dtype,
                      .lower = lower,
                      .adjoint = adjoint,
                      .unit = unit,
                      .m = n,
                      .n = n,
                      .k = k,
                      .a = a,
                      .b = b,
                      .out = {out},
                      .a_bytes = n * n * size,
                      .b_bytes = n * k * size,
                      .out_bytes = {n * k * size},
                      .numbers = n * (n + k)};
  return wl_dispatch(&op, &job, batch);
}

int wl_solve(int dtype, long batch, long n, long k, const void* a, const void* b, void* out) {
  static const wl_op op = {
      WL_BUILT_IN(solve), wl_lapack_solve, wl_lapack_lu_bytes, wl_lapack.getrf, 1, {48, 48}, {64, 64}, 1};
  if (dtype < 0 || dtype > 3) return WL_BAD_DTYPE;
  if (batch * n * k == 0) return WL_OK;
  const long size = wl_size(dtype);
  const wl_job job = {.dtype = dtype,
                      .m = n,
                      .n = n,
                      .k = k,
                      .a = a,
                      .b = b,
                      .out = {out},
                      .a_bytes = n * n * size,
                      .b_bytes = n * k * size,
                      .out_bytes = {n * k * size},
                      .numbers = n * (n + k)};
  return wl_dispatch(&op, &job, batch);
}

int wl_det(int dtype, long batch, long n, const void* a, void* out) {
  static const wl_op op = {
      WL_BUILT_IN(det), wl_lapack_det, wl_lapack_lu_bytes, wl_lapack.getrf, 0.7, {32, 32}, {64, 48}, 1};
  if (dtype < 0 || dtype > 3) return WL_BAD_DTYPE;
  const long size = wl_size(dtype);
  const wl_job job = {.dtype = dtype,
                      .m = n,
                      .n = n,
                      .a = a,
                      .out = {out},
                      .a_bytes = n * n * size,
                      .out_bytes = {size},
                      .numbers = n * n + 1};
  return batch == 0 ? WL_OK : wl_dispatch(&op, &job, batch);
}

int wl_eigh(int dtype, long batch, long n, const void* a, void* w, void* v) {
  static const wl_op op = {
      WL_BUILT_IN(eigh), wl_lapack_eigh, wl_lapack_eigh_bytes, wl_lapack.evd, 20, {48, 48}, {64, 64}, 0};
  if (dtype < 0 || dtype > 3) return WL_BAD_DTYPE;
  if (batch * n == 0) return WL_OK;
  const long bytes = n * n * wl_size(dtype);
  const wl_job job = {.dtype = dtype,
                      .m = n,
                      .n = n,
                      .a = a,
                      .out = {w, v},
                      .a_bytes = bytes,
                      .out_bytes = {n * wl_size(wl_real_of(dtype)), bytes},
                      .numbers = 2 * n * n + 3 * n,
                      .places = n};
  return wl_dispatch(&op, &job, batch);
}

int wl_qr(int dtype, long batch, long m, long n, const void* a, void* q, void* r) {
  static const wl_op op = {
      WL_BUILT_IN(qr), wl_lapack_qr, wl_lapack_qr_bytes, wl_lapack.geqrf, 3, {48, 24}, {64, 64}, 0};
  if (dtype < 0 || dtype > 3) return WL_BAD_DTYPE;
  if (batch * m * n == 0) return WL_OK;
  const long size = wl_size(dtype), k = m < n ? m : n;
  const wl_job job = {.dtype = dtype,
                      .m = m,
                      .n = n,
                      .a = a,
                      .out = {q, r},
                      .a_bytes = m * n * size,
                      .out_bytes = {m * k * size, k * n * size},
                      .numbers = m * n + m * k + k * n + 2 * k};
  return wl_dispatch(&op, &job, batch);
}

int wl_svd(int dtype, long batch, long m, long n, const void* a, void* u, void* s, void* vh) {
  static const wl_op op = {
      WL_BUILT_IN(svd), wl_lapack_svd, wl_lapack_svd_bytes, wl_lapack.gesdd, 40, {16, 8}, {24, 24}, 0};
  if (dtype < 0 || dtype > 3) return WL_BAD_DTYPE;
  if (batch * m * n == 0) return WL_OK;
  const long size = wl_size(dtype), k = m < n ? m : n;
  const wl_job job = {.dtype = dtype,
                      .m = m,
                      .n = n,
                      .a = a,
                      .out = {u, s, vh},
                      .a_bytes = m * n * size,
                      .out_bytes = {m * k * size, k * wl_size(wl_real_of(dtype)), k * n * size},
                      .numbers = m * n + k * k + k,
                      .places = k};
  return wl_dispatch(&op, &job, batch);
}

/* Without LAPACK, by columns; rows of the result are written at once. */
static void wl_plain_lu(int d, long m, long n, char* a, int* pivots) {
  const long size = wl_size(d), k = m < n ? m : n;
  const int parts = wl_parts(d);
  for (long j = 0; j < k; j++) {
    long pivot = j;
    double best = -1;
    for (long i = j; i < m; i++) {
      const double x = wl_get(d, a, (i * n + j) * parts), y = parts == 2 ? wl_get(d, a, (i * n + j) * 2 + 1) : 0;
      if (hypot(x, y) > best) best = hypot(x, y), pivot = i;
    }
    pivots[j] = (int)pivot + 1;
    for (long l = 0; l < n * size && pivot != j; l++) {
      const char swap = a[j * n * size + l];
      a[j * n * size + l] = a[pivot * n * size + l], a[pivot * n * size + l] = swap;
    }
    if (!(best > 0)) continue;
    const double px = wl_get(d, a, (j * n + j) * parts), py = parts == 2 ? wl_get(d, a, (j * n + j) * 2 + 1) : 0;
    const double square = px * px + py * py;
    for (long i = j + 1; i < m; i++) {
      wl_put_times(d, a, i * n + j, px / square, -py / square, a, i * n + j);
      const double fx = wl_get(d, a, (i * n + j) * parts), fy = parts == 2 ? wl_get(d, a, (i * n + j) * 2 + 1) : 0;
      for (long l = j + 1; l < n; l++) {
        const double x = wl_get(d, a, (j * n + l) * parts), y = parts == 2 ? wl_get(d, a, (j * n + l) * 2 + 1) : 0;
        wl_put(d, a, (i * n + l) * parts, wl_get(d, a, (i * n + l) * parts) - (fx * x - fy * y));
        if (parts == 2) wl_put(d, a, (i * n + l) * 2 + 1, wl_get(d, a, (i * n + l) * 2 + 1) - (fx * y + fy * x));
      }
    }
  }
}

/* The same for real numbers. The rows of a small matrix are a few vectors each, so that calls of LAPACK take longer than its work. */
#define WL_SMALL_LU 32
#define WL_REAL_LU(name, T)                                                                                            \
  static void name(long m, long n, T* a, int* pivots) {                                                                \
    for (long j = 0; j < (m < n ? m : n); j++) {                                                                       \
      T* top = a + j * n;                                                                                              \
      long best = j;                                                                                                   \
      T largest = top[j] < 0 ? -top[j] : top[j];                                                                       \
      for (long i = j + 1; i < m; i++) {                                                                               \
        const T x = a[i * n + j], size = x < 0 ? -x : x;                                                               \
        best = size > largest ? i : best;                                                                              \
        largest = size > largest ? size : largest;                                                                     \
      }                                                                                                                \
      pivots[j] = (int)best + 1;                                                                                       \
      T* other = a + best * n;                                                                                         \
      if (best != j)                                                                                                   \
        for (long l = 0; l < n; l++) {                                                                                 \
          const T x = top[l];                                                                                          \
          top[l] = other[l];                                                                                           \
          other[l] = x;                                                                                                \
        }                                                                                                              \
      if (top[j] == 0) continue;                                                                                       \
      const T pivot = top[j];                                                                                          \
      for (long i = j + 1; i < m; i++) {                                                                               \
        T* row = a + i * n;                                                                                            \
        const T factor = row[j] / pivot;                                                                               \
        row[j] = factor;                                                                                               \
        _Pragma("omp simd") for (long l = j + 1; l < n; l++) row[l] -= factor * top[l];                                \
      }                                                                                                                \
    }                                                                                                                  \
  }
WL_REAL_LU(wl_lu_s, float)
WL_REAL_LU(wl_lu_d, double)

typedef struct {
  int dtype, threads;
  long m, n;
  const char* a;
  char* lu;
  int32_t* order;
  atomic_int failed;
} wl_lu_task;

static void wl_lu_matrices(void* const* p, long lo, long hi) {
  wl_lu_task* t = p[0];
  const long m = t->m, n = t->n, each = m * n * wl_size(t->dtype), k = m < n ? m : n;
  char* columns = malloc(each + 1);
  int* pivots = malloc((k + 1) * sizeof(int));
  if (!columns || !pivots) atomic_store(&t->failed, 1);
  for (long g = lo; g < hi && columns && pivots; g++) {
    const char* from = t->a + g * each;
    char* to = t->lu + g * each;
    const int small = !wl_is_complex(t->dtype) && m <= WL_SMALL_LU && n <= WL_SMALL_LU;
    if (small) {
      memcpy(to, from, each);
      if (t->dtype == 0) wl_lu_s(m, n, (float*)to, pivots);
      else wl_lu_d(m, n, (double*)to, pivots);
    } else if (wl_lapack.getrf[t->dtype] && k > 0) {
      const int rows = (int)m, width = (int)n;
      int info = 0;
      wl_transpose(t->dtype, m, n, from, columns);
      /* Factors of a singular matrix are complete, so that the routine with blocks, which ends there, starts again without. */
      if (t->threads < 2 || wl_factor_lu(t->threads, t->dtype, m, n, columns, pivots) != 0) {
        if (t->threads > 1) wl_transpose(t->dtype, m, n, from, columns);
        ((wl_getrf*)wl_lapack.getrf[t->dtype])(&rows, &width, columns, &rows, pivots, &info);
      }
      wl_transpose(t->dtype, n, m, columns, to);
    } else {
      memcpy(to, from, each);
      wl_plain_lu(t->dtype, m, n, to, pivots);
    }
    int32_t* mine = t->order + g * m;
    for (long i = 0; i < m; i++) mine[i] = (int32_t)i;
    for (long i = 0; i < k; i++) {
      const int32_t swap = mine[i];
      mine[i] = mine[pivots[i] - 1], mine[pivots[i] - 1] = swap;
    }
  }
  free(columns), free(pivots);
}

int wl_lu(int dtype, long batch, long m, long n, const void* a, void* lu, int32_t* order) {
  if (dtype < 0 || dtype > 3) return WL_BAD_DTYPE;
  wl_lu_task task = {.dtype = dtype, .m = m, .n = n, .a = a, .lu = lu, .order = order};
  const double work = (double)batch * m * n * (m < n ? m : n);
  const int threads = work < WL_WORTH_THREADS ? 1 : wl_threads, before = wl_lend_threads(0);
  task.threads = batch < threads ? threads : 1;
  wx_share(wl_lu_matrices, (void*[]){&task}, batch, task.threads > 1 ? 1 : threads, work);
  wl_return_threads(before);
  return atomic_load(&task.failed) ? WL_NO_MEMORY : WL_OK;
}

/* By the complex routine for all dtypes: the vectors of real ones come in pairs otherwise. */
int wl_eig(int dtype, long batch, long n, const void* a, void* w, void* v) {
  typedef void routine(const char*, const char*, const int*, void*, const int*, void*, void*, const int*, void*,
                       const int*, void*, const int*, void*, int*, size_t, size_t);
  if (dtype < 0 || dtype > 3) return WL_BAD_DTYPE;
  if (batch * n == 0) return WL_OK;
  const int d = dtype | 2, one = 1, query = -1, order = (int)n;
  routine* call = (routine*)wl_lapack.geev[d];
  if (!call) return WL_NO_LAPACK;
  double asked[2] = {0}, none[2] = {0};
  int info = 0;
  call("N", "V", &order, none, &order, none, none, &one, none, &order, asked, &query, none, &info, 1, 1);
  const int length = wl_reported(d, asked);
  const long size = wl_size(d), each = n * n * size;
  char* scratch = malloc(2 * each + length * size + 2 * n * size);
  if (!scratch) return WL_NO_MEMORY;
  char *columns = scratch, *vectors = columns + each, *work = vectors + each, *real_work = work + length * size;
  const int before = wl_lend_threads(wl_is_worth_blas_threads(n, batch));
  for (long g = 0; g < batch; g++) {
    char *values = (char*)w + g * n * size, *out = (char*)v + g * each;
    const char* from = (const char*)a + g * n * n * wl_size(dtype);
    int failed = !wl_is_finite(dtype, from, n * n);
    for (long i = 0; i < n; i++)
      for (long j = 0; j < n; j++) {
        const long at = i * n + j, to = j * n + i;
        wl_put(d, columns, 2 * to, wl_get(dtype, from, at * wl_parts(dtype)));
        wl_put(d, columns, 2 * to + 1, wl_is_complex(dtype) ? wl_get(dtype, from, 2 * at + 1) : 0);
      }
    if (!failed)
      call("N", "V", &order, columns, &order, values, NULL, &one, vectors, &order, work, &length, real_work, &info, 1,
           1);
    if (failed || info != 0) {
      wl_fill_nan(d, values, n);
      wl_fill_nan(d, out, n * n);
      continue;
    }
    for (long j = 0; j < n; j++) {
      double largest = 0, re = 1, im = 0;
      long pivot = 0;
      for (int pass = 0; pass < 2; pass++)
        for (long i = 0; i < n; i++) {
          const double x = wl_get(d, vectors, 2 * (j * n + i)), y = wl_get(d, vectors, 2 * (j * n + i) + 1);
          const double norm = hypot(x, y);
          if (pass == 0) largest = norm > largest ? norm : largest;
          else if (norm >= 0.999 * largest) {
            pivot = i, re = x / norm, im = y / norm;
            break;
          }
        }
      for (long i = 0; i < n; i++) {
        wl_put_times(d, vectors, j * n + i, re, -im, out, i * n + j);
        if (i == pivot) wl_put(d, out, 2 * (i * n + j) + 1, 0);
      }
    }
  }
  wl_return_threads(before);
  free(scratch);
  return WL_OK;
}

weft_extension weft_extend;
void weft_extend(weft_runtime* table, const char* blas, int threads) {
  wl_init(blas);
  wl_set_threads(threads);
  wx_runtime = table;
  table->set_linalg_threads = wl_set_threads;
  table->cholesky = wl_cholesky;
  table->triangular_solve = wl_triangular_solve;
  table->solve = wl_solve;
  table->det = wl_det;
  table->eigh = wl_eigh;
  table->qr = wl_qr;
  table->svd = wl_svd;
  table->lu = wl_lu;
  table->eig = wl_eig;
}
