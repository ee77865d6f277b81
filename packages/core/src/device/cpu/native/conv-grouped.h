// Depthwise convolutions, and those with few channels per group, of real numbers: direct loops whose sums stay in registers. Part of
// conv-typed.c. Channels last, a vector is several channels of a pixel; where groups have more than one channel, each result channel has
// a copy of every channel that it reads ("parts"), so that all of them are depthwise. Channels that do not fill a vector have lanes beside
// them whose numbers nobody reads. Channels first, see conv-planes.h. bfloat16 numbers are widened to float32 while they are copied;
// results are rounded once.
#pragma once

#include "conv-copy.h"

/* Result i of an axis reads place a * i + b * k + c of the source for tap k. */
typedef struct {
  long from[3], to[3], taps[3], a[3], b[3], c[3];
  long channels, parts; /* whole vectors of channels */
} TYPED(geometry);

static TYPED(geometry) TYPED(geometry_of)(const wc_shape* s) {
  const int back = s->kind == 1;
  const long in = s->c / s->groups, out = s->o / s->groups;
  TYPED(geometry) g = {.channels = ((back ? s->c : s->o) + LANES - 1) / LANES * LANES, .parts = back ? out : in};
  for (int i = 0; i < 3; i++) {
    g.from[i] = back ? s->y[i] : s->x[i];
    g.to[i] = back ? s->x[i] : s->y[i];
    g.taps[i] = s->k[i];
    g.a[i] = s->stride[i];
    g.b[i] = back ? -s->dilation[i] : s->dilation[i];
    g.c[i] = back ? s->low[i] : -s->low[i];
  }
  return g;
}
/* Results [low, high) of an axis read only places that exist, whatever the tap. */
static void TYPED(interior)(const TYPED(geometry) * g, int axis, long* low, long* high) {
  const long reach = g->b[axis] * (g->taps[axis] - 1), least = g->c[axis] + (reach < 0 ? reach : 0);
  const long most = g->c[axis] + (reach > 0 ? reach : 0), a = g->a[axis];
  long first = least >= 0 ? 0 : (-least + a - 1) / a, after = g->from[axis] - most;
  after = after <= 0 ? 0 : (after + a - 1) / a;
  *low = first < g->to[axis] ? first : g->to[axis];
  *high = after > g->to[axis] ? g->to[axis] : after < *low ? *low : after;
}

/* "pixels" neighbors of a row from i[2] on, "vectors" vectors of channels from x and w on. */
ALWAYS void TYPED(tile)(const TYPED(geometry) * g, const T* x, const T* w, T* y, const long i[3], int pixels,
                        int vectors, int checked) {
  const long c = g->channels, each = c * g->parts;
  TYPED(vec) sums[4][2] = {0};
  for (long k0 = 0; k0 < g->taps[0]; k0++) {
    const long x0 = g->a[0] * i[0] + g->b[0] * k0 + g->c[0];
    if (x0 < 0 || x0 >= g->from[0]) continue;
    for (long k1 = 0; k1 < g->taps[1]; k1++) {
      const long x1 = g->a[1] * i[1] + g->b[1] * k1 + g->c[1];
      if (x1 < 0 || x1 >= g->from[1]) continue;
      for (long k2 = 0; k2 < g->taps[2]; k2++) {
        const long x2 = g->a[2] * i[2] + g->b[2] * k2 + g->c[2];
        if (checked && (x2 < 0 || x2 >= g->from[2])) continue;
        const T* from = x + ((x0 * g->from[1] + x1) * g->from[2] + x2) * each;
        const T* taps = w + ((k0 * g->taps[1] + k1) * g->taps[2] + k2) * each;
        for (long part = 0; part < g->parts; part++, from += c, taps += c) UNROLL for (int v = 0; v < vectors; v++) {
            const TYPED(vec) tap = *(const TYPED(vec)*)(taps + v * LANES);
            UNROLL for (int p = 0; p < pixels; p++) sums[p][v] +=
                tap * *(const TYPED(vec)*)(from + p * g->a[2] * each + v * LANES);
          }
      }
    }
  }
  UNROLL for (int p = 0; p < pixels; p++) UNROLL for (int v = 0; v < vectors; v++) *
      (TYPED(vec)*)(y + p * c + v * LANES) = sums[p][v];
}
/* As "tile" for neighbors that are one apart and depthwise, "k" taps in a row: every pixel is read once for all taps of its row, which
   wait in registers. */
