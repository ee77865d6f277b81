// Convolutions of the CPU device: windows are copied into panels that stay in the second-level cache and multiplied by OpenBLAS;
// depthwise ones are direct loops. All kinds, one to three axes.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "blas.h"
#include "conv.h"
#include "gemm-half.h"
#include "share.h"

/* Bytes of a panel of windows: a share of the second-level cache. */
#define PANEL_BYTES (384L << 10)

static long least(long a, long b) { return a < b ? a : b; }
static long most(long a, long b) { return a > b ? a : b; }

static wc_move_windows* const movers[5] = {wc_windows_s, wc_windows_d, wc_windows_c, wc_windows_z, wc_windows_h};
static wc_is_direct* const few_per_group[4] = {wc_is_grouped_s, wc_is_grouped_d, wc_is_grouped_c, wc_is_grouped_z};
static wc_run_depthwise* const depthwise[4] = {wc_depthwise_s, wc_depthwise_d, wc_depthwise_c, wc_depthwise_z};

/* Of an element, and of a sum of products: those of bfloat16 numbers are float32 until they are rounded. */
#define HALF 4
static const long sizes[5] = {4, 8, 8, 16, 2};
static const long sum_sizes[5] = {4, 8, 8, 16, 4};

/* Row-major c = a b, or c += a b, on the calling thread; what is written follows gemm-half.h. */
static void multiply(int dtype, long m, long n, long k, const char* a, long ars, long acs, const char* b, long brs,
                     long bcs, char* c, long crs, int write) {
  if (dtype == HALF)
    half_gemm(&(half_product){.m = m,
                              .n = n,
                              .k = k,
                              .a = (const uint16_t*)a,
                              .ars = ars,
                              .acs = acs,
                              .b = (const uint16_t*)b,
                              .brs = brs,
                              .bcs = bcs,
                              .c = c,
                              .crs = crs,
                              .write = write});
  else one_gemm(dtype, m, n, k, a, ars, acs, 0, b, brs, bcs, 0, c, crs, write == HALF_ADD);
}

static int is_complex(const wc_shape* s) { return s->dtype == 2 || s->dtype == 3; }

/* A kernel of one element, without padding or stride: its windows are the input itself. */
static int is_pointwise(const wc_shape* s) {
  for (int i = 0; i < 3; i++)
    if (s->k[i] != 1 || s->stride[i] != 1 || s->low[i] != 0 || s->x[i] != s->y[i]) return 0;
  return 1;
}

/* Positions of a panel, and the number of panels of "total" positions that divide the work evenly. */
static long panel_positions(const wc_shape* s, long total, int threads) {
  const long bytes = s->window * (s->kind == 1 ? sum_sizes : sizes)[s->dtype];
  long positions = most(64, PANEL_BYTES / most(1, bytes));
  positions = least(positions, 8192);
  const long share = (total + threads - 1) / threads;
  if (share < positions) positions = most(32, share);
  const long panels = (total + positions - 1) / positions;
  return ((total + panels - 1) / panels + 15) / 16 * 16;
}

/* A convolution whose work is divided among threads. */
typedef struct {
  const wc_shape* s;
  const char *a, *b;
  char* out;
  int direct, spans;
  /* Positions of a panel, panels of an image, images of a panel, positions that its memory must hold, and parts of the work. */
  long panel, per_image, images, widest, parts;
  int axis;
  char* sums;
  float* wide; /* results that are to be rounded; NULL where there are none */
  double work;
  atomic_int failed;
} conv_job;

/* Memory for the panels of one thread, if it needs any. A failure is recorded, and the thread does nothing. */
static int get_memory(conv_job* j, char** memory, long bytes, int needed) {
  *memory = needed ? malloc(bytes) : NULL;
  if (!needed || *memory) return 1;
  atomic_store(&j->failed, 1);
  return 0;
}

