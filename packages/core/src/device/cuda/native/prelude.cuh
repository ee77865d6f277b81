// The CUDA C that every generated program starts with: the same function names as the C prelude, and the exchanges by
// which threads join partial results (always in the same order, so results are deterministic). No headers: NVRTC
// compiles it on machines that have only a driver and the NVRTC library.
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807LL
#define INT64_MIN (-INT64_MAX - 1)
#define INT64_C(x) x##LL
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ULL
#define UINT64_C(x) x##ULL
#else
#include <stdint.h>
#endif
#define W_INLINE static __device__ __forceinline__
/* What the compiler may rely on. */
#ifdef W_EMULATED
#define W_ASSUME(test)
#else
#define W_ASSUME(test) __builtin_assume(test)
#endif
/* A test that most threads fail. */
#define W_SELDOM(test) (test)
#ifdef W_MANY_CALLS
#define W_CALL static __device__ __noinline__
#else
#define W_CALL W_INLINE
#endif
template <class T> struct alignas(2 * sizeof(T)) w_pair {
  T x, y;
};
template <class T> struct alignas(4 * sizeof(T)) w_quad {
  T x, y, z, w;
};

/* N neighbors at once, by the widest accesses that their size allows; both sides begin at a multiple of 16 bytes or of their size. */
template <int N, class T> W_INLINE void w_load(T* to, const T* from) {
  const int bytes = N * (int)sizeof(T);
#pragma unroll
  for (int i = 0; i < bytes / 16; i++) ((uint4*)to)[i] = ((const uint4*)from)[i];
  if (bytes % 16 == 8) ((uint2*)to)[bytes / 16 * 2] = ((const uint2*)from)[bytes / 16 * 2];
  if (bytes % 8 == 4) ((uint32_t*)to)[bytes / 8 * 2] = ((const uint32_t*)from)[bytes / 8 * 2];
  if (bytes % 4 != 0)
    for (int i = 0; i < N; i++) to[i] = from[i];
}
template <int N, class T> W_INLINE void w_store(T* to, const T* from) { w_load<N, T>(to, from); }

W_INLINE float w_nan_f() { return __int_as_float(0x7fc00000); }
W_INLINE double w_nan_d() { return __longlong_as_double(0x7ff8000000000000LL); }
W_INLINE float w_inf_f() { return __int_as_float(0x7f800000); }
W_INLINE double w_inf_d() { return __longlong_as_double(0x7ff0000000000000LL); }

#define W_SELECT(s, T)                                                                                                 \
  W_INLINE T w_select_##s(int test, T a, T b) { return test ? a : b; }
W_SELECT(f, float)
W_SELECT(d, double)
W_SELECT(i, int32_t)
W_SELECT(l, int64_t)
W_SELECT(u, uint32_t)
W_SELECT(q, uint64_t)
W_INLINE float w_bits_to_f(uint32_t u) { return __uint_as_float(u); }
W_INLINE uint32_t w_f_to_bits(float f) { return __float_as_uint(f); }
W_INLINE double w_bits_to_d(uint64_t u) { return __longlong_as_double((long long)u); }
W_INLINE uint64_t w_d_to_bits(double d) { return (uint64_t)__double_as_longlong(d); }

/* The compiler must not assume what N words in registers hold from here on. */
template <int N> W_INLINE void w_pin(void* words) {
#ifndef W_EMULATED
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(((uint32_t*)words)[i]));
#endif
}
/* The start of a kernel: the next one may be put on the multiprocessors now, and this one waits until the one before has ended.
   Nothing but prefetches may come before. */
#if !defined(W_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
W_INLINE void w_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
W_INLINE void w_prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
#else
W_INLINE void w_begin() {}
W_INLINE void w_prefetch(const void*) {}
#endif
/* Shared memory whose size the launch sets. */
#ifdef W_EMULATED
#define W_DYNAMIC_SHARED(name) char* name = w_dynamic_shared
#else
#define W_DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]
#endif

