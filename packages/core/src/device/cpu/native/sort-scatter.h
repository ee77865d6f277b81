// Running sums, sorting and scattered additions.
#pragma once
#include <complex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "prelude.h"
#include "scan-line.h"

/* dtype numbers as in graph/dtype.ts: bool, uint8, int32, int64, float16, bfloat16, float32, float64, complex64, complex128,
   int8, int16, uint16, uint32, uint64. Sums that wrap around are the same for signed and unsigned numbers. */
/* Iterations per grain, if one has this many elements and fewer than "least" in all are not worth threads. */
static long grain_of(long elements, long least) {
  const long per = least / 4;
  return elements > 0 && per > elements ? per / elements : 1;
}
typedef struct {
  long outer, n, inner, first, count, flag;
  int fn;
  int dtype;
  const void *x, *base, *updates;
  const int32_t* indices;
  void* out;
} order_job;
/* One item is a line where lines lie next to each other, or a block of neighboring lines, which are summed side by side. A single
   line adds four elements to each other first: every sum waits for the one before. */
#define CUMSUM_LINES 64
#define CUMSUM(name, T, LOAD, STORE, ACC, ALONG)                                                                       \
  static void name(void* const* p, long lo, long hi) {                                                                 \
    const order_job* j = p[0];                                                                                         \
    const long n = j->n, inner = j->inner, blocks = (inner + CUMSUM_LINES - 1) / CUMSUM_LINES;                         \
    for (long item = lo; item < hi; item++) {                                                                          \
      const long first = item % blocks * CUMSUM_LINES, start = item / blocks * n * inner + first;                      \
      const long lines = inner - first < CUMSUM_LINES ? inner - first : CUMSUM_LINES;                                  \
      if (inner == 1) {                                                                                                \
        const long d = j->flag ? -1 : 1;                                                                               \
        const T* x = (const T*)j->x + start + (j->flag ? n - 1 : 0);                                                   \
        T* out = (T*)j->out + start + (j->flag ? n - 1 : 0);                                                           \
        ACC sum = 0;                                                                                                   \
        long s = 0;                                                                                                    \
        ALONG(T)                                                                                                       \
        for (; s + 4 <= n; s += 4) {                                                                                   \
          const ACC a = LOAD(x[s * d]), b = a + LOAD(x[(s + 1) * d]), c = LOAD(x[(s + 2) * d]),                        \
                    e = c + LOAD(x[(s + 3) * d]);                                                                      \
          out[s * d] = STORE(sum + a);                                                                                 \
          out[(s + 1) * d] = STORE(sum + b);                                                                           \
          out[(s + 2) * d] = STORE(sum + (b + c));                                                                     \
          sum += b + e;                                                                                                \
          out[(s + 3) * d] = STORE(sum);                                                                               \
        }                                                                                                              \
        for (; s < n; s++) out[s * d] = STORE(sum += LOAD(x[s * d]));                                                  \
        continue;                                                                                                      \
      }                                                                                                                \
      ACC sums[CUMSUM_LINES] = {0};                                                                                    \
      for (long s = 0; s < n; s++) {                                                                                   \
        const long at = start + (j->flag ? n - 1 - s : s) * inner;                                                     \
        const T* x = (const T*)j->x + at;                                                                              \
        T* out = (T*)j->out + at;                                                                                      \
        for (long i = 0; i < lines; i++) out[i] = STORE(sums[i] += LOAD(x[i]));                                        \
      }                                                                                                                \
    }                                                                                                                  \
  }
#define SAME(x) (x)
#define CUMSUM_JOIN(a, b) ((a) + (b))
#define CUMSUM_JOIN_v(V, M, a, b) ((a) + (b))
#define CUMSUM_BY_FOUR(T)
#define CUMSUM_BY_VECTOR(T)                                                                                            \
  if (d == 1) {                                                                                                        \
    T all = 0;                                                                                                         \
    SCAN_BY_VECTOR(CUMSUM_JOIN, T, T, 0)                                                                               \
    sum = all;                                                                                                         \
  }
