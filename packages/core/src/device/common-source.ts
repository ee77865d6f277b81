// What the preludes of the C and the CUDA dialect share, as text: conversions and arithmetic that both write the same way, and
// the rounds of the random numbers (threefry2x32, by key and element index; ops/reference/random.ts has them in TypeScript).
// A dialect says before how it writes functions (W_INLINE, and W_CALL for large ones), infinities, and `w_rotl(word, bits)`.
import { normal32Formula, normal64Formula } from "../ops/index.js";
import { complexFunctions, complexScales } from "./complex-source.js";

export const scalarFunctions = String.raw`/* Conversions to integers: truncate, saturate, NaN gives 0 */
#define W_TO_INT(s, T)                                                                                                  \
  W_INLINE int w_to_int8_##s(T x) { return x >= 127 ? 127 : x <= -128 ? -128 : x == x ? (int)x : 0; }                   \
  W_INLINE int w_to_uint8_##s(T x) { return x >= 255 ? 255 : x > 0 ? (int)x : 0; }                                      \
  W_INLINE int w_to_int16_##s(T x) { return x >= 32767 ? 32767 : x <= -32768 ? -32768 : x == x ? (int)x : 0; }          \
  W_INLINE int w_to_uint16_##s(T x) { return x >= 65535 ? 65535 : x > 0 ? (int)x : 0; }                                 \
  W_INLINE int32_t w_to_int32_##s(T x) {                                                                                \
    return x >= (T)2147483648.0 ? INT32_MAX : x <= (T)-2147483648.0 ? INT32_MIN : x == x ? (int32_t)x : 0;              \
  }                                                                                                                     \
  W_INLINE uint32_t w_to_uint32_##s(T x) { return x >= (T)4294967296.0 ? UINT32_MAX : x > 0 ? (uint32_t)x : 0; }        \
  W_INLINE int64_t w_to_int64_##s(T x) {                                                                                \
    return x >= (T)9223372036854775808.0 ? INT64_MAX : x <= (T)-9223372036854775808.0 ? INT64_MIN : x == x ? (int64_t)x : 0; \
  }                                                                                                                     \
  W_INLINE uint64_t w_to_uint64_##s(T x) { return x >= (T)18446744073709551616.0 ? UINT64_MAX : x > 0 ? (uint64_t)x : 0; }
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

#define W_REAL(s, T, F)                                                                                                 \
  W_INLINE T w_abs_##s(T x) { return fabs##F(x); }                                                                      \
  W_INLINE T w_round_##s(T x) { return rint##F(x); }                                                                    \
  W_INLINE T w_rsqrt_##s(T x) { return (T)1 / sqrt##F(x); }                                                             \
  W_INLINE T w_sign_##s(T x) { return x != x ? x : (T)((x > 0) - (x < 0)); }                                            \
  W_INLINE int w_isfinite_##s(T x) { return fabs##F(x) < w_inf_##s(); }                                                 \
  W_CALL T w_pow_##s(T a, T b) { return pow##F(a, b); }                                                                 \
  W_CALL T w_atan2_##s(T a, T b) { return atan2##F(a, b); }                                                             \
  W_INLINE T w_mod_##s(T a, T b) {                                                                                      \
    T r = fmod##F(a, b);                                                                                                \
    if (r == 0) return copysign##F(r, b);                                                                               \
    return (r < 0) != (b < 0) ? r + b : r;                                                                              \
  }                                                                                                                     \
  /* The quotient rounded down, from the exact remainder. */                                                            \
  W_INLINE T w_floordiv_##s(T a, T b) {                                                                                 \
    T r = fmod##F(a, b), q = (a - r) / b - (r != 0 && (r < 0) != (b < 0) ? 1 : 0), w = floor##F(q);                     \
    T whole = q == 0 ? copysign##F((T)0, a / b) : q - w > (T)0.5 ? w + 1 : w;                                           \
    return b == 0 ? a / b : whole;                                                                                      \
  }
W_REAL(f, float, f)
W_REAL(d, double, )

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
    for (; b > 0; b >>= 1) { if (b & 1) r = w_mul_##s(r, a); a = w_mul_##s(a, a); }                                     \
    return r;                                                                                                           \
  }
W_INTEGER(i, int32_t, uint32_t)
W_INTEGER(l, int64_t, uint64_t)
#define W_UNSIGNED(s, T)                                                                                                \
  W_INLINE T w_add_##s(T a, T b) { return a + b; }                                                                      \
  W_INLINE T w_sub_##s(T a, T b) { return a - b; }                                                                      \
  W_INLINE T w_mul_##s(T a, T b) { return a * b; }                                                                      \
  W_INLINE T w_neg_##s(T a) { return (T)0 - a; }                                                                        \
  W_INLINE T w_abs_##s(T a) { return a; }                                                                               \
  W_INLINE T w_mod_##s(T a, T b) { return b == 0 ? 0 : a % b; }                                                         \
  W_INLINE T w_floordiv_##s(T a, T b) { return b == 0 ? 0 : a / b; }                                                    \
  W_INLINE T w_pow_##s(T a, T b) {                                                                                      \
    T r = 1;                                                                                                            \
    for (; b > 0; b >>= 1) { if (b & 1) r *= a; a *= a; }                                                               \
    return r;                                                                                                           \
  }
W_UNSIGNED(u, uint32_t)
W_UNSIGNED(q, uint64_t)
`;

