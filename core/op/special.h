/* special.h -- functions of probability that no processor has: what they compute, their faces. */
#ifndef MOTH_OP_SPECIAL_H
#define MOTH_OP_SPECIAL_H

#include "../op.h"

/* kernel/elementwise.h explains the columns; a: n. */
#define SPECIAL_FUNCTIONS(F)                                          \
  F(CURVE, erfinv, FOR_REAL(moth_erfinv)(x))                          \
  F(CURVE, lgamma, FOR_REAL(moth_lgamma)(x))                          \
  F(CURVE, digamma, FOR_REAL(moth_digamma)(x))
#define SPECIAL_OTHERS(F) \
  F(CURVE, polygamma_of, FOR_REAL(moth_polygamma)(a, x))

#define SPECIAL(ARG) \
  ARG(tensor, input, , "tensor of any shape")
#define SPECIAL_FACE(kind, op, ...) MOTH_ARGS(op, SPECIAL)
SPECIAL_FUNCTIONS(SPECIAL_FACE)

#define POLYGAMMA_OF(ARG) \
  ARG(tensor, input, , "tensor of any shape") \
  ARG(int,    n,     , "how many slopes further than digamma, from 0 on")
MOTH_ARGS(polygamma_of, POLYGAMMA_OF)

#endif
