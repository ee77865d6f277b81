// Complex arithmetic of the C and the CUDA dialect: two parts in, two parts out. Special values are those
// of NumPy (and of C, annex G, where NumPy has none of its own); nothing overflows or vanishes before the result does, because
// operands are first brought to a middle size by a power of two, which is exact.
#pragma once

#define W_BIG_f 0x1p60f
#define W_TINY_f 0x1p-60f
#define W_UP_f 0x1p90f
#define W_DOWN_f 0x1p-90f
#define W_BIG_d 0x1p500
#define W_TINY_d 0x1p-500
#define W_UP_d 0x1p600
#define W_DOWN_d 0x1p-600
/* From here on exp may be out of range, and exp of half the argument is not. */
#define W_LARGE_f 80
#define W_LARGE_d 700
/* exp(W_LARGE) */
#define W_EXP_LARGE_f 5.5406224e34f
#define W_EXP_LARGE_d 1.0142320547350045e304
/* The logarithms of W_UP. */
#define W_LOG_UP_f 62.383246250f
#define W_LOG_UP_d 415.88830833596718

#define W_COMPLEX_BASE(s, T, F)                                                                                             \
  /* A power of two that brings x to a middle size. */                                                                      \
  W_INLINE T w_scale_##s(T x) { return x > W_BIG_##s ? W_DOWN_##s : x < W_TINY_##s ? W_UP_##s : (T)1; }                     \
  W_INLINE T w_larger_##s(T a, T b) {                                                                                       \
    a = fabs##F(a);                                                                                                         \
    b = fabs##F(b);                                                                                                         \
    return a > b ? a : b;                                                                                                   \
  }                                                                                                                         \
  W_INLINE T w_hypot_##s(T a, T b) {                                                                                        \
    T k = w_scale_##s(w_larger_##s(a, b)), x = a * k, y = b * k, h = sqrt##F(x * x + y * y)                                 \
    / k;                                                                                                                    \
    return fabs##F(a)                                                                                                       \
    == w_inf_##s() || fabs##F(b)                                                                                            \
    == w_inf_##s() ? w_inf_##s() : h;                                                                                       \
  }                                                                                                                         \
  W_INLINE int w_finite_##s(T a, T b) { return (fabs##F(a) < w_inf_##s()) & (fabs##F(b) < w_inf_##s()); }                   \
  /* One for an infinite part, zero for a finite one, with its sign. */                                                     \
  W_INLINE T w_infinite_##s(T x) { return copysign##F(fabs##F(x) == w_inf_##s() ? (T)1 : (T)0, x); }                        \
  /* Quotients whose plain formula is NaN: by zero, by infinity, of infinity. Without branches, so that loops vectorize. */ \
  W_INLINE void w_cdiv_rest_##s(T a, T b, T c, T d, T* re, T* im) {                                                         \
    const T cx = w_infinite_##s(c), dx = w_infinite_##s(d), ax = w_infinite_##s(a), bx = w_infinite_##s(b);                 \
    const int by_zero = (c == 0) & (d == 0), by_infinity = w_finite_##s(a, b) & ((cx != 0) | (dx != 0));                    \
    const int of_infinity = w_finite_##s(c, d) & ((ax != 0) | (bx != 0));                                                   \
    const T zero = 0, inf = w_inf_##s(), nan = w_nan_##s();                                                                 \
    const T x = of_infinity ? inf * (ax * c + bx * d) : nan, y = of_infinity ? inf * (bx * c - ax * d) : nan;               \
    const T v = by_infinity ? zero * (a * cx + b * dx) : x, w = by_infinity ? zero * (b * cx - a * dx) : y;                 \
    *re = by_zero ? a * inf : v;                                                                                            \
    *im = by_zero ? b * inf : w;                                                                                            \
  }                                                                                                                         \
  W_INLINE void w_cdiv_##s(T a, T b, T c, T d, T* re, T* im) {                                                              \
    T s_ = w_scale_##s(w_larger_##s(c, d)), t = w_scale_##s(w_larger_##s(a, b));                                            \
    T p = a * t, q = b * t, u = c * s_, v = d * s_, n = u * u + v * v, back = (T)1 / t;                                     \
    T x = (p * u + q * v) / n, y = (q * u - p * v) / n;                                                                     \
    /* Scales in one direction are undone one after the other, those in two at once: neither leaves the range early. */     \
    const T g = s_ == back ? x * s_ * back : x * (s_ * back), h = s_ == back ? y * s_ * back : y * (s_ * back);             \
    const int none = (x != x) & (y != y);                                                                                   \
    T v_ = g, w_ = h;                                                                                                       \
    if (W_SELDOM(none)) w_cdiv_rest_##s(a, b, c, d, &v_, &w_);                                                              \
    *re = none ? v_ : g;                                                                                                    \
    *im = none ? w_ : h;                                                                                                    \
  }                                                                                                                         \
  W_INLINE void w_creciprocal_##s(T a, T b, T* re, T* im) { w_cdiv_##s((T)1, (T)0, a, b, re, im); }                         \
  W_INLINE void w_csign_##s(T a, T b, T* re, T* im) {                                                                       \
    if (fabs##F(a) == w_inf_##s() || fabs##F(b) == w_inf_##s()) {                                                           \
      a = copysign##F(fabs##F(a) == w_inf_##s() ? (T)1 : (T)0, a);                                                          \
      b = copysign##F(fabs##F(b) == w_inf_##s() ? (T)1 : (T)0, b);                                                          \
    }                                                                                                                       \
    T k = w_scale_##s(w_larger_##s(a, b)), x = a * k, y = b * k, h = sqrt##F(x * x + y * y);                                \
    *re = h == 0 ? 0 : x / h;                                                                                               \
    *im = h == 0 ? 0 : y / h;                                                                                               \
  }                                                                                                                         \
  W_INLINE void w_cmul_##s(T a, T b, T c, T d, T* re, T* im) {                                                              \
    T x = a * c - b * d;                                                                                                    \
    *im = a * d + b * c;                                                                                                    \
    *re = x;                                                                                                                \
  }
W_COMPLEX_BASE(f, float, f)
W_COMPLEX_BASE(d, double, )
