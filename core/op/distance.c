/* distance.c -- distances of all pairs of rows of matrices. */
#include "distance.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/distances.h"
#include "tensor/loop.h"
#include "arith.h"
#include "compare.h"
#include "copy.h"
#include "create.h"
#include "gradient_formula.h"
#include "index.h"
#include "position.h"
#include "reduce.h"
#include "unary.h"
#include "view.h"

#define REALS (MOTH_BIT(MOTH_F32) | MOTH_BIT(MOTH_F64))

static int check_rows(const moth_tensor *x1, const moth_tensor *x2, double p) {
  const moth_layout *a = &x1->l, *b = x2 ? &x2->l : a;
  const int32_t n = a->ndim;
  if (n < 2 || n > (x2 ? 3 : 2) || b->ndim != n || b->shape[n - 1] != a->shape[n - 1] ||
      (n == 3 && a->shape[0] != b->shape[0]))
    return moth_fail(x1->ctx, MOTH_E_SHAPE, x2 ? "x2" : "x1",
                     "rows of one length are needed, got %s", moth_str(x2 ? x2 : x1));
  if (p == 1 || p == 2) return MOTH_OK;
  return moth_fail(x1->ctx, MOTH_E_ARG, "p", "1 or 2 is needed, got %g", p);
}

static int distances_shape(const distances_args *a, moth_layout *y) {
  int status = check_rows(a->x1, a->x2, a->p);
  const moth_layout *x = &a->x1->l;
  int64_t size[3], n = x->ndim;
  if (status) return status;
  if (!a->x2) {
    int64_t all;
    if (moth_mul_overflow(x->shape[0], x->shape[0] - 1, &all))
      return moth_fail(a->ctx, MOTH_E_SHAPE, "x1", "%s has too many rows", moth_str(a->x1));
    size[0] = all / 2;
    return moth_shape_of(a->ctx, "x1", (moth_ints){size, 1}, y);
  }
  for (int d = 0; d < n; d++) size[d] = x->shape[d];
  size[n - 1] = a->x2->l.shape[n - 2];
  return moth_shape_of(a->ctx, "x2", (moth_ints){size, n}, y);
}

static moth_distances distances_of(const moth_tensor *x1, const moth_tensor *x2, double p) {
  const moth_layout *a = &x1->l, *b = x2 ? &x2->l : a;
  const int32_t n = a->ndim;
  return (moth_distances){.dtype = a->dtype, .matrices = n == 3 ? a->shape[0] : 1,
                          .rows = a->shape[n - 2], .columns = b->shape[n - 2],
                          .m = a->shape[n - 1], .pairs = !x2, .p = p, .x1 = moth_at(x1),
                          .x2 = moth_at(x2 ? x2 : x1)};
}

static int distances_cpu(const distances_args *a, moth_tensor **out) {
  moth_tensor *x1 = moth_packed(a->x1), *x2 = x1 && a->x2 ? moth_packed(a->x2) : NULL;
  int status = x1 && (x2 || !a->x2) ? MOTH_OK : a->ctx->error.code;
  if (!status && out[0]->l.numel) {
    moth_distances o = distances_of(x1, x2, a->p);
    o.y = moth_at(out[0]);
    if (o.m == 0) memset(o.y, 0, (size_t)(out[0]->l.numel * moth_dtype_size[out[0]->l.dtype]));
    else status = moth_distances_run(a->ctx, &o);
  }
  moth_tensor_release(x1);
  moth_tensor_release(x2);
  return status;
}

/* Returns the contribution of each difference to the gradient of x1, (..., M), as a differentiable
** formula. */
static moth_tensor *parts_of(moth_grad *g, moth_tensor *apart, double p) {
  moth_tensor *y = g->out[0], *none = OF(logical_not, y);
  moth_tensor *unit = p == 2 ? OVER(apart, GRAD(g, unsqueeze, .input = FILLED(y, none, 1),
                                                .dim = -1))
                             : OF(sign, apart);
  return TIMES(unit, GRAD(g, unsqueeze, .input = FILLED(g->dy, none, 0), .dim = -1));
}

