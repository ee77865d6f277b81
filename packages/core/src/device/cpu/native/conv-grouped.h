// Depthwise convolutions, and those with few channels per group, of real numbers: direct loops whose sums stay in registers. Part of
// conv-typed.c. Channels last, a vector is several channels of a pixel; where groups have more than one channel, each result channel has
// a copy of every channel that it reads ("parts"), so that all of them are depthwise. Channels first, a vector is several pixels of a row
// of a plane that is padded with zeros.
#pragma once

typedef T TYPED(vec) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
enum { TYPED(lanes) = 64 / sizeof(T) };
#define LANES ((long)TYPED(lanes))
#define UNROLL _Pragma("GCC unroll 16")
#define ALWAYS static inline __attribute__((always_inline))

/* Result i of an axis reads place a * i + b * k + c of the source for tap k. */
typedef struct {
  long from[3], to[3], taps[3], a[3], b[3], c[3];
  long channels, parts;
} TYPED(geometry);

static TYPED(geometry) TYPED(geometry_of)(const wc_shape* s) {
  const int back = s->kind == 1;
  const long in = s->c / s->groups, out = s->o / s->groups;
  TYPED(geometry) g = {.channels = back ? s->c : s->o, .parts = back ? out : in};
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
/* The channels from "first" on that do not fill a vector, of one pixel. */
static void TYPED(rest)(const TYPED(geometry) * g, const T* x, const T* w, T* y, const long i[3], long first) {
  const long c = g->channels, each = c * g->parts;
  for (long channel = first; channel < c; channel++) y[channel] = 0;
  for (long k0 = 0; k0 < g->taps[0]; k0++)
    for (long k1 = 0; k1 < g->taps[1]; k1++)
      for (long k2 = 0; k2 < g->taps[2]; k2++) {
        const long x0 = g->a[0] * i[0] + g->b[0] * k0 + g->c[0], x1 = g->a[1] * i[1] + g->b[1] * k1 + g->c[1];
        const long x2 = g->a[2] * i[2] + g->b[2] * k2 + g->c[2];
        if (x0 < 0 || x0 >= g->from[0] || x1 < 0 || x1 >= g->from[1] || x2 < 0 || x2 >= g->from[2]) continue;
        const T* from = x + ((x0 * g->from[1] + x1) * g->from[2] + x2) * each;
        const T* taps = w + ((k0 * g->taps[1] + k1) * g->taps[2] + k2) * each;
        for (long part = 0; part < g->parts; part++)
          for (long channel = first; channel < c; channel++)
            y[channel] += taps[part * c + channel] * from[part * c + channel];
      }
}
/* Rows [low, high) of the result of one image. */
static void TYPED(image_rows)(const TYPED(geometry) * g, const T* x, const T* w, T* y, long low, long high) {
  const long c = g->channels, whole = c / LANES * LANES;
  long inner, outer;
  TYPED(interior)(g, 2, &inner, &outer);
  for (long row = low; row < high; row++)
    for (long at = 0; at < g->to[2];) {
      const long i[3] = {row / g->to[1], row % g->to[1], at};
      const int inside = at >= inner && at < outer, four = inside && at + 4 <= outer;
      T* to = y + (row * g->to[2] + at) * c;
      for (long v = 0; v < whole;) {
        const int two = v + 2 * LANES <= whole;
        if (four && two) TYPED(tile)(g, x + v, w + v, to + v, i, 4, 2, 0);
        else if (four) TYPED(tile)(g, x + v, w + v, to + v, i, 4, 1, 0);
        else if (two) TYPED(tile)(g, x + v, w + v, to + v, i, 1, 2, 1);
        else TYPED(tile)(g, x + v, w + v, to + v, i, 1, 1, 1);
        v += (two ? 2 : 1) * LANES;
      }
      for (long p = 0; p < (four ? 4 : 1) && whole < c; p++)
        TYPED(rest)(g, x, w, to + p * c, (const long[3]){i[0], i[1], at + p}, whole);
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

typedef struct {
  const wc_shape* s;
  TYPED(geometry) g;
  const T *from, *y;
  T *w, *to;
  long pieces;
  atomic_int failed;
} TYPED(grouped_job);

/* The image with a copy of every channel that a result channel reads, as parts: x itself where there is one per group. */
static const T* TYPED(parted)(const wc_shape* s, const TYPED(geometry) * g, const T* image, T* copy) {
  if (s->c == s->groups && s->o == s->groups) return image;
  const int back = s->kind == 1;
  const long c = g->channels, parts = g->parts, own = back ? s->o : s->c;
  const long each = back ? s->c / s->groups : s->o / s->groups;
  for (long p = 0; p < wc_volume(g->from); p++)
    for (long part = 0; part < parts; part++)
      for (long group = 0; group < s->groups; group++)
        for (long i = 0; i < each; i++)
          copy[(p * parts + part) * c + group * each + i] = image[p * own + group * parts + part];
  return copy;
}
static void TYPED(grouped_items)(void* const* p, long lo, long hi) {
  TYPED(grouped_job)* j = p[0];
  const wc_shape* s = j->s;
  const TYPED(geometry)* g = &j->g;
  const long pixels = wc_volume(g->from), positions = wc_volume(g->to), rows = g->to[0] * g->to[1];
  const long own = s->kind == 1 ? s->o : s->c, vectors = g->channels / LANES;
  T* copy = malloc(pixels * g->parts * g->channels * sizeof(T) + 64);
  if (!copy) atomic_store(&j->failed, 1);
  const T* known = NULL;
  long of = -1;
  for (long item = lo; item < hi && copy; item++) {
    const long piece = item % j->pieces;
    for (long n = s->kind == 2 ? 0 : item / j->pieces; n < (s->kind == 2 ? s->n : item / j->pieces + 1); n++) {
      if (n != of) known = TYPED(parted)(s, g, j->from + n * pixels * own, copy), of = n;
      const long a = s->kind == 2 ? vectors : rows, low = a * piece / j->pieces, high = a * (piece + 1) / j->pieces;
      if (s->kind == 2)
        TYPED(image_taps)(g, known, j->w, j->y + n * positions * g->channels, low * LANES, high * LANES);
      else TYPED(image_rows)(g, known, j->w, j->to + n * positions * g->channels, low, high);
    }
  }
  free(copy);
}
/* Whether these loops are for a convolution: channels last. */
static int TYPED(is_grouped)(const wc_shape* s) {
  const long in = s->c / s->groups, out = s->o / s->groups;
  if (!s->last || in > 4 || out > 4) return 0;
  if (s->kind == 1) return s->c >= LANES && s->stride[0] * s->stride[1] * s->stride[2] == 1;
  return s->kind == 2 ? s->o % LANES == 0 : s->o >= LANES;
}
static int TYPED(grouped)(const wc_shape* s, const T* x, T* w, const T* y, T* to, int threads, double work) {
  TYPED(grouped_job) job = {.s = s, .g = TYPED(geometry_of)(s), .from = s->kind == 1 ? y : x, .y = y, .to = to};
  const TYPED(geometry)* g = &job.g;
  const long c = g->channels, parts = g->parts, taps = wc_volume(s->k), in = s->c / s->groups, out = s->o / s->groups;
  T* turned = job.w = malloc(taps * parts * c * sizeof(T));
  if (!turned) return 1;
  /* In memory, a result channel of the weight has the channels of its group for every tap; a copy has result channels last. */
#define EACH_TAP(statement)                                                                                            \
  for (long k = 0; k < taps; k++)                                                                                      \
    for (long part = 0; part < parts; part++)                                                                          \
      for (long i = 0; i < c; i++) {                                                                                   \
        const long o = s->kind == 1 ? i / in * out + part : i, inside = s->kind == 1 ? i % in : part;                  \
        T *here = turned + (k * parts + part) * c + i, *there = w + (o * taps + k) * in + inside;                      \
        statement;                                                                                                     \
      }
  EACH_TAP(*here = s->kind == 2 ? 0 : *there)
  const long rows = s->kind == 2 ? c / LANES : g->to[0] * g->to[1];
  job.pieces = s->kind != 2 && s->n >= threads ? 1 : rows < threads ? (rows > 0 ? rows : 1) : threads;
  wx_share(TYPED(grouped_items), (void*[]){&job}, s->kind == 2 ? job.pieces : s->n * job.pieces, threads, work);
  if (s->kind == 2) EACH_TAP(*there = *here)
  free(turned);
  return atomic_load(&job.failed);
}

/* Channels first, strides of one: a plane with zeros around it. "shift" is the place of its first element. */
typedef struct {
  long size[3], shift[3], pitch;
} TYPED(padded);
static TYPED(padded) TYPED(padded_of)(const TYPED(geometry) * g, const wc_shape* s) {
  TYPED(padded) p;
  for (int i = 0; i < 3; i++) {
    const long reach = s->dilation[i] * (s->k[i] - 1);
    p.size[i] = g->to[i] + reach;
    p.shift[i] = s->kind == 1 ? reach - s->low[i] : s->low[i];
  }
  p.pitch = (g->to[2] + LANES - 1) / LANES * LANES + s->dilation[2] * (s->k[2] - 1);
  return p;
}
ALWAYS void TYPED(row_tile)(const wc_shape* s, const TYPED(padded) * pad, const T* x, const T* w, T* y, long count,
                            int vectors) {
  const int back = s->kind == 1;
  const long taps = wc_volume(s->k);
  TYPED(vec) sums[4] = {0};
  for (long k0 = 0; k0 < s->k[0]; k0++)
    for (long k1 = 0; k1 < s->k[1]; k1++) {
      const T* line = x + (k0 * s->dilation[0] * pad->size[1] + k1 * s->dilation[1]) * pad->pitch;
      for (long k2 = 0; k2 < s->k[2]; k2++) {
        const long k = (k0 * s->k[1] + k1) * s->k[2] + k2;
        const T tap = w[back ? taps - 1 - k : k];
        UNROLL for (int v = 0; v < vectors; v++) sums[v] +=
            tap * *(const TYPED(vec)*)(line + k2 * s->dilation[2] + v * LANES);
      }
    }
  UNROLL for (int v = 0; v < vectors; v++) {
    const long left = count - v * LANES;
    if (left >= LANES) *(TYPED(vec)*)(y + v * LANES) = sums[v];
    else if (left > 0) memcpy(y + v * LANES, &sums[v], left * sizeof(T));
  }
}
/* One plane; "copy" has room for it with its zeros, which are there already. */
static void TYPED(padded_plane)(const wc_shape* s, const TYPED(geometry) * g, const TYPED(padded) * pad, const T* x,
                                const T* w, T* y, T* copy) {
  for (long q0 = 0; q0 < pad->size[0]; q0++)
    for (long q1 = 0; q1 < pad->size[1]; q1++) {
      const long x0 = q0 - pad->shift[0], x1 = q1 - pad->shift[1];
      if (x0 < 0 || x0 >= g->from[0] || x1 < 0 || x1 >= g->from[1]) continue;
      const long low = pad->shift[2] < 0 ? -pad->shift[2] : 0;
      const long end = pad->size[2] - pad->shift[2], high = end < g->from[2] ? end : g->from[2];
      if (low < high)
        memcpy(copy + (q0 * pad->size[1] + q1) * pad->pitch + low + pad->shift[2],
               x + (x0 * g->from[1] + x1) * g->from[2] + low, (high - low) * sizeof(T));
    }
  for (long row = 0; row < g->to[0] * g->to[1]; row++)
    for (long at = 0; at < g->to[2]; at += 4 * LANES) {
      const T* from = copy + (row / g->to[1] * pad->size[1] + row % g->to[1]) * pad->pitch + at;
      T* to = y + row * g->to[2] + at;
      const long left = g->to[2] - at;
      if (left > 3 * LANES) TYPED(row_tile)(s, pad, from, w, to, left, 4);
      else if (left > 2 * LANES) TYPED(row_tile)(s, pad, from, w, to, left, 3);
      else if (left > LANES) TYPED(row_tile)(s, pad, from, w, to, left, 2);
      else TYPED(row_tile)(s, pad, from, w, to, left, 1);
    }
}
