// Attention of one query per head, as in the generation of text: keys and values are read once, by groups of threads that hold
// 16 bytes of a row each. Every group has its own running maximum and sums; they are joined at the end, first within a block, then, where
// the keys are cut into parts, by a second kernel.
#pragma once
#include "attention-tiles.cuh"

#define W_SINGLE_THREADS 256

/* What a group of threads knows of its keys: the largest score, the sum of weights, and the weighted values. */
template <int N> struct w_att_partial {
  float top, total, o[N];
};
/* The factors of two partial results with the maxima a and b; -inf is the maximum of none. */
template <class C> W_INLINE void w_att_factors(float a, float b, float& top, float& fa, float& fb) {
  top = fmaxf(a, b);
  fa = a == -w_inf_f() ? 0.0f : w_att_exp<C>(a - top);
  fb = b == -w_inf_f() ? 0.0f : w_att_exp<C>(b - top);
}
/* Writes one element of the result, and the log-sum by the first thread. */
template <class C> W_INLINE void w_att_finish(void* const* p, int b, int h, int d, float top, float total, float o) {
  const bool ZEROS = C::MASK == 1 || (C::BAND && C::MASK == 0);
  float inverse = ZEROS && total == 0 ? 0.0f : 1.0f / total;
  ((typename C::E*)p[5])[b * C::OB + h * C::OH + d] = C::Element::store(o * inverse);
  if (d == 0) ((float*)p[6])[(long long)b * C::H + h] = total == 0 ? 0.0f : logf(total) + top / w_att_unit<C>();
}

