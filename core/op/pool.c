/* pool.c -- pooling: the maximum (max_pool2d) or the mean (avg_pool2d) of each window. */
#include "pool.h"
#include "autograd/gradient.h"

#include "kernel/pool.h"
#include "kernel/real.h"
#include "one_dimension.h"

/* The product of all sizes but the last two. */
static int64_t planes_of(const moth_layout *l) {
  int64_t n = 1;
  for (int i = 0; i + 2 < l->ndim; i++) n *= l->shape[i];
  return n;
}

/* y := the layout of x, but with planes of the given size. */
static void replane(moth_layout *y, const moth_layout *x, const int64_t size[2]) {
  y->ndim = x->ndim;
  memcpy(y->shape, x->shape, sizeof x->shape);
  y->shape[y->ndim - 2] = size[0];
  y->shape[y->ndim - 1] = size[1];
}

/* Checks shared by all pooling ops; fills the image of w. */
static int pool_fit(moth_window *w, const moth_tensor *input, bool ceil) {
  moth_ctx *ctx = input->ctx;
  const moth_layout *l = &input->l;
  if (l->ndim != 3 && l->ndim != 4)
    return moth_fail(ctx, MOTH_E_SHAPE, "input", "(N, C, H, W) or (C, H, W) is needed, got %s",
                     moth_str(input));
  int status = moth_window_fit(w, input, "kernel_size", ceil);
  if (status) return status;
  for (int i = l->ndim - 3; i < l->ndim; i++)
    if (l->shape[i] == 0)
      return moth_fail(ctx, MOTH_E_SHAPE, "input", "only the batch may be empty, got %s",
                       moth_str(input));
  if (w->padding[0] > w->kernel[0] / 2 || w->padding[1] > w->kernel[1] / 2)
    return moth_fail(ctx, MOTH_E_DOMAIN, "padding", "%s is more than half the window %s",
                     moth_str_axes(input, 2, w->padding), moth_str_axes(input, 2, w->kernel));
  return MOTH_OK;
}

/* -- max_pool2d -- */

static int max_pool2d_fit(const max_pool2d_args *a, moth_window *w) {
  *w = (moth_window){.axes = 2, .kernel = INT2(a->kernel_size), .stride = INT2(a->stride),
                     .padding = INT2(a->padding), .dilation = INT2(a->dilation)};
  return pool_fit(w, a->input, a->ceil_mode);
}

static int max_pool2d_shape(const max_pool2d_args *a, moth_layout *y) {
  moth_window w;
  int status = max_pool2d_fit(a, &w);
  if (status) return status;
  replane(&y[0], &a->input->l, w.out);
  replane(&y[1], &a->input->l, w.out);
  return MOTH_OK;
}

static int max_pool2d_cpu(const max_pool2d_args *a, moth_tensor **out) {
  moth_pool p = {.planes = planes_of(&a->input->l)};
  int status = max_pool2d_fit(a, &p.w);
  if (status) return status;
  moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
  status = !x || !y ? a->ctx->error.code
                    : moth_max_pool(a->ctx, x->l.dtype, &p, moth_at(x), moth_at(y),
                                    (int64_t *)(void *)moth_at(out[1]));
  moth_tensor_release(x);
  return moth_real_done(y, out[0], status);
}

static int max_pool2d_grad(const max_pool2d_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  const int64_t *k = a->kernel_size, *d = a->dilation;
  return moth_flow(g, a->input,
                   GRAD(g, max_pool2d_back, .input = g->dy, .indices = g->out[1],
                        .size = INT2(&x->shape[x->ndim - 2]),
                        .memory_format = moth_format_of(a->input),
                        .reach = {(k[0] - 1) * d[0] + 1, (k[1] - 1) * d[1] + 1},
                        .stride = INT2(a->stride), .padding = INT2(a->padding)));
}

MOTH_OP(max_pool2d, MAX_POOL2D,
  .doc = "The largest value in each window of an image; NaN counts as largest. With return_indices "
         "also the position of each maximum in its plane, in row-major order.",
  .examples =
    "moth.randn(2, 3, 8, 8), 2  -- domain: distinct\n"
    "moth.randn(2, 3, 9, 8), {kernel_size = {3, 2}, stride = {2, 1}, padding = 1}"
    "  -- domain: distinct\n"
    "moth.randn(2, 7, 8), {kernel_size = 2, stride = 3, dilation = 2, ceil_mode = true,"
    " return_indices = true}  -- domain: distinct",
  .outputs = "y, indices: return_indices",
  .dtypes = MOTH_FLOATS,
  .saves = "indices",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_METHOD)

