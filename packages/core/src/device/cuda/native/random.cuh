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
#include "../../native/normal.h"
/* N neighbors from element n on, an even number: both words of every block. */
#define W_PAIRS(name, FIRST, SECOND)                                                                                   \
  template <int N> W_INLINE void w_##name##_vector(float* to, uint32_t k0, uint32_t k1, uint64_t n) {                  \
    _Pragma("unroll") for (int b = 0; b < N / 2; b++) {                                                                \
      uint64_t i = (n >> 1) + b;                                                                                       \
      W_THREEFRY13                                                                                                     \
      to[2 * b] = FIRST;                                                                                               \
      to[2 * b + 1] = SECOND;                                                                                          \
    }                                                                                                                  \
  }
W_PAIRS(uniform_f, w_unit_f(x0), w_unit_f(x1))
W_PAIRS(uniform_h, w_unit_h(x0), w_unit_h(x1))
W_PAIRS(uniform_b, w_unit_b(x0), w_unit_b(x1))
W_PAIRS(normal_f, w_gauss_f(w_radius_f(x0), x1), w_gauss_f(w_radius_f(x0), x1 + W_QUARTER))
