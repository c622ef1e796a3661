/* part.c -- views of some of a tensor's elements: a position, a range, a diagonal, any strides; and
** ops that split a tensor into several views. view.h declares the arguments.
**
** Gradients are computed as if the input were dense with the same order of dimensions in memory:
** strided_sum has a fast path for dense layouts. Only as_strided needs the real layout.
*/
#include "base/context.h"
#include "autograd/tape.h"
#include "arith.h"
#include "reduce.h"
#include "strided.h"
#include "view.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

/* -- helpers -- */

/* Moves the start of a layout by n positions. An empty tensor keeps its start: its strides may have
** any value. */
static void advance(moth_layout *y, int64_t n, int64_t stride) {
  if (y->numel) y->offset += n * stride;
}

/* *out := the dimension. The tensor must have at least one. */
static int real_dim(moth_ctx *ctx, int64_t dim, const moth_tensor *x, int32_t *out) {
  if (x->l.ndim > 0) return moth_dim(ctx, "dim", dim, x->l.ndim, out);
  return moth_fail(ctx, MOTH_E_SHAPE, "input", "a tensor with dimensions is needed, got %s",
                   moth_str(x));
}

int moth_attach(moth_tensor **y, moth_tensor *x) {
  moth_ctx *ctx = x->ctx;
  const int64_t all = -1, size = x->l.numel;
  moth_tensor *flat = NULL, *none = NULL, *zero = NULL, *sum = NULL;
  if (!ctx->grad_mode || !moth_needs_grad(x)) return MOTH_OK;
  int status = MOTH_CALL(ctx, &flat, reshape, .input = x,
                         .shape = {size ? &all : &size, 1});
  if (!status) status = MOTH_CALL(ctx, &none, narrow, .input = flat, .dim = 0, .length = 0);
  if (!status) status = MOTH_CALL(ctx, &zero, sum, .input = none, .dtype = (*y)->l.dtype);
  if (!status)
    status = MOTH_CALL(ctx, &sum, add, .input = *y, .other = zero,
                       .alpha = {.type = 1, .as.integer = 1});
  moth_tensor_release(flat);
  moth_tensor_release(none);
  moth_tensor_release(zero);
  moth_tensor_release(*y);
  *y = sum;
  return status;
}

/* Returns the gradient of a base: zeros of layout `base`, with dy added through the view v. */
static moth_tensor *laid(moth_grad *g, const moth_layout *base, const moth_layout *v) {
  return GRAD(g, strided_sum, .input = g->dy, .base_size = {base->shape, base->ndim},
              .base_stride = {base->stride, base->ndim}, .base_offset = base->offset,
              .size = {v->shape, v->ndim}, .stride = {v->stride, v->ndim}, .offset = v->offset);
}

/* Returns the layout of a gradient of x: packed, with one exception. If only the gradient of a view
** uses it, it has x's order of dimensions in memory, without gaps or repeats; then the tensor that
** x was permuted from gets a packed gradient. `order` lists the dimensions, outermost first. */
static moth_layout without_gaps(const moth_grad *g, const moth_tensor *input,
                                int64_t order[MOTH_MAX_DIMS]) {
  const bool may_reorder = moth_flow_unseen(g, input);
  const moth_layout *x = &input->l;
  moth_layout y = *x;
  int64_t step = 1;
  for (int32_t d = 0; d < x->ndim; d++) {
    int32_t at = d;
    for (; may_reorder && at > 0 && x->stride[order[at - 1]] < x->stride[d]; at--)
      order[at] = order[at - 1];
    order[at] = d;
  }
  y.offset = 0;
  for (int32_t d = x->ndim - 1; d >= 0; d--) {
    y.stride[order[d]] = step;
    /* no overflow, since the tensor exists */
    step *= x->shape[order[d]] > 0 ? x->shape[order[d]] : 1;
  }
  return y;
}

