// A vector times a matrix whose rows lie in memory one after the other: out[n] = f(sum over k of x[k] w[k][n] + bias[n]). A thread adds up
// 16 bytes of columns, a block 32 bytes, so that matrices of a few hundred columns keep all multiprocessors reading. The order of the
// sums depends on the shape alone.
#include "activation.cuh"
#include "numbers.cuh"
#include "prelude.cuh"

#define W_VECTOR_THREADS 256
/* Threads beside each other, along a row of the matrix. */
#define W_VECTOR_BESIDE 2

template <class N, class T> W_INLINE void w_vector_columns(const T* x, const T* w, T* out, const T* bias, int k, int n,
                                                           long long ld, int activation) {
  typedef typename N::sum S;
  const int V = 16 / sizeof(T), ROWS = W_VECTOR_THREADS / W_VECTOR_BESIDE, WIDE = V * W_VECTOR_BESIDE, AHEAD = 6;
  __shared__ S parts[W_VECTOR_THREADS / 32][WIDE];
  int beside = threadIdx.x % W_VECTOR_BESIDE, row = threadIdx.x / W_VECTOR_BESIDE;
  int first = blockIdx.x * WIDE + beside * V;
  const bool inside = first < n;
  /* The matrix is on its way before the vector is computed. */
  if (inside)
    for (int r = row, i = 0; r < k && i < 8; r += ROWS, i++) w_prefetch(w + r * ld + first);
  w_begin();
  S sum[V];
#pragma unroll
  for (int i = 0; i < V; i++) sum[i] = 0;
  /* Several rows are on their way before the first of them is used; without the barrier the assembler moves them to their uses. */
#pragma unroll 1
  for (int start = 0; start < k; start += AHEAD * ROWS) {
    __align__(16) T raw[AHEAD][V];
#pragma unroll
    for (int t = 0; t < AHEAD; t++) {
      int r = start + row + t * ROWS;
      *(uint4*)raw[t] = inside && r < k ? *(const uint4*)(w + r * ld + first) : make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
#pragma unroll
    for (int t = 0; t < AHEAD; t++) {
      int r = start + row + t * ROWS;
      S factor = r < k ? (S)N::load(x[r]) : (S)0;
#pragma unroll
      for (int i = 0; i < V; i++) sum[i] += factor * (S)N::load(raw[t][i]);
    }
  }
#pragma unroll
  for (int i = 0; i < V; i++) {
#pragma unroll
    for (int by = W_VECTOR_BESIDE; by < 32; by *= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], by);
    if (threadIdx.x % 32 < W_VECTOR_BESIDE) parts[threadIdx.x / 32][beside * V + i] = sum[i];
  }
  __syncthreads();
  int column = blockIdx.x * WIDE + threadIdx.x;
  if (threadIdx.x >= WIDE || column >= n) return;
  S total = parts[0][threadIdx.x];
  for (int i = 1; i < W_VECTOR_THREADS / 32; i++) total += parts[i][threadIdx.x];
  if (bias) total += (S)N::load(bias[column]);
  out[column] = N::store(w_activation<S>(total, activation));
}
#define W_VECTOR(name, N, T)                                                                                           \
  extern "C" __global__ void w_vector_columns_##name(const T* x, const T* w, T* out, const T* bias, long long k,       \
                                                     long long n, long long ld, long long activation) {                \
    w_vector_columns<N, T>(x, w, out, bias, (int)k, (int)n, ld, (int)activation);                                      \
  }
W_VECTOR(f16, w_half_number, w_half)
W_VECTOR(bf16, w_bfloat_number, w_bfloat)
W_VECTOR(f32, w_number<float>, float)
W_VECTOR(f64, w_number<double>, double)
