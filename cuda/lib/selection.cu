/* selection.cu -- reads and writes elements at a list of positions (selection.cuh). Writes process
** the list in sorted order (radix_sort.cuh): one thread for all values of one position, or of a
** piece of them (equal_runs.cuh). So the last value stays, and sums are the same bits each time. */
#include "selection.cuh"
#include "equal_runs.cuh"

/* -- in kernels -- */

struct selected_value { /* one value: its index in the list, and its offsets in both tensors,
                        ** without the position's offset */
  int64_t selection, line, base, value; /* line: its index among the values of one position */
};

/* Adds the offsets of dimensions [first, last). Returns the rest of id. */
static __device__ inline int64_t selection_walk(const selection &p, int first, int last, int64_t id,
                                                selected_value *v) {
#pragma unroll 1
  for (int d = last - 1; d >= first; d--) {
    const int64_t over = divide(id, p.by[d]), index = id - over * p.size[d];
    v->base += index * p.base_step[d];
    v->value += index * p.value_step[d];
    id = over;
  }
  return id;
}

static __device__ inline selected_value selection_offsets(const selection &p, int64_t id) {
  selected_value v = {0, 0, 0, 0};
  const int64_t own = selection_walk(p, p.before, p.ndim, id, &v), rest = divide(own, p.by_count);
  v.selection = own - rest * p.count;
  v.line = rest * p.inner + id - own * p.inner;
  selection_walk(p, 0, p.before, rest, &v);
  return v;
}

template <class V>
static __global__ void selection_get(selection p, int64_t n, const char *base, char *values,
                                     moth_kernel_error *t) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const selected_value v = selection_offsets(p, i);
  const int64_t at = position_of(p.at[v.selection], p.first, p.wrap, p.limit, t);
  if (at < 0) return;
  *(V *)(void *)(values + v.value + v.selection * p.step) =
    *(const V *)(const void *)(base + v.base + at * p.scale);
}

/* The positions as keys, checked; positions out of range become the limit. */
static __global__ void selection_keys(selection p, int64_t *key, moth_kernel_error *t) {
  const int64_t i = thread_number();
  if (i >= p.count) return;
  const int64_t at = position_of(p.at[i], p.first, p.wrap, p.limit, t);
  key[i] = at >= 0 && !(p.skips && at == p.skip) ? at : p.limit;
}

/* p.at: sorted; from: the original index of each. */
template <class V>
static __global__ void selection_put(selection p, int64_t n, const int64_t *from, char *base,
                                     const char *values) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const selected_value v = selection_offsets(p, i);
  const int64_t at = p.at[v.selection];
  if (at >= p.limit || (v.selection + 1 < p.count && p.at[v.selection + 1] == at)) return;
  *(V *)(void *)(base + v.base + at * p.scale) =
    *(const V *)(const void *)(values + v.value + from[v.selection] * p.step);
}

template <class T> struct selection_sums {
  selection p; /* p.at: sorted */
  const int64_t *from;
  char *base;
  const char *values;
  int64_t lines;    /* values of one position */
  real_of<T> *part; /* [piece of the list (equal_runs.cuh)][line] */

  __device__ inline real_of<T> value(const selected_value &v, int64_t k) const {
    return get((const T *)(const void *)(values + v.value + from[k] * p.step));
  }
};

template <class T> static __global__ void selection_add(selection_sums<T> s, int64_t n) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const selection &p = s.p;
  const selected_value v = selection_offsets(p, i);
  const int64_t at = p.at[v.selection];
  if (at >= p.limit || (v.selection > 0 && p.at[v.selection - 1] == at)) return;
  T *to = (T *)(void *)(s.base + v.base + at * p.scale);
  real_of<T> sum = get(to);
  through_run(v.selection, p.count, [&](int64_t k) { return p.at[k] == at; },
              [&](int64_t k) { sum = added<T>(sum, s.value(v, k)); },
              [&](int64_t k) { sum = added<T>(sum, s.part[k * s.lines + v.line]); });
  put(to, sum);
}

/* pieces: as p, with pieces of the list from `first` on in place of positions. */
template <class T>
static __global__ void selection_add_pieces(selection_sums<T> s, selection pieces, int64_t first,
                                            int64_t n) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const selection &p = s.p;
  const selected_value v = selection_offsets(pieces, i);
  real_of<T> sum = 0;
  if (through_piece(first + v.selection, p.count,
                    [&](int64_t a, int64_t b) { return p.at[a] == p.at[b] && p.at[a] < p.limit; },
                    [&](int64_t k) { sum = added<T>(sum, s.value(v, k)); },
                    [&](int64_t k) { sum = added<T>(sum, s.part[k * s.lines + v.line]); }))
    s.part[(first + v.selection) * s.lines + v.line] = sum;
}

/* -- launching -- */

