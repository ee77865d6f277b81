// The process group between hosts in C: messages.h over one local socket per member, whose other end a thread of this
// process forwards to the member's host, encrypted and authenticated (the cluster's links). Members of one host reduce
// over shared memory first, so that a sum crosses the network once per host.
#pragma once
#include "messages.h"

#include <poll.h>
#include <sys/socket.h>

/* What precedes a message. */
typedef struct {
  uint64_t tag, bytes;
} link_header;
static const uint64_t LINK_ABORT = ~0ull;

typedef struct {
  message_group m;
  int fds[256];   /* by rank; -1 for this one */
  int hosts[256]; /* of the members, as numbers */
  group_t* local; /* the members of this host, or none */
  int place[256]; /* rank in it */
} link_group;

/* A pair of connected local sockets: one for the group, one for the thread. */
int wl_pair(int32_t* fds) {
  int made[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, made) != 0) return errno;
  fds[0] = made[0];
  fds[1] = made[1];
  return 0;
}

/* How far a message is. */
typedef struct {
  link_header header;
  uint64_t moved; /* bytes of header and message */
} progress;

/* Moves what can be moved now; 1 when the message is complete, negative errors. */
static int advance(int fd, message* one, progress* p) {
  const uint64_t head = sizeof(link_header), total = head + one->bytes;
  while (p->moved < total) {
    char* at = p->moved < head ? (char*)&p->header + p->moved : one->at + (p->moved - head);
    uint64_t left = p->moved < head ? head - p->moved : total - p->moved;
    ssize_t n = one->sending ? send(fd, at, left, MSG_NOSIGNAL) : recv(fd, at, left, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    if (n <= 0) return -E_DEAD;
    int begun = p->moved < head;
    p->moved += (uint64_t)n;
    if (one->sending || !begun || p->moved < head) continue;
    if (p->header.tag == LINK_ABORT) return -E_ABORTED;
    if (p->header.tag != one->tag || p->header.bytes != one->bytes) return -E_MISMATCH;
  }
  return 1;
}

static int link_exchange_within(link_group* g, messages* m, double timeout) {
  progress* states = calloc((size_t)m->count + 1, sizeof *states);
  struct pollfd* waits = calloc((size_t)m->count + 1, sizeof *waits);
  int* which = calloc((size_t)m->count + 1, sizeof *which);
  int e = states && waits && which ? E_OK : E_MEMORY;
  double begin = now_s();
  for (int i = 0; i < m->count && !e; i++) states[i].header = (link_header){m->list[i].tag, m->list[i].bytes};
  for (int open = m->count; open > 0 && !e;) {
    int n = 0;
    for (int i = 0; i < m->count && !e; i++) {
      message* one = &m->list[i];
      if (states[i].moved == sizeof(link_header) + one->bytes) continue;
      int fd = g->fds[one->rank], done = advance(fd, one, &states[i]);
      if (done < 0) {
        g->m.failed_rank = one->rank;
        e = -done;
      } else if (done) open--;
      else {
        which[n] = i;
        waits[n++] = (struct pollfd){.fd = fd, .events = one->sending ? POLLOUT : POLLIN};
      }
    }
    if (e || open == 0) break;
    poll(waits, (nfds_t)n, 50);
    if (now_s() - begin > timeout) {
      g->m.failed_rank = m->list[which[0]].rank;
      e = E_TIMEOUT;
    }
  }
  free(states);
  free(waits);
  free(which);
  return e;
}
static int link_exchange(message_group* g, messages* m) { return link_exchange_within((link_group*)g, m, g->timeout); }

/* A group of `size` members over their sockets, which it owns from now on; 0 when there are too many. */
uint64_t wl_group(int rank, int size, const int32_t* fds, const int32_t* hosts, double timeout) {
  link_group* g = size < 1 || size > 256 ? NULL : calloc(1, sizeof *g);
  if (!g) return 0;
  for (int i = 0; i < size; i++) {
    g->fds[i] = i == rank ? -1 : fds[i];
    g->hosts[i] = hosts[i];
  }
  g->m = (message_group){.rank = rank, .size = size, .timeout = timeout, .exchange = link_exchange};
  return (uint64_t)(uintptr_t)g;
}

/* Gives the group the shared-memory group of this host's members, in the order of their ranks. */
void wl_local(link_group* g, group_t* local) {
  int next = 0;
  for (int i = 0; i < g->m.size; i++)
    if (g->hosts[i] == g->hosts[g->m.rank]) g->place[i] = next++;
  g->local = local;
}

/* Waits until every member is there. */
int wl_meet(link_group* g, double timeout) {
  messages m = {.count = 0};
  char out = 1, in[256];
  for (int i = 0; i < g->m.size; i++) {
    if (i == g->m.rank) continue;
    post(&m, 0, in + i, 1, i, 1);
    post(&m, 1, &out, 1, i, 1);
  }
  return link_exchange_within(g, &m, timeout);
}

int wl_failed_rank(link_group* g) { return g->m.failed_rank; }

/* Tells the others that this member gave up. What it was sending may be incomplete: then they see the end alone. */
void wl_abort(link_group* g) {
  link_header h = {LINK_ABORT, 0};
  for (int i = 0; i < g->m.size; i++)
    if (g->fds[i] >= 0) {
      (void)!send(g->fds[i], &h, sizeof h, MSG_NOSIGNAL);
      shutdown(g->fds[i], SHUT_WR);
    }
}
/* Waits until what was sent has left this process, which may end then; at most so many seconds. */
static void drain(link_group* g, double seconds) {
  double begin = now_s();
  for (int i = 0; i < g->m.size; i++)
    if (g->fds[i] >= 0) shutdown(g->fds[i], SHUT_WR);
  for (int i = 0; i < g->m.size; i++) {
    char rest[256];
    struct pollfd wait = {.fd = g->fds[i], .events = POLLIN};
    while (g->fds[i] >= 0 && now_s() - begin < seconds)
      if (poll(&wait, 1, 20) > 0 && recv(g->fds[i], rest, sizeof rest, 0) == 0) break;
  }
}
void wl_close(link_group* g, double drain_seconds) {
  if (drain_seconds > 0) drain(g, drain_seconds);
  for (int i = 0; i < g->m.size; i++)
    if (g->fds[i] >= 0) close(g->fds[i]);
  free(g->m.memory);
  free(g);
}

/* A descriptor for some members of a larger collective, with room for one box to send to and one to receive from each. */
typedef int64_t part_descriptor[D_RANKS + 256 + 2 * 256 * TRANSFER];

static void byte_box(int64_t* box, int64_t member, int64_t bytes) {
  memset(box, 0, TRANSFER * sizeof *box);
  box[0] = member;
  box[1] = 1;
  box[3] = bytes;
  box[3 + MAX_DIMS] = 1;
}

/* All members of this host get what the first of them has. */
static int spread_local(link_group* g, int64_t* d, char* data, int n, int me) {
  int64_t bytes = d[D_OUT];
  d[D_KIND] = K_MOVE;
  d[D_TAG]++;
  d[D_ELEMENT] = 1;
  d[D_DTYPE] = 1;
  d[D_FN] = 0;
  d[D_ZERO] = 0;
  d[D_IN] = bytes;
  d[D_SENDS] = me == 0 ? n : 0;
  d[D_RECEIVES] = 1;
  d[D_SENDS_AT] = D_RANKS + n;
  d[D_RECEIVES_AT] = d[D_SENDS_AT] + d[D_SENDS] * TRANSFER;
  for (int i = 0; i < d[D_SENDS]; i++) byte_box(d + d[D_SENDS_AT] + i * TRANSFER, i, bytes);
  byte_box(d + d[D_RECEIVES_AT], 0, bytes);
  return weft_collective(g->local, d, data, data, 0);
}

/* An all-reduce in three steps: over shared memory, between the first members of the hosts, over shared memory. */
static int reduce_by_host(link_group* g, const int64_t* d, const char* in, char* out, uint64_t tag) {
  int own = g->hosts[g->m.rank], near = 0, near_me = 0, firsts = 0, firsts_me = -1;
  int64_t* local = malloc(2 * sizeof(part_descriptor));
  if (!local) return E_MEMORY;
  int64_t* between = local + sizeof(part_descriptor) / sizeof *local;
  memcpy(local, d, D_RANKS * sizeof *local);
  memcpy(between, d, D_RANKS * sizeof *between);
  char seen[256] = {0};
  for (int i = 0; i < d[D_MEMBERS]; i++) {
    int r = (int)d[D_RANKS + i];
    if (!seen[g->hosts[r]]) {
      seen[g->hosts[r]] = 1;
      if (r == g->m.rank) firsts_me = firsts;
      between[D_RANKS + firsts++] = r;
    }
    if (g->hosts[r] != own) continue;
    if (r == g->m.rank) near_me = near;
    local[D_RANKS + near++] = g->place[r];
  }
  local[D_MEMBERS] = near;
  local[D_ME] = near_me;
  between[D_MEMBERS] = firsts;
  between[D_ME] = firsts_me;
  int e = E_OK;
  if (near > 1) e = weft_collective(g->local, local, in, out, 0);
  else memcpy(out, in, (uint64_t)d[D_IN]);
  if (!e && firsts > 1 && firsts_me >= 0) e = reduce_messages(&g->m, between, out, out, tag);
  if (!e && firsts > 1 && near > 1) e = spread_local(g, local, out, near, near_me);
  free(local);
  return e;
}

/* Whether some members share a host; all members of the collective see the same. */
static int shares_hosts(link_group* g, const int64_t* d) {
  char seen[256] = {0};
  int hosts = 0;
  for (int i = 0; i < d[D_MEMBERS]; i++) {
    int h = g->hosts[d[D_RANKS + i]];
    if (!seen[h]) hosts++;
    seen[h] = 1;
  }
  return hosts < d[D_MEMBERS];
}

int wl_collective(void* group, const int64_t* d, const void* in, void* out, int phase) {
  link_group* g = group;
  if (phase == 1) return E_OK;
  if (!fits(g->m.size, g->m.rank, d)) return E_SIZES;
  int e = d[D_KIND] == K_ALLREDUCE && shares_hosts(g, d) ? reduce_by_host(g, d, in, out, next_tag(&g->m, d))
                                                         : collective_messages(&g->m, d, in, out);
  if (e) wl_abort(g);
  if (e && g->local) wg_abort(g->local);
  return e;
}
uint64_t wl_collective_address(void) { return (uint64_t)(uintptr_t)&wl_collective; }
