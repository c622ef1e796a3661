/* resize.c -- resamples sequences, images and volumes to another size. */
#include "resize.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/real.h"
#include "kernel/resize.h"
#include "adaptive.h"
#include "copy.h"
#include "volume.h"

#include <math.h>

#define LARGEST (INT64_C(1) << 30)

static int in_range(moth_ctx *ctx, const char *arg, int n, const int64_t *size) {
  bool good = true;
  for (int i = 0; i < n; i++) good = good && size[i] >= 1 && size[i] <= LARGEST;
  return good ? MOTH_OK
              : moth_fail(ctx, MOTH_E_DOMAIN, arg, "sides of 1 to 2^30 are needed, got %s",
                          moth_str_ints(ctx, n, size));
}

static int images_fit(const moth_tensor *x) {
  const int64_t *n = x->l.shape;
  if (x->l.ndim != 4)
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input", "(N, C, H, W) is needed, got %s", moth_str(x));
  if (n[1] < 1 || n[2] < 1 || n[3] < 1)
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input", "only the batch may be empty, got %s",
                     moth_str(x));
  return MOTH_OK;
}

/* y := the shape of images resized to `size`; also the shape of the gradient. */
static int resized(const moth_tensor *x, const int64_t size[2], moth_layout *y) {
  int status = images_fit(x);
  if (!status) status = in_range(x->ctx, "size", 2, size);
  if (status) return status;
  y->ndim = 4;
  memcpy(y->shape, x->l.shape, sizeof y->shape);
  y->shape[2] = size[0];
  y->shape[3] = size[1];
  return MOTH_OK;
}

#define HOW(a) .mode = (int)(a)->mode, .align = (a)->align_corners, \
               .scale = {(a)->scale_h, (a)->scale_w}
#define SAME_HOW(a) .mode = (a)->mode, .align_corners = (a)->align_corners, \
                    .scale_h = (a)->scale_h, .scale_w = (a)->scale_w

/* -- resize: images only, all arguments given -- */

static int resize_shape(const resize_args *a, moth_layout *y) {
  return resized(a->input, a->size, y);
}

static int resize_cpu(const resize_args *a, moth_tensor **out) {
  const int64_t *n = a->input->l.shape;
  moth_resize r = {HOW(a), .planes = n[0] * n[1], .in = {n[2], n[3]},
                   .out = {a->size[0], a->size[1]}};
  moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
  int status = !x || !y ? a->ctx->error.code
                        : moth_resize_forward(a->ctx, x->l.dtype, &r, moth_at(x), moth_at(y));
  moth_tensor_release(x);
  return moth_real_done(y, out[0], status);
}

static int resize_grad(const resize_args *a, moth_grad *g) {
  const int64_t *n = a->input->l.shape;
  return moth_flow(g, a->input,
                   GRAD(g, resize_back, .input = g->dy, .size = {n[2], n[3]}, SAME_HOW(a)));
}

