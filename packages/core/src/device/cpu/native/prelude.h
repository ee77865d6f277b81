// The C that every generated kernel starts with: types, conversions, and the scalar functions that compile/scalar.ts
// calls. Single-precision functions are plain arithmetic, so that the compiler vectorizes them inside loops; the
// polynomial coefficients are Chebyshev interpolants (errors below 2e-9 before rounding).
#pragma once

#include <stdint.h>
#include <stddef.h>

/* The functions of the C library that kernels call. Reading its headers takes compilers longer than a small kernel. */
#define W_DECLARE(name)                                                                                                \
  double name(double);                                                                                                 \
  float name##f(float);
#define W_DECLARE2(name)                                                                                               \
  double name(double, double);                                                                                         \
  float name##f(float, float);
W_DECLARE(fabs)
W_DECLARE(rint)
W_DECLARE(sqrt)
W_DECLARE(floor)
W_DECLARE(ceil)
W_DECLARE(trunc)
W_DECLARE(exp)
W_DECLARE(expm1)
W_DECLARE(log)
W_DECLARE(log1p)
W_DECLARE(sin)
W_DECLARE(cos)
W_DECLARE(tan)
W_DECLARE(asin)
W_DECLARE(acos)
W_DECLARE(atan)
W_DECLARE(sinh)
W_DECLARE(cosh)
W_DECLARE(tanh)
W_DECLARE(asinh)
W_DECLARE(acosh)
W_DECLARE(atanh)
W_DECLARE(erf)
W_DECLARE(erfc)
W_DECLARE2(copysign)
W_DECLARE2(nextafter)
W_DECLARE2(atan2)
W_DECLARE2(fmod)
W_DECLARE2(pow)
double fma(double, double, double);
float fmaf(float, float, float);
void* memcpy(void*, const void*, size_t);
void* memset(void*, int, size_t);

#define W_INLINE static inline __attribute__((always_inline, unused))

W_INLINE float w_nan_f(void) { return __builtin_nanf(""); }
W_INLINE double w_nan_d(void) { return __builtin_nan(""); }
W_INLINE float w_inf_f(void) { return __builtin_inff(); }
W_INLINE double w_inf_d(void) { return __builtin_inf(); }
W_INLINE float w_bits_to_f(uint32_t u) {
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
W_INLINE uint32_t w_f_to_bits(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return u;
}
W_INLINE double w_bits_to_d(uint64_t u) {
  double d;
  __builtin_memcpy(&d, &u, 8);
  return d;
}
W_INLINE uint64_t w_d_to_bits(double d) {
  uint64_t u;
  __builtin_memcpy(&u, &d, 8);
  return u;
}

/* Selects without a branch: compilers do not move the loads before them into one */
#define W_SELECT(s, T, U)                                                                                              \
  W_INLINE T w_select_##s(int test, T a, T b) {                                                                        \
    U x, y, mask = -(U)(test != 0);                                                                                    \
    __builtin_memcpy(&x, &a, sizeof(T));                                                                               \
    __builtin_memcpy(&y, &b, sizeof(T));                                                                               \
    x = (x & mask) | (y & ~mask);                                                                                      \
    T r;                                                                                                               \
    __builtin_memcpy(&r, &x, sizeof(T));                                                                               \
    return r;                                                                                                          \
  }
W_SELECT(f, float, uint32_t)
W_SELECT(d, double, uint64_t)
W_SELECT(i, int32_t, uint32_t)
W_SELECT(l, int64_t, uint64_t)
W_SELECT(u, uint32_t, uint32_t)
W_SELECT(q, uint64_t, uint64_t)

/* Half types. Compilers convert several numbers at a time only where the processor computes with half types, or by plain
   arithmetic on their bits. */
