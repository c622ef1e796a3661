/* join.c -- concatenates tensors along a dimension, and stacks them along a new one. */
#include "join.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include "tensor/loop.h"
#include "base/threads.h"
#include "view.h"

/* Copies x into the part of y that begins at `start` along dim. With `stacked`, x has no dimension
** dim. */
static int place(moth_tensor *y, const moth_tensor *x, int32_t dim, int64_t start, bool stacked) {
  moth_layout l = y->l;
  l.offset += start * l.stride[dim];
  l.shape[dim] = stacked ? 1 : x->l.shape[dim];
  if (stacked) {
    for (int32_t d = dim; d + 1 < l.ndim; d++) {
      l.shape[d] = l.shape[d + 1];
      l.stride[d] = l.stride[d + 1];
    }
    l.ndim--;
  }
  l.numel = x->l.numel;
  moth_tensor *part = moth_tensor_like(y->ctx, &l, y->storage);
  if (!part) return y->ctx->error.code;
  int status = moth_copy_into(part, x);
  moth_tensor_release(part);
  return status;
}

static int at_least_one(moth_ctx *ctx, moth_tensors tensors) {
  if (tensors.n > 0) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_ARG, "tensors", "at least one tensor is needed, got none");
}

/* -- packed tensors of the result's dtype: copies row by row, so that the result is written in
** order -- */

typedef struct joining { /* a row has all elements with the same indices before `dim` */
  moth_tensors tensors;
  int64_t *bytes, row; /* bytes: size of each tensor's part of a row; row: size of a row */
  char *y;
} joining;

#define SHORT 32 /* average bytes of a part below which a loop over elements is faster */

static bool joins_in_rows(const moth_tensor *y, moth_tensors tensors, int32_t dim) {
  int64_t row = moth_dtype_size[y->l.dtype];
  for (int32_t d = dim; d < y->l.ndim; d++) row *= y->l.shape[d];
  if (dim == 0 || row < SHORT * tensors.n || y->l.device || !moth_contiguous(y)) return false;
  for (int64_t i = 0; i < tensors.n; i++) {
    const moth_tensor *x = tensors.at[i];
    if (x->l.device || x->l.dtype != y->l.dtype || !moth_contiguous(x)) return false;
  }
  return y->l.numel > 0;
}

static void join_rows(int64_t first, int64_t last, int lane, const void *arg) {
  const joining *j = arg;
  char *y = j->y + first * j->row;
  (void)lane;
  for (int64_t r = first; r < last; r++)
    for (int64_t i = 0; i < j->tensors.n; i++) {
      const int64_t bytes = j->bytes[i];
      memcpy(y, moth_at(j->tensors.at[i]) + r * bytes, (size_t)bytes);
      y += bytes;
    }
}

static int join_in_rows(moth_tensor *y, moth_tensors tensors, int32_t dim) {
  int64_t rows = 1, list_bytes = tensors.n * (int64_t)sizeof(int64_t);
  for (int32_t d = 0; d < dim; d++) rows *= y->l.shape[d];
  joining j = {.tensors = tensors, .y = moth_at(y), .bytes = moth_alloc(y->ctx, list_bytes)};
  if (!j.bytes) return y->ctx->error.code;
  for (int64_t i = 0; i < tensors.n; i++) {
    j.bytes[i] = tensors.at[i]->l.numel / rows * moth_dtype_size[y->l.dtype];
    j.row += j.bytes[i];
  }
  int status = moth_parallel(y->ctx, rows, 1, 0.1 * (double)j.row, join_rows, &j);
  moth_dealloc(y->ctx, j.bytes, list_bytes);
  return status;
}

/* -- cat -- */

static int cat_shape(const cat_args *a, moth_layout *y) {
  int status = at_least_one(a->ctx, a->tensors);
  if (status) return status;
  const moth_tensor *first = a->tensors.at[0];
  int32_t dim, ndim = first->l.ndim;
  if (ndim == 0)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "tensors",
                     "tensors with dimensions are needed, got %s; use stack", moth_str(first));
  status = moth_dim(a->ctx, "dim", a->dim, ndim, &dim);
  if (status) return status;
  y->ndim = ndim;
  memcpy(y->shape, first->l.shape, sizeof *y->shape * (size_t)ndim);
  y->shape[dim] = 0;
  for (int64_t i = 0; i < a->tensors.n; i++) {
    const moth_tensor *x = a->tensors.at[i];
    bool fits = x->l.ndim == ndim;
    for (int32_t d = 0; d < ndim && fits; d++) fits = d == dim || x->l.shape[d] == y->shape[d];
    if (!fits)
      return moth_fail(a->ctx, MOTH_E_SHAPE, "tensors",
                       "number " MOTH_POS " is %s, the first is %s: they may differ in dim "
                       MOTH_POS " only",
                       (long long)i, moth_str(x), moth_str(first), (long long)dim);
    if (moth_add_overflow(y->shape[dim], x->l.shape[dim], &y->shape[dim]))
      return moth_fail(a->ctx, MOTH_E_SHAPE, "tensors", "the result has too many elements");
  }
  return MOTH_OK;
}

