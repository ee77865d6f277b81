// The arithmetic under the built-in linear algebra: a "number" is the same element of several matrices of
// a batch, one in each SIMD lane, in double precision. Names in wx_ are instantiated per form (linalg.ts).
#pragma once
#include <math.h>
#include <string.h>

#include "linalg.h"

#undef WX_PARTS
#define WX_PARTS (1 + WX_COMPLEX)

#if WX_LANES > 1
typedef double wx_real __attribute__((vector_size(8 * WX_LANES)));
typedef int64_t wx_mask __attribute__((vector_size(8 * WX_LANES)));
static inline wx_real wx_splat(double x) { return x - (wx_real){0}; }
static inline wx_mask wx_lt(wx_real a, wx_real b) { return (wx_mask)(a < b); }
static inline wx_mask wx_eq(wx_real a, wx_real b) { return (wx_mask)(a == b); }
static inline wx_real wx_pick(wx_mask m, wx_real a, wx_real b) {
  return (wx_real)(((wx_mask)a & m) | ((wx_mask)b & ~m));
}
static inline wx_real wx_fabs(wx_real a) { return (wx_real)((wx_mask)a & INT64_MAX); }
/* The power of two at or below a positive normal number. */
static inline wx_real wx_power(wx_real a) { return (wx_real)((wx_mask)a & INT64_C(0x7ff0000000000000)); }
static inline wx_real wx_sqrt(wx_real a) {
  wx_real root;
  for (int l = 0; l < WX_LANES; l++) root[l] = sqrt(a[l]);
  return root;
}
static inline int wx_any(wx_mask m) {
  int64_t any = 0;
  for (int l = 0; l < WX_LANES; l++) any |= m[l];
  return any != 0;
}
#else
typedef double wx_real;
typedef int64_t wx_mask;
static inline wx_real wx_splat(double x) { return x; }
static inline wx_mask wx_lt(wx_real a, wx_real b) { return -(wx_mask)(a < b); }
static inline wx_mask wx_eq(wx_real a, wx_real b) { return -(wx_mask)(a == b); }
static inline wx_real wx_pick(wx_mask m, wx_real a, wx_real b) { return m ? a : b; }
static inline wx_real wx_fabs(wx_real a) { return fabs(a); }
static inline wx_real wx_power(wx_real a) {
  int64_t bits;
  memcpy(&bits, &a, sizeof bits);
  bits &= INT64_C(0x7ff0000000000000);
  memcpy(&a, &bits, sizeof bits);
  return a;
}
static inline wx_real wx_sqrt(wx_real a) { return sqrt(a); }
static inline int wx_any(wx_mask m) { return m != 0; }
#endif

static inline wx_real wx_max(wx_real a, wx_real b) { return wx_pick(wx_lt(a, b), b, a); }
static inline wx_mask wx_between(double low, wx_real a, double high) {
  return wx_lt(wx_splat(low), a) & wx_lt(a, wx_splat(high));
}
/* A power of two near "largest", by which numbers up to that size may be divided so that their squares stay in range. */
static inline wx_real wx_unit(wx_real largest) {
  largest = wx_max(largest, wx_splat(1e-300));
  return wx_power(wx_pick(wx_lt(largest, wx_splat(1e300)), largest, wx_splat(1e300)));
}

