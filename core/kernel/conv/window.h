/* window.h -- a window that slides over the last two dimensions of an image, or the last three of
** a volume: the geometry that convolution and pooling share.
*/
#ifndef MOTH_KERNEL_WINDOW_H
#define MOTH_KERNEL_WINDOW_H

#include "base/context.h"

#define INT2(x) {(x)[0], (x)[1]} /* an initializer from two numbers */
#define INT3(x) {(x)[0], (x)[1], (x)[2]}

typedef struct moth_window {
  int axes; /* 2: height and width; 3: depth, height and width */
  int64_t in[3], out[3]; /* sizes of the image; numbers of windows */
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  int64_t extra[3];      /* additional padding at the far side */
} moth_window;

/* Raises if kernel, stride, padding or dilation are invalid for an image; `blame` is the argument
** that the message names. */
int moth_window_check(const moth_tensor *image, const moth_window *w, const char *blame);
/* Checks them and computes w->out. `image` has the dimensions (..., [D, ]H, W). ceil: a window may
** extend over the far edge. `blame` is the argument that the message names. */
int moth_window_fit(moth_window *w, const moth_tensor *image, const char *blame, bool ceil);

/* True if each window is one pixel and the windows are the image. */
static inline bool moth_window_is_plain(const moth_window *w) {
  for (int i = 0; i < 2; i++)
    if (w->kernel[i] != 1 || w->stride[i] != 1 || w->out[i] != w->in[i] || w->padding[i])
      return false;
  return true;
}

/* The taps first to last - 1 of window `at` on an axis are inside the image. */
static inline void moth_window_clip(const moth_window *w, int axis, int64_t at, int64_t *first,
                                    int64_t *last) {
  int64_t start = at * w->stride[axis] - w->padding[axis], step = w->dilation[axis];
  int64_t span = w->in[axis] - start; /* taps at 0, step, 2 step ... below span are inside */
  int64_t end = span > 0 ? (span + step - 1) / step : 0;
  *first = start < 0 ? (step - 1 - start) / step : 0;
  *last = end < w->kernel[axis] ? end : w->kernel[axis];
}

#endif
