/* join.h -- the faces of the ops that put tensors side by side. */
#ifndef MOTH_OP_JOIN_H
#define MOTH_OP_JOIN_H

#include "call/op.h"

#define CAT(ARG) \
  ARG(tensors, tensors,  , "tensors that agree in all sizes but that of `dim`") \
  ARG(dim,     dim,     0, "dimension along which they follow each other")
MOTH_ARGS(cat, CAT)

#define STACK(ARG) \
  ARG(tensors, tensors,  , "tensors of one shape") \
  ARG(dim,     dim,     0, "where the new dimension stands in the result")
MOTH_ARGS(stack, STACK)

#endif
