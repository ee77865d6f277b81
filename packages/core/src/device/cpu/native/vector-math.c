// Vector forms of functions that compilers do not vectorize, one function (W_FUNCTION) and one instruction set per copy of this
// text: W_TAG is the letter of the x86 vector ABI, W_LANES the doubles of a vector. Compilers call these forms from loops because
// prelude.h declares the functions with the attribute simd. A scalar call goes through the same vector arithmetic, so that a value
// does not depend on its position in a loop. Single precision is computed in double precision and rounded once. Lanes outside of
// the range of the fast path are computed by the C library. The coefficients are Chebyshev interpolants.
#include <math.h>
#include <stdint.h>

#define W_INLINE static inline __attribute__((always_inline, unused))
#define W_PASTE_(a, b, c, d, e) a##b##c##d##e
#define W_PASTE(a, b, c, d, e) W_PASTE_(a, b, c, d, e)
#define W_NAME(f) W_PASTE(wv_, f, _, W_TAG, )
#define W_BYTES (8 * W_LANES)
#define W_FLOATS W_PASTE(W_FLOATS_, W_LANES, , , )
#define W_FLOATS_2 4
#define W_FLOATS_4 8
#define W_FLOATS_8 16
typedef double W_NAME(vec) __attribute__((vector_size(W_BYTES), aligned(W_BYTES)));
typedef int64_t W_NAME(ints) __attribute__((vector_size(W_BYTES)));
typedef float W_NAME(half) __attribute__((vector_size(W_BYTES / 2)));
typedef float W_NAME(floats) __attribute__((vector_size(W_BYTES)));
#define W_V W_NAME(vec)
#define W_I W_NAME(ints)
#define W_ROUNDER 6755399441055744.0 /* 1.5 * 2^52: adding it rounds to an integer, which the low bits then hold */

