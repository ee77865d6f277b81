// Transforms of lines of complex numbers of one precision T. Short lines run one per vector lane by mixed radices, or by Bluestein's
// algorithm for lengths with large prime factors; long ones are split into two steps of short ones.
#define _GNU_SOURCE
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "fft.h"

#define LANES ((long)(64 / sizeof(T)))
typedef T V __attribute__((vector_size(64)));
typedef struct {
  V re, im;
} C;
typedef struct {
  T re, im;
} S;

/* Up to this length a line is transformed in lanes: its buffers fit the second-level cache. */
#define SHORT 4096
/* The largest prime factor with a butterfly of its own. */
#define MAX_RADIX 47
#define MAX_FACTORS 32

typedef struct plan {
  long n;
  int count;
  long factor[MAX_FACTORS];
  S* twiddle[MAX_FACTORS];
  S* roots[MAX_FACTORS]; /* of odd radices without a butterfly of their own */
  S* half;               /* roots of the real transform of twice the length */
  /* Bluestein: */
  struct plan* inner;
  S *chirp, *filter;
} plan;

static S root(long m, long n) {
  double re, im;
  wf_root(m, n, &re, &im);
  return (S){(T)re, (T)im};
}

static void free_plan(plan* p) {
  if (!p) return;
  for (int i = 0; i < p->count; i++) free(p->twiddle[i]), free(p->roots[i]);
  free_plan(p->inner);
  free(p->half), free(p->chirp), free(p->filter), free(p);
}

/* Factors of n, fours first; 0 where a prime factor is too large. */
static int factorize(long n, long* factor) {
  int count = 0;
  while (n % 4 == 0) factor[count++] = 4, n /= 4;
  for (long p = 2; p <= MAX_RADIX; p += p == 2 ? 1 : 2)
    while (n % p == 0) factor[count++] = p, n /= p;
  return n == 1 ? count : -1;
}

static void transform(const plan* p, C* data, C* work);

/* The smallest length without large factors that a convolution of n needs. */
static long bluestein_length(long n) {
  for (long m = 2 * n - 1;; m++) {
    long rest = m;
    while (rest % 2 == 0) rest /= 2;
    while (rest % 3 == 0) rest /= 3;
    if (rest == 1) return m;
  }
}

/* exp(-pi i k^2 / n) */
static S chirp_root(long k, long n) { return root((long)((__int128)k * k % (2 * n)), 2 * n); }

static plan* make_plan(long n) {
  plan* p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->n = n;
  int ok = 1;
  const int count = factorize(n, p->factor);
  if (count >= 0) {
    p->count = count;
    long l1 = 1;
    for (int f = 0; f < count && ok; f++) {
      const long r = p->factor[f], ido = n / (l1 * r);
      if (!(p->twiddle[f] = malloc(sizeof(S) * (r - 1) * ido))) ok = 0;
      for (long j = 1; j < r && ok; j++)
        for (long i = 0; i < ido; i++) p->twiddle[f][(j - 1) * ido + i] = root(j * l1 * i, n);
      if (ok && r > 5) {
        if (!(p->roots[f] = malloc(sizeof(S) * r))) ok = 0;
        for (long j = 0; j < r && ok; j++) p->roots[f][j] = root(j, r);
      }
      l1 *= r;
    }
  } else {
    const long m = bluestein_length(n);
    p->inner = make_plan(m);
    p->chirp = malloc(sizeof(S) * n);
    p->filter = malloc(sizeof(S) * m);
    C* data = aligned_alloc(64, 2 * m * sizeof(C));
    ok = p->inner && p->chirp && p->filter && data;
    if (ok) {
      memset(data, 0, m * sizeof(C));
      for (long k = 0; k < n; k++) {
        p->chirp[k] = chirp_root(k, n);
        const S c = {p->chirp[k].re, -p->chirp[k].im};
        data[k].re[0] = c.re, data[k].im[0] = c.im;
        if (k > 0) data[m - k].re[0] = c.re, data[m - k].im[0] = c.im;
      }
      transform(p->inner, data, data + m);
      for (long k = 0; k < m; k++) p->filter[k] = (S){data[k].re[0] / m, data[k].im[0] / m};
    }
    free(data);
  }
  if (!ok) free_plan(p), p = NULL;
  return p;
}

