/* pick.cuh -- moving elements between a tensor and the values picked out of it by positions, as
** core/kernel/pick.h does: whole dimensions, in which both sides are walked by steps, and a list of
** places of the base for the dimensions that positions replace.
**
** What is written goes by the list in order (order.cuh), one thread for all values of one place, so
** that the last one stays and sums are the same bits each time.
*/
#ifndef MOTH_CUDA_PICK_CUH
#define MOTH_CUDA_PICK_CUH

#include <type_traits>

#include "order.cuh"

struct pick {
  int ndim, before; /* whole dimensions; how many stand before the picks in the values */
  int64_t size[MOTH_MAX_DIMS], base_step[MOTH_MAX_DIMS], value_step[MOTH_MAX_DIMS]; /* bytes */
  int64_t count;       /* picks */
  const int64_t *at;   /* the position of each, below limit */
  int64_t limit, wrap; /* wrap: what positions below 0 are too small by, or 0 */
  int64_t scale;       /* bytes of the base from one position to the next */
  int64_t grain;       /* what all offsets so found are multiples of */
  int64_t step;        /* bytes between neighbouring picks in the values */
  bool skips;          /* writes leave out */
  int64_t skip;        /* this position */
};

enum { PICK_GET, PICK_PUT, PICK_ADD };
enum { PICK_PIECE = 32, PICK_LONG = 2048 };

/* -- in kernels -- */

struct picked { /* one value: of which pick, and where in both sides that pick's slices have it */
  int64_t pick, base, value;
};

template <class I> static __device__ inline picked pick_place(const pick &p, I id) {
  picked v = {0, 0, 0};
  for (int d = p.ndim - 1; d >= p.before; d--) {
    const I over = id / (I)p.size[d], index = id - over * (I)p.size[d];
    v.base += (int64_t)index * p.base_step[d];
    v.value += (int64_t)index * p.value_step[d];
    id = over;
  }
  const I rest = id / (I)p.count;
  v.pick = (int64_t)(id - rest * (I)p.count);
  id = rest;
  for (int d = p.before - 1; d >= 0; d--) {
    const I over = id / (I)p.size[d], index = id - over * (I)p.size[d];
    v.base += (int64_t)index * p.base_step[d];
    v.value += (int64_t)index * p.value_step[d];
    id = over;
  }
  return v;
}

template <class V, class I>
static __global__ void pick_get(pick p, I n, const char *base, char *values, moth_trouble *t) {
  const int64_t i = thread_number();
  if (i >= (int64_t)n) return;
  const picked v = pick_place(p, (I)i);
  int64_t at = p.at[v.pick];
  if (at < 0) at += p.wrap;
  if ((uint64_t)at >= (uint64_t)p.limit) {
    report(t, TROUBLE_INDEX, p.at[v.pick], p.limit);
    return;
  }
  *(V *)(void *)(values + v.value + v.pick * p.step) =
    *(const V *)(const void *)(base + v.base + at * p.scale);
}

/* The positions as keys: checked, those that lie outside become the limit. */
static __global__ void pick_keys(pick p, int64_t *key, moth_trouble *t) {
  const int64_t i = thread_number();
  if (i >= p.count) return;
  int64_t at = p.at[i];
  if (at < 0) at += p.wrap;
  const bool within = (uint64_t)at < (uint64_t)p.limit;
  if (!within) report(t, TROUBLE_INDEX, p.at[i], p.limit);
  key[i] = within && !(p.skips && at == p.skip) ? at : p.limit;
}

/* p.at: in order; from: where each stood. */
template <class V, class I>
static __global__ void pick_put(pick p, I n, const int64_t *from, char *base, const char *values) {
  const int64_t i = thread_number();
  if (i >= (int64_t)n) return;
  const picked v = pick_place(p, (I)i);
  const int64_t at = p.at[v.pick];
  if (at >= p.limit || (v.pick + 1 < p.count && p.at[v.pick + 1] == at)) return;
  *(V *)(void *)(base + v.base + at * p.scale) =
    *(const V *)(const void *)(values + v.value + from[v.pick] * p.step);
}

template <class T> HD real_of<T> added(real_of<T> a, real_of<T> b) {
  if constexpr (std::is_same<T, truth>::value) return (real_of<T>)(a || b);
  else return (real_of<T>)(a + b);
}

