/* unary.h -- the faces of elementwise functions of one tensor. */
#ifndef MOTH_OP_UNARY_H
#define MOTH_OP_UNARY_H

#include "../op.h"

#define UNARY(ARG) \
  ARG(tensor, input, , "tensor of any shape")

MOTH_ARGS(abs, UNARY)
MOTH_ARGS(neg, UNARY)
MOTH_ARGS(sign, UNARY)
MOTH_ARGS(square, UNARY)
MOTH_ARGS(exp, UNARY)
MOTH_ARGS(expm1, UNARY)
MOTH_ARGS(log, UNARY)
MOTH_ARGS(log1p, UNARY)
MOTH_ARGS(sqrt, UNARY)
MOTH_ARGS(rsqrt, UNARY)
MOTH_ARGS(reciprocal, UNARY)
MOTH_ARGS(sin, UNARY)
MOTH_ARGS(cos, UNARY)
MOTH_ARGS(tanh, UNARY)
MOTH_ARGS(sigmoid, UNARY)
MOTH_ARGS(relu, UNARY)
MOTH_ARGS(erf, UNARY)
MOTH_ARGS(floor, UNARY)
MOTH_ARGS(ceil, UNARY)
MOTH_ARGS(round, UNARY)
MOTH_ARGS(trunc, UNARY)
MOTH_ARGS(logical_not, UNARY)
MOTH_ARGS(isnan, UNARY)
MOTH_ARGS(isinf, UNARY)
MOTH_ARGS(isfinite, UNARY)

#define CLAMP(ARG) \
  ARG(tensor,      input,     , "tensor of any shape") \
  ARG(maybe_float, min,   none, "lower bound") \
  ARG(maybe_float, max,   none, "upper bound")
MOTH_ARGS(clamp, CLAMP)

/* Gradients of the three by their result: one pass, and differentiable again. */
#define UNARY_BACK(ARG) \
  ARG(tensor, grad,   , "gradient of the result") \
  ARG(tensor, output, , "the result")
MOTH_ARGS(tanh_back, UNARY_BACK)
MOTH_ARGS(sigmoid_back, UNARY_BACK)
MOTH_ARGS(relu_back, UNARY_BACK)

#endif
