/* volume.h -- volumes as images. Pooling and resampling are separable: they run over the planes,
** viewed as images (N, C D, H, W), then along the depth, in images (N, C, D, H W).
*/
#ifndef MOTH_OP_VOLUME_H
#define MOTH_OP_VOLUME_H

#include "view.h"
#include "tensor/shape.h"
#include "base/error.h"

/* Fails for tensors that are not volumes. */
static inline int volume_fit(const moth_tensor *x) {
  const moth_layout *l = &x->l;
  if (l->ndim != 4 && l->ndim != 5)
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input",
                     "(N, C, D, H, W) or (C, D, H, W) is needed, got %s", moth_str(x));
  for (int i = l->ndim - 4; i < l->ndim; i++)
    if (l->shape[i] == 0)
      return moth_fail(x->ctx, MOTH_E_SHAPE, "input", "only the batch may be empty, got %s",
                       moth_str(x));
  return MOTH_OK;
}

static inline int volume_seen(moth_tensor *x, int64_t n, int64_t c, int64_t c_times, int64_t h,
                              int64_t w, int64_t w_times, moth_tensor **y) {
  int64_t shape[4] = {n, c, h, w};
  if (moth_mul_overflow(c, c_times, &shape[1]) || moth_mul_overflow(w, w_times, &shape[3]))
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input", "%s is too large", moth_str(x));
  return MOTH_CALL(x->ctx, y, reshape, .input = x, .shape = {shape, 4});
}

/* y := the volume x as images (N, C D, H, W); owned. */
static inline int volume_planes(moth_tensor *x, moth_tensor **y) {
  const int64_t *n = x->l.shape + x->l.ndim - 4;
  return volume_seen(x, x->l.ndim == 5 ? n[-1] : 1, n[0], n[1], n[2], n[3], 1, y);
}

/* y := images, computed from volume_planes(volume), as images (N, C, D, H W) along the depth;
** owned. */
static inline int volume_columns(moth_tensor *planes, const moth_tensor *volume, moth_tensor **y) {
  const int64_t *n = planes->l.shape, *v = volume->l.shape + volume->l.ndim - 4;
  return volume_seen(planes, n[0], v[0], 1, v[1], n[2], n[3], y);
}

/* y := x with the dimensions of the volume, but with the given size; owned. */
static inline int volume_of(moth_tensor *x, const moth_tensor *volume, const int64_t size[3],
                            moth_tensor **y) {
  int64_t shape[5];
  const int lead = volume->l.ndim - 3;
  memcpy(shape, volume->l.shape, (size_t)lead * sizeof *shape);
  memcpy(shape + lead, size, 3 * sizeof *shape);
  return MOTH_CALL(x->ctx, y, reshape, .input = x, .shape = {shape, lead + 3});
}

#endif
