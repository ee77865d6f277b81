// The product of bfloat16 matrices by AVX512-BF16, and of float32 ones, whose elements are packed as the pairs are. Part of
// gemm-half.h.
#pragma once
#include <immintrin.h>

#define PAIRS_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define PAIRS_INLINE static inline __attribute__((always_inline)) PAIRS_TARGET

/* Whether the processor has the instructions; those of bfloat16 numbers are not needed for float32 ones. */
static int has_pairs(int singles) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         (singles || __builtin_cpu_supports("avx512bf16"));
}

PAIRS_INLINE uint32_t first_lanes(long count) { return count >= 32 ? ~0u : count <= 0 ? 0 : (1u << count) - 1; }

/* Packs 16 lines of "depth" elements that lie in memory; those that are NULL are zeros. Rows and columns of 16 by 16 pairs change
   places, four times zipped. */
PAIRS_INLINE void pack_lines(const uint16_t* const at[16], long depth, uint32_t* out, long width) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  for (long e = 0; e < depth; e += 32) {
    const __mmask32 mask = first_lanes(depth - e);
    __m512i r[16], s[16];
#pragma GCC unroll 16
    for (int q = 0; q < 16; q++) r[q] = at[q] ? _mm512_maskz_loadu_epi16(mask, at[q] + e) : _mm512_setzero_si512();
#define ZIP(to, from)                                                                                                  \
  _Pragma("GCC unroll 8") for (int q = 0; q < 8; q++) {                                                                \
    to[2 * q] = _mm512_permutex2var_epi32(from[q], low, from[q + 8]);                                                  \
    to[2 * q + 1] = _mm512_permutex2var_epi32(from[q], high, from[q + 8]);                                             \
  }
    ZIP(s, r)
    ZIP(r, s)
    ZIP(s, r)
    ZIP(r, s) for (long q = 0; q < 16 && e + 2 * q < depth; q++) _mm512_storeu_si512(out + (e / 2 + q) * width, r[q]);
  }
}

/* Packs lines from "line" on, elements from "p" on, of an operand that lies in pieces. */
static PAIRS_TARGET void pack_pieces(const half_lines* x, long line, long p, long lines, long depth, uint32_t* out,
                                     long width) {
  const uint16_t* at[16];
  const long first = p / x->run, skipped = p % x->run;
  for (long i = 0; i < width; i += 16) {
    const uint16_t* const* from = x->at + first * x->count + line + i;
    for (long e = 0, run, offset = skipped; e < depth; e += run, offset = 0, from += x->count) {
      run = x->run - offset < depth - e ? x->run - offset : depth - e;
      for (long q = 0; q < 16; q++) at[q] = i + q < lines && from[q] ? from[q] + offset : NULL;
      pack_lines(at, run, out + e / 2 * width + i, width);
    }
  }
}

/* Packs "lines" rows or columns of "depth" elements: pair p of line i becomes out[p * width + i]. Element q of line i is
   x[i * across + q * along]. What is missing is zero: an infinity of the other operand must not meet what lies behind the last element. */