/* Merges adjacent dimensions, if both are on the same side of the list's dimension and are
** contiguous in both tensors; removes dimensions of size 1. */
static void selection_merge(selection *p) {
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

/* Elements are copied several at a time if the innermost slices allow it. Returns the bytes of one
** copy. */
static int selection_widen(selection *p, int size, const char *base, const char *values) {
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

template <class F> static int with_width(int bytes, F f) {
  switch (bytes) {
    case 1: return f(type<uint8_t>());
    case 2: return f(type<uint16_t>());
    case 4: return f(type<uint32_t>());
    case 8: return f(type<uint64_t>());
    default: return f(type<sixteen>());
  }
}

static int64_t selection_values(const selection *p) {
  int64_t n = p->count;
  for (int d = 0; d < p->ndim; d++) n *= p->size[d];
  return n;
}

/* Computes divisors before a launch. Returns the number of values. */
static int64_t selection_divisors(selection *p) {
  const int64_t n = selection_values(p);
  p->inner = 1;
  for (int d = p->before; d < p->ndim; d++) p->inner *= p->size[d];
  for (int d = 0; d < p->ndim; d++) p->by[d] = quotients(p->size[d], n);
  p->by_count = quotients(p->count, n);
  return n;
}

int selection_read(selection p, const moth_tensor *x, const moth_tensor *values) {
  moth_ctx *ctx = x->ctx;
  const char *from = moth_address(x);
  char *to = moth_address(values);
  if (selection_values(&p) == 0) return MOTH_OK;
  selection_merge(&p);
  const int wide = selection_widen(&p, moth_dtype_size[x->l.dtype], from, to);
  const int64_t n = selection_divisors(&p);
  const moth_queue *q = moth_queue_of(ctx, x->l.device);
  if (!q) return moth_status(ctx);
  return with_width(wide, [&](auto t) {
    typedef typename decltype(t)::of V;
    return launch_on(ctx, q, selection_get<V>, blocks_for(n), BLOCK, 0, p, n, from, to,
                     q->kernel_error);
  });
}

int selection_sort(selection *p, const moth_tensor *like, bool any, sorted_list *o) {
  moth_ctx *ctx = like->ctx;
  *o = sorted_list{NULL, NULL};
  moth_tensor *keys = list_new(like, p->count);
  const moth_queue *q = moth_queue_of(ctx, like->l.device);
  int status = keys && q ? MOTH_OK : moth_status(ctx);
  if (!status)
    status = launch_on(ctx, q, selection_keys, blocks_for(p->count), BLOCK, 0, *p,
                       data<int64_t>(keys), q->kernel_error);
  if (!status && any) *o = sorted_list{keys, moth_packed(keys)};
  else if (!status) status = sort_list(ctx, keys, p->limit, o);
  if (!any || status) moth_tensor_release(keys);
  if (!status) p->at = data<int64_t>(o->key);
  return status;
}

/* base += values, with sorted positions; p is merged. */
template <class T>
static int selection_sum(const selection &p, const moth_tensor *base, const int64_t *from,
                         const char *values) {
  moth_ctx *ctx = base->ctx;
  const int64_t n = selection_values(&p), lines = n / p.count, pieces = all_pieces(p.count);
  selection_sums<T> s = {p, from, moth_address(base), values, lines, NULL};
  moth_tensor *part =
      pieces ? device_scratch(base, pieces * lines * (int64_t)sizeof *s.part) : NULL;
  if (pieces && !part) return moth_status(ctx);
  if (part) s.part = data<real_of<T>>(part);
  int status = over_pieces(p.count, [&](int64_t first, int64_t count) {
    selection some = p;
    some.count = count;
    const int64_t all = selection_divisors(&some);
    return launch(ctx, base, selection_add_pieces<T>, blocks_for(all), BLOCK, 0, s, some, first,
                  all);
  });
  if (!status) status = launch(ctx, base, selection_add<T>, blocks_for(n), BLOCK, 0, s, n);
  moth_tensor_release(part);
  return status;
}

int selection_write(selection p, int mode, const moth_tensor *base, const moth_tensor *values) {
  moth_ctx *ctx = base->ctx;
  const char *from = moth_address(values);
  char *to = moth_address(base);
  sorted_list o;
  if (selection_values(&p) == 0) return MOTH_OK;
  int status = selection_sort(&p, base, mode == SELECT_PUT && values->l.numel == 1, &o);
  selection_merge(&p);
  int wide = moth_dtype_size[base->l.dtype];
  if (mode == SELECT_PUT) wide = selection_widen(&p, wide, to, from);
  const int64_t n = selection_divisors(&p), *list = status ? NULL : data<int64_t>(o.from);
  if (!status && mode == SELECT_PUT)
    status = with_width(wide, [&](auto t) {
      typedef typename decltype(t)::of V;
      return launch(ctx, base, selection_put<V>, blocks_for(n), BLOCK, 0, p, n, list, to, from);
    });
  else if (!status)
    status = with_sums(base->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return selection_sum<T>(p, base, list, from);
    });
  sorted_list_free(&o);
  return status;
}
