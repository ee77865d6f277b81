// How kernels of every dtype read, add up and write its elements.
#pragma once
#include "prelude.cuh"

template <class T> struct w_number {
  typedef T sum;
  W_INLINE T load(T x) { return x; }
  W_INLINE T store(T x) { return x; }
};
struct w_half_number {
  typedef float sum;
  W_INLINE float load(w_half x) { return w_from_half(x); }
  W_INLINE w_half store(float x) { return w_to_half(x); }
};
struct w_bfloat_number {
  typedef float sum;
  W_INLINE float load(w_bfloat x) { return w_from_bfloat(x); }
  W_INLINE w_bfloat store(float x) { return w_to_bfloat(x); }
};
struct w_float_number {
  typedef double sum;
  W_INLINE double load(float x) { return x; }
  W_INLINE float store(double x) { return (float)x; }
};