static void forward_panels(void* const* p, long lo, long hi) {
  conv_job* j = p[0];
  const wc_shape* s = j->s;
  const long size = sizes[s->dtype], positions = wc_volume(s->y), total = s->n * positions;
  const long per_out = s->o / s->groups, per_in = s->c / s->groups;
  char *columns, *joined = NULL;
  if (get_memory(j, &columns, j->widest * s->window * size, !j->direct) &&
      get_memory(j, &joined, j->widest * per_out * size, j->spans))
    for (long item = lo; item < hi; item++) {
      const long g = item % s->groups, at = item / s->groups;
      long first, count;
      if (s->last) first = at * j->panel, count = least(j->panel, total - first);
      else if (j->spans) first = at * j->images * positions, count = least(j->images * positions, total - first);
      else {
        const long within = at % j->per_image * j->panel;
        first = at / j->per_image * positions + within, count = least(j->panel, positions - within);
      }
      const char* filters = j->b + g * per_out * s->window * size;
      if (!j->direct) movers[s->dtype](s, g, first, count, (void*)j->a, columns, 0, 0, 0);
      if (s->last) {
        const char* left = j->direct ? j->a + (first * s->c + g * per_in) * size : columns;
        multiply(s->dtype, count, per_out, s->window, left, j->direct ? s->c : s->window, 1, filters, 1, s->window,
                 j->out + (first * s->o + g * per_out) * size, s->o, 0);
        continue;
      }
      const long n = first / positions, within = first % positions;
      const char* right = j->direct ? j->a + ((n * s->c + g * per_in) * positions + within) * size : columns;
      char* out = j->out + ((n * s->o + g * per_out) * positions + within) * size;
      multiply(s->dtype, per_out, count, s->window, filters, s->window, 1, right, j->direct ? positions : count, 1,
               j->spans ? joined : out, j->spans ? count : positions, 0);
      for (long i = 0; i < count / positions && j->spans; i++)
        for (long o = 0; o < per_out; o++)
          memcpy(out + (i * s->o + o) * positions * size, joined + (o * count + i * positions) * size,
                 positions * size);
    }
  free(columns);
  free(joined);
}

/* Channels first: y [batch, out, positions]. A panel may span several images, whose results are then put into place. */
static void forward(conv_job* j, int threads) {
  const wc_shape* s = j->s;
  const long positions = wc_volume(s->y), total = s->n * positions;
  long panel = panel_positions(s, total, threads);
  /* A pointwise product reads the images themselves, which are apart in memory where channels come first. */
  if (!s->last && (j->direct || panel < positions)) {
    const long pieces = (positions + panel - 1) / panel;
    panel = ((positions + pieces - 1) / pieces + 15) / 16 * 16;
  }
  j->spans = !s->last && !j->direct && panel >= positions && positions > 1 && s->n > 1;
  j->panel = panel;
  j->images = j->spans ? most(1, panel / positions) : 1;
  j->per_image = s->last || j->spans ? 0 : (positions + panel - 1) / panel;
  j->widest = j->spans ? j->images * positions : panel;
  const long panels = s->last    ? (total + panel - 1) / panel
                      : j->spans ? (s->n + j->images - 1) / j->images
                                 : s->n * j->per_image;
  wx_share(forward_panels, (void*[]){j}, panels * s->groups, threads, j->work);
}

static void input_slabs(void* const* p, long lo, long hi) {
  conv_job* j = p[0];
  const wc_shape* s = j->s;
  const long size = sizes[s->dtype], positions = wc_volume(s->y), pixels = wc_volume(s->x);
  const long per_out = s->o / s->groups, per_in = s->c / s->groups, slabs = j->parts;
  const int axis = j->axis, direct = j->direct, half = s->dtype == HALF, write = direct ? HALF_ROUND : HALF_STORE;
  char* into = j->wide ? (char*)j->wide : j->out;
  const long row = positions / s->y[axis]; /* positions for each step along the axis */
  char* columns;
  if (get_memory(j, &columns, j->panel * s->window * sum_sizes[s->dtype], !direct))
    for (long item = lo; item < hi; item++) {
      const long slab = item % slabs, g = item / slabs % s->groups, n = item / slabs / s->groups;
      const long low = s->x[axis] * slab / slabs, high = s->x[axis] * (slab + 1) / slabs;
      /* Rows of y whose windows reach the slab. */
      const long reach = s->dilation[axis] * (s->k[axis] - 1), from = low + s->low[axis] - reach;
      const long start = from <= 0 ? 0 : (from + s->stride[axis] - 1) / s->stride[axis];
      const long stop = least(s->y[axis], (high - 1 + s->low[axis]) / s->stride[axis] + 1);
      const long begin = slabs == 1 ? 0 : start * row, end = slabs == 1 ? positions : stop * row;
      const char* filters = j->b + g * per_out * s->window * size;
      for (long q = begin; q < end; q += j->panel) {
        const long count = least(j->panel, end - q);
        if (s->last) {
          const char* left = j->a + ((n * positions + q) * s->o + g * per_out) * size;
          char* out = direct ? j->out + ((n * pixels + q) * s->c + g * per_in) * size : columns;
          multiply(s->dtype, count, s->window, per_out, left, s->o, 1, filters, s->window, 1, out,
                   direct ? s->c : s->window, write);
        } else {
          const char* right = j->a + ((n * s->o + g * per_out) * positions + q) * size;
          char* out = direct ? j->out + ((n * s->c + g * per_in) * pixels + q) * size : columns;
          multiply(s->dtype, s->window, count, per_out, filters, 1, s->window, right, positions, 1, out,
                   direct ? pixels : count, write);
        }
        if (!direct) movers[half ? 0 : s->dtype](s, g, n * positions + q, count, into, columns, 1, low, high);
      }
    }
  free(columns);
}

