// Scatters by sum and product on the GPU, deterministic: positions are gathered into one list per row, each list is put in order, and a row
// adds its updates in that order. Light rows take a warp, or a thread per element where rows are narrow; rows with many updates a
// block for every 32 of their elements, which adds parts side by side: one row may have most of the updates, such as that of padding. Many updates per row are put in order by argsort before. Integers are added atomically:
// their sums do not depend on the order. Many updates of narrow rows are added atomically in float64, where sums of narrower numbers
// are exact unless these differ by 2^27 in size or more.
#include "numbers.cuh"
#include "target.cuh"

#define W_LIGHT 32
#define W_SORTABLE 4096
/* slot[i]: which of its row's updates update i is, in no particular order. cursor: places given out, heavy rows. */
extern "C" __global__ void w_scatter_count(const int* indices, int* counts, int* slot, long long total, long long count,
                                           long long n) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= total) return;
  int row = indices[i];
  slot[i] = row < 0 || row >= n ? -1 : atomicAdd(counts + i / count * n + row, 1);
}
extern "C" __global__ void w_scatter_place(const int* counts, int* offsets, int* cursor, int* heavy, long long rows) {
  __shared__ int parts[8], first;
  long long r = (long long)blockIdx.x * 256 + threadIdx.x;
  int k = r < rows ? counts[r] : 0, lane = threadIdx.x % 32, warp = threadIdx.x / 32, all = k;
  for (int d = 1; d < 32; d *= 2) {
    int other = __shfl_sync(0xffffffffu, all, (lane - d) & 31);
    if (lane >= d) all += other;
  }
  if (lane == 31) parts[warp] = all;
  __syncthreads();
  int before = all - k, total = 0;
  for (int w = 0; w < 8; w++) {
    if (w < warp) before += parts[w];
    total += parts[w];
  }
  /* One place for all rows of a block: a place per row would keep every thread waiting for one address. */
  if (threadIdx.x == 0) first = total > 0 ? atomicAdd(cursor, total) : 0;
  __syncthreads();
  if (k == 0) return;
  offsets[r] = first + before;
  if (k > W_LIGHT) heavy[atomicAdd(cursor + 1, 1)] = (int)r;
}
/* Where the updates of a row begin and end in the order of all updates of a batch. order: [batches][count]. */
extern "C" __global__ void w_scatter_ends(const int* indices, const int* order, int* offsets, int* counts,
                                          long long total, long long count, long long n) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= total) return;
  long long q = i / count, at = i % count;
  const int* own = indices + q * count;
  int row = own[order[i]];
  if (row < 0 || row >= n) return;
  if (at == 0 || own[order[i - 1]] != row) offsets[q * n + row] = (int)i;
  if (at == count - 1 || own[order[i + 1]] != row) counts[q * n + row] = (int)i + 1;
}
/* Ends become counts, and rows with many updates are listed. */
extern "C" __global__ void w_scatter_rows(int* counts, const int* offsets, int* cursor, int* heavy, long long rows) {
  long long r = (long long)blockIdx.x * 256 + threadIdx.x;
  if (r >= rows || counts[r] == 0) return;
  int k = counts[r] - offsets[r];
  counts[r] = k;
  if (k > W_LIGHT) heavy[atomicAdd(cursor + 1, 1)] = (int)r;
}
extern "C" __global__ void w_scatter_list(const int* indices, const int* slot, const int* offsets, int* list,
                                          long long total, long long count, long long n) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= total || slot[i] < 0) return;
  list[offsets[i / count * n + indices[i]] + slot[i]] = (int)(i % count);
}
/* One warp per row, of which a lane adds V neighbors. order: lane j holds the j-th position. */
template <int V, class N, class T>
W_INLINE void w_scatter_light_row(const T* base, const T* updates, T* out, int order, int k, long long q, long long row,
                                  long long before, long long n, long long after, long long count) {
  const int lane = threadIdx.x % 32;
  for (long long p = 0; p < before; p++) {
    const T* from = updates + (q * before + p) * count * after;
    long long to = ((q * before + p) * n + row) * after;
    for (long long c0 = 0; c0 < after; c0 += 32 * V) {
      long long c = c0 + lane * V;
      bool inside = c < after;
      typename N::sum total[V];
#pragma unroll
      for (int e = 0; e < V; e++) total[e] = base && inside ? N::load(base[to + c + e]) : w_joined<N>::none();
#pragma unroll 4
      for (int j = 0; j < k; j++) {
        long long at = __shfl_sync(0xffffffffu, order, j);
        if (!inside) continue;
        __align__(16) T x[V];
        w_load<V>(x, from + at * after + c);
#pragma unroll
        for (int e = 0; e < V; e++) total[e] = w_joined<N>::join(total[e], N::load(x[e]));
      }
      if (!inside) continue;
      __align__(16) T y[V];
#pragma unroll
      for (int e = 0; e < V; e++) y[e] = N::store(total[e]);
      w_store<V>(out + to + c, y);
    }
  }
}
/* The few positions of a row are sorted by counting how many are smaller. base may be null (zeros). vector: neighbors per lane, whose
   addresses are multiples of their size. */
