/* histogram.cu -- counts the elements in each bin, as core/op/histogram.c. Counts are added by
** atomics, whose order does not matter, in shared memory first if there are few bins. Weights are
** added in input order. */
#include "../../core/op/reduce.h"

#include "lib/selection.cuh"

typedef unsigned long long tally;

/* -- counting -- */

/* COUNT_BLOCKS: blocks for each multiprocessor. */
enum { FEW_BINS = 4096, COUNT_EACH = 16, COUNT_BLOCKS = 8 };

static __global__ void clear_tallies(int64_t n, tally *y) {
  const int64_t i = thread_number();
  if (i < n) y[i] = 0;
}

/* bin_of(i): the bin of element i; negative: none. A block counts few bins in shared memory, in 32
** bits: it has fewer than 2^32 elements. */
template <class F>
static __device__ inline void count_all(int64_t n, int64_t bins, tally *y, F bin_of) {
  uint32_t *own = shared_memory<uint32_t>();
  const bool few = bins <= FEW_BINS;
  const int all = few ? (int)bins : 0;
  for (int k = threadIdx.x; k < all; k += BLOCK) own[k] = 0;
  __syncthreads();
  for (int64_t i = thread_number(); i < n; i += (int64_t)gridDim.x * BLOCK) {
    const int64_t bin = bin_of(i);
    if (bin >= 0 && few) atomicAdd(own + bin, 1u);
    else if (bin >= 0) atomicAdd(y + bin, (tally)1);
  }
  __syncthreads();
  for (int k = threadIdx.x; k < all; k += BLOCK)
    if (own[k]) atomicAdd(y + k, (tally)own[k]);
}

/* y := counts of n elements; kernel(n, bins, y, more...) */
template <class K, class... A>
static int count_launch(const moth_tensor *near, K kernel, int64_t n, int64_t bins, tally *y,
                        A... more) {
  moth_ctx *ctx = near->ctx;
  const moth_queue *q = moth_queue_of(ctx, near->l.device);
  int status = launch_on(ctx, q, clear_tallies, blocks_for(bins), BLOCK, 0, bins, y);
  if (status || n == 0) return status;
  const int64_t most = (int64_t)q->processors * COUNT_BLOCKS;
  int64_t blocks = (n + BLOCK * COUNT_EACH - 1) / (BLOCK * COUNT_EACH);
  if (blocks > most) blocks = most;
  return launch_on(ctx, q, kernel, grid_for(blocks), BLOCK, bins <= FEW_BINS ? (size_t)bins * 4 : 0,
                   n, bins, y, more...);
}

/* -- histc -- */

template <class T>
static __global__ void count_classes(int64_t n, int64_t bins, tally *y, const T *x, double lo,
                                     double hi) {
  count_all(n, bins, y, [=](int64_t i) {
    const double v = (double)get(x + i);
    if (!(v >= lo && v <= hi)) return (int64_t)-1;
    double at = (v - lo) * (double)bins / (hi - lo);
    if (at - at != 0) at = (v / 2 - lo / 2) / (hi / 2 - lo / 2) * (double)bins;
    if (at != at) at = (double)(bins / 2);
    const int64_t k = (int64_t)at < bins ? (int64_t)at : bins - 1;
    return k < 0 ? (int64_t)0 : k;
  });
}

static __global__ void give_counts(int64_t n, const tally *from, results to) {
  const int64_t i = thread_number();
  if (i >= n) return;
  if (to.dtype == MOTH_F64) put_result(to, i, (double)from[i]);
  else put_result(to, i, (float)from[i]);
}

/* An element of a 0-d tensor as f64. Waits for the device. */
static int read_number(moth_ctx *ctx, const moth_tensor *x, double *v) {
  moth_layout l = x->l;
  l.device = 0;
  l.dtype = MOTH_F64;
  moth_tensor *here = moth_tensor_new(ctx, &l);
  int status = here ? moth_copy_into(here, x) : moth_status(ctx);
  if (!status) memcpy(v, moth_address(here), sizeof *v);
  moth_tensor_release(here);
  return status;
}