W_INLINE W_V W_NAME(pick)(W_I mask, W_V a, W_V b) { return (W_V)(((W_I)a & mask) | ((W_I)b & ~mask)); }
W_INLINE W_V W_NAME(magnitude)(W_V x) { return (W_V)((W_I)x & INT64_MAX); }
W_INLINE W_V W_NAME(with_sign)(W_V x, W_V sign) { return (W_V)((W_I)x | ((W_I)sign & INT64_MIN)); }
W_INLINE int64_t W_NAME(any)(W_I mask) {
  int64_t any = 0;
  for (int i = 0; i < W_LANES; i++) any |= mask[i];
  return any;
}
W_INLINE W_V W_NAME(root)(W_V x) {
  W_V r;
  for (int i = 0; i < W_LANES; i++) r[i] = __builtin_sqrt(x[i]);
  return r;
}
W_INLINE W_V W_NAME(all)(double x) { return x - (W_V){0}; }
/* Numbers cut off at an end; NaN stays. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#if W_LANES == 8
#define W_CUT(which, end, x) (W_V) __builtin_ia32_##which##pd512_mask(end, x, end, -1, 4)
#elif W_LANES == 4
#define W_CUT(which, end, x) (W_V) __builtin_ia32_##which##pd256(end, x)
#else
#define W_CUT(which, end, x) (W_V) __builtin_ia32_##which##pd(end, x)
#endif
W_INLINE W_V W_NAME(at_most)(W_V x, double end) { return W_CUT(min, W_NAME(all)(end), x); }
W_INLINE W_V W_NAME(at_least)(W_V x, double end) { return W_CUT(max, W_NAME(all)(end), x); }
#undef W_CUT
#else
W_INLINE W_V W_NAME(at_most)(W_V x, double end) { return W_NAME(pick)(x > end, W_NAME(all)(end), x); }
W_INLINE W_V W_NAME(at_least)(W_V x, double end) { return W_NAME(pick)(x < end, W_NAME(all)(end), x); }
#endif

/* e^x - 1 - x over x^2, for |x| <= log(2) / 2 */
W_INLINE W_V W_NAME(exp_tail)(W_V r) {
  W_V p = 1.6087177234380782e-10 * r + 2.0918961837795778e-09;
  p = p * r + 2.5052069594795685e-08;
  p = p * r + 2.755726102934377e-07;
  p = p * r + 2.7557319248633827e-06;
  p = p * r + 2.4801587338565345e-05;
  p = p * r + 0.00019841269841262761;
  p = p * r + 0.0013888888888878269;
  p = p * r + 0.008333333333333333;
  p = p * r + 0.04166666666666668;
  p = p * r + 0.16666666666666666;
  return p * r + 0.5;
}
/* The multiple of log(2) in x, and what is left of x. */
W_INLINE W_V W_NAME(exp_reduce)(W_V x, W_V* n) {
  *n = (x * 1.4426950408889634 + W_ROUNDER) - W_ROUNDER;
  return (x - *n * 0.6931471803691238) - *n * 1.9082149292705877e-10;
}
/* y * 2^n in two factors: the first product is exact, the second rounds once, also to denormals. */
W_INLINE W_V W_NAME(scale)(W_V y, W_V n) {
  W_I whole = (W_I)(n + W_ROUNDER), half = whole >> 1;
  const int64_t one = 0x3ff0000000000000;
  return y * (W_V)((half << 52) + one) * (W_V)(((whole - half) << 52) + one);
}
/* exp(x) * 2^shift */
W_INLINE W_V W_NAME(exp_shifted)(W_V x, double shift) {
  x = W_NAME(at_least)(W_NAME(at_most)(x, 712.0), -748.0);
  W_V n, r = W_NAME(exp_reduce)(x, &n);
  W_V y = 1.0 + (r + r * r * W_NAME(exp_tail)(r));
  /* A product that underflows takes a hundred cycles; zero times a power of two does not. */
  y = (W_V)((W_I)y & ~(x <= -748.0));
  return W_NAME(scale)(y, shift == 0.0 ? n : n + shift);
}
W_INLINE W_V W_NAME(exp_v)(W_V x) { return W_NAME(exp_shifted)(x, 0.0); }
W_INLINE W_V W_NAME(expm1_v)(W_V x) {
  W_V v = W_NAME(at_least)(W_NAME(at_most)(x, 712.0), -60.0);
  W_V n, r = W_NAME(exp_reduce)(v, &n);
  W_V less = r + r * r * W_NAME(exp_tail)(r);    /* e^r - 1 */
  W_V one = W_NAME(scale)(W_NAME(all)(1.0), -n); /* 2^-n, which is 0 or denormal where it no longer counts */
  W_V y = W_NAME(scale)(less + (1.0 - one), n);
  return W_NAME(pick)(n == 0.0, W_NAME(pick)(x == 0.0, x, less), y);
}
/* x = m 2^k for x > 0, m near 1 */
W_INLINE W_V W_NAME(mantissa)(W_V x, W_V* power) {
  W_I tiny = x < 2.2250738585072014e-308;
  W_V v = W_NAME(pick)(tiny, x * 18014398509481984.0, x);
  W_I bits = (W_I)v, zero = (W_I)W_NAME(all)(W_ROUNDER);
  W_V m = (W_V)((bits & 0xfffffffffffffLL) | 0x3ff0000000000000LL);
  W_V k = (W_V)((bits >> 52) + zero) - W_ROUNDER - 1023.0;
  W_I large = m > 1.4142135623730951;
  *power = k + W_NAME(pick)(large, W_NAME(all)(1.0), W_NAME(all)(0.0)) -
           W_NAME(pick)(tiny, W_NAME(all)(54.0), W_NAME(all)(0.0));
  return W_NAME(pick)(large, m * 0.5, m);
}
/* log(x) + extra for x > 0; log1p brings the rounding error of 1 + x. */
W_INLINE W_V W_NAME(log_sum)(W_V x, W_V extra) {
  W_V k, m = W_NAME(mantissa)(x, &k);
  W_V f = m - 1.0, t = f / (f + 2.0), z = t * t;
  W_V p = 0.13114976096717038 * z + 0.1326603503726105;
  p = p * z + 0.15386342974308154;
  p = p * z + 0.18181793722272505;
  p = p * z + 0.2222222240984404;
  p = p * z + 0.2857142857072283;
  p = p * z + 0.4000000000000101;
  p = p * z + 0.6666666666666666;
  /* 2 t = f - t f = f - (f^2 / 2 - t f^2 / 2): the small terms first */
  W_V h = 0.5 * f * f;
  W_V rest = t * (h + z * p) + (k * 1.9082149292705877e-10 + extra);
  W_V y = k * 0.6931471803691238 - ((h - rest) - f);
  y = W_NAME(pick)(x == __builtin_inf(), x, y);
  y = W_NAME(pick)(x == 0.0, W_NAME(all)(-__builtin_inf()), y);
  return W_NAME(pick)((x < 0.0) | (x != x), W_NAME(all)(__builtin_nan("")), y);
}
W_INLINE W_V W_NAME(log_v)(W_V x) { return W_NAME(log_sum)(x, W_NAME(all)(0.0)); }
W_INLINE W_V W_NAME(log1p_v)(W_V x) {
  W_V u = 1.0 + x, lost = (x - (u - 1.0)) / u;
  lost = W_NAME(pick)((u == 0.0) | (u == __builtin_inf()), W_NAME(all)(0.0), lost);
  return W_NAME(pick)(x == 0.0, x, W_NAME(log_sum)(u, lost));
}
/* x - n pi / 2 as a sum of two numbers, for |x| < 2^20: pi / 2 in parts of 33 bits, whose products with n are exact. */
W_INLINE W_I W_NAME(quarter)(W_V x, W_V* high, W_V* low) {
  W_V rounded = x * 0.6366197723675814 + W_ROUNDER, n = rounded - W_ROUNDER;
  W_V r = x - n * 1.5707963267341256;
  W_V w = n * 6.077100506303966e-11, h = r - w, l = (r - h) - w;
  W_V w3 = n * 2.0222662487111665e-21, h3 = h - w3, l3 = (((h - h3) - w3) + l) - n * 8.4784276603689e-32;
  *high = h3 + l3;
  *low = (h3 - *high) + l3;
  return (W_I)rounded;
}
W_INLINE W_V W_NAME(sine)(W_V x, W_V y) {
  W_V z = x * x;
  W_V p = -7.584263996034166e-13 * z + 1.605848950955874e-10;
  p = p * z - 2.5052105961377e-08;
  p = p * z + 2.7557319218542833e-06;
  p = p * z - 0.0001984126984126402;
  p = p * z + 0.008333333333333331;
  p = p * z - 0.16666666666666666;
  return x + (y + (x * z * p - 0.5 * z * y));
}
W_INLINE W_V W_NAME(cosine)(W_V x, W_V y) {
  W_V z = x * x;
  W_V p = 4.7445191096480046e-14 * z - 1.1470437475266499e-11;
  p = p * z + 2.087675564036913e-09;
  p = p * z - 2.755731922096008e-07;
  p = p * z + 2.4801587301584066e-05;
  p = p * z - 0.0013888888888888887;
  p = p * z + 0.041666666666666664;
  W_V h = 0.5 * z, w = 1.0 - h;
  return w + (((1.0 - w) - h) + (z * z * p - x * y));
}
#define W_WIDE 1000000.0
#if defined(__FMA__) || !defined(__x86_64__)
/* The sine, or the cosine if "half" is 1, for |x| < 2^20, by what is left of x beside the nearest multiple of pi, or the nearest odd
   multiple of pi / 2: a sum of two numbers of at most pi / 2. Products with the first two parts of pi, of 33 bits, are exact. */
