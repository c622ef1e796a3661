/* join.h -- arguments of the ops that concatenate and stack tensors. */
#ifndef MOTH_OP_JOIN_H
#define MOTH_OP_JOIN_H

#include "call/op.h"

#define CAT(ARG) \
  ARG(tensors, tensors,  , "tensors with equal sizes in all dimensions but `dim`") \
  ARG(dim,     dim,     0, "dimension to concatenate along")
MOTH_ARGS(cat, CAT)

#define STACK(ARG) \
  ARG(tensors, tensors,  , "tensors of the same shape") \
  ARG(dim,     dim,     0, "position of the new dimension in the result")
MOTH_ARGS(stack, STACK)

#endif
