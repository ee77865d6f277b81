// What the parts of the linear algebra library share: dtypes, the arguments of a call, and the kernels that carry it out.
#pragma once

#include <stdint.h>

/* Doubles in a vector register. */
#if defined(__AVX512F__)
#define WL_WIDE 8
#elif defined(__AVX__)
#define WL_WIDE 4
#else
#define WL_WIDE 2
#endif

/* dtype: 0 float32, 1 float64, 2 complex64, 3 complex128 */
static inline int wl_is_complex(int dtype) { return dtype >= 2; }
static inline int wl_is_single(int dtype) { return (dtype & 1) == 0; }
static inline int wl_parts(int dtype) { return wl_is_complex(dtype) ? 2 : 1; }
static inline int wl_real_of(int dtype) { return dtype & 1; }
static inline long wl_size(int dtype) { return (wl_is_single(dtype) ? 4 : 8) * wl_parts(dtype); }

/* One call's arguments; the bytes are those from one matrix of the batch to the next. */
typedef struct {
  int dtype, lower, adjoint, unit;
  int threads; /* that the work on one matrix may use */
  long m, n, k;
  const char *a, *b;
  char* out[3];
  long a_bytes, b_bytes, out_bytes[3];
  long numbers; /* of scratch space that the built-in code needs */
  long places;  /* indices of scratch space per lane */
} wl_job;

/* Works on "count" matrices of the batch from "first" on. */
typedef void wl_kernel(const wl_job* job, long first, long count, void* scratch);

/* The built-in kernels of linalg-lanes.c: real and complex, one matrix at a time and one per lane. */
#define WL_FORMS(name)                                                                                                 \
  extern __attribute__((visibility("hidden"))) wl_kernel wl_##name##_r1, wl_##name##_rw, wl_##name##_c1, wl_##name##_cw;
WL_FORMS(cholesky)
WL_FORMS(triangular_solve)
WL_FORMS(solve)
WL_FORMS(det)
WL_FORMS(eigh)
WL_FORMS(qr)
WL_FORMS(svd)