static int cat_cpu(const cat_args *a, moth_tensor **out) {
  int32_t dim;
  int64_t start = 0;
  int status = moth_dim(a->ctx, "dim", a->dim, out[0]->l.ndim, &dim);
  if (!status && joins_in_rows(out[0], a->tensors, dim))
    return join_in_rows(out[0], a->tensors, dim);
  for (int64_t i = 0; i < a->tensors.n && !status; i++) {
    const moth_tensor *x = a->tensors.at[i];
    status = place(out[0], x, dim, start, false);
    start += x->l.shape[dim];
  }
  return status;
}

static int cat_grad(const cat_args *a, moth_grad *g) {
  int32_t dim;
  int64_t start = 0;
  int status = moth_dim(a->ctx, "dim", a->dim, g->out[0]->l.ndim, &dim);
  for (int64_t i = 0; i < a->tensors.n && !status; i++) {
    moth_tensor *x = a->tensors.at[i];
    int64_t length = x->l.shape[dim];
    if (moth_wants(g, x))
      status = moth_flow(g, x, GRAD(g, narrow, .input = g->dy, .dim = dim, .start = start,
                                    .length = length));
    start += length;
  }
  return status;
}

MOTH_OP(cat, CAT, .dtypes = MOTH_ANY | MOTH_PROMOTE,
        .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_OUT | MOTH_OP_PORTABLE,
        .doc = "Concatenates tensors along a dimension.",
        .examples = "{moth.randn(2, 3), moth.randn(1, 3)}\n"
                    "{moth.randn(2, 3), moth.randn(2, 2)}, {dim = 2}")

/* -- stack -- */

static int stack_shape(const stack_args *a, moth_layout *y) {
  int status = at_least_one(a->ctx, a->tensors);
  if (status) return status;
  const moth_tensor *first = a->tensors.at[0];
  int32_t dim, ndim = first->l.ndim + 1;
  if (ndim > MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "tensors", "%s has too many dimensions to add one",
                     moth_str(first));
  status = moth_dim(a->ctx, "dim", a->dim, ndim, &dim);
  if (status) return status;
  for (int64_t i = 1; i < a->tensors.n; i++)
    if (!moth_shape_same(&a->tensors.at[i]->l, &first->l))
      return moth_fail(a->ctx, MOTH_E_SHAPE, "tensors",
                       "number " MOTH_POS " is %s, the first is %s: the shapes must be equal",
                       (long long)i, moth_str(a->tensors.at[i]), moth_str(first));
  y->ndim = ndim;
  for (int32_t d = 0; d < ndim; d++)
    y->shape[d] = d < dim ? first->l.shape[d] : d > dim ? first->l.shape[d - 1] : a->tensors.n;
  return MOTH_OK;
}

static int stack_cpu(const stack_args *a, moth_tensor **out) {
  int32_t dim;
  int status = moth_dim(a->ctx, "dim", a->dim, out[0]->l.ndim, &dim);
  if (!status && joins_in_rows(out[0], a->tensors, dim))
    return join_in_rows(out[0], a->tensors, dim);
  for (int64_t i = 0; i < a->tensors.n && !status; i++)
    status = place(out[0], a->tensors.at[i], dim, i, true);
  return status;
}

static int stack_grad(const stack_args *a, moth_grad *g) {
  int32_t dim;
  int status = moth_dim(a->ctx, "dim", a->dim, g->out[0]->l.ndim, &dim);
  for (int64_t i = 0; i < a->tensors.n && !status; i++) {
    moth_tensor *x = a->tensors.at[i];
    if (moth_wants(g, x))
      status = moth_flow(g, x, GRAD(g, select, .input = g->dy, .dim = dim, .index = i));
  }
  return status;
}

MOTH_OP(stack, STACK, .dtypes = MOTH_ANY | MOTH_PROMOTE, .flags = MOTH_OP_OUT | MOTH_OP_PORTABLE,
        .doc = "Stacks tensors of the same shape along a new dimension.",
        .examples = "{moth.randn(3), moth.randn(3)}\n"
                    "{moth.randn(3), moth.randn(3)}, {dim = 2}")

const moth_op *const moth_join_ops[] = {&moth_op_cat, &moth_op_stack, NULL};
