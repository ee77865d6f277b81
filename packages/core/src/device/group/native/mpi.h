// The process group over MPI in C: messages.h over MPI's point-to-point messages, so that results do not depend on MPI's
// algorithms. OpenMPI is loaded at run time; nothing of it is needed to build.
#pragma once
#include "messages.h"

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
  message_group m;
  int world[256]; /* ranks of the members in the job */
} mpi_group;

/* Large messages go in pieces: MPI's counts are ints, and its tags may be small. */
enum { PIECE = 1 << 30, REQUESTS = 4096 };
static int mpi_exchange(message_group* group, messages* m) {
  mpi_group* g = (mpi_group*)group;
  void* requests[REQUESTS];
  int count = 0;
  for (int i = 0; i < m->count; i++) {
    message* one = &m->list[i];
    int peer = g->world[one->rank], tag = (int)(one->tag & 0x7fff);
    for (uint64_t lo = 0; lo < one->bytes; lo += PIECE) {
      if (count == REQUESTS) return E_MEMORY;
      int n = (int)(one->bytes - lo < PIECE ? one->bytes - lo : PIECE);
      void** r = &requests[count++];
      if (one->sending) mpi.Isend(one->at + lo, n, mpi.byte, peer, tag, mpi.world, r);
      else mpi.Irecv(one->at + lo, n, mpi.byte, peer, tag, mpi.world, r);
    }
  }
  double begin = now_s();
  int done = 0;
  for (long turn = 0;; turn++) {
    if (mpi.Testall(count, requests, &done, NULL) != 0) return E_SYSTEM;
    if (done) return E_OK;
    if (turn > 1000) {
      sched_yield();
      if (now_s() - begin > g->m.timeout) return E_TIMEOUT;
    }
  }
}

/* A group of some ranks of the job, in any order; 0 when there are too many. */
uint64_t wm_group(int rank, int size, const int32_t* world, double timeout) {
  if (size < 1 || size > 256) return 0;
  mpi_group* g = calloc(1, sizeof *g);
  if (!g) return 0;
  for (int i = 0; i < size; i++) g->world[i] = world[i];
  g->m = (message_group){.rank = rank, .size = size, .timeout = timeout, .exchange = mpi_exchange};
  return (uint64_t)(uintptr_t)g;
}
void wm_close(mpi_group* g) {
  free(g->m.memory);
  free(g);
}

/* Messages are sent when a collective is finished: MPI makes no progress between calls anyway. */
int wm_collective(void* group, const int64_t* d, const void* in, void* out, int phase) {
  return phase == 1 ? E_OK : collective_messages(group, d, in, out);
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
