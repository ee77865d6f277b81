// Matrix products as cuBLAS calls them (column-major, data types by number), as plain loops in C++ for the emulator.

#include <stdint.h>
#include <string.h>
#include <complex>
typedef std::complex<double> C;
static double half(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  double s = h >> 15 ? -1 : 1;
  return e == 31 ? (m ? NAN : s * INFINITY)
         : e     ? s * std::ldexp(1 + m / 1024.0, e - 15)
                 : s * std::ldexp(m / 1024.0, -14);
}
static uint16_t toHalf(double d) {
  _Float16 h = (_Float16)(float)d;
  uint16_t u;
  memcpy(&u, &h, 2);
  return u;
}
static uint16_t toBfloat(double d) {
  float f = (float)d;
  uint32_t u;
  memcpy(&u, &f, 4);
  return (u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
/* What the tensor cores see of a float: tf32 keeps 10 bits of the mantissa, bf16 7, f16 10 and a small range. */
static double seen(float f, int compute) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if (compute == 77) {
    u = (u + 0x1000) & 0xffffe000;
    memcpy(&f, &u, 4);
    return f;
  }
  if (compute == 75) {
    u = (uint32_t)toBfloat(f) << 16;
    memcpy(&f, &u, 4);
    return f;
  }
  if (compute == 74) return half(toHalf(f));
  return f;
}
static C load(const void* p, int type, int64_t i, int compute) {
  switch (type) {
    case 0: return seen(((const float*)p)[i], compute);
    case 1: return ((const double*)p)[i];
    case 2: return half(((const uint16_t*)p)[i]);
    case 14: {
      uint32_t u = (uint32_t)((const uint16_t*)p)[i] << 16;
      float f;
      memcpy(&f, &u, 4);
      return f;
    }
    case 4: return C(((const float*)p)[2 * i], ((const float*)p)[2 * i + 1]);
    default: return C(((const double*)p)[2 * i], ((const double*)p)[2 * i + 1]);
  }
}
static void store(void* p, int type, int64_t i, C x) {
  switch (type) {
    case 0: ((float*)p)[i] = x.real(); break;
    case 1: ((double*)p)[i] = x.real(); break;
    case 2: ((uint16_t*)p)[i] = toHalf(x.real()); break;
    case 14: ((uint16_t*)p)[i] = toBfloat(x.real()); break;
    case 4:
      ((float*)p)[2 * i] = x.real();
      ((float*)p)[2 * i + 1] = x.imag();
      break;
    default: ((double*)p)[2 * i] = x.real(); ((double*)p)[2 * i + 1] = x.imag();
  }
}
static void one(const void* alpha, int ta, int tb, int m, int n, int k, const void* a, int at, int64_t lda,
                const void* b, int bt, int64_t ldb, void* c, int ct, int64_t ldc, int compute) {
  const double scale = ct == 1 || ct == 5 ? *(const double*)alpha : *(const float*)alpha;
  for (int j = 0; j < n; j++)
    for (int i = 0; i < m; i++) {
      C sum = 0;
      for (int l = 0; l < k; l++) {
        C x = load(a, at, ta ? l + i * lda : i + l * lda, compute),
          y = load(b, bt, tb ? j + l * ldb : l + j * ldb, compute);
        sum += (ta == 2 ? std::conj(x) : x) * (tb == 2 ? std::conj(y) : y);
      }
      store(c, ct, i + j * ldc, sum * scale);
    }
}
static int bytes(int type) { return type == 0 ? 4 : type == 1 || type == 4 ? 8 : type == 5 ? 16 : 2; }
extern "C" void w_gemm(uint64_t, int ta, int tb, int m, int n, int k, void* alpha, void* a, int at, int lda, void* b,
                       int bt, int ldb, uint64_t, void* c, int ct, int ldc, int compute, int) {
  one(alpha, ta, tb, m, n, k, a, at, lda, b, bt, ldb, c, ct, ldc, compute);
}
extern "C" void w_gemm_strided(uint64_t, int ta, int tb, int m, int n, int k, void* alpha, char* a, int at, int lda,
                               int64_t sa, char* b, int bt, int ldb, int64_t sb, uint64_t, char* c, int ct, int ldc,
                               int64_t sc, int count, int compute, int) {
  for (int i = 0; i < count; i++)
    one(alpha, ta, tb, m, n, k, a + i * sa * bytes(at), at, lda, b + i * sb * bytes(bt), bt, ldb,
        c + i * sc * bytes(ct), ct, ldc, compute);
}
extern "C" void w_gemm_batched(uint64_t, int ta, int tb, int m, int n, int k, void* alpha, void** a, int at, int lda,
                               void** b, int bt, int ldb, uint64_t, void** c, int ct, int ldc, int count, int compute,
                               int) {
  for (int i = 0; i < count; i++) one(alpha, ta, tb, m, n, k, a[i], at, lda, b[i], bt, ldb, c[i], ct, ldc, compute);
}