template <class T, class I>
static __global__ void pick_add(pick p, I n, const int64_t *from, char *base, const char *values) {
  const int64_t i = thread_number();
  if (i >= (int64_t)n) return;
  const picked v = pick_place(p, (I)i);
  const int64_t at = p.at[v.pick];
  if (at >= p.limit || (v.pick > 0 && p.at[v.pick - 1] == at)) return;
  T *to = (T *)(void *)(base + v.base + at * p.scale);
  real_of<T> sum = get(to);
  for (int64_t k = v.pick; k < p.count && p.at[k] == at; k++)
    sum = added<T>(sum, get((const T *)(const void *)(values + v.value + from[k] * p.step)));
  put(to, sum);
}

/* Long lists are added up in pieces of the ordered list, since one place may have most of it: runs
** that lie within a piece at once, those that it shares with its neighbours as two sums to `part`,
** of the run that began before and of the one that goes on. */
template <class T, class I>
static __global__ void pick_add_pieces(pick p, pick pieces, I n, const int64_t *from, char *base,
                                       const char *values, real_of<T> *part) {
  const int64_t i = thread_number();
  if (i >= (int64_t)n) return;
  const picked v = pick_place(pieces, (I)i);
  const int64_t first = v.pick * PICK_PIECE;
  const int64_t last = first + PICK_PIECE < p.count ? first + PICK_PIECE : p.count;
  for (int64_t k = first; k < last && p.at[k] < p.limit;) {
    const int64_t at = p.at[k];
    const bool begun = k == first && k > 0 && p.at[k - 1] == at;
    real_of<T> sum = 0;
    for (; k < last && p.at[k] == at; k++)
      sum = added<T>(sum, get((const T *)(const void *)(values + v.value + from[k] * p.step)));
    T *to = (T *)(void *)(base + v.base + at * p.scale);
    if (begun) part[2 * i] = sum;
    else if (k == last && k < p.count && p.at[k] == at) part[2 * i + 1] = sum;
    else put(to, added<T>(get(to), sum));
  }
}

/* The piece in which a shared run begins adds up the others' parts; `inner`: threads of a piece. */
template <class T, class I>
static __global__ void pick_add_shared(pick p, pick pieces, I n, int64_t inner, char *base,
                                       const real_of<T> *part) {
  const int64_t i = thread_number();
  if (i >= (int64_t)n) return;
  const picked v = pick_place(pieces, (I)i);
  const int64_t first = v.pick * PICK_PIECE;
  int64_t next = first + PICK_PIECE;
  if (next >= p.count || p.at[next] >= p.limit || p.at[next] != p.at[next - 1]) return;
  const int64_t at = p.at[next];
  if (first > 0 && p.at[first - 1] == at) return;
  real_of<T> sum = part[2 * i + 1];
  for (int64_t k = i + inner; next < p.count && p.at[next] == at; next += PICK_PIECE, k += inner)
    sum = added<T>(sum, part[2 * k]);
  T *to = (T *)(void *)(base + v.base + at * p.scale);
  put(to, added<T>(get(to), sum));
}

/* -- launching -- */

/* Whole dimensions on the same side of the picks that lie behind each other on both sides become
** one; those of one position vanish. */
static inline void pick_merge(pick *p) {
  for (int d = p->ndim - 1; d >= 0; d--) {
    const bool one = p->size[d] == 1;
    const bool joins = !one && d + 1 < p->ndim && d + 1 != p->before &&
                       p->base_step[d] == p->base_step[d + 1] * p->size[d + 1] &&
                       p->value_step[d] == p->value_step[d + 1] * p->size[d + 1];
    if (!one && !joins) continue;
    const int gone = joins ? d + 1 : d;
    if (joins) {
      p->size[d] *= p->size[d + 1];
      p->base_step[d] = p->base_step[d + 1];
      p->value_step[d] = p->value_step[d + 1];
    }
    for (int k = gone; k + 1 < p->ndim; k++) {
      p->size[k] = p->size[k + 1];
      p->base_step[k] = p->base_step[k + 1];
      p->value_step[k] = p->value_step[k + 1];
    }
    p->ndim--;
    if (gone < p->before) p->before--;
  }
}

