/* embedding.cu -- rows of a table by their indices, and the gradient: rows are summed for each
** token, in list order. */
#include "../../core/op/embedding.h"

#include "lib/selection.cuh"

/* Atomic counts are exact in any order. */
static __global__ void count_tokens(int64_t n, const int64_t *at, int64_t first, int64_t rows,
                                    int *count) {
  const int64_t i = thread_number(), token = i < n ? at[i] - first : -1;
  if ((uint64_t)token < (uint64_t)rows) atomicAdd(&count[token], 1);
}

/* Multiplies row i of x by the share of its token at[i], or of token i. */
template <class T>
static __global__ void times_share(int64_t n, int64_t d, const int64_t *at, int64_t first,
                                   const int *count, int64_t rows, int64_t padding, T *x) {
  const int64_t i = thread_number();
  if (i >= n * d) return;
  const int64_t token = at ? at[i / d] - first : i / d;
  if ((uint64_t)token >= (uint64_t)rows) return;
  if (token == padding) x[i] = 0;
  else if (count && count[token] > 1) x[i] *= (T)(1 / (double)count[token]);
}

/* x: packed, in f32 or f64. */
static int share(moth_tensor *x, const moth_tensor *list, bool by_list, int64_t rows,
                 int64_t padding, bool by_count) {
  moth_ctx *ctx = x->ctx;
  const int64_t n = list->l.numel, d = x->l.shape[x->l.ndim - 1], all = x->l.numel;
  moth_tensor *count = by_count ? list_new(x, rows, MOTH_I32) : NULL;
  int status = by_count && !count ? moth_status(ctx) : MOTH_OK;
  const int64_t first = list->l.index_base, *at = data<int64_t>(list), *by = by_list ? at : NULL;
  int *counts = count ? data<int>(count) : NULL;
  if (!status && count) status = clear(count);
  if (!status && count && n)
    status = launch(ctx, x, count_tokens, blocks_for(n), BLOCK, 0, n, at, first, rows, counts);
  if (!status && all && x->l.dtype == MOTH_F32)
    status = launch(ctx, x, times_share<float>, blocks_for(all), BLOCK, 0, all / d, d, by, first,
                    counts, rows, padding, data<float>(x));
  else if (!status && all)
    status = launch(ctx, x, times_share<double>, blocks_for(all), BLOCK, 0, all / d, d, by, first,
                    counts, rows, padding, data<double>(x));
  moth_tensor_release(count);
  return status;
}

static int64_t real_padding(int64_t padding, int64_t rows) {
  return padding == MOTH_NO_INT ? -1 : padding < 0 ? padding + rows : padding;
}

/* y itself, or an f32 scratch tensor if y has a half type. The caller releases it. */
static moth_tensor *computed(moth_tensor *y) {
  if (!moth_is_half(y->l.dtype)) return moth_packed(y);
  moth_layout l = y->l;
  l.dtype = MOTH_F32;
  return moth_tensor_new(y->ctx, &l);
}

MOTH_CUDA(embedding_rows) {
  const int64_t rows = a->weight->l.shape[0];
  moth_tensor *list = moth_packed(a->input), *w = NULL, *y = NULL;
  if (list) w = a->shared && moth_is_half(a->weight->l.dtype) ? moth_cast(a->weight, MOTH_F32)
                                                              : moth_packed(a->weight);
  if (w) y = a->shared ? computed(out[0]) : moth_packed(out[0]);
  int status = y ? selection_read(selection_of_slices(w, 0, list), w, y) : moth_status(a->ctx);
  if (!status && a->shared)
    status = share(y, list, true, rows, real_padding(a->padding_idx, rows),
                   a->scale_grad_by_freq);
  if (!status && a->shared && moth_is_half(out[0]->l.dtype)) status = moth_copy_into(out[0], y);
  moth_tensor_release(y);
  moth_tensor_release(w);
  moth_tensor_release(list);
  return status;
}

MOTH_CUDA(embedding_back) {
  const int64_t rows = a->num_embeddings;
  moth_tensor *list = moth_packed(a->index), *y = list ? computed(out[0]) : NULL, *dy = NULL;
  if (y) dy = moth_is_half(a->input->l.dtype) ? moth_cast(a->input, MOTH_F32)
                                              : moth_packed(a->input);
  int status = dy ? clear(y) : moth_status(a->ctx);
  if (!status) {
    selection p = selection_of_slices(y, 0, list);
    p.skip = real_padding(a->padding_idx, rows);
    p.skips = p.skip >= 0;
    status = selection_write(p, SELECT_ADD, y, dy);
  }
  if (!status && a->scale_grad_by_freq) status = share(y, list, false, rows, -1, true);
  if (!status && moth_is_half(out[0]->l.dtype)) status = moth_copy_into(out[0], y);
  moth_tensor_release(dy);
  moth_tensor_release(y);
  moth_tensor_release(list);
  return status;
}

/* -- renorm: a warp for each token, at its first position in the sorted list -- */

enum { NORM_1, NORM_2, NORM_MOST, NORM_P };

static __device__ inline double part_of(double x, int kind, double p) {
  const double size = fabs(x);
  return kind == NORM_2 ? x * x : kind == NORM_P ? pow(size, p) : size;
}

template <class T>
static __global__ void shorten(selection k, int64_t d, int64_t step, double most, double p,
                               int kind, char *w) {
  const int64_t i = thread_number() / WARP;
  const int lane = threadIdx.x % WARP;
  if (i >= k.count) return;
  const int64_t at = k.at[i];
  if (at >= k.limit || (i > 0 && k.at[i - 1] == at)) return;
  char *row = w + at * k.scale;
  double sum = 0;
  for (int64_t j = lane; j < d; j += WARP) {
    const double own = part_of((double)get((const T *)(const void *)(row + j * step)), kind, p);
    sum = kind == NORM_MOST ? (own > sum || own != own ? own : sum) : sum + own;
  }
  for (int by = WARP / 2; by; by /= 2) {
    const double other = __shfl_xor_sync(0xffffffffu, sum, by);
    sum = kind == NORM_MOST ? (other > sum || other != other ? other : sum) : sum + other;
  }
  const double norm = kind == NORM_2 ? sqrt(sum) : kind == NORM_P ? pow(sum, 1 / p) : sum;
  if (!(norm > most)) return;
  for (int64_t j = lane; j < d; j += WARP) {
    T *x = (T *)(void *)(row + j * step);
    put(x, (double)get(x) * (most / (norm + 1e-7))); /* PyTorch's epsilon */
  }
}

MOTH_CUDA(embedding_renorm_) {
  const moth_tensor *w = a->weight;
  const int64_t d = w->l.shape[1], step = w->l.stride[1] * moth_dtype_size[w->l.dtype];
  const double p = a->norm_type;
  const int kind = p == 1 ? NORM_1 : p == 2 ? NORM_2 : p == HUGE_VAL ? NORM_MOST : NORM_P;
  moth_tensor *list = moth_packed(a->input);
  sorted_list o = {NULL, NULL};
  (void)out;
  if (!list || w->l.numel == 0 || list->l.numel == 0) {
    moth_tensor_release(list);
    return list ? MOTH_OK : moth_status(a->ctx);
  }
  selection k = selection_of_slices(w, 0, list);
  int status = selection_sort(&k, w, false, &o);
  if (!status)
    status = with_float(w->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return launch(a->ctx, w, shorten<T>, blocks_for(k.count * WARP), BLOCK, 0, k, d, step,
                    (double)a->max_norm, p, kind, moth_address(w));
    });
  sorted_list_free(&o);
  moth_tensor_release(list);
  return status;
}
