/* view.c -- ops that view a tensor's elements in another shape or order. The results share its
** storage. Only reshape and flatten copy, if no strides can express the result. Views of some of a
** tensor's elements are in part.c.
*/
#include "view.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "base/context.h"
#include "copy.h"

/* -- helpers -- */

static moth_ints sizes_of(const moth_layout *l) { return (moth_ints){l->shape, l->ndim}; }

void moth_shift_dims(moth_layout *y, int32_t dim, int32_t n) {
  size_t bytes = (size_t)(y->ndim - dim) * sizeof *y->shape;
  memmove(y->shape + dim + n, y->shape + dim, bytes);
  memmove(y->stride + dim + n, y->stride + dim, bytes);
  y->ndim += n;
}

static void reorder(moth_layout *y, const int32_t *order) {
  moth_layout from = *y;
  for (int32_t d = 0; d < y->ndim; d++) {
    y->shape[d] = from.shape[order[d]];
    y->stride[d] = from.stride[order[d]];
  }
}

/* y := the shape with the requested sizes, `numel` elements in all. A size of -1 is computed. */
static int infer_shape(moth_ctx *ctx, const char *arg, moth_ints sizes, int64_t numel,
                       const moth_tensor *x, moth_layout *y) {
  int64_t at[MOTH_MAX_DIMS], known = 1, open = -1;
  if (sizes.n > MOTH_MAX_DIMS) return moth_shape_of(ctx, arg, sizes, y); /* raises the error */
  for (int64_t d = 0; d < sizes.n; d++) {
    at[d] = sizes.at[d];
    if (at[d] == -1 && open >= 0)
      return moth_fail(ctx, MOTH_E_SHAPE, arg, "only one size can be -1, got %s",
                       moth_str_ints(ctx, sizes.n, sizes.at));
    if (at[d] == -1) open = d;
    else if (at[d] >= 0 && moth_mul_overflow(known, at[d], &known)) known = -1;
  }
  if (open >= 0) at[open] = known > 0 ? numel / known : numel;
  moth_layout l = *y;
  int status = moth_shape_of(ctx, arg, (moth_ints){at, sizes.n}, &l);
  if (status) return status;
  if (open >= 0 && known == 0 && numel == 0)
    return moth_fail(ctx, MOTH_E_SHAPE, arg,
                     "the -1 in %s cannot be computed, since there are no elements",
                     moth_str_ints(ctx, sizes.n, sizes.at));
  if (l.numel != numel)
    return moth_fail(ctx, MOTH_E_SHAPE, arg, "%s does not fit the %lld elements of %s",
                     moth_str_ints(ctx, sizes.n, sizes.at), (long long)numel, moth_str(x));
  y->ndim = l.ndim;
  memcpy(y->shape, l.shape, sizeof y->shape);
  return MOTH_OK;
}

/* Computes strides that view `from` in y's shape. Returns false if there are none. Dimensions of
** `from` that are contiguous in memory form runs; the boundaries of the runs must be boundaries of
** y's sizes too. */
static bool restride(const moth_layout *from, moth_layout *y) {
  moth_layout packed = *y;
  if (from->numel == 0 || from->ndim == 0) {
    if (!moth_layout_pack(&packed)) return false;
    memcpy(y->stride, packed.stride, sizeof y->stride);
    return true;
  }
  int32_t v = y->ndim - 1;
  int64_t run = 1, seen = 1, step = from->stride[from->ndim - 1];
  for (int32_t d = from->ndim - 1; d >= 0; d--) {
    run *= from->shape[d];
    if (d > 0 && (from->shape[d - 1] == 1 || from->stride[d - 1] == run * step)) continue;
    while (v >= 0 && (seen < run || y->shape[v] == 1)) {
      y->stride[v] = seen * step;
      seen *= y->shape[v--];
    }
    if (seen != run) return false;
    if (d > 0) step = from->stride[d - 1];
    run = seen = 1;
  }
  return v < 0;
}

static moth_tensor *dy_reshaped(moth_grad *g, const moth_layout *l) {
  return GRAD(g, reshape, .input = g->dy, .shape = sizes_of(l));
}

/* -- view, reshape, flatten, unflatten -- */

