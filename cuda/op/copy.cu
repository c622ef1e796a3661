/* copy.cu -- copies: on the device with conversion and broadcasting, and between device and CPU. */
#include "host/device.cuh"
#include "lib/strided.cuh"

/* -- on the device -- */

template <class V> static __device__ inline void put_as(int dtype, char *to, V v) {
  void *at = to;
  switch (dtype) {
    case MOTH_BOOL: convert_to((bool8 *)at, v); break;
    case MOTH_U8: convert_to((uint8_t *)at, v); break;
    case MOTH_I8: convert_to((int8_t *)at, v); break;
    case MOTH_I16: convert_to((int16_t *)at, v); break;
    case MOTH_I32: convert_to((int32_t *)at, v); break;
    case MOTH_I64: convert_to((int64_t *)at, v); break;
    case MOTH_F16: put((f16 *)at, v); break;
    case MOTH_BF16: put((bf16 *)at, v); break;
    case MOTH_F32: put((float *)at, v); break;
    default: put((double *)at, v);
  }
}

template <class T> static __global__ void convert_any(strided<2> w, int dtype) {
  const int64_t i = thread_number();
  int64_t at[2];
  if (i >= w.n) return;
  offsets(w, i, at);
  put_as(dtype, w.of[0].at + at[0], get(element<T>(w.of[1], at[1])));
}

/* Converts between f32 and a half type, contiguous elements: several for each thread. */
enum { CONVERTED = 4 };
template <class X, class Y> static __global__ void convert_runs(int64_t n, Y *y, const X *x) {
  const int64_t i = thread_number() * CONVERTED;
  if (i + CONVERTED <= n) {
    const vec<X, CONVERTED> in = *(const vec<X, CONVERTED> *)(const void *)(x + i);
    vec<Y, CONVERTED> out;
    for (int k = 0; k < CONVERTED; k++) put(&out.at[k], get(&in.at[k]));
    write_vec(y + i, out);
  } else {
    for (int64_t k = i; k < n; k++) put(y + k, get(x + k));
  }
}

template <class T> static __global__ void move_any(strided<2> w) {
  const int64_t i = thread_number();
  int64_t at[2];
  if (i >= w.n) return;
  offsets(w, i, at);
  *(T *)(void *)(w.of[0].at + at[0]) = *element<T>(w.of[1], at[1]);
}

/* 16 bytes for each thread; strided_packs has checked that it is possible. */
template <class T> static __global__ void move_runs(strided<2> w) {
  enum { EACH = 16 / sizeof(T) };
  const int64_t first = thread_number() * EACH, left = w.n - first;
  int64_t at[2];
  if (left <= 0) return;
  offsets(w, first, at);
  write_run(w, 0, at[0], left, read_run<T, EACH>(w, 1, at[1], left));
}

/* -- transposed copies: tiles pass through shared memory, so that both tensors are accessed in rows
** (Ruetsch and Micikevicius, "Optimizing matrix transpose in CUDA", 2009) -- */

enum { SIDE = 32, DOWN = 8 };

struct transposing {
  char *y;
  const char *x;
  int64_t size[2]; /* of y's contiguous dimension, and of x's */
  int64_t x_step, y_step; /* strides in the other tensor's contiguous dimension */
  quotient_by tiles[2];
  strided<2> rest; /* all further dimensions */
};

template <class T> static __global__ void transpose_tiles(transposing t) {
  __shared__ T tile[SIDE][SIDE + 1];
  const int64_t above = divide(blockIdx.x, t.tiles[0]), place = divide(above, t.tiles[1]);
  const int64_t i = (blockIdx.x - above * t.tiles[0].by) * SIDE;
  const int64_t j = (above - place * t.tiles[1].by) * SIDE;
  const int lane = (int)threadIdx.x % SIDE, row = (int)threadIdx.x / SIDE;
  int64_t at[2];
  offsets(t.rest, place, at);
  for (int k = row; k < SIDE; k += DOWN)
    if (i + k < t.size[0] && j + lane < t.size[1])
      tile[k][lane] = *(const T *)(const void *)(t.x + at[1] + (i + k) * t.x_step +
                                                 (j + lane) * (int64_t)sizeof(T));
  __syncthreads();
  for (int k = row; k < SIDE; k += DOWN)
    if (i + lane < t.size[0] && j + k < t.size[1])
      *(T *)(void *)(t.y + at[0] + (i + lane) * (int64_t)sizeof(T) + (j + k) * t.y_step) =
        tile[lane][k];
}

