// The CUDA C that every generated program starts with: the same function names as the C prelude, and the exchanges by
// which threads join partial results (always in the same order, so results are deterministic). No headers: NVRTC
// compiles it on machines that have only a driver and the NVRTC library.
import { transcendentalFns } from "../../../cost/index.js";
import { complexSource, normalFunctions, scalarFunctions, threefryRounds } from "../../common-source.js";

export const cudaPrelude = String.raw`
#ifdef __CUDACC_RTC__
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long long int64_t; typedef unsigned long long uint64_t;
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
#ifdef W_MANY_CALLS
#define W_CALL static __device__ __noinline__
#else
#define W_CALL W_INLINE
#endif
template <class T> struct alignas(2 * sizeof(T)) w_pair { T x, y; };
template <class T> struct alignas(4 * sizeof(T)) w_quad { T x, y, z, w; };

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

#define W_SELECT(s, T) W_INLINE T w_select_##s(int test, T a, T b) { return test ? a : b; }
W_SELECT(f, float) W_SELECT(d, double) W_SELECT(i, int32_t) W_SELECT(l, int64_t)
W_SELECT(u, uint32_t) W_SELECT(q, uint64_t)
W_INLINE float w_bits_to_f(uint32_t u) { return __uint_as_float(u); }
W_INLINE uint32_t w_f_to_bits(float f) { return __float_as_uint(f); }
W_INLINE double w_bits_to_d(uint64_t u) { return __longlong_as_double((long long)u); }
W_INLINE uint64_t w_d_to_bits(double d) { return (uint64_t)__double_as_longlong(d); }

typedef uint16_t w_half;
#ifdef W_EMULATED
W_INLINE float w_from_half(w_half h) { _Float16 x; memcpy(&x, &h, 2); return (float)x; }
W_INLINE w_half w_to_half(float f) { _Float16 x = (_Float16)f; w_half h; memcpy(&h, &x, 2); return h; }
#else
W_INLINE float w_from_half(w_half h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
W_INLINE w_half w_to_half(float f) { w_half h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
#endif
typedef uint16_t w_bfloat;
W_INLINE float w_from_bfloat(w_bfloat b) { return __uint_as_float((uint32_t)b << 16); }
#if !defined(W_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
W_INLINE w_bfloat w_to_bfloat(float f) { w_bfloat b; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(f)); return b; }
#else
W_INLINE w_bfloat w_to_bfloat(float f) {
  uint32_t u = __float_as_uint(f);
  if ((u & 0x7fffffff) > 0x7f800000) return (w_bfloat)((u >> 16) | 0x40);
  return (w_bfloat)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
#endif
W_INLINE float w_round_half(float f) { return w_from_half(w_to_half(f)); }
W_INLINE float w_round_bfloat(float f) { return w_from_bfloat(w_to_bfloat(f)); }

${scalarFunctions}
#define W_LIBM(how, name)                                                                                               \
  how float w_##name##_f(float x) { return name##f(x); }                                                                \
  how double w_##name##_d(double x) { return name(x); }
W_LIBM(W_CALL, exp) W_LIBM(W_CALL, log) W_LIBM(W_CALL, tanh) W_LIBM(W_CALL, erf) W_LIBM(W_CALL, erfc) W_LIBM(W_CALL, expm1)
W_LIBM(W_CALL, log1p) W_LIBM(W_CALL, sin) W_LIBM(W_CALL, cos) W_LIBM(W_CALL, tan) W_LIBM(W_CALL, asin)
W_LIBM(W_CALL, acos) W_LIBM(W_CALL, atan) W_LIBM(W_CALL, sinh) W_LIBM(W_CALL, cosh)
W_LIBM(W_INLINE, sqrt) W_LIBM(W_INLINE, floor) W_LIBM(W_INLINE, ceil) W_LIBM(W_INLINE, trunc)

${complexSource}
/* Random numbers: threefry2x32, 20 rounds */
#define w_rotl(x, r) __funnelshift_l(x, x, r)
${threefryRounds}/* N neighbors from element n on, a multiple of four. */
template <int N> W_INLINE void w_kept_vector(uint8_t* to, uint32_t k0, uint32_t k1, uint64_t n, uint32_t threshold) {
#pragma unroll
  for (int b = 0; b < N / 4; b++) {
    uint64_t i = (n >> 2) + b;
    W_THREEFRY13
    to[4 * b] = (x0 & 65535u) >= threshold; to[4 * b + 1] = (x0 >> 16) >= threshold;
    to[4 * b + 2] = (x1 & 65535u) >= threshold; to[4 * b + 3] = (x1 >> 16) >= threshold;
  }
}
W_INLINE int32_t w_bits(uint32_t k0, uint32_t k1, uint64_t i) { W_THREEFRY return (int32_t)x0; }
W_INLINE float w_uniform_f(uint32_t k0, uint32_t k1, uint64_t i) { W_THREEFRY return (float)(x0 >> 8) * 5.9604644775390625e-8f; }
W_INLINE float w_uniform_h(uint32_t k0, uint32_t k1, uint64_t i) { W_THREEFRY return (float)(x0 >> 21) * 4.8828125e-4f; }
W_INLINE float w_uniform_b(uint32_t k0, uint32_t k1, uint64_t i) { W_THREEFRY return (float)(x0 >> 24) * 3.90625e-3f; }
W_INLINE double w_uniform_d(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  return ((double)(x0 >> 5) * 67108864.0 + (double)(x1 >> 6)) * 1.1102230246251565e-16;
}
${normalFunctions}
/* Joining the partial results of G threads; every thread gets the result. */
struct w_op_sum {
  template <class T> static __device__ T of(T a, T b) { return a + b; }
  static __device__ int32_t of(int32_t a, int32_t b) { return w_add_i(a, b); }
  static __device__ int64_t of(int64_t a, int64_t b) { return w_add_l(a, b); }
};
struct w_op_prod {
  template <class T> static __device__ T of(T a, T b) { return a * b; }
  static __device__ int32_t of(int32_t a, int32_t b) { return w_mul_i(a, b); }
  static __device__ int64_t of(int64_t a, int64_t b) { return w_mul_l(a, b); }
};
struct w_op_max { template <class T> static __device__ T of(T a, T b) { return (b > a || b != b) ? b : a; } };
struct w_op_min { template <class T> static __device__ T of(T a, T b) { return (b < a || b != b) ? b : a; } };
template <int G, class Op, class T> W_INLINE T w_join(T x) {
#pragma unroll
  for (int d = (G < 32 ? G : 32) / 2; d > 0; d /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, d));
  if (G > 32) {
    __shared__ T parts[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 0) parts[warp] = x;
    __syncthreads();
    x = parts[0];
    for (int w = 1; w < G / 32; w++) x = Op::of(x, parts[w]);
  }
  return x;
}
template <int G, class T> W_INLINE T w_join_sum(T x) { return w_join<G, w_op_sum>(x); }
template <int G, class T> W_INLINE T w_join_prod(T x) { return w_join<G, w_op_prod>(x); }
template <int G, class T> W_INLINE T w_join_max(T x) { return w_join<G, w_op_max>(x); }
template <int G, class T> W_INLINE T w_join_min(T x) { return w_join<G, w_op_min>(x); }
template <int G, class T> W_INLINE void w_join_csum(T* re, T* im) { *re = w_join<G, w_op_sum>(*re); *im = w_join<G, w_op_sum>(*im); }
template <int G, class T> W_INLINE void w_join_cprod(T* re, T* im) {
#pragma unroll
  for (int d = (G < 32 ? G : 32) / 2; d > 0; d /= 2) {
    T a = __shfl_xor_sync(0xffffffffu, *re, d), b = __shfl_xor_sync(0xffffffffu, *im, d), x = *re * a - *im * b;
    *im = *re * b + *im * a; *re = x;
  }
  if (G > 32) {
    __shared__ T parts[64];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 0) { parts[2 * warp] = *re; parts[2 * warp + 1] = *im; }
    __syncthreads();
    T x = parts[0], y = parts[1];
    for (int w = 1; w < G / 32; w++) { T a = parts[2 * w], b = parts[2 * w + 1], t = x * a - y * b; y = x * b + y * a; x = t; }
    *re = x; *im = y;
  }
}
/* The better of two candidates; ties go to the smaller index, NaN is best; an index of 0x7fffffff saw nothing. */
template <bool MAX, class T> W_INLINE void w_better(T* best, int* at, T other, int where) {
  bool mine = *at != 0x7fffffff, theirs = where != 0x7fffffff;
  bool nan = *best != *best, other_nan = other != other;
  bool wins = MAX ? other > *best : other < *best;
  if (nan || other_nan) wins = other_nan && !nan;
  bool tie = (nan && other_nan) || other == *best;
  if (theirs && (!mine || wins || (tie && where < *at))) { *best = other; *at = where; }
}
template <int G, bool MAX, class T> W_INLINE void w_join_arg(T* best, int* at) {
#pragma unroll
  for (int d = (G < 32 ? G : 32) / 2; d > 0; d /= 2) {
    T other = __shfl_xor_sync(0xffffffffu, *best, d);
    int where = __shfl_xor_sync(0xffffffffu, *at, d);
    w_better<MAX>(best, at, other, where);
  }
  if (G > 32) {
    __shared__ T parts[32];
    __shared__ int places[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 0) { parts[warp] = *best; places[warp] = *at; }
    __syncthreads();
    *best = parts[0]; *at = places[0];
    for (int w = 1; w < G / 32; w++) w_better<MAX>(best, at, parts[w], places[w]);
  }
}
template <int G, class T> W_INLINE void w_join_argmax(T* best, int* at) { w_join_arg<G, true>(best, at); }
template <int G, class T> W_INLINE void w_join_argmin(T* best, int* at) { w_join_arg<G, false>(best, at); }

/* Joining the 8 row lanes of a tile of 32 columns; the first lane gets the result. */
template <class Op, class T> W_INLINE T w_tile(T x) {
  __shared__ T parts[8][32];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  __syncthreads();
  parts[ty][tx] = x;
  __syncthreads();
  x = parts[0][tx];
  for (int w = 1; w < 8; w++) x = Op::of(x, parts[w][tx]);
  return x;
}
template <class T> W_INLINE T w_tile_sum(T x) { return w_tile<w_op_sum>(x); }
template <class T> W_INLINE T w_tile_prod(T x) { return w_tile<w_op_prod>(x); }
template <class T> W_INLINE T w_tile_max(T x) { return w_tile<w_op_max>(x); }
template <class T> W_INLINE T w_tile_min(T x) { return w_tile<w_op_min>(x); }
template <class T> W_INLINE void w_tile_csum(T* re, T* im) { *re = w_tile<w_op_sum>(*re); *im = w_tile<w_op_sum>(*im); }
template <class T> W_INLINE void w_tile_cprod(T* re, T* im) {
  __shared__ T parts[8][64];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  __syncthreads();
  parts[ty][2 * tx] = *re; parts[ty][2 * tx + 1] = *im;
  __syncthreads();
  T x = parts[0][2 * tx], y = parts[0][2 * tx + 1];
  for (int w = 1; w < 8; w++) { T a = parts[w][2 * tx], b = parts[w][2 * tx + 1], t = x * a - y * b; y = x * b + y * a; x = t; }
  *re = x; *im = y;
}
`;

