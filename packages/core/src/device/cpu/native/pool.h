// The thread pool of the CPU device. A parallel region is divided into chunks, and every thread takes chunks until none is
// left. The calling thread takes part, so that it never waits for a thread that the operating system has not scheduled; it
// waits only for chunks that others have begun. Idle threads spin for a moment and then sleep. When other processes need the
// cores, which shows in threads that are preempted, they do not spin.
#pragma once
#include <sched.h>
#include <stdint.h>
#include <time.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi.h"

#define POOL_MOST 1024
/* Idle threads of an undisturbed process spin this long, in nanoseconds: longer than a program pauses between two calls. */
#define POOL_SPIN 2000000
/* Two reads of the clock in a spinning loop that are further apart were interrupted by another thread on this core. */
#define POOL_GAP 60000
/* Lost time is looked for this often. */
#define POOL_WINDOW 200000
/* Time lost to other threads adds up to a debt, and a share of the time that passes pays it off: threads of the system, which need a core
   for a moment now and then, cause none that lasts. Nobody spins while the debt is above a limit; it is never so large that paying it
   takes longer than a third of a second. */
#define POOL_SHARE 8
#define POOL_LIMIT 4000000
#define POOL_MOST_DEBT (POOL_LIMIT + 320000000 / POOL_SHARE)

static struct {
  /* Generation of the region, and its number of chunks in the low 16 bits: always read together. */
  _Atomic uint64_t region;
  /* The generation in which a chunk was taken last. Chunks of a finished region are all taken, so that a late thread gets none. */
  _Atomic uint64_t taken[POOL_MOST];
  _Atomic uint32_t done;
  _Atomic int caller_sleeps;
  /* Sleeping workers wait until this changes. */
  _Atomic uint32_t signal;
  _Atomic int sleepers;
  _Atomic int team;
  /* When the debt will be down to the limit. */
  _Atomic int64_t calm_until;
  int workers;
  int spins; /* 0: never spin */
  w_kernel fn;
  void* const* p;
  long from, count;
  pthread_mutex_t lock;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .spins = 1, .team = 1};
static pid_t pool_ids[POOL_MOST];
static void (*thread_setup)(void);