MOTH_OP(resize, RESIZE,
  .doc = "Images resampled to another size: the op that interpolate runs.",
  .examples =
    "moth.randn(1, 2, 3, 4), {5, 2}\n"
    "moth.randn(1, 2, 3, 4), {6, 8}, {mode = 'linear', align_corners = true}\n"
    "moth.randn(1, 2, 3, 4), {7, 9}, {mode = 'cubic', scale_h = 2.5, scale_w = 2.3}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN, .public_name = "interpolate")

static int resize_back_shape(const resize_back_args *a, moth_layout *y) {
  return resized(a->input, a->size, y);
}

static int resize_back_cpu(const resize_back_args *a, moth_tensor **out) {
  const int64_t *n = a->input->l.shape;
  moth_resize r = {HOW(a), .planes = n[0] * n[1], .in = {a->size[0], a->size[1]},
                   .out = {n[2], n[3]}};
  moth_tensor *dy = moth_real(a->input), *dx = moth_real_out(out[0]);
  int status = !dy || !dx ? a->ctx->error.code
                          : moth_resize_back(a->ctx, dy->l.dtype, &r, moth_at(dy), moth_at(dx));
  moth_tensor_release(dy);
  return moth_real_done(dx, out[0], status);
}

static int resize_back_grad(const resize_back_args *a, moth_grad *g) {
  const int64_t *n = a->input->l.shape;
  return moth_flow(g, a->input,
                   GRAD(g, resize, .input = g->dy, .size = {n[2], n[3]}, SAME_HOW(a)));
}

MOTH_OP(resize_back, RESIZE_BACK,
  .doc = "The gradient of resize.",
  .examples =
    "moth.randn(1, 2, 5, 2), {3, 4}\n"
    "moth.randn(1, 2, 6, 8), {3, 4}, {mode = 'linear', align_corners = true}\n"
    "moth.randn(1, 2, 7, 9), {3, 4}, {mode = 'cubic', scale_h = 2.5, scale_w = 2.3}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN, .public_name = "interpolate")

/* -- interpolate -- */

enum { NEAREST, LINEAR, BILINEAR, BICUBIC, AREA, NEAREST_EXACT, TRILINEAR };

/* Returns the name of a mode that supports align_corners and sets the shapes that it needs; NULL
** for other modes. */
static const char *corners(int64_t mode, int32_t *ndim, const char **shape) {
  *ndim = mode == LINEAR ? 3 : mode == TRILINEAR ? 5 : 4;
  *shape = mode == LINEAR ? "(N, C, L)" : mode == TRILINEAR ? "(N, C, D, H, W)" : "(N, C, H, W)";
  return mode == LINEAR ? "linear" : mode == BILINEAR ? "bilinear" : mode == BICUBIC ? "bicubic"
         : mode == TRILINEAR ? "trilinear" : NULL;
}

/* Checks the number of sides for the mode, and if it supports align_corners. */
static int check_mode(const interpolate_args *a) {
  int32_t ndim = a->input->l.ndim, wanted;
  const char *shape, *name = corners(a->mode, &wanted, &shape);
  if (ndim < 3 || ndim > 5)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "(N, C, L), (N, C, H, W) or (N, C, D, H, W) is needed, got %s",
                     moth_str(a->input));
  if (name && ndim != wanted)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "mode", "'%s' needs %s, got %s", name, shape,
                     moth_str(a->input));
  if (a->align_corners && !name)
    return moth_fail(a->ctx, MOTH_E_ARG, "align_corners",
                     "is for the modes 'linear', 'bilinear', 'bicubic' and 'trilinear'");
  return ndim == 5 ? volume_fit(a->input) : MOTH_OK;
}

static int check_counts(const interpolate_args *a, int64_t sides) {
  if (!a->size.at == !a->scale_factor.at)
    return moth_fail(a->ctx, MOTH_E_ARG, "size", "either size or scale_factor is needed, got %s",
                     a->size.at ? "both" : "neither");
  if (a->size.at && a->recompute_scale_factor)
    return moth_fail(a->ctx, MOTH_E_ARG, "recompute_scale_factor", "is for scale_factor only");
  int64_t n = a->size.at ? a->size.n : a->scale_factor.n;
  if (n != 1 && n != sides)
    return moth_fail(a->ctx, MOTH_E_SHAPE, a->size.at ? "size" : "scale_factor",
                     "a number or %lld of them are needed for %s, got %lld", (long long)sides,
                     moth_str(a->input), (long long)n);
  return MOTH_OK;
}

/* Sets sizes and factors of three sides. A missing depth or height has size 1. */
static int sizes_of(const interpolate_args *a, int64_t size[3], double scale[3]) {
  const moth_layout *l = &a->input->l;
  int sides = l->ndim - 2;
  int status = check_counts(a, sides);
  for (int i = 0; i < 3; i++) size[i] = 1, scale[i] = 0;
  for (int i = 3 - sides; !status && i < 3; i++) {
    int k = i - 3 + sides;
    if (a->size.at) {
      size[i] = a->size.at[a->size.n == 1 ? 0 : k];
      continue;
    }
    double factor = a->scale_factor.at[a->scale_factor.n == 1 ? 0 : k];
    double length = floor((double)l->shape[2 + k] * factor);
    if (!(factor > 0) || !(length <= (double)LARGEST))
      return moth_fail(a->ctx, MOTH_E_DOMAIN, "scale_factor",
                       "%.17g is not a possible factor for %s", factor,
                       moth_str(a->input));
    size[i] = (int64_t)length;
    if (!a->recompute_scale_factor) scale[i] = factor;
  }
  if (status) return status;
  return in_range(a->ctx, a->size.at ? "size" : "scale_factor", sides, size + 3 - sides);
}

