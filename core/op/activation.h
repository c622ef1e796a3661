/* activation.h -- activation functions: their formulas and arguments. relu, sigmoid and tanh are in
** unary.h, softmax in softmax.h.
*/
#ifndef MOTH_OP_ACTIVATION_H
#define MOTH_OP_ACTIVATION_H

#include "call/op.h"

/* -- formulas; kernel/math/elementwise.h explains the columns; a, b, c are arguments -- */

#define ACTIVATION_CURVES(F)                                                                 \
  F(REAL, leaky_relu, x > 0 ? x : a * x)                                                     \
  /* elu, celu and selu */                                                                   \
  F(CURVE, elu, x >= 0 ? b * x : a * b * FOR_REAL(moth_less_one)(c * x))                     \
  F(CURVE, gelu, FOR_REAL(moth_gelu)(MOTH_FROM_BELOW(x)))                                    \
  F(CURVE, gelu_tanh, MOTH_FROM_BELOW(x) * FOR_REAL(moth_sigmoid)(FOR_REAL(gelu_angle)(x)))  \
  F(CURVE, silu, MOTH_FROM_BELOW(x) * FOR_REAL(moth_sigmoid)(x))                             \
  F(CURVE, mish, MOTH_FROM_BELOW(x) * FOR_REAL(mish_of)(x))                                  \
  F(CURVE, softplus, a * x > b ? x : FOR_REAL(softplus_of)(a * x) / a)                       \
  F(CURVE, logsigmoid, FOR_REAL(logsigmoid_of)(x))                                           \
  F(REAL, softsign, fabs(x) > (real)1e30 ? (x > 0 ? 1 : -1) : x / (1 + fabs(x)))             \
  F(CURVE, tanhshrink, x - tanh(x))                                                          \
  F(NUMBER, hardtanh, x < a ? a : x > b ? b : x, x < a ? a : x > b ? b : x) /* and relu6 */  \
  F(REAL, hardsigmoid, (x < -3 ? 0 : x > 3 ? 6 : x + 3) / 6)                                 \
  F(REAL, hardswish, x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6)                               \
  F(REAL, softshrink, x > a ? x - a : x < -a ? x + a : x * 0)                                \
  F(REAL, hardshrink, x >= -a && x <= a ? 0 : x)                                             \
  F(NUMBER, threshold, x <= a ? b : x, x <= a ? b : x)

#define ACTIVATION_PAIRS(F) F(REAL, prelu, x > 0 ? x : y * x) /* y is the weight */

/* x is the gradient of the result, y the input */
#define ACTIVATION_BACKS(F)                                                                  \
  F(REAL, leaky_relu_back, y > 0 ? x : a * x)                                                \
  F(CURVE, elu_back, y <= 0 ? x * (a * b * c) * exp(c * y) : b * x)                          \
  F(CURVE, gelu_back, x * FOR_REAL(gelu_slope_of)(y))                                        \
  F(CURVE, gelu_tanh_back, x * FOR_REAL(gelu_tanh_slope)(y))                                 \
  F(CURVE, silu_back, x * FOR_REAL(silu_slope)(y))                                           \
  F(CURVE, mish_back, x * FOR_REAL(mish_slope)(y))                                           \
  F(CURVE, softplus_back, a * y > b ? x : x * FOR_REAL(moth_sigmoid)(a * y))                 \
  F(CURVE, logsigmoid_back, x * FOR_REAL(moth_sigmoid)(-y))                                  \
  F(REAL, softsign_back, x / (1 + fabs(y)) / (1 + fabs(y)))                                  \
  F(CURVE, tanhshrink_back, x * (tanh(y) * tanh(y)))                                         \
  F(REAL, hardtanh_back, y <= a || y >= b ? 0 : x)                                           \
  F(REAL, hardsigmoid_back, y > -3 && y < 3 ? x / 6 : 0)                                     \
  F(REAL, hardswish_back, y <= -3 ? 0 : y < 3 ? x * (y / 3 + (real)0.5) : x)                 \
  F(REAL, shrink_back, y >= -a && y <= a ? 0 : x)                                            \
  F(REAL, threshold_back, y <= a ? 0 : x)

