// The first elements of the order of a row, without sorting the row: a block holds the keys of a part of a row in shared memory,
// finds the key of the last one that belongs to them digit by digit from the highest, collects those before it, and ranks them by
// counting. Long rows are cut into parts, whose first elements are the candidates of the next launch. Single places of the order, as
// those of a median, are found the same way, without collecting anything.
#include "keys.cuh"

#define W_TOPK_THREADS 512
#define W_TOPK_BITS 11
#define W_TOPK_BINS (1 << W_TOPK_BITS)
#define W_TOPK_ITEMS 8

/* The bin in which element number "wanted" (from 1) lies, the number of elements before that bin, and in it. */
struct w_topk_bin {
  int bin, before, inside;
};
W_INLINE w_topk_bin w_topk_find(const int* bins, int wanted) {
  const int EACH = W_TOPK_BINS / W_TOPK_THREADS;
  __shared__ int parts[W_TOPK_THREADS / 32];
  __shared__ w_topk_bin found;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, v[EACH], sum = 0;
#pragma unroll
  for (int k = 0; k < EACH; k++) sum += v[k] = bins[threadIdx.x * EACH + k];
  int all = sum;
  for (int d = 1; d < 32; d *= 2) {
    int other = __shfl_sync(0xffffffffu, all, (lane - d) & 31);
    if (lane >= d) all += other;
  }
  if (lane == 31) parts[warp] = all;
  __syncthreads();
  int before = all - sum;
  for (int w = 0; w < warp; w++) before += parts[w];
  if (before < wanted && wanted <= before + sum) {
    int k = 0;
    while (before + v[k] < wanted) before += v[k++];
    found = {(int)threadIdx.x * EACH + k, before, v[k]};
  }
  __syncthreads();
  return found;
}

/* from: the places of the m candidates of each row, or null where every element of a row of n is one. The candidates of a row are cut
   into parts; each block leaves the places of the first count of its part. */
template <class Q, class T> W_INLINE void w_topk_rows(char* memory, const T* x, const int* from, int* out, long long n,
                                                      long long m, long long parts, int count, int descending) {
  typedef typename Q::K K;
  const int BITS = (int)sizeof(K) * 8;
  __shared__ int collected, warps[W_TOPK_THREADS / 32];
  long long row = blockIdx.x / parts, part = blockIdx.x % parts, first = part * m / parts;
  int length = (int)((part + 1) * m / parts - first), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const T* values = x + row * n;
  const int* places = from ? from + row * m + first : 0;
  K* keys = (K*)memory;
  int* bins = (int*)(memory + (length * sizeof(K) + 15) / 16 * 16);
  for (int b = threadIdx.x; b < W_TOPK_BINS; b += W_TOPK_THREADS) bins[b] = 0;
  __syncthreads();
  int width = BITS < W_TOPK_BITS ? BITS : W_TOPK_BITS, known = width, rest = count;
  for (int base = 0; base < length; base += W_TOPK_THREADS * W_TOPK_ITEMS) {
    T v[W_TOPK_ITEMS];
#pragma unroll
    for (int k = 0; k < W_TOPK_ITEMS; k++) {
      int i = base + k * W_TOPK_THREADS + (int)threadIdx.x;
      if (i < length) v[k] = values[places ? places[i] : first + i];
    }
#pragma unroll
    for (int k = 0; k < W_TOPK_ITEMS; k++) {
      int i = base + k * W_TOPK_THREADS + (int)threadIdx.x;
      if (i >= length) break;
      K key = Q::of(v[k]);
      if (descending) key = (K)~key;
      keys[i] = key;
      atomicAdd(bins + (int)(key >> (BITS - width)), 1);
    }
  }
  __syncthreads();
  /* The bits of the last key that are known, those before it in number, and those that share the known bits. */
  w_topk_bin at = w_topk_find(bins, rest);
  K prefix = (K)at.bin;
  rest -= at.before;
  while (known < BITS && at.inside != rest) {
    width = BITS - known < W_TOPK_BITS ? BITS - known : W_TOPK_BITS;
    for (int b = threadIdx.x; b < W_TOPK_BINS; b += W_TOPK_THREADS) bins[b] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < length; i += W_TOPK_THREADS) {
      K key = keys[i];
      if ((K)(key >> (BITS - known)) == prefix)
        atomicAdd(bins + (int)(key >> (BITS - known - width) & (((K)1 << width) - 1)), 1);
    }
    __syncthreads();
    at = w_topk_find(bins, rest);
    rest -= at.before;
    known += width;
    prefix = (K)((K)(prefix << width) | (K)at.bin);
  }
  /* Collect: those before the last key in any order, of its equals the first ones. The bins are no longer needed. */
  K* chosen = (K*)bins;
  int* where = (int*)(chosen + (count + 3) / 4 * 4);
  bool all = at.inside == rest;
  if (threadIdx.x == 0) collected = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < length; i += W_TOPK_THREADS) {
    K top = (K)(keys[i] >> (BITS - known));
    if (top < prefix || (all && top == prefix)) {
      int slot = atomicAdd(&collected, 1);
      chosen[slot] = keys[i];
      where[slot] = i;
    }
  }
  for (int base = 0, before = count - rest; !all && before < count; base += W_TOPK_THREADS) {
    int i = base + (int)threadIdx.x;
    bool is = i < length && (K)(keys[i] >> (BITS - known)) == prefix;
    unsigned votes = __ballot_sync(0xffffffffu, is);
    __syncthreads();
    if (lane == 0) warps[warp] = __popc(votes);
    __syncthreads();
    int slot = before + __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < W_TOPK_THREADS / 32; w++) {
      if (w < warp) slot += warps[w];
      before += warps[w];
    }
    if (is && slot < count) {
      chosen[slot] = keys[i];
      where[slot] = i;
    }
  }
  __syncthreads();
  for (int j = threadIdx.x; j < count; j += W_TOPK_THREADS) {
    K key = chosen[j];
    int own = where[j], rank = 0;
#pragma unroll 4
    for (int q = 0; q < count; q++) rank += chosen[q] < key || (chosen[q] == key && where[q] < own);
    out[(long long)blockIdx.x * count + rank] = places ? places[own] : (int)first + own;
  }
}
/* Where the element of one place of the order of a row lies; a block per row and place, for count places from first on. Keys are held
   in shared memory where a row fits, and made again in every round otherwise. */
