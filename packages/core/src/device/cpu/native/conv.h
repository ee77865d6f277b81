// Geometry of a convolution, and the matrix product that its parts call.
#pragma once

typedef struct {
  int kind, dtype, last;
  long n, c, o, groups;
  long x[3], k[3], y[3], stride[3], dilation[3], low[3]; /* one or two spatial axes: ones in front */
  long window;                                           /* elements of a window: channels of a group times taps */
} wc_shape;

static inline long wc_volume(const long size[3]) { return size[0] * size[1] * size[2]; }

/* Copies windows of "count" positions from "first" on, counted over the batch, from x to a panel; or adds them back, those of rows
   [slab_low, slab_high) of the first axis that has any. */
typedef void wc_move_windows(const wc_shape* s, long group, long first, long count, void* x, void* panel, int back,
                             long slab_low, long slab_high);
/* "work" is the number of operations. Not 0: no memory. */
typedef int wc_run_depthwise(const wc_shape* s, const void* a, const void* b, void* out, int threads, double work);
wc_move_windows wc_windows_s, wc_windows_d, wc_windows_c, wc_windows_z, wc_windows_h;
/* Whether it is for a convolution that has few channels per group. */
typedef int wc_is_direct(const wc_shape* s);
wc_is_direct wc_is_grouped_s, wc_is_grouped_d, wc_is_grouped_c, wc_is_grouped_z;
wc_run_depthwise wc_depthwise_s, wc_depthwise_d, wc_depthwise_c, wc_depthwise_z;
