/* pointloss.c -- elementwise losses of two tensors, with or without a sum, and the loops of their
** gradients. Sums are kept in f64.
*/
#include "pointloss.h"
#include "base/alloc.h"

#include <math.h>

#include "base/threads.h"
#include "kernel/math/real_math.h"

#define PAIR_BLOCK 8192 /* pairs of a block, which is summed at a time */

/* -- losses -- */

typedef struct pair_job {
  int which;
  double a;
  int64_t n;
  const void *x, *target;
  void *y;      /* the losses, or NULL for their sum */
  double *sums; /* the sum of each block, if y is NULL */
} pair_job;

#define LOOPS "kernel/pointloss_real.h"
#include "each_level.h"

/* The sum of f32 losses in double, for a partial sum that overflowed in f32. */
static double summed_again(const pair_job *f) {
  enum { PIECE_PAIRS = 256 };
  double x[PIECE_PAIRS], target[PIECE_PAIRS], total = 0, sum;
  for (int64_t i = 0; i < f->n; i += PIECE_PAIRS) {
    const int64_t n = f->n - i < PIECE_PAIRS ? f->n - i : PIECE_PAIRS;
    const pair_job j = {f->which, f->a, n, x, target, NULL, &sum};
    moth_convert(n, MOTH_F32, (const char *)((const float *)f->x + i), 4, MOTH_F64, (char *)x, 8);
    moth_convert(n, MOTH_F32, (const char *)((const float *)f->target + i), 4, MOTH_F64,
                 (char *)target, 8);
    pairs_f64(0, 1, 0, &j);
    total += sum;
  }
  return total;
}

int moth_pair_loss(moth_ctx *ctx, int dtype, int which, double a, int64_t n, int64_t reduction,
                   const void *x, const void *target, void *y) {
  const int64_t blocks = (n + PAIR_BLOCK - 1) / PAIR_BLOCK, bytes = blocks * 8;
  moth_work *work = dtype == MOTH_F32 ? MOTH_BEST(pairs) : pairs_f64;
  pair_job j = {which, a, n, x, target, reduction == MOTH_EACH ? y : NULL, NULL};
  double few[4], sum = 0;
  int status = MOTH_OK;
  if (!j.y && !(j.sums = blocks <= 4 ? few : moth_alloc(ctx, bytes))) return ctx->error.code;
  if (blocks == 1) work(0, 1, 0, &j);
  else status = moth_parallel(ctx, blocks, 1, PAIR_BLOCK * 0.3, work, &j);
  if (!j.y) {
    for (int64_t i = 0; i < blocks && !status; i++) sum += j.sums[i];
    if (!status && dtype == MOTH_F32 && !isfinite(sum)) sum = summed_again(&j);
    if (reduction == MOTH_MEAN) sum /= (double)n;
    moth_convert(1, MOTH_F64, (const char *)&sum, 8, dtype, y, 8);
    if (blocks > 4) moth_dealloc(ctx, j.sums, bytes);
  }
  return status;
}

bool moth_all_chances(int dtype, int64_t n, const void *x) {
  return (dtype == MOTH_F32 ? MOTH_BEST(inside) : inside_f64)(n, x);
}

/* -- gradients -- */

#define LISTS(ONE, TWO, THREE) PAIR_SLOPES(THREE)
MOTH_FAMILY(pointloss, LISTS)
