// The built-in singular value decomposition over lanes (see linalg-numbers.h): one-sided Jacobi rotations.
// A pair is rotated while any lane needs it; lanes that do not are rotated by the identity.
#pragma once
#include "linalg-numbers.h"

/* The unitary change of a pair (p, q) -> (cos p - sin_q q, sin p + cos_q q) that makes [[app, apq], [*, aqq]] diagonal.
   Lanes that are not "active" keep their pair. */
typedef struct {
  wx_real cos, sin;
  wx_num sin_q, cos_q;
} wx_rotation;
static inline wx_rotation wx_diagonalizing(wx_real app, wx_real aqq, wx_num apq, wx_mask active) {
  const wx_real square = wx_square(apq), size = wx_sqrt(square), gap = aqq - app;
  const wx_real whole = wx_fabs(gap) + wx_sqrt(gap * gap + 4.0 * square);
  const wx_real tan = wx_pick(active, wx_pick(wx_lt(gap, wx_splat(0)), -2.0 * size, 2.0 * size) / whole, wx_splat(0));
  const wx_real cos = 1.0 / wx_sqrt(tan * tan + 1.0), sin = tan * cos;
  const wx_num turn = wx_choose(active, wx_over(wx_conj(apq), size), wx_from(wx_splat(1)));
  return (wx_rotation){cos, sin, wx_scale(turn, sin), wx_scale(turn, cos)};
}
static inline void wx_turn_pairs(long n, const wx_rotation* r, wx_num* restrict p, wx_num* restrict q) {
#if WX_LANES == 1
#pragma omp simd
#endif
  for (long i = 0; i < n; i++) {
    const wx_num old = p[i];
    p[i] = wx_sub(wx_scale(old, r->cos), wx_mul(r->sin_q, q[i]));
    q[i] = wx_add(wx_scale(old, r->sin), wx_mul(r->cos_q, q[i]));
  }
}

/* Replaces one lane's column order[at] by a unit vector orthogonal to those before it in the order: the coordinate
   vector that they reach least, made orthogonal twice. */
static void wx_complete(long m, wx_num* w, const long* order, long at, long lane) {
  long least = 0;
  double reached_least = INFINITY;
  for (long i = 0; i < m; i++) {
    double reached = 0;
    for (long c = 0; c < at; c++)
      for (int part = 0; part < WX_PARTS; part++) {
        const double x = *wx_at(w, order[c] * m + i, part, lane);
        reached += x * x;
      }
    if (reached < reached_least) least = i, reached_least = reached;
  }
  const long mine = order[at] * m;
  for (long i = 0; i < m; i++)
    for (int part = 0; part < WX_PARTS; part++) *wx_at(w, mine + i, part, lane) = i == least && part == 0;
  for (int pass = 0; pass < 2; pass++) {
    for (long c = 0; c < at; c++) {
      const long other = order[c] * m;
      double re = 0, im = 0;
      for (long i = 0; i < m; i++) {
        const double x = *wx_at(w, other + i, 0, lane), y = *wx_at(w, mine + i, 0, lane);
        re += x * y;
#if WX_COMPLEX
        const double xi = *wx_at(w, other + i, 1, lane), yi = *wx_at(w, mine + i, 1, lane);
        re += xi * yi;
        im += x * yi - xi * y;
#endif
      }
      for (long i = 0; i < m; i++) {
        const double x = *wx_at(w, other + i, 0, lane);
        *wx_at(w, mine + i, 0, lane) -= re * x;
#if WX_COMPLEX
        const double xi = *wx_at(w, other + i, 1, lane);
        *wx_at(w, mine + i, 0, lane) += im * xi;
        *wx_at(w, mine + i, 1, lane) -= re * xi + im * x;
#endif
      }
      (void)im;
    }
    double length2 = 0;
    for (long i = 0; i < m; i++)
      for (int part = 0; part < WX_PARTS; part++)
        length2 += *wx_at(w, mine + i, part, lane) * *wx_at(w, mine + i, part, lane);
    for (long i = 0; i < m; i++)
      for (int part = 0; part < WX_PARTS; part++) *wx_at(w, mine + i, part, lane) /= sqrt(length2);
  }
}

