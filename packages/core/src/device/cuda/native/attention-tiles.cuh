// What the attention kernels (attention.cuh) are made of: tiles of 64 rows in shared memory, products of a warp's 16
// rows with them, in registers in the layout of the tensor cores' results. Three ways to multiply share it: exact float32,
// tf32, and bfloat16 or float16 (sums in float32 everywhere).
// C is a struct of constants that device/cuda/attention.ts writes: MODE, shapes, strides, dtypes, mask, dropout.
#pragma once
#include "mma.cuh"
#include "prelude.cuh"
#include "random.cuh"

#define W_ROWS 64
#define W_INLINE_MEMBER __device__ __forceinline__
/* Two 16-bit numbers in a register, the first one low. */
template <int MODE> W_INLINE uint16_t w_att_half(float x) { return MODE == 2 ? w_to_bfloat(x) : w_to_half(x); }
template <int MODE> W_INLINE uint32_t w_att_pack(float x, float y) {
#if !defined(W_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t two;
  if (MODE == 2) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(y), "f"(x));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(y), "f"(x));
  return two;
#else
  return (uint32_t)w_att_half<MODE>(x) | (uint32_t)w_att_half<MODE>(y) << 16;
#endif
}
#ifdef W_EMULATED
/* Columns k0..k0+7 and k0 + 8.. of rows n0..n0+7 and n0 + 8.., in pairs of columns. */
W_INLINE void w_att_pairs(const uint16_t* x, int ld, int n0, int k0, uint32_t* b) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int m = 0; m < 4; m++) {
    const uint16_t* at = x + (n0 + (m >> 1) * 8 + g) * ld + k0 + (m & 1) * 8 + 2 * t;
    b[m] = (uint32_t)at[0] | (uint32_t)at[1] << 16;
  }
}
/* Asynchronous copies. */
W_INLINE void w_att_copy16(void* to, const void* from, bool inside) {
  uint4 zero = make_uint4(0, 0, 0, 0);
  *(uint4*)to = inside ? *(const uint4*)from : zero;
}
W_INLINE void w_att_copy4(uint32_t* to, const uint32_t* from, bool inside) { *to = inside ? *from : 0; }
W_INLINE void w_att_commit() {}
template <int LEFT> W_INLINE void w_att_wait() {}
W_INLINE float w_att_power(float x) { return exp2f(x); }
/* Columns n0.. and n0 + 8.. of rows k0..k0+15, in pairs of rows. */
W_INLINE void w_att_columns(const uint16_t* x, int ld, int k0, int n0, uint32_t* b) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int m = 0; m < 4; m++) {
    int k = k0 + (m & 1) * 8 + 2 * t, n = n0 + (m >> 1) * 8 + g;
    b[m] = (uint32_t)x[k * ld + n] | (uint32_t)x[(k + 1) * ld + n] << 16;
  }
}
#else
W_INLINE void w_att_pairs(const uint16_t* x, int ld, int n0, int k0, uint32_t* b) {
  int lane = threadIdx.x % 32, m = lane / 8;
  const uint16_t* row = x + (n0 + (m >> 1) * 8 + lane % 8) * ld + k0 + (m & 1) * 8;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(at));
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
W_INLINE void w_att_copy16(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
W_INLINE void w_att_copy4(uint32_t* to, const uint32_t* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from),
               "r"(inside ? 4 : 0)
               : "memory");
}
W_INLINE void w_att_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> W_INLINE void w_att_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }
#else
W_INLINE void w_att_copy16(void* to, const void* from, bool inside) {
  *(uint4*)to = inside ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
}
W_INLINE void w_att_copy4(uint32_t* to, const uint32_t* from, bool inside) { *to = inside ? *from : 0; }
W_INLINE void w_att_commit() {}
template <int LEFT> W_INLINE void w_att_wait() {}
#endif
W_INLINE float w_att_power(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
W_INLINE void w_att_columns(const uint16_t* x, int ld, int k0, int n0, uint32_t* b) {
  int lane = threadIdx.x % 32;
  const uint16_t* row = x + (k0 + (lane & 15)) * ld + n0 + (lane >> 4) * 8;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(at));
}
#endif

template <class E> struct w_att_element {
  W_INLINE float load(E x) { return x; }
  W_INLINE E store(float x) { return x; }
};
struct w_att_bf16 {
  W_INLINE float load(uint16_t x) { return w_from_bfloat(x); }
  W_INLINE uint16_t store(float x) { return w_to_bfloat(x); }
};
struct w_att_f16 {
  W_INLINE float load(uint16_t x) { return w_from_half(x); }
  W_INLINE uint16_t store(float x) { return w_to_half(x); }
};