#define AT(i, j, k) from[(i) + ido * ((j) + r * (k))]
#define TO(i, k, j) to[(i) + ido * ((k) + l1 * (j))]

static inline C times(C a, S w) { return (C){a.re * w.re - a.im * w.im, a.re * w.im + a.im * w.re}; }
static inline C plus(C a, C b) { return (C){a.re + b.re, a.im + b.im}; }
static inline C minus(C a, C b) { return (C){a.re - b.re, a.im - b.im}; }
/* -i a */
static inline C turn(C a) { return (C){a.im, -a.re}; }
/* a + c b */
static inline C add_scaled(C a, T c, C b) { return (C){a.re + c * b.re, a.im + c * b.im}; }
static inline C scaled(T c, C b) { return (C){c * b.re, c * b.im}; }

static void pass2(long ido, long l1, const C* from, C* to, const S* w) {
  enum { r = 2 };
  for (long k = 0; k < l1; k++)
    for (long i = 0; i < ido; i++) {
      const C a = AT(i, 0, k), b = AT(i, 1, k);
      TO(i, k, 0) = plus(a, b);
      TO(i, k, 1) = times(minus(a, b), w[i]);
    }
}

static void pass3(long ido, long l1, const C* from, C* to, const S* w) {
  enum { r = 3 };
  const T c = (T)-0.5, s = (T)0.866025403784438646763723170752936183;
  for (long k = 0; k < l1; k++)
    for (long i = 0; i < ido; i++) {
      const C a = AT(i, 0, k), sum = plus(AT(i, 1, k), AT(i, 2, k)), difference = minus(AT(i, 1, k), AT(i, 2, k));
      const C m = add_scaled(a, c, sum), t = scaled(s, turn(difference));
      TO(i, k, 0) = plus(a, sum);
      TO(i, k, 1) = times(plus(m, t), w[i]);
      TO(i, k, 2) = times(minus(m, t), w[ido + i]);
    }
}

static void pass4(long ido, long l1, const C* from, C* to, const S* w) {
  enum { r = 4 };
  for (long k = 0; k < l1; k++)
    for (long i = 0; i < ido; i++) {
      const C a = plus(AT(i, 0, k), AT(i, 2, k)), b = minus(AT(i, 0, k), AT(i, 2, k));
      const C c = plus(AT(i, 1, k), AT(i, 3, k)), d = turn(minus(AT(i, 1, k), AT(i, 3, k)));
      TO(i, k, 0) = plus(a, c);
      TO(i, k, 1) = times(plus(b, d), w[i]);
      TO(i, k, 2) = times(minus(a, c), w[ido + i]);
      TO(i, k, 3) = times(minus(b, d), w[2 * ido + i]);
    }
}

static void pass5(long ido, long l1, const C* from, C* to, const S* w) {
  enum { r = 5 };
  const T c1 = (T)0.309016994374947424102293417182819059, s1 = (T)0.951056516295153572116439333379382143;
  const T c2 = (T)-0.809016994374947424102293417182819059, s2 = (T)0.587785252292473129168705954639072769;
  for (long k = 0; k < l1; k++)
    for (long i = 0; i < ido; i++) {
      const C a = AT(i, 0, k), p1 = plus(AT(i, 1, k), AT(i, 4, k)), p2 = plus(AT(i, 2, k), AT(i, 3, k));
      const C m1 = turn(minus(AT(i, 1, k), AT(i, 4, k))), m2 = turn(minus(AT(i, 2, k), AT(i, 3, k)));
      const C e1 = add_scaled(add_scaled(a, c1, p1), c2, p2), e2 = add_scaled(add_scaled(a, c2, p1), c1, p2);
      const C o1 = add_scaled(scaled(s1, m1), s2, m2), o2 = add_scaled(scaled(s2, m1), -s1, m2);
      TO(i, k, 0) = plus(plus(a, p1), p2);
      TO(i, k, 1) = times(plus(e1, o1), w[i]);
      TO(i, k, 2) = times(plus(e2, o2), w[ido + i]);
      TO(i, k, 3) = times(minus(e2, o2), w[2 * ido + i]);
      TO(i, k, 4) = times(minus(e1, o1), w[3 * ido + i]);
    }
}

