// CUDA kernels around the solver libraries: between row-major matrices and the libraries' column-major ones, and from
// their results to the conventions of the ops (phases, signs, NaN where there is no answer).
#include "numbers.cuh"
#include "prelude.cuh"

/* out[g][i][j] = in[g][i][j], transposed and conjugated as flags say (1, 2); strides and leading dimensions in elements. */
template <class T, int P> W_INLINE void w_matrix_copy(const T* in, long long in_stride, long long in_ld, T* out,
                                                      long long out_stride, long long out_ld, long long rows,
                                                      long long columns, long long count, long long flags) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= rows * columns * count) return;
  long long g = e / (rows * columns), i = e / columns % rows, j = e % columns;
  const T* from = in + (g * in_stride + i * in_ld + j) * P;
  T* to = out + (g * out_stride + (flags & 1 ? j * out_ld + i : i * out_ld + j)) * P;
  to[0] = from[0];
  if (P == 2) to[1] = flags & 2 ? -from[1] : from[1];
}

/* out[g] = in[g]^T by tiles of 32 x 32, a block each, so that both sides are read and written by rows. With lower_only, zeros above
   the diagonal of out; NaN for matrices with a flag. */
template <class T, int P> W_INLINE void w_transpose(const T* in, T* out, long long rows, long long columns,
                                                    long long count, long long lower_only, const int* flags) {
  __shared__ T tile[32][33 * P];
  const long long across = (columns + 31) / 32, down = (rows + 31) / 32, b = blockIdx.x;
  const long long g = b / (across * down), r0 = b / across % down * 32, c0 = b % across * 32;
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  for (int k = y; k < 32; k += 8)
    if (g < count && r0 + k < rows && c0 + x < columns)
      for (int p = 0; p < P; p++) tile[k][x * P + p] = in[((g * rows + r0 + k) * columns + c0 + x) * P + p];
  __syncthreads();
  for (int k = y; k < 32; k += 8) {
    const long long i = c0 + k, j = r0 + x;
    if (g >= count || i >= columns || j >= rows) continue;
    const bool bad = flags && flags[g] != 0;
    for (int p = 0; p < P; p++)
      out[((g * columns + i) * rows + j) * P + p] = bad                   ? (T)w_nan_d()
                                                    : lower_only && j > i ? (T)0
                                                                          : tile[x][k * P + p];
  }
}
/* Rows in their order after k exchanges, which the library counts from 1. */
template <class I> W_INLINE void w_row_order_of(const I* pivots, int* out, long long m, long long k, long long count) {
  long long g = (long long)blockIdx.x * 256 + threadIdx.x;
  if (g >= count) return;
  for (long long i = 0; i < m; i++) out[g * m + i] = (int)i;
  for (long long i = 0; i < k; i++) {
    const long long j = (long long)pivots[g * k + i] - 1;
    const int swap = out[g * m + i];
    out[g * m + i] = out[g * m + j];
    out[g * m + j] = swap;
  }
}
extern "C" __global__ void w_row_order(const int* pivots, int* out, long long m, long long k, long long count) {
  w_row_order_of(pivots, out, m, k, count);
}
extern "C" __global__ void w_row_order_long(const long long* pivots, int* out, long long m, long long k,
                                            long long count) {
  w_row_order_of(pivots, out, m, k, count);
}