ALWAYS void TYPED(line_tile)(const TYPED(geometry) * g, const T* x, const T* w, T* y, const long i[3], int pixels,
                             int k) {
  const long c = g->channels, back = g->b[2] < 0, first = i[2] + g->c[2] - (back ? k - 1 : 0);
  TYPED(vec) sums[8] = {0};
  for (long k0 = 0; k0 < g->taps[0]; k0++) {
    const long x0 = g->a[0] * i[0] + g->b[0] * k0 + g->c[0];
    if (x0 < 0 || x0 >= g->from[0]) continue;
    for (long k1 = 0; k1 < g->taps[1]; k1++) {
      const long x1 = g->a[1] * i[1] + g->b[1] * k1 + g->c[1];
      if (x1 < 0 || x1 >= g->from[1]) continue;
      const T* from = x + ((x0 * g->from[1] + x1) * g->from[2] + first) * c;
      const T* line = w + (k0 * g->taps[1] + k1) * k * c;
      TYPED(vec) taps[7];
      UNROLL for (int t = 0; t < k; t++) taps[t] = *(const TYPED(vec)*)(line + (back ? k - 1 - t : t) * c);
      UNROLL for (int q = 0; q < pixels + k - 1; q++) {
        const TYPED(vec) value = *(const TYPED(vec)*)from;
        from += c;
        /* One pointer that moves: as many as there are places would not fit into registers. */
        __asm__("" : "+r"(from));
        UNROLL for (int p = 0; p < pixels; p++) if (q >= p && q < p + k) sums[p] += taps[q - p] * value;
      }
    }
  }
  UNROLL for (int p = 0; p < pixels; p++) * (TYPED(vec)*)(y + p * c) = sums[p];
}
/* All vectors of "pixels" neighbors. */
#define LINE_TILES(pixels, k)                                                                                          \
  for (long v = 0; v < c; v += LANES) TYPED(line_tile)(g, x + v, w + v, to + v, i, pixels, k)
#define LINE_PIXELS(pixels)                                                                                            \
  do {                                                                                                                 \
    if (g->taps[2] == 3) LINE_TILES(pixels, 3);                                                                        \
    else if (g->taps[2] == 5) LINE_TILES(pixels, 5);                                                                   \
    else LINE_TILES(pixels, 7);                                                                                        \
  } while (0)
static int TYPED(has_lines)(const TYPED(geometry) * g) {
  const long k = g->taps[2], b = g->b[2];
  return g->parts == 1 && g->a[2] == 1 && (b == 1 || b == -1) && (k == 3 || k == 5 || k == 7);
}
/* Rows [low, high) of the result of one image. */
static void TYPED(image_rows)(const TYPED(geometry) * g, const T* x, const T* w, T* y, long low, long high) {
  const long c = g->channels;
  long inner, outer;
  TYPED(interior)(g, 2, &inner, &outer);
  const int lines = TYPED(has_lines)(g);
  for (long row = low; row < high; row++)
    for (long at = 0; at < g->to[2];) {
      const long i[3] = {row / g->to[1], row % g->to[1], at};
      const int inside = at >= inner && at < outer, four = inside && at + 4 <= outer;
      T* to = y + (row * g->to[2] + at) * c;
      if (lines && four) {
        const int pixels = at + 8 <= outer ? 8 : 4;
        if (pixels == 8) LINE_PIXELS(8);
        else LINE_PIXELS(4);
        at += pixels;
        continue;
      }
      for (long v = 0; v < c;) {
        const int two = v + 2 * LANES <= c;
        if (four && two) TYPED(tile)(g, x + v, w + v, to + v, i, 4, 2, 0);
        else if (four) TYPED(tile)(g, x + v, w + v, to + v, i, 4, 1, 0);
        else if (two) TYPED(tile)(g, x + v, w + v, to + v, i, 1, 2, 1);
        else TYPED(tile)(g, x + v, w + v, to + v, i, 1, 1, 1);
        v += (two ? 2 : 1) * LANES;
      }
      at += four ? 4 : 1;
    }
}

