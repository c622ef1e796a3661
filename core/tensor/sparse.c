/* sparse.c -- sparse tensors: creation, addition, and the functions for hosts. */
#include "sparse.h"
#include "shape.h"
#include "base/error.h"
#include "handles.h"
#include "tensor.h"

#include "base/coroutine.h"
#include "loop.h"
#include "call/observer.h"
#include "autograd/tape.h"

#include "op/copy.h"
#include "op/create.h"
#include "op/index.h"
#include "op/join.h"
#include "op/sort.h"

moth_tensor *moth_sparse_new(const moth_layout *whole, moth_tensor *rows, moth_tensor *values) {
  moth_layout l = *whole;
  l.offset = values->l.offset;
  l.dtype = values->l.dtype;
  l.device = values->l.device;
  l.index_base = 0;
  memset(l.stride, 0, sizeof l.stride);
  moth_tensor *x = moth_tensor_like(values->ctx, &l, values->storage);
  if (!x) return NULL;
  x->flags |= MOTH_T_SPARSE;
  x->rows = moth_tensor_retain(rows);
  return x;
}

moth_tensor *moth_sparse_values(moth_tensor *x) {
  moth_layout l = x->l;
  l.shape[0] = x->rows->l.numel;
  moth_layout_pack(&l);
  l.offset = x->l.offset;
  return moth_tensor_like(x->ctx, &l, x->storage);
}

moth_tensor *moth_sparse_clone(moth_tensor *x) {
  moth_tensor *values = moth_sparse_values(x), *own = NULL, *y = NULL;
  if (values && !MOTH_CALL(x->ctx, &own, clone, .input = values)) {
    y = moth_sparse_new(&x->l, x->rows, own);
    if (y) y->flags |= x->flags & MOTH_T_COALESCED;
  }
  moth_tensor_release(values);
  moth_tensor_release(own);
  return y;
}

/* -- addition -- */

/* The sums of `values` by place: `inverse` has the place, below n, of each value. */
static int sum_values(moth_tensor *values, moth_tensor *inverse, int64_t n, moth_tensor **y) {
  moth_ctx *ctx = values->ctx;
  moth_layout l = values->l;
  l.shape[0] = n;
  int status = MOTH_CALL(ctx, y, zeros, .size = {l.shape, l.ndim}, .dtype = l.dtype,
                         .device = moth_device_of(values));
  if (status) return status;
  const index_add_args args = {.ctx = ctx, .input = *y, .dim = 0, .index = inverse,
                               .source = values, .alpha = {.as.number = 1}};
  return moth_run_into(&moth_op_index_add, &args, *y);
}

/* Adds up repeated rows and sorts the rows. */
static int coalesce(moth_tensor *x, moth_tensor **y) {
  enum { ROWS, INVERSE, COUNTS, ALL };
  moth_tensor *found[ALL] = {NULL}, *values = moth_sparse_values(x), *sum = NULL;
  int status = !values ? x->ctx->error.code
                       : MOTH_CALL(x->ctx, found, unique_all, .input = x->rows, .dim = MOTH_NO_INT);
  if (!status) status = sum_values(values, found[INVERSE], found[ROWS]->l.numel, &sum);
  if (!status && !(*y = moth_sparse_new(&x->l, found[ROWS], sum))) status = x->ctx->error.code;
  if (!status) (*y)->flags |= MOTH_T_COALESCED;
  for (int i = 0; i < ALL; i++) moth_tensor_release(found[i]);
  moth_tensor_release(values);
  moth_tensor_release(sum);
  return status;
}

static int cat(moth_tensor *a, moth_tensor *b, moth_tensor **y) {
  moth_tensor *pair[] = {a, b};
  return MOTH_CALL(a->ctx, y, cat, .tensors = {pair, 2}, .dim = 0);
}

/* Concatenates the rows of a and b. The result is coalesced if it has more rows than the dense
** tensor, but not in a captured step, where the number of rows must not depend on values. */
static int joined(moth_tensor *a, moth_tensor *b, moth_tensor **y) {
  moth_tensor *va = moth_sparse_values(a), *vb = va ? moth_sparse_values(b) : NULL;
  moth_tensor *rows = NULL, *values = NULL;
  int status = vb ? cat(a->rows, b->rows, &rows) : a->ctx->error.code;
  if (!status) status = cat(va, vb, &values);
  if (!status && !(*y = moth_sparse_new(&a->l, rows, values))) status = a->ctx->error.code;
  moth_tensor_release(va);
  moth_tensor_release(vb);
  moth_tensor_release(rows);
  moth_tensor_release(values);
  if (status || a->ctx->capture || (*y)->rows->l.numel <= a->l.shape[0]) return status;
  moth_tensor *uncoalesced = *y;
  status = coalesce(uncoalesced, y);
  moth_tensor_release(uncoalesced);
  return status;
}

