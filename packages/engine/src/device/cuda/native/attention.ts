// Attention without a score matrix in memory: softmax(q k^T scale, masked) v with dropout, and its gradient. A warp takes
// 16 rows, a block 64; keys come in tiles of 64. Scores live in registers, in the layout of the tensor cores' results;
// three ways to multiply share it: exact float32, tf32, and bfloat16 or float16 (sums in float32 everywhere).
// C is a struct of constants that device/cuda/attention.ts writes: MODE, shapes, strides, dtypes, mask, dropout.
export const attentionKernels = String.raw`
#define W_ROWS 64
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
static float w_att_unpack(int mode, uint32_t w, int k) { uint16_t h = k & 1 ? w >> 16 : w; return mode == 2 ? w_from_bfloat(h) : w_from_half(h); }
static uint32_t w_fragments[32][32][6];
W_INLINE float w_att_tf32(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000) & 0xffffe000); }
template <int MODE> W_INLINE void w_mma(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint32_t (*f)[6] = w_fragments[warp];
  __syncwarp();
  for (int i = 0; i < 4; i++) f[lane][i] = a[i];
  f[lane][4] = b0; f[lane][5] = b1;
  __syncwarp();
  for (int r = 0; r < 4; r++) {
    int i = g + (r / 2) * 8, n = 2 * t + (r & 1);
    double sum = c[r];
    for (int k = 0; k < (MODE == 1 ? 8 : 16); k++) {
      if (MODE == 1) sum += (double)__uint_as_float(f[i % 8 * 4 + k % 4][k / 4 * 2 + i / 8]) * __uint_as_float(f[n * 4 + k % 4][4 + k / 4]);
      else sum += (double)w_att_unpack(MODE, f[i % 8 * 4 + k % 8 / 2][k / 8 * 2 + i / 8], k) * w_att_unpack(MODE, f[n * 4 + k % 8 / 2][4 + k / 8], k);
    }
    c[r] = (float)sum;
  }
  __syncwarp();
}
/* Columns n0.. and n0 + 8.. of rows k0..k0+15, in pairs of rows. */
W_INLINE void w_att_columns(const uint16_t* x, int ld, int k0, int n0, uint32_t* b) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int m = 0; m < 4; m++) {
    int k = k0 + (m & 1) * 8 + 2 * t, n = n0 + (m >> 1) * 8 + g;
    b[m] = (uint32_t)x[k * ld + n] | (uint32_t)x[(k + 1) * ld + n] << 16;
  }
}
#else
W_INLINE float w_att_tf32(float x) { uint32_t u; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(x)); return __uint_as_float(u); }
template <int MODE> W_INLINE void w_mma(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
  if (MODE == 1)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else if (MODE == 2)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
W_INLINE void w_att_columns(const uint16_t* x, int ld, int k0, int n0, uint32_t* b) {
  int lane = threadIdx.x % 32;
  const uint16_t* row = x + (k0 + (lane & 15)) * ld + n0 + (lane >> 4) * 8;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(at));
}
#endif

template <class E> struct w_att_element { W_INLINE float load(E x) { return x; } W_INLINE E store(float x) { return x; } };
struct w_att_bf16 { W_INLINE float load(uint16_t x) { return w_from_bfloat(x); } W_INLINE uint16_t store(float x) { return w_to_bfloat(x); } };
struct w_att_f16 { W_INLINE float load(uint16_t x) { return w_from_half(x); } W_INLINE uint16_t store(float x) { return w_to_half(x); } };

/* What a product sees of a number, as it lies in shared memory. */
template <class C> W_INLINE typename C::Shared w_att_seen(float x) {
  if (C::MODE == 0) return (typename C::Shared)x;
  if (C::MODE == 1) return (typename C::Shared)w_att_tf32(x);
  return (typename C::Shared)w_att_half<C::MODE>(x);
}
/* 64 rows from r0 on, zeros beyond the last row and the last column. */
template <class C> W_INLINE void w_att_load(typename C::Shared* to, const typename C::E* from, long long stride, int r0, int rows) {
  const int groups = C::DP / C::VECTOR;
#pragma unroll 4
  for (int i = threadIdx.x; i < W_ROWS * groups; i += 128) {
    int r = i / groups, d = i % groups * C::VECTOR;
    bool inside = r0 + r < rows && d < C::D;
    typename C::E x[C::VECTOR];
    if (C::VECTOR > 1) {
      uint4 v = make_uint4(0, 0, 0, 0);
      if (inside) v = *(const uint4*)(from + (long long)(r0 + r) * stride + d);
      *(uint4*)x = v;
    } else x[0] = inside ? from[(long long)(r0 + r) * stride + d] : (typename C::E)0;
    if (C::COPY) *(uint4*)(to + r * C::LD + d) = *(uint4*)x;
    else
#pragma unroll
      for (int j = 0; j < C::VECTOR; j++) to[r * C::LD + d + j] = w_att_seen<C>(C::Element::load(x[j]));
  }
}
/* c[16 x 64] += a[16 x DP] b[64 x DP]^T, both row by row in shared memory. */
template <class C> W_INLINE void w_att_rows(float (*c)[4], const typename C::Shared* a, const typename C::Shared* b) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (C::MODE == 0) {
    const float* x = (const float*)a; const float* y = (const float*)b;
#pragma unroll 2
    for (int k = 0; k < C::DP; k += 4) {
      float4 x0 = *(const float4*)(x + g * C::LD + k), x1 = *(const float4*)(x + (g + 8) * C::LD + k);
#pragma unroll
      for (int n = 0; n < 8; n++) {
        float4 y0 = *(const float4*)(y + (n * 8 + 2 * t) * C::LD + k), y1 = *(const float4*)(y + (n * 8 + 2 * t + 1) * C::LD + k);
        c[n][0] += x0.x * y0.x + x0.y * y0.y + x0.z * y0.z + x0.w * y0.w;
        c[n][1] += x0.x * y1.x + x0.y * y1.y + x0.z * y1.z + x0.w * y1.w;
        c[n][2] += x1.x * y0.x + x1.y * y0.y + x1.z * y0.z + x1.w * y0.w;
        c[n][3] += x1.x * y1.x + x1.y * y1.y + x1.z * y1.z + x1.w * y1.w;
      }
    }
  } else if (C::MODE == 1) {
    const uint32_t* x = (const uint32_t*)a; const uint32_t* y = (const uint32_t*)b;
#pragma unroll
    for (int k = 0; k < C::DP; k += 8) {
      uint32_t f[4] = { x[g * C::LD + k + t], x[(g + 8) * C::LD + k + t], x[g * C::LD + k + t + 4], x[(g + 8) * C::LD + k + t + 4] };
#pragma unroll
      for (int n = 0; n < 8; n++) w_mma<1>(c[n], f, y[(n * 8 + g) * C::LD + k + t], y[(n * 8 + g) * C::LD + k + t + 4]);
    }
  } else {
    const uint32_t* x = (const uint32_t*)a; const uint32_t* y = (const uint32_t*)b;
    const int ld = C::LD / 2;
#pragma unroll
    for (int k = 0; k < C::DP / 2; k += 8) {
      uint32_t f[4] = { x[g * ld + k + t], x[(g + 8) * ld + k + t], x[g * ld + k + t + 4], x[(g + 8) * ld + k + t + 4] };
#pragma unroll
      for (int n = 0; n < 8; n++) w_mma<C::MODE>(c[n], f, y[(n * 8 + g) * ld + k + t], y[(n * 8 + g) * ld + k + t + 4]);
    }
  }
}
/* o[16 x DP] += p[16 x 64] b[64 x DP]: p as a product left it in registers, b row by row in shared memory. */
template <class C> W_INLINE void w_att_columns_of(float (*o)[4], float (*p)[4], const typename C::Shared* b) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (C::MODE == 0) {
    const float* y = (const float*)b;
#pragma unroll
    for (int k = 0; k < 8; k++) {
#pragma unroll
      for (int from = 0; from < 4; from++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float p0 = __shfl_sync(0xffffffffu, p[k][e], (lane & ~3) | from), p1 = __shfl_sync(0xffffffffu, p[k][2 + e], (lane & ~3) | from);
          const float* row = y + (k * 8 + 2 * from + e) * C::LD + 2 * t;
#pragma unroll
          for (int n = 0; n < C::DP / 8; n++) {
            float2 v = *(const float2*)(row + n * 8);
            o[n][0] += p0 * v.x; o[n][1] += p0 * v.y; o[n][2] += p1 * v.x; o[n][3] += p1 * v.y;
          }
        }
      }
    }
  } else if (C::MODE == 1) {
    const uint32_t* y = (const uint32_t*)b;
#pragma unroll
    for (int k = 0; k < 8; k++) {
      /* A result's columns 2t and 2t + 1 stand for the operand's columns t and t + 4; the rows of b follow. */
      uint32_t f[4] = { __float_as_uint(w_att_tf32(p[k][0])), __float_as_uint(w_att_tf32(p[k][2])), __float_as_uint(w_att_tf32(p[k][1])), __float_as_uint(w_att_tf32(p[k][3])) };
#pragma unroll
      for (int n = 0; n < C::DP / 8; n++) w_mma<1>(o[n], f, y[(k * 8 + 2 * t) * C::LD + n * 8 + g], y[(k * 8 + 2 * t + 1) * C::LD + n * 8 + g]);
    }
  } else {
    const uint16_t* y = (const uint16_t*)b;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int M = C::MODE;
      uint32_t f[4] = { w_att_pack<M>(p[2 * k][0], p[2 * k][1]), w_att_pack<M>(p[2 * k][2], p[2 * k][3]), w_att_pack<M>(p[2 * k + 1][0], p[2 * k + 1][1]), w_att_pack<M>(p[2 * k + 1][2], p[2 * k + 1][3]) };
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
template <class C> W_INLINE float w_att_masked(float s, const void* mask, long long base, int i, int j) {
  if ((C::T % W_ROWS != 0 && j >= C::T) || (C::S % W_ROWS != 0 && i >= C::S)) return -w_inf_f();
  if (C::MASK == 1) return ((const uint8_t*)mask)[base + i * C::MS + j * C::MT] ? s : -w_inf_f();
  if (C::MASK == 2) return s + ((const float*)mask)[base + i * C::MS + j * C::MT];
  return s;
}
/* The random bits of this thread's two columns in rows g and g + 8 of a tile: four columns share a block of two words, so
   a pair of threads draws one block a row and swaps the halves. See random "kept" in ops/reference/random.ts. */
template <class C> W_INLINE void w_att_words(uint32_t k0, uint32_t k1, typename C::Index block, typename C::Index below, uint32_t* words) {
  int odd = threadIdx.x & 1;
  uint64_t i = odd ? below : block;
  W_THREEFRY13
  uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? x0 : x1, 1);
  words[0] = odd ? other : x0; words[1] = odd ? x1 : other;
}
W_INLINE float w_quad_max(float x) { x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1)); return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2)); }
W_INLINE float w_quad_sum(float x) { x += __shfl_xor_sync(0xffffffffu, x, 1); return x + __shfl_xor_sync(0xffffffffu, x, 2); }
template <class C> W_INLINE float w_att_exp(float x) { return C::MODE == 0 ? expf(x) : __expf(x); }

template <class E> struct __align__(2 * sizeof(E)) w_att_two { E x, y; };
template <class C> W_INLINE void w_att_store(typename C::E* to, long long stride, int r0, int rows, float (*o)[4], float f0, float f1) {
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
      if (C::PAIRS) { w_att_two<typename C::E> two = { x, y }; *(w_att_two<typename C::E>*)at = two; }
      else { at[0] = x; if (d + 1 < C::D) at[1] = y; }
    }
}

/* p: q, k, v, mask, key, out, log-sum-exp, kept bits */
template <class C> W_INLINE void w_attention_forward(void* const* p, char* memory) {
  typedef typename C::Shared Shared; typedef typename C::E E;
  Shared* sq = (Shared*)memory; Shared* sk = sq + W_ROWS * C::LD; Shared* sv = sk + W_ROWS * C::LD;
  const int tiles = (C::S + W_ROWS - 1) / W_ROWS;
  int tile = blockIdx.x % tiles, bh = blockIdx.x / tiles, b = bh / C::H, h = bh % C::H;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  w_att_load<C>(sq, (const E*)p[0] + b * C::QB + h * C::QH, C::QS, tile * W_ROWS, C::S);
  const E* keys = (const E*)p[1] + b * C::KB + h * C::KH; const E* values = (const E*)p[2] + b * C::VB + h * C::VH;
  long long mask = b * C::MB + h * C::MH;
  uint32_t k0 = 0, k1 = 0;
  if (C::DROP) { const uint32_t* key = (const uint32_t*)p[4] + b * C::KEY; k0 = key[0]; k1 = key[1]; }
  float o[C::DP / 8][4], top[2] = { -w_inf_f(), -w_inf_f() }, total[2] = { 0, 0 };
#pragma unroll
  for (int n = 0; n < C::DP / 8; n++) for (int r = 0; r < 4; r++) o[n][r] = 0;
  int row = tile * W_ROWS + warp * 16 + g;
  for (int j0 = 0; j0 < C::T; j0 += W_ROWS) {
    __syncthreads();
    w_att_load<C>(sk, keys, C::KS, j0, C::T);
    w_att_load<C>(sv, values, C::VS, j0, C::T);
    __syncthreads();
    float s[8][4];
#pragma unroll
    for (int n = 0; n < 8; n++) for (int r = 0; r < 4; r++) s[n][r] = 0;
    w_att_rows<C>(s, sq + warp * 16 * C::LD, sk);
    float best[2] = { -w_inf_f(), -w_inf_f() };
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int r = 0; r < 4; r++) {
        s[n][r] = w_att_masked<C>(s[n][r] * C::SCALE(), p[3], mask, row + (r / 2) * 8, j0 + n * 8 + 2 * t + (r & 1));
        best[r / 2] = fmaxf(best[r / 2], s[n][r]);
      }
    float shift[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float next = fmaxf(top[i], w_quad_max(best[i]));
      shift[i] = next == -w_inf_f() ? 0.0f : next;
      float shrink = top[i] == -w_inf_f() ? 0.0f : w_att_exp<C>(top[i] - shift[i]);
      top[i] = next; total[i] *= shrink;
#pragma unroll
      for (int n = 0; n < C::DP / 8; n++) { o[n][2 * i] *= shrink; o[n][2 * i + 1] *= shrink; }
    }
    float sums[2] = { 0, 0 };
    uint32_t bits[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int n = 0; n < 8; n++) {
      uint32_t words[2] = { 0, 0 };
      if (C::DROP) {
        typename C::Index line = ((typename C::Index)(C::OWN ? h : bh) * C::S + row) * ((C::T + 3) / 4) + (j0 / 4 + n * 2 + t / 2);
        w_att_words<C>(k0, k1, line, line + 8 * ((C::T + 3) / 4), words);
      }
#pragma unroll
      for (int r = 0; r < 4; r++) {
        float x = w_att_exp<C>(s[n][r] - shift[r / 2]);
        sums[r / 2] += x;
        if (C::DROP) {
          uint32_t drawn = r & 1 ? words[r / 2] >> 16 : words[r / 2] & 65535u;
          if (drawn < (uint32_t)C::THRESHOLD) x = 0;
          else bits[r / 2 * 2 + n / 4] |= 1u << (n % 4 * 8 + (r & 1));
        }
        s[n][r] = x;
      }
    }
    total[0] += w_quad_sum(sums[0]); total[1] += w_quad_sum(sums[1]);
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
    w_att_columns_of<C>(o, s, sv);
  }
  float inverse[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    /* A row that may look at nothing: zeros under a mask of bools, no number otherwise. */
    inverse[i] = C::MASK == 1 && total[i] == 0 ? 0.0f : C::KEEP() / total[i];
    if (t == 0 && row + i * 8 < C::S)
      ((float*)p[6])[(long long)bh * C::S + row + i * 8] = total[i] == 0 ? 0.0f : logf(total[i]) + top[i];
  }
  w_att_store<C>((E*)p[5] + b * C::OB + h * C::OH, C::OS, tile * W_ROWS + warp * 16, C::S, o, inverse[0], inverse[1]);
}

/* p: q, k, v, mask, out, log-sum-exp, kept bits, cotangent, dq, dk, dv, delta. Also leaves delta = sum(cotangent out). */
template <class C> W_INLINE void w_attention_query_gradient(void* const* p, char* memory) {
  typedef typename C::Shared Shared; typedef typename C::E E;
  Shared* sq = (Shared*)memory; Shared* sg = sq + W_ROWS * C::LD; Shared* sk = sg + W_ROWS * C::LD; Shared* sv = sk + W_ROWS * C::LD;
  float* sdelta = (float*)(sv + W_ROWS * C::LD);
  const int tiles = (C::S + W_ROWS - 1) / W_ROWS;
  int tile = blockIdx.x % tiles, bh = blockIdx.x / tiles, b = bh / C::H, h = bh % C::H;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const E* cotangent = (const E*)p[7] + b * C::GB + h * C::GH;
  const E* result = (const E*)p[4] + b * C::OB + h * C::OH;
  w_att_load<C>(sq, (const E*)p[0] + b * C::QB + h * C::QH, C::QS, tile * W_ROWS, C::S);
  w_att_load<C>(sg, cotangent, C::GS, tile * W_ROWS, C::S);
  {
    int i = tile * W_ROWS + threadIdx.x / 2;
    float sum = 0;
    if (i < C::S)
      for (int d = threadIdx.x % 2; d < C::D; d += 2) sum += C::Element::load(cotangent[(long long)i * C::GS + d]) * C::Element::load(result[(long long)i * C::OS + d]);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (threadIdx.x % 2 == 0) {
      sdelta[threadIdx.x / 2] = sum;
      if (i < C::S) ((float*)p[11])[(long long)bh * C::S + i] = sum;
    }
  }
  const E* keys = (const E*)p[1] + b * C::KB + h * C::KH; const E* values = (const E*)p[2] + b * C::VB + h * C::VH;
  long long mask = b * C::MB + h * C::MH;
  int row = tile * W_ROWS + warp * 16 + g;
  float lse[2], delta[2], o[C::DP / 8][4];
#pragma unroll
  for (int i = 0; i < 2; i++) lse[i] = row + i * 8 < C::S ? ((const float*)p[5])[(long long)bh * C::S + row + i * 8] : 0.0f;
  __syncthreads();
  delta[0] = sdelta[warp * 16 + g]; delta[1] = sdelta[warp * 16 + g + 8];
#pragma unroll
  for (int n = 0; n < C::DP / 8; n++) for (int r = 0; r < 4; r++) o[n][r] = 0;
  for (int j0 = 0; j0 < C::T; j0 += W_ROWS) {
    __syncthreads();
    w_att_load<C>(sk, keys, C::KS, j0, C::T);
    w_att_load<C>(sv, values, C::VS, j0, C::T);
    __syncthreads();
    float s[8][4], dp[8][4];
#pragma unroll
    for (int n = 0; n < 8; n++) for (int r = 0; r < 4; r++) s[n][r] = dp[n][r] = 0;
    w_att_rows<C>(s, sq + warp * 16 * C::LD, sk);
    w_att_rows<C>(dp, sg + warp * 16 * C::LD, sv);
    uint32_t bits[2][2] = { { 0, 0 }, { 0, 0 } };
    if (C::DROP)
#pragma unroll
      for (int i = 0; i < 2; i++) for (int w = 0; w < 2; w++)
        if (row + i * 8 < C::S && j0 / 32 + w < C::WORDS) bits[i][w] = ((const uint32_t*)p[6])[((long long)bh * C::S + row + i * 8) * C::WORDS + j0 / 32 + w] >> (2 * t);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int r = 0; r < 4; r++) {
        float x = w_att_masked<C>(s[n][r] * C::SCALE(), p[3], mask, row + (r / 2) * 8, j0 + n * 8 + 2 * t + (r & 1));
        float weight = w_att_exp<C>(x - lse[r / 2]), d = dp[n][r] * C::KEEP();
        if (C::DROP && !(bits[r / 2][n / 4] & 1u << (n % 4 * 8 + (r & 1)))) d = 0;
        s[n][r] = weight * (d - delta[r / 2]);
      }
    w_att_columns_of<C>(o, s, sk);
  }
  w_att_store<C>((E*)p[8] + b * C::DQB + h * C::DQH, C::DQS, tile * W_ROWS + warp * 16, C::S, o, C::SCALE(), C::SCALE());
}

/* The same arguments; rows are keys, columns queries. */
template <class C> W_INLINE void w_attention_key_gradient(void* const* p, char* memory) {
  typedef typename C::Shared Shared; typedef typename C::E E;
  Shared* sq = (Shared*)memory; Shared* sg = sq + W_ROWS * C::LD; Shared* sk = sg + W_ROWS * C::LD; Shared* sv = sk + W_ROWS * C::LD;
  float* sdelta = (float*)(sv + W_ROWS * C::LD); float* slse = sdelta + W_ROWS; uint32_t* sbits = (uint32_t*)(slse + W_ROWS);
  const int tiles = (C::T + W_ROWS - 1) / W_ROWS;
  int tile = blockIdx.x % tiles, bh = blockIdx.x / tiles, b = bh / C::H, h = bh % C::H;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  w_att_load<C>(sk, (const E*)p[1] + b * C::KB + h * C::KH, C::KS, tile * W_ROWS, C::T);
  w_att_load<C>(sv, (const E*)p[2] + b * C::VB + h * C::VH, C::VS, tile * W_ROWS, C::T);
  const E* queries = (const E*)p[0] + b * C::QB + h * C::QH; const E* cotangent = (const E*)p[7] + b * C::GB + h * C::GH;
  long long mask = b * C::MB + h * C::MH;
  int key = tile * W_ROWS + warp * 16 + g, half = warp / 2;
  float dk[C::DP / 8][4], dv[C::DP / 8][4];
#pragma unroll
  for (int n = 0; n < C::DP / 8; n++) for (int r = 0; r < 4; r++) dk[n][r] = dv[n][r] = 0;
  for (int i0 = 0; i0 < C::S; i0 += W_ROWS) {
    __syncthreads();
    w_att_load<C>(sq, queries, C::QS, i0, C::S);
    w_att_load<C>(sg, cotangent, C::GS, i0, C::S);
    {
      int i = i0 + threadIdx.x / 2, w = tile * 2 + threadIdx.x % 2;
      long long at = (long long)bh * C::S + i;
      if (threadIdx.x % 2 == 0) {
        slse[threadIdx.x / 2] = i < C::S ? ((const float*)p[5])[at] : 0.0f;
        sdelta[threadIdx.x / 2] = i < C::S ? ((const float*)p[11])[at] : 0.0f;
      }
      if (C::DROP) sbits[threadIdx.x] = i < C::S && w < C::WORDS ? ((const uint32_t*)p[6])[at * C::WORDS + w] : 0;
    }
    __syncthreads();
    float s[8][4], dp[8][4];
#pragma unroll
    for (int n = 0; n < 8; n++) for (int r = 0; r < 4; r++) s[n][r] = dp[n][r] = 0;
    w_att_rows<C>(s, sk + warp * 16 * C::LD, sq);
    w_att_rows<C>(dp, sv + warp * 16 * C::LD, sg);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int odd = 0; odd < 2; odd++) {
        int q = n * 8 + 2 * t + odd;
        float lse = slse[q], delta = sdelta[q];
        /* A warp's 16 keys lie in one word: bits of this thread's two keys, eight apart. */
        uint32_t bits = C::DROP ? sbits[q * 2 + half] >> (key & 31) : 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
          int r = 2 * i + odd;
          float x = w_att_masked<C>(s[n][r] * C::SCALE(), p[3], mask, i0 + q, key + i * 8);
          float weight = w_att_exp<C>(x - lse), d = dp[n][r] * C::KEEP(), used = weight * C::KEEP();
          if (C::DROP && !(bits & 1u << (i * 8))) d = used = 0;
          s[n][r] = used;
          dp[n][r] = weight * (d - delta);
        }
      }
    w_att_columns_of<C>(dv, s, sg);
    w_att_columns_of<C>(dk, dp, sq);
  }
  w_att_store<C>((E*)p[9] + b * C::DKB + h * C::DKH, C::DKS, tile * W_ROWS + warp * 16, C::T, dk, C::SCALE(), C::SCALE());
  w_att_store<C>((E*)p[10] + b * C::DVB + h * C::DVH, C::DVS, tile * W_ROWS + warp * 16, C::T, dv, 1.0f, 1.0f);
}
`;
