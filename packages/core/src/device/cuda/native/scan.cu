// Running sums (cumsum), products and extremes on the GPU, all called sums here. Lines are cut into segments where there are fewer
// lines than the GPU needs: a first pass adds up the segments, the second one starts each at the sum of those before it. The order of
// additions depends on the shape alone, so that results are the same in every run. Integers may be narrower than the sums of them.
#include "numbers.cuh"
#include "prelude.cuh"

#define W_SCAN_THREADS 256
/* Elements per thread and round: two vectors of 16 bytes. */
template <class T> struct w_scan_items {
  static const int COUNT = 32 / sizeof(T) > 16 ? 16 : 32 / sizeof(T);
};

/* Words of so many bytes. */
template <int BYTES> struct w_scan_words {
  typedef uint4 word;
};
template <> struct w_scan_words<8> {
  typedef uint2 word;
};
template <> struct w_scan_words<4> {
  typedef unsigned word;
};
/* Elements pos .. pos + COUNT of a line in the order of the scan; what changes no sum beyond end. wide: whole vectors are aligned. */
template <class N, class I, int COUNT> W_INLINE void w_scan_load(const I* line, long long n, long long pos,
                                                                 long long end, int reverse, int wide,
                                                                 typename N::sum* v) {
  long long at = reverse ? n - pos - COUNT : pos;
  if (wide && pos + COUNT <= end) {
    /* Numbers that are narrower than their sums make up half a vector, or less. */
    typedef typename w_scan_words<(COUNT * sizeof(I)) % 16 == 0 ? 16 : COUNT * sizeof(I)>::word W;
    __align__(16) I raw[COUNT];
#pragma unroll
    for (int k = 0; k < (int)(COUNT * sizeof(I) / sizeof(W)); k++) ((W*)raw)[k] = ((const W*)(line + at))[k];
#pragma unroll
    for (int k = 0; k < COUNT; k++) v[k] = N::load(raw[reverse ? COUNT - 1 - k : k]);
    return;
  }
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    long long p = pos + k;
    v[k] = p < end ? (typename N::sum)N::load(line[reverse ? n - 1 - p : p]) : w_joined<N>::none();
  }
}
template <class N, class T, int COUNT> W_INLINE void w_scan_store(T* line, long long n, long long pos, long long end,
                                                                  int reverse, int wide, const typename N::sum* v) {
  long long at = reverse ? n - pos - COUNT : pos;
  if (wide && pos + COUNT <= end) {
    __align__(16) T raw[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; k++) raw[reverse ? COUNT - 1 - k : k] = N::store(v[k]);
#pragma unroll
    for (int k = 0; k < COUNT * (int)sizeof(T) / 16; k++) ((uint4*)(line + at))[k] = ((const uint4*)raw)[k];
    return;
  }
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    long long p = pos + k;
    if (p < end) line[reverse ? n - 1 - p : p] = N::store(v[k]);
  }
}
/* The sum of one value per thread, the same in every thread. */
template <class J, class S> W_INLINE S w_scan_total(S x, S* parts) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int d = 16; d > 0; d /= 2) x = J::join(x, __shfl_xor_sync(0xffffffffu, x, d));
  __syncthreads();
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  S total = parts[0];
  for (int w = 1; w < W_SCAN_THREADS / 32; w++) total = J::join(total, parts[w]);
  return total;
}
/* The sum of the segments before one, in which every thread takes part. */
template <class J, class S> W_INLINE S w_scan_before(const S* sums, long long segment, S* parts) {
  S x = J::none();
  for (long long s = threadIdx.x; s < segment; s += W_SCAN_THREADS) x = J::join(x, sums[s]);
  return w_scan_total<J>(x, parts);
}