/* The dimension of w in which the source is contiguous, or 0 if a transposed copy is not worth it.
*/
static int other_side(const strided<2> &w, int size) {
  if (w.of[1].is_held || w.step[0][0] != size || w.step[0][1] == size || w.wide[0] < SIDE / 2)
    return 0;
  for (int d = 1; d < w.ndim; d++)
    if (w.step[d][1] == size && w.wide[d] >= SIDE / 2) return d;
  return 0;
}

static int transpose_copy(const moth_tensor *y, const strided<2> &w, int d) {
  transposing t = {w.of[0].at, w.of[1].at, {w.wide[0], w.wide[d]}, w.step[0][1], w.step[d][0],
                   {},         w};
  const int64_t tiles[2] = {(t.size[0] + SIDE - 1) / SIDE, (t.size[1] + SIDE - 1) / SIDE};
  const int64_t places = w.n / (t.size[0] * t.size[1]), blocks = tiles[0] * tiles[1] * places;
  t.rest.ndim = 0;
  for (int from = 1; from < w.ndim; from++) {
    if (from == d) continue;
    const int to = t.rest.ndim++;
    t.rest.size[to] = w.size[from];
    t.rest.wide[to] = w.wide[from];
    for (int k = 0; k < 2; k++) t.rest.step[to][k] = w.step[from][k];
  }
  for (int k = 0; k < 2; k++) t.tiles[k] = quotients(tiles[k], blocks);
  return with_size(y->l.dtype, [&](auto type) {
    typedef typename decltype(type)::of T;
    return launch(y->ctx, y, transpose_tiles<T>, grid_for(blocks), SIDE * DOWN, 0, t);
  });
}

/* Copies with conversion if both are contiguous; else *done is false. */
static int convert_flat(moth_tensor *y, const moth_tensor *x, const strided<2> &w, bool *done) {
  const int to = moth_dtype_size[y->l.dtype], from = moth_dtype_size[x->l.dtype];
  const int sizes[2] = {to, from};
  *done = !w.of[1].is_held && y->l.dtype >= MOTH_F16 && x->l.dtype >= MOTH_F16 && to + from == 6 &&
          strided_is_flat(w, sizes) && w.step[0][1] == from &&
          (uintptr_t)w.of[0].at % (to * CONVERTED) == 0 &&
          (uintptr_t)w.of[1].at % (from * CONVERTED) == 0;
  if (!*done) return MOTH_OK;
  return with_float(x->l.dtype, [&](auto a) {
    return with_float(y->l.dtype, [&](auto b) {
      typedef typename decltype(a)::of X;
      typedef typename decltype(b)::of Y;
      if constexpr (sizeof(X) + sizeof(Y) != 6) return MOTH_OK;
      else
        return launch(y->ctx, y, convert_runs<X, Y>, blocks_for(w.n, CONVERTED), BLOCK, 0, w.n,
                      (Y *)(void *)w.of[0].at, (const X *)(const void *)w.of[1].at);
    });
  });
}

