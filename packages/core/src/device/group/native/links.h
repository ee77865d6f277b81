// The process group between hosts in C: messages.h over one local socket per member, whose other end a thread of this
// process forwards to the member's host, encrypted and authenticated (the cluster's links). Members of one host reduce
// over shared memory first and pass on to each other what arrives, so that bytes cross the network once per host.
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
    if (call_ends()) e = E_CALL;
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

/* Which member of its host each member is, and how many members every host has. */
typedef struct {
  int index[256], count[256];
} host_places;
static void places_of(link_group* g, const int64_t* d, host_places* p) {
  memset(p, 0, sizeof *p);
  for (int i = 0; i < d[D_MEMBERS]; i++) p->index[i] = p->count[g->hosts[d[D_RANKS + i]]]++;
}

/* A part that every member of a host needs arrives at one of them, in turn: this one. */
static int arrives_at(const host_places* p, int part, int host) { return p->index[part] % p->count[host]; }

/* The same for all members: whether the boxes of the step within a host fit the table of shared memory. */
static int gather_fits(link_group* g, const int64_t* d, const host_places* p) {
  for (int h = 0; h < 256; h++) {
    if (p->count[h] == 0) continue;
    int64_t most = 0, holds[256] = {0};
    for (int i = 0; i < d[D_MEMBERS]; i++) {
      int at = g->hosts[d[D_RANKS + i]] == h ? p->index[i] : arrives_at(p, i, h);
      if (++holds[at] > most) most = holds[at];
    }
    if (most * p->count[h] > SENDS / TRANSFER) return 0;
  }
  return d[D_RECEIVES] == d[D_MEMBERS];
}

/* An all-gather in two steps: every part goes to one member of each other host, which passes it on over shared memory. */
static int gather_by_host(link_group* g, const int64_t* d, const char* in, char* out, uint64_t tag,
                          const host_places* p) {
  int n = (int)d[D_MEMBERS], me = (int)d[D_ME], own = g->hosts[g->m.rank], near = p->count[own], mine = p->index[me];
  int64_t element = d[D_ELEMENT], strides[MAX_DIMS];
  const int64_t* boxes = d + d[D_RECEIVES_AT];
  uint64_t arriving = 0;
  messages m = {.count = 0};
  for (int i = 0; i < n; i++)
    if (g->hosts[d[D_RANKS + i]] != own && arrives_at(p, i, own) == mine)
      arriving += box_bytes(boxes + i * TRANSFER, element);
  char* memory = room(&g->m, arriving ? arriving : 1);
  if (!memory) return E_MEMORY;
  char* at = memory;
  for (int i = 0; i < n; i++) {
    int other = (int)d[D_RANKS + i], host = g->hosts[other];
    if (host == own) continue;
    if (arrives_at(p, i, own) == mine) {
      uint64_t bytes = box_bytes(boxes + i * TRANSFER, element);
      post(&m, 0, at, bytes, other, tag);
      at += bytes;
    }
    if (arrives_at(p, me, host) == p->index[i]) post(&m, 1, (char*)in, (uint64_t)d[D_IN], other, tag);
  }
  int e = g->m.exchange(&g->m, &m);
  if (e) return e;
  at = memory;
  for (int i = 0; i < n; i++) {
    const int64_t* b = boxes + i * TRANSFER;
    int far = g->hosts[d[D_RANKS + i]] != own && arrives_at(p, i, own) == mine;
    if (!far && i != me) continue;
    dense(b, element, strides);
    copy_box(out + b[2], b + 3 + MAX_DIMS, far ? at : in, strides, b + 3, (int)b[1], element);
    if (far) at += box_bytes(b, element);
  }
  if (near < 2) return E_OK;
  int64_t* local = malloc((D_RANKS + (uint64_t)near + (uint64_t)(n * near + n) * TRANSFER) * sizeof *local);
  if (!local) return E_MEMORY;
  memcpy(local, d, D_RANKS * sizeof *local);
  local[D_MEMBERS] = near;
  local[D_ME] = mine;
  local[D_TAG]++;
  local[D_ZERO] = 0;
  local[D_IN] = local[D_OUT];
  local[D_SENDS] = local[D_RECEIVES] = 0;
  local[D_SENDS_AT] = D_RANKS + near;
  for (int i = 0; i < n; i++)
    if (g->hosts[d[D_RANKS + i]] == own) local[D_RANKS + p->index[i]] = g->place[d[D_RANKS + i]];
  int64_t* next = local + local[D_SENDS_AT];
  for (int receives = 0; receives < 2; receives++) {
    if (receives) local[D_RECEIVES_AT] = next - local;
    for (int i = 0; i < n; i++) {
      int holder = g->hosts[d[D_RANKS + i]] == own ? p->index[i] : arrives_at(p, i, own);
      if (box_bytes(boxes + i * TRANSFER, element) == 0 || (holder == mine) == receives) continue;
      for (int k = 0; k < near; k++) {
        if (receives ? k != holder : k == mine) continue;
        memcpy(next, boxes + i * TRANSFER, TRANSFER * sizeof *next);
        next[0] = k;
        next += TRANSFER;
        local[receives ? D_RECEIVES : D_SENDS]++;
      }
    }
  }
  e = weft_collective(g->local, local, out, out, 0);
  free(local);
  return e;
}

