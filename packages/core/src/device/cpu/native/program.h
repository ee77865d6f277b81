// What every generated program starts with: the prelude, the table of runtime functions, and the call of a kernel.
#pragma once
#include "abi.h"
#include "prelude.h"

#define W_RUN(fn, from, count, grain, ...)                                                                             \
  do {                                                                                                                 \
    void* const p_[] = {__VA_ARGS__};                                                                                  \
    rt->share(fn, p_, from, count, grain, threads);                                                                    \
  } while (0)
/* A library call that can fail: its code ends the program, apart from the codes of collectives. */
#define W_TRY(call)                                                                                                    \
  do {                                                                                                                 \
    if ((failed = (call))) return (1 << 20) + failed;                                                                  \
  } while (0)
static inline double w_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
