// CUDA kernels of small matrices, a warp each.
#include "numbers.cuh"
#include "prelude.cuh"

/* Small matrices, one per warp, in shared memory: [n][width], of which the first n columns are a matrix. */
#define W_SMALL_BYTES 4352
#define W_SMALL_WARP(T, count)                                                                                         \
  __shared__ __align__(16) char memory[8][W_SMALL_BYTES];                                                              \
  const int lane = threadIdx.x % 32;                                                                                   \
  const long long g = (long long)blockIdx.x * 8 + threadIdx.x / 32;                                                    \
  if (g >= count) return;                                                                                              \
  T* m = (T*)memory[threadIdx.x / 32];
/* The row with the pivot of column j, the first of equal ones; its size goes to *best. */
template <class T> W_INLINE int w_small_pivot(const T* m, int size, int width, int j, T* best) {
  const int lane = threadIdx.x % 32;
  T own = lane >= j && lane < size ? m[lane * width + j] : (T)0;
  own = own < 0 ? -own : own;
  int at = lane;
  for (int d = 1; d < 32; d *= 2) {
    T other = __shfl_xor_sync(0xffffffffu, own, d);
    int from = __shfl_xor_sync(0xffffffffu, at, d);
    /* A NaN that wins stays. */
    if ((own == own && !(other <= own)) || (other == own && from < at)) {
      own = other;
      at = from;
    }
  }
  *best = __shfl_sync(0xffffffffu, own, 0);
  return __shfl_sync(0xffffffffu, at, 0);
}
/* Exchanges rows from a column on. */
template <class T> W_INLINE void w_small_swap(T* m, int width, int first, int i, int j) {
  for (int c = first + (int)threadIdx.x % 32; i != j && c < width; c += 32) {
    T swap = m[j * width + c];
    m[j * width + c] = m[i * width + c];
    m[i * width + c] = swap;
  }
  __syncwarp();
}
/* Systems a x = b of few unknowns: elimination with row exchanges on [a | b]. NaN where a matrix is singular. */
template <class T>
W_INLINE void w_small_solve(const T* a, const T* b, T* out, long long n, long long k, long long count) {
  W_SMALL_WARP(T, count)
  int size = (int)n, width = (int)(n + k);
  for (int e = lane; e < size * width; e += 32) {
    int i = e / width, j = e % width;
    m[e] = j < size ? a[(g * n + i) * n + j] : b[(g * n + i) * k + j - size];
  }
  __syncwarp();
  bool singular = false;
  for (int j = 0; j < size && !singular; j++) {
    T best;
    int at = w_small_pivot(m, size, width, j, &best);
    singular = best == 0;
    if (singular) break;
    w_small_swap(m, width, j, at, j);
    T inverse = (T)1 / m[j * width + j];
    int rest = width - j - 1;
    for (int e = lane; e < (size - j - 1) * rest; e += 32) {
      int i = j + 1 + e / rest, c = j + 1 + e % rest;
      m[i * width + c] -= m[i * width + j] * inverse * m[j * width + c];
    }
    __syncwarp();
  }
  for (int j = size - 1; j >= 0 && !singular; j--) {
    for (int c = size + lane; c < width; c += 32) m[j * width + c] /= m[j * width + j];
    __syncwarp();
    for (int e = lane; e < j * (int)k; e += 32) {
      int i = e / (int)k, c = size + e % (int)k;
      m[i * width + c] -= m[i * width + j] * m[j * width + c];
    }
    __syncwarp();
  }
  for (int e = lane; e < size * (int)k; e += 32)
    out[g * n * k + e] = singular ? (T)w_nan_d() : m[e / (int)k * width + size + e % (int)k];
}
/* Factors with row exchanges: both of them in lu and the order of the rows, or (where lu is null) the determinant. */
template <class T> W_INLINE void w_small_lu(const T* a, T* lu, int* order, T* det, long long n, long long count) {
  W_SMALL_WARP(T, count)
  int size = (int)n, row = lane;
  for (int e = lane; e < size * size; e += 32) m[e] = a[g * n * n + e];
  __syncwarp();
  double product = 1;
  for (int j = 0; j < size; j++) {
    T best;
    int at = w_small_pivot(m, size, size, j, &best);
    /* A column of zeros stays: a zero pivot is part of the result. */
    if (best == 0) at = j;
    w_small_swap(m, size, 0, at, j);
    int from = lane == j ? at : lane == at ? j : lane;
    row = __shfl_sync(0xffffffffu, row, from);
    T pivot = m[j * size + j];
    product *= at == j ? (double)pivot : -(double)pivot;
    if (best == 0) continue;
    if (lane > j && lane < size) m[lane * size + j] /= pivot;
    __syncwarp();
    int rest = size - j - 1;
    for (int e = lane; e < rest * rest; e += 32) {
      int i = j + 1 + e / rest, c = j + 1 + e % rest;
      m[i * size + c] -= m[i * size + j] * m[j * size + c];
    }
    __syncwarp();
  }
  if (lu) {
    for (int e = lane; e < size * size; e += 32) lu[g * n * n + e] = m[e];
    if (lane < size) order[g * n + lane] = row;
  } else if (lane == 0) det[g] = (T)product;
}

