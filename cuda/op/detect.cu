/* detect.cu -- non-maximum suppression, as in core/op/detect.c. A first kernel finds the pairs of
** boxes that overlap too much, one bit for each pair. Then one block processes the boxes in order,
** 64 at a time: a box is kept if no kept box before it overlaps it. */
#include "../../core/op/detect.h"

#include "lib/reduce.cuh"

enum { WORD = 64 }; /* number of boxes for each word of bits */

/* Word w of box i: the bits of the boxes from 64 w on, after i, that overlap it too much. */
template <class T>
static __global__ void find_overlaps(int64_t n, int64_t words, const T *boxes, const int64_t *idx,
                                     double threshold, uint64_t *over) {
  typedef real_of<T> real;
  __shared__ real side[WORD][4];
  __shared__ int64_t classes[WORD];
  const int t = (int)threadIdx.x;
  const int64_t first = (int64_t)blockIdx.x * WORD, i = (int64_t)blockIdx.y * WORD + t;
  if (blockIdx.x < blockIdx.y) return; /* all of these boxes come earlier */
  if (first + t < n) {
    for (int k = 0; k < 4; k++) side[t][k] = get(boxes + 4 * (first + t) + k);
    classes[t] = idx ? idx[first + t] : 0;
  }
  __syncthreads();
  if (i >= n) return;
  const real left = get(boxes + 4 * i), top = get(boxes + 4 * i + 1);
  const real right = get(boxes + 4 * i + 2), bottom = get(boxes + 4 * i + 3);
  const int64_t own = idx ? idx[i] : 0;
  uint64_t bits = 0;
  for (int k = i < first ? 0 : t + 1; k < WORD && first + k < n; k++) {
    const real x1 = side[k][0], y1 = side[k][1], x2 = side[k][2], y2 = side[k][3];
    const real w = (right < x2 ? right : x2) - (left > x1 ? left : x1);
    const real h = (bottom < y2 ? bottom : y2) - (top > y1 ? top : y1);
    const real both = (w > 0 ? w : 0) * (h > 0 ? h : 0);
    const real ratio = both / ((right - left) * (bottom - top) + (x2 - x1) * (y2 - y1) - both);
    if ((double)ratio > threshold && own == classes[k]) bits |= (uint64_t)1 << k;
  }
  over[i * words + blockIdx.x] = bits;
}

/* gone: removed boxes, a word for each 64 boxes. */
static __global__ void keep_best(int64_t n, int64_t words, const uint64_t *over, uint64_t *gone,
                                 uint8_t *keep) {
  __shared__ uint64_t own[WORD], stand;
  const int t = (int)threadIdx.x;
  for (int64_t w = t; w < words; w += BLOCK) gone[w] = 0;
  for (int64_t word = 0; word < words; word++) {
    const int64_t first = word * WORD;
    const int here = n - first < WORD ? (int)(n - first) : WORD;
    if (t < here) own[t] = over[(first + t) * words + word];
    __syncthreads();
    if (t == 0) {
      uint64_t out = gone[word];
      for (int k = 0; k < here; k++)
        if (!(out >> k & 1)) out |= own[k];
      stand = ~out;
    }
    __syncthreads();
    if (t < here) keep[first + t] = stand >> t & 1;
    for (int64_t w = word + 1 + t; w < words; w += BLOCK) {
      uint64_t out = gone[w];
      for (int k = 0; k < here; k++)
        if (stand >> k & 1) out |= over[(first + k) * words + w];
      gone[w] = out;
    }
  }
}

MOTH_CUDA(nms_kept) {
  const int64_t n = out[0]->l.numel, words = (n + WORD - 1) / WORD;
  if (n == 0) return MOTH_OK;
  moth_tensor *boxes = moth_packed(a->boxes), *idxs = a->idxs ? moth_packed(a->idxs) : NULL;
  moth_tensor *scratch = device_scratch(out[0], (n + 1) * words * (int64_t)sizeof(uint64_t));
  int status = boxes && scratch && (idxs || !a->idxs) ? MOTH_OK : moth_status(a->ctx);
  uint64_t *over = scratch ? data<uint64_t>(scratch) : NULL, *gone = over + n * words;
  if (!status)
    status = with_float(boxes->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return launch(a->ctx, out[0], find_overlaps<T>, grid_for(words, words), WORD, 0, n, words,
                    data<T>(boxes), idxs ? data<int64_t>(idxs) : NULL, (double)a->iou_threshold,
                    over);
    });
  if (!status)
    status = launch(a->ctx, out[0], keep_best, 1, BLOCK, 0, n, words, over, gone,
                    data<uint8_t>(out[0]));
  moth_tensor_release(scratch);
  moth_tensor_release(idxs);
  moth_tensor_release(boxes);
  return status;
}
