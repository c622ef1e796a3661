/* loss.h -- arguments of losses.
**
** `reduction` says how the losses of the elements are reduced: to their mean, to their sum, or not
** at all.
*/
#ifndef MOTH_OP_LOSS_H
#define MOTH_OP_LOSS_H

#include "call/op.h"

/* -- losses with class targets -- */

#define NLL_LOSS(ARG) \
  ARG(tensor,       input,             , "logarithms of probabilities, (N, C, ...) or (C)") \
  ARG(index,        target,            , "target class of each sample, (N, ...) or ()") \
  ARG(maybe_tensor, weight,        none, "weight of each class, (C)") \
  ARG(ignored,      ignore_index,  -100, "a target that is ignored") \
  ARG(enum,         reduction, mean|sum|none, "how the losses are reduced")
MOTH_ARGS(nll_loss, NLL_LOSS)

/* the gradient of nll_loss: for each sample, the scaled negative weight at the target's position */
#define NLL_LOSS_BACK(ARG) \
  ARG(tensor,       input,             , "gradient of the loss") \
  ARG(index,        target,            , "target class of each sample") \
  ARG(shape,        size,              , "sizes of the input of nll_loss") \
  ARG(maybe_tensor, weight,        none, "weight of each class") \
  ARG(ignored,      ignore_index,  -100, "a target that is ignored") \
  ARG(enum,         reduction, mean|sum|none, "how the losses were reduced")
MOTH_ARGS(nll_loss_back, NLL_LOSS_BACK)

#define CROSS_ENTROPY(ARG) \
  ARG(tensor,       input,             , "scores (logits) of the classes, (N, C, ...) or (C)") \
  ARG(index,        target,            , "target class of each sample, (N, ...) or ()") \
  ARG(maybe_tensor, weight,        none, "weight of each class, (C)") \
  ARG(ignored,      ignore_index,  -100, "a target that is ignored") \
  ARG(enum,         reduction, mean|sum|none, "how the losses are reduced") \
  ARG(float,        label_smoothing,  0, "share of the target that is distributed evenly over " \
                                         "all classes")
MOTH_ARGS(cross_entropy, CROSS_ENTROPY)

#define CLASS_ENTROPY(ARG) \
  ARG(tensor,       input,             , "scores (logits) of the classes, (N, C, ...) or (C)") \
  ARG(index,        target,            , "target class of each sample, (N, ...) or ()") \
  ARG(maybe_tensor, weight,        none, "weight of each class, (C)") \
  ARG(ignored,      ignore_index,  -100, "a target that is ignored") \
  ARG(enum,         reduction, mean|sum|none, "how the losses are reduced") \
  ARG(bool,         wide,        false, "return the loss of half-precision inputs in f32")
MOTH_ARGS(class_entropy, CLASS_ENTROPY)

#define CLASS_ENTROPY_BACK(ARG) \
  ARG(tensor,       grad,              , "gradient of the loss") \
  ARG(tensor,       input,             , "scores (logits) of the classes, (N, C, ...) or (C)") \
  ARG(tensor,       most,              , "largest score of each sample") \
  ARG(tensor,       rest,              , "log(sum(exp(input - most)))") \
  ARG(index,        target,            , "target class of each sample, (N, ...) or ()") \
  ARG(maybe_tensor, weight,        none, "weight of each class, (C)") \
  ARG(ignored,      ignore_index,  -100, "a target that is ignored") \
  ARG(enum,         reduction, mean|sum|none, "how the losses were reduced")
MOTH_ARGS(class_entropy_back, CLASS_ENTROPY_BACK)

/* cross_entropy with probabilities as targets */
#define CROSS_ENTROPY_SOFT(ARG) \
  ARG(tensor,       input,             , "scores (logits) of the classes, (N, C, ...) or (C)") \
  ARG(tensor,       target,            , "probability of each class, of the input's shape") \
  ARG(maybe_tensor, weight,        none, "weight of each class, (C)") \
  ARG(enum,         reduction, mean|sum|none, "how the losses are reduced") \
  ARG(float,        label_smoothing,  0, "share of the target that is distributed evenly over " \
                                         "all classes")
MOTH_ARGS(cross_entropy_soft, CROSS_ENTROPY_SOFT)

#endif
