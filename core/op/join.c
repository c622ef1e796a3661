/* join.c -- putting tensors side by side: along a dimension they have, or along a new one. */
#include "join.h"

#include "../loop.h"
#include "view.h"

/* Copies x into the part of y that begins at `start` along dim; stacked: into that position. */
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

MOTH_OP(cat, CAT, .dtypes = MOTH_ANY | MOTH_PROMOTE, .flags = MOTH_OP_OUT | MOTH_OP_PORTABLE,
        .doc = "Tensors one after the other along a dimension.",
        .examples = "{moth.randn(2, 3), moth.randn(1, 3)}\n"
                    "{moth.randn(2, 3), moth.randn(2, 2)}, {dim = 2}")

/* -- stack -- */

static int stack_shape(const stack_args *a, moth_layout *y) {
  int status = at_least_one(a->ctx, a->tensors);
  if (status) return status;
  const moth_tensor *first = a->tensors.at[0];
  int32_t dim, ndim = first->l.ndim + 1;
  if (ndim > MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "tensors", "%s has no room for another dimension",
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
        .doc = "Tensors of one shape, side by side along a new dimension.",
        .examples = "{moth.randn(3), moth.randn(3)}\n"
                    "{moth.randn(3), moth.randn(3)}, {dim = 2}")

const moth_op *const moth_join_ops[] = {&moth_op_cat, &moth_op_stack, NULL};
