// Parts of the convolution that depend on the element type: moving windows, and depthwise convolution. Compiled once per type,
// with T as the type and TYPED giving functions its suffix.
#define _GNU_SOURCE
#include <complex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "conv.h"
#include "share.h"

/* A loop whose sum may be taken in any order: compilers vectorize it then. There is no such form for complex numbers. */
#define PRAGMA(text) _Pragma(#text)
#if REAL
#define SUMS(name) PRAGMA(omp simd reduction(+ : name))
#else
#define SUMS(name)
#endif

#if REAL
#include "prelude.h"
#include "conv-grouped.h"
#include "conv-planes.h"
#endif

/* First index of y whose window position k is inside x, and the index after the last one. */
static void TYPED(inside)(const wc_shape* s, int axis, long k, long* low, long* high) {
  const long offset = s->dilation[axis] * k - s->low[axis], stride = s->stride[axis];
  const long first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const long after = s->x[axis] - offset <= 0 ? 0 : (s->x[axis] - offset + stride - 1) / stride;
  *low = first < s->y[axis] ? first : s->y[axis];
  *high = after < s->y[axis] ? (after > *low ? after : *low) : s->y[axis];
}

/* One row of windows, channels first: positions [from, to) of the last axis for one tap, of which [low, high) are inside x. */
static inline void TYPED(row)(T* x, T* panel, long from, long to, long low, long high, long stride, int back) {
  low = low < from ? from : low > to ? to : low;
  high = high < low ? low : high > to ? to : high;
  if (back) {
    if (stride == 1)
      for (long j = low; j < high; j++) x[j] += panel[j - from];
    else
      for (long j = low; j < high; j++) x[j * stride] += panel[j - from];
    return;
  }
  for (long j = from; j < low; j++) panel[j - from] = 0;
  if (stride == 1) memcpy(panel + low - from, x + low, (high - low) * sizeof(T));
  else
    for (long j = low; j < high; j++) panel[j - from] = x[j * stride];
  for (long j = high; j < to; j++) panel[j - from] = 0;
}

static void TYPED(windows_first)(const wc_shape* s, long group, long first, long count, T* x, T* panel, int back,
                                 int axis, long slab_low, long slab_high) {
  const long positions = wc_volume(s->y), pixels = wc_volume(s->x), channels = s->c / s->groups;
  for (long done = 0; done < count;) {
    const long n = (first + done) / positions, start = (first + done) % positions;
    const long part = positions - start < count - done ? positions - start : count - done;
    const long j0 = start % s->y[2], r1 = start / s->y[2] % s->y[1], r0 = start / s->y[2] / s->y[1];
    long line = 0;
    for (long c = 0; c < channels; c++)
      for (long k0 = 0; k0 < s->k[0]; k0++)
        for (long k1 = 0; k1 < s->k[1]; k1++)
          for (long k2 = 0; k2 < s->k[2]; k2++, line++) {
            T* image = x + (n * s->c + group * channels + c) * pixels;
            T *to = panel + line * count + done, *end = to + part;
            const long offset = s->dilation[2] * k2 - s->low[2];
            long low, high, x0 = s->stride[0] * r0 + s->dilation[0] * k0 - s->low[0], i1 = r1;
            TYPED(inside)(s, 2, k2, &low, &high);
            /* Row by row of y; the first may begin, and the last end, in its middle. */
            for (long j = j0; to < end; j = 0) {
              const long stop = s->y[2] - j < end - to ? s->y[2] : j + (end - to);
              const long x1 = s->stride[1] * i1 + s->dilation[1] * k1 - s->low[1];
              T* from = image + (x0 * s->x[1] + x1) * s->x[2] + offset;
              int in = x0 >= 0 && x0 < s->x[0] && x1 >= 0 && x1 < s->x[1];
              if (back && axis == 0) in = in && x0 >= slab_low && x0 < slab_high;
              if (back && axis == 1) in = in && x1 >= slab_low && x1 < slab_high;
              if (in && back && axis == 2) {
                for (long q = j; q < stop; q++) {
                  const long x2 = s->stride[2] * q + offset;
                  if (x2 >= slab_low && x2 < slab_high) from[s->stride[2] * q] += to[q - j];
                }
              } else if (in) TYPED(row)(from, to, j, stop, low, high, s->stride[2], back);
              else if (!back) memset(to, 0, (stop - j) * sizeof(T));
              to += stop - j;
              if (++i1 == s->y[1]) i1 = 0, x0 += s->stride[0];
            }
          }
    done += part;
  }
}

