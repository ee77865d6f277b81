// Convolutions of bfloat16 and float32 numbers whose windows are packed from the image itself: forward ones, and gradients of inputs,
// which are forward convolutions with the flipped weight: one for each remainder of places by the strides. Part of conv.c. Pointers and
// lengths of packed lines count halves, of which a float32 number is two.
#pragma once
#include "prelude-transpose.h"

/* A forward convolution of "source" [batch, x, channels] with "taps" [outputs, k, channels]: tap t of an axis is tap first + step * t of
   the weight, and result i is result rest + apart * i of "to". */
typedef struct {
  conv_job* j;
  const char *source, *taps;
  char *turned, *flipped; /* memory of the two where they are copies */
  long given, channels, outputs, panel, per_image;
  long x[3], k[3], y[3], low[3], stride[3], dilation[3];
  long first[3], step[3], rest[3], apart[3], to[3];
  long left, right; /* zeros in each line of the source */
  int joined;       /* the taps of a line are one piece of the source, whose lines have zeros at their ends */
} direct_conv;

static int is_direct(const conv_job* j) {
  const wc_shape* s = j->s;
  if ((s->dtype != HALF && s->dtype != 0) || s->groups != 1 || j->direct || s->kind == 2) return 0;
  if (!has_pairs(s->dtype == 0)) return 0;
  for (int i = 0; i < 3; i++)
    if (s->kind == 1 && s->stride[i] != 1 && s->dilation[i] != 1) return 0;
  return (s->kind == 1 ? s->o : s->c) % 16 == 0 || s->dilation[2] == 1;
}

/* Along one axis, the part of the results whose places have the remainder "rest". */
static void direct_axis(direct_conv* h, int i, long rest) {
  const wc_shape* s = h->j->s;
  const int back = s->kind == 1;
  h->apart[i] = back ? s->stride[i] : 1;
  h->rest[i] = rest;
  h->to[i] = back ? s->x[i] : s->y[i];
  h->stride[i] = back ? 1 : s->stride[i];
  h->dilation[i] = s->dilation[i];
  h->y[i] = (h->to[i] - rest + h->apart[i] - 1) / h->apart[i];
  h->k[i] = s->k[i], h->first[i] = 0, h->step[i] = 1, h->low[i] = s->low[i];
  if (!back) return;
  const long apart = h->apart[i], from = ((rest + s->low[i]) % apart + apart) % apart;
  h->k[i] = from < s->k[i] ? (s->k[i] - from + apart - 1) / apart : 0;
  h->first[i] = from + apart * (h->k[i] - 1);
  h->step[i] = -apart;
  h->low[i] = h->dilation[i] * (h->k[i] - 1) - (rest + s->low[i] - from) / apart;
}

/* Images [lo, hi) with channels last, and zeros at the ends of lines and channels. */
static void turn_images(void* const* p, long lo, long hi) {
  const direct_conv* h = p[0];
  const wc_shape* s = h->j->s;
  const long* x = s->kind == 1 ? s->y : s->x;
  const long pixels = wc_volume(x), c = h->given, size = sizes[s->dtype];
  const int whole = h->left + h->right == 0;
  const long lines = whole ? 1 : x[0] * x[1], length = pixels / lines, pitch = length + h->left + h->right;
  for (long n = lo; n < hi; n++)
    for (long line = 0; line < lines; line++) {
      const char* from = h->j->a + (n * c * pixels + line * length * (s->last ? c : 1)) * size;
      char* to = h->turned + ((n * lines + line) * pitch + h->left) * h->channels * size;
      if (!s->last) (size == 2 ? w_transpose_2 : w_transpose_4)(from, pixels, to, h->channels, c, length);
      else if (c == h->channels) memcpy(to, from, length * c * size);
      else
        for (long q = 0; q < length; q++) memcpy(to + q * h->channels * size, from + q * c * size, c * size);
    }
}

