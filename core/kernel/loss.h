/* loss.h -- kernels of losses of class scores over packed f32 or f64; pointloss.h has elementwise
** losses.
*/
#ifndef MOTH_KERNEL_LOSS_H
#define MOTH_KERNEL_LOSS_H

#include "base/context.h"

enum { MOTH_MEAN, MOTH_SUM, MOTH_EACH }; /* the choices of `reduction` */

/* Scores (n, classes, inner) and the class of each of the n * inner cases. */
typedef struct moth_classes {
  int64_t n, classes, inner;
  int64_t ignore; /* a target that is ignored */
  const int64_t *target;
  const void *weight; /* of each class, or NULL */
} moth_classes;

/* The first case whose target is not a class, or -1. */
int64_t moth_class_check(const moth_classes *c);
/* y := the losses -weight x at the targets, or their mean or sum. Targets were checked. */
void moth_class_loss(int dtype, const moth_classes *c, int64_t reduction, const void *x, void *y);
void moth_class_loss_back(int dtype, const moth_classes *c, int64_t reduction, const void *dy,
                          void *dx);

/* The cross entropy of scores; parts has the results of moth_softmax_parts. */
void moth_entropy_loss(int dtype, const moth_classes *c, int64_t reduction, const void *x,
                       const void *const parts[2], void *y);
/* The factor of each case's gradient; 0 for ignored cases. */
void moth_class_factors(int dtype, const moth_classes *c, int64_t reduction, const void *dy,
                        void *factor);

#endif
