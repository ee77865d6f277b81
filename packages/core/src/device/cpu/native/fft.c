// Fourier transforms over one to three trailing axes: line by line along each axis. Real transforms are along the last axis, which
// comes first on the way to the spectrum and last on the way back.
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "fft.h"
#include "share.h"

/* Reduced to the first octant, so that every value is correctly rounded or next to it. */
void wf_root(long m, long n, double* re, double* im) {
  m %= n;
  if (m < 0) m += n;
  __int128 eight = (__int128)8 * m;
  const int octant = (int)(eight / n);
  /* Angle from the nearest multiple of a quarter turn, as a fraction of n. */
  __int128 rest = eight - (__int128)octant * n;
  if (octant & 1) rest = n - rest;
  const long double angle = (long double)rest / n * 0.785398163397448309615660845819875721L;
  const double c = (double)cosl(angle), s = (double)sinl(angle);
  const double x = (octant + 1) & 2 ? s : c, y = (octant + 1) & 2 ? c : s;
  *re = octant >= 2 && octant < 6 ? -x : x;
  *im = octant < 4 ? -y : y;
}

static int run(int dtype, const wf_lines* job) { return (dtype & 1 ? wf_lines_d : wf_lines_s)(job); }

/* dtype: 0 and 1 for single and double precision. d: kind, inverse, number of axes, lines before them, then the sizes of the axes
   with the last one as on the real side. Not 0: no memory. */
static int fft(int dtype, const int64_t* d, const void* in, void* out, int threads) {
  const int kind = (int)d[0], inverse = (int)d[1], axes = (int)d[2];
  const long batch = d[3], last = d[4 + axes - 1], half = last / 2 + 1;
  const long width = kind == 0 ? last : half; /* of the complex side */
  const long bytes = dtype & 1 ? 16 : 8;
  long count = batch * width;
  for (int a = 0; a < axes - 1; a++) count *= d[4 + a];
  /* Half spectra are transformed along the other axes in a copy: the input must not change. */
  void* copy = NULL;
  const void* from = in;
  void* middle = out;
  if (kind == 2 && axes > 1) {
    if (!(copy = malloc(count * bytes))) return 1;
    middle = copy;
  }
  int failed = 0;
  double work = 5.0 * count * log2(last + 2.0);
  if (work < 1e5) threads = 1;
  if (kind != 2) {
    const long wide = kind == 1 ? last : width;
    const wf_lines job = {kind, inverse, threads, last, count / width, 1, in, out, wide, 0, 1, width, 0, 1};
    failed = run(dtype, &job);
    from = out;
  }
  long inner = width;
  for (int a = axes - 2; a >= 0 && !failed; a--) {
    const long n = d[4 + a];
    const wf_lines job = {
        0, kind == 2 || inverse, threads, n, count / n, inner, from, middle, n * inner, 1, inner, n * inner, 1, inner};
    failed = run(dtype, &job);
    from = middle;
    inner *= n;
  }
  if (kind == 2 && !failed) {
    const wf_lines job = {2, 1, threads, last, count / width, 1, axes > 1 ? copy : in, out, width, 0, 1, last, 0, 1};
    failed = run(dtype, &job);
  }
  free(copy);
  return failed;
}

weft_runtime* wx_runtime;

weft_extension weft_extend;
void weft_extend(weft_runtime* table, const char* blas, int threads) {
  (void)blas, (void)threads;
  wx_runtime = table;
  table->fft = fft;
}
