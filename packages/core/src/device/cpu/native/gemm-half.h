// Products of bfloat16 matrices. Where the processor has AVX512-BF16, operands are copied into panels of pairs, which one instruction
// multiplies and adds to float32 sums; elsewhere blocks are widened to float32 for the library. Sums are rounded once, at the end.
// The instructions take subnormal numbers for zero; a sum that is one becomes zero.
#pragma once
#include <stdlib.h>
#include <string.h>
#include "blas.h"

/* What a product writes: rounded numbers, float32 sums, or sums added to those that are there. */
enum { HALF_ROUND, HALF_STORE, HALF_ADD };

/* Rows of a, or columns of b, that lie in pieces of an even length "run": piece g of line i begins at at[g * count + i]; NULL: zeros. */
typedef struct {
  const uint16_t* const* at;
  long count, run;
} half_lines;

/* Strides in elements. The columns of c are contiguous. */
typedef struct {
  long m, n, k;
  const uint16_t* a;
  long ars, acs;
  const uint16_t* b;
  long brs, bcs;
  const half_lines *rows, *columns; /* in place of a or b */
  void* c;
  long crs;
  int write;
  int singles; /* for pairs_gemm: lines are float32 numbers, counted in halves; c too, and write is not HALF_ROUND */
  int turned;  /* inside pairs_gemm: element (i, j) of the product lies at c[j * crs + i] */
} half_product;

/* Elements of a row that are packed at once, and rows and columns of a block whose sums wait in memory for the next ones: what is packed
   stays in the second-level cache. Sums in registers are strips of eight rows and up to 48 columns, or of 16 and 16. */
#define HALF_DEPTH 768L
#define HALF_BLOCK 192L
#define HALF_WIDTH 384L
#define HALF_STRIP 48L
#define HALF_PANEL (HALF_DEPTH / 2 * HALF_BLOCK)
#define HALF_BYTES (4 * (HALF_PANEL + HALF_DEPTH / 2 * HALF_STRIP + HALF_BLOCK * HALF_WIDTH))

/* Memory of a thread for panels and sums, allocated once; NULL where there is none. */
static char* half_memory(void) {
  static __thread char* memory;
  if (!memory && posix_memalign((void**)&memory, 64, HALF_BYTES)) memory = NULL;
  return memory;
}

static float half_element(const uint16_t* x, long across, long along, const half_lines* lines, long i, long p) {
  if (!lines) return w_from_bfloat(x[i * across + p * along]);
  const uint16_t* at = lines->at[p / lines->run * lines->count + i];
  return at ? w_from_bfloat(at[p % lines->run]) : 0;
}
#define HALF_LEFT(h, i, p) half_element(h->a, h->ars, h->acs, h->rows, i, p)
#define HALF_RIGHT(h, p, j) half_element(h->b, h->bcs, h->brs, h->columns, j, p)

static void half_put(const half_product* h, long i, long j, float sum) {
  const long at = i * h->crs + j;
  if (h->write == HALF_ROUND) ((uint16_t*)h->c)[at] = w_to_bfloat(sum);
  else ((float*)h->c)[at] = h->write == HALF_ADD ? ((float*)h->c)[at] + sum : sum;
}

/* The product by blocks of float32 numbers. */
static void half_widened(const half_product* h) {
  enum { SIDE = 128, DEEP = 384 };
  float* memory = (float*)half_memory();
  if (!memory) {
    for (long i = 0; i < h->m; i++)
      for (long j = 0; j < h->n; j++) {
        float sum = 0;
        for (long p = 0; p < h->k; p++) sum += HALF_LEFT(h, i, p) * HALF_RIGHT(h, p, j);
        half_put(h, i, j, sum);
      }
    return;
  }
  float *left = memory, *right = left + SIDE * DEEP, *sums = right + DEEP * SIDE;
  for (long i0 = 0; i0 < h->m; i0 += SIDE)
    for (long j0 = 0; j0 < h->n; j0 += SIDE) {
      const long rows = h->m - i0 < SIDE ? h->m - i0 : SIDE, columns = h->n - j0 < SIDE ? h->n - j0 : SIDE;
      memset(sums, 0, sizeof(float) * SIDE * SIDE);
      for (long p0 = 0; p0 < h->k; p0 += DEEP) {
        const long depth = h->k - p0 < DEEP ? h->k - p0 : DEEP;
        for (long i = 0; i < rows; i++)
          for (long p = 0; p < depth; p++) left[i * DEEP + p] = HALF_LEFT(h, i0 + i, p0 + p);
        for (long p = 0; p < depth; p++)
          for (long j = 0; j < columns; j++) right[p * SIDE + j] = HALF_RIGHT(h, p0 + p, j0 + j);
        one_gemm(0, rows, columns, depth, (char*)left, DEEP, 1, 0, (char*)right, SIDE, 1, 0, (char*)sums, SIDE, 1);
      }
      for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) half_put(h, i0 + i, j0 + j, sums[i * SIDE + j]);
    }
}

#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 10) && !defined(W_NO_BF16)
#include "gemm-pairs.h"
#else
static int has_pairs(int singles) { return singles & 0; }
static int pairs_gemm(const half_product* h) { return h == NULL; }
#endif

/* The path follows from the processor that runs this, not from the one that compiled it. */
static void half_gemm(const half_product* h) {
  if (h->m == 0 || h->n == 0) return;
  if (!has_pairs(0) || !pairs_gemm(h)) half_widened(h);
}
