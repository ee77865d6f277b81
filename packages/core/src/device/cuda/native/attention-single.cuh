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

/* Joins what the warps of a block know of its heads: tops and totals [WARPS][heads], sums [WARPS][heads][WIDE]. */
template <class C, int WARPS, int WIDE> W_INLINE void w_att_single_end(void* const* p, int b, int h, int part,
                                                                       const float* tops, const float* totals,
                                                                       const float* sums) {
  const int NH = C::TOGETHER;
  __syncthreads();
  for (int i = threadIdx.x; i < NH * C::D; i += blockDim.x) {
    int n = i / C::D, at = i % C::D;
    float top = -w_inf_f(), total = 0, o = 0;
    for (int w = 0; w < WARPS; w++) {
      float next, fa, fb;
      w_att_factors<C>(top, tops[w * NH + n], next, fa, fb);
      top = next;
      total = total * fa + totals[w * NH + n] * fb;
      o = o * fa + sums[(w * NH + n) * WIDE + at] * fb;
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
  w_att_single_end<C, WARPS, WIDE>(p, b, h, part, tops[0], totals[0], sums[0][0]);
}
/* Element e of the eight in x, and of those in y above it. */
W_INLINE uint32_t w_att_pair_of(uint4 x, uint4 y, int e) {
  uint32_t a = e / 2 == 0 ? x.x : e / 2 == 1 ? x.y : e / 2 == 2 ? x.z : x.w;
  uint32_t b = e / 2 == 0 ? y.x : e / 2 == 1 ? y.y : e / 2 == 2 ? y.z : y.w;
  return e & 1 ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
}
/*
 * The same for half types and heads of 64 or 128 on tensor cores: up to eight heads that share keys are the rows of a product with
 * 16 keys per warp, and the columns of the product of values with their weights. Which element of the sum over a head, or of a result, a
 * register stands for is free, as long as both factors agree: threads hold eight neighbors in memory each.
 */
template <class C> W_INLINE void w_attention_single_group(void* const* p, char*) {
  typedef typename C::E E;
  const int NH = C::TOGETHER, WARPS = C::WARPS, STEPS = C::D / 32, CHUNKS = C::D / 64;
  const bool HIDES = C::MASK == 1 && C::MH == 0;
  __shared__ float tops[WARPS][NH], totals[WARPS][NH], sums[WARPS][NH][C::D];
  int part = blockIdx.x % C::PARTS, own = blockIdx.x / C::PARTS, b = own / (C::H / NH), h = own % (C::H / NH) * NH;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint4 zero = make_uint4(0, 0, 0, 0);
  const E* keys = (const E*)p[1] + b * C::KB + h / C::GROUP * C::KH + t * 8;
  const E* values = (const E*)p[2] + b * C::VB + h / C::GROUP * C::VH + g * 8;
  const int length = (C::T + C::PARTS - 1) / C::PARTS, from = part * length,
            to = from + length < C::T ? from + length : C::T;
  uint4 q[STEPS];
#pragma unroll
  for (int j = 0; j < STEPS; j++)
    q[j] = g < NH ? *(const uint4*)((const E*)p[0] + b * C::QB + (h + g) * C::QH + j * 32 + t * 8) : zero;
  float o[8][4], top = -w_inf_f(), total = 0;
#pragma unroll
  for (int e = 0; e < 8; e++)
    for (int r = 0; r < 4; r++) o[e][r] = 0;
#pragma unroll 1
  for (int start = from + warp * 16; start < to; start += WARPS * 16) {
    int mine = start + lane % 16;
    bool is = lane < 16 && mine < to && (!C::BAND || (mine >= C::LOWER && mine <= C::UPPER));
    if (HIDES && is) is = ((const uint8_t*)p[3])[b * C::MB + mine * C::MT] != 0;
    /* Keys that are hidden from all heads are not read. */
    const unsigned open = __ballot_sync(0xffffffffu, is);
    if (open == 0) continue;
    uint4 k[2][STEPS], v[4][CHUNKS];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int j = 0; j < STEPS; j++) {
        int at = g + 8 * i;
        k[i][j] = open >> at & 1 ? *(const uint4*)(keys + (long long)(start + at) * C::KS + j * 32) : zero;
      }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int c = 0; c < CHUNKS; c++) {
        int at = 2 * t + (i & 1) + i / 2 * 8;
        v[i][c] = open >> at & 1 ? *(const uint4*)(values + (long long)(start + at) * C::VS + c * 64) : zero;
      }
    /* Otherwise the assembler moves loads to their uses. */
    __syncwarp();
    /* Scores of head g and keys 8 i + 2 t + r. */
    float s[2][4], best = -w_inf_f();
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int r = 0; r < 4; r++) s[i][r] = 0;
#pragma unroll
      for (int j = 0; j < STEPS; j++) {
        uint32_t even[4] = {q[j].x, 0, q[j].y, 0}, odd[4] = {q[j].z, 0, q[j].w, 0};
        w_mma<C::MODE>(s[i], even, k[i][j].x, k[i][j].y);
        w_mma<C::MODE>(s[i], odd, k[i][j].z, k[i][j].w);
      }
#pragma unroll
      for (int r = 0; r < 2; r++) {
        int at = 8 * i + 2 * t + r;
        float x = s[i][r] * w_att_scale<C>();
        if (g >= NH || !(open >> at & 1)) x = -w_inf_f();
        else if (C::MASK == 1 && !HIDES) {
          if (!((const uint8_t*)p[3])[b * C::MB + (h + g) * C::MH + (start + at) * C::MT]) x = -w_inf_f();
        } else if (C::MASK == 2) x += w_att_bias<C>(p[3], b * C::MB + (h + g) * C::MH + (start + at) * C::MT);
        s[i][r] = x;
        best = fmaxf(best, x);
      }
    }
    float next = fmaxf(top, w_quad_max(best)), shift = next == -w_inf_f() ? 0.0f : next;
    float shrink = top == -w_inf_f() ? 0.0f : w_att_exp<C>(top - shift);
    top = next;
    total *= shrink;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        s[i][r] = w_att_exp<C>(s[i][r] - shift);
        total += s[i][r];
      }
    /* The columns of the results are the heads 2 t and 2 t + 1. */
    const float f0 = __shfl_sync(0xffffffffu, shrink, 8 * t), f1 = __shfl_sync(0xffffffffu, shrink, 8 * t + 4);
    const uint32_t w0 = w_att_pack<C::MODE>(s[0][0], s[0][1]), w1 = w_att_pack<C::MODE>(s[1][0], s[1][1]);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      o[e][0] *= f0;
      o[e][1] *= f1;
      o[e][2] *= f0;
      o[e][3] *= f1;
      /* Rows g are elements 8 g + e of the first half, rows g + 8 those of the second. */
      uint32_t a[4] = {w_att_pair_of(v[0][0], v[1][0], e), 0, w_att_pair_of(v[2][0], v[3][0], e), 0};
      if (CHUNKS == 2) {
        a[1] = w_att_pair_of(v[0][CHUNKS - 1], v[1][CHUNKS - 1], e);
        a[3] = w_att_pair_of(v[2][CHUNKS - 1], v[3][CHUNKS - 1], e);
      }
      w_mma<C::MODE>(o[e], a, w0, w1);
    }
  }
  total = w_quad_sum(total);
  if (t == 0 && g < NH) {
    tops[warp][g] = top;
    totals[warp][g] = total;
  }
#pragma unroll
  for (int e = 0; e < 8; e++)
#pragma unroll
    for (int r = 0; r < 2 * CHUNKS; r++) {
      int n = 2 * t + (r & 1);
      if (n < NH) sums[warp][n][r / 2 * 64 + g * 8 + e] = o[e][r];
    }
  w_att_single_end<C, WARPS, C::D>(p, b, h, part, tops[0], totals[0], sums[0][0]);
}
/* Joins the parts; a block per head. */
template <class C> W_INLINE void w_attention_single_join(void* const* p, char*) {
  int b = blockIdx.x / C::H, h = blockIdx.x % C::H;
  const float* from = (const float*)p[8] + (long long)blockIdx.x * C::PARTS * (C::D + 2);
  for (int d = threadIdx.x; d < C::D; d += blockDim.x) {
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