/* flags[g] = 1 where the lower triangle of a matrix has something that is not finite. flags start at 0. */
template <class T, int P> W_INLINE void w_scan_lower(const T* a, int* flags, long long n, long long count) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= n * n * count) return;
  long long i = e / n % n, j = e % n;
  if (j > i) return;
  bool bad = !w_finite(a[e * P]) || (P == 2 && !w_finite(a[e * P + 1]));
  if (bad) flags[e / (n * n)] = 1;
}
/* Zeros where a flag is set: solvers do not terminate on values that are not finite. */
template <class T, int P> W_INLINE void w_clear_flagged(T* a, const int* flags, long long each, long long count) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= each * count || flags[e / each] == 0) return;
  for (int p = 0; p < P; p++) a[e * P + p] = 0;
}
/* NaN where a flag is set. */
template <class T, int P> W_INLINE void w_nan_flagged(T* a, const int* flags, long long each, long long count) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= each * count || flags[e / each] == 0) return;
  for (int p = 0; p < P; p++) a[e * P + p] = (T)w_nan_d();
}
/* Flags matrices whose diagonal is not finite and positive: what a factor of a positive definite matrix has. */
template <class T, int P> W_INLINE void w_flag_diagonal(const T* a, int* flags, long long n, long long count) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= n * count) return;
  T d = a[(e / n * n * n + e % n * (n + 1)) * P];
  if (!(d > 0) || !w_finite(d)) flags[e / n] = 1;
}
/* Zeros above the diagonal. */
template <class T, int P> W_INLINE void w_lower(T* a, long long n, long long count) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= n * n * count) return;
  if (e % n > e / n % n)
    for (int p = 0; p < P; p++) a[e * P + p] = 0;
}
/* Vectors in rows, of the conjugate matrix, become vectors in columns; the largest component of each (of nearly equal
   ones the first) becomes real and positive. */
template <class T, int P> W_INLINE void w_turn_vectors(const T* in, T* out, long long n, long long count) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= n * count) return;
  long long g = e / n, j = e % n;
  const T* v = in + e * n * P;
  T* to = out + (g * n * n + j) * P;
  T largest = 0;
  for (long long i = 0; i < n; i++) {
    T size = P == 2 ? v[2 * i] * v[2 * i] + v[2 * i + 1] * v[2 * i + 1] : v[i] * v[i];
    if (size > largest) largest = size;
  }
  T re = 1, im = 0;
  long long pivot = -1;
  for (long long i = 0; i < n && pivot < 0; i++) {
    T size = P == 2 ? v[2 * i] * v[2 * i] + v[2 * i + 1] * v[2 * i + 1] : v[i] * v[i];
    if (size >= (T)0.998001 * largest && size > 0) {
      pivot = i;
      T length = sqrt(size);
      re = v[P * i] / length;
      im = P == 2 ? v[P * i + 1] / length : (T)0;
    }
  }
  for (long long i = 0; i < n; i++) {
    T x = v[P * i], y = P == 2 ? v[P * i + 1] : (T)0;
    /* conj(v) * conj(sign(conj(pivot))) = conj(v) * (re + i im) */
    to[i * n * P] = x * re + y * im;
    if (P == 2) to[i * n * P + 1] = i == pivot ? (T)0 : x * im - y * re;
  }
}
/* The upper factor of a column-major m x n factorization as a row-major k x n one with a diagonal >= 0, and the phases
   by which its rows were divided. */
template <class T, int P>
W_INLINE void w_upper(const T* a, T* r, T* phases, long long m, long long n, long long k, long long count) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= k * n * count) return;
  long long g = e / (k * n), i = e / n % k, j = e % n;
  const T* f = a + g * m * n * P;
  T dr = f[(i * m + i) * P], di = P == 2 ? f[(i * m + i) * P + 1] : (T)0, length = P == 2 ? hypot(dr, di) : fabs(dr);
  if (length == 0) {
    dr = 1;
    di = 0;
  } else {
    dr /= length;
    di /= length;
  }
  if (j == i) {
    phases[(g * k + i) * P] = dr;
    if (P == 2) phases[(g * k + i) * P + 1] = di;
  }
  T x = 0, y = 0;
  if (j >= i) {
    x = f[(j * m + i) * P];
    y = P == 2 ? f[(j * m + i) * P + 1] : (T)0;
  }
  r[e * P] = j == i ? length : x * dr + y * di;
  if (P == 2) r[e * P + 1] = j == i ? (T)0 : y * dr - x * di;
}
/* Column-major m x k into row-major, every column times its phase. */
template <class T, int P> W_INLINE void w_orthogonal(const T* a, long long a_stride, const T* phases, T* q, long long m,
                                                     long long k, long long count) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= m * k * count) return;
  long long g = e / (m * k), i = e / k % m, j = e % k;
  const T* from = a + (g * a_stride + j * m + i) * P;
  const T* phase = phases + (g * k + j) * P;
  T x = from[0], y = P == 2 ? from[1] : (T)0, c = phase[0], s = P == 2 ? phase[1] : (T)0;
  q[e * P] = x * c - y * s;
  if (P == 2) q[e * P + 1] = x * s + y * c;
}
/* The determinant from a factorization with row exchanges: pivots count from 1. */
template <class T, int P, class I>
W_INLINE void w_det(const T* lu, const I* pivots, T* out, long long n, long long count) {
  long long g = (long long)blockIdx.x * 256 + threadIdx.x;
  if (g >= count) return;
  double re = 1, im = 0;
  for (long long i = 0; i < n; i++) {
    const T* d = lu + (g * n * n + i * (n + 1)) * P;
    double x = d[0], y = P == 2 ? (double)d[1] : 0.0, t = re * x - im * y;
    im = re * y + im * x;
    re = t;
    if (pivots[g * n + i] != (I)(i + 1)) {
      re = -re;
      im = -im;
    }
  }
  out[g * P] = (T)re;
  if (P == 2) out[g * P + 1] = (T)im;
}
extern "C" __global__ void w_addresses(char* base, long long stride, char** out, long long count) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i < count) out[i] = base + i * stride;
}