/* A number in the precision of the product, as it is stored in shared memory. */
template <class C> W_INLINE typename C::Shared w_att_seen(float x) {
  if (C::MODE == 0) return (typename C::Shared)x;
  if (C::MODE == 1) return (typename C::Shared)w_att_tf32(x);
  return (typename C::Shared)w_att_half<C::MODE>(x);
}
/* 64 rows from r0 on, zeros beyond the last row and the last column. Asynchronous copies arrive after a wait. */
template <class C>
W_INLINE void w_att_load(typename C::Shared* to, const typename C::E* from, long long stride, int r0, int rows) {
  const int groups = C::DP / C::VECTOR;
#pragma unroll 4
  for (int i = threadIdx.x; i < W_ROWS * groups; i += 128) {
    int r = i / groups, d = i % groups * C::VECTOR;
    bool inside = r0 + r < rows && d < C::D;
    const typename C::E* at = from + (inside ? (long long)(r0 + r) * stride + d : 0);
    if (C::COPY) {
      w_att_copy16(to + r * C::LD + d, at, inside);
      continue;
    }
    __align__(16) typename C::E x[C::VECTOR];
    if (C::VECTOR > 1) {
      uint4 v = make_uint4(0, 0, 0, 0);
      if (inside) v = *(const uint4*)at;
      *(uint4*)x = v;
    } else x[0] = inside ? *at : (typename C::E)0;
#pragma unroll
    for (int j = 0; j < C::VECTOR; j++) to[r * C::LD + d + j] = w_att_seen<C>(C::Element::load(x[j]));
  }
}
/* The left operand of products with one tile after another: a warp's 16 rows, kept in registers where they are few. */
template <class C> struct w_att_left {
  static const int STEPS = C::MODE == 1 ? C::DP / 8 : C::DP / 16;
  static const bool HELD = C::MODE > 0 && STEPS <= 4;
  uint32_t f[HELD ? STEPS : 1][4];
  const typename C::Shared* rows;
  static W_INLINE_MEMBER void read(uint32_t* to, const typename C::Shared* from, int step) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t* x = (const uint32_t*)from;
    const int ld = C::MODE == 1 ? C::LD : C::LD / 2;
    int k = step * 8;
    to[0] = x[g * ld + k + t];
    to[1] = x[(g + 8) * ld + k + t];
    to[2] = x[g * ld + k + t + 4];
    to[3] = x[(g + 8) * ld + k + t + 4];
  }
  W_INLINE_MEMBER void hold(const typename C::Shared* from) {
    rows = from;
    if (HELD)
#pragma unroll
      for (int step = 0; step < STEPS; step++) read(f[HELD ? step : 0], from, step);
  }
};
/* c[16 x 8 N] = a[16 x DP] b[8 N x DP]^T, b row by row in shared memory. */
template <class C, int N> W_INLINE void w_att_rows(float (*c)[4], const w_att_left<C>& a, const typename C::Shared* b) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < N; n++)
    for (int r = 0; r < 4; r++) c[n][r] = 0;
  if (C::MODE == 0) {
    /* Shared memory is what limits this: two neighbors in g compute four rows and half of the columns each, for two thirds
       of the reads of two rows and all columns, and swap what belongs to the other. */
    int h = g & 1;
    const float* x = (const float*)a.rows + (g - h) * C::LD;
    const float* y = (const float*)b + (2 * t + h) * C::LD;
    float v[4][N];
#pragma unroll
    for (int i = 0; i < 4; i++)
      for (int n = 0; n < N; n++) v[i][n] = 0;
#pragma unroll 2
    for (int k = 0; k < C::DP; k += 4) {
      float4 u[4];
#pragma unroll
      for (int i = 0; i < 4; i++) u[i] = *(const float4*)(x + (i / 2 * 8 + i % 2) * C::LD + k);
#pragma unroll
      for (int n = 0; n < N; n++) {
        float4 w = *(const float4*)(y + n * 8 * C::LD + k);
#pragma unroll
        for (int i = 0; i < 4; i++) v[i][n] += u[i].x * w.x + u[i].y * w.y + u[i].z * w.z + u[i].w * w.w;
      }
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
      float upper = __shfl_xor_sync(0xffffffffu, h ? v[0][n] : v[1][n], 4),
            lower = __shfl_xor_sync(0xffffffffu, h ? v[2][n] : v[3][n], 4);
      c[n][0] = h ? upper : v[0][n];
      c[n][1] = h ? v[1][n] : upper;
      c[n][2] = h ? lower : v[2][n];
      c[n][3] = h ? v[3][n] : lower;
    }
    return;
  }