/* A reduce-scatter in two steps: hosts sum over shared memory, and every member gets one partial sum from each other host. */
static int scatter_by_host(link_group* g, const int64_t* d, const char* in, char* out, uint64_t tag,
                           const host_places* p) {
  int n = (int)d[D_MEMBERS], me = (int)d[D_ME], own = g->hosts[g->m.rank], near = p->count[own], mine = p->index[me];
  int64_t element = d[D_ELEMENT], outer = d[D_OUTER], row = d[D_ROW];
  const int64_t* parts = d + d[D_PARTS_AT];
  uint64_t run = (uint64_t)(outer * parts[2 * me + 1] * element), leaving = 0, hosts = 0;
  for (int i = 0; i < n; i++)
    if (g->hosts[d[D_RANKS + i]] != own && arrives_at(p, i, own) == mine)
      leaving += (uint64_t)(outer * parts[2 * i + 1] * element);
  for (int h = 0; h < 256; h++) hosts += p->count[h] > 0;
  uint64_t whole = near > 1 ? (uint64_t)d[D_IN] : 0;
  char* memory = room(&g->m, whole + leaving + hosts * run + 1);
  if (!memory) return E_MEMORY;
  const char* sum = in;
  if (near > 1) {
    int64_t local[D_RANKS + 256];
    memcpy(local, d, D_RANKS * sizeof *local);
    local[D_KIND] = K_ALLREDUCE;
    local[D_MEMBERS] = near;
    local[D_ME] = mine;
    local[D_OUT] = local[D_IN];
    local[D_COUNT] = local[D_IN] / element;
    for (int i = 0; i < n; i++)
      if (g->hosts[d[D_RANKS + i]] == own) local[D_RANKS + p->index[i]] = g->place[d[D_RANKS + i]];
    int e = weft_collective(g->local, local, in, memory, 0);
    if (e) return e;
    sum = memory;
  }
  char *at = memory + whole, *arriving = at + leaving;
  const void* sums[256];
  int count = 0;
  char seen[256] = {0};
  messages m = {.count = 0};
  for (int i = 0; i < n; i++) {
    int other = (int)d[D_RANKS + i], host = g->hosts[other];
    if (i == me || (host != own && arrives_at(p, i, own) == mine)) {
      char* target = i == me ? arriving + run * (hosts - 1) : at;
      int64_t start = parts[2 * i], length = parts[2 * i + 1];
      for (int64_t o = 0; o < outer; o++)
        memcpy(target + o * length * element, sum + (o * row + start) * element, (uint64_t)(length * element));
      if (i != me) {
        post(&m, 1, at, (uint64_t)(outer * length * element), other, tag);
        at += outer * length * element;
      }
    }
    if (host != own && arrives_at(p, me, host) == p->index[i])
      post(&m, 0, arriving + run * (uint64_t)count++, run, other, tag);
  }
  /* Hosts are added in the order of their first members, on every rank of a host alike. */
  uint64_t next = 0, order[256];
  for (int i = 0; i < n; i++) {
    int host = g->hosts[d[D_RANKS + i]];
    if (host != own && arrives_at(p, me, host) == p->index[i]) order[host] = next++;
  }
  count = 0;
  for (int i = 0; i < n; i++) {
    int host = g->hosts[d[D_RANKS + i]];
    if (seen[host]) continue;
    seen[host] = 1;
    sums[count++] = arriving + run * (host == own ? hosts - 1 : order[host]);
  }
  int e = g->m.exchange(&g->m, &m);
  if (e) return e;
  reduce_arrays((int)d[D_DTYPE], (int)d[D_FN], out, sums, count, (int64_t)run / element);
  return E_OK;
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
  int e;
  host_places p;
  if (shares_hosts(g, d)) places_of(g, d, &p);
  if (shares_hosts(g, d) && d[D_KIND] == K_ALLREDUCE) e = reduce_by_host(g, d, in, out, next_tag(&g->m, d));
  else if (shares_hosts(g, d) && d[D_KIND] == K_REDUCESCATTER)
    e = scatter_by_host(g, d, in, out, next_tag(&g->m, d), &p);
  else if (shares_hosts(g, d) && d[D_GATHERS] && gather_fits(g, d, &p))
    e = gather_by_host(g, d, in, out, next_tag(&g->m, d), &p);
  else e = collective_messages(&g->m, d, in, out);
  if (e) wl_abort(g);
  if (e && g->local) wg_abort(g->local);
  return e;
}
uint64_t wl_collective_address(void) { return (uint64_t)(uintptr_t)&wl_collective; }
