// The built-in linear algebra, compiled four times: for real and complex matrices (WX_COMPLEX), one matrix at a time and one in
// each lane of a vector (WX_LANES). WX_FORM is the suffix of the entry points.
#include "linalg-eigh.h"
#include "linalg-eliminate.h"
#include "linalg-svd.h"

#define WX_NAME_OF(name, form) wl_##name##_##form
#define WX_NAME(name, form) WX_NAME_OF(name, form)
#define WX_ENTRY(name)                                                                                                 \
  void WX_NAME(name, WX_FORM)(const wl_job* job, long first, long count, void* scratch) {                              \
    wx_##name(job, first, count, scratch);                                                                             \
  }
WX_ENTRY(cholesky)
WX_ENTRY(triangular_solve)
WX_ENTRY(solve)
WX_ENTRY(det)
WX_ENTRY(eigh)
WX_ENTRY(qr)
WX_ENTRY(svd)
