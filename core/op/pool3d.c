/* pool3d.c -- pooling of volumes in two steps: first the windows of each plane, then along the
** depth; see volume.h. If several elements are equal to the maximum, both steps choose the first
** one.
*/
#include "pool3d.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/conv/window.h"
#include "adaptive.h"
#include "arith.h"
#include "compare.h"
#include "copy.h"
#include "create.h"
#include "index.h"
#include "pool.h"
#include "unary.h"
#include "volume.h"

#define LARGEST (INT64_C(1) << 30)

/* Pools the images of a call: planes, or with `depth` columns along the depth. y gets one result or
** two. */
typedef int (*pooling)(const void *call, moth_tensor *images, bool depth, moth_tensor **y);

static void release(moth_tensor **at, int n) {
  for (int i = 0; i < n; i++) moth_tensor_release(at[i]);
}

/* -- positions -- */

/* x := x, with -1 where `of` < 0. */
static int keep_none(moth_tensor **x, moth_tensor *of) {
  moth_ctx *ctx = of->ctx;
  moth_tensor *zero = NULL, *none = NULL, *y = NULL;
  int status = MOTH_CALL(ctx, &zero, zeros, .dtype = MOTH_I64, .device = moth_device_of(of));
  if (!status) status = MOTH_CALL(ctx, &none, lt, .input = of, .other = zero);
  if (!status)
    status = MOTH_CALL(ctx, &y, masked_fill, .input = *x, .mask = none, .value = {.as.number = -1});
  release((moth_tensor *[]){zero, none, status ? NULL : *x}, 3);
  if (!status) *x = y;
  return status;
}

/* y := positions in the volume, computed from positions in planes, which are viewed as columns (N,
** C, D, OH OW). */
static int counted_in_volume(moth_tensor *planes, const moth_tensor *volume, moth_tensor **y) {
  moth_ctx *ctx = planes->ctx;
  const int64_t *n = volume->l.shape + volume->l.ndim - 3;
  moth_tensor *at = NULL, *depth = NULL;
  int status = MOTH_CALL(ctx, &at, arange, .stop = {.as.number = (double)n[0]},
                         .step = {.as.number = 1}, .dtype = MOTH_I64,
                         .device = moth_device_of(planes));
  if (!status) status = MOTH_CALL(ctx, &depth, unsqueeze, .input = at, .dim = 1);
  if (!status)
    status = MOTH_CALL(ctx, y, add, .input = planes, .other = depth,
                       .alpha = {.type = 1, .as.integer = n[1] * n[2]});
  release((moth_tensor *[]){at, depth}, 2);
  return status;
}

/* y := images (N, C, D, H W) reshaped to (N, C, D H W); owned. */
static int joined(moth_tensor *x, moth_tensor **y) {
  return MOTH_CALL(x->ctx, y, flatten, .input = x, .start_dim = 2, .end_dim = 3);
}

/* index := positions in the volume, in the shape of `column`. `column` has positions along the
** depth, which select from the positions in `plane`, (N, C D, OH, OW). With `gaps`, a window may
** have no element: its position is -1. */
static int positions_of(moth_tensor *plane, moth_tensor *column, const moth_tensor *volume,
                        bool gaps, moth_tensor **index) {
  moth_ctx *ctx = plane->ctx;
  moth_tensor *seen = NULL, *all = NULL, *from = NULL, *at = NULL, *safe = NULL;
  int status = volume_columns(plane, volume, &seen);
  if (!status) status = counted_in_volume(seen, volume, &all);
  if (!status && gaps) status = keep_none(&all, seen);
  if (!status) status = joined(all, &from);
  if (!status) status = joined(column, &at);
  if (!status && gaps)
    status = MOTH_CALL(ctx, &safe, clamp, .input = at, .min = 0, .max = moth_absent_value());
  if (!status) status = MOTH_CALL(ctx, index, gather, .input = from, .dim = 2,
                                  .index = gaps ? safe : at);
  if (!status && gaps) status = keep_none(index, at);
  release((moth_tensor *[]){seen, all, from, at, safe}, 5);
  return status;
}

/* -- planes, then the depth -- */

/* The second step: pools the images along the depth. */
static int along_depth(const void *call, pooling pool, moth_tensor *volume, moth_tensor **plane,
                       const int64_t size[3], bool gaps, moth_tensor **out) {
  moth_tensor *seen = NULL, *column[2] = {NULL}, *index = NULL;
  int status = volume_columns(plane[0], volume, &seen);
  if (!status) status = pool(call, seen, true, column);
  if (!status) status = volume_of(column[0], volume, size, &out[0]);
  if (!status && plane[1]) status = positions_of(plane[1], column[1], volume, gaps, &index);
  if (!status && plane[1]) status = volume_of(index, volume, size, &out[1]);
  release((moth_tensor *[]){seen, column[0], column[1], index}, 4);
  return status;
}