W_INLINE W_V W_NAME(turn)(W_V x, int half) {
  W_V rounded = (half ? x * 0.3183098861837907 - 0.5 : x * 0.3183098861837907) + W_ROUNDER, n = rounded - W_ROUNDER;
  if (half) n = n + 0.5;
  W_V r = x - n * 3.1415926534682512, g = r - n * 1.2154201012607932e-10;
  W_V rest = (r - g) - n * 1.2154201012607932e-10, h = g - n * 4.044532497591901e-21;
  W_V l = ((g - h) - n * 4.044532497591901e-21) + rest, z = h * h;
  W_V p = 2.7312869702054162e-15 * z - 7.64395762890072e-13;
  p = p * z + 1.6058976915293983e-10;
  p = p * z - 2.5052107610864233e-08;
  p = p * z + 2.7557319219115034e-06;
  p = p * z - 0.00019841269841254795;
  p = p * z + 0.008333333333333316;
  p = p * z - 0.16666666666666666;
  /* The cosine of h, by which the second number counts, need not be exact. */
  W_V y = h + (h * z * p + l * (1.0 - 0.405 * z));
  return (W_V)((W_I)y ^ (((W_I)rounded + half) << 63));
}
#else
W_INLINE W_V W_NAME(turn)(W_V x, int quarters) {
  W_V h, l;
  W_I n = W_NAME(quarter)(x, &h, &l) + quarters;
  W_V y = W_NAME(pick)((n & 1) == 0, W_NAME(sine)(h, l), W_NAME(cosine)(h, l));
  return (W_V)((W_I)y ^ ((n & 2) << 62));
}
#endif
W_INLINE W_V W_NAME(sin_v)(W_V x) {
  W_I wide = ~(W_NAME(magnitude)(x) < W_WIDE);
  W_V y = W_NAME(pick)(x == 0.0, x, W_NAME(turn)(x, 0));
  if (W_NAME(any)(wide))
    for (int i = 0; i < W_LANES; i++)
      if (wide[i]) y[i] = sin(x[i]);
  return y;
}
W_INLINE W_V W_NAME(cos_v)(W_V x) {
  W_I wide = ~(W_NAME(magnitude)(x) < W_WIDE);
  W_V y = W_NAME(turn)(x, 1);
  if (W_NAME(any)(wide))
    for (int i = 0; i < W_LANES; i++)
      if (wide[i]) y[i] = cos(x[i]);
  return y;
}
W_INLINE W_V W_NAME(tan_v)(W_V x) {
  W_I wide = ~(W_NAME(magnitude)(x) < W_WIDE);
  W_V h, l;
  W_I odd = (W_NAME(quarter)(x, &h, &l) & 1) != 0;
  W_V s = W_NAME(sine)(h, l), c = W_NAME(cosine)(h, l);
  W_V y = W_NAME(pick)(odd, -c, s) / W_NAME(pick)(odd, s, c);
  y = W_NAME(pick)(x == 0.0, x, y);
  if (W_NAME(any)(wide))
    for (int i = 0; i < W_LANES; i++)
      if (wide[i]) y[i] = tan(x[i]);
  return y;
}
W_INLINE W_V W_NAME(tanh_v)(W_V x) {
  W_V a = W_NAME(magnitude)(x), t = W_NAME(expm1_v)(W_NAME(pick)(a > 22.0, W_NAME(all)(44.0), a + a));
  W_V y = W_NAME(pick)(a > 22.0, W_NAME(all)(1.0), t / (t + 2.0));
  return W_NAME(pick)((x == 0.0) | (x != x), x, W_NAME(with_sign)(y, x));
}
W_INLINE W_V W_NAME(sinh_v)(W_V x) {
  W_V a = W_NAME(magnitude)(x), t = W_NAME(expm1_v)(W_NAME(pick)(a > 1.0, W_NAME(all)(1.0), a)),
      e = W_NAME(exp_shifted)(a, -1.0);
  W_V y = W_NAME(pick)(a > 1.0, e - 0.25 / e, 0.5 * (t + t / (t + 1.0)));
  return W_NAME(pick)((x == 0.0) | (x != x), x, W_NAME(with_sign)(y, x));
}
W_INLINE W_V W_NAME(cosh_v)(W_V x) {
  W_V e = W_NAME(exp_shifted)(W_NAME(magnitude)(x), -1.0);
  return e + 0.25 / e;
}
/* Angle of (b, a) in the first octants: atan(a / b) for a, b >= 0 with a reduction to |z| <= tan(pi / 8). */
W_INLINE W_V W_NAME(angle)(W_V a, W_V b) {
  W_I swap = a > b;
  W_V small = W_NAME(pick)(swap, b, a), large = W_NAME(pick)(swap, a, b);
  W_I half = small > 0.41421356237309503 * large;
  W_V z = W_NAME(pick)(half, small - large, small) / W_NAME(pick)(half, small + large, large), s = z * z;
  W_V p = 0.016012008547392122 * s - 0.034321082112901316;
  p = p * s + 0.045417954500753324;
  p = p * s - 0.05228284767565546;
  p = p * s + 0.05878631460320977;
  p = p * s - 0.06666398746388635;
  p = p * s + 0.07692294904896305;
  p = p * s - 0.09090908702135936;
  p = p * s + 0.11111111104112661;
  p = p * s - 0.1428571428564902;
  p = p * s + 0.19999999999999762;
  p = p * s - 0.3333333333333333;
  W_V zero = W_NAME(all)(0.0);
  W_V rest = z * s * p + W_NAME(pick)(half, W_NAME(all)(3.061616997868383e-17), zero);
  W_V y = W_NAME(pick)(half, W_NAME(all)(0.7853981633974483), zero) + (z + rest);
  return W_NAME(pick)(swap, 1.5707963267948966 - (y - 6.123233995736766e-17), y);
}
W_INLINE W_V W_NAME(atan_v)(W_V x) {
  W_V a = W_NAME(magnitude)(x), inf = W_NAME(all)(__builtin_inf());
  W_V y = W_NAME(pick)(a == inf, W_NAME(all)(1.5707963267948966), W_NAME(angle)(a, W_NAME(all)(1.0)));
  return W_NAME(pick)((x == 0.0) | (x != x), x, W_NAME(with_sign)(y, x));
}
W_INLINE W_V W_NAME(asin_tail)(W_V z) { /* asin(x) / x - 1 over x^2, z = x^2 <= 1/4 */
  W_V p = 0.02877844261259304 * z - 0.014881409392818066;
  p = p * z + 0.017419357964884856;
  p = p * z + 0.00545087818772055;
  p = p * z + 0.010324318288744113;
  p = p * z + 0.011478952690257387;
  p = p * z + 0.013971235301124539;
  p = p * z + 0.017352391265909227;
  p = p * z + 0.022372173002005596;
  p = p * z + 0.030381944137085216;
  p = p * z + 0.04464285714637338;
  p = p * z + 0.07499999999998425;
  return p * z + 0.16666666666666669;
}
/* s = sqrt((1 - |x|) / 2) and what its rounding lost, so that pi / 2 - 2 asin(s) keeps its digits. */
W_INLINE W_V W_NAME(asin_v)(W_V x) {
  W_V a = W_NAME(magnitude)(x);
  W_I outer = a > 0.5;
  W_V z = W_NAME(pick)(outer, 0.5 - 0.5 * a, a * a), s = W_NAME(pick)(outer, W_NAME(root)(z), a);
  W_V head = (W_V)((W_I)s & ~0xffffffffLL);
  W_V lost = W_NAME(pick)(s == 0.0, W_NAME(all)(0.0), (z - head * head) / (s + head));
  W_V t = s * z * W_NAME(asin_tail)(z);
  W_V y = W_NAME(pick)(
      outer,
      0.7853981633974483 - ((2.0 * t - (6.123233995736766e-17 - 2.0 * lost)) - (0.7853981633974483 - 2.0 * head)),
      s + t);
  y = W_NAME(pick)(a <= 1.0, y, W_NAME(all)(__builtin_nan("")));
  return W_NAME(pick)(x == 0.0, x, W_NAME(with_sign)(y, x));
}
W_INLINE W_V W_NAME(acos_v)(W_V x) {
  W_V a = W_NAME(magnitude)(x);
  W_I outer = a > 0.5, minus = x < 0.0;
  W_V z = W_NAME(pick)(outer, 0.5 - 0.5 * a, a * a), s = W_NAME(pick)(outer, W_NAME(root)(z), x);
  W_V head = (W_V)((W_I)s & ~0xffffffffLL);
  W_V lost = W_NAME(pick)(s == 0.0, W_NAME(all)(0.0), (z - head * head) / (s + head));
  W_V t = s * z * W_NAME(asin_tail)(z);
  W_V inner = 1.5707963267948966 - (x - (6.123233995736766e-17 - t));
  W_V right = 2.0 * (head + (t + lost));
  W_V left = 3.141592653589793 - 2.0 * (s + (t - 6.123233995736766e-17));
  W_V y = W_NAME(pick)(outer, W_NAME(pick)(minus, left, right), inner);
  return W_NAME(pick)(a <= 1.0, y, W_NAME(all)(__builtin_nan("")));
}
/* y log(x) in double precision has all digits of a float; arguments with rules of their own go to the library. */
W_INLINE W_V W_NAME(pow_v)(W_V x, W_V y) {
  W_I rule = ~((x > 0.0) & (x < __builtin_inf()) & (W_NAME(magnitude)(y) < __builtin_inf()));
  W_V r = W_NAME(exp_v)(y * W_NAME(log_v)(x));
  if (W_NAME(any)(rule))
    for (int i = 0; i < W_LANES; i++)
      if (rule[i]) r[i] = pow(x[i], y[i]);
  return r;
}

