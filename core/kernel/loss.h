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

/* (x - t)^2, |x - t|, and -(t log s(x) + (1 - t) log(1 - s(x))) with s the logistic function. */
enum { MOTH_LOSS_SQUARE, MOTH_LOSS_DISTANCE, MOTH_LOSS_LOGITS };
void moth_pair_loss(int dtype, int which, int64_t n, int64_t reduction, const void *x,
                    const void *target, void *y);

#endif
