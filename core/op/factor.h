/* factor.h -- arguments of the factorizations of moth.linalg: cholesky, qr, eigh, lu. */
#ifndef MOTH_OP_FACTOR_H
#define MOTH_OP_FACTOR_H

#include "call/op.h"

#define LINALG_CHOLESKY(ARG) \
  ARG(tensor, A,          , "symmetric positive-definite matrices, (..., N, N)") \
  ARG(bool,   upper, false, "return the upper factor, and read the upper triangle of A")
MOTH_ARGS(linalg_cholesky, LINALG_CHOLESKY)

#define LINALG_CHOLESKY_EX(ARG) \
  LINALG_CHOLESKY(ARG) \
  ARG(bool,   check_errors, false, "raise an error if A is not positive-definite, as cholesky " \
                                   "does")
MOTH_ARGS(linalg_cholesky_ex, LINALG_CHOLESKY_EX)

#define LINALG_QR(ARG) \
  ARG(tensor, A,          , "matrices, (..., M, N)") \
  ARG(enum,   mode, reduced|complete|r, "columns of Q: reduced: min(M, N); complete: M; r: no Q")
MOTH_ARGS(linalg_qr, LINALG_QR)

#define LINALG_EIGH(ARG) \
  ARG(tensor, A,          , "symmetric matrices, (..., N, N)") \
  ARG(enum,   UPLO,    L|U, "the triangle that is read")
MOTH_ARGS(linalg_eigh, LINALG_EIGH)
MOTH_ARGS(linalg_eigvalsh, LINALG_EIGH)

#define LINALG_LU(ARG) \
  ARG(tensor, A,          , "matrices, (..., M, N)")
MOTH_ARGS(linalg_lu_factor, LINALG_LU)

#define LINALG_LU_ORDER(ARG) \
  ARG(index,  pivots,     , "the row that each row was swapped with, (..., K)") \
  ARG(int,    rows,       , "number of rows") \
  ARG(bool,   inverse, false, "return the inverse permutation")
MOTH_ARGS(linalg_lu_order, LINALG_LU_ORDER)

/* In a gradient: returns (p - p') / E, where E(i, j) = values(j) - values(i), with a zero diagonal.
** It is the rotation of singular vectors or eigenvectors when the matrix changes. */
moth_tensor *moth_rotation(moth_grad *g, moth_tensor *p, moth_tensor *values);

#endif