/* Lower factors l l^T = a: lane i has row i in registers. NaN where a matrix is not positive definite. Only the lower triangle counts. */
template <class T, int SIZE> W_INLINE void w_small_factor(T* m, int size, int lane) {
  T row[SIZE];
#pragma unroll
  for (int j = 0; j < SIZE; j++) row[j] = j <= lane && lane < size ? m[lane * (size + 1) + j] : (T)0;
  bool bad = false;
#pragma unroll
  for (int j = 0; j < SIZE; j++) {
    if (j >= size) break;
    const T pivot = __shfl_sync(0xffffffffu, row[j], j);
    bad = bad || !(pivot > 0) || !w_finite(pivot);
    const T root = sqrt(pivot), own = lane == j ? root : row[j] / root;
    row[j] = own;
#pragma unroll
    for (int k = j + 1; k < SIZE; k++) {
      const T other = __shfl_sync(0xffffffffu, own, k);
      if (lane >= k) row[k] -= own * other;
    }
  }
#pragma unroll
  for (int j = 0; j < SIZE; j++)
    if (j < size && lane < size) m[lane * (size + 1) + j] = bad ? (T)w_nan_d() : j <= lane ? row[j] : (T)0;
}
template <class T> W_INLINE void w_small_cholesky(const T* a, T* out, long long n, long long count) {
  W_SMALL_WARP(T, count)
  const int size = (int)n;
  /* Rows are padded, so that lanes read different banks. */
  for (int e = lane; e < size * size; e += 32) m[e / size * (size + 1) + e % size] = a[g * n * n + e];
  __syncwarp();
  if (size <= 8) w_small_factor<T, 8>(m, size, lane);
  else if (size <= 16) w_small_factor<T, 16>(m, size, lane);
  else w_small_factor<T, 32>(m, size, lane);
  __syncwarp();
  for (int e = lane; e < size * size; e += 32) out[g * n * n + e] = m[e / size * (size + 1) + e % size];
}

#define W_SMALL(name, T)                                                                                               \
  extern "C" __global__ void w_small_solve_##name(const T* a, const T* b, T* out, long long n, long long k,            \
                                                  long long count) {                                                   \
    w_small_solve<T>(a, b, out, n, k, count);                                                                          \
  }                                                                                                                    \
  extern "C" __global__ void w_small_cholesky_##name(const T* a, T* out, long long n, long long count) {               \
    w_small_cholesky<T>(a, out, n, count);                                                                             \
  }                                                                                                                    \
  extern "C" __global__ void w_small_lu_##name(const T* a, T* lu, int* order, T* det, long long n, long long count) {  \
    w_small_lu<T>(a, lu, order, det, n, count);                                                                        \
  }
W_SMALL(float32, float)
W_SMALL(float64, double)
