// Writes of a slice into a tensor at a start that is data.
#include "numbers.cuh"

/* Writes m rows of an update into n rows at a start, which `per` blocks share; one thread per number. */
template <class T> W_INLINE void w_update(T* out, const int* start, const T* update, long long count, long long per,
                                          long long n, long long m, long long inner, long long first) {
  w_begin();
  long long i = (blockIdx.x - first) * 256 + threadIdx.x;
  if (i >= count) return;
  long long block = i / (m * inner), at = start[block / per];
  at = at < 0 ? 0 : at > n - m ? n - m : at;
  out[(block * n + at) * inner + i % (m * inner)] = update[i];
}
#define W_UPDATE(name, N, T)                                                                                           \
  extern "C" __global__ void w_update_##name(T* out, const int* start, const T* update, long long count,               \
                                             long long per, long long n, long long m, long long inner) {               \
    w_update<T>(out, start, update, count, per, n, m, inner, 0);                                                       \
  }                                                                                                                    \
  extern "C" __global__ void w_update_pair_##name(T* out, const int* start, const T* update, T* out2,                  \
                                                  const int* start2, const T* update2, long long count, long long per, \
                                                  long long n, long long m, long long inner) {                         \
    if (blockIdx.x < gridDim.x / 2) w_update<T>(out, start, update, count, per, n, m, inner, 0);                       \
    else w_update<T>(out2, start2, update2, count, per, n, m, inner, gridDim.x / 2);                                   \
  }
W_UPDATE(8, w_number<uint8_t>, uint8_t)
W_UPDATE(16, w_number<uint16_t>, uint16_t)
W_UPDATE(32, w_number<uint32_t>, uint32_t)
W_UPDATE(64, w_number<uint64_t>, uint64_t)