/* *y := images resampled to `size`. If the scale is 0, it is computed from the sizes. */
static int resampled(const interpolate_args *a, moth_tensor *x, const int64_t size[2],
                     const double scale[2], moth_tensor **y) {
  static const int64_t modes[] = {MOTH_NEAREST, MOTH_LINEAR, MOTH_LINEAR, MOTH_CUBIC, 0,
                                  MOTH_NEAREST_EXACT, MOTH_LINEAR};
  if (a->mode == AREA)
    return MOTH_CALL(a->ctx, y, adaptive_avg_pool2d, .input = x, .output_size = {size[0], size[1]});
  return MOTH_CALL(a->ctx, y, resize, .input = x, .size = {size[0], size[1]},
                   .mode = modes[a->mode], .align_corners = a->align_corners, .scale_h = scale[0],
                   .scale_w = scale[1]);
}

/* Resamples sequences as images with one row. */
static int resampled_rows(const interpolate_args *a, const int64_t size[3], const double scale[3],
                          moth_tensor **out) {
  int64_t height = -2;
  moth_tensor *x = NULL, *y = NULL;
  int status = MOTH_CALL(a->ctx, &x, unsqueeze, .input = a->input, .dim = -2);
  if (!status) status = resampled(a, x, size + 1, scale + 1, &y);
  if (!status) status = MOTH_CALL(a->ctx, out, squeeze, .input = y, .dim = {&height, 1});
  moth_tensor_release(x);
  moth_tensor_release(y);
  return status;
}

/* Resamples the planes of a volume, then the depth. Half types are converted to f32, so that the
** result is rounded once. */
static int resampled_volume(const interpolate_args *a, const int64_t size[3],
                            const double scale[3], moth_tensor **out) {
  moth_ctx *ctx = a->ctx;
  moth_tensor *t[6] = {NULL};
  const bool half = moth_is_half(a->input->l.dtype);
  const double depth_scale[2] = {scale[0], 0};
  int status = MOTH_OK;
  if (half) status = MOTH_CALL(ctx, &t[0], cast, .input = a->input, .dtype = MOTH_F32);
  else t[0] = moth_tensor_retain(a->input);
  if (!status) status = volume_planes(t[0], &t[1]);
  if (!status) status = resampled(a, t[1], size + 1, scale + 1, &t[2]);
  if (!status) status = volume_columns(t[2], a->input, &t[3]);
  if (!status) {
    const int64_t columns[2] = {size[0], t[3]->l.shape[3]};
    status = resampled(a, t[3], columns, depth_scale, &t[4]);
  }
  if (!status) status = volume_of(t[4], a->input, size, half ? &t[5] : out);
  if (!status && half)
    status = MOTH_CALL(ctx, out, cast, .input = t[5], .dtype = a->input->l.dtype);
  for (int i = 0; i < 6; i++) moth_tensor_release(t[i]);
  return status;
}

static int interpolate_compose(const interpolate_args *a, moth_tensor **out) {
  int64_t size[3];
  double scale[3];
  int status = check_mode(a);
  if (!status) status = sizes_of(a, size, scale);
  if (status) return status;
  if (a->input->l.ndim == 3) return resampled_rows(a, size, scale, out);
  if (a->input->l.ndim == 5) return resampled_volume(a, size, scale, out);
  return resampled(a, a->input, size + 1, scale + 1, out);
}

MOTH_OP_COMPOSES(interpolate, INTERPOLATE,
  .doc = "Resamples sequences, images or volumes to `size`, or by `scale_factor`.",
  .examples =
    "moth.randn(2, 3, 4, 5), {scale_factor = 2}\n"
    "moth.randn(2, 3, 4, 5), {6, 4}, {mode = 'bilinear', align_corners = true}\n"
    "moth.randn(2, 3, 4, 5), {scale_factor = {1.5, 0.7}, mode = 'bicubic'}\n"
    "moth.randn(2, 3, 5), 8, {mode = 'linear'}\n"
    "moth.randn(2, 3, 5), 2, {mode = 'area'}\n"
    "moth.randn(2, 3, 5), 7, {mode = 'nearest-exact'}\n"
    "moth.randn(2, 3, 5), {scale_factor = 1.5, mode = 'linear', recompute_scale_factor = true}\n"
    "moth.randn(1, 2, 2, 3, 2), {scale_factor = {2, 1.5, 1}, mode = 'trilinear'}",
  .dtypes = MOTH_FLOATS)

/* -- pixel_shuffle, pixel_unshuffle -- */

