/* conv3d.cu -- convolution of volumes and its gradients. cuDNN computes it if it is installed, or
** tensor cores (conv_mma.cu). Otherwise the convolution of images does, as in
** core/kernel/conv/conv3d.c: the slices under the taps along the depth become further channels. A
** chunk of volumes is gathered and convolved, and its results are scattered. Each element is
** written by one thread, so that results repeat. */
#include "../../core/op/conv3d.h"

#include "conv.cuh"

enum { CHUNK_BYTES = 1 << 26 }; /* size limit of a chunk's slices and results; a chunk has at least
                                ** one volume */

/* Slices of volumes (n, channels, depth) under the windows along the depth: (n out, channels taps).
*/
struct slices {
  conv_side d;
  int64_t n, channels, plane;
};

static inline int64_t volume_of(const slices &s) { return s.channels * s.d.in * s.plane; }
static inline int64_t seen_of(const slices &s) {
  return s.d.out * s.channels * s.d.kernel * s.plane;
}

/* The depth axis of a convolution with one tap, for the results. */
static inline conv_side results_side(int out) { return conv_side{out, out, 1, 1, 0, 1}; }

/* Element i of the slices, and the index `inside` of the same element in the volumes, or -1 for
** padding. */
HD int64_t inside_of(const slices &s, const quotient_by &plane, int64_t i) {
  const int64_t slice = divide(i, plane), at = i - slice * s.plane;
  const int64_t seen = slice / s.d.kernel, image = seen / s.channels, n = image / s.d.out;
  const int k = (int)(slice - seen * s.d.kernel), o = (int)(image - n * s.d.out);
  const int d = o * s.d.stride - s.d.padding + k * s.d.dilation;
  if (d < 0 || d >= s.d.in) return -1;
  return ((n * s.channels + seen - image * s.channels) * s.d.in + d) * s.plane + at;
}

template <class T>
static __global__ void gather_slices(slices s, quotient_by plane, int64_t n, const T *volumes,
                                     T *to) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t at = inside_of(s, plane, i);
  to[i] = at < 0 ? T() : volumes[at];
}

/* For slices that belong to one window each. */
template <class T>
static __global__ void put_slices(slices s, quotient_by plane, int64_t n, const T *from,
                                  T *volumes) {
  const int64_t i = thread_number();
  if (i < n) volumes[inside_of(s, plane, i)] = from[i];
}

/* An element of the volumes: the sum over all windows that contain it. */
template <class T>
static __global__ void sum_slices(slices s, quotient_by plane, int64_t n, const T *from,
                                  T *volumes) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t slice = divide(i, plane), channel = slice / s.d.in;
  const int64_t volume = channel / s.channels, c = channel - volume * s.channels;
  const int d = (int)(slice - channel * s.d.in);
  real_of<T> sum = 0;
  for (int k = 0; k < s.d.kernel; k++) {
    const int at = d + s.d.padding - k * s.d.dilation, o = at / s.d.stride;
    if (at < 0 || o * s.d.stride != at || o >= s.d.out) continue;
    const int64_t seen = ((volume * s.d.out + o) * s.channels + c) * s.d.kernel + k;
    sum += get(from + seen * s.plane + i - slice * s.plane);
  }
  put(volumes + i, sum);
}

template <class T>
static __global__ void sum_parts(int64_t n, int64_t count, const T *parts, T *to) {
  const int64_t i = thread_number();
  if (i >= n) return;
  real_of<T> sum = 0;
  for (int64_t p = 0; p < count; p++) sum += get(parts + p * n + i);
  put(to + i, sum);
}

/* -- by convolution of images -- */

/* The volumes of x, and of y, as slices; `chunk` volumes at a time. */
struct slices_job {
  conv_job images; /* of a chunk */
  slices x, y;
  moth_tensor *x_scratch, *y_scratch, *parts;
  int64_t chunk, chunks;
};

template <class T>
static int gather(const conv_job &j, const slices &s, const T *volumes, const moth_tensor *to) {
  const int64_t n = s.n * seen_of(s);
  return launch_on(j.ctx, j.q, gather_slices<T>, blocks_for(n), BLOCK, 0, s, quotients(s.plane, n),
                   n, volumes, data<T>(to));
}