#if WX_COMPLEX
typedef struct {
  wx_real re, im;
} wx_num;
static inline wx_num wx_from(wx_real re) { return (wx_num){re, wx_splat(0)}; }
static inline wx_num wx_conj(wx_num a) { return (wx_num){a.re, -a.im}; }
static inline wx_num wx_add(wx_num a, wx_num b) { return (wx_num){a.re + b.re, a.im + b.im}; }
static inline wx_num wx_sub(wx_num a, wx_num b) { return (wx_num){a.re - b.re, a.im - b.im}; }
static inline wx_num wx_scale(wx_num a, wx_real f) { return (wx_num){a.re * f, a.im * f}; }
static inline wx_num wx_over(wx_num a, wx_real f) { return (wx_num){a.re / f, a.im / f}; }
static inline wx_num wx_mul(wx_num a, wx_num b) {
  return (wx_num){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static inline wx_num wx_choose(wx_mask m, wx_num a, wx_num b) {
  return (wx_num){wx_pick(m, a.re, b.re), wx_pick(m, a.im, b.im)};
}
static inline wx_real wx_square(wx_num a) { return a.re * a.re + a.im * a.im; }
static inline wx_real wx_size1(wx_num a) { return wx_fabs(a.re) + wx_fabs(a.im); }
/* Smith's division; by zero it gives infinities as the division of reals does. */
static inline wx_num wx_div(wx_num a, wx_num b) {
  const wx_mask tall = wx_lt(wx_fabs(b.re), wx_fabs(b.im));
  const wx_real large = wx_pick(tall, b.im, b.re), small = wx_pick(tall, b.re, b.im);
  const wx_mask none = wx_eq(large, wx_splat(0));
  const wx_real ratio = wx_pick(none, wx_splat(0), small / large);
  const wx_real whole = wx_pick(none, wx_splat(0), large + small * ratio);
  const wx_num first = wx_choose(tall, (wx_num){a.im, -a.re}, a);
  const wx_num second = wx_choose(tall, a, (wx_num){a.im, -a.re});
  return wx_over(wx_add(first, wx_scale(second, ratio)), whole);
}
#else
typedef struct {
  wx_real re;
} wx_num;
static inline wx_num wx_from(wx_real re) { return (wx_num){re}; }
static inline wx_num wx_conj(wx_num a) { return a; }
static inline wx_num wx_sub(wx_num a, wx_num b) { return (wx_num){a.re - b.re}; }
static inline wx_num wx_add(wx_num a, wx_num b) { return (wx_num){a.re + b.re}; }
static inline wx_num wx_scale(wx_num a, wx_real f) { return (wx_num){a.re * f}; }
static inline wx_num wx_over(wx_num a, wx_real f) { return (wx_num){a.re / f}; }
static inline wx_num wx_mul(wx_num a, wx_num b) { return (wx_num){a.re * b.re}; }
static inline wx_num wx_choose(wx_mask m, wx_num a, wx_num b) { return (wx_num){wx_pick(m, a.re, b.re)}; }
static inline wx_real wx_square(wx_num a) { return a.re * a.re; }
static inline wx_real wx_size1(wx_num a) { return wx_fabs(a.re); }
static inline wx_num wx_div(wx_num a, wx_num b) {
  return (wx_num){a.re / wx_pick(wx_eq(b.re, wx_splat(0)), wx_splat(0), b.re)};
}
#endif

static inline wx_mask wx_unfit(wx_num a) {
  const wx_real size = wx_size1(a);
  return ~wx_eq(size - size, wx_splat(0));
}

/* The sum of x[i] y[i], or of x[i] conj(y[i]). */
static inline __attribute__((always_inline)) wx_num wx_products(long n, const wx_num* x, const wx_num* y,
                                                                const int conj) {
  wx_real re = wx_splat(0);
#if WX_COMPLEX
  wx_real im = wx_splat(0);
#if WX_LANES == 1
#pragma omp simd reduction(+ : re, im)
#endif
  for (long i = 0; i < n; i++) {
    const wx_real y_im = conj ? -y[i].im : y[i].im;
    re += x[i].re * y[i].re - x[i].im * y_im;
    im += x[i].im * y[i].re + x[i].re * y_im;
  }
  return (wx_num){re, im};
#else
  (void)conj;
#if WX_LANES == 1
#pragma omp simd reduction(+ : re)
#endif
  for (long i = 0; i < n; i++) re += x[i].re * y[i].re;
  return (wx_num){re};
#endif
}

static inline wx_num wx_dot(long n, const wx_num* x, const wx_num* y) { return wx_products(n, x, y, 1); }
static inline wx_real wx_length2(long n, const wx_num* x) { return wx_dot(n, x, x).re; }

/* y -= f x */
static inline void wx_subtract(long n, wx_num f, const wx_num* restrict x, wx_num* restrict y) {
#if WX_LANES == 1
#pragma omp simd
#endif
  for (long i = 0; i < n; i++) y[i] = wx_sub(y[i], wx_mul(f, x[i]));
}

/* y -= f conj(x) */
static inline void wx_subtract_conj(long n, wx_num f, const wx_num* restrict x, wx_num* restrict y) {
#if WX_LANES == 1
#pragma omp simd
#endif
  for (long i = 0; i < n; i++) y[i] = wx_sub(y[i], wx_mul(f, wx_conj(x[i])));
}

/* x -= v <v, x> weight */
static inline void wx_reflect(long m, const wx_num* v, wx_real weight, wx_num* x) {
  wx_subtract(m, wx_scale(wx_dot(m, x, v), weight), v, x);
}

/* The address of one lane's part of a number, as a double. */
static inline double* wx_at(const wx_num* x, long element, int part, long lane) {
  return (double*)x + (element * WX_PARTS + part) * WX_LANES + lane;
}

/* Loads "count" matrices, "bytes" apart, into lanes; the remaining lanes repeat the last one. */
static inline __attribute__((always_inline)) void wx_load_as(const int single, const char* const* from, long rows,
                                                             long columns, const int transpose, wx_num* to) {
#define WX_FROM(l) (single ? (double)((const float*)from[l])[at] : ((const double*)from[l])[at])
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < columns; j++)
      for (int part = 0; part < WX_PARTS; part++) {
        const long at = (i * columns + j) * WX_PARTS + part;
        wx_real* target = (wx_real*)(to + (transpose ? j * rows + i : i * columns + j)) + part;
#if WX_LANES == 8
        *target =
            (wx_real){WX_FROM(0), WX_FROM(1), WX_FROM(2), WX_FROM(3), WX_FROM(4), WX_FROM(5), WX_FROM(6), WX_FROM(7)};
#elif WX_LANES == 4
        *target = (wx_real){WX_FROM(0), WX_FROM(1), WX_FROM(2), WX_FROM(3)};
#elif WX_LANES == 2
        *target = (wx_real){WX_FROM(0), WX_FROM(1)};
#else
        *target = WX_FROM(0);
#endif
      }
#undef WX_FROM
}

static void wx_load(int dtype, const char* first, long bytes, long count, long rows, long columns, int transpose,
                    wx_num* to) {
  const char* from[WX_LANES];
  for (long l = 0; l < WX_LANES; l++) from[l] = first + (l < count ? l : count - 1) * bytes;
  if (wl_is_single(dtype) && transpose) wx_load_as(1, from, rows, columns, 1, to);
  else if (wl_is_single(dtype)) wx_load_as(1, from, rows, columns, 0, to);
  else if (transpose) wx_load_as(0, from, rows, columns, 1, to);
  else wx_load_as(0, from, rows, columns, 0, to);
}

typedef struct {
  const wx_num* from;
  wx_mask bad; /* these lanes become NaN */
  const long*
      rows;      /* row i is read from row rows[i], if given: each lane has an order of its own, one after the other */
  long order;    /* the length of such an order */
  int transpose; /* "from" holds the transposed matrix; "rows" then orders the columns of the result */
  int conjugate;
} wx_source;

static inline __attribute__((always_inline)) void wx_store_as(const int single, const int ordered, char* to, long bytes,
                                                              long count, long rows, long columns, wx_source source) {
  const int turned = source.transpose;
  const double sign = source.conjugate ? -1 : 1;
  if (ordered) {
    for (long l = 0; l < count; l++) {
      const long* order = source.rows + l * source.order;
      const double nan = ((const int64_t*)&source.bad)[l] ? NAN : 0;
      for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) {
          const double* x = wx_at(source.from, turned ? order[j] * rows + i : order[i] * columns + j, 0, l);
          for (int part = 0; part < WX_PARTS; part++) {
            const double value = nan + (part == 1 ? sign : 1) * x[part * WX_LANES];
            const long at = (i * columns + j) * WX_PARTS + part;
            if (single) ((float*)(to + l * bytes))[at] = (float)value;
            else ((double*)(to + l * bytes))[at] = value;
          }
        }
    }
    return;
  }
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < columns; j++)
      for (int part = 0; part < WX_PARTS; part++) {
        const wx_real x = ((const wx_real*)(source.from + (turned ? j * rows + i : i * columns + j)))[part];
        const wx_real value = wx_pick(source.bad, wx_splat(NAN), (part == 1 ? sign : 1.0) * x);
        const long at = (i * columns + j) * WX_PARTS + part;
        for (long l = 0; l < count; l++) {
          const double one = ((const double*)&value)[l];
          if (single) ((float*)(to + l * bytes))[at] = (float)one;
          else ((double*)(to + l * bytes))[at] = one;
        }
      }
}

