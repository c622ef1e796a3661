/* attention.cuh -- shared by the files of attention: arguments in the form that kernels get, and
** the memory that gradients are written to. */
#ifndef MOTH_CUDA_ATTENTION_CUH
#define MOTH_CUDA_ATTENTION_CUH

#include "../../core/op/attention.h"

#include "lib/gemm_tile.cuh"

struct leading { /* the batch dimensions, all broadcast */
  int ndim;
  int64_t shape[MOTH_MAX_DIMS];
};

template <class T> struct batched { /* one matrix for each batch */
  const T *at;
  int64_t rs, cs;
  int64_t step[MOTH_MAX_DIMS];
  bool packs; /* groups of four along the contiguous dimension are aligned to their size */
};

template <class T, class R> struct attention_job {
  leading lead;
  int64_t l, s, e, v; /* number of queries, number of keys, size of a key, size of a value */
  batched<T> query, key, value, bias, y, dy; /* y: the result; forward kernels write it */
  bool causal;
  R scale, *lse;
  int64_t first; /* first batch of this launch */
};

template <class T>
static __device__ inline side<T> part_of(const batched<T> &m, const leading &lead, int64_t batch,
                                         int64_t rows, int64_t cols) {
  side<T> s = {m.at, rows, cols, m.rs, m.cs, m.packs};
  for (int d = lead.ndim - 1; d >= 0; d--) {
    const int64_t over = batch / lead.shape[d];
    s.at += (batch - over * lead.shape[d]) * m.step[d];
    batch = over;
  }
  return s;
}

/* The matrices of a block's batch. They are kept in shared memory: registers are for sums. */
template <class T> struct attention_parts {
  int64_t batch;
  side<T> query, key, value, bias, y, dy;
};

template <class T, class R>
static __device__ inline void open_parts(const attention_job<T, R> &j, attention_parts<T> *of) {
  const int64_t batch = j.first + blockIdx.z;
  if (threadIdx.x == 0) of->batch = batch;
  if (threadIdx.x == 0) of->query = part_of(j.query, j.lead, batch, j.l, j.e);
  if (threadIdx.x == 1 * WARP) of->key = part_of(j.key, j.lead, batch, j.s, j.e);
  if (threadIdx.x == 2 * WARP) of->value = part_of(j.value, j.lead, batch, j.s, j.v);
  if (threadIdx.x == 3 * WARP) of->dy = part_of(j.dy, j.lead, batch, j.l, j.v);
  if (threadIdx.x == 3 * WARP) of->y = part_of(j.y, j.lead, batch, j.l, j.v);
  if (threadIdx.x == 0) of->bias = part_of(j.bias, j.lead, batch, j.l, j.s);
  __syncthreads();
}

/* -- arguments -- */

static inline leading lead_of(const moth_tensor *lse, int64_t *batches) {
  leading to = {};
  to.ndim = lse->l.ndim - 1;
  *batches = 1;
  for (int d = 0; d < to.ndim; d++) *batches *= to.shape[d] = lse->l.shape[d];
  return to;
}

/* x as a matrix for each batch; dimensions before the last two may be missing or of size 1. */
template <class T>
static inline batched<T> matrices_of(const moth_tensor *x, const leading &lead) {
  batched<T> m = {};
  const int n = x->l.ndim, more = lead.ndim - (n - 2);
  m.at = data<T>(x);
  m.rs = n < 2 || x->l.shape[n - 2] == 1 ? 0 : x->l.stride[n - 2];
  m.cs = n < 1 || x->l.shape[n - 1] == 1 ? 0 : x->l.stride[n - 1];
  if (n && x->l.shape[n - 1] == 1) m.cs = 1; /* a single column counts as contiguous rows; a bias
                                             ** has its own flag */
  const side<T> s = side_of<T>(m.at, 0, 0, m.rs, m.cs);
  m.packs = s.packs;
  for (int d = 0; d < lead.ndim; d++) {
    m.step[d] = d < more || x->l.shape[d - more] == 1 ? 0 : x->l.stride[d - more];
    m.packs = m.packs && m.step[d] % EACH_TAKES == 0;
  }
  return m;
}

