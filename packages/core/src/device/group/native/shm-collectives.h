// Collectives over shared memory, which read the members' tensors where they lie.
#pragma once

#include "shm.h"

/* Room in the arena for operands that lie elsewhere, for each place of the ring: several collectives may be under way. */
static void* staged(group_t* g, int which, uint64_t bytes) {
  if (g->stage_bytes[which] < bytes) {
    if (g->stage[which]) wg_free(g->stage[which]);
    g->stage[which] = wg_alloc(bytes);
    g->stage_bytes[which] = g->stage[which] ? bytes : 0;
  }
  return (void*)(uintptr_t)g->stage[which];
}

/* All members of the collective in this place of the ring have finished with it. */
static int settle(group_t* g, int place) {
  uint64_t number = g->open[place].number;
  for (int i = 0; i < g->open[place].n; i++) {
    int p = (int)g->open[place].ranks[i];
    if (p == g->rank) continue;
    int e = await_word(g, p, &g->c->members[p].slots[place].done, number);
    if (e) return e;
  }
  return E_OK;
}

static int collective_start(group_t* g, const int64_t* d, const void* in, void* out) {
  int place = (int)(g->posted % RING);
  int n = (int)d[D_MEMBERS], e;
  if (g->posted >= RING && (e = settle(g, place))) return e;
  slot_t* s = &g->c->members[g->rank].slots[place];
  uint64_t number = ++g->posted;
  g->open[place].number = number;
  g->open[place].n = n;
  for (int i = 0; i < n; i++) g->open[place].ranks[i] = d[D_RANKS + i];
  g->open[place].in = in;
  g->open[place].out = out;
  g->open[place].staged_out = NULL;
  uint64_t bytes = (uint64_t)d[D_IN];
  int small = bytes <= PAYLOAD;
  g->open[place].lasting = !small;
  if (small) memcpy(s->payload, in, bytes);
  else {
    if (!in_arena(in)) {
      void* copy = staged(g, 2 * place, bytes);
      if (!copy) return E_MEMORY;
      memcpy(copy, in, bytes);
      in = copy;
    }
    if (d[D_KIND] == K_ALLREDUCE && !in_arena(out)) {
      out = staged(g, 2 * place + 1, bytes);
      if (!out) return E_MEMORY;
      g->open[place].staged_out = out;
    }
    s->in_at = (uint64_t)((const char*)in - arena.base);
    s->out_at = d[D_KIND] == K_ALLREDUCE ? (uint64_t)((char*)out - arena.base) : 0;
  }
  s->in_payload = (uint64_t)small;
  s->tag = (uint64_t)d[D_TAG];
  s->kind = (uint64_t)d[D_KIND];
  s->bytes = bytes;
  if (d[D_SENDS] > 0) memcpy(s->sends, d + d[D_SENDS_AT], (uint64_t)d[D_SENDS] * TRANSFER * 8);
  s->sends[SENDS - 1] = d[D_SENDS];
  atomic_store_explicit(&s->posted, number, memory_order_release);
  signal_event(&g->c->members[g->rank]);
  return E_OK;
}

static const char* source_of(group_t* g, int p, slot_t* s) {
  return s->in_payload ? s->payload : g->bases[p] + s->in_at;
}

static int arrive(group_t* g, int p, int place, uint64_t number, const int64_t* d) {
  slot_t* s = &g->c->members[p].slots[place];
  int e = await_word(g, p, &s->posted, number);
  if (e) return e;
  if (s->tag != (uint64_t)d[D_TAG] || s->kind != (uint64_t)d[D_KIND]) {
    g->failed_rank = p;
    return E_MISMATCH;
  }
  return E_OK;
}

/* Non-temporal stores: whole cache lines are written without being read first. */
static void stream_copy(char* to, const char* from, int64_t bytes) {
#ifdef __AVX__
  if (((uintptr_t)to & 31) == 0) {
    for (; bytes >= 128; bytes -= 128, to += 128, from += 128)
      for (int i = 0; i < 4; i++) _mm256_stream_si256((__m256i*)to + i, _mm256_loadu_si256((const __m256i*)from + i));
  }
#endif
  memcpy(to, from, (uint64_t)bytes);
}

