/* gather.c -- indexing along one dimension: slices (index_select, index_add), elements (gather,
** scatter, scatter_add), and one_hot. A position less than the first one is an error. index.h
** declares the arguments.
*/
#include "capture/capture.h"
#include "device/device.h"
#include "kernel/gather.h"
#include "kernel/real.h"
#include "arith.h"
#include "create.h"
#include "index.h"
#include "strided.h"
#include "view.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

/* -- helpers -- */

/* *out := the dimension. The tensor must have at least one. */
static int real_dim(moth_ctx *ctx, int64_t dim, const moth_tensor *x, int32_t *out) {
  if (x->l.ndim > 0) return moth_dim(ctx, "dim", dim, x->l.ndim, out);
  return moth_fail(ctx, MOTH_E_SHAPE, "input", "a tensor with dimensions is needed, got %s",
                   moth_str(x));
}

static void take_shape(moth_layout *y, const moth_tensor *from) {
  moth_shape_like(from, y);
}

/* y := the input, unless y has the input's memory. */
static int begin(moth_tensor *y, const moth_tensor *input) {
  bool here = y->storage->data == input->storage->data && moth_layout_same(&y->l, &input->l);
  return here ? MOTH_OK : moth_copy_into(y, input);
}

/* -- index_select, index_add -- */

static int check_list(moth_ctx *ctx, const moth_tensor *index) {
  if (index->l.ndim <= 1) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, "index", "a list of positions is needed, got %s",
                   moth_str(index));
}

/* Copies slices of base to or from packed values. A list of checked positions selects the
** slices. */
static int move_slices(int mode, moth_tensor *base, int32_t dim, const moth_tensor *list,
                       const moth_tensor *values) {
  moth_ctx *ctx = base->ctx;
  int64_t size = moth_dtype_size[base->l.dtype], n = list->l.numel, bytes = (n ? n : 1) * 8;
  moth_gather_plan plan = {.before = dim, .count = n};
  int64_t step = size;
  for (int32_t d = base->l.ndim - 1; d >= 0; d--) {
    if (d == dim) {
      plan.step = step;
      step *= n;
      continue;
    }
    int32_t at = d < dim ? d : d - 1;
    plan.size[at] = base->l.shape[d];
    plan.base_step[at] = base->l.stride[d] * size;
    plan.value_step[at] = step;
    step *= plan.size[at];
    plan.nwhole++;
  }
  int64_t *offset = moth_alloc(ctx, bytes);
  if (!offset) return ctx->error.code;
  const int64_t *at = (const int64_t *)(const void *)moth_at(list);
  for (int64_t i = 0; i < n; i++)
    offset[i] = (at[i] - list->l.index_base) * base->l.stride[dim] * size;
  plan.offset = offset;
  int status = moth_gather_run(ctx, &plan, mode, base->l.dtype, moth_at(base), moth_at(values));
  moth_dealloc(ctx, offset, bytes);
  return status;
}

static int index_select_shape(const index_select_args *a, moth_layout *y) {
  int32_t dim;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (!status) status = check_list(a->ctx, a->index);
  if (status) return status;
  take_shape(y, a->input);
  y->shape[dim] = a->index->l.numel;
  return MOTH_OK;
}

static int index_select_cpu(const index_select_args *a, moth_tensor **out) {
  int32_t dim;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (status) return status;
  moth_tensor *list =
      moth_gather_positions(a->index, &(moth_reach){a->input, dim, a->input->l.shape[dim]});
  status = list ? move_slices(MOTH_GATHER_GET, a->input, dim, list, out[0]) : a->ctx->error.code;
  moth_tensor_release(list);
  return status;
}


static int index_select_grad(const index_select_args *a, moth_grad *g) {
  moth_tensor *at[MOTH_MAX_DIMS] = {NULL}, *list = a->index;
  static const int64_t flat = -1;
  int32_t dim;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (status) return status;
  if (list->l.ndim == 0) list = GRAD(g, reshape, .input = list, .shape = {&flat, 1});
  at[dim] = list;
  if (!list) return g->status;
  return moth_flow(g, a->input, GRAD(g, index_sum, .input = g->dy, .indices = {at, dim + 1},
                                     .size = {a->input->l.shape, a->input->l.ndim}));
}

MOTH_OP(index_select, INDEX_SELECT, .dtypes = MOTH_ANY, .saves = "index:input",
        .flags = MOTH_OP_OUT | MOTH_OP_FROM_ONE_THERE,
        .doc = "The slices of the input at the given positions of a dimension.",
        .examples = "moth.randn(3, 4), 1, moth.tensor{3LL, 1LL, 3LL}\n"
                    "moth.randn(3, 4), -1, {1, 4}")

