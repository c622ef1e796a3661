/* picture.c -- the ops of moth.transforms on pictures in CPU memory (lua/moth/transforms). They
** have no gradient: for gradients, and on other devices, moth.transforms composes other ops.
*/
#include "picture.h"
#include "base/error.h"
#include "kernel/picture.h"
#include "kernel/picture_color.h"
#include "kernel/picture_warp.h"
#include "tensor/loop.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

#define LARGEST (INT64_C(1) << 24) /* the longest side: positions are exact in f32 */

static int pictures_fit(const moth_tensor *x) {
  const int64_t *n = x->l.shape;
  if (x->l.ndim != 4)
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input", "(N, C, H, W) is needed, got %s", moth_str(x));
  if (n[2] < 1 || n[3] < 1 || n[2] > LARGEST || n[3] > LARGEST)
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input", "sides of 1 to 2^24 are needed, got %s",
                     moth_str(x));
  return MOTH_OK;
}

/* y := the shape of pictures of another size. */
static int sized(const moth_tensor *x, const int64_t size[2], moth_layout *y) {
  int status = pictures_fit(x);
  for (int i = 0; i < 2 && !status; i++)
    if (size[i] < 1 || size[i] > LARGEST)
      status = moth_fail(x->ctx, MOTH_E_DOMAIN, "size", "sides of 1 to 2^24 are needed, got %s",
                         moth_str_ints(x->ctx, 2, size));
  if (status) return status;
  y->ndim = 4;
  memcpy(y->shape, x->l.shape, sizeof y->shape);
  y->shape[2] = size[0];
  y->shape[3] = size[1];
  return MOTH_OK;
}

/* -- resize -- */

static int picture_resize_shape(const picture_resize_args *a, moth_layout *y) {
  return sized(a->input, a->size, y);
}

/* Can the kernel read x as it is? */
static bool readable(const moth_layout *l) {
  const int64_t *step = l->stride, channels = l->shape[1];
  if (l->dtype != MOTH_U8) return moth_layout_contiguous(l);
  return step[3] == 1 || ((step[1] == 1 || channels == 1) && step[3] >= channels && step[3] <= 16);
}

static int picture_resize_cpu(const picture_resize_args *a, moth_tensor **out) {
  if (out[0]->l.numel == 0) return MOTH_OK;
  moth_tensor *x = readable(&a->input->l) ? moth_tensor_retain(a->input) : moth_packed(a->input);
  if (!x) return a->ctx->error.code;
  const int64_t *n = x->l.shape;
  moth_picture p = {.images = n[0], .channels = n[1], .in = {n[2], n[3]},
                    .out = {a->size[0], a->size[1]}, .mode = (int)a->mode,
                    .antialias = a->antialias};
  memcpy(p.step, x->l.stride, sizeof p.step);
  int status;
  if (x->l.dtype == MOTH_U8)
    status = moth_picture_resize_bytes(a->ctx, &p, (const uint8_t *)moth_at(x),
                                       (uint8_t *)moth_at(out[0]));
  else
    status = moth_picture_resize_real(a->ctx, x->l.dtype, &p, moth_at(x), moth_at(out[0]));
  moth_tensor_release(x);
  return status;
}

MOTH_OP_CONST(picture_resize, PICTURE_RESIZE,
  .doc = "Pictures resampled to another size.",
  .examples =
    "moth.rand(1, 2, 9, 7), {4, 3}\n"
    "moth.rand(1, 2, 3, 4), {7, 5}, {mode = 'bicubic'}\n"
    "moth.rand(2, 3, 9, 40):mul(255):byte(), {4, 33}, {antialias = false}",
  .dtypes = MOTH_BIT(MOTH_U8) | MOTH_BIT(MOTH_F32) | MOTH_BIT(MOTH_F64),
  .flags = MOTH_OP_HIDDEN, .public_name = "resize")

/* -- warp -- */

static int picture_warp_shape(const picture_warp_args *a, moth_layout *y) {
  int status = sized(a->input, a->size, y);
  if (status) return status;
  if (a->map.n != 9)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "map", "9 numbers are needed, got %lld",
                     (long long)a->map.n);
  if (a->fill.at && a->fill.n != 1 && a->fill.n != y->shape[1])
    return moth_fail(a->ctx, MOTH_E_SHAPE, "fill",
                     "one number, or one for each channel of %s, is needed, got %lld",
                     moth_str(a->input), (long long)a->fill.n);
  return MOTH_OK;
}

/* Offsets in a picture are int32. */
static bool near(const moth_layout *l) {
  return (double)l->shape[2] * (double)l->stride[2] + (double)l->shape[3] * (double)l->stride[3]
         < 0x1p31;
}

static int picture_warp_cpu(const picture_warp_args *a, moth_tensor **out) {
  if (out[0]->l.numel == 0) return MOTH_OK;
  moth_tensor *x = near(&a->input->l) ? moth_tensor_retain(a->input) : moth_packed(a->input);
  if (!x) return a->ctx->error.code;
  const int64_t *n = x->l.shape;
  moth_warp w = {.images = n[0], .channels = n[1], .in = {n[2], n[3]},
                 .out = {a->size[0], a->size[1]}, .nearest = a->mode == 0, .fill = a->fill.at,
                 .nfill = a->fill.at ? a->fill.n : 0};
  memcpy(w.step, x->l.stride, sizeof w.step);
  memcpy(w.at, a->map.at, sizeof w.at);
  int status = near(&x->l) ? moth_picture_warp(a->ctx, x->l.dtype, &w, moth_at(x), moth_at(out[0]))
                           : moth_fail(a->ctx, MOTH_E_UNSUPPORTED, "input",
                                       "less than 2^31 pixels are needed, got %s", moth_str(x));
  moth_tensor_release(x);
  return status;
}