PAIRS_INLINE void pack_pairs(const uint16_t* x, long across, long along, long lines, long depth, uint32_t* out,
                             long width) {
  const long pairs = (depth + 1) / 2;
  if (across == 1) {
    /* Elements of neighboring lines are neighbors: two vectors of them are zipped. */
    const __m512i low =
        _mm512_set_epi32(0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008, 0x270007,
                         0x260006, 0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (long p = 0; p < pairs; p++)
      for (long i = 0; i < width; i += 32) {
        const uint16_t* at = x + 2 * p * along + i;
        const __mmask32 mask = first_lanes(lines - i);
        const __m512i u = _mm512_maskz_loadu_epi16(mask, at);
        const __m512i v = _mm512_maskz_loadu_epi16(2 * p + 1 < depth ? mask : 0, at + along);
        uint32_t* to = out + p * width + i;
        _mm512_mask_storeu_epi32(to, (__mmask16)first_lanes(width - i), _mm512_permutex2var_epi16(u, low, v));
        _mm512_mask_storeu_epi32(to + 16, (__mmask16)first_lanes(width - i - 16),
                                 _mm512_permutex2var_epi16(u, high, v));
      }
    return;
  }
  if (along == 1) {
    for (long i = 0; i < width; i += 16) {
      const uint16_t* at[16];
      for (long q = 0; q < 16; q++) at[q] = i + q < lines ? x + (i + q) * across : NULL;
      pack_lines(at, depth, out + i, width);
    }
    return;
  }
  for (long p = 0; p < pairs; p++)
    for (long i = 0; i < width; i++) {
      const uint16_t* at = x + i * across + 2 * p * along;
      const uint32_t u = i < lines ? at[0] : 0, v = i < lines && 2 * p + 1 < depth ? at[along] : 0;
      out[p * width + i] = u | v << 16;
    }
}

/* One strip: where it lies, the packed operands, and the sums of what was packed before, which are missing at first. */
typedef struct {
  long i, j, rows, columns, pairs;
  const uint32_t *a, *b;
  float* held;
  int first, last;
} pairs_strip;

/* Stores what a strip of a transposed product has become: up to eight neighbors of every row of c. */
PAIRS_INLINE void pairs_turn(const half_product* h, const pairs_strip* t, const __m512 sums[16][3], int rows,
                             int vectors) {
  const long count = t->rows < rows ? t->rows : rows;
  if (h->write != HALF_ROUND) {
    float plain[8][48];
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < vectors; j++) _mm512_storeu_ps(plain[i] + 16 * j, sums[i][j]);
    for (long q = 0; q < t->columns; q++)
      for (long i = 0; i < count; i++) {
        float* to = (float*)h->c + (t->j + q) * h->crs + t->i + i;
        *to = h->write == HALF_ADD ? *to + plain[i][q] : plain[i][q];
      }
    return;
  }
  const __mmask8 mask = (__mmask8)first_lanes(count);
#pragma GCC unroll 3
  for (int j = 0; j < vectors; j++) {
    __m256i r[8], s[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = i < rows ? (__m256i)_mm512_cvtneps_pbh(sums[i][j]) : _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      s[2 * i] = _mm256_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
      s[2 * i + 1] = _mm256_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
      for (int k = 0; k < 2; k++) {
        r[4 * i + 2 * k] = _mm256_unpacklo_epi32(s[4 * i + k], s[4 * i + 2 + k]);
        r[4 * i + 2 * k + 1] = _mm256_unpackhi_epi32(s[4 * i + k], s[4 * i + 2 + k]);
      }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
      s[2 * k] = _mm256_unpacklo_epi64(r[k], r[4 + k]);
      s[2 * k + 1] = _mm256_unpackhi_epi64(r[k], r[4 + k]);
    }
    uint16_t* to = (uint16_t*)h->c + (t->j + 16 * j) * h->crs + t->i;
    const long columns = t->columns - 16 * j;
#pragma GCC unroll 8
    for (int q = 0; q < 8; q++)
      if (q < columns) _mm_mask_storeu_epi16(to + q * h->crs, mask, _mm256_castsi256_si128(s[q]));
#pragma GCC unroll 8
    for (int q = 0; q < 8; q++)
      if (q + 8 < columns) _mm_mask_storeu_epi16(to + (q + 8) * h->crs, mask, _mm256_extracti128_si256(s[q], 1));
  }
}

/* Packed rows come in sixteens. */
PAIRS_INLINE void pairs_tile(const half_product* h, const pairs_strip* t, int rows, int vectors, int singles) {
  __m512 sums[16][3];
  const uint32_t *a = t->a, *b = t->b;
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
    for (int j = 0; j < vectors; j++) sums[i][j] = _mm512_setzero_ps();
  for (long p = 0; p < t->pairs; p++, a += 16, b += 16 * vectors) {
    __m512bh y[3];
#pragma GCC unroll 3
    for (int j = 0; j < vectors; j++) y[j] = (__m512bh)_mm512_load_si512(b + 16 * j);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      const __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[i]);
#pragma GCC unroll 3
      for (int j = 0; j < vectors; j++)
        sums[i][j] =
            singles ? _mm512_fmadd_ps((__m512)x, (__m512)y[j], sums[i][j]) : _mm512_dpbf16_ps(sums[i][j], x, y[j]);
    }
  }
  if (h->turned) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
      for (int j = 0; j < vectors; j++) {
        float* held = t->held + i * HALF_WIDTH + 16 * j;
        if (!t->first) sums[i][j] = _mm512_add_ps(sums[i][j], _mm512_loadu_ps(held));
        if (!t->last) _mm512_storeu_ps(held, sums[i][j]);
      }
    if (t->last && !singles) pairs_turn(h, t, sums, rows, vectors);
    return;
  }
  const int plain = !singles && t->first && t->last && h->write == HALF_ROUND;
  const __mmask16 edge = (__mmask16)first_lanes(t->columns - 16 * (vectors - 1));
  uint16_t* out = (uint16_t*)h->c + t->i * h->crs + t->j;
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
    if (i >= t->rows) break;
