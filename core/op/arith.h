/* arith.h -- elementwise arithmetic of two tensors: formulas and arguments. */
#ifndef MOTH_OP_ARITH_H
#define MOTH_OP_ARITH_H

#include "call/op.h"

/* x and y are the operands; kernel/math/elementwise.h explains the columns. */
#define ARITH_FUNCTIONS(F)                                                           \
  F(ANY, add, x | y, WIDE(x) + WIDE(y), x + y)                                       \
  F(JOINED, more, x | (a & y), WIDE(x) + WIDE(a) * WIDE(y), x + a * y) /* a: alpha */ \
  F(NUMBER, sub, WIDE(x) - WIDE(y), x - y)                                           \
  F(JOINT, less, WIDE(x) - WIDE(a) * WIDE(y), x - a * y)                             \
  F(ANY, mul, x & y, WIDE(x) * WIDE(y), x * y)                                       \
  F(REAL, div, x / y)                                                                \
  F(NUMBER, div_trunc, trunc_div(x, y), trunc(x / y))                                \
  F(QUOTIENT, div_floor, floor_div(x, y), FOR_REAL(quotient)(x, y), quotient_near(x, y)) \
  F(QUOTIENT, remainder, rest_floor(x, y), FOR_REAL(rest)(x, y), rest_near(x, y))    \
  F(QUOTIENT, fmod, rest_trunc(x, y), fmod(x, y), fmod_near(x, y))                   \
  F(HEAVY, pow, power(x, y), pow(x, y))                                              \
  F(ANY, maximum, x | y, x > y ? x : y, ((x > y) | (x != x)) ? x : y) /* NaN wins */ \
  F(ANY, minimum, x & y, x < y ? x : y, ((x < y) | (x != x)) ? x : y)

#define ADD(ARG) \
  ARG(tensor, input,    , "first summand") \
  ARG(tensor, other,    , "second summand, broadcast with the first") \
  ARG(scalar, alpha,   1, "factor of `other`")
MOTH_ARGS(add, ADD)

#define SUB(ARG) \
  ARG(tensor, input,    , "the minuend") \
  ARG(tensor, other,    , "the subtrahend, broadcast with the input") \
  ARG(scalar, alpha,   1, "factor of `other`")
MOTH_ARGS(sub, SUB)

#define MUL(ARG) \
  ARG(tensor, input,    , "first factor") \
  ARG(tensor, other,    , "second factor, broadcast with the first")
MOTH_ARGS(mul, MUL)

enum { MOTH_ROUND_NONE, MOTH_ROUND_TRUNC, MOTH_ROUND_FLOOR };
#define DIV(ARG) \
  ARG(tensor, input,    , "dividend") \
  ARG(tensor, other,    , "divisor, broadcast with the first") \
  ARG(enum,   rounding_mode, none|trunc|floor, "none: true division; trunc: round towards 0; " \
                                               "floor: round down; with rounding, integers stay " \
                                               "integers")
MOTH_ARGS(div, DIV)

#define POW(ARG) \
  ARG(tensor, input,    , "base") \
  ARG(tensor, exponent, , "exponent, broadcast with the base")
MOTH_ARGS(pow, POW)

#define REMAINDER(ARG) \
  ARG(tensor, input,    , "dividend") \
  ARG(tensor, other,    , "divisor, broadcast with the first")
MOTH_ARGS(remainder, REMAINDER)
MOTH_ARGS(fmod, REMAINDER)
MOTH_ARGS(floor_divide, REMAINDER)

#define EXTREME(ARG) \
  ARG(tensor, input,    , "first value") \
  ARG(tensor, other,    , "second value, broadcast with the first")
MOTH_ARGS(maximum, EXTREME)
MOTH_ARGS(minimum, EXTREME)

#define CLAMP_TENSOR(ARG) \
  ARG(tensor,       input,    , "tensor of any shape") \
  ARG(maybe_tensor, min,  none, "lower bounds; input, min and max are broadcast") \
  ARG(maybe_tensor, max,  none, "upper bounds")
MOTH_ARGS(clamp_tensor, CLAMP_TENSOR) /* runs clamp if a bound is a tensor */

#define WHERE(ARG) \
  ARG(mask,   condition, , "bool: true selects `input`") \
  ARG(tensor, input,     , "values where the condition is true") \
  ARG(tensor, other,     , "values where the condition is false; condition, input and other are " \
                           "broadcast")
MOTH_ARGS(where, WHERE)

#endif
