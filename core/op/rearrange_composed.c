/* rearrange_composed.c -- ops composed of others that change shape and order: aliases, grids,
** stacks, diagonals. rearrange.h declares the arguments. The list of the ops of both files is at
** the end.
*/
#include "kernel/scalar.h"
#include "arith.h"
#include "copy.h"
#include "join.h"
#include "rearrange.h"
#include "reduce.h"
#include "view.h"
#include "autograd/gradient.h"
#include "base/alloc.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

/* -- flips -- */

static int flip_one(moth_ctx *ctx, moth_tensor *x, int64_t dim, moth_tensor **out) {
  if (x->l.ndim <= dim)
    return moth_fail(ctx, MOTH_E_SHAPE, "input", "at least %lld dimensions are needed, got %s",
                     (long long)dim + 1, moth_str(x));
  return MOTH_CALL(ctx, out, flip, .input = x, .dims = {&dim, 1});
}

static int fliplr_compose(const fliplr_args *a, moth_tensor **out) {
  return flip_one(a->ctx, a->input, 1, out);
}
MOTH_OP_COMPOSES(fliplr, FLIP_ONE, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The tensor with dimension 2 (the columns) reversed, as a copy.",
                 .examples = "moth.randn(2, 3)")

static int flipud_compose(const flipud_args *a, moth_tensor **out) {
  return flip_one(a->ctx, a->input, 0, out);
}
MOTH_OP_COMPOSES(flipud, FLIP_ONE, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The tensor with dimension 1 (the rows) reversed, as a copy.",
                 .examples = "moth.randn(2, 3)")

static int rot90_compose(const rot90_args *a, moth_tensor **out) {
  static const int64_t first[2] = {0, 1};
  moth_ints dims = a->dims.at ? a->dims : (moth_ints){first, 2};
  int32_t p, q;
  if (dims.n != 2 || a->input->l.ndim < 2)
    return moth_fail(a->ctx, MOTH_E_ARG, dims.n == 2 ? "input" : "dims",
                     "two dimensions are needed, got %s",
                     dims.n == 2 ? moth_str(a->input) : moth_str_dims(a->ctx, dims.n, dims.at));
  int status = moth_dim(a->ctx, "dims", dims.at[0], a->input->l.ndim, &p);
  if (!status) status = moth_dim(a->ctx, "dims", dims.at[1], a->input->l.ndim, &q);
  if (status) return status;
  if (p == q)
    return moth_fail(a->ctx, MOTH_E_ARG, "dims", "dim " MOTH_POS " is named twice", (long long)p);
  int64_t turns = (a->k % 4 + 4) % 4, from = p, to = q;
  if (turns == 0) return MOTH_CALL(a->ctx, out, clone, .input = a->input);
  if (turns == 2)
    return MOTH_CALL(a->ctx, out, flip, .input = a->input, .dims = {(int64_t[]){p, q}, 2});
  moth_tensor *x = NULL;
  status = MOTH_CALL(a->ctx, &x, flip, .input = a->input, .dims = {turns == 1 ? &to : &from, 1});
  if (!status) status = MOTH_CALL(a->ctx, out, transpose, .input = x, .dim0 = from, .dim1 = to);
  moth_tensor_release(x);
  return status;
}
MOTH_OP_COMPOSES(rot90, ROT90, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The tensor rotated by k times 90 degrees in the plane of two dimensions, "
                        "as a copy.",
                 .examples = "moth.randn(2, 3)\n"
                             "moth.randn(2, 3, 2), {k = -1, dims = {3, 1}}")

/* -- aliases -- */

static int exchange(moth_ctx *ctx, moth_tensor *x, int64_t dim0, int64_t dim1, moth_layout *y) {
  transpose_args args = {.ctx = ctx, .input = x, .dim0 = dim0, .dim1 = dim1};
  return moth_op_transpose.view(&args, y);
}

static int exchange_grad(moth_grad *g, moth_tensor *x, int64_t dim0, int64_t dim1) {
  return moth_flow(g, x, GRAD(g, transpose, .input = g->dy, .dim0 = dim0, .dim1 = dim1));
}

static int swapaxes_view(const swapaxes_args *a, moth_layout *y) {
  return exchange(a->ctx, a->input, a->axis0, a->axis1, y);
}
static int swapaxes_grad(const swapaxes_args *a, moth_grad *g) {
  return exchange_grad(g, a->input, a->axis0, a->axis1);
}
MOTH_OP_VIEWS(swapaxes, SWAPAXES, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE,
              .doc = "An alias of transpose.", .examples = "moth.randn(2, 3, 4), 1, 3")