/** Complex functions of both dialects; see complex-source.ts. */
export const complexSource = complexScales + complexFunctions;

const fourRounds = (first: boolean): string =>
  (first ? [13, 15, 26, 6] : [17, 29, 16, 24]).map((bits) => `W_ROUND(${bits})`).join(" ");
const injections = ["k1, k2", "k2, k0", "k0, k1", "k1, k2", "k2, k0"];
const start = "uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu, x0 = (uint32_t)i + k0, x1 = (uint32_t)(i >> 32) + k1;";

/** A macro that declares x0 and x1, the two words of block `i`, after so many groups of four rounds and what follows them. */
const rounds = (name: string, groups: number, last: string): string =>
  [
    `#define ${name}`,
    start,
    ...injections.slice(0, groups).map((keys, n) => `${fourRounds(n % 2 === 0)} W_INJECT(${keys}, ${n + 1}u)`),
    ...(last === "" ? [] : [last]),
  ].join(" \\\n  ");

/** W_THREEFRY: 20 rounds. W_THREEFRY13: 13, enough for dropout, with `w_kept`: is element n of its draw kept or not? */
export const threefryRounds = `#define W_ROUND(r) x0 += x1; x1 = w_rotl(x1, r) ^ x0;
#define W_INJECT(a, b, n) x0 += a; x1 += b + n;
${rounds("W_THREEFRY", 5, "")}
/* Dropout: 13 rounds, 16 bits per element, four elements per block. */
${rounds("W_THREEFRY13", 3, "W_ROUND(17)")}
W_INLINE int w_kept(uint32_t k0, uint32_t k1, uint64_t n, uint32_t threshold) {
  uint64_t i = n >> 2;
  W_THREEFRY13
  uint32_t word = n & 2 ? x1 : x0;
  return (n & 1 ? word >> 16 : word & 65535u) >= threshold;
}
`;

const horner = (fma: string, x: string, coefficients: readonly number[], end: string): string =>
  [
    `p = ${coefficients[0]}${end};`,
    ...coefficients.slice(1).map((c) => `p = ${fma}(p, ${x}, ${Number.isInteger(c) ? `${c}.0` : c}${end});`),
  ].join(" ");
const [f32, f64] = [normal32Formula, normal64Formula];

/**
 * Normal numbers as ops/reference/normal.ts evaluates them. Every product that is added to something is a fused multiply-add:
 * flags of compilers that allow or forbid contraction change nothing. A dialect defines w_bits_to_f and its companions.
 */
export const normalFunctions = `/* Box-Muller: sqrt(-2 log u) cos(2 pi v), the cosine by folding v to a quarter turn */
W_INLINE float w_normal_f(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  float u = (float)(int32_t)((x0 >> 8) + 1) * 5.9604644775390625e-8f, v = (float)(int32_t)(x1 >> 8) * 5.9604644775390625e-8f;
  int32_t bits = (int32_t)w_f_to_bits(u), e = (bits - 0x3f3504f3) >> 23;
  float f = w_bits_to_f((uint32_t)bits - ((uint32_t)e << 23)) - 1.0f, k = (float)e, p;
  ${horner("fmaf", "f", f32.log, "f")}
  float ff = f * f, y = fmaf(p * f, ff, k * ${f32.ln2[1]}f);
  y = fmaf(-0.5f, ff, y) + f;
  y = fmaf(k, ${f32.ln2[0]}f, y);
  float a = (fabsf(v - 0.5f) - 0.25f) * ${f32.turn}f, s = a * a;
  ${horner("fmaf", "s", f32.sin, "f")}
  return fmaf(sqrtf(-2.0f * y), a * p, 0.0f);
}
#define w_normal_h w_normal_f
#define w_normal_b w_normal_f
W_INLINE double w_normal_d(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  double u = ((double)x0 + 1.0) * 2.3283064365386963e-10, v = (double)x1 * 2.3283064365386963e-10;
  uint64_t bits = w_d_to_bits(u);
  int32_t e = ((int32_t)(bits >> 32) - 0x3fe6a09e) >> 20;
  double f = w_bits_to_d(bits - ((uint64_t)(int64_t)e << 52)) - 1.0, k = (double)e, p;
  double t = f / (f + 2.0), z = t * t;
  ${horner("fma", "z", f64.log, "")}
  double twice = t + t, y = fma(twice * z, p, k * ${f64.ln2[1]});
  y = y + twice;
  y = fma(k, ${f64.ln2[0]}, y);
  double a = (fabs(v - 0.5) - 0.25) * ${f64.turn}, s = a * a;
  ${horner("fma", "s", f64.sin, "")}
  return fma(sqrt(-2.0 * y), a * p, 0.0);
}
`;
