// Convolutions of the CPU device: windows are copied into panels that stay in the second-level cache and multiplied by OpenBLAS;
// 3 x 3 kernels of stride 1 by Winograd's minimal filtering; depthwise ones by direct loops. All kinds, one to three axes.
#define _GNU_SOURCE
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "blas.h"
#include "conv.h"

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

/* Channels first: y [batch, out, positions]. A panel may span several images, whose results are then put into place. */
static int forward(const wc_shape* s, const char* x, const char* w, char* y, int threads) {
  const long size = sizes[s->dtype], positions = wc_volume(s->y), total = s->n * positions;
  const long per_out = s->o / s->groups, per_in = s->c / s->groups;
  const int direct = is_pointwise(s);
  long panel = panel_positions(s, total, threads);
  /* A pointwise product reads the images themselves, which are apart in memory where channels come first. */
  if (!s->last && (direct || panel < positions)) {
    const long pieces = (positions + panel - 1) / panel;
    panel = ((positions + pieces - 1) / pieces + 15) / 16 * 16;
  }
  const int spans = !s->last && !direct && panel >= positions && positions > 1 && s->n > 1;
  const long images = spans ? most(1, panel / positions) : 1;
  const long per_image = s->last || spans ? 0 : (positions + panel - 1) / panel;
  const long panels = s->last ? (total + panel - 1) / panel : spans ? (s->n + images - 1) / images : s->n * per_image;
  const long widest = spans ? images * positions : panel;
  int failed = 0;
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(| : failed)
  {
    char* columns = direct ? NULL : malloc(widest * s->window * size);
    char* joined = spans ? malloc(widest * per_out * size) : NULL;
    if ((!direct && !columns) || (spans && !joined)) failed = 1;
#pragma omp for schedule(dynamic, 1)
    for (long item = 0; item < panels * s->groups; item++) {
      if ((!direct && !columns) || (spans && !joined)) continue;
      const long g = item % s->groups, at = item / s->groups;
      long first, count;
      if (s->last) first = at * panel, count = least(panel, total - first);
      else if (spans) first = at * images * positions, count = least(images * positions, total - first);
      else {
        const long within = at % per_image * panel;
        first = at / per_image * positions + within, count = least(panel, positions - within);
      }
      const char* filters = w + g * per_out * s->window * size;
      if (s->last) {
        const char* left = direct ? x + (first * s->c + g * per_in) * size : columns;
        if (!direct) movers[s->dtype](s, g, first, count, (void*)x, columns, 0, 0, 0);
        multiply(s->dtype, count, per_out, s->window, left, direct ? s->c : s->window, 1, filters, 1, s->window,
                 y + (first * s->o + g * per_out) * size, s->o, 0);
        continue;
      }
      const long n = first / positions, within = first % positions;
      const char* right = direct ? x + ((n * s->c + g * per_in) * positions + within) * size : columns;
      if (!direct) movers[s->dtype](s, g, first, count, (void*)x, columns, 0, 0, 0);
      char* out = y + ((n * s->o + g * per_out) * positions + within) * size;
      multiply(s->dtype, per_out, count, s->window, filters, s->window, 1, right, direct ? positions : count, 1,
               spans ? joined : out, spans ? count : positions, 0);
      if (spans)
        for (long i = 0; i < count / positions; i++)
          for (long o = 0; o < per_out; o++)
            memcpy(out + (i * s->o + o) * positions * size, joined + (o * count + i * positions) * size,
                   positions * size);
    }
    free(columns);
    free(joined);
  }
  return failed;
}

/* Windows of the result are products of the weight with y, added to x where they overlap: one thread per image and group, or per
   slab of rows where these are few. */
static int input(const wc_shape* s, const char* y, const char* w, char* x, int threads) {
  const long size = sizes[s->dtype], positions = wc_volume(s->y);
  const long per_out = s->o / s->groups, per_in = s->c / s->groups, pixels = wc_volume(s->x);
  const int direct = is_pointwise(s);
  int axis = 0;
  while (axis < 2 && s->x[axis] == 1 && s->y[axis] == 1) axis++;
  const long units = s->n * s->groups;
  const long slabs = direct || units >= threads ? 1 : least(s->x[axis], (threads + units - 1) / units);
  const long row = positions / s->y[axis]; /* positions for each step along the axis */
  long panel = panel_positions(s, positions, 1);
  int failed = 0;
  if (!direct) memset(x, 0, s->n * s->c * pixels * size);
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(| : failed)
  {
    char* columns = direct ? NULL : malloc(panel * s->window * size);
    if (!direct && !columns) failed = 1;
#pragma omp for schedule(dynamic, 1)
    for (long item = 0; item < units * slabs; item++) {
      if (!direct && !columns) continue;
      const long slab = item % slabs, g = item / slabs % s->groups, n = item / slabs / s->groups;
      const long low = s->x[axis] * slab / slabs, high = s->x[axis] * (slab + 1) / slabs;
      /* Rows of y whose windows reach the slab. */
      const long reach = s->dilation[axis] * (s->k[axis] - 1), from = low + s->low[axis] - reach;
      const long start = from <= 0 ? 0 : (from + s->stride[axis] - 1) / s->stride[axis];
      const long stop = least(s->y[axis], (high - 1 + s->low[axis]) / s->stride[axis] + 1);
      const long begin = slabs == 1 ? 0 : start * row, end = slabs == 1 ? positions : stop * row;
      const char* filters = w + g * per_out * s->window * size;
      for (long p = begin; p < end; p += panel) {
        const long count = least(panel, end - p);
        if (s->last) {
          const char* left = y + ((n * positions + p) * s->o + g * per_out) * size;
          char* out = direct ? x + ((n * pixels + p) * s->c + g * per_in) * size : columns;
          multiply(s->dtype, count, s->window, per_out, left, s->o, 1, filters, s->window, 1, out,
                   direct ? s->c : s->window, 0);
        } else {
          const char* right = y + ((n * s->o + g * per_out) * positions + p) * size;
          char* out = direct ? x + ((n * s->c + g * per_in) * pixels + p) * size : columns;
          multiply(s->dtype, s->window, count, per_out, filters, 1, s->window, right, positions, 1, out,
                   direct ? pixels : count, 0);
        }
        if (!direct) movers[s->dtype](s, g, n * positions + p, count, x, columns, 1, low, high);
      }
    }
    free(columns);
  }
  return failed;
}