/* Adds the gradient of a view of `base`, the dense layout of the input. */
static int embed(moth_grad *g, const moth_tensor *input, const moth_layout *base,
                 const moth_layout *v, const int64_t order[MOTH_MAX_DIMS]) {
  bool done, reordered = false;
  const int status = moth_flow_part(g, input, base, v, &done);
  if (status || done) return status;
  moth_layout packed = *base;
  int64_t back[MOTH_MAX_DIMS];
  for (int32_t d = 0; d < base->ndim; d++) {
    packed.shape[d] = base->shape[order[d]];
    packed.stride[d] = base->stride[order[d]];
    back[order[d]] = d;
    reordered |= order[d] != d;
  }
  moth_tensor *dx = laid(g, &packed, v);
  /* a tensor, not a view: other gradients can be added to it in place */
  if (dx && reordered && !g->ctx->grad_mode)
    dx = moth_grad_own(g, moth_tensor_like(g->ctx, base, dx->storage));
  else if (reordered)
    dx = GRAD(g, permute, .input = dx, .dims = {back, base->ndim});
  return moth_flow(g, input, dx);
}

#define PART_GRAD(op)                                               \
  static int op##_grad(const op##_args *a, moth_grad *g) {          \
    int64_t order[MOTH_MAX_DIMS];                                   \
    const moth_layout base = without_gaps(g, a->input, order);      \
    moth_layout v = base;                                           \
    int status = op##_view(a, &v);                                  \
    return status ? status : embed(g, a->input, &base, &v, order);  \
  }

/* -- narrow -- */

static int narrow_view(const narrow_args *a, moth_layout *y) {
  int32_t dim;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (status) return status;
  int64_t size = y->shape[dim], start = a->start < 0 ? a->start + size : a->start;
  if (start < 0 || start > size)
    return moth_fail(a->ctx, MOTH_E_INDEX, "start",
                     "position " MOTH_POS " leaves dim " MOTH_POS " of %s, which has size %lld",
                     (long long)a->start, (long long)dim, moth_str(a->input), (long long)size);
  if (a->length < 0 || a->length > size - start)
    return moth_fail(a->ctx, MOTH_E_INDEX, "length",
                     "%lld positions from " MOTH_POS " leave dim " MOTH_POS
                     " of %s, which has size %lld",
                     (long long)a->length, (long long)start, (long long)dim, moth_str(a->input),
                     (long long)size);
  advance(y, start, y->stride[dim]);
  y->shape[dim] = a->length;
  return MOTH_OK;
}

PART_GRAD(narrow)

MOTH_OP_VIEWS(narrow, NARROW, .dtypes = MOTH_ANY,
              .doc = "A range of `length` positions from `start` along a dimension, as a view.",
              .examples = "moth.randn(4, 5), 2, 2, 3\n"
                          "moth.randn(4, 5), 1, -2, 2")

/* -- select -- */

static int select_view(const select_args *a, moth_layout *y) {
  int32_t dim;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (status) return status;
  int64_t size = y->shape[dim], index = a->index < 0 ? a->index + size : a->index;
  if (index < 0 || index >= size)
    return moth_fail(a->ctx, MOTH_E_INDEX, "index",
                     "position " MOTH_POS " is out of range for dim " MOTH_POS
                     " of %s, which has size %lld",
                     (long long)a->index, (long long)dim, moth_str(a->input), (long long)size);
  advance(y, index, y->stride[dim]);
  moth_shift_dims(y, dim + 1, -1);
  return MOTH_OK;
}

PART_GRAD(select)

MOTH_OP_VIEWS(select, SELECT, .dtypes = MOTH_ANY,
              .doc = "The slice at one position of a dimension, as a view without that dimension.",
              .examples = "moth.randn(4, 5), 2, 3\n"
                          "moth.randn(4, 5), 1, -1")

/* -- slice -- */