CUMSUM(cumsum_u8, uint8_t, SAME, SAME, uint8_t, CUMSUM_BY_FOUR)
CUMSUM(cumsum_u16, uint16_t, SAME, SAME, uint16_t, CUMSUM_BY_FOUR)
CUMSUM(cumsum_i32, int32_t, SAME, SAME, int32_t, CUMSUM_BY_VECTOR)
CUMSUM(cumsum_i64, int64_t, SAME, SAME, int64_t, CUMSUM_BY_VECTOR)
CUMSUM(cumsum_h, w_half, w_from_half, w_to_half, float, CUMSUM_BY_FOUR)
CUMSUM(cumsum_b, w_bfloat, w_from_bfloat, w_to_bfloat, float, CUMSUM_BY_FOUR)
CUMSUM(cumsum_f, float, SAME, SAME, double, CUMSUM_BY_FOUR)
CUMSUM(cumsum_d, double, SAME, SAME, double, CUMSUM_BY_FOUR)
CUMSUM(cumsum_c, float complex, SAME, SAME, double complex, CUMSUM_BY_FOUR)
CUMSUM(cumsum_z, double complex, SAME, SAME, double complex, CUMSUM_BY_FOUR)
static void wr_cumsum(int dtype, long outer, long n, long inner, int reverse, const void* x, void* out, int threads) {
  static const w_kernel kernels[] = {cumsum_u8, cumsum_u8,  cumsum_i32, cumsum_i64, cumsum_h,
                                     cumsum_b,  cumsum_f,   cumsum_d,   cumsum_c,   cumsum_z,
                                     cumsum_u8, cumsum_u16, cumsum_u16, cumsum_i32, cumsum_i64};
  order_job job = {.outer = outer, .n = n, .inner = inner, .flag = reverse, .x = x, .out = out};
  void* p[] = {&job};
  const long blocks = (inner + CUMSUM_LINES - 1) / CUMSUM_LINES;
  wr_share(kernels[dtype], p, 0, outer * blocks, grain_of(n * (inner / (blocks > 0 ? blocks : 1)), 65536), threads);
}

/* A number as an unsigned integer that has its place in the order: -0 equals 0, NaN is greater than every number. */
W_INLINE uint32_t float_key(float x) {
  const uint32_t u = w_f_to_bits(x == 0 ? 0.0f : x);
  return x != x ? UINT32_MAX : u >> 31 ? ~u : u | UINT32_C(1) << 31;
}
W_INLINE uint64_t double_key(double x) {
  const uint64_t u = w_d_to_bits(x == 0 ? 0.0 : x);
  return x != x ? UINT64_MAX : u >> 63 ? ~u : u | UINT64_C(1) << 63;
}
/* The keys of elements [from, from + count); "flip" has ones in all bits of a key where the order is descending. */
#define KEYS(T, key)                                                                                                   \
  for (long i = 0; i < count; i++) {                                                                                   \
    const T v = ((const T*)x)[from + i];                                                                               \
    keys[i] = (uint64_t)(key) ^ flip;                                                                                  \
  }                                                                                                                    \
  return
static void fill_keys(int dtype, const void* x, long from, long count, uint64_t flip, uint64_t* restrict keys) {
  switch (dtype) {
    case 2: KEYS(int32_t, (uint32_t)v ^ UINT32_C(1) << 31);
    case 3: KEYS(int64_t, (uint64_t)v ^ UINT64_C(1) << 63);
    case 4: KEYS(w_half, float_key(w_from_half(v)));
    case 5: KEYS(w_bfloat, float_key(w_from_bfloat(v)));
    case 6: KEYS(float, float_key(v));
    case 7: KEYS(double, double_key(v));
    case 10: KEYS(int8_t, (uint8_t)(v ^ 0x80));
    case 11: KEYS(int16_t, (uint16_t)(v ^ 0x8000));
    case 12: KEYS(uint16_t, v);
    case 13: KEYS(uint32_t, v);
    case 14: KEYS(uint64_t, v);
    default: KEYS(uint8_t, v);
  }
}
/* Bytes of a key that differ between numbers of a dtype. */
static int key_bytes(int dtype) {
  static const int bytes[] = {1, 1, 4, 8, 4, 4, 4, 8, 0, 0, 1, 2, 2, 4, 8};
  return bytes[dtype];
}
typedef struct {
  uint64_t key;
  int32_t at;
} order_item;
/* A stable sort: by insertion if there are few items, otherwise byte by byte from the lowest. Returns which of the two arrays holds
   the result. A byte that all keys share is skipped. */
