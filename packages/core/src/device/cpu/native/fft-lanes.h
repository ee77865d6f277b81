// Moving lines into the lanes of vectors and back. Lines that are contiguous are transposed in blocks, and lines that lie side by side
// are read across; where the machine has no such instructions, and for other strides, elements are moved one by one.
#pragma once
#include <string.h>

#include "fft.h"

#define LANES ((long)(64 / sizeof(T)))
typedef T V __attribute__((vector_size(64)));
typedef T U __attribute__((vector_size(64), aligned(BYTES), may_alias)); /* anywhere in memory */
typedef struct {
  V re, im;
} C;
typedef struct {
  T re, im;
} S;

/* exp(-2 pi i m / n) for many m, by two small tables: n = 2^shift times the length of the coarse one. */
typedef struct {
  long n;
  int shift;
  S *fine, *coarse;
} root_table;

static inline S root_of(const root_table* r, long m) {
  const S a = r->coarse[m >> r->shift], b = r->fine[m & ((1L << r->shift) - 1)];
  return (S){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/* Where a lane reads and writes, and whether real and imaginary parts change places there. */
typedef struct {
  const wf_lines* job;
  int swap_in, swap_out;
  const root_table* twiddle; /* element k of line l is multiplied by the root l k; NULL: not */
} lane_job;

#if defined(__AVX512F__) && !defined(__clang__)
#define SHUFFLES 1
#if BYTES == 4
typedef int32_t M __attribute__((vector_size(64)));
#define ZIP_LOW ((M){0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23})
#define ZIP_HIGH ((M){8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31})
#define EVEN ((M){0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30})
#else
typedef int64_t M __attribute__((vector_size(64)));
#define ZIP_LOW ((M){0, 8, 1, 9, 2, 10, 3, 11})
#define ZIP_HIGH ((M){4, 12, 5, 13, 6, 14, 7, 15})
#define EVEN ((M){0, 2, 4, 6, 8, 10, 12, 14})
#endif

/* Rows and columns of a block change places: every step zips its upper with its lower half. */
static inline __attribute__((always_inline)) void transpose(V* r) {
  V t[LANES];
#pragma GCC unroll 4
  for (long done = 1; done < LANES; done *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) {
      t[2 * i] = __builtin_shuffle(r[i], r[i + LANES / 2], ZIP_LOW);
      t[2 * i + 1] = __builtin_shuffle(r[i], r[i + LANES / 2], ZIP_HIGH);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) r[i] = t[i];
  }
}
#else
#define SHUFFLES 0
#endif

/* Contiguous lines of "count" numbers, an even number; swap: neighbors change places. */
static void gather_lines(const T* const* from, long count, int swap, V* to) {
  long j = 0;
#if SHUFFLES
  for (; j + LANES <= count; j += LANES) {
    V r[LANES];
#pragma GCC unroll 16
    for (int l = 0; l < LANES; l++) r[l] = *(const U*)(from[l] + j);
    transpose(r);
#pragma GCC unroll 16
    for (int q = 0; q < LANES; q++) to[(j + q) ^ swap] = r[q];
  }
#endif
  for (; j < count; j++)
    for (long l = 0; l < LANES; l++) to[j ^ swap][l] = from[l][j];
}
static void scatter_lines(T* const* to, long lines, long count, int swap, const V* from) {
  long j = 0;
#if SHUFFLES
  for (; j + LANES <= count; j += LANES) {
    V r[LANES];
#pragma GCC unroll 16
    for (int q = 0; q < LANES; q++) r[q] = from[(j + q) ^ swap];
    transpose(r);
    if (lines == LANES) {
#pragma GCC unroll 16
      for (int l = 0; l < LANES; l++) *(U*)(to[l] + j) = r[l];
    } else
      for (long l = 0; l < lines; l++) *(U*)(to[l] + j) = r[l];
  }
#endif
  for (; j < count; j++)
    for (long l = 0; l < lines; l++) to[l][j] = from[j ^ swap][l];
}

/* Lanes whose elements are neighbors in memory: [first, last) of them start at "at". */
typedef struct {
  long first, last, at;
} lane_run;
#define MOST_RUNS 4

static int find_runs(const long* at, long lines, lane_run* runs) {
  int count = 0;
  for (long l = 0; l < lines; l++) {
    if (count > 0 && at[l] == runs[count - 1].at + l - runs[count - 1].first) {
      runs[count - 1].last = l + 1;
      continue;
    }
    if (count == MOST_RUNS) return 0;
    runs[count++] = (lane_run){l, l + 1, at[l]};
  }
  return count;
}

/* Lines side by side. */
static void gather_across(const S* x, const lane_run* runs, int count, long n, long step, int swap, C* to) {
  S buffer[LANES] __attribute__((aligned(64)));
  memset(buffer, 0, sizeof buffer);
  const int whole = count == 1 && runs[0].last == LANES;
  for (long j = 0; j < n; j++) {
    const S* from = whole ? x + runs[0].at + j * step : buffer;
    for (int r = 0; r < count && !whole; r++)
      memcpy(buffer + runs[r].first, x + runs[r].at + j * step, (runs[r].last - runs[r].first) * sizeof(S));
    C c;
#if SHUFFLES
    const V a = ((const U*)from)[0], b = ((const U*)from)[1];
    c = (C){__builtin_shuffle(a, b, EVEN), __builtin_shuffle(a, b, EVEN + 1)};
#else
    for (long l = 0; l < LANES; l++) c.re[l] = from[l].re, c.im[l] = from[l].im;
#endif
    to[j] = swap ? (C){c.im, c.re} : c;
  }
}
static void scatter_across(S* y, const lane_run* runs, int count, long n, long step, int swap, const C* from) {
  S buffer[LANES] __attribute__((aligned(64)));
  const int whole = count == 1 && runs[0].last == LANES;
  for (long k = 0; k < n; k++) {
    const C c = swap ? (C){from[k].im, from[k].re} : from[k];
    S* to = whole ? y + runs[0].at + k * step : buffer;
#if SHUFFLES
    ((U*)to)[0] = __builtin_shuffle(c.re, c.im, ZIP_LOW);
    ((U*)to)[1] = __builtin_shuffle(c.re, c.im, ZIP_HIGH);
#else
    for (long l = 0; l < LANES; l++) to[l] = (S){c.re[l], c.im[l]};
#endif
    for (int r = 0; r < count && !whole; r++)
      memcpy(y + runs[r].at + k * step, buffer + runs[r].first, (runs[r].last - runs[r].first) * sizeof(S));
  }
}

/* Lines [first, first + count) to the lanes; those beyond repeat the first line. */
static void load_lines(const lane_job* lanes, long first, long count, C* data) {
  const wf_lines* job = lanes->job;
  const long n = job->n, step = job->in_step;
  long at[LANES];
  for (long l = 0; l < LANES; l++) {
    const long line = first + (l < count ? l : 0);
    at[l] = line / job->inner * job->in_outer + line % job->inner * job->in_inner;
  }
  const T* from[LANES];
  for (long l = 0; l < LANES; l++) from[l] = (const T*)job->in + (job->kind == 1 ? 1 : 2) * at[l];
  if (job->kind == 1 && n % 2 == 0) gather_lines(from, n, 0, (V*)data);
  else if (job->kind == 1)
    for (long j = 0; j < n; j++)
      for (long l = 0; l < LANES; l++) data[j].re[l] = from[l][j], data[j].im[l] = 0;
  else if (job->kind == 2) {
    gather_lines(from, n / 2 * 2 + 2, 0, (V*)data);
    data[0].im = (V){0};
    if (n % 2 == 0) data[n / 2].im = (V){0};
  } else if (step == 1) gather_lines(from, 2 * n, lanes->swap_in, (V*)data);
  else {
    lane_run runs[MOST_RUNS];
    const int found = find_runs(at, count, runs);
    if (found > 0) gather_across(job->in, runs, found, n, step, lanes->swap_in, data);
    else
      for (long j = 0; j < n; j++)
        for (long l = 0; l < LANES; l++) {
          const S x = ((const S*)job->in)[at[l] + j * step];
          data[j].re[l] = lanes->swap_in ? x.im : x.re, data[j].im[l] = lanes->swap_in ? x.re : x.im;
        }
  }
}

static void twiddle_lines(const lane_job* lanes, long first, long count, C* data) {
  long line[LANES], m[LANES];
  for (long l = 0; l < LANES; l++) line[l] = l < count ? (first + l) % lanes->job->inner : 0, m[l] = 0;
  for (long k = 0; k < lanes->job->n; k++) {
    V re, im;
    /* Products of line and k are below the length: both are below its two factors. */
    for (long l = 0; l < LANES; l++) {
      const S w = root_of(lanes->twiddle, m[l]);
      re[l] = w.re, im[l] = w.im, m[l] += line[l];
    }
    const C c = data[k];
    data[k] = (C){c.re * re - c.im * im, c.re * im + c.im * re};
  }
}

static void store_lines(const lane_job* lanes, long first, long count, C* data) {
  const wf_lines* job = lanes->job;
  const long n = job->n, step = job->out_step;
  long at[LANES];
  T* to[LANES];
  for (long l = 0; l < count; l++) {
    at[l] = (first + l) / job->inner * job->out_outer + (first + l) % job->inner * job->out_inner;
    to[l] = (T*)job->out + (job->kind == 2 ? 1 : 2) * at[l];
  }
  if (lanes->twiddle) twiddle_lines(lanes, first, count, data);
  if (job->kind == 2 && n % 2 == 0) scatter_lines(to, count, n, 1, (const V*)data);
  else if (job->kind == 2)
    for (long j = 0; j < n; j++)
      for (long l = 0; l < count; l++) to[l][j] = data[j].im[l];
  else if (job->kind == 1) scatter_lines(to, count, n / 2 * 2 + 2, 0, (const V*)data);
  else if (step == 1) scatter_lines(to, count, 2 * n, lanes->swap_out, (const V*)data);
  else {
    lane_run runs[MOST_RUNS];
    const int found = find_runs(at, count, runs);
    if (found > 0) scatter_across(job->out, runs, found, n, step, lanes->swap_out, data);
    else
      for (long k = 0; k < n; k++)
        for (long l = 0; l < count; l++) {
          const T re = data[k].re[l], im = data[k].im[l];
          ((S*)job->out)[at[l] + k * step] = lanes->swap_out ? (S){im, re} : (S){re, im};
        }
  }
}
