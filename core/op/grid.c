/* grid.c -- grid_sample: samples images and volumes at the points of a grid. Each gradient is
** computed in one pass; under create_graph it is composed of ops (grid_grad.c).
*/
#include "grid.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/grid.h"
#include "kernel/real.h"
#include "gradient_formula.h"
#include "grid_grad.h"

#define HOW(a) \
  ((grid_how){(a)->ctx, (a)->mode, (a)->padding_mode, (a)->align_corners})
#define SAME_HOW(a) \
  .mode = (a)->mode, .padding_mode = (a)->padding_mode, .align_corners = (a)->align_corners

/* Returns the sides of the images and the modes of sampling. */
static moth_grid grid_of(grid_how h, const int64_t *sides, int n) {
  moth_grid g = {.sides = n, .mode = (int)h.mode, .padding = (int)h.padding, .align = h.align};
  for (int k = 0; k < 3; k++) g.size[k] = k < n ? sides[n - 1 - k] : 1;
  return g;
}

static int check_grid(grid_how h, const moth_tensor *grid, int sides) {
  const moth_layout *l = &grid->l;
  if (l->ndim != sides + 2 || l->shape[sides + 1] != sides)
    return moth_fail(h.ctx, MOTH_E_SHAPE, "grid", "%s is needed, got %s",
                     sides == 2 ? "(N, OH, OW, 2)" : "(N, OD, OH, OW, 3)", moth_str(grid));
  return MOTH_OK;
}

/* Some kernels hold positions in an image as 32-bit integers. */
static int check_sides(grid_how h, const char *arg, const char *shown, const int64_t *side,
                       int64_t n) {
  int64_t plane = 1;
  for (int64_t k = 0; k < n; k++) {
    if (side[k] < 1)
      return moth_fail(h.ctx, MOTH_E_SHAPE, arg, "sides of at least 1 are needed, got %s",
                       shown);
    if (moth_mul_overflow(plane, side[k], &plane) || plane > INT32_MAX)
      return moth_fail(h.ctx, MOTH_E_SHAPE, arg, "images below 2^31 elements are needed, got %s",
                       shown);
  }
  return MOTH_OK;
}

/* Checks that a grid fits images of layout x; `shown` is their text in error messages. */
static int check(grid_how h, const moth_layout *x, const char *shown, const moth_tensor *grid) {
  if (x->ndim != 4 && x->ndim != 5)
    return moth_fail(h.ctx, MOTH_E_SHAPE, "input", "(N, C, H, W) or (N, C, D, H, W) is needed, "
                     "got %s", shown);
  int status = check_sides(h, "input", shown, x->shape + 2, x->ndim - 2);
  if (!status) status = check_grid(h, grid, x->ndim - 2);
  if (!status && grid->l.shape[0] != x->shape[0])
    status = moth_fail(h.ctx, MOTH_E_SHAPE, "grid", "%lld samples as in %s are needed, got %s",
                       (long long)x->shape[0], shown, moth_str(grid));
  return status;
}

/* y := the shape of the result and of its gradient. */
static void sampled(const moth_layout *x, const moth_tensor *grid, moth_layout *y) {
  y->ndim = x->ndim;
  for (int k = 0; k < x->ndim; k++) y->shape[k] = k < 2 ? x->shape[k] : grid->l.shape[k - 1];
}

static int check_gradient(grid_how h, const moth_layout *x, const moth_tensor *grid,
                          const moth_tensor *dy) {
  moth_layout y = *x;
  sampled(x, grid, &y);
  if (moth_shape_same(&y, &dy->l)) return MOTH_OK;
  return moth_fail(h.ctx, MOTH_E_SHAPE, "grad", "%s is needed, got %s",
                   moth_str_shape(h.ctx, y.ndim, y.shape), moth_str(dy));
}