#if defined(__FMA__) || !defined(__x86_64__)
W_INLINE W_V W_NAME(fused)(W_V a, W_V b, W_V c) {
  W_V r;
  for (int i = 0; i < W_LANES; i++) r[i] = __builtin_fma(a[i], b[i], c[i]);
  return r;
}
/* The same for doubles: the logarithm and its product with y in two numbers each, so that powers which are whole numbers come out whole. */
W_INLINE W_V W_NAME(pow_exact)(W_V x, W_V y) {
  W_I rule = ~((x > 0.0) & (x < __builtin_inf()) & (W_NAME(magnitude)(y) < __builtin_inf()));
  W_V k, m = W_NAME(mantissa)(x, &k);
  /* 2 atanh(s) with s = (m - 1) / (m + 1) */
  W_V f = m - 1.0, d = m + 1.0, s = f / d, zero = W_NAME(all)(0.0);
  W_V sl = (W_NAME(fused)(-s, d, f) - s * (m - (d - 1.0))) / d;
  W_V z = s * s, zl = W_NAME(fused)(s, s, -z) + 2.0 * s * sl;
  W_V p = 0.11725771221811145 * z + 0.11705988156500907;
  p = p * z + 0.13334813971292003;
  p = p * z + 0.15384594791762352;
  p = p * z + 0.1818181833699257;
  p = p * z + 0.2222222222164882;
  p = p * z + 0.2857142857142938;
  p = p * z + 0.4;
  W_V u = s * z, ul = W_NAME(fused)(s, z, -u) + (s * zl + sl * z);
  W_V third = u * 0.6666666666666666, small = W_NAME(fused)(u, W_NAME(all)(0.6666666666666666), -third) +
                                              (u * 3.700743415417188e-17 + ul * 0.6666666666666666);
  small = small + (2.0 * sl + z * u * p) + k * 1.9082149292705877e-10;
  /* Sums of two numbers and what rounding took from them. */
  W_V a = k * 0.6931471803691238, b = 2.0 * s, ab = a + b, back = ab - a, lost = (a - (ab - back)) + (b - back);
  W_V abc = ab + third, from = abc - ab;
  lost = lost + ((ab - (abc - from)) + (third - from));
  W_V low = lost + small, high = abc + low;
  low = low - (high - abc);
  W_V e = y * high, el = W_NAME(fused)(y, high, -e) + y * low;
  W_I wide = ~(W_NAME(magnitude)(e) < 750.0);
  e = W_NAME(pick)(wide, W_NAME(pick)(e > 0.0, W_NAME(all)(750.0), W_NAME(all)(-750.0)), e);
  el = W_NAME(pick)(wide, zero, el);
  W_V n = (e * 1.4426950408889634 + W_ROUNDER) - W_ROUNDER;
  W_V whole = e - n * 0.6931471803691238, rest = el - n * 1.9082149292705877e-10;
  W_V r = whole + rest, rl = rest - (r - whole);
  W_V one = 1.0 + r, t = rl + r * rl + r * r * W_NAME(exp_tail)(r);
  W_V v = one + ((r - (one - 1.0)) + t);
  v = W_NAME(scale)(W_NAME(pick)(e <= -748.0, zero, v), n);
  if (W_NAME(any)(rule))
    for (int i = 0; i < W_LANES; i++)
      if (rule[i]) v[i] = pow(x[i], y[i]);
  return v;
}
#else
W_INLINE W_V W_NAME(pow_exact)(W_V x, W_V y) {
  for (int i = 0; i < W_LANES; i++) x[i] = pow(x[i], y[i]);
  return x;
}
#endif

