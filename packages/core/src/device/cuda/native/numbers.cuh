// How kernels of every dtype read, add up and write its elements.
#pragma once
#include "prelude.cuh"

template <class T> W_INLINE bool w_finite(T x) { return x - x == 0; }

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

/* Numbers that are joined by another function than addition. */
template <class T> struct w_factor : w_number<T> {};
template <class T> struct w_rising : w_number<T> {};
template <class T> struct w_falling : w_number<T> {};
template <class T> struct w_range {
  W_INLINE T least() { return (T)(1ull << (8 * sizeof(T) - 1)); }
  W_INLINE T most() { return (T) ~(1ull << (8 * sizeof(T) - 1)); }
};
template <> struct w_range<float> {
  W_INLINE float least() { return -w_inf_f(); }
  W_INLINE float most() { return w_inf_f(); }
};
template <> struct w_range<double> {
  W_INLINE double least() { return -w_inf_d(); }
  W_INLINE double most() { return w_inf_d(); }
};
/* What joins numbers, and what changes nothing: sums, products, and extremes, where NaN wins. */
template <class N> struct w_joined {
  typedef typename N::sum S;
  W_INLINE S none() { return 0; }
  W_INLINE S join(S a, S b) { return a + b; }
};
template <class T> struct w_joined<w_factor<T>> {
  W_INLINE T none() { return 1; }
  W_INLINE T join(T a, T b) { return a * b; }
};
template <class T> struct w_joined<w_rising<T>> {
  W_INLINE T none() { return w_range<T>::least(); }
  W_INLINE T join(T a, T b) { return a < b || b != b ? b : a; }
};
template <class T> struct w_joined<w_falling<T>> {
  W_INLINE T none() { return w_range<T>::most(); }
  W_INLINE T join(T a, T b) { return a > b || b != b ? b : a; }
};
