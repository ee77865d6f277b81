// Conversions and arithmetic that the C and the CUDA dialect write the same way. A dialect says before how it writes functions
// (W_INLINE, and W_CALL for large ones) and infinities.
#pragma once

/* Conversions to integers: truncate, saturate, NaN gives 0 */
#define W_TO_INT(s, T)                                                                                                 \
  W_INLINE int w_to_int8_##s(T x) { return x >= 127 ? 127 : x <= -128 ? -128 : x == x ? (int)x : 0; }                  \
  W_INLINE int w_to_uint8_##s(T x) { return x >= 255 ? 255 : x > 0 ? (int)x : 0; }                                     \
  W_INLINE int w_to_int16_##s(T x) { return x >= 32767 ? 32767 : x <= -32768 ? -32768 : x == x ? (int)x : 0; }         \
  W_INLINE int w_to_uint16_##s(T x) { return x >= 65535 ? 65535 : x > 0 ? (int)x : 0; }                                \
  W_INLINE int32_t w_to_int32_##s(T x) {                                                                               \
    return x >= (T)2147483648.0 ? INT32_MAX : x <= (T) - 2147483648.0 ? INT32_MIN : x == x ? (int32_t)x : 0;           \
  }                                                                                                                    \
  W_INLINE uint32_t w_to_uint32_##s(T x) { return x >= (T)4294967296.0 ? UINT32_MAX : x > 0 ? (uint32_t)x : 0; }       \
  W_INLINE int64_t w_to_int64_##s(T x) {                                                                               \
    return x >= (T)9223372036854775808.0      ? INT64_MAX                                                              \
           : x <= (T) - 9223372036854775808.0 ? INT64_MIN                                                              \
           : x == x                           ? (int64_t)x                                                             \
                                              : 0;                                                                     \
  }                                                                                                                    \
  W_INLINE uint64_t w_to_uint64_##s(T x) {                                                                             \
    return x >= (T)18446744073709551616.0 ? UINT64_MAX : x > 0 ? (uint64_t)x : 0;                                      \
  }
W_TO_INT(f, float)
W_TO_INT(d, double)
/* A double for a half type, in float: rounded to odd, so that the second rounding goes where one alone would. */
W_INLINE float w_to_odd(double x) {
  float f = (float)x;
  if ((double)f == x || x != x) return f;
  uint32_t u = w_f_to_bits(f);
  if (fabs((double)f) > fabs(x)) u -= 1;
  return w_bits_to_f(u | 1);
}

/* Dialects with forms of their own define them before. */
#ifndef W_FMOD_f
#define W_FMOD_f fmodf
#endif
#define W_FMOD_d fmod
#ifndef W_VECTOR_MATH
#define W_ATAN2(s, T, F)                                                                                               \
  W_CALL T w_atan2_##s(T a, T b) { return atan2##F(a, b); }
W_ATAN2(f, float, f)
W_ATAN2(d, double, )
#endif
#define W_REAL(s, T, F)                                                                                                \
  W_INLINE T w_abs_##s(T x) { return fabs##F(x); }                                                                     \
  W_INLINE T w_round_##s(T x) { return rint##F(x); }                                                                   \
  W_INLINE T w_rsqrt_##s(T x) { return (T)1 / sqrt##F(x); }                                                            \
  W_INLINE T w_sign_##s(T x) { return x != x ? x : (T)((x > 0) - (x < 0)); }                                           \
  W_INLINE int w_isfinite_##s(T x) {                                                                                   \
    return fabs##F(x)                                                                                                  \
    < w_inf_##s();                                                                                                     \
  }                                                                                                                    \
  W_INLINE T w_copysign_##s(T a, T b) { return copysign##F(a, b); }                                                    \
  W_CALL T w_nextafter_##s(T a, T b) { return nextafter##F(a, b); }                                                    \
  W_INLINE T w_mod_##s(T a, T b) {                                                                                     \
    T r = W_FMOD_##s(a, b);                                                                                            \
    if (r == 0) return copysign##F(r, b);                                                                              \
    return (r < 0) != (b < 0) ? r + b : r;                                                                             \
  }                                                                                                                    \
  /* The quotient rounded down, from the exact remainder. */                                                           \
  W_INLINE T w_floordiv_##s(T a, T b) {                                                                                \
    T r = W_FMOD_##s(a, b), q = (a - r) / b - (r != 0 && (r < 0) != (b < 0) ? 1 : 0), w = floor##F(q);                 \
    T whole = q == 0 ? copysign##F((T)0, a / b) : q - w > (T)0.5 ? w + 1 : w;                                          \
    return b == 0 ? a / b : whole;                                                                                     \
  }