#pragma unroll
  for (int step = 0; step < w_att_left<C>::STEPS; step++) {
    uint32_t own[4];
    const uint32_t* f = own;
    if (w_att_left<C>::HELD) f = a.f[w_att_left<C>::HELD ? step : 0];
    else w_att_left<C>::read(own, a.rows, step);
    if (C::MODE == 1) {
      const uint32_t* y = (const uint32_t*)b + step * 8 + t;
#pragma unroll
      for (int n = 0; n < N; n++) w_mma<1>(c[n], f, y[(n * 8 + g) * C::LD], y[(n * 8 + g) * C::LD + 4]);
    } else {
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        uint32_t v[4];
        w_att_pairs((const uint16_t*)b, C::LD, n * 8, step * 16, v);
        w_mma<C::MODE>(c[n], f, v[0], v[1]);
        w_mma<C::MODE>(c[n + 1], f, v[2], v[3]);
      }
    }
  }
}
/* o[16 x DP] += p[16 x 8 N] b[8 N x DP]: p as a product left it in registers, b row by row in shared memory. */
template <class C, int N> W_INLINE void w_att_columns_of(float (*o)[4], float (*p)[4], const typename C::Shared* b) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (C::MODE == 0) {
    /* As above: four rows and every other tile of eight columns per thread, 64 columns at a time. */
    const int TILES = C::DP / 8;
    int h = g & 1, first = lane & ~7;
    const float* y = (const float*)b + h * 8 + 2 * t;
#pragma unroll
    for (int c = 0; c < TILES; c += 8) {
      float v[4][8];
#pragma unroll
      for (int i = 0; i < 4; i++)
        for (int m = 0; m < 8; m++) v[i][m] = 0;
#pragma unroll
      for (int k = 0; k < N; k++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
          int from = first | j / 2;
          float q[4] = {__shfl_sync(0xffffffffu, p[k][j % 2], from), __shfl_sync(0xffffffffu, p[k][j % 2], from | 4),
                        __shfl_sync(0xffffffffu, p[k][2 + j % 2], from),
                        __shfl_sync(0xffffffffu, p[k][2 + j % 2], from | 4)};
#pragma unroll
          for (int m = 0; m < 4; m++)
            if (c + 2 * m < TILES) {
              float2 w = *(const float2*)(y + (k * 8 + j) * C::LD + (c + 2 * m) * 8);
#pragma unroll
              for (int i = 0; i < 4; i++) {
                v[i][2 * m] += q[i] * w.x;
                v[i][2 * m + 1] += q[i] * w.y;
              }
            }
        }
#pragma unroll
      for (int m = 0; m < 4; m++)
        if (c + 2 * m < TILES)
#pragma unroll
          for (int r = 0; r < 4; r++) {
            int upper = r / 2 * 2, column = 2 * m + r % 2;
            float other = __shfl_xor_sync(0xffffffffu, h ? v[upper][column] : v[upper + 1][column], 4);
            o[c + 2 * m][r] += h ? other : v[upper][column];
            o[c + 2 * m + 1][r] += h ? v[upper + 1][column] : other;
          }
    }
  } else if (C::MODE == 1) {
    const uint32_t* y = (const uint32_t*)b;
#pragma unroll
    for (int k = 0; k < N; k++) {
      /* A result's columns 2t and 2t + 1 stand for the operand's columns t and t + 4; the rows of b follow. */
      uint32_t f[4] = {__float_as_uint(w_att_tf32(p[k][0])), __float_as_uint(w_att_tf32(p[k][2])),
                       __float_as_uint(w_att_tf32(p[k][1])), __float_as_uint(w_att_tf32(p[k][3]))};
#pragma unroll
      for (int n = 0; n < C::DP / 8; n++)
        w_mma<1>(o[n], f, y[(k * 8 + 2 * t) * C::LD + n * 8 + g], y[(k * 8 + 2 * t + 1) * C::LD + n * 8 + g]);
    }
  } else {
    const uint16_t* y = (const uint16_t*)b;
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
      const int M = C::MODE;
      uint32_t f[4] = {w_att_pack<M>(p[2 * k][0], p[2 * k][1]), w_att_pack<M>(p[2 * k][2], p[2 * k][3]),
                       w_att_pack<M>(p[2 * k + 1][0], p[2 * k + 1][1]),
                       w_att_pack<M>(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
      for (int n = 0; n < C::DP / 8; n += 2) {
        uint32_t v[4];
        w_att_columns(y, C::LD, k * 16, n * 8, v);
        w_mma<M>(o[n], f, v[0], v[1]);
        w_mma<M>(o[n + 1], f, v[2], v[3]);
      }
    }
  }
}
/* Scores are natural logarithms for expf in exact arithmetic, and logarithms to the base 2 for the GPU's exp2 instruction. */
template <class C> W_INLINE float w_att_unit() { return C::MODE == 0 ? 1.0f : 1.44269504088896f; }
template <class C> W_INLINE float w_att_exp(float x) { return C::MODE == 0 ? expf(x) : w_att_power(x); }
template <class C> W_INLINE float w_att_scale() { return C::SCALE() * w_att_unit<C>(); }
/* Whether a score is nothing but the scaled product. */
template <class C> struct w_att_plain {
  static const bool YES = C::MASK == 0 && !C::BAND && C::T % W_ROWS == 0 && C::S % W_ROWS == 0;
};
/* A number that is added to a score, in the units of the exponential. */
template <class C> W_INLINE float w_att_bias(const void* mask, long long at) {
  return C::Added::load(((const typename C::A*)mask)[at]) * w_att_unit<C>();
}
/* Whether a mask hides the same keys from all queries and heads, as padding does: tiles of hidden keys are skipped. */
template <class C> struct w_att_padding {
  static const bool YES = C::MASK == 1 && C::MS == 0 && C::MH == 0;
};
/* mixed: the tiles of query i and key j hold several segments, or some hidden keys. */
template <class C> W_INLINE float w_att_masked(float s, const void* mask, long long base, int i, int j, bool mixed) {
  if ((C::T % W_ROWS != 0 && j >= C::T) || (C::S % W_ROWS != 0 && i >= C::S)) return -w_inf_f();
  if (C::BAND && (j - i < C::LOWER || j - i > C::UPPER)) return -w_inf_f();
  if (C::MASK == 1 && (mixed || !w_att_padding<C>::YES))
    return ((const uint8_t*)mask)[base + i * C::MS + j * C::MT] ? s : -w_inf_f();
  if (C::MASK == 2) return s + w_att_bias<C>(mask, base + i * C::MS + j * C::MT);
  if (C::MASK == 3 && mixed && ((const int*)mask)[base + i] != ((const int*)mask)[base + C::S + j]) return -w_inf_f();
  return s;
}
/* Which tiles of the other side share a segment with a tile: 0 none, 1 all of their elements, 2 some. Known by the smallest and the
   largest id of every tile, so that a tile of unordered ids counts as shared where it may not be. Without segments every tile
   is. */
