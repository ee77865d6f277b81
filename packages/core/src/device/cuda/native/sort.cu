// Stable argsort on the GPU by radix sort, eight bits at a time from the lowest: a block ranks its elements by counting equal
// digits per warp. Rows that fit into one block are sorted in shared memory; longer ones in passes over memory, with counts per
// tile that are scanned in between.
#include "keys.cuh"

#define W_DIGITS 256
#define W_SORT_ITEMS 8

/* Lanes of this warp with the same digit. */
W_INLINE unsigned w_same_digit(int digit) {
  unsigned same = 0xffffffffu;
#pragma unroll
  for (int b = 0; b < 8; b++) {
    unsigned votes = __ballot_sync(0xffffffffu, digit >> b & 1);
    same &= digit >> b & 1 ? votes : ~votes;
  }
  return same;
}
/* Counts of the digits become first positions; called by one warp. */
W_INLINE void w_scan_digits(int* counts) {
  int lane = threadIdx.x % 32, v[W_DIGITS / 32], sum = 0;
  for (int k = 0; k < W_DIGITS / 32; k++) {
    v[k] = counts[lane * (W_DIGITS / 32) + k];
    sum += v[k];
  }
  int all = sum;
  for (int d = 1; d < 32; d *= 2) {
    int other = __shfl_sync(0xffffffffu, all, (lane - d) & 31);
    if (lane >= d) all += other;
  }
  int start = all - sum;
  for (int k = 0; k < W_DIGITS / 32; k++) {
    counts[lane * (W_DIGITS / 32) + k] = start;
    start += v[k];
  }
}
/* Where the elements of a thread lie in a tile of length elements: element k is number first + 32 k, the elements of a warp
   are neighbors, and the warps share the tile evenly. */
struct w_sort_share {
  int items, first;
  __device__ __forceinline__ w_sort_share(int length) {
    items = (length + (int)blockDim.x - 1) / (int)blockDim.x;
    first = (int)threadIdx.x / 32 * 32 * items + (int)threadIdx.x % 32;
  }
};
/* Ranks the elements of a tile by their digits, equal digits in the order of the tile. counts: [warps][digits]; starts:
   [digits], which is left as the first rank of each digit. A digit of 256 is no element. */
W_INLINE void w_rank(const w_sort_share& share, const int* digit, int* rank, uint16_t* counts, int* starts) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int i = threadIdx.x; i < warps * W_DIGITS; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  uint16_t* mine = counts + warp * W_DIGITS;
#pragma unroll
  for (int k = 0; k < W_SORT_ITEMS; k++) {
    if (k >= share.items) break;
    bool is = digit[k] < W_DIGITS;
    unsigned valid = __ballot_sync(0xffffffffu, is);
    if (valid == 0) break;
    unsigned same = w_same_digit(digit[k] & 255) & valid;
    int before = __popc(same & ((1u << lane) - 1)), first = is ? mine[digit[k]] : 0;
    __syncwarp();
    if (is && before == 0) mine[digit[k]] = (uint16_t)(first + __popc(same));
    __syncwarp();
    rank[k] = first + before;
  }
  __syncthreads();
  /* The counts of the warps become offsets, and the sums of the digits are scanned. */
  for (int d = threadIdx.x; d < W_DIGITS; d += blockDim.x) {
    int total = 0;
    for (int w = 0; w < warps; w++) {
      int c = counts[w * W_DIGITS + d];
      counts[w * W_DIGITS + d] = (uint16_t)total;
      total += c;
    }
    starts[d] = total;
  }
  __syncthreads();
  if (warp == 0) w_scan_digits(starts);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < W_SORT_ITEMS; k++)
    if (k < share.items && digit[k] < W_DIGITS) rank[k] += starts[digit[k]] + mine[digit[k]];
}

