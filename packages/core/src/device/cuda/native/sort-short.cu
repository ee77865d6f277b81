// Stable order of short rows on the GPU: a warp, or a part of one, sorts a row in registers by a bitonic network (Batcher 1968). Elements
// carry their places, which decide between equal keys and fill up the network.
#include "keys.cuh"

#define W_BITONIC_THREADS 256

/* A key with its place, as one number where both fit into 64 bits. */
template <class K, int BYTES> struct w_placed {
  typedef unsigned long long N;
  W_INLINE N of(K key, int place) { return (N)key << 16 | (N)place; }
  W_INLINE K key(N x) { return (K)(x >> 16); }
  W_INLINE int place(N x) { return (int)(x & 0xffff); }
  W_INLINE bool before(N a, N b) { return a < b; }
  W_INLINE N from(N x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
};
template <class K> struct w_placed_small {
  typedef unsigned N;
  W_INLINE N of(K key, int place) { return (N)key << 16 | (N)place; }
  W_INLINE K key(N x) { return (K)(x >> 16); }
  W_INLINE int place(N x) { return (int)(x & 0xffff); }
  W_INLINE bool before(N a, N b) { return a < b; }
  W_INLINE N from(N x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
};
template <class K> struct w_placed<K, 1> : w_placed_small<K> {};
template <class K> struct w_placed<K, 2> : w_placed_small<K> {};
template <class K> struct w_key_and_place {
  K key;
  int place;
};
template <class K> struct w_placed<K, 8> {
  typedef w_key_and_place<K> N;
  W_INLINE N of(K key, int place) {
    N x = {key, place};
    return x;
  }
  W_INLINE K key(N x) { return x.key; }
  W_INLINE int place(N x) { return x.place; }
  W_INLINE bool before(N a, N b) { return a.key < b.key || (a.key == b.key && a.place < b.place); }
  W_INLINE N from(N x, int lanes) {
    return of((K)__shfl_xor_sync(0xffffffffu, (unsigned long long)x.key, lanes),
              __shfl_xor_sync(0xffffffffu, x.place, lanes));
  }
};

/* Sorts SIZE elements, of which lane l has those from l * EACH on. */
template <class P, int SIZE, int EACH> W_INLINE void w_bitonic(typename P::N* v, int lane) {
#pragma unroll
  for (int width = 2; width <= SIZE; width *= 2)
#pragma unroll
    for (int step = width / 2; step > 0; step /= 2) {
      if (step >= EACH) {
        bool low = (lane & (step / EACH)) == 0;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
          typename P::N other = P::from(v[e], step / EACH);
          bool up = ((lane * EACH + e) & width) == 0;
          if (P::before(other, v[e]) == (up == low)) v[e] = other;
        }
      } else {
#pragma unroll
        for (int e = 0; e < EACH; e++)
          if ((e & step) == 0) {
            bool up = ((lane * EACH + e) & width) == 0;
            typename P::N a = v[e], b = v[e | step];
            if (P::before(b, a) == up) {
              v[e] = b;
              v[e | step] = a;
            }
          }
      }
    }
}

/* Rows of at most SIZE elements, of whose order `count` places from `first` on are stored, or all their elements as values. Shared memory:
   SIZE + 1 elements per row, from which threads write neighbors. */
template <class Q, class T, int SIZE> W_INLINE void w_bitonic_rows(char* memory, const T* x, int* out, T* values,
                                                                   long long rows, int n, int first, int count,
                                                                   int descending) {
  typedef typename Q::K K;
  typedef w_placed<K, sizeof(K)> P;
  const int LANES = SIZE < 32 ? SIZE : 32, EACH = SIZE / LANES, ROWS = W_BITONIC_THREADS / LANES;
  const int lane = (int)threadIdx.x % LANES, slot = (int)threadIdx.x / LANES;
  typename P::N* ordered = (typename P::N*)memory + slot * (SIZE + 1);
  const long long row = (long long)blockIdx.x * ROWS + slot;
  const bool active = row < rows;
  const T* from = x + (active ? row : rows - 1) * n;
  typename P::N v[EACH];
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int i = e * LANES + lane;
    K key = (K) ~(K)0;
    if (i < n) {
      K own = Q::of(from[i], values != 0);
      key = descending ? (K)~own : own;
    }
    v[e] = P::of(key, i);
  }
  w_bitonic<P, SIZE, EACH>(v, lane);
#pragma unroll
  for (int e = 0; e < EACH; e++) ordered[lane * EACH + e] = v[e];
  __syncwarp();
  if (!active) return;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int i = e * LANES + lane;
    if (i < first || i >= first + count) continue;
    typename P::N own = ordered[i];
    if (values) values[row * n + i] = Q::back(descending ? (K)~P::key(own) : P::key(own));
    else out[row * count + i - first] = P::place(own);
  }
}
/* size: a power of two from 8 to 256. */
#define W_BITONIC(name, N, T)                                                                                          \
  extern "C" __global__ void __launch_bounds__(W_BITONIC_THREADS)                                                      \
      w_bitonic_##name(const T* x, int* out, T* values, long long rows, long long n, long long first, long long count, \
                       long long descending, long long size) {                                                         \
    W_DYNAMIC_SHARED(memory);                                                                                          \
    const int m = (int)n, f = (int)first, c = (int)count, d = (int)descending;                                         \
    switch ((int)size) {                                                                                               \
      case 8: w_bitonic_rows<N, T, 8>(memory, x, out, values, rows, m, f, c, d); break;                                \
      case 16: w_bitonic_rows<N, T, 16>(memory, x, out, values, rows, m, f, c, d); break;                              \
      case 32: w_bitonic_rows<N, T, 32>(memory, x, out, values, rows, m, f, c, d); break;                              \
      case 64: w_bitonic_rows<N, T, 64>(memory, x, out, values, rows, m, f, c, d); break;                              \
      case 128: w_bitonic_rows<N, T, 128>(memory, x, out, values, rows, m, f, c, d); break;                            \
      case 256: w_bitonic_rows<N, T, 256>(memory, x, out, values, rows, m, f, c, d); break;                            \
    }                                                                                                                  \
  }
W_BITONIC(i8, w_key_i8, int8_t)
W_BITONIC(u8, w_key_u8, uint8_t)
W_BITONIC(i16, w_key_i16, int16_t)
W_BITONIC(u16, w_key_u16, uint16_t)
W_BITONIC(i32, w_key_i32, int32_t)
W_BITONIC(u32, w_key_u32, uint32_t)
W_BITONIC(i64, w_key_i64, int64_t)
W_BITONIC(u64, w_key_u64, uint64_t)
W_BITONIC(f16, w_key_f16, w_half)
W_BITONIC(bf16, w_key_bf16, w_bfloat)
W_BITONIC(f32, w_key_f32, float)
W_BITONIC(f64, w_key_f64, double)
