/* softmax.c -- softmax, its logarithm and their gradients: the largest is subtracted first, so
** that nothing overflows.
*/
#include "softmax.h"

#include <math.h>

#include "../threads.h"
#include "exp.h"

#define WIDE 256 /* lanes or elements at a time */

typedef struct softmax_job {
  int64_t n, inner;
  bool logarithm;
  const void *x, *dy; /* with dy, x is the result */
  void *y;
} softmax_job;

#define LOOPS "softmax_real.h"
#include "each_level.h"

moth_strips moth_strips_of(const moth_layout *x, int32_t dim) {
  moth_strips l = {1, 1, 1};
  for (int32_t i = 0; i < x->ndim; i++) {
    if (i < dim) l.outer *= x->shape[i];
    else if (i == dim) l.n = x->shape[i];
    else l.inner *= x->shape[i];
  }
  if (x->numel == 0) l.outer = 0;
  return l;
}

static int run(moth_ctx *ctx, int dtype, int64_t lanes, const softmax_job *j, moth_work *work) {
  const double cost = (double)j->n * (dtype == MOTH_F32 ? 0.4 : 8);
  const int64_t blocks = (j->inner + WIDE - 1) / WIDE, wide = j->inner < WIDE ? j->inner : WIDE;
  const int64_t items = j->inner ? lanes / j->inner * blocks : 0;
  if ((double)lanes * cost < 1000) work(0, items, 0, j);
  else return moth_parallel(ctx, items, 1, cost * (double)wide, work, j);
  return MOTH_OK;
}

int moth_softmax(moth_ctx *ctx, int dtype, const moth_strips *l, bool logarithm, const void *x,
                 void *y) {
  softmax_job j = {l->n, l->inner, logarithm, x, NULL, y};
  return run(ctx, dtype, l->outer * l->inner, &j,
             dtype == MOTH_F32 ? MOTH_BEST(lanes) : lanes_f64);
}

int moth_softmax_back(moth_ctx *ctx, int dtype, const moth_strips *l, bool logarithm,
                      const void *dy, const void *y, void *dx) {
  softmax_job j = {l->n, l->inner, logarithm, y, dy, dx};
  return run(ctx, dtype, l->outer * l->inner, &j,
             dtype == MOTH_F32 ? MOTH_BEST(lanes) : lanes_f64);
}

int moth_logsumexp(moth_ctx *ctx, int dtype, int64_t rows, int64_t n, const void *x, void *y) {
  softmax_job j = {n, 1, true, x, NULL, y};
  return run(ctx, dtype, rows, &j, dtype == MOTH_F32 ? MOTH_BEST(sum_rows) : sum_rows_f64);
}
