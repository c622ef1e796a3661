/* masks.c -- masks among the indices of a device tensor. A mask is replaced with the positions
** where it is true, once per call, so that shape rule, kernel and gradient synchronize with the
** device only once. index.h declares the arguments.
*/
#include "call/frame.h"
#include "autograd/tape.h"
#include "index.h"
#include "view.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

int moth_mask_fits(const moth_tensor *mask, int32_t dim, const moth_tensor *of, int32_t ndim,
                   const int64_t *shape) {
  moth_ctx *ctx = mask->ctx;
  if (mask->l.ndim == 0)
    return moth_fail(ctx, MOTH_E_SHAPE, "indices", "a mask needs at least 1 dimension, got %s",
                     moth_str(mask));
  if (dim + mask->l.ndim > ndim)
    return moth_fail(ctx, MOTH_E_INDEX, "indices", "too many indices for the %d dimensions of %s",
                     ndim, moth_str(of));
  for (int32_t d = 0; d < mask->l.ndim; d++)
    if (mask->l.shape[d] != shape[dim + d])
      return moth_fail(ctx, MOTH_E_SHAPE, "indices",
                       "the mask %s does not have the sizes of %s from dim " MOTH_POS " on",
                       moth_str_shape(ctx, mask->l.ndim, mask->l.shape), moth_str(of),
                       (long long)dim);
  return MOTH_OK;
}

bool moth_index_fills(const index_put_args *a) {
  const moth_tensor *mask = a->indices.n == 1 ? a->indices.at[0] : NULL;
  return mask && mask->l.dtype == MOTH_BOOL && !a->accumulate && a->values->l.numel == 1 &&
         a->values->l.ndim == 0;
}

/* Appends the positions where a mask is true, one tensor for each of its dimensions. */
static int expand(moth_call_frame *f, moth_tensor *mask, moth_tensor **at) {
  moth_ctx *ctx = mask->ctx;
  moth_tensor *rows = NULL;
  int status = MOTH_CALL(ctx, &rows, nonzero, .input = mask);
  for (int32_t d = 0; d < mask->l.ndim && !status; d++) {
    moth_tensor *column = NULL;
    status = MOTH_CALL(ctx, &column, select, .input = rows, .dim = 1, .index = d);
    if (!status && !(at[d] = moth_frame_keep(f, column))) status = ctx->error.code;
  }
  moth_tensor_release(rows);
  return status;
}

static int expand_all(moth_call_frame *f, const moth_tensor *of, int32_t ndim,
                      const int64_t *shape, moth_tensors *list) {
  int64_t n = 0, most = 0;
  int32_t dim = 0;
  int status = MOTH_OK;
  for (int64_t i = 0; i < list->n; i++) {
    const moth_tensor *x = list->at[i];
    bool mask = x && x->l.dtype == MOTH_BOOL;
    most += mask ? x->l.ndim : 1;
    if (mask) status = moth_mask_fits(x, dim, of, ndim, shape);
    if (status) return status;
    dim += mask ? x->l.ndim : 1;
  }
  if (most > MOTH_MAX_DIMS) return MOTH_OK; /* too many; the shape rule raises the error */
  moth_tensor **at = moth_frame_list(f, most);
  if (!at) return f->temps.ctx->error.code;
  for (int64_t i = 0; i < list->n && !status; i++) {
    moth_tensor *x = list->at[i];
    bool mask = x && x->l.dtype == MOTH_BOOL;
    if (mask) status = expand(f, x, at + n);
    else at[n] = x;
    n += mask ? x->l.ndim : 1;
  }
  *list = (moth_tensors){.at = at, .n = n};
  return status;
}

static bool has_mask(const moth_tensors *list) {
  for (int64_t i = 0; i < list->n; i++)
    if (list->at[i] && list->at[i]->l.dtype == MOTH_BOOL) return true;
  return false;
}

int moth_index_prepare(moth_call_frame *f, const moth_op *op) {
  void *args = &f->args;
  if (op == &moth_op_index) {
    index_args *a = args;
    const moth_tensor *x = a->input;
    return has_mask(&a->indices) ? expand_all(f, x, x->l.ndim, x->l.shape, &a->indices) : MOTH_OK;
  }
  if (op == &moth_op_index_put) {
    index_put_args *a = args;
    const moth_tensor *x = a->input;
    if (!has_mask(&a->indices) || moth_index_fills(a)) return MOTH_OK;
    return expand_all(f, x, x->l.ndim, x->l.shape, &a->indices);
  }
  if (op == &moth_op_index_sum) {
    index_sum_args *a = args;
    if (!has_mask(&a->indices)) return MOTH_OK;
    return expand_all(f, a->input, (int32_t)a->size.n, a->size.at, &a->indices);
  }
  return MOTH_OK;
}
