// The built-in Cholesky, substitution, elimination and Householder QR over lanes (see linalg-numbers.h).
// What goes wrong in one lane (no pivot, not positive definite) is remembered in a mask and never stops the others.
#pragma once
#include "linalg-numbers.h"

static void wx_cholesky(const wl_job* job, long first, long count, void* scratch) {
  const long n = job->n;
  wx_num* l = scratch;
  wx_mask bad = {0};
  wx_load(job->dtype, job->a + first * job->a_bytes, job->a_bytes, count, n, n, 0, l);
  for (long j = 0; j < n; j++) {
    wx_num* row = l + j * n;
    const wx_real pivot = row[j].re - wx_length2(j, row);
    bad |= ~wx_between(0, pivot, INFINITY);
    const wx_real root = wx_sqrt(pivot), inverse = 1.0 / root;
    row[j] = wx_from(root);
    for (long i = j + 1; i < n; i++) {
      row[i] = wx_from(wx_splat(0));
      l[i * n + j] = wx_scale(wx_sub(l[i * n + j], wx_dot(j, l + i * n, row)), inverse);
    }
  }
  wx_store(job->dtype, job->out[0] + first * job->out_bytes[0], job->out_bytes[0], count, n, n,
           (wx_source){.from = l, .bad = bad});
}

static void wx_substitute(long n, long k, int lower, int adjoint, int unit, const wx_num* a, wx_num* x) {
  const int forward = lower != adjoint;
  for (long step = 0; step < n; step++) {
    const long i = forward ? step : n - 1 - step;
    wx_num* row = x + i * k;
    for (long p = forward ? 0 : i + 1; p < (forward ? i : n); p++)
      wx_subtract(k, adjoint ? wx_conj(a[p * n + i]) : a[i * n + p], x + p * k, row);
    if (unit) continue;
    const wx_num pivot = adjoint ? wx_conj(a[i * n + i]) : a[i * n + i];
    for (long j = 0; j < k; j++) row[j] = wx_div(row[j], pivot);
  }
}

static void wx_triangular_solve(const wl_job* job, long first, long count, void* scratch) {
  const long n = job->n, k = job->k;
  wx_num *a = scratch, *x = a + n * n;
  wx_load(job->dtype, job->a + first * job->a_bytes, job->a_bytes, count, n, n, 0, a);
  wx_load(job->dtype, job->b + first * job->b_bytes, job->b_bytes, count, n, k, 0, x);
  wx_substitute(n, k, job->lower, job->adjoint, job->unit, a, x);
  wx_store(job->dtype, job->out[0] + first * job->out_bytes[0], job->out_bytes[0], count, n, k, (wx_source){.from = x});
}

static inline void wx_swap_where(wx_mask m, long n, wx_num* restrict x, wx_num* restrict y) {
  for (long j = 0; j < n; j++) {
    const wx_num old = x[j];
    x[j] = wx_choose(m, y[j], old);
    y[j] = wx_choose(m, old, y[j]);
  }
}

/* Gaussian elimination of [a | b] with partial pivoting; each lane swaps its own rows. Leaves the upper factor in a,
   gives the lanes without a pivot, and the sign of each lane's permutation. */
static wx_mask wx_eliminate(long n, long k, wx_num* a, wx_num* b, wx_real* sign) {
  wx_mask singular = {0};
  *sign = wx_splat(1);
  for (long c = 0; c < n; c++) {
    wx_num* top = a + c * n;
    wx_real best = wx_size1(top[c]), where = wx_splat((double)c);
    for (long i = c + 1; i < n; i++) {
      const wx_real size = wx_size1(a[i * n + c]);
      const wx_mask larger = wx_lt(best, size);
      best = wx_pick(larger, size, best);
      where = wx_pick(larger, wx_splat((double)i), where);
    }
    singular |= wx_eq(best, wx_splat(0));
    for (long i = c + 1; i < n; i++) {
      const wx_mask here = wx_eq(where, wx_splat((double)i));
      if (!wx_any(here)) continue;
      wx_swap_where(here, n - c, top + c, a + i * n + c);
      wx_swap_where(here, k, b + c * k, b + i * k);
      *sign = wx_pick(here, -*sign, *sign);
    }
    /* One reciprocal instead of one division per row, unless it would leave the range of doubles. */
    const int extreme = wx_any(~wx_between(1e-290, best, 1e290));
    const wx_num inverse = wx_div(wx_from(wx_splat(1)), top[c]);
    for (long i = c + 1; i < n; i++) {
      const wx_num factor = extreme ? wx_div(a[i * n + c], top[c]) : wx_mul(a[i * n + c], inverse);
      wx_subtract(n - c - 1, factor, top + c + 1, a + i * n + c + 1);
      wx_subtract(k, factor, b + c * k, b + i * k);
    }
  }
  return singular;
}

