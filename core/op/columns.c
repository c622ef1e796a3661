/* columns.c -- im2col: windows of images as columns; and fold: columns summed to images. */
#include "columns.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/conv/conv.h"
#include "kernel/real.h"

#define STEPS(a) \
  .kernel_size = INT2((a)->kernel_size), .dilation = INT2((a)->dilation), \
  .padding = INT2((a)->padding), .stride = INT2((a)->stride)
#define WINDOW(a) \
  {.axes = 2, .kernel = INT2((a)->kernel_size), .stride = INT2((a)->stride), \
   .padding = INT2((a)->padding), .dilation = INT2((a)->dilation)}

/* For a single image n is 1 and `batch` is false. */
typedef struct columns {
  moth_window w;
  int64_t n, channels, taps, places; /* taps: rows of the column matrix; places: windows */
} columns;

static int sizes_fit(columns *c, const moth_tensor *shown) {
  moth_ctx *ctx = shown->ctx;
  if (moth_mul_overflow(c->w.kernel[0], c->w.kernel[1], &c->taps) ||
      moth_mul_overflow(c->taps, c->channels, &c->taps) ||
      moth_mul_overflow(c->w.out[0], c->w.out[1], &c->places))
    return moth_fail(ctx, MOTH_E_SHAPE, "kernel_size", "the columns of %s would be too large",
                     moth_str(shown));
  return MOTH_OK;
}

static int im2col_fit(const im2col_args *a, columns *c) {
  const moth_layout *l = &a->input->l;
  if (l->ndim != 3 && l->ndim != 4)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "(N, C, H, W) or (C, H, W) is needed, got %s",
                     moth_str(a->input));
  *c = (columns){.w = WINDOW(a), .n = l->ndim == 4 ? l->shape[0] : 1,
                 .channels = l->shape[l->ndim - 3]};
  for (int i = l->ndim - 3; i < l->ndim; i++)
    if (l->shape[i] == 0)
      return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "only the batch may be empty, got %s",
                       moth_str(a->input));
  int status = moth_window_fit(&c->w, a->input, "kernel_size", false);
  return status ? status : sizes_fit(c, a->input);
}

static int im2col_shape(const im2col_args *a, moth_layout *y) {
  columns c;
  int status = im2col_fit(a, &c);
  if (status) return status;
  y->ndim = a->input->l.ndim - 1;
  y->shape[0] = c.n;
  y->shape[y->ndim - 2] = c.taps;
  y->shape[y->ndim - 1] = c.places;
  return MOTH_OK;
}

static int im2col_cpu(const im2col_args *a, moth_tensor **out) {
  columns c;
  int status = im2col_fit(a, &c);
  if (status) return status;
  moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
  status = !x || !y ? a->ctx->error.code
                    : moth_columns(a->ctx, x->l.dtype, &c.w, c.n, c.channels, moth_at(x),
                                   moth_at(y));
  moth_tensor_release(x);
  return moth_real_done(y, out[0], status);
}

static int im2col_grad(const im2col_args *a, moth_grad *g) {
  const moth_layout *l = &a->input->l;
  return moth_flow(g, a->input, GRAD(g, fold, .input = g->dy,
                                     .output_size = INT2(&l->shape[l->ndim - 2]), STEPS(a)));
}

MOTH_OP(im2col, IM2COL,
  .doc = "The elements of each window as a column, (N, C KH KW, L): one column for each of the L "
         "windows, from left to right and from top to bottom. F.unfold is the same function.",
  .examples =
    "moth.randn(2, 3, 4, 5), 2\n"
    "moth.randn(2, 5, 4), {kernel_size = {2, 3}, dilation = {2, 1}, padding = {0, 1}, stride = 2}",
  .dtypes = MOTH_FLOATS)

static int fold_fit(const fold_args *a, columns *c) {
  const moth_layout *l = &a->input->l;
  if (l->ndim != 2 && l->ndim != 3)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "(N, C KH KW, L) or (C KH KW, L) is needed, got %s", moth_str(a->input));
  if (a->output_size[0] < 1 || a->output_size[1] < 1)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "output_size", "numbers from 1 on are needed, got %s",
                     moth_str_ints(a->ctx, 2, a->output_size));
  *c = (columns){.w = WINDOW(a), .n = l->ndim == 3 ? l->shape[0] : 1};
  moth_tensor image = {.ctx = a->ctx, .l = *l}; /* has a layout, but no storage */
  memcpy(&image.l.shape[l->ndim - 2], a->output_size, 2 * sizeof *l->shape);
  int status = moth_window_fit(&c->w, &image, "kernel_size", false);
  if (status) return status; /* the product of the kernel sizes may overflow */
  int64_t taps = l->shape[l->ndim - 2], window = c->w.kernel[0] * c->w.kernel[1];
  if (taps == 0 || taps % window)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "kernel_size",
                     "the %lld rows of %s are not a multiple of the window's %lld elements",
                     (long long)taps,
                     moth_str(a->input), (long long)window);
  c->channels = taps / window;
  status = sizes_fit(c, a->input);
  if (!status && c->places != l->shape[l->ndim - 1])
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "output_size", "%s has %lld windows, got %s",
                       moth_str_ints(a->ctx, 2, a->output_size), (long long)c->places,
                       moth_str(a->input));
  return status;
}

static int fold_shape(const fold_args *a, moth_layout *y) {
  columns c;
  int status = fold_fit(a, &c);
  if (status) return status;
  y->ndim = a->input->l.ndim + 1;
  y->shape[0] = c.n;
  y->shape[y->ndim - 3] = c.channels;
  y->shape[y->ndim - 2] = a->output_size[0];
  y->shape[y->ndim - 1] = a->output_size[1];
  return MOTH_OK;
}

static int fold_cpu(const fold_args *a, moth_tensor **out) {
  columns c;
  int status = fold_fit(a, &c);
  if (status) return status;
  moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
  status = !x || !y ? a->ctx->error.code
                    : moth_columns_back(a->ctx, x->l.dtype, &c.w, c.n, c.channels, moth_at(x),
                                        moth_at(y));
  moth_tensor_release(x);
  return moth_real_done(y, out[0], status);
}

static int fold_grad(const fold_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, im2col, .input = g->dy, STEPS(a)));
}

MOTH_OP(fold, FOLD,
  .doc = "Sums columns into images, (N, C, H, W): elements of overlapping windows are added.",
  .examples =
    "moth.randn(2, 12, 12), {4, 5}, 2\n"
    "moth.randn(6, 2), {output_size = {4, 3}, kernel_size = {2, 3}, dilation = {2, 1},"
    " padding = {0, 1}, stride = {1, 4}}",
  .dtypes = MOTH_FLOATS)

const moth_op *const moth_columns_ops[] = {&moth_op_im2col, &moth_op_fold, NULL};
