// The runtime library of the CPU device in C: memory, copies, matrix products through OpenBLAS (or a blocked fallback),
// and the ops that are not loops over independent elements. Compiled once per machine.
import { abiSource } from "./abi.js";
import { poolSource } from "./pool.js";
import { preludeSource } from "./prelude.js";

const memorySource = String.raw`
#include <stdlib.h>
#include <dlfcn.h>
#include <sys/mman.h>

/* Large blocks are aligned and marked for huge pages: first touch costs a fraction of 4 KiB pages. */
void* wr_alloc(uint64_t bytes) {
  size_t align = bytes >= (4u << 20) ? (2u << 20) : 64;
  void* p = NULL;
  if (posix_memalign(&p, align, bytes ? bytes : 64) != 0) return NULL;
  if (align > 64) madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}
void wr_free(void* p) { free(p); }
void wr_copy(void* to, const void* from, uint64_t bytes) { memcpy(to, from, bytes); }
/* Into an array that nobody has touched yet, mostly: with large pages its first touch is a tenth of the work. */
void wr_copy_out(void* to, const void* from, uint64_t bytes) {
  uintptr_t start = ((uintptr_t)to + 4095) & ~(uintptr_t)4095, end = ((uintptr_t)to + bytes) & ~(uintptr_t)4095;
  if (bytes >= (4u << 20)) madvise((void*)start, end - start, MADV_HUGEPAGE);
  memcpy(to, from, bytes);
}
`;

