/* index.cu -- advanced indexing: a list of index tensors for the leading dimensions, as
** core/op/index.c. Masks have been converted to positions before (core/op/masks.c). */
#include "../../core/op/index.h"

#include "lib/selection.cuh"
#include "lib/strided.cuh"

/* -- the meaning of a list of indices -- */

typedef struct plan {
  moth_tensor *at[MOTH_MAX_DIMS]; /* index tensors, not owned */
  int dim[MOTH_MAX_DIMS], n;
  moth_layout picks; /* their shape, broadcast; packed */
  int whole[MOTH_MAX_DIMS], nfull, before;
} plan;

static void broadcast(moth_layout *y, const moth_layout *x) {
  const int more = x->ndim - y->ndim;
  for (int d = y->ndim - 1; d >= 0 && more > 0; d--) y->shape[d + more] = y->shape[d];
  for (int d = 0; d < more; d++) y->shape[d] = 1;
  if (more > 0) y->ndim = x->ndim;
  for (int d = 0; d < x->ndim; d++) {
    int64_t *size = &y->shape[y->ndim - x->ndim + d];
    if (*size == 1) *size = x->shape[d];
  }
}

/* The shape rule has checked the indices. */
static plan plan_of(const moth_tensors *indices, int ndim, int device) {
  plan p;
  int first = ndim, last = -1;
  bool replaced[MOTH_MAX_DIMS] = {false};
  memset(&p, 0, sizeof p);
  for (int d = 0; d < (int)indices->n; d++) {
    moth_tensor *x = indices->at[d];
    if (!x) continue;
    p.at[p.n] = x;
    p.dim[p.n++] = d;
    broadcast(&p.picks, &x->l);
    replaced[d] = true;
    if (first > d) first = d;
    last = d;
  }
  for (int d = 0; d < ndim; d++)
    if (!replaced[d]) p.whole[p.nfull++] = d;
  const bool neighbours = last - first + 1 == ndim - p.nfull;
  p.before = neighbours && first < ndim ? first : 0;
  p.picks.dtype = MOTH_I64;
  p.picks.device = (uint8_t)device;
  p.picks.numel = 1;
  for (int d = p.picks.ndim - 1; d >= 0; d--) {
    p.picks.stride[d] = p.picks.numel;
    p.picks.numel *= p.picks.shape[d];
  }
  return p;
}

/* -1 stays if an earlier position was out of range. */
static __global__ void add_offsets(int64_t n, const int64_t *at, int64_t first, int64_t size,
                                   int64_t stride, bool begins, int64_t *offset,
                                   moth_kernel_error *t) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t from = position_of(at[i], first, size, size, t);
  const int64_t so_far = begins ? 0 : offset[i];
  offset[i] = from >= 0 && so_far >= 0 ? so_far + from * stride : -1;
}

/* The positions of one index tensor, broadcast to all selected elements; the caller releases it. */
static moth_tensor *spread(const plan *p, const moth_tensor *x) {
  bool same = x->l.ndim == p->picks.ndim;
  for (int d = 0; same && d < x->l.ndim; d++) same = x->l.shape[d] == p->picks.shape[d];
  if (same) return moth_packed(x);
  moth_tensor *y = moth_tensor_new(x->ctx, &p->picks);
  if (!y || !moth_copy_into(y, x)) return y;
  moth_tensor_release(y);
  return NULL;
}

