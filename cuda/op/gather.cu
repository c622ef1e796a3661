/* gather.cu -- indexing along one dimension: whole slices, or one position for each element. */
#include "../../core/op/index.h"

#include "lib/gather_along.cuh"

/* -- index_select, index_add -- */

MOTH_CUDA(index_select) {
  const int dim = real_dim(a->dim, a->input->l.ndim);
  moth_tensor *list = moth_packed(a->index);
  if (!list) return moth_status(a->ctx);
  int status = selection_read(selection_of_slices(a->input, dim, list), a->input, out[0]);
  moth_tensor_release(list);
  return status;
}

template <class T> static __global__ void times(int64_t n, T by, T *x) {
  const int64_t i = thread_number();
  if (i < n) x[i] *= by;
}

/* A packed copy of x times a number. The caller releases it. */
static moth_tensor *scaled(const moth_tensor *x, moth_scalar by, int dtype) {
  const double number = by.type == 0 ? by.as.number : (double)by.as.integer;
  const int64_t whole = by.type == 0 ? (int64_t)by.as.number : by.as.integer;
  const int64_t n = x->l.numel;
  if (number == 1) return x->l.dtype == dtype ? moth_packed(x) : moth_cast(x, dtype);
  moth_tensor *work = moth_cast(x, dtype >= MOTH_F16 ? MOTH_F64 : MOTH_I64), *y = NULL;
  int status = work ? MOTH_OK : moth_status(x->ctx);
  if (!status && n && dtype >= MOTH_F16)
    status = launch(x->ctx, work, times<double>, blocks_for(n), BLOCK, 0, n, number,
                    data<double>(work));
  else if (!status && n)
    status = launch(x->ctx, work, times<int64_t>, blocks_for(n), BLOCK, 0, n, whole,
                    data<int64_t>(work));
  if (!status) y = moth_cast(work, dtype);
  moth_tensor_release(work);
  return y;
}

MOTH_CUDA(index_add) {
  const int dim = real_dim(a->dim, a->input->l.ndim);
  moth_tensor *list = moth_packed(a->index), *work = list ? writable(out[0], a->input, true) : NULL;
  moth_tensor *source = work ? scaled(a->source, a->alpha, work->l.dtype) : NULL;
  int status = source
                   ? selection_write(selection_of_slices(work, dim, list), SELECT_ADD, work, source)
                   : moth_status(a->ctx);
  moth_tensor_release(source);
  moth_tensor_release(list);
  return work ? written_back(work, out[0], status) : status;
}

/* -- one position for each element -- */

template <class V>
static __global__ void along_get(strided<3> w, int64_t first, int64_t limit, int64_t step,
                                 moth_kernel_error *t) {
  const int64_t i = thread_number();
  int64_t at[3];
  if (i >= w.n) return;
  offsets(w, i, at);
  const int64_t position = position_of(*element<int64_t>(w.of[1], at[1]), first, 0, limit, t);
  if (position < 0) return;
  *(V *)(void *)(w.of[0].at + at[0]) =
    *(const V *)(const void *)(w.of[2].at + at[2] + position * step);
}

struct line { /* the elements along the dimension, at one position of the others */
  int64_t n, step[3], first, limit;
};

/* A thread processes a whole line, so that writes to the same element are in list order. */
template <class T>
static __global__ void along_write(strided<3> w, line l, bool adds, moth_kernel_error *t) {
  const int64_t i = thread_number();
  int64_t at[3];
  if (i >= w.n) return;
  offsets(w, i, at);
  for (int64_t k = 0; k < l.n; k++) {
    const int64_t position =
      position_of(*element<int64_t>(w.of[1], at[1] + k * l.step[1]), l.first, 0, l.limit, t);
    if (position < 0) continue;
    const T *value = (const T *)(const void *)(w.of[2].at + at[2] + k * l.step[2]);
    T *to = (T *)(void *)(w.of[0].at + at[0] + position * l.step[0]);
    if (adds) put(to, added<T>(get(to), get(value)));
    else *to = *value;
  }
}

MOTH_CUDA(gather) {
  const int dim = real_dim(a->dim, a->input->l.ndim);
  const moth_tensor *x = a->input;
  const moth_queue *q = moth_queue_of(a->ctx, x->l.device);
  if (!q) return moth_status(a->ctx);
  if (out[0]->l.numel == 0) return MOTH_OK;
  const moth_tensor held = covered(x, a->index, dim), *operands[3] = {out[0], a->index, &held};
  const int64_t step = x->l.ndim ? x->l.stride[dim] * moth_dtype_size[x->l.dtype] : 0;
  strided<3> w;
  strided_over<3>(&w, a->ctx, operands);
  return with_size(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of V;
    return launch_on(a->ctx, q, along_get<V>, blocks_for(w.n), BLOCK, 0, w, a->index->l.index_base,
                     reach(x, dim), step, q->kernel_error);
  });
}

enum { SHORT_LINE = 64, MANY_LINES = 4096 };

