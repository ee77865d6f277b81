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
#include "share.h"

/* Bytes of a panel of windows: a share of the second-level cache. */
#define PANEL_BYTES (768L << 10)

static long least(long a, long b) { return a < b ? a : b; }
static long most(long a, long b) { return a > b ? a : b; }

static wc_move_windows* const movers[4] = {wc_windows_s, wc_windows_d, wc_windows_c, wc_windows_z};
static wc_run_depthwise* const depthwise[4] = {wc_depthwise_s, wc_depthwise_d, wc_depthwise_c, wc_depthwise_z};

static const long sizes[4] = {4, 8, 8, 16};

/* Row-major c = a b, or c += a b, on the calling thread. */
static void multiply(int dtype, long m, long n, long k, const char* a, long ars, long acs, const char* b, long brs,
                     long bcs, char* c, long crs, int accumulate) {
  one_gemm(dtype, m, n, k, a, ars, acs, 0, b, brs, bcs, 0, c, crs, accumulate);
}

/* A kernel of one element, without padding or stride: its windows are the input itself. */
static int is_pointwise(const wc_shape* s) {
  for (int i = 0; i < 3; i++)
    if (s->k[i] != 1 || s->stride[i] != 1 || s->low[i] != 0 || s->x[i] != s->y[i]) return 0;
  return 1;
}

/* Positions of a panel, and the number of panels of "total" positions that divide the work evenly. */
static long panel_positions(const wc_shape* s, long total, int threads) {
  const long bytes = s->window * sizes[s->dtype];
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
  const int axis = j->axis, direct = j->direct;
  const long row = positions / s->y[axis]; /* positions for each step along the axis */
  char* columns;
  if (get_memory(j, &columns, j->panel * s->window * size, !direct))
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
                   direct ? s->c : s->window, 0);
        } else {
          const char* right = j->a + ((n * s->o + g * per_out) * positions + q) * size;
          char* out = direct ? j->out + ((n * s->c + g * per_in) * pixels + q) * size : columns;
          multiply(s->dtype, s->window, count, per_out, filters, 1, s->window, right, positions, 1, out,
                   direct ? pixels : count, 0);
        }
        if (!direct) movers[s->dtype](s, g, n * positions + q, count, j->out, columns, 1, low, high);
      }
    }
  free(columns);
}

/* Windows of the result are products of the weight with y, added to x where they overlap: one item per image and group, or per
   slab of rows where these are few. */
static void input(conv_job* j, int threads) {
  const wc_shape* s = j->s;
  while (j->axis < 2 && s->x[j->axis] == 1 && s->y[j->axis] == 1) j->axis++;
  const long units = s->n * s->groups;
  j->parts = j->direct || units >= threads ? 1 : least(s->x[j->axis], (threads + units - 1) / units);
  j->panel = panel_positions(s, wc_volume(s->y), 1);
  if (!j->direct) memset(j->out, 0, s->n * s->c * wc_volume(s->x) * sizes[s->dtype]);
  wx_share(input_slabs, (void*[]){j}, units * j->parts, threads, j->work);
}

static void weight_parts(void* const* p, long lo, long hi) {
  conv_job* j = p[0];
  const wc_shape* s = j->s;
  const long size = sizes[s->dtype], positions = wc_volume(s->y);
  const long per_out = s->o / s->groups, per_in = s->c / s->groups, each = per_out * s->window;
  const long panels = s->n * j->per_image;
  const int direct = j->direct;
  char* columns;
  if (get_memory(j, &columns, j->panel * s->window * size, !direct))
    for (long part = lo; part < hi; part++) {
      char* mine = part == 0 ? j->out : j->sums + (part - 1) * s->groups * each * size;
      const long begin = panels * part / j->parts, end = panels * (part + 1) / j->parts;
      if (begin == end) memset(mine, 0, s->groups * each * size);
      for (long g = 0; g < s->groups; g++)
        for (long at = begin; at < end; at++) {
          const long n = at / j->per_image, q = at % j->per_image * j->panel, count = least(j->panel, positions - q);
          if (!direct) movers[s->dtype](s, g, n * positions + q, count, (void*)j->a, columns, 0, 0, 0);
          char* out = mine + g * each * size;
          if (s->last) {
            const char* left = j->b + ((n * positions + q) * s->o + g * per_out) * size;
            const char* right = direct ? j->a + ((n * positions + q) * s->c + g * per_in) * size : columns;
            multiply(s->dtype, per_out, s->window, count, left, 1, s->o, right, direct ? s->c : s->window, 1, out,
                     s->window, at > begin);
          } else {
            const char* left = j->b + ((n * s->o + g * per_out) * positions + q) * size;
            const char* right = direct ? j->a + ((n * s->c + g * per_in) * positions + q) * size : columns;
            multiply(s->dtype, per_out, s->window, count, left, positions, 1, right, 1, direct ? positions : count, out,
                     s->window, at > begin);
          }
        }
    }
  free(columns);
}

