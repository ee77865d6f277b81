// Copies of pixels for direct convolutions: vectors of numbers, bfloat16 ones widened to float32 on the way in and rounded on the way
// out. Part of conv-typed.c.
#pragma once

typedef T TYPED(vec) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
#if BYTES == 4
typedef int32_t TYPED(places) __attribute__((vector_size(64)));
#else
typedef int64_t TYPED(places) __attribute__((vector_size(64)));
#endif
enum { TYPED(lanes) = 64 / sizeof(T) };
#define LANES ((long)TYPED(lanes))
#define UNROLL _Pragma("GCC unroll 16")
#define ALWAYS static inline __attribute__((always_inline))

/* bfloat16 numbers (dtype 4) are widened to T and rounded at the end. */
#if BYTES == 4
#define IS_HALF(s) ((s)->dtype == 4)
#else
#define IS_HALF(s) ((s)->dtype < 0)
#endif
#if BYTES == 4
typedef uint32_t TYPED(bits) __attribute__((vector_size(64), may_alias));
typedef uint16_t TYPED(halves) __attribute__((vector_size(32), aligned(2), may_alias));
#endif
/* Elements [first, first + count) of a tensor: vectors, of which the last one begins earlier where it would not be whole. */
ALWAYS void TYPED(widen)(const wc_shape* s, const void* from, long first, long count, T* to) {
#if BYTES == 4
  if (IS_HALF(s)) {
    const uint16_t* at = (const uint16_t*)from + first;
    for (long i = 0; count >= LANES && i < count; i += LANES) {
      const long q = i + LANES <= count ? i : count - LANES;
      *(TYPED(vec)*)(to + q) =
          (TYPED(vec))(__builtin_convertvector(*(const TYPED(halves)*)(at + q), TYPED(bits)) << 16);
    }
    for (long i = 0; i < count && count < LANES; i++) to[i] = w_from_bfloat(at[i]);
    return;
  }
#else
  (void)s;
#endif
  const T* at = (const T*)from + first;
  for (long i = 0; count >= LANES && i < count; i += LANES) {
    const long q = i + LANES <= count ? i : count - LANES;
    *(TYPED(vec)*)(to + q) = *(const TYPED(vec)*)(at + q);
  }
  if (count < LANES) memcpy(to, at, count * sizeof(T));
}
ALWAYS void TYPED(narrow)(const T* from, void* to, long first, long count) {
  for (long i = 0; i < count; i++) ((uint16_t*)to)[first + i] = w_to_bfloat((float)from[i]);
}
ALWAYS void TYPED(put)(const wc_shape* s, void* to, long at, T value) {
  if (IS_HALF(s)) ((uint16_t*)to)[at] = w_to_bfloat((float)value);
  else ((T*)to)[at] = value;
}

/* Pixels [first, first + count) of "total" with "own" channels each, to places that are "pitch" apart, and back. What does not fill a
   vector is copied with what follows it, where that is in memory too: later pixels write it again. */
ALWAYS void TYPED(spread)(const wc_shape* s, const void* from, long first, long count, long total, long own, T* to,
                          long pitch) {
  if (pitch == own) {
    TYPED(widen)(s, from, first * own, count * own, to);
    return;
  }
  for (long p = 0; p < count; p++)
    for (long v = 0; v < own; v += LANES) {
      const long at = (first + p) * own + v;
      TYPED(widen)(s, from, at,
                   at + LANES <= total * own ? LANES
                   : own - v < LANES         ? own - v
                                             : LANES,
                   to + p * pitch + v);
    }
}
ALWAYS void TYPED(gather_part)(const wc_shape* s, const T* from, void* to, long at, long count) {
  if (IS_HALF(s))
    for (long i = 0; i < count; i++) ((uint16_t*)to)[at + i] = w_to_bfloat((float)from[i]);
  else
    for (long i = 0; i < count; i++) ((T*)to)[at + i] = from[i];
}
static void TYPED(gather)(const wc_shape* s, const T* from, long pitch, void* to, long first, long count, long own) {
  if (pitch == own) {
    TYPED(gather_part)(s, from, to, first * own, count * own);
    return;
  }
  const long end = (first + count) * own;
  for (long p = 0; p < count; p++)
    for (long v = 0; v < own; v += LANES) {
      const long at = (first + p) * own + v;
      if (at + LANES <= end) TYPED(gather_part)(s, from + p * pitch + v, to, at, LANES);
      else TYPED(gather_part)(s, from + p * pitch + v, to, at, own - v < LANES ? own - v : LANES);
    }
}