template <class N, class T> W_INLINE void w_scatter_light(const T* base, const T* updates, T* out, const int* counts,
                                                          const int* offsets, const int* list, long long rows,
                                                          long long before, long long n, long long after,
                                                          long long count, int vector) {
  long long r = (long long)blockIdx.x * 8 + threadIdx.x / 32;
  if (r >= rows) return;
  int lane = threadIdx.x % 32, k = counts[r];
  if (k > W_LIGHT) return;
  int mine = lane < k ? list[offsets[r] + lane] : 0x7fffffff, rank = 0;
  for (int j = 0; j < k; j++) rank += __shfl_sync(0xffffffffu, mine, j) < mine;
  if (lane >= k) rank = lane;
  int order = 0;
  for (int j = 0; j < k; j++) {
    int at = __shfl_sync(0xffffffffu, mine, j), to = __shfl_sync(0xffffffffu, rank, j);
    if (to == lane) order = at;
  }
  long long q = r / n, row = r % n;
  if (vector == 4) w_scatter_light_row<4, N>(base, updates, out, order, k, q, row, before, n, after, count);
  else if (vector == 2) w_scatter_light_row<2, N>(base, updates, out, order, k, q, row, before, n, after, count);
  else w_scatter_light_row<1, N>(base, updates, out, order, k, q, row, before, n, after, count);
}
/* One thread per element of narrow rows: it takes the smallest position that is left until there is none. */
template <class N, class T> W_INLINE void w_scatter_narrow(const T* base, const T* updates, T* out, const int* counts,
                                                           const int* offsets, const int* list, long long rows,
                                                           long long before, long long n, long long after,
                                                           long long count) {
  long long id = (long long)blockIdx.x * 256 + threadIdx.x, r = id / after, c = id % after, q = r / n, row = r % n;
  if (r >= rows || counts[r] > W_LIGHT) return;
  int k = counts[r];
  const int* mine = list + offsets[r];
  for (long long p = 0; p < before; p++) {
    const T* from = updates + (q * before + p) * count * after;
    long long to = ((q * before + p) * n + row) * after + c;
    typename N::sum total = base ? N::load(base[to]) : w_joined<N>::none();
    for (int j = 0, last = -1; j < k; j++) {
      int next = 0x7fffffff;
      for (int i = 0; i < k; i++) {
        int at = mine[i];
        if (at > last && at < next) next = at;
      }
      last = next;
      total = w_joined<N>::join(total, N::load(from[last * after + c]));
    }
    out[to] = N::store(total);
  }
}
/* Puts the lists of rows with many updates in order, one block per row: by a bitonic sort, or, where they are too long for it, by reading
   all indices in order. */