/* Any odd radix: sums and differences of opposite elements meet the cosines and sines. */
static void pass_odd(long r, long ido, long l1, const C* from, C* to, const S* w, const S* roots) {
  const long h = (r - 1) / 2;
  C sum[MAX_RADIX / 2], difference[MAX_RADIX / 2];
  for (long k = 0; k < l1; k++)
    for (long i = 0; i < ido; i++) {
      const C a = AT(i, 0, k);
      C all = a;
      for (long j = 1; j <= h; j++) {
        sum[j - 1] = plus(AT(i, j, k), AT(i, r - j, k));
        difference[j - 1] = turn(minus(AT(i, j, k), AT(i, r - j, k)));
        all = plus(all, sum[j - 1]);
      }
      TO(i, k, 0) = all;
      for (long m = 1; m <= h; m++) {
        C even = a, odd = {{0}, {0}};
        for (long j = 1; j <= h; j++) {
          const S c = roots[j * m % r];
          even = add_scaled(even, c.re, sum[j - 1]);
          odd = add_scaled(odd, -c.im, difference[j - 1]);
        }
        TO(i, k, m) = times(plus(even, odd), w[(m - 1) * ido + i]);
        TO(i, k, r - m) = times(minus(even, odd), w[(r - m - 1) * ido + i]);
      }
    }
}

/* Room that a transform needs beside its data. */
static long work_size(const plan* p) { return p->inner ? 2 * p->inner->n : p->n; }

/* The forward transform of one line per lane, in place. */
static void transform(const plan* p, C* data, C* work) {
  if (p->inner) {
    const long n = p->n, m = p->inner->n;
    C* wide = work;
    for (long k = 0; k < n; k++) wide[k] = times(data[k], p->chirp[k]);
    memset(wide + n, 0, (m - n) * sizeof(C));
    transform(p->inner, wide, work + m);
    /* The way back is the forward transform with real and imaginary parts exchanged. */
    for (long k = 0; k < m; k++) {
      const C c = times(wide[k], p->filter[k]);
      wide[k] = (C){c.im, c.re};
    }
    transform(p->inner, wide, work + m);
    for (long k = 0; k < n; k++) data[k] = times((C){wide[k].im, wide[k].re}, p->chirp[k]);
    return;
  }
  C *from = data, *to = work;
  long l1 = 1;
  for (int f = 0; f < p->count; f++) {
    const long r = p->factor[f], ido = p->n / (l1 * r);
    const S* w = p->twiddle[f];
    if (r == 4) pass4(ido, l1, from, to, w);
    else if (r == 2) pass2(ido, l1, from, to, w);
    else if (r == 3) pass3(ido, l1, from, to, w);
    else if (r == 5) pass5(ido, l1, from, to, w);
    else pass_odd(r, ido, l1, from, to, w, p->roots[f]);
    l1 *= r;
    C* swap = from;
    from = to, to = swap;
  }
  if (from != data) memcpy(data, from, p->n * sizeof(C));
}

/* Plans of short lines are kept: there are few, and they are small. */
#define KEPT 64
static plan* kept[KEPT];
static int kept_count;

static const plan* plan_of(long n, plan** own) {
  const plan* found = NULL;
  *own = NULL;
#pragma omp critical(TYPED(weft_fft_plans))
  {
    for (int i = 0; i < kept_count && !found; i++)
      if (kept[i]->n == n) found = kept[i];
    if (!found) {
      plan* made = make_plan(n);
      if (made && !(made->half = malloc(sizeof(S) * (n + 1)))) free_plan(made), made = NULL;
      for (long k = 0; made && k <= n; k++) made->half[k] = root(k, 2 * n);
      found = made;
      if (made && kept_count < KEPT) kept[kept_count++] = made;
      else *own = made;
    }
  }
  return found;
}

/* Where a lane reads and writes, and whether real and imaginary parts change places there. */
typedef struct {
  const wf_lines* job;
  int swap_in, swap_out;
  long twiddle; /* elements k of line l are multiplied by the root l k of this length; 0: not */
  const S *coarse, *fine;
  long fine_size;
} lane_job;

static inline void put(C* c, long lane, T re, T im) { c->re[lane] = re, c->im[lane] = im; }