static int view_view(const view_args *a, moth_layout *y) {
  int status = infer_shape(a->ctx, "shape", a->shape, a->input->l.numel, a->input, y);
  if (status || restride(&a->input->l, y)) return status;
  const moth_layout *l = &a->input->l;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "shape",
                   "%s cannot be viewed as %s without a copy: its strides are %s; use reshape",
                   moth_str(a->input), moth_str_shape(a->ctx, y->ndim, y->shape),
                   moth_str_ints(a->ctx, l->ndim, l->stride));
}

static int view_grad(const view_args *a, moth_grad *g) {
  return moth_flow(g, a->input, dy_reshaped(g, &a->input->l));
}

MOTH_OP_VIEWS(view, VIEW, .dtypes = MOTH_ANY,
              .doc = "A view with another shape; an error if the input's strides do not allow it.",
              .examples = "moth.randn(2, 6), {3, -1}\n"
                          "moth.randn(4, 3), {2, 2, 3}")

static int view_as_compose(const view_as_args *a, moth_tensor **out) {
  int status = MOTH_CALL(a->ctx, out, view, .input = a->input, .shape = sizes_of(&a->other->l));
  return moth_error_as(a->ctx, status, "shape", "other");
}

MOTH_OP_COMPOSES(view_as, VIEW_AS, .dtypes = MOTH_ANY, .flags = MOTH_OP_MIXED,
                 .doc = "A view with the shape of another tensor.",
                 .examples = "moth.randn(2, 6), moth.zeros(3, 4)")

static int reshape_compose(const reshape_args *a, moth_tensor **out) {
  moth_layout y = a->input->l;
  int status = infer_shape(a->ctx, "shape", a->shape, a->input->l.numel, a->input, &y);
  if (status) return status;
  if (restride(&a->input->l, &y))
    return MOTH_CALL(a->ctx, out, view, .input = a->input, .shape = sizes_of(&y));
  moth_tensor *packed = NULL;
  status = MOTH_CALL(a->ctx, &packed, clone, .input = a->input,
                     .memory_format = MOTH_CONTIGUOUS_FORMAT);
  if (!status) status = MOTH_CALL(a->ctx, out, view, .input = packed, .shape = sizes_of(&y));
  moth_tensor_release(packed);
  return status;
}

MOTH_OP_COMPOSES(reshape, RESHAPE, .dtypes = MOTH_ANY,
                 .doc = "The tensor with another shape: a view where possible, else a copy.",
                 .examples = "moth.randn(2, 6), {3, -1}\n"
                             "moth.randn(4, 3):t(), {2, 6}")

static int reshape_as_compose(const reshape_as_args *a, moth_tensor **out) {
  int status = MOTH_CALL(a->ctx, out, reshape, .input = a->input, .shape = sizes_of(&a->other->l));
  return moth_error_as(a->ctx, status, "shape", "other");
}

MOTH_OP_COMPOSES(reshape_as, RESHAPE_AS, .dtypes = MOTH_ANY, .flags = MOTH_OP_MIXED,
                 .doc = "The tensor with the shape of another tensor: a view where possible, else "
                        "a copy.",
                 .examples = "moth.randn(2, 6):t(), moth.zeros(3, 4)")

static int flatten_compose(const flatten_args *a, moth_tensor **out) {
  const moth_layout *l = &a->input->l;
  int32_t first, last, ndim = 0;
  int64_t shape[MOTH_MAX_DIMS] = {1}, joined = 1;
  int status = moth_dim(a->ctx, "start_dim", a->start_dim, l->ndim, &first);
  if (!status) status = moth_dim(a->ctx, "end_dim", a->end_dim, l->ndim, &last);
  if (status) return status;
  if (first > last)
    return moth_fail(a->ctx, MOTH_E_ARG, "end_dim", "dim " MOTH_POS " comes before dim " MOTH_POS,
                     (long long)last, (long long)first);
  for (int32_t d = 0; d < l->ndim; d++) {
    if (d >= first && d <= last) joined *= l->shape[d];
    if (d < first || d > last) shape[ndim++] = l->shape[d];
    else if (d == last) shape[ndim++] = joined;
  }
  if (l->ndim == 0) ndim = 1;
  return MOTH_CALL(a->ctx, out, reshape, .input = a->input, .shape = {shape, ndim});
}

MOTH_OP_COMPOSES(flatten, FLATTEN, .dtypes = MOTH_ANY,
                 .doc = "Flattens a range of dimensions to one: a view where possible, else a "
                        "copy.",
                 .examples = "moth.randn(2, 3, 4)\n"
                             "moth.randn(2, 3, 2, 2), {start_dim = 2, end_dim = 3}")

