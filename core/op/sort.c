/* sort.c -- sort, topk, the k-th smallest, the median. Unique elements, counts and searches are in
** unique.c.
**
** Equal elements keep their order, NaN counts as the largest, and the gradient is scattered to the
** positions of the values.
*/
#include "sort.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <math.h>

#include "kernel/sort.h"
#include "create.h"
#include "index.h"
#include "reduce.h"
#include "view.h"

static int64_t size_of(const moth_tensor *x, int32_t d) { return x->l.ndim ? x->l.shape[d] : 1; }

/* Writes the first k elements along dim in sorted order. `values` may be NULL. */
static int sort_into(moth_tensor *values, moth_tensor *indices, const moth_tensor *x, int64_t dim,
                     bool descending) {
  moth_ctx *ctx = x->ctx;
  moth_rows r;
  moth_row_result v = {.work = NULL}, at;
  int32_t d;
  int status = moth_dim(ctx, "dim", dim, x->l.ndim, &d);
  if (status || indices->l.numel == 0) return status;
  status = moth_rows_of(&r, x, x->l.ndim ? 1u << d : 0, moth_compute_dtype(x->l.dtype));
  if (status) return status;
  status = moth_row_result_open(&at, indices, d, MOTH_I64);
  if (!status && values) status = moth_row_result_open(&v, values, d, r.dtype);
  if (!status)
    status = moth_rows_sort(&r, size_of(indices, d), descending, values ? moth_at(v.work) : NULL,
                            (int64_t *)(void *)moth_at(at.work));
  status = moth_row_result_done(&at, status);
  if (values) status = moth_row_result_done(&v, status);
  moth_tensor_release(r.owner);
  return status;
}

/* Scatters the gradient to the positions of the values. */
static int flow_back(moth_grad *g, const moth_tensor *input, int64_t dim) {
  if (!g->dys[0]) return g->status;
  moth_tensor *zeros = GRAD(g, zeros, .size = {input->l.shape, input->l.ndim},
                            .dtype = input->l.dtype, .device = moth_device_of(input));
  return moth_flow(g, input, GRAD(g, scatter, .input = zeros, .dim = dim, .index = g->out[1],
                                  .src = g->dys[0]));
}

/* -- sort, argsort -- */

static int sort_shape(const sort_args *a, moth_layout *y) {
  int32_t d;
  moth_shape_like(a->input, &y[0]);
  moth_shape_like(a->input, &y[1]);
  return moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
}

static int sort_cpu(const sort_args *a, moth_tensor **out) {
  return sort_into(out[0], out[1], a->input, a->dim, a->descending);
}

static int sort_grad(const sort_args *a, moth_grad *g) { return flow_back(g, a->input, a->dim); }

MOTH_OP(sort, SORT, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD, .saves = "indices",
        .outputs = "values, indices: position",
        .doc = "The elements sorted along a dimension, and their positions in the input. NaN "
               "counts as the largest.",
        .examples = "moth.randn(2, 3)  -- domain: distinct\n"
                    "moth.randn(3, 2), {dim = 1, descending = true, stable = true}"
                    "  -- domain: distinct")

static int argsort_shape(const argsort_args *a, moth_layout *y) {
  int32_t d;
  moth_shape_like(a->input, y);
  return moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
}

static int argsort_cpu(const argsort_args *a, moth_tensor **out) {
  return sort_into(NULL, out[0], a->input, a->dim, a->descending);
}

MOTH_OP_CONST(argsort, SORT, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
              .outputs = "indices: position",
              .doc = "The positions that sort a tensor along a dimension.",
              .examples = "moth.randn(2, 3)\n"
                          "moth.randn(3, 2), {dim = 1, descending = true, stable = true}")

static int msort_compose(const msort_args *a, moth_tensor **out) {
  moth_tensor *y[2] = {NULL, NULL};
  int status = MOTH_CALL(a->ctx, y, sort, .input = a->input, .dim = 0);
  moth_tensor_release(y[1]);
  *out = y[0];
  return status;
}

MOTH_OP_COMPOSES(msort, MSORT, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The elements sorted along the first dimension.",
                 .examples = "moth.randn(3, 2)  -- domain: distinct")

