/* softmax.c -- softmax, its logarithm and their gradients: the largest is subtracted first, so
** that nothing overflows.
*/
#include "softmax.h"

#include <math.h>

#include "exp.h"

#define WIDE 128 /* lanes or elements at a time */

#define LOOPS "softmax_real.h"
#include "each_level.h"

moth_lanes moth_lanes_of(const moth_layout *x, int32_t dim) {
  moth_lanes l = {1, 1, 1};
  for (int32_t i = 0; i < x->ndim; i++) {
    if (i < dim) l.outer *= x->shape[i];
    else if (i == dim) l.n = x->shape[i];
    else l.inner *= x->shape[i];
  }
  if (x->numel == 0) l.outer = 0;
  return l;
}

int moth_softmax(moth_ctx *ctx, int dtype, const moth_lanes *l, bool logarithm, const void *x,
                 void *y) {
  return dtype == MOTH_F32 ? MOTH_BEST(lanes)(ctx, l, logarithm, x, y)
                           : lanes_f64(ctx, l, logarithm, x, y);
}

int moth_softmax_back(moth_ctx *ctx, int dtype, const moth_lanes *l, bool logarithm,
                      const void *dy, const void *y, void *dx) {
  return dtype == MOTH_F32 ? MOTH_BEST(lanes_back)(ctx, l, logarithm, dy, y, dx)
                           : lanes_back_f64(ctx, l, logarithm, dy, y, dx);
}
