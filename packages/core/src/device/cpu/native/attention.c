// Attention of the CPU device without its scores in memory: tiles of queries and keys, with the largest score and the sum of weights of each
// row so far (Rabe and Staats 2021, Dao et al. 2022). The gradient computes the weights again from the logarithms of their sums.
#define _GNU_SOURCE
#include "attention-tile.h"
#include "share.h"

weft_runtime* wx_runtime;

/* Numbers of a thread one after the other, each from a new cache line on. */
static float* att_take(char** memory, long count) {
  float* at = (float*)*memory;
  *memory += (count * 4 + 63) / 64 * 64;
  return at;
}
static long att_line(long count) { return (count * 4 + 63) / 64 * 64; }

/* Many chunks, because masks leave some of them little work. */
static void att_share(w_kernel fn, att_job* j, long count, int threads, double work) {
  void* p[] = {j};
  const long chunks = att_least(count, 16L * threads);
  if (threads < 2 || count < 2 || !wx_runtime) fn(p, 0, count);
  else wx_runtime->run(fn, p, 0, count, chunks, work / 1e5);
}

/* One tile of the forward pass: results, largest scores and sums of "rows" queries with "columns" more keys. */
static void forward_tile(const att_job* j, long b, long h, long i, long rows, long key, long columns, float* s,
                         uint16_t* rounded, float* o, float* top, float* sum, int first) {
  for (long r = 0; r < rows; r++) {
    float* row = s + r * columns;
    att_show(j, b, h, i + r, key, columns, row);
    const float largest = att_largest(row, columns);
    const float now = largest > top[r] ? largest : top[r], shift = now == -INFINITY ? 0 : now;
    const float added = att_weights(row, rounded ? rounded + r * columns : NULL, columns, shift);
    if (first) sum[r] = added;
    else if (now == top[r]) sum[r] += added;
    else {
      const float less = w_exp_f(top[r] - shift);
      sum[r] = sum[r] * less + added;
#pragma omp simd
      for (long d = 0; d < j->size; d++) o[r * j->size + d] *= less;
    }
    top[r] = now;
  }
}

/* Items: blocks of queries, the last ones of a head first, which see most keys under a causal mask. */
static void forward_items(void* const* p, long lo, long hi) {
  att_job* j = p[0];
  const long blocks = (j->queries + j->rows - 1) / j->rows, size = j->size, wide = j->pairs ? 0 : size;
  char* memory = att_memory(j, att_line(j->rows * j->columns) * 2 + att_line(j->rows * size) +
                                   att_line(j->rows * wide) + 2 * att_line(j->columns * wide) + 2 * att_line(j->rows));
  if (!memory) return;
  float *s = att_take(&memory, j->rows * j->columns), *o = att_take(&memory, j->rows * size);
  uint16_t* rounded = j->pairs ? (uint16_t*)att_take(&memory, j->rows * j->columns) : NULL;
  float *wq = att_take(&memory, j->rows * wide), *wk = att_take(&memory, j->columns * wide);
  float* wv = att_take(&memory, j->columns * wide);
  float *top = att_take(&memory, j->rows), *sum = att_take(&memory, j->rows);
  for (long item = lo; item < hi; item++) {
    const long b = item / blocks / j->heads, h = item / blocks % j->heads, own = h / (j->heads / j->shared);
    const long i = (blocks - 1 - item % blocks) * j->rows, rows = att_least(j->rows, j->queries - i);
    const att_rows q = att_tile(j, &j->q, b, h, i, rows, wq);
    long from, to;
    att_keys(j, i, rows, &from, &to);
    int first = 1;
    for (long r = 0; r < rows; r++) top[r] = -INFINITY, sum[r] = 0;
    for (long key = from; key < to; key += j->columns) {
      const long columns = att_least(j->columns, to - key);
      if (att_hidden(j, b, h, i, rows, key, columns)) continue;
      const att_rows k = att_tile(j, &j->k, b, own, key, columns, wk);
      att_multiply(j, rows, columns, size, q.at, q.row, 1, k.at, 1, k.row, s, columns, 0);
      forward_tile(j, b, h, i, rows, key, columns, s, rounded, o, top, sum, first);
      const att_rows v = att_tile(j, &j->v, b, own, key, columns, wv);
      att_multiply(j, rows, size, columns, rounded ? (void*)rounded : s, columns, 1, v.at, v.row, 1, o, size, !first);
      first = 0;
    }
    if (first) memset(o, 0, sizeof(float) * rows * size);
    float* sums = j->sums + (b * j->heads + h) * j->queries + i;
    for (long r = 0; r < rows; r++) {
      /* A query that sees nothing: zeros, except where numbers added to its scores say so, as in separate operations. */
      const float none = j->mask == MASK_FLOAT ? NAN : 0;
      sums[r] = sum[r] > 0 ? top[r] + w_log_f(sum[r]) : sum[r] == 0 ? none : sum[r];
      att_store(j->dtype, o + r * size, att_row(j, &j->out, b, h, i + r), size, sum[r] == 0 ? none : 1 / sum[r]);
    }
  }
}