static int unflatten_view(const unflatten_args *a, moth_layout *y) {
  moth_layout part = {.ndim = 0, .dtype = y->dtype};
  int32_t dim;
  if (y->ndim == 0)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s has no dimension to split",
                     moth_str(a->input));
  int status = moth_dim(a->ctx, "dim", a->dim, y->ndim, &dim);
  if (!status)
    status = infer_shape(a->ctx, "sizes", a->sizes, y->shape[dim], a->input, &part);
  if (status) return status;
  if (part.ndim < 1 || y->ndim - 1 + part.ndim > MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "sizes",
                     "%s results in %d dimensions for %s, 1 to %d are needed",
                     moth_str_ints(a->ctx, a->sizes.n, a->sizes.at), y->ndim - 1 + part.ndim,
                     moth_str(a->input), MOTH_MAX_DIMS);
  int64_t step = y->stride[dim];
  moth_shift_dims(y, dim + 1, part.ndim - 1);
  for (int32_t d = part.ndim - 1; d >= 0; d--) {
    y->shape[dim + d] = part.shape[d];
    y->stride[dim + d] = step;
    step *= part.shape[d] > 0 ? part.shape[d] : 1;
  }
  return MOTH_OK;
}

static int unflatten_grad(const unflatten_args *a, moth_grad *g) {
  return moth_flow(g, a->input, dy_reshaped(g, &a->input->l));
}

MOTH_OP_VIEWS(unflatten, UNFLATTEN, .dtypes = MOTH_ANY,
              .doc = "Splits one dimension into several, as a view.",
              .examples = "moth.randn(2, 6, 2), 2, {3, -1}\n"
                          "moth.randn(4), 1, {2, 2}")

/* -- squeeze, unsqueeze -- */

static int squeeze_view(const squeeze_args *a, moth_layout *y) {
  uint32_t mask;
  int status = moth_dim_mask(a->ctx, "dim", a->dim, y->ndim, &mask);
  if (status) return status;
  if (a->dim.at && a->dim.n == 0) return MOTH_OK; /* an empty list means no dimension */
  for (int32_t d = y->ndim - 1; d >= 0; d--)
    if ((mask >> d & 1u) && y->shape[d] == 1) moth_shift_dims(y, d + 1, -1);
  return MOTH_OK;
}

static int squeeze_grad(const squeeze_args *a, moth_grad *g) {
  return moth_flow(g, a->input, dy_reshaped(g, &a->input->l));
}

MOTH_OP_VIEWS(squeeze, SQUEEZE, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE,
              .doc = "Removes dimensions of size 1, as a view.",
              .examples = "moth.randn(1, 3, 1)\n"
                          "moth.randn(1, 3, 1, 2), {dim = {1, 2}}")

static int unsqueeze_view(const unsqueeze_args *a, moth_layout *y) {
  int32_t dim;
  if (y->ndim == MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s has too many dimensions to add one",
                     moth_str(a->input));
  int status = moth_dim(a->ctx, "dim", a->dim, y->ndim + 1, &dim);
  if (status) return status;
  int64_t step = 1;
  if (dim < y->ndim && moth_mul_overflow(y->shape[dim], y->stride[dim], &step)) step = 1;
  moth_shift_dims(y, dim, 1);
  y->shape[dim] = 1;
  y->stride[dim] = step;
  return MOTH_OK;
}

static int unsqueeze_grad(const unsqueeze_args *a, moth_grad *g) {
  return moth_flow(g, a->input, dy_reshaped(g, &a->input->l));
}

MOTH_OP_VIEWS(unsqueeze, UNSQUEEZE, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE,
              .doc = "Inserts a dimension of size 1, as a view.",
              .examples = "moth.randn(2, 3), 2\n"
                          "moth.randn(2, 3), -1")

/* -- permute, transpose, t, movedim -- */

/* Reads dims as a permutation of 0..ndim-1. */
static int order_of(moth_ctx *ctx, const char *arg, moth_ints dims, int32_t ndim, int32_t *order) {
  uint32_t mask;
  if (dims.n != ndim)
    return moth_fail(ctx, MOTH_E_ARG, arg,
                     "all %d dimensions are needed, each one once, got %lld of them", ndim,
                     (long long)dims.n);
  int status = moth_dim_mask(ctx, arg, dims, ndim, &mask);
  for (int32_t d = 0; d < ndim && !status; d++)
    status = moth_dim(ctx, arg, dims.at[d], ndim, &order[d]);
  return status;
}

