/* pointloss.h -- elementwise losses of two packed tensors in f32 or f64. The loops of their
** gradients are in op/pointloss.h: moth_pointloss.square_slope[dtype] ...
*/
#ifndef MOTH_KERNEL_POINTLOSS_H
#define MOTH_KERNEL_POINTLOSS_H

#include "op/pointloss.h"
#include "kernel/math/elementwise.h"
#include "loss.h"

/* Losses of two numbers x and t, some with a parameter a:
**   SQUARE    (x - t)^2
**   DISTANCE  |x - t|
**   SMOOTH    (x - t)^2 / (2 a) if |x - t| < a, else |x - t| - a / 2
**   HUBER     a times SMOOTH
**   LOGITS    -(t log s(x) + (1 - t) log(1 - s(x))), s the logistic function
**   CHANCES   -(t log x + (1 - t) log(1 - x)), each logarithm at least -100
**   KL        t (log t - x)
**   KL_LOG    exp(t) (t - x)
*/
#define MOTH_PAIR_LOSSES(F) \
  F(SQUARE, square) F(DISTANCE, distance) F(SMOOTH, smooth) F(HUBER, huber) \
  F(LOGITS, logits) F(CHANCES, chances) F(KL, kl) F(KL_LOG, kl_log)
#define MOTH_PAIR_LOSS(NAME, f) MOTH_LOSS_##NAME,
enum { MOTH_PAIR_LOSSES(MOTH_PAIR_LOSS) };
int moth_pair_loss(moth_ctx *ctx, int dtype, int which, double a, int64_t n, int64_t reduction,
                   const void *x, const void *target, void *y);
/* True if all n numbers are from 0 to 1. */
bool moth_all_chances(int dtype, int64_t n, const void *x);

typedef struct moth_pointloss_loops {
  PAIR_SLOPES(MOTH_MEMBER)
} moth_pointloss_loops;
extern const moth_pointloss_loops moth_pointloss;

#endif
