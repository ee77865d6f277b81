// CUDA C on the host: a header under which a generated program compiles as C++, and that runs a block's threads as
// coroutines, so that barriers, shuffles and votes behave as on a GPU. For tests alone; one thing at a time, and slow.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#define W_EMULATED 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __shared__ static
#define __launch_bounds__(...)
#define __constant__ const
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
struct w_dim {
  unsigned x, y, z;
};
#ifdef __x86_64__
/* Continues on another stack with the registers that calls keep. The C library's own form asks the system for signal masks. */
typedef void* w_context;
__attribute__((naked, noipa)) static void w_switch(w_context*, w_context*) {
  asm("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
      "mov %rsp, (%rdi)\n mov (%rsi), %rsp\n"
      "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}
static inline void w_prepare(w_context* context, char* stack, long bytes, void (*start)()) {
  void** top = (void**)(stack + bytes) - 2;
  *top = (void*)start;
  *context = top - 6;
}
#else
typedef ucontext_t w_context;
static inline void w_switch(w_context* from, w_context* to) { swapcontext(from, to); }
static inline void w_prepare(w_context* context, char* stack, long bytes, void (*start)()) {
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  makecontext(context, start, 0);
}
#endif
struct w_thread {
  w_context context;
  char* stack;
  w_dim index;
  int done;
  long barrier, warp;
};
static w_thread* w_threads;
static int w_current;
static w_context w_scheduler;
static w_dim blockIdx, gridDim, blockDim;
#define threadIdx (w_threads[w_current].index)
static inline void w_yield() { w_switch(&w_threads[w_current].context, &w_scheduler); }
/* A barrier of the threads [from, to) that are still running: each waits until nobody is behind it. `passed` is the last barrier
   that all have reached; who is behind is most likely the next thread. */
static inline void w_wait(long w_thread::* counter, long* passed, int from, int to) {
  int me = w_current;
  long mine = ++(w_threads[me].*counter);
  while (*passed < mine) {
    int i = me;
    do {
      if (++i == to) i = from;
    } while (i != me && (w_threads[i].done || w_threads[i].*counter >= mine));
    if (i == me) *passed = mine;
    else w_yield();
  }
}
static long w_passed, w_warps_passed[64];
static inline void __syncthreads() { w_wait(&w_thread::barrier, &w_passed, 0, (int)blockDim.x); }
static inline int w_warp_first() { return w_current / 32 * 32; }
static inline void __syncwarp(unsigned = 0xffffffffu) {
  int f = w_warp_first();
  w_wait(&w_thread::warp, w_warps_passed + f / 32, f, f + 32 < (int)blockDim.x ? f + 32 : (int)blockDim.x);
}
static inline void __threadfence_block() {}
static uint64_t w_exchange[2048];
template <class T> static inline T __shfl_sync(unsigned, T x, int lane) {
  __syncwarp();
  memcpy(w_exchange + w_current, &x, sizeof x);
  __syncwarp();
  T y;
  memcpy(&y, w_exchange + w_warp_first() + (lane & 31), sizeof y);
  __syncwarp();
  return y;
}
template <class T> static inline T __shfl_xor_sync(unsigned m, T x, int d) {
  return __shfl_sync(m, x, (w_current & 31) ^ d);
}
static inline unsigned __ballot_sync(unsigned, int p) {
  __syncwarp();
  w_exchange[w_current] = p ? 1 : 0;
  __syncwarp();
  unsigned votes = 0;
  int f = w_warp_first();
  for (int i = 0; i < 32 && f + i < (int)blockDim.x; i++)
    if (!w_threads[f + i].done && w_exchange[f + i]) votes |= 1u << i;
  __syncwarp();
  return votes;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T> static inline T atomicAdd(T* p, T x) {
  T old = *p;
  *p += x;
  return old;
}
template <class T> static inline T atomicMax(T* p, T x) {
  T old = *p;
  if (x > old) *p = x;
  return old;
}
template <class T> static inline T atomicMin(T* p, T x) {
  T old = *p;
  if (x < old) *p = x;
  return old;
}
template <class T> static inline T atomicCAS(T* p, T seen, T next) {
  T old = *p;
  if (old == seen) *p = next;
  return old;
}
static inline float __int_as_float(int x) {
  float f;
  memcpy(&f, &x, 4);
  return f;
}
static inline float __uint_as_float(unsigned x) {
  float f;
  memcpy(&f, &x, 4);
  return f;
}
static inline unsigned __float_as_uint(float x) {
  unsigned u;
  memcpy(&u, &x, 4);
  return u;
}
static inline long long __double_as_longlong(double x) {
  long long u;
  memcpy(&u, &x, 8);
  return u;
}
static inline double __longlong_as_double(long long x) {
  double d;
  memcpy(&d, &x, 8);
  return d;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
  n &= 31;
  return n ? (hi << n) | (lo >> (32 - n)) : hi;
}
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return float2{x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }
static char* w_dynamic_shared;
static void (*w_body)(void*);
static void* w_arguments;
static void w_start() {
  w_body(w_arguments);
  w_threads[w_current].done = 1;
  w_yield();
}
static const long w_stack_bytes = 1 << 16;
static int w_allocated;
__attribute__((destructor)) static void w_unload() {
  for (int i = 0; i < w_allocated; i++) free(w_threads[i].stack);
  free(w_threads);
}
static inline void w_grid(void (*body)(void*), void* arguments, int gx, int gy, int threads, int shared) {
  if (threads > w_allocated) {
    w_threads = (w_thread*)realloc(w_threads, threads * sizeof(w_thread));
    for (int i = w_allocated; i < threads; i++) w_threads[i].stack = (char*)aligned_alloc(16, w_stack_bytes);
    w_allocated = threads;
  }
  w_dynamic_shared = (char*)aligned_alloc(128, (shared + 255) / 128 * 128);
  gridDim = {(unsigned)gx, (unsigned)gy, 1};
  blockDim = {(unsigned)threads, 1, 1};
  w_body = body;
  w_arguments = arguments;
  for (int b = 0; b < gx * gy; b++) {
    blockIdx = {(unsigned)(b % gx), (unsigned)(b / gx), 0};
    w_passed = 0;
    memset(w_warps_passed, 0, sizeof w_warps_passed);
    for (int i = 0; i < threads; i++) {
      w_thread* t = w_threads + i;
      t->done = 0;
      t->barrier = t->warp = 0;
      t->index = {(unsigned)i, 0, 0};
      w_prepare(&t->context, t->stack, w_stack_bytes, w_start);
    }
    for (int left = threads; left > 0;) {
      left = 0;
      for (w_current = 0; w_current < threads; w_current++) {
        if (w_threads[w_current].done) continue;
        w_switch(&w_scheduler, &w_threads[w_current].context);
        left += !w_threads[w_current].done;
      }
    }
  }
  free(w_dynamic_shared);
}
