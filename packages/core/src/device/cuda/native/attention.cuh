// Attention without a score matrix in memory: softmax(q k^T scale, masked) v with dropout, and its gradient. A warp takes
// 16 rows, a block 64; the other side comes in tiles of 64 rows, the next one on its way while one is computed with.
// Made of the pieces in attention-tiles.cuh.
#pragma once
#include "attention-tiles.cuh"

/* The buffer of a tile in round i. */
template <class C> W_INLINE int w_att_place(int i) { return C::STAGES == 2 ? (i & 1) * W_ROWS * C::LD : 0; }
/* Waits for the tile of a round; with two buffers the copy of the next tile continues. */
template <class C> W_INLINE void w_att_arrive(bool another) {
  if (C::STAGES == 2 && another) w_att_wait<1>();
  else w_att_wait<0>();
  __syncthreads();
}

/* p: q, k, v, mask, key, out, log-sum-exp, dropout mask bits */
template <class C> W_INLINE void w_attention_forward(void* const* p, char* memory) {
  typedef typename C::Shared Shared;
  typedef typename C::E E;
  Shared* sq = (Shared*)memory;
  Shared* sk = sq + W_ROWS * C::LD;
  Shared* sv = sk + C::STAGES * W_ROWS * C::LD;
  w_att_shared<C> shared;
  const int tiles = (C::S + W_ROWS - 1) / W_ROWS;
  const bool PLAIN = w_att_plain<C>::YES && C::POSITIVE;
  /* The last tiles of a causal mask take longest: they start first. */
  int tile = tiles - 1 - (int)blockIdx.x % tiles, bh = blockIdx.x / tiles, b = bh / C::H, h = bh % C::H, first, last;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  w_att_key_tiles<C>(tile, first, last);
  w_att_load<C>(sq, (const E*)p[0] + b * C::QB + h * C::QH, C::QS, tile * W_ROWS, C::S);
  const E* keys = (const E*)p[1] + b * C::KB + h / C::GROUP * C::KH;
  const E* values = (const E*)p[2] + b * C::VB + h / C::GROUP * C::VH;
  auto fetch = [&](int round, int turn) {
    w_att_load<C>(sk + w_att_place<C>(turn), keys, C::KS, round * W_ROWS, C::T);
    w_att_load<C>(sv + w_att_place<C>(turn), values, C::VS, round * W_ROWS, C::T);
    w_att_commit();
  };
  long long mask = b * C::MB + h * C::MH;
  const int* ids = (const int*)p[3] + mask;
  shared.find((char*)(sv + C::STAGES * W_ROWS * C::LD), ids, tile * W_ROWS, C::S, ids + C::S, C::T, first, last);
  shared.find_open((const uint8_t*)p[3] + mask, first, last);
  int round = shared.next(first, last), after;
  if (C::STAGES == 2 && round < last) fetch(round, 0);
  uint32_t k0 = 0, k1 = 0;
  if (C::DROP) {
    const uint32_t* key = (const uint32_t*)p[4] + b * C::KEY;
    k0 = key[0];
    k1 = key[1];
  }
  float o[C::DP / 8][4], top[2] = {-w_inf_f(), -w_inf_f()}, total[2] = {0, 0};
#pragma unroll
  for (int n = 0; n < C::DP / 8; n++)
    for (int r = 0; r < 4; r++) o[n][r] = 0;
  int row = tile * W_ROWS + warp * 16 + g;
  w_att_left<C> left;
  /* The factor of a score inside the exponential, if it was not applied before. */
  const float factor = PLAIN ? w_att_scale<C>() : 1.0f;
#pragma unroll 1
  for (int turn = 0; round < last; turn++, round = after) {
    int j0 = round * W_ROWS;
    const bool mixed = shared.mixed(round);
    after = shared.next(round + 1, last);
    if (C::STAGES == 1) fetch(round, turn);
    else if (after < last) fetch(after, turn + 1);
    w_att_arrive<C>(after < last);
    if (turn == 0) left.hold(sq + warp * 16 * C::LD);
    float s[8][4];
    w_att_rows<C, 8>(s, left, sk + w_att_place<C>(turn));
    float best[2] = {-w_inf_f(), -w_inf_f()};
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int r = 0; r < 4; r++) {
        if (!PLAIN)
          s[n][r] = w_att_masked<C>(s[n][r] * w_att_scale<C>(), p[3], mask, row + (r / 2) * 8,
                                    j0 + n * 8 + 2 * t + (r & 1), mixed);
        best[r / 2] = fmaxf(best[r / 2], s[n][r]);
      }
    float shift[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float next = fmaxf(top[i], w_quad_max(best[i]));
      shift[i] = next == -w_inf_f() ? 0.0f : next * factor;
      float shrink = top[i] == -w_inf_f() ? 0.0f : w_att_exp<C>(fmaf(top[i], factor, -shift[i]));
      top[i] = next;
      total[i] *= shrink;
#pragma unroll
      for (int n = 0; n < C::DP / 8; n++) {
        o[n][2 * i] *= shrink;
        o[n][2 * i + 1] *= shrink;
      }
    }
    float sums[2] = {0, 0};
    uint32_t bits[4] = {0, 0, 0, 0};
#pragma unroll
    for (int n = 0; n < 8; n++) {
      uint32_t words[2] = {0, 0};
      if (C::DROP) {
        typename C::Index line =
            ((typename C::Index)(C::OWN ? h : bh) * C::S + row) * ((C::T + 3) / 4) + (j0 / 4 + n * 2 + t / 2);
        w_att_words<C>(k0, k1, line, line + 8 * ((C::T + 3) / 4), words);
      }
#pragma unroll
      for (int r = 0; r < 4; r++) {
        float x = w_att_exp<C>(fmaf(s[n][r], factor, -shift[r / 2]));
        sums[r / 2] += x;
        if (C::DROP) {
          uint32_t drawn = r & 1 ? words[r / 2] >> 16 : words[r / 2] & 65535u;
          if (drawn < (uint32_t)C::THRESHOLD) x = 0;
          else bits[r / 2 * 2 + n / 4] |= 1u << (n % 4 * 8 + (r & 1));
        }
        s[n][r] = x;
      }
    }
    total[0] += w_quad_sum(sums[0]);
    total[1] += w_quad_sum(sums[1]);
    if (C::DROP) {
#pragma unroll
      for (int w = 0; w < 4; w++) {
        bits[w] <<= 2 * t;
        bits[w] |= __shfl_xor_sync(0xffffffffu, bits[w], 1);
        bits[w] |= __shfl_xor_sync(0xffffffffu, bits[w], 2);
      }
      uint32_t mine = t == 0 ? bits[0] : t == 1 ? bits[1] : t == 2 ? bits[2] : bits[3];
      int i = row + (t / 2) * 8, word = j0 / 32 + (t & 1);
      if (i < C::S && word < C::WORDS) ((uint32_t*)p[7])[((long long)bh * C::S + i) * C::WORDS + word] = mine;
    }
    w_att_columns_of<C, 8>(o, s, sv + w_att_place<C>(turn));
    __syncthreads();
  }
  w_att_wait<0>();
  float inverse[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    /* A fully masked row: zeros with a boolean mask, segments or a band, NaN otherwise. */
    const bool ZEROS = C::MASK == 1 || C::MASK == 3 || (C::BAND && C::MASK == 0);
    inverse[i] = ZEROS && total[i] == 0 ? 0.0f : C::KEEP() / total[i];
    if (t == 0 && row + i * 8 < C::S)
      ((float*)p[6])[(long long)bh * C::S + row + i * 8] =
          total[i] == 0 ? 0.0f : logf(total[i]) + top[i] * factor / w_att_unit<C>();
  }
  w_att_store<C>((E*)p[5] + b * C::OB + h * C::OH, C::OS, tile * W_ROWS + warp * 16, C::S, o, inverse[0], inverse[1]);
}