/* Elements [lo, hi) of the result, rounded. */
static void round_sums(void* const* p, long lo, long hi) {
  const conv_job* j = p[0];
  for (long i = lo; i < hi; i++) ((uint16_t*)j->out)[i] = w_to_bfloat(j->wide[i]);
}
static void round_wide(conv_job* j, long count, int threads) {
  if (j->wide) wx_share(round_sums, (void*[]){j}, count, threads, (double)count);
  free(j->wide);
}
/* Memory for float32 results that are rounded at the end. */
static int get_wide(conv_job* j, long count) {
  return get_memory(j, (char**)&j->wide, count * sizeof(float), j->s->dtype == HALF);
}

/* Windows of the result are products of the weight with y, added to x where they overlap: one item per image and group, or per
   slab of rows where these are few. */
static void input(conv_job* j, int threads) {
  const wc_shape* s = j->s;
  while (j->axis < 2 && s->x[j->axis] == 1 && s->y[j->axis] == 1) j->axis++;
  const long units = s->n * s->groups;
  j->parts = j->direct || units >= threads ? 1 : least(s->x[j->axis], (threads + units - 1) / units);
  j->panel = panel_positions(s, wc_volume(s->y), 1);
  const long count = s->n * s->c * wc_volume(s->x);
  if (!j->direct && !get_wide(j, count)) return;
  if (!j->direct) memset(j->wide ? (char*)j->wide : j->out, 0, count * sum_sizes[s->dtype]);
  wx_share(input_slabs, (void*[]){j}, units * j->parts, threads, j->work);
  round_wide(j, count, threads);
}

static void weight_parts(void* const* p, long lo, long hi) {
  conv_job* j = p[0];
  const wc_shape* s = j->s;
  const long size = sizes[s->dtype], positions = wc_volume(s->y);
  const long per_out = s->o / s->groups, per_in = s->c / s->groups, each = per_out * s->window;
  const long panels = s->n * j->per_image, wide = sum_sizes[s->dtype];
  const int direct = j->direct;
  char* columns;
  if (get_memory(j, &columns, j->panel * s->window * size, !direct))
    for (long part = lo; part < hi; part++) {
      char* mine = part > 0 ? j->sums + (part - 1) * s->groups * each * wide : j->wide ? (char*)j->wide : j->out;
      const long begin = panels * part / j->parts, end = panels * (part + 1) / j->parts;
      if (begin == end) memset(mine, 0, s->groups * each * wide);
      for (long g = 0; g < s->groups; g++)
        for (long at = begin; at < end; at++) {
          const long n = at / j->per_image, q = at % j->per_image * j->panel, count = least(j->panel, positions - q);
          if (!direct) movers[s->dtype](s, g, n * positions + q, count, (void*)j->a, columns, 0, 0, 0);
          char* out = mine + g * each * wide;
          const int write = at > begin ? HALF_ADD : HALF_STORE;
          if (s->last) {
            const char* left = j->b + ((n * positions + q) * s->o + g * per_out) * size;
            const char* right = direct ? j->a + ((n * positions + q) * s->c + g * per_in) * size : columns;
            multiply(s->dtype, per_out, s->window, count, left, 1, s->o, right, direct ? s->c : s->window, 1, out,
                     s->window, write);
          } else {
            const char* left = j->b + ((n * s->o + g * per_out) * positions + q) * size;
            const char* right = direct ? j->a + ((n * s->c + g * per_in) * positions + q) * size : columns;
            multiply(s->dtype, per_out, s->window, count, left, positions, 1, right, 1, direct ? positions : count, out,
                     s->window, write);
          }
        }
    }
  free(columns);
}