int moth_sparse_add(moth_tensor **at, moth_tensor *x, bool over) {
  moth_ctx *ctx = x->ctx;
  moth_tensor *y = NULL;
  int status;
  if (moth_sparse(*at) && moth_sparse(x)) {
    status = joined(*at, x, &y);
  } else {
    moth_tensor *sparse = moth_sparse(x) ? x : *at, *values = moth_sparse_values(sparse);
    const index_add_args args = {.ctx = ctx, .input = sparse == x ? *at : x, .dim = 0,
                                 .index = sparse->rows, .source = values,
                                 .alpha = {.as.number = 1}};
    if (!values) status = ctx->error.code;
    else if (over && sparse == x) status = moth_run_into(&moth_op_index_add, &args, *at);
    else status = moth_run(&moth_op_index_add, &args, &y);
    moth_tensor_release(values);
  }
  if (status || !y) return status;
  moth_tensor_release(*at);
  *at = y;
  return MOTH_OK;
}

/* -- functions for hosts -- */

int32_t moth_sparse_make(moth_ctx *ctx, const moth_handle *rows, const moth_handle *values,
                         int64_t size, int32_t coalesced, moth_handle *out) {
  MOTH_NEED(ctx, rows && values && out, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *r = moth_resolve(ctx, rows, "indices"), *y = NULL;
  moth_tensor *v = r ? moth_resolve(ctx, values, "values") : NULL;
  if (!v) return ctx->error.code;
  moth_settle_modes(ctx);
  if (r->l.dtype != MOTH_I64 || r->l.ndim != 1 || v->l.ndim == 0 ||
      v->l.shape[0] != r->l.numel || r->l.device != v->l.device)
    return moth_fail(ctx, MOTH_E_SHAPE, "values", "%s does not match the rows %s", moth_str(v),
                     moth_str(r));
  if (ctx->grad_mode && moth_needs_grad(v))
    return moth_fail(ctx, MOTH_E_GRAPH, "values",
                     "%s needs a gradient, which sparse tensors do not pass on; detach it",
                     moth_str(v));
  moth_layout l = v->l;
  l.shape[0] = size;
  if (size < 0 || !moth_layout_pack(&l))
    return moth_fail(ctx, MOTH_E_SHAPE, "size", "there cannot be %lld rows", (long long)size);
  r = moth_packed(r);
  v = r ? moth_packed(v) : NULL;
  y = v ? moth_sparse_new(&l, r, v) : NULL;
  moth_tensor_release(r);
  moth_tensor_release(v);
  if (y && coalesced) y->flags |= MOTH_T_COALESCED;
  return y ? moth_hand_out(ctx, y, out) : ctx->error.code;
}

static moth_tensor *sparse_of(moth_ctx *ctx, const moth_handle *h) {
  moth_tensor *x = moth_resolve_any(ctx, h, NULL);
  if (!x || moth_sparse(x)) return x;
  moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "a sparse tensor is needed, got %s", moth_str(x));
  return NULL;
}

int32_t moth_sparse_parts(moth_ctx *ctx, const moth_handle *h, moth_handle *rows,
                          moth_handle *values) {
  MOTH_NEED(ctx, h && rows && values, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x = sparse_of(ctx, h), *v = x ? moth_sparse_values(x) : NULL;
  if (!v) return ctx->error.code;
  int status = moth_hand_out(ctx, v, values);
  if (status) return status;
  status = moth_hand_out(ctx, moth_tensor_retain(x->rows), rows);
  if (status) moth_free(ctx, values);
  return status;
}

int32_t moth_sparse_coalesce(moth_ctx *ctx, const moth_handle *h, moth_handle *out) {
  MOTH_NEED(ctx, h && out, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_error_clear(ctx);
  moth_error_blame(ctx, "coalesce");
  moth_tensor *x = sparse_of(ctx, h), *y = NULL;
  if (!x) return ctx->error.code;
  if (x->flags & MOTH_T_COALESCED) y = moth_tensor_retain(x);
  else if (coalesce(x, &y)) return ctx->error.code;
  return moth_hand_out(ctx, y, out);
}
