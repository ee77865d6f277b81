// Convolutions of bfloat16 and float32 numbers whose windows are packed from the image itself: forward ones, and gradients of inputs
// without a stride, which are forward convolutions with the flipped weight. Part of conv.c. Pointers and lengths of packed lines count
// halves, of which a float32 number is two.
#pragma once
#include "prelude-transpose.h"

/* A forward convolution of "source" [batch, x, channels] with "taps" [outputs, k, channels]. */
typedef struct {
  conv_job* j;
  const char *source, *taps;
  char *turned, *flipped; /* memory of the two where they are copies */
  long channels, outputs, panel, per_image;
  long x[3], y[3], low[3], stride[3];
} direct_conv;

static int is_direct(const conv_job* j) {
  const wc_shape* s = j->s;
  if ((s->dtype != HALF && s->dtype != 0) || s->groups != 1 || j->direct || s->kind == 2) return 0;
  if (!has_pairs(s->dtype == 0)) return 0;
  if (s->kind == 1 && s->stride[0] * s->stride[1] * s->stride[2] != 1) return 0;
  return (s->kind == 1 ? s->o : s->c) % 16 == 0;
}

/* Images [lo, hi) with channels last. */
static void turn_images(void* const* p, long lo, long hi) {
  const direct_conv* h = p[0];
  const long pixels = wc_volume(h->x), c = h->channels, size = sizes[h->j->s->dtype];
  for (long n = lo; n < hi; n++)
    (size == 2 ? w_transpose_2 : w_transpose_4)(h->j->a + n * c * pixels * size, pixels,
                                                h->turned + n * c * pixels * size, c, c, pixels);
}

/* Rows [lo, hi) of the taps: for each output channel, the channels of every tap. */
static void turn_taps(void* const* p, long lo, long hi) {
  const direct_conv* h = p[0];
  const wc_shape* s = h->j->s;
  const long k = wc_volume(s->k), c = h->channels, last = s->last, back = s->kind == 1;
  for (long o = lo; o < hi; o++)
    for (long t = 0; t < k; t++)
      for (long i = 0; i < c; i++) {
        const long out = back ? i : o, in = back ? o : i, tap = back ? k - 1 - t : t;
        const long to = (o * k + t) * c + i, from = out * s->window + (last ? tap * s->c + in : in * k + tap);
        if (s->dtype == HALF) ((uint16_t*)h->flipped)[to] = ((const uint16_t*)h->j->b)[from];
        else ((float*)h->flipped)[to] = ((const float*)h->j->b)[from];
      }
}

/* Panels [lo, hi) of positions of the result. */
static void direct_panels(void* const* p, long lo, long hi) {
  const direct_conv* h = p[0];
  conv_job* j = h->j;
  const wc_shape* s = j->s;
  const long positions = wc_volume(h->y), pixels = wc_volume(h->x), taps = wc_volume(s->k), c = h->channels;
  const long size = sizes[s->dtype], window = taps * c;
  const uint16_t** at;
  if (!get_memory(j, (char**)&at, taps * h->panel * sizeof *at, 1)) return;
  for (long item = lo; item < hi; item++) {
    const long n = item / h->per_image, first = item % h->per_image * h->panel;
    const long count = least(h->panel, positions - first);
    const char* image = h->source + n * pixels * c * size;
    const uint16_t** to = at;
    for (long k0 = 0; k0 < s->k[0]; k0++)
      for (long k1 = 0; k1 < s->k[1]; k1++)
        for (long k2 = 0; k2 < s->k[2]; k2++) {
          long i2 = first % h->y[2], i1 = first / h->y[2] % h->y[1], i0 = first / h->y[2] / h->y[1];
          const long b2 = s->dilation[2] * k2 - h->low[2];
          for (long q = 0; q < count; i2 = 0) {
            const long x0 = h->stride[0] * i0 + s->dilation[0] * k0 - h->low[0];
            const long x1 = h->stride[1] * i1 + s->dilation[1] * k1 - h->low[1];
            const int in = x0 >= 0 && x0 < h->x[0] && x1 >= 0 && x1 < h->x[1];
            const long row = (x0 * h->x[1] + x1) * h->x[2], stop = least(h->y[2], i2 + count - q);
            for (; i2 < stop; i2++, q++) {
              const long x2 = h->stride[2] * i2 + b2;
              *to++ = in && x2 >= 0 && x2 < h->x[2] ? (const uint16_t*)(image + (row + x2) * c * size) : NULL;
            }
            if (++i1 == h->y[1]) i1 = 0, i0++;
          }
        }
    const long o = h->outputs, halves = size / 2;
    const half_lines lines = {.at = at, .count = count, .run = c * halves};
    half_product product = {
        .k = window * halves, .singles = s->dtype == 0, .write = s->dtype == 0 ? HALF_STORE : HALF_ROUND};
    const uint16_t* filters = (const uint16_t*)h->taps;
    if (s->last) {
      product.m = count, product.n = o, product.rows = &lines;
      product.b = filters, product.brs = 1, product.bcs = window * halves;
      product.c = j->out + (n * positions + first) * o * size, product.crs = o;
    } else {
      product.m = o, product.n = count, product.columns = &lines;
      product.a = filters, product.ars = window * halves, product.acs = 1;
      product.c = j->out + (n * o * positions + first) * size, product.crs = positions;
    }
    if (!pairs_gemm(&product)) atomic_store(&j->failed, 1);
  }
  free(at);
}

static void run_direct(conv_job* j, int threads) {
  const wc_shape* s = j->s;
  const int back = s->kind == 1;
  direct_conv h = {.j = j, .channels = back ? s->o : s->c, .outputs = back ? s->c : s->o};
  for (int i = 0; i < 3; i++) {
    h.x[i] = back ? s->y[i] : s->x[i];
    h.y[i] = back ? s->x[i] : s->y[i];
    h.low[i] = back ? s->dilation[i] * (s->k[i] - 1) - s->low[i] : s->low[i];
    h.stride[i] = back ? 1 : s->stride[i];
  }
  const long total = s->n * wc_volume(h.x) * h.channels, positions = wc_volume(h.y);
  /* The positions of a panel, whose pointers stay in the cache. Channels first, panels end with images. */
  const long most_positions = most(48, least(positions, 768));
  h.per_image = (positions + most_positions - 1) / most_positions;
  if (s->n * h.per_image < 2L * threads) h.per_image = least(positions, (2L * threads + s->n - 1) / s->n);
  h.panel = ((positions + h.per_image - 1) / h.per_image + 15) / 16 * 16;
  h.per_image = (positions + h.panel - 1) / h.panel;
  if (get_memory(j, (char**)&h.turned, total * sizes[s->dtype], !s->last) &&
      get_memory(j, (char**)&h.flipped, s->window * s->o * sizes[s->dtype], back || !s->last)) {
    if (h.turned) wx_share(turn_images, (void*[]){&h}, s->n, threads, (double)total);
    if (h.flipped) wx_share(turn_taps, (void*[]){&h}, h.outputs, threads, (double)s->window * s->o);
    h.source = h.turned ? h.turned : j->a;
    h.taps = h.flipped ? h.flipped : j->b;
    wx_share(direct_panels, (void*[]){&h}, s->n * h.per_image, threads, j->work);
  }
  free(h.turned);
  free(h.flipped);
}
