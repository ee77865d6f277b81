// A few rows times a matrix whose columns lie in memory one after the other: out[r][m] = f(scale sum over k of x[r][k] w[m][k] +
// bias[m]), r < 8, in half types. The matrix is read once, 16 rows of it per block; its rows are those of the tensor cores' left
// factor, the rows of x the columns of the right one. Warps share the sum in an order that depends on the shape alone.
#include "activation.cuh"
#include "mma.cuh"
#include "numbers.cuh"
#include "prelude.cuh"

/* Most warps of a block. Few blocks have many, so that the GPU has enough of the matrix on its way. */
#define W_SKINNY_WARPS 16
/* Rows of the matrix per block, and of x. */
#define W_SKINNY_ROWS 16
#define W_SKINNY_BESIDE 8
/* Steps of 32 elements that a warp has on their way at once: whole lines of memory. */
#define W_SKINNY_AHEAD 4

/* Modes of w_mma. */
template <class N> struct w_skinny_mode {
  static const int MODE = 2;
};
template <> struct w_skinny_mode<w_half_number> {
  static const int MODE = 3;
};

template <class N, class T> W_INLINE void w_skinny(const T* x, const T* w, T* out, const T* bias, int rows, int k,
                                                   int m, long long ldx, long long ldw, long long ldo, float scale,
                                                   int activation) {
  const int SPAN = 32 * W_SKINNY_AHEAD, warps = blockDim.x / 32;
  __shared__ float parts[W_SKINNY_WARPS][W_SKINNY_BESIDE][W_SKINNY_ROWS + 1];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, first = blockIdx.x * W_SKINNY_ROWS;
  /* Rows beyond the last repeat it, and are not stored. */
  const T* low = w + (first + g < m ? first + g : m - 1) * ldw;
  const T* high = w + (first + g + 8 < m ? first + g + 8 : m - 1) * ldw;
  /* The matrix is on its way before the rows are computed: a lane asks for one of the two lines of a row. */
  {
    const T* row = w + (first + lane / 2 < m ? first + lane / 2 : m - 1) * ldw + lane % 2 * 64;
    for (int start = warp * SPAN, i = 0; start + lane % 2 * 64 < k && i < 4; start += warps * SPAN, i++)
      w_prefetch(row + start);
  }
  w_begin();
  float sum[2][4];
#pragma unroll
  for (int i = 0; i < 4; i++) sum[0][i] = sum[1][i] = 0;
  const uint4 zero = make_uint4(0, 0, 0, 0);
#pragma unroll 1
  for (int start = warp * SPAN; start < k; start += warps * SPAN) {
    uint4 a[W_SKINNY_AHEAD], b[W_SKINNY_AHEAD], c[W_SKINNY_AHEAD];
#pragma unroll
    for (int u = 0; u < W_SKINNY_AHEAD; u++) {
      int at = start + u * 32 + t * 8;
      a[u] = at < k ? *(const uint4*)(low + at) : zero;
      b[u] = at < k ? *(const uint4*)(high + at) : zero;
      c[u] = at < k && g < rows ? *(const uint4*)(x + g * ldx + at) : zero;
    }
    /* Otherwise the assembler moves loads to their uses. */
    __syncwarp();
    /* Which elements of the sum a thread holds does not matter, as long as both factors agree: eight neighbors. */
#pragma unroll
    for (int u = 0; u < W_SKINNY_AHEAD; u++) {
      uint32_t even[4] = {a[u].x, b[u].x, a[u].y, b[u].y}, odd[4] = {a[u].z, b[u].z, a[u].w, b[u].w};
      w_mma<w_skinny_mode<N>::MODE>(sum[0], even, c[u].x, c[u].y);
      w_mma<w_skinny_mode<N>::MODE>(sum[1], odd, c[u].z, c[u].w);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) parts[warp][2 * t + (i & 1)][g + i / 2 * 8] = sum[0][i] + sum[1][i];
  __syncthreads();
  int r = threadIdx.x / W_SKINNY_ROWS, row = first + threadIdx.x % W_SKINNY_ROWS;
  if (r >= rows || row >= m) return;
  float total = parts[0][r][threadIdx.x % W_SKINNY_ROWS];
  for (int i = 1; i < warps; i++) total += parts[i][r][threadIdx.x % W_SKINNY_ROWS];
  total *= scale;
  if (bias) total += N::load(bias[row]);
  out[r * ldo + row] = N::store(w_activation<float>(total, activation));
}
#define W_SKINNY(name, N, T)                                                                                           \
  extern "C" __global__ void __launch_bounds__(512)                                                                    \
      w_skinny_##name(const T* x, const T* w, T* out, const T* bias, long long rows, long long k, long long m,         \
                      long long ldx, long long ldw, long long ldo, long long scale, long long activation) {            \
    w_skinny<N, T>(x, w, out, bias, (int)rows, (int)k, (int)m, ldx, ldw, ldo, __int_as_float((int)scale),              \
                   (int)activation);                                                                                   \
  }
W_SKINNY(bf16, w_bfloat_number, w_bfloat)
W_SKINNY(f16, w_half_number, w_half)
