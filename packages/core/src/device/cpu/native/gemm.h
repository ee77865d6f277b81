// Batches of matrix products, shared out over threads.
#pragma once
#include "blas.h"
#include "gemm-half.h"
#include "gemm-thin.h"
#include "pool.h"

/* float32, float64, complex64, complex128, bfloat16 */
static const long gemm_bytes[5] = {4, 8, 8, 16, 2};
#define GEMM_HALF 4

typedef struct {
  int dtype, aconj, bconj, rank, thin;
  long m, n, k, ars, acs, brs, bcs, crs, rows, columns;
  const char *a, *b;
  char* c;
  const long *sizes, *as, *bs, *cs;
} gemm_job;

/* Piece "piece" of "pieces" of a length starts here; on a multiple of 16 where pieces are long, as kernels like it. */
static long piece_start(long length, long piece, long pieces) {
  if (piece == pieces) return length;
  const long at = length * piece / pieces;
  return length / pieces >= 64 ? at & ~15L : at;
}

/* Items [lo, hi): blocks of rows and columns of the products of a batch. */
static void gemm_items(void* const* p, long lo, long hi) {
  const gemm_job* j = p[0];
  const long size = gemm_bytes[j->dtype], pieces = j->rows * j->columns;
  for (long item = lo; item < hi; item++) {
    long at = item / pieces, piece = item % pieces, ao = 0, bo = 0, co = 0;
    for (int d = j->rank - 1; d >= 0; d--) {
      long i = at % j->sizes[d];
      at /= j->sizes[d];
      ao += i * j->as[d];
      bo += i * j->bs[d];
      co += i * j->cs[d];
    }
    const long row = piece / j->columns, column = piece % j->columns;
    const long i0 = piece_start(j->m, row, j->rows), i1 = piece_start(j->m, row + 1, j->rows);
    const long j0 = piece_start(j->n, column, j->columns), j1 = piece_start(j->n, column + 1, j->columns);
    const char *a = j->a + (ao + i0 * j->ars) * size, *b = j->b + (bo + j0 * j->bcs) * size;
    char* c = j->c + (co + i0 * j->crs + j0) * size;
    if (j->thin) thin_gemm(j->dtype, i1 - i0, j1 - j0, j->k, a, j->ars, j->acs, b, j->brs, j->bcs, c, j->crs);
    else if (j->dtype == GEMM_HALF)
      half_gemm(&(half_product){.m = i1 - i0,
                                .n = j1 - j0,
                                .k = j->k,
                                .a = (const uint16_t*)a,
                                .ars = j->ars,
                                .acs = j->acs,
                                .b = (const uint16_t*)b,
                                .brs = j->brs,
                                .bcs = j->bcs,
                                .c = c,
                                .crs = j->crs});
    else
      one_gemm(j->dtype, i1 - i0, j1 - j0, j->k, a, j->ars, j->acs, j->aconj, b, j->brs, j->bcs, j->bconj, c, j->crs,
               0);
  }
}

static void wr_gemm(int dtype, long m, long n, long k, const void* a, long ars, long acs, int aconj, const void* b,
                    long brs, long bcs, int bconj, void* c, long crs, int rank, const long* sizes, const long* as,
                    const long* bs, const long* cs, int threads) {
  /* A matrix times a column is the column times the transposed matrix. */
  if (n == 1 && crs == 1 && m > 1 && dtype < 2) {
    wr_gemm(dtype, 1, m, k, b, 1, brs, 0, a, acs, ars, 0, c, m, rank, sizes, bs, as, cs, threads);
    return;
  }
  const int thin = is_thin(dtype, m, n, k, acs, brs, bcs);
  gemm_job job = {dtype, aconj, bconj, rank, thin, m, n, k, ars, acs, brs, bcs, crs, 1, 1, a, b, c, sizes, as, bs, cs};
  void* p[] = {&job};
  long batch = 1;
  for (int i = 0; i < rank; i++) batch *= sizes[i];
  const double work = 2.0 * m * n * k * batch * (dtype == GEMM_HALF ? 0.5 : dtype > 1 ? 4 : 1);
  /* Small products are faster on one thread: a second one pays from about n = 128, or where memory is read. */
  if (threads < 2 || work < (batch == 1 && !thin ? 3e6 : 4e5)) {
    gemm_items(p, 0, batch);
    return;
  }
  /* Each thread takes whole products, or blocks of them: of all grids the one with the least to read. */
  if (batch < threads) {
    const long pieces = (threads + batch - 1) / batch;
    double least = -1;
    for (long rows = 1; rows <= pieces; rows++) {
      const long columns = pieces / rows;
      if (rows * columns < pieces || rows > m || columns > n) continue;
      const double read = (double)m * columns + (double)n * rows;
      if (least >= 0 && read >= least) continue;
      least = read;
      job.rows = rows;
      job.columns = columns;
    }
  }
  const long items = batch * job.rows * job.columns;
  pool_run(gemm_items, p, 0, items, items < 4L * threads ? threads : 2L * threads, work / 1e6);
}
