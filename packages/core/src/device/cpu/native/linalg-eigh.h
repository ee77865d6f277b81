// The built-in Hermitian eigenvalue decomposition over lanes (see linalg-numbers.h): Householder
// reflections to a real tridiagonal matrix, then implicit QL. Lanes deflate on their own and wait for the slowest.
#pragma once
#include "linalg-numbers.h"

/* Makes the Hermitian matrix in the lower triangle of a tridiagonal and real: d on its diagonal, e >= 0 beside it.
   The columns of the change of basis become the rows of "vectors". What lay above a's diagonal is lost. */
static void wx_tridiagonalize(long n, wx_num* a, wx_real* d, wx_real* e, wx_num* vectors) {
  const wx_real zero = wx_splat(0), one = wx_splat(1);
  for (long k = 0; k + 1 < n; k++) {
    const long m = n - k - 1;
    wx_num *v = a + k * n + k + 1, *rest = v + n, *p = vectors;
    for (long i = 0; i < m; i++) v[i] = rest[i * n - 1];
    const wx_real square = wx_length2(m, v), head = wx_sqrt(wx_square(v[0]));
    /* The matrix was scaled to about 1, so that a number this small is negligible. */
    const wx_mask empty = wx_lt(square, wx_splat(1e-280));
    const wx_real length = wx_pick(empty, zero, wx_sqrt(square));
    const wx_real weight = wx_pick(empty, zero, 1.0 / (square + length * head));
    const wx_num phase = wx_choose(wx_lt(head, wx_splat(1e-140)), wx_from(one), wx_over(v[0], head));
    v[0] = wx_add(v[0], wx_scale(phase, length));
    d[k] = a[k * n + k].re;
    e[k] = length;
    /* The diagonal stores what the change of basis needs later: the weight, and the phase that makes e real. */
    a[k * n + k] = wx_from(weight);
    rest[-1] = wx_choose(empty, wx_from(one), wx_scale(phase, -one));
    for (long i = 0; i < m; i++) p[i] = wx_from(zero);
    for (long i = 0; i < m; i++) {
      const wx_num* row = rest + i * n;
      p[i] = wx_add(p[i], wx_add(wx_scale(v[i], row[i].re), wx_products(i, row, v, 0)));
      wx_subtract_conj(i, wx_scale(v[i], -one), row, p);
    }
    const wx_real half = 0.5 * weight * weight * wx_dot(m, p, v).re;
    for (long i = 0; i < m; i++) p[i] = wx_sub(wx_scale(p[i], weight), wx_scale(v[i], half));
    for (long i = 0; i < m; i++) {
      wx_subtract_conj(i + 1, v[i], p, rest + i * n);
      wx_subtract_conj(i + 1, p[i], v, rest + i * n);
    }
  }
  d[n - 1] = a[n * n - 1].re;
  e[n - 1] = zero;
  for (long i = 0; i < n; i++)
    for (long j = 0; j < n; j++) vectors[i * n + j] = wx_from(i == j ? one : zero);
  wx_num turn = wx_from(one);
  for (long k = 0; k + 1 < n; k++) {
    turn = wx_mul(turn, a[(k + 1) * n + k]);
    vectors[(k + 1) * n + k + 1] = turn;
  }
  for (long k = n - 2; k >= 0; k--)
    for (long c = k + 1; c < n; c++) wx_reflect(n - k - 1, a + k * n + k + 1, a[k * n + k].re, vectors + c * n + k + 1);
}

static inline void wx_rotate(long n, wx_real cos, wx_real sin, wx_num* restrict p, wx_num* restrict q) {
#if WX_LANES == 1
#pragma omp simd
#endif
  for (long i = 0; i < n; i++) {
    const wx_num old = p[i];
    p[i] = wx_sub(wx_scale(old, cos), wx_scale(q[i], sin));
    q[i] = wx_add(wx_scale(old, sin), wx_scale(q[i], cos));
  }
}

/* Makes the tridiagonal matrix diagonal by the implicit QL method, and rotates the rows of "vectors" along. Gives the
   lanes that did not converge. */
