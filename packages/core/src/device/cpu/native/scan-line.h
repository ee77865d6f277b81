// Running results along one line x of n elements into out, from element s on; "all" is the result before it. Every result waits for the one
// before, so that several elements are joined with each other first.
#pragma once

/* Four elements are joined with each other first. */
#define SCAN_BY_FOUR(JOIN, T, M, NEUTRAL)                                                                              \
  for (; s + 4 <= n; s += 4) {                                                                                         \
    const T a = x[s], b = JOIN(a, x[s + 1]), c = x[s + 2], d = JOIN(c, x[s + 3]), bc = JOIN(b, c);                     \
    out[s] = JOIN(all, a);                                                                                             \
    out[s + 1] = JOIN(all, b);                                                                                         \
    out[s + 2] = JOIN(all, bc);                                                                                        \
    const T bd = JOIN(b, d);                                                                                           \
    all = JOIN(all, bd);                                                                                               \
    out[s + 3] = all;                                                                                                  \
  }
/* Where the order of joins does not change a result: every element of a vector is joined with the one before, then with the one two places
   before, and so on. Only gcc has shuffles by an array of indices. */
#ifdef __clang__
#define SCAN_BY_VECTOR(JOIN, T, M, NEUTRAL) SCAN_BY_FOUR(JOIN, T, M, NEUTRAL)
#else
#define SCAN_BY_VECTOR(JOIN, T, M, NEUTRAL)                                                                            \
  enum { lanes = 64 / sizeof(T) };                                                                                     \
  typedef T line_vec __attribute__((vector_size(64)));                                                                 \
  typedef T line_any __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));                                  \
  typedef M line_at __attribute__((vector_size(64)));                                                                  \
  const line_vec neutral = (NEUTRAL) - (line_vec){0};                                                                  \
  line_at place;                                                                                                       \
  for (int i = 0; i < lanes; i++) place[i] = i;                                                                        \
  line_vec before = all - (line_vec){0};                                                                               \
  for (; s + lanes <= n; s += lanes) {                                                                                 \
    line_vec v = *(const line_any*)(x + s);                                                                            \
    _Pragma("GCC unroll 4") for (int k = 1; k < lanes; k *= 2) {                                                       \
      const line_vec back = __builtin_shuffle(neutral, v, place + ((place >= k) & (lanes - k)));                       \
      v = JOIN##_v(line_vec, line_at, back, v);                                                                        \
    }                                                                                                                  \
    *(line_any*)(out + s) = JOIN##_v(line_vec, line_at, before, v);                                                    \
    const line_vec last = __builtin_shuffle(v, (line_at){0} + (lanes - 1));                                            \
    before = JOIN##_v(line_vec, line_at, before, last);                                                                \
  }                                                                                                                    \
  all = before[0];
#endif
