// The process group over MPI in C: every collective as messages of bytes between pairs, reduced here in the order of the
// members, so that results have the same bits everywhere and do not depend on MPI's algorithm. OpenMPI is loaded at run
// time; nothing of it is needed to build.
#pragma once
#include "shm.h"

#define MPI_FUNCTIONS(F)                                                                                               \
  F(Init_thread, int, (int*, char***, int, int*))                                                                      \
  F(Initialized, int, (int*))                                                                                          \
  F(Finalize, int, (void))                                                                                             \
  F(Comm_rank, int, (void*, int*))                                                                                     \
  F(Comm_size, int, (void*, int*))                                                                                     \
  F(Barrier, int, (void*))                                                                                             \
  F(Isend, int, (const void*, int, void*, int, int, void*, void**))                                                    \
  F(Irecv, int, (void*, int, void*, int, int, void*, void**))                                                          \
  F(Testall, int, (int, void**, int*, void*))                                                                          \
  F(Abort, int, (void*, int))                                                                                          \
  F(Allreduce, int, (const void*, void*, int, void*, void*, void*))
#define F(name, result, args) result(*name) args;
static struct {
  void *lib, *world, *byte, *real, *sum;
  MPI_FUNCTIONS(F)
} mpi;
#undef F

/* 0; 1 the library, 2 one of its symbols, 3 MPI_Init failed. Rank and size come back. */
int wm_init(const char* library, int32_t* rank, int32_t* size) {
  if (!mpi.lib) {
    mpi.lib = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!mpi.lib) return 1;
#define F(name, result, args)                                                                                          \
  *(void**)&mpi.name = dlsym(mpi.lib, "MPI_" #name);                                                                   \
  if (!mpi.name) return 2;
    MPI_FUNCTIONS(F)
#undef F
    mpi.world = dlsym(mpi.lib, "ompi_mpi_comm_world");
    mpi.byte = dlsym(mpi.lib, "ompi_mpi_byte");
    mpi.real = dlsym(mpi.lib, "ompi_mpi_float");
    mpi.sum = dlsym(mpi.lib, "ompi_mpi_op_sum");
    if (!mpi.world || !mpi.byte || !mpi.real || !mpi.sum) return 2;
  }
  int ready = 0, level;
  mpi.Initialized(&ready);
  if (!ready && mpi.Init_thread(NULL, NULL, 0, &level) != 0) return 3;
  return mpi.Comm_rank(mpi.world, rank) || mpi.Comm_size(mpi.world, size) ? 3 : 0;
}
void wm_finalize(void) { mpi.Finalize(); }

typedef struct {
  int rank, size;
  double timeout;
  int failed_rank;
  char* memory;
  uint64_t bytes;
  uint64_t number;
  int world[256]; /* ranks of the members in the job */
} mpi_group;
/* A group of some ranks of the job, in any order; 0 when there are too many. */
uint64_t wm_group(int rank, int size, const int32_t* world, double timeout) {
  if (size < 1 || size > 256) return 0;
  mpi_group* g = calloc(1, sizeof *g);
  if (!g) return 0;
  for (int i = 0; i < size; i++) g->world[i] = world[i];
  g->rank = rank;
  g->size = size;
  g->timeout = timeout;
  return (uint64_t)(uintptr_t)g;
}
int wm_failed_rank(mpi_group* g) { return g->failed_rank; }
void wm_close(mpi_group* g) {
  free(g->memory);
  free(g);
}

static char* room(mpi_group* g, uint64_t bytes) {
  if (g->bytes < bytes) {
    free(g->memory);
    g->memory = malloc(bytes);
    g->bytes = g->memory ? bytes : 0;
  }
  return g->memory;
}