/* A whole row per block, of whose order count places from first on are stored, or all its elements as values. Shared memory: counts and starts, then in the same place keys and places. */
template <class Q, class T>
W_INLINE void w_sort_rows(char* memory, const T* x, int* out, T* values, int n, int first, int count, int descending) {
  typedef typename Q::K K;
  uint16_t* counts = (uint16_t*)memory;
  int* starts = (int*)(counts + blockDim.x / 32 * W_DIGITS);
  K* keys = (K*)memory;
  /* Keys of one byte may end at an odd address. */
  uint16_t* places = (uint16_t*)(memory + (n * sizeof(K) + 1) / 2 * 2);
  const T* row = x + (long long)blockIdx.x * n;
  w_sort_share share(n);
  K key[W_SORT_ITEMS];
  int place[W_SORT_ITEMS], digit[W_SORT_ITEMS], rank[W_SORT_ITEMS];
#pragma unroll
  for (int k = 0; k < W_SORT_ITEMS; k++) {
    int i = share.first + k * 32;
    place[k] = i;
    key[k] = k < share.items && i < n ? Q::of(row[i], values != 0) : (K)0;
    if (descending) key[k] = (K)~key[k];
  }
  for (int shift = 0; shift < (int)sizeof(K) * 8; shift += 8) {
#pragma unroll
    for (int k = 0; k < W_SORT_ITEMS; k++)
      digit[k] = k < share.items && share.first + k * 32 < n ? (int)(key[k] >> shift & 255) : W_DIGITS;
    w_rank(share, digit, rank, counts, starts);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < W_SORT_ITEMS; k++)
      if (digit[k] < W_DIGITS) {
        keys[rank[k]] = key[k];
        places[rank[k]] = (uint16_t)place[k];
      }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < W_SORT_ITEMS; k++) {
      int i = share.first + k * 32;
      if (digit[k] < W_DIGITS) {
        key[k] = keys[i];
        place[k] = places[i];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < W_SORT_ITEMS; k++) {
    int i = share.first + k * 32;
    if (k >= share.items || i < first || i >= first + count) continue;
    if (values) values[(long long)blockIdx.x * n + i] = Q::back(descending ? (K)~key[k] : key[k]);
    else out[(long long)blockIdx.x * count + i - first] = place[k];
  }
}

/* Longer rows, one block per tile. keys: what the last pass left, or null in the first one, which makes keys of the values. exact: no
   places are moved along. */
template <class Q, class T> W_INLINE void w_sort_item(const T* x, const void* keys, const int* from, long long at,
                                                      long long i, int descending, int exact, typename Q::K* key,
                                                      int* place) {
  if (keys) {
    *key = ((const typename Q::K*)keys)[at];
    *place = exact ? 0 : from[at];
    return;
  }
  typename Q::K own = Q::of(x[at], exact != 0);
  *key = descending ? (typename Q::K) ~own : own;
  *place = (int)i;
}
/* counts: [rows][digits][tiles] */
template <class Q, class T> W_INLINE void w_sort_count(const T* x, const void* keys, int* counts, long long n,
                                                       long long tiles, long long length, int shift, int descending,
                                                       int exact) {
  __shared__ int own[W_DIGITS];
  long long row = blockIdx.x / tiles, tile = blockIdx.x % tiles,
            end = (tile + 1) * length < n ? (tile + 1) * length : n;
  for (int d = threadIdx.x; d < W_DIGITS; d += blockDim.x) own[d] = 0;
  __syncthreads();
#pragma unroll 4
  for (long long i = tile * length + threadIdx.x; i < end; i += blockDim.x) {
    typename Q::K key;
    int place;
    if (keys) key = ((const typename Q::K*)keys)[row * n + i];
    else w_sort_item<Q, T>(x, 0, 0, row * n + i, i, descending, exact, &key, &place);
    atomicAdd(own + (int)(key >> shift & 255), 1);
  }
  __syncthreads();
  for (int d = threadIdx.x; d < W_DIGITS; d += blockDim.x) counts[(row * W_DIGITS + d) * tiles + tile] = own[d];
}
template <class Q, class T> W_INLINE void w_sort_move(char* memory, const T* x, const void* keys, const int* from,
                                                      void* moved, int* to, const int* counts, const int* totals,
                                                      long long n, long long tiles, long long tile_length, int shift,
                                                      int descending, long long count, T* values, int exact) {
  typedef typename Q::K K;
  uint16_t* ranks = (uint16_t*)memory;
  int* starts = (int*)(ranks + blockDim.x / 32 * W_DIGITS);
  K* sorted = (K*)(starts + W_DIGITS);
  int* places = (int*)(sorted + tile_length);
  long long row = blockIdx.x / tiles, tile = blockIdx.x % tiles, first = tile * tile_length;
  int length = (int)(n - first < tile_length ? n - first : tile_length);
  w_sort_share share(length);
  K key[W_SORT_ITEMS];
  int place[W_SORT_ITEMS], digit[W_SORT_ITEMS], rank[W_SORT_ITEMS];
#pragma unroll
  for (int k = 0; k < W_SORT_ITEMS; k++) {
    int i = share.first + k * 32;
    digit[k] = W_DIGITS;
    if (k < share.items && i < length) {
      w_sort_item<Q, T>(x, keys, from, row * n + first + i, first + i, descending, exact, &key[k], &place[k]);
      digit[k] = (int)(key[k] >> shift & 255);
    }
  }
  __shared__ int bases[W_DIGITS];
  for (int d = threadIdx.x; d < W_DIGITS; d += blockDim.x) bases[d] = totals[row * W_DIGITS + d];
  __syncthreads();
  if (threadIdx.x < 32) w_scan_digits(bases);
  w_rank(share, digit, rank, ranks, starts);
#pragma unroll
  for (int k = 0; k < W_SORT_ITEMS; k++)
    if (digit[k] < W_DIGITS) {
      sorted[rank[k]] = key[k];
      if (!exact) places[rank[k]] = place[k];
    }
  /* From a rank in the tile to a place in the row. */
  for (int d = threadIdx.x; d < W_DIGITS; d += blockDim.x)
    bases[d] += counts[(row * W_DIGITS + d) * tiles + tile] - starts[d];
  __syncthreads();
  /* Neighbors in the tile's order are neighbors in memory, digit by digit. Rows of the last pass may end after count places. */
  for (int i = threadIdx.x; i < length; i += blockDim.x) {
    K own = sorted[i];
    long long at = bases[own >> shift & 255] + i;
    if (moved) ((K*)moved)[row * n + at] = own;
    if (values) values[row * n + at] = Q::back(descending ? (K)~own : own);
    if (!exact && at < count) to[row * count + at] = places[i];
  }
}
/* The counts of a digit, tile by tile, become positions within the digit. One block per row and digit; totals: one number each. */
extern "C" __global__ void __launch_bounds__(1024) w_sort_starts(int* counts, int* totals, long long tiles) {
  __shared__ int parts[32];
  int* own = counts + (long long)blockIdx.x * tiles;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, carry = 0;
  for (long long first = 0; first < tiles; first += 4 * blockDim.x) {
    long long at = first + threadIdx.x * 4;
    int v[4], sum = 0;
    for (int k = 0; k < 4; k++) {
      v[k] = at + k < tiles ? own[at + k] : 0;
      sum += v[k];
    }
    int all = sum;
    for (int d = 1; d < 32; d *= 2) {
      int other = __shfl_sync(0xffffffffu, all, (lane - d) & 31);
      if (lane >= d) all += other;
    }
    __syncthreads();
    if (lane == 31) parts[warp] = all;
    __syncthreads();
    int before = carry + all - sum, total = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) {
      if (w < warp) before += parts[w];
      total += parts[w];
    }
    for (int k = 0; k < 4; k++) {
      if (at + k < tiles) own[at + k] = before;
      before += v[k];
    }
    carry += total;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}