const gemmSource = String.raw`
typedef void (*gemm_real)(int, int, int, int, int, int, float, const void*, int, const void*, int, float, void*, int);
typedef void (*gemm_double)(int, int, int, int, int, int, double, const void*, int, const void*, int, double, void*, int);
typedef void (*gemm_complex)(int, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int);
static gemm_real blas_s;
static gemm_double blas_d;
static gemm_complex blas_c, blas_z;
static int blas_parallel; /* 0: none, 1: own pthreads, 2: OpenMP */
static void (*blas_threads)(int);

/* Element i,j of a strided operand, conjugated if asked. */
#define FALLBACK(name, T)                                                                                               \
  static void name(long m, long n, long k, const T* a, long ars, long acs, int aconj, const T* b, long brs, long bcs,   \
                   int bconj, T* c, long crs) {                                                                         \
    for (long i0 = 0; i0 < m; i0 += 32)                                                                                 \
      for (long j0 = 0; j0 < n; j0 += 256) {                                                                            \
        long i1 = i0 + 32 < m ? i0 + 32 : m, j1 = j0 + 256 < n ? j0 + 256 : n;                                          \
        for (long i = i0; i < i1; i++) for (long j = j0; j < j1; j++) c[i * crs + j] = 0;                               \
        for (long p0 = 0; p0 < k; p0 += 128) {                                                                          \
          long p1 = p0 + 128 < k ? p0 + 128 : k;                                                                        \
          for (long i = i0; i < i1; i++)                                                                                \
            for (long p = p0; p < p1; p++) {                                                                            \
              T x = a[i * ars + p * acs];                                                                               \
              if (aconj) x = (T)conj(x);                                                                                \
              T* ci = c + i * crs;                                                                                      \
              if (bconj) for (long j = j0; j < j1; j++) ci[j] += x * (T)conj(b[p * brs + j * bcs]);                     \
              else if (bcs == 1) for (long j = j0; j < j1; j++) ci[j] += x * b[p * brs + j];                            \
              else for (long j = j0; j < j1; j++) ci[j] += x * b[p * brs + j * bcs];                                    \
            }                                                                                                           \
        }                                                                                                               \
      }                                                                                                                 \
  }
FALLBACK(fallback_s, float)
FALLBACK(fallback_d, double)
FALLBACK(fallback_c, float complex)
FALLBACK(fallback_z, double complex)

/* CBLAS: 111 no transpose, 112 transpose, 113 conjugate transpose, 114 conjugate. */
static int transposition(int transposed, int conjugated) {
  return conjugated ? (transposed ? 113 : 114) : (transposed ? 112 : 111);
}
static long leading(long stride, long least) { return stride > least ? stride : least > 1 ? least : 1; }

static void one_gemm(int dtype, long m, long n, long k, const char* a, long ars, long acs, int aconj, const char* b,
                     long brs, long bcs, int bconj, char* c, long crs) {
  if (m == 0 || n == 0) return;
  int at = !(acs == 1 || k == 1), bt = !(bcs == 1 || n == 1);
  if (at && !(ars == 1 || m == 1)) at = 2;
  if (bt && !(brs == 1 || k == 1)) bt = 2;
  int have = dtype == 0 ? blas_s != NULL : dtype == 1 ? blas_d != NULL : dtype == 2 ? blas_c != NULL : blas_z != NULL;
  /* The library counts in ints. */
  const long top = 2147483647, strides = ars | acs | brs | bcs | crs;
  if (!have || at == 2 || bt == 2 || k == 0 || (m | n | k | strides) > top) {
    switch (dtype) {
      case 0: fallback_s(m, n, k, (const float*)a, ars, acs, 0, (const float*)b, brs, bcs, 0, (float*)c, crs); return;
      case 1: fallback_d(m, n, k, (const double*)a, ars, acs, 0, (const double*)b, brs, bcs, 0, (double*)c, crs); return;
      case 2: fallback_c(m, n, k, (const float complex*)a, ars, acs, aconj, (const float complex*)b, brs, bcs, bconj, (float complex*)c, crs); return;
      default: fallback_z(m, n, k, (const double complex*)a, ars, acs, aconj, (const double complex*)b, brs, bcs, bconj, (double complex*)c, crs); return;
    }
  }
  int lda = (int)(at ? leading(acs, m) : leading(ars, k)), ldb = (int)(bt ? leading(bcs, k) : leading(brs, n));
  int ldc = (int)leading(crs, n);
  int ta = transposition(at, aconj && dtype > 1), tb = transposition(bt, bconj && dtype > 1);
  float cone[2] = {1, 0}, czero[2] = {0, 0};
  double zone[2] = {1, 0}, zzero[2] = {0, 0};
  switch (dtype) {
    case 0: blas_s(101, ta, tb, (int)m, (int)n, (int)k, 1.0f, a, lda, b, ldb, 0.0f, c, ldc); return;
    case 1: blas_d(101, ta, tb, (int)m, (int)n, (int)k, 1.0, a, lda, b, ldb, 0.0, c, ldc); return;
    case 2: blas_c(101, ta, tb, (int)m, (int)n, (int)k, cone, a, lda, b, ldb, czero, c, ldc); return;
    default: blas_z(101, ta, tb, (int)m, (int)n, (int)k, zone, a, lda, b, ldb, zzero, c, ldc); return;
  }
}

static const long gemm_bytes[4] = {4, 8, 8, 16};

typedef struct {
  int dtype, aconj, bconj, rank;
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
      ao += i * j->as[d]; bo += i * j->bs[d]; co += i * j->cs[d];
    }
    const long row = piece / j->columns, column = piece % j->columns;
    const long i0 = piece_start(j->m, row, j->rows), i1 = piece_start(j->m, row + 1, j->rows);
    const long j0 = piece_start(j->n, column, j->columns), j1 = piece_start(j->n, column + 1, j->columns);
    one_gemm(j->dtype, i1 - i0, j1 - j0, j->k, j->a + (ao + i0 * j->ars) * size, j->ars, j->acs, j->aconj,
             j->b + (bo + j0 * j->bcs) * size, j->brs, j->bcs, j->bconj, j->c + (co + i0 * j->crs + j0) * size, j->crs);
  }
}

static void wr_gemm(int dtype, long m, long n, long k, const void* a, long ars, long acs, int aconj, const void* b,
                    long brs, long bcs, int bconj, void* c, long crs, int rank, const long* sizes, const long* as,
                    const long* bs, const long* cs, int threads) {
  gemm_job job = {dtype, aconj, bconj, rank, m, n, k, ars, acs, brs, bcs, crs, 1, 1, a, b, c, sizes, as, bs, cs};
  void* p[] = {&job};
  long batch = 1;
  for (int i = 0; i < rank; i++) batch *= sizes[i];
  const double work = 2.0 * m * n * k * batch * (dtype > 1 ? 4 : 1);
  /* Small products are faster on one thread: a second one pays from about n = 128. */
  if (threads < 2 || work < (batch == 1 ? 3e6 : 4e5)) { gemm_items(p, 0, batch); return; }
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
`;