MOTH_OP_CONST(picture_warp, PICTURE_WARP,
  .doc = "Pictures in another perspective.",
  .examples =
    "moth.rand(1, 2, 9, 7), {0.5, 0.2, 1, -0.3, 1, 2, 0, 0, 1}, {4, 3}\n"
    "moth.rand(1, 2, 3, 4), {1, 0, 0.3, 0, 1, -1.5, 0.1, 0.2, 1}, {7, 5}, {mode = 'bilinear', "
    "fill = {0.5, 1}}\n"
    "moth.rand(2, 3, 9, 40):mul(255):byte(), {0, 1, 0, 1, 0, 0, 0, 0, 1}, {40, 9}, {fill = 7}",
  .dtypes = MOTH_BIT(MOTH_U8) | MOTH_BIT(MOTH_F32),
  .flags = MOTH_OP_HIDDEN, .public_name = "affine")

/* -- colours -- */

static int picture_adjust_shape(const picture_adjust_args *a, moth_layout *y) {
  int status = pictures_fit(a->input);
  if (status) return status;
  if (a->input->l.shape[1] != 1 && a->input->l.shape[1] != 3)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "1 or 3 channels are needed, got %s",
                     moth_str(a->input));
  return moth_shape_like(a->input, y);
}

static int picture_adjust_cpu(const picture_adjust_args *a, moth_tensor **out) {
  if (out[0]->l.numel == 0) return MOTH_OK;
  moth_tensor *x = moth_packed(a->input);
  if (!x) return a->ctx->error.code;
  const int64_t *n = x->l.shape;
  int status = moth_picture_adjust(a->ctx, (int)a->what, n[0], n[1], n[2] * n[3], a->factor,
                                   (const uint8_t *)moth_at(x), (uint8_t *)moth_at(out[0]));
  moth_tensor_release(x);
  return status;
}

MOTH_OP_CONST(picture_adjust, PICTURE_ADJUST,
  .doc = "Brightness, contrast or saturation of pictures.",
  .examples = "moth.rand(2, 3, 4, 70):mul(255):byte(), 'saturation', 1.5\n"
              "moth.rand(1, 1, 4, 5):mul(255):byte(), 'contrast', 0.5",
  .dtypes = MOTH_BIT(MOTH_U8), .flags = MOTH_OP_HIDDEN, .public_name = "adjust_brightness")

/* -- normalize -- */

static int picture_normalize_shape(const picture_normalize_args *a, moth_layout *y) {
  int status = pictures_fit(a->input);
  if (status) return status;
  const int64_t channels = a->input->l.shape[1];
  for (int i = 0; i < 2; i++) {
    const moth_floats given = i ? a->std : a->mean;
    if (given.n != 1 && given.n != channels)
      return moth_fail(a->ctx, MOTH_E_SHAPE, i ? "std" : "mean",
                       "a number for each channel of %s is needed, got %lld", moth_str(a->input),
                       (long long)given.n);
  }
  moth_shape_like(a->input, y);
  y->dtype = MOTH_F32;
  return MOTH_OK;
}

static int picture_normalize_cpu(const picture_normalize_args *a, moth_tensor **out) {
  const moth_layout *l = &a->input->l;
  const int64_t *n = l->shape, *step = l->stride, rows = n[0] * n[1] * n[2];
  const uint8_t *x = (const uint8_t *)moth_at(a->input);
  float *y = (float *)(void *)moth_at(out[0]);
  for (int64_t at = 0; at < rows; at++, y += n[3]) {
    const int64_t row = at % n[2], channel = at / n[2] % n[1], image = at / n[2] / n[1];
    const double mean = a->mean.at[a->mean.n == 1 ? 0 : channel];
    const double std = a->std.at[a->std.n == 1 ? 0 : channel];
    if (row == 0 && moth_poll(a->ctx)) return a->ctx->error.code;
    moth_picture_normalize(n[3], step[3], x + image * step[0] + channel * step[1] + row * step[2],
                           (float)(1.0 / 255), (float)mean, (float)std, y);
  }
  return MOTH_OK;
}

MOTH_OP_CONST(picture_normalize, PICTURE_NORMALIZE,
  .doc = "Bytes as f32 from 0 to 1, minus the mean, divided by the standard deviation.",
  .examples = "moth.rand(2, 3, 4, 5):mul(255):byte(), {0.5, 0.4, 0.3}, {0.2, 0.3, 0.4}",
  .dtypes = MOTH_BIT(MOTH_U8), .flags = MOTH_OP_HIDDEN, .public_name = "normalize")

const moth_op *const moth_picture_ops[] = {
  &moth_op_picture_resize, &moth_op_picture_warp, &moth_op_picture_adjust,
  &moth_op_picture_normalize, NULL,
};
