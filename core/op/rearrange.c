/* rearrange.c -- ops that reverse, roll and repeat elements. Aliases and composed ops are in
** rearrange_composed.c.
*/
#include "rearrange.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "capture/capture.h"
#include "device/device.h"
#include "tensor/loop.h"
#include "copy.h"
#include "index.h"
#include "reduce.h"
#include "view.h"

/* -- flip -- */

/* *mask := the dims. An empty list means no dims, unlike in other ops. */
static int some_dims(moth_ctx *ctx, moth_ints dims, int32_t ndim, uint32_t *mask) {
  *mask = 0;
  return dims.n ? moth_dim_mask(ctx, "dims", dims, ndim, mask) : MOTH_OK;
}

static int flip_shape(const flip_args *a, moth_layout *y) {
  uint32_t mask;
  moth_shape_like(a->input, y);
  return some_dims(a->ctx, a->dims, a->input->l.ndim, &mask);
}

/* Reads the input backwards through a tensor with negative strides. The tensor is used only
** here. */
static int flip_cpu(const flip_args *a, moth_tensor **out) {
  moth_tensor seen = *a->input;
  uint32_t mask;
  int status = some_dims(a->ctx, a->dims, seen.l.ndim, &mask);
  if (status || seen.l.numel == 0) return status;
  for (int32_t d = 0; d < seen.l.ndim; d++) {
    if (!(mask >> d & 1u)) continue;
    seen.l.offset += (seen.l.shape[d] - 1) * seen.l.stride[d];
    seen.l.stride[d] = -seen.l.stride[d];
  }
  return moth_copy_into(out[0], &seen);
}

static int flip_grad(const flip_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, flip, .input = g->dy, .dims = a->dims));
}

MOTH_OP(flip, FLIP, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD | MOTH_OP_PORTABLE,
        .doc = "The tensor reversed along the given dimensions, as a copy.",
        .examples = "moth.randn(2, 3), {2}\n"
                    "moth.randn(2, 3, 2), {1, -1}")

/* -- roll -- */

/* shift := the shift of each dimension, from 0 to size - 1. */
static int shifts_of(const roll_args *a, const moth_layout *l, int64_t *shift) {
  uint32_t mask;
  memset(shift, 0, sizeof *shift * MOTH_MAX_DIMS);
  int status = moth_dim_mask(a->ctx, "dims", a->dims, l->ndim, &mask);
  for (int64_t i = 0; i < a->dims.n && !status; i++) {
    int32_t d;
    status = moth_dim(a->ctx, "dims", a->dims.at[i], l->ndim, &d);
    if (status || l->ndim == 0 || l->shape[d] == 0) continue;
    int64_t n = l->shape[d], by = a->shifts.at[i] % n;
    shift[d] = by < 0 ? by + n : by;
  }
  return status;
}

/* x := its part that begins at `start` along dim and is n long. */
static void part_of(moth_tensor *x, int32_t dim, int64_t start, int64_t n) {
  x->l.offset += start * x->l.stride[dim];
  x->l.numel = x->l.numel / x->l.shape[dim] * n;
  x->l.shape[dim] = n;
}

/* A roll of one dimension swaps two blocks. Applies this to each rolled dimension, by recursion. */
static int roll_blocks(moth_tensor *y, const moth_tensor *x, const int64_t *shift, int32_t dim) {
  while (dim < x->l.ndim && !shift[dim]) dim++;
  if (dim == x->l.ndim) return moth_copy_into(y, x);
  int64_t n = x->l.shape[dim], by = shift[dim];
  moth_tensor to = *y, from = *x;
  part_of(&to, dim, by, n - by);
  part_of(&from, dim, 0, n - by);
  int status = roll_blocks(&to, &from, shift, dim + 1);
  if (status) return status;
  to = *y;
  from = *x;
  part_of(&to, dim, 0, by);
  part_of(&from, dim, n - by, by);
  return roll_blocks(&to, &from, shift, dim + 1);
}

static int roll_shape(const roll_args *a, moth_layout *y) {
  int64_t shift[MOTH_MAX_DIMS];
  moth_shape_like(a->input, y);
  if (a->dims.at ? a->shifts.n != a->dims.n : a->shifts.n != 1)
    return moth_fail(a->ctx, MOTH_E_ARG, "shifts", "one shift for each of %s%s is needed, got %lld",
                     a->dims.at ? "the dims " : "",
                     a->dims.at ? moth_str_dims(a->ctx, a->dims.n, a->dims.at) : "no dims",
                     (long long)a->shifts.n);
  if (a->dims.at && a->dims.n && a->input->l.ndim == 0)
    return moth_fail(a->ctx, MOTH_E_ARG, "dims", "%s has no dimensions", moth_str(a->input));
  return a->dims.at ? shifts_of(a, &a->input->l, shift) : MOTH_OK;
}