/* Reduces [lo, hi) into all outputs. Sums in place are in the caches already; other outputs are written with non-temporal stores. */
static void large_reduce(group_t* g, const int64_t* d, void* const* outs, int nout, const void* const* ins, int64_t lo,
                         int64_t hi, int in_place) {
  int n = (int)d[D_MEMBERS];
  int64_t element = d[D_ELEMENT], block = 32768 / element;
  int streams = !in_place && (hi - lo) * element > (1 << 20);
  int threads = (hi - lo) * element > (1 << 20) ? g->threads : 1;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    char room[32768] __attribute__((aligned(64)));
#pragma omp for schedule(static)
    for (int64_t b = lo; b < hi; b += block) {
      int64_t m = hi - b < block ? hi - b : block;
      const void* in[256];
      for (int i = 0; i < n; i++) in[i] = (const char*)ins[i] + b * element;
      char* first = streams ? room : (char*)outs[0] + b * element;
      reduce_arrays((int)d[D_DTYPE], (int)d[D_FN], first, in, n, m);
      for (int o = streams ? 0 : 1; o < nout; o++) {
        char* to = (char*)outs[o] + b * element;
        if (streams) stream_copy(to, first, m * element);
        else memcpy(to, first, m * element);
      }
    }
#ifdef __AVX__
    if (streams) _mm_sfence();
#endif
  }
}

/* Bytes that this process read from others in collectives. */
static _Atomic uint64_t moved_bytes;
uint64_t wg_moved_bytes(void) { return atomic_load(&moved_bytes); }
static void count_moved(int64_t bytes) {
  atomic_fetch_add_explicit(&moved_bytes, (uint64_t)bytes, memory_order_relaxed);
}

static int reduce_all(group_t* g, const int64_t* d, int place, void* out) {
  int n = (int)d[D_MEMBERS], me = (int)d[D_ME];
  int64_t count = d[D_COUNT], element = d[D_ELEMENT];
  const void* ins[256];
  void* outs[256];
  int small = !g->open[place].lasting;
  for (int i = 0; i < n; i++) {
    int p = (int)d[D_RANKS + i];
    slot_t* s = &g->c->members[p].slots[place];
    ins[i] = source_of(g, p, s);
    /* This member's own output first: the others receive copies of it while it is in the caches. */
    if (!small) outs[(i - me + n) % n] = g->bases[p] + s->out_at;
  }
  if (small) {
    void* own[1] = {out};
    large_reduce(g, d, own, 1, ins, 0, count, 1);
    count_moved((n - 1) * count * element);
    return E_OK;
  }
  int64_t grain = 64 / element;
  if (grain < 1) grain = 1;
  int64_t pieces = (count + grain - 1) / grain, lo = pieces * me / n * grain, hi = pieces * (me + 1) / n * grain;
  if (hi > count) hi = count;
  int in_place = outs[0] == ins[me];
  large_reduce(g, d, outs, n, ins, lo, hi, in_place);
  /* The operands of the others in its own piece, and the other pieces, which they write here. */
  count_moved(((n - 1) * (hi - lo) + (n > 1 ? count - (hi - lo) : 0)) * element);
  return E_OK;
}

static int reduce_part(group_t* g, const int64_t* d, int place, void* out) {
  int n = (int)d[D_MEMBERS];
  const void* ins[256];
  int64_t element = d[D_ELEMENT], run = d[D_RUN];
  for (int64_t o = 0; o < d[D_OUTER]; o++) {
    for (int i = 0; i < n; i++) {
      int p = (int)d[D_RANKS + i];
      ins[i] = source_of(g, p, &g->c->members[p].slots[place]) + (o * d[D_ROW] + d[D_START]) * element;
    }
    void* own[1] = {(char*)out + o * run * element};
    large_reduce(g, d, own, 1, ins, 0, run, 0);
  }
  count_moved((n - 1) * d[D_OUTER] * run * element);
  return E_OK;
}

