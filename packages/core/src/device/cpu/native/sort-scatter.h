// Running sums, sorting and scattered additions.
#pragma once
#include "prelude.h"

/* dtype numbers as in graph/dtype.ts: bool, uint8, int32, int64, float16, bfloat16, float32, float64, complex64, complex128,
   int8, int16, uint16, uint32, uint64. Sums that wrap around are the same for signed and unsigned numbers. */
/* Iterations per grain, if one has this many elements and fewer than "least" in all are not worth threads. */
static long grain_of(long elements, long least) {
  const long per = least / 4;
  return elements > 0 && per > elements ? per / elements : 1;
}
typedef struct {
  long outer, n, inner, count, flag;
  int dtype;
  const void *x, *base, *updates;
  const int32_t* indices;
  void* out;
} order_job;
#define CUMSUM(name, T, LOAD, STORE, ACC)                                                                              \
  static void name(void* const* p, long lo, long hi) {                                                                 \
    const order_job* j = p[0];                                                                                         \
    const long n = j->n, inner = j->inner;                                                                             \
    const T* x = j->x;                                                                                                 \
    T* out = j->out;                                                                                                   \
    for (long o = lo; o < hi; o++)                                                                                     \
      for (long i = 0; i < inner; i++) {                                                                               \
        ACC sum = 0;                                                                                                   \
        for (long s = 0; s < n; s++) {                                                                                 \
          long at = (o * n + (j->flag ? n - 1 - s : s)) * inner + i;                                                   \
          sum += LOAD(x[at]);                                                                                          \
          out[at] = STORE(sum);                                                                                        \
        }                                                                                                              \
      }                                                                                                                \
  }
#define SAME(x) (x)
CUMSUM(cumsum_u8, uint8_t, SAME, SAME, uint8_t)
CUMSUM(cumsum_u16, uint16_t, SAME, SAME, uint16_t)
CUMSUM(cumsum_i32, int32_t, SAME, SAME, int32_t)
CUMSUM(cumsum_i64, int64_t, SAME, SAME, int64_t)
CUMSUM(cumsum_h, w_half, w_from_half, w_to_half, float)
CUMSUM(cumsum_b, w_bfloat, w_from_bfloat, w_to_bfloat, float)
CUMSUM(cumsum_f, float, SAME, SAME, double)
CUMSUM(cumsum_d, double, SAME, SAME, double)
CUMSUM(cumsum_c, float complex, SAME, SAME, double complex)
CUMSUM(cumsum_z, double complex, SAME, SAME, double complex)
static void wr_cumsum(int dtype, long outer, long n, long inner, int reverse, const void* x, void* out, int threads) {
  static const w_kernel kernels[] = {cumsum_u8, cumsum_u8,  cumsum_i32, cumsum_i64, cumsum_h,
                                     cumsum_b,  cumsum_f,   cumsum_d,   cumsum_c,   cumsum_z,
                                     cumsum_u8, cumsum_u16, cumsum_u16, cumsum_i32, cumsum_i64};
  order_job job = {.outer = outer, .n = n, .inner = inner, .flag = reverse, .x = x, .out = out};
  void* p[] = {&job};
  wr_share(kernels[dtype], p, 0, outer, grain_of(n * inner, 65536), threads);
}

/* Merge sort keeps equal elements in place. Keys are wide enough for every number of the dtype: doubles for floats, where NaN
   counts as larger than every number, and 64-bit integers. */