/* Numbers [lo, hi) of the result: the sums of all parts, in their order. */
static void add_sums(void* const* p, long lo, long hi) {
  const conv_job* j = p[0];
  const wc_shape* s = j->s;
  const long reals = s->o / s->groups * s->window * s->groups * (s->dtype > 1 ? 2 : 1);
  for (long t = 0; t < j->parts - 1; t++) {
    if (s->dtype & 1)
      for (long i = lo; i < hi; i++) ((double*)j->out)[i] += ((const double*)j->sums)[t * reals + i];
    else
      for (long i = lo; i < hi; i++) ((float*)j->out)[i] += ((const float*)j->sums)[t * reals + i];
  }
}

/* Every part of the panels has its sum; there are as many as threads. */
static void weight(conv_job* j, int threads) {
  const wc_shape* s = j->s;
  const long positions = wc_volume(s->y), each = s->o / s->groups * s->window * s->groups;
  j->panel = least(panel_positions(s, positions, 1), positions);
  j->per_image = (positions + j->panel - 1) / j->panel;
  j->parts = least(threads, most(1, s->n * j->per_image));
  if (!get_memory(j, &j->sums, (j->parts - 1) * each * sizes[s->dtype], j->parts > 1)) return;
  wx_share(weight_parts, (void*[]){j}, j->parts, threads, j->work);
  if (j->parts > 1) wx_share(add_sums, (void*[]){j}, each * (s->dtype > 1 ? 2 : 1), threads, (double)j->parts * each);
  free(j->sums);
}

weft_runtime* wx_runtime;

/* d: kind (0 forward, 1 input, 2 weight), dtype (0 to 3), channels last, batch, channels of x, channels of y, groups, then x, kernel,
   y, stride, dilation and low, three numbers each. Not 0: no memory. */
static int conv(const int64_t* d, const void* a, const void* b, void* out, int threads) {
  wc_shape s = {.dtype = (int)d[1], .last = (int)d[2], .n = d[3], .c = d[4], .o = d[5], .groups = d[6]};
  for (int i = 0; i < 3; i++) {
    s.x[i] = d[7 + i], s.k[i] = d[10 + i], s.y[i] = d[13 + i];
    s.stride[i] = d[16 + i], s.dilation[i] = d[19 + i], s.low[i] = d[22 + i];
  }
  s.kind = (int)d[0];
  s.window = s.c / s.groups * wc_volume(s.k);
  const double work = 2.0 * s.n * wc_volume(s.y) * (s.o / s.groups) * s.window * s.groups * (s.dtype > 1 ? 4 : 1);
  if (work < 2e5) threads = 1;
  if (s.c == s.groups && s.o == s.groups) return depthwise[s.dtype](&s, a, b, out, threads, work);
  conv_job job = {.s = &s, .a = a, .b = b, .out = out, .direct = is_pointwise(&s), .work = work};
  static void (*const kinds[])(conv_job*, int) = {forward, input, weight};
  kinds[s.kind](&job, threads);
  return atomic_load(&job.failed);
}

weft_extension weft_extend;
void weft_extend(weft_runtime* table, const char* blas, int threads) {
  (void)threads;
  load_blas(blas);
  wx_runtime = table;
  table->conv = conv;
}