static order_item* sort_items(order_item* from, order_item* to, long n, int bytes) {
  if (n <= 24) {
    for (long i = 1; i < n; i++) {
      const order_item item = from[i];
      long j = i;
      for (; j > 0 && from[j - 1].key > item.key; j--) from[j] = from[j - 1];
      from[j] = item;
    }
    return from;
  }
  for (int byte = 0; byte < bytes; byte++) {
    long places[256] = {0}, next = 0;
    for (long i = 0; i < n; i++) places[from[i].key >> 8 * byte & 255]++;
    if (places[from[0].key >> 8 * byte & 255] == n) continue;
    for (int b = 0; b < 256; b++) {
      const long count = places[b];
      places[b] = next;
      next += count;
    }
    for (long i = 0; i < n; i++) to[places[from[i].key >> 8 * byte & 255]++] = from[i];
    order_item* swap = from;
    from = to;
    to = swap;
  }
  return from;
}
/* The key of place "rank" (from 1) of the order, byte by byte from the highest, and the number of items with smaller keys. */
static uint64_t key_at(const order_item* items, long n, long rank, int bytes, long* smaller) {
  uint64_t key = 0, known = 0;
  *smaller = 0;
  for (int byte = bytes - 1; byte >= 0; byte--) {
    long counts[256] = {0};
    for (long i = 0; i < n; i++)
      if ((items[i].key & known) == key) counts[items[i].key >> 8 * byte & 255]++;
    int b = 0;
    for (; *smaller + counts[b] < rank; b++) *smaller += counts[b];
    known |= UINT64_C(255) << 8 * byte;
    key |= (uint64_t)b << 8 * byte;
  }
  return key;
}
/* The "count" items of the order from "first" on: those between the keys of the first and the last one, and of their equals those that
   belong there. Items keep their order; returns their number. */
static long select_items(order_item* items, long n, long first, long count, int bytes) {
  long below = 0, before, m = 0;
  const uint64_t last = key_at(items, n, first + count, bytes, &before);
  const uint64_t low = first > 0 ? key_at(items, n, first + 1, bytes, &below) : 0;
  long skipped = first - below, equals = first + count - before;
  for (long i = 0; i < n; i++) {
    const uint64_t key = items[i].key;
    const int inside = key < last || (key == last && equals-- > 0);
    if (inside && (key > low || (key == low && skipped-- <= 0))) items[m++] = items[i];
  }
  return m;
}
typedef struct {
  order_job job;
  order_item *items, *other;
  long length; /* of a sorted part, while parts of one long row are merged */
  atomic_int failed;
} sort_job;
/* Keys are made in blocks that stay in the first-level cache. */
#define KEY_BLOCK 1024
static uint64_t order_flip(const order_job* j) { return j->flag ? UINT64_MAX >> (64 - 8 * key_bytes(j->dtype)) : 0; }
static void fill_items(const order_job* j, long row, long from, long to, order_item* items) {
  uint64_t keys[KEY_BLOCK];
  for (long at = from; at < to; at += KEY_BLOCK) {
    const long count = to - at < KEY_BLOCK ? to - at : KEY_BLOCK;
    fill_keys(j->dtype, j->x, row * j->n + at, count, order_flip(j), keys);
    for (long i = 0; i < count; i++) items[at - from + i] = (order_item){keys[i], (int32_t)(at + i)};
  }
}
/* The items of a row that come before all others, at least "count" of them and room for more: elements that are not before the worst of
   those found so far are passed over, mostly a part of a block at a time. Returns their number. */
