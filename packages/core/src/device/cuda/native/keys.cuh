// Numbers as unsigned integers of the same order, for sorting and selection: all NaN are equal and last, zeros are equal.
#pragma once
#include "prelude.cuh"

template <class K> W_INLINE K w_order_float(K bits, K nan, bool is_nan) {
  const K sign = (K)1 << (sizeof(K) * 8 - 1);
  if (is_nan) return nan;
  if (bits == sign) bits = 0;
  return bits & sign ? (K)~bits : (K)(bits | sign);
}
/* Integers of type T, unsigned as type U. */
template <class T, class U> struct w_int_key {
  typedef U K;
  W_INLINE K of(T x) { return (T)-1 < (T)0 ? (K)((K)x ^ (K)1 << (sizeof(K) * 8 - 1)) : (K)x; }
};
/* Floats of 16 bits, by the bits of infinity. */
template <int INFINITE> struct w_half_key {
  typedef uint16_t K;
  W_INLINE K of(uint16_t x) { return w_order_float<K>(x, 0xffff, (x & 0x7fff) > INFINITE); }
};
struct w_float_key {
  typedef uint32_t K;
  W_INLINE K of(float x) { return w_order_float<K>(__float_as_uint(x), 0xffffffffu, x != x); }
};
struct w_double_key {
  typedef uint64_t K;
  W_INLINE K of(double x) { return w_order_float<K>((uint64_t)__double_as_longlong(x), ~0ull, x != x); }
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
