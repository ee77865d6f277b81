// Random numbers for generated kernels that draw them: threefry2x32 by key and element index.
#pragma once
#include "prelude.h"

W_INLINE uint32_t w_rotl(uint32_t x, int r) { return (x << r) | (x >> (32 - r)); }
#include "../../native/threefry.h"
/* Blocks of four bytes, one per element. */
W_INLINE uint32_t w_dropout_mask4(uint32_t k0, uint32_t k1, uint64_t i, uint32_t threshold) {
  W_THREEFRY13
  return (uint32_t)((x0 & 65535u) >= threshold) | (uint32_t)((x0 >> 16) >= threshold) << 8 |
         (uint32_t)((x1 & 65535u) >= threshold) << 16 | (uint32_t)((x1 >> 16) >= threshold) << 24;
}
W_CALL void w_dropout_mask_blocks(uint32_t* to, uint32_t k0, uint32_t k1, uint64_t first, long count,
                                  uint32_t threshold) {
  const uint32_t low = (uint32_t)first, high = (uint32_t)(first >> 32);
  if (low + (uint64_t)count <= 4294967296u) {
    _Pragma("omp simd") for (int32_t b = 0; b < (int32_t)count; b++) to[b] =
        w_dropout_mask4(k0, k1, (uint64_t)high << 32 | (low + (uint32_t)b), threshold);
  } else
    for (long b = 0; b < count; b++) to[b] = w_dropout_mask4(k0, k1, first + (uint64_t)b, threshold);
}
W_INLINE int32_t w_bits(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY(void)
  x1;
  return (int32_t)x0;
}
#include "../../native/normal.h"