/* Rotates the rows of w (columns of the matrix), each of length m, until all pairs are orthogonal. */
static void wx_orthogonalize(long m, long n, double tolerance, wx_num* w, wx_num* v) {
  for (int sweep = 0, rotated = 1; rotated && sweep < 60; sweep++) {
    rotated = 0;
    for (long p = 0; p < n; p++)
      for (long q = p + 1; q < n; q++) {
        wx_num *left = w + p * m, *right = w + q * m;
        const wx_real left2 = wx_length2(m, left), right2 = wx_length2(m, right);
        const wx_num overlap = wx_dot(m, right, left);
        /* A row shorter than epsilon is rounding noise, which no rotation makes orthogonal; it is replaced at the end. */
        const wx_mask meant = wx_lt(wx_splat(0x1p-104), wx_pick(wx_lt(left2, right2), left2, right2));
        const wx_mask active = meant & wx_lt(tolerance * tolerance * left2 * right2, wx_square(overlap));
        if (!wx_any(active)) continue;
        rotated = 1;
        const wx_rotation r = wx_diagonalizing(left2, right2, overlap, active);
        wx_turn_pairs(m, &r, left, right);
        wx_turn_pairs(n, &r, v + p * n, v + q * n);
      }
  }
}

static void wx_svd(const wl_job* job, long first, long count, void* scratch) {
  /* A wide matrix is decomposed as its adjoint, so that its rows are columns and are conjugated. */
  const int wide = job->m < job->n;
  const long m = wide ? job->n : job->m, n = wide ? job->m : job->n;
  wx_num *w = scratch, *v = w + n * m, *values = v + n * n;
  long* order = (long*)(values + n);
  wx_real largest = wx_splat(0);
  wx_mask bad = {0};
  wx_load(job->dtype, job->a + first * job->a_bytes, job->a_bytes, count, job->m, job->n, !wide, w);
  for (long e = 0; e < m * n; e++) {
    if (wide) w[e] = wx_conj(w[e]);
    bad |= wx_unfit(w[e]);
    largest = wx_max(largest, wx_size1(w[e]));
  }
  const wx_real unit = wx_unit(wx_pick(bad, wx_splat(1), largest)), inverse = 1.0 / unit;
  for (long e = 0; e < m * n; e++) w[e] = wx_choose(bad, wx_from(wx_splat(0)), wx_scale(w[e], inverse));
  for (long i = 0; i < n; i++)
    for (long j = 0; j < n; j++) v[i * n + j] = wx_from(wx_splat(i == j));
  wx_orthogonalize(m, n, wl_is_single(job->dtype) ? 1e-11 : 0x1p-52 * sqrt((double)m), w, v);
  for (long j = 0; j < n; j++) {
    const wx_real length = wx_sqrt(wx_length2(m, w + j * m));
    const wx_real divisor = wx_pick(wx_eq(length, wx_splat(0)), wx_splat(1), length);
    for (long i = 0; i < m; i++) w[j * m + i] = wx_over(w[j * m + i], divisor);
    values[j] = wx_from(length * unit);
  }
  for (long l = 0; l < count; l++) {
    long* lane_order = order + l * n;
    wx_sort(n, values, l, 1, lane_order);
    const double noise = (double)m * 0x1p-52 * *wx_at(values, lane_order[0], 0, l);
    for (long j = 0; j < n; j++)
      if (!(*wx_at(values, lane_order[j], 0, l) > noise)) wx_complete(m, w, lane_order, j, l);
  }
  wx_store_values(job, 1, first, count, n, values, bad, order);
  const wx_source long_side = {.from = w, .bad = bad, .rows = order, .order = n, .transpose = !wide, .conjugate = wide};
  const wx_source short_side = {
      .from = v, .bad = bad, .rows = order, .order = n, .transpose = wide, .conjugate = !wide};
  wx_store(job->dtype, job->out[0] + first * job->out_bytes[0], job->out_bytes[0], count, job->m, n,
           wide ? short_side : long_side);
  wx_store(job->dtype, job->out[2] + first * job->out_bytes[2], job->out_bytes[2], count, n, job->n,
           wide ? long_side : short_side);
}