/* Kernels of every template for every dtype. */
#define W_LINALG(name, N, T)                                                                                           \
  extern "C" __global__ void w_matrix_copy_##name(const T* in, long long is, long long il, T* out, long long os,       \
                                                  long long ol, long long rows, long long columns, long long count,    \
                                                  long long flags) {                                                   \
    w_matrix_copy<T, N>(in, is, il, out, os, ol, rows, columns, count, flags);                                         \
  }                                                                                                                    \
  extern "C" __global__ void w_transpose_##name(const T* in, T* out, long long rows, long long columns,                \
                                                long long count, long long lower_only, const int* flags) {             \
    w_transpose<T, N>(in, out, rows, columns, count, lower_only, flags);                                               \
  }                                                                                                                    \
  extern "C" __global__ void w_flag_lower_##name(const T* a, int* flags, long long n, long long count) {               \
    w_scan_lower<T, N>(a, flags, n, count);                                                                            \
  }                                                                                                                    \
  extern "C" __global__ void w_clear_flagged_##name(T* a, const int* flags, long long each, long long count) {         \
    w_clear_flagged<T, N>(a, flags, each, count);                                                                      \
  }                                                                                                                    \
  extern "C" __global__ void w_nan_flagged_##name(T* a, const int* flags, long long each, long long count) {           \
    w_nan_flagged<T, N>(a, flags, each, count);                                                                        \
  }                                                                                                                    \
  extern "C" __global__ void w_flag_diagonal_##name(const T* a, int* flags, long long n, long long count) {            \
    w_flag_diagonal<T, N>(a, flags, n, count);                                                                         \
  }                                                                                                                    \
  extern "C" __global__ void w_lower_##name(T* a, long long n, long long count) { w_lower<T, N>(a, n, count); }        \
  extern "C" __global__ void w_turn_vectors_##name(const T* in, T* out, long long n, long long count) {                \
    w_turn_vectors<T, N>(in, out, n, count);                                                                           \
  }                                                                                                                    \
  extern "C" __global__ void w_upper_##name(const T* a, T* r, T* phases, long long m, long long n, long long k,        \
                                            long long count) {                                                         \
    w_upper<T, N>(a, r, phases, m, n, k, count);                                                                       \
  }                                                                                                                    \
  extern "C" __global__ void w_orthogonal_##name(const T* a, long long stride, const T* phases, T* q, long long m,     \
                                                 long long k, long long count) {                                       \
    w_orthogonal<T, N>(a, stride, phases, q, m, k, count);                                                             \
  }                                                                                                                    \
  extern "C" __global__ void w_det_##name(const T* lu, const int* pivots, T* out, long long n, long long count) {      \
    w_det<T, N>(lu, pivots, out, n, count);                                                                            \
  }                                                                                                                    \
  extern "C" __global__ void w_det_long_##name(const T* lu, const long long* pivots, T* out, long long n,              \
                                               long long count) {                                                      \
    w_det<T, N>(lu, pivots, out, n, count);                                                                            \
  }
W_LINALG(float32, 1, float)
W_LINALG(float64, 1, double)
W_LINALG(complex64, 2, float)
W_LINALG(complex128, 2, double)