static int check_pixels(moth_ctx *ctx, const moth_tensor *x, const char *arg, int64_t r,
                        bool shuffle) {
  const moth_layout *l = &x->l;
  if (l->ndim < 3 || l->ndim + 2 > MOTH_MAX_DIMS)
    return moth_fail(ctx, MOTH_E_SHAPE, "input", "(..., C, H, W) is needed, got %s", moth_str(x));
  if (r < 1 || r > LARGEST)
    return moth_fail(ctx, MOTH_E_DOMAIN, arg, "a number from 1 to 2^30 is needed, got %lld",
                     (long long)r);
  const int64_t *n = l->shape + l->ndim - 3;
  if (shuffle ? n[0] % (r * r) != 0 : n[1] % r || n[2] % r)
    return moth_fail(ctx, MOTH_E_SHAPE, arg, shuffle ? "the channels of %s are not a multiple of "
                                                       "%lld"
                     : "the sides of %s are not multiples of %lld", moth_str(x),
                     (long long)(shuffle ? r * r : r));
  return MOTH_OK;
}

/* out := x viewed as `split`, with its last five dimensions permuted, then viewed as `joined`. */
static int rearranged(moth_tensor *x, const int64_t split[5], const int64_t order[5],
                      const int64_t joined[3], moth_tensor **out) {
  moth_ctx *ctx = x->ctx;
  int lead = x->l.ndim - 3;
  int64_t shape[MOTH_MAX_DIMS], dims[MOTH_MAX_DIMS];
  moth_tensor *y = NULL, *z = NULL;
  memcpy(shape, x->l.shape, (size_t)lead * sizeof *shape);
  memcpy(shape + lead, split, 5 * sizeof *shape);
  for (int d = 0; d < lead + 5; d++) dims[d] = d < lead ? d : lead + order[d - lead];
  int status = MOTH_CALL(ctx, &y, reshape, .input = x, .shape = {shape, lead + 5});
  if (!status) status = MOTH_CALL(ctx, &z, permute, .input = y, .dims = {dims, lead + 5});
  memcpy(shape + lead, joined, 3 * sizeof *shape);
  if (!status) status = MOTH_CALL(ctx, out, reshape, .input = z, .shape = {shape, lead + 3});
  moth_tensor_release(y);
  moth_tensor_release(z);
  return status;
}

static int pixel_shuffle_compose(const pixel_shuffle_args *a, moth_tensor **out) {
  int64_t r = a->upscale_factor;
  int status = check_pixels(a->ctx, a->input, "upscale_factor", r, true);
  if (status) return status;
  const int64_t *n = a->input->l.shape + a->input->l.ndim - 3, c = n[0] / (r * r);
  return rearranged(a->input, (int64_t[]){c, r, r, n[1], n[2]}, (int64_t[]){0, 3, 1, 4, 2},
                    (int64_t[]){c, n[1] * r, n[2] * r}, out);
}

MOTH_OP_COMPOSES(pixel_shuffle, PIXEL_SHUFFLE,
  .doc = "Rearranges groups of r^2 channels to images with r times the sides: (C r^2, H, W) -> (C, "
         "H r, W r) (Shi et al. 2016).",
  .examples = "moth.randn(2, 8, 3, 2), 2",
  .dtypes = MOTH_ANY)

static int pixel_unshuffle_compose(const pixel_unshuffle_args *a, moth_tensor **out) {
  int64_t r = a->downscale_factor;
  int status = check_pixels(a->ctx, a->input, "downscale_factor", r, false);
  if (status) return status;
  const int64_t *n = a->input->l.shape + a->input->l.ndim - 3;
  int64_t channels;
  if (moth_mul_overflow(n[0], r * r, &channels))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "downscale_factor",
                     "a factor of %lld results in too many channels for %s",
                     (long long)r, moth_str(a->input));
  return rearranged(a->input, (int64_t[]){n[0], n[1] / r, r, n[2] / r, r},
                    (int64_t[]){0, 2, 4, 1, 3}, (int64_t[]){channels, n[1] / r, n[2] / r}, out);
}

MOTH_OP_COMPOSES(pixel_unshuffle, PIXEL_UNSHUFFLE,
  .doc = "The inverse of pixel_shuffle: rearranges squares of r by r pixels to channels: (C, H r, "
         "W r) -> (C r^2, H, W).",
  .examples = "moth.randn(2, 2, 6, 4), 2",
  .dtypes = MOTH_ANY)

const moth_op *const moth_resize_ops[] = {
  &moth_op_resize, &moth_op_resize_back, &moth_op_interpolate, &moth_op_pixel_shuffle,
  &moth_op_pixel_unshuffle, NULL,
};