/* Contiguous lines, one block per segment. sums: one number per segment, or null where a line is one segment. */
template <class N, class T, class I> W_INLINE void w_scan_sums(const I* x, typename N::sum* sums, long long n,
                                                               long long segments, long long length, int reverse,
                                                               int wide) {
  typedef typename N::sum S;
  typedef w_joined<N> J;
  const int COUNT = w_scan_items<T>::COUNT;
  __shared__ S parts[W_SCAN_THREADS / 32];
  long long line = blockIdx.x / segments, from = blockIdx.x % segments * length,
            to = from + length < n ? from + length : n;
  S total = J::none();
  for (long long tile = from; tile < to; tile += W_SCAN_THREADS * COUNT) {
    S v[COUNT];
    w_scan_load<N, I, COUNT>(x + line * n, n, tile + threadIdx.x * COUNT, to, reverse, wide, v);
#pragma unroll
    for (int k = 0; k < COUNT; k++) total = J::join(total, v[k]);
  }
  total = w_scan_total<J>(total, parts);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}
template <class N, class T, class I> W_INLINE void w_scan_lines(const I* x, T* out, const typename N::sum* sums,
                                                                long long n, long long segments, long long length,
                                                                int reverse, int wide) {
  typedef typename N::sum S;
  typedef w_joined<N> J;
  const int COUNT = w_scan_items<T>::COUNT;
  __shared__ S parts[W_SCAN_THREADS / 32];
  /* Blocks start from the end, which the pass before left in the cache. */
  unsigned block = gridDim.x - 1 - blockIdx.x;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  long long line = block / segments, segment = block % segments, from = segment * length,
            to = from + length < n ? from + length : n;
  S carry = sums ? w_scan_before<J>(sums + line * segments, segment, parts) : J::none();
  for (long long tile = from; tile < to; tile += W_SCAN_THREADS * COUNT) {
    S v[COUNT];
    long long pos = tile + threadIdx.x * COUNT;
    w_scan_load<N, I, COUNT>(x + line * n, n, pos, to, reverse, wide, v);
#pragma unroll
    for (int k = 1; k < COUNT; k++) v[k] = J::join(v[k - 1], v[k]);
    S sum = v[COUNT - 1];
    for (int d = 1; d < 32; d *= 2) {
      S other = __shfl_sync(0xffffffffu, sum, (lane - d) & 31);
      if (lane >= d) sum = J::join(other, sum);
    }
    __syncthreads();
    if (lane == 31) parts[warp] = sum;
    __syncthreads();
    S before = carry, all = carry;
    for (int w = 0; w < W_SCAN_THREADS / 32; w++) {
      if (w < warp) before = J::join(before, parts[w]);
      all = J::join(all, parts[w]);
    }
    S left = __shfl_sync(0xffffffffu, sum, (lane - 1) & 31);
    if (lane > 0) before = J::join(before, left);
#pragma unroll
    for (int k = 0; k < COUNT; k++) v[k] = J::join(before, v[k]);
    w_scan_store<N, T, COUNT>(out + line * n, n, pos, to, reverse, wide, v);
    carry = all;
  }
}
/* Lines side by side in memory: one thread per line and segment, so that a warp reads 32 neighbors. */
template <class N, class T, class I>
W_INLINE void w_scan_column_sums(const I* x, typename N::sum* sums, long long lines, long long n, long long inner,
                                 long long segments, long long length, int reverse) {
  long long id = (long long)blockIdx.x * W_SCAN_THREADS + threadIdx.x, line = id % lines, segment = id / lines;
  if (segment >= segments) return;
  long long from = segment * length, to = from + length < n ? from + length : n,
            base = line / inner * n * inner + line % inner;
  typename N::sum total = w_joined<N>::none();
#pragma unroll 8
  for (long long s = from; s < to; s++)
    total = w_joined<N>::join(total, N::load(x[base + (reverse ? n - 1 - s : s) * inner]));
  sums[id] = total;
}
template <class N, class T, class I> W_INLINE void w_scan_columns(const I* x, T* out, const typename N::sum* sums,
                                                                  long long lines, long long n, long long inner,
                                                                  long long segments, long long length, int reverse) {
  long long id = (long long)blockIdx.x * W_SCAN_THREADS + threadIdx.x, line = id % lines, segment = id / lines;
  if (segment >= segments) return;
  long long from = segment * length, to = from + length < n ? from + length : n,
            base = line / inner * n * inner + line % inner;
  typename N::sum total = w_joined<N>::none();
  if (sums)
    for (long long s = 0; s < segment; s++) total = w_joined<N>::join(total, sums[s * lines + line]);
  for (long long s0 = from; s0 < to; s0 += 8) {
    typename N::sum v[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
      v[k] = s0 + k < to ? (typename N::sum)N::load(x[base + (reverse ? n - 1 - s0 - k : s0 + k) * inner])
                         : (typename N::sum)0;
#pragma unroll
    for (int k = 0; k < 8; k++)
      if (s0 + k < to) {
        total = w_joined<N>::join(total, v[k]);
        out[base + (reverse ? n - 1 - s0 - k : s0 + k) * inner] = N::store(total);
      }
  }
}
#define W_SCAN(name, N, T, I)                                                                                          \
  extern "C" __global__ void w_scan_sums_##name(const I* x, void* sums, long long n, long long segments,               \
                                                long long length, long long reverse, long long wide) {                 \
    w_scan_sums<N, T, I>(x, (typename N::sum*)sums, n, segments, length, (int)reverse, (int)wide);                     \
  }                                                                                                                    \
  extern "C" __global__ void w_scan_lines_##name(const I* x, T* out, const void* sums, long long n,                    \
                                                 long long segments, long long length, long long reverse,              \
                                                 long long wide) {                                                     \
    w_scan_lines<N, T, I>(x, out, (const typename N::sum*)sums, n, segments, length, (int)reverse, (int)wide);         \
  }                                                                                                                    \
  extern "C" __global__ void w_scan_column_sums_##name(const I* x, void* sums, long long lines, long long n,           \
                                                       long long inner, long long segments, long long length,          \
                                                       long long reverse) {                                            \
    w_scan_column_sums<N, T, I>(x, (typename N::sum*)sums, lines, n, inner, segments, length, (int)reverse);           \
  }                                                                                                                    \
  extern "C" __global__ void w_scan_columns_##name(const I* x, T* out, const void* sums, long long lines, long long n, \
                                                   long long inner, long long segments, long long length,              \
                                                   long long reverse) {                                                \
    w_scan_columns<N, T, I>(x, out, (const typename N::sum*)sums, lines, n, inner, segments, length, (int)reverse);    \
  }
