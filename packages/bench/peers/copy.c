// The compiled copy loop that the fused chain is measured against: plain loads and stores, split over the threads.
#include <stdint.h>
#include <string.h>

void copy_loop(float* restrict to, const float* restrict from, int64_t count, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < count; i++) to[i] = from[i];
}

void copy_memcpy(float* restrict to, const float* restrict from, int64_t count, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int part = 0; part < threads; part++) {
    int64_t low = count * part / threads, high = count * (part + 1) / threads;
    memcpy(to + low, from + low, sizeof(float) * (high - low));
  }
}