#define KEY_PART 16
#define BEST_ROOM(count) (2 * (count) + KEY_BLOCK)
static long best_items(const order_job* j, long row, long count, order_item* items) {
  const int bytes = key_bytes(j->dtype);
  uint64_t keys[KEY_BLOCK], worst = UINT64_MAX;
  long m = 0, full = 0;
  for (long at = 0; at < j->n; at += KEY_BLOCK / 2) {
    const long length = j->n - at < KEY_BLOCK / 2 ? j->n - at : KEY_BLOCK / 2;
    fill_keys(j->dtype, j->x, row * j->n + at, length, order_flip(j), keys);
    if (!full)
      for (long i = 0; i < length; i++) items[m++] = (order_item){keys[i], (int32_t)(at + i)};
    for (long part = 0; part < (full ? length : 0); part += KEY_PART) {
      const long end = length - part < KEY_PART ? length - part : KEY_PART;
      int some = 0;
      for (long i = 0; i < end; i++) some |= keys[part + i] < worst;
      for (long i = 0; i < (some ? end : 0); i++)
        if (keys[part + i] < worst) items[m++] = (order_item){keys[part + i], (int32_t)(at + part + i)};
    }
    if (m < 2 * count + KEY_BLOCK / 2 && (full || m < 4 * count)) continue;
    m = select_items(items, m, 0, count, bytes);
    worst = 0, full = 1;
    for (long i = 0; i < m; i++) worst = items[i].key > worst ? items[i].key : worst;
  }
  return m;
}
/* The items of a row among which its places [first, first + count) are, and in "below" the number of items before them: by the highest
   bits of their keys. */
#define KEY_BINS 2048
static long near_items(const order_job* j, long row, order_item* items, long* below) {
  const int bits = 8 * key_bytes(j->dtype), shift = bits > 11 ? bits - 11 : 0;
  int32_t counts[KEY_BINS] = {0};
  uint64_t keys[KEY_BLOCK];
  for (long at = 0; at < j->n; at += KEY_BLOCK) {
    const long length = j->n - at < KEY_BLOCK ? j->n - at : KEY_BLOCK;
    fill_keys(j->dtype, j->x, row * j->n + at, length, order_flip(j), keys);
    for (long i = 0; i < length; i++) counts[keys[i] >> shift]++;
  }
  uint64_t low = 0, high;
  for (*below = 0; *below + counts[low] <= j->first; low++) *below += counts[low];
  long upto = *below;
  for (high = low; upto + counts[high] < j->first + j->count; high++) upto += counts[high];
  long m = 0;
  for (long at = 0; at < j->n; at += KEY_BLOCK) {
    const long length = j->n - at < KEY_BLOCK ? j->n - at : KEY_BLOCK;
    fill_keys(j->dtype, j->x, row * j->n + at, length, order_flip(j), keys);
    for (long i = 0; i < length; i++) {
      items[m] = (order_item){keys[i], (int32_t)(at + i)};
      m += (keys[i] >> shift) - low <= high - low;
    }
  }
  return m;
}
static void argsort_rows(void* const* p, long lo, long hi) {
  sort_job* s = p[0];
  const order_job* j = &s->job;
  const long n = j->n, first = j->first, count = j->count;
  const int bytes = key_bytes(j->dtype), selects = count < n / 4, best = first == 0 && count < n / 64;
  /* One item more than needed: loops write before they decide. */
  const long room = best ? BEST_ROOM(count) + KEY_BLOCK : n;
  order_item* items = malloc((2 * room + 1) * sizeof(order_item));
  if (!items) {
    atomic_store(&s->failed, 1);
    return;
  }
  for (long r = lo; r < hi; r++) {
    long m = n, start = first, below = 0;
    if (best) m = best_items(j, r, count, items);
    else if (selects) m = near_items(j, r, items, &below), start = first - below;
    else fill_items(j, r, 0, n, items);
    if (selects && count < m / 4) m = select_items(items, m, start, count, bytes), start = 0;
    const order_item* sorted = sort_items(items, items + room, m, bytes) + start;
    for (long i = 0; i < count; i++) ((int32_t*)j->out)[r * count + i] = sorted[i].at;
  }
  free(items);
}
/* One long row: parts are sorted at the same time, and then merged in pairs. Keys of up to four bytes are sorted together with their
   places in one number each, eleven bits at a time: half of the memory, and a pass less. */
