// Depthwise convolution of channels-last images: forward, the gradient with respect to the input (the same with flipped taps), and
// with respect to the weight. A thread has a few neighboring channels and a strip of neighboring results, whose operands it reads
// once; sums are in float32. Weights come as [taps][channels] in float32. Without strides and dilation, a block reads the operands of
// a tile of results into shared memory first.
#include "numbers.cuh"

/* Results of a thread along the rows. */
#define W_STRIP 8
struct w_depthwise_shape {
  int batch, height, width, channels, out_height, out_width, kernel_height, stride_y, stride_x, dilation_y, dilation_x,
      low_y, low_x;
};
/* V neighbors of 2 or 4 bytes. */
template <class N, int V, class T> W_INLINE void w_depthwise_load(float* to, const T* from) {
  __align__(16) T raw[V];
  w_load<V>(raw, from);
#pragma unroll
  for (int v = 0; v < V; v++) to[v] = N::load(raw[v]);
}
/* [channels][taps] -> [taps][channels], in reverse order of the taps where flip is set. */
template <class N, class T>
W_INLINE void w_depthwise_taps(const T* w, float* out, long long channels, long long taps, int flip) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x, tap = i / channels, c = i % channels;
  if (tap < taps) out[i] = N::load(w[c * taps + (flip ? taps - 1 - tap : tap)]);
}
template <class N, class T, int V, int K>
W_INLINE void w_depthwise_apply(const T* x, const float* taps, T* y, const w_depthwise_shape& s) {
  int groups = s.channels / V, strips = (s.out_width + W_STRIP - 1) / W_STRIP;
  long long id = (long long)blockIdx.x * 256 + threadIdx.x;
  int c = (int)(id % groups) * V, first = (int)(id / groups % strips) * W_STRIP;
  long long line = id / groups / strips, b = line / s.out_height;
  int oy = (int)(line % s.out_height);
  if (b >= s.batch) return;
  float total[W_STRIP][V];
#pragma unroll
  for (int t = 0; t < W_STRIP; t++)
#pragma unroll
    for (int v = 0; v < V; v++) total[t][v] = 0.0f;
  for (int ky = 0; ky < s.kernel_height; ky++) {
    int iy = oy * s.stride_y + ky * s.dilation_y - s.low_y;
    if (iy < 0 || iy >= s.height) continue;
    const T* row = x + ((b * s.height + iy) * s.width) * s.channels + c;
    float w[K][V];
#pragma unroll
    for (int k = 0; k < K; k++) w_depthwise_load<w_number<float>, V>(w[k], taps + (ky * K + k) * s.channels + c);
    if (s.stride_x == 1 && s.dilation_x == 1) {
      /* Every operand of the strip is read once. */
#pragma unroll
      for (int p = 0; p < W_STRIP + K - 1; p++) {
        int ix = first + p - s.low_x;
        if (ix < 0 || ix >= s.width) continue;
        float in[V];
        w_depthwise_load<N, V>(in, row + (long long)ix * s.channels);
#pragma unroll
        for (int t = 0; t < W_STRIP; t++)
          if (p - t >= 0 && p - t < K)
#pragma unroll
            for (int v = 0; v < V; v++) total[t][v] += in[v] * w[p - t][v];
      }
      continue;
    }
#pragma unroll
    for (int t = 0; t < W_STRIP; t++)
#pragma unroll
      for (int k = 0; k < K; k++) {
        int ix = (first + t) * s.stride_x + k * s.dilation_x - s.low_x;
        if (ix < 0 || ix >= s.width) continue;
        float in[V];
        w_depthwise_load<N, V>(in, row + (long long)ix * s.channels);
#pragma unroll
        for (int v = 0; v < V; v++) total[t][v] += in[v] * w[k][v];
      }
  }
  T* out = y + ((b * s.out_height + oy) * s.out_width) * s.channels + c;
#pragma unroll
  for (int t = 0; t < W_STRIP; t++) {
    if (first + t >= s.out_width) break;
    __align__(16) T raw[V];
#pragma unroll
    for (int v = 0; v < V; v++) raw[v] = N::store(total[t][v]);
    w_store<V>(out + (long long)(first + t) * s.channels, raw);
  }
}
/* Channels of a tile, two per thread; results of a tile: so many rows, and two strips. */
#define W_TILE_CHANNELS 32
#define W_TILE_ROWS 8
/* An odd number of pixels per row: the halves of a warp, which have neighboring rows, read different banks. */
W_INLINE int w_tile_pitch(int kernel) { return (2 * W_STRIP + kernel - 1) | 1; }
template <class N, class T, int K>
W_INLINE void w_depthwise_tile(char* memory, const T* x, const float* taps, T* y, const w_depthwise_shape& s) {
  const int VECTOR = 16 / (int)sizeof(T), GROUPS = W_TILE_CHANNELS / VECTOR, WIDTH = 2 * W_STRIP + K - 1;
  int chunks = (s.channels + W_TILE_CHANNELS - 1) / W_TILE_CHANNELS,
      across = (s.out_width + 2 * W_STRIP - 1) / (2 * W_STRIP), down = (s.out_height + W_TILE_ROWS - 1) / W_TILE_ROWS,
      pitch = w_tile_pitch(K);
  int c0 = (int)(blockIdx.x % chunks) * W_TILE_CHANNELS, x0 = (int)(blockIdx.x / chunks % across) * 2 * W_STRIP,
      y0 = (int)(blockIdx.x / chunks / across % down) * W_TILE_ROWS;
  long long b = blockIdx.x / chunks / across / down;
  T* pixels = (T*)memory;
  int rows = W_TILE_ROWS + s.kernel_height - 1;
  float* weights = (float*)(pixels + rows * pitch * W_TILE_CHANNELS);
  for (int i = threadIdx.x; i < rows * WIDTH * GROUPS; i += 256) {
    int c = i % GROUPS * VECTOR, px = i / GROUPS % WIDTH, py = i / GROUPS / WIDTH, iy = y0 + py - s.low_y,
        ix = x0 + px - s.low_x;
    bool inside = iy >= 0 && iy < s.height && ix >= 0 && ix < s.width && c0 + c < s.channels;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (inside) v = *(const uint4*)(x + ((b * s.height + iy) * s.width + ix) * s.channels + c0 + c);
    *(uint4*)(pixels + (py * pitch + px) * W_TILE_CHANNELS + c) = v;
  }
  for (int i = threadIdx.x; i < s.kernel_height * K * W_TILE_CHANNELS; i += 256) {
    int c = c0 + i % W_TILE_CHANNELS;
    weights[i] = c < s.channels ? taps[i / W_TILE_CHANNELS * s.channels + c] : 0.0f;
  }
  __syncthreads();
  int c = (int)threadIdx.x % 16 * 2, row = (int)threadIdx.x / 16 % W_TILE_ROWS,
      first = (int)threadIdx.x / 16 / W_TILE_ROWS * W_STRIP;
  float total[W_STRIP][2];
#pragma unroll
  for (int t = 0; t < W_STRIP; t++) total[t][0] = total[t][1] = 0.0f;
  for (int ky = 0; ky < s.kernel_height; ky++) {
    const T* line = pixels + ((row + ky) * pitch + first) * W_TILE_CHANNELS + c;
    float w[K][2];
#pragma unroll
    for (int k = 0; k < K; k++)
      w_depthwise_load<w_number<float>, 2>(w[k], weights + (ky * K + k) * W_TILE_CHANNELS + c);
#pragma unroll
    for (int p = 0; p < W_STRIP + K - 1; p++) {
      float in[2];
      w_depthwise_load<N, 2>(in, line + p * W_TILE_CHANNELS);
#pragma unroll
      for (int t = 0; t < W_STRIP; t++)
        if (p - t >= 0 && p - t < K) {
          total[t][0] += in[0] * w[p - t][0];
          total[t][1] += in[1] * w[p - t][1];
        }
    }
  }
  if (y0 + row >= s.out_height || c0 + c >= s.channels) return;
  T* out = y + ((b * s.out_height + y0 + row) * s.out_width + x0 + first) * s.channels + c0 + c;
#pragma unroll
  for (int t = 0; t < W_STRIP; t++) {
    if (x0 + first + t >= s.out_width) break;
    __align__(8) T raw[2] = {N::store(total[t][0]), N::store(total[t][1])};
    w_store<2>(out + (long long)t * s.channels, raw);
  }
}
/* parts[chunk][taps][channels]: sums over the lines of a chunk. A thread has a row of taps. */
template <class N, class T, int V, int K>
W_INLINE void w_depthwise_weight(const T* x, const T* y, float* parts, const w_depthwise_shape& s, int chunks) {
  int groups = s.channels / V;
  long long id = (long long)blockIdx.x * 256 + threadIdx.x, lines = (long long)s.batch * s.out_height;
  int c = (int)(id % groups) * V, ky = (int)(id / groups % s.kernel_height);
  long long chunk = id / groups / s.kernel_height;
  if (chunk >= chunks) return;
  float total[K][V];
#pragma unroll
  for (int k = 0; k < K; k++)
#pragma unroll
    for (int v = 0; v < V; v++) total[k][v] = 0.0f;
  for (long long line = chunk * lines / chunks; line < (chunk + 1) * lines / chunks; line++) {
    long long b = line / s.out_height;
    int iy = (int)(line % s.out_height) * s.stride_y + ky * s.dilation_y - s.low_y;
    if (iy < 0 || iy >= s.height) continue;
    const T* row = x + ((b * s.height + iy) * s.width) * s.channels + c;
    const T* from = y + line * s.out_width * s.channels + c;
    if (s.stride_x == 1 && s.dilation_x == 1) {
      /* Every operand of a strip is read once. */
      for (int first = 0; first < s.out_width; first += W_STRIP) {
        float in[W_STRIP + K - 1][V];
#pragma unroll
        for (int p = 0; p < W_STRIP + K - 1; p++) {
          int ix = first + p - s.low_x;
          if (ix >= 0 && ix < s.width) w_depthwise_load<N, V>(in[p], row + (long long)ix * s.channels);
          else
#pragma unroll
            for (int v = 0; v < V; v++) in[p][v] = 0.0f;
        }
#pragma unroll
        for (int t = 0; t < W_STRIP; t++) {
          if (first + t >= s.out_width) break;
          float g[V];
          w_depthwise_load<N, V>(g, from + (long long)(first + t) * s.channels);
#pragma unroll
          for (int k = 0; k < K; k++)
#pragma unroll
            for (int v = 0; v < V; v++) total[k][v] += in[t + k][v] * g[v];
        }
      }
      continue;
    }
#pragma unroll 4
    for (int ox = 0; ox < s.out_width; ox++) {
      float g[V];
      w_depthwise_load<N, V>(g, from + (long long)ox * s.channels);
#pragma unroll
      for (int k = 0; k < K; k++) {
        int ix = ox * s.stride_x + k * s.dilation_x - s.low_x;
        if (ix < 0 || ix >= s.width) continue;
        float in[V];
        w_depthwise_load<N, V>(in, row + (long long)ix * s.channels);
#pragma unroll
        for (int v = 0; v < V; v++) total[k][v] += in[v] * g[v];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < K; k++) w_store<V>(parts + ((chunk * s.kernel_height + ky) * K + k) * s.channels + c, total[k]);
}
/* out[channels][taps]: the sum of the chunks, by eight warps for 32 channels of a tap. */
template <class N, class T>
W_INLINE void w_depthwise_sum(const float* parts, T* out, long long channels, long long taps, long long chunks) {
  __shared__ float sums[8][32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  long long blocks = (channels + 31) / 32, tap = blockIdx.x / blocks, c = blockIdx.x % blocks * 32 + lane;
  float total = 0.0f;
  if (c < channels) {
#pragma unroll 8
    for (long long k = warp; k < chunks; k += 8) total += parts[(k * taps + tap) * channels + c];
  }
  sums[warp][lane] = total;
  __syncthreads();
  if (warp > 0 || c >= channels) return;
  for (int w = 1; w < 8; w++) total += sums[w][lane];
  out[c * taps + tap] = N::store(total);
}
#define W_SHAPE                                                                                                        \
  {(int)b, (int)h, (int)wd, (int)c, (int)oh, (int)ow, (int)kh, (int)sy, (int)sx, (int)dy, (int)dx, (int)ly, (int)lx}
#define W_DEPTHWISE(name, N, T)                                                                                        \
  extern "C" __global__ void w_depthwise_taps_##name(const T* w, float* out, long long channels, long long taps,       \
                                                     long long flip) {                                                 \
    w_depthwise_taps<N, T>(w, out, channels, taps, (int)flip);                                                         \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                                    \
      w_depthwise_apply_##name(const T* x, const float* taps, T* y, long long b, long long h, long long wd,            \
                               long long c, long long oh, long long ow, long long kh, long long kw, long long sy,      \
                               long long sx, long long dy, long long dx, long long ly, long long lx) {                 \
    w_depthwise_shape s = W_SHAPE;                                                                                     \
    if (kw == 1) w_depthwise_apply<N, T, 4, 1>(x, taps, y, s);                                                         \
    else if (kw == 3) w_depthwise_apply<N, T, 4, 3>(x, taps, y, s);                                                    \
    else if (kw == 5) w_depthwise_apply<N, T, 4, 5>(x, taps, y, s);                                                    \
    else w_depthwise_apply<N, T, 4, 7>(x, taps, y, s);                                                                 \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                                    \
      w_depthwise_tile_##name(const T* x, const float* taps, T* y, long long b, long long h, long long wd,             \
                              long long c, long long oh, long long ow, long long kh, long long kw, long long sy,       \
                              long long sx, long long dy, long long dx, long long ly, long long lx) {                  \
    W_DYNAMIC_SHARED(memory);                                                                                          \
    w_depthwise_shape s = W_SHAPE;                                                                                     \
    if (kw == 1) w_depthwise_tile<N, T, 1>(memory, x, taps, y, s);                                                     \
    else if (kw == 3) w_depthwise_tile<N, T, 3>(memory, x, taps, y, s);                                                \
    else if (kw == 5) w_depthwise_tile<N, T, 5>(memory, x, taps, y, s);                                                \
    else w_depthwise_tile<N, T, 7>(memory, x, taps, y, s);                                                             \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                                    \
      w_depthwise_weight_##name(const T* x, const T* y, float* parts, long long chunks, long long b, long long h,      \
                                long long wd, long long c, long long oh, long long ow, long long kh, long long kw,     \
                                long long sy, long long sx, long long dy, long long dx, long long ly, long long lx) {  \
    w_depthwise_shape s = W_SHAPE;                                                                                     \
    if (kw == 1) w_depthwise_weight<N, T, 4, 1>(x, y, parts, s, (int)chunks);                                          \
    else if (kw == 3) w_depthwise_weight<N, T, 4, 3>(x, y, parts, s, (int)chunks);                                     \
    else if (kw == 5) w_depthwise_weight<N, T, 4, 5>(x, y, parts, s, (int)chunks);                                     \
    else w_depthwise_weight<N, T, 4, 7>(x, y, parts, s, (int)chunks);                                                  \
  }                                                                                                                    \
  extern "C" __global__ void w_depthwise_sum_##name(const float* parts, T* out, long long channels, long long taps,    \
                                                    long long chunks) {                                                \
    w_depthwise_sum<N, T>(parts, out, channels, taps, chunks);                                                         \
  }
W_DEPTHWISE(f16, w_half_number, w_half)
W_DEPTHWISE(bf16, w_bfloat_number, w_bfloat)
W_DEPTHWISE(f32, w_number<float>, float)