#if defined(__FLT16_MANT_DIG__) && (defined(__AVX512FP16__) || !defined(__x86_64__))
typedef _Float16 w_half;
W_INLINE float w_from_half(w_half h) { return (float)h; }
W_INLINE w_half w_to_half(float f) { return (w_half)f; }
#define w_half_of w_to_half
#else
typedef uint16_t w_half;
W_INLINE float w_from_half(w_half h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
  float magnitude = w_bits_to_f((rest << 13) + 0x38000000u);
  magnitude = rest >= 0x7c00 ? w_bits_to_f((rest << 13) + 0x70000000u) : magnitude;
  magnitude = rest < 0x0400 ? (float)(int32_t)rest * 5.9604644775390625e-8f : magnitude;
  return w_bits_to_f(w_f_to_bits(magnitude) | sign);
}
/* Small numbers are rounded by adding a number whose last bit is that of the smallest half. */
W_INLINE w_half w_to_half(float f) {
  uint32_t u = w_f_to_bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
  uint32_t normal = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13;
  uint32_t small = w_f_to_bits(w_bits_to_f(a) + 0.5f) - 0x3f000000u;
  uint32_t finite = a < 0x38800000 ? small : a >= 0x477ff000 ? 0x7c00u : normal;
  return (w_half)(sign | (a > 0x7f800000 ? 0x7e00u : finite));
}
/* The half that a float is already. */
W_INLINE w_half w_half_of(float f) {
  uint32_t u = w_f_to_bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
  uint32_t normal = (a - 0x38000000) >> 13, small = w_f_to_bits(w_bits_to_f(a) + 0.5f) - 0x3f000000u;
  return (w_half)(sign | (a < 0x38800000 ? small : a >= 0x7f800000 ? (a - 0x70000000) >> 13 : normal));
}
#endif
typedef uint16_t w_bfloat;
W_INLINE float w_from_bfloat(w_bfloat b) { return w_bits_to_f((uint32_t)b << 16); }
/* Rounded to the upper 16 bits, which are the bfloat: ties to even. */
W_INLINE uint32_t w_bfloat_bits(float f) {
  uint32_t u = w_f_to_bits(f), rounded = u + 0x7fff + ((u >> 16) & 1);
  return f != f ? u | 0x400000 : rounded;
}
W_INLINE w_bfloat w_to_bfloat(float f) { return (w_bfloat)(w_bfloat_bits(f) >> 16); }
/* The bfloat that a float is already. */
W_INLINE w_bfloat w_bfloat_of(float f) { return (w_bfloat)(w_f_to_bits(f) >> 16); }
W_INLINE float w_round_half(float f) { return w_from_half(w_to_half(f)); }
W_INLINE float w_round_bfloat(float f) { return w_bits_to_f(w_bfloat_bits(f) & 0xffff0000u); }

/* Functions with vector forms in vector-math.c; elsewhere they are the C library's, one element at a time. */
#ifdef W_VECTOR_MATH
#define W_SIMD __attribute__((simd("notinbranch"), const, nothrow, visibility("hidden")))
/* Names are put together: the text of a program that has one calls the function. */
#define W_VECTOR_PAIR(name, s, T) extern W_SIMD T w_##name##_##s(T x, T y);
W_VECTOR_PAIR(fmod, f, float)
W_VECTOR_PAIR(atan2, f, float)
W_VECTOR_PAIR(atan2, d, double)
W_VECTOR_PAIR(pow, f, float)
W_VECTOR_PAIR(pow, d, double)
#define W_FMOD_f w_fmod_f
#endif
#define W_CALL W_INLINE
#include "../../native/scalar.h"

