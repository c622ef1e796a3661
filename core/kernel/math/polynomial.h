/* polynomial.h -- orthogonal polynomials of one degree. */
#ifndef MOTH_KERNEL_POLYNOMIAL_H
#define MOTH_KERNEL_POLYNOMIAL_H

#include "elementwise.h"

enum {
  MOTH_CHEBYSHEV_T, MOTH_CHEBYSHEV_U, MOTH_CHEBYSHEV_V, MOTH_CHEBYSHEV_W,
  MOTH_HERMITE_H, MOTH_HERMITE_HE, MOTH_LAGUERRE_L, MOTH_LEGENDRE_P
};

/* Its three numbers are the family, the degree, and 1 if the argument is 2 x - 1. */
extern const moth_loops moth_polynomial[1];

#endif