extern "C" __global__ void __launch_bounds__(1024)
    w_scatter_order(const int* indices, const int* counts, const int* offsets, const int* cursor, const int* heavy,
                    int* list, long long n, long long count) {
  __shared__ int sorted[W_SORTABLE];
  __shared__ int found[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, threads = blockDim.x, warps = threads / 32;
  for (int h = blockIdx.x; h < cursor[1]; h += gridDim.x) {
    long long r = heavy[h], q = r / n, row = r % n;
    int k = counts[r];
    int* mine = list + offsets[r];
    __syncthreads();
    if (k <= W_SORTABLE) {
      int size = 64;
      while (size < k) size *= 2;
      for (int i = threadIdx.x; i < size; i += threads) sorted[i] = i < k ? mine[i] : 0x7fffffff;
      for (int width = 2; width <= size; width *= 2)
        for (int step = width / 2; step > 0; step /= 2) {
          __syncthreads();
          for (int i = threadIdx.x; i < size / 2; i += threads) {
            int a = 2 * i - (i & (step - 1)), b = a + step;
            bool up = (a & width) == 0;
            int x = sorted[a], y = sorted[b];
            if ((x > y) == up) {
              sorted[a] = y;
              sorted[b] = x;
            }
          }
        }
      __syncthreads();
      for (int i = threadIdx.x; i < k; i += threads) mine[i] = sorted[i];
      continue;
    }
    const int* all = indices + q * count;
    int done = 0;
    for (long long i0 = 0; i0 < count; i0 += threads) {
      bool hit = i0 + threadIdx.x < count && all[i0 + threadIdx.x] == row;
      unsigned votes = __ballot_sync(0xffffffffu, hit);
      __syncthreads();
      if (lane == 0) found[warp] = __popc(votes);
      __syncthreads();
      int at = done;
      for (int w = 0; w < warps; w++) {
        if (w < warp) at += found[w];
        done += found[w];
      }
      if (hit) mine[at + __popc(votes & ((1u << lane) - 1))] = (int)(i0 + threadIdx.x);
    }
  }
}
/* Rows with many updates, in order: one block per row and 32 of its elements. Its warps, and in narrow rows parts of a warp, add stretches of
   the list, and the stretches are added in order. */
template <class N, class T> W_INLINE void w_scatter_heavy(const T* base, const T* updates, T* out, const int* counts,
                                                          const int* offsets, const int* cursor, const int* heavy,
                                                          const int* list, long long before, long long n,
                                                          long long after, long long count) {
  __shared__ typename N::sum parts[32][33];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wide = 1;
  while (wide < 32 && wide < after) wide *= 2;
  int column = lane % wide, shares = 32 / wide, share = warp * shares + lane / wide;
  const int warps = blockDim.x / 32;
  const long long chunks = (after + 31) / 32, pieces = before * chunks;
  for (long long item = blockIdx.x; item < cursor[1] * pieces; item += gridDim.x) {
    long long r = heavy[item / pieces], q = r / n, row = r % n, p = item % pieces / chunks;
    int k = counts[r];
    const int* ordered = list + offsets[r];
    int stretch = (k + warps * shares - 1) / (warps * shares), from = share * stretch,
        to = from + stretch < k ? from + stretch : k;
    const T* source = updates + (q * before + p) * count * after;
    long long target = ((q * before + p) * n + row) * after, c = item % chunks * 32 + column;
    typename N::sum total = w_joined<N>::none();
    if (c < after) {
#pragma unroll 8
      for (int j = from; j < to; j++)
        total = w_joined<N>::join(total, N::load(source[(long long)ordered[j] * after + c]));
    }
    __syncthreads();
    parts[warp][lane] = total;
    __syncthreads();
    /* Stretches of a warp are joined first. */
    if (lane < wide) {
      typename N::sum sum = parts[warp][lane];
      for (int s = 1; s < shares; s++) sum = w_joined<N>::join(sum, parts[warp][s * wide + lane]);
      parts[warp][lane] = sum;
    }
    __syncthreads();
    if (warp == 0 && lane < wide && c < after) {
      typename N::sum sum = base ? N::load(base[target + c]) : w_joined<N>::none();
      for (int w = 0; w < warps; w++) sum = w_joined<N>::join(sum, parts[w][lane]);
      out[target + c] = N::store(sum);
    }
  }
}
/* Integers. out holds the base; an update is added where it belongs. */
template <int BYTES> struct w_atomic {
  typedef unsigned word;
};
template <> struct w_atomic<8> {
  typedef unsigned long long word;
};
template <class T> W_INLINE void w_scatter_whole(const int* indices, const T* updates, T* out, long long total,
                                                 long long before, long long n, long long after, long long count) {
  typedef typename w_atomic<sizeof(T)>::word W;
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= total) return;
  long long to = w_scatter_target(indices, e, before, n, after, count, total);
  if (to >= 0) atomicAdd((W*)out + to, updates ? (W)updates[e] : (W)1);
}
/* The same for small results: each block has one of its own in shared memory. */
template <class T> W_INLINE void w_scatter_bins(char* memory, const int* indices, const T* updates, T* out,
                                                long long total, long long before, long long n, long long after,
                                                long long count, long long size) {
  typedef typename w_atomic<sizeof(T)>::word W;
  W* bins = (W*)memory;
  for (long long b = threadIdx.x; b < size; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  long long step = (long long)gridDim.x * blockDim.x;
#pragma unroll 4
  for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < total; e += step) {
    long long to = w_scatter_target(indices, e, before, n, after, count, total);
    if (to >= 0) atomicAdd(bins + to, updates ? (W)updates[e] : (W)1);
  }
  __syncthreads();
  for (long long b = threadIdx.x; b < size; b += blockDim.x)
    if (bins[b] != 0) atomicAdd((W*)out + b, bins[b]);
}
/* How often each of n places per batch of count indices occurs; each block has a few copies of all counts in shared memory. */
template <class T> W_INLINE void w_scatter_counts(char* memory, const int* indices, T* out, long long total,
                                                  long long count, long long n, int size, int copies) {
  typedef typename w_atomic<sizeof(T)>::word W;
  unsigned* bins = (unsigned*)memory;
  for (int b = threadIdx.x; b < size * copies; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  unsigned* own = bins + (int)(threadIdx.x / 32) % copies * size;
  const bool lone = count == total;
  long long step = (long long)gridDim.x * blockDim.x;
#pragma unroll 8
  for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < total; e += step) {
    long long at = indices[e];
    if (at >= 0 && at < n) atomicAdd(own + (lone ? at : e / count * n + at), 1u);
  }
  __syncthreads();
  for (int b = threadIdx.x; b < size; b += blockDim.x) {
    unsigned sum = 0;
    for (int c = 0; c < copies; c++) sum += bins[c * size + b];
    if (sum != 0) atomicAdd((W*)out + b, (W)sum);
  }
}
W_INLINE void w_add_wide(double* to, double x) {
#if defined(W_EMULATED) || __CUDA_ARCH__ >= 600
  atomicAdd(to, x);
#else
  unsigned long long seen = *(unsigned long long*)to, before;
  do {
    before = seen;
    double sum = __longlong_as_double((long long)before) + x;
    seen = atomicCAS((unsigned long long*)to, before, (unsigned long long)__double_as_longlong(sum));
  } while (seen != before);
#endif
}
template <class N, class T> W_INLINE void w_scatter_wide(const int* indices, const T* updates, double* sums,
                                                         long long total, long long before, long long n,
                                                         long long after, long long count) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= total) return;
  long long to = w_scatter_target(indices, e, before, n, after, count, total);
  if (to >= 0) w_add_wide(sums + to, (double)N::load(updates[e]));
}
/* The same for few places: each block has a few copies of all sums in shared memory. */
template <class N, class T> W_INLINE void w_scatter_wide_bins(char* memory, const int* indices, const T* updates,
                                                              double* sums, long long total, long long before,
                                                              long long n, long long after, long long count, int size,
                                                              int copies) {
  double* bins = (double*)memory;
  for (int b = threadIdx.x; b < size * copies; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  double* own = bins + (int)(threadIdx.x / 32) % copies * size;
  long long step = (long long)gridDim.x * blockDim.x;
#pragma unroll 4
  for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < total; e += step) {
    long long to = w_scatter_target(indices, e, before, n, after, count, total);
    if (to >= 0) w_add_wide(own + to, (double)N::load(updates[e]));
  }
  __syncthreads();
  for (int b = threadIdx.x; b < size; b += blockDim.x) {
    double sum = 0;
    for (int c = 0; c < copies; c++) sum += bins[c * size + b];
    if (sum != 0) w_add_wide(sums + b, sum);
  }
}
template <class N, class T> W_INLINE void w_scatter_rounded(const T* base, const double* sums, T* out, long long size) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i < size) out[i] = N::store((float)(base ? sums[i] + (double)N::load(base[i]) : sums[i]));
}
#define W_WIDE(name, N, T)                                                                                             \
  extern "C" __global__ void w_scatter_wide_##name(const int* indices, const T* updates, double* sums,                 \
                                                   long long total, long long before, long long n, long long after,    \
                                                   long long count) {                                                  \
    w_scatter_wide<N, T>(indices, updates, sums, total, before, n, after, count);                                      \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(512)                                                                    \
      w_scatter_sums_##name(const int* indices, const T* updates, double* sums, long long total, long long before,     \
                            long long n, long long after, long long count, long long size, long long copies) {         \
    W_DYNAMIC_SHARED(memory);                                                                                          \
    w_scatter_wide_bins<N, T>(memory, indices, updates, sums, total, before, n, after, count, (int)size, (int)copies); \
  }                                                                                                                    \
  extern "C" __global__ void w_scatter_rounded_##name(const T* base, const double* sums, T* out, long long size) {     \
    w_scatter_rounded<N, T>(base, sums, out, size);                                                                    \
  }
