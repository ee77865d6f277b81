// Convolutions with few channels per group, channels first: a vector is several pixels of a row. Part of conv-typed.c. The planes of a
// group are copied with zeros around them, the places of a row in the order of their remainders by the stride, so that the windows of
// neighboring pixels are neighbors. Sums of several rows stay in registers; every vector of the copy is read once for all taps of a column.
#pragma once

/* A plane with zeros around it. "shift" is the place of its first element; a row has "phases" parts of "each" elements. */
typedef struct {
  long from[3], to[3], size[3], shift[3], stride[3], phases, each, pitch;
  long parts, plane;  /* planes that a result reads, and the elements of a copy of one */
  const long* places; /* where each tap of a row begins in a row of the copy */
} TYPED(padded);
static TYPED(padded) TYPED(padded_of)(const wc_shape* s) {
  const int back = s->kind == 1;
  TYPED(padded) p;
  for (int i = 0; i < 3; i++) {
    const long reach = s->dilation[i] * (s->k[i] - 1);
    p.from[i] = back ? s->y[i] : s->x[i];
    p.to[i] = back ? s->x[i] : s->y[i];
    p.stride[i] = back ? 1 : s->stride[i];
    p.size[i] = p.stride[i] * (p.to[i] - 1) + reach + 1;
    p.shift[i] = back ? reach - s->low[i] : s->low[i];
  }
  p.phases = p.stride[2];
  p.each = (p.to[2] + LANES - 1) / LANES * LANES + s->dilation[2] * (s->k[2] - 1) / p.phases + 1;
  p.pitch = p.phases * p.each;
  p.parts = (back ? s->o : s->c) / s->groups;
  p.plane = p.size[0] * p.size[1] * p.pitch;
  return p;
}
/* "copy" has room for the plane with its zeros, which are there already; "row" for one row. */
static void TYPED(fill_plane)(const wc_shape* s, const TYPED(padded) * pad, const void* x, long first, T* copy,
                              T* row) {
  const long low = pad->shift[2] < 0 ? -pad->shift[2] : 0;
  const long end = pad->size[2] - pad->shift[2], high = end < pad->from[2] ? end : pad->from[2];
  for (long q0 = 0; q0 < pad->size[0]; q0++)
    for (long q1 = 0; q1 < pad->size[1]; q1++) {
      const long x0 = q0 - pad->shift[0], x1 = q1 - pad->shift[1];
      if (x0 < 0 || x0 >= pad->from[0] || x1 < 0 || x1 >= pad->from[1] || low >= high) continue;
      const long from = first + (x0 * pad->from[1] + x1) * pad->from[2];
      T* line = copy + (q0 * pad->size[1] + q1) * pad->pitch;
      if (pad->phases == 1) {
        TYPED(widen)(s, x, from + low, high - low, line + low + pad->shift[2]);
        continue;
      }
      TYPED(widen)(s, x, from + low, high - low, row);
      for (long k = 0; k < high - low && k < pad->phases; k++) {
        const long q = low + pad->shift[2] + k, count = (high - low - k + pad->phases - 1) / pad->phases;
        T* restrict to = line + q % pad->phases * pad->each + q / pad->phases;
        const T* restrict part = row + k;
        if (pad->phases == 2)
          for (long i = 0; i < count; i++) to[i] = part[2 * i];
        else
          for (long i = 0; i < count; i++) to[i] = part[pad->phases * i];
      }
    }
}
#if BYTES == 4
typedef uint32_t TYPED(lane_bits) __attribute__((vector_size(64), aligned(4), may_alias));
#else
typedef uint64_t TYPED(lane_bits) __attribute__((vector_size(64), aligned(8), may_alias));
#endif
/* "rows" rows from x and y on: a vector of each, and one that begins at "second". Rows of y are "pitch" apart. */
ALWAYS void TYPED(row_tile)(const wc_shape* s, const TYPED(padded) * pad, const T* x, const T* w, T* y, long pitch,
                            long second, int rows, int vectors) {
  const long k1 = s->k[1], k2 = s->k[2], step = pad->stride[1], apart = s->dilation[1];
  TYPED(vec) sums[8][2] = {0};
  for (long k0 = 0; k0 < pad->parts * s->k[0]; k0++)
    for (long q = 0; q < step * (rows - 1) + apart * (k1 - 1) + 1; q++) {
      const T* plane = x + k0 / s->k[0] * pad->plane;
      const T* line = plane + (k0 % s->k[0] * s->dilation[0] * pad->size[1] + q) * pad->pitch;
      const T* taps[8];
      int any = 0;
      UNROLL for (int r = 0; r < rows; r++) {
        const long t = q - step * r, tap = apart == 1 ? t : t % apart == 0 ? t / apart : -1;
        const int here = tap >= 0 && tap < k1;
        taps[r] = here ? w + (k0 * k1 + tap) * k2 : NULL;
        any |= here;
      }
      for (long k = 0; k < (any ? k2 : 0); k++) {
        const T* from = line + pad->places[k];
        TYPED(vec) values[2];
        UNROLL for (int v = 0; v < vectors; v++) values[v] = *(const TYPED(vec)*)(from + v * second);
        UNROLL for (int r = 0; r < rows; r++) if (taps[r]) UNROLL for (int v = 0; v < vectors; v++) sums[r][v] +=
            taps[r][k] * values[v];
      }
    }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) *
      (TYPED(vec)*)(y + r * pitch + v * second) = sums[r][v];
}
/* The result of a plane; "w" is in the order in which the copy is read. Rows of y, "pitch" apart, have at least a vector. */
static void TYPED(padded_plane)(const wc_shape* s, const TYPED(padded) * pad, const T* copy, const T* w, T* y,
                                long pitch) {
  for (long i0 = 0; i0 < pad->to[0]; i0++)
    for (long done2 = 0; done2 < pitch; done2 += 2 * LANES) {
      /* The last vector of a row and the last tile of a column begin earlier: some results are computed twice. */
      const long left = pitch - done2, all = pad->to[1], two = left > LANES;
      const long at = left >= LANES ? done2 : pitch - LANES, second = left < 2 * LANES ? left - LANES : LANES;
      const long rows = !two && all >= 8 ? 8 : all >= 4 ? 4 : 1;
      for (long done = 0; done < all; done += rows) {
        const long i1 = done + rows <= all ? done : all - rows;
        const T* from = copy + (pad->stride[0] * i0 * pad->size[1] + pad->stride[1] * i1) * pad->pitch + at;
        T* to = y + (i0 * all + i1) * pitch + at;
        if (rows == 8) TYPED(row_tile)(s, pad, from, w, to, pitch, 0, 8, 1);
        else if (rows == 4 && two) TYPED(row_tile)(s, pad, from, w, to, pitch, second, 4, 2);
        else if (rows == 4) TYPED(row_tile)(s, pad, from, w, to, pitch, 0, 4, 1);
        else if (two) TYPED(row_tile)(s, pad, from, w, to, pitch, second, 1, 2);
        else TYPED(row_tile)(s, pad, from, w, to, pitch, 0, 1, 1);
      }
    }
}
/* Adds the products of a plane of gradients "y" with windows of the copy to taps [k, k + count) of a row of the kernel. Rows of y are
   "pitch" apart; "mask" has the lanes of their last vector that are not in the one before. */
