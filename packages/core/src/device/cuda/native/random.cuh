// Random numbers of generated programs.
#pragma once
#include "prelude.cuh"

#define w_rotl(x, r) __funnelshift_l(x, x, r)
#include "../../native/threefry.h"
/* N neighbors from element n on, a multiple of four. */
template <int N>
W_INLINE void w_dropout_mask_vector(uint8_t* to, uint32_t k0, uint32_t k1, uint64_t n, uint32_t threshold) {
#pragma unroll
  for (int b = 0; b < N / 4; b++) {
    uint64_t i = (n >> 2) + b;
    W_THREEFRY13
    to[4 * b] = (x0 & 65535u) >= threshold;
    to[4 * b + 1] = (x0 >> 16) >= threshold;
    to[4 * b + 2] = (x1 & 65535u) >= threshold;
    to[4 * b + 3] = (x1 >> 16) >= threshold;
  }
}
W_INLINE int32_t w_bits(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  return (int32_t)x0;
}
W_INLINE float w_uniform_f(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  return (float)(x0 >> 8) * 5.9604644775390625e-8f;
}
W_INLINE float w_uniform_h(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  return (float)(x0 >> 21) * 4.8828125e-4f;
}
W_INLINE float w_uniform_b(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  return (float)(x0 >> 24) * 3.90625e-3f;
}
W_INLINE double w_uniform_d(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  return ((double)(x0 >> 5) * 67108864.0 + (double)(x1 >> 6)) * 1.1102230246251565e-16;
}
#include "../../native/normal.h"
