// Fourier transforms of the CPU device: what its parts share. The transforms are compiled once per precision.
#pragma once
#include <stdint.h>

/* Lines of equal length. Line l is number l % inner of the outer block l / inner; strides are in elements. Kinds: 0 complex to complex,
   1 real to half spectrum, 2 half spectrum to real. */
typedef struct {
  int kind, inverse, threads;
  long n; /* length, of the real side where there is one */
  long lines, inner;
  const void* in;
  void* out;
  long in_outer, in_inner, in_step, out_outer, out_inner, out_step;
} wf_lines;

/* Transforms all lines, unnormalized. Not 0: no memory. */
int wf_lines_s(const wf_lines* job);
int wf_lines_d(const wf_lines* job);
/* exp(-2 pi i m / n). */
void wf_root(long m, long n, double* re, double* im);