/* p: q, k, v, mask, key, out, log-sum-exp, dropout mask bits, partial results. A block has TOGETHER heads that share keys. */
template <class C> W_INLINE void w_attention_single(void* const* p, char*) {
  typedef typename C::E E;
  const int W = 16 / sizeof(E), L = C::LANES, GROUPS = W_SINGLE_THREADS / L, NH = C::TOGETHER, AHEAD = 4;
  const int WARPS = W_SINGLE_THREADS / 32, WIDE = L * W;
  const bool HIDES = C::MASK == 1 && C::MH == 0 && C::T > 1024;
  __shared__ float tops[WARPS][NH], totals[WARPS][NH], sums[WARPS][NH][WIDE];
  int part = blockIdx.x % C::PARTS, own = blockIdx.x / C::PARTS, b = own / (C::H / NH), h = own % (C::H / NH) * NH;
  int lane = threadIdx.x % L, group = threadIdx.x / L, warp = threadIdx.x / 32, d = lane * W;
  const bool inside = d < C::D;
  const uint4 zero = make_uint4(0, 0, 0, 0);
  const E* keys = (const E*)p[1] + b * C::KB + h / C::GROUP * C::KH + d;
  const E* values = (const E*)p[2] + b * C::VB + h / C::GROUP * C::VH + d;
  const int length = (C::T + C::PARTS - 1) / C::PARTS, from = part * length,
            to = from + length < C::T ? from + length : C::T;
  float q[NH][W];
  w_att_partial<W> mine[NH];
#pragma unroll
  for (int n = 0; n < NH; n++) {
    __align__(16) E raw[W];
    *(uint4*)raw = inside ? *(const uint4*)((const E*)p[0] + b * C::QB + (h + n) * C::QH + d) : zero;
#pragma unroll
    for (int k = 0; k < W; k++) {
      q[n][k] = C::Element::load(raw[k]) * w_att_scale<C>();
      mine[n].o[k] = 0;
    }
    mine[n].top = -w_inf_f();
    mine[n].total = 0;
  }
#pragma unroll 1
  for (int start = from; start < to; start += GROUPS * AHEAD) {
    __align__(16) E rk[AHEAD][W];
    __align__(16) E rv[AHEAD][W];
    bool seen[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int j = start + u * GROUPS + group;
      seen[u] = j < to && (!C::BAND || (j >= C::LOWER && j <= C::UPPER));
      /* A mask that all heads share hides keys before they are read; few keys are read at once instead. */
      if (HIDES && seen[u]) seen[u] = ((const uint8_t*)p[3])[b * C::MB + j * C::MT] != 0;
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      long long j = start + u * GROUPS + group;
      *(uint4*)rk[u] = seen[u] && inside ? *(const uint4*)(keys + j * C::KS) : zero;
      *(uint4*)rv[u] = seen[u] && inside ? *(const uint4*)(values + j * C::VS) : zero;
    }
    /* Otherwise the assembler moves loads to their uses. */
    __syncwarp();
#pragma unroll
    for (int n = 0; n < NH; n++) {
      float s[AHEAD], best = -w_inf_f();
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        float dot = 0;
#pragma unroll
        for (int k = 0; k < W; k++) dot += q[n][k] * C::Element::load(rk[u][k]);
#pragma unroll
        for (int by = L / 2; by > 0; by /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, by);
        int j = start + u * GROUPS + group;
        if (!seen[u]) dot = -w_inf_f();
        else if (C::MASK == 1 && !HIDES) {
          if (!((const uint8_t*)p[3])[b * C::MB + (h + n) * C::MH + j * C::MT]) dot = -w_inf_f();
        } else if (C::MASK == 2) dot += w_att_bias<C>(p[3], b * C::MB + (h + n) * C::MH + j * C::MT);
        s[u] = dot;
        best = fmaxf(best, dot);
      }
      float next = fmaxf(mine[n].top, best), shift = next == -w_inf_f() ? 0.0f : next;
      float shrink = mine[n].top == -w_inf_f() ? 0.0f : w_att_exp<C>(mine[n].top - shift);
      mine[n].top = next;
      mine[n].total *= shrink;
#pragma unroll
      for (int k = 0; k < W; k++) mine[n].o[k] *= shrink;
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        float x = w_att_exp<C>(s[u] - shift);
        mine[n].total += x;
#pragma unroll
        for (int k = 0; k < W; k++) mine[n].o[k] += x * C::Element::load(rv[u][k]);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < NH; n++) {
#pragma unroll
    for (int by = L; by < 32; by *= 2) {
      float top, fa, fb;
      w_att_factors<C>(mine[n].top, __shfl_xor_sync(0xffffffffu, mine[n].top, by), top, fa, fb);
      mine[n].top = top;
      mine[n].total = mine[n].total * fa + __shfl_xor_sync(0xffffffffu, mine[n].total, by) * fb;
#pragma unroll
      for (int k = 0; k < W; k++)
        mine[n].o[k] = mine[n].o[k] * fa + __shfl_xor_sync(0xffffffffu, mine[n].o[k], by) * fb;
    }
    if (threadIdx.x % 32 == 0) {
      tops[warp][n] = mine[n].top;
      totals[warp][n] = mine[n].total;
    }
    if (threadIdx.x % 32 < L)
#pragma unroll
      for (int k = 0; k < W; k++) sums[warp][n][d + k] = mine[n].o[k];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < NH * C::D; i += W_SINGLE_THREADS) {
    int n = i / C::D, at = i % C::D;
    float top = -w_inf_f(), total = 0, o = 0;
    for (int w = 0; w < WARPS; w++) {
      float next, fa, fb;
      w_att_factors<C>(top, tops[w][n], next, fa, fb);
      top = next;
      total = total * fa + totals[w][n] * fb;
      o = o * fa + sums[w][n][at] * fb;
    }
    if (C::PARTS == 1) {
      w_att_finish<C>(p, b, h + n, at, top, total, o);
      continue;
    }
    float* to = (float*)p[8] + (((long long)b * C::H + h + n) * C::PARTS + part) * (C::D + 2);
    to[2 + at] = o;
    if (at == 0) {
      to[0] = top;
      to[1] = total;
    }
  }
}
/* Joins the parts; a block per head. */
template <class C> W_INLINE void w_attention_single_join(void* const* p, char*) {
  int b = blockIdx.x / C::H, h = blockIdx.x % C::H;
  const float* from = (const float*)p[8] + (long long)blockIdx.x * C::PARTS * (C::D + 2);
  for (int d = threadIdx.x; d < C::D; d += W_SINGLE_THREADS) {
    float top = -w_inf_f(), total = 0, o = 0;
    for (int part = 0; part < C::PARTS; part++) {
      const float* at = from + part * (C::D + 2);
      float next, fa, fb;
      w_att_factors<C>(top, at[0], next, fa, fb);
      top = next;
      total = total * fa + at[1] * fb;
      o = o * fa + at[2 + d] * fb;
    }
    w_att_finish<C>(p, b, h, d, top, total, o);
  }
}
