/* ctc.h -- kernels of connectionist temporal classification over packed f32 or f64. */
#ifndef MOTH_KERNEL_CTC_H
#define MOTH_KERNEL_CTC_H

#include "base/context.h"

typedef struct moth_ctc {
  int64_t steps, samples, classes, blank; /* of log_probs, (T, N, C) */
  int64_t longest;                        /* the most targets of a sample */
  const int64_t *targets;                 /* (N, longest) classes; all that count were checked */
  const int64_t *steps_of, *targets_of;   /* of each sample */
  const void *log_probs;
} moth_ctc;

/* loss := -log of the probability of all alignments of the targets, for each sample. */
int moth_ctc_losses(moth_ctx *ctx, int dtype, const moth_ctc *c, void *loss);
/* dx := dloss times the derivative of the losses, (T, N, C). */
int moth_ctc_back(moth_ctx *ctx, int dtype, const moth_ctc *c, const void *dloss, void *dx);
#endif
