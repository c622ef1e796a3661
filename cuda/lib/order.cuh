/* order.cuh -- numbers put in order, equal ones in the order in which they came (order.cu): lists,
** which let additions at the same place follow each other always alike, and rows of keys.
*/
#ifndef MOTH_CUDA_ORDER_CUH
#define MOTH_CUDA_ORDER_CUH

#include "reduce.cuh"

/* -- lists -- */

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

/* o := the numbers of a packed list, all in [0, range], in order. Must be freed, even after an
** error. */
MOTH_LOCAL int order_list(moth_ctx *ctx, const moth_tensor *keys, int64_t range, ordered *o);

/* at[i] := the sum of those before it, at[n] := the sum of all. */
MOTH_LOCAL int scan_list(moth_ctx *ctx, const moth_tensor *like, int64_t n, int64_t *at);

/* -- rows -- */

enum { RADIX_EACH = 8, RADIX_TILE = BLOCK * RADIX_EACH, RADIX_DIGITS = 16 };

/* Rows of n keys, one behind the other, and room for two more lists of them, of where each came
** from (a From), and for counts. The keys may lie in keys[1]. */
template <class From> struct radix {
  int64_t rows, n;
  const uint64_t *key;
  uint64_t *keys[2];
  From *from[2];
  int64_t *starts; /* radix_counts of them, and one more */
};

static inline int64_t radix_tiles(int64_t n) { return (n + RADIX_TILE - 1) / RADIX_TILE; }

static inline int64_t radix_counts(int64_t rows, int64_t n) {
  return rows * radix_tiles(n) * RADIX_DIGITS;
}

/* Sorts by the lowest `bits` of the keys; From: uint32_t, int64_t. *last: which of the two lists is
** in order then. */
template <class From>
MOTH_LOCAL int radix_sort(moth_ctx *ctx, const moth_tensor *like, const radix<From> &r, int bits,
                          int *last);

#endif