ALWAYS void TYPED(plane_taps)(const TYPED(padded) * pad, const T* copy, const T* y, long pitch, TYPED(lane_bits) mask,
                              T* taps, long k, int count) {
  TYPED(vec) sums[8] = {0};
  long at[8];
  UNROLL for (int q = 0; q < count; q++) at[q] = pad->places[k + q];
  const long whole = pitch / LANES * LANES, last = pitch - LANES;
  for (long i0 = 0; i0 < pad->to[0]; i0++)
    for (long i1 = 0; i1 < pad->to[1]; i1++) {
      const T* from = copy + (pad->stride[0] * i0 * pad->size[1] + pad->stride[1] * i1) * pad->pitch;
      const T* line = y + (i0 * pad->to[1] + i1) * pitch;
      for (long i = 0; i < (pad->to[2] < LANES ? 0 : whole); i += LANES) {
        const TYPED(vec) value = *(const TYPED(vec)*)(line + i);
        UNROLL for (int q = 0; q < count; q++) sums[q] += value * *(const TYPED(vec)*)(from + at[q] + i);
      }
      if (pad->to[2] % LANES == 0) continue;
      /* Both operands are cut: what follows in the copy may be infinite. */
      const TYPED(vec) value = (TYPED(vec))(*(const TYPED(lane_bits)*)(line + last) & mask);
      UNROLL for (int q = 0; q < count; q++) sums[q] +=
          value * (TYPED(vec))(*(const TYPED(lane_bits)*)(from + at[q] + last) & mask);
    }
  UNROLL for (int q = 0; q < count; q++) for (int i = 0; i < LANES; i++) taps[k + q] += sums[q][i];
}
static void TYPED(all_taps)(const wc_shape* s, const TYPED(padded) * pad, const T* copy, const T* y, long pitch,
                            T* taps) {
  TYPED(lane_bits) mask;
  for (long i = 0; i < LANES; i++) mask[i] = -(pad->to[2] < LANES ? i < pad->to[2] : i >= LANES - pad->to[2] % LANES);
  for (long k0 = 0; k0 < s->k[0]; k0++)
    for (long k1 = 0; k1 < s->k[1]; k1++) {
      const T* from = copy + (k0 * s->dilation[0] * pad->size[1] + k1 * s->dilation[1]) * pad->pitch;
      T* to = taps + (k0 * s->k[1] + k1) * s->k[2];
      for (long k = 0, count; k < s->k[2]; k += count) {
        const long rest = s->k[2] - k;
        count = rest >= 7 ? 7 : rest >= 5 ? 5 : rest >= 3 ? 3 : 1;
        if (count == 7) TYPED(plane_taps)(pad, from, y, pitch, mask, to, k, 7);
        else if (count == 5) TYPED(plane_taps)(pad, from, y, pitch, mask, to, k, 5);
        else if (count == 3) TYPED(plane_taps)(pad, from, y, pitch, mask, to, k, 3);
        else TYPED(plane_taps)(pad, from, y, pitch, mask, to, k, 1);
      }
    }
}

