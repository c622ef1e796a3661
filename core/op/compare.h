/* compare.h -- the faces of comparisons and of logic; their results are masks. */
#ifndef MOTH_OP_COMPARE_H
#define MOTH_OP_COMPARE_H

#include "../op.h"

#define COMPARE(ARG) \
  ARG(tensor, input, , "left side") \
  ARG(tensor, other, , "right side, broadcast with the left")

MOTH_ARGS(eq, COMPARE)
MOTH_ARGS(ne, COMPARE)
MOTH_ARGS(lt, COMPARE)
MOTH_ARGS(le, COMPARE)
MOTH_ARGS(gt, COMPARE)
MOTH_ARGS(ge, COMPARE)
MOTH_ARGS(logical_and, COMPARE)
MOTH_ARGS(logical_or, COMPARE)

#define EQUAL(ARG) \
  ARG(tensor, input, , "left side") \
  ARG(tensor, other, , "right side")
MOTH_ARGS(equal, EQUAL)

#endif