static moth_gridded gridded(grid_how h, const moth_layout *x, const moth_tensor *grid) {
  const int sides = x->ndim - 2;
  moth_gridded s = {.g = grid_of(h, x->shape + 2, sides), .samples = x->shape[0],
                    .channels = x->shape[1], .points = 1, .plane = 1, .grid = moth_at(grid)};
  for (int k = 0; k < sides; k++) {
    s.points *= grid->l.shape[1 + k];
    s.plane *= x->shape[2 + k];
  }
  return s;
}

/* -- grid_sample -- */

static int grid_sample_shape(const grid_sample_args *a, moth_layout *y) {
  int status = check(HOW(a), &a->input->l, moth_str(a->input), a->grid);
  if (!status) sampled(&a->input->l, a->grid, y);
  return status;
}

static int grid_sample_cpu(const grid_sample_args *a, moth_tensor **out) {
  moth_tensor *x = moth_real(a->input), *grid = moth_real(a->grid), *y = moth_real_out(out[0]);
  int status = x && grid && y ? MOTH_OK : a->ctx->error.code;
  if (!status && y->l.numel) {
    const moth_gridded s = gridded(HOW(a), &x->l, grid);
    status = moth_grid_sample(a->ctx, x->l.dtype, &s, moth_at(x), moth_at(y));
  }
  moth_tensor_release(x);
  moth_tensor_release(grid);
  return moth_real_done(y, out[0], status);
}

static int grid_sample_grad(const grid_sample_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  if (g->ctx->grad_mode) return moth_grid_grads(a, g);
  if (a->mode == MOTH_GRID_NEAREST && moth_wants(g, a->grid)) /* piecewise constant */
    moth_flow(g, a->grid, ZERO_OF(a->grid));
  if (moth_wants(g, a->input))
    moth_flow(g, a->input, GRAD(g, grid_sample_back, .grad = g->dy, .grid = a->grid,
                                .size = {x->shape, x->ndim}, SAME_HOW(a)));
  if (a->mode != MOTH_GRID_NEAREST && moth_wants(g, a->grid))
    moth_flow(g, a->grid, GRAD(g, grid_sample_turn, .grad = g->dy, .input = a->input,
                               .grid = a->grid, SAME_HOW(a)));
  return g->status;
}

MOTH_OP(grid_sample, GRID_SAMPLE,
  .doc = "Samples images or volumes at the coordinates of a grid: (x, y) or (x, y, z) for each "
         "element of the result, from -1 to 1 along each side.",
  .examples =
    "moth.randn(2, 3, 4, 5), moth.rand(2, 3, 2, 2) * 2 - 1  -- domain: unit\n"
    "moth.randn(1, 2, 3, 4), moth.rand(1, 2, 3, 2), {mode = 'bicubic', padding_mode = 'border', "
    "align_corners = true}  -- domain: large\n"
    "moth.randn(1, 2, 3, 4), moth.rand(1, 2, 3, 2), {padding_mode = 'reflection'}"
    "  -- domain: large\n"
    "moth.randn(1, 2, 2, 3, 4), moth.rand(1, 2, 1, 3, 3), {mode = 'nearest'}  -- domain: unit\n"
    "moth.randn(1, 2, 2, 3, 4), moth.rand(1, 2, 1, 3, 3)  -- domain: unit",
  .dtypes = MOTH_FLOATS | MOTH_PROMOTE,
  .saves = "input:grid grid")

/* -- the gradients of grid_sample in one pass -- */

static int grid_sample_back_shape(const grid_sample_back_args *a, moth_layout *y) {
  int status = moth_shape_of(a->ctx, "size", a->size, y);
  if (!status) status = check(HOW(a), y, moth_str_shape(a->ctx, y->ndim, y->shape), a->grid);
  return status ? status : check_gradient(HOW(a), y, a->grid, a->grad);
}

