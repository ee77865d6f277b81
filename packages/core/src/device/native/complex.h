// Complex functions of the C and the CUDA dialect with two results; see complex-base.h for special values and ranges.
#pragma once
#include "complex-base.h"

#define W_COMPLEX(s, T, F)                                                                                             \
  /* k e^a times (c, d), where e^a alone may be out of range; the large part of it goes in before the rest. */         \
  W_INLINE void w_cgrow_##s(T a, T k, T c, T d, T* re, T* im) {                                                        \
    if (a < -W_LARGE_##s) {                                                                                            \
      T h = exp##F(a * (T)0.5);                                                                                        \
      *re = c * h * h * k;                                                                                             \
      *im = d * h * h * k;                                                                                             \
      return;                                                                                                          \
    }                                                                                                                  \
    for (int i = 0; i < 2 && a > W_LARGE_##s; i++) {                                                                   \
      c *= W_EXP_LARGE_##s * k;                                                                                        \
      d *= W_EXP_LARGE_##s * k;                                                                                        \
      k = 1;                                                                                                           \
      a -= W_LARGE_##s;                                                                                                \
    }                                                                                                                  \
    T e = exp##F(a > W_LARGE_##s ? W_LARGE_##s : a)                                                                    \
    *k;                                                                                                                \
    *re = c * e;                                                                                                       \
    *im = d * e;                                                                                                       \
  }                                                                                                                    \
  W_CALL void w_cexp_##s(T a, T b, T* re, T* im) {                                                                     \
    if (b == 0) {                                                                                                      \
      *re = exp##F(a);                                                                                                 \
      *im = b;                                                                                                         \
    } else if (a == -w_inf_##s() && !w_finite_##s(b, b)) {                                                             \
      *re = 0;                                                                                                         \
      *im = 0;                                                                                                         \
    } else if (a == w_inf_##s() && !w_finite_##s(b, b)) {                                                              \
      *re = a;                                                                                                         \
      *im = w_nan_##s();                                                                                               \
    } else w_cgrow_##s(a, (T)1, cos##F(b), sin##F(b), re, im);                                                         \
  }                                                                                                                    \
  W_CALL void w_clog_##s(T a, T b, T* re, T* im) {                                                                     \
    T m = w_larger_##s(a, b), n = fabs##F(a)                                                                           \
    > fabs##F(b)                                                                                                       \
    ? fabs##F(b) : fabs##F(a)                                                                                          \
    , k = w_scale_##s(m);                                                                                              \
    if (m > (T)0.5 && m < (T)2) *re = (T)0.5 * log1p##F((m - 1) * (m + 1) + n * n);                                    \
    else *re = log##F(w_hypot_##s(a * k, b * k))                                                                       \
    -(k == 1 ? 0 : k > 1 ? W_LOG_UP_##s : -W_LOG_UP_##s);                                                              \
    *im = atan2##F(b, a);                                                                                              \
  }                                                                                                                    \
  W_CALL void w_csqrt_##s(T a, T b, T* re, T* im) {                                                                    \
    T m = w_larger_##s(a, b);                                                                                          \
    if (a == 0 && b == 0) {                                                                                            \
      *re = 0;                                                                                                         \
      *im = b;                                                                                                         \
      return;                                                                                                          \
    }                                                                                                                  \
    if (fabs##F(b) == w_inf_##s()) {                                                                                   \
      *re = w_inf_##s();                                                                                               \
      *im = b;                                                                                                         \
      return;                                                                                                          \
    }                                                                                                                  \
    if (fabs##F(a) == w_inf_##s()) {                                                                                   \
      T rest = b != b ? b : 0;                                                                                         \
      *re = a > 0 ? a : rest;                                                                                          \
      *im = a > 0 ? copysign##F(rest, b) : copysign##F(w_inf_##s(), b);                                                \
      return;                                                                                                          \
    }                                                                                                                  \
    /* By 4 down or by an even power up: the root of the scale is exact. */                                            \
    T k = m > W_BIG_##s ? (T)0.25 : m < W_TINY_##s ? W_UP_##s : (T)1;                                                  \
    T x = fabs##F(a)                                                                                                   \
    *k, y = fabs##F(b)                                                                                                 \
    *k, big = sqrt##F((w_hypot_##s(x, y) + x) * (T)0.5)                                                                \
    , back = (T)1 / sqrt##F(k);                                                                                        \
    T small = y / (2 * big);                                                                                           \
    *re = (a >= 0 ? big : small) * back;                                                                               \
    *im = copysign##F((a >= 0 ? small : big) * back, b);                                                               \
    if (a != a || b != b) {                                                                                            \
      *re = w_nan_##s();                                                                                               \
      *im = w_nan_##s();                                                                                               \
    }                                                                                                                  \
  }                                                                                                                    \
  W_INLINE void w_crsqrt_##s(T a, T b, T* re, T* im) {                                                                 \
    T x, y;                                                                                                            \
    w_csqrt_##s(a, b, &x, &y);                                                                                         \
    w_creciprocal_##s(x, y, re, im);                                                                                   \
  }                                                                                                                    \
  W_CALL void w_cexpm1_##s(T a, T b, T* re, T* im) {                                                                   \
    if (b == 0) {                                                                                                      \
      *re = expm1##F(a);                                                                                               \
      *im = b;                                                                                                         \
      return;                                                                                                          \
    }                                                                                                                  \
    if (a > W_LARGE_##s) {                                                                                             \
      w_cexp_##s(a, b, re, im);                                                                                        \
      return;                                                                                                          \
    }                                                                                                                  \
    T h = sin##F(b * (T)0.5);                                                                                          \
    *re = expm1##F(a)                                                                                                  \
    *cos##F(b)                                                                                                         \
    -2 * h* h;                                                                                                         \
    *im = exp##F(a)                                                                                                    \
    *sin##F(b);                                                                                                        \
  }                                                                                                                    \
  W_CALL void w_clog1p_##s(T a, T b, T* re, T* im) {                                                                   \
    w_clog_##s(a + 1, b, re, im);                                                                                      \
    if (w_larger_##s(a, b) < (T)0.5) *re = (T)0.5 * log1p##F(a * (2 + a) + b * b);                                     \
  }                                                                                                                    \
  /* (sinh a cos b, cosh a sin b), and the same with cosh and sinh exchanged. */                                       \
  W_CALL void w_csinh_##s(T a, T b, T* re, T* im) {                                                                    \
    if (b == 0) {                                                                                                      \
      *re = sinh##F(a);                                                                                                \
      *im = b;                                                                                                         \
    } else if (!w_finite_##s(b, b)) {                                                                                  \
      *re = a == 0 || fabs##F(a)                                                                                       \
      == w_inf_##s() ? a : w_nan_##s();                                                                                \
      *im = w_nan_##s();                                                                                               \
    } else if (fabs##F(a) > W_LARGE_##s)                                                                               \
      w_cgrow_##s(fabs##F(a), (T)0.5, copysign##F((T)1, a) * cos##F(b), sin##F(b), re, im);                            \
    else {                                                                                                             \
      *re = sinh##F(a)                                                                                                 \
      *cos##F(b);                                                                                                      \
      *im = cosh##F(a)                                                                                                 \
      *sin##F(b);                                                                                                      \
    }                                                                                                                  \
  }                                                                                                                    \
  W_CALL void w_ccosh_##s(T a, T b, T* re, T* im) {                                                                    \
    if (b == 0) {                                                                                                      \
      *re = cosh##F(a);                                                                                                \
      *im = w_signbit_##s(a) ? -b : b;                                                                                 \
    } else if (!w_finite_##s(b, b)) {                                                                                  \
      *re = fabs##F(a)                                                                                                 \
      == w_inf_##s() ? w_inf_##s() : w_nan_##s();                                                                      \
      *im = a == 0 ? 0 : w_nan_##s();                                                                                  \
    } else if (fabs##F(a) > W_LARGE_##s)                                                                               \
      w_cgrow_##s(fabs##F(a), (T)0.5, cos##F(b), copysign##F((T)1, a) * sin##F(b), re, im);                            \
    else {                                                                                                             \
      *re = cosh##F(a)                                                                                                 \
      *cos##F(b);                                                                                                      \
      *im = sinh##F(a)                                                                                                 \
      *sin##F(b);                                                                                                      \
    }                                                                                                                  \
  }                                                                                                                    \
  W_CALL void w_ctanh_##s(T a, T b, T* re, T* im) { /* Kahan */                                                        \
    if (b == 0 || a == 0) {                                                                                            \
      *re = b == 0 ? tanh##F(a) : a;                                                                                   \
      *im = b == 0 ? b : tan##F(b);                                                                                    \
      return;                                                                                                          \
    }                                                                                                                  \
    if (!w_finite_##s(b, b) && fabs##F(a) != w_inf_##s()) {                                                            \
      *re = w_nan_##s();                                                                                               \
      *im = w_nan_##s();                                                                                               \
      return;                                                                                                          \
    }                                                                                                                  \
    if (fabs##F(a) > 20) {                                                                                             \
      *re = copysign##F((T)1, a);                                                                                      \
      *im = w_finite_##s(b, b) ? 4 * sin##F(b)                                                                         \
      *cos##F(b)                                                                                                       \
      *exp##F(-2 * fabs##F(a)) : 0;                                                                                    \
      return;                                                                                                          \
    }                                                                                                                  \
    T t = tan##F(b)                                                                                                    \
    , h = sinh##F(a)                                                                                                   \
    , grow = 1 + t * t, n = 1 + grow * h * h;                                                                          \
    *re = grow * sqrt##F(1 + h * h)                                                                                    \
    *h / n;                                                                                                            \
    *im = t / n;                                                                                                       \
  }                                                                                                                    \
  W_INLINE void w_csin_##s(T a, T b, T* re, T* im) {                                                                   \
    T x, y;                                                                                                            \
    w_csinh_##s(-b, a, &x, &y);                                                                                        \
    *re = y;                                                                                                           \
    *im = -x;                                                                                                          \
  }                                                                                                                    \
  W_INLINE void w_ccos_##s(T a, T b, T* re, T* im) { w_ccosh_##s(-b, a, re, im); }                                     \
  W_INLINE void w_ctan_##s(T a, T b, T* re, T* im) {                                                                   \
    T x, y;                                                                                                            \
    w_ctanh_##s(-b, a, &x, &y);                                                                                        \
    *re = y;                                                                                                           \
    *im = -x;                                                                                                          \
  }                                                                                                                    \
  W_INLINE int w_cinfinite_##s(T a, T b) { return (fabs##F(a) == w_inf_##s()) | (fabs##F(b) == w_inf_##s()); }         \
  /* x with the sign of y; a NaN, whose sign means nothing, counts as positive. */                                     \
  W_INLINE T w_csigned_##s(T x, T y) { return y != y ? x : copysign##F(x, y); }                                        \
  W_CALL void w_casin_##s(T a, T b, T* re, T* im) { /* Kahan: both sides of the cuts */                                \
    if (w_cinfinite_##s(a, b)) {                                                                                       \
      *re = atan2##F(a, fabs##F(b));                                                                                   \
      *im = w_csigned_##s(w_inf_##s(), b);                                                                             \
      return;                                                                                                          \
    }                                                                                                                  \
    if (a != a || b != b) {                                                                                            \
      *re = a == 0 ? a : w_nan_##s();                                                                                  \
      *im = w_nan_##s();                                                                                               \
      return;                                                                                                          \
    }                                                                                                                  \
    T lr, li, hr, hi;                                                                                                  \
    w_csqrt_##s(1 - a, -b, &lr, &li);                                                                                  \
    w_csqrt_##s(1 + a, b, &hr, &hi);                                                                                   \
    *re = atan2##F(a, lr * hr - li * hi);                                                                              \
    *im = asinh##F(lr * hi - li * hr);                                                                                 \
  }                                                                                                                    \
  W_CALL void w_cacos_##s(T a, T b, T* re, T* im) {                                                                    \
    if (w_cinfinite_##s(a, b)) {                                                                                       \
      *re = atan2##F(fabs##F(b), a);                                                                                   \
      *im = -w_csigned_##s(w_inf_##s(), b);                                                                            \
      return;                                                                                                          \
    }                                                                                                                  \
    if (a != a || b != b) {                                                                                            \
      *re = a == 0 ? (T)1.5707963267948966 : w_nan_##s();                                                              \
      *im = w_nan_##s();                                                                                               \
      return;                                                                                                          \
    }                                                                                                                  \
    T lr, li, hr, hi;                                                                                                  \
    w_csqrt_##s(1 - a, -b, &lr, &li);                                                                                  \
    w_csqrt_##s(1 + a, b, &hr, &hi);                                                                                   \
    *re = 2 * atan2##F(lr, hr);                                                                                        \
    *im = asinh##F(hr * li - hi * lr);                                                                                 \
  }                                                                                                                    \
  W_CALL void w_catan_##s(T a, T b, T* re, T* im) {                                                                    \
    if (w_cinfinite_##s(a, b)) {                                                                                       \
      *re = a != a ? a : copysign##F((T)1.5707963267948966, a);                                                        \
      *im = w_csigned_##s((T)0, b);                                                                                    \
      return;                                                                                                          \
    }                                                                                                                  \
    if (a != a || b != b) {                                                                                            \
      *re = w_nan_##s();                                                                                               \
      *im = b == 0 ? b : w_nan_##s();                                                                                  \
      return;                                                                                                          \
    }                                                                                                                  \
    if (w_larger_##s(a, b) > W_BIG_##s) { /* the square is out of range; 1/z is all that is left */                    \
      T x, y;                                                                                                          \
      w_creciprocal_##s(a, b, &x, &y);                                                                                 \
      *re = copysign##F((T)1.5707963267948966, a)                                                                      \
      -x;                                                                                                              \
      *im = copysign##F(y, b);                                                                                         \
      return;                                                                                                          \
    }                                                                                                                  \
    T away = (1 - b) * (1 - b) + a * a;                                                                                \
    *re = (T)0.5 * atan2##F(2 * a, (1 - b) * (1 + b) - a * a);                                                         \
    *im = (T)0.25 * log1p##F(4 * b / away);                                                                            \
    /* Near the poles, where the square vanishes first. */                                                             \
    if (away < (T)1e-6) *im = (T)0.5 * (log##F(w_hypot_##s(a, 1 + b)) - log##F(w_hypot_##s(a, 1 - b)));                \
    if ((1 + b) * (1 + b) + a * a < (T)1e-6)                                                                           \
      *im = (T)0.5 * (log##F(w_hypot_##s(a, 1 + b)) - log##F(w_hypot_##s(a, 1 - b)));                                  \
  }                                                                                                                    \
  W_INLINE void w_casinh_##s(T a, T b, T* re, T* im) {                                                                 \
    T x, y;                                                                                                            \
    w_casin_##s(-b, a, &x, &y);                                                                                        \
    *re = y;                                                                                                           \
    *im = -x;                                                                                                          \
  }                                                                                                                    \
  W_INLINE void w_catanh_##s(T a, T b, T* re, T* im) {                                                                 \
    T x, y;                                                                                                            \
    w_catan_##s(-b, a, &x, &y);                                                                                        \
    *re = y;                                                                                                           \
    *im = -x;                                                                                                          \
  }                                                                                                                    \
  W_CALL void w_cacosh_##s(T a, T b, T* re, T* im) {                                                                   \
    if (w_cinfinite_##s(a, b)) {                                                                                       \
      *re = w_inf_##s();                                                                                               \
      *im = atan2##F(b, a);                                                                                            \
      return;                                                                                                          \
    }                                                                                                                  \
    if (a != a || b != b) {                                                                                            \
      *re = w_nan_##s();                                                                                               \
      *im = a == 0 ? (T)1.5707963267948966 : w_nan_##s();                                                              \
      return;                                                                                                          \
    }                                                                                                                  \
    T lr, li, hr, hi;                                                                                                  \
    w_csqrt_##s(a - 1, b, &lr, &li);                                                                                   \
    w_csqrt_##s(a + 1, b, &hr, &hi);                                                                                   \
    *re = asinh##F(lr * hr + li * hi);                                                                                 \
    *im = 2 * atan2##F(li, hr);                                                                                        \
  }                                                                                                                    \
  W_CALL void w_cpow_##s(T a, T b, T c, T d, T* re, T* im) {                                                           \
    if (c == 0 && d == 0) {                                                                                            \
      *re = 1;                                                                                                         \
      *im = 0;                                                                                                         \
      return;                                                                                                          \
    }                                                                                                                  \
    if (a == 0 && b == 0) {                                                                                            \
      *re = *im = c > 0 ? 0 : w_nan_##s();                                                                             \
      return;                                                                                                          \
    }                                                                                                                  \
    if (d == 0 && c == trunc##F(c) && fabs##F(c) <= 64) {                                                              \
      if (c < 0) w_creciprocal_##s(a, b, &a, &b);                                                                      \
      T x = 1, y = 0;                                                                                                  \
      for (int n = (int)fabs##F(c); n > 0; n >>= 1) {                                                                  \
        if (n & 1) w_cmul_##s(x, y, a, b, &x, &y);                                                                     \
        if (n > 1) w_cmul_##s(a, b, a, b, &a, &b);                                                                     \
      }                                                                                                                \
      *re = x;                                                                                                         \
      *im = y;                                                                                                         \
      return;                                                                                                          \
    }                                                                                                                  \
    T x, y;                                                                                                            \
    w_clog_##s(a, b, &x, &y);                                                                                          \
    w_cmul_##s(c, d, x, y, &x, &y);                                                                                    \
    w_cexp_##s(x, y, re, im);                                                                                          \
  }
W_COMPLEX(f, float, f)
W_COMPLEX(d, double, )
