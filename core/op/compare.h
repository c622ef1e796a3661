/* compare.h -- arguments of comparisons and logic; the results are masks. */
#ifndef MOTH_OP_COMPARE_H
#define MOTH_OP_COMPARE_H

#include "call/op.h"

/* kernel/math/elementwise.h explains the columns. */
#define COMPARE_FUNCTIONS(F)                                                     \
  F(QUESTION, eq, x == y, x == y)                                                \
  F(QUESTION, ne, x != y, x != y)                                                \
  F(QUESTION, lt, x < y, x < y)                                                  \
  F(QUESTION, le, x <= y, x <= y)                                                \
  F(QUESTION, gt, x > y, x > y)                                                  \
  F(QUESTION, ge, x >= y, x >= y)                                                \
  F(QUESTION, logical_and, (x != 0) & (y != 0), (x != 0) & (y != 0))             \
  F(QUESTION, logical_or, (x != 0) | (y != 0), (x != 0) | (y != 0))              \
  F(QUESTION, logical_xor, (x != 0) != (y != 0), (x != 0) != (y != 0))

#define COMPARE(ARG) \
  ARG(tensor, input, , "left side") \
  ARG(tensor, other, , "right side, broadcast with the left")
#define COMPARE_FACE(kind, op, ...) MOTH_ARGS(op, COMPARE)
COMPARE_FUNCTIONS(COMPARE_FACE)

#define EQUAL(ARG) \
  ARG(tensor, input, , "left side") \
  ARG(tensor, other, , "right side")
MOTH_ARGS(equal, EQUAL)

#endif
