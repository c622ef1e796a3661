/* singular.h -- arguments of ops with singular values: svd, pinv, lstsq, the gradient of cofactors.
*/
#ifndef MOTH_OP_SINGULAR_H
#define MOTH_OP_SINGULAR_H

#include "call/op.h"

#define LINALG_SVD(ARG) \
  ARG(tensor, A,          , "matrices, (..., M, N)") \
  ARG(bool,   full_matrices, true, "return square U and Vh instead of the reduced matrices")
MOTH_ARGS(linalg_svd, LINALG_SVD)

#define LINALG_SVDVALS(ARG) \
  ARG(tensor, A,          , "matrices, (..., M, N)")
MOTH_ARGS(linalg_svdvals, LINALG_SVDVALS)

#define LINALG_PINV(ARG) \
  ARG(tensor, A,          , "matrices, (..., M, N)") \
  ARG(float,  atol,      0, "singular values up to `atol` count as 0") \
  ARG(maybe_float, rtol, none, "singular values up to rtol times the largest count as 0; max(M, " \
                               "N) times the dtype's epsilon when absent and `atol` is 0")
MOTH_ARGS(linalg_pinv, LINALG_PINV)

#define LINALG_LSTSQ(ARG) \
  ARG(tensor, A,          , "matrices, (..., M, N)") \
  ARG(tensor, B,          , "right-hand sides, (..., M, K)") \
  ARG(maybe_float, rcond, none, "singular values up to rcond times the largest count as 0; " \
                                "max(M, N) times the dtype's epsilon when absent") \
  ARG(enum,   driver, gelsy|gels|gelsd|gelss, "LAPACK's method: gelsy: QR with column pivoting; " \
                                              "gels: QR; gelsd, gelss: singular values")
MOTH_ARGS(linalg_lstsq_solve, LINALG_LSTSQ)

#define LINALG_COFACTOR_BACK(ARG) \
  ARG(tensor, A,          , "matrices, (..., N, N)") \
  ARG(tensor, grad,       , "gradient of the cofactors")
MOTH_ARGS(linalg_cofactor_back, LINALG_COFACTOR_BACK)

#endif
