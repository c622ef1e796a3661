/* unary.h -- elementwise functions of one tensor: what they compute, their faces.
**
** The lists say what each function is; kernel/elementwise.h explains their columns. A line here
** and a row in unary.c are a new function.
*/
#ifndef MOTH_OP_UNARY_H
#define MOTH_OP_UNARY_H

#include "../op.h"

#define UNARY_FUNCTIONS(F)                                                      \
  F(NUMBER, abs, x < 0 ? 0 - WIDE(x) : WIDE(x), fabs(x))                        \
  F(NUMBER, neg, 0 - WIDE(x), -x)                                               \
  F(NUMBER, sign, (x > 0) - (x < 0), x != x ? x : (real)((x > 0) - (x < 0)))    \
  F(NUMBER, square, WIDE(x) * WIDE(x), x * x)                                   \
  F(NUMBER, relu, x < 0 ? 0 : x, x < 0 ? 0 : x)                                 \
  F(REAL, exp, exp(x))                                                          \
  F(REAL, expm1, expm1(x))                                                      \
  F(REAL, log, log(x))                                                          \
  F(REAL, log1p, log1p(x))                                                      \
  F(REAL, sqrt, sqrt(x))                                                        \
  F(REAL, rsqrt, 1 / sqrt(x))                                                   \
  F(REAL, reciprocal, 1 / x)                                                    \
  F(REAL, sin, sin(x))                                                          \
  F(REAL, cos, cos(x))                                                          \
  F(REAL, tanh, tanh(x))                                                        \
  F(REAL, sigmoid, FOR_REAL(sigmoid_of)(x))                                     \
  F(REAL, erf, erf(x))                                                          \
  F(NUMBER, floor, x, floor(x))                                                 \
  F(NUMBER, ceil, x, ceil(x))                                                   \
  F(NUMBER, round, x, rint(x))                                                  \
  F(NUMBER, trunc, x, trunc(x))                                                 \
  F(QUESTION, logical_not, x == 0, x == 0)                                      \
  F(QUESTION, isnan, x != x, x != x)                                            \
  F(QUESTION, isinf, x != x, isinf(x) != 0)                                      \
  F(QUESTION, isfinite, x == x, x - x == 0)

#define UNARY(ARG) \
  ARG(tensor, input, , "tensor of any shape")
#define UNARY_FACE(kind, op, ...) MOTH_ARGS(op, UNARY)
UNARY_FUNCTIONS(UNARY_FACE)

/* -- with more arguments -- */

#define UNARY_OTHERS(F) \
  F(NUMBER, clamp, x < a ? a : x > b ? b : x, x < a ? a : x > b ? b : x)

#define CLAMP(ARG) \
  ARG(tensor,      input,     , "tensor of any shape") \
  ARG(maybe_float, min,   none, "lower bound") \
  ARG(maybe_float, max,   none, "upper bound")
MOTH_ARGS(clamp, CLAMP)

/* -- gradients by the result, in one pass and differentiable again; x: gradient, y: result -- */

#define UNARY_BACKS(F)                              \
  F(REAL, tanh_back, x * (1 - y * y))               \
  F(REAL, sigmoid_back, x * (y * (1 - y)))          \
  F(REAL, relu_back, y <= 0 ? 0 : x)

#define UNARY_BACK(ARG) \
  ARG(tensor, grad,   , "gradient of the result") \
  ARG(tensor, output, , "the result")
#define UNARY_BACK_FACE(kind, op, ...) MOTH_ARGS(op, UNARY_BACK)
UNARY_BACKS(UNARY_BACK_FACE)

#endif
