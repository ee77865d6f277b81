// Transforms of lines of complex numbers of one precision T. Short lines run one per vector lane by mixed radices, or by Bluestein's
// algorithm for lengths with large prime factors; long ones are split into two steps of short ones.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fft-lanes.h"
#include "fft.h"
#include "share.h"

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

static C* transform(const plan* p, C* data, C* work);

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
      const C* filter = transform(p->inner, data, data + m);
      for (long k = 0; k < m; k++) p->filter[k] = (S){filter[k].re[0] / m, filter[k].im[0] / m};
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

/* Room that a transform needs beside its data. The half spectrum of a real line has one element more. */
static long work_size(const plan* p) { return (p->inner ? 2 * p->inner->n : p->n) + 1; }

/* The forward transform of one line per lane. Returns which of the two arrays holds the result. */
static C* transform(const plan* p, C* data, C* work) {
  if (p->inner) {
    const long n = p->n, m = p->inner->n;
    for (long k = 0; k < n; k++) work[k] = times(data[k], p->chirp[k]);
    memset(work + n, 0, (m - n) * sizeof(C));
    C* wide = transform(p->inner, work, work + m);
    /* The way back is the forward transform with real and imaginary parts exchanged. */
    for (long k = 0; k < m; k++) {
      const C c = times(wide[k], p->filter[k]);
      wide[k] = (C){c.im, c.re};
    }
    wide = transform(p->inner, wide, wide == work ? work + m : work);
    for (long k = 0; k < n; k++) data[k] = times((C){wide[k].im, wide[k].re}, p->chirp[k]);
    return data;
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
  return from;
}

/* Plans of short lines are kept: there are few, and they are small. One program runs at a time, so that nobody else looks here. */
#define KEPT 64
static plan* kept[KEPT];
static int kept_count;

static const plan* plan_of(long n, plan** own) {
  const plan* found = NULL;
  *own = NULL;
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
  return found;
}

/* Tables of roots are kept too: they are smaller still. */
static root_table tables[KEPT];
static int table_count;

/* NULL: no memory. */
static const root_table* roots_of(long n) {
  for (int i = 0; i < table_count; i++)
    if (tables[i].n == n) return tables + i;
  root_table made = {.n = n};
  while (1L << 2 * made.shift < n) made.shift++;
  const long fine = 1L << made.shift, coarse = n / fine + 1;
  if (!(made.fine = malloc(sizeof(S) * (fine + coarse)))) return NULL;
  made.coarse = made.fine + fine;
  for (long i = 0; i < fine; i++) made.fine[i] = root(i, n);
  for (long i = 0; i < coarse; i++) made.coarse[i] = root(i * fine, n);
  /* The last place is used again and again. */
  if (table_count == KEPT) free(tables[--table_count].fine);
  tables[table_count] = made;
  return tables + table_count++;
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

typedef struct {
  const lane_job* lanes;
  const plan* p;
  atomic_int failed;
} group_job;

static void run_groups(void* const* args, long lo, long hi) {
  group_job* g = args[0];
  const wf_lines* job = g->lanes->job;
  const plan* p = g->p;
  const int pairs = job->kind != 0 && job->n % 2 == 0;
  C* memory = aligned_alloc(64, (job->n + 2 + work_size(p)) * sizeof(C));
  if (!memory) atomic_store(&g->failed, 1);
  for (long group = lo; group < hi && memory; group++) {
    C* data = memory;
    const long first = group * LANES, count = job->lines - first < LANES ? job->lines - first : LANES;
    load_lines(g->lanes, first, count, data);
    if (job->kind == 2) {
      if (pairs) from_half(p, data);
      else
        for (long k = 0; 2 * k < job->n; k++) {
          const C c = data[k];
          data[k] = (C){c.im, c.re};
          if (k > 0) data[job->n - k] = (C){-c.im, c.re};
        }
    }
    data = transform(p, data, memory + job->n + 2);
    if (job->kind == 1 && pairs) to_half(p, data);
    store_lines(g->lanes, first, count, data);
  }
  free(memory);
}

static int run_lanes(const lane_job* lanes) {
  const wf_lines* job = lanes->job;
  plan* own;
  const plan* p = plan_of(job->kind != 0 && job->n % 2 == 0 ? job->n / 2 : job->n, &own);
  if (!p) return 1;
  group_job groups = {.lanes = lanes, .p = p};
  const double work = 30.0 * job->n * job->lines;
  wx_share(run_groups, (void*[]){&groups}, (job->lines + LANES - 1) / LANES, job->threads, work);
  free_plan(own);
  return atomic_load(&groups.failed);
}

static int long_line(long n, const S* x, long in_step, S* y, long out_step, int inverse, int threads);

/* n = n1 n2: lines of n1 with roots of n between them, then lines of n2. */
static int two_steps(long n, long n1, const S* x, long in_step, S* y, long out_step, int inverse, int threads) {
  const long n2 = n / n1;
  const root_table* table = roots_of(n);
  S* middle = malloc(sizeof(S) * n);
  int failed = !table || !middle;
  if (!failed) {
    const wf_lines first = {0, 0, threads, n1, n2, n2, x, middle, 0, in_step, n2 * in_step, 0, 1, n2};
    const lane_job a = {&first, inverse, 0, table};
    const wf_lines second = {0, 0, threads, n2, n1, n1, middle, y, 0, n2, 1, 0, out_step, n1 * out_step};
    const lane_job b = {&second, 0, inverse, NULL};
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
  free(middle);
  return failed;
}

/* What Bluestein's algorithm needs for a long line: the chirp, and the transform of its conjugate. The last one is kept if it is not
   large. */
static struct {
  long n, m;
  S *chirp, *filter;
} bluestein;
#define LARGE_BLUESTEIN (1L << 20)

static void forget_bluestein(void) {
  free(bluestein.chirp), free(bluestein.filter);
  memset(&bluestein, 0, sizeof bluestein);
}

/* Not 0: no memory. */
static int prepare_bluestein(long n, int threads) {
  if (bluestein.n == n) return 0;
  forget_bluestein();
  const long m = bluestein_length(n);
  S* wide = calloc(m, sizeof(S));
  S* chirp = bluestein.chirp = malloc(sizeof(S) * n);
  S* filter = bluestein.filter = malloc(sizeof(S) * m);
  int failed = !wide || !chirp || !filter;
  for (long k = 0; k < n && !failed; k++) {
    const S c = chirp[k] = chirp_root(k, n);
    wide[k] = (S){c.re, -c.im};
    if (k > 0) wide[m - k] = wide[k];
  }
  failed = failed || long_line(m, wide, 1, filter, 1, 0, threads);
  for (long k = 0; k < m && !failed; k++) filter[k] = (S){filter[k].re / m, filter[k].im / m};
  free(wide);
  if (failed) forget_bluestein();
  else bluestein.n = n, bluestein.m = m;
  return failed;
}

static int bluestein_line(long n, const S* x, long in_step, S* y, long out_step, int inverse, int threads) {
  if (prepare_bluestein(n, threads)) return 1;
  const long m = bluestein.m;
  const S *chirp = bluestein.chirp, *filter = bluestein.filter;
  S* wide = calloc(m, sizeof(S));
  S* out = malloc(sizeof(S) * m);
  int failed = !wide || !out;
  if (!failed) {
    for (long k = 0; k < n; k++) {
      const S c = chirp[k], v = x[k * in_step], u = inverse ? (S){v.im, v.re} : v;
      wide[k] = (S){u.re * c.re - u.im * c.im, u.re * c.im + u.im * c.re};
    }
    failed = long_line(m, wide, 1, out, 1, 0, threads);
    for (long k = 0; k < m && !failed; k++) {
      const S a = out[k], b = filter[k];
      wide[k] = (S){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    }
    failed = failed || long_line(m, wide, 1, out, 1, 1, threads);
    for (long k = 0; k < n && !failed; k++) {
      const S a = out[k], c = chirp[k], v = {a.re * c.re - a.im * c.im, a.re * c.im + a.im * c.re};
      y[k * out_step] = inverse ? (S){v.im, v.re} : v;
    }
  }
  free(wide), free(out);
  if (n > LARGE_BLUESTEIN) forget_bluestein();
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

/* From this length on a single line is split, so that its parts fill the lanes. */
#define WORTH_SPLIT (32 * LANES)

static int long_line(long n, const S* x, long in_step, S* y, long out_step, int inverse, int threads) {
  const long n1 = n > WORTH_SPLIT ? split(n) : 0;
  if (n <= SHORT && n1 < LANES / 2) {
    const wf_lines job = {0, inverse, 1, n, 1, 1, x, y, 0, 0, in_step, 0, 0, out_step};
    const lane_job lanes = {&job, inverse, inverse, NULL};
    return run_lanes(&lanes);
  }
  return n1 > 0 ? two_steps(n, n1, x, in_step, y, out_step, inverse, threads)
                : bluestein_line(n, x, in_step, y, out_step, inverse, threads);
}

/* A long line of real numbers on one side and of 2 m real numbers on the other, as m pairs. */
typedef struct {
  long m;
  const root_table* roots;
  const S* from;
  S* to;
} pairs_job;

/* Elements [lo, hi) of the half spectrum from the transform of the pairs. */
static void from_pairs(void* const* p, long lo, long hi) {
  const pairs_job* j = p[0];
  const long m = j->m;
  for (long k = lo; k < hi; k++) {
    const S z = j->from[k == m ? 0 : k], mirror = j->from[k == 0 ? 0 : m - k], c = {mirror.re, -mirror.im};
    const S w = root_of(j->roots, k);
    const S even = {(z.re + c.re) / 2, (z.im + c.im) / 2}, odd = {(z.im - c.im) / 2, -(z.re - c.re) / 2};
    j->to[k] = (S){even.re + odd.re * w.re - odd.im * w.im, even.im + odd.re * w.im + odd.im * w.re};
  }
}
/* And back. */
static void to_pairs(void* const* p, long lo, long hi) {
  const pairs_job* j = p[0];
  const long m = j->m;
  for (long k = lo; k < hi; k++) {
    const S x = j->from[k], mirror = j->from[m - k], u = {x.re, k == 0 ? 0 : x.im};
    const S c = {mirror.re, k == 0 ? 0 : -mirror.im}, r = root_of(j->roots, k);
    const S even = {u.re + c.re, u.im + c.im}, d = {u.re - c.re, u.im - c.im};
    const S odd = {d.re * r.re + d.im * r.im, d.im * r.re - d.re * r.im};
    j->to[k] = (S){even.re - odd.im, even.im + odd.re};
  }
}

/* By the transform of its pairs, or of the whole line where the length is odd. */
static int long_real(const wf_lines* job, const void* in, void* out) {
  const long n = job->n, m = n / 2, size = n % 2 == 0 ? m : n;
  S* a = malloc(sizeof(S) * size);
  int failed = !a;
  pairs_job pairs = {.m = m};
  void* p[] = {&pairs};
  if (n % 2 == 0 && !failed && job->kind == 1) {
    failed = long_line(m, in, 1, a, 1, 0, job->threads) || !(pairs.roots = roots_of(n));
    pairs.from = a, pairs.to = out;
    if (!failed) wx_share(from_pairs, p, m + 1, job->threads, 30.0 * m);
  } else if (n % 2 == 0 && !failed) {
    failed = !(pairs.roots = roots_of(n));
    pairs.from = in, pairs.to = a;
    if (!failed) wx_share(to_pairs, p, m, job->threads, 30.0 * m);
    failed = failed || long_line(m, a, 1, out, 1, 1, job->threads);
  } else if (!failed) {
    S* b = malloc(sizeof(S) * n);
    failed = !b;
    for (long k = 0; k <= m && job->kind == 2; k++) {
      const S x = ((const S*)in)[k];
      a[k] = (S){x.re, k == 0 ? 0 : x.im};
      if (k > 0) a[n - k] = (S){x.re, -x.im};
    }
    for (long k = 0; k < n && job->kind == 1; k++) a[k] = (S){((const T*)in)[k], 0};
    failed = failed || long_line(n, a, 1, b, 1, job->kind == 2, job->threads);
    if (!failed && job->kind == 1) memcpy(out, b, sizeof(S) * (m + 1));
    for (long k = 0; k < n && !failed && job->kind == 2; k++) ((T*)out)[k] = b[k].re;
    free(b);
  }
  free(a);
  return failed;
}

int TYPED(wf_lines)(const wf_lines* job) {
  if (job->n <= WORTH_SPLIT || (job->n <= SHORT && job->lines >= LANES / 4)) {
    const int back = job->kind == 0 && job->inverse;
    const lane_job lanes = {job, back, back, NULL};
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
