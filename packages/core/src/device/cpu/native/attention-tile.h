// Tiles of attention: products of a few hundred queries with as many keys, whose scores stay in the second-level cache. Part of
// attention.c.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "blas.h"
#include "gemm-half.h"
#include "prelude-half.h"
#include "prelude.h"

enum { ATT_FLOAT = 0, ATT_BFLOAT = 4, ATT_HALF = 5 };
enum { MASK_NONE, MASK_BOOL, MASK_FLOAT, MASK_SEGMENTS };

/* Where element [batch, head, row, 0] lies; strides in elements. */
typedef struct {
  char* at;
  long batch, row, head;
} att_place;

typedef struct {
  long gradient, dtype, batch, heads, shared, queries, keys, size;
  long mask, mask_dtype, lower, upper;
  long mask_batch, mask_head, mask_row, mask_key;
  float scale;
  att_place q, k, v, out, g, dq, dk, dv;
  const char* shown; /* the mask, or segment ids */
  float *sums, *dmask;
  /* Of the gradient: what the weights of a row turn about, sums of query gradients, and their number. */
  float *delta, *wide;
  long parts;
  int pairs; /* products of bfloat16 numbers by their instructions; other operands are float32 numbers, or widened */
  long rows, columns;
  int failed;
} att_job;

static long att_least(long a, long b) { return a < b ? a : b; }
static long att_most(long a, long b) { return a > b ? a : b; }
static long att_bytes(long dtype) { return dtype == ATT_FLOAT ? 4 : 2; }

static char* att_row(const att_job* j, const att_place* p, long b, long h, long row) {
  return p->at + (b * p->batch + h * p->head + row * p->row) * att_bytes(j->dtype);
}

static void att_load(long dtype, const char* from, float* to, long count) {
  if (dtype == ATT_FLOAT) memcpy(to, from, sizeof(float) * count);
  else if (dtype == ATT_HALF) w_widen_h((const uint16_t*)from, to, count);
  else
    for (long i = 0; i < count; i++) to[i] = w_from_bfloat(((const uint16_t*)from)[i]);
}
/* Stores numbers times a factor; changes them. */
static void att_store(long dtype, float* from, char* to, long count, float factor) {
#pragma omp simd
  for (long i = 0; i < count; i++) from[i] *= factor;
  if (dtype == ATT_FLOAT) memcpy(to, from, sizeof(float) * count);
  else if (dtype == ATT_HALF) w_narrow_h(from, (uint16_t*)to, count);
  else
    for (long i = 0; i < count; i++) ((uint16_t*)to)[i] = w_to_bfloat(from[i]);
}

/* Rows of an operand as products take them: in place, or widened. */
typedef struct {
  const char* at;
  long row;
} att_rows;
static att_rows att_tile(const att_job* j, const att_place* p, long b, long h, long from, long count, float* wide) {
  const char* at = att_row(j, p, b, h, from);
  if (j->dtype == ATT_FLOAT || j->pairs) return (att_rows){at, p->row};
  for (long i = 0; i < count; i++) att_load(j->dtype, at + i * p->row * 2, wide + i * j->size, j->size);
  return (att_rows){(const char*)wide, j->size};
}

/* c = a b, or c += a b; sums are float32 numbers. */
static void att_multiply(const att_job* j, long m, long n, long k, const void* a, long ars, long acs, const void* b,
                         long brs, long bcs, float* c, long crs, int add) {
  if (!j->pairs) {
    one_gemm(0, m, n, k, a, ars, acs, 0, b, brs, bcs, 0, (char*)c, crs, add);
    return;
  }
  half_gemm(&(half_product){.m = m,
                            .n = n,
                            .k = k,
                            .a = a,
                            .ars = ars,
                            .acs = acs,
                            .b = b,
                            .brs = brs,
                            .bcs = bcs,
                            .c = c,
                            .crs = crs,
                            .write = add ? HALF_ADD : HALF_STORE});
}

/* Keys [*from, *to) that queries [first, first + count) may see by their distance. */
static void att_keys(const att_job* j, long first, long count, long* from, long* to) {
  *from = att_most(0, first + j->lower);
  *to = att_least(j->keys, first + count + j->upper);
}

static const char* att_mask(const att_job* j, long b, long h, long i, long key) {
  const long at = b * j->mask_batch + h * j->mask_head + i * j->mask_row + key * j->mask_key;
  return j->shown + at * (j->mask == MASK_BOOL ? 1 : att_bytes(j->mask_dtype));
}