static wx_mask wx_ql(long n, double epsilon, wx_real* d, wx_real* e, wx_num* vectors) {
  const wx_real zero = wx_splat(0), one = wx_splat(1);
  wx_mask failed = {0};
  for (long l = 0; l + 1 < n; l++)
    for (int round = 0;; round++) {
      /* In each lane, the block from l on ends where the off-diagonal entry is negligible. */
      wx_real end = wx_splat((double)(n - 1)), last = d[n - 1];
      for (long i = n - 2; i >= l; i--) {
        const wx_real near = wx_max(epsilon * (wx_fabs(d[i]) + wx_fabs(d[i + 1])), wx_splat(epsilon * 0x1p-6));
        const wx_mask small = ~wx_lt(near, wx_fabs(e[i]));
        end = wx_pick(small, wx_splat((double)i), end);
        last = wx_pick(small, d[i], last);
      }
      wx_mask active = wx_lt(wx_splat((double)l), end);
      if (!wx_any(active)) break;
      if (round == 60) {
        failed |= active;
        break;
      }
      const wx_real half = (d[l + 1] - d[l]) / (2.0 * e[l]), root = wx_sqrt(half * half + one);
      wx_real g = last - d[l] + e[l] / (half + wx_pick(wx_lt(half, zero), -root, root));
      wx_real sin = one, cos = one, p = zero;
      long top = l;
      for (long lane = 0; lane < WX_LANES; lane++) {
        const double lane_end = ((const double*)&end)[lane];
        if (lane_end > top) top = (long)lane_end;
      }
      for (long i = top - 1; i >= l; i--) {
        wx_mask on = active & wx_lt(wx_splat((double)i), end);
        const wx_real f = sin * e[i], b = cos * e[i], square = f * f + g * g;
        const wx_mask lost = on & wx_lt(square, wx_splat(1e-280));
        const wx_real inverse = one / wx_sqrt(square);
        const wx_mask first = wx_eq(end, wx_splat((double)(i + 1)));
        e[i + 1] = wx_pick(on, wx_pick(first | lost, zero, square * inverse), e[i + 1]);
        /* The rotation is undefined: the block splits here, and the lane repeats the iteration. */
        d[i + 1] = wx_pick(lost, d[i + 1] - p, d[i + 1]);
        active &= ~lost;
        on &= ~lost;
        sin = wx_pick(on, f * inverse, sin);
        cos = wx_pick(on, g * inverse, cos);
        const wx_real before = d[i + 1] - p, r = (d[i] - before) * sin + 2.0 * cos * b;
        p = wx_pick(on, sin * r, p);
        d[i + 1] = wx_pick(on, before + p, d[i + 1]);
        g = wx_pick(on, cos * r - b, g);
        wx_rotate(n, wx_pick(on, cos, one), wx_pick(on, sin, zero), vectors + i * n, vectors + (i + 1) * n);
      }
      d[l] = wx_pick(active, d[l] - p, d[l]);
      e[l] = wx_pick(active, g, e[l]);
    }
  return failed;
}

/* Multiplies a vector by a phase so that its largest component is real and positive; the first one of nearly equal components. */
static void wx_fix_phase(long n, wx_num* v) {
  wx_real largest = wx_splat(0);
  for (long i = 0; i < n; i++) largest = wx_max(largest, wx_square(v[i]));
  const wx_real near = largest * (0.999 * 0.999);
  wx_mask found = {0};
  wx_num pivot = wx_from(wx_splat(1));
  wx_real where = wx_splat(-1);
  for (long i = 0; i < n; i++) {
    const wx_mask here = ~found & ~wx_lt(wx_square(v[i]), near);
    pivot = wx_choose(here, v[i], pivot);
    where = wx_pick(here, wx_splat((double)i), where);
    found |= here;
  }
  const wx_real size = wx_sqrt(wx_square(pivot));
  const wx_num turn = wx_over(wx_conj(pivot), size);
  for (long i = 0; i < n; i++) v[i] = wx_choose(wx_eq(where, wx_splat((double)i)), wx_from(size), wx_mul(v[i], turn));
}

static void wx_eigh(const wl_job* job, long first, long count, void* scratch) {
  const long n = job->n;
  wx_num *a = scratch, *vectors = a + n * n, *values = vectors + n * n;
  wx_real *d = (wx_real*)(values + n), *e = d + n;
  long* order = (long*)(e + n);
  wx_real largest = wx_splat(0);
  wx_mask bad = {0};
  wx_load(job->dtype, job->a + first * job->a_bytes, job->a_bytes, count, n, n, 0, a);
  for (long i = 0; i < n; i++)
    for (long j = 0; j <= i; j++) {
      bad |= wx_unfit(a[i * n + j]);
      largest = wx_max(largest, wx_size1(a[i * n + j]));
    }
  const wx_real unit = wx_unit(wx_pick(bad, wx_splat(1), largest)), inverse = 1.0 / unit;
  for (long i = 0; i < n; i++) {
    for (long j = 0; j <= i; j++) a[i * n + j] = wx_choose(bad, wx_from(wx_splat(0)), wx_scale(a[i * n + j], inverse));
    a[i * n + i] = wx_from(a[i * n + i].re);
  }
  wx_tridiagonalize(n, a, d, e, vectors);
  bad |= wx_ql(n, wl_is_single(job->dtype) ? 1e-11 : 0x1p-53, d, e, vectors);
  for (long i = 0; i < n; i++) {
    values[i] = wx_from(d[i] * unit);
    wx_fix_phase(n, vectors + i * n);
  }
  for (long l = 0; l < count; l++) wx_sort(n, values, l, 0, order + l * n);
  wx_store_values(job, 0, first, count, n, values, bad, order);
  wx_store(job->dtype, job->out[1] + first * job->out_bytes[1], job->out_bytes[1], count, n, n,
           (wx_source){.from = vectors, .bad = bad, .rows = order, .order = n, .transpose = 1});
}
