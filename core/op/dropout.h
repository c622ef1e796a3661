/* dropout.h -- arguments of dropout. */
#ifndef MOTH_OP_DROPOUT_H
#define MOTH_OP_DROPOUT_H

#include "call/op.h"

#define DROPOUT(ARG) \
  ARG(tensor,    input,         , "any shape") \
  ARG(float,     p,          0.5, "probability that an element becomes 0") \
  ARG(bool,      training,  true, "false: the result is the input") \
  ARG(generator, generator, none, "random number generator")
MOTH_ARGS(dropout, DROPOUT)

#define DROPOUT2D(ARG) \
  ARG(tensor,    input,         , "images, (N, C, H, W) or (C, H, W)") \
  ARG(float,     p,          0.5, "probability that a channel becomes 0") \
  ARG(bool,      training,  true, "false: the result is the input") \
  ARG(generator, generator, none, "random number generator")
MOTH_ARGS(dropout2d, DROPOUT2D)

/* dropout and dropout2d after the mask is drawn, and their gradient */
#define DROPOUT_APPLY(ARG) \
  ARG(tensor, input, , "any shape") \
  ARG(mask,   mask,  , "true for the elements kept; has the input's shape or its first " \
                       "dimensions") \
  ARG(float,  scale, , "factor of the elements kept")
MOTH_ARGS(dropout_apply, DROPOUT_APPLY)

#endif
