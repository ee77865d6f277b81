// Conversions of float16 numbers in generated kernels: by the processor, several at a time (vector-half.c), where it and the compiler
// have them.
#pragma once
#if defined(W_VECTOR_MATH) && defined(__F16C__) && defined(__AVX2__) && !defined(__AVX512FP16__)
extern W_SIMD float w_widened_h(int32_t h);
extern W_SIMD int32_t w_narrowed_h(float f);
#define w_to_half(f) ((w_half)w_narrowed_h(f))
#define w_half_of(f) ((w_half)w_narrowed_h(f))
#define w_round_half(f) w_widened_h(w_narrowed_h(f))
extern __attribute__((visibility("hidden"))) void w_widen_h(const w_half* from, float* to, long count);
extern __attribute__((visibility("hidden"))) void w_narrow_h(const float* from, w_half* to, long count);
#else
static __attribute__((unused)) void w_widen_h(const w_half* from, float* to, long count) {
  for (long i = 0; i < count; i++) to[i] = w_from_half(from[i]);
}
static __attribute__((unused)) void w_narrow_h(const float* from, w_half* to, long count) {
  for (long i = 0; i < count; i++) to[i] = w_to_half(from[i]);
}
#endif