/* Sums of results times their gradients, for rows [lo, hi) of all heads. */
static void delta_rows(void* const* p, long lo, long hi) {
  att_job* j = p[0];
  float* wide = (float*)att_memory(j, 8 * j->size);
  if (!wide) return;
  for (long at = lo; at < hi; at++) {
    const long b = at / j->queries / j->heads, h = at / j->queries % j->heads, i = at % j->queries;
    att_load(j->dtype, att_row(j, &j->out, b, h, i), wide, j->size);
    att_load(j->dtype, att_row(j, &j->g, b, h, i), wide + j->size, j->size);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long d = 0; d < j->size; d++) sum += wide[d] * wide[j->size + d];
    j->delta[at] = sum;
  }
}

/* The weights of a row, and in place of the gradients of weights those of scores; both also rounded for products. */
static void gradient_row(const att_job* j, long row, long count, float* s, float* g, uint16_t* s_half, uint16_t* g_half,
                         float* dmask) {
  att_weights(s, s_half, count, j->sums[row]);
  const float delta = j->delta[row];
#pragma omp simd
  for (long c = 0; c < count; c++) g[c] = s[c] == 0 ? 0 : s[c] * (g[c] - delta);
  if (g_half)
    for (long c = 0; c < count; c++) g_half[c] = w_to_bfloat(g[c]);
  if (dmask) memcpy(dmask, g, sizeof(float) * count);
}

/* Items: heads of keys, in parts of every so many blocks of keys; each part has sums of its own for the gradients of queries. */
static void gradient_items(void* const* p, long lo, long hi) {
  att_job* j = p[0];
  const long size = j->size, group = j->heads / j->shared, wide = j->pairs ? 0 : size, tile = j->rows * j->columns;
  char* memory = att_memory(j, 3 * att_line(tile) + 2 * att_line(j->columns * size) + 2 * att_line(j->rows * wide) +
                                   2 * att_line(j->columns * wide));
  if (!memory) return;
  float *s = att_take(&memory, tile), *g = att_take(&memory, tile);
  uint16_t *s_half = j->pairs ? (uint16_t*)att_take(&memory, tile) : NULL, *g_half = s_half ? s_half + tile : NULL;
  float *dk = att_take(&memory, j->columns * size), *dv = att_take(&memory, j->columns * size);
  float *wq = att_take(&memory, j->rows * wide), *wg = att_take(&memory, j->rows * wide);
  float *wk = att_take(&memory, j->columns * wide), *wv = att_take(&memory, j->columns * wide);
  for (long item = lo; item < hi; item++) {
    const long part = item % j->parts, own = item / j->parts % j->shared, b = item / j->parts / j->shared;
    for (long key = part * j->columns; key < j->keys; key += j->parts * j->columns) {
      const long columns = att_least(j->columns, j->keys - key);
      const att_rows k = att_tile(j, &j->k, b, own, key, columns, wk), v = att_tile(j, &j->v, b, own, key, columns, wv);
      memset(dk, 0, sizeof(float) * columns * size);
      memset(dv, 0, sizeof(float) * columns * size);
      for (long h = own * group; h < (own + 1) * group; h++)
        for (long i = 0; i < j->queries; i += j->rows) {
          const long rows = att_least(j->rows, j->queries - i), row = (b * j->heads + h) * j->queries + i;
          long from, to;
          att_keys(j, i, rows, &from, &to);
          if (to <= key || key + columns <= from || att_hidden(j, b, h, i, rows, key, columns)) continue;
          const att_rows q = att_tile(j, &j->q, b, h, i, rows, wq), y = att_tile(j, &j->g, b, h, i, rows, wg);
          att_multiply(j, rows, columns, size, q.at, q.row, 1, k.at, 1, k.row, s, columns, 0);
          att_multiply(j, rows, columns, size, y.at, y.row, 1, v.at, 1, v.row, g, columns, 0);
          for (long r = 0; r < rows; r++) {
            const long at = r * columns;
            att_show(j, b, h, i + r, key, columns, s + at);
            gradient_row(j, row + r, columns, s + at, g + at, s_half ? s_half + at : NULL, s_half ? g_half + at : NULL,
                         j->dmask ? j->dmask + (row + r) * j->keys + key : NULL);
          }
          const void *weights = s_half ? (void*)s_half : s, *scores = s_half ? (void*)g_half : g;
          float* dq = j->wide + (part * j->batch * j->heads * j->queries + row) * size;
          att_multiply(j, columns, size, rows, weights, 1, columns, y.at, y.row, 1, dv, size, 1);
          att_multiply(j, columns, size, rows, scores, 1, columns, q.at, q.row, 1, dk, size, 1);
          att_multiply(j, rows, size, columns, scores, columns, 1, k.at, k.row, 1, dq, size, 1);
        }
      for (long c = 0; c < columns; c++) {
        att_store(j->dtype, dk + c * size, att_row(j, &j->dk, b, own, key + c), size, j->scale);
        att_store(j->dtype, dv + c * size, att_row(j, &j->dv, b, own, key + c), size, 1);
      }
    }
  }
}