#define W_RADIX(name, N, T)                                                                                            \
  extern "C" __global__ void __launch_bounds__(1024) w_sort_rows_##name(                                               \
      const T* x, int* out, T* values, long long n, long long first, long long count, long long descending) {          \
    W_DYNAMIC_SHARED(memory);                                                                                          \
    w_sort_rows<N, T>(memory, x, out, values, (int)n, (int)first, (int)count, (int)descending);                        \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(512)                                                                    \
      w_sort_count_##name(const T* x, const void* keys, int* counts, long long n, long long tiles, long long length,   \
                          long long shift, long long descending, long long exact) {                                    \
    w_sort_count<N, T>(x, keys, counts, n, tiles, length, (int)shift, (int)descending, (int)exact);                    \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(512)                                                                    \
      w_sort_move_##name(const T* x, const void* keys, const int* from, void* moved, int* to, const int* counts,       \
                         const int* totals, long long n, long long tiles, long long length, long long shift,           \
                         long long descending, long long count, T* values, long long exact) {                          \
    W_DYNAMIC_SHARED(memory);                                                                                          \
    w_sort_move<N, T>(memory, x, keys, from, moved, to, counts, totals, n, tiles, length, (int)shift, (int)descending, \
                      count, values, (int)exact);                                                                      \
  }
W_RADIX(i8, w_key_i8, int8_t)
W_RADIX(u8, w_key_u8, uint8_t)
W_RADIX(i16, w_key_i16, int16_t)
W_RADIX(u16, w_key_u16, uint16_t)
W_RADIX(i32, w_key_i32, int32_t)
W_RADIX(u32, w_key_u32, uint32_t)
W_RADIX(i64, w_key_i64, int64_t)
W_RADIX(u64, w_key_u64, uint64_t)
W_RADIX(f16, w_key_f16, w_half)
W_RADIX(bf16, w_key_bf16, w_bfloat)
W_RADIX(f32, w_key_f32, float)
W_RADIX(f64, w_key_f64, double)