/* -- the gradient of max_pool2d, and the gradient of that -- */

static int same_places(moth_ctx *ctx, const moth_tensor *input, const moth_tensor *indices,
                       int32_t but_last) {
  bool same = input->l.ndim == indices->l.ndim && input->l.ndim >= 2;
  for (int i = 0; same && i < input->l.ndim - but_last; i++)
    same = input->l.shape[i] == indices->l.shape[i];
  return same ? MOTH_OK
              : moth_fail(ctx, MOTH_E_SHAPE, "indices", "%s does not match %s",
                          moth_str(indices), moth_str(input));
}

static int max_pool2d_back_shape(const max_pool2d_back_args *a, moth_layout *y) {
  if (a->size[0] < 1 || a->size[1] < 1)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "size", "numbers from 1 on are needed, got %s",
                     moth_str_ints(a->ctx, 2, a->size));
  int status = same_places(a->ctx, a->input, a->indices, 0);
  if (!status) replane(y, &a->input->l, a->size);
  return status;
}

static int max_pool2d_back_cpu(const max_pool2d_back_args *a, moth_tensor **out) {
  const moth_layout *l = &a->input->l;
  moth_tensor *dy = moth_real(a->input), *index = moth_positions(a->indices);
  moth_tensor *dx = moth_real_out(out[0]);
  int status = a->ctx->error.code;
  if (dy && index && dx)
    status = moth_pool_scatter(a->ctx, dy->l.dtype, planes_of(l),
                               l->shape[l->ndim - 2] * l->shape[l->ndim - 1],
                               a->size[0] * a->size[1], moth_at(dy),
                               (const int64_t *)(void *)moth_at(index), moth_at(dx));
  moth_tensor_release(dy);
  moth_tensor_release(index);
  return moth_real_done(dx, out[0], status);
}

static int max_pool2d_back_grad(const max_pool2d_back_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, max_pool2d_pick, .input = g->dy, .indices = a->indices));
}

MOTH_OP(max_pool2d_back, MAX_POOL2D_BACK,
  .doc = "The gradient of max_pool2d: adds each value at its position in a plane of zeros.",
  .examples = "moth.randn(1, 2, 2), moth.tensor({{{1, 4}, {9, 9}}}, {dtype = moth.int64}), 3\n"
              "moth.randn(1, 1, 1, 2), moth.tensor({{{{1, 4}}}}, {dtype = moth.int64}), {2, 2},"
              " \"channels_last\"\n"
              "moth.randn(1, 2, 2), moth.tensor({{{1, 5}, {4, 5}}}, {dtype = moth.int64}), 3,"
              " {reach = {3, 2}, stride = 2, padding = 1}",
  .dtypes = MOTH_FLOATS,
  .saves = "indices",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN)

static int max_pool2d_pick_shape(const max_pool2d_pick_args *a, moth_layout *y) {
  int status = same_places(a->ctx, a->input, a->indices, 2);
  if (!status) replane(y, &a->input->l, &a->indices->l.shape[a->indices->l.ndim - 2]);
  return status;
}

static int max_pool2d_pick_cpu(const max_pool2d_pick_args *a, moth_tensor **out) {
  const moth_layout *l = &a->input->l, *k = &a->indices->l;
  moth_tensor *x = moth_real(a->input), *index = moth_positions(a->indices);
  moth_tensor *y = moth_real_out(out[0]);
  int status = a->ctx->error.code;
  if (x && index && y)
    status = moth_pool_gather(a->ctx, x->l.dtype, planes_of(l),
                              k->shape[k->ndim - 2] * k->shape[k->ndim - 1],
                              l->shape[l->ndim - 2] * l->shape[l->ndim - 1], moth_at(x),
                              (const int64_t *)(void *)moth_at(index), moth_at(y));
  moth_tensor_release(x);
  moth_tensor_release(index);
  return moth_real_done(y, out[0], status);
}

static int max_pool2d_pick_grad(const max_pool2d_pick_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  return moth_flow(g, a->input,
                   GRAD(g, max_pool2d_back, .input = g->dy, .indices = a->indices,
                        .size = INT2(&x->shape[x->ndim - 2])));
}