/* Processes one chunk, the volumes from `first` on. */
template <class T> static int run_chunk(const conv_job &j, slices_job *s, int64_t first, T) {
  typedef typename T::of E;
  const int64_t x_at = first * volume_of(s->x), y_at = first * volume_of(s->y);
  const int64_t part = first / s->chunk;
  moth_tensor to = s->parts ? *s->parts : *j.to; /* the tensor that this chunk writes */
  int status = MOTH_OK;
  if (s->parts) {
    to.l.numel = j.to->l.numel;
    to.l.offset += part * to.l.numel;
  }
  if (j.what != CONV_WEIGHT) to = j.what == CONV_INPUT ? *s->x_scratch : *s->y_scratch;
  conv_job images = s->images;
  images.x = j.what == CONV_INPUT ? &to : s->x_scratch;
  images.y = j.what == CONV_FORWARD ? &to : s->y_scratch;
  images.w = j.what == CONV_WEIGHT ? &to : j.w;
  images.to = &to;
  images.c.images = s->x.n * s->x.d.out;
  to.l.numel = j.what == CONV_INPUT ? s->x.n * seen_of(s->x)
               : j.what == CONV_FORWARD ? s->y.n * seen_of(s->y) : to.l.numel;
  if (j.what != CONV_INPUT) status = gather(j, s->x, data<E>(j.x) + x_at, s->x_scratch);
  if (!status && j.what != CONV_FORWARD)
    status = gather(j, s->y, data<E>(j.y) + y_at, s->y_scratch);
  if (!status) status = moth_conv_packed(images);
  if (status || j.what == CONV_WEIGHT) return status;
  if (j.what == CONV_FORWARD)
    return launch_on(j.ctx, j.q, put_slices<E>, blocks_for(to.l.numel), BLOCK, 0, s->y,
                     quotients(s->y.plane, to.l.numel), to.l.numel, data<E>(s->y_scratch),
                     data<E>(j.y) + y_at);
  const int64_t n = s->x.n * volume_of(s->x);
  typedef real_of<E> R; /* for by_wide_images */
  return launch_on(j.ctx, j.q, sum_slices<R>, blocks_for(n), BLOCK, 0, s->x,
                   quotients(s->x.plane, n), n, data<R>(s->x_scratch), data<R>(j.x) + x_at);
}

/* Chooses chunks of volumes whose slices fit into CHUNK_BYTES. */
static slices_job cut(const conv_job &j) {
  const conv_shape &c = j.c;
  slices_job s = {};
  s.x = slices{c.depth, 0, c.groups * c.channels, (int64_t)c.w.in[0] * c.w.in[1]};
  s.y =
      slices{results_side(c.depth.out), 0, c.groups * c.filters, (int64_t)c.w.out[0] * c.w.out[1]};
  const int64_t each = (seen_of(s.x) + seen_of(s.y)) * moth_dtype_size[j.to->l.dtype];
  s.chunk = each < CHUNK_BYTES ? CHUNK_BYTES / each : 1;
  if (s.chunk > c.images) s.chunk = c.images ? c.images : 1;
  s.chunks = (c.images + s.chunk - 1) / s.chunk;
  return s;
}

static int by_images(const conv_job &j) {
  const conv_shape &c = j.c;
  const int dtype = j.to->l.dtype;
  slices_job s = cut(j);
  s.images = j;
  s.images.c.depth = conv_side{};
  s.images.c.channels = c.channels * c.depth.kernel;
  s.x_scratch = conv_scratch(j, s.chunk * seen_of(s.x), dtype);
  s.y_scratch = conv_scratch(j, s.chunk * seen_of(s.y), dtype);
  const bool parts = j.what == CONV_WEIGHT && s.chunks > 1;
  if (parts) s.parts = conv_scratch(j, s.chunks * j.to->l.numel, dtype);
  int status = s.x_scratch && s.y_scratch && (s.parts || !parts) ? MOTH_OK : moth_status(j.ctx);
  for (int64_t at = 0; !status && (at < c.images || at == 0); at += s.chunk) {
    s.x.n = s.y.n = c.images - at < s.chunk ? c.images - at : s.chunk;
    status = with_float(dtype, [&](auto t) { return run_chunk(j, &s, at, t); });
  }
  if (!status && parts)
    status = with_float(dtype, [&](auto t) {
      typedef real_of<typename decltype(t)::of> T; /* for by_wide_images */
      return launch_on(j.ctx, j.q, sum_parts<T>, blocks_for(j.to->l.numel), BLOCK, 0,
                       j.to->l.numel, s.chunks, data<T>(s.parts), data<T>(j.to));
    });
  moth_tensor_release(s.x_scratch);
  moth_tensor_release(s.y_scratch);
  moth_tensor_release(s.parts);
  return status;
}