/** The prelude in parts: what every program needs, then the parts that a program may do without. */
const parts = cudaPrelude.split(/(?=^\/\* (?:Complex functions|Random numbers|Joining the partial|Joining the 8))/m);
const needs: readonly (RegExp | null)[] = [
  null,
  /\bw_c[a-z0-9]+_[fd]\b/,
  /W_THREEFRY|\bw_(bits|uniform|normal|kept)/,
  /\bw_(join|tile)/,
  /\bw_tile/,
];

/**
 * Library functions of the host's size: written out at each of hundreds of places, as in the gradient of a long chain,
 * they keep the compiler busy for minutes. A program that has a kernel with many of them calls them instead.
 */
const libraryCall = new RegExp(`\\bw_c?(?:${[...transcendentalFns, "sqrt"].join("|")})_[fd]\\(`, "g");
const manyCalls = 48;

/** The prelude without what the text does not use: most of NVRTC's time for a small program is reading it. */
export function preludeFor(text: string): string {
  const calls = text.split("__global__").map((kernel) => kernel.match(libraryCall)?.length ?? 0);
  const define = Math.max(...calls) > manyCalls ? "#define W_MANY_CALLS\n" : "";
  return define + parts.filter((_, i) => needs[i] === null || needs[i]!.test(text)).join("");
}
