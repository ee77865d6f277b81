// Factorizations of one large matrix on several threads: panels of columns by LAPACK on the calling thread, everything beside them
// divided among the threads of the runtime library. LAPACK's own threads wait in barriers, which takes long when other processes need
// the cores.
#pragma once
#include "linalg-lapack.h"
#include "share.h"

typedef void wl_trsm(const char*, const char*, const char*, const char*, const int*, const int*, const void*,
                     const void*, const int*, void*, const int*, size_t, size_t, size_t, size_t);
typedef void wl_gemm(const char*, const char*, const int*, const int*, const int*, const void*, const void*, const int*,
                     const void*, const int*, const void*, void*, const int*, size_t, size_t);
typedef void wl_laswp(const int*, void*, const int*, const int*, const int*, const int*, const int*);
typedef void wl_potrf(const char*, const int*, void*, const int*, int*, size_t);

static const void* wl_one(int d) {
  static const float single[2] = {1, 0};
  static const double twice[2] = {1, 0};
  return wl_is_single(d) ? (const void*)single : (const void*)twice;
}
static const void* wl_minus_one(int d) {
  static const float single[2] = {-1, 0};
  static const double twice[2] = {-1, 0};
  return wl_is_single(d) ? (const void*)single : (const void*)twice;
}

/* From this size on, a single matrix is divided among threads. */
#define WL_WORTH_BLOCKS 160

typedef struct {
  int d, ld;
  long m, n, from, width, chunks; /* the panel: columns [from, from + width) */
  char* a;
  int* pivots;
} wl_panel;
static char* wl_at(const wl_panel* t, long row, long column) { return t->a + (column * t->ld + row) * wl_size(t->d); }
/* The columns of a chunk among those from "first" on. */
static void wl_columns(const wl_panel* t, long first, long i, long* begin, int* count) {
  const long all = t->n - first;
  *begin = first + all * i / t->chunks;
  *count = (int)(first + all * (i + 1) / t->chunks - *begin);
}

/* Columns beside a panel of an LU factorization: their rows change places; those after it are eliminated. */
static void wl_lu_chunks(void* const* p, long lo, long hi) {
  const wl_panel* t = p[0];
  const int d = t->d, ld = t->ld, width = (int)t->width, one = 1, first = (int)t->from + 1;
  const int last = (int)(t->from + t->width), below = (int)(t->m - t->from - t->width);
  for (long i = lo; i < hi; i++) {
    const long start = t->from * i / t->chunks;
    int left = (int)(t->from * (i + 1) / t->chunks - start), right;
    if (left > 0) ((wl_laswp*)wl_lapack.laswp[d])(&left, wl_at(t, 0, start), &ld, &first, &last, t->pivots, &one);
    long column;
    wl_columns(t, t->from + t->width, i, &column, &right);
    if (right <= 0) continue;
    ((wl_laswp*)wl_lapack.laswp[d])(&right, wl_at(t, 0, column), &ld, &first, &last, t->pivots, &one);
    ((wl_trsm*)wl_lapack.trsm[d])("L", "L", "N", "U", &width, &right, wl_one(d), wl_at(t, t->from, t->from), &ld,
                                  wl_at(t, t->from, column), &ld, 1, 1, 1, 1);
    if (below > 0)
      ((wl_gemm*)wl_lapack.gemm[d])("N", "N", &below, &right, &width, wl_minus_one(d),
                                    wl_at(t, t->from + width, t->from), &ld, wl_at(t, t->from, column), &ld, wl_one(d),
                                    wl_at(t, t->from + width, column), &ld, 1, 1);
  }
}

/* As getrf. A zero pivot ends the factorization: its place is returned. */
static int wl_factor_lu(int threads, int d, long m, long n, void* a, int* pivots) {
  const int rows = (int)m, columns = (int)n;
  const long k = m < n ? m : n;
  int info = 0;
  if (threads < 2 || k < WL_WORTH_BLOCKS || !wl_lapack.laswp[d]) {
    ((wl_getrf*)wl_lapack.getrf[d])(&rows, &columns, a, &rows, pivots, &info);
    return info;
  }
  const long block = k >= 1024 ? 128 : k >= 512 ? 64 : 32;
  wl_panel t = {.d = d, .ld = rows, .m = m, .n = n, .a = a, .pivots = pivots, .chunks = threads};
  for (t.from = 0; t.from < k; t.from += block) {
    t.width = k - t.from < block ? k - t.from : block;
    const int left = (int)(m - t.from), width = (int)t.width;
    ((wl_getrf*)wl_lapack.getrf[d])(&left, &width, wl_at(&t, t.from, t.from), &t.ld, pivots + t.from, &info);
    for (long i = t.from; i < t.from + t.width; i++) pivots[i] += (int)t.from;
    if (info != 0) return info + (int)t.from;
    const double work = 2.0 * (double)(m - t.from) * (double)(n - t.from) * (double)t.width;
    wx_share(wl_lu_chunks, (void*[]){&t}, t.chunks, threads, work);
  }
  return 0;
}