/* A gradient in half types that sums over chunks: the partial sums are not rounded to the half
** type. */
static int by_wide_images(const conv_job &j) {
  const bool of_volumes = j.what == CONV_INPUT;
  conv_job wide = j;
  moth_layout l = j.to->l;
  l.dtype = MOTH_F32;
  moth_tensor *from = moth_cast(of_volumes ? j.w : j.x, MOTH_F32), *y = moth_cast(j.y, MOTH_F32);
  moth_tensor *to = moth_tensor_new(j.ctx, &l);
  wide.x = of_volumes ? to : from;
  wide.w = of_volumes ? from : to;
  wide.y = y;
  wide.to = to;
  int status = from && y && to ? by_images(wide) : moth_status(j.ctx);
  if (!status) status = moth_copy_into(j.to, to);
  moth_tensor_release(from);
  moth_tensor_release(y);
  moth_tensor_release(to);
  return status;
}

/* Filters along the depth only: a volume is then an image, whose rows are its slices. */
static bool is_along_depth(const conv_shape &c, conv_shape *flat) {
  const window &w = c.w;
  const conv_side &d = c.depth;
  const int64_t in = (int64_t)w.in[0] * w.in[1], out = (int64_t)w.out[0] * w.out[1];
  if (in != out || in >= 1 << 29) return false;
  for (int i = 0; i < 2; i++)
    if (w.kernel[i] != 1 || w.stride[i] != 1 || w.padding[i]) return false;
  *flat = c;
  flat->depth = conv_side{};
  window_axis(&flat->w, 0, d.in, d.out, d.kernel, d.stride, d.padding, d.dilation);
  window_axis(&flat->w, 1, (int)in, (int)out, 1, 1, 0, 1);
  return true;
}

/* For depthwise filters cuDNN is no faster, except for channels_last. */
static int by_cudnn(const conv_job &j, bool *done) {
  const bool depthwise = j.c.channels == 1 && j.c.groups > 1;
  *done = false;
  if (j.c.images == 0 || (depthwise && !j.channels_last)) return MOTH_OK;
  return moth_conv_cudnn(j, done);
}

/* Convolves whole volumes at once, in any memory format. */
static int by_volumes(const conv_job &j, bool *done) {
  const int status = by_cudnn(j, done);
  return *done || status ? status : moth_conv_tensor_cores(j, done);
}

static int compute(const conv_job &j) {
  const conv_shape &c = j.c;
  bool done = false;
  int status = by_volumes(j, &done);
  if (status || done) return status;
  conv_job flat = j;
  if (is_along_depth(c, &flat.c)) return moth_conv_packed(flat);
  const bool has_parts = j.what == CONV_INPUT || (j.what == CONV_WEIGHT && cut(j).chunks > 1);
  return has_parts && moth_dtype_size[j.to->l.dtype] == 2 ? by_wide_images(j) : by_images(j);
}

template <class A>
static int convolve(const A *a, conv_what what, const conv_tensors &given, moth_tensor *to) {
  conv_job j = {};
  int status = conv_job_of(&j, a, 3, what, given, to);
  if (status || to->l.numel == 0) return status;
  return as_it_lies(j, given, 3, by_volumes, compute);
}

MOTH_CUDA(conv3d) {
  return convolve(a, CONV_FORWARD, {a->input, a->weight, out[0], a->bias}, out[0]);
}

MOTH_CUDA(conv3d_input) {
  return convolve(a, CONV_INPUT, {out[0], a->weight, a->input, NULL}, out[0]);
}

MOTH_CUDA(conv3d_weight) {
  return convolve(a, CONV_WEIGHT, {a->input, out[0], a->output, NULL}, out[0]);
}
