// Reductions over several arrays in C, element by element in the order of the arrays: what all-reduce and
// reduce-scatter compute, for every dtype and function. Half types are summed in float.
#pragma once
#include <complex.h>
#include "../../cpu/native/prelude.h"

/* dtype numbers as in graph/dtype.ts: bool, uint8, int32, int64, float16, bfloat16, float32, float64, complex64, complex128,
   int8, int16, uint16, uint32, uint64; functions: sum, prod, max, min */
#define FN_SUM(a, x) ((a) + (x))
#define FN_PROD(a, x) ((a) * (x))
#define FN_MAX(a, x) ((x) > (a) || (x) != (x) ? (x) : (a))
#define FN_MIN(a, x) ((x) < (a) || (x) != (x) ? (x) : (a))
#define FN_OR(a, x) ((a) | (x))
#define FN_AND(a, x) ((a) & (x))
#define PLAIN(x) (x)

enum { BLOCK = 2048 }; /* elements that stay in the first cache level while the sources are added */

/* T stored, A accumulated */
#define REDUCE(name, T, A, LOAD, STORE, F)                                                                             \
  static void name(void* out_, const void* const* in, int n, int64_t count) {                                          \
    T* out = out_;                                                                                                     \
    if (n == 2 && sizeof(T) == sizeof(A)) {                                                                            \
      const T *x = in[0], *y = in[1];                                                                                  \
      for (int64_t i = 0; i < count; i++) {                                                                            \
        A a = LOAD(x[i]), b = LOAD(y[i]);                                                                              \
        out[i] = STORE(F(a, b));                                                                                       \
      }                                                                                                                \
      return;                                                                                                          \
    }                                                                                                                  \
    A sum[BLOCK];                                                                                                      \
    for (int64_t lo = 0; lo < count; lo += BLOCK) {                                                                    \
      int64_t m = count - lo < BLOCK ? count - lo : BLOCK;                                                             \
      const T* x = (const T*)in[0] + lo;                                                                               \
      for (int64_t i = 0; i < m; i++) sum[i] = LOAD(x[i]);                                                             \
      for (int s = 1; s < n; s++) {                                                                                    \
        x = (const T*)in[s] + lo;                                                                                      \
        for (int64_t i = 0; i < m; i++) {                                                                              \
          A b = LOAD(x[i]);                                                                                            \
          sum[i] = F(sum[i], b);                                                                                       \
        }                                                                                                              \
      }                                                                                                                \
      for (int64_t i = 0; i < m; i++) out[lo + i] = STORE(sum[i]);                                                     \
    }                                                                                                                  \
  }
#define REDUCE_REAL(s, T, A, LOAD, STORE)                                                                              \
  REDUCE(sum_##s, T, A, LOAD, STORE, FN_SUM)                                                                           \
  REDUCE(prod_##s, T, A, LOAD, STORE, FN_PROD)                                                                         \
  REDUCE(max_##s, T, A, LOAD, STORE, FN_MAX) REDUCE(min_##s, T, A, LOAD, STORE, FN_MIN)
REDUCE(or_b, uint8_t, uint8_t, PLAIN, PLAIN, FN_OR)
REDUCE(and_b, uint8_t, uint8_t, PLAIN, PLAIN, FN_AND)
REDUCE_REAL(u, uint8_t, uint8_t, PLAIN, PLAIN)
REDUCE_REAL(i8, int8_t, int8_t, PLAIN, PLAIN)
REDUCE_REAL(i16, int16_t, int16_t, PLAIN, PLAIN)
REDUCE_REAL(u16, uint16_t, uint16_t, PLAIN, PLAIN)
REDUCE_REAL(u32, uint32_t, uint32_t, PLAIN, PLAIN)
REDUCE_REAL(u64, uint64_t, uint64_t, PLAIN, PLAIN)
REDUCE_REAL(i, int32_t, int32_t, PLAIN, PLAIN)
REDUCE_REAL(l, int64_t, int64_t, PLAIN, PLAIN)
REDUCE_REAL(h, w_half, float, w_from_half, w_to_half)
REDUCE_REAL(bf, w_bfloat, float, w_from_bfloat, w_to_bfloat)
REDUCE_REAL(f, float, float, PLAIN, PLAIN)
REDUCE_REAL(d, double, double, PLAIN, PLAIN)
/* Complex sums are sums of twice as many numbers. */
REDUCE(prod_c, float complex, float complex, PLAIN, PLAIN, FN_PROD)
REDUCE(prod_z, double complex, double complex, PLAIN, PLAIN, FN_PROD)

typedef void (*reducer)(void* out, const void* const* in, int n, int64_t count);
static const reducer reducers[15][4] = {
    {or_b, and_b, or_b, and_b},
    {sum_u, prod_u, max_u, min_u},
    {sum_i, prod_i, max_i, min_i},
    {sum_l, prod_l, max_l, min_l},
    {sum_h, prod_h, max_h, min_h},
    {sum_bf, prod_bf, max_bf, min_bf},
    {sum_f, prod_f, max_f, min_f},
    {sum_d, prod_d, max_d, min_d},
    {sum_f, prod_c, NULL, NULL},
    {sum_d, prod_z, NULL, NULL},
    {sum_i8, prod_i8, max_i8, min_i8},
    {sum_i16, prod_i16, max_i16, min_i16},
    {sum_u16, prod_u16, max_u16, min_u16},
    {sum_u32, prod_u32, max_u32, min_u32},
    {sum_u64, prod_u64, max_u64, min_u64},
};
/* count in elements of the dtype */
static void reduce_arrays(int dtype, int fn, void* out, const void* const* in, int n, int64_t count) {
  reducers[dtype][fn](out, in, n, (dtype == 8 || dtype == 9) && fn == 0 ? 2 * count : count);
}