static int slice_view(const slice_args *a, moth_layout *y) {
  int32_t dim;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (status) return status;
  int64_t size = y->shape[dim];
  if (a->step < 1)
    return moth_fail(a->ctx, MOTH_E_ARG, "step", "a number from 1 on is needed, got %lld",
                     (long long)a->step);
  if (a->start < 0 || a->stop < a->start || a->stop > size)
    return moth_fail(a->ctx, MOTH_E_INDEX, NULL,
                     "the range from " MOTH_POS " to " MOTH_POS " leaves dim " MOTH_POS
                     " of %s, which has size %lld",
                     (long long)a->start, (long long)((uint64_t)a->stop - 1), (long long)dim,
                     moth_str(a->input), (long long)size);
  int64_t length = a->stop - a->start;
  advance(y, a->start, y->stride[dim]);
  y->shape[dim] = length ? (length - 1) / a->step + 1 : 0;
  /* with one element the stride is not used, and the product may overflow */
  if (y->shape[dim] < 2) return MOTH_OK;
  if (moth_mul_overflow(y->stride[dim], a->step, &y->stride[dim])) y->stride[dim] = 1; /* empty */
  return MOTH_OK;
}

PART_GRAD(slice)

MOTH_OP_VIEWS(slice, SLICE, .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN,
              .doc = "Every step-th position from start to stop along a dimension, as a view.",
              .examples = "moth.randn(4, 7), 2, 1, 7, 2\n"
                          "moth.randn(4, 7), 1, 0, 3", .public_name = "index")

/* -- diagonal -- */

static int diagonal_view(const diagonal_args *a, moth_layout *y) {
  int32_t p, q;
  if (y->ndim < 2)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "at least 2 dimensions are needed, got %s",
                     moth_str(a->input));
  int status = moth_dim(a->ctx, "dim1", a->dim1, y->ndim, &p);
  if (!status) status = moth_dim(a->ctx, "dim2", a->dim2, y->ndim, &q);
  if (status) return status;
  if (p == q)
    return moth_fail(a->ctx, MOTH_E_ARG, "dim2", "dim " MOTH_POS " is named twice", (long long)p);
  int64_t rows = y->shape[p], columns = y->shape[q], step;
  if (moth_add_overflow(y->stride[p], y->stride[q], &step)) step = 1; /* empty */
  if (a->offset >= 0) columns -= a->offset;
  else rows += a->offset;
  int64_t length = rows < columns ? rows : columns;
  if (length < 0) length = 0;
  if (length > 0 && a->offset >= 0) advance(y, a->offset, y->stride[q]);
  else if (length > 0) advance(y, -a->offset, y->stride[p]);
  moth_shift_dims(y, (p > q ? p : q) + 1, -1);
  moth_shift_dims(y, (p > q ? q : p) + 1, -1);
  y->shape[y->ndim] = length;
  y->stride[y->ndim++] = step;
  return MOTH_OK;
}

PART_GRAD(diagonal)

MOTH_OP_VIEWS(diagonal, DIAGONAL, .dtypes = MOTH_ANY,
              .doc = "A diagonal of matrices as the last dimension of the result, as a view.",
              .examples = "moth.randn(3, 4)\n"
                          "moth.randn(2, 3, 4), {offset = 1, dim1 = 3, dim2 = 2}")

/* -- unfold: windows, which overlap if they are longer than the step -- */

static int unfold_dim_view(const unfold_dim_args *a, moth_layout *y) {
  int32_t d = 0;
  int status = moth_dim(a->ctx, "dimension", a->dimension, y->ndim, &d);
  if (status) return status;
  const bool flat = y->ndim == 0; /* a 0-d tensor counts as one position */
  const int64_t n = flat ? 1 : y->shape[d], stride = flat ? 1 : y->stride[d];
  if (y->ndim == MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s has too many dimensions to add one",
                     moth_str(a->input));
  if (a->size < 0 || a->size > n)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "size", "0 to %lld are possible in %s, got %lld",
                     (long long)n, moth_str(a->input), (long long)a->size);
  if (a->step < 1)
    return moth_fail(a->ctx, MOTH_E_ARG, "step", "at least 1 is needed, got %lld",
                     (long long)a->step);
  if (!flat) {
    const int64_t windows = (n - a->size) / a->step + 1;
    int64_t far;
    if (moth_mul_overflow(stride, a->step, &far)) far = 0; /* there is only one window */
    y->shape[d] = windows;
    y->stride[d] = far;
  }
  y->shape[y->ndim] = a->size;
  y->stride[y->ndim++] = stride;
  moth_layout all = *y; /* overlapping windows can have more elements than the input */
  if (moth_layout_pack(&all)) return MOTH_OK;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "size", "%s is more elements than can be addressed",
                   moth_str_shape(a->ctx, y->ndim, y->shape));
}

