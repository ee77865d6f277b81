// What every generated program starts with: the prelude, the table of runtime functions, and the call of a kernel.
#pragma once
#include "abi.h"
#include "prelude.h"

/* Whether this call is to end early. Kernels with long loops ask this too. */
extern const volatile int32_t* w_stop __attribute__((visibility("hidden")));
#define W_STOPPED (w_stop[0] == w_stop[1])
#define W_STOPPED_CODE (1 << 21)

/* Functions that only call kernels and libraries. Optimizing them gains nothing, and takes compilers up to half their time. */
#ifdef __clang__
#define W_DRIVER __attribute__((noinline, optnone))
#else
#define W_DRIVER __attribute__((noinline, optimize(0)))
#endif

#define W_RUN(fn, from, count, grain, ...)                                                                             \
  do {                                                                                                                 \
    void* const p_[] = {__VA_ARGS__};                                                                                  \
    rt->slices(fn, p_, from, count, grain, threads);                                                                   \
    if (W_STOPPED) return W_STOPPED_CODE;                                                                              \
  } while (0)
/* A library call that can fail: its code ends the program, apart from the codes of collectives. */
#define W_TRY(call)                                                                                                    \
  do {                                                                                                                 \
    if ((failed = (call))) return (1 << 20) + failed;                                                                  \
  } while (0)
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
/* Writes m rows of an update into n rows at a start, clamped, for each of `outer` blocks; `per` blocks share a start. */
static inline void w_update(const void* base, const void* start, const void* update, void* out, long outer, long per,
                            long n, long m, long bytes) {
  if (out != base) memcpy(out, base, outer * n * bytes);
  for (long o = 0; o < outer; o++) {
    long at = ((const int32_t*)start)[o / per];
    at = at < 0 ? 0 : at > n - m ? n - m : at;
    memcpy((char*)out + (o * n + at) * bytes, (const char*)update + o * m * bytes, m * bytes);
  }
}
