// The runtime library of the CPU device in C: memory, copies, matrix products through OpenBLAS (or a blocked fallback),
// and the ops that are not loops over independent elements. Compiled once per machine.
#define _GNU_SOURCE
#include <sched.h>

#include "abi.h"
#include "gemm.h"
#include "memory.h"
#include "prelude.h"
#include "sort-scatter.h"

static weft_runtime table;
/* Cores that the process started with, and whether a thread was ever limited to some of them. */
static cpu_set_t first_cores;
static int pinned;

/* Loads OpenBLAS (path may be NULL) and fills the table. Returns 0 without BLAS, 1 for its own threads, 2 for OpenMP. */
int wr_init(const char* path, int threads) {
  if (table.gemm) return blas_s ? blas_parallel : 0;
  sched_getaffinity(0, sizeof first_cores, &first_cores);
  if (path && !blas_s) {
    void* lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (lib) {
      blas_s = (gemm_real)dlsym(lib, "cblas_sgemm");
      blas_d = (gemm_double)dlsym(lib, "cblas_dgemm");
      blas_c = (gemm_complex)dlsym(lib, "cblas_cgemm");
      blas_z = (gemm_complex)dlsym(lib, "cblas_zgemm");
      blas_threads = (void (*)(int))dlsym(lib, "openblas_set_num_threads");
      int (*parallel)(void) = (int (*)(void))dlsym(lib, "openblas_get_parallel");
      blas_parallel = blas_s ? (parallel ? parallel() : 1) : 0;
      if (blas_s && blas_parallel == 0) blas_parallel = 1;
    }
  }
  /* Threads of its own would fight with ours for the same cores: then it runs on one and we share out the rows. */
  if (blas_threads) blas_threads(blas_parallel == 2 ? threads : 1);
  omp_set_num_threads(threads);
  table = (weft_runtime){.gemm = wr_gemm, .cumsum = wr_cumsum, .argsort = wr_argsort, .scatter_add = wr_scatter};
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
#define ENTRY(field, name)                                                                                             \
  *(void**)&table.field = dlsym(lib, name);                                                                            \
  if (!table.field) return 2;
  ENTRY(cholesky, "wl_cholesky")
  ENTRY(triangular_solve, "wl_triangular_solve")
  ENTRY(solve, "wl_solve")
  ENTRY(det, "wl_det")
  ENTRY(eigh, "wl_eigh")
  ENTRY(qr, "wl_qr")
  ENTRY(svd, "wl_svd")
  return 0;
}
/* A group of one: what goes in comes out. */
static int alone(void* group, const int64_t* d, const void* in, void* out, int phase) {
  (void)group;
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
  omp_set_num_threads(threads);
  if (linalg_threads) linalg_threads(threads);
  if (!pinned && count == 0) return 0;
  pinned = 1;
  int failed = sched_setaffinity(0, sizeof set, &set) != 0;
  /* Threads of the team exist already where another device used them; new ones inherit the cores of this thread. */
#pragma omp parallel num_threads(threads)
  sched_setaffinity(0, sizeof set, &set);
  return failed;
}