/* -- topk -- */

static int topk_shape(const topk_args *a, moth_layout *y) {
  int32_t d;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (status) return status;
  int64_t n = size_of(a->input, d), least = a->input->l.ndim ? 0 : 1;
  if (a->k < least || a->k > n)
    return moth_fail(a->ctx, MOTH_E_ARG, "k", "%lld of the %lld positions of dim " MOTH_POS
                     " of %s are asked for", (long long)a->k, (long long)n, (long long)d,
                     moth_str(a->input));
  for (int i = 0; i < 2; i++) {
    moth_shape_like(a->input, &y[i]);
    if (y[i].ndim) y[i].shape[d] = a->k;
  }
  return MOTH_OK;
}

static int topk_cpu(const topk_args *a, moth_tensor **out) {
  return sort_into(out[0], out[1], a->input, a->dim, a->largest);
}

static int topk_grad(const topk_args *a, moth_grad *g) { return flow_back(g, a->input, a->dim); }

MOTH_OP(topk, TOPK, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD, .saves = "indices",
        .outputs = "values, indices: position",
        .doc = "The k largest or smallest elements along a dimension in order, and their "
               "positions.",
        .examples = "moth.randn(2, 5), 2  -- domain: distinct\n"
                    "moth.randn(3, 2), 2, {dim = 1, largest = false, sorted = false}"
                    "  -- domain: distinct")

/* -- kthvalue, median -- */

/* y := the shape of both results: x without dim d, or with size 1 in dim d. */
static void without(const moth_tensor *x, int32_t d, bool keepdim, moth_layout *y) {
  for (int i = 0; i < 2; i++) {
    y[i].ndim = 0;
    for (int32_t k = 0; k < x->l.ndim; k++)
      if (k != d) y[i].shape[y[i].ndim++] = x->l.shape[k];
      else if (keepdim) y[i].shape[y[i].ndim++] = 1;
  }
}

static int rank_into(moth_tensor **out, const moth_tensor *x, uint32_t mask,
                     const moth_rank *rank) {
  moth_rows r;
  int status = moth_rows_of(&r, x, mask, moth_compute_dtype(x->l.dtype));
  if (status) return status;
  moth_layout l = out[0]->l;
  l.dtype = (uint8_t)r.dtype;
  moth_tensor *work = l.dtype == out[0]->l.dtype ? moth_tensor_retain(out[0])
                                                 : moth_tensor_new(x->ctx, &l);
  status = work ? MOTH_OK : x->ctx->error.code;
  if (!status && out[0]->l.numel)
    status = moth_rows_rank(&r, rank, moth_at(work), (int64_t *)(void *)moth_at(out[1]));
  if (!status && work != out[0]) status = moth_copy_into(out[0], work);
  moth_tensor_release(work);
  moth_tensor_release(r.owner);
  return status;
}

static int rank_flow(moth_grad *g, const moth_tensor *input, int64_t dim, bool keepdim) {
  if (!g->dys[0]) return g->status;
  return moth_flow(g, input, GRAD(g, row_place, .input = g->dys[0], .index = g->out[1],
                                  .dim = dim, .keepdim = keepdim,
                                  .size = {input->l.shape, input->l.ndim}));
}

static int kthvalue_shape(const kthvalue_args *a, moth_layout *y) {
  int32_t d;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (status) return status;
  int64_t n = size_of(a->input, d);
  if (a->k < 1 || a->k > n)
    return moth_fail(a->ctx, MOTH_E_ARG, "k", "number %lld of the %lld positions of dim " MOTH_POS
                     " of %s is asked for", (long long)a->k, (long long)n, (long long)d,
                     moth_str(a->input));
  without(a->input, d, a->keepdim, y);
  return MOTH_OK;
}

static int kthvalue_cpu(const kthvalue_args *a, moth_tensor **out) {
  int32_t d;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  const moth_rank rank = {.k = a->k - 1};
  return status ? status : rank_into(out, a->input, a->input->l.ndim ? 1u << d : 0, &rank);
}

static int kthvalue_grad(const kthvalue_args *a, moth_grad *g) {
  return rank_flow(g, a->input, a->dim, a->keepdim);
}

