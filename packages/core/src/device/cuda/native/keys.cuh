// Numbers as unsigned integers of the same order, for sorting and selection: all NaN are equal and last, zeros are equal. Where elements
// are sorted without their places (`exact`), -0 comes before 0, so that `back` finds every number again.
#pragma once
#include "prelude.cuh"

template <class K> W_INLINE K w_order_float(K bits, K nan, bool is_nan, bool exact) {
  const K sign = (K)1 << (sizeof(K) * 8 - 1);
  if (is_nan) return nan;
  if (bits == sign && !exact) bits = 0;
  return bits & sign ? (K)~bits : (K)(bits | sign);
}
template <class K> W_INLINE K w_order_back(K key) {
  const K sign = (K)1 << (sizeof(K) * 8 - 1);
  return key & sign ? (K)(key ^ sign) : (K)~key;
}
/* Integers of type T, unsigned as type U. */
template <class T, class U> struct w_int_key {
  typedef U K;
  W_INLINE K of(T x, bool = false) { return (T)-1 < (T)0 ? (K)((K)x ^ (K)1 << (sizeof(K) * 8 - 1)) : (K)x; }
  W_INLINE T back(K key) { return (T)of((T)key); }
};
/* Floats of 16 bits, by the bits of infinity. */
template <int INFINITE> struct w_half_key {
  typedef uint16_t K;
  W_INLINE K of(uint16_t x, bool exact = false) { return w_order_float<K>(x, 0xffff, (x & 0x7fff) > INFINITE, exact); }
  W_INLINE uint16_t back(K key) { return w_order_back<K>(key); }
};
struct w_float_key {
  typedef uint32_t K;
  W_INLINE K of(float x, bool exact = false) {
    return w_order_float<K>(__float_as_uint(x), 0xffffffffu, x != x, exact);
  }
  W_INLINE float back(K key) { return __uint_as_float(w_order_back<K>(key)); }
};
struct w_double_key {
  typedef uint64_t K;
  W_INLINE K of(double x, bool exact = false) {
    return w_order_float<K>((uint64_t)__double_as_longlong(x), ~0ull, x != x, exact);
  }
  W_INLINE double back(K key) { return __longlong_as_double((long long)w_order_back<K>(key)); }
};
typedef w_int_key<int8_t, uint8_t> w_key_i8;
typedef w_int_key<uint8_t, uint8_t> w_key_u8;
typedef w_int_key<int16_t, uint16_t> w_key_i16;
typedef w_int_key<uint16_t, uint16_t> w_key_u16;
typedef w_int_key<int32_t, uint32_t> w_key_i32;
typedef w_int_key<uint32_t, uint32_t> w_key_u32;
typedef w_int_key<int64_t, uint64_t> w_key_i64;
typedef w_int_key<uint64_t, uint64_t> w_key_u64;
typedef w_half_key<0x7c00> w_key_f16;
typedef w_half_key<0x7f80> w_key_bf16;
typedef w_float_key w_key_f32;
typedef w_double_key w_key_f64;
