/* outer.c -- sums of outer products of the rows of many tensors: the gradient of a weight that
** several steps used. The rows are concatenated first, so that one matrix product is enough.
*/
#include "vendor/blas.h"
#include "kernel/math/elementwise.h"
#include "kernel/real.h"
#include "matmul.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

static int64_t last(const moth_tensor *x) { return x->l.shape[x->l.ndim - 1]; }

static int64_t rows_of(const moth_tensor *x) {
  int64_t rows = 1;
  for (int d = 0; d < x->l.ndim - 1; d++) rows *= x->l.shape[d];
  return rows;
}

static int outer_sums_shape(const outer_sums_args *a, moth_layout *y) {
  if (a->input.n < 1 || a->input.n != a->other.n)
    return moth_fail(a->ctx, MOTH_E_ARG, "other",
                     "input and other need the same number of tensors, at least one, got %lld and "
                     "%lld", (long long)a->other.n, (long long)a->input.n);
  for (int64_t i = 0; i < a->input.n; i++) {
    const moth_tensor *p = a->input.at[i], *q = a->other.at[i];
    bool fits = p->l.ndim > 0 && p->l.ndim == q->l.ndim && rows_of(p) == rows_of(q) &&
                last(p) == last(a->input.at[0]) && last(q) == last(a->other.at[0]);
    if (!fits)
      return moth_fail(a->ctx, MOTH_E_SHAPE, "other", "%s does not fit %s at " MOTH_POS,
                       moth_str(q), moth_str(p), (long long)i);
  }
  y->ndim = 2;
  y->shape[0] = last(a->input.at[0]);
  y->shape[1] = last(a->other.at[0]);
  return MOTH_OK;
}

/* Concatenates the rows of all tensors: (rows, n) in `dtype`. Owned. */
static moth_tensor *gathered(moth_ctx *ctx, moth_tensors x, int64_t rows, int64_t n, int dtype) {
  moth_layout l = {.ndim = 2, .dtype = (uint8_t)dtype, .device = x.at[0]->l.device,
                   .shape = {rows, n}};
  if (!moth_layout_pack(&l)) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "the operands are too large");
    return NULL;
  }
  moth_tensor *y = moth_tensor_new(ctx, &l);
  char *at = y ? moth_at(y) : NULL;
  for (int64_t i = 0; y && i < x.n; i++) {
    moth_tensor *from = x.at[i];
    int64_t bytes = from->l.numel * moth_dtype_size[dtype];
    if (from->l.dtype == dtype && moth_contiguous(from) && !from->l.device) {
      if (bytes) memcpy(at, moth_at(from), (size_t)bytes);
    } else {
      moth_layout part = from->l;
      part.dtype = (uint8_t)dtype;
      moth_layout_pack(&part);
      part.offset = (at - y->storage->data) / moth_dtype_size[dtype];
      moth_tensor *to = moth_tensor_like(ctx, &part, y->storage);
      int status = to ? moth_copy_into(to, from) : ctx->error.code;
      moth_tensor_release(to);
      if (status) {
        moth_tensor_release(y);
        return NULL;
      }
    }
    at += bytes;
  }
  return y;
}

static int outer_sums_cpu(const outer_sums_args *a, moth_tensor **out) {
  int64_t rows = 0, m = out[0]->l.shape[0], n = out[0]->l.shape[1];
  moth_tensor *y = moth_real_out(out[0]);
  if (!y) return a->ctx->error.code;
  for (int64_t i = 0; i < a->input.n; i++) rows += rows_of(a->input.at[i]);
  moth_tensor *p = gathered(a->ctx, a->input, rows, m, y->l.dtype);
  moth_tensor *q = p ? gathered(a->ctx, a->other, rows, n, y->l.dtype) : NULL;
  moth_product one = {.dtype = y->l.dtype, .device = y->l.device, .m = m, .n = n, .k = rows,
                      .cs_a = m, .rs_a = 1, .rs_b = n, .cs_b = 1, .c = moth_at(y), .ldc = n};
  if (p) one.a = moth_at(p);
  if (q) one.b = moth_at(q);
  int status = q ? moth_multiply(a->ctx, &one) : a->ctx->error.code;
  moth_tensor_release(p);
  moth_tensor_release(q);
  return moth_real_done(y, out[0], status);
}

MOTH_OP_CONST(outer_sums, OUTER_SUMS,
  .doc = "The sum of the outer products of the rows of all pairs of tensors.",
  .examples = "{moth.randn(2, 3), moth.randn(1, 3)}, {moth.randn(2, 4), moth.randn(1, 4)}\n"
              "{moth.randn(3)}, {moth.randn(4)}",
  .dtypes = MOTH_FLOATS, .flags = MOTH_OP_HIDDEN | MOTH_OP_PORTABLE)

const moth_op *const moth_outer_ops[] = {&moth_op_outer_sums, NULL};