/* The minimum or maximum of x. */
static int end_of(moth_ctx *ctx, moth_tensor *x, const char *op, double *v) {
  moth_tensor *y = NULL;
  amax_args args; /* amin has the same arguments */
  memset(&args, 0, sizeof args);
  args.ctx = ctx;
  args.input = x;
  int status = moth_run(moth_op_find(op), &args, &y);
  if (!status) status = read_number(ctx, y, v);
  moth_tensor_release(y);
  return status;
}

static int histc_ends(const histc_args *a, double *lo, double *hi) {
  int status = MOTH_OK;
  *lo = a->min;
  *hi = a->max;
  if (*lo == *hi && a->input->l.numel > 0) {
    status = end_of(a->ctx, a->input, "amin", lo);
    if (!status) status = end_of(a->ctx, a->input, "amax", hi);
  }
  if (status) return status;
  if (*lo - *lo != 0 || *hi - *hi != 0)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "input",
                     "the range of the elements, %g to %g, is not valid; set min and max", *lo,
                     *hi);
  if (*lo == *hi) *lo -= 1, *hi += 1;
  return MOTH_OK;
}

MOTH_CUDA(histc) {
  double lo, hi;
  const int64_t bins = a->bins, n = a->input->l.numel;
  moth_tensor *y = out[0];
  int status = histc_ends(a, &lo, &hi);
  if (status) return status;
  moth_tensor *x = moth_packed(a->input), *scratch = x ? device_scratch(y, bins * 8) : NULL;
  const bool direct = moth_is_float(y->l.dtype);
  moth_layout l = y->l;
  l.dtype = MOTH_F64;
  moth_tensor *work = direct ? y : moth_tensor_new(a->ctx, &l);
  status = scratch && work ? MOTH_OK : moth_status(a->ctx);
  tally *counts = scratch ? data<tally>(scratch) : NULL;
  if (!status)
    status = with_numbers(x->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return count_launch(y, count_classes<T>, n, bins, counts, data<T>(x), lo, hi);
    });
  const results to = {work ? moth_address(work) : NULL, work ? (int)work->l.dtype : 0};
  if (!status)
    status = launch(a->ctx, y, give_counts, blocks_for(bins), BLOCK, 0, bins, counts, to);
  if (!status && !direct) status = moth_copy_into(y, work);
  if (!direct) moth_tensor_release(work);
  moth_tensor_release(scratch);
  moth_tensor_release(x);
  return status;
}

/* -- bincount -- */

static __global__ void count_numbers(int64_t n, int64_t bins, tally *y, const int64_t *x) {
  count_all(n, bins, y, [=](int64_t i) { return x[i] < bins ? x[i] : (int64_t)-1; });
}

/* Adds weights as index_add does. */
static int bincount_weights(const bincount_args *a, const moth_tensor *list, moth_tensor *y) {
  moth_tensor *w = moth_cast(a->weights, y->l.dtype), *packed = w ? moth_packed(w) : NULL;
  int status = packed ? clear(y) : moth_status(a->ctx);
  selection p = selection_of_slices(y, 0, list);
  p.first = 0; /* the indices count from 0 now, whatever they counted from */
  if (!status) status = selection_write(p, SELECT_ADD, y, packed);
  moth_tensor_release(packed);
  moth_tensor_release(w);
  return status;
}

MOTH_CUDA(bincount) {
  moth_tensor *y = out[0], *list = moth_cast(a->input, MOTH_I64);
  moth_tensor *x = list ? moth_packed(list) : NULL;
  const int64_t n = a->input->l.numel, bins = y->l.numel;
  int status = x ? MOTH_OK : moth_status(a->ctx);
  if (!status && bins && a->weights) status = bincount_weights(a, x, y);
  else if (!status && bins)
    status = count_launch(y, count_numbers, n, bins, data<tally>(y), data<int64_t>(x));
  moth_tensor_release(x);
  moth_tensor_release(list);
  return status;
}