#define SORT(name, K)                                                                                                  \
  typedef struct {                                                                                                     \
    K key;                                                                                                             \
    int32_t at;                                                                                                        \
  } name##_item;                                                                                                       \
  static int name##_not_after(name##_item a, name##_item b, int descending) {                                          \
    if (a.key != a.key) return descending || b.key != b.key;                                                           \
    if (b.key != b.key) return !descending;                                                                            \
    return descending ? a.key >= b.key : a.key <= b.key;                                                               \
  }                                                                                                                    \
  static void name##_row(name##_item* items, long n, int descending, int32_t* out) {                                   \
    name##_item *from = items, *to = items + n;                                                                        \
    for (long width = 1; width < n; width *= 2) {                                                                      \
      for (long lo = 0; lo < n; lo += 2 * width) {                                                                     \
        long mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n, i = lo, j = mid;     \
        for (long k = lo; k < hi; k++)                                                                                 \
          to[k] = i < mid && (j >= hi || name##_not_after(from[i], from[j], descending)) ? from[i++] : from[j++];      \
      }                                                                                                                \
      name##_item* swap = from;                                                                                        \
      from = to;                                                                                                       \
      to = swap;                                                                                                       \
    }                                                                                                                  \
    for (long i = 0; i < n; i++) out[i] = from[i].at;                                                                  \
  }
SORT(sort_float, double)
SORT(sort_integer, int64_t)
static double float_key(int dtype, const void* x, long i) {
  switch (dtype) {
    case 4: return w_from_half(((const w_half*)x)[i]);
    case 5: return w_from_bfloat(((const w_bfloat*)x)[i]);
    case 6: return ((const float*)x)[i];
    default: return ((const double*)x)[i];
  }
}
static int is_float(int dtype) { return dtype >= 4 && dtype < 10; }
static int64_t integer_key(int dtype, const void* x, long i) {
  switch (dtype) {
    case 2: return ((const int32_t*)x)[i];
    case 3: return ((const int64_t*)x)[i];
    case 10: return ((const int8_t*)x)[i];
    case 11: return ((const int16_t*)x)[i];
    case 12: return ((const uint16_t*)x)[i];
    case 13: return ((const uint32_t*)x)[i];
    /* With its highest bit flipped, an unsigned number keeps its order among signed ones. */
    case 14: return (int64_t)(((const uint64_t*)x)[i] ^ (UINT64_C(1) << 63));
    default: return ((const uint8_t*)x)[i];
  }
}
/* The same order without memory beside the result: a heap of places, by key and then by place. */
static int goes_after(int dtype, const void* x, long row, int32_t i, int32_t j, int descending) {
  int ab, ba;
  if (is_float(dtype)) {
    sort_float_item a = {float_key(dtype, x, row + i), i}, b = {float_key(dtype, x, row + j), j};
    ab = sort_float_not_after(a, b, descending), ba = sort_float_not_after(b, a, descending);
  } else {
    sort_integer_item a = {integer_key(dtype, x, row + i), i}, b = {integer_key(dtype, x, row + j), j};
    ab = sort_integer_not_after(a, b, descending), ba = sort_integer_not_after(b, a, descending);
  }
  return ab && ba ? i > j : !ab;
}
static void sink(int dtype, const void* x, long row, int32_t* out, long at, long n, int descending) {
  for (long child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
    if (child + 1 < n && goes_after(dtype, x, row, out[child + 1], out[child], descending)) child++;
    if (!goes_after(dtype, x, row, out[child], out[at], descending)) return;
    const int32_t swap = out[at];
    out[at] = out[child];
    out[child] = swap;
  }
}
static void heap_order(int dtype, const void* x, long row, int32_t* out, long n, int descending) {
  for (long i = 0; i < n; i++) out[i] = (int32_t)i;
  for (long i = n / 2 - 1; i >= 0; i--) sink(dtype, x, row, out, i, n, descending);
  for (long last = n - 1; last > 0; last--) {
    const int32_t swap = out[0];
    out[0] = out[last];
    out[last] = swap;
    sink(dtype, x, row, out, 0, last, descending);
  }
}
static void argsort_rows(void* const* p, long lo, long hi) {
  const order_job* j = p[0];
  const long n = j->n;
  const int dtype = j->dtype, descending = (int)j->flag;
  const void* x = j->x;
  int32_t* out = j->out;
  for (long r = lo; r < hi; r++) {
    void* items = malloc(2 * n * sizeof(sort_float_item) + 16);
    if (!items) {
      heap_order(dtype, x, r * n, out + r * n, n, descending);
      continue;
    }
    sort_float_item* floats = items;
    sort_integer_item* integers = items;
    for (long i = 0; i < n; i++) {
      if (is_float(dtype)) {
        floats[i].key = float_key(dtype, x, r * n + i);
        floats[i].at = (int32_t)i;
      } else {
        integers[i].key = integer_key(dtype, x, r * n + i);
        integers[i].at = (int32_t)i;
      }
    }
    if (is_float(dtype)) sort_float_row(floats, n, descending, out + r * n);
    else sort_integer_row(integers, n, descending, out + r * n);
    free(items);
  }
}
static void wr_argsort(int dtype, long rows, long n, int descending, const void* x, int32_t* out, int threads) {
  order_job job = {.n = n, .dtype = dtype, .flag = descending, .x = x, .out = out};
  void* p[] = {&job};
  wr_share(argsort_rows, p, 0, rows, grain_of(n, 16384), threads);
}