MOTH_OP(max_pool2d_pick, MAX_POOL2D_PICK,
  .doc = "The values at the given positions of planes: the gradient of max_pool2d_back.",
  .examples = "moth.randn(1, 3, 3), moth.tensor({{{1, 4}, {9, 9}}}, {dtype = moth.int64})",
  .dtypes = MOTH_FLOATS,
  .saves = "indices",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN, .public_name = "max_pool2d")

/* -- avg_pool2d -- */

static int divisor_of(moth_ctx *ctx, int64_t given, int64_t *divisor) {
  *divisor = given == MOTH_NO_INT ? 0 : given;
  return given == 0 ? moth_fail(ctx, MOTH_E_DOMAIN, "divisor_override",
                                "a number other than 0 is needed, got 0") : MOTH_OK;
}

static int avg_pool2d_fit(const avg_pool2d_args *a, moth_pool *p) {
  *p = (moth_pool){.w = {.axes = 2, .kernel = INT2(a->kernel_size), .stride = INT2(a->stride),
                         .padding = INT2(a->padding), .dilation = {1, 1}},
                   .planes = planes_of(&a->input->l), .count_padding = a->count_include_pad};
  int status = divisor_of(a->ctx, a->divisor_override, &p->divisor);
  return status ? status : pool_fit(&p->w, a->input, a->ceil_mode);
}

static int avg_pool2d_shape(const avg_pool2d_args *a, moth_layout *y) {
  moth_pool p;
  int status = avg_pool2d_fit(a, &p);
  if (!status) replane(y, &a->input->l, p.w.out);
  return status;
}

static int avg_pool2d_cpu(const avg_pool2d_args *a, moth_tensor **out) {
  moth_pool p;
  int status = avg_pool2d_fit(a, &p);
  if (status) return status;
  moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
  status = !x || !y ? a->ctx->error.code
                    : moth_mean_pool(a->ctx, x->l.dtype, &p, moth_at(x), moth_at(y));
  moth_tensor_release(x);
  return moth_real_done(y, out[0], status);
}

static int avg_pool2d_grad(const avg_pool2d_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  return moth_flow(g, a->input,
                   GRAD(g, avg_pool2d_back, .input = g->dy,
                        .size = INT2(&x->shape[x->ndim - 2]),
                        .kernel_size = INT2(a->kernel_size), .stride = INT2(a->stride),
                        .padding = INT2(a->padding), .ceil_mode = a->ceil_mode,
                        .count_include_pad = a->count_include_pad,
                        .divisor_override = a->divisor_override,
                        .memory_format = moth_format_of(a->input)));
}

MOTH_OP(avg_pool2d, AVG_POOL2D,
  .doc = "The mean of each window of an image.",
  .examples =
    "moth.randn(2, 3, 8, 8), 2\n"
    "moth.randn(3, 9, 8), {kernel_size = {3, 2}, stride = {2, 1}, padding = 1,"
    " ceil_mode = true}\n"
    "moth.randn(2, 3, 8, 8), {kernel_size = 4, stride = 3, padding = 2,"
    " count_include_pad = false}\n"
    "moth.randn(2, 3, 8, 8), {kernel_size = 2, divisor_override = 3}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_METHOD)

static int avg_pool2d_back_fit(const avg_pool2d_back_args *a, moth_pool *p) {
  const moth_layout *l = &a->input->l;
  if (l->ndim != 3 && l->ndim != 4)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "(N, C, OH, OW) or (C, OH, OW) is needed, got %s", moth_str(a->input));
  *p = (moth_pool){.w = {.axes = 2, .kernel = INT2(a->kernel_size), .stride = INT2(a->stride),
                         .padding = INT2(a->padding), .dilation = {1, 1}},
                   .planes = planes_of(l), .count_padding = a->count_include_pad};
  moth_tensor planes = {.ctx = a->ctx, .l = *l}; /* the layout of the input */
  planes.l.shape[l->ndim - 2] = a->size[0];
  planes.l.shape[l->ndim - 1] = a->size[1];
  int status = divisor_of(a->ctx, a->divisor_override, &p->divisor);
  if (!status) status = pool_fit(&p->w, &planes, a->ceil_mode);
  if (!status && (p->w.out[0] != l->shape[l->ndim - 2] || p->w.out[1] != l->shape[l->ndim - 1]))
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "size", "%s does not give %s",
                       moth_str_ints(a->ctx, 2, a->size), moth_str(a->input));
  return status;
}

