/* loss.h -- kernels of losses of class scores over packed f32 or f64; pointloss.h has elementwise
** losses.
*/
#ifndef MOTH_KERNEL_LOSS_H
#define MOTH_KERNEL_LOSS_H

#include "base/context.h"

enum { MOTH_MEAN, MOTH_SUM, MOTH_EACH }; /* the values of `reduction` */

/* Scores (n, classes, inner), and the target class of each of the n * inner cases. */
typedef struct moth_classes {
  int64_t n, classes, inner;
  int64_t ignore; /* the target of ignored cases */
  const int64_t *target;
  const void *weight; /* a weight for each class, or NULL */
} moth_classes;

/* The first case whose target is no class, or -1. */
int64_t moth_class_check(const moth_classes *c);
/* y := the losses -weight x[target], or their mean or sum. The targets must be valid. */
void moth_class_loss(int dtype, const moth_classes *c, int64_t reduction, const void *x, void *y);
void moth_class_loss_back(int dtype, const moth_classes *c, int64_t reduction, const void *dy,
                          void *dx);

/* The cross entropy of scores. parts has the results of moth_softmax_parts. */
void moth_entropy_loss(int dtype, const moth_classes *c, int64_t reduction, const void *x,
                       const void *const parts[2], void *y);
/* The factor of each case's gradient; 0 for ignored cases. */
void moth_class_factors(int dtype, const moth_classes *c, int64_t reduction, const void *dy,
                        void *factor);

#endif
