// Pointer tables of batched products.
#include "prelude.cuh"

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
