// Random bits of the C and the CUDA dialect: threefry2x32 by key and element index (ops/reference/random.ts has it in
// TypeScript). A dialect defines w_rotl(word, bits) before.
#pragma once

#define W_ROUND(r) (x0 += x1, x1 = w_rotl(x1, r) ^ x0)
#define W_ROUNDS(a, b, c, d) (W_ROUND(a), W_ROUND(b), W_ROUND(c), W_ROUND(d))
#define W_INJECT(a, b, n) (x0 += a, x1 += b + n)
#define W_THREEFRY_START uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu, x0 = (uint32_t)i + k0, x1 = (uint32_t)(i >> 32) + k1;
/* Declares x0 and x1, the two words of block i, after 20 rounds. */
#define W_THREEFRY                                                                                                     \
  W_THREEFRY_START                                                                                                     \
  W_ROUNDS(13, 15, 26, 6), W_INJECT(k1, k2, 1u);                                                                       \
  W_ROUNDS(17, 29, 16, 24), W_INJECT(k2, k0, 2u);                                                                      \
  W_ROUNDS(13, 15, 26, 6), W_INJECT(k0, k1, 3u);                                                                       \
  W_ROUNDS(17, 29, 16, 24), W_INJECT(k1, k2, 4u);                                                                      \
  W_ROUNDS(13, 15, 26, 6), W_INJECT(k2, k0, 5u);
/* The same after 13 rounds: two elements per block in single precision, four elements of 16 bits in dropout. */
#define W_THREEFRY13                                                                                                   \
  W_THREEFRY_START                                                                                                     \
  W_ROUNDS(13, 15, 26, 6), W_INJECT(k1, k2, 1u);                                                                       \
  W_ROUNDS(17, 29, 16, 24), W_INJECT(k2, k0, 2u);                                                                      \
  W_ROUNDS(13, 15, 26, 6), W_INJECT(k0, k1, 3u);                                                                       \
  W_ROUND(17);
/* The random word of element n in single precision: two neighbors share a block. */
W_INLINE uint32_t w_random_word(uint32_t k0, uint32_t k1, uint64_t n) {
  uint64_t i = n >> 1;
  W_THREEFRY13
  return n & 1 ? x1 : x0;
}
/* Random bits as uniform numbers in [0, 1); half types take as many bits as they hold. */
W_INLINE float w_unit_f(uint32_t word) { return (float)(int32_t)(word >> 8) * 5.9604644775390625e-8f; }
W_INLINE float w_unit_h(uint32_t word) { return (float)(int32_t)(word >> 21) * 4.8828125e-4f; }
W_INLINE float w_unit_b(uint32_t word) { return (float)(int32_t)(word >> 24) * 3.90625e-3f; }
#define W_UNIFORM(s)                                                                                                   \
  W_INLINE float w_uniform_##s(uint32_t k0, uint32_t k1, uint64_t n) { return w_unit_##s(w_random_word(k0, k1, n)); }
W_UNIFORM(f)
W_UNIFORM(h)
W_UNIFORM(b)
W_INLINE double w_uniform_d(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  return ((double)(x0 >> 5) * 67108864.0 + (double)(x1 >> 6)) * 1.1102230246251565e-16;
}
/* Whether dropout keeps element n. */
W_INLINE int w_dropout_mask(uint32_t k0, uint32_t k1, uint64_t n, uint32_t threshold) {
  uint64_t i = n >> 2;
  W_THREEFRY13
  uint32_t word = n & 2 ? x1 : x0;
  return (n & 1 ? word >> 16 : word & 65535u) >= threshold;
}