#define W_SCATTER(name, N, T)                                                                                          \
  extern "C" __global__ void w_scatter_light_##name(                                                                   \
      const T* base, const T* updates, T* out, const int* counts, const int* offsets, const int* list, long long rows, \
      long long before, long long n, long long after, long long count, long long vector) {                             \
    w_scatter_light<N, T>(base, updates, out, counts, offsets, list, rows, before, n, after, count, (int)vector);      \
  }                                                                                                                    \
  extern "C" __global__ void w_scatter_narrow_##name(                                                                  \
      const T* base, const T* updates, T* out, const int* counts, const int* offsets, const int* list, long long rows, \
      long long before, long long n, long long after, long long count) {                                               \
    w_scatter_narrow<N, T>(base, updates, out, counts, offsets, list, rows, before, n, after, count);                  \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(1024) w_scatter_heavy_##name(                                           \
      const T* base, const T* updates, T* out, const int* counts, const int* offsets, const int* cursor,               \
      const int* heavy, const int* list, long long before, long long n, long long after, long long count) {            \
    w_scatter_heavy<N, T>(base, updates, out, counts, offsets, cursor, heavy, list, before, n, after, count);          \
  }
#define W_WHOLE(name, N, T)                                                                                            \
  extern "C" __global__ void w_scatter_whole_##name(const int* indices, const T* updates, T* out, long long total,     \
                                                    long long before, long long n, long long after, long long count) { \
    w_scatter_whole<T>(indices, updates, out, total, before, n, after, count);                                         \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(1024)                                                                   \
      w_scatter_bins_##name(const int* indices, const T* updates, T* out, long long total, long long before,           \
                            long long n, long long after, long long count, long long size) {                           \
    W_DYNAMIC_SHARED(memory);                                                                                          \
    w_scatter_bins<T>(memory, indices, updates, out, total, before, n, after, count, size);                            \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(1024) w_scatter_counts_##name(                                          \
      const int* indices, T* out, long long total, long long count, long long n, long long size, long long copies) {   \
    W_DYNAMIC_SHARED(memory);                                                                                          \
    w_scatter_counts<T>(memory, indices, out, total, count, n, (int)size, (int)copies);                                \
  }