W_SCAN(i8, w_number<int8_t>, int8_t, int8_t)
W_SCAN(u8, w_number<uint8_t>, uint8_t, uint8_t)
W_SCAN(i16, w_number<int16_t>, int16_t, int16_t)
W_SCAN(u16, w_number<uint16_t>, uint16_t, uint16_t)
W_SCAN(i32, w_number<int32_t>, int32_t, int32_t)
W_SCAN(u32, w_number<uint32_t>, uint32_t, uint32_t)
W_SCAN(i64, w_number<int64_t>, int64_t, int64_t)
W_SCAN(u64, w_number<uint64_t>, uint64_t, uint64_t)
W_SCAN(f16, w_half_number, w_half, w_half)
W_SCAN(bf16, w_bfloat_number, w_bfloat, w_bfloat)
W_SCAN(f32, w_float_number, float, float)
W_SCAN(f64, w_number<double>, double, double)
W_SCAN(i32i64, w_number<int64_t>, int64_t, int32_t)
W_SCAN(u8u64, w_number<uint64_t>, uint64_t, uint8_t)
W_SCAN(u8i64, w_number<int64_t>, int64_t, uint8_t)
W_SCAN(u8i32, w_number<int32_t>, int32_t, uint8_t)
W_SCAN(prodi32, w_factor<int32_t>, int32_t, int32_t)
W_SCAN(maxi32, w_rising<int32_t>, int32_t, int32_t)
W_SCAN(mini32, w_falling<int32_t>, int32_t, int32_t)
W_SCAN(prodi64, w_factor<int64_t>, int64_t, int64_t)
W_SCAN(maxi64, w_rising<int64_t>, int64_t, int64_t)
W_SCAN(mini64, w_falling<int64_t>, int64_t, int64_t)
W_SCAN(prodf32, w_factor<float>, float, float)
W_SCAN(maxf32, w_rising<float>, float, float)
W_SCAN(minf32, w_falling<float>, float, float)
W_SCAN(prodf64, w_factor<double>, double, double)
W_SCAN(maxf64, w_rising<double>, double, double)
W_SCAN(minf64, w_falling<double>, double, double)