static int write_lines(int mode, moth_tensor *y, int dim, const moth_tensor *index,
                       const moth_tensor *values) {
  const moth_queue *q = moth_queue_of(y->ctx, y->l.device);
  if (!q) return moth_status(y->ctx);
  moth_tensor seen[3] = {covered(y, index, -1), *index,
                         values->l.ndim ? covered(values, index, -1) : *values};
  line l = {1, {0, 0, 0}, index->l.index_base, reach(y, dim)};
  for (int k = 0; k < 3 && seen[0].l.ndim; k++) {
    moth_layout *s = &seen[k].l;
    if (s->ndim == 0) continue;
    l.n = s->shape[dim];
    l.step[k] = s->stride[dim] * moth_dtype_size[s->dtype];
    s->numel /= l.n;
    s->shape[dim] = 1;
  }
  const moth_tensor *operands[3] = {&seen[0], &seen[1], &seen[2]};
  strided<3> w;
  strided_over<3>(&w, y->ctx, operands);
  return with_sums(y->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch_on(y->ctx, q, along_write<T>, blocks_for(w.n), BLOCK, 0, w, l,
                     mode == SELECT_ADD, q->kernel_error);
  });
}

/* For few long lines: first sorts values by the element of packed y that they are added to. */
static int write_sorted(int mode, moth_tensor *y, int dim, const moth_tensor *index,
                        const moth_tensor *values) {
  const int64_t n = index->l.numel, size = moth_dtype_size[y->l.dtype];
  moth_tensor *keys = places_along(y, dim, index), *packed = NULL;
  int status = keys ? MOTH_OK : moth_status(y->ctx);
  moth_tensor part = *values; /* `values` itself may be freed earlier */
  if (values->l.ndim) part = covered(values, index, -1);
  if (!status && values->l.ndim) packed = moth_packed(&part);
  if (!status && values->l.ndim && !packed) status = moth_status(y->ctx);
  if (!status) {
    selection p;
    memset(&p, 0, sizeof p);
    p.count = n;
    p.at = data<int64_t>(keys);
    p.limit = y->l.numel;
    p.scale = p.grain = size;
    p.step = packed ? size : 0;
    status = selection_write(p, mode, y, packed ? packed : values);
  }
  moth_tensor_release(packed);
  moth_tensor_release(keys);
  return status;
}

/* y[... index[...] in dim ...] := or += values; a 0-d tensor of values is broadcast. */
static int write_along(int mode, moth_tensor *y, int dim, const moth_tensor *index,
                       const moth_tensor *values) {
  const int64_t n = index->l.numel;
  if (n == 0) return MOTH_OK;
  const int64_t length = y->l.ndim ? index->l.shape[dim] : 1;
  const bool lines = length <= SHORT_LINE || n / length >= MANY_LINES;
  return (lines ? write_lines : write_sorted)(mode, y, dim, index, values);
}

MOTH_CUDA(gather_back) {
  moth_tensor *y = out[0], *work = y, *values = moth_packed(a->input);
  const bool half = moth_is_half(y->l.dtype);
  int status = values ? MOTH_OK : moth_status(a->ctx);
  if (!status && half) {
    moth_layout l = y->l;
    l.dtype = MOTH_F32;
    moth_tensor_release(values);
    values = moth_cast(a->input, MOTH_F32);
    work = values ? moth_tensor_new(a->ctx, &l) : NULL;
    if (!work) status = moth_status(a->ctx);
  }
  if (!status) status = clear(work);
  if (!status)
    status = write_along(SELECT_ADD, work, real_dim(a->dim, y->l.ndim), a->index, values);
  if (!status && half) status = moth_copy_into(y, work);
  if (half) moth_tensor_release(work);
  moth_tensor_release(values);
  return status;
}

/* A number or a 0-d CPU tensor as one element on y's device. The caller releases it. */
static moth_tensor *single(const moth_tensor *x, const moth_tensor *y) {
  moth_tensor *one = list_new(y, 1, y->l.dtype);
  if (!one) return NULL;
  one->l.ndim = 0;
  if (!moth_copy_into(one, x)) return one;
  moth_tensor_release(one);
  return NULL;
}

static int scatter_all(int mode, const moth_tensor *input, int64_t dim, const moth_tensor *index,
                       const moth_tensor *src, moth_tensor *y) {
  moth_tensor *work = writable(y, input, mode == SELECT_ADD), *values = NULL;
  if (work && src->l.device == 0) values = single(src, work);
  else if (work)
    values = src->l.dtype == work->l.dtype ? moth_packed(src) : moth_cast(src, work->l.dtype);
  int status = values ? write_along(mode, work, real_dim(dim, y->l.ndim), index, values)
                      : moth_status(y->ctx);
  moth_tensor_release(values);
  return work ? written_back(work, y, status) : status;
}

MOTH_CUDA(scatter) {
  return scatter_all(SELECT_PUT, a->input, a->dim, a->index, a->src, out[0]);
}

MOTH_CUDA(scatter_add) {
  return scatter_all(SELECT_ADD, a->input, a->dim, a->index, a->src, out[0]);
}

/* -- one_hot -- */

static __global__ void one_hot_fill(int64_t n, int64_t classes, const int64_t *at, int64_t *y,
                                    moth_kernel_error *t) {
  const int64_t i = thread_number();
  if (i >= n * classes) return;
  const int64_t row = i / classes, c = i - row * classes, own = at[row];
  y[i] = own == c;
  if (c == 0 && (uint64_t)own >= (uint64_t)classes) report(t, KERNEL_ERROR_CLASS, own, classes);
}

MOTH_CUDA(one_hot) {
  const int64_t n = a->input->l.numel, all = out[0]->l.numel;
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  moth_tensor *list = moth_packed(a->input);
  int status = q && list ? MOTH_OK : moth_status(a->ctx);
  if (!status && all)
    status = launch_on(a->ctx, q, one_hot_fill, blocks_for(all), BLOCK, 0, n, all / n,
                       data<int64_t>(list), data<int64_t>(out[0]), q->kernel_error);
  moth_tensor_release(list);
  return status;
}