/* Gradient of the weight: adds to all taps of a row of the kernel, up to eight sums at a time, for one vector of channels. */
ALWAYS void TYPED(tap_sums)(const TYPED(geometry) * g, const T* x, const T* y, T* taps, long k0, long k1, long first,
                            int count) {
  const long c = g->channels, each = c * g->parts;
  TYPED(vec) sums[8] = {0};
  long low[8], high[8], place[8], inner = 0, outer = g->to[2];
  UNROLL for (int q = 0; q < count; q++) {
    const long k2 = (first + q) / g->parts, offset = g->b[2] * k2 + g->c[2], a = g->a[2];
    const long after = g->from[2] - offset <= 0 ? 0 : (g->from[2] - offset + a - 1) / a;
    low[q] = offset >= 0 ? 0 : (-offset + a - 1) / a;
    high[q] = after < g->to[2] ? after : g->to[2];
    place[q] = offset * each + (first + q) % g->parts * c;
    inner = low[q] > inner ? low[q] : inner;
    outer = high[q] < outer ? high[q] : outer;
  }
  for (long i0 = 0; i0 < g->to[0]; i0++) {
    const long x0 = g->a[0] * i0 + g->b[0] * k0 + g->c[0];
    if (x0 < 0 || x0 >= g->from[0]) continue;
    for (long i1 = 0; i1 < g->to[1]; i1++) {
      const long x1 = g->a[1] * i1 + g->b[1] * k1 + g->c[1];
      if (x1 < 0 || x1 >= g->from[1]) continue;
      const T *from = x + (x0 * g->from[1] + x1) * g->from[2] * each, *to = y + (i0 * g->to[1] + i1) * g->to[2] * c;
      const long step = g->a[2] * each;
      for (long i2 = inner; i2 < outer; i2++) {
        const TYPED(vec) value = *(const TYPED(vec)*)(to + i2 * c);
        UNROLL for (int q = 0; q < count; q++) sums[q] += value * *(const TYPED(vec)*)(from + i2 * step + place[q]);
      }
      UNROLL for (int q = 0; q < count; q++) {
        for (long i2 = low[q]; i2 < (inner < high[q] ? inner : high[q]); i2++)
          sums[q] += *(const TYPED(vec)*)(to + i2 * c) * *(const TYPED(vec)*)(from + i2 * step + place[q]);
        for (long i2 = outer > inner ? (outer > low[q] ? outer : low[q]) : (inner > low[q] ? inner : low[q]);
             i2 < high[q]; i2++)
          sums[q] += *(const TYPED(vec)*)(to + i2 * c) * *(const TYPED(vec)*)(from + i2 * step + place[q]);
      }
    }
  }
  UNROLL for (int q = 0; q < count; q++) {
    TYPED(vec)* to = (TYPED(vec)*)(taps + ((k0 * g->taps[1] + k1) * g->taps[2] * g->parts + first + q) * c);
    *to += sums[q];
  }
}
/* Channels [c_low, c_high) of the gradient of the weight from one image; both are multiples of a vector. */
static void TYPED(image_taps)(const TYPED(geometry) * g, const T* x, T* w, const T* y, long c_low, long c_high) {
  for (long k0 = 0; k0 < g->taps[0]; k0++)
    for (long k1 = 0; k1 < g->taps[1]; k1++)
      for (long v = c_low; v < c_high; v += LANES)
        for (long first = 0, all = g->taps[2] * g->parts; first < all;) {
          const int count = all - first >= 8 ? 8 : all - first >= 6 ? 6 : all - first >= 3 ? 3 : 1;
          if (count == 8) TYPED(tap_sums)(g, x + v, y + v, w + v, k0, k1, first, 8);
          else if (count == 6) TYPED(tap_sums)(g, x + v, y + v, w + v, k0, k1, first, 6);
          else if (count == 3) TYPED(tap_sums)(g, x + v, y + v, w + v, k0, k1, first, 3);
          else TYPED(tap_sums)(g, x + v, y + v, w + v, k0, k1, first, 1);
          first += count;
        }
}

