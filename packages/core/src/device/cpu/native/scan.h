// Running products and extrema. NaN wins.
#pragma once
#include "sort-scatter.h"

/* One item is a line where lines lie next to each other, or a block of neighboring lines, which are joined side by side. A single line
   joins four elements with each other first: every result waits for the one before. */
#define SCAN(name, T, JOIN)                                                                                            \
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
        for (; s + 4 <= n; s += 4) {                                                                                   \
          const T a = x[s], b = JOIN(a, x[s + 1]), c = x[s + 2], d = JOIN(c, x[s + 3]), bc = JOIN(b, c);               \
          out[s] = JOIN(all, a);                                                                                       \
          out[s + 1] = JOIN(all, b);                                                                                   \
          out[s + 2] = JOIN(all, bc);                                                                                  \
          const T bd = JOIN(b, d);                                                                                     \
          all = JOIN(all, bd);                                                                                         \
          out[s + 3] = all;                                                                                            \
        }                                                                                                              \
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
/* Without branches, which nobody could predict: the larger one by an instruction that keeps a where b is NaN, then b where it is. */
#define SCAN_EXTREMA(s, T)                                                                                             \
  W_INLINE T scan_larger_##s(T a, T b) { return w_select_##s(b != b, b, b > a ? b : a); }                              \
  W_INLINE T scan_smaller_##s(T a, T b) { return w_select_##s(b != b, b, b < a ? b : a); }
SCAN_EXTREMA(i, int32_t)
SCAN_EXTREMA(l, int64_t)
SCAN_EXTREMA(f, float)
SCAN_EXTREMA(d, double)
#define SCANS(s, T)                                                                                                    \
  SCAN(scan_product_##s, T, SCAN_PRODUCT)                                                                              \
  SCAN(scan_largest_##s, T, scan_larger_##s)                                                                           \
  SCAN(scan_smallest_##s, T, scan_smaller_##s)
SCANS(i, int32_t)
SCANS(l, int64_t)
SCANS(f, float)
SCANS(d, double)

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
