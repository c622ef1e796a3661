/* pick.cu -- elements moved by a list of places (pick.cuh). What is written goes by the list in
** order (order.cuh), one thread for all values of one place, so that the last one stays and sums
** are the same bits each time.
*/
#include "pick.cuh"

enum { PICK_PIECE = 32, PICK_LONG = 2048 };

/* -- in kernels -- */

struct picked { /* one value: of which pick, and where in both sides that pick's slices have it */
  int64_t pick, base, value;
};

/* Steps along dimensions [first, last). Returns what is left of id. */
static __device__ inline int64_t pick_walk(const pick &p, int first, int last, int64_t id,
                                           picked *v) {
#pragma unroll 1
  for (int d = last - 1; d >= first; d--) {
    const int64_t over = divide(id, p.by[d]), index = id - over * p.size[d];
    v->base += index * p.base_step[d];
    v->value += index * p.value_step[d];
    id = over;
  }
  return id;
}

static __device__ inline picked pick_place(const pick &p, int64_t id) {
  picked v = {0, 0, 0};
  id = pick_walk(p, p.before, p.ndim, id, &v);
  const int64_t rest = divide(id, p.by_count);
  v.pick = id - rest * p.count;
  pick_walk(p, 0, p.before, rest, &v);
  return v;
}

template <class V>
static __global__ void pick_get(pick p, int64_t n, const char *base, char *values,
                                moth_trouble *t) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const picked v = pick_place(p, i);
  const int64_t at = position_of(p.at[v.pick], p.first, p.wrap, p.limit, t);
  if (at < 0) return;
  *(V *)(void *)(values + v.value + v.pick * p.step) =
    *(const V *)(const void *)(base + v.base + at * p.scale);
}

/* The positions as keys: checked, those that lie outside become the limit. */
static __global__ void pick_keys(pick p, int64_t *key, moth_trouble *t) {
  const int64_t i = thread_number();
  if (i >= p.count) return;
  const int64_t at = position_of(p.at[i], p.first, p.wrap, p.limit, t);
  key[i] = at >= 0 && !(p.skips && at == p.skip) ? at : p.limit;
}

/* p.at: in order; from: where each stood. */
template <class V>
static __global__ void pick_put(pick p, int64_t n, const int64_t *from, char *base,
                                const char *values) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const picked v = pick_place(p, i);
  const int64_t at = p.at[v.pick];
  if (at >= p.limit || (v.pick + 1 < p.count && p.at[v.pick + 1] == at)) return;
  *(V *)(void *)(base + v.base + at * p.scale) =
    *(const V *)(const void *)(values + v.value + from[v.pick] * p.step);
}

template <class T>
static __global__ void pick_add(pick p, int64_t n, const int64_t *from, char *base,
                                const char *values) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const picked v = pick_place(p, i);
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
template <class T>
static __global__ void pick_add_pieces(pick p, pick pieces, int64_t n, const int64_t *from,
                                       char *base, const char *values, real_of<T> *part) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const picked v = pick_place(pieces, i);
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
template <class T>
static __global__ void pick_add_shared(pick p, pick pieces, int64_t n, int64_t inner, char *base,
                                       const real_of<T> *part) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const picked v = pick_place(pieces, i);
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
static void pick_merge(pick *p) {
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
static int pick_widen(pick *p, int size, const char *base, const char *values) {
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

static int64_t pick_values(const pick *p) {
  int64_t n = p->count;
  for (int d = 0; d < p->ndim; d++) n *= p->size[d];
  return n;
}

/* Before a launch: what kernels divide by. Returns how many values there are. */
static int64_t pick_divisors(pick *p) {
  const int64_t n = pick_values(p);
  for (int d = 0; d < p->ndim; d++) p->by[d] = quotients(p->size[d], n);
  p->by_count = quotients(p->count, n);
  return n;
}

int pick_read(pick p, const moth_tensor *x, const moth_tensor *values) {
  moth_ctx *ctx = x->ctx;
  const char *from = moth_address(x);
  char *to = moth_address(values);
  if (pick_values(&p) == 0) return MOTH_OK;
  pick_merge(&p);
  const int wide = pick_widen(&p, moth_dtype_size[x->l.dtype], from, to);
  const int64_t n = pick_divisors(&p);
  const moth_queue *q = moth_queue_of(ctx, x->l.device);
  if (!q) return moth_status(ctx);
  return with_width(wide, [&](auto t) {
    typedef typename decltype(t)::of V;
    return launch_on(ctx, q, pick_get<V>, blocks_for(n), BLOCK, 0, p, n, from, to, q->trouble);
  });
}

int pick_order(pick *p, const moth_tensor *like, bool any, ordered *o) {
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
template <class T>
static int pick_sum(const pick &p, const moth_tensor *base, const int64_t *from,
                    const char *values) {
  moth_ctx *ctx = base->ctx;
  char *to = moth_address(base);
  const int64_t all = pick_values(&p);
  if (p.count < PICK_LONG)
    return launch(ctx, base, pick_add<T>, blocks_for(all), BLOCK, 0, p, all, from, to, values);
  pick pieces = p;
  int64_t inner = 1;
  pieces.count = (p.count + PICK_PIECE - 1) / PICK_PIECE;
  for (int d = p.before; d < p.ndim; d++) inner *= p.size[d];
  const int64_t n = pick_divisors(&pieces);
  moth_tensor *part = list_new(base, 2 * n, sizeof(real_of<T>) == 8 ? MOTH_I64
                                            : sizeof(real_of<T>) == 4 ? MOTH_I32
                                            : sizeof(real_of<T>) == 2 ? MOTH_I16 : MOTH_I8);
  int status = part ? MOTH_OK : moth_status(ctx);
  if (!status)
    status = launch(ctx, base, pick_add_pieces<T>, blocks_for(n), BLOCK, 0, p, pieces, n, from,
                    to, values, data<real_of<T>>(part));
  if (!status)
    status = launch(ctx, base, pick_add_shared<T>, blocks_for(n), BLOCK, 0, p, pieces, n, inner,
                    to, (const real_of<T> *)data<real_of<T>>(part));
  moth_tensor_release(part);
  return status;
}

int pick_write(pick p, int mode, const moth_tensor *base, const moth_tensor *values) {
  moth_ctx *ctx = base->ctx;
  const char *from = moth_address(values);
  char *to = moth_address(base);
  ordered o;
  if (pick_values(&p) == 0) return MOTH_OK;
  int status = pick_order(&p, base, mode == PICK_PUT && values->l.numel == 1, &o);
  pick_merge(&p);
  int wide = moth_dtype_size[base->l.dtype];
  if (mode == PICK_PUT) wide = pick_widen(&p, wide, to, from);
  const int64_t n = pick_divisors(&p), *list = status ? NULL : data<int64_t>(o.from);
  if (!status && mode == PICK_PUT)
    status = with_width(wide, [&](auto t) {
      typedef typename decltype(t)::of V;
      return launch(ctx, base, pick_put<V>, blocks_for(n), BLOCK, 0, p, n, list, to, from);
    });
  else if (!status)
    status = with_sums(base->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return pick_sum<T>(p, base, list, from);
    });
  ordered_free(&o);
  return status;
}
