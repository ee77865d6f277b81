// Loops as the code generator writes them; see self-test.ts.
#include <stdint.h>
#include <stddef.h>
#define W_INLINE static inline __attribute__((always_inline, unused))
#define W_LOOP static __attribute__((noinline)) void
#define W_SELECT(s, T, U)                                                                                              \
  W_INLINE T w_select_##s(int test, T a, T b) {                                                                        \
    U x, y, mask = -(U)(test != 0);                                                                                    \
    __builtin_memcpy(&x, &a, sizeof(T));                                                                               \
    __builtin_memcpy(&y, &b, sizeof(T));                                                                               \
    x = (x & mask) | (y & ~mask);                                                                                      \
    T r;                                                                                                               \
    __builtin_memcpy(&r, &x, sizeof(T));                                                                               \
    return r;                                                                                                          \
  }
W_SELECT(f, float, uint32_t)
W_SELECT(d, double, uint64_t)
W_SELECT(i, int32_t, uint32_t)
W_SELECT(l, int64_t, uint64_t)
#define N 1003

/* Functions of the C library, which programs find in the process that loads them; z is 0. */
#define W_DECLARE(name)                                                                                                \
  double name(double);                                                                                                 \
  float name##f(float);
#define W_DECLARE2(name)                                                                                               \
  double name(double, double);                                                                                         \
  float name##f(float, float);
W_DECLARE(erf)
W_DECLARE(erfc)
W_DECLARE(asinh)
W_DECLARE(acosh)
W_DECLARE(atanh)
W_DECLARE2(pow)
W_DECLARE2(fmod)
W_DECLARE2(atan2)
W_DECLARE2(nextafter)
#define LIBRARY(z, F)                                                                                                  \
  erf##F(z)                                                                                                            \
  +erfc##F(z)                                                                                                          \
  +asinh##F(z)                                                                                                         \
  +acosh##F(z + 1)                                                                                                     \
  +atanh##F(z)                                                                                                         \
  +pow##F(z + 2, z + 10)                                                                                               \
  +fmod##F(z + 7, z + 4)                                                                                               \
  +atan2##F(z, z + 1)                                                                                                  \
  +nextafter##F(z, z)

/* Padded complex numbers times a number, in both precisions */
#define PADDED(name, s, T)                                                                                             \
  W_LOOP name(const T* p, T* q, long lo, long hi) {                                                                    \
    _Pragma("omp simd") for (long i = lo; i < hi; i++) {                                                               \
      int inside = (i) >= 3 && (i) < N - 2;                                                                            \
      const long at = i < 3 ? 3 : i > N - 3 ? N - 3 : i;                                                               \
      T a = p[2 * (at - 3)], b = p[2 * (at - 3) + 1];                                                                  \
      a = w_select_##s(inside, a, 0);                                                                                  \
      b = w_select_##s(inside, b, 0);                                                                                  \
      q[2 * i] = a * 5 - b * 6;                                                                                        \
      q[2 * i + 1] = a * 6 + b * 5;                                                                                    \
    }                                                                                                                  \
  }
PADDED(padded_f, f, float)
PADDED(padded_d, d, double)

