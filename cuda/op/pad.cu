/* pad.cu -- padding: each element of the result finds its source, and each element of a gradient
** finds all its copies. With constant padding an element has at most one copy; its gradient is the
** same op with negative padding. Tensors are packed, or both channels_last; dimensions are in
** memory order. */
#include "../../core/op/pad.h"

#include "lib/strided.cuh"

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };

struct border {
  int ndim, mode;
  int64_t in[MOTH_MAX_DIMS], out[MOTH_MAX_DIMS], before[MOTH_MAX_DIMS];
  quotient_by size[MOTH_MAX_DIMS]; /* size of the kernel's result */
};

static bool is_kept(const border &b, int d) { return b.in[d] == b.out[d] && b.before[d] == 0; }

/* Adjacent dimensions without padding are merged. `of`: the tensor with one thread for each
** element; sign: 1, or -1 in a gradient, where the padding is removed. */
static border border_of(const moth_tensor *in, const moth_tensor *out, const moth_tensor *of,
                        moth_ints pad, int sign, int mode, bool channels_last) {
  border b;
  memset(&b, 0, sizeof b);
  b.mode = mode;
  for (int i = 0; i < in->l.ndim; i++) {
    const int inner = i == in->l.ndim - 1 ? 1 : i + 1; /* where channels are last */
    const int d = channels_last && i > 0 ? inner : i, pair = in->l.ndim - 1 - d, k = b.ndim++;
    b.in[k] = in->l.shape[d];
    b.out[k] = out->l.shape[d];
    b.before[k] = pair < pad.n / 2 ? sign * pad.at[2 * pair] : 0;
    if (k == 0 || !is_kept(b, k) || !is_kept(b, k - 1)) continue;
    b.in[k - 1] = b.out[k - 1] = b.in[k - 1] * b.in[k];
    b.ndim = k;
  }
  for (int k = 0; k < b.ndim; k++)
    b.size[k] = quotients(of == in ? b.in[k] : b.out[k], of->l.numel);
  return b;
}

/* The number of elements of a dimension that are not cropped. */
static __device__ inline int64_t kept(const border &b, int d) {
  const int64_t n = b.in[d], before = b.before[d], after = b.out[d] - n - before;
  return n + (before < 0 ? before : 0) + (after < 0 ? after : 0);
}

/* The source element of position i of a dimension; -1: the constant. */
static __device__ inline int64_t source(const border &b, int d, int64_t i) {
  const int64_t at = i - b.before[d], n = b.in[d];
  if (at >= 0 && at < n) return at;
  switch (b.mode) {
    case REFLECT: return at < 0 ? -at : 2 * n - 2 - at;
    case REPLICATE: return at < 0 ? 0 : n - 1;
    case CIRCULAR: return at < 0 ? at + kept(b, d) : at - kept(b, d);
    default: return -1;
  }
}

template <class T> static __global__ void pad_out(border b, int64_t n, const T *x, T fill, T *y) {
  const int64_t i = thread_number();
  if (i >= n) return;
  int64_t rest = i, at = 0, step = 1;
  bool inside = true;
  for (int d = b.ndim - 1; d >= 0; d--) {
    const int64_t over = d > 0 ? divide(rest, b.size[d]) : 0;
    const int64_t from = source(b, d, rest - over * b.out[d]);
    inside = inside && from >= 0;
    at += from * step;
    step *= b.in[d];
    rest = over;
  }
  y[i] = inside ? x[at] : fill;
}