/* The strided loops over base, and over values, which are packed in the shape of the selection or
** have one element. A single index tensor holds the positions itself; the positions of several are
** added. The caller releases *list. */
static int selection_of(const plan *p, const moth_tensor *base, int64_t unit, selection *k,
                        moth_tensor **list) {
  moth_ctx *ctx = base->ctx;
  const int64_t size = moth_dtype_size[base->l.dtype], n = p->picks.numel;
  memset(k, 0, sizeof *k);
  k->ndim = p->nfull;
  k->before = p->before;
  k->count = n;
  k->limit = 1;
  int64_t step = unit;
  for (int d = p->nfull - 1; d >= 0; d--) {
    if (d + 1 == p->before) {
      k->step = step;
      step *= n;
    }
    k->size[d] = base->l.shape[p->whole[d]];
    k->base_step[d] = base->l.stride[p->whole[d]] * size;
    k->value_step[d] = step;
    step *= k->size[d];
  }
  if (p->before == 0) k->step = step;
  *list = NULL;
  if (p->n == 0) { /* no index tensors: select all, one position at the start */
    *list = list_new(base, n);
    k->at = *list ? data<int64_t>(*list) : NULL;
    return *list ? clear(*list) : moth_status(ctx);
  }
  if (p->n == 1) {
    *list = spread(p, p->at[0]);
    k->first = p->at[0]->l.index_base;
    k->limit = k->wrap = base->l.shape[p->dim[0]];
    k->scale = k->grain = base->l.stride[p->dim[0]] * size;
    k->at = *list ? data<int64_t>(*list) : NULL;
    return *list ? MOTH_OK : moth_status(ctx);
  }
  *list = list_new(base, n);
  const moth_queue *q = moth_queue_of(ctx, base->l.device);
  int status = *list && q ? MOTH_OK : moth_status(ctx);
  k->scale = size;
  for (int i = 0; i < p->n && !status; i++) {
    const int64_t shape = base->l.shape[p->dim[i]], stride = base->l.stride[p->dim[i]];
    moth_tensor *at = spread(p, p->at[i]);
    k->limit += (shape ? shape - 1 : 0) * stride;
    k->grain |= stride * size;
    if (!at) status = moth_status(ctx);
    else if (n)
      status = launch_on(ctx, q, add_offsets, blocks_for(n), BLOCK, 0, n, data<int64_t>(at),
                         p->at[i]->l.index_base, shape, stride, i == 0,
                         data<int64_t>(*list), q->kernel_error);
    moth_tensor_release(at);
  }
  k->at = *list ? data<int64_t>(*list) : NULL;
  return status;
}

/* -- index, index_put, index_sum -- */

MOTH_CUDA(index) {
  moth_tensor *x = a->input, *list;
  const plan p = plan_of(&a->indices, x->l.ndim, x->l.device);
  selection k;
  int status = selection_of(&p, x, moth_dtype_size[x->l.dtype], &k, &list);
  if (!status) status = selection_read(k, x, out[0]);
  moth_tensor_release(list);
  return status;
}

template <class T> static __global__ void fill_where(strided<3> w) {
  const int64_t i = thread_number();
  int64_t at[3];
  if (i >= w.n) return;
  offsets(w, i, at);
  if (*element<uint8_t>(w.of[1], at[1]))
    *(T *)(void *)(w.of[0].at + at[0]) = *element<T>(w.of[2], at[2]);
}

/* Writes one value where a mask over the leading dimensions is true. */
static int fill_masked(moth_tensor *y, const moth_tensor *x, const moth_tensor *mask,
                       const moth_tensor *value) {
  moth_tensor *one = moth_cast(value, y->l.dtype);
  if (!one) return moth_status(y->ctx);
  int status = is_here(y, x) ? MOTH_OK : moth_copy_into(y, x);
  moth_tensor seen = *mask;
  for (int d = mask->l.ndim; d < y->l.ndim; d++) {
    seen.l.shape[d] = y->l.shape[d];
    seen.l.stride[d] = 0;
  }
  seen.l.ndim = y->l.ndim;
  seen.l.numel = y->l.numel;
  const moth_tensor *operands[3] = {y, &seen, one};
  strided<3> w;
  strided_over<3>(&w, y->ctx, operands);
  if (!status && w.n)
    status = with_size(y->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return launch(y->ctx, y, fill_where<T>, blocks_for(w.n), BLOCK, 0, w);
    });
  moth_tensor_release(one);
  return status;
}

/* `values` as dtype on y's device; packed in the shape of the selection, unless it has one element.
*/
static moth_tensor *values_for(const plan *p, const moth_tensor *y, int dtype,
                               const moth_tensor *values) {
  moth_layout l;
  int n = 0;
  memset(&l, 0, sizeof l);
  l.dtype = (uint8_t)dtype;
  l.device = y->l.device;
  if (values->l.numel != 1) {
    for (int d = 0; d < p->before; d++) l.shape[n++] = y->l.shape[p->whole[d]];
    for (int d = 0; d < p->picks.ndim; d++) l.shape[n++] = p->picks.shape[d];
    for (int d = p->before; d < p->nfull; d++) l.shape[n++] = y->l.shape[p->whole[d]];
  }
  l.ndim = n;
  moth_tensor one = *values; /* a tensor of one element with dimensions: treat it as 0-d */
  if (values->l.numel == 1) one.l.ndim = 0;
  moth_tensor *wide = moth_tensor_new(y->ctx, &l);
  if (!wide || !moth_copy_into(wide, &one)) return wide;
  moth_tensor_release(wide);
  return NULL;
}

