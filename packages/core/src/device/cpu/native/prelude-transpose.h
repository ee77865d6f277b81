// Transposed copies of tiles, for kernels that read across the rows of their results. Blocks of N x N elements are transposed in
// registers: interleaving row i with row i + N / 2 as often as N has bits exchanges rows and columns.
#pragma once

/* Only gcc has shuffles by an array of indices; others get one element at a time. */
#if defined(__clang__)
#define W_SHUFFLE(a, b, at) a
#define W_IN_BLOCKS 0
#else
#define W_SHUFFLE(a, b, at) __builtin_shuffle(a, b, at)
#define W_IN_BLOCKS 1
#endif
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define W_BLOCK_1 16
#define W_BLOCK_2 16
#define W_BLOCK_4 16
#define W_BLOCK_8 8
#else
#define W_BLOCK_1 16
#define W_BLOCK_2 8
#define W_BLOCK_4 4
#define W_BLOCK_8 2
#endif

/* Indices of the first and the second half of two interleaved rows. */
#define W_FIRST_2 {0, 2}
#define W_SECOND_2 {1, 3}
#define W_FIRST_4 {0, 4, 1, 5}
#define W_SECOND_4 {2, 6, 3, 7}
#define W_FIRST_8 {0, 8, 1, 9, 2, 10, 3, 11}
#define W_SECOND_8 {4, 12, 5, 13, 6, 14, 7, 15}
#define W_FIRST_16 {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
#define W_SECOND_16 {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
#define W_JOIN_(a, b) a##b
#define W_JOIN(a, b) W_JOIN_(a, b)

/* to[j * pitch + i] = from[i * stride + j] for i < rows and j < columns, in elements of B bytes. Rows and columns that are left beside whole
   blocks are copied by blocks that overlap others, if they are not few. */
#define W_TRANSPOSE(B, T)                                                                                              \
  static __attribute__((noinline, unused)) void w_transpose_##B(const void* x, long stride, void* out, long pitch,     \
                                                                long rows, long columns) {                             \
    enum { n = W_BLOCK_##B };                                                                                          \
    typedef T vec __attribute__((vector_size(n * B), aligned(B), may_alias));                                          \
    typedef T own __attribute__((vector_size(n * B)));                                                                 \
    typedef T one __attribute__((may_alias));                                                                          \
    const own first = W_JOIN(W_FIRST_, W_BLOCK_##B), second = W_JOIN(W_SECOND_, W_BLOCK_##B);                          \
    const one* from = (const one*)x;                                                                                   \
    one* to = (one*)out;                                                                                               \
    const long down = W_IN_BLOCKS * rows / n * n, across = columns / n * n;                                            \
    const long most_down = down > 0 && rows - down >= n / 4 ? rows : down;                                             \
    const long most_across = across > 0 && columns - across >= n / 2 ? columns : across;                               \
    for (long row = 0; row < most_down; row += n)                                                                      \
      for (long column = 0; column < most_across; column += n) {                                                       \
        const long i = row < down ? row : rows - n, j = column < across ? column : columns - n;                        \
        own a[n], b[n];                                                                                                \
        _Pragma("GCC unroll 16") for (int k = 0; k < n; k++) a[k] = (own) * (const vec*)(from + (i + k) * stride + j); \
        _Pragma("GCC unroll 16") for (int bit = 1; bit < n; bit *= 2) {                                                \
          _Pragma("GCC unroll 16") for (int k = 0; k < n / 2; k++) {                                                   \
            b[2 * k] = W_SHUFFLE(a[k], a[k + n / 2], first);                                                           \
            b[2 * k + 1] = W_SHUFFLE(a[k], a[k + n / 2], second);                                                      \
          }                                                                                                            \
          _Pragma("GCC unroll 16") for (int k = 0; k < n; k++) a[k] = b[k];                                            \
        }                                                                                                              \
        _Pragma("GCC unroll 16") for (int k = 0; k < n; k++) * (vec*)(to + (j + k) * pitch + i) = (vec)a[k];           \
      }                                                                                                                \
    for (long j = most_across; j < columns; j++)                                                                       \
      for (long i = 0; i < down; i++) to[j * pitch + i] = from[i * stride + j];                                        \
    for (long i = down; i < rows; i++)                                                                                 \
      for (long j = most_down > down ? most_across : 0; j < columns; j++) to[j * pitch + i] = from[i * stride + j];    \
  }
W_TRANSPOSE(1, uint8_t)
W_TRANSPOSE(2, uint16_t)
W_TRANSPOSE(4, uint32_t)
W_TRANSPOSE(8, uint64_t)
static __attribute__((noinline, unused)) void w_transpose_16(const void* x, long stride, void* out, long pitch,
                                                             long rows, long columns) {
  for (long j = 0; j < columns; j++)
    for (long i = 0; i < rows; i++)
      __builtin_memcpy((char*)out + 16 * (j * pitch + i), (const char*)x + 16 * (i * stride + j), 16);
}