/* Numbers [lo, hi) of the result: the sums of all parts, in their order. */
static void add_sums(void* const* p, long lo, long hi) {
  const conv_job* j = p[0];
  const wc_shape* s = j->s;
  const long reals = s->o / s->groups * s->window * s->groups * (is_complex(s) ? 2 : 1);
  float* out = j->wide ? j->wide : (float*)j->out;
  for (long t = 0; t < j->parts - 1; t++) {
    if (s->dtype & 1)
      for (long i = lo; i < hi; i++) ((double*)j->out)[i] += ((const double*)j->sums)[t * reals + i];
    else
      for (long i = lo; i < hi; i++) out[i] += ((const float*)j->sums)[t * reals + i];
  }
}

/* Every part of the panels has its sum; there are as many as threads. */
static void weight(conv_job* j, int threads) {
  const wc_shape* s = j->s;
  const long positions = wc_volume(s->y), each = s->o / s->groups * s->window * s->groups;
  j->panel = least(panel_positions(s, positions, 1), positions);
  j->per_image = (positions + j->panel - 1) / j->panel;
  j->parts = least(threads, most(1, s->n * j->per_image));
  if (!get_wide(j, each)) return;
  if (get_memory(j, &j->sums, (j->parts - 1) * each * sum_sizes[s->dtype], j->parts > 1)) {
    wx_share(weight_parts, (void*[]){j}, j->parts, threads, j->work);
    if (j->parts > 1)
      wx_share(add_sums, (void*[]){j}, each * (is_complex(s) ? 2 : 1), threads, (double)j->parts * each);
  }
  round_wide(j, each, threads);
  free(j->sums);
}

#include "conv-direct.h"

weft_runtime* wx_runtime;

/* d: kind (0 forward, 1 input, 2 weight), dtype (0 to 4), channels last, batch, channels of x, channels of y, groups, then x, kernel,
   y, stride, dilation and low, three numbers each. Not 0: no memory. */
static int conv(const int64_t* d, const void* a, const void* b, void* out, int threads) {
  wc_shape s = {.dtype = (int)d[1], .last = (int)d[2], .n = d[3], .c = d[4], .o = d[5], .groups = d[6]};
  for (int i = 0; i < 3; i++) {
    s.x[i] = d[7 + i], s.k[i] = d[10 + i], s.y[i] = d[13 + i];
    s.stride[i] = d[16 + i], s.dilation[i] = d[19 + i], s.low[i] = d[22 + i];
  }
  s.kind = (int)d[0];
  s.window = s.c / s.groups * wc_volume(s.k);
  const double work = 2.0 * s.n * wc_volume(s.y) * (s.o / s.groups) * s.window * s.groups * (is_complex(&s) ? 4 : 1);
  if (work < 2e5) threads = 1;
  /* Sums of bfloat16 numbers are those of float32 numbers. */
  if (s.dtype == HALF && wc_is_grouped_s(&s)) return wc_depthwise_s(&s, a, b, out, threads, work);
  if (s.dtype != HALF && ((s.c == s.groups && s.o == s.groups) || few_per_group[s.dtype](&s)))
    return depthwise[s.dtype](&s, a, b, out, threads, work);
  conv_job job = {.s = &s, .a = a, .b = b, .out = out, .direct = is_pointwise(&s), .work = work};
  static void (*const kinds[])(conv_job*, int) = {forward, input, weight};
  if (is_direct(&job)) run_direct(&job, threads);
  else kinds[s.kind](&job, threads);
  return atomic_load(&job.failed);
}

weft_extension weft_extend;
void weft_extend(weft_runtime* table, const char* blas, int threads) {
  (void)threads;
  load_blas(blas);
  wx_runtime = table;
  table->conv = conv;
}