/* Memory of a thread, aligned as vectors are. What is not large stays, so that its pages are touched once. NULL where there is none. */
#define MOST_STAYING (8L << 20)
typedef struct {
  T* memory;
  long have;
} TYPED(room);
static __thread TYPED(room) TYPED(own_room);
static T* TYPED(stay)(long count) {
  TYPED(room)* room = &TYPED(own_room);
  if (room->have >= count) return room->memory;
  free(room->memory);
  if (posix_memalign((void**)&room->memory, 64, count * sizeof(T))) room->memory = NULL;
  room->have = room->memory ? count : 0;
  return room->memory;
}
static void TYPED(leave)(void) {
  TYPED(room)* room = &TYPED(own_room);
  if (room->have * (long)sizeof(T) <= MOST_STAYING) return;
  free(room->memory);
  *room = (TYPED(room)){NULL, 0};
}

typedef struct {
  const wc_shape* s;
  TYPED(geometry) g;
  const void *from, *y; /* from: what is read in windows */
  T* w;
  void* to;
  long pieces;
  atomic_int failed;
} TYPED(grouped_job);

#if defined(__GNUC__) && !defined(__clang__)
#define PICK(from, places) __builtin_shuffle(from, places)
#else
static inline TYPED(vec) TYPED(pick)(TYPED(vec) from, TYPED(places) places) {
  TYPED(vec) to;
  for (long i = 0; i < LANES; i++) to[i] = from[places[i]];
  return to;
}
#define PICK(from, places) TYPED(pick)(from, places)
#endif
/* The same where groups have as many channels as results: those that a vector of results reads are a vector, too. */
static void TYPED(parted_vectors)(const wc_shape* s, const TYPED(geometry) * g, const void* image, long first,
                                  long count, T* copy) {
  const long c = g->channels, parts = g->parts, own = s->c, end = s->n * wc_volume(g->from) * own;
  TYPED(places) places[8];
  for (long part = 0; part < parts; part++)
    for (long i = 0; i < LANES; i++) places[part][i] = i / parts * parts + part;
  for (long p = 0; p < count; p++)
    for (long v = 0; v < c; v += LANES) {
      const long at = (first + p) * own + v;
      TYPED(vec) from = {0};
      TYPED(widen)(s, image, at, at + LANES <= end ? LANES : own - v < LANES ? own - v : LANES, (T*)&from);
      for (long part = 0; part < parts; part++)
        *(TYPED(vec)*)(copy + (p * parts + part) * c + v) = PICK(from, places[part]);
    }
}
/* "count" pixels of an image with a copy of every channel that a result channel reads, as parts. */
static void TYPED(parted)(const wc_shape* s, const TYPED(geometry) * g, const void* image, long first, long count,
                          T* copy) {
  const int back = s->kind == 1;
  const long c = g->channels, parts = g->parts, own = back ? s->o : s->c;
  const long each = back ? s->c / s->groups : s->o / s->groups;
  if (s->c == s->groups && s->o == s->groups) {
    TYPED(spread)(s, image, first, count, s->n * wc_volume(g->from), own, copy, c);
    return;
  }
  if (s->c == s->o && LANES % parts == 0) {
    TYPED(parted_vectors)(s, g, image, first, count, copy);
    return;
  }
  for (long p = 0; p < count; p++)
    for (long part = 0; part < parts; part++)
      for (long group = 0; group < s->groups; group++) {
        T value;
        TYPED(widen)(s, image, (first + p) * own + group * parts + part, 1, &value);
        for (long i = 0; i < each; i++) copy[(p * parts + part) * c + group * each + i] = value;
      }
}
/* Gradient of the weight: vectors of channels [lo, hi) in pieces, over all images. */
static void TYPED(tap_items)(void* const* p, long lo, long hi) {
  TYPED(grouped_job)* j = p[0];
  const wc_shape* s = j->s;
  const TYPED(geometry)* g = &j->g;
  const long pixels = wc_volume(g->from), positions = wc_volume(g->to), c = g->channels, vectors = c / LANES;
  const int copies = IS_HALF(s) || s->c != s->groups || s->o != s->groups || s->o != c;
  T* x = copies ? TYPED(stay)((pixels * g->parts + positions) * c) : NULL;
  if (copies && !x) atomic_store(&j->failed, 1);
  for (long item = lo; item < hi && (x || !copies); item++)
    for (long n = 0; n < s->n; n++) {
      const T *from = (const T*)j->from + n * pixels * s->c, *y = (const T*)j->y + n * positions * c;
      if (copies) {
        TYPED(parted)(s, g, j->from, n * pixels, pixels, x);
        TYPED(spread)(s, j->y, n * positions, positions, s->n * positions, s->o, x + pixels * g->parts * c, c);
        from = x, y = x + pixels * g->parts * c;
      }
      TYPED(image_taps)(g, from, j->w, y, vectors * item / j->pieces * LANES, vectors * (item + 1) / j->pieces * LANES);
    }
  TYPED(leave)();
}
/* Bands of rows of images. A band is computed from a copy of the rows that it reads, whose ends are padded with zeros, so that nothing is
   tested along a row. */