static void load_line(const lane_job* lanes, long line, long lane, C* data) {
  const wf_lines* job = lanes->job;
  const long at = line / job->inner * job->in_outer + line % job->inner * job->in_inner, step = job->in_step,
             n = job->n;
  if (job->kind == 0) {
    const S* x = (const S*)job->in + at;
    if (lanes->swap_in)
      for (long j = 0; j < n; j++) put(data + j, lane, x[j * step].im, x[j * step].re);
    else
      for (long j = 0; j < n; j++) put(data + j, lane, x[j * step].re, x[j * step].im);
  } else if (job->kind == 1) {
    const T* x = (const T*)job->in + at;
    if (n % 2 == 0)
      for (long j = 0; j < n / 2; j++) put(data + j, lane, x[2 * j], x[2 * j + 1]);
    else
      for (long j = 0; j < n; j++) put(data + j, lane, x[j], 0);
  } else {
    const S* x = (const S*)job->in + at;
    for (long k = 0; k <= n / 2; k++) put(data + k, lane, x[k].re, k == 0 || 2 * k == n ? 0 : x[k].im);
  }
}

static void store_line(const lane_job* lanes, long line, long lane, const C* data) {
  const wf_lines* job = lanes->job;
  const long at = line / job->inner * job->out_outer + line % job->inner * job->out_inner, step = job->out_step,
             n = job->n;
  if (job->kind == 2) {
    T* y = (T*)job->out + at;
    if (n % 2 == 0)
      for (long j = 0; j < n / 2; j++) y[2 * j] = data[j].im[lane], y[2 * j + 1] = data[j].re[lane];
    else
      for (long j = 0; j < n; j++) y[j] = data[j].im[lane];
    return;
  }
  S* y = (S*)job->out + at;
  const long count = job->kind == 1 ? n / 2 + 1 : n;
  for (long k = 0; k < count; k++) {
    T re = data[k].re[lane], im = data[k].im[lane];
    if (lanes->twiddle) {
      const long m = line % job->inner * k; /* below the length: line and k are below its two factors */
      const S a = lanes->coarse[m / lanes->fine_size], b = lanes->fine[m % lanes->fine_size];
      const T wr = a.re * b.re - a.im * b.im, wi = a.re * b.im + a.im * b.re, r = re * wr - im * wi;
      im = re * wi + im * wr, re = r;
    }
    y[k * step] = lanes->swap_out ? (S){im, re} : (S){re, im};
  }
}

/* The half spectrum of a real line from the transform of its pairs: data[0 .. m]. */
static void to_half(const plan* p, C* data) {
  const long m = p->n;
  data[m] = data[0];
  for (long k = 0; 2 * k <= m; k++) {
    const C a = data[k], b = {data[m - k].re, -data[m - k].im};
    const C even = scaled((T)0.5, plus(a, b)), odd = scaled((T)0.5, turn(minus(a, b)));
    const C t = times(odd, p->half[k]);
    data[k] = plus(even, t);
    /* The mirror: even and odd parts are conjugate there, and the root is minus the conjugate. */
    const C mirror = minus(even, t);
    data[m - k] = (C){mirror.re, -mirror.im};
  }
}

/* Back, with real and imaginary parts exchanged for the forward transform. */
static void from_half(const plan* p, C* data) {
  const long m = p->n;
  for (long k = 0; 2 * k <= m; k++) {
    const C a = data[k], b = {data[m - k].re, -data[m - k].im};
    const S w = {p->half[k].re, -p->half[k].im};
    const C even = plus(a, b), odd = times(minus(a, b), w);
    /* even + i odd, and at the mirror conj(even) + i conj(odd). */
    data[k] = (C){even.im + odd.re, even.re - odd.im};
    if (k > 0 && 2 * k < m) data[m - k] = (C){-even.im + odd.re, even.re + odd.im};
  }
}

