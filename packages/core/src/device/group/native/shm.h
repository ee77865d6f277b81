// Membership of a process group over shared memory: a control segment that all members map (who is there, what each has posted).
// Waits spin, then sleep on a futex with a time limit, and notice members that are gone, stopped, or that gave up.
#pragma once
#include "arena.h"
#include "reduce.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define W_PAUSE() _mm_pause()
#else
#define W_PAUSE() __asm__ volatile("" ::: "memory")
#endif

enum { RING = 16, PAYLOAD = 32768, SENDS = 8192 /* longs */ };
enum { TRANSFER = 3 + 2 * MAX_DIMS }; /* member, axes, offset, sizes, strides */
enum {
  D_KIND,
  D_FN,
  D_DTYPE,
  D_ELEMENT,
  D_MEMBERS,
  D_ME,
  D_TAG,
  D_IN,
  D_OUT,
  D_COUNT,
  D_OUTER,
  D_ROW,
  D_START,
  D_RUN,
  D_ZERO,
  D_SENDS,
  D_RECEIVES,
  D_SENDS_AT,
  D_RECEIVES_AT,
  D_PARTS_AT,
  D_RANKS
};
enum { D_GATHERS = D_OUTER }; /* of a move: every member sends all that it has to all others */
enum { K_ALLREDUCE, K_REDUCESCATTER, K_MOVE };
enum {
  E_OK,
  E_TIMEOUT,
  E_DEAD,
  E_STOPPED,
  E_ABORTED,
  E_MISMATCH,
  E_MEMORY,
  E_SIZES,
  E_NAME,
  E_RANK,
  E_SYSTEM,
  E_MAP,
  E_CALL
};

typedef struct {
  _Atomic uint64_t posted, done; /* number of the collective + 1 */
  uint64_t tag, in_payload, in_at, out_at, bytes;
  uint64_t kind;
  int64_t sends[SENDS];
  char payload[PAYLOAD];
} slot_t;

typedef struct {
  _Atomic int32_t pid;
  _Atomic int32_t ready, mapped, left;
  uint64_t start;
  int32_t arena_fd;
  uint64_t arena_bytes;
  char arena_nonce[NONCE];
  _Atomic uint32_t event, sleepers;
  char pad[64];
  slot_t slots[RING];
} member_t;

typedef struct {
  uint64_t magic;
  int32_t version, size;
  int32_t owner;
  uint64_t owner_start;
  _Atomic int32_t aborted; /* 1 + rank of the member that failed, or -1 for a process outside the group */
  char why[200];
  char pad[64];
  member_t members[];
} control_t;

static const uint64_t MAGIC = 0x7765667467727031ull;

