/* product.h -- arguments of products with a summand, and of inner, outer and Kronecker products. */
#ifndef MOTH_OP_PRODUCT_H
#define MOTH_OP_PRODUCT_H

#include "call/op.h"

#define BETA_ALPHA(ARG) \
  ARG(scalar, beta,  1, "factor of `input`; 0: the input is not read, so its NaN has no effect") \
  ARG(scalar, alpha, 1, "factor of the product")

#define ADDMM(ARG) \
  ARG(tensor, input, , "summand, broadcast to (M, N)") \
  ARG(tensor, mat1,  , "matrix, (M, K)") \
  ARG(tensor, mat2,  , "matrix, (K, N)") \
  BETA_ALPHA(ARG)
MOTH_ARGS(addmm, ADDMM)

#define BADDBMM(ARG) \
  ARG(tensor, input,  , "summand, broadcast to (B, M, N)") \
  ARG(tensor, batch1, , "matrices, (B, M, K)") \
  ARG(tensor, batch2, , "the same number of matrices, (B, K, N)") \
  BETA_ALPHA(ARG)
MOTH_ARGS(baddbmm, BADDBMM)

#define ADDBMM(ARG) \
  ARG(tensor, input,  , "summand, broadcast to (M, N)") \
  ARG(tensor, batch1, , "matrices, (B, M, K)") \
  ARG(tensor, batch2, , "the same number of matrices, (B, K, N)") \
  BETA_ALPHA(ARG)
MOTH_ARGS(addbmm, ADDBMM)

#define ADDMV(ARG) \
  ARG(tensor, input, , "summand, broadcast to (M,)") \
  ARG(tensor, mat,   , "matrix, (M, K)") \
  ARG(tensor, vec,   , "vector, (K,)") \
  BETA_ALPHA(ARG)
MOTH_ARGS(addmv, ADDMV)

#define ADDR(ARG) \
  ARG(tensor, input, , "summand, broadcast to (M, N)") \
  ARG(tensor, vec1,  , "vector, (M,)") \
  ARG(tensor, vec2,  , "vector, (N,)") \
  BETA_ALPHA(ARG)
MOTH_ARGS(addr, ADDR)

#define INNER(ARG) \
  ARG(tensor, input, , "(..., K), or a number") \
  ARG(tensor, other, , "(..., K), or a number")
MOTH_ARGS(inner, INNER)

#define VDOT(ARG) \
  ARG(tensor, input, , "vector, (K,)") \
  ARG(tensor, other, , "vector, (K,)")
MOTH_ARGS(vdot, VDOT)

#define KRON(ARG) \
  ARG(tensor, input, , "tensor of any shape") \
  ARG(tensor, other, , "tensor of any shape")
MOTH_ARGS(kron, KRON)

#endif