static void TYPED(band_items)(void* const* p, long lo, long hi) {
  TYPED(grouped_job)* j = p[0];
  const wc_shape* s = j->s;
  const TYPED(geometry)* all = &j->g;
  const int axis = all->to[0] > 1 ? 0 : 1;
  const long c = all->channels, step = all->to[axis], each = wc_volume(all->to) / (step > 0 ? step : 1);
  const long reach = all->b[axis] * (all->taps[axis] - 1), wide = all->b[2] * (all->taps[2] - 1);
  const long left = -(all->c[2] + (wide < 0 ? wide : 0));
  const long right = all->a[2] * (all->to[2] - 1) + all->c[2] + (wide > 0 ? wide : 0) - (all->from[2] - 1);
  const long before = left > 0 ? left : 0, pitch = all->from[2] + before + (right > 0 ? right : 0);
  const long most = (step + j->pieces - 1) / j->pieces, span = all->a[axis] * (most - 1) + labs(reach) + 1;
  const long rows = span < all->from[axis] ? span : all->from[axis], lines = axis == 0 ? rows * all->from[1] : rows;
  const long own = s->kind == 1 ? s->c : s->o, place = all->parts * c, room = lines * pitch * place;
  const int apart = IS_HALF(s) || own != c;
  T* copy = TYPED(stay)(room + (apart ? most * each * c : 0));
  T* sums = apart && copy ? copy + room : NULL;
  if (!copy) atomic_store(&j->failed, 1);
  else {
    for (long line = 0; line < lines; line++) {
      memset(copy + line * pitch * place, 0, before * place * sizeof(T));
      memset(copy + (line * pitch + before + all->from[2]) * place, 0,
             (pitch - before - all->from[2]) * place * sizeof(T));
    }
    for (long item = lo; item < hi; item++) {
      const long n = item / j->pieces, piece = item % j->pieces;
      const long low = step * piece / j->pieces, high = step * (piece + 1) / j->pieces;
      if (low == high) continue;
      TYPED(geometry) g = *all;
      const long least = all->a[axis] * low + all->c[axis] + (reach < 0 ? reach : 0);
      const long after = all->a[axis] * (high - 1) + all->c[axis] + (reach > 0 ? reach : 0) + 1;
      const long first = least > 0 ? least : 0, end = after < all->from[axis] ? after : all->from[axis];
      g.from[axis] = end > first ? end - first : 0;
      g.c[axis] += all->a[axis] * low - first;
      g.to[axis] = high - low;
      g.from[2] = pitch;
      g.c[2] += before;
      const long inner = axis == 0 ? all->from[1] : 1;
      for (long line = 0; line < g.from[axis] * inner; line++)
        TYPED(parted)(s, all, j->from, ((n * all->from[0] * all->from[1]) + first * inner + line) * all->from[2],
                      all->from[2], copy + (line * pitch + before) * all->parts * c);
      const long at = n * wc_volume(all->to) + low * each;
      TYPED(image_rows)(&g, copy, j->w, sums ? sums : (T*)j->to + at * c, 0, g.to[0] * g.to[1]);
      if (sums) TYPED(gather)(s, sums, c, j->to, at, (high - low) * each, own);
    }
  }
  TYPED(leave)();
}
/* Whether these loops are for a convolution: channels last. */
static int TYPED(is_grouped)(const wc_shape* s) {
  const long in = s->c / s->groups, out = s->o / s->groups;
  const int few = in <= 4 && out <= 4, equal = in == 8 && out == 8;
  if (!s->last || !(few || equal) || s->o < 4 || s->c < 4) return 0;
  return s->kind != 1 || s->stride[0] * s->stride[1] * s->stride[2] == 1;
}
/* Elements of the rows of a band: most of them stay in the second-level cache. */
#define BAND (1L << 17)
static int TYPED(grouped)(const wc_shape* s, const void* x, void* w, const void* y, void* to, int threads,
                          double work) {
  TYPED(grouped_job) job = {.s = s, .g = TYPED(geometry_of)(s), .from = s->kind == 1 ? y : x, .y = y, .to = to};
  const TYPED(geometry)* g = &job.g;
  const long c = g->channels, parts = g->parts, taps = wc_volume(s->k), in = s->c / s->groups, out = s->o / s->groups;
  const long own = s->kind == 1 ? s->c : s->o;
  T* turned = job.w = calloc(taps * parts * c, sizeof(T));
  if (!turned) return 1;
  /* In memory, a result channel of the weight has the channels of its group for every tap; a copy has result channels last. */
#define EACH_TAP(statement)                                                                                            \
  for (long k = 0; k < taps; k++)                                                                                      \
    for (long part = 0; part < parts; part++)                                                                          \
      for (long i = 0; i < own; i++) {                                                                                 \
        const long o = s->kind == 1 ? i / in * out + part : i, inside = s->kind == 1 ? i % in : part;                  \
        T* here = turned + (k * parts + part) * c + i;                                                                 \
        const long there = (o * taps + k) * in + inside;                                                               \
        statement;                                                                                                     \
      }
  if (s->kind == 2) {
    const long vectors = c / LANES;
    job.pieces = vectors < threads ? vectors : threads;
    wx_share(TYPED(tap_items), (void*[]){&job}, job.pieces, threads, work);
    EACH_TAP(TYPED(put)(s, w, there, *here))
  } else {
    EACH_TAP(TYPED(widen)(s, w, there, 1, here))
    const long rows = g->to[g->to[0] > 1 ? 0 : 1], bands = (wc_volume(g->from) * parts * c + BAND - 1) / BAND;
    const long fewest = s->n >= threads ? 1 : threads, pieces = bands > fewest ? bands : fewest;
    job.pieces = pieces < rows ? pieces : rows > 0 ? rows : 1;
    wx_share(TYPED(band_items), (void*[]){&job}, s->n * job.pieces, threads, work);
  }
  free(turned);
  return atomic_load(&job.failed);
}