static void TYPED(windows_last)(const wc_shape* s, long group, long first, long count, T* x, T* panel, int back,
                                int axis, long slab_low, long slab_high) {
  const long positions = wc_volume(s->y), pixels = wc_volume(s->x), channels = s->c / s->groups;
  /* Neighboring taps of one row lie side by side in x where no group and no dilation separates them. */
  const int joined = s->groups == 1 && s->dilation[2] == 1 && !back;
  long n = first / positions, i2 = first % s->y[2], i1 = first % positions / s->y[2] % s->y[1];
  long i0 = first % positions / s->y[2] / s->y[1];
  for (long q = 0; q < count; q++) {
    const long b2 = s->stride[2] * i2 - s->low[2];
    T* to = panel + q * s->window;
    T* image = x + n * pixels * s->c + group * channels;
    for (long k0 = 0; k0 < s->k[0]; k0++) {
      const long x0 = s->stride[0] * i0 + s->dilation[0] * k0 - s->low[0];
      for (long k1 = 0; k1 < s->k[1]; k1++) {
        const long x1 = s->stride[1] * i1 + s->dilation[1] * k1 - s->low[1];
        const int in = x0 >= 0 && x0 < s->x[0] && x1 >= 0 && x1 < s->x[1];
        T* line = image + (x0 * s->x[1] + x1) * s->x[2] * s->c;
        if (joined && in && b2 >= 0 && b2 + s->k[2] <= s->x[2]) {
          memcpy(to, line + b2 * s->c, s->k[2] * channels * sizeof(T));
          to += s->k[2] * channels;
          continue;
        }
        for (long k2 = 0; k2 < s->k[2]; k2++, to += channels) {
          const long x2 = b2 + s->dilation[2] * k2;
          const int here = in && x2 >= 0 && x2 < s->x[2];
          if (!back) {
            if (here) memcpy(to, line + x2 * s->c, channels * sizeof(T));
            else memset(to, 0, channels * sizeof(T));
            continue;
          }
          const long along = axis == 0 ? x0 : axis == 1 ? x1 : x2;
          if (here && along >= slab_low && along < slab_high)
            for (long c = 0; c < channels; c++) line[x2 * s->c + c] += to[c];
        }
      }
    }
    if (++i2 < s->y[2]) continue;
    i2 = 0;
    if (++i1 < s->y[1]) continue;
    i1 = 0;
    if (++i0 == s->y[0]) i0 = 0, n++;
  }
}

/* Copies windows of positions [first, first + count), counted over the batch, from x to a panel, or adds them back. Adding leaves out
   what is not in the slab of rows along the first axis that has any. */
void TYPED(wc_windows)(const wc_shape* s, long group, long first, long count, void* x, void* panel, int back,
                       long slab_low, long slab_high) {
  int axis = 0;
  while (axis < 2 && s->x[axis] == 1 && s->y[axis] == 1) axis++;
  if (back && slab_low == 0 && slab_high == s->x[axis]) axis = 0, slab_low = 0, slab_high = s->x[0];
  (s->last ? TYPED(windows_last) : TYPED(windows_first))(s, group, first, count, x, panel, back, axis, slab_low,
                                                         slab_high);
}