static void wx_solve(const wl_job* job, long first, long count, void* scratch) {
  const long n = job->n, k = job->k;
  wx_num *a = scratch, *x = a + n * n;
  wx_real sign;
  wx_load(job->dtype, job->a + first * job->a_bytes, job->a_bytes, count, n, n, 0, a);
  wx_load(job->dtype, job->b + first * job->b_bytes, job->b_bytes, count, n, k, 0, x);
  const wx_mask singular = wx_eliminate(n, k, a, x, &sign);
  wx_substitute(n, k, 0, 0, 0, a, x);
  wx_store(job->dtype, job->out[0] + first * job->out_bytes[0], job->out_bytes[0], count, n, k,
           (wx_source){.from = x, .bad = singular});
}

static void wx_det(const wl_job* job, long first, long count, void* scratch) {
  const long n = job->n;
  wx_num* a = scratch;
  wx_real sign;
  wx_load(job->dtype, job->a + first * job->a_bytes, job->a_bytes, count, n, n, 0, a);
  const wx_mask singular = wx_eliminate(n, 0, a, a, &sign);
  wx_num product = wx_from(sign);
  for (long i = 0; i < n; i++) product = wx_mul(product, a[i * n + i]);
  a[0] = wx_choose(singular, wx_from(wx_splat(0)), product);
  wx_store(job->dtype, job->out[0] + first * job->out_bytes[0], job->out_bytes[0], count, 1, 1, (wx_source){.from = a});
}

static void wx_qr(const wl_job* job, long first, long count, void* scratch) {
  const long m = job->m, n = job->n, k = m < n ? m : n;
  /* w and q are stored transposed, so that columns are contiguous; w stores the reflectors on and below its diagonal. */
  wx_num *w = scratch, *q = w + n * m, *r = q + k * m, *phases = r + k * n, *weights = phases + k;
  const wx_real zero = wx_splat(0), one = wx_splat(1);
  wx_mask bad = {0};
  wx_load(job->dtype, job->a + first * job->a_bytes, job->a_bytes, count, m, n, 1, w);
  wx_real largest = zero;
  for (long e = 0; e < m * n; e++) {
    bad |= wx_unfit(w[e]);
    largest = wx_max(largest, wx_size1(w[e]));
  }
  const wx_real whole = wx_unit(largest);
  for (long e = 0; e < m * n; e++) w[e] = wx_scale(w[e], 1.0 / whole);
  for (long j = 0; j < k; j++) {
    wx_num* v = w + j * m + j;
    /* Each column is also scaled by itself, so that the squares of a short one do not underflow. */
    largest = zero;
    for (long i = 0; i < m - j; i++) largest = wx_max(largest, wx_size1(v[i]));
    const wx_real unit = wx_unit(largest), inverse = 1.0 / unit;
    for (long i = 0; i < m - j; i++) v[i] = wx_scale(v[i], inverse);
    const wx_real length = wx_sqrt(wx_length2(m - j, v)), head = wx_sqrt(wx_square(v[0]));
    /* The phase of a component this small is not reliable, and none is needed. */
    const wx_num phase = wx_choose(wx_lt(head, wx_splat(1e-140)), wx_from(one), wx_over(v[0], head));
    const wx_mask empty = wx_eq(length, zero);
    const wx_real weight = wx_pick(empty, zero, 1.0 / (length * (length + head)));
    v[0] = wx_add(v[0], wx_scale(phase, length));
    for (long c = j + 1; c < n; c++) wx_reflect(m - j, v, weight, w + c * m + j);
    weights[j] = wx_from(weight);
    phases[j] = wx_choose(empty, wx_from(one), wx_scale(phase, -one));
    for (long c = 0; c < n; c++) {
      const wx_num above = c < j ? wx_from(zero) : wx_mul(w[c * m + j], wx_conj(phases[j]));
      r[j * n + c] = wx_scale(c == j ? wx_from(length * unit) : above, whole);
    }
    for (long i = 0; i < m; i++) q[j * m + i] = wx_from(i == j ? one : zero);
  }
  for (long j = k - 1; j >= 0; j--)
    for (long c = j; c < k; c++) wx_reflect(m - j, w + j * m + j, weights[j].re, q + c * m + j);
  for (long j = 0; j < k; j++)
    for (long i = 0; i < m; i++) q[j * m + i] = wx_mul(q[j * m + i], phases[j]);
  wx_store(job->dtype, job->out[0] + first * job->out_bytes[0], job->out_bytes[0], count, m, k,
           (wx_source){.from = q, .bad = bad, .transpose = 1});
  wx_store(job->dtype, job->out[1] + first * job->out_bytes[1], job->out_bytes[1], count, k, n,
           (wx_source){.from = r, .bad = bad});
}