/* Rows [lo, hi) of the taps: for each output channel, the channels of every tap. */
static void turn_taps(void* const* p, long lo, long hi) {
  const direct_conv* h = p[0];
  const wc_shape* s = h->j->s;
  const long k = wc_volume(h->k), all = wc_volume(s->k), c = h->channels, last = s->last, back = s->kind == 1;
  for (long o = lo; o < hi; o++)
    for (long t = 0; t < k; t++) {
      const long t2 = h->first[2] + h->step[2] * (t % h->k[2]);
      const long t1 = h->first[1] + h->step[1] * (t / h->k[2] % h->k[1]);
      const long tap = ((h->first[0] + h->step[0] * (t / h->k[2] / h->k[1])) * s->k[1] + t1) * s->k[2] + t2;
      for (long i = 0; i < c; i++) {
        const long out = back ? i : o, in = back ? o : i;
        const long to = (o * k + t) * c + i, from = out * s->window + (last ? tap * s->c + in : in * all + tap);
        const int here = i < h->given;
        if (s->dtype == HALF) ((uint16_t*)h->flipped)[to] = here ? ((const uint16_t*)h->j->b)[from] : 0;
        else ((float*)h->flipped)[to] = here ? ((const float*)h->j->b)[from] : 0;
      }
    }
}

/* "count" results of a line and of all channels, which lie "pitch" apart in a panel and "pixels" apart in the result. */
#define SPREAD_LINE(T)                                                                                                 \
  for (long k = 0; k < o; k++) {                                                                                       \
    const T* restrict from = (const T*)panel + k * pitch;                                                              \
    T* restrict to = (T*)out + k * pixels;                                                                             \
    for (long q = 0; q < count; q++) to[q * apart] = from[q];                                                          \
  }
static void spread_line(const char* panel, long pitch, char* out, long pixels, long o, long count, long apart,
                        long size) {
  if (size == 4) SPREAD_LINE(float)
  else SPREAD_LINE(uint16_t)
}

/* Puts a panel of results [positions, outputs], or [outputs, positions], in its places. */
static void spread_panel(const direct_conv* h, long n, long first, long count, const char* panel) {
  const conv_job* j = h->j;
  const long o = h->outputs, size = sizes[j->s->dtype], pixels = wc_volume(h->to);
  for (long q = 0, length; q < count; q += length) {
    const long i2 = (first + q) % h->y[2], i1 = (first + q) / h->y[2] % h->y[1], i0 = (first + q) / h->y[2] / h->y[1];
    const long row = (h->rest[0] + h->apart[0] * i0) * h->to[1] + h->rest[1] + h->apart[1] * i1;
    const long at = row * h->to[2] + h->rest[2] + h->apart[2] * i2;
    length = least(h->y[2] - i2, count - q);
    if (j->s->last)
      for (long i = 0; i < length; i++)
        memcpy(j->out + (n * pixels + at + i * h->apart[2]) * o * size, panel + (q + i) * o * size, o * size);
    else
      spread_line(panel + q * size, count, j->out + (n * o * pixels + at) * size, pixels, o, length, h->apart[2], size);
  }
}

/* Panels [lo, hi) of positions of the result. */
static void direct_panels(void* const* p, long lo, long hi) {
  const direct_conv* h = p[0];
  conv_job* j = h->j;
  const wc_shape* s = j->s;
  const long positions = wc_volume(h->y), pixels = wc_volume(h->x), c = h->channels, o = h->outputs;
  const long size = sizes[s->dtype], window = wc_volume(h->k) * c;
  const long along = h->joined ? 1 : h->k[2], run = h->joined ? h->k[2] * c : c;
  const int spread = h->apart[0] * h->apart[1] * h->apart[2] > 1;
  const uint16_t** at;
  char* panel = NULL;
  if (!get_memory(j, (char**)&at, h->k[0] * h->k[1] * along * h->panel * sizeof *at, 1)) return;
  if (get_memory(j, &panel, h->panel * o * size, spread))
    for (long item = lo; item < hi; item++) {
      const long n = item / h->per_image, first = item % h->per_image * h->panel;
      const long count = least(h->panel, positions - first);
      const char* image = h->source + n * pixels * c * size;
      const uint16_t** to = at;
      for (long k0 = 0; k0 < h->k[0]; k0++)
        for (long k1 = 0; k1 < h->k[1]; k1++)
          for (long k2 = 0; k2 < along; k2++) {
            long i2 = first % h->y[2], i1 = first / h->y[2] % h->y[1], i0 = first / h->y[2] / h->y[1];
            const long b2 = h->dilation[2] * k2 - h->low[2] + h->left;
            for (long q = 0; q < count; i2 = 0) {
              const long x0 = h->stride[0] * i0 + h->dilation[0] * k0 - h->low[0];
              const long x1 = h->stride[1] * i1 + h->dilation[1] * k1 - h->low[1];
              const int in = x0 >= 0 && x0 < h->x[0] && x1 >= 0 && x1 < h->x[1];
              const long row = (x0 * h->x[1] + x1) * h->x[2], stop = least(h->y[2], i2 + count - q);
              for (; i2 < stop; i2++, q++) {
                const long x2 = h->stride[2] * i2 + b2;
                *to++ = in && x2 >= 0 && x2 < h->x[2] ? (const uint16_t*)(image + (row + x2) * c * size) : NULL;
              }
              if (++i1 == h->y[1]) i1 = 0, i0++;
            }
          }
      const long halves = size / 2;
      const half_lines lines = {.at = at, .count = count, .run = run * halves};
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
      if (spread) product.c = panel, product.crs = s->last ? o : count;
      if (!pairs_gemm(&product)) atomic_store(&j->failed, 1);
      else if (spread) spread_panel(h, n, first, count, panel);
    }
  free(panel);
  free(at);
}

