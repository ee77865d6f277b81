// Running products and extrema. NaN wins.
#pragma once
#include "sort-scatter.h"

/* One item is a line where lines lie next to each other, or a block of neighboring lines, which are joined side by side. */
#define SCAN(name, T, M, JOIN, ALONG, NEUTRAL)                                                                         \
  static void name(void* const* p, long lo, long hi) {                                                                 \
    const order_job* j = p[0];                                                                                         \
    const long n = j->n, inner = j->inner, blocks = (inner + CUMSUM_LINES - 1) / CUMSUM_LINES;                         \
    for (long item = lo; item < hi; item++) {                                                                          \
      const long first = item % blocks * CUMSUM_LINES, start = item / blocks * n * inner + first;                      \
      const long lines = inner - first < CUMSUM_LINES ? inner - first : CUMSUM_LINES;                                  \
      const T* x = (const T*)j->x + start;                                                                             \
      T* out = (T*)j->out + start;                                                                                     \
      if (inner == 1) {                                                                                                \
        T all = out[0] = x[0];                                                                                         \
        long s = 1;                                                                                                    \
        ALONG(JOIN, T, M, NEUTRAL)                                                                                     \
        for (; s < n; s++) out[s] = all = JOIN(all, x[s]);                                                             \
        continue;                                                                                                      \
      }                                                                                                                \
      T all[CUMSUM_LINES];                                                                                             \
      for (long i = 0; i < lines; i++) out[i] = all[i] = x[i];                                                         \
      for (long s = 1; s < n; s++)                                                                                     \
        for (long i = 0; i < lines; i++) out[s * inner + i] = all[i] = JOIN(all[i], x[s * inner + i]);                 \
    }                                                                                                                  \
  }
#define SCAN_PRODUCT(a, b) ((a) * (b))
#define SCAN_PRODUCT_v(V, M, a, b) ((a) * (b))
/* Without branches, which nobody could predict: the larger one by an instruction that keeps a where b is NaN, then b where it is. */
#define SCAN_EXTREMA(s, T)                                                                                             \
  W_INLINE T scan_larger_##s(T a, T b) { return w_select_##s(b != b, b, b > a ? b : a); }                              \
  W_INLINE T scan_smaller_##s(T a, T b) { return w_select_##s(b != b, b, b < a ? b : a); }
#define SCAN_PICK(V, M, test, a, b) ((V)(((M)(b) & (M)(test)) | ((M)(a) & ~(M)(test))))
#define scan_larger_f_v(V, M, a, b) SCAN_PICK(V, M, ((b) > (a)) | ((b) != (b)), a, b)
#define scan_smaller_f_v(V, M, a, b) SCAN_PICK(V, M, ((b) < (a)) | ((b) != (b)), a, b)
#define scan_larger_d_v scan_larger_f_v
#define scan_smaller_d_v scan_smaller_f_v
#define scan_larger_i_v(V, M, a, b) SCAN_PICK(V, M, (b) > (a), a, b)
#define scan_smaller_i_v(V, M, a, b) SCAN_PICK(V, M, (b) < (a), a, b)
#define scan_larger_l_v scan_larger_i_v
#define scan_smaller_l_v scan_smaller_i_v
SCAN_EXTREMA(i, int32_t)
SCAN_EXTREMA(l, int64_t)
SCAN_EXTREMA(f, float)
SCAN_EXTREMA(d, double)
/* Products of floats join four at a time: those of more may underflow where the product of all does not. */
#define SCANS(s, T, M, PRODUCTS, LEAST, MOST)                                                                          \
  SCAN(scan_product_##s, T, M, SCAN_PRODUCT, PRODUCTS, 1)                                                              \
  SCAN(scan_largest_##s, T, M, scan_larger_##s, SCAN_BY_VECTOR, LEAST)                                                 \
  SCAN(scan_smallest_##s, T, M, scan_smaller_##s, SCAN_BY_VECTOR, MOST)
SCANS(i, int32_t, int32_t, SCAN_BY_VECTOR, INT32_MIN, INT32_MAX)
SCANS(l, int64_t, int64_t, SCAN_BY_VECTOR, INT64_MIN, INT64_MAX)
SCANS(f, float, int32_t, SCAN_BY_FOUR, -w_inf_f(), w_inf_f())
SCANS(d, double, int64_t, SCAN_BY_FOUR, -w_inf_d(), w_inf_d())

/* The number of the dtype is that of sort-scatter.h: int32, int64, float32 and float64. */
static void wr_scan(int dtype, int fn, long outer, long n, long inner, const void* x, void* out, int threads) {
  static const w_kernel kernels[][3] = {[2] = {scan_product_i, scan_largest_i, scan_smallest_i},
                                        [3] = {scan_product_l, scan_largest_l, scan_smallest_l},
                                        [6] = {scan_product_f, scan_largest_f, scan_smallest_f},
                                        [7] = {scan_product_d, scan_largest_d, scan_smallest_d}};
  order_job job = {.outer = outer, .n = n, .inner = inner, .x = x, .out = out};
  void* p[] = {&job};
  const long blocks = (inner + CUMSUM_LINES - 1) / CUMSUM_LINES;
  wr_share(kernels[dtype][fn], p, 0, outer * blocks, grain_of(n * (inner / (blocks > 0 ? blocks : 1)), 65536), threads);
}
