// Where updates of a scatter go.
#pragma once
#include "prelude.cuh"

/* The place of element e of the updates in the result, or -1. Long divisions cost more than everything else: single numbers that
   are added along the only axis take none, and sizes below 2^31 short ones. */
W_INLINE long long w_scatter_target(const int* indices, long long e, long long before, long long n, long long after,
                                    long long count, long long total) {
  if (after == 1 && count == total) {
    int row = indices[e];
    return row < 0 || row >= n ? -1 : row;
  }
  long long c, i, outer, q;
  if (total < 1ll << 31) {
    unsigned at = (unsigned)e / (unsigned)after;
    c = (unsigned)e % (unsigned)after;
    i = at % (unsigned)count;
    outer = at / (unsigned)count;
    q = before == 1 ? outer : (unsigned)outer / (unsigned)before;
  } else {
    c = e % after;
    i = e / after % count;
    outer = e / after / count;
    q = outer / before;
  }
  int row = indices[q * count + i];
  return row < 0 || row >= n ? -1 : (outer * n + row) * after + c;
}
