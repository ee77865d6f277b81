// CUDA kernels for ops that are not loops over independent elements: running sums, sorting, scattered additions, and the
// pointer tables of batched products. Deterministic: additions happen in the order of the indices.
export const libraryKernels = String.raw`
template <class T> struct w_number { typedef T sum; W_INLINE T load(T x) { return x; } W_INLINE T store(T x) { return x; } };
struct w_half_number { typedef float sum; W_INLINE float load(w_half x) { return w_from_half(x); } W_INLINE w_half store(float x) { return w_to_half(x); } };
struct w_bfloat_number { typedef float sum; W_INLINE float load(w_bfloat x) { return w_from_bfloat(x); } W_INLINE w_bfloat store(float x) { return w_to_bfloat(x); } };
struct w_float_number { typedef double sum; W_INLINE double load(float x) { return x; } W_INLINE float store(double x) { return (float)x; } };

/* One thread a line. parts: numbers an element (2 for complex). */
template <class N, class T> W_INLINE void w_cumsum(const T* x, T* out, long long lines, long long n, long long inner, int reverse) {
  long long line = (long long)blockIdx.x * 256 + threadIdx.x;
  if (line >= lines) return;
  long long base = line / inner * n * inner + line % inner;
  typename N::sum total = 0;
  for (long long s = 0; s < n; s++) {
    long long at = base + (reverse ? n - 1 - s : s) * inner;
    total += N::load(x[at]);
    out[at] = N::store(total);
  }
}
#define W_CUMSUM(name, N, T)                                                                                            \
  extern "C" __global__ void w_cumsum_##name(const T* x, T* out, long long lines, long long n, long long inner, long long reverse) { \
    w_cumsum<N, T>(x, out, lines, n, inner, (int)reverse);                                                              \
  }
W_CUMSUM(u8, w_number<uint8_t>, uint8_t)
W_CUMSUM(i32, w_number<int32_t>, int32_t)
W_CUMSUM(i64, w_number<int64_t>, int64_t)
W_CUMSUM(f16, w_half_number, w_half)
W_CUMSUM(bf16, w_bfloat_number, w_bfloat)
W_CUMSUM(f32, w_float_number, float)
W_CUMSUM(f64, w_number<double>, double)

/* base is copied (or zeroed) before. One block an index: the first occurrence of a row adds all of its updates in order. */
template <class N, class T> W_INLINE void w_scatter(const int* indices, const T* updates, T* out, long long before, long long n, long long after, long long count) {
  long long i = blockIdx.x, q = blockIdx.y;
  const int* mine = indices + q * count;
  int row = mine[i];
  if (row < 0 || row >= n) return;
  __shared__ int earlier;
  if (threadIdx.x == 0) earlier = 0;
  __syncthreads();
  for (long long j = threadIdx.x; j < i && !earlier; j += blockDim.x) if (mine[j] == row) earlier = 1;
  __syncthreads();
  if (earlier) return;
  for (long long p = 0; p < before; p++)
    for (long long k = threadIdx.x; k < after; k += blockDim.x) {
      T* to = out + ((q * before + p) * n + row) * after + k;
      typename N::sum total = N::load(*to);
      for (long long j = i; j < count; j++) if (mine[j] == row) total += N::load(updates[((q * before + p) * count + j) * after + k]);
      *to = N::store(total);
    }
}
#define W_SCATTER(name, N, T)                                                                                           \
  extern "C" __global__ void w_scatter_##name(const int* indices, const T* updates, T* out, long long before, long long n, long long after, long long count) { \
    w_scatter<N, T>(indices, updates, out, before, n, after, count);                                                    \
  }
W_SCATTER(u8, w_number<uint8_t>, uint8_t)
W_SCATTER(i32, w_number<int32_t>, int32_t)
W_SCATTER(i64, w_number<int64_t>, int64_t)
W_SCATTER(f16, w_half_number, w_half)
W_SCATTER(bf16, w_bfloat_number, w_bfloat)
W_SCATTER(f32, w_number<float>, float)
W_SCATTER(f64, w_number<double>, double)

/* Stable rank by counting: position of an element = how many come before it. Quadratic in the row, parallel over all. */
template <class N, class T> W_INLINE void w_argsort(const T* x, int* out, long long rows, long long n, int descending) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= rows * n) return;
  const T* row = x + e / n * n;
  long long i = e % n;
  typename N::sum mine = N::load(row[i]);
  bool nan = mine != mine;
  long long rank = 0;
  for (long long j = 0; j < n; j++) {
    typename N::sum other = N::load(row[j]);
    bool other_nan = other != other;
    bool less = descending ? other > mine : other < mine, same = other == mine;
    if (nan || other_nan) { less = nan && !other_nan; same = nan && other_nan; }
    rank += less || (same && j < i);
  }
  out[e / n * n + rank] = (int)i;
}
#define W_ARGSORT(name, N, T)                                                                                           \
  extern "C" __global__ void w_argsort_##name(const T* x, int* out, long long rows, long long n, long long descending) { \
    w_argsort<N, T>(x, out, rows, n, (int)descending);                                                                  \
  }
W_ARGSORT(u8, w_number<uint8_t>, uint8_t)
W_ARGSORT(i32, w_number<int32_t>, int32_t)
W_ARGSORT(i64, w_number<int64_t>, int64_t)
W_ARGSORT(f16, w_half_number, w_half)
W_ARGSORT(bf16, w_bfloat_number, w_bfloat)
W_ARGSORT(f32, w_number<float>, float)
W_ARGSORT(f64, w_number<double>, double)

/* Pointers of a batched product whose batch has several axes. shape: rank, then (size, a, b, c byte strides) an axis. */
struct w_batch { long long rank, size[8], a[8], b[8], c[8]; };
extern "C" __global__ void w_pointers(char* a, char* b, char* c, void** out, long long count, w_batch batch) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  long long at = i;
  for (int d = (int)batch.rank - 1; d >= 0; d--) {
    long long k = at % batch.size[d];
    at /= batch.size[d];
    a += k * batch.a[d]; b += k * batch.b[d]; c += k * batch.c[d];
  }
  out[i] = a; out[count + i] = b; out[2 * count + i] = c;
}
`;
