/* dropout.cu -- dropout: masks from the same random words as on the CPU, applied in the same pass.
** channels_last images keep their memory format; their mask has the same values as in row-major
** order. */
#include "../../core/op/dropout.h"

#include "lib/philox.cuh"
#include "lib/rows.cuh"

/* Images, or volumes, in channels_last. */
struct images {
  quotient_by channels, plane;
};

static images images_of(const moth_layout *l) {
  int64_t plane = 1;
  for (int32_t d = 2; d < l->ndim; d++) plane *= l->shape[d];
  return images{quotients(l->shape[1], l->numel), quotients(plane, l->numel)};
}

/* The row-major index of element i in memory order. */
HD int64_t row_major(const images &m, int64_t i) {
  const int64_t pixel = divide(i, m.channels), image = divide(pixel, m.plane);
  const int64_t channel = image * m.channels.by + i - pixel * m.channels.by;
  return channel * m.plane.by + pixel - image * m.plane.by;
}

template <class T> static __device__ inline void keep(bool kept, const T *x, real_of<T> by, T *y) {
  put(y, kept ? get(x) * by : 0);
}

/* A thread draws four bytes of the mask (a byte is 1 if its word is at least `least`) and writes
** four elements. */
template <class T>
static __global__ void drop(int64_t n, stream s, uint64_t least, double by, const T *x,
                            uint8_t *mask, T *y) {
  const int64_t block = thread_number(), first = block * 4;
  if (first >= n) return;
  const words w = philox(s, (uint64_t)block);
  if (first + 4 > n) {
    for (int k = 0; k < 4; k++) {
      if (first + k >= n) continue;
      mask[first + k] = w.at[k] >= least;
      keep(w.at[k] >= least, x + first + k, (real_of<T>)by, y + first + k);
    }
    return;
  }
  vec<uint8_t, 4> bytes;
  for (int k = 0; k < 4; k++) bytes.at[k] = w.at[k] >= least;
  write_vec(mask + first, bytes);
  const vec<T, 4> in = *(const vec<T, 4> *)(const void *)(x + first);
  vec<T, 4> out;
  for (int k = 0; k < 4; k++) keep(bytes.at[k], &in.at[k], (real_of<T>)by, &out.at[k]);
  write_vec(y + first, out);
}

/* Returns byte `at` of the mask. */
static __device__ inline bool is_set(const stream &s, int64_t at, uint64_t least) {
  const words w = philox(s, (uint64_t)at / 4);
  bool set = false;
  for (int k = 0; k < 4; k++) set = set || (k == at % 4 && w.at[k] >= least);
  return set;
}

/* The same for images; their mask has the same memory format. */
template <class T>
static __global__ void drop_images(int64_t n, images m, stream s, uint64_t least, double by,
                                   const T *x, uint8_t *mask, T *y) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const bool kept = is_set(s, row_major(m, i), least);
  mask[i] = kept;
  keep(kept, x + i, (real_of<T>)by, y + i);
}

/* Each mask byte is for `run` elements and is written by the thread of the first one. The elements
** are adjacent, or `apart` for channels_last images. */
template <class T, int EACH>
static __global__ void drop_runs(int64_t n, images m, bool apart, quotient_by run, stream s,
                                 uint64_t least, double by, const T *x, uint8_t *mask, T *y) {
  const int64_t first = thread_number() * EACH;
  if (first >= n) return;
  const vec<T, EACH> in = *(const vec<T, EACH> *)(const void *)(x + first);
  vec<T, EACH> out;
  int64_t last = -1;
  bool kept = false;
  for (int k = 0; k < EACH; k++) {
    const int64_t at = apart ? row_major(m, first + k) : first + k, byte = divide(at, run);
    if (byte != last) kept = is_set(s, byte, least);
    last = byte;
    if (at == byte * run.by) mask[byte] = kept;
    keep(kept, &in.at[k], (real_of<T>)by, &out.at[k]);
  }
  write_vec(y + first, out);
}

/* Each byte of the mask is for `run` adjacent elements. */
template <class T, int EACH>
static __global__ void apply(int64_t n, quotient_by run, double by, const T *x,
                             const uint8_t *mask, T *y) {
  const int64_t first = thread_number() * EACH;
  if (first >= n) return;
  const vec<T, EACH> in = *(const vec<T, EACH> *)(const void *)(x + first);
  vec<T, EACH> out;
  for (int k = 0; k < EACH; k++)
    keep(mask[divide(first + k, run)] != 0, &in.at[k], (real_of<T>)by, &out.at[k]);
  write_vec(y + first, out);
}