/* Elements that are only moved go several at a time where the innermost slices allow it. Returns
** the bytes of one move. */
static inline int pick_widen(pick *p, int size, const char *base, const char *values) {
  const int last = p->ndim - 1;
  if (last < p->before || p->base_step[last] != size || p->value_step[last] != size) return size;
  uint64_t all = (uint64_t)p->grain | (uint64_t)p->step | (uint64_t)(p->size[last] * size) |
                 (uint64_t)(uintptr_t)base | (uint64_t)(uintptr_t)values;
  for (int d = 0; d < last; d++) all |= (uint64_t)p->base_step[d] | (uint64_t)p->value_step[d];
  int wide = size;
  while (wide < 16 && all % (uint64_t)(2 * wide) == 0) wide *= 2;
  p->size[last] = p->size[last] * size / wide;
  p->base_step[last] = p->value_step[last] = wide;
  return wide;
}

struct alignas(16) sixteen {
  uint64_t half[2];
};

template <class F> static inline int with_width(int bytes, F f) {
  switch (bytes) {
    case 1: return f(type<uint8_t>());
    case 2: return f(type<uint16_t>());
    case 4: return f(type<uint32_t>());
    case 8: return f(type<uint64_t>());
    default: return f(type<sixteen>());
  }
}

static inline int64_t pick_values(const pick *p) {
  int64_t n = p->count;
  for (int d = 0; d < p->ndim; d++) n *= p->size[d];
  return n;
}

/* values := what p picks out of x. */
static inline int pick_read(pick p, const moth_tensor *x, const moth_tensor *values) {
  moth_ctx *ctx = x->ctx;
  const char *from = moth_address(x);
  char *to = moth_address(values);
  if (pick_values(&p) == 0) return MOTH_OK;
  pick_merge(&p);
  const int wide = pick_widen(&p, moth_dtype_size[x->l.dtype], from, to);
  const int64_t n = pick_values(&p);
  const moth_queue *q = moth_queue_of(ctx, x->l.device);
  if (!q) return moth_status(ctx);
  return with_width(wide, [&](auto t) {
    typedef typename decltype(t)::of V;
    if (n < INT32_MAX)
      return launch_on(ctx, q, pick_get<V, uint32_t>, blocks_for(n), BLOCK, 0, p, (uint32_t)n,
                       from, to, q->trouble);
    return launch_on(ctx, q, pick_get<V, uint64_t>, blocks_for(n), BLOCK, 0, p, (uint64_t)n, from,
                     to, q->trouble);
  });
}

/* The positions in order, as p.at; `like` is any tensor of the device. Where all get one value, any
** order will do. */
static inline int pick_order(pick *p, const moth_tensor *like, bool any, ordered *o) {
  moth_ctx *ctx = like->ctx;
  *o = ordered{NULL, NULL};
  moth_tensor *keys = list_new(like, p->count);
  const moth_queue *q = moth_queue_of(ctx, like->l.device);
  int status = keys && q ? MOTH_OK : moth_status(ctx);
  if (!status)
    status = launch_on(ctx, q, pick_keys, blocks_for(p->count), BLOCK, 0, *p, data<int64_t>(keys),
                       q->trouble);
  if (!status && any) *o = ordered{keys, moth_packed(keys)};
  else if (!status) status = order_list(ctx, keys, p->limit, o);
  if (!any || status) moth_tensor_release(keys);
  if (!status) p->at = data<int64_t>(o->key);
  return status;
}

/* base += values, of places in order; p is merged. */
template <class T, class I>
static inline int pick_sum(const pick &p, const moth_tensor *base, const int64_t *from,
                           const char *values) {
  moth_ctx *ctx = base->ctx;
  char *to = moth_address(base);
  const int64_t all = pick_values(&p);
  if (p.count < PICK_LONG)
    return launch(ctx, base, pick_add<T, I>, blocks_for(all), BLOCK, 0, p, (I)all, from, to,
                  values);
  pick pieces = p;
  int64_t inner = 1;
  pieces.count = (p.count + PICK_PIECE - 1) / PICK_PIECE;
  for (int d = p.before; d < p.ndim; d++) inner *= p.size[d];
  const int64_t n = pick_values(&pieces);
  moth_tensor *part = list_new(base, 2 * n, sizeof(real_of<T>) == 8 ? MOTH_I64
                                            : sizeof(real_of<T>) == 4 ? MOTH_I32
                                            : sizeof(real_of<T>) == 2 ? MOTH_I16 : MOTH_I8);
  int status = part ? MOTH_OK : moth_status(ctx);
  if (!status)
    status = launch(ctx, base, pick_add_pieces<T, I>, blocks_for(n), BLOCK, 0, p, pieces, (I)n,
                    from, to, values, data<real_of<T>>(part));
  if (!status)
    status = launch(ctx, base, pick_add_shared<T, I>, blocks_for(n), BLOCK, 0, p, pieces, (I)n,
                    inner, to, (const real_of<T> *)data<real_of<T>>(part));
  moth_tensor_release(part);
  return status;
}