/* Whether a mask hides all of a tile. */
static int att_hidden(const att_job* j, long b, long h, long i, long rows, long key, long columns) {
  if (j->mask == MASK_NONE) return 0;
  if (j->mask == MASK_SEGMENTS) {
    const int32_t *ids = (const int32_t*)j->shown + b * j->mask_batch, *of_keys = ids + j->queries + key;
    int32_t low = ids[i], high = low, least = of_keys[0], most = least;
    for (long r = 1; r < rows; r++)
      low = ids[i + r] < low ? ids[i + r] : low, high = ids[i + r] > high ? ids[i + r] : high;
    for (long c = 1; c < columns; c++)
      least = of_keys[c] < least ? of_keys[c] : least, most = of_keys[c] > most ? of_keys[c] : most;
    return high < least || most < low;
  }
  if (j->mask_row == 0) rows = 1;
  if (j->mask_key == 0) columns = 1;
  for (long r = 0; r < rows; r++)
    for (long c = 0; c < columns; c++) {
      const char* at = att_mask(j, b, h, i + r, key + c);
      if (j->mask == MASK_BOOL         ? *at != 0
          : j->mask_dtype == ATT_FLOAT ? *(const float*)at != -INFINITY
                                       : *(const uint16_t*)at != (j->mask_dtype == ATT_HALF ? 0xfc00 : 0xff80))
        return 0;
    }
  return 1;
}

/* Scales the scores of query i with keys from "key" on and adds the mask; what is hidden becomes -infinity. */
static void att_show(const att_job* j, long b, long h, long i, long key, long count, float* s) {
  const float scale = j->scale;
  const long from = att_least(count, att_most(0, i + j->lower - key));
  const long to = att_most(from, att_least(count, i + j->upper + 1 - key));
  for (long c = 0; c < from; c++) s[c] = -INFINITY;
  for (long c = to; c < count; c++) s[c] = -INFINITY;
  if (j->mask == MASK_NONE) {
#pragma omp simd
    for (long c = from; c < to; c++) s[c] *= scale;
  } else if (j->mask == MASK_SEGMENTS) {
    const int32_t *ids = (const int32_t*)j->shown + b * j->mask_batch, *of_keys = ids + j->queries + key;
    const int32_t own = ids[i];
#pragma omp simd
    for (long c = from; c < to; c++) s[c] = of_keys[c] == own ? s[c] * scale : -INFINITY;
  } else if (j->mask == MASK_BOOL) {
    const uint8_t* m = (const uint8_t*)att_mask(j, b, h, i, key);
    if (j->mask_key == 1)
      for (long c = from; c < to; c++) s[c] = m[c] ? s[c] * scale : -INFINITY;
    else
      for (long c = from; c < to; c++) s[c] = m[c * j->mask_key] ? s[c] * scale : -INFINITY;
  } else {
    const char* m = att_mask(j, b, h, i, key);
    float wide[64];
    for (long c = from, n; c < to; c += n) {
      n = att_least(64, to - c);
      const long step = j->mask_key * att_bytes(j->mask_dtype);
      if (j->mask_key == 1) att_load(j->mask_dtype, m + c * step, wide, n);
      else
        for (long x = 0; x < n; x++) att_load(j->mask_dtype, m + (c + x) * step, wide + x, 1);
#pragma omp simd
      for (long x = 0; x < n; x++) s[c + x] = s[c + x] * scale + wide[x];
    }
  }
}

/* Replaces scores by their exponentials below "shift", also rounded for products; returns their sum. */
static float att_weights(float* s, uint16_t* rounded, long count, float shift) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (long c = 0; c < count; c++) {
    s[c] = w_exp_f(s[c] - shift);
    sum += s[c];
  }
  if (rounded)
    for (long c = 0; c < count; c++) rounded[c] = w_to_bfloat(s[c]);
  return sum;
}

static float att_largest(const float* s, long count) {
  float top = -INFINITY;
#pragma omp simd reduction(max : top)
  for (long c = 0; c < count; c++) top = s[c] > top ? s[c] : top;
  return top;
}

/* Memory of a thread, which stays. */
static char* att_memory(att_job* j, long bytes) {
  static __thread char* memory;
  static __thread long have;
  if (have < bytes) {
    free(memory);
    have = 0;
    if (posix_memalign((void**)&memory, 64, (size_t)bytes)) memory = NULL;
    else have = bytes;
  }
  if (!memory) __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
  return memory;
}