typedef struct {
  control_t* c;
  uint64_t bytes;
  char path[256];
  int rank, size, spin, threads;
  double timeout, stop_limit;
  uint64_t posted, finished; /* collectives started and finished by this member */
  char** bases;
  struct {
    uint64_t number;
    int n, lasting;
    int64_t ranks[256];
    const int64_t* d;
    const void* in;
    void* out;
    void *staged_in, *staged_out;
  } open[RING];
  uint64_t stage[2 * RING], stage_bytes[2 * RING];
  int failed_rank;
  int32_t expected[256]; /* processes of the members while they join; 0 where they are not known */
} group_t;

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void signal_event(member_t* m) {
  atomic_fetch_add(&m->event, 1);
  if (atomic_load(&m->sleepers) > 0) syscall(SYS_futex, &m->event, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

/* Waits until *word >= value, a word that member p moves. */
static int await_word(group_t* g, int p, _Atomic uint64_t* word, uint64_t value) {
  if (atomic_load_explicit(word, memory_order_acquire) >= value) return E_OK;
  for (int i = 0; i < g->spin; i++) {
    W_PAUSE();
    if (atomic_load_explicit(word, memory_order_acquire) >= value) return E_OK;
  }
  member_t* m = &g->c->members[p];
  double begin = now_s(), stopped_since = 0;
  for (;;) {
    uint32_t seen = atomic_load(&m->event);
    atomic_fetch_add(&m->sleepers, 1);
    int there = atomic_load_explicit(word, memory_order_acquire) >= value;
    if (!there && !atomic_load(&g->c->aborted)) {
      struct timespec limit = {0, 50000000};
      syscall(SYS_futex, &m->event, FUTEX_WAIT, seen, &limit, NULL, 0);
    }
    atomic_fetch_sub(&m->sleepers, 1);
    if (atomic_load_explicit(word, memory_order_acquire) >= value) return E_OK;
    g->failed_rank = p;
    int32_t aborted = atomic_load(&g->c->aborted);
    if (aborted) {
      if (aborted > 0) g->failed_rank = aborted - 1;
      return E_ABORTED;
    }
    if (call_ends()) return E_CALL;
    int stopped = 0;
    if (atomic_load(&m->left) || !process_alive(atomic_load(&m->pid), m->start, &stopped)) {
      /* The member may have advanced its counter just before it ended. */
      if (atomic_load_explicit(word, memory_order_acquire) >= value) return E_OK;
      return E_DEAD;
    }
    double t = now_s();
    if (!stopped) stopped_since = 0;
    else if (stopped_since == 0) stopped_since = t;
    else if (t - stopped_since > g->stop_limit) return E_STOPPED;
    if (t - begin > g->timeout) return E_TIMEOUT;
  }
}

static uint64_t control_bytes(int size) { return sizeof(control_t) + (uint64_t)size * sizeof(member_t); }

/*
 * A new file of this size beside the path, with its memory: on a full file system a page that is first written later would end the
 * process. temporary: at least 300 bytes, for its name.
 */
static int create_file(const char* path, uint64_t bytes, char* temporary) {
  uint64_t random = 0; /* other users can write to the folder, and must not have taken the name */
  if (syscall(SYS_getrandom, &random, sizeof random, 0) != sizeof random) return -1;
  snprintf(temporary, 300, "%s.%d.%016llx", path, getpid(), (unsigned long long)random);
  int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  /* Whatever the mask of new files is, the other members open it. */
  if (fchmod(fd, 0600) == 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0) return fd;
  close(fd);
  unlink(temporary);
  return -1;
}

/* A new control segment at the path, in place of one whose owner is gone. */
static int create_control(const char* path, int size, int replace) {
  char temporary[300];
  uint64_t bytes = control_bytes(size);
  int fd = create_file(path, bytes, temporary);
  if (fd < 0) return E_SYSTEM;
  control_t* c = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (c == MAP_FAILED) {
    unlink(temporary);
    return E_SYSTEM;
  }
  c->version = 1;
  c->size = size;
  c->owner = getpid();
  c->owner_start = process_start(getpid(), NULL);
  c->magic = MAGIC;
  munmap(c, bytes);
  int failed = replace ? rename(temporary, path) : link(temporary, path);
  unlink(temporary);
  return failed ? E_NAME : E_OK;
}

/* The segment at the path, mapped; NULL while there is none of a living owner. wrong: its size when it has another one. */
static control_t* map_control(const char* path, int size, int* stale, int* wrong) {
  *stale = *wrong = 0;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return NULL;
  struct stat st;
  uint64_t bytes = control_bytes(size);
  if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (uint64_t)st.st_size < sizeof(control_t)) {
    close(fd);
    *stale = 1;
    return NULL;
  }
  control_t* head = mmap(NULL, sizeof(control_t), PROT_READ, MAP_SHARED, fd, 0);
  if (head == MAP_FAILED) {
    close(fd);
    return NULL;
  }
  int good = head->magic == MAGIC && process_alive(head->owner, head->owner_start, NULL);
  if (good && head->size != size) *wrong = head->size;
  munmap(head, sizeof(control_t));
  if (!good) {
    close(fd);
    *stale = 1;
    return NULL;
  }
  if (*wrong) {
    close(fd);
    return NULL;
  }
  control_t* c = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return c == MAP_FAILED ? NULL : c;
}

static void sleep_ms(int ms) {
  struct timespec t = {0, ms * 1000000L};
  nanosleep(&t, NULL);
}

/* Why a member that has not come yet is not waited for: its process is gone, or has been stopped since a time that is kept. */
static int absence(group_t* g, int p, double* stopped_since) {
  char state = 0;
  if (call_ends()) return E_CALL;
  if (g->expected[p] <= 0) return E_OK;
  if (process_start(g->expected[p], &state) == 0 || state == 'Z') return E_DEAD;
  if (state != 'T') *stopped_since = 0;
  else if (*stopped_since == 0) *stopped_since = now_s();
  return *stopped_since > 0 && now_s() - *stopped_since > g->stop_limit ? E_STOPPED : E_OK;
}

/* A member whose process is gone: no other one may come any more either, because it found that out before it joined. */
static int lost_member(group_t* g) {
  for (int p = 0; p < g->size; p++) {
    member_t* m = &g->c->members[p];
    int pid = atomic_load(&m->pid), joined = atomic_load(&m->ready);
    double never = 0;
    g->failed_rank = p;
    if (joined ? !process_alive(pid, m->start, NULL) : absence(g, p, &never) == E_DEAD) return E_DEAD;
  }
  return E_OK;
}

static int await_flag(group_t* g, int offset_mapped, double deadline) {
  for (int p = 0; p < g->size; p++) {
    member_t* m = &g->c->members[p];
    _Atomic int32_t* flag = offset_mapped ? &m->mapped : &m->ready;
    double stopped_since = 0;
    for (int tries = 0; !atomic_load(flag); tries++) {
      g->failed_rank = p;
      if (atomic_load(&g->c->aborted)) return E_ABORTED;
      int pid = atomic_load(&m->pid);
      if (m->start && pid && !process_alive(pid, m->start, NULL)) return E_DEAD;
      int absent = absence(g, p, &stopped_since);
      if (!absent && tries % 20 == 19) absent = lost_member(g);
      if (absent) return absent;
      if (now_s() > deadline) return E_TIMEOUT;
      sleep_ms(tries < 20 ? 1 : 5);
    }
  }
  return E_OK;
}

/* Joins a group; returns its handle, or 0 with the reason in *error and the rank or size at fault in *detail. */
uint64_t wg_join(const char* path, int rank, int size, const int32_t* expected, double timeout, int threads,
                 int32_t* error, int32_t* detail) {
  *error = E_OK;
  *detail = 0;
  double deadline = now_s() + timeout;
  if (size < 1 || size > 256 || rank < 0 || rank >= size) {
    *error = E_SIZES;
    *detail = size;
    return 0;
  }
  group_t* g = calloc(1, sizeof *g);
  if (!g) {
    *error = E_MEMORY;
    return 0;
  }
  g->rank = rank;
  g->size = size;
  g->threads = threads;
  g->timeout = 300;
  g->stop_limit = 5;
  memcpy(g->expected, expected, (size_t)size * sizeof *expected);
  snprintf(g->path, sizeof g->path, "%s", path);
  int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  g->spin = size <= cores ? 20000 : 200;
  g->bytes = control_bytes(size);
  int stale = 0, wrong = 0;
  if (rank == 0) {
    control_t* old = map_control(path, size, &stale, &wrong);
    int taken = old != NULL || wrong;
    if (old) {
      *detail = old->owner;
      munmap(old, g->bytes);
    }
    int e = taken ? E_NAME : create_control(path, size, stale);
    if (e) {
      *error = e;
      free(g);
      return 0;
    }
  }
  if (rank != 0) {
    /* Where this member can create nothing, rank 0 cannot either, and would be waited for in vain. */
    char temporary[300];
    int fd = create_file(path, g->bytes, temporary);
    if (fd < 0) {
      *error = E_SYSTEM;
      free(g);
      return 0;
    }
    close(fd);
    unlink(temporary);
  }
  double stopped_since = 0;
  while (!(g->c = map_control(path, size, &stale, &wrong))) {
    if (wrong) {
      *error = E_SIZES;
      *detail = wrong;
      free(g);
      return 0;
    }
    int absent = absence(g, 0, &stopped_since);
    if (absent || now_s() > deadline) {
      *error = absent ? absent : E_TIMEOUT;
      *detail = 0;
      free(g);
      return 0;
    }
    sleep_ms(2);
  }
  member_t* me = &g->c->members[rank];
  int32_t nobody = 0;
  if (!atomic_compare_exchange_strong(&me->pid, &nobody, getpid())) {
    *error = E_RANK;
    *detail = nobody;
    munmap(g->c, g->bytes);
    free(g);
    return 0;
  }
  me->start = process_start(getpid(), NULL);
  me->arena_fd = arena.fd;
  me->arena_bytes = arena.bytes;
  memcpy(me->arena_nonce, arena_nonce(arena.base, arena.bytes), NONCE);
  atomic_store(&me->ready, 1);
  int e = await_flag(g, 0, deadline);
  g->bases = calloc(size, sizeof *g->bases);
  for (int p = 0; !e && p < size; p++) {
    member_t* m = &g->c->members[p];
    g->bases[p] = (char*)(uintptr_t)map_member(atomic_load(&m->pid), m->arena_fd, m->arena_bytes, m->arena_nonce);
    if (!g->bases[p]) {
      e = E_MAP;
      g->failed_rank = p;
    }
  }
  if (!e) {
    atomic_store(&me->mapped, 1);
    e = await_flag(g, 1, deadline);
  }
  /* All members have joined: the name is removed, so that no file remains when a process is killed. */
  if (rank == 0) unlink(path);
  if (e) {
    *error = e;
    *detail = g->failed_rank;
    if (!atomic_load(&g->c->aborted)) atomic_store(&g->c->aborted, rank + 1);
    munmap(g->c, g->bytes);
    free(g);
    return 0;
  }
  return (uint64_t)(uintptr_t)g;
}

void wg_limits(group_t* g, double timeout, double stop_limit) {
  g->timeout = timeout;
  g->stop_limit = stop_limit;
}
int wg_failed_rank(group_t* g) { return g->failed_rank; }
int wg_pid_of(group_t* g, int rank) { return atomic_load(&g->c->members[rank].pid); }
void wg_abort(group_t* g) {
  int32_t none = 0;
  atomic_compare_exchange_strong(&g->c->aborted, &none, g->rank + 1);
  for (int p = 0; p < g->size; p++) signal_event(&g->c->members[p]);
}
void wg_close(group_t* g) {
  atomic_store(&g->c->members[g->rank].left, 1);
  signal_event(&g->c->members[g->rank]);
  for (int p = 0; p < g->size; p++)
    if (g->bases[p]) wg_unmap((uint64_t)(uintptr_t)g->bases[p], g->c->members[p].arena_bytes);
  munmap(g->c, g->bytes);
  for (int i = 0; i < 2 * RING; i++)
    if (g->stage[i]) wg_free(g->stage[i]);
  free(g->bases);
  free(g);
}