/* The k-th position of dimension d that is a copy of element i, in ascending order; -1: there are
** no more. Replicated edges have a run of copies; reflect and circular have at most three. */
static __device__ inline int64_t place(const border &b, int d, int64_t i, int64_t k) {
  const int64_t n = b.in[d], first = b.before[d], all = b.out[d], own = first + i;
  if (b.mode == REPLICATE) {
    const int64_t low = i == 0 && first > 0 ? 0 : own, high = i == n - 1 ? all - 1 : own;
    const int64_t at = (low < 0 ? 0 : low) + k;
    return own >= all && i != n - 1 ? -1 : at <= high && at < all && at >= 0 && high >= 0 ? at : -1;
  }
  /* Cropped elements have no copies here. */
  const bool round = b.mode == CIRCULAR && own >= 0 && own < all;
  const int64_t left = b.mode == REFLECT ? (i > 0 ? first - i : -1)
                       : round ? own - kept(b, d) : -1;
  const int64_t right = b.mode == REFLECT ? (i < n - 1 ? first + 2 * n - 2 - i : -1)
                        : round ? own + kept(b, d) : -1;
  const int64_t at[3] = {left, own, right};
  for (int c = 0; c < 3; c++)
    if (at[c] >= 0 && at[c] < all && k-- == 0) return at[c];
  return -1;
}

template <class T> static __global__ void pad_in(border b, int64_t n, const T *dy, T *dx) {
  typedef real_of<T> real;
  const int64_t i = thread_number();
  if (i >= n) return;
  int64_t own[MOTH_MAX_DIMS], k[MOTH_MAX_DIMS] = {0}, step[MOTH_MAX_DIMS], rest = i, size = 1;
  bool some = true;
  for (int d = b.ndim - 1; d >= 0; d--) {
    const int64_t over = d > 0 ? divide(rest, b.size[d]) : 0;
    own[d] = rest - over * b.in[d];
    rest = over;
    step[d] = size;
    size *= b.out[d];
    some = some && place(b, d, own[d], 0) >= 0;
  }
  real sum = 0;
  while (some) {
    int64_t at = 0;
    for (int d = 0; d < b.ndim; d++) at += place(b, d, own[d], k[d]) * step[d];
    sum += get(dy + at);
    int d = b.ndim - 1;
    for (; d >= 0; d--) { /* the next combination of positions */
      if (place(b, d, own[d], ++k[d]) >= 0) break;
      k[d] = 0;
    }
    some = d >= 0;
  }
  put(dx + i, sum);
}

static int pad_with(const border &b, const moth_tensor *input, bool channels_last, uint64_t fill,
                    moth_tensor *y) {
  moth_tensor *x = moth_packed_as(input, channels_last);
  if (!x) return moth_status(y->ctx);
  const int64_t n = y->l.numel;
  int status = n == 0 ? MOTH_OK : with_size(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    T element;
    memcpy(&element, &fill, sizeof element);
    return launch(y->ctx, y, pad_out<T>, blocks_for(n), BLOCK, 0, b, n, data<T>(x), element,
                  data<T>(y));
  });
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(pad) {
  const moth_scalar s = a->value;
  const bool channels_last = moth_is_channels_last(out[0]);
  uint64_t fill = 0;
  moth_convert(1, s.type == 0 ? MOTH_F64 : MOTH_I64, (const char *)&s.as, 8, out[0]->l.dtype,
               (char *)&fill, 8);
  return pad_with(border_of(a->input, out[0], out[0], a->pad, 1, (int)a->mode, channels_last),
                  a->input, channels_last, fill, out[0]);
}

MOTH_CUDA(pad_back) {
  const int64_t n = out[0]->l.numel;
  const bool channels_last = moth_is_channels_last(out[0]);
  if ((int)a->mode == CONSTANT)
    return pad_with(border_of(a->input, out[0], out[0], a->pad, -1, CONSTANT, channels_last),
                    a->input, channels_last, 0, out[0]);
  const border b =
      border_of(out[0], a->input, out[0], a->pad, 1, (int)a->mode, channels_last);
  moth_tensor *dy = moth_packed_as(a->input, channels_last);
  if (!dy) return moth_status(a->ctx);
  int status = n == 0 ? MOTH_OK : with_float(dy->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(a->ctx, out[0], pad_in<T>, blocks_for(n), BLOCK, 0, b, n, data<T>(dy),
                  data<T>(out[0]));
  });
  moth_tensor_release(dy);
  return status;
}
