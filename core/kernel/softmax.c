/* softmax.c -- softmax, log_softmax and their gradients. The maximum is subtracted first, so that
** nothing overflows.
*/
#include "softmax.h"

#include <math.h>

#include "base/threads.h"
#include "kernel/math/exp_f64.h"
#include "transpose.h"

#define COLUMNS 256 /* columns, or elements, that are computed at a time */
#define SHORT_ROWS 16  /* short rows that are computed at a time */

typedef struct softmax_job {
  int64_t n, inner;
  bool logarithm;
  const void *x, *dy; /* with dy, x is the softmax */
  void *y;
} softmax_job;

typedef struct entropy_job {
  int64_t n, inner;
  const void *x, *factor;
  const int64_t *target;
  void *most, *rest, *dx;
} entropy_job;

#define moth_row_exp_f32 moth_exp_f32
#define moth_row_exp_f64 moth_exp_f64
#define LEVELS_OF_F64
#define LOOPS "kernel/softmax_real.h"
#include "each_level.h"

#define BEST(f) (dtype == MOTH_F32 ? MOTH_BEST(f) : MOTH_BEST(f##_f64))

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

static int run(moth_ctx *ctx, int dtype, const moth_strips *l, const void *j, moth_work *work) {
  const double cost = (double)l->n * (dtype == MOTH_F32 ? 0.4 : 8);
  const int64_t blocks = (l->inner + COLUMNS - 1) / COLUMNS,
                wide = l->inner < COLUMNS ? l->inner : COLUMNS;
  const int64_t items = l->outer * blocks, strips = l->outer * l->inner;
  if ((double)strips * cost < 1000) work(0, items, 0, j);
  else return moth_parallel(ctx, items, 1, cost * (double)wide, work, j);
  return MOTH_OK;
}

int moth_softmax(moth_ctx *ctx, int dtype, const moth_strips *l, bool logarithm, const void *x,
                 void *y) {
  softmax_job j = {l->n, l->inner, logarithm, x, NULL, y};
  return run(ctx, dtype, l, &j, BEST(strips));
}

int moth_softmax_back(moth_ctx *ctx, int dtype, const moth_strips *l, bool logarithm,
                      const void *dy, const void *y, void *dx) {
  softmax_job j = {l->n, l->inner, logarithm, y, dy, dx};
  return run(ctx, dtype, l, &j, BEST(strips));
}

int moth_logsumexp(moth_ctx *ctx, int dtype, int64_t rows, int64_t n, const void *x, void *y) {
  softmax_job j = {n, 1, true, x, NULL, y};
  return run(ctx, dtype, &(moth_strips){rows, n, 1}, &j, BEST(sum_rows));
}

int moth_softmax_parts(moth_ctx *ctx, int dtype, const moth_strips *l, const void *x, void *most,
                       void *rest) {
  entropy_job j = {.n = l->n, .inner = l->inner, .x = x, .most = most, .rest = rest};
  return run(ctx, dtype, l, &j, BEST(parts));
}

int moth_entropy_back(moth_ctx *ctx, int dtype, const moth_strips *l, const void *x,
                      const void *const parts[2], const int64_t *target, const void *factor,
                      void *dx) {
  entropy_job j = {.n = l->n, .inner = l->inner, .x = x, .factor = factor, .target = target,
                   .most = (void *)(uintptr_t)parts[0], .rest = (void *)(uintptr_t)parts[1],
                   .dx = dx};
  return run(ctx, dtype, l, &j, BEST(entropy_back));
}