template <class Q, class T> W_INLINE void w_nth_rows(char* memory, const T* x, int* out, long long n, long long first,
                                                     long long count, int descending, int held) {
  typedef typename Q::K K;
  const int BITS = (int)sizeof(K) * 8;
  __shared__ int warps[W_TOPK_THREADS / 32];
  long long row = blockIdx.x / count;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, length = (int)n, known = 0;
  int rest = (int)(first + blockIdx.x % count) + 1;
  const T* values = x + row * n;
  int* bins = (int*)memory;
  K* keys = (K*)(bins + W_TOPK_BINS);
  K prefix = 0;
  auto key_of = [&](int i) {
    if (held && known > 0) return keys[i];
    K key = Q::of(values[i]);
    return descending ? (K)~key : key;
  };
  /* Keys whose known bits are those of the wanted one. */
  auto matches = [&](K key) { return known == 0 || (K)(key >> (BITS - known)) == prefix; };
  w_topk_bin at = {0, 0, length};
  while (known < BITS && (known == 0 || at.inside > 1)) {
    int width = BITS - known < W_TOPK_BITS ? BITS - known : W_TOPK_BITS;
    for (int b = threadIdx.x; b < W_TOPK_BINS; b += W_TOPK_THREADS) bins[b] = 0;
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < length; i += W_TOPK_THREADS) {
      K key = key_of(i);
      if (held && known == 0) keys[i] = key;
      if (matches(key)) atomicAdd(bins + (int)(key >> (BITS - known - width) & (((K)1 << width) - 1)), 1);
    }
    __syncthreads();
    at = w_topk_find(bins, rest);
    rest -= at.before;
    known += width;
    prefix = (K)((K)(prefix << width) | (K)at.bin);
  }
  /* The rest-th of those that match, in the order of the row. */
  for (int base = 0; rest > 0 && base < length; base += W_TOPK_THREADS) {
    int i = base + (int)threadIdx.x;
    bool is = i < length && matches(key_of(i));
    unsigned votes = __ballot_sync(0xffffffffu, is);
    __syncthreads();
    if (lane == 0) warps[warp] = __popc(votes);
    __syncthreads();
    int place = __popc(votes & ((1u << lane) - 1)) + 1;
    int found = 0;
    for (int w = 0; w < W_TOPK_THREADS / 32; w++) {
      if (w < warp) place += warps[w];
      found += warps[w];
    }
    if (is && place == rest) out[blockIdx.x] = i;
    rest -= found;
  }
}
#define W_TOPK(name, N, T)                                                                                             \
  extern "C" __global__ void __launch_bounds__(W_TOPK_THREADS)                                                         \
      w_topk_rows_##name(const T* x, const int* from, int* out, long long n, long long m, long long parts,             \
                         long long count, long long descending) {                                                      \
    W_DYNAMIC_SHARED(memory);                                                                                          \
    w_topk_rows<N, T>(memory, x, from, out, n, m, parts, (int)count, (int)descending);                                 \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(W_TOPK_THREADS) w_topk_nth_##name(                                      \
      const T* x, int* out, long long n, long long first, long long count, long long descending, long long held) {     \
    W_DYNAMIC_SHARED(memory);                                                                                          \
    w_nth_rows<N, T>(memory, x, out, n, first, count, (int)descending, (int)held);                                     \
  }
W_TOPK(i8, w_key_i8, int8_t)
W_TOPK(u8, w_key_u8, uint8_t)
W_TOPK(i16, w_key_i16, int16_t)
W_TOPK(u16, w_key_u16, uint16_t)
W_TOPK(i32, w_key_i32, int32_t)
W_TOPK(u32, w_key_u32, uint32_t)
W_TOPK(i64, w_key_i64, int64_t)
W_TOPK(u64, w_key_u64, uint64_t)
W_TOPK(f16, w_key_f16, w_half)
W_TOPK(bf16, w_key_bf16, w_bfloat)
W_TOPK(f32, w_key_f32, float)
W_TOPK(f64, w_key_f64, double)