/* The angle of the point (x, y) with the sign of y; a sign of -0 counts. */
W_INLINE W_V W_NAME(atan2_v)(W_V y, W_V x) {
  W_V zero = W_NAME(all)(0.0), one = W_NAME(all)(1.0), inf = W_NAME(all)(__builtin_inf());
  W_V a = W_NAME(magnitude)(y), b = W_NAME(magnitude)(x);
  W_I up = a == inf, along = b == inf;
  /* Infinite points have the angles of (1, 0), (0, 1) and (1, 1), and that of (0, 0) is the one of (1, 0). */
  W_V rise = W_NAME(pick)(up, one, W_NAME(pick)(along, zero, a));
  W_V run = W_NAME(pick)(along, one, W_NAME(pick)(up, zero, b));
  run = W_NAME(pick)((a == 0.0) & (b == 0.0), one, run);
  /* The sum of two large numbers must be finite. */
  W_V factor = W_NAME(pick)((rise > 1e300) | (run > 1e300), W_NAME(all)(0.25), one);
  W_V r = W_NAME(angle)(rise * factor, run * factor);
  r = W_NAME(pick)((W_I)x < 0, 3.141592653589793 - (r - 1.2246467991473532e-16), r);
  return W_NAME(pick)((x != x) | (y != y), x + y, W_NAME(with_sign)(r, y));
}
/* The inverse hyperbolic functions as logarithms of 1 + t; beyond 1e16 as those of 2 x. */
W_INLINE W_V W_NAME(log1p_large)(W_I large, W_V x, W_V t) {
  W_V extra = W_NAME(pick)(large, W_NAME(all)(0.6931471805599453), W_NAME(all)(0.0));
  return W_NAME(log1p_v)(W_NAME(pick)(large, x, t)) + extra;
}
W_INLINE W_V W_NAME(asinh_v)(W_V x) {
  W_V a = W_NAME(magnitude)(x), s = a * a;
  W_V y = W_NAME(log1p_large)(a > 1e16, a, a + s / (1.0 + W_NAME(root)(s + 1.0)));
  return W_NAME(pick)((x == 0.0) | (x != x), x, W_NAME(with_sign)(y, x));
}
W_INLINE W_V W_NAME(acosh_v)(W_V x) {
  W_V t = x - 1.0;
  W_V y = W_NAME(log1p_large)(x > 1e16, x, t + W_NAME(root)(2.0 * t + t * t));
  return W_NAME(pick)(x >= 1.0, y, W_NAME(all)(__builtin_nan("")));
}
W_INLINE W_V W_NAME(atanh_v)(W_V x) {
  W_V a = W_NAME(magnitude)(x), y = 0.5 * W_NAME(log1p_v)((a + a) / (1.0 - a));
  return W_NAME(pick)((x == 0.0) | (x != x), x, W_NAME(with_sign)(y, x));
}
/* For numbers that were floats: while the quotient is small, its product with y is exact. */
W_INLINE W_V W_NAME(fmod_v)(W_V x, W_V y) {
  W_V a = W_NAME(magnitude)(x), b = W_NAME(magnitude)(y), n = a / b;
  W_I rule = ~((n < 268435456.0) & (b < __builtin_inf()));
  W_V r = a - ((n + W_ROUNDER) - W_ROUNDER) * b;
  r = W_NAME(with_sign)(r + W_NAME(pick)(r < 0.0, b, W_NAME(all)(0.0)), x);
  if (W_NAME(any)(rule))
    for (int i = 0; i < W_LANES; i++)
      if (rule[i]) r[i] = fmod(x[i], y[i]);
  return r;
}

