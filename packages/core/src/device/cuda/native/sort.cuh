// Stable argsort on the GPU: tiles are sorted in shared memory by (value, position), then sorted runs are merged two by
// two; an element's new place is its own rank plus its rank in the other run, found by bisection.
#pragma once
#include "numbers.cuh"

#define W_TILE 2048
/* Whether (a, i) comes before (b, j): NaN is larger than every number, equal values by position. */
template <class S> W_INLINE bool w_before(S a, int i, S b, int j, int descending) {
  bool an = a != a, bn = b != b;
  if (an || bn) return an == bn ? i < j : descending ? an : bn;
  if (a == b) return i < j;
  return descending ? a > b : a < b;
}
template <class N, class T>
W_INLINE void w_sort_tiles(const T* x, int* out, long long n, long long tiles, int descending) {
  typedef typename N::sum S;
  __shared__ S keys[W_TILE];
  __shared__ int at[W_TILE];
  long long row = blockIdx.x / tiles, start = blockIdx.x % tiles * W_TILE;
  int length = n - start < W_TILE ? (int)(n - start) : W_TILE, size = 2;
  while (size < length) size *= 2;
  const T* mine = x + row * n + start;
  for (int i = threadIdx.x; i < size; i += 512) {
    keys[i] = i < length ? (S)N::load(mine[i]) : (S)0;
    at[i] = i < length ? i : 0x7fffffff;
  }
  for (int width = 2; width <= size; width *= 2)
    for (int step = width / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size / 2; i += 512) {
        int a = 2 * i - (i & (step - 1)), b = a + step;
        bool up = (a & width) == 0;
        int ia = at[a], ib = at[b];
        S ka = keys[a], kb = keys[b];
        /* Places beyond the row come last. */
        bool ordered = ib == 0x7fffffff || (ia != 0x7fffffff && w_before(ka, ia, kb, ib, descending));
        if (ordered != up) {
          keys[a] = kb;
          keys[b] = ka;
          at[a] = ib;
          at[b] = ia;
        }
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < length; i += 512) out[row * n + start + i] = (int)(start + at[i]);
}
template <class N, class T> W_INLINE void w_sort_merge(const T* x, const int* from, int* to, long long rows,
                                                       long long n, long long run, int descending) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= rows * n) return;
  long long row = e / n, i = e % n, pair = i / (2 * run) * (2 * run);
  bool right = i - pair >= run;
  long long other = right ? pair : pair + run, low = other < n ? other : n, high = other + run < n ? other + run : n;
  const T* values = x + row * n;
  const int* order = from + row * n;
  int mine = order[i];
  typename N::sum key = N::load(values[mine]);
  long long first = low;
  while (low < high) {
    long long middle = (low + high) / 2;
    int candidate = order[middle];
    if (w_before((typename N::sum)N::load(values[candidate]), candidate, key, mine, descending)) low = middle + 1;
    else high = middle;
  }
  to[row * n + pair + (i - pair - (right ? run : 0)) + (low - first)] = mine;
}
#define W_SORT(name, N, T)                                                                                             \
  extern "C" __global__ void w_sort_tiles_##name(const T* x, int* out, long long n, long long tiles,                   \
                                                 long long descending) {                                               \
    w_sort_tiles<N, T>(x, out, n, tiles, (int)descending);                                                             \
  }                                                                                                                    \
  extern "C" __global__ void w_sort_merge_##name(const T* x, const int* from, int* to, long long rows, long long n,    \
                                                 long long run, long long descending) {                                \
    w_sort_merge<N, T>(x, from, to, rows, n, run, (int)descending);                                                    \
  }
W_SORT(i8, w_number<int8_t>, int8_t)
W_SORT(u8, w_number<uint8_t>, uint8_t)
W_SORT(i16, w_number<int16_t>, int16_t)
W_SORT(u16, w_number<uint16_t>, uint16_t)
W_SORT(u32, w_number<uint32_t>, uint32_t)
W_SORT(u64, w_number<uint64_t>, uint64_t)
W_SORT(i32, w_number<int32_t>, int32_t)
W_SORT(i64, w_number<int64_t>, int64_t)
W_SORT(f16, w_half_number, w_half)
W_SORT(bf16, w_bfloat_number, w_bfloat)
W_SORT(f32, w_number<float>, float)
W_SORT(f64, w_number<double>, double)
