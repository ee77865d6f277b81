// Normal numbers, with the coefficients and the order of operations of ops/reference/normal.ts. Every product that is added to
// something is a fused multiply-add: flags of compilers that allow or forbid contraction change nothing.
#pragma once
#include "threefry.h"

/* Box-Muller: sqrt(-2 log u) cos(2 pi v), the cosine by folding v to a quarter turn. Two neighbors share u and v: the second one is
   three quarters of a turn ahead, which makes a sine of the cosine. */
#define W_QUARTER 0xc0000000u
W_INLINE float w_radius_f(uint32_t word) {
  float u = (float)(int32_t)((word >> 8) + 1) * 5.9604644775390625e-8f;
  int32_t bits = (int32_t)w_f_to_bits(u), e = (bits - 0x3f3504f3) >> 23;
  float f = w_bits_to_f((uint32_t)bits - ((uint32_t)e << 23)) - 1.0f, k = (float)e, p;
  p = -0.06202881038188934f;
  p = fmaf(p, f, 0.10532645881175995f);
  p = fmaf(p, f, -0.10646561533212662f);
  p = fmaf(p, f, 0.11037559062242508f);
  p = fmaf(p, f, -0.12450674921274185f);
  p = fmaf(p, f, 0.14286532998085022f);
  p = fmaf(p, f, -0.16668003797531128f);
  p = fmaf(p, f, 0.2000000923871994f);
  p = fmaf(p, f, -0.24999989569187164f);
  p = fmaf(p, f, 0.3333333432674408f);
  float ff = f * f, y = fmaf(p * f, ff, k * -0.00021219444170128554f);
  y = fmaf(-0.5f, ff, y) + f;
  y = fmaf(k, 0.693359375f, y);
  return sqrtf(-2.0f * y);
}
W_INLINE float w_gauss_f(float radius, uint32_t word) {
  float v = (float)(int32_t)(word >> 8) * 5.9604644775390625e-8f, p;
  float a = (fabsf(v - 0.5f) - 0.25f) * 6.2831854820251465f, s = a * a;
  p = 1.6059044372074283e-10f;
  p = fmaf(p, s, -2.5052107943679403e-8f);
  p = fmaf(p, s, 0.0000027557318844628753f);
  p = fmaf(p, s, -0.00019841270113829523f);
  p = fmaf(p, s, 0.008333333767950535f);
  p = fmaf(p, s, -0.1666666716337204f);
  p = fmaf(p, s, 1.0f);
  return fmaf(radius, a * p, 0.0f);
}
W_INLINE float w_normal_f(uint32_t k0, uint32_t k1, uint64_t n) {
  uint64_t i = n >> 1;
  W_THREEFRY13
  return w_gauss_f(w_radius_f(x0), x1 + (n & 1 ? W_QUARTER : 0u));
}
W_INLINE double w_normal_d(uint32_t k0, uint32_t k1, uint64_t i) {
  W_THREEFRY
  double u = ((double)x0 + 1.0) * 2.3283064365386963e-10, v = (double)x1 * 2.3283064365386963e-10;
  uint64_t bits = w_d_to_bits(u);
  int32_t e = ((int32_t)(bits >> 32) - 0x3fe6a09e) >> 20;
  double f = w_bits_to_d(bits - ((uint64_t)(int64_t)e << 52)) - 1.0, k = (double)e, p;
  double t = f / (f + 2.0), z = t * t;
  p = 0.04;
  p = fma(p, z, 0.043478260869565216);
  p = fma(p, z, 0.047619047619047616);
  p = fma(p, z, 0.05263157894736842);
  p = fma(p, z, 0.058823529411764705);
  p = fma(p, z, 0.06666666666666667);
  p = fma(p, z, 0.07692307692307693);
  p = fma(p, z, 0.09090909090909091);
  p = fma(p, z, 0.1111111111111111);
  p = fma(p, z, 0.14285714285714285);
  p = fma(p, z, 0.2);
  p = fma(p, z, 0.3333333333333333);
  double twice = t + t, y = fma(twice * z, p, k * 1.9082149292705877e-10);
  y = y + twice;
  y = fma(k, 0.6931471803691238, y);
  double a = (fabs(v - 0.5) - 0.25) * 6.283185307179586, s = a * a;
  p = -3.8681701706306835e-23;
  p = fma(p, s, 1.9572941063391263e-20);
  p = fma(p, s, -8.22063524662433e-18);
  p = fma(p, s, 2.8114572543455206e-15);
  p = fma(p, s, -7.647163731819816e-13);
  p = fma(p, s, 1.6059043836821613e-10);
  p = fma(p, s, -2.505210838544172e-8);
  p = fma(p, s, 0.0000027557319223985893);
  p = fma(p, s, -0.0001984126984126984);
  p = fma(p, s, 0.008333333333333333);
  p = fma(p, s, -0.16666666666666666);
  p = fma(p, s, 1.0);
  return fma(sqrt(-2.0 * y), a * p, 0.0);
}
