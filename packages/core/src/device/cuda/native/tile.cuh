// Reductions over the row lanes of a tile.
#pragma once
#include "join.cuh"

/* Joining the 8 row lanes of a tile of 32 columns; all of them get the result. */
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
W_INLINE void* w_tile_memory() {
  __shared__ __align__(16) unsigned char memory[16384];
  return memory;
}
/* The same for N neighboring columns per thread, as many at a time as the memory holds: a thread joins a column. */
template <class Op, int N, class T> W_INLINE void w_tiles(T* x) {
  const int MOST = 64 / sizeof(T), SIZE = N < MOST ? N : MOST;
  T* parts = (T*)w_tile_memory();
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
#pragma unroll
  for (int from = 0; from < N; from += SIZE) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < SIZE; j++) parts[(ty * SIZE + j) * 32 + tx] = x[from + j];
    __syncthreads();
    for (int c = threadIdx.x; c < SIZE * 32; c += 256) {
      T all = parts[c];
#pragma unroll
      for (int w = 1; w < 8; w++) all = Op::of(all, parts[w * SIZE * 32 + c]);
      parts[c] = all;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < SIZE; j++) x[from + j] = parts[j * 32 + tx];
  }
}
template <int N, class T> W_INLINE void w_tiles_sum(T* x) { w_tiles<w_op_sum, N>(x); }
template <int N, class T> W_INLINE void w_tiles_prod(T* x) { w_tiles<w_op_prod, N>(x); }
template <int N, class T> W_INLINE void w_tiles_max(T* x) { w_tiles<w_op_max, N>(x); }
template <int N, class T> W_INLINE void w_tiles_min(T* x) { w_tiles<w_op_min, N>(x); }
template <class T> W_INLINE void w_tile_csum(T* re, T* im) {
  *re = w_tile<w_op_sum>(*re);
  *im = w_tile<w_op_sum>(*im);
}
template <class T> W_INLINE void w_tile_cprod(T* re, T* im) {
  __shared__ T parts[8][64];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  __syncthreads();
  parts[ty][2 * tx] = *re;
  parts[ty][2 * tx + 1] = *im;
  __syncthreads();
  T x = parts[0][2 * tx], y = parts[0][2 * tx + 1];
  for (int w = 1; w < 8; w++) {
    T a = parts[w][2 * tx], b = parts[w][2 * tx + 1], t = x * a - y * b;
    y = x * b + y * a;
    x = t;
  }
  *re = x;
  *im = y;
}
template <bool MAX, class T> W_INLINE void w_tile_arg(T* best, int* at) {
  __shared__ T parts[8][32];
  __shared__ int places[8][32];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  __syncthreads();
  parts[ty][tx] = *best;
  places[ty][tx] = *at;
  __syncthreads();
  *best = parts[0][tx];
  *at = places[0][tx];
  for (int w = 1; w < 8; w++) w_better<MAX>(best, at, parts[w][tx], places[w][tx]);
}
template <class T> W_INLINE void w_tile_argmax(T* best, int* at) { w_tile_arg<true>(best, at); }
template <class T> W_INLINE void w_tile_argmin(T* best, int* at) { w_tile_arg<false>(best, at); }