PART_GRAD(unfold_dim)

MOTH_OP_VIEWS(unfold_dim, UNFOLD_DIM, .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN,
              .doc = "Sliding windows of a dimension, as a view; the positions in a window are a "
                     "new last dimension.",
              .examples = "moth.randn(2, 7), 2, 3, 2\n"
                          "moth.randn(4, 3), 1, 2, 1", .public_name = "unfold")

/* -- as_strided -- */

static int as_strided_view(const as_strided_args *a, moth_layout *y) {
  moth_ctx *ctx = a->ctx;
  int64_t offset = a->storage_offset == MOTH_NO_INT ? y->offset : a->storage_offset;
  int64_t capacity = a->input->storage->nbytes / moth_dtype_size[y->dtype], last = offset;
  if (a->stride.n != a->size.n)
    return moth_fail(ctx, MOTH_E_ARG, "stride", "%s needs one stride for each size of %s",
                     moth_str_ints(ctx, a->stride.n, a->stride.at),
                     moth_str_ints(ctx, a->size.n, a->size.at));
  int status = moth_shape_of(ctx, "size", a->size, y);
  if (status) return status;
  if (offset < 0)
    return moth_fail(ctx, MOTH_E_ARG, "storage_offset", "a number from 0 on is needed, got %lld",
                     (long long)offset);
  bool beyond = false;
  for (int32_t d = 0; d < y->ndim; d++) {
    int64_t reach = 0;
    if (a->stride.at[d] < 0)
      return moth_fail(ctx, MOTH_E_ARG, "stride", "strides cannot be negative, got %s",
                       moth_str_ints(ctx, a->stride.n, a->stride.at));
    y->stride[d] = a->stride.at[d];
    if (y->numel == 0) continue;
    beyond |= moth_mul_overflow(y->shape[d] - 1, y->stride[d], &reach);
    beyond |= moth_add_overflow(last, reach, &last);
  }
  y->offset = offset;
  if (beyond || last > capacity || (last == capacity && y->numel))
    return moth_fail(ctx, MOTH_E_SHAPE, "size",
                     "sizes %s with strides %s from %lld on need more than the %lld elements of "
                     "the storage",
                     moth_str_ints(ctx, a->size.n, a->size.at),
                     moth_str_ints(ctx, a->stride.n, a->stride.at), (long long)offset,
                     (long long)capacity);
  return MOTH_OK;
}

static int as_strided_grad(const as_strided_args *a, moth_grad *g) {
  moth_layout base = a->input->l, v = base;
  v.ndim = (int32_t)a->size.n;
  for (int32_t d = 0; d < v.ndim; d++) {
    v.shape[d] = a->size.at[d];
    v.stride[d] = a->stride.at[d];
  }
  if (a->storage_offset != MOTH_NO_INT) v.offset = a->storage_offset;
  return moth_flow(g, a->input, laid(g, &base, &v));
}

MOTH_OP_VIEWS(as_strided, AS_STRIDED, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE,
              .doc = "A view of the input's storage with any sizes, strides and offset.",
              .examples = "moth.randn(3, 4), {2, 2}, {1, 2}\n"
                          "moth.randn(9), {3, 2}, {2, 1}, {storage_offset = 1}")

/* -- unbind, split, chunk -- */

#define MOST_PIECES (1 << 20)

static int check_pieces(moth_ctx *ctx, const char *arg, int64_t n) {
  if (n <= MOST_PIECES) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_LIMIT, arg, "%lld pieces are asked for, at most %d are possible",
                   (long long)n, MOST_PIECES);
}

/* Takes ownership of one of several views, which may not be written in place under grad mode. */
static int push(moth_results *out, moth_tensor *take) {
  take->flags |= MOTH_T_MULTI_VIEW;
  return moth_results_push(out, take);
}

static int push_range(moth_ctx *ctx, moth_tensor *input, int32_t dim, int64_t start, int64_t length,
                      moth_results *out) {
  moth_tensor *y = NULL;
  int status = MOTH_CALL(ctx, &y, narrow, .input = input, .dim = dim, .start = start,
                         .length = length);
  return status ? status : push(out, y);
}