static int check_alpha(const index_add_args *a, int dtype) {
  uint8_t as_bool = a->alpha.as.integer != 0;
  const void *value = a->alpha.type == 2 ? (const void *)&as_bool : (const void *)&a->alpha.as;
  int from = a->alpha.type == 0 ? MOTH_F64 : a->alpha.type == 1 ? MOTH_I64 : MOTH_BOOL;
  if (moth_value_fits(from, value, dtype)) return MOTH_OK;
  return moth_fail(a->ctx, MOTH_E_DTYPE, "alpha", "the factor does not fit %s",
                   moth_dtype_name(dtype));
}

static int index_add_shape(const index_add_args *a, moth_layout *y) {
  int32_t dim;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (!status) status = check_list(a->ctx, a->index);
  if (status) return status;
  moth_layout wanted = {.ndim = 0};
  take_shape(&wanted, a->input);
  wanted.shape[dim] = a->index->l.numel;
  if (!moth_shape_same(&wanted, &a->source->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "source", "%s is needed, got %s",
                     moth_str_shape(a->ctx, wanted.ndim, wanted.shape), moth_str(a->source));
  take_shape(y, a->input);
  return check_alpha(a, a->input->l.dtype);
}

static bool is_one(moth_scalar s) { return s.type == 0 ? s.as.number == 1 : s.as.integer == 1; }

/* Returns a packed copy of x times a number; owned. */
static moth_tensor *scaled(const moth_tensor *x, moth_scalar by, int dtype) {
  if (is_one(by) && x->l.dtype == dtype) return moth_packed(x);
  if (is_one(by)) return moth_cast(x, dtype);
  moth_layout l = x->l;
  bool integers = !moth_is_float(dtype);
  l.dtype = integers ? MOTH_I64 : MOTH_F64;
  moth_tensor *work = moth_tensor_new(x->ctx, &l), *y = NULL;
  if (work && !moth_copy_into(work, x)) {
    double number = by.type == 0 ? by.as.number : (double)by.as.integer;
    int64_t integer = by.type == 0 ? (int64_t)by.as.number : by.as.integer;
    moth_slot *at = (moth_slot *)(void *)moth_at(work);
    for (int64_t i = 0; i < l.numel; i++) {
      if (integers) at[i].integer = (int64_t)((uint64_t)at[i].integer * (uint64_t)integer);
      else at[i].number *= number;
    }
    y = moth_cast(work, dtype);
  }
  moth_tensor_release(work);
  return y;
}

static int index_add_cpu(const index_add_args *a, moth_tensor **out) {
  int32_t dim;
  moth_tensor *y = out[0], *work = NULL, *source = NULL;
  int dtype = y->l.dtype, wide = moth_compute_dtype(dtype);
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (status) return status;
  moth_tensor *list =
      moth_gather_positions(a->index, &(moth_reach){a->input, dim, a->input->l.shape[dim]});
  if (list) source = scaled(a->source, a->alpha, wide);
  status = source ? begin(y, a->input) : a->ctx->error.code;
  if (!status) work = wide == dtype ? moth_tensor_retain(y) : moth_cast(y, wide);
  if (!status)
    status = work ? move_slices(MOTH_GATHER_ADD, work, dim, list, source) : a->ctx->error.code;
  if (!status && work != y) status = moth_copy_into(y, work);
  moth_tensor_release(work);
  moth_tensor_release(source);
  moth_tensor_release(list);
  return status;
}

static int index_add_grad(const index_add_args *a, moth_grad *g) {
  if (moth_wants(g, a->input)) moth_flow(g, a->input, g->dy);
  if (moth_wants(g, a->source)) {
    moth_tensor *d = GRAD(g, index_select, .input = g->dy, .dim = a->dim, .index = a->index);
    double alpha = a->alpha.type == 0 ? a->alpha.as.number : (double)a->alpha.as.integer;
    if (!is_one(a->alpha)) d = GRAD(g, mul, .input = d, .other = moth_grad_number(g, alpha));
    moth_flow(g, a->source, d);
  }
  return g->status;
}

MOTH_OP(index_add, INDEX_ADD, .dtypes = MOTH_ANY, .saves = "index:source",
        .flags = MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_FROM_ONE_THERE,
        .doc = "The input with the slices of `source`, times alpha, added at the given positions "
               "of a dimension.",
        .examples = "moth.randn(3, 4), 1, moth.tensor{3LL, 1LL, 3LL}, moth.randn(3, 4)\n"
                    "moth.randn(3, 4), 2, {1, 4}, moth.randn(3, 2), {alpha = 2}")

/* -- gather, scatter, scatter_add -- */

/* Checks that `index` has as many dimensions as x, and is not longer than x in any dimension except
** `but` (-1: no exception). */
static int check_index(const moth_tensor *index, const char *arg, const moth_tensor *x,
                       int32_t but) {
  bool fits = index->l.ndim == x->l.ndim;
  for (int32_t d = 0; d < x->l.ndim && fits; d++)
    fits = d == but || index->l.shape[d] <= x->l.shape[d];
  if (fits) return MOTH_OK;
  return moth_fail(x->ctx, MOTH_E_SHAPE, "index", "%s does not fit %s, which is %s",
                   moth_str(index), arg, moth_str(x));
}

/* Returns the part of x with the sizes of `index`. If `hold` is a dimension, all its positions are
** the first position of x. Owned. */
static moth_tensor *covered(const moth_tensor *x, const moth_tensor *index, int32_t hold) {
  moth_layout l = x->l;
  l.numel = index->l.numel;
  for (int32_t d = 0; d < l.ndim; d++) l.shape[d] = index->l.shape[d];
  if (hold >= 0 && l.ndim > 0) {
    l.offset -= index->l.index_base * l.stride[hold];
    l.stride[hold] = 0;
  }
  return moth_tensor_like(x->ctx, &l, x->storage);
}

/* Returns the bounds of positions along dim. A 0-d tensor counts as 1-d. */
static moth_reach reach_of(const moth_tensor *x, int32_t dim) {
  return (moth_reach){x, dim, x->l.ndim ? x->l.shape[dim] : 1};
}

/* Returns the positions of `index`, packed. If they are the same for all other dimensions, as in an
** expanded list, returns the list: then whole slices can be copied. */
static moth_tensor *positions_of(const moth_tensor *index, int32_t dim) {
  moth_layout l = index->l;
  bool list = l.ndim > 1 && l.numel != l.shape[dim] && l.numel > 0;
  for (int32_t d = 0; d < l.ndim && list; d++)
    list = d == dim || l.shape[d] == 1 || l.stride[d] == 0;
  if (!list) return moth_positions(index);
  l.shape[0] = l.numel = l.shape[dim];
  l.stride[0] = l.stride[dim];
  l.ndim = 1;
  moth_tensor *seen = moth_tensor_like(index->ctx, &l, index->storage);
  moth_tensor *at = seen ? moth_positions(seen) : NULL;
  moth_tensor_release(seen);
  return at;
}

/* Copies slices between values and the part of base with the sizes of `index`, at the positions in
** a list. */
static int move_list(int mode, moth_tensor *base, int32_t dim, const moth_tensor *index,
                     const moth_tensor *list, const moth_tensor *values) {
  moth_tensor *held = covered(base, index, -1), *part = held ? covered(values, index, -1) : NULL;
  /* a tensor that is written is packed already */
  moth_tensor *packed = part ? moth_packed(part) : NULL;
  int status = packed ? move_slices(mode, held, dim, list, packed) : base->ctx->error.code;
  moth_tensor_release(packed);
  moth_tensor_release(part);
  moth_tensor_release(held);
  return status;
}

/* Copies between values[...] and base[... index[...] in dim ...]; `at` has the positions of
** `index`. A 0-d tensor of values is broadcast. */
static int move_along(int mode, moth_tensor *base, int32_t dim, const moth_tensor *index,
                      const moth_tensor *at, const moth_tensor *values, const moth_reach *reach) {
  if (at->l.ndim < index->l.ndim && values->l.ndim) {
    const int status = reach ? moth_gather_check_positions(at, reach) : MOTH_OK;
    return status ? status : move_list(mode, base, dim, index, at, values);
  }
  int64_t step = base->l.ndim ? base->l.stride[dim] * moth_dtype_size[base->l.dtype] : 0;
  moth_tensor *held = covered(base, index, dim);
  moth_tensor *part = values->l.ndim ? covered(values, index, -1)
                                     : moth_tensor_like(base->ctx, &values->l, values->storage);
  int status = base->ctx->error.code;
  if (held && part) status = moth_gather_along(base->ctx, mode, at, part, held, step, reach);
  moth_tensor_release(part);
  moth_tensor_release(held);
  return status;
}

int moth_scatter(int mode, const moth_tensor *of, moth_tensor *base, int32_t dim,
                 const moth_tensor *index, const moth_tensor *values) {
  const moth_reach reach = reach_of(of, dim);
  moth_tensor *at = positions_of(index, dim);
  int status = at ? moth_gather_check_positions(at, &reach) : base->ctx->error.code;
  if (!status) status = move_along(mode, base, dim, index, at, values, NULL);
  moth_tensor_release(at);
  return status;
}

static int gather_shape(const gather_args *a, moth_layout *y) {
  int32_t dim;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &dim);
  if (!status) status = check_index(a->index, "the input", a->input, dim);
  if (!status) take_shape(y, a->index);
  return status;
}