/*
 * The gradient of the scores is w (d keep - delta), with w the weights, d = cotangent v^T where dropout kept it, and
 * delta = sum(cotangent out). The factor keep is taken out of all sums: delta is divided by it, the results multiplied.
 */

/* p: q, k, v, mask, out, log-sum-exp, dropout mask bits, cotangent, dq, dk, dv, rows, gradient of the mask. Leaves log-sum-exp and
   delta in rows, as the key gradient uses them. The gradient of the mask is zero outside a band, by a memset before. */
template <class C> W_INLINE void w_attention_query_gradient(void* const* p, char* memory) {
  typedef typename C::Shared Shared;
  typedef typename C::E E;
  Shared* sq = (Shared*)memory;
  Shared* sg = sq + W_ROWS * C::LD;
  Shared* sk = sg + W_ROWS * C::LD;
  Shared* sv = sk + C::STAGES * W_ROWS * C::LD;
  float2* srows = (float2*)(sv + C::STAGES * W_ROWS * C::LD);
  w_att_shared<C> shared;
  const int tiles = (C::S + W_ROWS - 1) / W_ROWS;
  /* The last tiles of a causal mask take longest: they start first. */
  int tile = tiles - 1 - (int)blockIdx.x % tiles, bh = blockIdx.x / tiles, b = bh / C::H, h = bh % C::H, first, last;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  w_att_key_tiles<C>(tile, first, last);
  const E* cotangent = (const E*)p[7] + b * C::GB + h * C::GH;
  const E* result = (const E*)p[4] + b * C::OB + h * C::OH;
  w_att_load<C>(sq, (const E*)p[0] + b * C::QB + h * C::QH, C::QS, tile * W_ROWS, C::S);
  w_att_load<C>(sg, cotangent, C::GS, tile * W_ROWS, C::S);
  const E* keys = (const E*)p[1] + b * C::KB + h / C::GROUP * C::KH;
  const E* values = (const E*)p[2] + b * C::VB + h / C::GROUP * C::VH;
  auto fetch = [&](int round, int turn) {
    w_att_load<C>(sk + w_att_place<C>(turn), keys, C::KS, round * W_ROWS, C::T);
    w_att_load<C>(sv + w_att_place<C>(turn), values, C::VS, round * W_ROWS, C::T);
    w_att_commit();
  };
  long long mask = b * C::MB + h * C::MH;
  const int* ids = (const int*)p[3] + mask;
  shared.find((char*)srows + C::STAGES * W_ROWS * 16, ids, tile * W_ROWS, C::S, ids + C::S, C::T, first, last);
  shared.find_open((const uint8_t*)p[3] + mask, first, last);
  int round = shared.next(first, last), after;
  if (C::STAGES == 2 && round < last) fetch(round, 0);
  {
    int i = tile * W_ROWS + threadIdx.x / 2;
    float sum = 0;
    if (i < C::S) {
      const E* x = cotangent + (long long)i * C::GS;
      const E* y = result + (long long)i * C::OS;
      if (C::ROWS16) {
        const int W = 16 / sizeof(E);
        for (int d = threadIdx.x % 2 * W; d < C::D; d += 2 * W) {
          __align__(16) E u[W];
          __align__(16) E v[W];
          *(uint4*)u = *(const uint4*)(x + d);
          *(uint4*)v = *(const uint4*)(y + d);
#pragma unroll
          for (int j = 0; j < W; j++) sum += C::Element::load(u[j]) * C::Element::load(v[j]);
        }
      } else
        for (int d = threadIdx.x % 2; d < C::D; d += 2) sum += C::Element::load(x[d]) * C::Element::load(y[d]);
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (threadIdx.x % 2 == 0) {
      long long at = (long long)bh * C::S + i;
      float2 mine = make_float2(i < C::S ? ((const float*)p[5])[at] * w_att_unit<C>() : 0.0f, sum / C::KEEP());
      srows[threadIdx.x / 2] = mine;
      if (i < C::S) ((float2*)p[11])[at] = mine;
    }
  }
  int row = tile * W_ROWS + warp * 16 + g;
  float lse[2], delta[2], o[C::DP / 8][4];
#pragma unroll
  for (int n = 0; n < C::DP / 8; n++)
    for (int r = 0; r < 4; r++) o[n][r] = 0;
  w_att_left<C> leftQ, leftG;
#pragma unroll 1
  for (int turn = 0; round < last; turn++, round = after) {
    const bool mixed = shared.mixed(round);
    after = shared.next(round + 1, last);
    if (C::STAGES == 1) fetch(round, turn);
    else if (after < last) fetch(after, turn + 1);
    w_att_arrive<C>(after < last);
    if (turn == 0) {
      leftQ.hold(sq + warp * 16 * C::LD);
      leftG.hold(sg + warp * 16 * C::LD);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float2 mine = srows[warp * 16 + g + i * 8];
        lse[i] = mine.x;
        delta[i] = mine.y;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const Shared* k = sk + w_att_place<C>(turn) + half * 32 * C::LD;
      const Shared* v = sv + w_att_place<C>(turn) + half * 32 * C::LD;
      int j0 = round * W_ROWS + half * 32;
      uint32_t bits[2] = {0, 0};
      if (C::DROP)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if (row + i * 8 < C::S && j0 / 32 < C::WORDS)
            bits[i] = ((const uint32_t*)p[6])[((long long)bh * C::S + row + i * 8) * C::WORDS + j0 / 32] >> (2 * t);
      float s[4][4], d[4][4];
      w_att_rows<C, 4>(s, leftQ, k);
      w_att_rows<C, 4>(d, leftG, v);
#pragma unroll
      for (int n = 0; n < 4; n++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
          int i = row + (r / 2) * 8, j = j0 + n * 8 + 2 * t + (r & 1);
          float weight = w_att_weight<C>(s[n][r], lse[r / 2], p[3], mask, i, j, mixed);
          float kept = !C::DROP || (bits[r / 2] & 1u << (n * 8 + (r & 1))) ? d[n][r] : 0.0f;
          s[n][r] = weight * (kept - delta[r / 2]);
          if (C::BIAS && i < C::S && j < C::T)
            ((float*)p[12])[((long long)bh * C::S + i) * C::T + j] = s[n][r] * C::KEEP();
        }
      w_att_columns_of<C, 4>(o, s, k);
    }
    __syncthreads();
  }
  w_att_wait<0>();
  const float scale = C::SCALE() * C::KEEP();
  w_att_store<C>((E*)p[8] + b * C::DQB + h * C::DQH, C::DQS, tile * W_ROWS + warp * 16, C::S, o, scale, scale);
}

/* The same arguments; rows are keys, columns queries. */
template <class C> W_INLINE void w_attention_key_gradient(void* const* p, char* memory) {
  typedef typename C::Shared Shared;
  typedef typename C::E E;
  Shared* sk = (Shared*)memory;
  Shared* sv = sk + W_ROWS * C::LD;
  Shared* sq = sv + W_ROWS * C::LD;
  Shared* sg = sq + C::STAGES * W_ROWS * C::LD;
  float2* srows = (float2*)(sg + C::STAGES * W_ROWS * C::LD);
  uint32_t* sbits = (uint32_t*)(srows + C::STAGES * W_ROWS);
  w_att_shared<C> shared;
  const int tiles = (C::T + W_ROWS - 1) / W_ROWS, owners = C::H / C::GROUP;
  int tile = blockIdx.x % tiles, b = blockIdx.x / tiles / owners, own = blockIdx.x / tiles % owners, first, last;
  w_att_query_tiles<C>(tile, first, last);
  const int* ids = (const int*)p[3] + b * C::MB;
  shared.find((char*)srows + C::STAGES * W_ROWS * 16, ids + C::S, tile * W_ROWS, C::T, ids, C::S, first, last);
  shared.fill_open((const uint8_t*)p[3] + b * C::MB, tile, first, last);
  /* All tiles of queries of one head after the other; several heads may share these keys. */
  int head = 0, round = shared.next(first, last);
  bool more = round < last;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  w_att_load<C>(sk, (const E*)p[1] + b * C::KB + own * C::KH, C::KS, tile * W_ROWS, C::T);
  w_att_load<C>(sv, (const E*)p[2] + b * C::VB + own * C::VH, C::VS, tile * W_ROWS, C::T);
  auto fetch = [&](int of, int tile_of, int turn) {
    int h = own * C::GROUP + of, i0 = tile_of * W_ROWS, place = C::STAGES == 2 ? turn & 1 : 0;
    w_att_load<C>(sq + w_att_place<C>(turn), (const E*)p[0] + b * C::QB + h * C::QH, C::QS, i0, C::S);
    w_att_load<C>(sg + w_att_place<C>(turn), (const E*)p[7] + b * C::GB + h * C::GH, C::GS, i0, C::S);
    int i = i0 + threadIdx.x / 2, w = tile * 2 + threadIdx.x % 2;
    long long at = ((long long)b * C::H + h) * C::S + i;
    /* Two rows per copy; with an odd number of rows they would not be aligned. */
    if (C::S % 2 == 0) {
      if (threadIdx.x % 4 == 0)
        w_att_copy16(srows + place * W_ROWS + threadIdx.x / 2, (const float2*)p[11] + (i < C::S ? at : 0), i < C::S);
    } else if (threadIdx.x % 2 == 0)
      srows[place * W_ROWS + threadIdx.x / 2] = i < C::S ? ((const float2*)p[11])[at] : make_float2(0, 0);
    if (C::DROP) {
      bool inside = i < C::S && w < C::WORDS;
      w_att_copy4(sbits + place * 128 + threadIdx.x, (const uint32_t*)p[6] + (inside ? at * C::WORDS + w : 0), inside);
    }
    w_att_commit();
  };
  if (C::STAGES == 2 && more) fetch(head, round, 0);
  int key = tile * W_ROWS + warp * 16 + g;
  float dk[C::DP / 8][4], dv[C::DP / 8][4];
#pragma unroll
  for (int n = 0; n < C::DP / 8; n++)
    for (int r = 0; r < 4; r++) dk[n][r] = dv[n][r] = 0;
  w_att_left<C> leftK, leftV;
#pragma unroll 1
  for (int turn = 0; more; turn++) {
    int next_head = head, next_round = shared.next(round + 1, last);
    if (next_round >= last) {
      next_head++;
      next_round = shared.next(first, last);
    }
    more = next_head < C::GROUP;
    if (C::STAGES == 1) fetch(head, round, turn);
    else if (more) fetch(next_head, next_round, turn + 1);
    w_att_arrive<C>(more);
    const bool mixed = shared.mixed(round);
    long long mask = b * C::MB + (own * C::GROUP + head) * C::MH;
    if (turn == 0) {
      leftK.hold(sk + warp * 16 * C::LD);
      leftV.hold(sv + warp * 16 * C::LD);
    }
    int place = C::STAGES == 2 ? turn & 1 : 0;
    const float2* rows = srows + place * W_ROWS;
    const uint32_t* drawn = sbits + place * 128 + warp / 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const Shared* q = sq + w_att_place<C>(turn) + half * 32 * C::LD;
      const Shared* c = sg + w_att_place<C>(turn) + half * 32 * C::LD;
      float s[4][4], d[4][4];
      w_att_rows<C, 4>(s, leftK, q);
      w_att_rows<C, 4>(d, leftV, c);
#pragma unroll
      for (int n = 0; n < 4; n++) {
        int i = half * 32 + n * 8 + 2 * t;
        float4 two = *(const float4*)(rows + i);
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
          float lse = odd ? two.z : two.x, delta = odd ? two.w : two.y;
          /* A warp's 16 keys lie in one word: bits of this thread's two keys, eight apart. */
          uint32_t bits = C::DROP ? drawn[(i + odd) * 2] >> (key & 31) : 0;
#pragma unroll
          for (int r = odd; r < 4; r += 2) {
            float weight = w_att_weight<C>(s[n][r], lse, p[3], mask, round * W_ROWS + i + odd, key + r / 2 * 8, mixed);
            bool kept = !C::DROP || (bits & 1u << (r / 2 * 8));
            s[n][r] = kept ? weight : 0.0f;
            d[n][r] = weight * ((kept ? d[n][r] : 0.0f) - delta);
          }
        }
      }
      w_att_columns_of<C, 4>(dv, s, c);
      w_att_columns_of<C, 4>(dk, d, q);
    }
    head = next_head;
    round = next_round;
    __syncthreads();
  }
  w_att_wait<0>();
  const float scale = C::SCALE() * C::KEEP();
  w_att_store<C>((E*)p[9] + b * C::DKB + own * C::DKH, C::DKS, tile * W_ROWS + warp * 16, C::T, dk, scale, scale);
  w_att_store<C>((E*)p[10] + b * C::DVB + own * C::DVH, C::DVS, tile * W_ROWS + warp * 16, C::T, dv, C::KEEP(),
                 C::KEEP());
}