#define DIGIT_BITS 11
static uint64_t* sort_packed(uint64_t* from, uint64_t* to, long n) {
  enum { digits = 1 << DIGIT_BITS };
  for (int shift = 32; shift < 64; shift += DIGIT_BITS) {
    long places[digits] = {0}, next = 0;
    for (long i = 0; i < n; i++) places[from[i] >> shift & (digits - 1)]++;
    if (n > 0 && places[from[0] >> shift & (digits - 1)] == n) continue;
    for (int d = 0; d < digits; d++) {
      const long count = places[d];
      places[d] = next;
      next += count;
    }
    for (long i = 0; i < n; i++) to[places[from[i] >> shift & (digits - 1)]++] = from[i];
    uint64_t* swap = from;
    from = to;
    to = swap;
  }
  return from;
}
static void sort_parts(void* const* p, long lo, long hi) {
  sort_job* s = p[0];
  const order_job* j = &s->job;
  for (long part = lo; part < hi; part++) {
    const long from = part * s->length, end = from + s->length, to = end < j->n ? end : j->n;
    if (from >= to) continue;
    if (key_bytes(j->dtype) > 4) {
      fill_items(j, 0, from, to, s->items + from);
      const order_item* sorted = sort_items(s->items + from, s->other + from, to - from, key_bytes(j->dtype));
      if (sorted != s->items + from) memcpy(s->items + from, sorted, (to - from) * sizeof(order_item));
      continue;
    }
    uint64_t* packed = (uint64_t*)s->items + from;
    for (long at = from; at < to; at += KEY_BLOCK) {
      const long count = to - at < KEY_BLOCK ? to - at : KEY_BLOCK;
      fill_keys(j->dtype, j->x, at, count, order_flip(j), packed + (at - from));
      for (long i = 0; i < count; i++) packed[at - from + i] = packed[at - from + i] << 32 | (uint64_t)(at + i);
    }
    const uint64_t* sorted = sort_packed(packed, (uint64_t*)s->other + from, to - from);
    if (sorted != packed) memcpy(packed, sorted, (to - from) * sizeof(uint64_t));
  }
}
#define MERGE(T, KEY)                                                                                                  \
  for (long k = from; k < to; k++) {                                                                                   \
    const int first = i < mid && (j >= to || ((T*)s->items)[i] KEY <= ((T*)s->items)[j] KEY);                          \
    ((T*)s->other)[k] = ((T*)s->items)[first ? i : j];                                                                 \
    i += first, j += !first;                                                                                           \
  }
static void merge_parts(void* const* p, long lo, long hi) {
  sort_job* s = p[0];
  for (long pair = lo; pair < hi; pair++) {
    const long n = s->job.n, from = pair * 2 * s->length;
    const long mid = from + s->length < n ? from + s->length : n,
               to = from + 2 * s->length < n ? from + 2 * s->length : n;
    long i = from, j = mid;
    if (key_bytes(s->job.dtype) > 4) MERGE(order_item, .key)
    else MERGE(uint64_t, )
  }
}
static int argsort_long(sort_job* s, int threads) {
  const long n = s->job.n;
  const int packed = key_bytes(s->job.dtype) <= 4;
  s->items = malloc(n * (packed ? sizeof(uint64_t) : sizeof(order_item)));
  s->other = malloc(n * (packed ? sizeof(uint64_t) : sizeof(order_item)));
  int failed = !s->items || !s->other;
  if (!failed) {
    void* p[] = {s};
    s->length = (n + threads - 1) / threads;
    wr_share(sort_parts, p, 0, threads, 1, threads);
    for (; s->length < n; s->length *= 2) {
      wr_share(merge_parts, p, 0, (n + 2 * s->length - 1) / (2 * s->length), 1, threads);
      order_item* swap = s->items;
      s->items = s->other;
      s->other = swap;
    }
    int32_t* out = s->job.out;
    for (long i = 0; i < s->job.count; i++)
      out[i] = packed ? (int32_t)((const uint64_t*)s->items)[s->job.first + i] : s->items[s->job.first + i].at;
  }
  free(s->items);
  free(s->other);
  return failed;
}
#include "sort-short.h"

/* Not 0: out of memory. */
static int wr_argsort(int dtype, long rows, long n, long first, long count, int descending, const void* x, int32_t* out,
                      int threads) {
  sort_job s = {
      .job = {.n = n, .first = first, .count = count, .dtype = dtype, .flag = descending, .x = x, .out = out}};
  if (count == 0) return 0;
  if (rows == 1 && n > 65536 && count > n / 4) return argsort_long(&s, threads);
  void* p[] = {&s};
  if (n <= SHORT_ROW && rows >= SHORT_ROWS) {
    s.job.outer = rows;
    wr_share(argsort_short, p, 0, (rows + SHORT_LANES - 1) / SHORT_LANES, grain_of(n * SHORT_LANES, 16384), threads);
    return 0;
  }
  wr_share(argsort_rows, p, 0, rows, grain_of(n, 16384), threads);
  return atomic_load(&s.failed);
}

