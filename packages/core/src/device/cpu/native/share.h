// Threads for the libraries of rarer ops: those of the runtime library, so that a region never waits for a thread that the operating
// system has not scheduled.
#pragma once
#include "abi.h"

/* The table of the runtime library; NULL where a library is used by itself. */
extern __attribute__((visibility("hidden"))) weft_runtime* wx_runtime;

/* Runs fn over [0, count) on several threads; "work" is the number of operations in all. */
static inline void wx_share(w_kernel fn, void* const* p, long count, int threads, double work) {
  if (threads < 2 || count < 2 || !wx_runtime) {
    fn(p, 0, count);
    return;
  }
  /* Two chunks per thread where there are many items: a thread that falls behind leaves one to others. */
  const long chunks = count < threads ? count : count >= 8L * threads ? 2L * threads : threads;
  wx_runtime->run(fn, p, 0, count, chunks, work / 1e5);
}