MOTH_OP(kthvalue, KTHVALUE, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD, .saves = "indices",
        .outputs = "values, indices: position",
        .doc = "The k-th smallest element along a dimension, and its position.",
        .examples = "moth.randn(2, 3), 2  -- domain: distinct\n"
                    "moth.randn(3, 2), 1, {dim = 1, keepdim = true}  -- domain: distinct")

static int median_dim_shape(const median_dim_args *a, moth_layout *y) {
  int32_t d;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (status) return status;
  if (size_of(a->input, d) == 0)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s has no elements to choose from",
                     moth_str(a->input));
  without(a->input, d, a->keepdim, y);
  return MOTH_OK;
}

static int median_dim_cpu(const median_dim_args *a, moth_tensor **out) {
  int32_t d;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  const moth_rank rank = {.k = -1, .share = 0.5};
  return status ? status : rank_into(out, a->input, a->input->l.ndim ? 1u << d : 0, &rank);
}

static int median_dim_grad(const median_dim_args *a, moth_grad *g) {
  return rank_flow(g, a->input, a->dim, a->keepdim);
}

MOTH_OP(median_dim, MEDIAN_DIM, .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN, .saves = "indices",
        .outputs = "values, indices: position",
        .doc = "The median along a dimension (the lower one of two), and its position; NaN wins.",
        .examples = "moth.randn(2, 4), 2  -- domain: distinct\n"
                    "moth.randn(3, 2), 1, {keepdim = true}  -- domain: distinct",
        .public_name = "median")

/* Used by quantiles on the CPU. On other devices quantiles sort the rows. */
static int quantile_of_shape(const quantile_of_args *a, moth_layout *y) {
  int32_t d;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (status) return status;
  if (size_of(a->input, d) == 0 || !(a->share >= 0 && a->share <= 1))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "share", "%g of %s is not an element", a->share,
                     moth_str(a->input));
  without(a->input, d, a->keepdim, y);
  return MOTH_OK;
}

static int quantile_of_cpu(const quantile_of_args *a, moth_tensor **out) {
  int32_t d;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  const moth_rank rank = {.k = -1, .share = a->share, .above = a->above,
                          .skips_nan = a->skip_nan};
  return status ? status : rank_into(out, a->input, a->input->l.ndim ? 1u << d : 0, &rank);
}

static int quantile_of_grad(const quantile_of_args *a, moth_grad *g) {
  return rank_flow(g, a->input, a->dim, a->keepdim);
}

MOTH_OP(quantile_of, QUANTILE_OF, .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN, .saves = "indices",
        .outputs = "values, indices: position",
        .doc = "The element of the sorted rows at a fraction of their length, and its position.",
        .examples = "moth.randn(2, 4), 2, {share = 0.3}  -- domain: distinct\n"
                    "moth.randn(3, 2), 1, true, 0.6, {above = true, skip_nan = true}"
                    "  -- domain: distinct")

static int median_all_compose(const median_all_args *a, moth_tensor **out) {
  static const int64_t all = -1;
  moth_tensor *flat = NULL, *y[2] = {NULL, NULL};
  if (a->input->l.numel == 0 && moth_is_float(a->input->l.dtype)) {
    int made = MOTH_CALL(a->ctx, out, full, .size = {(int64_t[]){0}, 0}, .device =
                         moth_device_of(a->input), .dtype = a->input->l.dtype,
                         .fill_value = {.as.number = NAN});
    return made ? made : moth_attach(out, a->input);
  }
  if (a->input->l.numel == 0)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s has no elements to choose from",
                     moth_str(a->input));
  int status = MOTH_CALL(a->ctx, &flat, reshape, .input = a->input, .shape = {&all, 1});
  if (!status) status = MOTH_CALL(a->ctx, y, median_dim, .input = flat, .dim = 0);
  moth_tensor_release(flat);
  moth_tensor_release(y[1]);
  *out = y[0];
  return status;
}

MOTH_OP_COMPOSES(median_all, MEDIAN_ALL, .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN,
                 .doc = "The median of all elements (the lower one of two); NaN wins; the median "
                        "of an empty tensor is NaN.",
                 .examples = "moth.randn(2, 3)  -- domain: distinct", .public_name = "median")