/* Messages under way. Large ones go in pieces: counts are ints. */
enum { PIECE = 1 << 30, MESSAGES = 1024 };
typedef struct {
  void* requests[MESSAGES];
  int count;
} messages;
static void post(messages* m, int sending, char* at, uint64_t bytes, int peer, int tag) {
  if (!sending) count_moved((int64_t)bytes);
  for (uint64_t lo = 0; lo < bytes && m->count < MESSAGES; lo += PIECE) {
    int n = (int)(bytes - lo < PIECE ? bytes - lo : PIECE);
    void** r = &m->requests[m->count++];
    if (sending) mpi.Isend(at + lo, n, mpi.byte, peer, tag, mpi.world, r);
    else mpi.Irecv(at + lo, n, mpi.byte, peer, tag, mpi.world, r);
  }
}
static int finish(mpi_group* g, messages* m) {
  double begin = now_s();
  int done = 0;
  for (long turn = 0;; turn++) {
    if (mpi.Testall(m->count, m->requests, &done, NULL) != 0) return E_SYSTEM;
    if (done) return E_OK;
    if (turn > 1000) {
      sched_yield();
      if (now_s() - begin > g->timeout) return E_TIMEOUT;
    }
  }
}

static uint64_t box_bytes(const int64_t* box, int64_t element) {
  uint64_t n = (uint64_t)element;
  for (int64_t i = 0; i < box[1]; i++) n *= (uint64_t)box[3 + i];
  return n;
}
static void dense(const int64_t* box, int64_t element, int64_t* strides) {
  int64_t s = element;
  for (int64_t i = box[1] - 1; i >= 0; i--) {
    strides[i] = s;
    s *= box[3 + i];
  }
}

static int mpi_move(mpi_group* g, const int64_t* d, const char* in, char* out, int tag) {
  int n = (int)d[D_MEMBERS], me = (int)d[D_ME];
  int64_t element = d[D_ELEMENT], strides[MAX_DIMS];
  uint64_t send_at[257] = {0}, receive_at[257] = {0}, total = 0;
  for (int i = 0; i < n; i++) {
    send_at[i] = total;
    for (int64_t s = 0; s < d[D_SENDS]; s++) {
      const int64_t* b = d + d[D_SENDS_AT] + s * TRANSFER;
      if (b[0] == i) total += box_bytes(b, element);
    }
  }
  send_at[n] = total;
  for (int i = 0; i < n; i++) {
    receive_at[i] = total;
    for (int64_t r = 0; r < d[D_RECEIVES]; r++) {
      const int64_t* b = d + d[D_RECEIVES_AT] + r * TRANSFER;
      if (b[0] == i) total += box_bytes(b, element);
    }
  }
  receive_at[n] = total;
  char* memory = room(g, total ? total : 1);
  if (!memory) return E_MEMORY;
  for (int i = 0; i < n; i++) {
    char* at = memory + send_at[i];
    for (int64_t s = 0; s < d[D_SENDS]; s++) {
      const int64_t* b = d + d[D_SENDS_AT] + s * TRANSFER;
      if (b[0] != i) continue;
      dense(b, element, strides);
      copy_box(at, strides, in + b[2], b + 3 + MAX_DIMS, b + 3, (int)b[1], element);
      at += box_bytes(b, element);
    }
  }
  messages m = {.count = 0};
  for (int i = 0; i < n; i++)
    if (i != me) post(&m, 0, memory + receive_at[i], receive_at[i + 1] - receive_at[i], g->world[d[D_RANKS + i]], tag);
  for (int i = 0; i < n; i++)
    if (i != me) post(&m, 1, memory + send_at[i], send_at[i + 1] - send_at[i], g->world[d[D_RANKS + i]], tag);
  memcpy(memory + receive_at[me], memory + send_at[me], receive_at[me + 1] - receive_at[me]);
  int e = finish(g, &m);
  if (e) return e;
  if (d[D_ZERO]) memset(out, 0, (uint64_t)d[D_OUT]);
  for (int i = 0; i < n; i++) {
    const char* at = memory + receive_at[i];
    for (int64_t r = 0; r < d[D_RECEIVES]; r++) {
      const int64_t* b = d + d[D_RECEIVES_AT] + r * TRANSFER;
      if (b[0] != i) continue;
      dense(b, element, strides);
      copy_box(out + b[2], b + 3 + MAX_DIMS, at, strides, b + 3, (int)b[1], element);
      at += box_bytes(b, element);
    }
  }
  return E_OK;
}

