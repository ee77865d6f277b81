// Products of few rows with a large matrix, as in text generation: the matrix is read once and in order, at the speed of memory. A
// library copies it into blocks first, which pays only if more rows use them.
#pragma once
#include "prelude.h"

/* Up to so many rows this is faster than the library, where rows or where columns of the matrix are contiguous. */
#define THIN_DOWN 2
#define THIN_ACROSS 8
/* Numbers of a row that are copied where they are not contiguous. */
#define THIN_DEPTH 8192

/* Rows of b are contiguous: eight at a time are added to sums that stay in the first-level cache.
   Columns of b are contiguous: dot products, four columns at a time. */
#define THIN(T, BYTES)                                                                                                 \
  typedef T thin_##T __attribute__((vector_size(64), aligned(BYTES), may_alias));                                      \
  typedef T sums_##T __attribute__((vector_size(64)));                                                                 \
  static void thin_down_##T(long m, long n, long k, const T* a, long ars, long acs, const T* b, long brs, T* c,        \
                            long crs) {                                                                                \
    const long lanes = 64 / BYTES, block = m == 1 ? 4096 : 512;                                                        \
    for (long j0 = 0; j0 < n; j0 += block) {                                                                           \
      const long j1 = j0 + block < n ? j0 + block : n, whole = j0 + (j1 - j0) / lanes * lanes;                         \
      for (long i = 0; i < m; i++)                                                                                     \
        for (long j = j0; j < j1; j++) c[i * crs + j] = 0;                                                             \
      for (long p = 0; p < k; p += 8) {                                                                                \
        const long count = k - p < 8 ? k - p : 8;                                                                      \
        const T* r[8];                                                                                                 \
        /* Pointers beyond the last row are not read. */                                                               \
        for (long q = 0; q < 8; q++) r[q] = b + (p + (q < count ? q : count - 1)) * brs;                               \
        for (long i = 0; i < m; i++) {                                                                                 \
          T* ci = c + i * crs;                                                                                         \
          T x[8];                                                                                                      \
          for (long q = 0; q < count; q++) x[q] = a[i * ars + (p + q) * acs];                                          \
          if (count == 8) {                                                                                            \
            for (long j = j0; j < whole; j += lanes) {                                                                 \
              sums_##T s = *(const thin_##T*)(ci + j);                                                                 \
              s += x[0] * *(const thin_##T*)(r[0] + j) + x[1] * *(const thin_##T*)(r[1] + j);                          \
              s += x[2] * *(const thin_##T*)(r[2] + j) + x[3] * *(const thin_##T*)(r[3] + j);                          \
              s += x[4] * *(const thin_##T*)(r[4] + j) + x[5] * *(const thin_##T*)(r[5] + j);                          \
              s += x[6] * *(const thin_##T*)(r[6] + j) + x[7] * *(const thin_##T*)(r[7] + j);                          \
              *(thin_##T*)(ci + j) = s;                                                                                \
            }                                                                                                          \
          } else                                                                                                       \
            for (long q = 0; q < count; q++)                                                                           \
              for (long j = j0; j < whole; j += lanes) *(thin_##T*)(ci + j) += x[q] * *(const thin_##T*)(r[q] + j);    \
          for (long j = whole; j < j1; j++)                                                                            \
            for (long q = 0; q < count; q++) ci[j] += x[q] * r[q][j];                                                  \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  static T thin_total_##T(sums_##T s) {                                                                                \
    T total = 0;                                                                                                       \
    for (int l = 0; l < 64 / BYTES; l++) total += s[l];                                                                \
    return total;                                                                                                      \
  }                                                                                                                    \
  static void thin_across_##T(long m, long n, long k, const T* a, long ars, long acs, const T* b, long bcs, T* c,      \
                              long crs) {                                                                              \
    const long lanes = 64 / BYTES, whole = k / lanes * lanes;                                                          \
    T copy[THIN_DEPTH];                                                                                                \
    if (acs != 1) {                                                                                                    \
      for (long p = 0; p < k; p++) copy[p] = a[p * acs];                                                               \
      a = copy;                                                                                                        \
    }                                                                                                                  \
    for (long j = 0; j < n; j += 4) {                                                                                  \
      const long left = n - j < 4 ? n - j : 4;                                                                         \
      const T* r[4];                                                                                                   \
      for (long q = 0; q < 4; q++) r[q] = b + (j + (q < left ? q : left - 1)) * bcs;                                   \
      for (long i = 0; i < m; i++) {                                                                                   \
        const T* x = a + i * ars;                                                                                      \
        sums_##T s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                               \
        for (long p = 0; p < whole; p += lanes) {                                                                      \
          const sums_##T v = *(const thin_##T*)(x + p);                                                                \
          s0 += v * *(const thin_##T*)(r[0] + p);                                                                      \
          s1 += v * *(const thin_##T*)(r[1] + p);                                                                      \
          s2 += v * *(const thin_##T*)(r[2] + p);                                                                      \
          s3 += v * *(const thin_##T*)(r[3] + p);                                                                      \
        }                                                                                                              \
        T total[4] = {thin_total_##T(s0), thin_total_##T(s1), thin_total_##T(s2), thin_total_##T(s3)};                 \
        for (long q = 0; q < left; q++) {                                                                              \
          for (long p = whole; p < k; p++) total[q] += x[p] * r[q][p];                                                 \
          c[i * crs + j + q] = total[q];                                                                               \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }
THIN(float, 4)
THIN(double, 8)

/* Whether a product is thin; dtype as in gemm_job. */
static int is_thin(int dtype, long m, long n, long k, long acs, long brs, long bcs) {
  if (dtype > 1 || n < 16 || k < 1) return 0;
  if (bcs == 1) return m <= THIN_DOWN;
  return brs == 1 && (acs == 1 ? m <= THIN_ACROSS : m == 1 && k <= THIN_DEPTH);
}

static void thin_gemm(int dtype, long m, long n, long k, const char* a, long ars, long acs, const char* b, long brs,
                      long bcs, char* c, long crs) {
  if (dtype == 0 && bcs == 1) thin_down_float(m, n, k, (const float*)a, ars, acs, (const float*)b, brs, (float*)c, crs);
  else if (dtype == 0) thin_across_float(m, n, k, (const float*)a, ars, acs, (const float*)b, bcs, (float*)c, crs);
  else if (bcs == 1) thin_down_double(m, n, k, (const double*)a, ars, acs, (const double*)b, brs, (double*)c, crs);
  else thin_across_double(m, n, k, (const double*)a, ars, acs, (const double*)b, bcs, (double*)c, crs);
}
