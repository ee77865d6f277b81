// Writes of a slice into a tensor at a start that is data.
#include "numbers.cuh"

/* Writes m rows of an update into n rows at a start, which `per` blocks share; one thread per number. */
template <class T> W_INLINE void w_update(T* out, const int* start, const T* update, long long count, long long per,
                                          long long n, long long m, long long inner) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  long long block = i / (m * inner), at = start[block / per];
  at = at < 0 ? 0 : at > n - m ? n - m : at;
  out[(block * n + at) * inner + i % (m * inner)] = update[i];
}
#define W_UPDATE(name, N, T)                                                                                           \
  extern "C" __global__ void w_update_##name(T* out, const int* start, const T* update, long long count,               \
                                             long long per, long long n, long long m, long long inner) {               \
    w_update<T>(out, start, update, count, per, n, m, inner);                                                          \
  }
W_UPDATE(8, w_number<uint8_t>, uint8_t)
W_UPDATE(16, w_number<uint16_t>, uint16_t)
W_UPDATE(32, w_number<uint32_t>, uint32_t)
W_UPDATE(64, w_number<uint64_t>, uint64_t)
