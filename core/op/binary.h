/* binary.h -- further functions of two and three tensors: formulas and arguments. For a new
** function, add a line to the list here and a row in binary.c.
*/
#ifndef MOTH_OP_BINARY_H
#define MOTH_OP_BINARY_H

#include "call/op.h"

/* kernel/math/elementwise.h explains the columns. */
#define BINARY_REALS(F)                                                                      \
  F(CURVE, atan2, atan2(x, y))                                                               \
  F(PAIR, hypot, hypot(x, y))                                                                \
  F(REAL, copysign, copysign(x, y))                                                          \
  F(PAIR, xlogy, y != y ? y : x == 0 ? 0 : x * log(y))                                       \
  F(CURVE, logaddexp, /* inf - inf would be NaN */                                           \
    (x > y || x != x ? x : y) +                                                              \
      FOR_REAL(moth_log1p_unit)(exp(-fabs(x == y ? (real)0 : x - y))))                       \
  F(CURVE, logaddexp2, (x > y || x != x ? x : y) +                                           \
    FOR_REAL(moth_log1p_unit)(exp(-fabs(x == y ? (real)0 : x - y) *                          \
                                  (real)0.69314718055994530942)) *                           \
    (1 / (real)0.69314718055994530942))                                                      \
  F(ANY, fmax, x | y, x > y ? x : y, x > y || y != y ? x : y)                                \
  F(ANY, fmin, x & y, x < y ? x : y, x < y || y != y ? x : y)

#define BINARY_BITS(F)                                                                       \
  F(BITS, bitwise_and, x & y, x & y)                                                         \
  F(BITS, bitwise_or, x | y, x | y)                                                          \
  F(BITS, bitwise_xor, x ^ y, x ^ y)                                                         \
  F(WHOLE, bitwise_left_shift, y < 0 || y >= 8 * (int)sizeof(x) ? 0 : WIDE(x) << y)          \
  F(WHOLE, bitwise_right_shift, (int64_t)x >> (y < 0 || y > 63 ? 63 : y))                    \
  F(WHOLE, gcd, common_divisor((int64_t)x, (int64_t)y))                                      \
  F(WHOLE, lcm, common_multiple((int64_t)x, (int64_t)y))

/* functions whose arguments are declared below; a, b, c are rtol, atol, equal_nan */
#define BINARY_OTHERS(F)                                                                     \
  F(CURVE, nextafter, nextafter(x, y))                                                       \
  F(ANY, heaviside, x ? x : y, x == 0 ? y : x > 0, x == 0 ? y : x > 0)                       \
  F(QUESTION, isclose, x == y,                                                               \
    x == y || (c != 0 && x != x && y != y) ||                                                \
      (fabs(x - y) <= b + fabs(a * y) && fabs(x - y) < (real)INFINITY))

/* x, y, z are the three tensors, a is value */
#define BINARY_THREES(F)                                                                     \
  F(NUMBER, addcmul, WIDE(x) + WIDE(a) * WIDE(y) * WIDE(z), x + a * y * z)                   \
  F(REAL, addcdiv, x + a * (y / z))                                                          \
  F(REAL, lerp, fabs(z) < (real)0.5 ? x + z * (y - x) : y - (y - x) * (1 - z))

#define BINARY(ARG) \
  ARG(tensor, input, , "first operand") \
  ARG(tensor, other, , "second operand, broadcast with the first")
#define BINARY_FACE(kind, op, ...) MOTH_ARGS(op, BINARY)
BINARY_REALS(BINARY_FACE)
BINARY_BITS(BINARY_FACE)
MOTH_ARGS(nextafter, BINARY)

#define HEAVISIDE(ARG) \
  ARG(tensor, input,  , "any shape") \
  ARG(tensor, values, , "value where input is 0, broadcast with the input")
MOTH_ARGS(heaviside, HEAVISIDE)

#define ISCLOSE(ARG) \
  ARG(tensor, input,       , "left side") \
  ARG(tensor, other,       , "right side, broadcast with the left") \
  ARG(float,  rtol,    1e-5, "allowed difference relative to |other|") \
  ARG(float,  atol,    1e-8, "allowed absolute difference") \
  ARG(bool,   equal_nan, false, "NaN counts as close to NaN")
MOTH_ARGS(isclose, ISCLOSE)

#define LERP(ARG) \
  ARG(tensor, input,  , "value for weight 0") \
  ARG(tensor, end,    , "value for weight 1") \
  ARG(tensor, weight, , "a number or a tensor; input, end and weight are broadcast")
MOTH_ARGS(lerp, LERP)

#define ADDC(ARG) \
  ARG(tensor, input,    , "tensor to which the product or quotient is added") \
  ARG(tensor, tensor1,  , "first operand") \
  ARG(tensor, tensor2,  , "second operand; input, tensor1 and tensor2 are broadcast") \
  ARG(scalar, value,   1, "factor of the product or quotient")
MOTH_ARGS(addcmul, ADDC)
MOTH_ARGS(addcdiv, ADDC)

#endif
