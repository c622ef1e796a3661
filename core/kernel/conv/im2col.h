/* im2col.h -- the fast f32 convolution: im2col along the width only, and tiles.
**
** For a band of rows of windows, xs[c][copy][phase][row][image][ox] holds the elements that one tap
** along the width sees in channel c, for every row of the image that the band needs (rows of one
** phase are a vertical stride apart), with padding and stride applied. The elements that a tap (c,
** r, s) sees in all windows q of the band are then contiguous, at xs + offset + q: KW copies of the
** image instead of KH * KW, no edge cases, and full vectors for every width. Small images are
** stored next to each other. The layout is from Cho & Brand 2017 (MEC).
*/
#ifndef MOTH_KERNEL_IM2COL_H
#define MOTH_KERNEL_IM2COL_H

#include "base/threads.h"
#include "conv.h"
#include "kernel/gemm/tile.h"

typedef struct moth_im2col {
  const moth_tile *tile;
  int64_t channels, in[2];     /* of a group; rows and columns of an image */
  int64_t lines, width;        /* rows of windows in an image; columns of a row in a
                               ** copy: windows, or all columns that they see */
  int64_t step[2], top, left;  /* window (0, 0) begins at (top, left); windows are a step apart */
  int64_t copies, apart;       /* of each row; each begins `apart` columns after the last */
  int64_t reach;               /* rows of a window after its first */
  int64_t area;                /* taps of a window in one channel */
  /* set by moth_im2col_plan: */
  int64_t phases, halo;        /* of rows; rows of a phase beyond the band's own */
  int64_t side, line;          /* images next to each other, windows in their line */
  int64_t block, band, rows;   /* channels and lines of windows at a time; rows of a phase */
} moth_im2col;

/* Chooses the block sizes for n images, of which up to `side` are stored next to each other; false:
** the shape does not suit. The choice does not depend on the number of threads. */
bool moth_im2col_plan(moth_im2col *l, int64_t n, int64_t side);
/* Sets another band than the planned one. */
static inline void moth_im2col_set_band(moth_im2col *l, int64_t band) {
  l->band = band;
  l->rows = band + l->halo;
}

/* Floats of xs, including those that tiles read beyond the last window. */
int64_t moth_im2col_size(const moth_im2col *l);

/* The offset in xs of the copy of channel c for the row `down` below a window's first. */
static inline int64_t moth_im2col_at(const moth_im2col *l, int64_t c, int64_t copy,
                                      int64_t down) {
  int64_t plane = (c * l->copies + copy) * l->phases + down % l->step[0];
  return (plane * l->rows + down / l->step[0]) * l->line;
}

/* Fills xs for lines from oy on; x is the first channel of the first of `images` images, `apart`
** floats from image to image. Lines beyond the last one have arbitrary values. */
void moth_im2col_run(const moth_im2col *l, const float *x, int64_t images, int64_t apart,
                int64_t channels, int64_t oy, float *xs);

/* As the functions of conv.h, with a tile or NULL; all may return MOTH_DECLINED. Numbers of images
** and filters are only copied before the tile multiplies them. */
int moth_im2col_forward(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *x,
                       const float *weight, const float *bias, float *y);
int moth_im2col_input(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *dy,
                     const float *weight, float *dx);
int moth_im2col_weight(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *x,
                      const float *dy, float *dweight);
/* moth_im2col_input by columns that are added up (col2im): for images of few channels. */
int moth_col2im_input(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *dy,
                       const float *weight, float *dx);
/* Forward and gradients for bf16, with f32 results (bf16_conv.c). */
int moth_bf16_conv_forward(moth_ctx *ctx, const moth_conv *c, const void *x, const void *weight,
                       const float *bias, float *y);
int moth_bf16_conv_input(moth_ctx *ctx, const moth_conv *c, const void *dy, const void *weight,
                     float *dx);
int moth_bf16_conv_weight(moth_ctx *ctx, const moth_conv *c, const void *x, const void *dy,
                      float *dweight);

/* Forward and image gradient for 3x3 filters, with fewer multiplications (winograd.c). */
int moth_winograd_forward(moth_ctx *ctx, const moth_conv *c, const float *x, const float *weight,
                          const float *bias, float *y);
int moth_winograd_input(moth_ctx *ctx, const moth_conv *c, const float *dy, const float *weight,
                        float *dx);

/* The windows first..last-1 of a row whose tap at `left` from the window's start is inside the
** image. */
static inline void moth_window_seen(const moth_window *w, int64_t left, int64_t *first,
                                    int64_t *last) {
  int64_t step = w->stride[1], span = w->in[1] - left;
  int64_t end = span > 0 ? (span + step - 1) / step : 0;
  *first = left < 0 ? (step - 1 - left) / step : 0;
  *last = end < w->out[1] ? end : w->out[1];
  if (*first > *last) *first = *last;
}

#endif