/* Pushes pieces of one size, which argument `arg` set. The last piece may be smaller. */
static int push_pieces(moth_ctx *ctx, const char *arg, moth_tensor *input, int32_t dim,
                       int64_t piece, moth_results *out) {
  int64_t size = input->l.shape[dim], start = 0;
  int status = check_pieces(ctx, arg, size ? (size - 1) / piece + 1 : 1);
  while (!status) {
    int64_t length = size - start < piece ? size - start : piece;
    status = push_range(ctx, input, dim, start, length, out);
    start += length;
    if (start == size) break;
  }
  return status;
}

static int unbind_list(const unbind_args *a, moth_results *out) {
  int32_t dim;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (!status) status = check_pieces(a->ctx, "input", a->input->l.shape[dim]);
  for (int64_t i = 0; !status && i < a->input->l.shape[dim]; i++) {
    moth_tensor *y = NULL;
    status = MOTH_CALL(a->ctx, &y, select, .input = a->input, .dim = dim, .index = i);
    if (!status) status = push(out, y);
  }
  return status;
}

MOTH_OP_LISTS(unbind, UNBIND, .dtypes = MOTH_ANY,
              .doc = "Views of all slices along a dimension, one for each position.",
              .examples = "moth.randn(3, 4)\n"
                          "moth.randn(3, 4), {dim = 2}")

static int split_list(const split_args *a, moth_results *out) {
  int32_t dim;
  int64_t total = 0;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (status) return status;
  int64_t size = a->input->l.shape[dim];
  status = check_pieces(a->ctx, "split_size", a->split_size.n);
  if (status) return status;
  for (int64_t i = 0; i < a->split_size.n; i++) {
    int64_t one = a->split_size.at[i];
    if (one < 0 || (one == 0 && a->split_size.n == 1 && size > 0))
      return moth_fail(a->ctx, MOTH_E_ARG, "split_size", "a piece cannot have %lld positions",
                       (long long)one);
    if (moth_add_overflow(total, one, &total)) total = -1;
    if (total < 0) break;
  }
  if (a->split_size.n == 1) return push_pieces(a->ctx, "split_size", a->input, dim, total, out);
  if (total != size)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "split_size",
                     "%s does not add up to the size of dim " MOTH_POS " of %s",
                     moth_str_ints(a->ctx, a->split_size.n, a->split_size.at), (long long)dim,
                     moth_str(a->input));
  for (int64_t i = 0, start = 0; i < a->split_size.n && !status; start += a->split_size.at[i++])
    status = push_range(a->ctx, a->input, dim, start, a->split_size.at[i], out);
  return status;
}

MOTH_OP_LISTS(split, SPLIT, .dtypes = MOTH_ANY,
              .doc = "Splits a dimension into views of one size, or of the sizes given.",
              .examples = "moth.randn(5, 2), 2\n"
                          "moth.randn(2, 5), {1, 4}, {dim = 2}")

static int chunk_list(const chunk_args *a, moth_results *out) {
  int32_t dim;
  int status = real_dim(a->ctx, a->dim, a->input, &dim);
  if (status) return status;
  if (a->chunks < 1)
    return moth_fail(a->ctx, MOTH_E_ARG, "chunks", "at least one is needed, got %lld",
                     (long long)a->chunks);
  int64_t size = a->input->l.shape[dim];
  int64_t piece = size / a->chunks + (size % a->chunks != 0);
  if (size > 0) return push_pieces(a->ctx, "chunks", a->input, dim, piece, out);
  status = check_pieces(a->ctx, "chunks", a->chunks);
  for (int64_t i = 0; i < a->chunks && !status; i++)
    status = push_range(a->ctx, a->input, dim, 0, 0, out);
  return status;
}

MOTH_OP_LISTS(chunk, CHUNK, .dtypes = MOTH_ANY,
              .doc = "Splits a dimension into at most `chunks` equal views; the last may be "
                     "smaller.",
              .examples = "moth.randn(5, 2), 2\n"
                          "moth.randn(2, 6), 3, {dim = 2}")