static int roll_cpu(const roll_args *a, moth_tensor **out) {
  int64_t shift[MOTH_MAX_DIMS] = {0};
  if (out[0]->l.numel == 0) return MOTH_OK;
  if (a->dims.at) {
    int status = shifts_of(a, &a->input->l, shift);
    return status ? status : roll_blocks(out[0], a->input, shift, 0);
  }
  moth_tensor *packed = moth_packed(a->input);
  if (!packed) return a->ctx->error.code;
  moth_tensor to = *out[0], from = *packed;
  to.l.ndim = from.l.ndim = 1;
  to.l.shape[0] = from.l.shape[0] = to.l.numel;
  to.l.stride[0] = from.l.stride[0] = 1;
  int64_t by = a->shifts.at[0] % to.l.numel;
  shift[0] = by < 0 ? by + to.l.numel : by;
  int status = roll_blocks(&to, &from, shift, 0);
  moth_tensor_release(packed);
  return status;
}

static int roll_grad(const roll_args *a, moth_grad *g) {
  int64_t back[MOTH_MAX_DIMS] = {0};
  for (int64_t i = 0; i < a->shifts.n; i++) { /* the remainder first: -INT64_MIN overflows */
    int64_t n = g->dy->l.numel;
    int32_t d = 0;
    if (a->dims.at) {
      int status = moth_dim(a->ctx, "dims", a->dims.at[i], g->dy->l.ndim, &d);
      if (status) return status;
      n = g->dy->l.ndim ? g->dy->l.shape[d] : 1;
    }
    back[i] = n ? -(a->shifts.at[i] % n) : 0;
  }
  return moth_flow(g, a->input, GRAD(g, roll, .input = g->dy, .shifts = {back, a->shifts.n},
                                     .dims = a->dims));
}

MOTH_OP(roll, ROLL, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD | MOTH_OP_PORTABLE,
        .doc = "The tensor rolled along dimensions: elements shifted past the end are inserted at "
               "the start.",
        .examples = "moth.randn(2, 3), 2\n"
                    "moth.randn(3, 4), {1, -3}, {1, 2}")

/* -- tile -- */

/* The sizes of the input and the repeats. The shorter list gets ones in front. */
typedef struct tiling {
  int32_t ndim;
  int64_t size[MOTH_MAX_DIMS], times[MOTH_MAX_DIMS];
} tiling;

static int tiling_of(const tile_args *a, tiling *t) {
  const moth_layout *l = &a->input->l;
  t->ndim = a->dims.n > l->ndim ? (int32_t)a->dims.n : l->ndim;
  if (a->dims.n > MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "dims", "at most %d dimensions are possible, got %lld",
                     MOTH_MAX_DIMS, (long long)a->dims.n);
  for (int32_t d = 0; d < t->ndim; d++) {
    int64_t x = d - (t->ndim - l->ndim), r = d - (t->ndim - a->dims.n);
    t->size[d] = x < 0 ? 1 : l->shape[x];
    t->times[d] = r < 0 ? 1 : a->dims.at[r];
    if (t->times[d] < 0)
      return moth_fail(a->ctx, MOTH_E_ARG, "dims", "a dimension cannot be repeated %lld times",
                       (long long)t->times[d]);
  }
  return MOTH_OK;
}

static int tile_shape(const tile_args *a, moth_layout *y) {
  tiling t;
  int64_t size[MOTH_MAX_DIMS];
  int status = tiling_of(a, &t);
  for (int32_t d = 0; d < t.ndim && !status; d++)
    if (moth_mul_overflow(t.size[d], t.times[d], &size[d]))
      status = moth_fail(a->ctx, MOTH_E_SHAPE, "dims", "the result has too many elements");
  return status ? status : moth_shape_of(a->ctx, "dims", (moth_ints){size, t.ndim}, y);
}

/* Copies the input into the first corner. Then repeats the filled part along each dimension. */
static int tile_cpu(const tile_args *a, moth_tensor **out) {
  tiling t;
  int status = tiling_of(a, &t);
  if (status || out[0]->l.numel == 0) return status;
  moth_tensor done = *out[0];
  done.l.numel = a->input->l.numel;
  memcpy(done.l.shape, t.size, sizeof t.size);
  status = moth_copy_into(&done, a->input);
  for (int32_t d = t.ndim - 1; d >= 0 && !status; d--) {
    int64_t size = t.size[d], all = size * t.times[d];
    for (int64_t at = size; at < all && !status;) {
      int64_t n = at < all - at ? at : all - at;
      moth_tensor from = done, to = done;
      from.l.shape[d] = to.l.shape[d] = n;
      from.l.numel = to.l.numel = done.l.numel / size * n;
      to.l.offset += at * to.l.stride[d];
      status = moth_copy_into(&to, &from);
      at += n;
    }
    done.l.numel = done.l.numel / size * all;
    done.l.shape[d] = all;
  }
  return status;
}

