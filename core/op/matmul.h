/* matmul.h -- arguments of matrix products. */
#ifndef MOTH_OP_MATMUL_H
#define MOTH_OP_MATMUL_H

#include "call/op.h"

#define MATMUL(ARG) \
  ARG(tensor, input, , "(K,), (M, K) or (..., M, K)") \
  ARG(tensor, other, , "(K,), (K, N) or (..., K, N); leading dimensions are broadcast")
MOTH_ARGS(matmul, MATMUL)

#define MM(ARG) \
  ARG(tensor, input, , "matrix, (M, K)") \
  ARG(tensor, mat2,  , "matrix, (K, N)")
MOTH_ARGS(mm, MM)

#define BMM(ARG) \
  ARG(tensor, input, , "matrices, (B, M, K)") \
  ARG(tensor, mat2,  , "the same number of matrices, (B, K, N)")
MOTH_ARGS(bmm, BMM)

#define MV(ARG) \
  ARG(tensor, input, , "matrix, (M, K)") \
  ARG(tensor, vec,   , "vector, (K,)")
MOTH_ARGS(mv, MV)

#define DOT(ARG) \
  ARG(tensor, input,  , "vector, (K,)") \
  ARG(tensor, tensor, , "vector, (K,)")
MOTH_ARGS(dot, DOT)

#define OUTER(ARG) \
  ARG(tensor, input, , "vector, (M,)") \
  ARG(tensor, vec2,  , "vector, (N,)")
MOTH_ARGS(outer, OUTER)

#define LINEAR(ARG) \
  ARG(tensor,       input,    , "(..., in features)") \
  ARG(tensor,       weight,   , "(out features, in features)") \
  ARG(maybe_tensor, bias, none, "(out features,)") \
  ARG(enum,         activation, none|relu, "relu: apply relu in the same pass")
MOTH_ARGS(linear, LINEAR)
enum { LINEAR_PLAIN, LINEAR_RELU };

/* outer_sum over several pairs of tensors */
#define OUTER_SUMS(ARG) \
  ARG(tensors, input, , "each (..., M)") \
  ARG(tensors, other, , "the same number of tensors, (..., N), with equal leading dimensions")
MOTH_ARGS(outer_sums, OUTER_SUMS)

/* Gradients of weights: the sum of the outer products of the rows of two tensors. */
#define OUTER_SUM(ARG) \
  ARG(tensor, input, , "(..., M)") \
  ARG(tensor, other, , "(..., N), with the same leading dimensions")
MOTH_ARGS(outer_sum, OUTER_SUM)
MOTH_ARGS(outer_sum_rows, OUTER_SUM)

#endif
