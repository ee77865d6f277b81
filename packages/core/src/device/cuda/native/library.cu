// CUDA kernels for ops that are not loops over independent elements: running sums, sorting, scattered additions, and the
// pointer tables of batched products. Deterministic.
#include "numbers.cuh"
#include "prelude.cuh"
#include "scatter.cuh"
#include "sort.cuh"

/* One thread per line. parts: numbers per element (2 for complex). */
template <class N, class T>
W_INLINE void w_cumsum(const T* x, T* out, long long lines, long long n, long long inner, int reverse) {
  long long line = (long long)blockIdx.x * 256 + threadIdx.x;
  if (line >= lines) return;
  long long base = line / inner * n * inner + line % inner;
  typename N::sum total = 0;
  for (long long s = 0; s < n; s++) {
    long long at = base + (reverse ? n - 1 - s : s) * inner;
    total += N::load(x[at]);
    out[at] = N::store(total);
  }
}
#define W_CUMSUM(name, N, T)                                                                                           \
  extern "C" __global__ void w_cumsum_##name(const T* x, T* out, long long lines, long long n, long long inner,        \
                                             long long reverse) {                                                      \
    w_cumsum<N, T>(x, out, lines, n, inner, (int)reverse);                                                             \
  }
W_CUMSUM(i8, w_number<int8_t>, int8_t)
W_CUMSUM(u8, w_number<uint8_t>, uint8_t)
W_CUMSUM(i16, w_number<int16_t>, int16_t)
W_CUMSUM(u16, w_number<uint16_t>, uint16_t)
W_CUMSUM(u32, w_number<uint32_t>, uint32_t)
W_CUMSUM(u64, w_number<uint64_t>, uint64_t)
W_CUMSUM(i32, w_number<int32_t>, int32_t)
W_CUMSUM(i64, w_number<int64_t>, int64_t)
W_CUMSUM(f16, w_half_number, w_half)
W_CUMSUM(bf16, w_bfloat_number, w_bfloat)
W_CUMSUM(f32, w_float_number, float)
W_CUMSUM(f64, w_number<double>, double)

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

/* Pointers of a batched product whose batch has several axes. shape: rank, then (size, a, b, c byte strides) an axis. */
struct w_batch {
  long long rank, size[8], a[8], b[8], c[8];
};
extern "C" __global__ void w_pointers(char* a, char* b, char* c, void** out, long long count, w_batch batch) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  long long at = i;
  for (int d = (int)batch.rank - 1; d >= 0; d--) {
    long long k = at % batch.size[d];
    at /= batch.size[d];
    a += k * batch.a[d];
    b += k * batch.b[d];
    c += k * batch.c[d];
  }
  out[i] = a;
  out[count + i] = b;
  out[2 * count + i] = c;
}