/* Rows of the result are shared out among threads: each reads all indices and adds only into its own rows, so the
   order of additions, and with it the result, does not depend on the number of threads. Neither does the number of parts below. */
#define SCATTER_PARTS 4
/* Updates of single elements: each is so little work that several threads, which all read all indices and cannot predict which are their
   own, take longer than one. More than this many have few elements each, and pass over the others. */
#define SCATTER_ALONE 4
#define SCATTER(name, T, LOAD, STORE)                                                                                  \
  static void name(void* const* job, long from, long to) {                                                             \
    const order_job* j = job[0];                                                                                       \
    const long n = j->n, after = j->inner, count = j->count;                                                           \
    const long lo = j->first ? 0 : from, hi = j->first ? n : to;                                                       \
    for (long block = j->first ? from : 0; block < (j->first ? to : j->flag * j->outer); block++) {                    \
      T* out = (T*)j->out + block * n * after;                                                                         \
      const T* f = (const T*)j->updates + block * count * after;                                                       \
      const int32_t* indices = j->indices + block / j->outer * count;                                                  \
      const long size = (hi - lo) * after * sizeof(T);                                                                 \
      if (j->base) memcpy(out + lo * after, (const T*)j->base + block * n * after + lo * after, size);                 \
      else memset((void*)(out + lo * after), 0, size);                                                                 \
      /* Loops of their own for single elements: they are a few instructions each. */                                  \
      if (after == 1 && !j->updates)                                                                                   \
        for (long i = 0; i < count; i++) {                                                                             \
          const long row = indices[i];                                                                                 \
          if (row >= lo && row < hi) out[row] = STORE(LOAD(out[row]) + 1);                                             \
        }                                                                                                              \
      else if (after == 1)                                                                                             \
        for (long i = 0; i < count; i++) {                                                                             \
          const long row = indices[i];                                                                                 \
          if (row >= lo && row < hi) out[row] = STORE(LOAD(out[row]) + LOAD(f[i]));                                    \
        }                                                                                                              \
      else                                                                                                             \
        for (long i = 0; i < count; i++) {                                                                             \
          const long row = indices[i];                                                                                 \
          if (row < lo || row >= hi) continue;                                                                         \
          T* t = out + row * after;                                                                                    \
          if (!j->updates)                                                                                             \
            for (long k = 0; k < after; k++) t[k] = STORE(LOAD(t[k]) + 1);                                             \
          else                                                                                                         \
            for (long k = 0; k < after; k++) t[k] = STORE(LOAD(t[k]) + LOAD(f[i * after + k]));                        \
        }                                                                                                              \
    }                                                                                                                  \
  }                                                                                                                    \
  static void name##_sum(void* const* job, long lo, long hi) {                                                         \
    const order_job* j = job[0];                                                                                       \
    T* out = j->out;                                                                                                   \
    for (long part = 1; part < SCATTER_PARTS; part++) {                                                                \
      const T* more = (const T*)j->base + (part - 1) * j->n * j->inner;                                                \
      for (long i = lo; i < hi; i++) out[i] = STORE(LOAD(out[i]) + LOAD(more[i]));                                     \
    }                                                                                                                  \
  }
SCATTER(scatter_u8, uint8_t, SAME, SAME)
SCATTER(scatter_u16, uint16_t, SAME, SAME)
SCATTER(scatter_i32, int32_t, SAME, SAME)
SCATTER(scatter_i64, int64_t, SAME, SAME)
SCATTER(scatter_h, w_half, w_from_half, w_to_half)
SCATTER(scatter_b, w_bfloat, w_from_bfloat, w_to_bfloat)
SCATTER(scatter_f, float, SAME, SAME)
SCATTER(scatter_d, double, SAME, SAME)
SCATTER(scatter_c, float complex, SAME, SAME)
SCATTER(scatter_z, double complex, SAME, SAME)
/* Runs a kernel over the blocks of a batch where there are enough of them, otherwise over ranges of rows of all blocks, one per thread:
   each reads all indices. */