/* base := or += values where p says. What is added to half types should be added in f32. */
static inline int pick_write(pick p, int mode, const moth_tensor *base, const moth_tensor *values) {
  moth_ctx *ctx = base->ctx;
  const char *from = moth_address(values);
  char *to = moth_address(base);
  ordered o;
  if (pick_values(&p) == 0) return MOTH_OK;
  int status = pick_order(&p, base, mode == PICK_PUT && values->l.numel == 1, &o);
  pick_merge(&p);
  int wide = moth_dtype_size[base->l.dtype];
  if (mode == PICK_PUT) wide = pick_widen(&p, wide, to, from);
  const int64_t n = pick_values(&p), *list = status ? NULL : data<int64_t>(o.from);
  if (!status && mode == PICK_PUT)
    status = with_width(wide, [&](auto t) {
      typedef typename decltype(t)::of V;
      if (n < INT32_MAX)
        return launch(ctx, base, pick_put<V, uint32_t>, blocks_for(n), BLOCK, 0, p, (uint32_t)n,
                      list, to, from);
      return launch(ctx, base, pick_put<V, uint64_t>, blocks_for(n), BLOCK, 0, p, (uint64_t)n,
                    list, to, from);
    });
  else if (!status)
    status = with_any(base->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return n < INT32_MAX ? pick_sum<T, uint32_t>(p, base, list, from)
                           : pick_sum<T, uint64_t>(p, base, list, from);
    });
  ordered_free(&o);
  return status;
}

/* -- tensors around them -- */

/* A view of x's storage through another layout, on the caller's stack. */
static inline moth_tensor seen_as(const moth_tensor *x, const moth_layout *l) {
  moth_tensor y = *x;
  y.l = *l;
  return y;
}

/* Slices of dimension dim of x, whose elements lie in `values` packed, at a list of positions. */
static inline pick pick_slices(const moth_tensor *x, int dim, const moth_tensor *list) {
  const int64_t size = moth_dtype_size[x->l.dtype], n = list->l.numel;
  pick p;
  memset(&p, 0, sizeof p);
  p.before = dim;
  p.count = n;
  p.at = data<int64_t>(list);
  p.limit = x->l.shape[dim];
  p.scale = p.grain = x->l.stride[dim] * size;
  int64_t step = size;
  for (int d = x->l.ndim - 1; d >= 0; d--) {
    if (d == dim) {
      p.step = step;
      step *= n;
      continue;
    }
    const int at = d < dim ? d : d - 1;
    p.size[at] = x->l.shape[d];
    p.base_step[at] = x->l.stride[d] * size;
    p.value_step[at] = step;
    step *= p.size[at];
    p.ndim++;
  }
  return p;
}

static inline int real_dim(int64_t dim, int ndim) { return (int)(dim < 0 ? dim + ndim : dim); }

static inline bool is_here(const moth_tensor *y, const moth_tensor *x) {
  return moth_address(y) == moth_address(x) && y->l.dtype == x->l.dtype;
}

/* Writes 0 into packed y; all dtypes have zero bits for it. */
static inline int clear(const moth_tensor *y) {
  moth_ctx *ctx = y->ctx;
  const moth_queue *q = moth_queue_of(ctx, y->l.device);
  if (!q) return moth_status(ctx);
  if (y->l.numel == 0) return MOTH_OK;
  return moth_launched(ctx, q, cudaMemsetAsync(moth_address(y), 0,
                                               (size_t)(y->l.numel * moth_dtype_size[y->l.dtype]),
                                               q->stream));
}

/* Where y, which begins as x, is to be written by places: y itself, or an own packed tensor with
** half types in f32 if they are added up. Owned; written_back ends it. */
static inline moth_tensor *writable(moth_tensor *y, const moth_tensor *x, bool wide) {
  const int dtype = wide ? moth_compute_dtype(y->l.dtype) : y->l.dtype;
  if (dtype != y->l.dtype || !moth_layout_contiguous(&y->l)) return moth_cast(x, dtype);
  if (!is_here(y, x) && moth_copy_into(y, x)) return NULL;
  return moth_packed(y); /* y itself */
}

static inline int written_back(moth_tensor *work, moth_tensor *y, int status) {
  if (!status && work != y) status = moth_copy_into(y, work);
  moth_tensor_release(work);
  return status;
}

#endif