/* The same for images whose mask covers the first dimensions only. */
template <class T>
static __global__ void apply_images(int64_t n, images m, quotient_by run, double by, const T *x,
                                    const uint8_t *mask, T *y) {
  const int64_t i = thread_number();
  if (i < n) keep(mask[divide(row_major(m, i), run)] != 0, x + i, (real_of<T>)by, y + i);
}

template <class T>
static int apply_run(const moth_tensor *x, const moth_tensor *mask, double by, moth_tensor *y) {
  const int64_t n = y->l.numel;
  if (n == 0) return MOTH_OK;
  const quotient_by run = quotients(n / mask->l.numel, n);
  const T *from = data<T>(x);
  const uint8_t *bytes = data<uint8_t>(mask);
  if (moth_is_channels_last(y) && mask->l.ndim < y->l.ndim)
    return launch(y->ctx, y, apply_images<T>, blocks_for(n), BLOCK, 0, n, images_of(&y->l), run,
                  by, from, bytes, data<T>(y));
  if (n % VEC<T> == 0 && on_vec(from) && on_vec(data<T>(y)))
    return launch(y->ctx, y, apply<T, VEC<T>>, blocks_for(n, VEC<T>), BLOCK, 0, n, run, by,
                  from, bytes, data<T>(y));
  return launch(y->ctx, y, apply<T, 1>, blocks_for(n), BLOCK, 0, n, run, by, from, bytes,
                data<T>(y));
}

/* Tests if both tensors are aligned for vectors of `el` elements. */
static bool aligned(const moth_tensor *x, const moth_tensor *y, int elements) {
  const uintptr_t size = (uintptr_t)elements * (uintptr_t)moth_dtype_size[y->l.dtype];
  return (uintptr_t)moth_address(x) % size == 0 && (uintptr_t)moth_address(y) % size == 0;
}

static double scale_of(double p) { return p < 1 ? 1 / (1 - p) : 0; }

/* A mask byte is 1 if its word is at least p 2^32; for p = 1 all are 0. */
static int dropout_run(const moth_tensor *input, double p, bool training, moth_tensor *generator,
                       moth_tensor **out) {
  moth_ctx *ctx = input->ctx;
  moth_tensor *y = out[0], *mask = out[1];
  const int64_t n = mask->l.numel, all = y->l.numel;
  stream s;
  if (!training || p == 0) return moth_copy_into(y, input);
  int status = stream_open(ctx, generator, n, 1, &s);
  if (status || all == 0) return status;
  const bool channels_last = moth_is_channels_last(y);
  moth_tensor *x = moth_packed_as(input, channels_last);
  if (!x) return moth_status(ctx);
  const uint64_t least = (uint64_t)(p * 4294967296.0);
  const images m = channels_last ? images_of(&y->l) : images{};
  status = with_float(y->l.dtype, [&](auto type) {
    typedef typename decltype(type)::of T;
    const T *from = data<T>(x);
    uint8_t *bytes = data<uint8_t>(mask);
    T *to = data<T>(y);
    if (channels_last && mask->l.ndim == y->l.ndim)
      return launch(ctx, y, drop_images<T>, blocks_for(n), BLOCK, 0, n, m, s, least, scale_of(p),
                    from, bytes, to);
    if (n == all && aligned(x, y, 4))
      return launch(ctx, y, drop<T>, blocks_for(n, 4), BLOCK, 0, n, s, least, scale_of(p), from,
                    bytes, to);
    const bool vecs = all % VEC<T> == 0 && aligned(x, y, VEC<T>);
    return launch(ctx, y, vecs ? drop_runs<T, VEC<T>> : drop_runs<T, 1>,
                  blocks_for(all, vecs ? VEC<T> : 1), BLOCK, 0, all, m, channels_last,
                  quotients(all / n, all), s, least, scale_of(p), from, bytes, to);
  });
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(dropout) { return dropout_run(a->input, a->p, a->training, a->generator, out); }
MOTH_CUDA(dropout2d) { return dropout_run(a->input, a->p, a->training, a->generator, out); }

MOTH_CUDA(dropout_apply) {
  const bool channels_last = moth_is_channels_last(out[0]);
  moth_tensor *x = moth_packed_as(a->input, channels_last);
  moth_tensor *mask = moth_packed_as(a->mask, channels_last && a->mask->l.ndim == out[0]->l.ndim);
  int status = x && mask ? MOTH_OK : moth_status(a->ctx);
  if (!status)
    status = with_float(out[0]->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      return apply_run<T>(x, mask, a->scale, out[0]);
    });
  moth_tensor_release(x);
  moth_tensor_release(mask);
  return status;
}
