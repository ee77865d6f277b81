// Reductions over the threads of a block.
#pragma once
#include "prelude.cuh"

/* Reduces the partial results of G threads; every thread gets the result. */
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
struct w_op_max {
  template <class T> static __device__ T of(T a, T b) { return (b > a || b != b) ? b : a; }
};
struct w_op_min {
  template <class T> static __device__ T of(T a, T b) { return (b < a || b != b) ? b : a; }
};
template <int G, class Op, class T> W_INLINE T w_join(T x) {
#pragma unroll
  for (int d = (G < 32 ? G : 32) / 2; d > 0; d /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, d));
  if (G > 32) {
    __shared__ T parts[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 0) parts[warp] = x;
    __syncthreads();
    const int first = warp / (G / 32) * (G / 32);
    x = parts[first];
    for (int w = 1; w < G / 32; w++) x = Op::of(x, parts[first + w]);
  }
  return x;
}
template <int G, class T> W_INLINE T w_join_sum(T x) { return w_join<G, w_op_sum>(x); }
template <int G, class T> W_INLINE T w_join_prod(T x) { return w_join<G, w_op_prod>(x); }
template <int G, class T> W_INLINE T w_join_max(T x) { return w_join<G, w_op_max>(x); }
template <int G, class T> W_INLINE T w_join_min(T x) { return w_join<G, w_op_min>(x); }
template <int G, class T> W_INLINE void w_join_csum(T* re, T* im) {
  *re = w_join<G, w_op_sum>(*re);
  *im = w_join<G, w_op_sum>(*im);
}
template <int G, class T> W_INLINE void w_join_cprod(T* re, T* im) {
#pragma unroll
  for (int d = (G < 32 ? G : 32) / 2; d > 0; d /= 2) {
    T a = __shfl_xor_sync(0xffffffffu, *re, d), b = __shfl_xor_sync(0xffffffffu, *im, d), x = *re * a - *im * b;
    *im = *re * b + *im * a;
    *re = x;
  }
  if (G > 32) {
    __shared__ T parts[64];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 0) {
      parts[2 * warp] = *re;
      parts[2 * warp + 1] = *im;
    }
    __syncthreads();
    T x = parts[0], y = parts[1];
    for (int w = 1; w < G / 32; w++) {
      T a = parts[2 * w], b = parts[2 * w + 1], t = x * a - y * b;
      y = x * b + y * a;
      x = t;
    }
    *re = x;
    *im = y;
  }
}
/* The better of two candidates; ties go to the smaller index, NaN is best; an index of 0x7fffffff means no candidate. */
template <bool MAX, class T> W_INLINE void w_better(T* best, int* at, T other, int where) {
  bool mine = *at != 0x7fffffff, theirs = where != 0x7fffffff;
  bool nan = *best != *best, other_nan = other != other;
  bool wins = MAX ? other > *best : other < *best;
  if (nan || other_nan) wins = other_nan && !nan;
  bool tie = (nan && other_nan) || other == *best;
  if (theirs && (!mine || wins || (tie && where < *at))) {
    *best = other;
    *at = where;
  }
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
    if (lane == 0) {
      parts[warp] = *best;
      places[warp] = *at;
    }
    __syncthreads();
    *best = parts[0];
    *at = places[0];
    for (int w = 1; w < G / 32; w++) w_better<MAX>(best, at, parts[w], places[w]);
  }
}
template <int G, class T> W_INLINE void w_join_argmax(T* best, int* at) { w_join_arg<G, true>(best, at); }
template <int G, class T> W_INLINE void w_join_argmin(T* best, int* at) { w_join_arg<G, false>(best, at); }