static void wl_cholesky_rows(void* const* p, long lo, long hi) {
  const wl_panel* t = p[0];
  const int width = (int)t->width;
  for (long i = lo; i < hi; i++) {
    long column;
    int count;
    wl_columns(t, t->from + t->width, i, &column, &count);
    if (count > 0)
      ((wl_trsm*)wl_lapack.trsm[t->d])("L", "U", "C", "N", &width, &count, wl_one(t->d), wl_at(t, t->from, t->from),
                                       &t->ld, wl_at(t, t->from, column), &t->ld, 1, 1, 1, 1);
  }
}
static void wl_cholesky_rest(void* const* p, long lo, long hi) {
  const wl_panel* t = p[0];
  const int width = (int)t->width;
  const long first = t->from + t->width;
  for (long i = lo; i < hi; i++) {
    long column;
    int count;
    wl_columns(t, first, i, &column, &count);
    /* The upper triangle, and what lies below it in the square at its end: nobody reads that. */
    const int above = (int)(column + count - first);
    if (count > 0)
      ((wl_gemm*)wl_lapack.gemm[t->d])("C", "N", &above, &count, &width, wl_minus_one(t->d), wl_at(t, t->from, first),
                                       &t->ld, wl_at(t, t->from, column), &t->ld, wl_one(t->d), wl_at(t, first, column),
                                       &t->ld, 1, 1);
  }
}

/* As potrf for the upper factor; what lies below it has no meaning. */
static int wl_factor_cholesky(int threads, int d, long n, void* a) {
  const int order = (int)n;
  int info = 0;
  if (threads < 2 || n < WL_WORTH_BLOCKS || !wl_lapack.gemm[d]) {
    ((wl_potrf*)wl_lapack.potrf[d])("U", &order, a, &order, &info, 1);
    return info;
  }
  const long block = n >= 1024 ? 128 : 64;
  wl_panel t = {.d = d, .ld = order, .m = n, .n = n, .a = a, .chunks = 4L * threads};
  for (t.from = 0; t.from < n; t.from += block) {
    t.width = n - t.from < block ? n - t.from : block;
    const int width = (int)t.width;
    ((wl_potrf*)wl_lapack.potrf[d])("U", &width, wl_at(&t, t.from, t.from), &t.ld, &info, 1);
    if (info != 0) return info + (int)t.from;
    const double work = (double)(n - t.from) * (double)(n - t.from) * (double)t.width;
    wx_share(wl_cholesky_rows, (void*[]){&t}, t.chunks, threads, work);
    wx_share(wl_cholesky_rest, (void*[]){&t}, t.chunks, threads, work);
  }
  return 0;
}

typedef struct {
  const wl_job* job;
  const void* factors;
  const int* pivots; /* NULL for triangular matrices */
  const char* b;
  char *x, *scratch;
  long chunks;
} wl_sides;

/* a x = b, seen transposed, is x^T a^T = b^T: a solve from the right with the other triangle, for some columns of b. */
static void wl_solve_sides(void* const* p, long lo, long hi) {
  const wl_sides* t = p[0];
  const wl_job* job = t->job;
  const int n = (int)job->n, k = (int)job->k, d = job->dtype;
  const long size = wl_size(d);
  for (long i = lo; i < hi; i++) {
    const long from = k * i / t->chunks;
    const int count = (int)(k * (i + 1) / t->chunks - from);
    if (count == 0) continue;
    if (t->pivots == NULL) {
      for (long row = 0; row < n; row++)
        memcpy(t->x + (row * k + from) * size, t->b + (row * k + from) * size, count * size);
      ((wl_trsm*)wl_lapack.trsm[d])("R", job->lower ? "U" : "L", job->adjoint ? "C" : "N", job->unit ? "U" : "N",
                                    &count, &n, wl_one(d), t->factors, &n, t->x + from * size, &k, 1, 1, 1, 1);
      continue;
    }
    /* The factors are those of a^T; "T" solves with a. The right-hand sides are brought into columns. */
    typedef void routine(const char*, const int*, const int*, const void*, const int*, const int*, void*, const int*,
                         int*, size_t);
    char* columns = t->scratch + from * n * size;
    int info = 0;
    wl_transpose_part(d, n, count, t->b + from * size, k, columns, n);
    ((routine*)wl_lapack.getrs[d])("T", &n, &count, t->factors, &n, t->pivots, columns, &n, &info, 1);
    wl_transpose_part(d, count, n, columns, n, t->x + from * size, k);
  }
}
static void wl_share_sides(wl_sides* t) {
  const long k = t->job->k;
  const double work = 2.0 * (double)t->job->n * (double)t->job->n * (double)k;
  /* Few columns are not worth a thread of their own. */
  t->chunks = k >= 32 ? t->job->threads : 1;
  wx_share(wl_solve_sides, (void*[]){t}, t->chunks, t->job->threads, work);
}