static int swapdims_view(const swapdims_args *a, moth_layout *y) {
  return exchange(a->ctx, a->input, a->dim0, a->dim1, y);
}
static int swapdims_grad(const swapdims_args *a, moth_grad *g) {
  return exchange_grad(g, a->input, a->dim0, a->dim1);
}
MOTH_OP_VIEWS(swapdims, SWAPDIMS, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE,
              .doc = "An alias of transpose.", .examples = "moth.randn(2, 3, 4), 1, 3")

static int moveaxis_compose(const moveaxis_args *a, moth_tensor **out) {
  return MOTH_CALL(a->ctx, out, movedim, .input = a->input, .source = a->source,
                   .destination = a->destination);
}
MOTH_OP_COMPOSES(moveaxis, MOVEAXIS, .dtypes = MOTH_ANY, .doc = "An alias of movedim.",
                 .examples = "moth.randn(2, 3, 4), 1, 3")

static int ravel_compose(const ravel_args *a, moth_tensor **out) {
  static const int64_t all = -1;
  return MOTH_CALL(a->ctx, out, reshape, .input = a->input, .shape = {&all, 1});
}
MOTH_OP_COMPOSES(ravel, RAVEL, .dtypes = MOTH_ANY,
                 .doc = "The tensor flattened to one dimension: a view where possible, else a "
                        "copy.",
                 .examples = "moth.randn(2, 3)\nmoth.randn(2, 3):t()")

/* -- tensors broadcast to a common shape -- */

static int broadcast_to_compose(const broadcast_to_args *a, moth_tensor **out) {
  return MOTH_CALL(a->ctx, out, expand, .input = a->input, .size = a->size);
}
MOTH_OP_COMPOSES(broadcast_to, BROADCAST_TO, .dtypes = MOTH_ANY, .doc = "An alias of expand.",
                 .examples = "moth.randn(3, 1), {2, 3, 4}")

/* Appends the result of an op to `out`, which takes it. `status` is the op's status. */
static int push(int status, moth_tensor *take, moth_results *out) {
  return status ? status : moth_results_push(out, take);
}

static int broadcast_tensors_list(const broadcast_tensors_args *a, moth_results *out) {
  moth_layout all = {.ndim = 0};
  int status = MOTH_OK;
  for (int64_t i = 0; i < a->tensors.n; i++)
    if (!moth_layout_broadcast(&all, &a->tensors.at[i]->l))
      return moth_fail(a->ctx, MOTH_E_SHAPE, "tensors",
                       "number " MOTH_POS " is %s, which cannot be broadcast with %s", (long long)i,
                       moth_str(a->tensors.at[i]), moth_str_shape(a->ctx, all.ndim, all.shape));
  for (int64_t i = 0; i < a->tensors.n && !status; i++) {
    moth_tensor *y = NULL;
    status = MOTH_CALL(a->ctx, &y, expand, .input = a->tensors.at[i],
                       .size = {all.shape, all.ndim});
    status = push(status, y, out);
  }
  return status;
}
MOTH_OP_LISTS(broadcast_tensors, BROADCAST_TENSORS, .dtypes = MOTH_ANY, .flags = MOTH_OP_MIXED,
              .doc = "Views of tensors, broadcast to a common shape.",
              .examples = "{moth.randn(3, 1), moth.randn(2)}")

static int grid_axis(const meshgrid_args *a, int64_t i, const int64_t *size, moth_results *out) {
  int64_t shape[MOTH_MAX_DIMS], n = a->tensors.n, at = i;
  if (a->indexing == 1 && n > 1 && i < 2) at = 1 - i;
  for (int64_t d = 0; d < n; d++) shape[d] = d == at ? size[d] : 1;
  moth_tensor *x = NULL, *y = NULL;
  int status = MOTH_CALL(a->ctx, &x, reshape, .input = a->tensors.at[i], .shape = {shape, n});
  if (!status) status = MOTH_CALL(a->ctx, &y, expand, .input = x, .size = {size, n});
  moth_tensor_release(x);
  return push(status, y, out);
}