/* Every thread sums the products of its share of the panels; the sums are added in the order of the threads. */
static int weight(const wc_shape* s, const char* x, const char* y, char* w, int threads) {
  const long size = sizes[s->dtype], positions = wc_volume(s->y);
  const long per_out = s->o / s->groups, per_in = s->c / s->groups, each = per_out * s->window;
  const int direct = is_pointwise(s);
  const long panel = least(panel_positions(s, positions, 1), positions);
  const long per_image = (positions + panel - 1) / panel, panels = s->n * per_image;
  const int team = (int)least(threads, most(1, panels));
  char* sums = team > 1 ? malloc((team - 1) * s->groups * each * size) : NULL;
  if (team > 1 && !sums) return 1;
  int failed = 0;
#pragma omp parallel num_threads(team) if (team > 1) reduction(| : failed)
  {
    const int me = omp_get_thread_num(), members = omp_get_num_threads();
    char* columns = direct ? NULL : malloc(panel * s->window * size);
    if (!direct && !columns) failed = 1;
    char* mine = me == 0 ? w : sums + (me - 1) * s->groups * each * size;
    const long begin = panels * me / members, end = panels * (me + 1) / members;
    if (begin == end) memset(mine, 0, s->groups * each * size);
    for (long g = 0; g < s->groups && (direct || columns); g++)
      for (long at = begin; at < end; at++) {
        const long n = at / per_image, p = at % per_image * panel, count = least(panel, positions - p);
        if (!direct) movers[s->dtype](s, g, n * positions + p, count, (void*)x, columns, 0, 0, 0);
        char* out = mine + g * each * size;
        if (s->last) {
          const char* left = y + ((n * positions + p) * s->o + g * per_out) * size;
          const char* right = direct ? x + ((n * positions + p) * s->c + g * per_in) * size : columns;
          multiply(s->dtype, per_out, s->window, count, left, 1, s->o, right, direct ? s->c : s->window, 1, out,
                   s->window, at > begin);
        } else {
          const char* left = y + ((n * s->o + g * per_out) * positions + p) * size;
          const char* right = direct ? x + ((n * s->c + g * per_in) * positions + p) * size : columns;
          multiply(s->dtype, per_out, s->window, count, left, positions, 1, right, 1, direct ? positions : count, out,
                   s->window, at > begin);
        }
      }
    free(columns);
#pragma omp barrier
    /* Fewer threads than asked for: the sums that nobody wrote do not count. */
    const long reals = s->groups * each * (s->dtype > 1 ? 2 : 1);
    const long low = reals * me / members, high = reals * (me + 1) / members;
    for (int t = 1; t < members; t++) {
      if (s->dtype & 1) {
        const double* more = (const double*)(sums + (t - 1) * s->groups * each * size);
        for (long i = low; i < high; i++) ((double*)w)[i] += more[i];
      } else {
        const float* more = (const float*)(sums + (t - 1) * s->groups * each * size);
        for (long i = low; i < high; i++) ((float*)w)[i] += more[i];
      }
    }
  }
  free(sums);
  return failed;
}

static weft_runtime* runtime;

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
  /* Products inside parallel regions run on one thread by themselves. */
  if (threads == 1) runtime->use_blas_threads(1);
  if (s.c == s.groups && s.o == s.groups) return depthwise[s.dtype](&s, a, b, out, threads);
  if (s.kind == 0) return forward(&s, a, b, out, threads);
  return s.kind == 1 ? input(&s, a, b, out, threads) : weight(&s, a, b, out, threads);
}

weft_extension weft_extend;
void weft_extend(weft_runtime* table, const char* blas, int threads) {
  (void)threads;
  load_blas(blas);
  runtime = table;
  table->conv = conv;
}