const orderSource = String.raw`
/* dtype numbers as in graph/dtype.ts: bool, uint8, int32, int64, float16, bfloat16, float32, float64, complex64, complex128 */
/* Iterations per grain, if one has this many elements and fewer than "least" in all are not worth threads. */
static long grain_of(long elements, long least) { const long per = least / 4; return elements > 0 && per > elements ? per / elements : 1; }
typedef struct { long outer, n, inner, count, flag; int dtype; const void *x, *base, *updates; const int32_t* indices; void* out; } order_job;
#define CUMSUM(name, T, LOAD, STORE, ACC)                                                                               \
  static void name(void* const* p, long lo, long hi) {                                                                  \
    const order_job* j = p[0];                                                                                          \
    const long n = j->n, inner = j->inner;                                                                              \
    const T* x = j->x;                                                                                                  \
    T* out = j->out;                                                                                                    \
    for (long o = lo; o < hi; o++)                                                                                      \
      for (long i = 0; i < inner; i++) {                                                                                \
        ACC sum = 0;                                                                                                    \
        for (long s = 0; s < n; s++) {                                                                                  \
          long at = (o * n + (j->flag ? n - 1 - s : s)) * inner + i;                                                    \
          sum += LOAD(x[at]);                                                                                           \
          out[at] = STORE(sum);                                                                                         \
        }                                                                                                               \
      }                                                                                                                 \
  }
#define SAME(x) (x)
CUMSUM(cumsum_u8, uint8_t, SAME, SAME, uint8_t)
CUMSUM(cumsum_i32, int32_t, SAME, SAME, int32_t)
CUMSUM(cumsum_i64, int64_t, SAME, SAME, int64_t)
CUMSUM(cumsum_h, w_half, w_from_half, w_to_half, float)
CUMSUM(cumsum_b, w_bfloat, w_from_bfloat, w_to_bfloat, float)
CUMSUM(cumsum_f, float, SAME, SAME, double)
CUMSUM(cumsum_d, double, SAME, SAME, double)
CUMSUM(cumsum_c, float complex, SAME, SAME, double complex)
CUMSUM(cumsum_z, double complex, SAME, SAME, double complex)
static void wr_cumsum(int dtype, long outer, long n, long inner, int reverse, const void* x, void* out, int threads) {
  static const w_kernel kernels[] = {cumsum_u8, cumsum_u8, cumsum_i32, cumsum_i64, cumsum_h, cumsum_b, cumsum_f, cumsum_d, cumsum_c, cumsum_z};
  order_job job = {.outer = outer, .n = n, .inner = inner, .flag = reverse, .x = x, .out = out};
  void* p[] = {&job};
  wr_share(kernels[dtype], p, 0, outer, grain_of(n * inner, 65536), threads);
}

/* Merge sort keeps equal elements in place. Keys are wide enough for every number of the dtype: doubles for floats, where NaN
   counts as larger than every number, and 64-bit integers. */
#define SORT(name, K)                                                                                                   \
  typedef struct { K key; int32_t at; } name##_item;                                                                    \
  static int name##_not_after(name##_item a, name##_item b, int descending) {                                           \
    if (a.key != a.key) return descending || b.key != b.key;                                                            \
    if (b.key != b.key) return !descending;                                                                             \
    return descending ? a.key >= b.key : a.key <= b.key;                                                                \
  }                                                                                                                     \
  static void name##_row(name##_item* items, long n, int descending, int32_t* out) {                                    \
    name##_item *from = items, *to = items + n;                                                                         \
    for (long width = 1; width < n; width *= 2) {                                                                       \
      for (long lo = 0; lo < n; lo += 2 * width) {                                                                      \
        long mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n, i = lo, j = mid;      \
        for (long k = lo; k < hi; k++)                                                                                  \
          to[k] = i < mid && (j >= hi || name##_not_after(from[i], from[j], descending)) ? from[i++] : from[j++];       \
      }                                                                                                                 \
      name##_item* swap = from; from = to; to = swap;                                                                   \
    }                                                                                                                   \
    for (long i = 0; i < n; i++) out[i] = from[i].at;                                                                   \
  }
SORT(sort_float, double)
SORT(sort_integer, int64_t)
static double float_key(int dtype, const void* x, long i) {
  switch (dtype) {
    case 4: return w_from_half(((const w_half*)x)[i]);
    case 5: return w_from_bfloat(((const w_bfloat*)x)[i]);
    case 6: return ((const float*)x)[i];
    default: return ((const double*)x)[i];
  }
}
static int64_t integer_key(int dtype, const void* x, long i) {
  switch (dtype) {
    case 2: return ((const int32_t*)x)[i];
    case 3: return ((const int64_t*)x)[i];
    default: return ((const uint8_t*)x)[i];
  }
}
/* The same order without memory beside the result: a heap of places, by key and then by place. */
static int goes_after(int dtype, const void* x, long row, int32_t i, int32_t j, int descending) {
  int ab, ba;
  if (dtype >= 4) {
    sort_float_item a = {float_key(dtype, x, row + i), i}, b = {float_key(dtype, x, row + j), j};
    ab = sort_float_not_after(a, b, descending), ba = sort_float_not_after(b, a, descending);
  } else {
    sort_integer_item a = {integer_key(dtype, x, row + i), i}, b = {integer_key(dtype, x, row + j), j};
    ab = sort_integer_not_after(a, b, descending), ba = sort_integer_not_after(b, a, descending);
  }
  return ab && ba ? i > j : !ab;
}
static void sink(int dtype, const void* x, long row, int32_t* out, long at, long n, int descending) {
  for (long child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
    if (child + 1 < n && goes_after(dtype, x, row, out[child + 1], out[child], descending)) child++;
    if (!goes_after(dtype, x, row, out[child], out[at], descending)) return;
    const int32_t swap = out[at]; out[at] = out[child]; out[child] = swap;
  }
}
static void heap_order(int dtype, const void* x, long row, int32_t* out, long n, int descending) {
  for (long i = 0; i < n; i++) out[i] = (int32_t)i;
  for (long i = n / 2 - 1; i >= 0; i--) sink(dtype, x, row, out, i, n, descending);
  for (long last = n - 1; last > 0; last--) {
    const int32_t swap = out[0]; out[0] = out[last]; out[last] = swap;
    sink(dtype, x, row, out, 0, last, descending);
  }
}
static void argsort_rows(void* const* p, long lo, long hi) {
  const order_job* j = p[0];
  const long n = j->n;
  const int dtype = j->dtype, descending = (int)j->flag;
  const void* x = j->x;
  int32_t* out = j->out;
  for (long r = lo; r < hi; r++) {
    void* items = malloc(2 * n * sizeof(sort_float_item) + 16);
    if (!items) { heap_order(dtype, x, r * n, out + r * n, n, descending); continue; }
    sort_float_item* floats = items;
    sort_integer_item* integers = items;
    for (long i = 0; i < n; i++) {
      if (dtype >= 4) { floats[i].key = float_key(dtype, x, r * n + i); floats[i].at = (int32_t)i; }
      else { integers[i].key = integer_key(dtype, x, r * n + i); integers[i].at = (int32_t)i; }
    }
    if (dtype >= 4) sort_float_row(floats, n, descending, out + r * n);
    else sort_integer_row(integers, n, descending, out + r * n);
    free(items);
  }
}
static void wr_argsort(int dtype, long rows, long n, int descending, const void* x, int32_t* out, int threads) {
  order_job job = {.n = n, .dtype = dtype, .flag = descending, .x = x, .out = out};
  void* p[] = {&job};
  wr_share(argsort_rows, p, 0, rows, grain_of(n, 16384), threads);
}

/* Rows of the result are shared out among threads: each reads all indices and adds only into its own rows, so the
   order of additions, and with it the result, does not depend on the number of threads. */
#define SCATTER(name, T, LOAD, STORE)                                                                                   \
  static void name(void* const* job, long lo, long hi) {                                                                \
    const order_job* j = job[0];                                                                                        \
    const long before = j->outer, n = j->n, after = j->inner, count = j->count, block = before * n * after;             \
    const T *base = j->base, *updates = j->updates;                                                                     \
    for (long q = 0; q < j->flag; q++)                                                                                  \
      for (long p = 0; p < before; p++) {                                                                               \
        T* to = (T*)j->out + q * block + p * n * after;                                                                 \
        if (base) memcpy(to + lo * after, base + q * block + p * n * after + lo * after, (hi - lo) * after * sizeof(T)); \
        else memset((void*)(to + lo * after), 0, (hi - lo) * after * sizeof(T));                                        \
        const T* from = updates + (q * before + p) * count * after;                                                     \
        for (long i = 0; i < count; i++) {                                                                              \
          long row = j->indices[q * count + i];                                                                         \
          if (row < lo || row >= hi) continue;                                                                          \
          T* t = to + row * after;                                                                                      \
          const T* f = from + i * after;                                                                                \
          for (long k = 0; k < after; k++) t[k] = STORE(LOAD(t[k]) + LOAD(f[k]));                                       \
        }                                                                                                               \
      }                                                                                                                 \
  }
SCATTER(scatter_u8, uint8_t, SAME, SAME)
SCATTER(scatter_i32, int32_t, SAME, SAME)
SCATTER(scatter_i64, int64_t, SAME, SAME)
SCATTER(scatter_h, w_half, w_from_half, w_to_half)
SCATTER(scatter_b, w_bfloat, w_from_bfloat, w_to_bfloat)
SCATTER(scatter_f, float, SAME, SAME)
SCATTER(scatter_d, double, SAME, SAME)
SCATTER(scatter_c, float complex, SAME, SAME)
SCATTER(scatter_z, double complex, SAME, SAME)
static void wr_scatter(int dtype, long batch, long before, long n, long after, long count, const void* base,
                       const int32_t* indices, const void* updates, void* out, int threads) {
  static const w_kernel kernels[] = {scatter_u8, scatter_u8, scatter_i32, scatter_i64, scatter_h, scatter_b, scatter_f, scatter_d, scatter_c, scatter_z};
  order_job job = {before, n, after, count, batch, dtype, NULL, base, updates, indices, out};
  void* p[] = {&job};
  const long work = batch * (before * n * after + before * count * after);
  /* One chunk per thread: each reads all indices. */
  pool_run(kernels[dtype], p, 0, n, work <= 65536 ? 1 : n < threads ? n : threads, work / 2e4);
}
`;