/* 1 - erf(a) for a >= 0: a polynomial of u = (a - 2) / (a + 2) times exp(-a^2) / (1 + a / 2), where what rounding took from a^2 is put back. */
W_INLINE W_V W_NAME(erfc_positive)(W_V a) {
  a = W_NAME(pick)(a > 28.0, W_NAME(all)(28.0), a);
  W_V u = (a - 2.0) / (a + 2.0);
  W_V p = -2.9492003898066746e-09 * u - 7.483386373386363e-09;
  p = p * u + 1.2053848057593199e-08;
  p = p * u + 5.604123098681145e-08;
  p = p * u + 2.3120013934296395e-08;
  p = p * u - 1.6000721639294473e-07;
  p = p * u - 3.090483385124264e-07;
  p = p * u - 2.5756567964739325e-09;
  p = p * u + 1.016029076484496e-06;
  p = p * u + 1.8245577755819384e-06;
  p = p * u - 5.695328911356867e-07;
  p = p * u - 8.061626648497283e-06;
  p = p * u - 1.0845998080139768e-05;
  p = p * u + 1.707477121455408e-05;
  p = p * u + 7.223492391389934e-05;
  p = p * u + 1.718566173749668e-05;
  p = p * u - 0.00033153669034060673;
  p = p * u - 0.0004186480252833648;
  p = p * u + 0.0015453060244376253;
  p = p * u + 0.003239592533521941;
  p = p * u - 0.01075533094452084;
  p = p * u - 0.018221115753430276;
  p = p * u + 0.1397360462780236;
  p = p * u - 0.34358034220690536;
  p = p * u + 0.5107913526210115;
  W_V s = a * a, head = (W_V)((W_I)a & ~0x7ffffffLL), tail = a - head;
  W_V rest = ((head * head - s) + 2.0 * head * tail) + tail * tail;
  W_V e = W_NAME(pick)(s > 748.0, W_NAME(all)(-748.0), -s), n, r = W_NAME(exp_reduce)(e, &n);
  W_V q = (p + p) / (a + 2.0);
  q = q - q * rest;
  W_V y = q + q * (r + r * r * W_NAME(exp_tail)(r));
  return W_NAME(scale)(W_NAME(pick)(e <= -748.0, W_NAME(all)(0.0), y), n);
}
W_INLINE W_V W_NAME(erfc_v)(W_V x) {
  W_V y = W_NAME(erfc_positive)(W_NAME(magnitude)(x));
  return W_NAME(pick)(x != x, x, W_NAME(pick)(x < 0.0, 2.0 - y, y));
}
W_INLINE W_V W_NAME(erf_v)(W_V x) {
  W_V a = W_NAME(magnitude)(x), z = x * x;
  W_V p = -7.795898827002142e-10 * z + 1.3720064546777686e-08;
  p = p * z - 1.6208483801871705e-07;
  p = p * z + 1.6447424703317362e-06;
  p = p * z - 1.492473690741966e-05;
  p = p * z + 0.00012055294904839707;
  p = p * z - 0.0008548325975389692;
  p = p * z + 0.0052239776071164225;
  p = p * z - 0.02686617064323777;
  p = p * z + 0.11283791670945006;
  p = p * z - 0.37612638903183543;
  p = p * z + 1.1283791670955126;
  W_V y = W_NAME(with_sign)(1.0 - W_NAME(erfc_positive)(a), x);
  return W_NAME(pick)(a <= 1.0, x * p, W_NAME(pick)(x != x, x, y));
}