static void scatter_share(w_kernel fn, order_job* job, long work, int threads) {
  void* p[] = {job};
  const long blocks = job->flag * job->outer, n = job->n;
  job->first = blocks >= 2L * threads;
  const long units = job->first ? blocks : n;
  const int alone = work <= 65536 || (!job->first && job->inner == 1 && threads <= SCATTER_ALONE);
  pool_run(fn, p, 0, units, alone ? 1 : units < threads ? units : threads, work / 2e4);
}

/* The kernels of a dtype: updates of a result, and results of parts of the updates joined. */
typedef struct {
  w_kernel add, join;
  long bytes;
} scatter_kernels;
/* Parts [lo, hi) of the updates, each into a result of its own. */
static void scatter_parts(void* const* p, long lo, long hi) {
  const order_job* all = p[0];
  char* more = p[1];
  const scatter_kernels* kernels = p[2];
  for (long part = lo; part < hi; part++) {
    order_job job = *all;
    const long from = all->count * part / SCATTER_PARTS;
    job.count = all->count * (part + 1) / SCATTER_PARTS - from;
    job.indices += from;
    if (all->updates) job.updates = (const char*)all->updates + from * all->inner * kernels->bytes;
    if (part > 0) job.base = NULL, job.out = more + (part - 1) * all->n * all->inner * kernels->bytes;
    kernels->add((void*[]){&job}, 0, all->n);
  }
}
/* "flag" is the number of batches. Many updates of few rows: parts of them have results of their own, which are joined in their order. */
static void scatter_all(const scatter_kernels* kernels, order_job* job, int threads) {
  const long n = job->n, after = job->inner, work = job->flag * job->outer * (n + job->count) * after;
  if (job->flag * job->outer == 1 && work > 65536 && job->count >= 4 * SCATTER_PARTS * n) {
    char* more = malloc((SCATTER_PARTS - 1) * n * after * kernels->bytes);
    if (more) {
      pool_run(scatter_parts, (void*[]){job, more, (void*)kernels}, 0, SCATTER_PARTS, SCATTER_PARTS, work / 2e4);
      job->base = more;
      wr_share(kernels->join, (void*[]){job}, 0, n * after, 16384, threads);
      free(more);
      return;
    }
  }
  scatter_share(kernels->add, job, work, threads);
}

/* Without updates, ones are added. */
static void wr_scatter(int dtype, long batch, long before, long n, long after, long count, const void* base,
                       const int32_t* indices, const void* updates, void* out, int threads) {
  static const scatter_kernels scatters[] = {
      {scatter_u8, scatter_u8_sum, 1},   {scatter_u8, scatter_u8_sum, 1},   {scatter_i32, scatter_i32_sum, 4},
      {scatter_i64, scatter_i64_sum, 8}, {scatter_h, scatter_h_sum, 2},     {scatter_b, scatter_b_sum, 2},
      {scatter_f, scatter_f_sum, 4},     {scatter_d, scatter_d_sum, 8},     {scatter_c, scatter_c_sum, 8},
      {scatter_z, scatter_z_sum, 16},    {scatter_u8, scatter_u8_sum, 1},   {scatter_u16, scatter_u16_sum, 2},
      {scatter_u16, scatter_u16_sum, 2}, {scatter_i32, scatter_i32_sum, 4}, {scatter_i64, scatter_i64_sum, 8}};
  order_job job = {.outer = before,
                   .n = n,
                   .inner = after,
                   .count = count,
                   .flag = batch,
                   .dtype = dtype,
                   .base = base,
                   .updates = updates,
                   .indices = indices,
                   .out = out};
  scatter_all(&scatters[dtype], &job, threads);
}

/* Products and extremes of elements and their updates; NaN wins. Chunks are ranges of rows of the result. Without a base, elements are
   those that change nothing. */
#define REDUCE_PROD(x, old) ((old) * (x))
#define REDUCE_MAX(x, old) ((x) > (old) || (x) != (x) ? (x) : (old))
#define REDUCE_MIN(x, old) ((x) < (old) || (x) != (x) ? (x) : (old))
#define SCATTER_UPDATES(T, JOIN)                                                                                       \
  if (after == 1)                                                                                                      \
    for (long i = 0; i < count; i++) {                                                                                 \
      const long row = indices[i];                                                                                     \
      if (row < lo || row >= hi) continue;                                                                             \
      const T x = f[i], old = out[row];                                                                                \
      out[row] = JOIN(x, old);                                                                                         \
    }                                                                                                                  \
  else                                                                                                                 \
    for (long i = 0; i < count; i++, f += after) {                                                                     \
      const long row = indices[i];                                                                                     \
      if (row < lo || row >= hi) continue;                                                                             \
      T* t = out + row * after;                                                                                        \
      for (long k = 0; k < after; k++) t[k] = JOIN(f[k], t[k]);                                                        \
    }