static int pairs_formula(const distances_args *a, moth_grad *g) {
  static const int64_t flat = -1;
  const int64_t n = a->x1->l.shape[0];
  moth_tensor *at = GRAD(g, triangle_indices, .row = n, .col = n, .offset = 1, .upper = true,
                         .dtype = MOTH_I64, .device = moth_device_of(a->x1)), *end[2];
  at = GRAD(g, to_index, .input = at);
  for (int i = 0; i < 2; i++) {
    end[i] = GRAD(g, narrow, .input = at, .dim = 0, .start = i, .length = 1);
    end[i] = GRAD(g, reshape, .input = end[i], .shape = {&flat, 1});
  }
  moth_tensor *apart = MINUS(GRAD(g, index_select, .input = a->x1, .dim = 0, .index = end[0]),
                             GRAD(g, index_select, .input = a->x1, .dim = 0, .index = end[1]));
  moth_tensor *parts = parts_of(g, apart, a->p), *sum[2];
  for (int i = 0; i < 2; i++)
    sum[i] = GRAD(g, index_sum, .input = parts, .indices = {&end[i], 1},
                  .size = {a->x1->l.shape, 2});
  return moth_flow(g, a->x1, MINUS(sum[0], sum[1]));
}

static int distances_formula(const distances_args *a, moth_grad *g) {
  const int64_t rows = -3, others = -2;
  if (!a->x2) return pairs_formula(a, g);
  moth_tensor *apart = MINUS(GRAD(g, unsqueeze, .input = a->x1, .dim = -2),
                             GRAD(g, unsqueeze, .input = a->x2, .dim = -3));
  moth_tensor *parts = parts_of(g, apart, a->p);
  if (moth_wants(g, a->x1))
    moth_flow(g, a->x1, GRAD(g, sum, .input = parts, .dim = {&others, 1}, .dtype = -1));
  if (moth_wants(g, a->x2))
    moth_flow(g, a->x2, NEGATED(GRAD(g, sum, .input = parts, .dim = {&rows, 1}, .dtype = -1)));
  return g->status;
}

static int distances_grad(const distances_args *a, moth_grad *g) {
  moth_tensor *dy = g->dy, *y = g->out[0];
  if (a->ctx->grad_mode) return distances_formula(a, g);
  if (moth_wants(g, a->x1))
    moth_flow(g, a->x1, GRAD(g, distances_back, .grad = dy, .output = y, .x1 = a->x1, .x2 = a->x2,
                             .p = a->p));
  if (moth_wants(g, a->x2)) {
    dy = GRAD(g, transpose, .input = dy, .dim0 = -2, .dim1 = -1);
    y = GRAD(g, transpose, .input = y, .dim0 = -2, .dim1 = -1);
    moth_flow(g, a->x2, GRAD(g, distances_back, .grad = dy, .output = y, .x1 = a->x2, .x2 = a->x1,
                             .p = a->p));
  }
  return g->status;
}

MOTH_OP(distances, DISTANCES, .dtypes = REALS, .saves = "x1 x2 y", .flags = MOTH_OP_HIDDEN,
        .doc = "The p-norm distances of all pairs of rows.",
        .examples = "moth.randn(3, 2), moth.randn(4, 2)\n"
                    "moth.randn(2, 3, 2), moth.randn(2, 4, 2), 1\n"
                    "moth.randn(4, 3)", .public_name = "cdist")

static int distances_back_shape(const distances_back_args *a, moth_layout *y) {
  const distances_args of = {.ctx = a->ctx, .x1 = a->x1, .x2 = a->x2, .p = a->p};
  moth_layout l = *y;
  int status = distances_shape(&of, &l);
  if (status) return status;
  if (!moth_shape_same(&l, &a->grad->l) || !moth_shape_same(&l, &a->output->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "grad", "does not fit: %s", moth_str(a->grad));
  return moth_shape_like(a->x1, y);
}

static int distances_back_cpu(const distances_back_args *a, moth_tensor **out) {
  const moth_tensor *given[4] = {a->x1, a->grad, a->output, a->x2};
  moth_tensor *x[4] = {NULL};
  int status = MOTH_OK;
  for (int i = 0; i < 4 && !status; i++)
    if (given[i] && !(x[i] = moth_packed(given[i]))) status = a->ctx->error.code;
  if (!status && out[0]->l.numel) {
    moth_distances o = distances_of(x[0], x[3], a->p);
    o.dy = moth_at(x[1]);
    o.y = moth_at(x[2]);
    o.dx = moth_at(out[0]);
    status = moth_distances_back(a->ctx, &o);
  }
  for (int i = 0; i < 4; i++) moth_tensor_release(x[i]);
  return status;
}

MOTH_OP_CONST(distances_back, DISTANCES_BACK, .dtypes = REALS, .flags = MOTH_OP_HIDDEN,
              .doc = "The gradient of the distances for the first rows.",
              .examples = "moth.randn(3, 4), moth.rand(3, 4), moth.randn(3, 2), moth.randn(4, 2)\n"
                          "moth.randn(6), moth.rand(6), moth.randn(4, 2), nil, 1",
              .public_name = "cdist")

const moth_op *const moth_distance_ops[] = {&moth_op_distances, &moth_op_distances_back, NULL};
