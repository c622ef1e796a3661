/* norm.c -- normalization of rows and of channels, forward and backward. norm_real.h has the loops;
** they are compiled for f64 once and for f32 at several levels of instructions.
*/
#include "norm.h"

#include <math.h>

#include "base/threads.h"
#include "kernel/math/elementwise.h"

typedef struct channel_job {
  const moth_channel_norm *p;
  const double *mean, *by, *scale, *shift;
  double *sum, *more;
  void *y;
} channel_job;

typedef struct norm_level {
  moth_work *rows_run;
  int (*rows_back)(moth_ctx *, const moth_row_norm *);
  moth_work *sums, *apply;
} norm_level;

#define LOOPS "kernel/norm_real.h"
#include "each_level.h"

static const norm_level *level_for(int dtype) {
  return dtype == MOTH_F32 ? MOTH_BEST(&level) : &level_f64;
}

/* Small jobs run on the calling thread. */
static int run(moth_ctx *ctx, int64_t n, int64_t grain, double cost, moth_work *work,
               const void *arg) {
  if ((double)n * cost > 1000) return moth_parallel(ctx, n, grain, cost, work, arg);
  work(0, n, 0, arg);
  return MOTH_OK;
}

int moth_row_norm_run(moth_ctx *ctx, const moth_row_norm *p) {
  return run(ctx, p->rows, 1, 0.2 * (double)(p->channels * p->inner), level_for(p->dtype)->rows_run,
             p);
}

int moth_row_norm_back(moth_ctx *ctx, const moth_row_norm *p) {
  return level_for(p->dtype)->rows_back(ctx, p);
}

/* Items are channels. Neighboring channels of a row stay on one thread. */
static int run_sums(moth_ctx *ctx, const moth_channel_norm *p, const channel_job *j) {
  return run(ctx, p->c, p->inner == 1 ? 64 : 1, 0.1 * (double)(p->n * p->inner),
             level_for(p->dtype)->sums, j);
}

int moth_channel_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean, double *sum) {
  moth_channel_norm without = *p;
  without.dy = NULL;
  return run_sums(ctx, p, &(channel_job){.p = &without, .mean = mean, .sum = sum});
}

int moth_channel_back_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                           double *dysum, double *dyxsum) {
  return run_sums(ctx, p, &(channel_job){.p = p, .mean = mean, .sum = dysum, .more = dyxsum});
}

int moth_channel_apply(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                       const double *by, const double *scale, const double *shift, void *y) {
  channel_job j = {.p = p, .mean = mean, .by = by, .scale = scale, .shift = shift, .y = y};
  const bool rows = p->inner == 1;
  return run(ctx, rows ? p->n : p->n * p->c, 1, 0.1 * (double)(rows ? p->c : p->inner),
             level_for(p->dtype)->apply, &j);
}
