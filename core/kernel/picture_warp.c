/* picture_warp.c -- pictures in another perspective: for each pixel of the result, the position
** that it reads, then the pixels around that position. Positions are computed in f64: in f32 they
** would have errors of a hundredth of a pixel in large pictures.
*/
#include "picture_warp.h"
#include "base/threads.h"
#include "tensor/dtype.h"

#include <math.h>

enum { RUN = 64 };

typedef struct around { /* of RUN positions: the pixels that are read */
  int32_t at[4][RUN];
  float weight[4][RUN];
} around;

typedef struct job {
  const moth_warp *w;
  int dtype;
  const void *x;
  void *y;
} job;

#define LOOPS "picture_warp_level.h"
#include "all_levels.h"

int moth_picture_warp(moth_ctx *ctx, int dtype, const moth_warp *w, const void *x, void *y) {
  const job j = {w, dtype, x, y};
  return moth_parallel(ctx, w->images * w->out[0], 1,
                       (double)(w->out[1] * (w->channels + 1)) * 3, MOTH_BEST(rows), &j);
}