/* Returns dy with its dimensions in the order before the permutation `order`. */
static moth_tensor *dy_restored(moth_grad *g, const int32_t *order, int32_t ndim) {
  int64_t back[MOTH_MAX_DIMS] = {0};
  for (int32_t d = 0; d < ndim; d++) back[order[d]] = d;
  return GRAD(g, permute, .input = g->dy, .dims = {back, ndim});
}

static int permute_view(const permute_args *a, moth_layout *y) {
  int32_t order[MOTH_MAX_DIMS];
  int status = order_of(a->ctx, "dims", a->dims, y->ndim, order);
  if (!status) reorder(y, order);
  return status;
}

static int permute_grad(const permute_args *a, moth_grad *g) {
  int32_t order[MOTH_MAX_DIMS], ndim = a->input->l.ndim;
  int status = order_of(a->ctx, "dims", a->dims, ndim, order);
  return status ? status : moth_flow(g, a->input, dy_restored(g, order, ndim));
}

MOTH_OP_VIEWS(permute, PERMUTE, .dtypes = MOTH_ANY, .doc = "The tensor with its dimensions in "
                                                           "another order, as a view.",
              .examples = "moth.randn(2, 3, 4), {3, 1, 2}\n"
                          "moth.randn(2, 3), {-1, 1}")

static int transpose_view(const transpose_args *a, moth_layout *y) {
  int32_t p, q;
  int status = moth_dim(a->ctx, "dim0", a->dim0, y->ndim, &p);
  if (!status) status = moth_dim(a->ctx, "dim1", a->dim1, y->ndim, &q);
  if (status || y->ndim == 0) return status;
  int64_t size = y->shape[p], step = y->stride[p];
  y->shape[p] = y->shape[q];
  y->stride[p] = y->stride[q];
  y->shape[q] = size;
  y->stride[q] = step;
  return MOTH_OK;
}

static int transpose_grad(const transpose_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, transpose, .input = g->dy, .dim0 = a->dim0, .dim1 = a->dim1));
}

MOTH_OP_VIEWS(transpose, TRANSPOSE, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE,
              .doc = "The tensor with two dimensions swapped, as a view.",
              .examples = "moth.randn(2, 3, 4), 1, 3\n"
                          "moth.randn(2, 3, 4), -1, -2")

static int t_view(const t_args *a, moth_layout *y) {
  if (y->ndim > 2)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "at most 2 dimensions are needed, got %s; use transpose or permute",
                     moth_str(a->input));
  if (y->ndim == 2) reorder(y, (const int32_t[]){1, 0});
  return MOTH_OK;
}

static int t_grad(const t_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, t, .input = g->dy));
}

MOTH_OP_VIEWS(t, T_, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE,
              .doc = "The transpose of a matrix, as a view.",
              .examples = "moth.randn(2, 3)\n"
                          "moth.randn(3)")

static int movedim_order(const movedim_args *a, int32_t ndim, int32_t *order) {
  uint32_t from, to;
  if (a->source.n != a->destination.n)
    return moth_fail(a->ctx, MOTH_E_ARG, "destination",
                     "%lld dimensions cannot move to %lld positions",
                     (long long)a->source.n, (long long)a->destination.n);
  for (int32_t d = 0; d < ndim; d++) order[d] = d;
  if (ndim == 0 || a->source.n == 0) return MOTH_OK;
  int status = moth_dim_mask(a->ctx, "source", a->source, ndim, &from);
  if (!status) status = moth_dim_mask(a->ctx, "destination", a->destination, ndim, &to);
  if (status) return status;
  for (int32_t d = 0, rest = 0; d < ndim; d++) {
    if (to >> d & 1u) continue;
    while (from >> rest & 1u) rest++;
    order[d] = rest++;
  }
  for (int64_t i = 0; i < a->source.n && !status; i++) {
    int32_t p, q;
    status = moth_dim(a->ctx, "source", a->source.at[i], ndim, &p);
    if (!status) status = moth_dim(a->ctx, "destination", a->destination.at[i], ndim, &q);
    if (!status) order[q] = p;
  }
  return status;
}