/* The parts of all members arrive, are reduced in order, and are sent to all members of an all-reduce. */
static int mpi_reduce(mpi_group* g, const int64_t* d, const char* in, char* out, int tag) {
  int n = (int)d[D_MEMBERS], me = (int)d[D_ME], all = d[D_KIND] == K_ALLREDUCE;
  int64_t element = d[D_ELEMENT], outer = all ? 1 : d[D_OUTER], row = all ? d[D_COUNT] : d[D_ROW];
  int64_t start[256], run[256], most = 0, packed = 0;
  for (int i = 0; i < n; i++) {
    start[i] = all ? d[D_COUNT] * i / n : d[d[D_PARTS_AT] + 2 * i];
    run[i] = all ? d[D_COUNT] * (i + 1) / n - start[i] : d[d[D_PARTS_AT] + 2 * i + 1];
    if (run[i] > most) most = run[i];
    packed += outer * run[i];
  }
  int64_t mine = outer * run[me];
  char* memory = room(g, (uint64_t)(packed + n * mine + 1) * element);
  if (!memory) return E_MEMORY;
  char *leaving = memory, *arriving = memory + packed * element;
  messages m = {.count = 0};
  for (int i = 0; i < n; i++)
    if (i != me) post(&m, 0, arriving + i * mine * element, (uint64_t)mine * element, g->world[d[D_RANKS + i]], tag);
  char* at = leaving;
  for (int i = 0; i < n; i++) {
    char* target = i == me ? arriving + me * mine * element : at;
    for (int64_t o = 0; o < outer; o++)
      memcpy(target + o * run[i] * element, in + (o * row + start[i]) * element, (uint64_t)run[i] * element);
    if (i != me) post(&m, 1, at, (uint64_t)(outer * run[i]) * element, g->world[d[D_RANKS + i]], tag);
    at += outer * run[i] * element;
  }
  int e = finish(g, &m);
  if (e) return e;
  const void* parts[256];
  for (int i = 0; i < n; i++) parts[i] = arriving + i * mine * element;
  char* result = all ? out + start[me] * element : out;
  reduce_arrays((int)d[D_DTYPE], (int)d[D_FN], result, parts, n, mine);
  if (!all) return E_OK;
  m.count = 0;
  for (int i = 0; i < n; i++)
    if (i != me) post(&m, 0, out + start[i] * element, (uint64_t)run[i] * element, g->world[d[D_RANKS + i]], tag + 1);
  for (int i = 0; i < n; i++)
    if (i != me) post(&m, 1, result, (uint64_t)mine * element, g->world[d[D_RANKS + i]], tag + 1);
  return finish(g, &m);
}

/* Messages are sent when a collective is finished: MPI makes no progress between calls anyway. */
int wm_collective(void* group, const int64_t* d, const void* in, void* out, int phase) {
  mpi_group* g = group;
  if (phase == 1) return E_OK;
  if (!fits(g->size, g->rank, d)) return E_SIZES;
  int tag = (int)(((uint64_t)d[D_TAG] ^ (g->number++ << 8)) & 0x3fff) * 2;
  return d[D_KIND] == K_MOVE ? mpi_move(g, d, in, out, tag) : mpi_reduce(g, d, in, out, tag);
}
uint64_t wm_collective_address(void) { return (uint64_t)(uintptr_t)&wm_collective; }

/* MPI's own sum of floats, for the benchmark: seconds of each of several turns. In place where in is 0. */
int wm_bench(uint64_t in, uint64_t out, int count, int turns, double* seconds) {
  for (int t = 0; t < turns; t++) {
    mpi.Barrier(mpi.world);
    double begin = now_s();
    int e = mpi.Allreduce(in ? (void*)(uintptr_t)in : (void*)1 /* MPI_IN_PLACE */, (void*)(uintptr_t)out, count,
                          mpi.real, mpi.sum, mpi.world);
    if (e) return e;
    seconds[t] = now_s() - begin;
  }
  return 0;
}
/* The same by a process group. */
int wg_bench(group_t* g, const int64_t* d, const int64_t* barrier, uint64_t in, uint64_t out, int turns,
             double* seconds) {
  char byte[64] = {0}, answer[64];
  for (int t = 0; t < turns; t++) {
    int e = weft_collective(g, barrier, byte, answer, 0);
    double begin = now_s();
    if (!e) e = weft_collective(g, d, (void*)(uintptr_t)in, (void*)(uintptr_t)out, 0);
    if (e) return e;
    seconds[t] = now_s() - begin;
  }
  return 0;
}