/* out := the volume pooled to `size`; with `indices` also the positions. */
static int pool_volume(const void *call, pooling pool, moth_tensor *volume, const int64_t size[3],
                       bool indices, bool gaps, moth_tensor **out) {
  moth_tensor *images = NULL, *plane[2] = {NULL};
  int status = volume_planes(volume, &images);
  if (!status) status = pool(call, images, false, plane);
  if (!indices) {
    moth_tensor_release(plane[1]);
    plane[1] = NULL;
  }
  if (!status && size[1] && size[2])
    status = along_depth(call, pool, volume, plane, size, gaps, out);
  else
    /* the planes are empty, so the result is empty */
    for (int i = 0; !status && i < 2 && plane[i]; i++)
      status = volume_of(plane[i], volume, size, &out[i]);
  release((moth_tensor *[]){images, plane[0], plane[1]}, 3);
  for (int i = 0; status && i < 2 && (i == 0 || indices); i++) {
    moth_tensor_release(out[i]);
    out[i] = NULL;
  }
  return status;
}

/* As pool_volume, for a mean. Half types are converted to f32, so that the result is rounded
** once. */
static int mean_volume(const void *call, pooling pool, moth_tensor *volume, const int64_t size[3],
                       moth_tensor **out) {
  moth_ctx *ctx = volume->ctx;
  moth_tensor *x = NULL, *y = NULL;
  if (!moth_is_half(volume->l.dtype))
    return pool_volume(call, pool, volume, size, false, false, out);
  int status = MOTH_CALL(ctx, &x, cast, .input = volume, .dtype = MOTH_F32);
  if (!status) status = pool_volume(call, pool, x, size, false, false, &y);
  if (!status) status = MOTH_CALL(ctx, out, cast, .input = y, .dtype = volume->l.dtype);
  release((moth_tensor *[]){x, y}, 2);
  return status;
}

/* Two arguments for a plane, from three for a volume. Along the depth, the width has one
** element. */
#define PAIR(at, one) {depth ? (at)[0] : (at)[1], depth ? (one) : (at)[2]}

/* -- pooling with windows -- */

static int windows_fit(moth_window *w, const moth_tensor *input, bool ceil) {
  int status = volume_fit(input);
  if (!status) status = moth_window_fit(w, input, "kernel_size", ceil);
  for (int i = 0; !status && i < 3; i++)
    if (w->padding[i] > w->kernel[i] / 2)
      status = moth_fail(input->ctx, MOTH_E_DOMAIN, "padding", "%s is more than half the window %s",
                         moth_str_ints(input->ctx, 3, w->padding),
                         moth_str_ints(input->ctx, 3, w->kernel));
  return status;
}

static int max_windows(const void *call, moth_tensor *images, bool depth, moth_tensor **y) {
  const max_pool3d_args *a = call;
  return MOTH_CALL(a->ctx, y, max_pool2d, .input = images, .kernel_size = PAIR(a->kernel_size, 1),
                   .stride = PAIR(a->stride, 1), .padding = PAIR(a->padding, 0),
                   .dilation = PAIR(a->dilation, 1), .ceil_mode = a->ceil_mode,
                   .return_indices = a->return_indices);
}

static int max_pool3d_compose(const max_pool3d_args *a, moth_tensor **out) {
  moth_window w = {.axes = 3, .kernel = INT3(a->kernel_size), .stride = INT3(a->stride),
                    .padding = INT3(a->padding), .dilation = INT3(a->dilation)};
  /* true if all elements of a window can be in the padding, because of dilation */
  bool gaps = false;
  int status = windows_fit(&w, a->input, a->ceil_mode);
  for (int i = 0; i < 3; i++) gaps = gaps || (w.dilation[i] > 1 && w.padding[i]);
  return status ? status
                : pool_volume(a, max_windows, a->input, w.out, a->return_indices, gaps, out);
}