template <class C> struct w_att_shared {
  uint8_t* state;
  /* ids: of this tile, and of the other side. */
  W_INLINE_MEMBER void find(char* memory, const int* own, int r0, int rows, const int* others, int count, int first,
                            int last) {
    state = (uint8_t*)memory;
    if (C::MASK != 3) return;
    int lane = threadIdx.x % 32, low, high;
    range(own, r0, rows, low, high);
    for (int tile = first + (int)threadIdx.x / 32; tile < last; tile += 4) {
      int from, to;
      range(others, tile * W_ROWS, count, from, to);
      if (lane == 0) state[tile] = to < low || from > high ? 0 : low == high && from == to ? 1 : 2;
    }
    __syncthreads();
  }
  static W_INLINE_MEMBER void range(const int* ids, int r0, int rows, int& low, int& high) {
    int i = r0 + (int)threadIdx.x % 32, a = ids[i < rows ? i : rows - 1], b = ids[i + 32 < rows ? i + 32 : rows - 1];
    low = a < b ? a : b;
    high = a < b ? b : a;
    for (int d = 16; d > 0; d /= 2) {
      int l = __shfl_xor_sync(0xffffffffu, low, d), h = __shfl_xor_sync(0xffffffffu, high, d);
      low = l < low ? l : low;
      high = h > high ? h : high;
    }
  }
  /* The same where a mask hides keys from all queries: of tiles of keys, and of tiles of queries for one tile of keys. */
  W_INLINE_MEMBER void find_open(const uint8_t* open, int first, int last) {
    if (!w_att_padding<C>::YES) return;
    for (int tile = first + (int)threadIdx.x / 32; tile < last; tile += 4) {
      uint8_t found = open_of(open, tile);
      if (threadIdx.x % 32 == 0) state[tile] = found;
    }
    __syncthreads();
  }
  W_INLINE_MEMBER void fill_open(const uint8_t* open, int keys, int first, int last) {
    if (!w_att_padding<C>::YES) return;
    uint8_t found = open_of(open, keys);
    for (int tile = first + (int)threadIdx.x; tile < last; tile += 128) state[tile] = found;
    __syncthreads();
  }
  static W_INLINE_MEMBER uint8_t open_of(const uint8_t* open, int tile) {
    int j = tile * W_ROWS + (int)threadIdx.x % 32;
    bool x = j < C::T && open[j * C::MT], y = j + 32 < C::T && open[(j + 32) * C::MT];
    unsigned seen = __ballot_sync(0xffffffffu, x || y),
             all = __ballot_sync(0xffffffffu, (x || j >= C::T) && (y || j + 32 >= C::T));
    return all == 0xffffffffu ? 1 : seen != 0 ? 2 : 0;
  }
  /* The first shared tile from one on. */
  W_INLINE_MEMBER int next(int tile, int last) const {
    if (C::MASK == 3 || w_att_padding<C>::YES)
      while (tile < last && state[tile] == 0) tile++;
    return tile;
  }
  W_INLINE_MEMBER bool mixed(int tile) const { return (C::MASK == 3 || w_att_padding<C>::YES) && state[tile] == 2; }
};
/* Tiles of keys that some query of a tile sees, from first to before last. */
template <class C> W_INLINE void w_att_key_tiles(int tile, int& first, int& last) {
  first = 0;
  last = (C::T + W_ROWS - 1) / W_ROWS;
  if (!C::BAND) return;
  int low = tile * W_ROWS + C::LOWER, high = tile * W_ROWS + W_ROWS - 1 + C::UPPER;
  first = low > 0 ? low / W_ROWS : 0;
  last = high < 0 ? 0 : high / W_ROWS + 1 < last ? high / W_ROWS + 1 : last;
}
/* Tiles of queries that see some key of a tile. */
template <class C> W_INLINE void w_att_query_tiles(int tile, int& first, int& last) {
  first = 0;
  last = (C::S + W_ROWS - 1) / W_ROWS;
  if (!C::BAND) return;
  int low = tile * W_ROWS - C::UPPER, high = tile * W_ROWS + W_ROWS - 1 - C::LOWER;
  first = low > 0 ? low / W_ROWS : 0;
  last = high < 0 ? 0 : high / W_ROWS + 1 < last ? high / W_ROWS + 1 : last;
}
/* The weight of a score in a row with this log-sum-exp. */
template <class C>
W_INLINE float w_att_weight(float s, float lse, const void* mask, long long base, int i, int j, bool mixed) {
  if (w_att_plain<C>::YES) return w_att_exp<C>(fmaf(s, w_att_scale<C>(), -lse));
  return w_att_exp<C>(w_att_masked<C>(s * w_att_scale<C>(), mask, base, i, j, mixed) - lse);
}
/* The random bits of this thread's two columns in rows g and g + 8 of a tile: four columns share a block of two words, so
   a pair of threads draws one block per row and exchanges the halves. See random "dropoutMask" in ops/reference/random.ts. */