/* Results whose places have the remainders that were chosen. */
static void run_part(direct_conv* h, int threads) {
  conv_job* j = h->j;
  const wc_shape* s = j->s;
  const long positions = wc_volume(h->y), parts = h->apart[0] * h->apart[1] * h->apart[2];
  if (positions == 0 || wc_volume(h->k) == 0) return;
  /* The positions of a panel, whose pointers stay in the cache. Channels first, panels end with images. */
  const long most_positions = most(48, least(positions, 768));
  h->per_image = (positions + most_positions - 1) / most_positions;
  if (s->n * h->per_image < 2L * threads) h->per_image = least(positions, (2L * threads + s->n - 1) / s->n);
  h->panel = ((positions + h->per_image - 1) / h->per_image + 15) / 16 * 16;
  h->per_image = (positions + h->panel - 1) / h->panel;
  if (h->flipped) wx_share(turn_taps, (void*[]){h}, h->outputs, threads, (double)s->window * s->o / parts);
  wx_share(direct_panels, (void*[]){h}, s->n * h->per_image, threads, j->work / parts);
}

static void run_direct(conv_job* j, int threads) {
  const wc_shape* s = j->s;
  const int back = s->kind == 1;
  direct_conv h = {.j = j, .given = back ? s->o : s->c, .outputs = back ? s->c : s->o};
  const long* apart = back ? s->stride : (const long[3]){1, 1, 1};
  /* Few channels are packed together with those of the next taps: lines begin and end with zeros then, and pairs are whole. */
  h.joined = h.given % 16 != 0;
  h.channels = h.joined && s->dtype == HALF ? (h.given + 1) / 2 * 2 : h.given;
  for (int i = 0; i < 3; i++) h.x[i] = back ? s->y[i] : s->x[i];
  int empty = 0;
  for (int i = 0; i < 3; i++)
    for (long rest = 0; rest < apart[i]; rest++) {
      direct_axis(&h, i, rest);
      empty |= h.k[i] == 0;
      if (i < 2 || !h.joined || h.y[2] == 0) continue;
      h.left = most(h.left, h.low[2]);
      h.right = most(h.right, h.stride[2] * (h.y[2] - 1) + h.k[2] - h.low[2] - h.x[2]);
    }
  h.x[2] += h.left + h.right;
  const long total = s->n * wc_volume(h.x) * h.channels, size = sizes[s->dtype];
  const int turns = h.joined || !s->last;
  if (get_memory(j, &h.turned, total * size, turns) &&
      get_memory(j, &h.flipped, h.channels * wc_volume(s->k) * h.outputs * size, back || turns)) {
    if (h.joined) memset(h.turned, 0, total * size);
    if (empty) memset(j->out, 0, s->n * h.outputs * wc_volume(back ? s->x : s->y) * size);
    if (h.turned) wx_share(turn_images, (void*[]){&h}, s->n, threads, (double)total);
    h.source = h.turned ? h.turned : j->a;
    h.taps = h.flipped ? h.flipped : j->b;
    for (long rest = 0; rest < apart[0] * apart[1] * apart[2]; rest++) {
      direct_axis(&h, 0, rest / apart[2] / apart[1]);
      direct_axis(&h, 1, rest / apart[2] % apart[1]);
      direct_axis(&h, 2, rest % apart[2]);
      run_part(&h, threads);
    }
  }
  free(h.turned);
  free(h.flipped);
}
