/* ctc.h -- kernels of connectionist temporal classification over packed f32 or f64. */
#ifndef MOTH_KERNEL_CTC_H
#define MOTH_KERNEL_CTC_H

#include "base/context.h"

typedef struct moth_ctc {
  /* the shape of log_probs is (T, N, C) = (steps, samples, classes) */
  int64_t steps, samples, classes, blank;
  int64_t longest;                        /* the number of targets of the longest sample */
  const int64_t *targets;                 /* (N, longest); the targets in use are valid classes */
  const int64_t *steps_of, *targets_of;   /* steps and number of targets of each sample */
  const void *log_probs;
} moth_ctc;

/* loss := for each sample, -log of the probability of all alignments of its targets. */
int moth_ctc_losses(moth_ctx *ctx, int dtype, const moth_ctc *c, void *loss);
/* dx := dloss times the derivative of the losses, (T, N, C). */
int moth_ctc_back(moth_ctx *ctx, int dtype, const moth_ctc *c, const void *dloss, void *dx);
#endif