/* The entry points: doubles, and floats through two vectors of doubles. */
#define W_TEXT_(x) #x
#define W_TEXT(x) W_TEXT_(x)
#define W_SYMBOL(lanes, operands, suffix)                                                                              \
  __asm__("_ZGV" W_TEXT(W_TAG) "N" W_TEXT(lanes) operands "_w_" W_TEXT(W_FUNCTION) suffix)
#define W_ENTRY __attribute__((visibility("hidden")))
#define W_CALLED(suffix) W_PASTE(W_FUNCTION, suffix, , , )
#define W_WIDEN(x) __builtin_convertvector(x, W_V)
#define W_NARROW(x) __builtin_convertvector(x, W_NAME(half))
#define W_F W_NAME(floats)
typedef union {
  W_F whole;
  W_NAME(half) part[2];
} W_NAME(parts);

#if defined(W_QUARTERS) && defined(__FMA__)
/* Sine and cosine in single precision: with fused multiply-adds, three numbers hold enough of pi / 2. */
typedef int32_t W_NAME(places) __attribute__((vector_size(W_BYTES)));
#define W_P W_NAME(places)
#define W_WIDE_F 8192.0f
W_INLINE W_F W_NAME(turn_f)(W_F x) {
  W_F rounded = x * 0.636619747f + 12582912.0f, k = rounded - 12582912.0f;
  W_F r = x - k * 1.57079637f;
  r = r + k * 4.37113883e-8f;
  r = r + k * 1.71512451e-15f;
  W_F z = r * r;
  W_F s = 2.72375772e-6f * z - 1.98399896e-4f;
  s = s * z + 8.33333169e-3f;
  s = s * z - 0.166666667f;
  s = r + r * z * s;
  W_F c = 2.45377508e-5f * z - 1.38882549e-3f;
  c = c * z + 4.16666644e-2f;
  c = (1.0f - 0.5f * z) + z * z * c;
  W_P n = (W_P)rounded + W_QUARTERS, even = (n & 1) == 0;
  return (W_F)((((W_P)s & even) | ((W_P)c & ~even)) ^ ((n & 2) << 30));
}
#endif

