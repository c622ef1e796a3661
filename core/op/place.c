/* place.c -- further ops on elements at positions, composed of the ops in index.c and gather.c.
** index.h declares the arguments; index.c lists the ops.
*/
#include "capture/capture.h"
#include "device/device.h"
#include "tensor/loop.h"
#include "copy.h"
#include "index.h"
#include "reduce.h"
#include "view.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

static const int64_t flat = -1;

/* -- index_copy, index_fill: advanced indexing along one dimension -- */

/* Returns indices for index_put that select the slices of `dim` at a list of checked positions. */
static int slices_at(moth_ctx *ctx, const moth_tensor *input, int64_t dim,
                     const moth_tensor *index, int32_t *d) {
  if (input->l.ndim == 0)
    return moth_fail(ctx, MOTH_E_SHAPE, "input", "a tensor with dimensions is needed, got %s",
                     moth_str(input));
  int status = moth_dim(ctx, "dim", dim, input->l.ndim, d);
  if (status || index->l.ndim <= 1) return status;
  return moth_fail(ctx, MOTH_E_SHAPE, "index", "a list of positions is needed, got %s",
                   moth_str(index));
}

static void lowest_run(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  int64_t *lowest = (int64_t *)(uintptr_t)arg;
  for (int64_t i = 0; i < n; i++) {
    int64_t v = *(const int64_t *)(const void *)(at[0] + i * step[0]);
    if (v < *lowest) *lowest = v;
  }
}

/* y := input with `values` at the positions. index_put would count negative positions from the end;
** here they are an error if the check needs no synchronization. */
static int put_slices(moth_ctx *ctx, moth_tensor *input, int32_t dim, moth_tensor *index,
                      moth_tensor *values, moth_tensor **y) {
  moth_tensor *at[MOTH_MAX_DIMS] = {NULL}, *list = NULL;
  int64_t lowest = 0;
  moth_loop loop;
  moth_loop_over(&loop, ctx, &index->l, 1, (const moth_tensor *const[]){index});
  int status = index->l.device ? MOTH_OK : moth_loop_run(&loop, lowest_run, &lowest);
  if (status) return status;
  if (lowest < 0)
    return moth_fail(ctx, MOTH_E_INDEX, "index", "positions count from " MOTH_POS " here, got "
                     MOTH_POS, 0LL, (long long)lowest);
  status = MOTH_CALL(ctx, &list, reshape, .input = index, .shape = {&flat, 1});
  at[dim] = list;
  if (!status)
    status = MOTH_CALL(ctx, y, index_put, .input = input, .indices = {at, dim + 1},
                       .values = values);
  moth_tensor_release(list);
  return status;
}

static int index_copy_compose(const index_copy_args *a, moth_tensor **out) {
  int32_t dim;
  int status = slices_at(a->ctx, a->input, a->dim, a->index, &dim);
  if (status) return status;
  moth_layout wanted = a->input->l;
  wanted.shape[dim] = a->index->l.numel;
  if (!moth_shape_same(&wanted, &a->source->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "source", "%s is needed, got %s",
                     moth_str_shape(a->ctx, wanted.ndim, wanted.shape), moth_str(a->source));
  return put_slices(a->ctx, a->input, dim, a->index, a->source, out);
}

MOTH_OP_COMPOSES(index_copy, INDEX_COPY, .dtypes = MOTH_ANY,
                 .flags = MOTH_OP_INPLACE | MOTH_OP_FROM_ONE_THERE,
                 .doc = "The input with the slices of `source` written at the given positions of a "
                        "dimension.",
                 .examples = "moth.randn(3, 4), 1, moth.tensor{3LL, 1LL}, moth.randn(2, 4)\n"
                             "moth.randn(3, 4), -1, {2}, moth.randn(3, 1)")

static int index_fill_compose(const index_fill_args *a, moth_tensor **out) {
  int32_t dim;
  moth_tensor *value = NULL;
  moth_layout l = {.ndim = 0, .dtype = a->input->l.dtype, .numel = 1};
  int status = slices_at(a->ctx, a->input, a->dim, a->index, &dim);
  if (status) return status;
  moth_tensor *filled = NULL;
  value = moth_tensor_new(a->ctx, &l);
  if (!value) return a->ctx->error.code;
  status = MOTH_CALL(a->ctx, &filled, fill_, .input = value, .value = a->value);
  moth_tensor_release(filled);
  if (!status) status = put_slices(a->ctx, a->input, dim, a->index, value, out);
  moth_tensor_release(value);
  return status;
}

MOTH_OP_COMPOSES(index_fill, INDEX_FILL, .dtypes = MOTH_ANY,
                 .flags = MOTH_OP_INPLACE | MOTH_OP_FROM_ONE_THERE,
                 .doc = "The input with one value written at the given positions of a dimension.",
                 .examples = "moth.randn(3, 4), 1, moth.tensor{3LL, 1LL}, 2\n"
                             "moth.randn(3, 4), -1, {2}, 0")

/* -- take, take_along_dim -- */

static int take_compose(const take_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *at = NULL, *y = NULL;
  int status = MOTH_CALL(a->ctx, &x, reshape, .input = a->input, .shape = {&flat, 1});
  if (!status) status = MOTH_CALL(a->ctx, &at, reshape, .input = a->index, .shape = {&flat, 1});
  if (at) at->l.index_base = a->index->l.index_base;
  if (!status) status = MOTH_CALL(a->ctx, &y, gather, .input = x, .dim = 0, .index = at);
  if (!status)
    status = MOTH_CALL(a->ctx, out, reshape, .input = y,
                       .shape = {a->index->l.shape, a->index->l.ndim});
  moth_tensor_release(x);
  moth_tensor_release(at);
  moth_tensor_release(y);
  return status;
}

MOTH_OP_COMPOSES(take, TAKE, .dtypes = MOTH_ANY, .flags = MOTH_OP_FROM_ONE,
                 .doc = "The elements at the given positions of the flattened input.",
                 .examples = "moth.randn(2, 3), moth.tensor{{6LL, 1LL}, {2LL, 2LL}}")

static int flatten_take(const take_along_dim_args *a, moth_tensor **out) {
  moth_tensor *at = NULL;
  int status = MOTH_CALL(a->ctx, &at, reshape, .input = a->indices, .shape = {&flat, 1});
  if (at) at->l.index_base = a->indices->l.index_base;
  if (!status) status = MOTH_CALL(a->ctx, out, take, .input = a->input, .index = at);
  moth_tensor_release(at);
  return status;
}

static int take_along_dim_compose(const take_along_dim_args *a, moth_tensor **out) {
  int32_t d;
  if (a->dim == MOTH_NO_INT) return flatten_take(a, out);
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (status) return status;
  moth_layout p = a->input->l, q = a->indices->l;
  bool fits = p.ndim == q.ndim;
  for (int32_t k = 0; fits && k < p.ndim; k++) {
    if (k == d) continue;
    fits = p.shape[k] == q.shape[k] || p.shape[k] == 1 || q.shape[k] == 1;
    if (p.shape[k] == 1) p.shape[k] = q.shape[k];
    q.shape[k] = p.shape[k];
  }
  if (!fits)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "indices",
                     "%s cannot be broadcast with %s outside of dim " MOTH_POS,
                     moth_str(a->indices), moth_str(a->input), (long long)d);
  moth_tensor *x = NULL, *at = NULL;
  status = MOTH_CALL(a->ctx, &x, expand, .input = a->input, .size = {p.shape, p.ndim});
  if (!status)
    status = MOTH_CALL(a->ctx, &at, expand, .input = a->indices, .size = {q.shape, q.ndim});
  if (!status) status = MOTH_CALL(a->ctx, out, gather, .input = x, .dim = d, .index = at);
  moth_tensor_release(x);
  moth_tensor_release(at);
  return status;
}

