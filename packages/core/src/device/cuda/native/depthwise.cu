// Depthwise convolution of channels-last images: forward, the gradient with respect to the input (the same with flipped taps), and
// with respect to the weight. A thread has a few neighboring channels and a strip of neighboring results, whose operands it reads
// once; sums are in float32. Weights come as [taps][channels] in float32.
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
