/* norm.c -- normalisation of rows and of channels, forward and backward; the loops stand in
** norm_real.h and are compiled for f64 once and for f32 at several levels of instructions.
*/
#include "norm.h"

#include <math.h>

#define LANES 16   /* partial sums side by side */
#define BLOCK 1024 /* elements summed before the sum goes on in double */

typedef struct norm_level {
  int (*rows_run)(moth_ctx *, const moth_row_norm *);
  int (*rows_back)(moth_ctx *, const moth_row_norm *);
  int (*sums)(moth_ctx *, const moth_channel_norm *, const double *, double *);
  int (*back_sums)(moth_ctx *, const moth_channel_norm *, const double *, double *, double *);
  int (*apply)(moth_ctx *, const moth_channel_norm *, const double *, const double *,
               const double *, const double *, void *);
} norm_level;

#define LOOPS "norm_real.h"
#include "each_level.h"

static const norm_level *level_for(int dtype) {
  return dtype == MOTH_F32 ? MOTH_BEST(&level) : &level_f64;
}

int moth_row_norm_run(moth_ctx *ctx, const moth_row_norm *p) {
  return level_for(p->dtype)->rows_run(ctx, p);
}

int moth_row_norm_back(moth_ctx *ctx, const moth_row_norm *p) {
  return level_for(p->dtype)->rows_back(ctx, p);
}

int moth_channel_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean, double *sum) {
  return level_for(p->dtype)->sums(ctx, p, mean, sum);
}

int moth_channel_back_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                           double *dysum, double *dyxsum) {
  return level_for(p->dtype)->back_sums(ctx, p, mean, dysum, dyxsum);
}

int moth_channel_apply(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                       const double *by, const double *scale, const double *shift, void *y) {
  return level_for(p->dtype)->apply(ctx, p, mean, by, scale, shift, y);
}
