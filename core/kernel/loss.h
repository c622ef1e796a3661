/* loss.h -- kernels of losses over packed f32 or f64. */
#ifndef MOTH_KERNEL_LOSS_H
#define MOTH_KERNEL_LOSS_H

#include "../context.h"

enum { MOTH_MEAN, MOTH_SUM, MOTH_EACH }; /* the choices of `reduction` */

/* Scores (n, classes, inner) and the class of each of the n * inner cases. */
typedef struct moth_classes {
  int64_t n, classes, inner;
  int64_t ignore; /* a target that counts for nothing */
  const int64_t *target;
  const void *weight; /* of each class, or NULL */
} moth_classes;

/* The first case whose target is no class, or -1. */
int64_t moth_class_check(const moth_classes *c);
/* y := the losses -weight x at the targets, or their mean or sum. Targets were checked. */
void moth_class_loss(int dtype, const moth_classes *c, int64_t reduction, const void *x, void *y);
void moth_class_loss_back(int dtype, const moth_classes *c, int64_t reduction, const void *dy,
                          void *dx);

/* The same from scores, of which parts holds what moth_softmax_parts gives. */
void moth_entropy_loss(int dtype, const moth_classes *c, int64_t reduction, const void *x,
                       const void *const parts[2], void *y);
/* What the gradient of each case is multiplied by; 0 for those that count for nothing. */
void moth_class_factors(int dtype, const moth_classes *c, int64_t reduction, const void *dy,
                        void *factor);

/* Losses of a pair of numbers x and t, some with a number a of their own:
**   SQUARE    (x - t)^2
**   DISTANCE  |x - t|
**   SMOOTH    (x - t)^2 / (2 a) up to a distance of a, from there on |x - t| - a / 2
**   HUBER     a times that
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
/* Whether all n numbers are from 0 to 1. */
bool moth_all_chances(int dtype, int64_t n, const void *x);

#endif
