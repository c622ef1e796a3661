/* detect.cu -- non-maximum suppression, as core/op/detect.c has it. */
#include "../core/op/detect.h"

#include "numbers.cuh"

/* One block: whether a box still stands is known when all before it are done. */
template <class T>
static __global__ void keep_best(int64_t n, const T *boxes, const int64_t *idx, double threshold,
                                 uint8_t *keep) {
  typedef real_of<T> real;
  for (int64_t j = threadIdx.x; j < n; j += BLOCK) keep[j] = 1;
  for (int64_t i = 0; i < n; i++) {
    __syncthreads();
    if (!keep[i]) continue;
    const real l = get(boxes + 4 * i), t = get(boxes + 4 * i + 1), r = get(boxes + 4 * i + 2),
               b = get(boxes + 4 * i + 3);
    for (int64_t j = i + 1 + threadIdx.x; j < n; j += BLOCK) {
      const real x1 = get(boxes + 4 * j), y1 = get(boxes + 4 * j + 1), x2 = get(boxes + 4 * j + 2),
                 y2 = get(boxes + 4 * j + 3);
      const real w = (r < x2 ? r : x2) - (l > x1 ? l : x1);
      const real h = (b < y2 ? b : y2) - (t > y1 ? t : y1);
      const real both = (w > 0 ? w : 0) * (h > 0 ? h : 0);
      const real ratio = both / ((r - l) * (b - t) + (x2 - x1) * (y2 - y1) - both);
      if ((double)ratio > threshold && (!idx || idx[i] == idx[j])) keep[j] = 0;
    }
  }
}

MOTH_CUDA(nms_kept) {
  moth_tensor *boxes = moth_packed(a->boxes), *idxs = a->idxs ? moth_packed(a->idxs) : NULL;
  int status = boxes && (idxs || !a->idxs) ? MOTH_OK : moth_status(a->ctx);
  const int64_t n = out[0]->l.numel;
  if (!status && n)
    status = with_float(boxes->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return launch(a->ctx, out[0], keep_best<T>, 1, BLOCK, 0, n, data<T>(boxes),
                    idxs ? data<int64_t>(idxs) : NULL, (double)a->iou_threshold,
                    data<uint8_t>(out[0]));
    });
  moth_tensor_release(idxs);
  moth_tensor_release(boxes);
  return status;
}
