/* special.h -- special functions: formulas and arguments. */
#ifndef MOTH_OP_SPECIAL_H
#define MOTH_OP_SPECIAL_H

#include "call/op.h"

/* kernel/math/elementwise.h explains the columns; a is the argument n. */
#define SPECIAL_FUNCTIONS(F)                                          \
  F(CURVE, erfinv, FOR_REAL(moth_erfinv)(x))                          \
  F(CURVE, lgamma, FOR_REAL(moth_lgamma)(x))                          \
  F(CURVE, digamma, FOR_REAL(moth_digamma)(x))                        \
  F(CURVE, i0, FOR_REAL(moth_i0)(x))                                  \
  F(CURVE, special_i0e, FOR_REAL(moth_i0e)(x))                        \
  F(CURVE, special_i1, FOR_REAL(moth_i1)(x))                          \
  F(CURVE, special_i1e, FOR_REAL(moth_i1e)(x))                        \
  F(CURVE, special_erfcx, FOR_REAL(moth_erfcx)(x))                    \
  F(CURVE, special_ndtri, FOR_REAL(moth_ndtri)(x))                    \
  F(CURVE, special_log_ndtr, FOR_REAL(moth_log_ndtr)(x))
#define SPECIAL_OTHERS(F) \
  F(SLOW, polygamma_of, FOR_REAL(moth_polygamma)(a, x)) \
  F(SLOW, bessel_of, FOR_REAL(moth_bessel)(a, b, x)) \
  F(SLOW, sinc_slope, FOR_REAL(moth_sinc_slope)(a, b, x)) \
  F(SLOW, erfcx_slope, FOR_REAL(moth_erfcx_slope)(a, x)) \
  F(SLOW, log_ndtr_slope, FOR_REAL(moth_log_ndtr_slope)(a, x))
#define SPECIAL_PAIRS(F)                                   \
  F(SLOW, igamma, FOR_REAL(moth_igamma)(x, y))             \
  F(SLOW, igammac, FOR_REAL(moth_igammac)(x, y))           \
  F(SLOW, special_zeta, FOR_REAL(moth_zeta)(x, y))         \
  F(SLOW, gamma_slope, FOR_REAL(moth_gamma_slope)(x, y))

#define SPECIAL(ARG) \
  ARG(tensor, input, , "tensor of any shape")
#define SPECIAL_FACE(kind, op, ...) MOTH_ARGS(op, SPECIAL)
SPECIAL_FUNCTIONS(SPECIAL_FACE)

#define SPECIAL_PAIR(ARG) \
  ARG(tensor, input, , "first operand") \
  ARG(tensor, other, , "second operand, broadcast with the first")
#define SPECIAL_PAIR_FACE(kind, op, ...) MOTH_ARGS(op, SPECIAL_PAIR)
SPECIAL_PAIRS(SPECIAL_PAIR_FACE)

#define POLYGAMMA_OF(ARG) \
  ARG(tensor, input, , "tensor of any shape") \
  ARG(int,    n,     , "order of the derivative; 0: digamma")
MOTH_ARGS(polygamma_of, POLYGAMMA_OF)

/* Even numbers are functions of order 0, odd numbers of order 1. */
enum {
  MOTH_BESSEL_AIRY = 8, MOTH_BESSEL_I0 = 10, MOTH_BESSEL_I1, MOTH_BESSEL_I0E, MOTH_BESSEL_I1E
};
#define BESSEL_OF(ARG) \
  ARG(tensor, input, , "tensor of any shape") \
  ARG(enum,   kind, \
      j0|j1|y0|y1|k0|k1|scaled_k0|scaled_k1|airy|airy_slope|i0|i1|scaled_i0|scaled_i1, \
      "the function") \
  ARG(int,    n, 0, "order of the derivative, 0: the function; airy only supports 0")
MOTH_ARGS(bessel_of, BESSEL_OF)

#define POLYNOMIAL_OF(ARG) \
  ARG(tensor, input,  , "tensor of any shape") \
  ARG(enum,   kind, \
      chebyshev_t|chebyshev_u|chebyshev_v|chebyshev_w|hermite_h|hermite_he|laguerre_l|legendre_p, \
      "the family of polynomials") \
  ARG(int,    n,      , "degree; the result is 0 if it is negative") \
  ARG(bool,   shifted, false, "evaluate at 2 input - 1")
MOTH_ARGS(polynomial_of, POLYNOMIAL_OF)

#define SINC_SLOPE(ARG) \
  ARG(tensor, input, , "tensor of any shape") \
  ARG(int,    n, 0, "order of the derivative; 0: the function") \
  ARG(bool,   turns, false, "use sin(pi x) / (pi x)")
MOTH_ARGS(sinc_slope, SINC_SLOPE)

#define TAIL_SLOPE(ARG) \
  ARG(tensor, input, , "tensor of any shape") \
  ARG(int,    n, 1, "order of the derivative, from 1 on")
MOTH_ARGS(erfcx_slope, TAIL_SLOPE)
MOTH_ARGS(log_ndtr_slope, TAIL_SLOPE)

#endif
