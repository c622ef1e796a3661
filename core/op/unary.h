/* unary.h -- elementwise functions of one tensor: formulas and arguments.
**
** The lists have the formula of each function; kernel/math/elementwise.h explains their columns.
** For a new function, add a line here and a row in unary.c.
*/
#ifndef MOTH_OP_UNARY_H
#define MOTH_OP_UNARY_H

#include "call/op.h"

#define UNARY_FUNCTIONS(F)                                                      \
  F(NUMBER, abs, (WIDE(x) ^ BELOW_0(x)) - BELOW_0(x), fabs(x))                  \
  F(NUMBER, neg, 0 - WIDE(x), -x)                                               \
  F(NUMBER, sign, SIGN_OF(x), x != x ? x : (real)((x > 0) - (x < 0)))           \
  F(NUMBER, sgn, SIGN_OF(x), x != x ? x : (real)((x > 0) - (x < 0)))            \
  F(REAL, angle, x != x ? x : x < 0 ? (real)3.14159265358979323846 : (real)0)   \
  F(NUMBER, positive, x, x)                                                     \
  F(NUMBER, square, WIDE(x) * WIDE(x), x * x)                                   \
  F(NUMBER, relu, x < 0 ? 0 : x, x < 0 ? 0 : x)                                 \
  F(OWN, exp, exp(x))                                                           \
  F(CURVE, expm1, expm1(x))                                                     \
  F(OWN, log, log(x))                                                           \
  F(OWN, log1p, log1p(x))                                                       \
  F(CURVE, exp2, exp2(x))                                                       \
  F(OWN, log2, log2(x))                                                         \
  F(OWN, log10, log10(x))                                                       \
  F(CURVE, sqrt, sqrt(x))                                                       \
  F(CURVE, rsqrt, 1 / sqrt(x))                                                  \
  F(CURVE, reciprocal, 1 / x)                                                   \
  F(OWN_WAVE, sin, sin(x), (sin)(x))                                            \
  F(OWN_WAVE, cos, cos(x), (cos)(x))                                            \
  F(OWN_WAVE, tan, tan(x), (tan)(x))                                            \
  F(OWN, asin, asin(x))                                                         \
  F(OWN, acos, acos(x))                                                         \
  F(CURVE, atan, atan(x))                                                       \
  F(CURVE, sinh, sinh(x))                                                       \
  F(CURVE, cosh, cosh(x))                                                       \
  F(OWN, tanh, tanh(x))                                                         \
  F(CURVE, asinh, asinh(x))                                                     \
  F(CURVE, acosh, acosh(x))                                                     \
  F(CURVE, atanh, atanh(x))                                                     \
  F(CURVE, sinc, FOR_REAL(moth_sinc)(x))                                        \
  F(REAL, deg2rad, x * (real)0.017453292519943295769)                           \
  F(REAL, rad2deg, x * (real)57.295779513082320877)                             \
  F(CURVE, sigmoid, FOR_REAL(moth_sigmoid)(x))                                  \
  F(CURVE, erf, erf(x))                                                         \
  F(OWN, erfc, erfc(x))                                                         \
  F(NUMBER, floor, x, floor(x))                                                 \
  F(NUMBER, ceil, x, ceil(x))                                                   \
  F(NUMBER, trunc, x, trunc(x))                                                 \
  F(REAL, frac, x - trunc(x))                                                   \
  F(BITS, bitwise_not, !x, ~x)                                                  \
  F(QUESTION, logical_not, x == 0, x == 0)                                      \
  F(QUESTION, isnan, x != x, x != x)                                            \
  F(QUESTION, isinf, x != x, isinf(x) != 0)                                     \
  F(QUESTION, isposinf, x != x, x == (real)INFINITY)                            \
  F(QUESTION, isneginf, x != x, x == -(real)INFINITY)                           \
  F(QUESTION, isfinite, x == x, x - x == 0)                                     \
  F(QUESTION, signbit, x < 0, signbit(x) != 0)

double moth_largest(int dtype); /* the largest finite number of a float dtype */

#define UNARY(ARG) \
  ARG(tensor, input, , "tensor of any shape")
#define UNARY_FACE(kind, op, ...) MOTH_ARGS(op, UNARY)
UNARY_FUNCTIONS(UNARY_FACE)

/* -- functions with more arguments -- */

#define UNARY_OTHERS(F)                                                                \
  F(NUMBER, cube, WIDE(x) * WIDE(x) * WIDE(x), x * x * x)                              \
  F(REAL, inverse_square, 1 / (x * x))                                                 \
  F(NUMBER, clamp, x > b || a > b ? b : x < a ? a : x, x > b || a > b ? b : x < a ? a : x) \
  F(NUMBER, round, x, rint(x))                                                         \
  F(REAL, round_fine, rint(x * a) / a)                                                 \
  F(REAL, round_coarse, rint(x / a) * a)                                               \
  F(NUMBER, nan_to_num, x, x != x ? a : x == (real)INFINITY ? b : x == -(real)INFINITY ? c : x) \
  F(CURVE, logit, FOR_REAL(logit_of)(x < a ? a : x > b ? b : x))

#define CLAMP(ARG) \
  ARG(tensor,      input,     , "tensor of any shape") \
  ARG(maybe_float, min,   none, "lower bound, a number or a tensor") \
  ARG(maybe_float, max,   none, "upper bound, a number or a tensor")
MOTH_ARGS(clamp, CLAMP)

#define ROUND(ARG) \
  ARG(tensor, input,     , "tensor of any shape") \
  ARG(int,    decimals, 0, "digits after the decimal point; negative: the number of zeros before " \
                           "it")
MOTH_ARGS(round, ROUND)

#define FREXP_OF(ARG) \
  ARG(tensor, input, , "float tensor of any shape")
MOTH_ARGS(frexp_of, FREXP_OF)

#define NAN_TO_NUM(ARG) \
  ARG(tensor,      input,       , "tensor of any shape") \
  ARG(float,       nan,        0, "value that replaces NaN") \
  ARG(maybe_float, posinf,  none, "value that replaces infinity; the dtype's largest number when " \
                                  "absent") \
  ARG(maybe_float, neginf,  none, "value that replaces -infinity; the dtype's lowest number when " \
                                  "absent")
MOTH_ARGS(nan_to_num, NAN_TO_NUM)

#define LOGIT(ARG) \
  ARG(tensor,      input,     , "probabilities, any shape") \
  ARG(maybe_float, eps,   none, "the input is first clamped to eps .. 1 - eps")
MOTH_ARGS(logit, LOGIT)

/* -- gradients computed from the result, in one pass and differentiable; x: gradient, y: result
** -- */

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
