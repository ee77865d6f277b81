// The runtime library of the CPU device in C: memory, copies, matrix products through OpenBLAS (or a blocked fallback),
// and the ops that are not loops over independent elements. Compiled once per machine.
#define _GNU_SOURCE
#include <sched.h>

#include "abi.h"
#include "gemm.h"
#include "memory.h"
#include "pool.h"
#include "prelude.h"
#include "scan.h"
#include "sort-scatter.h"

static weft_runtime table;
/* Cores that the process started with, and whether a thread was ever limited to some of them. */
static cpu_set_t first_cores;
static int pinned;

/* BLAS computes on the thread that calls it: its own threads would compete with ours for the same cores. The OpenMP build has a
   number of threads per calling thread. */
static void single_thread(void) {
  static __thread int set;
  if (openmp_threads && !set) openmp_threads(1);
  set = 1;
}

static double wr_now(void) { return 1e-9 * (double)pool_now(); }

/* Loads OpenBLAS (path may be NULL) and fills the table. Returns 0 without BLAS, 1 for its own threads, 2 for OpenMP. */
int wr_init(const char* path, int spins) {
  if (table.gemm) return blas_s ? blas_parallel : 0;
  sched_getaffinity(0, sizeof first_cores, &first_cores);
  /* The OpenMP library behind OpenBLAS reads this when it is loaded. Its threads spin for milliseconds by default, which takes
     the cores from everybody else; 2000 rounds are some ten microseconds. */
  const int own = !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT");
  if (own) setenv("GOMP_SPINCOUNT", "2000", 1);
  load_blas(path);
  if (own) unsetenv("GOMP_SPINCOUNT");
  if (blas_threads) blas_threads(1);
  thread_setup = single_thread;
  pool.spins = spins;
  table = (weft_runtime){.gemm = wr_gemm,
                         .cumsum = wr_cumsum,
                         .scan = wr_scan,
                         .argsort = wr_argsort,
                         .scatter_add = wr_scatter,
                         .scatter_reduce = wr_scatter_reduce,
                         .enter = wr_enter,
                         .leave = wr_leave,
                         .share = wr_share,
                         .run = pool_run,
                         .now = wr_now,
                         .slices = wr_share_slices,
                         .stop = stop_flags};
  return blas_s ? blas_parallel : 0;
}
/* Rarer ops are libraries of their own, compiled and loaded when the first program needs them. 0 on success. */
int wr_load_extension(const char* library, const char* blas, int threads) {
  void* lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!lib) return 1;
  weft_extension* extend = (weft_extension*)dlsym(lib, "weft_extend");
  if (!extend) return 2;
  extend(&table, blas, threads);
  return 0;
}
/* A group of one process: the result is the operand. */
static int alone(void* group, const int64_t* d, const void* in, void* out, int phase) {
  (void)group;
  if (phase != 1) memmove(out, in, (size_t)d[8]);
  return 0;
}
/* Sets the function of collectives; without an address, collectives are those of one process. */
void wr_set_group(uint64_t call, uint64_t group) {
  table.collective = call ? (int (*)(void*, const int64_t*, const void*, void*, int))(uintptr_t)call : alone;
  table.group = (void*)(uintptr_t)group;
}
uint64_t wr_table(void) { return (uint64_t)(uintptr_t)&table; }
uint64_t wr_stop_flags(void) { return (uint64_t)(uintptr_t)stop_flags; }
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
  if (table.set_linalg_threads) table.set_linalg_threads(threads);
  /* Other threads of Node may be running a program. */
  pthread_mutex_lock(&pool.lock);
  pool_grow(threads - 1);
  pthread_mutex_unlock(&pool.lock);
  if (!pinned && count == 0) return 0;
  pinned = 1;
  int failed = sched_setaffinity(0, sizeof set, &set) != 0;
  for (int i = 1; i <= pool.workers; i++) sched_setaffinity(pool_ids[i], sizeof set, i < threads ? &set : &first_cores);
  return failed;
}
