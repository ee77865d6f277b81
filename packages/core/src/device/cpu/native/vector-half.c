// Vector forms of the conversions between float16 and float32 by F16C, in the x86 vector ABI; see vector-math.c. Halves are the low 16
// bits of their lanes. Numbers are rounded to the nearest, ties to even.
#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#include <stdint.h>

/* A vector form, and where compilers look for it: the letter of the instruction set and the number of lanes. */
#define FORM(name, form, to, from, expression)                                                                         \
  __attribute__((visibility("hidden"))) to name##_##form(from x) __asm__("_ZGV" #form "v_w_" #name "_h");              \
  to name##_##form(from x) { return expression; }

FORM(widened, bN4, __m128, __m128i, _mm_cvtph_ps(_mm_packus_epi32(x, x)))
FORM(narrowed, bN4, __m128i, __m128, _mm_cvtepu16_epi32(_mm_cvtps_ph(x, 0)))
/* The first AVX has vectors of 8 floats and of 4 integers: compilers prefer its forms to those of SSE, also for later processors. */
FORM(narrowed, cN4, __m128i, __m128, _mm_cvtepu16_epi32(_mm_cvtps_ph(x, 0)))
__attribute__((visibility("hidden"))) __m256 widened_cN8(__m128i x, __m128i y) __asm__("_ZGVcN8v_w_widened_h");
__m256 widened_cN8(__m128i x, __m128i y) { return _mm256_cvtph_ps(_mm_packus_epi32(x, y)); }
FORM(widened, dN8, __m256, __m256i,
     _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1))))
FORM(narrowed, dN8, __m256i, __m256, _mm256_cvtepu16_epi32(_mm256_cvtps_ph(x, 0)))
#ifdef __AVX512F__
FORM(widened, eN16, __m512, __m512i, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)))
FORM(narrowed, eN16, __m512i, __m512, _mm512_cvtepu16_epi32(_mm512_cvtps_ph(x, 0)))
#endif
__attribute__((visibility("hidden"))) float w_widened_h(int32_t h) { return _cvtsh_ss((uint16_t)h); }
__attribute__((visibility("hidden"))) int32_t w_narrowed_h(float f) { return _cvtss_sh(f, 0); }

/* Rows of numbers. */
__attribute__((visibility("hidden"))) void w_widen_h(const uint16_t* from, float* to, long count) {
  long i = 0;
#ifdef __AVX512F__
  for (; i + 16 <= count; i += 16)
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)(from + i))));
#endif
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(from + i))));
  for (; i < count; i++) to[i] = _cvtsh_ss(from[i]);
}
__attribute__((visibility("hidden"))) void w_narrow_h(const float* from, uint16_t* to, long count) {
  long i = 0;
#ifdef __AVX512F__
  for (; i + 16 <= count; i += 16)
    _mm256_storeu_si256((__m256i*)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), 0));
#endif
  for (; i + 8 <= count; i += 8) _mm_storeu_si128((__m128i*)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
  for (; i < count; i++) to[i] = _cvtss_sh(from[i], 0);
}
#endif