W_SCATTER(i8, w_number<int8_t>, int8_t)
W_SCATTER(u8, w_number<uint8_t>, uint8_t)
W_SCATTER(i16, w_number<int16_t>, int16_t)
W_SCATTER(u16, w_number<uint16_t>, uint16_t)
W_WHOLE(u32, w_number<uint32_t>, uint32_t)
W_WHOLE(u64, w_number<uint64_t>, uint64_t)
W_WHOLE(i32, w_number<int32_t>, int32_t)
W_WHOLE(i64, w_number<int64_t>, int64_t)
W_SCATTER(f16, w_half_number, w_half)
W_SCATTER(bf16, w_bfloat_number, w_bfloat)
W_SCATTER(f32, w_number<float>, float)
W_SCATTER(f64, w_number<double>, double)
W_WIDE(f16, w_half_number, w_half)
W_WIDE(bf16, w_bfloat_number, w_bfloat)
W_WIDE(f32, w_number<float>, float)
/* Products. Those of float32 are held in float64, where the order of the factors changes them by far less than their rounding. */
template <class A, class T> W_INLINE void w_product_join(const int* indices, const T* updates, A* out, long long total,
                                                         long long before, long long n, long long after,
                                                         long long count) {
  typedef typename w_atomic<sizeof(A)>::word W;
  union bits {
    W word;
    A value;
  };
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= total) return;
  long long to = w_scatter_target(indices, e, before, n, after, count, total);
  if (to < 0) return;
  bits seen, next;
  A x = (A)updates[e];
  seen.value = out[to];
  for (W found;; seen.word = found) {
    next.value = seen.value * x;
    found = atomicCAS((W*)out + to, seen.word, next.word);
    if (found == seen.word) break;
  }
}
#define W_PRODUCT(name, N, T, A)                                                                                       \
  extern "C" __global__ void w_product_base_##name(const T* base, A* out, long long size) {                            \
    long long i = (long long)blockIdx.x * 256 + threadIdx.x;                                                           \
    if (i < size) out[i] = (A)base[i];                                                                                 \
  }                                                                                                                    \
  extern "C" __global__ void w_product_join_##name(const int* indices, const T* updates, A* out, long long total,      \
                                                   long long before, long long n, long long after, long long count) {  \
    w_product_join<A, T>(indices, updates, out, total, before, n, after, count);                                       \
  }
W_PRODUCT(f32, w_number<float>, float, double)
W_PRODUCT(i32, w_number<int32_t>, int32_t, int32_t)
W_PRODUCT(u32, w_number<uint32_t>, uint32_t, uint32_t)
W_PRODUCT(i64, w_number<int64_t>, int64_t, int64_t)
W_PRODUCT(u64, w_number<uint64_t>, uint64_t, uint64_t)
W_SCATTER(pf64, w_factor<double>, double)