/* Single precision, vectorizable. Ends are selected without branches: compilers would follow each through the rest of a function. */
W_INLINE float w_exp_f(float x) {
  /* Beyond these ends lie infinity and zero; NaN passes both comparisons. */
  int none = x < -104.0f;
  x = w_select_f(x > 89.0f, 89.0f, x);
  x = w_select_f(none, -104.0f, x);
  /* Adding 1.5 * 2^23 rounds to an integer, which the low bits then hold. */
  float rounded = x * 1.44269504f + 12582912.0f, n = rounded - 12582912.0f;
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.394114660e-3f;
  p = p * r + 8.375156955e-3f;
  p = p * r + 4.166635244e-2f;
  p = p * r + 1.666641515e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  /* A product that underflows takes processors a hundred cycles: masked scores, whose exponential is zero, must not. */
  p = w_select_f(none, 0.0f, p);
  /* The power of two in two factors: the first product is exact, the second rounds once, also to denormals. */
  uint32_t e = w_f_to_bits(rounded), half = e >> 1;
  return p * w_bits_to_f((half << 23) + 0x3f800000u) * w_bits_to_f(((e - half) << 23) + 0x3f800000u);
}
W_INLINE float w_log_f(float x) {
  float tiny = x < 1.17549435e-38f ? x * 8388608.0f : x;
  int32_t bits = (int32_t)w_f_to_bits(tiny);
  int32_t e = (bits - 0x3f3504f3) >> 23;
  float f = w_bits_to_f((uint32_t)(bits - (e << 23))) - 1.0f;
  float k = (float)e - (x < 1.17549435e-38f ? 23.0f : 0.0f);
  float p = -0.062028809284f;
  p = p * f + 0.105326456624f;
  p = p * f - 0.106465612900f;
  p = p * f + 0.110375591908f;
  p = p * f - 0.124506750030f;
  p = p * f + 0.142865323895f;
  p = p * f - 0.166680043401f;
  p = p * f + 0.200000099721f;
  p = p * f - 0.249999902482f;
  p = p * f + 0.333333332812f;
  float ff = f * f;
  float y = p * f * ff - k * 2.12194440e-4f - 0.5f * ff + f + k * 0.693359375f;
  y = x == w_inf_f() ? x : y;
  y = x == 0.0f ? -w_inf_f() : y;
  return x >= 0.0f ? y : w_nan_f();
}
W_INLINE float w_tanh_f(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float p = 0.00210229487f;
  p = p * s - 0.00813043142f;
  p = p * s + 0.0216801334f;
  p = p * s - 0.0539425207f;
  p = p * s + 0.133331646f;
  p = p * s - 0.333333292f;
  p = p * s + 1.0f;
  float big = 1.0f - 2.0f / (w_exp_f(a + a) + 1.0f);
  float r = a < 0.625f ? x * p : __builtin_copysignf(big, x);
  return x == x ? r : x;
}
W_INLINE float w_erf_f(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float p = -9.667044294739e-06f;
  p = p * s + 1.126595892453e-04f;
  p = p * s - 8.484080390905e-04f;
  p = p * s + 5.221031806797e-03f;
  p = p * s - 2.686543072727e-02f;
  p = p * s + 1.128378249523e-01f;
  p = p * s - 3.761263846803e-01f;
  p = p * s + 1.128379167061f;
  float t = 1.0f / (1.0f + 0.5f * a);
  float q = 0.119894503887f;
  q = q * t - 0.473083067505f;
  q = q * t + 0.566008220607f;
  q = q * t - 0.105786556003f;
  q = q * t + 0.348818721620f;
  q = q * t + 0.259408957297f;
  q = q * t + 0.284954020807f;
  q = q * t - 1.5676374058798e-04f;
  float big = 1.0f - q * w_exp_f(-s);
  float r = a < 1.0f ? x * p : __builtin_copysignf(a > 4.2f ? 1.0f : big, x);
  return x == x ? r : x;
}
/* 1 - erf: a polynomial of t = 1 / (1 + |x| / 2) times exp(-x^2), where what rounding took from x^2 is put back. */
W_INLINE float w_erfc_f(float x) {
  float a = __builtin_fabsf(x);
  a = a > 11.0f ? 11.0f : a;
  float t = 1.0f / (1.0f + 0.5f * a);
  float q = 3.260208625464e-02f;
  q = q * t - 1.728468720981e-01f;
  q = q * t + 3.357754535154e-01f;
  q = q * t - 2.238751933296e-01f;
  q = q * t - 8.189862275228e-02f;
  q = q * t + 7.148567594126e-02f;
  q = q * t + 4.040488966243e-02f;
  q = q * t + 1.894045338594e-01f;
  q = q * t + 2.445509712887e-01f;
  q = q * t + 2.823108925943e-01f;
  q = q * t + 2.820861871236e-01f;
  float s = a * a;
  float rest = (float)((double)a * (double)a - (double)s);
  /* The two halves of the exponential keep a result below the normal range from being rounded twice. */
  float h = w_exp_f(-0.5f * s);
  float r = q * t * (1.0f - rest) * h * h;
  return x < 0.0f ? 2.0f - r : r;
}
/* For results of half types: shorter polynomials, and what rounding takes from x^2 does not show there. Results below the normal range of
   floats are zero, so that the power of two is added to the exponent: adding 1.5 * 2^23 leaves it in the low bits. */