typedef uint16_t w_half;
#ifdef W_EMULATED
W_INLINE float w_from_half(w_half h) {
  _Float16 x;
  memcpy(&x, &h, 2);
  return (float)x;
}
W_INLINE w_half w_to_half(float f) {
  _Float16 x = (_Float16)f;
  w_half h;
  memcpy(&h, &x, 2);
  return h;
}
#else
W_INLINE float w_from_half(w_half h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
W_INLINE w_half w_to_half(float f) {
  w_half h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
#endif
typedef uint16_t w_bfloat;
W_INLINE float w_from_bfloat(w_bfloat b) { return __uint_as_float((uint32_t)b << 16); }
#if !defined(W_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
W_INLINE w_bfloat w_to_bfloat(float f) {
  w_bfloat b;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(f));
  return b;
}
#else
W_INLINE w_bfloat w_to_bfloat(float f) {
  uint32_t u = __float_as_uint(f);
  if ((u & 0x7fffffff) > 0x7f800000) return (w_bfloat)((u >> 16) | 0x40);
  return (w_bfloat)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
#endif
W_INLINE float w_round_half(float f) { return w_from_half(w_to_half(f)); }
W_INLINE float w_round_bfloat(float f) { return w_from_bfloat(w_to_bfloat(f)); }

#if !defined(W_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
/* One instruction instead of three comparisons: NaN propagates, and -0 is below 0. */
#define W_EXTREMA_f
W_INLINE float w_max_f(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
W_INLINE float w_min_f(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#endif
#include "../../native/scalar.h"

#define W_LIBM(how, name)                                                                                              \
  how float w_##name##_f(float x) { return name##f(x); }                                                               \
  how double w_##name##_d(double x) { return name(x); }
W_CALL float w_pow_f(float x, float y) { return powf(x, y); }
W_CALL double w_pow_d(double x, double y) { return pow(x, y); }
W_LIBM(W_CALL, exp)
W_LIBM(W_CALL, log)
W_LIBM(W_CALL, tanh)
W_LIBM(W_CALL, erf)
W_LIBM(W_CALL, erfc)
/* erfc for results of 16 bits, with the polynomial of the CPU (cpu/native/prelude.h) and a faster exponential. */
#ifdef W_EMULATED
W_INLINE float w_quick_exp(float x) { return expf(x); }
W_INLINE float w_quick_inverse(float x) { return 1.0f / x; }
#else
W_INLINE float w_quick_exp(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896f));
  return y;
}
W_INLINE float w_quick_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif
W_INLINE float w_exp_h(float x) { return expf(x); }
W_INLINE float w_erfc_h(float x) {
  float a = fminf(fabsf(x), 11.0f), t = w_quick_inverse(fmaf(0.5f, a, 1.0f));
  float q = fmaf(3.260208625464e-02f, t, -1.728468720981e-01f);
  q = fmaf(q, t, 3.357754535154e-01f);
  q = fmaf(q, t, -2.238751933296e-01f);
  q = fmaf(q, t, -8.189862275228e-02f);
  q = fmaf(q, t, 7.148567594126e-02f);
  q = fmaf(q, t, 4.040488966243e-02f);
  q = fmaf(q, t, 1.894045338594e-01f);
  q = fmaf(q, t, 2.445509712887e-01f);
  q = fmaf(q, t, 2.823108925943e-01f);
  q = fmaf(q, t, 2.820861871236e-01f);
  float r = q * t * w_quick_exp(-a * a);
  return x != x ? x : x < 0.0f ? 2.0f - r : r;
}
W_LIBM(W_CALL, expm1)
W_LIBM(W_CALL, log1p)
W_LIBM(W_CALL, sin)
W_LIBM(W_CALL, cos)
W_LIBM(W_CALL, tan)
W_LIBM(W_CALL, asin)
W_LIBM(W_CALL, acos)
W_LIBM(W_CALL, atan)
W_LIBM(W_CALL, sinh)
W_LIBM(W_CALL, cosh)
W_LIBM(W_CALL, asinh)
W_LIBM(W_CALL, acosh)
W_LIBM(W_CALL, atanh)
W_LIBM(W_INLINE, sqrt)
W_LIBM(W_INLINE, floor)
W_LIBM(W_INLINE, ceil)
W_LIBM(W_INLINE, trunc)

#include "../../native/complex-base.h"