static int movedim_view(const movedim_args *a, moth_layout *y) {
  int32_t order[MOTH_MAX_DIMS];
  int status = movedim_order(a, y->ndim, order);
  if (!status) reorder(y, order);
  return status;
}

static int movedim_grad(const movedim_args *a, moth_grad *g) {
  int32_t order[MOTH_MAX_DIMS], ndim = a->input->l.ndim;
  int status = movedim_order(a, ndim, order);
  return status ? status : moth_flow(g, a->input, dy_restored(g, order, ndim));
}

MOTH_OP_VIEWS(movedim, MOVEDIM, .dtypes = MOTH_ANY,
              .doc = "Moves dimensions to other positions, as a view; the others keep their order.",
              .examples = "moth.randn(2, 3, 4), {1}, {3}\n"
                          "moth.randn(2, 3, 4), {1, -1}, {2, 1}")

/* -- expand -- */

static int expand_view(const expand_args *a, moth_layout *y) {
  int64_t added = a->size.n - y->ndim;
  int64_t at[MOTH_MAX_DIMS];
  if (added < 0 || a->size.n > MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "size", "%s needs at least the dimensions of %s",
                     moth_str_ints(a->ctx, a->size.n, a->size.at), moth_str(a->input));
  moth_layout from = *y;
  for (int64_t d = 0; d < a->size.n; d++) {
    int64_t own = d < added ? 1 : from.shape[d - added];
    if (a->size.at[d] == -1 && d < added)
      return moth_fail(a->ctx, MOTH_E_SHAPE, "size",
                       "%s cannot keep dim " MOTH_POS ", which is a new dimension of %s",
                       moth_str_ints(a->ctx, a->size.n, a->size.at), (long long)d,
                       moth_str(a->input));
    bool keeps = a->size.at[d] == -1;
    at[d] = keeps ? own : a->size.at[d];
    if (own != 1 && own != at[d])
      return moth_fail(a->ctx, MOTH_E_SHAPE, "size",
                       "%s does not fit %s: dim " MOTH_POS " has size %lld, not 1",
                       moth_str_ints(a->ctx, a->size.n, a->size.at), moth_str(a->input),
                       (long long)(d - added), (long long)own);
    bool kept = d >= added && own == at[d];
    y->stride[d] = kept ? from.stride[d - added] : 0;
  }
  moth_layout sizes = *y; /* moth_shape_of changes the strides */
  int status = moth_shape_of(a->ctx, "size", (moth_ints){at, a->size.n}, &sizes);
  y->ndim = sizes.ndim;
  memcpy(y->shape, sizes.shape, sizeof y->shape);
  return status;
}

static int expand_grad(const expand_args *a, moth_grad *g) {
  return moth_flow(g, a->input, g->dy); /* this sums over repeated elements */
}

MOTH_OP_VIEWS(expand, EXPAND, .dtypes = MOTH_ANY,
              .doc = "Expands dimensions of size 1, and new dimensions in front, to larger sizes, "
                     "as a view.",
              .examples = "moth.randn(3, 1), {3, 4}\n"
                          "moth.randn(3, 1), {2, -1, 4}")

static int expand_as_compose(const expand_as_args *a, moth_tensor **out) {
  int status = MOTH_CALL(a->ctx, out, expand, .input = a->input, .size = sizes_of(&a->other->l));
  return moth_error_as(a->ctx, status, "size", "other");
}

MOTH_OP_COMPOSES(expand_as, EXPAND_AS, .dtypes = MOTH_ANY, .flags = MOTH_OP_MIXED,
                 .doc = "Expands dimensions of size 1 to the shape of another tensor, as a view.",
                 .examples = "moth.randn(3, 1), moth.zeros(2, 3, 4)")

const moth_op *const moth_view_ops[] = {
  &moth_op_view,       &moth_op_view_as,   &moth_op_reshape,   &moth_op_reshape_as,
  &moth_op_flatten,    &moth_op_unflatten, &moth_op_squeeze,   &moth_op_unsqueeze,
  &moth_op_permute,    &moth_op_transpose, &moth_op_t,         &moth_op_movedim,
  &moth_op_expand,     &moth_op_expand_as, &moth_op_narrow,    &moth_op_select,
  &moth_op_slice,      &moth_op_diagonal,  &moth_op_as_strided, &moth_op_unbind,
  &moth_op_split,      &moth_op_chunk,     &moth_op_unfold_dim, NULL,
};
