// The table of functions that generated programs call: the one contract between them and the runtime library.
#pragma once
#include <stdint.h>

typedef void (*w_kernel)(void* const* p, long lo, long hi);

typedef struct {
  /* Row-major c = a b for every batch. Strides in elements: row and column stride of a and b, row stride of c. */
  void (*gemm)(int dtype, long m, long n, long k, const void* a, long ars, long acs, int aconj, const void* b, long brs,
               long bcs, int bconj, void* c, long crs, int rank, const long* sizes, const long* as, const long* bs,
               const long* cs, int threads);
  void (*cumsum)(int dtype, long outer, long n, long inner, int reverse, const void* x, void* out, int threads);
  /* Running products (0), largest (1) and smallest (2) elements. */
  void (*scan)(int dtype, int fn, long outer, long n, long inner, const void* x, void* out, int threads);
  /* The places of the first "count" elements of each row in its order. */
  int (*argsort)(int dtype, long rows, long n, long first, long count, int descending, const void* x, int32_t* out,
                 int threads);
  /* base may be NULL for zeros. Shapes: x [batch, before, n, after], indices [batch, count]. */
  void (*scatter_add)(int dtype, long batch, long before, long n, long after, long count, const void* base,
                      const int32_t* indices, const void* updates, void* out, int threads);
  /* The same with the product (0), largest (1) or smallest (2) of an element and its updates. */
  void (*scatter_reduce)(int dtype, int fn, long batch, long before, long n, long after, long count, const void* base,
                         const int32_t* indices, const void* updates, void* out, int threads);
  int (*cholesky)(int dtype, long batch, long n, const void* a, void* out);
  int (*triangular_solve)(int dtype, long batch, long n, long k, int lower, int adjoint, int unit, const void* a,
                          const void* b, void* out);
  int (*solve)(int dtype, long batch, long n, long k, const void* a, const void* b, void* out);
  int (*det)(int dtype, long batch, long n, const void* a, void* out);
  int (*eigh)(int dtype, long batch, long n, const void* a, void* w, void* v);
  int (*qr)(int dtype, long batch, long m, long n, const void* a, void* q, void* r);
  /* Data from other processes; the descriptor is that of group/descriptor.ts. Not 0 is an error. */
  int (*collective)(void* group, const int64_t* descriptor, const void* in, void* out, int phase);
  void* group;
  int (*svd)(int dtype, long batch, long m, long n, const void* a, void* u, void* s, void* vh);
  /* The shape is that of conv.c. */
  int (*conv)(const int64_t* shape, const void* a, const void* b, void* out, int threads);
  /* The description is that of fft.c. */
  int (*fft)(int dtype, const int64_t* description, const void* x, void* out, int threads);
  int (*lu)(int dtype, long batch, long m, long n, const void* a, void* lu, int32_t* order);
  /* Values and vectors are complex. 3: needs LAPACK. */
  int (*eig)(int dtype, long batch, long n, const void* a, void* w, void* v);
  void (*set_linalg_threads)(int threads);
  /* Begin and end of a program: one runs at a time. */
  void (*enter)(int threads);
  void (*leave)(void);
  /* A kernel over [from, from + count), divided among threads; "grain" iterations are about ten microseconds of work. */
  void (*share)(w_kernel fn, void* const* p, long from, long count, long grain, int threads);
  /* The same in this many chunks; "weight" is the work in units of about ten microseconds. */
  void (*run)(w_kernel fn, void* const* p, long from, long count, long chunks, double weight);
  /* Seconds of a clock that only goes forward. */
  double (*now)(void);
  /* A kernel of a program, as "share", in slices: it ends after one of them if the call is to end early. */
  void (*slices)(w_kernel fn, void* const* p, long from, long count, long grain, int threads);
  /* The numbers of the call that runs and of the one that is to end early; another thread writes the second. */
  const volatile int32_t* stop;
  /* The description and the operands are those of attention.c. */
  int (*attention)(const int64_t* description, double scale, void* const* operands, int threads);
} weft_runtime;

/* What a library of rarer ops exports as weft_extend: it fills in its entries of the table. */
typedef void weft_extension(weft_runtime* table, const char* blas, int threads);
