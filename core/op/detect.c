/* detect.c -- non-maximum suppression: removes boxes that overlap a better box.
**
** moth.ops.nms (lua/moth/ops/init.lua) sorts the boxes, calls this op, and returns the positions of
** the kept boxes. The IoU is computed as a quotient, as in torchvision: the same boxes are then
** kept where the IoU equals the threshold.
*/
#include "detect.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <math.h>

#include "tensor/loop.h"

static int nms_kept_shape(const nms_kept_args *a, moth_layout *y) {
  const moth_layout *b = &a->boxes->l;
  if (b->ndim != 2 || b->shape[1] != 4)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "boxes", "(N, 4) is needed, got %s", moth_str(a->boxes));
  if (a->idxs && (a->idxs->l.ndim != 1 || a->idxs->l.shape[0] != b->shape[0]))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "idxs", "(%lld), one class per box, is needed, got %s",
                     (long long)b->shape[0], moth_str(a->idxs));
  y->ndim = 1;
  y->dtype = MOTH_BOOL;
  y->shape[0] = b->shape[0];
  return MOTH_OK;
}

/* `side` has x1, y1, x2, y2 and the area of the boxes, one column each, so that the inner loop
** vectorizes. Classes are compared only for boxes that overlap too much, which is rare. */
#define KEEP(real)                                                                              \
  static void strike_##real(const int64_t i, const int64_t n, const real *side,                 \
                            const real limit, uint8_t *restrict goes) {                         \
    const real *x1 = side, *y1 = x1 + n, *x2 = y1 + n, *y2 = x2 + n, *area = y2 + n;            \
    const real l = x1[i], t = y1[i], r = x2[i], b = y2[i], own = area[i];                       \
    for (int64_t j = i + 1; j < n; j++) {                                                       \
      real w = (r < x2[j] ? r : x2[j]) - (l > x1[j] ? l : x1[j]);                               \
      real h = (b < y2[j] ? b : y2[j]) - (t > y1[j] ? t : y1[j]);                               \
      real both = (w > 0 ? w : 0) * (h > 0 ? h : 0);                                            \
      goes[j] = both / (own + area[j] - both) > limit;                                          \
    }                                                                                           \
  }                                                                                             \
  static int keep_##real(moth_ctx *ctx, const int64_t n, const real *box, const int64_t *idx,   \
                         const real limit, real *side, uint8_t *keep, uint8_t *goes) {          \
    for (int64_t i = 0; i < n; i++, box += 4) {                                                 \
      for (int k = 0; k < 4; k++) side[k * n + i] = box[k];                                     \
      side[4 * n + i] = (box[2] - box[0]) * (box[3] - box[1]);                                  \
    }                                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                           \
      int status = keep[i] ? moth_poll(ctx) : MOTH_OK;                                          \
      if (status) return status;                                                                \
      if (!keep[i]) continue;                                                                   \
      strike_##real(i, n, side, limit, goes);                                                   \
      if (!idx)                                                                                 \
        for (int64_t j = i + 1; j < n; j++) keep[j] &= goes[j] ^ 1;                             \
      else                                                                                      \
        for (int64_t j = i + 1; j < n; j++) keep[j] &= !goes[j] | (idx[i] != idx[j]);           \
    }                                                                                           \
    return MOTH_OK;                                                                             \
  }
KEEP(float)
KEEP(double)

/* Returns the largest float <= x. A float is greater than x if and only if it is greater than the
** result. */
static float float_below(double x) {
  const float y = (float)x;
  return (double)y > x ? nextafterf(y, -INFINITY) : y;
}

static int nms_kept_cpu(const nms_kept_args *a, moth_tensor **out) {
  const int64_t n = a->boxes->l.shape[0];
  const int dtype = moth_compute_dtype(a->boxes->l.dtype);
  moth_layout l = {.ndim = 2, .dtype = (uint8_t)dtype, .shape = {6, n}};
  moth_tensor *boxes = moth_cast(a->boxes, dtype), *idxs = a->idxs ? moth_packed(a->idxs) : NULL;
  moth_tensor *side = moth_layout_pack(&l) ? moth_tensor_new(a->ctx, &l) : NULL;
  int status = boxes && side && (idxs || !a->idxs) ? MOTH_OK : a->ctx->error.code;
  const int64_t *idx = idxs ? (const int64_t *)(const void *)moth_at(idxs) : NULL;
  uint8_t *keep = (uint8_t *)moth_at(out[0]);
  uint8_t *goes = side ? (uint8_t *)moth_at(side) + 5 * n * moth_dtype_size[dtype] : NULL;
  if (n) memset(keep, 1, (size_t)n);
  if (!status && dtype == MOTH_F64)
    status = keep_double(a->ctx, n, (const double *)(const void *)moth_at(boxes), idx,
                         a->iou_threshold, (double *)(void *)moth_at(side), keep, goes);
  else if (!status)
    status = keep_float(a->ctx, n, (const float *)(const void *)moth_at(boxes), idx,
                        float_below(a->iou_threshold), (float *)(void *)moth_at(side), keep,
                        goes);
  moth_tensor_release(side);
  moth_tensor_release(idxs);
  moth_tensor_release(boxes);
  return status;
}

MOTH_OP_CONST(nms_kept, NMS_KEPT, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_HIDDEN,
              .doc = "Non-maximum suppression: the boxes that do not overlap a better box by more "
                     "than iou_threshold.",
              .examples = "moth.tensor{{0, 0, 2, 2}, {0, 0, 2, 1.5}, {3, 3, 4, 4}}, 0.5\n"
                          "moth.rand(5, 4), 0.3, {idxs = moth.tensor{1LL, 2LL, 1LL, 2LL, 1LL}}",
              .public_name = "nms")

const moth_op *const moth_detect_ops[] = {&moth_op_nms_kept, NULL};