static void wx_store(int dtype, char* to, long bytes, long count, long rows, long columns, wx_source source) {
  const int single = wl_is_single(dtype), ordered = source.rows != 0;
  /* The common case of full vectors has a constant count, so that the compiler unrolls over the lanes. */
  if (single && ordered) wx_store_as(1, 1, to, bytes, count, rows, columns, source);
  else if (ordered) wx_store_as(0, 1, to, bytes, count, rows, columns, source);
  else if (single && count == WX_LANES) wx_store_as(1, 0, to, bytes, WX_LANES, rows, columns, source);
  else if (single) wx_store_as(1, 0, to, bytes, count, rows, columns, source);
  else if (count == WX_LANES) wx_store_as(0, 0, to, bytes, WX_LANES, rows, columns, source);
  else wx_store_as(0, 0, to, bytes, count, rows, columns, source);
}

/* The indices that sort one lane's values in ascending or descending order; the sort is stable. */
static void wx_sort(long n, const wx_num* values, long lane, int descending, long* order) {
  for (long i = 0; i < n; i++) {
    const double x = *wx_at(values, i, 0, lane);
    long at = i;
    for (; at > 0; at--) {
      const double before = *wx_at(values, order[at - 1], 0, lane);
      if (descending ? before >= x : before <= x) break;
      order[at] = order[at - 1];
    }
    order[at] = i;
  }
}

/* The real parts of n numbers in each lane's order, into a vector of the real dtype. */
static void wx_store_values(const wl_job* job, int out, long first, long count, long n, const wx_num* from, wx_mask bad,
                            const long* order) {
  for (long l = 0; l < count; l++) {
    char* vector = job->out[out] + (first + l) * job->out_bytes[out];
    for (long i = 0; i < n; i++) {
      const double x = ((const int64_t*)&bad)[l] ? NAN : *wx_at(from, order[l * n + i], 0, l);
      if (wl_is_single(job->dtype)) ((float*)vector)[i] = (float)x;
      else ((double*)vector)[i] = x;
    }
  }
}