/* Gradients of queries: rows [lo, hi) of the sums of all parts. */
static void query_rows(void* const* p, long lo, long hi) {
  const att_job* j = p[0];
  const long each = j->batch * j->heads * j->queries * j->size;
  for (long at = lo; at < hi; at++) {
    float* sum = j->wide + at * j->size;
    for (long part = 1; part < j->parts; part++)
#pragma omp simd
      for (long d = 0; d < j->size; d++) sum[d] += sum[part * each + d];
    const long b = at / j->queries / j->heads, h = at / j->queries % j->heads, i = at % j->queries;
    att_store(j->dtype, sum, att_row(j, &j->dq, b, h, i), j->size, j->scale);
  }
}

/* Numbers in the sums of all parts. */
#define MOST_SUMS (1L << 28)
static void gradient(att_job* j, int threads, double work) {
  const long rows = j->batch * j->heads * j->queries, units = j->batch * j->shared;
  const long tiles = (j->keys + j->columns - 1) / j->columns;
  /* Heads are divided where they do not keep all threads busy, as far as memory allows: each part has sums for all queries. */
  const long most = att_most(1, MOST_SUMS / (rows * j->size)), parts = (2L * threads + units - 1) / units;
  j->parts = units % threads == 0 || units >= 8L * threads ? 1 : att_least(att_least(tiles, parts), most);
  j->delta = malloc(sizeof(float) * rows);
  j->wide = calloc(j->parts * rows * j->size, sizeof(float));
  if (j->delta && j->wide) {
    if (j->dmask) memset(j->dmask, 0, sizeof(float) * rows * j->keys);
    att_share(delta_rows, j, rows, threads, 4.0 * rows * j->size);
    att_share(gradient_items, j, units * j->parts, threads, work);
    att_share(query_rows, j, rows, threads, 4.0 * rows * j->size * j->parts);
  } else j->failed = 1;
  free(j->delta);
  free(j->wide);
}

static att_place place_of(const int64_t* d, int at, long dtype, void* memory) {
  const int64_t* n = d + 16 + 4 * at;
  return (att_place){(char*)memory + n[3] * att_bytes(dtype), n[0], n[1], n[2]};
}

/* d: gradient, dtype, batch, heads, heads of keys, queries, keys, size, kind and dtype of the mask, lowest and highest distance, strides
   of the mask (batch, head, row, key); then for q, k, v, result, its gradient and those of q, k, v the strides of batch, row and head and
   an offset. p: q, k, v, mask, result, log-sums, gradient, dq, dk,
   dv, gradient of the mask. Not 0: no memory. */
static int attention(const int64_t* d, double scale, void* const* p, int threads) {
  att_job j = {.gradient = d[0], .dtype = d[1], .batch = d[2], .heads = d[3], .shared = d[4]};
  j.queries = d[5], j.keys = d[6], j.size = d[7], j.mask = d[8], j.mask_dtype = d[9], j.lower = d[10], j.upper = d[11];
  j.mask_batch = d[12], j.mask_head = d[13], j.mask_row = d[14], j.mask_key = d[15], j.scale = (float)scale;
  j.pairs = j.dtype == ATT_BFLOAT && has_pairs(0);
  j.q = place_of(d, 0, j.dtype, p[0]), j.k = place_of(d, 1, j.dtype, p[1]), j.v = place_of(d, 2, j.dtype, p[2]);
  j.out = place_of(d, 3, j.dtype, p[4]), j.g = place_of(d, 4, j.dtype, p[6]);
  j.dq = place_of(d, 5, j.dtype, p[7]), j.dk = place_of(d, 6, j.dtype, p[8]), j.dv = place_of(d, 7, j.dtype, p[9]);
  j.shown = p[3], j.sums = p[5], j.dmask = p[10];
  j.rows = att_least(j.queries, 128);
  j.columns = att_least(j.keys, j.gradient ? 128 : 256);
  const double work = (j.gradient ? 10.0 : 4.0) * j.batch * j.heads * j.queries * j.keys * j.size;
  if (work < 4e5) threads = 1;
  if (j.gradient) gradient(&j, threads, work);
  else att_share(forward_items, &j, j.batch * j.heads * ((j.queries + j.rows - 1) / j.rows), threads, work);
  return j.failed;
}

weft_extension weft_extend;
void weft_extend(weft_runtime* table, const char* blas, int threads) {
  (void)threads;
  load_blas(blas);
  wx_runtime = table;
  table->attention = attention;
}