static int copy_here(moth_tensor *y, const moth_tensor *x) {
  const moth_tensor *operands[2] = {y, x};
  const int size = moth_dtype_size[y->l.dtype];
  moth_ctx *ctx = y->ctx;
  strided<2> w;
  if (y->l.numel == 0) return MOTH_OK;
  strided_over<2>(&w, ctx, operands);
  if (x->l.dtype != y->l.dtype) {
    bool done;
    const int status = convert_flat(y, x, w, &done);
    if (status || done) return status;
    return with_any(x->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return launch(ctx, y, convert_any<T>, blocks_for(w.n), BLOCK, 0, w, (int)y->l.dtype);
    });
  }
  const int sizes[2] = {size, size};
  if (!w.of[1].is_held && strided_is_flat(w, sizes) && (w.n == 1 || w.step[0][1] == size)) {
    const moth_queue *q = moth_queue_of(ctx, y->l.device);
    return !q ? moth_status(ctx)
              : moth_launched(ctx, q, cudaMemcpyAsync(w.of[0].at, w.of[1].at, (size_t)(w.n * size),
                                                      cudaMemcpyDeviceToDevice, q->stream));
  }
  const int side = w.ndim > 1 ? other_side(w, size) : 0;
  if (side) return transpose_copy(y, w, side);
  const bool packs = strided_packs(w, sizes, 1, 16 / size);
  return with_size(y->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(ctx, y, packs ? move_runs<T> : move_any<T>,
                  blocks_for(w.n, packs ? 16 / size : 1), BLOCK, 0, w);
  });
}

/* -- between device and CPU -- */

/* Copies from ordinary memory through page-locked blocks: the CPU may change the source when this
** returns. Waits only while more than MOST_STAGED bytes have not been copied to the device yet. */
static cudaError_t stage(const moth_queue *q, char *to, const char *from, int64_t n) {
  const int64_t EACH = (int64_t)4 << 20, MOST_STAGED = (int64_t)64 << 20;
  cudaError_t error = cudaSuccess;
  for (int64_t at = 0; !error && at < n; at += EACH) {
    const int64_t part = n - at < EACH ? n - at : EACH;
    moth_pinned *p = moth_pinned_take(part, MOST_STAGED);
    const char *source = p ? moth_pinned_address(p) : from + at;
    if (p) memcpy(moth_pinned_address(p), from + at, (size_t)part);
    error = cudaMemcpyAsync(to + at, source, (size_t)part, cudaMemcpyHostToDevice, q->stream);
    if (p && !error) error = moth_pinned_used(p, q);
    if (p) moth_pinned_give(p);
    else if (!error) error = cudaStreamSynchronize(q->stream);
  }
  return error;
}

/* Copies n bytes between the device and a CPU tensor, which may be page-locked. */
static int move_bytes(moth_ctx *ctx, int device, const moth_tensor *host, void *there, int64_t n,
                      cudaMemcpyKind kind) {
  const moth_queue *q = moth_queue_of(ctx, device);
  moth_pinned *pinned = moth_pinned_of(host);
  char *here = moth_address(host);
  cudaError_t error;
  if (!q) return moth_status(ctx);
  moth_device_stream *s = moth_stream_now(moth_device_context_peek(ctx, device));
  if (s->graphs.now)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                     "a CUDA graph cannot contain copies from or to the CPU");
  s->device_context->work.waits++;
  if (n == 0) return MOTH_OK;
  const bool waits = kind == cudaMemcpyDeviceToHost && !pinned; /* the copy itself waits */
  int status = waits ? moth_stream_settle(ctx, s, NULL) : MOTH_OK;
  if (status) return status;
  if (kind == cudaMemcpyDeviceToHost)
    error = cudaMemcpyAsync(here, there, (size_t)n, kind, q->stream);
  else if (pinned) error = cudaMemcpyAsync(there, here, (size_t)n, kind, q->stream);
  else error = stage(q, (char *)there, here, n);
  if (!error && pinned) error = moth_pinned_used(pinned, q);
  return moth_launched(ctx, q, error);
}

/* Makes a submitted copy from the CPU appear complete: the CPU waits only where it could otherwise
** change page-locked source bytes. */
static int finish_copy(moth_tensor *y, const moth_tensor *from) {
  if (from->l.ndim > 0 && moth_pinned_of(from)) return moth_wait(y->ctx, y->l.device);
  moth_device_context *p = moth_device_context_peek(y->ctx, y->l.device);
  /* Otherwise it is complete when the graph has run. */
  const bool now = p && !moth_stream_now(p)->graphs.now;
  const cudaError_t error = now ? moth_stream_copied(moth_stream_now(p)) : cudaSuccess;
  if (error) return moth_fail_cuda(y->ctx, "other streams cannot wait for a copy", error);
  return p ? MOTH_OK : moth_status(y->ctx);
}

