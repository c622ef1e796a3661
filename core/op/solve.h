/* solve.h -- arguments of the ops for systems of linear equations, inverses and determinants. */
#ifndef MOTH_OP_SOLVE_H
#define MOTH_OP_SOLVE_H

#include "call/op.h"

#define LINALG_SOLVE(ARG) \
  ARG(tensor, A,          , "matrices, (..., N, N)") \
  ARG(tensor, B,          , "right-hand sides, (..., N, K) or (..., N); (..., K, N) without " \
                            "`left`") \
  ARG(bool,   left,   true, "solve A X = B instead of X A = B")
MOTH_ARGS(linalg_solve, LINALG_SOLVE)

#define LINALG_SOLVE_TRIANGULAR(ARG) \
  ARG(tensor, A,          , "triangular matrices, (..., N, N)") \
  ARG(tensor, B,          , "right-hand sides, (..., N, K); (..., K, N) without `left`") \
  ARG(bool,   upper,      , "read the upper triangle instead of the lower") \
  ARG(bool,   left,   true, "solve A X = B instead of X A = B") \
  ARG(bool,   unitriangular, false, "the diagonal counts as ones and is not read")
MOTH_ARGS(linalg_solve_triangular, LINALG_SOLVE_TRIANGULAR)

#define LINALG_SQUARE(ARG) \
  ARG(tensor, A,          , "matrices, (..., N, N)")
MOTH_ARGS(linalg_inv, LINALG_SQUARE)
MOTH_ARGS(linalg_det, LINALG_SQUARE)
MOTH_ARGS(linalg_slogdet, LINALG_SQUARE)
MOTH_ARGS(linalg_cofactor, LINALG_SQUARE)

#define LINALG_INV_EX(ARG) \
  LINALG_SQUARE(ARG) \
  ARG(bool,   check_errors, false, "raise an error, as inv does")
MOTH_ARGS(linalg_inv_ex, LINALG_INV_EX)

#endif