/* Rows of the result are shared out among threads: each reads all indices and adds only into its own rows, so the
   order of additions, and with it the result, does not depend on the number of threads. */
#define SCATTER(name, T, LOAD, STORE)                                                                                  \
  static void name(void* const* job, long lo, long hi) {                                                               \
    const order_job* j = job[0];                                                                                       \
    const long before = j->outer, n = j->n, after = j->inner, count = j->count, block = before * n * after;            \
    const T *base = j->base, *updates = j->updates;                                                                    \
    for (long q = 0; q < j->flag; q++)                                                                                 \
      for (long p = 0; p < before; p++) {                                                                              \
        T* to = (T*)j->out + q * block + p * n * after;                                                                \
        if (base)                                                                                                      \
          memcpy(to + lo * after, base + q * block + p * n * after + lo * after, (hi - lo) * after * sizeof(T));       \
        else memset((void*)(to + lo * after), 0, (hi - lo) * after * sizeof(T));                                       \
        const T* from = updates + (q * before + p) * count * after;                                                    \
        for (long i = 0; i < count; i++) {                                                                             \
          long row = j->indices[q * count + i];                                                                        \
          if (row < lo || row >= hi) continue;                                                                         \
          T* t = to + row * after;                                                                                     \
          const T* f = from + i * after;                                                                               \
          for (long k = 0; k < after; k++) t[k] = STORE(LOAD(t[k]) + LOAD(f[k]));                                      \
        }                                                                                                              \
      }                                                                                                                \
  }
SCATTER(scatter_u8, uint8_t, SAME, SAME)
SCATTER(scatter_u16, uint16_t, SAME, SAME)
SCATTER(scatter_i32, int32_t, SAME, SAME)
SCATTER(scatter_i64, int64_t, SAME, SAME)
SCATTER(scatter_h, w_half, w_from_half, w_to_half)
SCATTER(scatter_b, w_bfloat, w_from_bfloat, w_to_bfloat)
SCATTER(scatter_f, float, SAME, SAME)
SCATTER(scatter_d, double, SAME, SAME)
SCATTER(scatter_c, float complex, SAME, SAME)
SCATTER(scatter_z, double complex, SAME, SAME)
static void wr_scatter(int dtype, long batch, long before, long n, long after, long count, const void* base,
                       const int32_t* indices, const void* updates, void* out, int threads) {
  static const w_kernel kernels[] = {scatter_u8, scatter_u8,  scatter_i32, scatter_i64, scatter_h,
                                     scatter_b,  scatter_f,   scatter_d,   scatter_c,   scatter_z,
                                     scatter_u8, scatter_u16, scatter_u16, scatter_i32, scatter_i64};
  order_job job = {before, n, after, count, batch, dtype, NULL, base, updates, indices, out};
  void* p[] = {&job};
  const long work = batch * (before * n * after + before * count * after);
  /* One chunk per thread: each reads all indices. */
  pool_run(kernels[dtype], p, 0, n, work <= 65536 ? 1 : n < threads ? n : threads, work / 2e4);
}