template <class C>
W_INLINE void w_att_words(uint32_t k0, uint32_t k1, typename C::Index block, typename C::Index below, uint32_t* words) {
  int odd = threadIdx.x & 1;
  uint64_t i = odd ? below : block;
  W_THREEFRY13
  uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? x0 : x1, 1);
  words[0] = odd ? other : x0;
  words[1] = odd ? x1 : other;
}
W_INLINE float w_quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
W_INLINE float w_quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <class E> struct __align__(2 * sizeof(E)) w_att_two {
  E x, y;
};
template <class C>
W_INLINE void w_att_store(typename C::E* to, long long stride, int r0, int rows, float (*o)[4], float f0, float f1) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < C::DP / 8; n++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int row = r0 + g + i * 8, d = n * 8 + 2 * t;
      float f = i ? f1 : f0;
      typename C::E* at = to + (long long)row * stride + d;
      if (row >= rows || d >= C::D) continue;
      typename C::E x = C::Element::store(o[n][2 * i] * f), y = C::Element::store(o[n][2 * i + 1] * f);
      if (C::PAIRS) {
        w_att_two<typename C::E> two = {x, y};
        *(w_att_two<typename C::E>*)at = two;
      } else {
        at[0] = x;
        if (d + 1 < C::D) at[1] = y;
      }
    }
}