static int run_lanes(const lane_job* lanes) {
  const wf_lines* job = lanes->job;
  const int pairs = job->kind != 0 && job->n % 2 == 0;
  plan* own;
  const plan* p = plan_of(pairs ? job->n / 2 : job->n, &own);
  if (!p) return 1;
  const long groups = (job->lines + LANES - 1) / LANES;
  int failed = 0;
#pragma omp parallel num_threads(job->threads) if (job -> threads > 1) reduction(| : failed)
  {
    C* data = aligned_alloc(64, (job->n + 2 + work_size(p)) * sizeof(C));
    if (!data) failed = 1;
    C* work = data + job->n + 2;
#pragma omp for schedule(static)
    for (long g = 0; g < groups; g++) {
      if (!data) continue;
      const long first = g * LANES, count = job->lines - first < LANES ? job->lines - first : LANES;
      if (count < LANES) memset(data, 0, (job->n + 2) * sizeof(C));
      for (long lane = 0; lane < count; lane++) load_line(lanes, first + lane, lane, data);
      if (job->kind == 2) {
        if (pairs) from_half(p, data);
        else
          for (long k = 0; 2 * k < job->n; k++) {
            const C c = data[k];
            data[k] = (C){c.im, c.re};
            if (k > 0) data[job->n - k] = (C){-c.im, c.re};
          }
      }
      transform(p, data, work);
      if (job->kind == 1 && pairs) to_half(p, data);
      for (long lane = 0; lane < count; lane++) store_line(lanes, first + lane, lane, data);
    }
    free(data);
  }
  free_plan(own);
  return failed;
}

static int long_line(long n, const S* x, long in_step, S* y, long out_step, int inverse, int threads);

/* n = n1 n2: lines of n1 with roots of n between them, then lines of n2. */
static int two_steps(long n, long n1, const S* x, long in_step, S* y, long out_step, int inverse, int threads) {
  const long n2 = n / n1;
  long fine = 1;
  while (fine * fine < n) fine *= 2;
  const long coarse = (n + fine - 1) / fine;
  S* table = malloc(sizeof(S) * (fine + coarse));
  S* middle = malloc(sizeof(S) * n);
  int failed = !table || !middle;
  if (!failed) {
    for (long i = 0; i < fine; i++) table[i] = root(i, n);
    for (long i = 0; i < coarse; i++) table[fine + i] = root(i * fine, n);
    const wf_lines first = {0, 0, threads, n1, n2, n2, x, middle, 0, in_step, n2 * in_step, 0, 1, n2};
    const lane_job a = {&first, inverse, 0, n, table + fine, table, fine};
    const wf_lines second = {0, 0, threads, n2, n1, n1, middle, y, 0, n2, 1, 0, out_step, n1 * out_step};
    const lane_job b = {&second, 0, inverse, 0, NULL, NULL, 1};
    failed = run_lanes(&a) || (n2 <= SHORT && run_lanes(&b));
    /* The second step of a very long line is long itself; its result is exchanged here. */
    for (long l = 0; l < n1 && n2 > SHORT && !failed; l++) {
      failed = long_line(n2, middle + l * n2, 1, y + l * out_step, n1 * out_step, 0, threads);
      for (long k = 0; k < n2 && inverse && !failed; k++) {
        S* at = y + (l + k * n1) * out_step;
        *at = (S){at->im, at->re};
      }
    }
  }
  free(table), free(middle);
  return failed;
}

static int bluestein_line(long n, const S* x, long in_step, S* y, long out_step, int inverse, int threads) {
  const long m = bluestein_length(n);
  S* wide = calloc(m, sizeof(S));
  S* filter = calloc(m, sizeof(S));
  S* out = malloc(sizeof(S) * m);
  S* chirp = malloc(sizeof(S) * n);
  int failed = !wide || !filter || !out || !chirp;
  if (!failed) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long k = 0; k < n; k++) {
      const S c = chirp_root(k, n), v = x[k * in_step], u = inverse ? (S){v.im, v.re} : v;
      chirp[k] = c;
      wide[k] = (S){u.re * c.re - u.im * c.im, u.re * c.im + u.im * c.re};
      filter[k] = (S){c.re, -c.im};
      if (k > 0) filter[m - k] = (S){c.re, -c.im};
    }
    failed = long_line(m, filter, 1, out, 1, 0, threads) || long_line(m, wide, 1, filter, 1, 0, threads);
    for (long k = 0; k < m && !failed; k++) {
      const S a = filter[k], b = {out[k].re / m, out[k].im / m};
      wide[k] = (S){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    }
    failed = failed || long_line(m, wide, 1, out, 1, 1, threads);
    for (long k = 0; k < n && !failed; k++) {
      const S a = out[k], c = chirp[k], v = {a.re * c.re - a.im * c.im, a.re * c.im + a.im * c.re};
      y[k * out_step] = inverse ? (S){v.im, v.re} : v;
    }
  }
  free(wide), free(filter), free(out), free(chirp);
  return failed;
}