#if W_OPERANDS == 2
W_ENTRY W_F W_NAME(float)(W_F x, W_F y) W_SYMBOL(W_FLOATS, "vv", "_f");
W_F W_NAME(float)(W_F x, W_F y) {
  W_NAME(parts) a = {x}, b = {y};
  for (int i = 0; i < 2; i++) a.part[i] = W_NARROW(W_NAME(W_CALLED(_v))(W_WIDEN(a.part[i]), W_WIDEN(b.part[i])));
  return a.whole;
}
#if W_DOUBLES
W_ENTRY W_V W_NAME(double)(W_V x, W_V y) W_SYMBOL(W_LANES, "vv", "_d");
W_V W_NAME(double)(W_V x, W_V y) { return W_NAME(W_CALLED(W_OF_DOUBLES))(x, y); }
#endif
#else
W_ENTRY W_F W_NAME(float)(W_F x) W_SYMBOL(W_FLOATS, "v", "_f");
W_F W_NAME(float)(W_F x) {
#if defined(W_QUARTERS) && defined(__FMA__)
  W_P wide = ~((W_F)((W_P)x & INT32_MAX) < W_WIDE_F), zero = x == 0.0f; /* sin(-0) is -0 */
  int32_t any = 0;
  for (int i = 0; i < 2 * W_LANES; i++) any |= wide[i];
  W_P y = (W_P)W_NAME(turn_f)(x);
  if (!W_QUARTERS) y = ((W_P)x & zero) | (y & ~zero);
  if (any) {
    /* A number does not depend on its neighbors: only those that are wide are computed in double precision. */
    W_NAME(parts) a = {x};
    for (int i = 0; i < 2; i++) a.part[i] = W_NARROW(W_NAME(W_CALLED(_v))(W_WIDEN(a.part[i])));
    y = ((W_P)a.whole & wide) | (y & ~wide);
  }
  return (W_F)y;
#else
  W_NAME(parts) a = {x};
  for (int i = 0; i < 2; i++) a.part[i] = W_NARROW(W_NAME(W_CALLED(_v))(W_WIDEN(a.part[i])));
  return a.whole;
#endif
}
W_ENTRY W_V W_NAME(double)(W_V x) W_SYMBOL(W_LANES, "v", "_d");
W_V W_NAME(double)(W_V x) { return W_NAME(W_CALLED(_v))(x); }
#endif
#if W_LANES == 2
#if W_OPERANDS == 2
W_ENTRY float W_PASTE(w_, W_FUNCTION, _f, , )(float x, float y) {
  return W_NAME(float)((W_F){x, x, x, x}, (W_F){y, y, y, y})[0];
}
#if W_DOUBLES
W_ENTRY double W_PASTE(w_, W_FUNCTION, _d, , )(double x, double y) {
  return W_NAME(double)((W_V){x, x}, (W_V){y, y})[0];
}
#endif
#else
W_ENTRY float W_PASTE(w_, W_FUNCTION, _f, , )(float x) { return W_NAME(float)((W_F){x, x, x, x})[0]; }
W_ENTRY double W_PASTE(w_, W_FUNCTION, _d, , )(double x) { return W_NAME(double)((W_V){x, x})[0]; }
#endif
#endif

/* Another copy of this text may follow. */
#undef W_INLINE
#undef W_PASTE_
#undef W_PASTE
#undef W_NAME
#undef W_BYTES
#undef W_FLOATS
#undef W_FLOATS_2
#undef W_FLOATS_4
#undef W_FLOATS_8
#undef W_V
#undef W_I
#undef W_ROUNDER
#undef W_WIDE
#undef W_TEXT_
#undef W_TEXT
#undef W_SYMBOL
#undef W_ENTRY
#undef W_CALLED
#undef W_WIDEN
#undef W_NARROW
#undef W_F
#undef W_P
#undef W_WIDE_F
#undef W_TAG
#undef W_LANES