/* The transpose of a = l l^H is u^H u with the upper factor u = l^T, so that the result needs no copy. */
static void wl_lapack_cholesky(const wl_job* job, long first, long count, void* scratch) {
  const int d = job->dtype, parts = wl_parts(d);
  const long n = job->n;
  (void)scratch;
  for (long g = first; g < first + count; g++) {
    char* l = job->out[0] + g * job->out_bytes[0];
    memcpy(l, job->a + g * job->a_bytes, job->a_bytes);
    int info = wl_factor_cholesky(job->threads, d, n, l);
    for (long i = 0; i < n && info == 0; i++) {
      const double pivot = wl_get(d, l, (i * n + i) * parts);
      if (!(pivot > 0 && pivot < INFINITY)) info = 1;
      if (parts == 2) wl_put(d, l, (i * n + i) * 2 + 1, 0);
      memset(l + (i * n + i + 1) * wl_size(d), 0, (n - i - 1) * wl_size(d));
    }
    if (info != 0) wl_fill_nan(d, l, job->n * job->n);
  }
}

static void wl_lapack_triangular_solve(const wl_job* job, long first, long count, void* scratch) {
  (void)scratch;
  for (long g = first; g < first + count; g++) {
    wl_sides t = {.job = job, .factors = job->a + g * job->a_bytes, .b = job->b + g * job->b_bytes};
    t.x = job->out[0] + g * job->out_bytes[0];
    wl_share_sides(&t);
  }
}

static size_t wl_lapack_lu_bytes(const wl_job* job) {
  return wl_space(job->n * job->n, wl_size(job->dtype)) + wl_space(job->n * job->k, wl_size(job->dtype)) +
         wl_space(job->n, sizeof(int));
}

static void wl_lapack_solve(const wl_job* job, long first, long count, void* scratch) {
  const int d = job->dtype;
  char* a = scratch;
  char* x = a + wl_space(job->n * job->n, wl_size(d));
  int* pivots = (int*)(x + wl_space(job->n * job->k, wl_size(d)));
  for (long g = first; g < first + count; g++) {
    char* out = job->out[0] + g * job->out_bytes[0];
    memcpy(a, job->a + g * job->a_bytes, job->a_bytes);
    if (wl_factor_lu(job->threads, d, job->n, job->n, a, pivots) != 0) {
      wl_fill_nan(d, out, job->n * job->k);
      continue;
    }
    wl_sides t = {.job = job, .factors = a, .pivots = pivots, .b = job->b + g * job->b_bytes, .x = out, .scratch = x};
    wl_share_sides(&t);
  }
}

static void wl_lapack_det(const wl_job* job, long first, long count, void* scratch) {
  const int n = (int)job->n, d = job->dtype, parts = wl_parts(d);
  char* a = scratch;
  int* pivots = (int*)(a + wl_space(job->n * job->n, wl_size(d)));
  for (long g = first; g < first + count; g++) {
    char* out = job->out[0] + g * job->out_bytes[0];
    memcpy(a, job->a + g * job->a_bytes, job->a_bytes);
    const int info = wl_factor_lu(job->threads, d, n, n, a, pivots);
    double re = info == 0, im = 0;
    for (long i = 0; i < n && info == 0; i++) {
      const long at = (i * n + i) * parts;
      const double sign = pivots[i] == i + 1 ? 1 : -1, x = sign * wl_get(d, a, at);
      const double y = parts == 2 ? sign * wl_get(d, a, at + 1) : 0, old = re;
      re = parts == 2 ? old * x - im * y : old * x;
      im = parts == 2 ? old * y + im * x : 0;
    }
    wl_put(d, out, 0, re);
    if (parts == 2) wl_put(d, out, 1, im);
  }
}
