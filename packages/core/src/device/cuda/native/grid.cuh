// A barrier of all blocks of a cooperative launch. The counter starts at zero and only grows; `round` counts the barriers.
#pragma once

#ifdef W_EMULATED
/* The emulator runs one block after the other: such launches have one block there. */
static inline void w_grid_barrier(unsigned*, unsigned) { __syncthreads(); }
#else
W_INLINE void w_grid_barrier(unsigned* counter, unsigned round) {
  __syncthreads();
  if (gridDim.x == 1) return;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(counter, 1u);
    const unsigned all = round * gridDim.x;
    unsigned arrived;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(counter) : "memory");
    } while (arrived < all);
    __threadfence();
  }
  __syncthreads();
}
#endif

/* Copies by all blocks; addresses are multiples of 16 where the number of bytes is. */
W_INLINE void w_grid_copy(void* to, const void* from, long long bytes) {
  const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, all = (long long)gridDim.x * blockDim.x;
  if (bytes % 16 == 0)
    for (long long i = first; i < bytes / 16; i += all) ((uint4*)to)[i] = ((const uint4*)from)[i];
  else
    for (long long i = first; i < bytes; i += all) ((char*)to)[i] = ((const char*)from)[i];
}