W_REAL(f, float, f)
W_REAL(d, double, )
W_INLINE int w_signbit_f(float x) { return (int)(w_f_to_bits(x) >> 31); }
W_INLINE int w_signbit_d(double x) { return (int)(w_d_to_bits(x) >> 63); }

/* The larger and the smaller of two; NaN propagates, and -0 is below 0. Without branches, so that loops vectorize. */
#define W_EXTREMA(s, T)                                                                                                \
  W_INLINE T w_max_##s(T a, T b) { return (a < b) | (b != b) | ((a == b) & w_signbit_##s(a)) ? b : a; }                \
  W_INLINE T w_min_##s(T a, T b) { return (a > b) | (b != b) | ((a == b) & w_signbit_##s(b)) ? b : a; }
#ifndef W_EXTREMA_f
W_EXTREMA(f, float)
#endif
W_EXTREMA(d, double)

/* Integers wrap around: their arithmetic is that of the unsigned type U, whose overflow is defined. */
#define W_INTEGER(s, T, U)                                                                                              \
  W_INLINE T w_add_##s(T a, T b) { return (T)((U)a + (U)b); }                                                           \
  W_INLINE T w_sub_##s(T a, T b) { return (T)((U)a - (U)b); }                                                           \
  W_INLINE T w_mul_##s(T a, T b) { return (T)((U)a * (U)b); }                                                           \
  W_INLINE T w_neg_##s(T a) { return (T)((U)0 - (U)a); }                                                                \
  W_INLINE T w_abs_##s(T a) { return a < 0 ? w_neg_##s(a) : a; }                                                        \
  W_INLINE T w_mod_##s(T a, T b) {                                                                                      \
    if (b == 0 || b == -1) return 0;                                                                                    \
    T r = a % b;                                                                                                        \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                                                    \
  }                                                                                                                     \
  /* By 0 gives 0; the lowest number by -1 wraps to itself. Neither may reach the processor's division, which traps. */ \
  W_INLINE T w_floordiv_##s(T a, T b) {                                                                                 \
    if (b == 0) return 0;                                                                                               \
    if (b == -1) return w_neg_##s(a);                                                                                   \
    T q = a / b;                                                                                                        \
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;                                                                \
  }                                                                                                                     \
  W_INLINE T w_pow_##s(T a, T b) {                                                                                      \
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;                                                      \
    T r = 1;                                                                                                            \
    for (; b > 0; b >>= 1) {                                                                                            \
      if (b & 1) r = w_mul_##s(r, a);                                                                                   \
      a = w_mul_##s(a, a);                                                                                              \
    }                                                                                                                   \
    return r;                                                                                                           \
  }
/* A shift by a negative number, or by more bits than there are, leaves nothing. */
#define W_SHIFT(s, T, U, BITS, FILL)                                                                                   \
  W_INLINE T w_lshift_##s(T a, T b) { return (U)b < BITS ? (T)((U)a << (U)b) : 0; }                                    \
  W_INLINE T w_rshift_##s(T a, T b) { return (U)b < BITS ? (T)(a >> b) : (T)(FILL); }
W_SHIFT(i, int32_t, uint32_t, 32, a >> 31)
W_SHIFT(l, int64_t, uint64_t, 64, a >> 63)
W_SHIFT(u, uint32_t, uint32_t, 32, 0)
W_SHIFT(q, uint64_t, uint64_t, 64, 0)
W_INTEGER(i, int32_t, uint32_t)
W_INTEGER(l, int64_t, uint64_t)
#define W_UNSIGNED(s, T)                                                                                               \
  W_INLINE T w_add_##s(T a, T b) { return a + b; }                                                                     \
  W_INLINE T w_sub_##s(T a, T b) { return a - b; }                                                                     \
  W_INLINE T w_mul_##s(T a, T b) { return a * b; }                                                                     \
  W_INLINE T w_neg_##s(T a) { return (T)0 - a; }                                                                       \
  W_INLINE T w_abs_##s(T a) { return a; }                                                                              \
  W_INLINE T w_mod_##s(T a, T b) { return b == 0 ? 0 : a % b; }                                                        \
  W_INLINE T w_floordiv_##s(T a, T b) { return b == 0 ? 0 : a / b; }                                                   \
  W_INLINE T w_pow_##s(T a, T b) {                                                                                     \
    T r = 1;                                                                                                           \
    for (; b > 0; b >>= 1) {                                                                                           \
      if (b & 1) r *= a;                                                                                               \
      a *= a;                                                                                                          \
    }                                                                                                                  \
    return r;                                                                                                          \
  }
W_UNSIGNED(u, uint32_t)
W_UNSIGNED(q, uint64_t)