typedef struct {
  const wc_shape* s;
  const void* a;
  const void* b;
  void* out;
  atomic_int failed;
} TYPED(planes_job);
/* Groups [lo, hi) of images, or of channels for gradients of the weight. */
static void TYPED(plane_items)(void* const* p, long lo, long hi) {
  TYPED(planes_job)* j = p[0];
  const wc_shape* s = j->s;
  TYPED(padded) pad = TYPED(padded_of)(s);
  const long k = wc_volume(s->k), from = wc_volume(pad.from), to = wc_volume(pad.to), parts = pad.parts;
  const long in = s->c / s->groups, out = s->o / s->groups, results = s->kind == 1 ? in : out;
  const long rows = pad.to[0] * pad.to[1], taps_count = in * out * k;
  /* Rows of less than a vector have one of their own. */
  const long pitch = pad.to[2] < LANES ? LANES : pad.to[2], apart = pitch > pad.to[2];
  T* copy = calloc(parts * pad.plane + 2 * LANES, sizeof(T));
  T* taps = calloc(taps_count + rows * pitch + pad.from[2], sizeof(T));
  T *result = taps + taps_count, *row = result + rows * pitch;
  long* places = malloc(s->k[2] * sizeof(long));
  if (!copy || !taps || !places) {
    atomic_store(&j->failed, 1);
    lo = hi;
  }
  for (long t = 0; lo < hi && t < s->k[2]; t++) {
    const long at = s->dilation[2] * t;
    places[t] = at % pad.phases * pad.each + at / pad.phases;
  }
  pad.places = places;
  for (long item = lo; item < hi; item++) {
    const long group = item % s->groups;
    for (long n = s->kind == 2 ? 0 : item / s->groups; n < (s->kind == 2 ? s->n : item / s->groups + 1); n++) {
      for (long part = 0; part < parts; part++)
        TYPED(fill_plane)(s, &pad, j->a, ((n * s->groups + group) * parts + part) * from, copy + part * pad.plane, row);
      for (long r = 0; r < results; r++) {
        const long plane = ((n * s->groups + group) * results + r) * to;
        if (s->kind == 2) {
          if (IS_HALF(s) || apart)
            for (long i = 0; i < (apart ? rows : 1); i++)
              TYPED(widen)(s, j->b, plane + i * pad.to[2], apart ? pad.to[2] : to, result + i * pitch);
          const T* y = IS_HALF(s) || apart ? result : (const T*)j->b + plane;
          for (long i = 0; i < in; i++)
            TYPED(all_taps)(s, &pad, copy + i * pad.plane, y, pitch, taps + (r * in + i) * k);
          continue;
        }
        for (long part = 0; part < parts; part++) {
          const long at = s->kind == 1 ? (group * out + part) * in + r : (group * out + r) * in + part;
          for (long t = 0; t < k; t++)
            TYPED(widen)(s, j->b, at * k + (s->kind == 1 ? k - 1 - t : t), 1, taps + part * k + t);
        }
        T* y = IS_HALF(s) || apart ? result : (T*)j->out + plane;
        TYPED(padded_plane)(s, &pad, copy, taps, y, pitch);
        for (long i = 0; i < rows && apart; i++) memmove(y + i * pad.to[2], y + i * pitch, pad.to[2] * sizeof(T));
        if (IS_HALF(s)) TYPED(narrow)(y, j->out, plane, to);
        else if (apart) memcpy((T*)j->out + plane, y, to * sizeof(T));
      }
    }
    for (long t = 0; t < (s->kind == 2 ? taps_count : 0); t++) {
      TYPED(put)(s, j->out, group * taps_count + t, taps[t]);
      taps[t] = 0;
    }
  }
  free(places);
  free(copy);
  free(taps);
}
/* Whether these loops are for a convolution; gradients of inputs only without strides. */
static int TYPED(is_planes)(const wc_shape* s) {
  const long in = s->c / s->groups, out = s->o / s->groups;
  return !s->last && in <= 8 && out <= 8 && (s->groups > 1 || (s->n > 1 && in * out <= 16)) &&
         (s->kind != 1 || s->stride[0] * s->stride[1] * s->stride[2] == 1);
}
static int TYPED(run_planes)(const wc_shape* s, const void* a, const void* b, void* out, int threads, double work) {
  TYPED(planes_job) job = {.s = s, .a = a, .b = b, .out = out};
  wx_share(TYPED(plane_items), (void*[]){&job}, (s->kind == 2 ? 1 : s->n) * s->groups, threads, work);
  return atomic_load(&job.failed);
}
