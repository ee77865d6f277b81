// Collectives as messages of bytes between pairs of processes, reduced here in the order of the members, so that results
// have the same bits everywhere. How messages travel is the transport's affair (mpi.h, links.h).
#pragma once
#include "shm-collectives.h"

/* Messages of one step of a collective: at most one to and one from each member. */
enum { MESSAGES = 512 };
typedef struct {
  int sending, rank; /* the other side, by its rank in the group */
  char* at;
  uint64_t bytes, tag;
} message;
typedef struct {
  message list[MESSAGES];
  int count;
} messages;

typedef struct message_group message_group;
struct message_group {
  int rank, size;
  double timeout;
  int failed_rank;
  char* memory;
  uint64_t bytes;
  uint64_t number;
  /* Sends and receives all messages of the list, or returns an error. */
  int (*exchange)(message_group*, messages*);
};

static char* room(message_group* g, uint64_t bytes) {
  if (g->bytes < bytes) {
    free(g->memory);
    g->memory = malloc(bytes);
    g->bytes = g->memory ? bytes : 0;
  }
  return g->memory;
}

/* Messages without bytes are not sent: both sides know the sizes. */
static void post(messages* m, int sending, char* at, uint64_t bytes, int rank, uint64_t tag) {
  if (bytes == 0 || m->count == MESSAGES) return;
  if (!sending) count_moved((int64_t)bytes);
  m->list[m->count++] = (message){sending, rank, at, bytes, tag};
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

static int move_messages(message_group* g, const int64_t* d, const char* in, char* out, uint64_t tag) {
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
    if (i != me) post(&m, 0, memory + receive_at[i], receive_at[i + 1] - receive_at[i], (int)d[D_RANKS + i], tag);
  for (int i = 0; i < n; i++)
    if (i != me) post(&m, 1, memory + send_at[i], send_at[i + 1] - send_at[i], (int)d[D_RANKS + i], tag);
  memcpy(memory + receive_at[me], memory + send_at[me], receive_at[me + 1] - receive_at[me]);
  int e = g->exchange(g, &m);
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
static int reduce_messages(message_group* g, const int64_t* d, const char* in, char* out, uint64_t tag) {
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
    if (i != me) post(&m, 0, arriving + i * mine * element, (uint64_t)mine * element, (int)d[D_RANKS + i], tag);
  char* at = leaving;
  for (int i = 0; i < n; i++) {
    char* target = i == me ? arriving + me * mine * element : at;
    for (int64_t o = 0; o < outer; o++)
      memcpy(target + o * run[i] * element, in + (o * row + start[i]) * element, (uint64_t)run[i] * element);
    if (i != me) post(&m, 1, at, (uint64_t)(outer * run[i]) * element, (int)d[D_RANKS + i], tag);
    at += outer * run[i] * element;
  }
  int e = g->exchange(g, &m);
  if (e) return e;
  const void* parts[256];
  for (int i = 0; i < n; i++) parts[i] = arriving + i * mine * element;
  char* result = all ? out + start[me] * element : out;
  reduce_arrays((int)d[D_DTYPE], (int)d[D_FN], result, parts, n, mine);
  if (!all) return E_OK;
  m.count = 0;
  for (int i = 0; i < n; i++)
    if (i != me) post(&m, 0, out + start[i] * element, (uint64_t)run[i] * element, (int)d[D_RANKS + i], tag + 1);
  for (int i = 0; i < n; i++)
    if (i != me) post(&m, 1, result, (uint64_t)mine * element, (int)d[D_RANKS + i], tag + 1);
  return g->exchange(g, &m);
}

/* The number of a collective and what it is; two tags, for both steps of an all-reduce. */
static uint64_t next_tag(message_group* g, const int64_t* d) { return ((uint64_t)d[D_TAG] ^ (g->number++ << 8)) * 2; }

static int collective_messages(message_group* g, const int64_t* d, const void* in, void* out) {
  if (!fits(g->size, g->rank, d)) return E_SIZES;
  uint64_t tag = next_tag(g, d);
  return d[D_KIND] == K_MOVE ? move_messages(g, d, in, out, tag) : reduce_messages(g, d, in, out, tag);
}
