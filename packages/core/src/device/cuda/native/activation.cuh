// What products by own kernels apply to their results.
#pragma once
#include "prelude.cuh"

/* 0: nothing, 1: relu, 2: the tanh form of gelu. */
template <class S> W_INLINE S w_activation(S x, int which) {
  if (which == 1) return x <= 0 ? (S)0 : x;
  if (which == 2) {
    S inner = (S)0.7978845608028654 * (x + (S)0.044715 * x * x * x);
    return (S)0.5 * x * ((S)1 + (sizeof(S) == 8 ? (S)tanh((double)inner) : (S)tanhf((float)inner)));
  }
  return x;
}