static int gather_cpu(const gather_args *a, moth_tensor **out) {
  int32_t dim;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &dim);
  if (status) return status;
  const moth_reach reach = reach_of(a->input, dim);
  moth_tensor *at = positions_of(a->index, dim);
  status = at ? move_along(MOTH_GATHER_GET, a->input, dim, a->index, at, out[0], &reach)
              : a->ctx->error.code;
  moth_tensor_release(at);
  return status;
}

static int gather_grad(const gather_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, gather_back, .input = g->dy, .dim = a->dim,
                                     .index = a->index,
                                     .size = {a->input->l.shape, a->input->l.ndim}));
}

MOTH_OP(gather, GATHER, .dtypes = MOTH_ANY, .saves = "index:input",
        .flags = MOTH_OP_OUT | MOTH_OP_FROM_ONE,
        .doc = "Gathers elements along a dimension: y[i][j] = input[index[i][j]][j] for dim 1.",
        .examples = "moth.randn(3, 4), 2, moth.tensor{{1LL, 4LL}, {2LL, 2LL}, {3LL, 1LL}}\n"
                    "moth.randn(3, 2), 1, moth.tensor{{3LL, 1LL}}")

/* -- the gradient of gather: zeros to which values are added -- */

static int gather_back_shape(const gather_back_args *a, moth_layout *y) {
  int32_t dim;
  int status = moth_shape_of(a->ctx, "size", a->size, y);
  if (status) return status;
  const moth_tensor like = {.ctx = a->ctx, .l = *y};
  status = moth_dim(a->ctx, "dim", a->dim, y->ndim, &dim);
  if (!status) status = check_index(a->index, "the result", &like, dim);
  return status ? status : check_index(a->index, "the input", a->input, -1);
}

