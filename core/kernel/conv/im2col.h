/* im2col.h -- the fast f32 convolution: images lowered along the width only, and tiles.
**
** For a band of rows of windows, xs[c][copy][phase][row][image][ox] holds what one tap along the
** width sees in channel c, for every row of the image that the band needs (rows of one phase are a
** vertical stride apart), with padding and stride worked in. Then what a tap (c, r, s) of the
** kernel sees in all windows q of the band lies in a row, at xs + offset + q: KW copies of the
** image instead of KH * KW, no edge cases, and no vector is wasted whatever the width. Images that
** are small lie side by side. The layout is from Cho & Brand 2017 (MEC).
*/
#ifndef MOTH_KERNEL_IM2COL_H
#define MOTH_KERNEL_IM2COL_H

#include "base/threads.h"
#include "conv.h"
#include "kernel/gemm/tile.h"

typedef struct moth_im2col {
  const moth_tile *tile;
  int64_t channels, in[2];     /* of a group of an image; its rows and columns */
  int64_t lines, width;        /* rows of windows in an image; places in such a row that are laid
                               ** out for a copy: windows, or all columns that they see */
  int64_t step[2], top, left;  /* window (0, 0) begins at (top, left); windows are a step apart */
  int64_t copies, apart;       /* of each row, every next one begins `apart` columns further */
  int64_t reach;               /* rows of the image beyond a window's first that it sees */
  int64_t area;                /* taps of a window in one channel */
  /* worked out by moth_im2col_plan: */
  int64_t phases, halo;        /* of rows; rows of a phase beyond the band's own */
  int64_t side, line;          /* images side by side, windows in their line */
  int64_t block, band, rows;   /* channels and lines of windows at a time; rows of a phase */
} moth_im2col;

/* Chooses how much is lowered at a time, for n images, of which up to `side` lie side by side;
** false: the shape does not suit. What it chooses does not depend on the number of threads. */
bool moth_im2col_plan(moth_im2col *l, int64_t n, int64_t side);
/* Another band than the planned one. */
static inline void moth_im2col_set_band(moth_im2col *l, int64_t band) {
  l->band = band;
  l->rows = band + l->halo;
}

/* Floats of xs, with what tiles read beyond the last window. */
int64_t moth_im2col_size(const moth_im2col *l);

/* Where in xs the copy of channel c begins that sees the row `down` below a window's first. */
static inline int64_t moth_im2col_at(const moth_im2col *l, int64_t c, int64_t copy,
                                      int64_t down) {
  int64_t plane = (c * l->copies + copy) * l->phases + down % l->step[0];
  return (plane * l->rows + down / l->step[0]) * l->line;
}

/* Fills xs for lines from oy on; x is the first channel of the first of `images` images, the next
** image `apart` floats on. What the lines beyond the last one hold is arbitrary. */
void moth_im2col_run(const moth_im2col *l, const float *x, int64_t images, int64_t apart,
                int64_t channels, int64_t oy, float *xs);

/* Like those of conv.h, with a tile or NULL; all here may decline. Numbers of images and filters
** are only moved, up to the tile. */
int moth_im2col_forward(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *x,
                       const float *weight, const float *bias, float *y);
int moth_im2col_input(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *dy,
                     const float *weight, float *dx);
int moth_im2col_weight(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *x,
                      const float *dy, float *dweight);
/* The second of them by columns that are added up: for images of few channels. */
int moth_col2im_input(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *dy,
                       const float *weight, float *dx);
/* All three for bf16, into f32 (bf16_conv.c). */
int moth_bf16_conv_forward(moth_ctx *ctx, const moth_conv *c, const void *x, const void *weight,
                       const float *bias, float *y);
int moth_bf16_conv_input(moth_ctx *ctx, const moth_conv *c, const void *dy, const void *weight,
                     float *dx);
int moth_bf16_conv_weight(moth_ctx *ctx, const moth_conv *c, const void *x, const void *dy,
                      float *dweight);

/* The first two for filters of 3x3, with fewer multiplications (winograd.c). */
int moth_winograd_forward(moth_ctx *ctx, const moth_conv *c, const float *x, const float *weight,
                          const float *bias, float *y);
int moth_winograd_input(moth_ctx *ctx, const moth_conv *c, const float *dy, const float *weight,
                        float *dx);

/* The windows first..last-1 of a row whose tap at `left` from the window's start is inside. */
static inline void moth_window_seen(const moth_window *w, int64_t left, int64_t *first,
                                    int64_t *last) {
  int64_t step = w->stride[1], room = w->in[1] - left;
  int64_t end = room > 0 ? (room + step - 1) / step : 0;
  *first = left < 0 ? (step - 1 - left) / step : 0;
  *last = end < w->out[1] ? end : w->out[1];
  if (*first > *last) *first = *last;
}

#endif