MOTH_OP_COMPOSES(max_pool3d, MAX_POOL3D,
  .doc = "The largest value in each window of a volume; NaN counts as largest. With return_indices "
         "also the position of each maximum in its volume, in row-major order.",
  .examples =
    "moth.randn(2, 3, 4, 4, 4), 2  -- domain: distinct\n"
    "moth.randn(1, 2, 5, 6, 4), {kernel_size = {3, 2, 2}, stride = {2, 1, 1}, padding = 1}"
    "  -- domain: distinct\n"
    "moth.randn(2, 5, 5, 6), {kernel_size = 2, stride = 3, dilation = 2, ceil_mode = true,"
    " return_indices = true}  -- domain: distinct",
  .outputs = "y, indices: return_indices",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

/* Averages the averages. If windows are divided by another number, sums the sums. */
static int mean_windows(const void *call, moth_tensor *images, bool depth, moth_tensor **y) {
  const avg_pool3d_args *a = call;
  const int64_t divisor = a->divisor_override;
  return MOTH_CALL(a->ctx, y, avg_pool2d, .input = images, .kernel_size = PAIR(a->kernel_size, 1),
                   .stride = PAIR(a->stride, 1), .padding = PAIR(a->padding, 0),
                   .ceil_mode = a->ceil_mode, .count_include_pad = a->count_include_pad,
                   .divisor_override = divisor == MOTH_NO_INT || depth ? divisor : 1);
}

static int avg_pool3d_compose(const avg_pool3d_args *a, moth_tensor **out) {
  moth_window w = {.axes = 3, .kernel = INT3(a->kernel_size), .stride = INT3(a->stride),
                    .padding = INT3(a->padding), .dilation = {1, 1, 1}};
  int status = windows_fit(&w, a->input, a->ceil_mode);
  return status ? status : mean_volume(a, mean_windows, a->input, w.out, out);
}

MOTH_OP_COMPOSES(avg_pool3d, AVG_POOL3D,
  .doc = "The mean of each window of a volume.",
  .examples =
    "moth.randn(2, 3, 4, 4, 4), 2\n"
    "moth.randn(2, 5, 6, 4), {kernel_size = {3, 2, 2}, stride = {2, 1, 1}, padding = 1,"
    " ceil_mode = true}\n"
    "moth.randn(1, 2, 4, 5, 4), {kernel_size = 4, stride = 3, padding = 2,"
    " count_include_pad = false}\n"
    "moth.randn(1, 2, 4, 4, 4), {kernel_size = 2, divisor_override = 3}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

/* -- pooling to a given size -- */

/* size := the size of the result; a size of MOTH_NO_INT is the input's. */
static int shares_fit(const moth_tensor *input, const int64_t given[3], int64_t size[3]) {
  moth_ctx *ctx = input->ctx;
  int status = volume_fit(input);
  for (int i = 0; !status && i < 3; i++)
    size[i] = given[i] == MOTH_NO_INT ? input->l.shape[input->l.ndim - 3 + i] : given[i];
  for (int i = 0; !status && i < 3; i++)
    if (size[i] < 0 || size[i] > LARGEST)
      status = moth_fail(ctx, MOTH_E_DOMAIN, "output_size",
                         "numbers from 0 to 2^30 are needed, got %s", moth_str_ints(ctx, 3, size));
  return status;
}

static int mean_shares(const void *call, moth_tensor *images, bool depth, moth_tensor **y) {
  const adaptive_avg_pool3d_args *a = call;
  return MOTH_CALL(a->ctx, y, adaptive_avg_pool2d, .input = images,
                   .output_size = PAIR(a->output_size, MOTH_NO_INT));
}

static int adaptive_avg_pool3d_compose(const adaptive_avg_pool3d_args *a, moth_tensor **out) {
  int64_t size[3];
  int status = shares_fit(a->input, a->output_size, size);
  return status ? status : mean_volume(a, mean_shares, a->input, size, out);
}

MOTH_OP_COMPOSES(adaptive_avg_pool3d, ADAPTIVE_AVG_POOL3D,
  .doc = "Average pooling of volumes to a given size: each element is the mean of its window.",
  .examples =
    "moth.randn(2, 3, 4, 4, 4), 2\n"
    "moth.randn(3, 5, 4, 3), {3, 2, 4}\n"
    "moth.randn(2, 2, 3, 4, 3), {output_size = {5, moth.none, 2}}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

static int max_shares(const void *call, moth_tensor *images, bool depth, moth_tensor **y) {
  const adaptive_max_pool3d_args *a = call;
  return MOTH_CALL(a->ctx, y, adaptive_max_pool2d, .input = images,
                   .output_size = PAIR(a->output_size, MOTH_NO_INT),
                   .return_indices = a->return_indices);
}

static int adaptive_max_pool3d_compose(const adaptive_max_pool3d_args *a, moth_tensor **out) {
  int64_t size[3];
  int status = shares_fit(a->input, a->output_size, size);
  return status ? status
                : pool_volume(a, max_shares, a->input, size, a->return_indices, false, out);
}

MOTH_OP_COMPOSES(adaptive_max_pool3d, ADAPTIVE_MAX_POOL3D,
  .doc = "Max pooling of volumes to a given size: each element is the maximum of its window.",
  .examples =
    "moth.randn(2, 3, 4, 4, 4), 2  -- domain: distinct\n"
    "moth.randn(3, 4, 3, 5), {output_size = {3, moth.none, 2}, return_indices = true}"
    "  -- domain: distinct",
  .outputs = "y, indices: return_indices",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

const moth_op *const moth_pool3d_ops[] = {
  &moth_op_max_pool3d, &moth_op_avg_pool3d, &moth_op_adaptive_avg_pool3d,
  &moth_op_adaptive_max_pool3d, NULL,
};