/* The largest short factor of n up to its root; 0 where n has a large prime factor. */
static long split(long n) {
  long factor[MAX_FACTORS * 2], best = 0;
  if (factorize(n, factor) < 0) return 0;
  for (long d = 2; d * d <= n && d <= SHORT; d++)
    if (n % d == 0) best = d;
  return best;
}

static int long_line(long n, const S* x, long in_step, S* y, long out_step, int inverse, int threads) {
  if (n <= SHORT) {
    const wf_lines job = {0, inverse, 1, n, 1, 1, x, y, 0, 0, in_step, 0, 0, out_step};
    const lane_job lanes = {&job, inverse, inverse, 0, NULL, NULL, 1};
    return run_lanes(&lanes);
  }
  const long n1 = split(n);
  return n1 > 0 ? two_steps(n, n1, x, in_step, y, out_step, inverse, threads)
                : bluestein_line(n, x, in_step, y, out_step, inverse, threads);
}

/* A long line of real numbers on one side, by a transform of its pairs, or of the whole line where the length is odd. */
static int long_real(const wf_lines* job, const void* in, void* out) {
  const long n = job->n, m = n / 2;
  const int pairs = n % 2 == 0;
  const long size = pairs ? m : n;
  S* a = calloc(size + 1, sizeof(S));
  S* b = malloc(sizeof(S) * (size + 1));
  int failed = !a || !b;
  if (!failed && job->kind == 1) {
    const T* x = in;
    S* y = out;
    for (long j = 0; j < size; j++) a[j] = pairs ? (S){x[2 * j], x[2 * j + 1]} : (S){x[j], 0};
    failed = long_line(size, a, 1, b, 1, 0, job->threads);
    if (!pairs) memcpy(y, b, sizeof(S) * (m + 1));
    for (long k = 0; k <= m && pairs && !failed; k++) {
      const S z = b[k == m ? 0 : k], c = {b[k == 0 ? 0 : m - k].re, -b[k == 0 ? 0 : m - k].im}, w = root(k, n);
      const S even = {(z.re + c.re) / 2, (z.im + c.im) / 2}, odd = {(z.im - c.im) / 2, -(z.re - c.re) / 2};
      y[k] = (S){even.re + odd.re * w.re - odd.im * w.im, even.im + odd.re * w.im + odd.im * w.re};
    }
  } else if (!failed) {
    const S* x = in;
    T* y = out;
    if (pairs)
      for (long k = 0; k < m; k++) {
        const S u = {x[k].re, k == 0 ? 0 : x[k].im}, c = {x[m - k].re, k == 0 ? 0 : -x[m - k].im}, r = root(k, n);
        const S even = {u.re + c.re, u.im + c.im}, d = {u.re - c.re, u.im - c.im};
        const S odd = {d.re * r.re + d.im * r.im, d.im * r.re - d.re * r.im};
        a[k] = (S){even.re - odd.im, even.im + odd.re};
      }
    else
      for (long k = 0; k <= m; k++) {
        a[k] = (S){x[k].re, k == 0 ? 0 : x[k].im};
        if (k > 0) a[n - k] = (S){a[k].re, -a[k].im};
      }
    failed = long_line(size, a, 1, b, 1, 1, job->threads);
    for (long j = 0; j < size && !failed; j++) {
      if (pairs) y[2 * j] = b[j].re, y[2 * j + 1] = b[j].im;
      else y[j] = b[j].re;
    }
  }
  free(a), free(b);
  return failed;
}

int TYPED(wf_lines)(const wf_lines* job) {
  if (job->n <= SHORT) {
    const int back = job->kind == 0 && job->inverse;
    const lane_job lanes = {job, back, back, 0, NULL, NULL, 1};
    return run_lanes(&lanes);
  }
  int failed = 0;
  for (long l = 0; l < job->lines && !failed; l++) {
    const long from = l / job->inner * job->in_outer + l % job->inner * job->in_inner;
    const long to = l / job->inner * job->out_outer + l % job->inner * job->out_inner;
    if (job->kind == 0)
      failed = long_line(job->n, (const S*)job->in + from, job->in_step, (S*)job->out + to, job->out_step, job->inverse,
                         job->threads);
    else if (job->kind == 1) failed = long_real(job, (const T*)job->in + from, (S*)job->out + to);
    else failed = long_real(job, (const S*)job->in + from, (T*)job->out + to);
  }
  return failed;
}
