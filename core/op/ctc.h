/* ctc.h -- arguments of connectionist temporal classification (Graves et al. 2006). */
#ifndef MOTH_OP_CTC_H
#define MOTH_OP_CTC_H

#include "call/op.h"

#define CTC_HOW(ARG) \
  ARG(tensor,   log_probs,      , "logarithms of probabilities, (T, N, C)") \
  ARG(index,    targets,        , "classes of each sequence, (N, S)") \
  ARG(index,    input_lengths,  , "1 + steps of each sequence, (N): the position after the last " \
                                  "step") \
  ARG(index,    target_lengths, , "1 + classes of each target, (N)") \
  ARG(position, blank,         0, "the blank class")

#define CTC_LOSSES(ARG) CTC_HOW(ARG)
MOTH_ARGS(ctc_losses, CTC_LOSSES)

#define CTC_BACK(ARG) \
  ARG(tensor,   grad,           , "gradient of the losses, (N)") \
  CTC_HOW(ARG)
MOTH_ARGS(ctc_back, CTC_BACK)

/* The gradient of ctc_losses, composed of ops (ctc_grad.c); differentiable any number of times. g
** owns the result. */
moth_tensor *moth_ctc_grad(const ctc_losses_args *a, moth_grad *g);

#endif
