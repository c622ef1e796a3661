/* window.cuh -- windows that slide over planes, as in core/kernel/conv/window.h: shared by
** convolution and pooling. */
#ifndef MOTH_CUDA_WINDOW_CUH
#define MOTH_CUDA_WINDOW_CUH

#include "reduce.cuh"

struct window { /* [0] along the height, [1] along the width */
  int in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
  divider by_stride[2], by_dilation[2];
};

static inline void window_axis(window *w, int axis, int in, int out, int kernel, int stride,
                               int padding, int dilation) {
  w->in[axis] = in;
  w->out[axis] = out;
  w->kernel[axis] = kernel;
  w->stride[axis] = stride;
  w->padding[axis] = padding;
  w->dilation[axis] = dilation;
  w->by_stride[axis] = divider_of((uint32_t)stride);
  w->by_dilation[axis] = divider_of((uint32_t)dilation);
}

/* Fills w; an error if index sums could exceed 32 bits. */
static inline int window_of(window *w, moth_ctx *ctx, const int64_t *in, const int64_t *out,
                            const int64_t *kernel, const int64_t *stride, const int64_t *padding,
                            const int64_t *dilation) {
  for (int i = 0; i < 2; i++) {
    const int64_t reach = dilation[i] * (kernel[i] - 1) + 1; /* each is at most 2^30 */
    if (in[i] + 2 * padding[i] >= 1 << 30 || reach >= 1 << 30)
      return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                       "sides of 2^30 and more are not supported on a GPU");
    window_axis(w, i, (int)in[i], (int)out[i], (int)kernel[i], (int)stride[i], (int)padding[i],
                (int)dilation[i]);
  }
  return MOTH_OK;
}

/* The taps first..last-1 of window `at` of an axis that are inside the image. */
HD void window_clip(const window &w, int axis, int at, int *first, int *last) {
  const int start = at * w.stride[axis] - w.padding[axis], rest = w.in[axis] - start;
  const divider &step = w.by_dilation[axis];
  const int end = rest > 0 ? (int)divide((uint32_t)(rest - 1), step) + 1 : 0;
  *first = start < 0 ? (int)divide((uint32_t)(-1 - start), step) + 1 : 0;
  *last = end < w.kernel[axis] ? end : w.kernel[axis];
}

/* The memory order of packed images: in channels_last, all channels are one plane of pixels, each
** `each` elements wide; otherwise each channel is a plane. */
struct channels {
  quotient_by each; /* 1: a plane for each channel */
};

static inline channels channels_of(const moth_layout *l, bool channels_last) {
  return channels{quotients(channels_last ? l->shape[1] : 1, l->numel)};
}

/* The pixel of element i, counted over all planes; *channel: the channel within the pixel. */
HD int64_t pixel_of(const channels &c, int64_t i, int64_t *channel) {
  const int64_t pixel = divide(i, c.each);
  *channel = i - pixel * c.each.by;
  return pixel;
}

/* The number of planes in this memory order. */
static inline int64_t planes_of(const moth_layout *l, const channels &c) {
  int64_t n = 1;
  for (int i = 0; i < l->ndim - 2; i++) n *= l->shape[i];
  return n / c.each.by;
}

/* Tests if the result for x is computed in channels_last: y has that format, and x or y is not
** row-major. */
static inline bool goes_channels_last(const moth_tensor *x, const moth_tensor *y) {
  return moth_layout_channels_last(&y->l) && (moth_is_channels_last(x) || moth_is_channels_last(y));
}

/* Element i of packed planes. */
struct cells {
  quotient_by plane, row;
};

static inline cells cells_of(int64_t planes, int64_t high, int64_t wide) {
  const int64_t n = planes * high * wide;
  return cells{quotients(high * wide, n), quotients(wide, n)};
}

HD void cell_of(const cells &c, int64_t i, int64_t *plane, int *y, int *x) {
  *plane = divide(i, c.plane);
  const int64_t rest = i - *plane * c.plane.by, row = divide(rest, c.row);
  *y = (int)row;
  *x = (int)(rest - row * c.row.by);
}

#endif
