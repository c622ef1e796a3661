/* order.cuh -- a list of numbers put in order, equal ones in the order in which they came: what
** lets additions at the same place follow each other always alike.
**
** A short list is ranked by comparing each number with all others, a longer one goes to radix.cuh.
*/
#ifndef MOTH_CUDA_ORDER_CUH
#define MOTH_CUDA_ORDER_CUH

#include "numbers.cuh"
#include "radix.cuh"

/* Keys in ascending order, and which place of the list each came from. Owned by the caller. */
struct ordered {
  moth_tensor *key, *from;
};

static inline void ordered_free(ordered *o) {
  moth_tensor_release(o->key);
  moth_tensor_release(o->from);
  *o = ordered{NULL, NULL};
}

/* A list of n elements where `like` lies, with values left to chance. Owned, NULL: error set. */
static inline moth_tensor *list_new(const moth_tensor *like, int64_t n, int dtype = MOTH_I64) {
  moth_layout l;
  memset(&l, 0, sizeof l);
  l.ndim = 1;
  l.dtype = (uint8_t)dtype;
  l.device = like->l.device;
  l.shape[0] = n;
  return moth_tensor_new(like->ctx, &l);
}

enum { ORDER_SHORT = 4096 };

static __global__ void order_short(int64_t n, const int64_t *in, int64_t *key, int64_t *from) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t own = in[i];
  int64_t rank = 0;
  for (int64_t j = 0; j < n; j++) rank += in[j] < own || (in[j] == own && j < i);
  key[rank] = own;
  from[rank] = i;
}

static inline int order_long(moth_ctx *ctx, const moth_tensor *keys, int64_t range, ordered *o) {
  const int64_t n = keys->l.numel;
  ordered spare = {list_new(keys, n), list_new(keys, n)};
  moth_tensor *starts = list_new(keys, radix_counts(1, n) + 1);
  int status = spare.key && spare.from && starts ? MOTH_OK : moth_status(ctx);
  int bits = 0, last = 0;
  while (bits < 63 && range >> bits > 0) bits++;
  if (!status) {
    const radix<int64_t> r = {1, n, data<uint64_t>(keys),
                              {data<uint64_t>(o->key), data<uint64_t>(spare.key)},
                              {data<int64_t>(o->from), data<int64_t>(spare.from)},
                              data<int64_t>(starts)};
    status = radix_sort(ctx, keys, r, bits, &last);
  }
  if (last) {
    const ordered done = spare;
    spare = *o;
    *o = done;
  }
  moth_tensor_release(starts);
  ordered_free(&spare);
  return status;
}

/* o := the numbers of a packed list, all in [0, range], in order. Must be freed, even after an
** error. */
static inline int order_list(moth_ctx *ctx, const moth_tensor *keys, int64_t range, ordered *o) {
  const int64_t n = keys->l.numel;
  *o = ordered{list_new(keys, n), list_new(keys, n)};
  if (!o->key || !o->from) return moth_status(ctx);
  if (n == 0) return MOTH_OK;
  if (n > ORDER_SHORT) return order_long(ctx, keys, range, o);
  return launch(ctx, keys, order_short, blocks_for(n), BLOCK, 0, n,
                (const int64_t *)data<int64_t>(keys), data<int64_t>(o->key),
                data<int64_t>(o->from));
}

#endif
