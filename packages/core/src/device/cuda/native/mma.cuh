// Products of a warp on tensor cores: c[16 x 8] += a[16 x k] b[k x 8], with k = 8 of tf32 (MODE 1) or 16 of bfloat16 (2) or float16
// (3), in the registers that mma.sync defines; and the same on the host, for the emulated device.
#pragma once
#include "prelude.cuh"

#ifdef W_EMULATED
static float w_mma_unpack(int mode, uint32_t w, int k) {
  uint16_t h = k & 1 ? w >> 16 : w;
  return mode == 2 ? w_from_bfloat(h) : w_from_half(h);
}
static uint32_t w_fragments[32][32][6];
W_INLINE float w_att_tf32(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000) & 0xffffe000); }
template <int MODE> W_INLINE void w_mma(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint32_t (*f)[6] = w_fragments[warp];
  __syncwarp();
  for (int i = 0; i < 4; i++) f[lane][i] = a[i];
  f[lane][4] = b0;
  f[lane][5] = b1;
  __syncwarp();
  for (int r = 0; r < 4; r++) {
    int i = g + (r / 2) * 8, n = 2 * t + (r & 1);
    double sum = c[r];
    for (int k = 0; k < (MODE == 1 ? 8 : 16); k++) {
      if (MODE == 1)
        sum += (double)__uint_as_float(f[i % 8 * 4 + k % 4][k / 4 * 2 + i / 8]) *
               __uint_as_float(f[n * 4 + k % 4][4 + k / 4]);
      else
        sum += (double)w_mma_unpack(MODE, f[i % 8 * 4 + k % 8 / 2][k / 8 * 2 + i / 8], k) *
               w_mma_unpack(MODE, f[n * 4 + k % 8 / 2][4 + k / 8], k);
    }
    c[r] = (float)sum;
  }
  __syncwarp();
}
#else
W_INLINE float w_att_tf32(float x) {
  uint32_t u;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(x));
  return __uint_as_float(u);
}
template <int MODE> W_INLINE void w_mma(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if (MODE == 1)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else if (MODE == 2)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}
#endif
