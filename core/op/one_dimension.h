/* one_dimension.h -- sequences as images of height one, for convolution and pooling in one
** dimension. */
#ifndef MOTH_OP_ONE_DIMENSION_H
#define MOTH_OP_ONE_DIMENSION_H

#include "view.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

/* y := x with a height of 1 before its last dimension; error messages do not show it. Owned. */
static inline int heighten(moth_tensor *x, moth_tensor **y) {
  int status = MOTH_CALL(x->ctx, y, unsqueeze, .input = x, .dim = -2);
  if (!status) (*y)->flags |= MOTH_T_LINES;
  return status;
}

/* Checks that x is (N, C, L) or (C, L), then calls heighten. */
static inline int with_height(moth_tensor *x, moth_tensor **y) {
  if (x->l.ndim != 2 && x->l.ndim != 3)
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input", "(N, C, L) or (C, L) is needed, got %s",
                     moth_str(x));
  return heighten(x, y);
}

/* out := n results without their height. Releases y. After an error, all of out is NULL. */
static inline int without_height(moth_ctx *ctx, moth_tensor **y, int n, moth_tensor **out) {
  int64_t height = -2;
  int status = MOTH_OK;
  for (int i = 0; i < n; i++) {
    if (!status) status = MOTH_CALL(ctx, &out[i], squeeze, .input = y[i], .dim = {&height, 1});
    moth_tensor_release(y[i]);
  }
  for (int i = 0; i < n && status; i++) {
    moth_tensor_release(out[i]);
    out[i] = NULL;
  }
  return status;
}

#endif