#if !MOVES_ONLY
/* One channel in, one out, channels first. a and b are the operands of the kind; x, w and y its three tensors. */
static void TYPED(plane)(const wc_shape* s, T* x, T* w, T* y) {
  const long pixels = wc_volume(s->x), positions = wc_volume(s->y);
  if (s->kind == 0)
    for (long p = 0; p < positions; p++) y[p] = 0;
  if (s->kind == 1)
    for (long p = 0; p < pixels; p++) x[p] = 0;
  for (long k = 0; k < wc_volume(s->k); k++) {
    const long k2 = k % s->k[2], k1 = k / s->k[2] % s->k[1], k0 = k / s->k[2] / s->k[1];
    long l0, h0, l1, h1, l2, h2;
    TYPED(inside)(s, 0, k0, &l0, &h0);
    TYPED(inside)(s, 1, k1, &l1, &h1);
    TYPED(inside)(s, 2, k2, &l2, &h2);
    const long stride = s->stride[2], offset = s->dilation[2] * k2 - s->low[2];
    const T tap = w[k];
    T sum = 0;
    for (long i0 = l0; i0 < h0; i0++)
      for (long i1 = l1; i1 < h1; i1++) {
        const long x0 = s->stride[0] * i0 + s->dilation[0] * k0 - s->low[0];
        const long x1 = s->stride[1] * i1 + s->dilation[1] * k1 - s->low[1];
        T* restrict from = x + (x0 * s->x[1] + x1) * s->x[2] + offset;
        T* restrict to = y + (i0 * s->y[1] + i1) * s->y[2];
        if (s->kind == 0) {
          if (stride == 1)
            for (long j = l2; j < h2; j++) to[j] += tap * from[j];
          else
            for (long j = l2; j < h2; j++) to[j] += tap * from[j * stride];
        } else if (s->kind == 1) {
          if (stride == 1)
            for (long j = l2; j < h2; j++) from[j] += tap * to[j];
          else
            for (long j = l2; j < h2; j++) from[j * stride] += tap * to[j];
        } else {
          T part = 0;
          if (stride == 1) SUMS(part) for (long j = l2; j < h2; j++) part += to[j] * from[j];
          else SUMS(part) for (long j = l2; j < h2; j++) part += to[j] * from[j * stride];
          sum += part;
        }
      }
    if (s->kind == 2) w[k] += sum;
  }
}

/* Channels last: channels [c_low, c_high) of rows [low, high) of the written tensor. */
static void TYPED(pixels)(const wc_shape* s, T* x, T* w, T* y, long n, long low, long high, long c_low, long c_high) {
  const long c = s->c;
  T* image = x + n * wc_volume(s->x) * c;
  T* result = y + n * wc_volume(s->y) * c;
  for (long row = 0; row < s->y[0] * s->y[1]; row++) {
    if (s->kind != 1 && (row < low || row >= high)) continue;
    for (long i2 = 0; i2 < s->y[2]; i2++) {
      T* restrict to = result + (row * s->y[2] + i2) * c;
      for (long k0 = 0; k0 < s->k[0]; k0++) {
        const long x0 = s->stride[0] * (row / s->y[1]) + s->dilation[0] * k0 - s->low[0];
        if (x0 < 0 || x0 >= s->x[0]) continue;
        for (long k1 = 0; k1 < s->k[1]; k1++) {
          const long x1 = s->stride[1] * (row % s->y[1]) + s->dilation[1] * k1 - s->low[1];
          const long line = x0 * s->x[1] + x1;
          if (x1 < 0 || x1 >= s->x[1] || (s->kind == 1 && (line < low || line >= high))) continue;
          for (long k2 = 0; k2 < s->k[2]; k2++) {
            const long x2 = s->stride[2] * i2 + s->dilation[2] * k2 - s->low[2];
            if (x2 < 0 || x2 >= s->x[2]) continue;
            T* restrict from = image + (line * s->x[2] + x2) * c;
            T* restrict taps = w + ((k0 * s->k[1] + k1) * s->k[2] + k2) * c;
            if (s->kind == 0)
              for (long i = c_low; i < c_high; i++) to[i] += taps[i] * from[i];
            else if (s->kind == 1)
              for (long i = c_low; i < c_high; i++) from[i] += taps[i] * to[i];
            else
              for (long i = c_low; i < c_high; i++) taps[i] += to[i] * from[i];
          }
        }
      }
    }
  }
}