/* -- arguments -- */

#define ACTIVATION(ARG) \
  ARG(tensor, input, , "any shape")
MOTH_ARGS(silu, ACTIVATION)
MOTH_ARGS(selu, ACTIVATION)
MOTH_ARGS(mish, ACTIVATION)
MOTH_ARGS(relu6, ACTIVATION)
MOTH_ARGS(softsign, ACTIVATION)
MOTH_ARGS(logsigmoid, ACTIVATION)
MOTH_ARGS(tanhshrink, ACTIVATION)
MOTH_ARGS(hardsigmoid, ACTIVATION)
MOTH_ARGS(hardswish, ACTIVATION)

#define LEAKY_RELU(ARG) \
  ARG(tensor, input,               , "any shape") \
  ARG(float,  negative_slope,  0.01, "factor of negative inputs")
MOTH_ARGS(leaky_relu, LEAKY_RELU)

#define ELU(ARG) \
  ARG(tensor, input,    , "any shape") \
  ARG(float,  alpha, 1.0, "the result approaches -alpha for large negative inputs")
MOTH_ARGS(elu, ELU)
MOTH_ARGS(celu, ELU)

#define GELU(ARG) \
  ARG(tensor, input, , "any shape") \
  ARG(enum, approximate, none|tanh, "tanh: the approximation with tanh that many models use")
MOTH_ARGS(gelu, GELU)

#define SOFTPLUS(ARG) \
  ARG(tensor, input,      , "any shape") \
  ARG(float,  beta,      1, "sharpness of the curve at 0") \
  ARG(float,  threshold, 20, "where beta * input is greater, the result is the input")
MOTH_ARGS(softplus, SOFTPLUS)

#define HARDTANH(ARG) \
  ARG(tensor, input,      , "any shape") \
  ARG(float,  min_val, -1.0, "lower bound") \
  ARG(float,  max_val,  1.0, "upper bound")
MOTH_ARGS(hardtanh, HARDTANH)

#define SHRINK(ARG) \
  ARG(tensor, input,    , "any shape") \
  ARG(float,  lambd, 0.5, "inputs from -lambd to lambd become 0")
MOTH_ARGS(softshrink, SHRINK)
MOTH_ARGS(hardshrink, SHRINK)

#define THRESHOLD(ARG) \
  ARG(tensor, input,     , "any shape") \
  ARG(float,  threshold, , "inputs <= threshold are replaced") \
  ARG(float,  value,     , "value that replaces them")
MOTH_ARGS(threshold, THRESHOLD)

#define PRELU(ARG) \
  ARG(tensor, input,  , "any shape; the second dimension is the channels") \
  ARG(tensor, weight, , "factor of negative inputs: one number, or one per channel, (C)")
MOTH_ARGS(prelu, PRELU)
MOTH_ARGS(prelu_spread, PRELU)

#define GLU(ARG) \
  ARG(tensor, input,   , "any shape; the size along `dim` is even") \
  ARG(dim,    dim,   -1, "dimension that is split into two halves")
MOTH_ARGS(glu, GLU)

#define SOFTMIN(ARG) \
  ARG(tensor, input, , "any shape") \
  ARG(dim,    dim,   , "dimension whose elements become probabilities that sum to 1") \
  ARG(dtype,  dtype, none, "dtype to which the input is converted first")
MOTH_ARGS(softmin, SOFTMIN)

/* -- gradients, in one pass and differentiable again -- */

#define ACTIVATION_BACK(ARG) \
  ARG(tensor, grad,   , "gradient of the result") \
  ARG(tensor, input,  , "input of the function") \
  ARG(float,  a,     0, "first parameter of the function") \
  ARG(float,  b,     0, "second parameter of the function") \
  ARG(float,  c,     0, "third parameter of the function")
#define ACTIVATION_BACK_FACE(kind, op, ...) MOTH_ARGS(op, ACTIVATION_BACK)
ACTIVATION_BACKS(ACTIVATION_BACK_FACE)

#endif