static int gather_back_cpu(const gather_back_args *a, moth_tensor **out) {
  int32_t dim;
  moth_tensor *y = moth_real_out(out[0]);
  int status = moth_dim(a->ctx, "dim", a->dim, out[0]->l.ndim, &dim);
  moth_tensor *at = y && !status ? positions_of(a->index, dim) : NULL;
  moth_tensor *from = at ? moth_real(a->input) : NULL;
  status = from ? moth_real_clear(y) : a->ctx->error.code;
  if (!status) {
    const moth_reach reach = reach_of(y, dim);
    status = move_along(MOTH_GATHER_ADD, y, dim, a->index, at, from, &reach);
  }
  moth_tensor_release(from);
  moth_tensor_release(at);
  return moth_real_done(y, out[0], status);
}

static int gather_back_grad(const gather_back_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, gather, .input = g->dy, .dim = a->dim, .index = a->index));
}

MOTH_OP(gather_back, GATHER_BACK, .dtypes = MOTH_FLOATS, .saves = "index",
        .flags = MOTH_OP_HIDDEN | MOTH_OP_FROM_ONE,
        .doc = "The gradient of gather: zeros with values added at the given positions.",
        .examples = "moth.randn(3, 2), 2, moth.tensor{{1LL, 4LL}, {2LL, 2LL}, {3LL, 1LL}}, {3, 4}")

/* Shape rule and kernel of scatter and scatter_add. */
static int scatter_rule(moth_tensor *input, int64_t dim_arg, const moth_tensor *index,
                        const moth_tensor *src, moth_layout *y) {
  int32_t dim;
  int status = moth_dim(input->ctx, "dim", dim_arg, input->l.ndim, &dim);
  if (!status) status = check_index(index, "the input", input, dim);
  if (!status && !(src->flags & MOTH_T_NUMBER)) status = check_index(index, "src", src, -1);
  if (!status) status = moth_gather_check("src", src, input->l.dtype);
  y->dtype = input->l.dtype;
  if (!status) take_shape(y, input);
  return status;
}

