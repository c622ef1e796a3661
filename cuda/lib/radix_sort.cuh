/* radix_sort.cuh -- stable sorting of integers (radix_sort.cu): lists, which give additions to the
** same element a fixed order, and rows of keys. */
#ifndef MOTH_CUDA_RADIX_SORT_CUH
#define MOTH_CUDA_RADIX_SORT_CUH

#include "reduce.cuh"

/* -- lists -- */

/* Keys in ascending order, and the original position of each in the list. The caller frees it. */
struct sorted_list {
  moth_tensor *key, *from;
};

static inline void sorted_list_free(sorted_list *o) {
  moth_tensor_release(o->key);
  moth_tensor_release(o->from);
  *o = sorted_list{NULL, NULL};
}

/* A new list of n elements on `like`'s device, uninitialized. The caller releases it. NULL: error
** set. */
static inline moth_tensor *list_new(const moth_tensor *like, int64_t n, int dtype = MOTH_I64) {
  moth_layout l;
  memset(&l, 0, sizeof l);
  l.ndim = 1;
  l.dtype = (uint8_t)dtype;
  l.device = like->l.device;
  l.shape[0] = n;
  return moth_tensor_new(like->ctx, &l);
}

/* o := the sorted numbers of a packed list, all in [0, range]. The caller frees it, even after an
** error. */
MOTH_LOCAL int sort_list(moth_ctx *ctx, const moth_tensor *keys, int64_t range, sorted_list *o);

/* at[i] := the sum of the preceding elements, at[n] := the sum of all. */
MOTH_LOCAL int scan_list(moth_ctx *ctx, const moth_tensor *like, int64_t n, int64_t *at);

/* -- rows -- */

enum { RADIX_EACH = 8, RADIX_TILE = BLOCK * RADIX_EACH, RADIX_DIGITS = 16 };

/* Rows of n keys, one after another, and buffers for a second list of keys, for two lists of
** original positions (From), and for counts. The keys may be in keys[1]. */
template <class From> struct radix {
  int64_t rows, n;
  const uint64_t *key;
  uint64_t *keys[2];
  From *from[2];
  int64_t *starts; /* number of radix_counts, plus one */
};

static inline int64_t radix_tiles(int64_t n) { return (n + RADIX_TILE - 1) / RADIX_TILE; }

static inline int64_t radix_counts(int64_t rows, int64_t n) {
  return rows * radix_tiles(n) * RADIX_DIGITS;
}

/* Sorts by the lowest `bits` of the keys; From: uint32_t, int64_t. *last: the index of the sorted
** list. */
template <class From>
MOTH_LOCAL int radix_sort(moth_ctx *ctx, const moth_tensor *like, const radix<From> &r, int bits,
                          int *last);

#endif