W_INLINE float w_erfc_h(float x) {
  float a = __builtin_fabsf(x), t = 1.0f / (1.0f + 0.5f * a);
  float q = -5.457439274e-02f;
  q = q * t - 1.983319968e-02f;
  q = q * t + 3.158149421e-01f;
  q = q * t + 1.823582649e-01f;
  q = q * t + 2.950648665e-01f;
  q = q * t + 2.811456323e-01f;
  float s = a * a, n = s * -1.44269504f + 12582912.0f, r = s + (n - 12582912.0f) * 0.693147182f;
  float p = 4.145443439e-02f;
  p = p * r - 1.679338664e-01f;
  p = p * r + 5.000453591e-01f;
  p = p * r - 9.999619126e-01f;
  p = p * r + 9.999992251e-01f;
  float y = w_bits_to_f(w_f_to_bits(p) + (w_f_to_bits(n) << 23)) * (q * t);
  y = w_select_f(a > 9.2f, 0.0f, y);
  return x < 0.0f ? 2.0f - y : y;
}
/* For results of half types, to 2e-7: results below the normal range of floats are zero, as in w_erfc_h. */
W_INLINE float w_exp_h(float x) {
  float n = x * 1.44269504f + 12582912.0f, r = x - (n - 12582912.0f) * 0.693147182f;
  float p = 8.312287740e-03f;
  p = p * r + 4.189230129e-02f;
  p = p * r + 1.666712314e-01f;
  p = p * r + 4.999921620e-01f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  float y = w_bits_to_f(w_f_to_bits(p) + (w_f_to_bits(n) << 23));
  y = w_select_f(x < -87.0f, 0.0f, y);
  y = w_select_f(x > 88.72283f, w_inf_f(), y);
  return w_select_f(x != x, x, y);
}
W_INLINE float w_expm1_f(float x) {
  float v = w_select_f(x > 89.0f, 89.0f, x);
  v = w_select_f(v < -30.0f, -30.0f, v);
  float n = __builtin_rintf(v * 1.44269504f);
  float r = v - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.98919813e-4f;
  p = p * r + 1.39345419e-3f;
  p = p * r + 8.33331002e-3f;
  p = p * r + 4.16664568e-2f;
  p = p * r + 0.166666667f;
  p = p * r + 0.5f;
  float less = r * r * p + r; /* e^r - 1 */
  int32_t e = (int32_t)n, half = e >> 1;
  float back = e > 100 ? 0.0f : w_bits_to_f((uint32_t)(127 - e) << 23); /* 2^-n */
  float y = (less + (1.0f - back)) * w_bits_to_f((uint32_t)(half + 127) << 23) *
            w_bits_to_f((uint32_t)(e - half + 127) << 23);
  return n == 0.0f ? (x == 0.0f ? x : less) : y;
}
/* What rounding took from 1 + x is put back. */
W_INLINE float w_log1p_f(float x) {
  float u = 1.0f + x;
  float lost = (x - (u - 1.0f)) / u;
  lost = u == 0.0f || u == w_inf_f() ? 0.0f : lost;
  return x == 0.0f ? x : w_log_f(u) + lost;
}
/* Reduced to |z| <= tan(pi / 8). */
W_INLINE float w_atan_f(float x) {
  float a = __builtin_fabsf(x);
  float small = a > 1.0f ? 1.0f : a, large = a > 1.0f ? a : 1.0f;
  int half = small > 0.414213562f * large;
  float z = (half ? small - large : small) / (half ? small + large : large), s = z * z;
  float p = -6.41023855e-2f;
  p = p * s + 0.107310265f;
  p = p * s - 0.142627683f;
  p = p * s + 0.199995059f;
  p = p * s - 0.333333316f;
  float y = (half ? 0.785398163f : 0.0f) + (z * s * p + z);
  y = a > 1.0f ? 1.57079633f - (y + 4.37113883e-8f) : y;
  y = a == w_inf_f() ? 1.57079633f : y;
  return x == x ? __builtin_copysignf(y, x) : x;
}

#define W_LIBM(name)                                                                                                   \
  W_INLINE float w_##name##_f(float x) { return name##f(x); }                                                          \
  W_INLINE double w_##name##_d(double x) { return name(x); }
W_LIBM(sqrt)
W_LIBM(floor)
W_LIBM(ceil)
W_LIBM(trunc)

#ifdef W_VECTOR_MATH
#define W_VECTOR_D(name) extern W_SIMD double w_##name##_d(double x);
#define W_VECTOR(name)                                                                                                 \
  W_VECTOR_D(name)                                                                                                     \
  extern W_SIMD float w_##name##_f(float x);
#else
#define W_VECTOR_D(name)                                                                                               \
  W_INLINE double w_##name##_d(double x) { return name(x); }
#define W_VECTOR(name) W_LIBM(name)
#define W_LIBM_2(name)                                                                                                 \
  W_INLINE float w_##name##_f(float x, float y) { return name##f(x, y); }                                              \
  W_INLINE double w_##name##_d(double x, double y) { return name(x, y); }
W_LIBM_2(pow)
#endif
W_VECTOR_D(exp)
W_VECTOR_D(log)
W_VECTOR_D(tanh)
W_VECTOR_D(expm1)
W_VECTOR_D(log1p)
W_VECTOR_D(erf)
W_VECTOR_D(erfc)
W_VECTOR(sin)
W_VECTOR(cos)
W_VECTOR(tan)
W_VECTOR(asin)
W_VECTOR(acos)
W_VECTOR_D(atan)
W_VECTOR(sinh)
W_VECTOR(cosh)
W_VECTOR(asinh)
W_VECTOR(acosh)
W_VECTOR(atanh)
/* Large functions that call the library are not written out at every place. */
#undef W_CALL
#define W_CALL static __attribute__((noinline, unused))