static int scatter_run(int mode, moth_tensor *input, int64_t dim_arg, moth_tensor *index,
                       const moth_tensor *src, moth_tensor *y) {
  moth_ctx *ctx = y->ctx;
  int32_t dim;
  bool wide = mode == MOTH_GATHER_ADD && moth_is_half(y->l.dtype);
  int status = moth_dim(ctx, "dim", dim_arg, input->l.ndim, &dim);
  if (status) return status;
  const moth_reach reach = reach_of(input, dim);
  moth_tensor *at = src->l.ndim ? positions_of(index, dim) : moth_positions(index);
  status = at ? moth_gather_check_positions(at, &reach) : ctx->error.code;
  moth_tensor *values =
      !status ? moth_gather_values("src", src, wide ? MOTH_F32 : y->l.dtype) : NULL;
  moth_tensor *work = NULL;
  status = values ? begin(y, input) : ctx->error.code;
  if (!status) work = wide ? moth_cast(y, MOTH_F32) : moth_tensor_retain(y);
  if (!status)
    status = work ? move_along(mode, work, dim, index, at, values, NULL) : ctx->error.code;
  if (!status && wide) status = moth_copy_into(y, work);
  moth_tensor_release(work);
  moth_tensor_release(values);
  moth_tensor_release(at);
  return status;
}

/* The gradient of src: dy's elements for the part with the sizes of `index`, else 0. */
static int src_flow(moth_grad *g, moth_tensor *src, int64_t dim, moth_tensor *index) {
  moth_tensor *d = GRAD(g, gather, .input = g->dy, .dim = dim, .index = index);
  if (src->flags & MOTH_T_NUMBER || moth_shape_same(&src->l, &index->l))
    return moth_flow(g, src, d);
  moth_layout base = src->l;
  moth_layout_pack(&base);
  d = GRAD(g, strided_sum, .input = d, .base_size = {base.shape, base.ndim},
           .base_stride = {base.stride, base.ndim}, .base_offset = 0,
           .size = {index->l.shape, index->l.ndim}, .stride = {base.stride, base.ndim},
           .offset = 0);
  return moth_flow(g, src, d);
}

/* Operands of different dtypes are an error; only a number may be converted. */
static int scatter_shape(const scatter_args *a, moth_layout *y) {
  if (a->src->l.ndim && a->src->l.dtype != a->input->l.dtype)
    return moth_fail(a->ctx, MOTH_E_DTYPE, "src",
                     "%s does not match 'input', %s; convert one of them with :to()",
                     moth_str(a->src), moth_str(a->input));
  return scatter_rule(a->input, a->dim, a->index, a->src, y);
}

static int scatter_cpu(const scatter_args *a, moth_tensor **out) {
  return scatter_run(MOTH_GATHER_PUT, a->input, a->dim, a->index, a->src, out[0]);
}

static int scatter_grad(const scatter_args *a, moth_grad *g) {
  if (moth_wants(g, a->input))
    moth_flow(g, a->input, GRAD(g, scatter, .input = g->dy, .dim = a->dim, .index = a->index,
                                .src = moth_grad_number(g, 0)));
  if (moth_wants(g, a->src)) src_flow(g, a->src, a->dim, a->index);
  return g->status;
}

MOTH_OP(scatter, SCATTER, .dtypes = MOTH_ANY, .saves = "index",
        .flags = MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_MIXED |
                 MOTH_OP_NUMBERS | MOTH_OP_FROM_ONE,
        .doc = "The input with values of `src` written at positions along a dimension: "
               "y[index[i][j]][j] = src[i][j] for dim 1. If a position occurs more than once, one "
               "of its values is kept.",
        .examples = "moth.randn(3, 4), 2, moth.tensor{{1LL}, {4LL}, {2LL}}, moth.randn(3, 1)\n"
                    "moth.randn(2, 3), 1, moth.tensor{{2LL, 1LL}}, 5")

static int scatter_add_shape(const scatter_add_args *a, moth_layout *y) {
  return scatter_rule(a->input, a->dim, a->index, a->src, y);
}

static int scatter_add_cpu(const scatter_add_args *a, moth_tensor **out) {
  return scatter_run(MOTH_GATHER_ADD, a->input, a->dim, a->index, a->src, out[0]);
}

static int scatter_add_grad(const scatter_add_args *a, moth_grad *g) {
  if (moth_wants(g, a->input)) moth_flow(g, a->input, g->dy);
  if (moth_wants(g, a->src)) src_flow(g, a->src, a->dim, a->index);
  return g->status;
}