static int64_t pool_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static int64_t pool_now(void) { return pool_clock(CLOCK_MONOTONIC); }
static inline void pool_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}
static long pool_futex(_Atomic uint32_t* word, int op, uint32_t value) {
  return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

/* Another thread had this core for so long. The debt of this moment follows from when it would be down to the limit. */
static void pool_preempted(int64_t now, int64_t lost) {
  int64_t debt = POOL_LIMIT + (atomic_load(&pool.calm_until) - now) / POOL_SHARE;
  debt = (debt > 0 ? debt : 0) + lost;
  if (debt > POOL_MOST_DEBT) debt = POOL_MOST_DEBT;
  atomic_store(&pool.calm_until, now + (debt - POOL_LIMIT) * POOL_SHARE);
}
/* How long this thread was without its core since the window opened. Time counts, not the number of preemptions: the system's own
   threads need every core for microseconds, also where no other process runs. */
static __thread int64_t window_opened, window_used;
/* When the last program of this thread ended, while no other has begun to use its window. */
static __thread int64_t window_left;
static void pool_open_window(void) {
  window_opened = pool_now();
  window_used = pool_clock(CLOCK_THREAD_CPUTIME_ID);
  window_left = 0;
}
/* Programs that follow each other closely share a window, without the time between them: reading the clock of the thread takes as long as
   a small program. */
static void pool_resume_window(void) {
  if (window_left == 0) return;
  const int64_t now = pool_now();
  if (now - window_left > POOL_WINDOW) pool_open_window();
  else window_opened += now - window_left;
  window_left = 0;
}
static void pool_check_window(void) {
  const int64_t now = pool_now(), length = now - window_opened;
  if (length < POOL_WINDOW) return;
  const int64_t used = pool_clock(CLOCK_THREAD_CPUTIME_ID);
  const int64_t lost = length - (used - window_used);
  if (lost > POOL_GAP + length / 50) pool_preempted(now, lost);
  window_opened = now;
  window_used = used;
}
static int pool_is_busy(int64_t now) { return now < atomic_load_explicit(&pool.calm_until, memory_order_relaxed); }

/* Spins until the test holds; 0 after the time is over, or when other threads need the core. */
#define POOL_SPIN_UNTIL(test, nanoseconds)                                                                             \
  ({                                                                                                                   \
    int ok = 0;                                                                                                        \
    int64_t start = pool_now(), last = start;                                                                          \
    if (pool.spins && !pool_is_busy(start))                                                                            \
      for (;;) {                                                                                                       \
        for (int i = 0; i < 16 && !(ok = (test)); i++) pool_pause();                                                   \
        if (ok) break;                                                                                                 \
        const int64_t now = pool_now();                                                                                \
        if (now - last > POOL_GAP) {                                                                                   \
          pool_preempted(now, now - last);                                                                             \
          break;                                                                                                       \
        }                                                                                                              \
        if (now - start > (nanoseconds)) break;                                                                        \
        last = now;                                                                                                    \
      }                                                                                                                \
    ok;                                                                                                                \
  })

/* Takes and runs chunks until none is left, its own first: the data of an earlier region may be in its cache. */
static void pool_work(uint64_t region, long index) {
  const uint64_t generation = region >> 16;
  const uint32_t chunks = (uint32_t)(region & 0xffff);
  const long team = atomic_load_explicit(&pool.team, memory_order_relaxed),
             own = chunks > team ? index * (chunks / team) : index;
  for (uint32_t k = 0; k < chunks; k++) {
    const uint32_t i = (uint32_t)((own + k) % chunks);
    uint64_t before = atomic_load(&pool.taken[i]);
    if (before >= generation || !atomic_compare_exchange_strong(&pool.taken[i], &before, generation)) continue;
    /* The region cannot end before this chunk does, so that its description stays. */
    pool.fn(pool.p, pool.from + pool.count * i / chunks, pool.from + pool.count * (i + 1) / chunks);
    if (atomic_fetch_add(&pool.done, 1) + 1 == chunks && atomic_load(&pool.caller_sleeps))
      pool_futex(&pool.done, FUTEX_WAKE, 1);
  }
}

static void* pool_thread(void* arg) {
  const long index = (long)(intptr_t)arg;
  pool_ids[index] = (pid_t)syscall(SYS_gettid);
  if (thread_setup) thread_setup();
  uint64_t seen = 0;
  for (;;) {
    if (!POOL_SPIN_UNTIL(atomic_load(&pool.region) != seen && index < atomic_load(&pool.team),
                         index < atomic_load(&pool.team) ? POOL_SPIN : 0)) {
      const uint32_t signal = atomic_load(&pool.signal);
      atomic_fetch_add(&pool.sleepers, 1);
      while (atomic_load(&pool.region) == seen || index >= atomic_load(&pool.team)) {
        if (atomic_load(&pool.signal) != signal) break;
        pool_futex(&pool.signal, FUTEX_WAIT, signal);
      }
      atomic_fetch_sub(&pool.sleepers, 1);
      pool_open_window();
      if (index >= atomic_load(&pool.team)) continue;
    }
    seen = atomic_load(&pool.region);
    pool_work(seen, index);
    pool_check_window();
  }
  return NULL;
}

/* Starts threads until there are this many beside the calling one; fewer if the system refuses. */
static void pool_grow(int workers) {
  if (workers > POOL_MOST - 1) workers = POOL_MOST - 1;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  while (pool.workers < workers) {
    pthread_t thread;
    const long index = pool.workers + 1;
    if (pthread_create(&thread, &attributes, pool_thread, (void*)(intptr_t)index) != 0) break;
    while (((volatile pid_t*)pool_ids)[index] == 0) sched_yield();
    pool.workers++;
  }
  pthread_attr_destroy(&attributes);
}

/* Runs fn over [from, from + count) in chunks. Which thread runs a chunk varies; the chunks do not. "weight" is the work in
   units of about ten microseconds. */
static void pool_run(w_kernel fn, void* const* p, long from, long count, long chunks, double weight) {
  if (chunks > POOL_MOST) chunks = POOL_MOST;
  if (chunks <= 1 || pool.workers == 0) {
    fn(p, from, from + count);
    return;
  }
  if (window_opened == 0) pool_open_window();
  else pool_resume_window();
  pool.fn = fn;
  pool.p = p;
  pool.from = from;
  pool.count = count;
  atomic_store(&pool.done, 0);
  const uint64_t region = ((atomic_load(&pool.region) >> 16) + 1) << 16 | (uint64_t)chunks;
  atomic_store(&pool.region, region);
  /* A thread that must be woken on a busy core comes late: only for work that lasts. */
  if (atomic_load(&pool.sleepers) > 0 && (weight >= 16 || !pool_is_busy(pool_now()))) {
    atomic_fetch_add(&pool.signal, 1);
    pool_futex(&pool.signal, FUTEX_WAKE,
               pool.workers > chunks - 1 && atomic_load(&pool.team) > pool.workers ? (uint32_t)(chunks - 1) : INT_MAX);
  }
  pool_work(region, 0);
  const int ended = atomic_load(&pool.done) == chunks || POOL_SPIN_UNTIL(atomic_load(&pool.done) == chunks, POOL_SPIN);
  pool_check_window();
  if (ended) return;
  atomic_store(&pool.caller_sleeps, 1);
  for (uint32_t done; (done = atomic_load(&pool.done)) != chunks;) pool_futex(&pool.done, FUTEX_WAIT, done);
  atomic_store(&pool.caller_sleeps, 0);
  pool_open_window();
}

/* The same in chunks of at least "grain" iterations, which are about ten microseconds of work. */
static void wr_share(w_kernel fn, void* const* p, long from, long count, long grain, int threads) {
  const long most = count / (grain > 0 ? grain : 1);
  /* Two chunks per thread where that is much work: a thread that falls behind leaves one to others. */
  pool_run(fn, p, from, count, most < threads ? most : most >= 8L * threads ? 2L * threads : threads, (double)most);
}

/* The numbers of the call that runs and of the one that is to end early. Other threads of the process write the second. */
static volatile int32_t stop_flags[2] = {0, -1};
/* Grains of a slice, after which a kernel of a program may end early: about a quarter of a second of one thread. Iterations that
   are grains of their own may be long. */
#define STOP_SLICE 25000L
#define STOP_SLICE_LONG 256L
/* The same for kernels of programs, which may be long: one slice after the other, until the call is to end. */
static void wr_share_slices(w_kernel fn, void* const* p, long from, long count, long grain, int threads) {
  const long most = (grain > 1 ? STOP_SLICE * grain : STOP_SLICE_LONG) * threads;
  for (long at = 0; at < count && stop_flags[0] != stop_flags[1]; at += most)
    wr_share(fn, p, from + at, count - at < most ? count - at : most, grain, threads);
}

/* One program at a time: they share threads and scratch memory. */
static void wr_enter(int threads) {
  pthread_mutex_lock(&pool.lock);
  if (thread_setup) thread_setup();
  if (threads - 1 > pool.workers) pool_grow(threads - 1);
  atomic_store(&pool.team, threads);
}
static void wr_leave(void) {
  /* The first region of the next program goes on with the window, or opens one: a program without one need not read the clocks. */
  if (window_opened != 0 && window_left == 0) window_left = pool_now();
  pthread_mutex_unlock(&pool.lock);
}