static int meshgrid_list(const meshgrid_args *a, moth_results *out) {
  int64_t size[MOTH_MAX_DIMS], n = a->tensors.n;
  if (n < 1 || n > MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_ARG, "tensors", "1 to %d tensors are needed, got %lld",
                     MOTH_MAX_DIMS, (long long)n);
  for (int64_t i = 0; i < n; i++) {
    const moth_tensor *x = a->tensors.at[i];
    if (x->l.ndim > 1)
      return moth_fail(a->ctx, MOTH_E_SHAPE, "tensors", "number " MOTH_POS " is not a vector, but "
                                                                           "%s",
                       (long long)i, moth_str(x));
    size[a->indexing == 1 && n > 1 && i < 2 ? 1 - i : i] = x->l.numel;
  }
  int status = MOTH_OK;
  for (int64_t i = 0; i < n && !status; i++) status = grid_axis(a, i, size, out);
  return status;
}
MOTH_OP_LISTS(meshgrid, MESHGRID, .dtypes = MOTH_ANY,
              .doc = "The coordinates of all points of a grid: one tensor for each dimension.",
              .examples = "{moth.randn(3), moth.randn(2)}\n"
                          "{moth.randn(3), moth.randn(2)}, {indexing = \"xy\"}")

/* -- hstack, vstack, dstack: add dimensions of size 1, then cat -- */

/* y := x with at least ndim dimensions; a vector (n) gets `lead` new ones in front. Owned. */
static int at_least(moth_ctx *ctx, moth_tensor *x, int32_t ndim, int32_t lead, moth_tensor **y) {
  int64_t shape[3] = {1, 1, 1};
  if (x->l.ndim >= ndim) {
    *y = moth_tensor_retain(x);
    return MOTH_OK;
  }
  for (int32_t d = 0; d < x->l.ndim; d++) shape[d + (x->l.ndim == 1 ? lead : 0)] = x->l.shape[d];
  return MOTH_CALL(ctx, y, reshape, .input = x, .shape = {shape, ndim});
}

static int stacked(moth_ctx *ctx, moth_tensors list, int32_t ndim, int32_t lead, int64_t dim,
                   moth_tensor **out) {
  /* the new list has the same length */
  int64_t n = 0, bytes = list.n * (int64_t)sizeof(moth_tensor *);
  int status = MOTH_OK;
  if (list.n < 1)
    return moth_fail(ctx, MOTH_E_ARG, "tensors", "at least one tensor is needed");
  moth_tensor **at = moth_alloc(ctx, bytes);
  if (!at) return ctx->error.code;
  for (; n < list.n && !status; n++) {
    at[n] = NULL;
    status = at_least(ctx, list.at[n], ndim, lead, &at[n]);
  }
  if (dim == 1 && ndim == 1 && !status && at[0]->l.ndim == 1) dim = 0;
  if (!status) status = MOTH_CALL(ctx, out, cat, .tensors = {at, n}, .dim = dim);
  while (n) moth_tensor_release(at[--n]);
  moth_dealloc(ctx, at, bytes);
  return status;
}

static int hstack_compose(const hstack_args *a, moth_tensor **out) {
  return stacked(a->ctx, a->tensors, 1, 0, 1, out);
}
MOTH_OP_COMPOSES(hstack, STACK_OF, .dtypes = MOTH_ANY, .flags = MOTH_OP_MIXED,
                 .doc = "Concatenates tensors along dimension 2; vectors along dimension 1.",
                 .examples = "{moth.randn(2, 3), moth.randn(2, 1)}\n"
                             "{moth.randn(2), moth.randn(3)}")

static int vstack_compose(const vstack_args *a, moth_tensor **out) {
  return stacked(a->ctx, a->tensors, 2, 1, 0, out);
}
MOTH_OP_COMPOSES(vstack, STACK_OF, .dtypes = MOTH_ANY, .flags = MOTH_OP_MIXED,
                 .doc = "Concatenates tensors along dimension 1; vectors become rows.",
                 .examples = "{moth.randn(2, 3), moth.randn(3)}")

static int dstack_compose(const dstack_args *a, moth_tensor **out) {
  return stacked(a->ctx, a->tensors, 3, 1, 2, out);
}
MOTH_OP_COMPOSES(dstack, STACK_OF, .dtypes = MOTH_ANY, .flags = MOTH_OP_MIXED,
                 .doc = "Concatenates tensors along dimension 3; matrices get a dimension 3 of "
                        "size 1 first.",
                 .examples = "{moth.randn(2, 3), moth.randn(2, 3)}\n"
                             "{moth.randn(3), moth.randn(3)}")

/* -- diagonals -- */