static int grid_sample_back_cpu(const grid_sample_back_args *a, moth_tensor **out) {
  moth_tensor *dy = moth_real(a->grad), *grid = moth_real(a->grid), *dx = moth_real_out(out[0]);
  int status = dy && grid && dx ? MOTH_OK : a->ctx->error.code;
  if (!status && dx->l.numel) {
    const moth_gridded s = gridded(HOW(a), &out[0]->l, grid);
    status = moth_grid_back(a->ctx, dx->l.dtype, &s, moth_at(dy), moth_at(dx));
  }
  moth_tensor_release(dy);
  moth_tensor_release(grid);
  return moth_real_done(dx, out[0], status);
}

MOTH_OP_CONST(grid_sample_back, GRID_SAMPLE_BACK,
  .doc = "The gradient of grid_sample for the images.",
  .examples =
    "moth.randn(2, 3, 3, 2), moth.rand(2, 3, 2, 2) * 2 - 1, {2, 3, 4, 5}\n"
    "moth.randn(1, 2, 2, 3), moth.rand(1, 2, 3, 2) * 3, {1, 2, 3, 4}, {mode = 'bicubic', "
    "padding_mode = 'border', align_corners = true}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN)

static int grid_sample_turn_shape(const grid_sample_turn_args *a, moth_layout *y) {
  const moth_layout *x = &a->input->l;
  int status = check(HOW(a), x, moth_str(a->input), a->grid);
  if (!status) status = check_gradient(HOW(a), x, a->grid, a->grad);
  return status ? status : moth_shape_like(a->grid, y);
}

static int grid_sample_turn_cpu(const grid_sample_turn_args *a, moth_tensor **out) {
  moth_tensor *x = moth_real(a->input), *dy = moth_real(a->grad), *grid = moth_real(a->grid);
  moth_tensor *dgrid = moth_real_out(out[0]);
  int status = x && dy && grid && dgrid ? MOTH_OK : a->ctx->error.code;
  if (!status && dgrid->l.numel) {
    const moth_gridded s = gridded(HOW(a), &x->l, grid);
    status = moth_grid_points_back(a->ctx, x->l.dtype, &s, moth_at(x), moth_at(dy), moth_at(dgrid));
  }
  moth_tensor_release(x);
  moth_tensor_release(dy);
  moth_tensor_release(grid);
  return moth_real_done(dgrid, out[0], status);
}

MOTH_OP_CONST(grid_sample_turn, GRID_SAMPLE_TURN,
  .doc = "The gradient of grid_sample for the grid.",
  .examples =
    "moth.randn(2, 3, 3, 2), moth.randn(2, 3, 4, 5), moth.rand(2, 3, 2, 2) * 2 - 1\n"
    "moth.randn(1, 2, 2, 3), moth.randn(1, 2, 3, 4), moth.rand(1, 2, 3, 2) * 3, "
    "{mode = 'bicubic', padding_mode = 'border', align_corners = true}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN, .public_name = "grid_sample")

/* -- positions and weights, for gradients composed of ops -- */

static int listed(grid_how h, const moth_tensor *grid, moth_ints size, moth_layout *y) {
  if (size.n != 2 && size.n != 3)
    return moth_fail(h.ctx, MOTH_E_SHAPE, "size", "2 or 3 sides are needed, got %lld",
                     (long long)size.n);
  int status = check_sides(h, "size", moth_str_ints(h.ctx, size.n, size.at), size.at, size.n);
  if (!status) status = check_grid(h, grid, (int)size.n);
  if (status) return status;
  const moth_grid g = grid_of(h, size.at, (int)size.n);
  y->ndim = 3;
  y->shape[0] = grid->l.shape[0];
  y->shape[1] = 1;
  for (int64_t k = 0; k < size.n; k++) y->shape[1] *= grid->l.shape[1 + k];
  y->shape[2] = moth_grid_count(&g);
  return MOTH_OK;
}

static int grid_weights_shape(const grid_weights_args *a, moth_layout *y) {
  for (int k = 0; k < 3; k++)
    if (a->order[k] < 0 || a->order[k] > 99)
      return moth_fail(a->ctx, MOTH_E_DOMAIN, "order", "0 to 99 are possible, got %lld",
                       (long long)a->order[k]);
  return listed(HOW(a), a->grid, a->size, y);
}

static int grid_weights_cpu(const grid_weights_args *a, moth_tensor **out) {
  moth_tensor *grid = moth_real(a->grid), *y = moth_real_out(out[0]);
  int status = grid && y ? MOTH_OK : a->ctx->error.code;
  if (!status && y->l.numel) {
    moth_gridded s = {.g = grid_of(HOW(a), a->size.at, (int)a->size.n), .grid = moth_at(grid),
                      .samples = y->l.shape[0], .points = y->l.shape[1]};
    for (int k = 0; k < 3; k++) s.g.order[k] = (int)a->order[k];
    status = moth_grid_list(a->ctx, grid->l.dtype, &s, moth_at(y), NULL);
  }
  moth_tensor_release(grid);
  return moth_real_done(y, out[0], status);
}

static int grid_weights_grad(const grid_weights_args *a, moth_grad *g) {
  moth_tensor *part[3];
  int64_t last = -1;
  for (int k = 0; k < a->size.n; k++) {
    const int64_t next[3] = {a->order[0] + (k == 0), a->order[1] + (k == 1),
                             a->order[2] + (k == 2)};
    moth_tensor *slope = GRAD(g, grid_weights, .grid = a->grid, .size = a->size, SAME_HOW(a),
                              .order = {next[0], next[1], next[2]});
    part[k] = GRAD(g, sum, .input = TIMES(g->dy, slope), .dim = {&last, 1}, .dtype = -1);
    if (!part[k]) return g->status;
  }
  moth_tensor *all = GRAD(g, stack, .tensors = {part, a->size.n}, .dim = -1);
  return moth_flow(g, a->grid, GRAD(g, reshape, .input = all,
                                    .shape = {a->grid->l.shape, a->grid->l.ndim}));
}

MOTH_OP(grid_weights, GRID_WEIGHTS,
  .doc = "The interpolation weights of the elements around each point of a grid.",
  .examples =
    "moth.rand(2, 3, 2, 2) * 2 - 1, {4, 5}  -- domain: unit\n"
    "moth.rand(1, 2, 3, 2), {3, 4}, {mode = 'bicubic', padding_mode = 'border', "
    "align_corners = true, order = {1, 0, 0}}  -- domain: unit",
  .dtypes = MOTH_FLOATS,
  .saves = "grid",
  .flags = MOTH_OP_HIDDEN, .public_name = "grid_sample")

static int grid_positions_shape(const grid_positions_args *a, moth_layout *y) {
  y->dtype = MOTH_I64;
  return listed(HOW(a), a->grid, a->size, y);
}

static int grid_positions_cpu(const grid_positions_args *a, moth_tensor **out) {
  moth_tensor *grid = moth_real(a->grid);
  int status = grid ? MOTH_OK : a->ctx->error.code;
  if (!status && out[0]->l.numel) {
    const moth_gridded s = {.g = grid_of(HOW(a), a->size.at, (int)a->size.n),
                            .grid = moth_at(grid), .samples = out[0]->l.shape[0],
                            .points = out[0]->l.shape[1]};
    int64_t *at = (int64_t *)(void *)moth_at(out[0]);
    status = moth_grid_list(a->ctx, grid->l.dtype, &s, NULL, at);
  }
  moth_tensor_release(grid);
  return status;
}

MOTH_OP_CONST(grid_positions, GRID_POSITIONS,
  .doc = "The positions of the elements around each point of a grid, counted from 0.",
  .examples =
    "moth.rand(2, 3, 2, 2) * 2 - 1, {4, 5}\n"
    "moth.rand(1, 2, 3, 2), {3, 4}, {mode = 'bicubic', padding_mode = 'border', "
    "align_corners = true}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN, .public_name = "grid_sample")

const moth_op *const moth_grid_ops[] = {
  &moth_op_grid_sample, &moth_op_grid_sample_back, &moth_op_grid_sample_turn,
  &moth_op_grid_weights, &moth_op_grid_positions, NULL,
};