/* For each dimension: views dx as (before, times, size, behind) and sums over `times`. */
static int tile_grad(const tile_args *a, moth_grad *g) {
  static const int64_t middle = 1;
  tiling t;
  int status = tiling_of(a, &t);
  if (status) return status;
  moth_tensor *dx = g->dy;
  int64_t before = 1, behind = 1;
  for (int32_t d = 0; d < t.ndim; d++) behind *= t.size[d] * t.times[d];
  if (behind == 0)
    dx = GRAD(g, sum, .input = dx, .dim = {NULL, 0}, .keepdim = 0, .dtype = -1);
  for (int32_t d = 0; d < t.ndim && behind; d++) {
    int64_t shape[4] = {before, t.times[d], t.size[d], behind / (t.size[d] * t.times[d])};
    behind = shape[3];
    before *= t.size[d];
    if (t.times[d] == 1) continue;
    dx = GRAD(g, reshape, .input = dx, .shape = {shape, 4});
    dx = GRAD(g, sum, .input = dx, .dim = {&middle, 1}, .keepdim = 0, .dtype = -1);
  }
  const moth_ints size = {a->input->l.shape, a->input->l.ndim};
  dx = behind ? GRAD(g, reshape, .input = dx, .shape = size)
              /* zero repeats: the gradient is zeros */
              : GRAD(g, expand, .input = dx, .size = size);
  return moth_flow(g, a->input, dx);
}

MOTH_OP(tile, TILE, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD | MOTH_OP_PORTABLE,
        .doc = "The tensor repeated along its dimensions. PyTorch's x.repeat(2, 3) is x:tile(2, 3) "
               "in Lua, because `repeat` is a keyword.",
        .examples = "moth.randn(2, 3), {2, 2}\n"
                    "moth.randn(2), {3, 1, 2}\n"
                    "moth.randn(2, 2, 2), {2, 1}")

static int repeat_compose(const repeat_args *a, moth_tensor **out) {
  if (a->repeats.n < a->input->l.ndim)
    return moth_fail(a->ctx, MOTH_E_ARG, "repeats", "%s has fewer numbers than %s has dimensions",
                     moth_str_ints(a->ctx, a->repeats.n, a->repeats.at), moth_str(a->input));
  return MOTH_CALL(a->ctx, out, tile, .input = a->input, .dims = a->repeats);
}

MOTH_OP_COMPOSES(repeat, REPEAT, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "tile with a number of repeats for every dimension. `repeat` is a keyword "
                        "of Lua, so the call is x[\"repeat\"](x, 2, 3); x:tile(2, 3) is the same.",
                 .examples = "moth.randn(2, 3), {2, 2}\n"
                             "moth.randn(2), {3, 1, 2}")

/* -- repeat_interleave -- */

static int64_t count_at(const moth_tensor *counts, int64_t i) {
  const int64_t *at = (const int64_t *)(const void *)moth_at(counts);
  return at[counts->l.numel == 1 ? 0 : i];
}

/* Returns the counts for n positions, as packed i64 of 1 or n elements, and their sum in *total.
** Fails if a count is negative. Reads the counts on the CPU, since the sum is a size of the
** result. */
static moth_tensor *counts_of(const repeat_interleave_args *a, int64_t n, int64_t *total) {
  const moth_tensor *r = a->repeats;
  moth_ctx *ctx = a->ctx;
  bool is_integer = moth_is_int(r->l.dtype);
  if (r->flags & MOTH_T_NUMBER) is_integer = moth_value_fits(r->l.dtype, moth_at(r), MOTH_I64);
  if (!is_integer || r->l.ndim > 1 || (r->l.ndim == 1 && r->l.numel != 1 && r->l.numel != n)) {
    moth_fail(ctx, is_integer ? MOTH_E_SHAPE : MOTH_E_DTYPE, "repeats",
              "an integer or %lld integers are needed, got %s", (long long)n, moth_str(r));
    return NULL;
  }
  moth_tensor *here = moth_to_host(r), *counts = here ? moth_cast(here, MOTH_I64) : NULL;
  moth_tensor_release(here);
  *total = 0;
  const bool each = counts && counts->l.numel != 1; /* false: one count for all n positions */
  for (int64_t i = 0; counts && i < (each ? n : 1); i++) {
    int64_t c = count_at(counts, i), more = c;
    if (c >= 0 && (each || !moth_mul_overflow(c, n, &more)) &&
        !moth_add_overflow(*total, more, total))
      continue;
    moth_fail(ctx, MOTH_E_ARG, "repeats", "a position cannot be repeated %lld times",
              (long long)c);
    moth_tensor_release(counts);
    return NULL;
  }
  return counts;
}

