/* im2col.h -- the fast f32 convolution: im2col along the width only, and tiles.
**
** A band has some rows of windows. xs[c][copy][phase][row][image][ox] holds, for channel c and a
** tap along the width, the elements of all image rows that the band needs, with padding and stride
** applied. Rows of one phase are a vertical stride apart. The elements of tap (c, r, s) in all
** windows q of the band are then contiguous, at xs + offset + q. This needs KW copies of the image
** instead of KH * KW, has no edge cases, and has full vectors for every width. Small images are
** stored next to each other. The layout is from Cho & Brand 2017 (MEC).
*/
#ifndef MOTH_KERNEL_IM2COL_H
#define MOTH_KERNEL_IM2COL_H

#include "base/threads.h"
#include "conv.h"
#include "kernel/gemm/tile.h"

typedef struct moth_im2col {
  const moth_tile *tile;
  int64_t channels, in[2];     /* channels of a group; rows and columns of an image */
  /* rows of windows in an image; columns of a row in a copy: windows, or all columns that windows
  ** cover */
  int64_t lines, width;
  int64_t step[2], top, left;  /* window (0, 0) starts at (top, left); step between windows */
  /* copies of each row; each starts `apart` columns after the previous one */
  int64_t copies, apart;
  int64_t reach;               /* rows of a window after its first */
  int64_t area;                /* taps of a window in one channel */
  /* Set by moth_im2col_plan: */
  int64_t phases, halo;        /* phases of rows; rows of a phase that follow the band */
  int64_t side, line;          /* images next to each other; windows in a line of these */
  int64_t block, band, rows;   /* channels and lines of windows at a time; rows of a phase */
} moth_im2col;

/* Chooses the block sizes for n images, of which up to `side` are stored next to each other.
** Returns false if the shape does not suit. The choice does not depend on the number of threads. */
bool moth_im2col_plan(moth_im2col *l, int64_t n, int64_t side);
/* Replaces the planned band. */
static inline void moth_im2col_set_band(moth_im2col *l, int64_t band) {
  l->band = band;
  l->rows = band + l->halo;
}

/* Floats of xs, including floats that tiles read after the last window. */
int64_t moth_im2col_size(const moth_im2col *l);

/* The offset in xs of a copy of channel c, for the row `down` rows after a window's first. */
static inline int64_t moth_im2col_at(const moth_im2col *l, int64_t c, int64_t copy,
                                      int64_t down) {
  int64_t plane = (c * l->copies + copy) * l->phases + down % l->step[0];
  return (plane * l->rows + down / l->step[0]) * l->line;
}

/* Fills xs for the lines from oy on. x is the first channel of the first of `images` images, which
** are `apart` floats apart. Lines after the last one have arbitrary values. */
void moth_im2col_run(const moth_im2col *l, const float *x, int64_t images, int64_t apart,
                int64_t channels, int64_t oy, float *xs);

/* Like the functions of conv.h, with a tile or NULL; all may return MOTH_DECLINED. Only the tile
** computes with the numbers of images and filters: other code copies them. */
int moth_im2col_forward(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *x,
                       const float *weight, const float *bias, float *y);
int moth_im2col_input(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *dy,
                     const float *weight, float *dx);
int moth_im2col_weight(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *x,
                      const float *dy, float *dweight);
/* moth_im2col_input by adding columns (col2im), for images of few channels. */
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

/* Windows first to last - 1 of a row have the tap at `left`, from the window's start, inside the
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