static int avg_pool2d_back_shape(const avg_pool2d_back_args *a, moth_layout *y) {
  moth_pool p;
  int status = avg_pool2d_back_fit(a, &p);
  if (!status) replane(y, &a->input->l, a->size);
  return status;
}

static int avg_pool2d_back_cpu(const avg_pool2d_back_args *a, moth_tensor **out) {
  moth_pool p;
  int status = avg_pool2d_back_fit(a, &p);
  if (status) return status;
  moth_tensor *dy = moth_real(a->input), *dx = moth_real_out(out[0]);
  status = !dy || !dx ? a->ctx->error.code
                      : moth_mean_pool_back(a->ctx, dy->l.dtype, &p, moth_at(dy), moth_at(dx));
  moth_tensor_release(dy);
  return moth_real_done(dx, out[0], status);
}

static int avg_pool2d_back_grad(const avg_pool2d_back_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, avg_pool2d, .input = g->dy, .kernel_size = INT2(a->kernel_size),
                        .stride = INT2(a->stride), .padding = INT2(a->padding),
                        .ceil_mode = a->ceil_mode, .count_include_pad = a->count_include_pad,
                        .divisor_override = a->divisor_override));
}

MOTH_OP(avg_pool2d_back, AVG_POOL2D_BACK,
  .doc = "The gradient of avg_pool2d: each value is distributed evenly over its window.",
  .examples =
    "moth.randn(2, 3, 4, 4), {8, 8}, {2, 2}, {2, 2}, {0, 0}, false, true\n"
    "moth.randn(2, 3, 4, 4), {8, 8}, {2, 2}, {2, 2}, {0, 0}, false, true, 3,"
    " \"channels_last\"",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN)

/* -- in one dimension -- */

static int max_pool1d_compose(const max_pool1d_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *y[2] = {NULL};
  int status = with_height(a->input, &x);
  if (!status)
    status = MOTH_CALL(a->ctx, y, max_pool2d, .input = x, .kernel_size = {1, a->kernel_size[0]},
                       .stride = {1, a->stride[0]}, .padding = {0, a->padding[0]},
                       .dilation = {1, a->dilation[0]}, .ceil_mode = a->ceil_mode,
                       .return_indices = a->return_indices);
  moth_tensor_release(x);
  return status ? status : without_height(a->ctx, y, 2, out);
}

MOTH_OP_COMPOSES(max_pool1d, MAX_POOL1D,
  .doc = "The largest value in each window of a sequence; NaN counts as largest.",
  .examples =
    "moth.randn(2, 3, 8), 2  -- domain: distinct\n"
    "moth.randn(3, 10), {kernel_size = 3, stride = 2, padding = 1, dilation = 2,"
    " ceil_mode = true, return_indices = true}  -- domain: distinct",
  .outputs = "y, indices: return_indices",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

static int avg_pool1d_compose(const avg_pool1d_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *y = NULL;
  int status = with_height(a->input, &x);
  if (!status)
    status = MOTH_CALL(a->ctx, &y, avg_pool2d, .input = x, .kernel_size = {1, a->kernel_size[0]},
                       .stride = {1, a->stride[0]}, .padding = {0, a->padding[0]},
                       .ceil_mode = a->ceil_mode, .count_include_pad = a->count_include_pad,
                       .divisor_override = MOTH_NO_INT);
  moth_tensor_release(x);
  return status ? status : without_height(a->ctx, &y, 1, out);
}

MOTH_OP_COMPOSES(avg_pool1d, AVG_POOL1D,
  .doc = "The mean of each window of a sequence.",
  .examples =
    "moth.randn(2, 3, 8), 2\n"
    "moth.randn(3, 10), {kernel_size = 4, stride = 3, padding = 2, ceil_mode = true,"
    " count_include_pad = false}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

const moth_op *const moth_pool_ops[] = {
  &moth_op_max_pool2d, &moth_op_max_pool2d_back, &moth_op_max_pool2d_pick,
  &moth_op_avg_pool2d, &moth_op_avg_pool2d_back, &moth_op_max_pool1d, &moth_op_avg_pool1d, NULL,
};