/* A depthwise convolution: x, w and y are its three tensors, the weight with channels last where the images have them. */
typedef struct {
  const wc_shape* s;
  T *x, *w, *y;
  long rows, pieces;
} TYPED(depthwise_job);

static void TYPED(planes)(void* const* p, long lo, long hi) {
  const TYPED(depthwise_job)* j = p[0];
  const wc_shape* s = j->s;
  const long taps = wc_volume(s->k), pixels = wc_volume(s->x), positions = wc_volume(s->y), c = s->c;
  for (long at = lo; at < hi; at++)
    for (long n = at / c; n < (s->kind == 2 ? s->n : at / c + 1); n++)
      TYPED(plane)(s, j->x + (n * c + at % c) * pixels, j->w + at % c * taps, j->y + (n * c + at % c) * positions);
}

static void TYPED(pieces)(void* const* p, long lo, long hi) {
  const TYPED(depthwise_job)* j = p[0];
  const wc_shape* s = j->s;
  const long c = s->c, rows = j->rows, pieces = j->pieces;
  for (long item = lo; item < hi; item++) {
    const long piece = item % pieces;
    if (s->kind == 2)
      for (long n = 0; n < s->n; n++)
        TYPED(pixels)(s, j->x, j->w, j->y, n, 0, rows, c * piece / pieces, c * (piece + 1) / pieces);
    else TYPED(pixels)(s, j->x, j->w, j->y, item / pieces, rows * piece / pieces, rows * (piece + 1) / pieces, 0, c);
  }
}

int TYPED(wc_is_grouped)(const wc_shape* s) {
#if REAL
  return TYPED(is_grouped)(s) || TYPED(is_planes)(s);
#else
  (void)s;
  return 0;
#endif
}

/* One channel in and one out in every group, or those for which wc_is_grouped holds. */
int TYPED(wc_depthwise)(const wc_shape* s, const void* a, const void* b, void* out, int threads, double work) {
  T* x = (T*)(s->kind == 1 ? out : a);
  T* w = (T*)(s->kind == 2 ? out : b);
  T* y = (T*)(s->kind == 0 ? out : s->kind == 1 ? a : b);
  const long taps = wc_volume(s->k), pixels = wc_volume(s->x), positions = wc_volume(s->y), c = s->c;
#if REAL
  if (TYPED(is_grouped)(s)) return TYPED(grouped)(s, x, w, y, s->kind == 1 ? x : y, threads, work);
  if (TYPED(is_planes)(s)) return TYPED(run_planes)(s, a, b, out, threads, work);
#endif
  TYPED(depthwise_job) job = {.s = s, .x = x, .w = w, .y = y};
  void* p[] = {&job};
  if (!s->last) {
    if (s->kind == 2) memset(w, 0, c * taps * sizeof(T));
    wx_share(TYPED(planes), p, s->kind == 2 ? c : s->n * c, threads, work);
    return 0;
  }
  /* The weight has its channels first in memory; a copy has them last, as the images do. */
  T* turned = job.w = malloc(taps * c * sizeof(T));
  if (!turned) return 1;
  if (s->kind == 2) memset(turned, 0, taps * c * sizeof(T));
  else
    for (long i = 0; i < c; i++)
      for (long k = 0; k < taps; k++) turned[k * c + i] = w[i * taps + k];
  if (s->kind == 0) memset(y, 0, s->n * positions * c * sizeof(T));
  if (s->kind == 1) memset(x, 0, s->n * pixels * c * sizeof(T));
  job.rows = s->kind == 1 ? s->x[0] * s->x[1] : s->y[0] * s->y[1];
  job.pieces = s->kind == 2         ? (c < threads ? c : threads)
               : s->n >= threads    ? 1
               : job.rows < threads ? job.rows
                                    : threads;
  wx_share(TYPED(pieces), p, s->kind == 2 ? job.pieces : s->n * job.pieces, threads, work);
  if (s->kind == 2)
    for (long i = 0; i < c; i++)
      for (long k = 0; k < taps; k++) w[i * taps + k] = turned[k * c + i];
  free(turned);
  return 0;
}
#endif