/* A complex product where one operand runs backwards */
W_LOOP flipped(const float* p, float* q) {
  _Pragma("omp simd") for (long i = 0; i < N; i++) {
    float a = p[2 * (i)], b = p[2 * (i) + 1], c = p[2 * (N - 1 - i)], d = p[2 * (N - 1 - i) + 1];
    q[2 * i] = a * c - b * d;
    q[2 * i + 1] = a * d + b * c;
  }
}
/* Every third element and a remainder of the index */
W_LOOP strided(const float* p, float* q) {
  _Pragma("omp simd") for (long i = 0; i < N / 3; i++) q[i] = p[3 * i + 1] * 2 + p[i % 7];
}
/* Reductions: sums, a largest element, a flag, complex sums, whole numbers of 64 bits */
W_LOOP reduced(const float* p, const int32_t* k, double* out) {
  float r0 = 0, r1 = -__builtin_inff(), r2r = 0, r2i = 0;
  int n1 = 0;
  double r3 = 0;
  int64_t r4 = 0;
  _Pragma("omp simd reduction(+:r0,r2r,r2i,r3,r4) reduction(max:r1) reduction(|:n1)") for (long i = 0; i < N; i++) {
    float v = p[i], a = p[2 * i], b = p[2 * i + 1];
    r0 += v;
    r1 = v > r1 ? v : r1;
    n1 |= v != v;
    r2r += a;
    r2i += b;
    r3 += (double)v * v;
    r4 += (int64_t)k[i] * 1000003;
  }
  out[0] = r0;
  out[1] = r1;
  out[2] = n1;
  out[3] = r2r;
  out[4] = r2i;
  out[5] = r3;
  out[6] = (double)r4;
}
/* Whole numbers: products that wrap, shifts of bytes, 64 bits beside 32 */
W_LOOP integers(const int32_t* k, int32_t* a, int64_t* b, uint8_t* c) {
  _Pragma("omp simd") for (long i = 0; i < N; i++) {
    int32_t t = k[i] * 2147483;
    int64_t w = (int64_t)k[i] * 4294967311;
    int u = (k[i] * 3) & 255;
    a[i] = t;
    b[i] = w_select_l(k[i] > 0, w, -w);
    c[i] = u;
  }
}
/* Bytes as conditions, and conditions as bytes */
W_LOOP conditions(const uint8_t* t, const float* p, float* q, uint8_t* r) {
  _Pragma("omp simd") for (long i = 0; i < N; i++) {
    int test = t[i];
    float v = p[i];
    q[i] = w_select_f(test, v, -v);
    r[i] = (v < 4) & (test != 0);
  }
}
/* Mixed widths in one loop */
W_LOOP mixed(const uint8_t* t, const int32_t* k, const float* p, double* q) {
  _Pragma("omp simd") for (long i = 0; i < N; i++) q[i] = (double)p[i] + (double)k[i] * 0.5 + (double)t[i];
}
/* Positions from data */
W_LOOP gathered(const int32_t* k, const float* p, float* q) {
  _Pragma("omp simd") for (long i = 0; i < N; i++) {
    const long g = k[i] < 0 ? 0 : k[i] >= N ? N - 1 : k[i];
    q[i] = p[g] + 1;
  }
}
/* Sums down columns, and a result that takes over its operand's memory */
W_LOOP columns(const float* p, float* q) {
  float a[17];
  for (long c = 0; c < 17; c++) a[c] = 0;
  for (long r = 0; r < N / 17; r++) { _Pragma("omp simd") for (long c = 0; c < 17; c++) a[c] += p[r * 17 + c]; }
  for (long c = 0; c < 17; c++) q[c] = a[c];
  _Pragma("omp simd") for (long i = 0; i < 17; i++) q[i] = q[i] * 2 + 1;
}

/* q: room for results; every loop's results follow one another in out. */
void weft_self_test(const float* p, const double* d, const int32_t* k, const uint8_t* t, double* q, double* out) {
  long o = 0;
#define TAKE(T, count)                                                                                                 \
  for (long i = 0; i < (count); i++) out[o++] = (double)((T*)q)[i];
  padded_f(p, (float*)q, 0, N);
  TAKE(float, 2 * N)
  padded_d(d, q, 0, N);
  TAKE(double, 2 * N)
  flipped(p, (float*)q);
  TAKE(float, 2 * N)
  strided(p, (float*)q);
  TAKE(float, N / 3)
  reduced(p, k, out + o);
  o += 7;
  {
    int32_t* a = (int32_t*)q;
    int64_t* b = (int64_t*)(q + N);
    uint8_t* c = (uint8_t*)(q + 2 * N);
    integers(k, a, b, c);
    for (long i = 0; i < N; i++) {
      out[o++] = a[i];
      out[o++] = (double)b[i];
      out[o++] = c[i];
    }
  }
  {
    uint8_t* r = (uint8_t*)(q + N);
    conditions(t, p, (float*)q, r);
    TAKE(float, N)
    for (long i = 0; i < N; i++) out[o++] = r[i];
  }
  mixed(t, k, p, q);
  TAKE(double, N)
  gathered(k, p, (float*)q);
  TAKE(float, N)
  columns(p, (float*)q);
  TAKE(float, 17)
  const double z = d[0] - d[0];
  const float zf = p[0] - p[0];
  out[o++] = LIBRARY(z, );
  out[o++] = LIBRARY(zf, f);
}
