// scatterAdd on the GPU, deterministic: positions are gathered into one list per row, each list is put in order, and a row
// adds its updates in that order. Light rows take a warp; rows with many updates a block, which adds parts side by side.
#pragma once
#include "numbers.cuh"

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
  long long r = (long long)blockIdx.x * 256 + threadIdx.x;
  if (r >= rows) return;
  int k = counts[r];
  if (k == 0) return;
  offsets[r] = atomicAdd(cursor, k);
  if (k > W_LIGHT) heavy[atomicAdd(cursor + 1, 1)] = (int)r;
}
extern "C" __global__ void w_scatter_list(const int* indices, const int* slot, const int* offsets, int* list,
                                          long long total, long long count, long long n) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= total || slot[i] < 0) return;
  list[offsets[i / count * n + indices[i]] + slot[i]] = (int)(i % count);
}
/* One warp per row: the few positions are sorted by counting how many are smaller. base may be null (zeros). */
template <class N, class T> W_INLINE void w_scatter_light(const T* base, const T* updates, T* out, const int* counts,
                                                          const int* offsets, const int* list, long long rows,
                                                          long long before, long long n, long long after,
                                                          long long count) {
  long long r = (long long)blockIdx.x * 8 + threadIdx.x / 32;
  if (r >= rows) return;
  int lane = threadIdx.x % 32, k = counts[r];
  if (k > W_LIGHT) return;
  int mine = lane < k ? list[offsets[r] + lane] : 0x7fffffff, rank = 0;
  for (int j = 0; j < k; j++) rank += __shfl_sync(0xffffffffu, mine, j) < mine;
  if (lane >= k) rank = lane;
  /* order: lane j holds the j-th smallest position */
  int order = 0;
  for (int j = 0; j < k; j++) {
    int at = __shfl_sync(0xffffffffu, mine, j), to = __shfl_sync(0xffffffffu, rank, j);
    if (to == lane) order = at;
  }
  long long q = r / n, row = r % n;
  for (long long p = 0; p < before; p++) {
    const T* from = updates + (q * before + p) * count * after;
    long long to = ((q * before + p) * n + row) * after;
    for (long long c0 = 0; c0 < after; c0 += 32) {
      long long c = c0 + lane;
      bool inside = c < after;
      typename N::sum total = base && inside ? N::load(base[to + c]) : (typename N::sum)0;
#pragma unroll 4
      for (int j = 0; j < k; j++) {
        long long at = __shfl_sync(0xffffffffu, order, j);
        if (inside) total += N::load(from[at * after + c]);
      }
      if (inside) out[to + c] = N::store(total);
    }
  }
}
/* One block of 1024 threads per row: positions in order by a bitonic sort, or, where they are too many for it, by reading all
   indices in order; then 32 warps add 32 stretches of the list, and the stretches are added in order. */
template <class N, class T> W_INLINE void w_scatter_heavy(const T* base, const int* indices, const T* updates, T* out,
                                                          const int* counts, const int* offsets, const int* cursor,
                                                          const int* heavy, int* list, long long before, long long n,
                                                          long long after, long long count) {
  __shared__ int sorted[W_SORTABLE];
  __shared__ typename N::sum parts[32][33];
  __shared__ int found[33];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int h = blockIdx.x; h < cursor[1]; h += gridDim.x) {
    long long r = heavy[h], q = r / n, row = r % n;
    int k = counts[r];
    int* mine = list + offsets[r];
    __syncthreads();
    if (k <= W_SORTABLE) {
      int size = 64;
      while (size < k) size *= 2;
      for (int i = threadIdx.x; i < size; i += 1024) sorted[i] = i < k ? mine[i] : 0x7fffffff;
      for (int width = 2; width <= size; width *= 2)
        for (int step = width / 2; step > 0; step /= 2) {
          __syncthreads();
          for (int i = threadIdx.x; i < size / 2; i += 1024) {
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
    } else {
      const int* all = indices + q * count;
      int done = 0;
      for (long long i0 = 0; i0 < count; i0 += 1024) {
        bool hit = i0 + threadIdx.x < count && all[i0 + threadIdx.x] == row;
        unsigned votes = __ballot_sync(0xffffffffu, hit);
        __syncthreads();
        if (lane == 0) found[warp] = __popc(votes);
        __syncthreads();
        int at = done;
        for (int w = 0; w < 32; w++) {
          if (w < warp) at += found[w];
          done += found[w];
        }
        if (hit) mine[at + __popc(votes & ((1u << lane) - 1))] = (int)(i0 + threadIdx.x);
      }
      __threadfence_block();
      __syncthreads();
    }
    const int* ordered = k <= W_SORTABLE ? sorted : mine;
    int stretch = (k + 31) / 32, from = warp * stretch, to = from + stretch < k ? from + stretch : k;
    for (long long p = 0; p < before; p++) {
      const T* source = updates + (q * before + p) * count * after;
      long long target = ((q * before + p) * n + row) * after;
      for (long long c0 = 0; c0 < after; c0 += 32) {
        long long c = c0 + lane;
        typename N::sum total = 0;
        if (c < after) {
#pragma unroll 4
          for (int j = from; j < to; j++) total += N::load(source[(long long)ordered[j] * after + c]);
        }
        __syncthreads();
        parts[warp][lane] = total;
        __syncthreads();
        if (warp == 0 && c < after) {
          typename N::sum sum = base ? N::load(base[target + c]) : (typename N::sum)0;
          for (int w = 0; w < 32; w++) sum += parts[w][lane];
          out[target + c] = N::store(sum);
        }
      }
    }
  }
}
#define W_SCATTER(name, N, T)                                                                                          \
  extern "C" __global__ void w_scatter_light_##name(const T* base, const T* updates, T* out, const int* counts,        \
                                                    const int* offsets, const int* list, long long rows,               \
                                                    long long before, long long n, long long after, long long count) { \
    w_scatter_light<N, T>(base, updates, out, counts, offsets, list, rows, before, n, after, count);                   \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(1024)                                                                   \
      w_scatter_heavy_##name(const T* base, const int* indices, const T* updates, T* out, const int* counts,           \
                             const int* offsets, const int* cursor, const int* heavy, int* list, long long before,     \
                             long long n, long long after, long long count) {                                          \
    w_scatter_heavy<N, T>(base, indices, updates, out, counts, offsets, cursor, heavy, list, before, n, after, count); \
  }
W_SCATTER(i8, w_number<int8_t>, int8_t)
W_SCATTER(u8, w_number<uint8_t>, uint8_t)
W_SCATTER(i16, w_number<int16_t>, int16_t)
W_SCATTER(u16, w_number<uint16_t>, uint16_t)
W_SCATTER(u32, w_number<uint32_t>, uint32_t)
W_SCATTER(u64, w_number<uint64_t>, uint64_t)
W_SCATTER(i32, w_number<int32_t>, int32_t)
W_SCATTER(i64, w_number<int64_t>, int64_t)
W_SCATTER(f16, w_half_number, w_half)
W_SCATTER(bf16, w_bfloat_number, w_bfloat)
W_SCATTER(f32, w_number<float>, float)
W_SCATTER(f64, w_number<double>, double)