/* A new tensor of x's shape, of the given dtype and on the given device. */
static moth_tensor *fresh_like(const moth_tensor *x, int dtype, int device) {
  moth_layout l = x->l;
  l.dtype = (uint8_t)dtype;
  l.device = (uint8_t)device;
  return moth_tensor_new(x->ctx, &l);
}

static bool same_shape(const moth_tensor *a, const moth_tensor *b) {
  return a->l.ndim == b->l.ndim &&
         memcmp(a->l.shape, b->l.shape, sizeof(int64_t) * (size_t)a->l.ndim) == 0;
}

/* Tests if channels_last bytes can be copied without reordering, for a y that is channels_last. */
static bool goes_as_channels_last(const moth_tensor *y, const moth_tensor *x) {
  return same_shape(y, x) && moth_is_channels_last(y) && x->l.dtype == y->l.dtype;
}

/* A new tensor with x's elements, packed, of a dtype; channels_last only if x is. The caller
** releases it. */
static moth_tensor *ready(const moth_tensor *x, int dtype, bool channels_last) {
  return x->l.dtype == dtype ? moth_packed_as(x, channels_last) : moth_cast(x, dtype);
}

/* From the CPU: packed and converted there if y's type is small, to copy fewer bytes. */
static int copy_in(moth_tensor *y, const moth_tensor *x, bool wait) {
  if (x->l.ndim == 0) { /* passed as a kernel argument */
    int status = copy_here(y, x);
    return !status && wait ? finish_copy(y, x) : status;
  }
  const bool channels_last = goes_as_channels_last(y, x);
  moth_tensor *packed = ready(x, y->l.dtype, channels_last), *there = NULL;
  moth_ctx *ctx = y->ctx;
  if (!packed) return moth_status(y->ctx);
  const int64_t bytes = packed->l.numel * moth_dtype_size[y->l.dtype];
  const bool direct = channels_last || (same_shape(y, x) && moth_layout_contiguous(&y->l));
  int status = MOTH_OK;
  if (!direct) there = fresh_like(x, y->l.dtype, y->l.device);
  if (!direct && !there) status = moth_status(ctx);
  if (!status)
    status = move_bytes(ctx, y->l.device, packed, moth_address(direct ? y : there), bytes,
                        cudaMemcpyHostToDevice);
  if (!status && there) status = copy_here(y, there);
  if (!status && wait) status = finish_copy(y, packed);
  moth_tensor_release(there);
  moth_tensor_release(packed);
  return status;
}

/* To the CPU. Waits for the copy unless `wait` is false and the memory is page-locked. */
static int copy_out(moth_tensor *y, const moth_tensor *x, bool wait) {
  moth_ctx *ctx = y->ctx;
  const bool channels_last = goes_as_channels_last(y, x);
  moth_tensor *packed = ready(x, y->l.dtype, channels_last);
  const bool direct = channels_last || (same_shape(y, x) && moth_layout_contiguous(&y->l));
  moth_tensor *here = packed && !direct ? fresh_like(x, y->l.dtype, 0) : NULL;
  int status = packed && (direct || here) ? MOTH_OK : moth_status(ctx);
  if (!status)
    status = move_bytes(ctx, x->l.device, direct ? y : here, moth_address(packed),
                        packed->l.numel * moth_dtype_size[y->l.dtype], cudaMemcpyDeviceToHost);
  if (!status && (wait || !direct || !moth_pinned_of(y))) status = moth_wait(ctx, x->l.device);
  if (!status && here) status = moth_copy_into(y, here);
  moth_tensor_release(here);
  moth_tensor_release(packed);
  return status;
}

int moth_cuda_copy(moth_tensor *y, const moth_tensor *x, bool wait) {
  if (y->l.device == x->l.device) return copy_here(y, x);
  if (x->l.device == 0) return copy_in(y, x, wait);
  if (y->l.device == 0) return copy_out(y, x, wait);
  moth_tensor *between = fresh_like(x, x->l.dtype, 0);
  int status = between ? copy_out(between, x, true) : moth_status(x->ctx);
  if (!status) status = copy_in(y, between, wait);
  moth_tensor_release(between);
  return status;
}