/* Copies what member i sent to this member: its k-th box into our k-th box. */
static int receive_from(group_t* g, const int64_t* d, int i, int place, char* out) {
  int p = (int)d[D_RANKS + i], me = (int)d[D_ME];
  slot_t* s = &g->c->members[p].slots[place];
  const char* in = source_of(g, p, s);
  int64_t sends = s->sends[SENDS - 1], next = 0;
  for (int64_t r = 0; r < d[D_RECEIVES]; r++) {
    const int64_t* box = d + d[D_RECEIVES_AT] + r * TRANSFER;
    if (box[0] != i) continue;
    while (next < sends && s->sends[next * TRANSFER] != me) next++;
    g->failed_rank = p;
    if (next >= sends) return E_MISMATCH;
    const int64_t* from = s->sends + TRANSFER * next++;
    if (from[1] != box[1] || memcmp(from + 3, box + 3, (uint64_t)box[1] * 8) != 0) return E_MISMATCH;
    copy_box(out + box[2], box + 3 + MAX_DIMS, in + from[2], from + 3 + MAX_DIMS, box + 3, (int)box[1], d[D_ELEMENT]);
    if (i == me) continue;
    int64_t bytes = d[D_ELEMENT];
    for (int64_t a = 0; a < box[1]; a++) bytes *= box[3 + a];
    count_moved(bytes);
  }
  return E_OK;
}

static int collective_wait(group_t* g, const int64_t* d, void* out) {
  int place = (int)(g->finished % RING), n = (int)d[D_MEMBERS], me = (int)d[D_ME], e = E_OK;
  uint64_t number = ++g->finished;
  if (d[D_KIND] == K_MOVE) {
    if (d[D_ZERO]) memset(out, 0, (uint64_t)d[D_OUT]);
    /* Each member begins with itself, so that not all of them read from one member at the same time. */
    for (int k = 0; k < n && !e; k++) {
      int i = (me + k) % n;
      e = arrive(g, (int)d[D_RANKS + i], place, number, d);
      if (!e) e = receive_from(g, d, i, place, out);
    }
  } else {
    for (int i = 0; i < n && !e; i++) {
      e = arrive(g, (int)d[D_RANKS + i], place, number, d);
      if (!e && g->c->members[d[D_RANKS + i]].slots[place].bytes != (uint64_t)d[D_IN]) {
        g->failed_rank = (int)d[D_RANKS + i];
        e = E_MISMATCH;
      }
    }
    if (!e) e = d[D_KIND] == K_ALLREDUCE ? reduce_all(g, d, place, out) : reduce_part(g, d, place, out);
  }
  if (e) return e;
  atomic_store_explicit(&g->c->members[g->rank].slots[place].done, number, memory_order_release);
  signal_event(&g->c->members[g->rank]);
  /* Small operands were copied, so that no member reads ours any more. */
  if (!g->open[place].lasting) return E_OK;
  if ((e = settle(g, place))) return e;
  if (g->open[place].staged_out) memcpy(out, g->open[place].staged_out, (uint64_t)d[D_OUT]);
  return E_OK;
}

/* The values of a descriptor are checked against this group and the arrays here, because they may come from a message. */
static int fits(int size, int rank, const int64_t* d) {
  if (d[D_MEMBERS] < 1 || d[D_MEMBERS] > 256 || d[D_MEMBERS] > size || d[D_ME] < 0 || d[D_ME] >= d[D_MEMBERS]) return 0;
  if (d[D_SENDS] < 0 || d[D_RECEIVES] < 0) return 0;
  if (d[D_DTYPE] < 0 || d[D_DTYPE] > 14 || d[D_FN] < 0 || d[D_FN] > 3 || d[D_ELEMENT] < 1 || d[D_ELEMENT] > 16)
    return 0;
  if (d[D_KIND] != K_MOVE && !reducers[d[D_DTYPE]][d[D_FN]]) return 0;
  for (int64_t i = 0; i < d[D_MEMBERS]; i++)
    if (d[D_RANKS + i] < 0 || d[D_RANKS + i] >= size) return 0;
  return d[D_RANKS + d[D_ME]] == rank;
}

/* phase 0: the whole collective; 1: start it; 2: finish the oldest that was started. */
int weft_collective(void* group, const int64_t* d, const void* in, void* out, int phase) {
  group_t* g = group;
  int e = E_OK;
  if (!fits(g->size, g->rank, d) || d[D_SENDS] > SENDS / TRANSFER) e = E_SIZES;
  if (!e && phase != 2) e = collective_start(g, d, in, out);
  if (!e && phase != 1) e = collective_wait(g, d, out);
  if (e) wg_abort(g);
  return e;
}
uint64_t wg_collective_address(void) { return (uint64_t)(uintptr_t)&weft_collective; }