MOTH_OP_COMPOSES(take_along_dim, TAKE_ALONG_DIM, .dtypes = MOTH_ANY, .flags = MOTH_OP_FROM_ONE,
                 .doc = "The elements at the given positions along a dimension, such as the "
                        "results of argsort and argmax.",
                 .examples = "moth.randn(3, 4), moth.tensor{{1LL}, {4LL}, {2LL}}, {dim = 2}\n"
                             "moth.randn(2, 3), moth.tensor{6LL, 1LL}")

/* -- argwhere, masked_scatter -- */

static int argwhere_compose(const argwhere_args *a, moth_tensor **out) {
  return MOTH_CALL(a->ctx, out, nonzero, .input = a->input);
}

MOTH_OP_COMPOSES(argwhere, ARGWHERE, .dtypes = MOTH_ANY, .outputs = "positions: position",
                 .flags = MOTH_OP_METHOD,
                 .doc = "The positions of all elements that are not zero, one row each.",
                 .examples = "moth.tensor{{0LL, 1LL}, {2LL, 0LL}}")

/* y := the first n elements of source. */
static int first_of(moth_ctx *ctx, moth_tensor *source, int64_t n, moth_tensor **y) {
  moth_tensor *all = NULL;
  if (n > source->l.numel)
    return moth_fail(ctx, MOTH_E_SHAPE, "source", "%lld elements are needed, got %s",
                     (long long)n, moth_str(source));
  int status = MOTH_CALL(ctx, &all, reshape, .input = source, .shape = {&flat, 1});
  if (!status)
    status = MOTH_CALL(ctx, y, narrow, .input = all, .dim = 0, .start = 0, .length = n);
  moth_tensor_release(all);
  return status;
}

static int masked_scatter_compose(const masked_scatter_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *mask = NULL, *count = NULL, *values = NULL, *y = NULL, *here = NULL;
  moth_layout l = {.ndim = 0};
  int status = moth_broadcast(a->ctx, "mask", &l, a->input, a->mask);
  if (!status) status = moth_capture_refuse_shape(a->ctx, "masked_scatter");
  const moth_layout result = l;
  if (l.ndim == 0) l.ndim = 1, l.shape[0] = 1;
  const moth_ints size = {l.shape, l.ndim};
  if (!status) status = MOTH_CALL(a->ctx, &x, expand, .input = a->input, .size = size);
  if (!status) status = MOTH_CALL(a->ctx, &mask, expand, .input = a->mask, .size = size);
  if (!status) status = MOTH_CALL(a->ctx, &count, count_nonzero, .input = mask);
  if (!status && !(here = moth_to_host(count))) status = a->ctx->error.code;
  if (!status)
    status = first_of(a->ctx, a->source, *(const int64_t *)(const void *)moth_at(here), &values);
  if (!status)
    status = MOTH_CALL(a->ctx, &y, index_put, .input = x, .indices = {&mask, 1},
                       .values = values);
  if (!status)
    status = MOTH_CALL(a->ctx, out, reshape, .input = y, .shape = {result.shape, result.ndim});
  moth_tensor_release(y);
  moth_tensor_release(values);
  moth_tensor_release(here);
  moth_tensor_release(count);
  moth_tensor_release(mask);
  moth_tensor_release(x);
  return status;
}

MOTH_OP_COMPOSES(masked_scatter, MASKED_SCATTER, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE,
                 .doc = "The input with elements of `source`, in order, where the mask is true.",
                 .examples = "moth.randn(2, 3), "
                             "moth.tensor{{true, false, true}, {false, true, true}}, moth.randn(5)")