const initSource = String.raw`
static weft_runtime table;
/* Cores that the process started with, and whether a thread was ever limited to some of them. */
static cpu_set_t first_cores;
static int pinned;

static void (*openmp_threads)(int);
static void single_thread(void) {
  static __thread int set;
  if (openmp_threads && !set) openmp_threads(1);
  set = 1;
}

/* Loads OpenBLAS (path may be NULL) and fills the table. Returns 0 without BLAS, 1 for its own threads, 2 for OpenMP. */
int wr_init(const char* path, int spins) {
  if (table.gemm) return blas_s ? blas_parallel : 0;
  sched_getaffinity(0, sizeof first_cores, &first_cores);
  if (path && !blas_s) {
    /* The OpenMP library behind OpenBLAS reads these when it is loaded. Its threads spin for milliseconds by default, which
       takes the cores from everybody else; 2000 rounds are some ten microseconds. */
    const int own = !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT");
    if (own) setenv("GOMP_SPINCOUNT", "2000", 1);
    void* lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (own) unsetenv("GOMP_SPINCOUNT");
    if (lib) {
      blas_s = (gemm_real)dlsym(lib, "cblas_sgemm");
      blas_d = (gemm_double)dlsym(lib, "cblas_dgemm");
      blas_c = (gemm_complex)dlsym(lib, "cblas_cgemm");
      blas_z = (gemm_complex)dlsym(lib, "cblas_zgemm");
      blas_threads = (void (*)(int))dlsym(lib, "openblas_set_num_threads");
      int (*parallel)(void) = (int (*)(void))dlsym(lib, "openblas_get_parallel");
      blas_parallel = blas_s ? (parallel ? parallel() : 1) : 0;
      if (blas_s && blas_parallel == 0) blas_parallel = 1;
      /* Threads of its own would fight with ours for the same cores: it computes on the thread that calls it. The OpenMP build
         has a number of threads per calling thread. */
      if (blas_threads) blas_threads(1);
      if (blas_parallel == 2) openmp_threads = (void (*)(int))dlsym(lib, "omp_set_num_threads");
      thread_setup = single_thread;
    }
  }
  table = (weft_runtime){wr_gemm, wr_cumsum, wr_argsort, wr_scatter};
  table.enter = wr_enter;
  table.leave = wr_leave;
  table.share = wr_share;
  pool.spins = spins;
  return blas_s ? blas_parallel : 0;
}
static void (*linalg_threads)(int);
/* Linear algebra is a library of its own, compiled and loaded when the first program needs it. 0 on success. */
int wr_load_linalg(const char* library, const char* blas, int threads) {
  void* lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!lib) return 1;
  int (*init)(const char*) = (int (*)(const char*))dlsym(lib, "wl_init");
  linalg_threads = (void (*)(int))dlsym(lib, "wl_set_threads");
  if (!init || !linalg_threads) return 2;
  init(blas);
  linalg_threads(threads);
#define ENTRY(field, name) *(void**)&table.field = dlsym(lib, name); if (!table.field) return 2;
  ENTRY(cholesky, "wl_cholesky") ENTRY(triangular_solve, "wl_triangular_solve") ENTRY(solve, "wl_solve")
  ENTRY(det, "wl_det") ENTRY(eigh, "wl_eigh") ENTRY(qr, "wl_qr") ENTRY(svd, "wl_svd")
  return 0;
}
/* A group of one: what goes in comes out. */
static int alone(void* group, const int64_t* d, const void* in, void* out, int phase) {
  if (phase != 1) memmove(out, in, (size_t)d[8]);
  return 0;
}
/* Where collectives go; without an address, nowhere. */
void wr_set_group(uint64_t call, uint64_t group) {
  table.collective = call ? (int (*)(void*, const int64_t*, const void*, void*, int))(uintptr_t)call : alone;
  table.group = (void*)(uintptr_t)group;
}
uint64_t wr_table(void) { return (uint64_t)(uintptr_t)&table; }
/* Prepares this thread for the programs of one device: its number of threads, and the cores of its thread team. Without
   cores the team may use those that the process started with. Returns 1 where a core is not among these. */
int wr_activate(const int32_t* cores, int count, int threads) {
  cpu_set_t set = first_cores;
  if (count > 0) {
    CPU_ZERO(&set);
    for (int i = 0; i < count; i++) {
      if (cores[i] < 0 || cores[i] >= CPU_SETSIZE || !CPU_ISSET(cores[i], &first_cores)) return 1;
      CPU_SET(cores[i], &set);
    }
  }
  if (linalg_threads) linalg_threads(threads);
  pool_grow(threads - 1);
  if (!pinned && count == 0) return 0;
  pinned = 1;
  int failed = sched_setaffinity(0, sizeof set, &set) != 0;
  for (int i = 1; i <= pool.workers; i++) sched_setaffinity(pool_ids[i], sizeof set, i < threads ? &set : &first_cores);
  return failed;
}
`;

export const runtimeSource = [
  "#define _GNU_SOURCE\n#include <sched.h>",
  preludeSource,
  memorySource,
  abiSource,
  poolSource,
  gemmSource,
  orderSource,
  initSource,
].join("\n");
