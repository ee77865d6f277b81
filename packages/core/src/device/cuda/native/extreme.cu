// Scatters by extreme on the GPU: the largest or smallest of elements and their updates, by atomic operations, whose result does not depend
// on their order. NaN wins: it is stored with the bits that compare as the largest, or smallest.
#include "prelude.cuh"
#include "target.cuh"

/* Numbers whose bits compare as integers of their own kind. */
template <class T, class W> struct w_whole_bits {
  W_INLINE bool is_nan(T) { return false; }
  W_INLINE T nan(int) { return 0; }
  W_INLINE void join(T* to, T x, int largest) {
    if (largest) atomicMax((W*)to, (W)x);
    else atomicMin((W*)to, (W)x);
  }
};
/* Floating-point numbers of one sign compare as integers; those with the sign bit in reverse order. */
template <class T, class S, class U> struct w_float_bits {
  W_INLINE bool is_nan(T x) { return x != x; }
  W_INLINE T nan(int largest) {
    union {
      U bits;
      T value;
    } all;
    all.bits = ~(U)0;
    if (largest) all.bits >>= 1;
    return all.value;
  }
  W_INLINE void join(T* to, T x, int largest) {
    union {
      T value;
      S bits;
    } all;
    all.value = x;
    if (all.bits >= 0) {
      if (largest) atomicMax((S*)to, all.bits);
      else atomicMin((S*)to, all.bits);
    } else {
      if (largest) atomicMin((U*)to, (U)all.bits);
      else atomicMax((U*)to, (U)all.bits);
    }
  }
};

template <class B, class T> W_INLINE void w_extreme_base(const T* base, T* out, long long size, int largest) {
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < size; i += (long long)gridDim.x * 256) {
    T x = base[i];
    out[i] = B::is_nan(x) ? B::nan(largest) : x;
  }
}
template <class B, class T> W_INLINE void w_extreme_join(const int* indices, const T* updates, T* out, long long total,
                                                         long long before, long long n, long long after,
                                                         long long count, int largest) {
  long long e = (long long)blockIdx.x * 256 + threadIdx.x;
  if (e >= total) return;
  long long to = w_scatter_target(indices, e, before, n, after, count, total);
  if (to < 0) return;
  T x = updates[e];
  if (B::is_nan(x)) {
    B::join(out + to, B::nan(largest), largest);
    return;
  }
  /* Most updates of places that have many change nothing: a look spares the wait for others. Elements only move one way. */
  T seen = *(const volatile T*)(out + to);
  if (largest ? x > seen : x < seen) B::join(out + to, x, largest);
}

typedef w_whole_bits<int32_t, int> w_int_bits;
typedef w_whole_bits<uint32_t, unsigned> w_unsigned_bits;
typedef w_whole_bits<int64_t, long long> w_long_bits;
typedef w_whole_bits<uint64_t, unsigned long long> w_ulong_bits;
typedef w_float_bits<float, int, unsigned> w_single_bits;
typedef w_float_bits<double, long long, unsigned long long> w_double_bits;
#define W_EXTREME(name, N, T)                                                                                          \
  extern "C" __global__ void w_extreme_base_##name(const T* base, T* out, long long size, long long largest) {         \
    w_extreme_base<N, T>(base, out, size, (int)largest);                                                               \
  }                                                                                                                    \
  extern "C" __global__ void w_extreme_join_##name(const int* indices, const T* updates, T* out, long long total,      \
                                                   long long before, long long n, long long after, long long count,    \
                                                   long long largest) {                                                \
    w_extreme_join<N, T>(indices, updates, out, total, before, n, after, count, (int)largest);                         \
  }
W_EXTREME(i32, w_int_bits, int32_t)
W_EXTREME(u32, w_unsigned_bits, uint32_t)
W_EXTREME(i64, w_long_bits, int64_t)
W_EXTREME(u64, w_ulong_bits, uint64_t)
W_EXTREME(f32, w_single_bits, float)
W_EXTREME(f64, w_double_bits, double)