static int put_selected(int mode, const moth_tensors *indices, const moth_tensor *x, moth_tensor *y,
                        const moth_tensor *values) {
  const plan p = plan_of(indices, x->l.ndim, y->l.device);
  moth_tensor *work = writable(y, x, mode == SELECT_ADD), *list = NULL;
  moth_tensor *from = work ? values_for(&p, y, work->l.dtype, values) : NULL;
  int status = from ? MOTH_OK : moth_status(y->ctx);
  selection k;
  const int64_t unit = from && from->l.ndim ? moth_dtype_size[work->l.dtype] : 0;
  if (!status) status = selection_of(&p, work, unit, &k, &list);
  if (!status) status = selection_write(k, mode, work, from);
  moth_tensor_release(list);
  moth_tensor_release(from);
  return work ? written_back(work, y, status) : status;
}

MOTH_CUDA(index_put) {
  const moth_tensor *first = a->indices.n == 1 ? a->indices.at[0] : NULL;
  if (first && first->l.dtype == MOTH_BOOL)
    return fill_masked(out[0], a->input, first, a->values);
  return put_selected(a->accumulate ? SELECT_ADD : SELECT_PUT, &a->indices, a->input, out[0],
                      a->values);
}

MOTH_CUDA(index_sum) {
  int status = clear(out[0]);
  return status ? status : put_selected(SELECT_ADD, &a->indices, out[0], out[0], a->input);
}

/* -- nonzero -- */

enum { FOUND_EACH = 8, FOUND_TILE = BLOCK * FOUND_EACH };

static __global__ void found_count(int64_t n, const uint8_t *bool8, int64_t *count) {
  const int64_t first = (int64_t)blockIdx.x * FOUND_TILE;
  int all = 0;
  for (int k = 0; k < FOUND_EACH; k++) {
    const int64_t i = first + k * BLOCK + threadIdx.x;
    all += __syncthreads_count(i < n && bool8[i]);
  }
  if (threadIdx.x == 0) count[blockIdx.x] = all;
}

struct sizes {
  int ndim;
  int64_t at[MOTH_MAX_DIMS];
};

static __global__ void found_list(int64_t n, const uint8_t *bool8, const int64_t *starts, sizes s,
                                  int64_t capacity, int64_t *y) {
  __shared__ int warp[BLOCK / WARP];
  const int lane = threadIdx.x % WARP, w = threadIdx.x / WARP;
  int64_t at = starts[blockIdx.x];
#pragma unroll 1 /* unrolled, its divisions would use all registers of a multiprocessor for one
                 ** block */
  for (int k = 0; k < FOUND_EACH; k++) {
    const int64_t i = (int64_t)blockIdx.x * FOUND_TILE + k * BLOCK + threadIdx.x;
    const bool here = i < n && bool8[i];
    const unsigned votes = __ballot_sync(0xffffffffu, here);
    if (lane == 0) warp[w] = __popc(votes);
    __syncthreads();
    int64_t own = at + __popc(votes & ((1u << lane) - 1));
    for (int j = 0; j < BLOCK / WARP; j++) {
      if (j < w) own += warp[j];
      at += warp[j];
    }
    int64_t rest = i;
    for (int d = s.ndim - 1; here && own < capacity && d >= 0; d--) {
      const int64_t over = rest / s.at[d];
      y[own * s.ndim + d] = rest - over * s.at[d];
      rest = over;
    }
    __syncthreads();
  }
}

MOTH_CUDA(nonzero) {
  const int64_t n = a->input->l.numel, tiles = (n + FOUND_TILE - 1) / FOUND_TILE;
  if (n == 0 || out[0]->l.numel == 0) return MOTH_OK;
  moth_tensor *mask = moth_cast(a->input, MOTH_BOOL), *starts = list_new(out[0], tiles + 1);
  int status = mask && starts ? MOTH_OK : moth_status(a->ctx);
  sizes s;
  s.ndim = a->input->l.ndim;
  memcpy(s.at, a->input->l.shape, sizeof s.at);
  const dim3 grid = grid_for(tiles);
  if (!status)
    status = launch(a->ctx, mask, found_count, grid, BLOCK, 0, n, data<uint8_t>(mask),
                    data<int64_t>(starts));
  if (!status) status = scan_list(a->ctx, mask, tiles, data<int64_t>(starts));
  if (!status)
    status = launch(a->ctx, mask, found_list, grid, BLOCK, 0, n, data<uint8_t>(mask),
                    data<int64_t>(starts), s, out[0]->l.shape[0], data<int64_t>(out[0]));
  moth_tensor_release(mask);
  moth_tensor_release(starts);
  return status;
}
