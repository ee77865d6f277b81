// Orders of many short rows: a network of comparisons, which are the same for all rows, sorts several rows side by side, one in each lane.
// Part of sort-scatter.h.
#pragma once

#define SHORT_ROW 256
#define SHORT_LANES 8
/* Fewer rows leave lanes empty. */
#define SHORT_ROWS 4

/* Merge exchange (Knuth, volume 3, algorithm 5.2.2M): for any number of items. CHANGE(i, j) orders places i < j. */
#define MERGE_EXCHANGE(n, CHANGE)                                                                                      \
  do {                                                                                                                 \
    long top = 1;                                                                                                      \
    while (2 * top < (n)) top *= 2;                                                                                    \
    for (long p = top; p > 0; p /= 2)                                                                                  \
      for (long q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {                                                    \
        for (long block = r; block < (n) - d; block += 2 * p)                                                          \
          for (long i = block; i < block + p && i < (n) - d; i++) CHANGE(i, i + d);                                    \
        if (q == p) break;                                                                                             \
      }                                                                                                                \
  } while (0)

/* Keys and places in one number each, which never equal one another. */
static void sort_lanes_packed(int64_t* items, long n) {
#define CHANGE(i, j)                                                                                                   \
  do {                                                                                                                 \
    int64_t* restrict a = items + (i) * SHORT_LANES, * restrict b = items + (j) * SHORT_LANES;                         \
    for (int l = 0; l < SHORT_LANES; l++) {                                                                            \
      const int64_t x = a[l], y = b[l];                                                                                \
      a[l] = x < y ? x : y;                                                                                            \
      b[l] = x < y ? y : x;                                                                                            \
    }                                                                                                                  \
  } while (0)
  MERGE_EXCHANGE(n, CHANGE);
#undef CHANGE
}
/* Keys that fill a number, and places beside them: those of equal keys keep their order. */
static void sort_lanes(int64_t* keys, int64_t* at, long n) {
#define CHANGE(i, j)                                                                                                   \
  do {                                                                                                                 \
    int64_t* restrict a = keys + (i) * SHORT_LANES, * restrict b = keys + (j) * SHORT_LANES;                           \
    int64_t* restrict s = at + (i) * SHORT_LANES, * restrict t = at + (j) * SHORT_LANES;                               \
    for (int l = 0; l < SHORT_LANES; l++) {                                                                            \
      const int64_t x = a[l], y = b[l], u = s[l], v = t[l];                                                            \
      const int64_t swap = (x > y) | ((x == y) & (u > v)) ? -1 : 0, d = (x ^ y) & swap, e = (u ^ v) & swap;            \
      a[l] = x ^ d, b[l] = y ^ d;                                                                                      \
      s[l] = u ^ e, t[l] = v ^ e;                                                                                      \
    }                                                                                                                  \
  } while (0)
  MERGE_EXCHANGE(n, CHANGE);
#undef CHANGE
}
/* Groups [lo, hi) of rows. "outer" is the number of rows. */
static void argsort_short(void* const* p, long lo, long hi) {
  const order_job* j = &((const sort_job*)p[0])->job;
  const long n = j->n;
  const int packed = key_bytes(j->dtype) <= 4;
  int64_t items[SHORT_ROW * SHORT_LANES] __attribute__((aligned(64)));
  int64_t at[SHORT_ROW * SHORT_LANES] __attribute__((aligned(64)));
  uint64_t keys[SHORT_ROW];
  for (long group = lo; group < hi; group++) {
    const long first = group * SHORT_LANES, left = j->outer - first, rows = left < SHORT_LANES ? left : SHORT_LANES;
    for (long l = 0; l < SHORT_LANES; l++) {
      if (l < rows) fill_keys(j->dtype, j->x, (first + l) * n, n, order_flip(j), keys);
      for (long i = 0; i < n; i++) {
        items[i * SHORT_LANES + l] = (int64_t)((packed ? keys[i] << 32 | (uint64_t)i : keys[i]) ^ INT64_MIN);
        if (!packed) at[i * SHORT_LANES + l] = i;
      }
    }
    if (packed) sort_lanes_packed(items, n);
    else sort_lanes(items, at, n);
    const int64_t* sorted = (packed ? items : at) + j->first * SHORT_LANES;
    for (long l = 0; l < rows; l++)
      for (long i = 0; i < j->count; i++)
        ((int32_t*)j->out)[(first + l) * j->count + i] = (int32_t)sorted[i * SHORT_LANES + l];
  }
}