template <class T> static inline batched<T> bias_of(const moth_tensor *x, const leading &lead) {
  batched<T> m = {};
  if (!x) return m;
  m = matrices_of<T>(x, lead);
  if (x->l.ndim < 1 || x->l.shape[x->l.ndim - 1] == 1) m.cs = 0;
  return m;
}

/* Fills the fields that forward and backward share; `lse` has the shape of all batches and queries.
*/
template <class T, class R, class A>
static void job_of(attention_job<T, R> *g, const A *a, const moth_tensor *lse, int64_t *batches) {
  g->lead = lead_of(lse, batches);
  g->l = a->query->l.shape[a->query->l.ndim - 2];
  g->s = a->key->l.shape[a->key->l.ndim - 2];
  g->e = a->query->l.shape[a->query->l.ndim - 1];
  g->v = a->value->l.shape[a->value->l.ndim - 1];
  g->query = matrices_of<T>(a->query, g->lead);
  g->key = matrices_of<T>(a->key, g->lead);
  g->value = matrices_of<T>(a->value, g->lead);
  g->bias = bias_of<T>(a->bias, g->lead);
  g->causal = a->is_causal != 0;
  g->scale = (R)a->scale;
  g->lse = data<R>(lse);
}

/* -- gradients: for all batches, then summed over broadcast dimensions -- */

struct batch_sum {
  leading lead;
  int64_t step[MOTH_MAX_DIMS]; /* 0: a dimension that is summed */
  int64_t own, each, repeats;  /* batches of the gradient, elements of one, number of batches summed
                               ** into each */
};

static inline batch_sum batch_sum_of(const moth_tensor *y, const leading &lead) {
  batch_sum f = {};
  f.lead = lead;
  f.own = f.repeats = 1;
  const int more = lead.ndim - (y->l.ndim - 2);
  for (int d = 0; d < lead.ndim; d++) {
    f.step[d] = d >= more && (y->l.shape[d - more] != 1 || lead.shape[d] == 1);
    *(f.step[d] ? &f.own : &f.repeats) *= lead.shape[d];
  }
  f.each = y->l.numel ? y->l.numel / f.own : 1;
  return f;
}

static inline moth_tensor *attention_scratch(moth_ctx *ctx, int dtype, int device, int64_t n) {
  moth_layout l = {};
  l.dtype = (uint8_t)dtype;
  l.device = (uint8_t)device;
  l.ndim = 1;
  l.shape[0] = l.numel = n;
  l.stride[0] = 1;
  return moth_tensor_new(ctx, &l);
}

/* The memory for the gradient of all batches, n elements of `dtype`: y's own memory if y has all
** batches (and type `narrow` if kernels can write it); else a scratch buffer that sum_gradient
** reduces into y. */
typedef struct gradient_place {
  moth_tensor *y, *all; /* all: NULL if y itself is written */
  void *to;
  bool wide; /* has `dtype`, not `narrow` */
} gradient_place;

MOTH_LOCAL int gradient_open(moth_ctx *ctx, gradient_place *p, moth_tensor *y, const leading &lead,
                             int64_t n, int dtype, int narrow);
/* Reduces the scratch buffer into y unless `status` is an error; frees the buffer. */
MOTH_LOCAL int gradient_close(moth_ctx *ctx, gradient_place *p, const leading &lead, int dtype,
                              int status);

/* -- cuDNN (cudnn_attention.cu): *done := whether cuDNN could compute it; arguments as below -- */

MOTH_LOCAL int moth_attention_cudnn(const attention_args *a, const moth_queue *q,
                                    const moth_tensor *y, const moth_tensor *lse, bool *done);
MOTH_LOCAL int moth_attention_back_cudnn(const attention_back_args *a, const moth_queue *q,
                                         moth_tensor *const *out, bool *done);

/* -- on tensor cores (flash.cu): *done := whether the kernel could compute it -- */

/* y: the result as (..., heads, rows, size), with any strides. */
MOTH_LOCAL int moth_flash(const attention_args *a, const moth_queue *q, const moth_tensor *y,
                          const moth_tensor *lse, bool *done);
/* All tensors have one dtype; lse is packed. */
MOTH_LOCAL int moth_flash_back(const attention_back_args *a, const moth_queue *q,
                               moth_tensor **out, bool *done);

#endif