static moth_tensor *repeated_positions(const repeat_interleave_args *a, int64_t n, int64_t total,
                                       const moth_tensor *counts) {
  moth_tensor *y = NULL;
  moth_layout l = {.ndim = 1, .dtype = MOTH_I64, .shape = {total}};
  if (!moth_layout_pack(&l))
    moth_fail(a->ctx, MOTH_E_SHAPE, "repeats", "%lld positions are too many", (long long)total);
  else
    y = moth_tensor_new(a->ctx, &l);
  int64_t *to = y && total ? (int64_t *)(void *)moth_at(y) : NULL;
  for (int64_t i = 0; to && i < n; i++)
    for (int64_t c = count_at(counts, i); c > 0 && total > 0; c--, total--) *to++ = i;
  return y;
}

/* y := x with each position of dim repeated `by` times: an expanded view with one more dimension,
** copied. Its gradient is a sum. */
static int repeated_alike(moth_ctx *ctx, moth_tensor *x, int32_t dim, int64_t by,
                          moth_tensor **out) {
  int64_t wide[4] = {1, x->l.shape[dim], 1, 1}, shape[MOTH_MAX_DIMS];
  moth_tensor *line = NULL, *repeated = NULL, *copy = NULL;
  for (int d = 0; d < x->l.ndim; d++) {
    shape[d] = d == dim ? x->l.shape[d] * by : x->l.shape[d];
    if (d != dim) wide[d < dim ? 0 : 3] *= x->l.shape[d];
  }
  int status = MOTH_CALL(ctx, &line, reshape, .input = x, .shape = {wide, 4});
  wide[2] = by;
  if (!status) status = MOTH_CALL(ctx, &repeated, expand, .input = line, .size = {wide, 4});
  if (!status) status = MOTH_CALL(ctx, &copy, clone, .input = repeated);
  if (!status) status = MOTH_CALL(ctx, out, reshape, .input = copy, .shape = {shape, x->l.ndim});
  moth_tensor_release(copy);
  moth_tensor_release(repeated);
  moth_tensor_release(line);
  return status;
}

static int repeat_along(const repeat_interleave_args *a, moth_tensor *x, int32_t dim,
                        moth_tensor **out) {
  int64_t n = x->l.shape[dim], total;
  moth_tensor *counts = counts_of(a, n, &total), *index = NULL;
  int status = counts ? MOTH_OK : a->ctx->error.code;
  if (!status && a->output_size != MOTH_NO_INT && a->output_size != total)
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "output_size",
                       "%lld is not the sum of the repeats, %lld",
                       (long long)a->output_size, (long long)total);
  if (!status && counts->l.numel == 1) {
    status = repeated_alike(a->ctx, x, dim, count_at(counts, 0), out);
  } else if (!status) {
    index = repeated_positions(a, n, total, counts);
    status = index ? MOTH_CALL(a->ctx, out, index_select, .input = x, .dim = dim, .index = index)
                   : a->ctx->error.code;
  }
  moth_tensor_release(index);
  moth_tensor_release(counts);
  return status;
}

static int repeat_interleave_compose(const repeat_interleave_args *a, moth_tensor **out) {
  static const int64_t all = -1;
  int32_t dim = 0;
  moth_tensor *x = NULL;
  bool flat = a->dim == MOTH_NO_INT || a->input->l.ndim == 0;
  int status = flat ? MOTH_CALL(a->ctx, &x, reshape, .input = a->input, .shape = {&all, 1})
                    : moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &dim);
  if (!flat) x = moth_tensor_retain(a->input);
  if (!status && !(a->repeats->flags & MOTH_T_NUMBER))
    status = moth_capture_refuse_shape(a->ctx, "repeat_interleave");
  if (!status) status = repeat_along(a, x, dim, out);
  moth_tensor_release(x);
  return status;
}

MOTH_OP_COMPOSES(repeat_interleave, REPEAT_INTERLEAVE, .dtypes = MOTH_ANY,
                 .flags = MOTH_OP_METHOD | MOTH_OP_MIXED | MOTH_OP_NUMBERS,
                 .doc = "Repeats each element along a dimension: {1, 2} with repeats 2 is {1, 1, "
                        "2, 2}.",
                 .examples = "moth.randn(2, 3), 2\n"
                             "moth.randn(2, 3), moth.tensor{1LL, 0LL, 2LL}, "
                             "{dim = 2, output_size = 3}")
