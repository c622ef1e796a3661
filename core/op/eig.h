/* eig.h -- arguments of eigenvalues of general square matrices. Complex numbers are pairs in a last
** dimension of 2.
*/
#ifndef MOTH_OP_EIG_H
#define MOTH_OP_EIG_H

#include "call/op.h"

#define LINALG_EIG(ARG) \
  ARG(tensor, A,          , "matrices, (..., N, N)")
MOTH_ARGS(linalg_eig, LINALG_EIG)
MOTH_ARGS(linalg_eigvals, LINALG_EIG)

#endif