static int diag_embed_shape(const diag_embed_args *a, moth_layout *y) {
  const moth_layout *l = &a->input->l;
  int32_t p, q, from = 0;
  int64_t size[MOTH_MAX_DIMS] = {0}, n = 0, by = a->offset < 0 ? -(a->offset + 1) : a->offset;
  if (l->ndim == 0 || l->ndim >= MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "1 to %d dimensions are needed, got %s",
                     MOTH_MAX_DIMS - 1, moth_str(a->input));
  int status = moth_dim(a->ctx, "dim1", a->dim1, l->ndim + 1, &p);
  if (!status) status = moth_dim(a->ctx, "dim2", a->dim2, l->ndim + 1, &q);
  if (status) return status;
  if (p == q)
    return moth_fail(a->ctx, MOTH_E_ARG, "dim2", "dim " MOTH_POS " is named twice", (long long)p);
  if (moth_add_overflow(l->shape[l->ndim - 1], by, &n) ||
      moth_add_overflow(n, a->offset < 0, &n))
    return moth_fail(a->ctx, MOTH_E_ARG, "offset", "%lld is too large", (long long)a->offset);
  for (int32_t d = 0; d <= l->ndim; d++) size[d] = d == p || d == q ? n : l->shape[from++];
  return moth_shape_of(a->ctx, "offset", (moth_ints){size, l->ndim + 1}, y);
}

static int diag_embed_cpu(const diag_embed_args *a, moth_tensor **out) {
  moth_tensor *y = out[0], *line = NULL;
  if (y->l.numel == 0) return MOTH_OK;
  int status = moth_zero(y);
  if (!status)
    status = MOTH_CALL(a->ctx, &line, diagonal, .input = y, .offset = a->offset,
                         .dim1 = a->dim1, .dim2 = a->dim2);
  if (!status) status = moth_copy_into(line, a->input);
  moth_tensor_release(line);
  return status;
}

static int diag_embed_grad(const diag_embed_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, diagonal, .input = g->dy, .offset = a->offset,
                                     .dim1 = a->dim1, .dim2 = a->dim2));
}

MOTH_OP(diag_embed, DIAG_EMBED, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD | MOTH_OP_PORTABLE,
        .doc = "Matrices whose diagonal is the last dimension of the input, with zeros elsewhere.",
        .examples = "moth.randn(2, 3)\n"
                    "moth.randn(2, 3), {offset = -1, dim1 = 1, dim2 = 3}")

static int diag_compose(const diag_args *a, moth_tensor **out) {
  moth_tensor *line = NULL;
  if (a->input->l.ndim == 1)
    return MOTH_CALL(a->ctx, out, diag_embed, .input = a->input, .offset = a->diagonal,
                     .dim1 = 0, .dim2 = 1);
  if (a->input->l.ndim != 2)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "a vector or a matrix is needed, got %s",
                     moth_str(a->input));
  int status = MOTH_CALL(a->ctx, &line, diagonal, .input = a->input, .offset = a->diagonal,
                         .dim1 = 0, .dim2 = 1);
  if (!status) status = MOTH_CALL(a->ctx, out, clone, .input = line);
  moth_tensor_release(line);
  return status;
}
MOTH_OP_COMPOSES(diag, DIAG, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "For a vector, a matrix with the vector on a diagonal; for a matrix, its "
                        "diagonal.",
                 .examples = "moth.randn(3)\n"
                             "moth.randn(3, 4), {diagonal = -1}")

static int trace_compose(const trace_args *a, moth_tensor **out) {
  moth_tensor *line = NULL;
  if (a->input->l.ndim != 2)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "a matrix is needed, got %s",
                     moth_str(a->input));
  int status = MOTH_CALL(a->ctx, &line, diagonal, .input = a->input, .offset = 0, .dim1 = 0,
                         .dim2 = 1);
  if (!status) status = MOTH_CALL(a->ctx, out, sum, .input = line, .dtype = -1);
  moth_tensor_release(line);
  return status;
}
MOTH_OP_COMPOSES(trace, TRACE, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The sum of the diagonal of a matrix.", .examples = "moth.randn(3, 4)")

const moth_op *const moth_rearrange_ops[] = {
  &moth_op_flip,     &moth_op_fliplr,   &moth_op_flipud,     &moth_op_rot90,
  &moth_op_roll,     &moth_op_tile,     &moth_op_repeat,     &moth_op_repeat_interleave,
  &moth_op_swapaxes, &moth_op_swapdims, &moth_op_moveaxis,   &moth_op_ravel,
  &moth_op_broadcast_to, &moth_op_broadcast_tensors, &moth_op_meshgrid, &moth_op_hstack,
  &moth_op_vstack,   &moth_op_dstack,   &moth_op_diag_embed, &moth_op_diag,
  &moth_op_trace,    NULL,
};