#pragma GCC unroll 3
    for (int j = 0; j < vectors; j++) {
      const __mmask16 mask = j == vectors - 1 ? edge : 0xffff;
      if (plain) {
        _mm256_mask_storeu_epi16(out + i * h->crs + 16 * j, mask, (__m256i)_mm512_cvtneps_pbh(sums[i][j]));
        continue;
      }
      float *held = t->held + i * HALF_WIDTH + 16 * j, *to = (float*)h->c + (t->i + i) * h->crs + t->j + 16 * j;
      __m512 sum = sums[i][j];
      if (!t->first) sum = _mm512_add_ps(sum, _mm512_loadu_ps(held));
      if (!t->last) _mm512_storeu_ps(held, sum);
      else if (h->write == HALF_ROUND)
        _mm256_mask_storeu_epi16(out + i * h->crs + 16 * j, mask, (__m256i)_mm512_cvtneps_pbh(sum));
      else {
        if (h->write == HALF_ADD) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to));
        _mm512_mask_storeu_ps(to, mask, sum);
      }
    }
  }
}

/* Up to "rows" rows times strips of "lines" cache lines of a matrix whose rows are contiguous: pairs are zipped in registers. The matrix
   is read once, and its next rows are asked for. */
PAIRS_INLINE void pairs_down_strips(const half_product* h, const uint32_t* a, int rows, int lines) {
  const __m512i low = _mm512_set_epi32(0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008,
                                       0x270007, 0x260006, 0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (long j = 0; j < h->n; j += 32 * lines) {
    __m512 sums[8][4];
    __mmask32 masks[2];
#pragma GCC unroll 2
    for (int q = 0; q < lines; q++) masks[q] = first_lanes(h->n - j - 32 * q);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
      for (int q = 0; q < 2 * lines; q++) sums[i][q] = _mm512_setzero_ps();
    const uint16_t* b = h->b + j;
    for (long p = 0; p < (h->k + 1) / 2; p++, b += 2 * h->brs) {
      const int two = 2 * p + 1 < h->k;
      __m512bh y[4];
#pragma GCC unroll 2
      for (int q = 0; q < lines; q++) {
        const __m512i u = _mm512_maskz_loadu_epi16(masks[q], b + 32 * q);
        const __m512i v = _mm512_maskz_loadu_epi16(two ? masks[q] : 0, b + h->brs + 32 * q);
        _mm_prefetch((const char*)(b + 16 * h->brs + 32 * q), _MM_HINT_T0);
        _mm_prefetch((const char*)(b + 17 * h->brs + 32 * q), _MM_HINT_T0);
        y[2 * q] = (__m512bh)_mm512_permutex2var_epi16(u, low, v);
        y[2 * q + 1] = (__m512bh)_mm512_permutex2var_epi16(u, high, v);
      }
#pragma GCC unroll 8
      for (int i = 0; i < rows; i++) {
        const __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[p * 16 + i]);
#pragma GCC unroll 4
        for (int q = 0; q < 2 * lines; q++) sums[i][q] = _mm512_dpbf16_ps(sums[i][q], x, y[q]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
      for (int q = 0; q < 2 * lines; q++)
        if (i < h->m)
          _mm256_mask_storeu_epi16((uint16_t*)h->c + i * h->crs + j + 16 * q, (__mmask16)first_lanes(h->n - j - 16 * q),
                                   (__m256i)_mm512_cvtneps_pbh(sums[i][q]));
  }
}
/* Whether a product has few rows for its matrix: copies of the matrix do not pay. */
static int pairs_downs(const half_product* h) {
  return !h->singles && !h->rows && !h->columns && h->write == HALF_ROUND && h->m <= 8 && h->bcs == 1 && h->n >= 64 &&
         (h->k + 1) / 2 * 16 <= HALF_PANEL;
}
static PAIRS_TARGET void pairs_down(const half_product* h, uint32_t* memory) {
  pack_pairs(h->a, h->ars, h->acs, h->m, h->k, memory, 16);
  if (h->m <= 2) pairs_down_strips(h, memory, 2, 2);
  else if (h->m <= 4) pairs_down_strips(h, memory, 4, 2);
  else pairs_down_strips(h, memory, 8, 1);
}

/* Products with a few columns and many rows: the transposed one has vectors of rows. */
static int pairs_turns(const half_product* h) {
  return !h->singles && !h->turned && !h->columns && h->n <= 16 && h->m >= 32;
}

/* Not 0 where it was computed; 0 without memory. */
static PAIRS_TARGET int pairs_gemm(const half_product* given) {
  half_product other = *given;
  if (pairs_turns(given)) {
    other.m = given->n, other.n = given->m, other.turned = 1;
    other.a = given->b, other.ars = given->bcs, other.acs = given->brs;
    other.b = given->a, other.brs = given->acs, other.bcs = given->ars;
    other.rows = NULL, other.columns = given->rows;
  }
  const half_product* h = &other;
  uint32_t* left = (uint32_t*)half_memory();
  if (!left) return 0;
  if (pairs_downs(given)) {
    pairs_down(given, left);
    return 1;
  }
  uint32_t* right = left + HALF_PANEL;
  float* held = (float*)(right + HALF_DEPTH / 2 * HALF_STRIP);
  const int whole = h->k <= HALF_DEPTH, tall = h->n <= 16 && !h->turned;
  const long deep = h->k < 2 ? 1 : (h->k + 1) / 2;
  const long block = whole ? HALF_PANEL / deep / 16 * 16 : HALF_BLOCK, wide = whole ? h->n : HALF_WIDTH;
  for (long i0 = 0; i0 < h->m; i0 += block)
    for (long j0 = 0; j0 < h->n; j0 += wide) {
      const long i1 = i0 + block < h->m ? i0 + block : h->m, j1 = j0 + wide < h->n ? j0 + wide : h->n;
      long p0 = 0;
      do {
        const long depth = h->k - p0 < HALF_DEPTH ? h->k - p0 : HALF_DEPTH, pairs = (depth + 1) / 2;
        pairs_strip t = {.pairs = pairs, .b = right, .first = p0 == 0, .last = p0 + depth == h->k};
        for (long i = i0; i < i1; i += 16) {
          const long lines = i1 - i < 16 ? i1 - i : 16;
          uint32_t* out = left + (i - i0) * pairs;
          if (h->rows) pack_pieces(h->rows, i, p0, lines, depth, out, 16);
          else pack_pairs(h->a + i * h->ars + p0 * h->acs, h->ars, h->acs, lines, depth, out, 16);
        }
        for (t.j = j0; t.j < j1; t.j += t.columns) {
          /* A last strip of one vector would wait for its sums: two of two vectors are faster than three and one. */
          const long rest = j1 - t.j;
          t.columns = rest <= HALF_STRIP ? rest : rest <= 64 ? 32 : HALF_STRIP;
          const long width = (t.columns + 15) / 16 * 16;
          if (h->columns) pack_pieces(h->columns, t.j, p0, t.columns, depth, right, width);
          else pack_pairs(h->b + p0 * h->brs + t.j * h->bcs, h->bcs, h->brs, t.columns, depth, right, width);
          for (t.i = i0; t.i < i1; t.i += tall ? 16 : 8) {
            t.rows = i1 - t.i;
            t.a = left + (t.i - i0) / 16 * 16 * pairs + (t.i - i0) % 16;
            t.held = held + (t.i - i0) * HALF_WIDTH + (t.j - j0);
#define TILE(rows, vectors) (h->singles ? pairs_tile(h, &t, rows, vectors, 1) : pairs_tile(h, &t, rows, vectors, 0))
            if (tall) TILE(16, 1);
            else if (t.rows <= 4 && t.columns > 32) TILE(4, 3);
            else if (t.rows <= 4 && t.columns > 16) TILE(4, 2);
            else if (t.columns > 32) TILE(8, 3);
            else if (t.columns > 16) TILE(8, 2);
            else TILE(8, 1);
          }
        }
        p0 += depth;
      } while (p0 < h->k);
    }
  return 1;
}