#define SCATTER_JOIN(T, JOIN)                                                                                          \
  for (long i = lo; i < hi; i++) out[i] = JOIN(more[i], out[i]);
#define SCATTER_REDUCE(name, T, lowest, highest)                                                                       \
  static void name(void* const* job, long from, long to) {                                                             \
    const order_job* j = job[0];                                                                                       \
    const long n = j->n, after = j->inner, count = j->count;                                                           \
    const long lo = j->first ? 0 : from, hi = j->first ? n : to;                                                       \
    const int fn = j->fn;                                                                                              \
    const T start = fn == 0 ? 1 : fn == 1 ? lowest : highest;                                                          \
    for (long block = j->first ? from : 0; block < (j->first ? to : j->flag * j->outer); block++) {                    \
      T* out = (T*)j->out + block * n * after;                                                                         \
      const T* f = (const T*)j->updates + block * count * after;                                                       \
      const int32_t* indices = j->indices + block / j->outer * count;                                                  \
      if (!j->base)                                                                                                    \
        for (long i = lo * after; i < hi * after; i++) out[i] = start;                                                 \
      else                                                                                                             \
        memcpy(out + lo * after, (const T*)j->base + block * n * after + lo * after, (hi - lo) * after * sizeof(T));   \
      if (fn == 0) SCATTER_UPDATES(T, REDUCE_PROD)                                                                     \
      else if (fn == 1) SCATTER_UPDATES(T, REDUCE_MAX)                                                                 \
      else SCATTER_UPDATES(T, REDUCE_MIN)                                                                              \
    }                                                                                                                  \
  }                                                                                                                    \
  static void name##_join(void* const* job, long lo, long hi) {                                                        \
    const order_job* j = job[0];                                                                                       \
    T* out = j->out;                                                                                                   \
    for (long part = 1; part < SCATTER_PARTS; part++) {                                                                \
      const T* more = (const T*)j->base + (part - 1) * j->n * j->inner;                                                \
      if (j->fn == 0) SCATTER_JOIN(T, REDUCE_PROD)                                                                     \
      else if (j->fn == 1) SCATTER_JOIN(T, REDUCE_MAX)                                                                 \
      else SCATTER_JOIN(T, REDUCE_MIN)                                                                                 \
    }                                                                                                                  \
  }
SCATTER_REDUCE(reduced_i32, int32_t, INT32_MIN, INT32_MAX)
SCATTER_REDUCE(reduced_i64, int64_t, INT64_MIN, INT64_MAX)
SCATTER_REDUCE(reduced_u32, uint32_t, 0, UINT32_MAX)
SCATTER_REDUCE(reduced_u64, uint64_t, 0, UINT64_MAX)
SCATTER_REDUCE(reduced_f, float, -w_inf_f(), w_inf_f())
SCATTER_REDUCE(reduced_d, double, -w_inf_d(), w_inf_d())

static void wr_scatter_reduce(int dtype, int fn, long batch, long before, long n, long after, long count,
                              const void* base, const int32_t* indices, const void* updates, void* out, int threads) {
  /* By the number of the dtype; others have neither. */
  static const scatter_kernels reduces[] = {
      [2] = {reduced_i32, reduced_i32_join, 4},  [3] = {reduced_i64, reduced_i64_join, 8},
      [6] = {reduced_f, reduced_f_join, 4},      [7] = {reduced_d, reduced_d_join, 8},
      [13] = {reduced_u32, reduced_u32_join, 4}, [14] = {reduced_u64, reduced_u64_join, 8}};
  order_job job = {.outer = before,
                   .n = n,
                   .inner = after,
                   .count = count,
                   .flag = batch,
                   .fn = fn,
                   .dtype = dtype,
                   .base = base,
                   .indices = indices,
                   .updates = updates,
                   .out = out};
  scatter_all(&reduces[dtype], &job, threads);
}