MOTH_OP(scatter_add, SCATTER_ADD, .dtypes = MOTH_ANY, .saves = "index:src",
        .flags = MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_FROM_ONE,
        .doc = "The input with values of `src` added at positions along a dimension: "
               "y[index[i][j]][j] += src[i][j] for dim 1.",
        .examples = "moth.randn(3, 4), 2, moth.tensor{{1LL, 1LL}, {4LL, 2LL}, {2LL, 2LL}}, "
                    "moth.randn(3, 2)\n"
                    "moth.randn(2, 3), 1, moth.tensor{{2LL, 1LL}}, moth.randn(2, 3)")

/* -- one_hot -- */

static void largest_run(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  int64_t *largest = (int64_t *)(uintptr_t)arg;
  for (int64_t i = 0; i < n; i++) {
    int64_t v = *(const int64_t *)(const void *)(at[0] + i * step[0]);
    if (v > *largest) *largest = v;
  }
}

static int largest_of(const moth_tensor *x, int64_t *largest) {
  moth_loop loop;
  moth_tensor *here = moth_to_host(x);
  if (!here) return x->ctx->error.code;
  moth_loop_over(&loop, x->ctx, &here->l, 1, (const moth_tensor *const[]){here});
  int status = moth_loop_run(&loop, largest_run, largest);
  moth_tensor_release(here);
  return status;
}

static int one_hot_shape(const one_hot_args *a, moth_layout *y) {
  int64_t classes = a->num_classes, largest = -1;
  if (a->input->l.ndim == MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s has too many dimensions to add one",
                     moth_str(a->input));
  if (classes == MOTH_NO_INT || classes == -1) {
    /* on the CPU, a replay checks that the values need the same number of classes */
    if (a->input->l.device && moth_capture_refuse_shape(a->ctx, "one_hot"))
      return a->ctx->error.code;
    int status = largest_of(a->input, &largest);
    if (status) return status;
    if (a->input->l.numel == 0)
      return moth_fail(a->ctx, MOTH_E_ARG, "num_classes", "is needed for the empty %s",
                       moth_str(a->input));
    if (largest == INT64_MAX) largest--; /* an error follows: too many classes */
    classes = largest < 0 ? 1 : largest + 1;
  }
  if (classes < 1)
    return moth_fail(a->ctx, MOTH_E_ARG, "num_classes", "at least one class is needed, got %lld",
                     (long long)classes);
  take_shape(y, a->input);
  y->shape[y->ndim++] = classes;
  y->dtype = MOTH_I64;
  return MOTH_OK;
}

static int one_hot_cpu(const one_hot_args *a, moth_tensor **out) {
  int64_t n = a->input->l.numel, classes = out[0]->l.shape[out[0]->l.ndim - 1];
  moth_tensor *list = moth_positions(a->input);
  if (!list) return a->ctx->error.code;
  const int64_t *at = (const int64_t *)(const void *)moth_at(list);
  int64_t *y = (int64_t *)(void *)moth_at(out[0]);
  int64_t largest = -1;
  int status = MOTH_OK;
  if (n) memset(y, 0, (size_t)out[0]->l.numel * sizeof *y);
  for (int64_t i = 0; i < n && !status; i++) {
    if (at[i] > largest) largest = at[i];
    if (at[i] >= 0 && at[i] < classes) y[i * classes + at[i]] = 1;
    else
      status = moth_fail(a->ctx, MOTH_E_INDEX, "input",
                         "class " MOTH_POS " is out of range: the %lld classes count "
                                           "from " MOTH_POS,
                         (long long)at[i], (long long)classes, 0LL);
  }
  moth_tensor_release(list);
  if (!status && largest >= 0 && largest + 1 < classes &&
      (a->num_classes == MOTH_NO_INT || a->num_classes == -1))
    status = moth_fail(a->ctx, MOTH_E_INDEX, "num_classes",
                       "the step was captured with %lld classes, but the largest is now " MOTH_POS
                       "; give the number of classes", (long long)classes, (long long)largest);
  return status;
}

MOTH_OP_CONST(one_hot, ONE_HOT, .dtypes = MOTH_ANY,
              .doc = "One-hot vectors: a new last dimension that is 1 at the given position and 0 "
                     "elsewhere.",
              .examples = "moth.tensor{3LL, 1LL}\n"
                          "moth.tensor{{2LL}, {1LL}}, {num_classes = 4}")
