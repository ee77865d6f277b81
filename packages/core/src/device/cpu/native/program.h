// What every generated program starts with: the prelude, the table of runtime functions, and how a kernel is divided among
// threads.
#pragma once
#include "abi.h"
#include "prelude.h"

#define W_RUN(fn, from, count, grain, ...)                                                                             \
  do {                                                                                                                 \
    void* const p_[] = {__VA_ARGS__};                                                                                  \
    w_share(fn, p_, from, count, grain, threads);                                                                      \
  } while (0)
/* A library call that can fail: its code ends the program, apart from the codes of collectives. */
#define W_TRY(call)                                                                                                    \
  do {                                                                                                                 \
    if ((failed = (call))) return (1 << 20) + failed;                                                                  \
  } while (0)
typedef void (*w_kernel)(void* const* p, long lo, long hi);
static inline void w_share(w_kernel fn, void* const* p, long from, long count, long grain, int threads) {
  long most = count / (grain > 0 ? grain : 1);
  int team = most < threads ? (int)most : threads;
  if (team <= 1) {
    fn(p, from, from + count);
    return;
  }
#pragma omp parallel num_threads(team)
  {
    long id = omp_get_thread_num(), n = omp_get_num_threads();
    fn(p, from + count * id / n, from + count * (id + 1) / n);
  }
}
/* Whether one of n predicates is true, and the largest of n numbers of steps up to a bound: loops that may stop early. */
static inline int w_runs(const void* p, long n) {
  const uint8_t* x = p;
  for (long i = 0; i < n; i++)
    if (x[i]) return 1;
  return 0;
}
static inline long w_steps(const void* p, long n, long bound) {
  const int32_t* x = p;
  long most = 0;
  for (long i = 0; i < n; i++)
    if (x[i] > most) most = x[i];
  return most < bound ? most : bound;
}
static inline double w_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
