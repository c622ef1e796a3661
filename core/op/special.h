/* special.h -- functions of probability that no processor has: what they compute, their faces. */
#ifndef MOTH_OP_SPECIAL_H
#define MOTH_OP_SPECIAL_H

#include "../op.h"

/* kernel/elementwise.h explains the columns; a is n. */
#define SPECIAL_FUNCTIONS(F)                                          \
  F(CURVE, erfinv, FOR_REAL(moth_erfinv)(x))                         \
  F(CURVE, lgamma, FOR_REAL(moth_lgamma)(x))                         \
  F(SLOW, digamma, FOR_REAL(moth_digamma)(x))                        \
  F(SLOW, i0, FOR_REAL(moth_i0)(x))                                  \
  F(SLOW, special_i0e, FOR_REAL(moth_i0e)(x))                        \
  F(SLOW, special_i1, FOR_REAL(moth_i1)(x))                          \
  F(SLOW, special_i1e, FOR_REAL(moth_i1e)(x))                        \
  F(SLOW, special_erfcx, FOR_REAL(moth_erfcx)(x))                    \
  F(SLOW, special_ndtri, FOR_REAL(moth_ndtri)(x))                    \
  F(SLOW, special_log_ndtr, FOR_REAL(moth_log_ndtr)(x))
#define SPECIAL_OTHERS(F) \
  F(SLOW, polygamma_of, FOR_REAL(moth_polygamma)(a, x)) \
  F(SLOW, bessel_of, FOR_REAL(moth_bessel)(a, x))
#define SPECIAL_PAIRS(F)                                    \
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
  ARG(int,    n,     , "how many slopes further than digamma, from 0 on")
MOTH_ARGS(polygamma_of, POLYGAMMA_OF)

/* Of order 0 the even ones, of order 1 the odd. */
enum { MOTH_BESSEL_K0 = 4, MOTH_BESSEL_SCALED_K1 = 7, MOTH_BESSEL_AIRY };
#define BESSEL_OF(ARG) \
  ARG(tensor, input, , "tensor of any shape") \
  ARG(enum,   kind, j0|j1|y0|y1|k0|k1|scaled_k0|scaled_k1|airy|airy_slope, "which function")
MOTH_ARGS(bessel_of, BESSEL_OF)

#endif
